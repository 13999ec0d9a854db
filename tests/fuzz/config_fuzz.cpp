// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Each line is one "NAME=value" of an environment. Whatever it says, the values are in their
// ranges, complaints begin with the variable's name, and the listing is JSON whose values would
// be accepted.
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/config.hpp"
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream lines(tutti::fuzz::text_of(data, size));
  std::vector<std::string> environment;
  for (std::string line; std::getline(lines, line);) {
    environment.push_back(line);
  }
  tutti::ParsedConfig parsed = tutti::parse_config(environment);
  for (const tutti::ConfigProblem& problem : parsed.problems) {
    FUZZ_ASSERT(tutti::fuzz::readable(problem.text, "TUTTI_"));
  }
  FUZZ_ASSERT(parsed.config.virtual_nodes.count >= 0 && parsed.config.virtual_nodes.count <= 65536);
  FUZZ_ASSERT(parsed.config.timeout_s >= 0 && parsed.config.timeout_s <= 31536000);
  FUZZ_ASSERT(parsed.config.pipeline_chunk_bytes <= tutti::Bytes{16} << 30);
  FUZZ_ASSERT(parsed.config.pinned_pool_bytes <= tutti::Bytes{1} << 40);

  std::vector<std::string> listed;
  for (const auto& knob : nlohmann::json::parse(tutti::config_json(environment))) {
    listed.push_back(knob["name"].get<std::string>() + "=" + knob["value"].get<std::string>());
  }
  FUZZ_ASSERT(tutti::parse_config(listed).problems.empty());
  return 0;
}
