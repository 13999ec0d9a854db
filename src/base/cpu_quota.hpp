// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a container may use of the processors: a quota of time, which its threads do not see
// otherwise. One that spins beside another on one core of quota makes both stand still for most of
// each period.
#pragma once

#include <string>

namespace tutti {

/// The least quota of this process's cgroup and those above it, in whole cores, at least 1; 0: no
/// quota. `cgroups`: what proc(5) tells of a process; `mounted`: where cgroups are.
int cpu_quota_cores(const std::string& cgroups = "/proc/self/cgroup",
                    const std::string& mounted = "/sys/fs/cgroup");

/// The quota that a cgroup's file states; 0: none. `cpu_max`: "max 100000" or "150000 100000"
/// (cgroup v2, cpu.max).
int quota_of_cpu_max(const std::string& cpu_max);

}  // namespace tutti
