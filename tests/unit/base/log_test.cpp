// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/log.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tutti {
namespace {

/// An empty directory that goes away with the test.
class Log : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tutti_log_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    for (const std::string& file : files_) {
      unlink(file.c_str());
    }
    rmdir(directory_.c_str());
  }

  std::string path(const std::string& name) {
    files_.push_back(directory_ + "/" + name);
    return files_.back();
  }

  static std::string content(const std::string& file) {
    std::ifstream stream(file);
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
  }

 private:
  std::string directory_;
  std::vector<std::string> files_;
};

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

TEST_F(Log, log_enabled__follows_the_level) {
  configure_log(LogLevel::kInfo, "");
  EXPECT_TRUE(log_enabled(LogLevel::kError));
  EXPECT_TRUE(log_enabled(LogLevel::kInfo));
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
}

TEST_F(Log, log__line_names_host_process_rank_level) {
  std::string file = path("log");
  configure_log(LogLevel::kWarn, file);
  set_log_rank(7);
  log(LogLevel::kWarn, "seven");
  set_log_rank(-1);
  log(LogLevel::kError, "none");
  std::string place = "tutti " + host() + ":" + std::to_string(getpid());
  EXPECT_EQ(content(file), place + " 7 WARN seven\n" + place + " - ERROR none\n");
}

TEST_F(Log, log__leaves_out_lower_levels) {
  std::string file = path("log");
  configure_log(LogLevel::kError, file);
  log(LogLevel::kWarn, "not shown");
  EXPECT_EQ(content(file), "");
}

TEST_F(Log, configure_log__expands_host_and_process) {
  std::string plain = path(host() + "." + std::to_string(getpid()) + "%x%");
  std::string directory = plain.substr(0, plain.rfind('/'));
  configure_log(LogLevel::kWarn, directory + "/%h.%p%x%");
  log(LogLevel::kWarn, "here");
  EXPECT_NE(content(plain).find("WARN here\n"), std::string::npos);
}

TEST_F(Log, configure_log__appends) {
  std::string file = path("log");
  std::ofstream(file) << "before\n";
  configure_log(LogLevel::kWarn, file);
  log(LogLevel::kWarn, "after");
  EXPECT_EQ(content(file).rfind("before\n", 0), 0U);
  EXPECT_NE(content(file).find("after"), std::string::npos);
}

TEST_F(Log, configure_log__unwritable_file_is_reported_and_logging_goes_on) {
  std::string file = path("log");
  configure_log(LogLevel::kWarn, file);
  configure_log(LogLevel::kWarn, "/nonexistent/directory/log");
  EXPECT_NE(content(file).find("cannot open '/nonexistent/directory/log'"), std::string::npos);
}

}  // namespace
}  // namespace tutti
