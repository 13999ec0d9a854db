// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/cpu_quota.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti {
namespace {

TEST(CpuQuota, quota_of_cpu_max__whole_cores_at_least_one) {
  EXPECT_EQ(quota_of_cpu_max("max 100000"), 0);
  EXPECT_EQ(quota_of_cpu_max(""), 0);
  EXPECT_EQ(quota_of_cpu_max("nonsense"), 0);
  EXPECT_EQ(quota_of_cpu_max("200000 100000"), 2);
  EXPECT_EQ(quota_of_cpu_max("299999 100000"), 2);
  EXPECT_EQ(quota_of_cpu_max("5000 100000"), 1);
  EXPECT_EQ(quota_of_cpu_max("-1 100000"), 0);
}

class CpuQuotaFiles : public ::testing::Test {
 protected:
  CpuQuotaFiles()
      : root_(std::filesystem::temp_directory_path() /
              ("tutti_quota_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
               "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~CpuQuotaFiles() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  int cores() const { return cpu_quota_cores(root_ / "cgroup", root_ / "fs"); }

 private:
  std::filesystem::path root_;
};

TEST_F(CpuQuotaFiles, cpu_quota_cores__the_least_on_the_way_up) {
  write("cgroup", "0::/job/step");
  write("fs/job/step/cpu.max", "400000 100000");
  write("fs/job/cpu.max", "200000 100000");
  EXPECT_EQ(cores(), 2);
}

TEST_F(CpuQuotaFiles, cpu_quota_cores__a_container_sees_its_own_root) {
  write("cgroup", "0::/a/path/of/the/host");
  write("fs/cpu.max", "100000 100000");
  EXPECT_EQ(cores(), 1);
}

TEST_F(CpuQuotaFiles, cpu_quota_cores__version_one) {
  write("cgroup", "4:cpu,cpuacct:/job");
  write("fs/cpu/job/cpu.cfs_quota_us", "300000");
  write("fs/cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(), 3);
}

TEST_F(CpuQuotaFiles, cpu_quota_cores__none) {
  write("cgroup", "0::/job");
  write("fs/job/cpu.max", "max 100000");
  EXPECT_EQ(cores(), 0);
}

}  // namespace
}  // namespace tutti
