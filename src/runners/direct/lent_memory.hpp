// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The end of device memory that other ranks have mapped. CUDA and HIP leave undefined what happens
// when it is freed before the last of them has let go of it, and ranks end communicators when they
// like. So the memory of a rank that ends earlier than its peers stays until they have left or
// their processes have ended; it is freed when this process makes or ends a communicator after
// that, else with the process.
#pragma once

#include <vector>

#include "device/device.hpp"
#include "runners/direct/attendance.hpp"

namespace tutti::runners {

/// Takes `memories` of `api` and frees them as soon as `attendance` has nobody left, for which it
/// waits some tenths of a second. `api` must live when free_lent_memory() is called with it.
void free_when_alone(device::Api& api, std::vector<void*> memories, Attendance attendance);
/// Frees what may be by now of what the above had to keep.
void free_lent_memory(device::Api& api);

}  // namespace tutti::runners
