// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How data and flags share memory between GPUs. A line is what eight lanes write together (one lane
// on the host): some units of data and the epoch that says that they are there. Every line of an
// arena has its flags at the same places for as long as it lives, so data of an earlier call is
// never taken for a flag.
#pragma once

#include "device/kernels/hardware.hpp"

namespace tutti::device::kernels {

#if TUTTI_ON_GPU

/// 7 units and 16 bytes of flag in 128 bytes. Needs that the 128 bytes which eight neighbouring
/// lanes store with one instruction arrive in one piece: true on NVLink and within a GPU from Volta
/// on (what NCCL's LL128 protocol rests on), not on PCIe and not on AMD.
struct Lines {
  static constexpr Word kLanes = 8;  ///< Of a line.
  static constexpr Word kUnits = 7;  ///< Of data in a line.
  static constexpr Word kLaneUnits = 1;
  static constexpr Word kBytes = 128;
  struct Value {
    Unit unit[kLaneUnits];
  };
  static TUTTI_INLINE void put(Byte* line, Word lane, const Value& value, Wide epoch) {
    const Word low = static_cast<Word>(epoch);
    const Word high = static_cast<Word>(epoch >> 32);
    // Loads before this may have parted the lanes, and the line must leave in one piece.
    Hardware::put_together(line + lane * kUnitBytes,
                           lane == kUnits ? Unit{low, high, low, high} : value.unit[0]);
  }
  /// One look. True when this lane has seen nothing that is not of `epoch`; a value counts when all
  /// lanes of its line have said so of one look.
  static TUTTI_INLINE bool get(const Byte* line, Word lane, Wide epoch, Value* value) {
    const Unit unit = Hardware::get_together(line + lane * kUnitBytes);
    value->unit[0] = unit;
    return lane != kUnits ||
           (unit[0] == static_cast<Word>(epoch) && unit[1] == static_cast<Word>(epoch >> 32));
  }
};

/// 8 units in 256 bytes: each 8 bytes are 4 of data and 4 of flag, which no memory system tears.
struct Packets {
  static constexpr Word kLanes = 8;
  static constexpr Word kUnits = 8;
  static constexpr Word kLaneUnits = 1;
  static constexpr Word kBytes = 256;
  struct Value {
    Unit unit[kLaneUnits];
  };
  static TUTTI_INLINE void put(Byte* line, Word lane, const Value& value, Wide epoch) {
    const Word flag = static_cast<Word>(epoch);
    Byte* const to = line + lane * 2 * kUnitBytes;
    Hardware::put(to, Unit{value.unit[0][0], flag, value.unit[0][1], flag});
    Hardware::put(to + kUnitBytes, Unit{value.unit[0][2], flag, value.unit[0][3], flag});
  }
  static TUTTI_INLINE bool get(const Byte* line, Word lane, Wide epoch, Value* value) {
    const Word flag = static_cast<Word>(epoch);
    const Byte* const from = line + lane * 2 * kUnitBytes;
    const Unit a = Hardware::get(from);
    const Unit b = Hardware::get(from + kUnitBytes);
    value->unit[0] = Unit{a[0], a[2], b[0], b[2]};
    return a[1] == flag && a[3] == flag && b[1] == flag && b[3] == flag;
  }
};

#else

/// 7 units, then the flag: stored with release, read with acquire.
struct Lines {
  static constexpr Word kLanes = 1;
  static constexpr Word kUnits = 7;
  static constexpr Word kLaneUnits = 7;
  static constexpr Word kBytes = 128;
  struct Value {
    Unit unit[kLaneUnits];
  };
  static void put(Byte* line, Word /*lane*/, const Value& value, Wide epoch) {
    __builtin_memcpy(line, value.unit, kUnits * kUnitBytes);
    __atomic_store_n(flag(line), epoch, __ATOMIC_RELEASE);
  }
  static bool get(const Byte* line, Word /*lane*/, Wide epoch, Value* value) {
    if (__atomic_load_n(flag(line), __ATOMIC_ACQUIRE) != epoch) {
      return false;
    }
    __builtin_memcpy(value->unit, line, kUnits * kUnitBytes);
    return true;
  }

 private:
  static Wide* flag(const Byte* line) {
    return reinterpret_cast<Wide*>(const_cast<Byte*>(line) + kUnits * kUnitBytes);
  }
};

#endif

}  // namespace tutti::device::kernels
