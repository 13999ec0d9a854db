// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a process takes itself for on a machine with many processors, whose threads are bound: this
// program's sched_getaffinity() makes both up. A program of its own, for all in it have that.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "net/network.hpp"
#include "net/thread.hpp"

namespace {

std::atomic<int> g_processors{32};  ///< Of the first thread; the others have one.

}  // namespace

extern "C" int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t* mask) {
  CPU_ZERO_S(bytes, mask);
  const int count = process == getpid() ? g_processors.load() : 1;
  for (int i = 0; i < count; ++i) {
    CPU_SET_S(static_cast<unsigned>(i), bytes, mask);
  }
  return 0;
}

namespace tutti::net {
namespace {

/// What it says of its engines.
std::string started() {
  std::string said;
  const auto network =
      Network::open([&said](LogKind, const std::string& text) { said += text + "\n"; });
  EXPECT_TRUE(network.ok()) << network.status().message();
  EXPECT_TRUE((*network)->listen(0).ok());
  return said;
}

// NCCL opens it in one thread and uses it in others, which are bound near their GPU.
TEST(NetProcessors, EnginesAreAsManyAsTheProcessHasUseFor) {
  setenv("TUTTI_NET_PATHS", "1", 1);
  EXPECT_NE(started().find("4 busy engine(s)"), std::string::npos) << started();
  g_processors = 1;
  EXPECT_NE(started().find("4 busy engine(s)"), std::string::npos) << started();
  EXPECT_EQ(processors_of_process().size(), 32U);
}

}  // namespace
}  // namespace tutti::net
