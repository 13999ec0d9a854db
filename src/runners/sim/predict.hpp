// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A question to the simulator and its answer as JSON documents (tutti_simulate_json in
// include/tutti/tutti.h says what stands in them).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"

namespace tutti::runners::sim {

/// The algorithms that can be asked for: [{"collective", "name", "summary"}].
nlohmann::json algorithms_json();

Result<nlohmann::json> predict(const nlohmann::json& query);

}  // namespace tutti::runners::sim
