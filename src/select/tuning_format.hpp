// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the writer and the reader of tuning files, and explanations, have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "select/plan.hpp"

namespace tutti::select {

/// Name and version of the format; a new number when old readers would misread a file.
inline constexpr const char* kTuningSchema = "tutti-tuning/1";

/// The value of "parameters": only what is set.
nlohmann::ordered_json parameters_json(const PlanParameters& parameters);

}  // namespace tutti::select
