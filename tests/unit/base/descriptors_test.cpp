// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/descriptors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace tutti {
namespace {

TEST(Descriptors, descriptors_left__as_many_as_can_be_opened) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(descriptors_max(), 100);
  const int left = descriptors_left();
  std::vector<int> opened;
  for (int one = 0; (one = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
    opened.push_back(one);
  }
  EXPECT_EQ(why_no_descriptor(), "Too many open files; remedy: a higher ulimit -n than 100");
  EXPECT_EQ(opened.size(), static_cast<std::size_t>(left));
  EXPECT_EQ(descriptors_left(), 0);
  for (const int one : opened) {
    close(one);
  }
  EXPECT_EQ(descriptors_left(), left);
  setrlimit(RLIMIT_NOFILE, &before);
  errno = ENOENT;
  EXPECT_EQ(why_no_descriptor(), "No such file or directory");
}

}  // namespace
}  // namespace tutti
