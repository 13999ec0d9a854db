// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which table open() takes, and what it says about it. CUDA and HIP are both "installed" here.
#include "tables.hpp"

namespace tutti::device::test {
namespace {

TEST(Open, none__takes_nothing) {
  OpenReport report;
  EXPECT_EQ(open("none", &report), nullptr);
  EXPECT_EQ(report.taken, "none");
  EXPECT_NE(report.reason.find("TUTTI_DEVICE=none"), std::string::npos);
}

TEST(Open, unknown__names_the_choices) {
  OpenReport report;
  EXPECT_EQ(open("gpu", &report), nullptr);
  EXPECT_EQ(report.taken, "none");
  EXPECT_NE(report.reason.find("auto, cuda, hip, host or none"), std::string::npos);
}

TEST(Open, host__only_when_asked) {
  OpenReport report;
  const auto api = open("host", &report);
  ASSERT_NE(api, nullptr);
  EXPECT_STREQ(api->name(), "host");
  EXPECT_EQ(report.taken, "host: " TUTTI_HOST_DEVICE);
}

TEST(Open, auto__takes_cuda_first) {
  if (wants_real_cuda()) {
    GTEST_SKIP() << "needs the fakes";
  }
  load_fake("cuda");
  load_fake("hip");
  OpenReport report;
  const auto api = open("auto", &report);
  ASSERT_NE(api, nullptr);
  EXPECT_STREQ(api->name(), "cuda");
  EXPECT_EQ(report.taken.rfind("cuda: ", 0), 0u) << report.taken;
  EXPECT_NE(report.taken.find("libcuda.so.1"), std::string::npos) << report.taken;
  EXPECT_NE(report.taken.find("CUDA 12.4"), std::string::npos) << report.taken;
}

TEST(Open, hip__takes_hip_although_cuda_is_there) {
  load_fake("hip");
  OpenReport report;
  const auto api = open("hip", &report);
  ASSERT_NE(api, nullptr);
  EXPECT_STREQ(api->name(), "hip");
  EXPECT_NE(report.taken.find("libamdhip64.so.6"), std::string::npos) << report.taken;
}

TEST(Open, null_report__is_allowed) {
  EXPECT_EQ(open("none", nullptr), nullptr);
  EXPECT_NE(open("host", nullptr), nullptr);
}

TEST(CurrentDevice, move__restores_once) {
  const auto api = open("host", nullptr);
  {
    Result<CurrentDevice> first = CurrentDevice::set(*api, 2);
    ASSERT_TRUE(first.ok());
    const CurrentDevice second = std::move(*first);
    EXPECT_EQ(api->current_device(), 2);
  }
  EXPECT_EQ(api->current_device(), -1);
}

}  // namespace
}  // namespace tutti::device::test
