// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls in graphs of the application's: results whatever runs between launches, in which order and
// on which streams; and ends, of which nobody waits for a launch.
#include "runners/graph_order.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "support/sanitized.hpp"
#include "unit/runners/direct_world.hpp"

namespace tutti::testing {
namespace {

using namespace std::chrono_literals;

/// A rank's memory and streams: sums of `kCount` numbers in place, one buffer after the other.
class Rank {
 public:
  static constexpr std::size_t kCount = 700;

  Rank(DirectWorld& world, int rank) : world_(world), rank_(rank) {
    auto current = device::CurrentDevice::set(world.api(), world.device_of(rank));
    for (device::Stream& stream : streams) {
      auto made = world.api().create_stream(world.device_of(rank));
      EXPECT_TRUE(made.ok());
      stream = *made;
    }
    auto event = world.api().create_event(world.device_of(rank));
    EXPECT_TRUE(event.ok());
    fork_ = *event;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    EXPECT_TRUE(world_.api().destroy_event(fork_).ok());
    for (const device::Stream stream : streams) {
      EXPECT_TRUE(world_.api().destroy_stream(stream).ok());
    }
  }

  Call sum(std::size_t buffer, std::size_t count = kCount) const {
    Call call;
    call.collective = Collective::kAllreduce;
    call.type = DataType::kInt32;
    call.op = ReduceOp::kSum;
    call.count = count;
    call.element_bytes = sizeof(std::int32_t);
    call.recv = at(buffer);
    call.send = call.recv;
    call.in_place = true;
    call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, world_.device_of(rank_)};
    return call;
  }
  runners::DirectRunner& runner() const { return world_.runner(rank_); }
  /// A graph of two sums, on two streams that the capture has.
  std::unique_ptr<Graph> capture(std::size_t first, std::size_t second) {
    auto current = device::CurrentDevice::set(world_.api(), world_.device_of(rank_));
    Graph::begin(streams[0]);
    EXPECT_TRUE(world_.api().record_event(fork_, streams[0]).ok());
    EXPECT_TRUE(world_.api().stream_wait_event(streams[1], fork_).ok());
    expect(runner().capture(sum(first), streams[0]));
    expect(runner().capture(sum(second), streams[1]));
    EXPECT_TRUE(world_.api().record_event(fork_, streams[1]).ok());
    EXPECT_TRUE(world_.api().stream_wait_event(streams[0], fork_).ok());
    return std::make_unique<Graph>(streams[0]);
  }
  void fill(std::size_t buffer, std::int32_t value) const {
    const std::vector<std::int32_t> values(kCount, value);
    EXPECT_TRUE(world_.api().copy(at(buffer), values.data(), kCount * sizeof(value)).ok());
  }
  /// -1: not the same everywhere.
  std::int32_t value(std::size_t buffer) const {
    std::vector<std::int32_t> values(kCount);
    EXPECT_TRUE(world_.api().copy(values.data(), at(buffer), kCount * sizeof(int)).ok());
    return std::all_of(values.begin(), values.end(), [&](auto one) { return one == values[0]; })
               ? values[0]
               : -1;
  }
  void synchronize() const {
    for (const device::Stream stream : streams) {
      EXPECT_TRUE(world_.api().wait_stream(stream).ok());
    }
  }
  static void expect(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  std::array<device::Stream, 2> streams{};

 private:
  std::byte* at(std::size_t buffer) const {
    return static_cast<std::byte*>(world_.recv_buffer(rank_)) + buffer * 4096;
  }

  DirectWorld& world_;
  int rank_;
  device::Event fork_ = nullptr;
};

/// Two graphs on two streams, calls on streams and calls that are waited for, in an order that is
/// the same on all ranks: every number is the sum over ranks as often as it was summed.
TEST(GraphOrder, launches_and_calls__are_right_in_any_order) {
  constexpr int kRanks = 2;
  constexpr int kTurns = kIsSanitized ? 40 : 120;
  DirectWorld world(kRanks);
  ASSERT_TRUE(world.ready());
  world.run([&](int number) {
    auto current = device::CurrentDevice::set(world.api(), world.device_of(number));
    Rank rank(world, number);
    rank.fill(6, 1);  // Before any graph: calls of both kinds, then a capture.
    Rank::expect(rank.runner().enqueue(rank.sum(6), rank.streams[1]));
    Rank::expect(rank.runner().run(runners::Scope::kWhole, rank.sum(6)));
    EXPECT_EQ(rank.value(6), kRanks * kRanks);
    const auto one = rank.capture(0, 1);
    const auto two = rank.capture(2, 3);
    EXPECT_EQ(rank.runner().calls().graphs()->load(), 2);
    std::mt19937 random(5);
    for (int turn = 0; turn < kTurns; ++turn) {
      for (std::size_t buffer = 0; buffer < 6; ++buffer) {
        rank.fill(buffer, turn + static_cast<int>(buffer));
      }
      std::array<int, 6> sums{};
      for (int step = 0; step < 6; ++step) {
        const device::Stream stream = rank.streams[random() % 2];
        switch (random() % 4) {
          case 0:
            one->launch(stream);
            ++sums[0], ++sums[1];
            break;
          case 1:
            two->launch(stream);
            ++sums[2], ++sums[3];
            break;
          case 2:
            Rank::expect(rank.runner().enqueue(rank.sum(4), stream));
            ++sums[4];
            break;
          default:
            Rank::expect(rank.runner().run(runners::Scope::kWhole, rank.sum(5)));
            ++sums[5];
        }
      }
      rank.synchronize();
      for (std::size_t buffer = 0; buffer < 6; ++buffer) {
        int wanted = turn + static_cast<int>(buffer);
        for (int sum = 0; sum < sums[buffer]; ++sum) {
          wanted *= kRanks;
        }
        ASSERT_EQ(rank.value(buffer), wanted) << "turn " << turn << " buffer " << buffer;
      }
    }
    Rank::expect(rank.runner().calls().status(/*wait=*/true));
  });
}

/// Captures on two streams at a time, call by call in turn.
TEST(GraphOrder, captures_that_interleave__have_their_places) {
  DirectWorld world(2);
  ASSERT_TRUE(world.ready());
  world.run([&](int number) {
    auto current = device::CurrentDevice::set(world.api(), world.device_of(number));
    Rank rank(world, number);
    for (const device::Stream stream : rank.streams) {
      Graph::begin(stream);
    }
    for (std::size_t buffer = 0; buffer < 4; ++buffer) {
      Rank::expect(rank.runner().capture(rank.sum(buffer), rank.streams[buffer % 2]));
    }
    const Graph one(rank.streams[0]);
    const Graph two(rank.streams[1]);
    for (int turn = 0; turn < 50; ++turn) {
      for (std::size_t buffer = 0; buffer < 4; ++buffer) {
        rank.fill(buffer, turn + static_cast<int>(buffer));
      }
      one.launch(rank.streams[turn % 2]);
      two.launch(rank.streams[1 - turn % 2]);
      rank.synchronize();
      for (std::size_t buffer = 0; buffer < 4; ++buffer) {
        ASSERT_EQ(rank.value(buffer), 2 * (turn + static_cast<int>(buffer))) << turn;
      }
    }
  });
}

/// Until the error that a launch ends with; how long that took, in seconds.
double seconds_until_error(runners::StreamCalls& calls, std::string* message) {
  const auto start = std::chrono::steady_clock::now();
  Status status;
  while (status.ok() && std::chrono::steady_clock::now() - start < 20s) {
    std::this_thread::sleep_for(10ms);
    status = calls.status(/*wait=*/false);
  }
  *message = status.message();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Ranks that launch graphs of different calls take nothing of each other's.
TEST(GraphOrder, launches_that_differ__are_an_error_in_time) {
  DirectWorld world(2, /*timeout_s=*/1);
  ASSERT_TRUE(world.ready());
  world.run([&](int number) {
    auto current = device::CurrentDevice::set(world.api(), world.device_of(number));
    Rank rank(world, number);
    rank.fill(0, 3);
    Graph::begin(rank.streams[0]);
    Rank::expect(
        rank.runner().capture(rank.sum(0, number == 0 ? Rank::kCount : 8), rank.streams[0]));
    const Graph graph(rank.streams[0]);
    graph.launch(rank.streams[0]);
    std::string message;
    EXPECT_LT(seconds_until_error(rank.runner().calls(), &message), 10);
    EXPECT_NE(message.find("launched the same graph"), std::string::npos) << message;
    rank.synchronize();
    EXPECT_FALSE(rank.runner().run(runners::Scope::kWhole, rank.sum(0)).ok());
  });
}

/// The time-out is far away: the watch hears of the peer.
TEST(GraphOrder, a_peer_that_fails__ends_a_launch_that_waits_for_it) {
  DirectWorld world(2, /*timeout_s=*/600);
  ASSERT_TRUE(world.ready());
  auto current = device::CurrentDevice::set(world.api(), world.device_of(0));
  Rank rank(world, 0);
  Graph::begin(rank.streams[0]);
  Rank::expect(rank.runner().capture(rank.sum(0), rank.streams[0]));
  Rank::expect(rank.runner().capture(rank.sum(1), rank.streams[0]));
  const Graph graph(rank.streams[0]);
  graph.launch(rank.streams[0]);
  graph.launch(rank.streams[1]);  // Behind it, and does nothing.
  world.fail(1);
  std::string message;
  EXPECT_LT(seconds_until_error(rank.runner().calls(), &message), 10);
  EXPECT_NE(message.find("rank 1 makes no more calls here"), std::string::npos) << message;
  rank.synchronize();
}

/// The application's own work holds the launch, which no kernel of ours can say.
TEST(GraphOrder, a_launch_that_does_not_begin__bounds_the_wait_of_a_blocking_call) {
  if (test_device() != "host") {
    GTEST_SKIP() << "work that waits for the test is the host device's alone";
  }
  DirectWorld world(2, /*timeout_s=*/1);
  ASSERT_TRUE(world.ready());
  Rank rank(world, 0);
  Graph::begin(rank.streams[0]);
  Rank::expect(rank.runner().capture(rank.sum(0), rank.streams[0]));
  const Graph graph(rank.streams[0]);
  std::atomic<bool> may_end = false;
  tutti_host_device_enqueue(
      rank.streams[0],
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) {
          std::this_thread::sleep_for(1ms);
        }
      },
      &may_end);
  graph.launch(rank.streams[0]);
  const auto start = std::chrono::steady_clock::now();
  const Status status = rank.runner().run(runners::Scope::kWhole, rank.sum(1));
  EXPECT_EQ(status.code(), ErrorCode::kTimeout);
  EXPECT_NE(status.message().find("the launch of a graph"), std::string::npos) << status.message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  may_end = true;
  rank.synchronize();
}

/// What a launch would use stays until the graph is gone, and a launch does nothing.
TEST(GraphOrder, a_graph_that_outlives_its_communicator__does_nothing) {
  auto world = std::make_unique<DirectWorld>(2);
  ASSERT_TRUE(world->ready());
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<Graph>> graphs(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<Rank>(*world, rank));
  }
  world->run([&](int number) {
    auto current = device::CurrentDevice::set(world->api(), world->device_of(number));
    Rank& rank = *ranks[static_cast<std::size_t>(number)];
    rank.fill(0, 3);
    rank.fill(1, 4);
    graphs[static_cast<std::size_t>(number)] = rank.capture(0, 1);
    graphs[static_cast<std::size_t>(number)]->launch(rank.streams[0]);
  });
  const runners::GraphOrder::Count count = world->runner(0).calls().graphs();
  world->run([&](int rank) { world->end(rank); });  // Waits for the launch.
  EXPECT_EQ(ranks[0]->value(0), 6);
  EXPECT_EQ(count->load(), 1);
  auto current = device::CurrentDevice::set(world->api(), world->device_of(0));
  graphs[0]->launch(ranks[0]->streams[0]);
  ranks[0]->synchronize();
  EXPECT_EQ(ranks[0]->value(0), 6);
  EXPECT_EQ(ranks[1]->value(1), 8);
  graphs.clear();
  const auto start = std::chrono::steady_clock::now();
  while (count->load() > 0 && std::chrono::steady_clock::now() - start < 10s) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(count->load(), 0);
  ranks.clear();
}

}  // namespace
}  // namespace tutti::testing
