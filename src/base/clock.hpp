// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The kernel's clocks in ns. Not for the pure rooms, which are told the time.
#pragma once

#include <cstdint>
#include <ctime>

namespace tutti {

inline std::uint64_t read_clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t monotonic_ns() { return read_clock_ns(CLOCK_MONOTONIC); }

}  // namespace tutti
