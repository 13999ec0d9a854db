// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A question to the packet simulator and its answer as JSON documents (tutti_simulate_network_json
// in include/tutti/tutti.h says what stands in them).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.hpp"

namespace tutti::runners::sim {

Result<nlohmann::json> simulate_network(const nlohmann::json& query);

/// What "congestion" and TUTTI_NET_CONTROLLER may be.
std::string congestion_controllers();

}  // namespace tutti::runners::sim
