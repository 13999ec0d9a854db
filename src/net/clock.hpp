// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one clock of the engine threads.
#pragma once

#include "base/clock.hpp"
#include "transport/types.hpp"

namespace tutti::net {

inline transport::TimeNs now_ns() { return monotonic_ns(); }

}  // namespace tutti::net
