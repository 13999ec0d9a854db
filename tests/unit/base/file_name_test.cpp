// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/file_name.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/host_name.hpp"

namespace tutti {
namespace {

const std::string kProcess = std::to_string(getpid());

TEST(FileName, expand_file_name__host_and_process) {
  EXPECT_EQ(expand_file_name("/tmp/x-%h-%p-%p.log"),
            "/tmp/x-" + host_name() + "-" + kProcess + "-" + kProcess + ".log");
  EXPECT_EQ(expand_file_name("100%"), "100%");
  EXPECT_EQ(expand_file_name("%q%%"), "%q%%");
}

TEST(FileName, expand_own_file_name__the_process_is_always_in_it) {
  EXPECT_EQ(expand_own_file_name("/a.b/x.json"), "/a.b/x." + kProcess + ".json");
  EXPECT_EQ(expand_own_file_name("/a.b/x"), "/a.b/x." + kProcess);
  EXPECT_EQ(expand_own_file_name("/a/.x"), "/a/.x." + kProcess);
  EXPECT_EQ(expand_own_file_name("x%p"), "x" + kProcess);
}

TEST(FileName, before_ending__last_ending) {
  EXPECT_EQ(before_ending("x.1.json", "2"), "x.1.2.json");
  EXPECT_EQ(before_ending("/a.b/.x.prom", "2"), "/a.b/.x.2.prom");
}

}  // namespace
}  // namespace tutti
