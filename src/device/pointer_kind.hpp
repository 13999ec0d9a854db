// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Pointer classification in nanoseconds: a thread's stack and the brk heap are host memory by two
// comparisons; of everything else the library is asked, because an answer by address does not keep
// (pointer_kind.cpp says what was measured; Api::classify in cuda_memory.cpp and hip.cpp, what its
// answer means). Without a device library the cost is one load and one branch.
#pragma once

#include "device/device.hpp"

namespace tutti::device {

/// Classifies, asking the library only where that is needed. `api` null means host. Null pointers
/// are host.
PointerInfo kind_of_pointer(Api* api, const void* pointer);
/// Whether that is kHost. Faster: a PointerInfo that is returned stalls who reads it, 15 ns.
bool is_host(Api* api, const void* pointer);

/// True for addresses on this thread's stack or on the heap of brk(2), which no GPU library gives
/// out, and for null. Takes a few nanoseconds; asks nobody. False: unknown.
bool is_surely_host(const void* pointer);

}  // namespace tutti::device
