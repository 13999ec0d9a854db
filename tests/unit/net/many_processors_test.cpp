// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a process takes itself for on a machine with many processors, whose threads are bound: this
// program's sched_getaffinity() makes both up. A program of its own, for all in it have that.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "net/network.hpp"
#include "net/processors.hpp"
#include "support/scoped_environment.hpp"

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

using test::ScopedEnvironment;

/// What it says of its engines.
std::string started(std::vector<NetDevice> devices = {}) {
  std::string said;
  const auto network = open_network(
      [&said](LogKind, const std::string& text) { said += text + "\n"; }, std::move(devices));
  EXPECT_TRUE(network.ok()) << network.status().message();
  EXPECT_TRUE((*network)->listen(0).ok());
  return said;
}

NetDevice loopback() {
  NetDevice device;
  device.name = "lo";
  device.address = "127.0.0.1";
  device.mtu_bytes = 65536;
  device.is_loopback = true;
  return device;
}

class NetProcessors : public testing::Test {
 protected:
  NetProcessors() { g_processors = 32; }

 private:
  ScopedEnvironment paths_{"TUTTI_NET_PATHS", "1"};
};

// NCCL opens it in one thread and uses it in others, which are bound near their GPU.
TEST_F(NetProcessors, EnginesAreAsManyAsTheProcessHasUseFor) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  EXPECT_NE(started().find("4 busy engine(s)"), std::string::npos) << started();
  g_processors = 1;
  EXPECT_NE(started().find("4 busy engine(s)"), std::string::npos) << started();
  EXPECT_EQ(processors_of_process().size(), 32U);
}

TEST_F(NetProcessors, TwoEnginesShareALongMessageOnLoopbackAndOneCarriesItElsewhere) {
  NetDevice device = loopback();
  EXPECT_NE(started({device}).find("4 busy engine(s), 2 sub-connection(s)"), std::string::npos);
  {
    const ScopedEnvironment engines("TUTTI_NET_ENGINES", "1");
    EXPECT_NE(started({device}).find("1 busy engine(s), 1 sub-connection(s)"), std::string::npos);
  }
  device.is_loopback = false;
  EXPECT_NE(started({device}).find("4 busy engine(s), 1 sub-connection(s)"), std::string::npos);
}

TEST_F(NetProcessors, DevicesShareThem) {
  EXPECT_NE(started({loopback(), loopback()}).find("2 busy engine(s)"), std::string::npos);
  EXPECT_NE(started({8, loopback()}).find("1 busy engine(s)"), std::string::npos);
}

}  // namespace
}  // namespace tutti::net
