// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/engine.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/memory_wire.hpp"

namespace tutti::net {
namespace {

using wire::testing::MemoryNetwork;
using wire::testing::MemoryWire;

/// Counts the peers that it has names for.
class CountingWire : public MemoryWire {
 public:
  CountingWire(MemoryNetwork* network, int* peers) : MemoryWire(network), peers_(peers) {}
  Result<std::uint64_t> add_peer(const wire::WireAddress& address) override {
    ++*peers_;
    return MemoryWire::add_peer(address);
  }
  void remove_peer(std::uint64_t peer) override {
    --*peers_;
    MemoryWire::remove_peer(peer);
  }

 private:
  int* peers_;
};

transport::ConnectionOptions connection_options(std::uint32_t id) {
  transport::ConnectionOptions options;
  options.local_id = id;
  options.remote_id = id;
  options.local_incarnation = 1;
  options.remote_incarnation = 2;
  options.wire = MemoryNetwork::default_capabilities();
  return options;
}

class EngineTest : public testing::Test {
 protected:
  EngineTest() : engine_(std::make_unique<CountingWire>(&network_, &peers_), EngineOptions()) {}

  MemoryNetwork network_;
  int peers_ = 0;
  Engine engine_;
};

TEST_F(EngineTest, attach__what_cannot_be_watched_leaves_nothing) {
  ASSERT_TRUE(engine_.start().ok());
  const auto lane = engine_.attach(connection_options(1), engine_.address(), -1, "nobody");
  EXPECT_EQ(lane.status().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(peers_, 0);
  EXPECT_TRUE(engine_.is_quiet());
  engine_.help();  // There is no event of a connection without a lane.
}

TEST_F(EngineTest, attach__bad_options_leave_nothing) {
  ASSERT_TRUE(engine_.start().ok());
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  transport::ConnectionOptions options = connection_options(1);
  options.controller = "nobody's";
  const auto lane = engine_.attach(options, engine_.address(), ends[0], "nobody");
  EXPECT_EQ(lane.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(peers_, 0);
  // The descriptor is the caller's still, and can be given again.
  const auto again = engine_.attach(connection_options(1), engine_.address(), ends[0], "nobody");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(peers_, 1);
  engine_.detach(*again);
  close(ends[1]);
}

TEST_F(EngineTest, report__says_how_losses_were_noticed) {
  const std::string report = engine_.report();
  EXPECT_NE(report.find("lost by their path 0, by time 0"), std::string::npos) << report;
}

}  // namespace
}  // namespace tutti::net
