// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The direct backend's protocol and kernels, on the host device or on one GPU (direct_world.hpp).
#include <gtest/gtest.h>

#include <chrono>

#include "device/kernels/direct_kernels.hpp"
#include "device/kernels/images.hpp"
#include "direct_world.hpp"
#include "runners/direct/device_combine.hpp"
#include "select/plan.hpp"
#include "support/sanitized.hpp"

namespace tutti::testing {
namespace {

constexpr Collective kMovements[] = {
    Collective::kBarrier,  Collective::kBcast,     Collective::kGather,    Collective::kGatherv,
    Collective::kScatter,  Collective::kScatterv,  Collective::kAllgather, Collective::kAllgatherv,
    Collective::kAlltoall, Collective::kAlltoallv, Collective::kAlltoallw};
constexpr Collective kCopied[] = {Collective::kAllgather, Collective::kAlltoall};
constexpr Collective kReductions[] = {Collective::kAllreduce, Collective::kReduce,
                                      Collective::kReduceScatter, Collective::kReduceScatterBlock};

std::vector<std::pair<DataType, ReduceOp>> defined_reductions() {
  std::vector<std::pair<DataType, ReduceOp>> all;
  for (int type = 0; type < select::kDataTypeCount; ++type) {
    for (int op = 0; op < select::kReduceOpCount; ++op) {
      if (select::is_defined(static_cast<ReduceOp>(op), static_cast<DataType>(type))) {
        all.emplace_back(static_cast<DataType>(type), static_cast<ReduceOp>(op));
      }
    }
  }
  return all;
}

/// And averages, which kernels of a call have, not the combination of two buffers.
std::vector<std::pair<DataType, ReduceOp>> reductions_of_calls() {
  auto all = defined_reductions();
  for (int type = 0; type < select::kDataTypeCount; ++type) {
    if (select::has_average(static_cast<DataType>(type))) {
      all.emplace_back(static_cast<DataType>(type), ReduceOp::kAvg);
    }
  }
  return all;
}

bool has_in_place(Collective collective) {
  return collective != Collective::kBarrier && collective != Collective::kBcast;
}

class Direct : public ::testing::TestWithParam<int> {};

/// On a shared GPU the launches of all ranks must fit side by side.
runners::DirectTuning shape(std::mt19937_64& random, int ranks) {
  runners::DirectTuning tuning;
  const std::uint32_t most = test_device() == "host" ? 3 : 64 / static_cast<std::uint32_t>(ranks);
  tuning.blocks = 1 + static_cast<std::uint32_t>(random() % most);
  tuning.warps = 1 + static_cast<std::uint32_t>(random() % (test_device() == "host" ? 3 : 16));
  tuning.one_shot_default = false;
  tuning.one_shot_bytes_max = random() % 2 == 0 ? UINT64_MAX : 0;
  return tuning;
}

TEST_P(Direct, MovesData) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  std::mt19937_64 random(1);
  for (const Collective collective : kMovements) {
    for (const std::uint64_t count : {0, 1, 3, 16, 112, 113, 1000, 5555}) {
      for (const bool in_place : {false, true}) {
        if (in_place && !has_in_place(collective)) {
          continue;
        }
        world.tune(shape(random, world.ranks()));
        const Case test{.collective = collective,
                        .count = count,
                        .root = static_cast<int>(random() % static_cast<unsigned>(GetParam())),
                        .in_place = in_place,
                        .misalignment = static_cast<unsigned>(random() % 3 * 5)};
        ASSERT_TRUE(world.check(test, random)) << test.text(GetParam());
      }
    }
  }
}

constexpr Collective kOfPairs[] = {Collective::kGatherv, Collective::kScatterv,
                                   Collective::kAlltoallv, Collective::kAlltoallw};

/// Each pair of ranks has the warps that its pieces want, in launches of other shapes at each rank.
TEST_P(Direct, ExchangesByPair) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  std::mt19937_64 random(11);
  for (const Collective collective : kOfPairs) {
    for (const std::uint64_t count : {0, 5, 113, 3000, 30000}) {
      for (const bool in_place : {false, true}) {
        runners::DirectTuning tuning;
        tuning.blocks_max = test_device() == "host" ? 3 : 64U / static_cast<unsigned>(GetParam());
        tuning.pair_bytes_max = random() % 2 == 0 ? count / 2 : UINT64_MAX;
        world.tune(tuning);
        const Case test{.collective = collective,
                        .count = count,
                        .root = static_cast<int>(random() % static_cast<unsigned>(GetParam())),
                        .in_place = in_place,
                        .misalignment = static_cast<unsigned>(random() % 3 * 5)};
        ASSERT_TRUE(world.check(test, random, Way::kPairs)) << test.text(GetParam());
      }
    }
  }
}

TEST_P(Direct, CopiesData) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  if (!world.has_own_queues()) {
    GTEST_SKIP() << DirectWorld::kSharedQueues;
  }
  std::mt19937_64 random(8);
  for (const Collective collective : kCopied) {
    for (const std::uint64_t count : {0, 1, 2, 3, 112, 113, 1000, 5555}) {
      for (const bool in_place : {false, true}) {
        for (const Bytes chunk_bytes : {0, 1, 113, 500}) {
          if (count > 113 && chunk_bytes == 1) {
            continue;  // Thousands of launches that show nothing new.
          }
          runners::DirectTuning tuning = shape(random, world.ranks());
          tuning.copy_chunk_bytes = chunk_bytes;
          world.tune(tuning);
          const Case test{.collective = collective,
                          .count = count,
                          .in_place = in_place,
                          .misalignment = static_cast<unsigned>(random() % 3 * 5)};
          ASSERT_TRUE(world.check(test, random, Way::kCopied))
              << test.text(GetParam()) << " chunks of " << chunk_bytes;
        }
      }
    }
  }
}

TEST_P(Direct, ReducesEveryTypeWithEveryOperation) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  std::mt19937_64 random(2);
  for (const auto& [type, op] : reductions_of_calls()) {
    for (const Collective collective : kReductions) {
      world.tune(shape(random, world.ranks()));
      const Case test{.collective = collective,
                      .type = type,
                      .op = op,
                      .count = 1 + random() % 700,
                      .root = static_cast<int>(random() % static_cast<unsigned>(GetParam())),
                      .in_place = random() % 2 == 0,
                      .misalignment = static_cast<unsigned>(random() % 3)};
      ASSERT_TRUE(world.check(test, random)) << test.text(GetParam());
    }
  }
}

TEST_P(Direct, ReducesEverySize) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  std::mt19937_64 random(3);
  for (const Collective collective : kReductions) {
    for (const std::uint64_t count : {0, 1, 2, 27, 28, 29, 448, 449, 3000, 40000}) {
      for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat64}) {
        world.tune(shape(random, world.ranks()));
        const Case test{.collective = collective,
                        .type = type,
                        .op = ReduceOp::kSum,
                        .count = count,
                        .root = static_cast<int>(random() % static_cast<unsigned>(GetParam())),
                        .in_place = random() % 2 == 0,
                        .misalignment = static_cast<unsigned>(random() % 2)};
        ASSERT_TRUE(world.check(test, random)) << test.text(GetParam());
      }
    }
  }
}

/// Calls of all kinds one after the other: what one leaves in the arenas must not trouble the next.
TEST_P(Direct, AnySequenceOfCalls) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  const char* seed = std::getenv("TUTTI_TEST_SEED");
  const char* calls = std::getenv("TUTTI_TEST_CALLS");
  std::mt19937_64 random(seed == nullptr ? 4 : std::strtoull(seed, nullptr, 10));
  const auto reductions = reductions_of_calls();
  const int count = calls == nullptr ? 200 : std::atoi(calls);
  for (int i = 0; i < count; ++i) {
    Case test;
    const auto pick = random() % (std::size(kMovements) + std::size(kReductions));
    const bool moves = pick < std::size(kMovements);
    test.collective = moves ? kMovements[pick] : kReductions[pick - std::size(kMovements)];
    if (!moves) {
      std::tie(test.type, test.op) = reductions[random() % reductions.size()];
    }
    const std::uint64_t magnitude = std::uint64_t{1} << random() % 15;
    test.count = random() % magnitude;
    test.root = static_cast<int>(random() % static_cast<unsigned>(GetParam()));
    test.in_place = has_in_place(test.collective) && random() % 2 == 0;
    test.misalignment = random() % 2 == 0 ? 0 : static_cast<unsigned>(random() % 6);
    runners::DirectTuning tuning = shape(random, world.ranks());
    tuning.copy_chunk_bytes = 1 + random() % 3000;
    world.tune(tuning);
    const bool can_copy =
        world.has_own_queues() &&
        std::find(std::begin(kCopied), std::end(kCopied), test.collective) != std::end(kCopied);
    const bool can_capture = (world.has_own_queues() || GetParam() == 1) &&
                             select::DirectPlan::is_capturable(test.collective, GetParam());
    const Way way = can_copy && random() % 2 == 0      ? Way::kCopied
                    : can_capture && random() % 2 == 0 ? Way::kCaptured
                                                       : Way::kWhole;
    ASSERT_TRUE(world.check(test, random, way))
        << "call " << i << " way " << static_cast<int>(way) << ": " << test.text(GetParam());
  }
}

/// A graph's launches count themselves, in one round or many, whatever runs between them.
TEST_P(Direct, CallsOfGraphs) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  if (!world.has_own_queues() && GetParam() > 1) {
    GTEST_SKIP() << DirectWorld::kSharedQueues;
  }
  std::mt19937_64 random(12);
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatterBlock,
        Collective::kAllgather, Collective::kAlltoall, Collective::kBarrier, Collective::kBcast,
        Collective::kGather, Collective::kScatter}) {
    if (!select::DirectPlan::is_capturable(collective, GetParam())) {
      continue;
    }
    const bool reduces = select::is_reduction(collective);
    for (const std::uint64_t count : {0, 1, 28, 113, 3000, 20000}) {
      for (int turn = 0; turn < 3; ++turn) {
        world.tune(turn == 0 ? runners::DirectTuning() : shape(random, world.ranks()));
        const Case test{.collective = collective,
                        .type = reduces ? DataType::kFloat32 : DataType::kByte,
                        .op = reduces ? ReduceOp::kSum : ReduceOp::kNone,
                        .count = count,
                        .root = static_cast<int>(random() % static_cast<unsigned>(GetParam())),
                        .in_place = collective != Collective::kBarrier && random() % 2 == 0,
                        .misalignment = static_cast<unsigned>(random() % 2)};
        ASSERT_TRUE(world.check(test, random, Way::kCaptured)) << test.text(GetParam());
      }
    }
  }
}

/// Fixed rank order: one form of the algorithm, one grid or another, the same bits.
/// A launch begins behind the wrap at both ends of each pair, whatever their rounds.
TEST_P(Direct, CallsAcrossTheWrapOfTheFlags) {
  const int ranks = GetParam();
  for (const std::uint64_t rounds : {1U, 6U, 41U}) {
    DirectWorld world(ranks, 60, Bytes{6} << 20, (std::uint64_t{1} << 32) - rounds);
    ASSERT_TRUE(world.ready());
    std::mt19937_64 random(rounds);
    for (int turn = 0; turn < 30; ++turn) {
      runners::DirectTuning tuning = shape(random, ranks);
      world.tune(tuning);
      const Collective collective = kMovements[random() % std::size(kMovements)];
      const Case test{.collective = collective,
                      .count = random() % 20000,
                      .root = static_cast<int>(random() % static_cast<std::uint64_t>(ranks))};
      ASSERT_TRUE(world.check(test, random)) << test.text(ranks);
    }
  }
}

TEST_P(Direct, SameBitsWhateverTheForm) {
  DirectWorld world(GetParam());
  ASSERT_TRUE(world.ready());
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
    for (int form = 0; form < 6; ++form) {
      std::mt19937_64 random(5);  // The same input each time; the reference is one.
      runners::DirectTuning tuning;
      tuning.blocks = 1 + static_cast<std::uint32_t>(form) / 2;
      tuning.warps = 1 + static_cast<std::uint32_t>(form) % 3;
      tuning.one_shot_default = false;
      tuning.one_shot_bytes_max = form % 2 == 0 ? UINT64_MAX : 0;
      world.tune(tuning);
      const Case test{.type = type, .op = ReduceOp::kSum, .count = 5000};
      ASSERT_TRUE(world.check(test, random)) << form;
    }
  }
}

// The sanitizers slow waiting ranks down most where there are more of them than cores.
#if defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(Ranks, Direct, ::testing::Values(2, 3));
#elif defined(__SANITIZE_ADDRESS__)
INSTANTIATE_TEST_SUITE_P(Ranks, Direct, ::testing::Values(1, 2, 3, 5));
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Direct, ::testing::Values(1, 2, 3, 4, 5, 7, 8));
#endif

TEST(DirectCopies, PiecesLargerThanTheirSlots) {
  if (test_device() != "host") {
    GTEST_SKIP() << DirectWorld::kSharedQueues;
  }
  constexpr int kRanks = 2;
  DirectWorld world(kRanks, 60, Bytes{24} << 20);
  ASSERT_TRUE(world.ready());
  std::mt19937_64 random(10);
  const Case test{.collective = Collective::kAllgather,
                  .count = world.runner(0).copies().slot_bytes() + 5};
  EXPECT_TRUE(world.check(test, random, Way::kCopied)) << test.text(kRanks);
}

/// A rank that gives up on a late peer has queued chunks behind; the peer must not take them.
TEST(DirectCopies, APeerThatComesLateGetsNothingOfAnEndedCall) {
  if (test_device() != "host") {
    GTEST_SKIP() << DirectWorld::kSharedQueues;
  }
  for (const std::uint64_t chunks : {1U, 2U, 7U}) {
    DirectWorld world(2, /*timeout_s=*/0.3);
    ASSERT_TRUE(world.ready());
    runners::DirectTuning tuning;
    tuning.copy_chunk_bytes = 4096;
    world.tune(tuning);
    std::mt19937_64 random(6);
    ASSERT_TRUE(
        world.check({.collective = Collective::kAllgather, .count = 40960}, random, Way::kCopied));
    const Bytes bytes = chunks * tuning.copy_chunk_bytes;
    const auto call_of = [&](int rank) {
      Call call;
      call.collective = Collective::kAllgather;
      call.count = bytes;
      call.recv = world.recv_buffer(rank);
      call.send = static_cast<std::byte*>(call.recv) + (Bytes{1} << 20);
      call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, world.device_of(rank)};
      const Buffer input(bytes, static_cast<unsigned char>(rank + 1));
      EXPECT_TRUE(world.api().copy(const_cast<void*>(call.send), input.data(), bytes).ok());
      return call;
    };
    const auto start = std::chrono::steady_clock::now();
    const Status status = world.runner(0).run_copied(call_of(0));
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_EQ(status.code(), ErrorCode::kTimeout) << status.message();
    EXPECT_LT(seconds, 20);
    EXPECT_TRUE(
        world.runner(0).copies().is_idle());  // The application's buffers are its own again.
    EXPECT_EQ(world.runner(0).run_copied(call_of(0)).code(), ErrorCode::kLibraryFailed);
    // Rank 0's first chunk had been signalled: a call that was no more than that is right.
    const Call call = call_of(1);
    const Status late = world.runner(1).run_copied(call);
    EXPECT_EQ(late.code(), chunks == 1 ? ErrorCode::kOk : ErrorCode::kTimeout) << late.message();
    if (chunks == 1) {
      Buffer got(bytes);
      EXPECT_TRUE(world.api().copy(got.data(), call.recv, bytes).ok());
      EXPECT_EQ(got, Buffer(bytes, 1));
    }
  }
}

/// Nobody on the host waits: the launch says that it waits too long, and the watch ends all.
TEST(DirectFailure, APeerThatNeverLaunchesItsGraphIsAnErrorInTime) {
  DirectWorld world(2, /*timeout_s=*/1);
  ASSERT_TRUE(world.ready());
  if (!world.has_own_queues()) {
    GTEST_SKIP() << DirectWorld::kSharedQueues;
  }
  std::mt19937_64 random(13);
  const Case test{.type = DataType::kFloat32, .op = ReduceOp::kSum, .count = 100};
  ASSERT_TRUE(world.check(test, random, Way::kCaptured));
  Call call;
  call.collective = Collective::kBarrier;
  const auto start = std::chrono::steady_clock::now();
  const Status late = world.run_captured(0, call);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(late.code(), ErrorCode::kTimeout) << late.message();
  EXPECT_NE(late.message().find("has not launched the same graph"), std::string::npos)
      << late.message();
  EXPECT_GT(took.count(), 0.5);
  EXPECT_LT(took.count(), 10);
  EXPECT_FALSE(world.runner(0).run(runners::Scope::kWhole, call).ok());
}

TEST(DirectFailure, APeerThatNeverComesIsAnErrorInTime) {
  DirectWorld world(2, 0.3);
  ASSERT_TRUE(world.ready());
  std::mt19937_64 random(6);
  Case test{.collective = Collective::kAllgather, .count = 100};
  ASSERT_TRUE(world.check(test, random));
  Call call;
  call.collective = Collective::kBarrier;
  call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, 0};
  const auto start = std::chrono::steady_clock::now();
  const Status status = world.runner(0).run(runners::Scope::kWhole, call);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(status.code(), ErrorCode::kTimeout) << status.message();
  EXPECT_NE(status.message().find("; rank 1 is 1 call behind"), std::string::npos)
      << status.message();
  EXPECT_LT(seconds, 20);
  const Status again = world.runner(0).run(runners::Scope::kWhole, call);
  EXPECT_EQ(again.code(), ErrorCode::kLibraryFailed);
  EXPECT_NE(again.message().find("failed before"), std::string::npos);
}

/// A call of 64 KiB on rank `rank`'s buffers.
Call allreduce_of(DirectWorld& world, int rank) {
  Call call;
  call.collective = Collective::kAllreduce;
  call.type = DataType::kInt64;
  call.op = ReduceOp::kSum;
  call.element_bytes = 8;
  call.count = 8192;
  call.send = call.recv = world.recv_buffer(rank);
  call.in_place = true;
  call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, world.device_of(rank)};
  return call;
}

TEST(DirectStream, CallsOnStreamsRunInTheirOrderAndBetweenCallsThatWait) {
  constexpr int kRanks = 2;
  constexpr int kTurns = 20;
  DirectWorld world(kRanks);
  ASSERT_TRUE(world.ready());
  world.run([&](int rank) {
    device::Api& api = world.api();
    const Call call = allreduce_of(world, rank);
    device::Stream streams[] = {*api.create_stream(world.device_of(rank)),
                                *api.create_stream(world.device_of(rank))};
    std::vector<std::int64_t> values(call.count, rank + 1);
    ASSERT_TRUE(api.copy(call.recv, values.data(), call.count * 8).ok());
    std::int64_t expected = 3;  // Of 1 and 2; then twice as much each time.
    for (int turn = 0; turn < kTurns; ++turn) {
      const Status status = turn % 5 == 4 ? world.runner(rank).run(runners::Scope::kWhole, call)
                                          : world.runner(rank).enqueue(call, streams[turn % 2]);
      ASSERT_TRUE(status.ok()) << status.message();
      expected *= turn == 0 ? 1 : 2;
    }
    const Status end = world.runner(rank).calls().status(/*wait=*/true);
    ASSERT_TRUE(end.ok()) << end.message();
    ASSERT_TRUE(api.copy(values.data(), call.recv, call.count * 8).ok());
    EXPECT_EQ(values, std::vector<std::int64_t>(call.count, expected));
    for (const device::Stream stream : streams) {
      EXPECT_TRUE(api.destroy_stream(stream).ok());
    }
  });
}

TEST(DirectStream, APeerThatNeverComesEndsTheKernelInTime) {
  DirectWorld world(2, 0.3);
  ASSERT_TRUE(world.ready());
  device::Api& api = world.api();
  const Call call = allreduce_of(world, 0);
  device::Stream stream = *api.create_stream(world.device_of(0));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(world.runner(0).enqueue(call, stream).ok());
  ASSERT_TRUE(world.runner(0).enqueue(call, stream).ok());  // Nobody waits.
  EXPECT_TRUE(world.runner(0).calls().status(/*wait=*/false).ok());
  EXPECT_TRUE(api.wait_stream(stream).ok());  // As the application would.
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 20);
  const Status status = world.runner(0).calls().status(/*wait=*/false);
  EXPECT_EQ(status.code(), ErrorCode::kTimeout);
  EXPECT_NE(status.message().find("; rank 1 is 2 calls behind"), std::string::npos)
      << status.message();
  EXPECT_EQ(world.runner(0).enqueue(call, stream).code(), ErrorCode::kTimeout);
  EXPECT_FALSE(world.runner(0).run(runners::Scope::kWhole, call).ok());
  EXPECT_TRUE(api.destroy_stream(stream).ok());
}

/// A rank's call timed out; the one that it queued behind it must not reach a peer that comes late:
/// its input is what the ended call left behind.
TEST(DirectStream, WhatIsQueuedBehindAnEndedCallReachesNobody) {
  for (const Collective collective : {Collective::kAllreduce, Collective::kAllgather}) {
    for (const std::uint64_t count : {8UL, 8192UL}) {
      DirectWorld world(2, 0.3);
      ASSERT_TRUE(world.ready());
      device::Api& api = world.api();
      const std::array<device::Stream, 2> streams = {*api.create_stream(world.device_of(0)),
                                                     *api.create_stream(world.device_of(1))};
      const auto call_of = [&](int rank) {
        Call call = allreduce_of(world, rank);
        call.count = count;
        if (collective == Collective::kAllgather) {
          call.collective = collective;
          call.element_bytes = 1;
          call.send = static_cast<std::byte*>(world.recv_buffer(rank)) + 4 * count;
          call.in_place = false;
        }
        return call;
      };
      const auto queue_two = [&](int rank) {
        const auto i = static_cast<std::size_t>(rank);
        ASSERT_TRUE(world.runner(rank).enqueue(call_of(rank), streams[i]).ok());
        ASSERT_TRUE(world.runner(rank).enqueue(call_of(rank), streams[i]).ok());
        ASSERT_TRUE(api.wait_stream(streams[i]).ok());
      };
      queue_two(0);
      EXPECT_FALSE(world.runner(0).calls().status(/*wait=*/true).ok());
      queue_two(1);
      // The first call of rank 0 was under way: its data is right. The second never began.
      EXPECT_FALSE(world.runner(1).calls().status(/*wait=*/true).ok());
      for (const device::Stream stream : streams) {
        EXPECT_TRUE(api.destroy_stream(stream).ok());
      }
    }
  }
}

TEST(DirectStream, OtherMemoryIsRefusedAndHarmsNothing) {
  DirectWorld world(2);
  ASSERT_TRUE(world.ready());
  std::vector<std::int64_t> host(8192);
  Call call = allreduce_of(world, 0);
  call.send = call.recv = host.data();
  call.send_memory = call.recv_memory = {};
  device::Stream stream = *world.api().create_stream(world.device_of(0));
  const Status status = world.runner(0).enqueue(call, stream);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  std::mt19937_64 random(9);
  EXPECT_TRUE(world.check({.collective = Collective::kAllgather, .count = 100}, random));
  EXPECT_TRUE(world.api().destroy_stream(stream).ok());
}

/// inout = in op inout by the local kernel, for what schedules of other carriers reduce with.
TEST(DirectCombine, EveryTypeAndOperation) {
  auto api = device::open(test_device(), nullptr);
  ASSERT_NE(api, nullptr);
  ASSERT_TRUE(api->initialize().ok());
  auto combine = runners::DeviceCombine::create(*api, 0);
  ASSERT_TRUE(combine.ok()) << combine.status().message();
  auto stream = api->create_stream(0);
  ASSERT_TRUE(stream.ok());
  constexpr Bytes kRoom = 1 << 20;
  auto in = api->allocate_device(0, kRoom);
  auto inout = api->allocate_device(0, kRoom);
  ASSERT_TRUE(in.ok() && inout.ok());
  std::mt19937_64 random(7);
  for (const auto& [type, op] : defined_reductions()) {
    for (const std::uint64_t count : {1, 5, 1000, kIsSanitized ? 1001 : 30001}) {
      const Bytes size = select::size_of(type);
      const Bytes shift = random() % 3 * size;
      Buffer a(count * size);
      Buffer b(count * size);
      fill_input(type, random, a.data(), count);
      fill_input(type, random, b.data(), count);
      auto* const from = static_cast<std::byte*>(*in) + shift;
      auto* const to = static_cast<std::byte*>(*inout) + shift;
      ASSERT_TRUE(api->copy(from, a.data(), a.size()).ok());
      ASSERT_TRUE(api->copy(to, b.data(), b.size()).ok());
      const Status status = (*combine)(to, from, count, type, op, *stream);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(api->wait_stream(*stream).ok());
      Buffer got(b.size());
      ASSERT_TRUE(api->copy(got.data(), to, got.size()).ok());
      Buffer expected = b;
      for (std::uint64_t i = 0; i < count; ++i) {
        reduce_element(type, op, {a.data(), b.data()}, i, expected.data());
      }
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(got[i] == expected[i] || is_padding(type, i))
            << select::to_string(type) << " " << select::to_string(op) << " count " << count
            << " byte " << i;
      }
    }
  }
  EXPECT_TRUE(api->free_device(*in).ok());
  EXPECT_TRUE(api->free_device(*inout).ok());
  EXPECT_TRUE(api->destroy_stream(*stream).ok());
}

TEST(DirectLaunch, NumbersOfTypesAndOperationsAreTheKernels) {
  using device::kernels::Op;
  using device::kernels::Type;
  EXPECT_EQ(static_cast<int>(Type::kFloat64Pair), static_cast<int>(DataType::kFloat64Pair));
  EXPECT_EQ(static_cast<int>(Type::kBool), static_cast<int>(DataType::kBool));
  EXPECT_EQ(static_cast<int>(Type::kInt64Int), static_cast<int>(DataType::kInt64Int));
  EXPECT_EQ(static_cast<int>(Type::kBfloat16), static_cast<int>(DataType::kBfloat16));
  EXPECT_EQ(static_cast<int>(Op::kMaxloc), static_cast<int>(ReduceOp::kMaxloc));
  EXPECT_EQ(static_cast<int>(Op::kLand), static_cast<int>(ReduceOp::kLand));
}

/// The launch names the kernel that its form, type and ranks say.
TEST(DirectLaunch, TakesTheKernelOfItsWords) {
  const std::pair<DataType, std::string> sums[] = {
      {DataType::kFloat32, "float32_sum"},   {DataType::kComplex64, "float32_sum"},
      {DataType::kFloat64, "float64_sum"},   {DataType::kFloat16, "float16_sum"},
      {DataType::kBfloat16, "bfloat16_sum"}, {DataType::kInt8, "int8_sum"},
      {DataType::kUint8, "int8_sum"},        {DataType::kInt32, "any"}};
  std::vector<unsigned char> memory(1 << 16);
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    const std::string most = ranks == 2 ? "2" : ranks <= 4 ? "4" : "8";
    for (const bool one_shot : {true, false}) {
      for (const auto& [type, words] : sums) {
        Call call;
        call.type = type;
        call.op = one_shot && select::has_average(type) ? ReduceOp::kAvg : ReduceOp::kSum;
        call.element_bytes = select::size_of(type);
        call.count = 64;
        call.send = call.recv = memory.data();
        runners::DirectTuning tuning;
        tuning.one_shot_default = false;
        tuning.one_shot_bytes_max = one_shot ? UINT64_MAX : 0;
        for (const bool general : {false, true}) {
          const auto launch = runners::plan_direct(
              call, {.rank = 0, .ranks = ranks},
              {.wire = runners::DirectWire::kLines, .warp_lines = 4, .general_only = general},
              tuning);
          const std::string form = one_shot ? "one_shot_" : "two_shot_";
          EXPECT_EQ(runners::direct_kernel_names()[static_cast<std::size_t>(launch.kernel)],
                    general ? "packets_" + form + "any_8"
                            : form + words + "_" + (words == "any" ? "8" : most));
          EXPECT_EQ(launch.arguments.scale, call.op == ReduceOp::kAvg ? 1.0 / ranks : 1.0);
        }
      }
    }
    Call movement;
    movement.collective = Collective::kAllgather;
    movement.count = 8;
    movement.send = movement.recv = memory.data();
    const auto launch = runners::plan_direct(movement, {.rank = 0, .ranks = ranks}, {}, {});
    EXPECT_STREQ(runners::direct_kernel_names()[static_cast<std::size_t>(launch.kernel)],
                 ranks == 2 ? "exchange_2" : "exchange_8");
  }
}

TEST(DirectLaunch, FillsItsRoundsEqually) {
  alignas(16) std::array<std::byte, 64> memory{};
  const runners::DirectGeometry geometry;  // Lines of 112 bytes, four to a warp.
  for (const Bytes bytes : {Bytes{64}, Bytes{1} << 16, Bytes{1} << 20, Bytes{2} << 20,
                            Bytes{4} << 20, Bytes{16} << 20, Bytes{1} << 30}) {
    Call call;
    call.send = call.recv = memory.data();
    call.collective = Collective::kAllreduce;
    call.type = select::DataType::kFloat32;
    call.op = ReduceOp::kSum;
    call.element_bytes = 4;
    call.count = bytes / 4;
    runners::DirectTuning two_shot;
    two_shot.one_shot_default = false;
    two_shot.one_shot_bytes_max = 0;
    const auto reduction = runners::plan_direct(call, {.rank = 0, .ranks = 4}, geometry, two_shot);
    call.collective = Collective::kAlltoall;
    call.element_bytes = 1;
    call.count = bytes / 4;
    const auto exchange = runners::plan_direct(call, {.rank = 0, .ranks = 4}, geometry, {});
    for (const auto& launch : {reduction, exchange}) {
      EXPECT_LE(launch.blocks, runners::kDirectBlocksMax);
      EXPECT_LE(launch.warps, geometry.warps_max);
      // The lines of a rank's shard or piece in all rounds, by warps that serve it: few go empty.
      const bool is_exchange = launch.kernel == exchange.kernel;
      const std::uint64_t lines = (bytes / 4 + 111) / 112;
      const std::uint64_t warps = launch.blocks * launch.warps / (is_exchange ? 4 : 1);
      const std::uint64_t most = is_exchange ? 4 : 2;
      const std::uint64_t batches =
          launch.rounds[1] > 1 ? most : (lines + warps * 4 - 1) / (warps * 4);
      EXPECT_LE(batches, most) << bytes;
      const std::uint64_t places = launch.rounds[1] * warps * batches * 4;
      EXPECT_GE(places, lines) << bytes;
      EXPECT_LE(places, lines * 5 / 4 + 64) << bytes;
      // More than one batch is for a warp only where there are no more warps.
      const std::uint64_t all =
          std::uint64_t{runners::kDirectBlocksMax} * geometry.warps_max / (is_exchange ? 4 : 1);
      EXPECT_TRUE(launch.rounds[1] > 1 || lines > (batches - 1) * all * 4) << bytes;
    }
  }
}

/// What two ranks must agree on follows from the pair's own sizes; equal pieces have the launch of
/// an alltoall.
TEST(DirectLaunch, BothEndsOfAPairComeToTheSame) {
  alignas(16) std::array<std::byte, 64> memory{};
  std::mt19937_64 random(12);
  const runners::DirectGeometry geometry;
  for (int turn = 0; turn < 200; ++turn) {
    const int ranks = 2 + static_cast<int>(random() % 7);
    const auto n = static_cast<std::size_t>(ranks);
    const Collective collective = kOfPairs[turn % std::size(kOfPairs)];
    const bool is_equal = turn % 8 == 2;
    const int root = static_cast<int>(random() % n);
    const auto size = [&] {
      const std::uint64_t most = std::uint64_t{1} << random() % 25;
      return random() % 4 == 0 ? 0 : random() % most;
    };
    std::vector<std::vector<std::uint64_t>> counts(n, std::vector<std::uint64_t>(n, 70000));
    for (auto& row : counts) {
      for (auto& count : row) {
        count = is_equal ? count : size();
      }
    }
    runners::DirectTuning tuning;
    tuning.pair_bytes_max = turn % 3 == 0 ? UINT64_MAX : 1U << 19;
    std::vector<std::vector<std::uint64_t>> columns(n);
    std::vector<runners::DirectLaunch> launches;
    std::vector<runners::LargePairs> large;
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t from = 0; from < n; ++from) {
        columns[rank].push_back(counts[from][rank]);
      }
      const auto at_root = static_cast<std::size_t>(root);
      Call call;
      call.collective = collective;
      call.root = root;
      call.send = call.recv = memory.data();
      if (collective == Collective::kGatherv) {
        call.count = counts[rank][at_root];
        if (rank == at_root) {
          call.recv_counts = call.recv_offsets = columns[rank];
        }
      } else if (collective == Collective::kScatterv) {
        call.count = counts[at_root][rank];
        if (rank == at_root) {
          call.send_counts = call.send_offsets = counts[at_root];
        }
      } else {
        call.send_counts = call.send_offsets = counts[rank];
        call.recv_counts = call.recv_offsets = columns[rank];
      }
      const runners::ScopeRank me{.rank = static_cast<int>(rank), .ranks = ranks};
      launches.push_back(runners::plan_direct(call, me, geometry, tuning));
      large.push_back(runners::large_pairs(call, me, tuning.pair_bytes_max));
    }
    const std::uint32_t groups = ranks <= 2 ? 2 : ranks <= 4 ? 4 : 8;
    for (std::size_t i = 0; i < n; ++i) {
      bool exchanges = false;
      for (std::size_t j = 0; j < n; ++j) {
        const auto& a = launches[i].arguments;
        const auto& b = launches[j].arguments;
        if (i == j) {
          continue;
        }
        EXPECT_EQ(launches[i].rounds[j], launches[j].rounds[i]) << turn;
        EXPECT_EQ(a.pair_warps[j], b.pair_warps[i]) << turn;
        EXPECT_EQ(a.send_bytes[j], b.recv_bytes[i]) << turn;
        EXPECT_EQ(large[i].peers >> j & 1, large[j].peers >> i & 1) << turn;
        EXPECT_EQ(launches[i].rounds[j] == 0, (large[i].peers >> j & 1) != 0) << turn;
        EXPECT_LE(a.pair_warps[j] * groups, launches[i].blocks * launches[i].warps) << turn;
        exchanges |= launches[i].rounds[j] != 0;
      }
      EXPECT_EQ(exchanges, large[i].has_others) << turn;
    }
    if (is_equal && tuning.pair_bytes_max == UINT64_MAX) {
      Call regular;
      regular.collective = Collective::kAlltoall;
      regular.count = 70000;
      regular.send = regular.recv = memory.data();
      const auto same =
          runners::plan_direct(regular, {.rank = 0, .ranks = ranks}, geometry, tuning);
      EXPECT_EQ(launches[0].blocks, same.blocks);
      EXPECT_EQ(launches[0].warps, same.warps);
      EXPECT_EQ(launches[0].rounds, same.rounds);
    }
  }
}

TEST(DirectLaunch, StaysWithinTheSlotsAndHasAWarpForEachRank) {
  alignas(16) std::array<std::byte, 64> memory{};
  const runners::DirectGeometry geometries[] = {
      {},
      {.wire = runners::DirectWire::kPackets, .warp_lines = 4, .general_only = true},
      {.wire = runners::DirectWire::kPackets, .warp_lines = 8, .warps_max = 8},
      {.warp_lines = 1}};
  for (const auto& geometry : geometries) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const auto& [blocks, blocks_max] :
           {std::pair{0U, 64U}, {0U, 8U}, {1U, 64U}, {64U, 64U}}) {
        for (const Collective collective :
             {Collective::kAllgather, Collective::kAlltoallv, Collective::kAllreduce}) {
          for (const std::uint64_t bytes : {1U, 4096U, 1U << 22, 1U << 28}) {
            const std::vector<std::uint64_t> counts(static_cast<std::size_t>(ranks), bytes);
            Call call;
            call.collective = collective;
            call.op = ReduceOp::kBor;
            call.count = bytes;
            call.send = call.recv = memory.data();
            if (collective == Collective::kAlltoallv) {
              call.send_counts = call.recv_counts = counts;
              call.send_offsets = call.recv_offsets = counts;
            }
            runners::DirectTuning tuning;
            tuning.blocks = tuning.warps = blocks;
            tuning.blocks_max = blocks_max;
            const auto launch =
                runners::plan_direct(call, {.rank = 0, .ranks = ranks}, geometry, tuning);
            const bool is_exchange = collective != Collective::kAllreduce;
            const std::uint32_t most = geometry.general_only || !is_exchange ? 8
                                       : ranks == 2                          ? 2
                                       : ranks <= 4                          ? 4
                                                                             : 8;
            const std::uint32_t groups = !is_exchange ? 1 : ranks <= 2 ? 2 : ranks <= 4 ? 4 : 8;
            const std::uint32_t warps = launch.blocks * launch.warps;
            EXPECT_GE(warps, groups);
            EXPECT_LE(launch.blocks, blocks_max);
            EXPECT_LE(launch.warps, geometry.warps_max);
            const std::uint64_t batches = is_exchange ? 4 : most > 4 ? 1 : most > 2 ? 2 : 4;
            EXPECT_LE(batches * (warps / groups) * geometry.warp_lines * geometry.line_bytes(),
                      runners::direct_slot_bytes(geometry, ranks))
                << ranks << " ranks, " << bytes << " bytes";
          }
        }
      }
    }
  }
}

TEST(DirectLaunch, NoRoundHasTheFlagOfALineThatWasNeverWritten) {
  const auto flag = [](std::uint64_t epoch) { return static_cast<std::uint32_t>(epoch); };
  constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;
  for (const std::uint64_t wrap : {kWrap, 5 * kWrap}) {
    for (std::uint64_t next = wrap - 9; next < wrap + 9; ++next) {
      for (std::uint64_t rounds = 0; rounds <= 9; ++rounds) {
        const std::uint64_t first = runners::direct_first_epoch(next, rounds);
        for (std::uint64_t epoch = first; epoch < first + rounds; ++epoch) {
          EXPECT_NE(flag(epoch), 0U) << next << " " << rounds;
        }
        const bool comes_to_it = next <= wrap && next + rounds > wrap;
        EXPECT_EQ(first != next, comes_to_it) << next << " " << rounds;
        EXPECT_EQ(first % 4, next % 4);  // The bank.
        EXPECT_GE(first, next);
        EXPECT_LE(first, std::max(next, wrap + 4));
      }
    }
  }
  EXPECT_EQ(runners::direct_first_epoch(1, 1000), 1U);
}

/// The numbers of docs/direct.md.
TEST(DirectLaunch, ArenasHaveTheSizeThatIsSaid) {
  const runners::DirectGeometry lines;
  const runners::DirectGeometry nvidia{
      .wire = runners::DirectWire::kPackets, .warp_lines = 4, .general_only = true};
  const runners::DirectGeometry amd{
      .wire = runners::DirectWire::kPackets, .warp_lines = 8, .warps_max = 8};
  constexpr std::uint64_t kMiB = 1 << 20;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const bool is_largest = ranks == 2 || ranks == 4 || ranks == 8;
    for (const auto& [geometry, most] :
         {std::pair{&lines, 32 * kMiB}, {&nvidia, 64 * kMiB}, {&amd, 64 * kMiB}}) {
      const std::uint64_t bytes = runners::direct_arena_bytes(*geometry, ranks);
      EXPECT_TRUE(is_largest ? bytes == most : bytes < most) << ranks << " ranks, " << bytes;
    }
  }
}

TEST(DirectImages, HoldEveryKernel) {
  for (const auto& image : device::kernels::images()) {
    const auto unpacked = device::kernels::unpack(image);
    ASSERT_TRUE(unpacked.ok()) << image.target << ": " << unpacked.status().message();
    const std::string_view bytes(reinterpret_cast<const char*>(unpacked->data()), unpacked->size());
#define TUTTI_KERNEL(name, body) \
  EXPECT_NE(bytes.find(#name), std::string_view::npos) << image.target << " has no " #name;
    TUTTI_DIRECT_KERNELS
#undef TUTTI_KERNEL
  }
}

}  // namespace
}  // namespace tutti::testing
