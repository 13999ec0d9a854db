// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// On which processors our threads run in a process that is not ours.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"

namespace tutti::net {

/// Those that this process could use when it was asked first, whatever the calling thread may;
/// ascending. Libraries narrow its threads later, for a while or for good.
const std::vector<int>& processors_of_process();

/// Errors: TUTTI_NET_AFFINITY is neither near, off nor a list of processors (kInvalidConfig).
Status check_affinity(const std::string& affinity);

/// Where engine threads of a device may run, by TUTTI_NET_AFFINITY: of the processors `near` it
/// ("near"), or of a list ("0-3,8"), those that are `allowed`. Empty: wherever their starter may
/// ("off", "near" where nothing is known or nothing is narrower). `fallback`: what there is in
/// place of what was asked for; empty: it is as asked. Errors: those of check_affinity(), a list
/// without an allowed processor (kInvalidConfig).
Result<std::vector<int>> choose_processors(const std::string& affinity,
                                           const std::vector<int>& near,
                                           const std::vector<int>& allowed, std::string* fallback);

/// The thread runs there from now on; nothing happens where `processors` is empty.
/// Errors: the system refuses (kUnavailable).
Status bind_thread(std::thread& thread, const std::vector<int>& processors);

}  // namespace tutti::net
