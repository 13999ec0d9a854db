// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What ranks tell each other of their calls on device memory: who need not be waited for, and calls
// that differ (direct_world.hpp).
#include "runners/direct/call_records.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "direct_world.hpp"
#include "support/sanitized.hpp"

namespace tutti::testing {
namespace {

/// Half the time-out of a world's calls, which a busy machine must not take for it.
constexpr double kSoonS = 30;

using runners::CallRecords;

struct Pages {
  Pages() {
    for (auto& memory : memories) {
      memory.resize(CallRecords::kPageBytes + 64);
      void* page = memory.data();
      std::size_t space = memory.size();
      pages.push_back(std::align(64, CallRecords::kPageBytes, page, space));
    }
    for (int rank = 0; rank < 2; ++rank) {
      records[static_cast<std::size_t>(rank)].set_own(rank, pages[static_cast<std::size_t>(rank)]);
      records[static_cast<std::size_t>(rank)].set_peer(1 - rank,
                                                       pages[static_cast<std::size_t>(1 - rank)]);
    }
  }
  std::array<std::vector<std::byte>, 2> memories;
  std::vector<void*> pages;
  std::array<CallRecords, 2> records;
};

TEST(CallRecords, find__what_the_peer_wrote_until_it_is_written_over) {
  Pages all;
  CallRecords::Entry entry;
  EXPECT_EQ(all.records[1].find(0, 1, &entry), CallRecords::Found::kBehind);
  for (std::uint64_t number = 1; number <= 20; ++number) {
    all.records[0].write(1, {.number = number, .form = 7, .send_bytes = number, .recv_bytes = 3});
    ASSERT_EQ(all.records[1].find(0, number, &entry), CallRecords::Found::kEntry);
    EXPECT_EQ(entry.send_bytes, number);
    EXPECT_TRUE(entry.fits({.number = number, .form = 7, .send_bytes = 3, .recv_bytes = number}));
    EXPECT_FALSE(entry.fits({.number = number, .form = 8, .send_bytes = 3, .recv_bytes = number}));
    EXPECT_FALSE(entry.fits({.number = number, .form = 7, .send_bytes = 3, .recv_bytes = 0}));
    EXPECT_EQ(all.records[1].find(0, number + 1, &entry), CallRecords::Found::kBehind);
    EXPECT_EQ(all.records[0].find(1, number, &entry), CallRecords::Found::kBehind);
  }
  EXPECT_EQ(all.records[1].find(0, 1, &entry), CallRecords::Found::kLost);
}

TEST(CallRecords, find__an_entry_that_is_being_written_is_neither_there_nor_lost) {
  Pages all;
  all.records[0].write(1, {.number = 1, .form = 7});
  // The number of the peer's first slot, as write() leaves it meanwhile.
  auto* const words = static_cast<std::uint64_t*>(all.pages[0]);
  auto* const number = std::find(words, words + CallRecords::kPageBytes / sizeof(*words), 7U) - 1;
  ASSERT_EQ(*number, 1U);
  *number = UINT64_MAX;
  CallRecords::Entry entry;
  EXPECT_EQ(all.records[1].find(0, 1, &entry), CallRecords::Found::kBusy);
  all.records[0].write(1, {.number = 1, .form = 8});
  EXPECT_EQ(all.records[1].find(0, 1, &entry), CallRecords::Found::kEntry);
  EXPECT_EQ(entry.form, 8U);
}

TEST(CallRecords, who_is_behind__those_with_the_most_calls_to_make) {
  Pages all;
  EXPECT_EQ(all.records[0].who_is_behind(), "");
  for (std::uint64_t number = 1; number <= 20; ++number) {
    all.records[0].write(1, {.number = number, .form = 7});
    EXPECT_EQ(all.records[0].who_is_behind().find("rank 1 is " + std::to_string(number)), 0U);
    EXPECT_EQ(all.records[1].who_is_behind(), "") << "who is ahead holds nobody up";
  }
  EXPECT_EQ(all.records[0].who_is_behind(), "rank 1 is 20 calls behind");
  for (std::uint64_t number = 1; number <= 19; ++number) {
    all.records[1].write(0, {.number = number, .form = 7});
  }
  EXPECT_EQ(all.records[0].who_is_behind(), "rank 1 is 1 call behind");
  all.records[1].write(0, {.number = 20, .form = 7});
  EXPECT_EQ(all.records[0].who_is_behind(), "");
  Pages other;  // Of a third rank.
  all.records[0].set_peer(2, other.pages[1]);
  all.records[0].write(2, {.number = 1, .form = 7});
  EXPECT_EQ(all.records[0].who_is_behind(), "rank 2 is 1 call behind");
  all.records[0].write(1, {.number = 21, .form = 7});
  EXPECT_EQ(all.records[0].who_is_behind(), "ranks 1, 2 are 1 call behind");
}

TEST(CallRecords, has_completed__up_to_the_epoch_that_the_peer_named_while_it_has_not_failed) {
  Pages all;
  EXPECT_FALSE(all.records[0].has_completed(1, 1));
  all.records[1].set_completed(0, 5);
  EXPECT_TRUE(all.records[0].has_completed(1, 5));
  EXPECT_FALSE(all.records[0].has_completed(1, 6));
  all.records[1].set_failed();
  EXPECT_FALSE(all.records[0].has_completed(1, 5));
}

TEST(CallRecords, without_pages__nothing_is_known) {
  CallRecords records;
  records.write(1, {.number = 1});
  records.set_completed(1, 5);
  records.set_failed();
  CallRecords::Entry entry;
  EXPECT_EQ(records.find(1, 1, &entry), CallRecords::Found::kLost);
  EXPECT_FALSE(records.has_completed(1, 0));
  EXPECT_EQ(records.failed_peer(), -1);
}

TEST(CallRecords, failed_peer__the_first_that_says_so) {
  Pages all;
  EXPECT_EQ(all.records[0].failed_peer(), -1);
  all.records[1].set_failed();
  EXPECT_EQ(all.records[0].failed_peer(), 1);
  EXPECT_EQ(all.records[1].failed_peer(), -1);
}

/// A call of one rank of a world, on its receive buffer from `at` on.
Call bytes_call(DirectWorld& world, int rank, Collective collective, Bytes count, int root,
                Bytes at = 0) {
  Call call;
  call.collective = collective;
  call.element_bytes = 1;
  call.count = count;
  call.root = root;
  call.recv = static_cast<std::byte*>(world.recv_buffer(rank)) + at;
  call.send = static_cast<std::byte*>(call.recv) + (Bytes{2} << 20);
  call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, world.device_of(rank)};
  return call;
}

/// Calls that follow each other without a barrier: a rank that only gives runs ahead of the others,
/// and what it gives next must not reach them too soon.
TEST(DirectUnawaited, RanksRunAhead) {
  for (const int ranks : {2, 3}) {
    DirectWorld world(ranks, 60, Bytes{6} << 20);
    ASSERT_TRUE(world.ready());
    runners::DirectTuning tuning;
    tuning.blocks_max = test_device() == "host" ? 2 : 16;
    world.tune(tuning);
    std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
    world.run([&](int rank) {
      std::mt19937_64 random(1);  // The same calls on all ranks.
      std::mt19937_64 own(static_cast<std::uint64_t>(rank));
      for (int i = 0; i < (kIsSanitized ? 300 : 1000); ++i) {
        const Collective collective =
            std::array{Collective::kBcast, Collective::kScatter, Collective::kGather,
                       Collective::kAllgather, Collective::kBcast}[random() % 5];
        const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
        const Bytes count = random() % (random() % 4 == 0 ? 30000 : 300);
        Call call = bytes_call(world, rank, collective, count, root);
        const auto value = [&](int source) {
          return static_cast<unsigned char>(i * 7 + source * 31 + 1);
        };
        const Buffer input(count * static_cast<Bytes>(ranks), value(rank));
        EXPECT_TRUE(
            world.api().copy(const_cast<void*>(call.send), input.data(), input.size()).ok());
        const bool is_bcast = collective == Collective::kBcast;
        EXPECT_TRUE(
            world.api()
                .copy(call.recv,
                      Buffer(input.size(), is_bcast && rank == root ? value(rank) : 0).data(),
                      input.size())
                .ok());
        if (own() % 16 == 0) {
          usleep(static_cast<unsigned>(own() % 2000));
        }
        const Status status = world.runner(rank).run(runners::Scope::kWhole, call);
        Buffer expected(input.size(), 0);
        for (int source = 0; source < ranks; ++source) {
          const auto fill = [&](Bytes from, Bytes bytes) {
            std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(from), bytes, value(source));
          };
          if (collective == Collective::kAllgather ||
              (collective == Collective::kGather && rank == root)) {
            fill(static_cast<Bytes>(source) * count, count);
          } else if (source == root && collective == Collective::kScatter) {
            fill(0, count);
          } else if (source == root && is_bcast) {
            fill(0, rank == root ? input.size() : count);
          }
        }
        Buffer got(input.size());
        EXPECT_TRUE(world.api().copy(got.data(), call.recv, got.size()).ok());
        if (!status.ok() || got != expected) {
          wrong[static_cast<std::size_t>(rank)] = "call " + std::to_string(i) + " " +
                                                  select::to_string(collective) + " of " +
                                                  std::to_string(count) + ": " + status.message();
          return;
        }
      }
    });
    EXPECT_EQ(wrong, std::vector<std::string>(static_cast<std::size_t>(ranks)));
  }
}

TEST(DirectUnawaited, ARootReturnsBeforeALatePeerHasCalled) {
  DirectWorld world(2);
  ASSERT_TRUE(world.ready());
  world.run([&](int rank) {
    EXPECT_TRUE(
        world.runner(rank)
            .run(runners::Scope::kWhole, bytes_call(world, rank, Collective::kAllgather, 100, 0))
            .ok());
  });
  const auto bcast = [&](int rank, Bytes count) {
    return world.runner(rank).run(runners::Scope::kWhole,
                                  bytes_call(world, rank, Collective::kBcast, count, 0));
  };
  const Buffer data(100, 42);
  ASSERT_TRUE(world.api().copy(world.recv_buffer(0), data.data(), data.size()).ok());
  EXPECT_TRUE(bcast(0, 100).ok());  // Nobody else is in it.
  EXPECT_TRUE(bcast(1, 100).ok());
  Buffer got(100);
  ASSERT_TRUE(world.api().copy(got.data(), world.recv_buffer(1), got.size()).ok());
  EXPECT_EQ(got, data);
}

/// Ends of a call that differ, in forms that are equal: that call's error alone.
TEST(DirectMismatch, OfEqualFormIsThatCallsErrorAlone) {
  DirectWorld world(2);
  ASSERT_TRUE(world.ready());
  std::mt19937_64 random(1);
  const auto run = [&](Collective collective, std::array<Bytes, 2> counts,
                       std::array<int, 2> roots) {
    std::array<Status, 2> statuses;
    world.run([&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      statuses[i] = world.runner(rank).run(
          runners::Scope::kWhole, bytes_call(world, rank, collective, counts[i], roots[i]));
    });
    return statuses;
  };
  for (int turn = 0; turn < 20; ++turn) {
    // The root need not see it; who receives does.
    const Status receiver = run(Collective::kBcast, {8, 16}, {0, 0})[1];
    EXPECT_EQ(receiver.code(), ErrorCode::kMismatch) << receiver.message();
    for (const Status& status : run(Collective::kAllgather, {16, 8}, {0, 0})) {
      EXPECT_EQ(status.code(), ErrorCode::kMismatch) << status.message();
    }
    EXPECT_TRUE(world.check({.collective = Collective::kBcast, .count = 100}, random));
    EXPECT_TRUE(world.check({.collective = Collective::kAllgather, .count = 3000}, random));
  }
  EXPECT_NE(run(Collective::kBcast, {8, 16}, {0, 0})[1].message().find(
                "rank 0 calls bcast of root 0 (sends 8 bytes, receives 0) where this rank calls "
                "bcast of root 0 (sends 0 bytes, receives 16)"),
            std::string::npos);
  // Each its own root: nobody receives, so nobody need see it; the next call is right.
  run(Collective::kBcast, {8, 8}, {0, 1});
  EXPECT_TRUE(world.check({.collective = Collective::kBcast, .count = 100, .root = 1}, random));
  EXPECT_TRUE(world.check({.collective = Collective::kBcast, .count = 100}, random));
  // Nobody its own root: both receive.
  for (const Status& status : run(Collective::kBcast, {8, 8}, {1, 0})) {
    EXPECT_EQ(status.code(), ErrorCode::kMismatch) << status.message();
  }
  EXPECT_TRUE(world.check({.collective = Collective::kBcast, .count = 100}, random));
}

/// Of other forms one kernel waits for lines that never come: the communicator's calls end, soon.
TEST(DirectMismatch, OfOtherFormEndsTheCalls) {
  DirectWorld world(2);
  ASSERT_TRUE(world.ready());
  const auto start = std::chrono::steady_clock::now();
  std::array<Status, 2> first;
  std::array<Status, 2> second;
  world.run([&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    const Bytes bytes = rank == 0 ? 100 : Bytes{1} << 20;
    const auto call = bytes_call(world, rank, Collective::kAllgather, bytes, 0);
    first[i] = world.runner(rank).run(runners::Scope::kWhole, call);
    second[i] = world.runner(rank).run(runners::Scope::kWhole,
                                       bytes_call(world, rank, Collective::kAllgather, 8, 0));
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    EXPECT_EQ(first[i].code(), ErrorCode::kMismatch) << first[i].message();
    EXPECT_FALSE(second[i].ok());
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            kSoonS);
}

/// Rank 0's pieces differ from those of rank 1 in a form that is equal and from those of rank 2 in
/// another one: although its kernel ends, it is not in step with rank 2 any more.
TEST(DirectMismatch, OfEqualFormWithOneRankAndOtherFormWithAnotherEndsTheCalls) {
  constexpr int kRanks = 3;
  DirectWorld world(kRanks, 60, Bytes{6} << 20);
  ASSERT_TRUE(world.ready());
  runners::DirectTuning tuning;
  tuning.blocks_max = test_device() == "host" ? 3 : 16;
  world.tune(tuning);
  constexpr std::uint64_t kLarge = 300000;
  // [from][to]; what each rank believes it sends and receives.
  const std::array<std::array<std::uint64_t, 3>, 3> sends = {
      {{0, 8, 8}, {16, 0, 8}, {kLarge, 8, 0}}};
  const std::array<std::array<std::uint64_t, 3>, 3> recvs = {
      {{0, 8, 8}, {16, 0, 8}, {kLarge, 8, 0}}};
  std::array<Status, kRanks> first;
  std::array<Status, kRanks> second;
  world.run([&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    Call call = bytes_call(world, rank, Collective::kAlltoallv, 0, 0);
    const std::array<std::uint64_t, 3> offsets = {0, 400000, 800000};
    call.send_counts = sends[i];
    call.recv_counts = recvs[i];
    call.send_offsets = call.recv_offsets = offsets;
    first[i] = world.runner(rank).run(runners::Scope::kWhole, call);
    second[i] = world.runner(rank).run(runners::Scope::kWhole,
                                       bytes_call(world, rank, Collective::kAllgather, 8, 0));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    EXPECT_FALSE(first[i].ok()) << rank;
    EXPECT_FALSE(second[i].ok()) << rank;
  }
  EXPECT_EQ(first[0].code(), ErrorCode::kMismatch) << first[0].message();
}

/// A peer that has ended its calls is seen by those that wait for it.
TEST(DirectMismatch, APeerThatHasFailedIsSeen) {
  DirectWorld world(2);
  ASSERT_TRUE(world.ready());
  world.fail(1);
  const auto start = std::chrono::steady_clock::now();
  const Status status = world.runner(0).run(runners::Scope::kWhole,
                                            bytes_call(world, 0, Collective::kAllgather, 8, 0));
  EXPECT_NE(status.message().find("rank 1 makes no more calls here"), std::string::npos)
      << status.message();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            kSoonS);
}

/// By copies: a signal of each chunk describes the whole call.
TEST(DirectMismatch, OfCopiesIsSeen) {
  if (test_device() != "host") {
    GTEST_SKIP() << DirectWorld::kSharedQueues;
  }
  // Of other numbers of chunks one rank's copies meet the other's in staging memory, which the
  // thread sanitizer would report: the program's own race.
#if defined(__SANITIZE_THREAD__)
  const std::vector<std::array<Bytes, 2>> cases = {{9000, 9001}};
#else
  const std::vector<std::array<Bytes, 2>> cases = {{9000, 9001}, {9000, 90000}};
#endif
  for (const std::array<Bytes, 2>& bytes : cases) {
    DirectWorld world(2);
    ASSERT_TRUE(world.ready());
    runners::DirectTuning tuning;
    tuning.copy_chunk_bytes = 4096;
    world.tune(tuning);
    std::array<Status, 2> statuses;
    world.run([&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      statuses[i] = world.runner(rank).run_copied(
          bytes_call(world, rank, Collective::kAllgather, bytes[i], 0));
    });
    for (const Status& status : statuses) {
      EXPECT_FALSE(status.ok());
    }
    EXPECT_TRUE(statuses[0].code() == ErrorCode::kMismatch ||
                statuses[1].code() == ErrorCode::kMismatch)
        << statuses[0].message() << " / " << statuses[1].message();
  }
}

}  // namespace
}  // namespace tutti::testing
