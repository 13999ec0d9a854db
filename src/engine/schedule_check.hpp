// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// `tutti schedule check`: the validator asked from outside.
#pragma once

#include <string>

#include "base/result.hpp"

namespace tutti::engine {

/// Generates and proves one algorithm; query and answer are JSON documents (tutti.h,
/// tutti_schedule_check_json). Errors name the key.
Result<std::string> check_schedule(const std::string& query);

}  // namespace tutti::engine
