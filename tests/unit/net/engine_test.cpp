// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/engine.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

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

/// A send and a receive of one engine whose packets come back to it.
class WatchedEngineTest : public testing::TestWithParam<bool> {
 protected:
  WatchedEngineTest() : statistics_(std::move(*Statistics::open("", 16))) {
    EngineOptions options;
    options.is_busy = GetParam();
    options.statistics = statistics_->add_engine();
    options.device = "eth7";
    engine_ = std::make_unique<Engine>(std::make_unique<MemoryWire>(&network_), options);
  }

  void attach() {
    ASSERT_TRUE(engine_->start().ok());
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    transport::ConnectionOptions options = connection_options(1);
    options.remote_id = 2;
    options.receives = false;
    const auto sends = engine_->attach(options, engine_->address(), ends_[0], "host a");
    ASSERT_TRUE(sends.ok()) << sends.status().message();
    options.local_id = 2;
    options.remote_id = 1;
    std::swap(options.local_incarnation, options.remote_incarnation);
    options.sends = false;
    options.receives = true;
    const auto receives = engine_->attach(options, engine_->address(), ends_[1], "host b");
    ASSERT_TRUE(receives.ok()) << receives.status().message();
    sends_ = *sends;
    receives_ = *receives;
  }

  void carry(std::vector<std::byte>& data) {
    std::vector<std::byte> to(data.size());
    Request receive;
    receive.lane = receives_;
    receive.receive.parts[0].data = to.data();
    receive.receive.parts[0].capacity_bytes = to.size();
    receive.receive.context = reinterpret_cast<std::uint64_t>(&receive);
    Request send;
    send.lane = sends_;
    send.is_send = true;
    send.send.data = data.data();
    send.send.bytes = data.size();
    send.send.context = reinterpret_cast<std::uint64_t>(&send);
    engine_->post(&receive);
    engine_->post(&send);
    while (!receive.is_done || !send.is_done) {
      engine_->help();
    }
    EXPECT_EQ(to, data);
  }

  /// Until the record satisfies `is_as_wanted`; the last one.
  ConnectionRecord wait_for(std::size_t index,
                            const std::function<bool(const ConnectionRecord&)>& is_as_wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      const auto records = statistics_->connections(0, nullptr);
      if (records.size() > index && is_as_wanted(records[index])) {
        return records[index];
      }
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "the record does not become what it should";
        return records.size() > index ? records[index] : ConnectionRecord{};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  MemoryNetwork network_;
  std::unique_ptr<Statistics> statistics_;
  std::unique_ptr<Engine> engine_;
  int ends_[2] = {-1, -1};
  Lane* sends_ = nullptr;
  Lane* receives_ = nullptr;
};

TEST_P(WatchedEngineTest, watch__the_last_word_is_written_though_nothing_more_happens) {
  attach();
  std::vector<std::byte> data(1'000'000, std::byte{5});
  carry(data);
  carry(data);
  const auto has_ended = [](const ConnectionRecord& record) {
    return record.counters.bytes_sent + record.counters.bytes_received >= 2'000'000 &&
           record.open_requests == 0;
  };
  const ConnectionRecord sent = wait_for(0, has_ended);
  EXPECT_EQ(sent.direction, Direction::kSends);
  EXPECT_EQ(sent.state, RecordState::kOpen);
  EXPECT_STREQ(sent.peer.data(), "host a");
  EXPECT_EQ(sent.paths, 16U);
  EXPECT_EQ(sent.paths_shown, 16U);
  const ConnectionRecord received = wait_for(1, has_ended);
  EXPECT_EQ(received.direction, Direction::kReceives);
  EXPECT_EQ(received.counters.bytes_received, 2'000'000U);
  EXPECT_NE(received.number, sent.number);
  const auto engine = statistics_->engine(0);
  ASSERT_TRUE(engine.has_value());
  EXPECT_STREQ(engine->device.data(), "eth7");
  EXPECT_EQ(engine->connections, 2U);
  EXPECT_EQ(engine->counters.bytes_received, 2'000'000U);
  EXPECT_EQ(engine->counters.bytes_sent, sent.counters.bytes_sent);
  EXPECT_FALSE(statistics_->engine(1).has_value());
}

TEST_P(WatchedEngineTest, watch__an_ended_connection_says_so_and_stays_in_the_sums) {
  attach();
  std::vector<std::byte> data(100'000);
  carry(data);
  engine_->detach(sends_);
  engine_->detach(receives_);
  wait_for(0, [](const ConnectionRecord& it) { return it.state == RecordState::kEnded; });
  wait_for(1, [](const ConnectionRecord& it) { return it.state == RecordState::kEnded; });
  EXPECT_TRUE(engine_->publish());
  ASSERT_TRUE(statistics_->engine(0).has_value());
  EXPECT_EQ(statistics_->engine(0)->counters.bytes_received, 100'000U);
}

INSTANTIATE_TEST_SUITE_P(Both, WatchedEngineTest, testing::Bool());

TEST_F(EngineTest, report__says_how_losses_were_noticed) {
  const std::string report = engine_.report();
  EXPECT_NE(report.find("lost by their path 0, by time 0"), std::string::npos) << report;
}

}  // namespace
}  // namespace tutti::net
