// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Channels over a wire like a NIC's: it reads payloads after it has taken them, reaches registered
// memory, and has no descriptor to sleep on, or one that tells once. The wire aborts if a payload
// is touched too early.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "net/channel.hpp"
#include "support/memory_wire.hpp"
#include "wire/rails/rails_wire.hpp"

namespace tutti::net {
namespace {

using wire::testing::MemoryNetwork;
using wire::testing::MemoryWire;

/// Whether the engines' threads spin, the NICs of each engine, and whether these have events.
class LateWireTest : public testing::TestWithParam<std::tuple<bool, std::size_t, bool>> {
 protected:
  struct End {
    std::vector<MemoryWire*> wires;  ///< The engine's.
    std::unique_ptr<Engine> engine;
    std::unique_ptr<ConnectionChannel> channel;
  };

  void SetUp() override {
    const std::size_t rails = std::get<1>(GetParam());
    transport::WireCapabilities capabilities = MemoryNetwork::default_capabilities();
    capabilities.rails = 1;
    capabilities.sends_complete_late = true;
    for (std::size_t i = 0; i < rails; ++i) {
      networks_.push_back(std::make_unique<MemoryNetwork>(capabilities, /*queue_packets_max=*/64,
                                                          /*has_events=*/std::get<2>(GetParam())));
    }
    for (End* const end : {&sender_, &receiver_}) {
      EngineOptions options;
      options.is_busy = std::get<0>(GetParam());
      end->engine = std::make_unique<Engine>(open_wire(*end), options);
      ASSERT_TRUE(end->engine->start().ok());
    }
    int controls[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, controls), 0);
    transport::ConnectionOptions options;
    options.local_id = options.remote_id = 1;
    options.local_incarnation = 1;
    options.remote_incarnation = 2;
    options.wire = sender_.engine->capabilities();
    options.receives = false;
    attach(sender_, receiver_, options, controls[0]);
    std::swap(options.local_incarnation, options.remote_incarnation);
    std::swap(options.sends, options.receives);
    attach(receiver_, sender_, options, controls[1]);
  }
  void TearDown() override {
    for (End* const end : {&sender_, &receiver_}) {
      end->channel.reset();
    }
    for (End* const end : {&sender_, &receiver_}) {
      end->engine->stop();
    }
  }

  std::unique_ptr<wire::Wire> open_wire(End& end) {
    std::vector<std::unique_ptr<wire::Wire>> rails;
    for (const std::unique_ptr<MemoryNetwork>& network : networks_) {
      auto rail = std::make_unique<MemoryWire>(network.get());
      end.wires.push_back(rail.get());
      rails.push_back(std::move(rail));
    }
    if (rails.size() == 1) {
      return std::move(rails[0]);
    }
    return std::move(*wire::rails::RailsWire::open(std::move(rails), monotonic_ns));
  }
  static void attach(End& end, const End& peer, const transport::ConnectionOptions& options,
                     int control) {
    const auto sub = end.engine->attach(options, {peer.engine->address(), 1, "the peer"}, control);
    ASSERT_TRUE(sub.ok()) << sub.status().message();
    end.channel = std::make_unique<ConnectionChannel>(*sub);
  }

  /// By the engine's thread alone: nobody helps it.
  static bool wait_for(const Request* request) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!has_ended(request) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    return has_ended(request);
  }
  static Bytes finish(Request* request) {
    Completion completion;
    EXPECT_TRUE(wait_for(request));
    EXPECT_TRUE(test(request, &completion));
    EXPECT_TRUE(completion.status.ok()) << completion.status.message();
    return completion.bytes[0];
  }
  Request* receive(std::span<std::byte> into) {
    const transport::ReceivePart part{.tag = 1, .data = into.data(), .capacity_bytes = into.size()};
    return *receiver_.channel->receive({&part, 1});
  }

  std::vector<std::unique_ptr<MemoryNetwork>> networks_;
  End sender_;
  End receiver_;
};

// One buffer for all: it has another content as soon as a send is done. Short ones are eager, whose
// copies are as many as a connection has.
TEST_P(LateWireTest, send__is_done_when_the_wire_reads_its_buffer_no_more) {
  constexpr std::size_t kBytesMax = 50'000;
  std::vector<std::byte> out(kBytesMax);
  std::vector<std::byte> in(kBytesMax);
  for (int i = 0; i < 100; ++i) {
    const std::size_t bytes = i % 2 == 0 ? kBytesMax : 100;
    std::fill(out.begin(), out.end(), static_cast<std::byte>(i));
    std::fill(in.begin(), in.end(), std::byte{0xff});
    Request* const received = receive(in);
    Request* const sent = *sender_.channel->send(1, out.data(), bytes);
    EXPECT_EQ(bytes, finish(received));
    EXPECT_EQ(bytes, finish(sent));
    EXPECT_TRUE(
        std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(bytes), in.begin()));
  }
}

TEST_P(LateWireTest, register_memory__is_known_to_each_wire_of_the_channel) {
  constexpr std::size_t kBytes = 300'000;
  std::vector<std::byte> out(kBytes, std::byte{7});
  std::vector<std::byte> in(kBytes);
  ASSERT_TRUE(sender_.channel->register_memory(out).ok());
  ASSERT_TRUE(receiver_.channel->register_memory(in).ok());
  Request* const received = receive(in);
  EXPECT_EQ(kBytes, finish(*sender_.channel->send(1, out.data(), kBytes)));
  EXPECT_EQ(kBytes, finish(received));
  EXPECT_EQ(out, in);
  sender_.channel->deregister_memory(out);
  receiver_.channel->deregister_memory(in);
  for (End* const end : {&sender_, &receiver_}) {
    end->channel.reset();
  }
  for (End* const end : {&sender_, &receiver_}) {
    end->engine->stop();
  }
  std::uint64_t from_registered = 0;
  for (const MemoryWire* const wire : sender_.wires) {
    EXPECT_GT(wire->registered_bytes_sent(), 0U);
    from_registered += wire->registered_bytes_sent();
  }
  EXPECT_GE(from_registered, kBytes);
}

// What is given up is in the wire's hands still, and its caller has the buffer back.
TEST_P(LateWireTest, close__with_open_sends_waits_for_the_wire) {
  std::vector<std::byte> out(1'000'000, std::byte{1});
  std::vector<std::byte> in(out.size());
  Request* const received = receive(in);
  ASSERT_NE(nullptr, *sender_.channel->send(1, out.data(), out.size()));
  while (sender_.engine->report().starts_with("chunks sent 0,")) {
    std::this_thread::yield();
  }
  sender_.channel.reset();
  std::fill(out.begin(), out.end(), std::byte{2});
  EXPECT_TRUE(wait_for(received));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

INSTANTIATE_TEST_SUITE_P(Net, LateWireTest,
                         testing::Combine(testing::Bool(), testing::Values(1U, 2U),
                                          testing::Bool()));

}  // namespace
}  // namespace tutti::net
