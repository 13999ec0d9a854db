// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "discover/discover.hpp"

#include <gtest/gtest.h>
#include <sched.h>

namespace tutti::discover {
namespace {

TEST(discover, this_machine__is_described_and_gaps_are_explained) {
  const Discovery found = this_machine();
  EXPECT_EQ(host_name(), found.machine.host);
  const auto says = [&](const std::string& word) {
    for (const std::string& line : found.unavailable) {
      if (line.find(word) != std::string::npos) {
        return true;
      }
    }
    return false;
  };
  EXPECT_EQ(found.machine.nics.empty(), says("NICs: "));
  EXPECT_EQ(found.machine.sockets.empty(), says("sockets: "));
}

TEST(discover, this_machine_by_sysfs__asks_no_vendor) {
  const topology::Machine machine = this_machine_by_sysfs();
  EXPECT_EQ(host_name(), machine.host);
  for (const topology::Gpu& gpu : machine.gpus) {
    EXPECT_TRUE(gpu.identity.empty());
  }
}

TEST(discover, recorded_machine__a_listing) {
  const auto found = recorded_machine(std::string(TREES_DIRECTORY) + "/four_gpus.tree");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(4U, found->machine.gpus.size());
  EXPECT_EQ("", found->machine.host);
}

TEST(discover, recorded_machine__errors_name_the_file) {
  EXPECT_EQ("/no/such: cannot be opened: No such file or directory",
            recorded_machine("/no/such").status().message());
  EXPECT_EQ("/dev: no directory sys in it", recorded_machine("/dev").status().message());
}

TEST(discover, own_cpus__are_those_of_the_thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(0, sched_getaffinity(0, sizeof(set), &set));
  EXPECT_EQ(CPU_COUNT(&set), static_cast<int>(own_cpus().size()));
  EXPECT_FALSE(own_cpus().empty());
}

}  // namespace
}  // namespace tutti::discover
