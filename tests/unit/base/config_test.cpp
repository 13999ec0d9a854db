// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/config.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/config_table.hpp"

namespace tutti {
namespace {

Config parsed(const std::vector<std::string>& environment) {
  ParsedConfig result = parse_config(environment);
  EXPECT_TRUE(result.problems.empty()) << result.problems.front().text;
  return result.config;
}

/// The only problem of a one-variable environment.
ConfigProblem problem_of(const std::string& entry) {
  ParsedConfig result = parse_config({entry});
  EXPECT_EQ(result.problems.size(), 1U) << entry;
  return result.problems.empty() ? ConfigProblem{} : result.problems.front();
}

TEST(ConfigTable, knobs__names_are_unique_and_explained) {
  std::set<std::string> names;
  for (const Knob& knob : knobs()) {
    EXPECT_TRUE(names.insert(knob.name).second) << knob.name;
    EXPECT_EQ(knob.name.rfind("TUTTI_", 0), 0U) << knob.name;
    EXPECT_FALSE(knob.effect.empty()) << knob.name;
    EXPECT_FALSE(knob.since.empty()) << knob.name;
    EXPECT_EQ(knob.replaced_by.empty(), !std::holds_alternative<std::monostate>(knob.field))
        << knob.name;
  }
  for (const Knob& knob : knobs()) {  // What a removed one is called now is not removed itself.
    const auto now = std::find_if(knobs().begin(), knobs().end(),
                                  [&](const Knob& one) { return one.name == knob.replaced_by; });
    EXPECT_TRUE(now == knobs().end() || now->replaced_by.empty()) << knob.name;
  }
  EXPECT_EQ(names.count("TUTTI_REDUCE_SCATTER_BLOCK"), 1U);
}

TEST(Config, parse_config__empty_environment_gives_the_defaults) {
  Config config = parsed({});
  EXPECT_TRUE(config.enable);
  EXPECT_FALSE(config.strict);
  EXPECT_EQ(config.log_level, LogLevel::kWarn);
  EXPECT_EQ(config.device, "auto");
  EXPECT_EQ(config.timeout_s, 1800);
  EXPECT_EQ(config.pipeline_chunk_bytes, Bytes{1} << 20);
}

TEST(Config, parse_config__every_knob) {
  Config config =
      parsed({"TUTTI_ENABLE=0", "TUTTI_STRICT=1", "TUTTI_LOG_LEVEL=debug", "TUTTI_LOG_FILE=/tmp/%h",
              "TUTTI_DEVICE=host", "TUTTI_CCL=rccl", "TUTTI_CCL_LIBRARY=/lib/x.so",
              "TUTTI_TUNING_FILE=/t.json", "TUTTI_VIRTUAL_NODES=2", "TUTTI_TIMEOUT=0.5",
              "TUTTI_PIPELINE_CHUNK=256K", "TUTTI_PINNED_POOL=1G", "TUTTI_SYNC_DEVICE=on",
              "TUTTI_SUMMARY=1", "TUTTI_FAULT=drop=0.01,seed=2", "TUTTI_BARRIER=mpi",
              "TUTTI_EXSCAN=native", "TUTTI_REDUCE_SCATTER_BLOCK=8K:mpi,ccl"});
  EXPECT_FALSE(config.enable);
  EXPECT_TRUE(config.strict);
  EXPECT_TRUE(config.summary);
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
  EXPECT_EQ(config.log_file, "/tmp/%h");
  EXPECT_EQ(config.device, "host");
  EXPECT_EQ(config.ccl, "rccl");
  EXPECT_EQ(config.ccl_library, "/lib/x.so");
  EXPECT_EQ(config.tuning_file, "/t.json");
  EXPECT_EQ(config.virtual_nodes.count, 2);
  EXPECT_EQ(config.timeout_s, 0.5);
  EXPECT_EQ(config.pipeline_chunk_bytes, Bytes{256} << 10);
  EXPECT_EQ(config.pinned_pool_bytes, Bytes{1} << 30);
  EXPECT_EQ(config.fault, "drop=0.01,seed=2");
  EXPECT_TRUE(config.sync_device);
  EXPECT_EQ(config.plans[0], "mpi");
  EXPECT_EQ(config.plans[14], "8K:mpi,ccl");
  EXPECT_EQ(config.plans[16], "native");
}

TEST(Config, parse_config__booleans) {
  for (const char* value : {"1", "y", "yes", "on", "true", "TRUE", "On"}) {
    EXPECT_TRUE(parsed({std::string("TUTTI_STRICT=") + value}).strict) << value;
  }
  for (const char* value : {"0", "n", "no", "off", "false", "No"}) {
    EXPECT_FALSE(parsed({std::string("TUTTI_ENABLE=") + value}).enable) << value;
  }
  EXPECT_TRUE(problem_of("TUTTI_STRICT=2").is_error);
}

TEST(Config, parse_config__choices_in_any_case) {
  EXPECT_EQ(parsed({"TUTTI_DEVICE=CUDA"}).device, "cuda");
  EXPECT_EQ(parsed({"TUTTI_LOG_LEVEL=Error"}).log_level, LogLevel::kError);
}

TEST(Config, parse_config__set_to_nothing_is_not_set) {
  EXPECT_TRUE(parsed({"TUTTI_ENABLE="}).enable);
  EXPECT_EQ(parsed({"TUTTI_TIMEOUT="}).timeout_s, 1800);
}

TEST(Config, parse_config__names_of_others_are_skipped) {
  EXPECT_TRUE(parse_config(
                  {"PATH=/bin", "TUTTI=1", "tutti_enable=0", "TUTTIX_A=1", "", "=", "TUTTI_ENABLE"})
                  .problems.empty());
}

TEST(Config, parse_config__first_of_two_counts) {
  EXPECT_EQ(parsed({"TUTTI_VIRTUAL_NODES=2", "TUTTI_VIRTUAL_NODES=3"}).virtual_nodes.count, 2);
}

TEST(Config, parse_config__bad_value_names_all_that_helps) {
  EXPECT_EQ(problem_of("TUTTI_DEVICE=gpu").text,
            "TUTTI_DEVICE: 'gpu' is not allowed; allowed: auto|cuda|hip|host|none; the default "
            "is auto");
  EXPECT_EQ(problem_of("TUTTI_TIMEOUT=-1").text,
            "TUTTI_TIMEOUT: '-1' is not allowed; allowed: 0..31536000 s; the default is 1800");
  EXPECT_EQ(problem_of("TUTTI_PIPELINE_CHUNK=17G").text,
            "TUTTI_PIPELINE_CHUNK: '17G' is not allowed; allowed: 0..16G bytes; the default is "
            "1M");
}

TEST(Config, parse_config__bad_value_keeps_the_default) {
  EXPECT_EQ(parse_config({"TUTTI_PIPELINE_CHUNK=x"}).config.pipeline_chunk_bytes, Bytes{1} << 20);
  EXPECT_EQ(parse_config({"TUTTI_LOG_LEVEL=loud"}).config.log_level, LogLevel::kWarn);
}

TEST(Config, parse_config__bounds_on_both_sides) {
  EXPECT_EQ(parsed({"TUTTI_VIRTUAL_NODES=0"}).virtual_nodes.count, 0);
  EXPECT_EQ(parsed({"TUTTI_VIRTUAL_NODES=65536"}).virtual_nodes.count, 65536);
  EXPECT_TRUE(problem_of("TUTTI_VIRTUAL_NODES=65537").is_error);
  EXPECT_TRUE(problem_of("TUTTI_VIRTUAL_NODES=-1").is_error);
  EXPECT_TRUE(problem_of("TUTTI_VIRTUAL_NODES=99999999999999999999").is_error);
  EXPECT_EQ(parsed({"TUTTI_PIPELINE_CHUNK=16G"}).pipeline_chunk_bytes, Bytes{16} << 30);
  EXPECT_EQ(parsed({"TUTTI_PIPELINE_CHUNK=0"}).pipeline_chunk_bytes, 0U);
  EXPECT_TRUE(problem_of("TUTTI_PIPELINE_CHUNK=inf").is_error);
  EXPECT_EQ(parsed({"TUTTI_TIMEOUT=0"}).timeout_s, 0);
  for (const char* value : {"nan", "inf", "1e400", "5 ", " 5", "5s", "0x10"}) {
    EXPECT_TRUE(problem_of(std::string("TUTTI_TIMEOUT=") + value).is_error) << value;
  }
}

TEST(Config, parse_config__virtual_nodes_of_given_sizes) {
  const VirtualNodes uneven{.count = 3, .sizes = {5, 4, 3}};
  EXPECT_EQ(parsed({"TUTTI_VIRTUAL_NODES=5,4,3"}).virtual_nodes, uneven);
  EXPECT_EQ(parsed({"TUTTI_VIRTUAL_NODES=2"}).virtual_nodes,
            (VirtualNodes{.count = 2, .sizes = {}}));
  for (const char* value : {"5,", ",5", "5,0", "5,-1", "5,,4", "5;4", "5,65537"}) {
    EXPECT_TRUE(problem_of(std::string("TUTTI_VIRTUAL_NODES=") + value).is_error) << value;
  }
  EXPECT_NE(config_json({"TUTTI_VIRTUAL_NODES=5,4,3"}).find("\"5,4,3\""), std::string::npos);
}

TEST(Config, parse_config__unknown_name_is_a_warning_with_the_nearest) {
  ConfigProblem problem = problem_of("TUTTI_ALREDUCE=mpi");
  EXPECT_FALSE(problem.is_error);
  EXPECT_EQ(problem.text, "TUTTI_ALREDUCE: no such variable; did you mean TUTTI_ALLREDUCE?");
}

TEST(Config, parse_config__far_name_is_not_guessed) {
  EXPECT_EQ(problem_of("TUTTI_SOMETHING_ELSE=1").text,
            "TUTTI_SOMETHING_ELSE: no such variable; `tutti config` lists those there are");
}

TEST(Config, parse_config__value_is_shown_short_and_printable) {
  std::string text = problem_of("TUTTI_CCL=\x1b[31m\xff" + std::string(1000, 'x')).text;
  EXPECT_LT(text.size(), 250U);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\xff'), std::string::npos);
}

TEST(Config, config_from_environment__reads_this_process) {
  setenv("TUTTI_VIRTUAL_NODES", "3", 1);
  EXPECT_EQ(config_from_environment().config.virtual_nodes.count, 3);
  unsetenv("TUTTI_VIRTUAL_NODES");
  EXPECT_EQ(config_from_environment().config.virtual_nodes.count, 0);
}

TEST(Config, process_environment__holds_names_and_values) {
  setenv("TUTTI_LOG_LEVEL", "info", 1);
  std::vector<std::string> entries = process_environment();
  unsetenv("TUTTI_LOG_LEVEL");
  EXPECT_EQ(std::count(entries.begin(), entries.end(), "TUTTI_LOG_LEVEL=info"), 1);
}

TEST(Config, environment_value__empty_when_unset) {
  setenv("TUTTI_UNIT_TEST_VALUE", "v", 1);
  EXPECT_EQ(environment_value("TUTTI_UNIT_TEST_VALUE"), "v");
  unsetenv("TUTTI_UNIT_TEST_VALUE");
  EXPECT_EQ(environment_value("TUTTI_UNIT_TEST_VALUE"), "");
}

TEST(Config, config_json__one_entry_for_each_knob) {
  nlohmann::json document = nlohmann::json::parse(config_json({}));
  ASSERT_EQ(document.size(), knobs().size());
  for (std::size_t i = 0; i < document.size(); ++i) {
    EXPECT_EQ(document[i]["name"], knobs()[i].name);
    EXPECT_EQ(document[i]["value"], document[i]["default"]);
    EXPECT_EQ(document[i]["origin"], "default");
    for (const char* key : {"type", "unit", "range", "effect", "since"}) {
      EXPECT_TRUE(document[i][key].is_string()) << key;
    }
  }
}

TEST(Config, config_json__says_what_the_environment_set) {
  nlohmann::json document = nlohmann::json::parse(
      config_json({"TUTTI_PINNED_POOL=65536", "TUTTI_TIMEOUT=bad", "TUTTI_LOG_FILE=\xff"}));
  for (const nlohmann::json& entry : document) {
    if (entry["name"] == "TUTTI_PINNED_POOL") {
      EXPECT_EQ(entry["value"], "64K");
      EXPECT_EQ(entry["default"], "256M");
      EXPECT_EQ(entry["origin"], "environment");
      EXPECT_EQ(entry["type"], "size");
    } else if (entry["name"] == "TUTTI_TIMEOUT") {
      EXPECT_EQ(entry["value"], "1800");
      EXPECT_EQ(entry["origin"], "default");
    } else if (entry["name"] == "TUTTI_LOG_FILE") {
      EXPECT_EQ(entry["value"], "\xef\xbf\xbd");
    }
  }
}

TEST(Config, parse_config__an_old_name_is_taken_with_a_warning) {
  const ParsedConfig old = parse_config({"TUTTI_NET_LANES=3"});
  EXPECT_EQ(3, old.config.net_sub_connections);
  ASSERT_EQ(1U, old.problems.size());
  EXPECT_FALSE(old.problems[0].is_error);
  EXPECT_EQ("TUTTI_NET_LANES is an old name; write TUTTI_NET_SUB_CONNECTIONS",
            old.problems[0].text);
  for (const bool is_new_first : {false, true}) {  // Beside the new one it does not count.
    std::vector<std::string> both = {"TUTTI_NET_LANES=99", "TUTTI_NET_SUB_CONNECTIONS=2"};
    if (is_new_first) {
      std::swap(both[0], both[1]);
    }
    const ParsedConfig result = parse_config(both);
    EXPECT_EQ(2, result.config.net_sub_connections);
    ASSERT_EQ(1U, result.problems.size());
    EXPECT_FALSE(result.problems[0].is_error);
  }
  const ParsedConfig wrong = parse_config({"TUTTI_NET_LANES=99"});
  ASSERT_EQ(2U, wrong.problems.size());
  EXPECT_EQ(0U, wrong.problems[1].text.rfind("TUTTI_NET_LANES: '99'", 0)) << wrong.problems[1].text;
  EXPECT_TRUE(parse_config({"TUTTI_NET_LANES="}).problems.empty());
}

TEST(Config, launcher_rank__whoever_gave_it) {
  const char* const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                               "SLURM_PROCID"};
  std::map<std::string, std::string> before;
  for (const char* const name : names) {
    if (getenv(name) != nullptr) {
      before[name] = getenv(name);
    }
    unsetenv(name);
  }
  EXPECT_FALSE(launcher_rank());
  for (const char* const name : names) {
    setenv(name, "12", 1);
    EXPECT_EQ(launcher_rank(), 12U) << name;
    setenv(name, "3 of 4", 1);
    EXPECT_FALSE(launcher_rank()) << name;
    unsetenv(name);
  }
  for (const auto& [name, value] : before) {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

TEST(Config, config_json__values_parse_back) {
  nlohmann::json document = nlohmann::json::parse(config_json({}));
  std::vector<std::string> environment;
  for (const nlohmann::json& entry : document) {
    environment.push_back(entry["name"].get<std::string>() + "=" +
                          entry["default"].get<std::string>());
  }
  EXPECT_TRUE(parse_config(environment).problems.empty());
}

}  // namespace
}  // namespace tutti
