// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Simulated time: integer picoseconds since the start of the run (213 days fit). One byte at
// 400 Gb/s is 20 ps, so that all usual rates are exact.
#pragma once

#include <cstdint>

namespace tutti::simulate {

using TimePs = std::uint64_t;
inline constexpr TimePs kNever = UINT64_MAX;
inline constexpr TimePs kPsPerNs = 1000;
inline constexpr TimePs kPsPerUs = 1000 * 1000;

/// A link's rate as the time one byte takes, in 1/65536 ps: 400 Gb/s is 20 << 16.
using PsPerByteQ16 = std::uint32_t;

/// 0 (a rate of nothing) when the rate is 0; rates from 1 Gb/s up to 500 Tb/s keep their meaning.
constexpr PsPerByteQ16 ps_per_byte_q16(std::uint64_t mbit_per_s) {
  return mbit_per_s == 0 ? 0 : static_cast<PsPerByteQ16>((8'000'000ULL << 16) / mbit_per_s);
}

/// Time of `bytes` on a link.
constexpr TimePs serialisation_ps(std::uint64_t bytes, PsPerByteQ16 rate) {
  return (bytes * rate) >> 16;
}

}  // namespace tutti::simulate
