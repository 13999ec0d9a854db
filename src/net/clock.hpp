// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one clock of the engine threads.
#pragma once

#include <ctime>

#include "transport/types.hpp"

namespace tutti::net {

inline transport::TimeNs now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<transport::TimeNs>(now.tv_sec) * 1'000'000'000U +
         static_cast<transport::TimeNs>(now.tv_nsec);
}

}  // namespace tutti::net
