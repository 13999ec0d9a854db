// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "select/table.hpp"

namespace tutti::select {
namespace {

/// A home directory of its own; the machine's real one must not reach the tests.
class Effective : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tutti_home_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    home_ = pattern;
    setenv("HOME", home_.c_str(), 1);
    unsetenv("XDG_CONFIG_HOME");
  }
  void TearDown() override {
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) {
      remove(path->c_str());
    }
    rmdir(home_.c_str());
  }

  void make_directory(const std::string& path) {
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    made_.push_back(path);
  }
  void write_rule(const std::string& file, const std::string& plan) {
    std::ofstream(file) << R"({"schema": "tutti-tuning/1", "rules": [{"plan": ")" << plan
                        << R"("}]})";
    made_.push_back(file);
  }

  std::string home_;

 private:
  std::vector<std::string> made_;
};

TEST_F(Effective, tuning_file_path__none) { EXPECT_EQ(tuning_file_path(Config{}), ""); }

TEST_F(Effective, tuning_file_path__the_variable_goes_first_even_if_missing) {
  Config config;
  config.tuning_file = "/nonexistent.json";
  EXPECT_EQ(tuning_file_path(config), "/nonexistent.json");
}

TEST_F(Effective, tuning_file_path__in_the_home_directory) {
  make_directory(home_ + "/.config");
  make_directory(home_ + "/.config/tutti");
  EXPECT_EQ(tuning_file_path(Config{}), "");
  write_rule(home_ + "/.config/tutti/tuning.json", "mpi");
  EXPECT_EQ(tuning_file_path(Config{}), home_ + "/.config/tutti/tuning.json");
}

TEST_F(Effective, tuning_file_path__xdg_goes_before_home) {
  make_directory(home_ + "/x");
  make_directory(home_ + "/x/tutti");
  write_rule(home_ + "/x/tutti/tuning.json", "mpi");
  setenv("XDG_CONFIG_HOME", (home_ + "/x").c_str(), 1);
  EXPECT_EQ(tuning_file_path(Config{}), home_ + "/x/tutti/tuning.json");
  setenv("XDG_CONFIG_HOME", "x", 1);
  EXPECT_EQ(tuning_file_path(Config{}), "");
}

TEST_F(Effective, effective_table__defaults_alone) {
  Result<Table> table = effective_table(Config{});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->hash(), default_table().hash());
}

TEST_F(Effective, effective_table__environment_over_file_over_defaults) {
  write_rule(home_ + "/t.json", "ccl-beta");
  Config config;
  config.tuning_file = home_ + "/t.json";
  config.plans[static_cast<std::size_t>(Collective::kBcast)] = "8K:mpi,ccl";
  config.plans[static_cast<std::size_t>(Collective::kReduceScatterBlock)] = "mpi-alpha";
  Result<Table> table = effective_table(config);
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_EQ(table->rules.size(), 4 + default_table().rules.size());
  EXPECT_EQ(table->rules[0].origin, "TUTTI_BCAST");
  EXPECT_EQ(table->rules[2].origin, "TUTTI_REDUCE_SCATTER_BLOCK");
  EXPECT_EQ(table->rules[3].origin, home_ + "/t.json:1");
  EXPECT_EQ(table->rules[4].origin, default_table().rules[0].origin);
}

TEST_F(Effective, effective_table__missing_file_is_an_error) {
  Config config;
  config.tuning_file = "/nonexistent.json";
  EXPECT_EQ(effective_table(config).status().message(),
            "/nonexistent.json: cannot be opened: No such file or directory");
}

TEST_F(Effective, effective_table__bad_list_is_an_error) {
  Config config;
  config.plans[static_cast<std::size_t>(Collective::kReduceScatter)] = "mpi,ccl";
  EXPECT_EQ(effective_table(config).status().message().rfind("TUTTI_REDUCE_SCATTER: entry 1", 0),
            0U);
}

}  // namespace
}  // namespace tutti::select
