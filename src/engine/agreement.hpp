// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which memory the ranks of a communicator keep their buffers in: agreed, never assumed. MPI lets
// one rank pass device memory and another host memory to the same call, so a rank's own pointers
// must never choose a plan. Each class of calls (collective, power of two of the bytes) holds an
// agreed mode, and the ranks agree anew at its calls 1, 2, 4, ..., 8192, and then every 8192nd;
// all ranks count alike, so all take part. Between agreements a rank whose buffer does not fit
// the mode copies it in and out. Per class and not per communicator, so that a program which mixes
// small host reductions with large device ones gets both right.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "select/shape.hpp"

namespace tutti::engine {

/// True for calls 1, 2, 4, ..., 8192, 16384, 24576, ... (counted from 1).
inline bool agreement_due(std::uint64_t call_number) {
  // Sixteen ranks need 15 to 40 us for one, as long as 30 to 80 of their fastest calls.
  constexpr std::uint64_t kPeriod = 8192;
  return call_number < kPeriod ? std::has_single_bit(call_number) : call_number % kPeriod == 0;
}

class MemoryModes {
 public:
  struct Class {
    std::uint64_t calls = 0;
    select::Memory mode = select::Memory::kHost;
  };
  /// The class of a call; calls without a known size share one per collective.
  Class& of(select::Collective collective, std::optional<Bytes> bytes);
  /// What tells a class from the others, the same on every rank; never 0.
  std::uint64_t number_of(const Class& of) const {
    return static_cast<std::uint64_t>(&of - classes_.data()) + 1;
  }
  /// What the next call without a known size will be on; empty where it is agreed on then.
  std::optional<select::Memory> known(select::Collective collective) const;

 private:
  static constexpr std::size_t kUnsized = 65;
  static constexpr std::size_t kSizeClasses = kUnsized + 1;  // 0, 2^0 .. 2^63, unknown.
  std::array<Class, kCollectiveCount * kSizeClasses> classes_;
};

/// What `mpi_assert_memory_alloc_kinds` (MPI 4.1, side document "Memory Allocation Kinds" 1.0)
/// fixes: "cuda:device" or "rocm:device" alone means device, only system and mpi kinds mean host;
/// anything else fixes nothing.
std::optional<select::Memory> asserted_memory(const std::string& kinds);

}  // namespace tutti::engine
