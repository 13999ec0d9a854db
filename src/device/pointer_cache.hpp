// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Pointer classification in nanoseconds: a small direct-mapped cache per thread, keyed by
// address >> 21, in front of Api::classify. Device addresses come from ranges that the driver
// reserves, so "is device" stays true while the allocation lives; a host answer is short-lived,
// because a host page can be registered or unmapped and mapped again as managed memory.
// Without a device library the cost is one load and one branch.
// Source: design note "Pointer classification in nanoseconds" in docs/architecture.md.
#pragma once

#include "device/device.hpp"

namespace tutti::device {

/// Classifies through the cache. `api` null means host. Null pointers are host.
PointerInfo classify_cached(Api* api, const void* pointer);

/// Forgets everything on all threads (a device library was closed, tests).
void forget_classifications();

}  // namespace tutti::device
