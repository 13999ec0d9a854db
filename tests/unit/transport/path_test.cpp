// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/path.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "transport/spray.hpp"

namespace tutti::transport {
namespace {

using Change = PathTable::Change;

TEST(path, on_echo__smooths_and_marks) {
  PathTable paths(4, 1);
  EXPECT_EQ(Change::kNone, paths.on_echo(5, 2, 8000, false));
  EXPECT_EQ(8000U, paths[2].rtt_ns);
  paths.on_echo(6, 2, 16'000, true);
  EXPECT_EQ(9000U, paths[2].rtt_ns);
  EXPECT_EQ(6U, paths[2].sample_ns);
  EXPECT_EQ(1, paths[2].penalty);
  EXPECT_EQ(1U, paths[2].marks);
  paths.on_nack(2);
  EXPECT_EQ(5, paths[2].penalty);
  for (int i = 0; i < 9; ++i) {
    paths.on_nack(2);
  }
  EXPECT_EQ(PathTable::kPenaltyMax, paths[2].penalty);
}

TEST(path, on_loss__suspect_dead_probed_revived) {
  PathTable paths(4, 1);
  EXPECT_EQ(Change::kNone, paths.on_loss(0, 1, true));
  paths.on_echo(1, 1, 100, false);  // An echo in between: not in a row.
  EXPECT_EQ(Change::kNone, paths.on_loss(2, 1, true));
  EXPECT_EQ(Change::kDead, paths.on_loss(3, 1, true));
  EXPECT_FALSE(paths.is_usable(1));
  EXPECT_EQ(3U, paths.alive());
  EXPECT_EQ(10'000'003U, paths.next_probe_ns());
  EXPECT_EQ(kNoPath, paths.take_probe(10'000'002));
  EXPECT_EQ(1, paths.take_probe(10'000'003));
  EXPECT_EQ(30'000'003U, paths.next_probe_ns());  // Twice the interval.
  TimeNs now = 0;
  for (int i = 0; i < 20; ++i) {
    now = paths.next_probe_ns();
    EXPECT_EQ(1, paths.take_probe(now));
  }
  EXPECT_EQ(now + 1'000'000'000, paths.next_probe_ns());
  EXPECT_EQ(Change::kRevived, paths.on_echo(now, 1, 100, false));
  EXPECT_TRUE(paths.is_usable(1));
  EXPECT_EQ(4U, paths.alive());
  EXPECT_EQ(kNever, paths.next_probe_ns());
}

TEST(path, on_loss__losses_make_suspect_then_dead) {
  PathTable paths(4, 1);
  EXPECT_EQ(Change::kNone, paths.on_loss(0, 0, false));
  EXPECT_EQ(Change::kSuspect, paths.on_loss(0, 0, false));
  for (int i = 3; i < PathTable::kLossesToDie; ++i) {
    EXPECT_EQ(Change::kNone, paths.on_loss(0, 0, false));
  }
  EXPECT_EQ(PathState::kSuspect, paths[0].state);
  EXPECT_EQ(Change::kDead, paths.on_loss(0, 0, false));
}

TEST(path, is_slow__of_echoes_and_losses_in_a_row_ever_longer) {
  constexpr TimeNs kUsualNs = 1000;
  PathTable paths(4, 1);
  const auto is_slow_until = [&](TimeNs ns) {
    return paths.is_slow(ns, 1, kUsualNs) && !paths.is_slow(ns + 1, 1, kUsualNs);
  };
  paths.on_echo(10, 1, 2 * kUsualNs, false, kUsualNs);
  EXPECT_EQ(0, paths[1].slow_in_a_row);
  paths.on_echo(20, 1, 2 * kUsualNs + 1, false, kUsualNs);
  EXPECT_FALSE(paths.is_slow(20, 1, kUsualNs));
  paths.on_loss(30, 1, false);
  EXPECT_TRUE(is_slow_until(30 + 16 * kUsualNs));
  paths.on_echo(40, 1, 0, false, kUsualNs);   // Unknown.
  paths.on_echo(40, 1, 9 * kUsualNs, false);  // It does not tell of data.
  EXPECT_TRUE(is_slow_until(30 + 16 * kUsualNs));
  for (const TimeNs times : {32, 64, 128, 256, 512, 512}) {
    paths.on_echo(50, 1, 9 * kUsualNs, false, kUsualNs);
    EXPECT_TRUE(is_slow_until(50 + times * kUsualNs)) << times;
  }
  EXPECT_FALSE(paths.is_slow(50, 2, kUsualNs));
  paths.on_echo(60, 1, kUsualNs, false, kUsualNs);
  EXPECT_FALSE(paths.is_slow(60, 1, kUsualNs));
}

TEST(path, on_loss__when_the_last_one_dies_all_are_tried_again) {
  PathTable paths(3, 1);
  for (PathId path = 0; path < 2; ++path) {
    paths.on_loss(0, path, true);
    EXPECT_EQ(3U - path, paths.alive());
    EXPECT_EQ(Change::kDead, paths.on_loss(1, path, true));
  }
  for (int i = 1; i < PathTable::kTimeoutsOfLastToDie; ++i) {
    EXPECT_NE(Change::kDead, paths.on_loss(static_cast<TimeNs>(i), 2, true));
    EXPECT_EQ(1U, paths.alive());
  }
  EXPECT_EQ(Change::kNone, paths.on_loss(99, 2, true));
  EXPECT_EQ(3U, paths.alive());
  EXPECT_EQ(kNever, paths.next_probe_ns());
  for (PathId path = 0; path < 3; ++path) {
    EXPECT_EQ(PathState::kSuspect, paths[path].state);
  }
  EXPECT_EQ(Change::kNone, paths.on_loss(100, 0, true));
  EXPECT_EQ(Change::kDead, paths.on_loss(101, 0, true));
}

// Many chunks may wait for the same lost acknowledgement.
TEST(path, on_loss__all_chunks_of_one_timeout_count_once) {
  PathTable paths(2, 1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Change::kNone, paths.on_loss(1000, 0, true));
  }
  EXPECT_EQ(PathState::kGood, paths[0].state);
  EXPECT_EQ(Change::kDead, paths.on_loss(2000, 0, true));
  // The last one: as many timeouts as it says, however many chunks each had.
  for (TimeNs timeout = 1; timeout < PathTable::kTimeoutsOfLastToDie; ++timeout) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_NE(Change::kDead, paths.on_loss(2000 + timeout, 1, true));
      EXPECT_EQ(1U, paths.alive()) << timeout;
    }
  }
  paths.on_loss(9000, 1, true);
  EXPECT_EQ(2U, paths.alive()) << "all are tried again";
}

TEST(path, on_loss__the_only_path_stays) {
  PathTable paths(1, 1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(i == 1 ? Change::kSuspect : Change::kNone,
              paths.on_loss(static_cast<TimeNs>(i), 0, true));
  }
  EXPECT_EQ(1U, paths.alive());
  EXPECT_EQ(PathState::kSuspect, paths[0].state);
}

TEST(path, rail__goes_down_when_more_than_half_die_within_a_millisecond) {
  for (TimeNs gap : {100'000U, 600'000U}) {
    PathTable paths(16, 2);
    Change last = Change::kNone;
    TimeNs now = 5'000'000;
    for (PathId path = 1; path < 11; path += 2, now += gap) {
      paths.on_loss(now - 1, path, true);
      last = paths.on_loss(now, path, true);
    }
    EXPECT_EQ(gap == 100'000U ? Change::kRailDown : Change::kDead, last);
    EXPECT_EQ(gap == 100'000U ? 8U : 11U, paths.alive());
    EXPECT_EQ(gap == 100'000U ? Change::kRailUp : Change::kRevived,
              paths.on_echo(now, 3, 100, false));
    EXPECT_EQ(gap == 100'000U ? 9U : 12U, paths.alive());
    if (gap == 100'000U) {  // The rest of the rail is asked at once: it may be dead all the same.
      for (std::uint32_t asked = 0; asked < 7; ++asked) {
        const PathId path = paths.take_probe(now);
        ASSERT_NE(kNoPath, path) << asked;
        EXPECT_EQ(1, path % 2);
        EXPECT_EQ(Change::kRevived, paths.on_echo(now, path, 100, false));
      }
      EXPECT_EQ(16U, paths.alive());
    }
  }
}

class SprayTest : public ::testing::Test {
 protected:
  SprayTest() : paths(16, 1), flight(64, 16, 1) {}
  Spray make(SprayMode mode, Spray::Share share = {0, 16}) { return Spray(mode, share, 20, 3); }
  std::map<PathId, int> picks(Spray& spray, int count, PathId avoid = kNoPath) {
    std::map<PathId, int> all;
    for (int i = 0; i < count; ++i) {
      ++all[spray.pick(1'000'000, 10'000, paths, flight, avoid)];
    }
    return all;
  }
  PathTable paths;
  Flight flight;
};

TEST_F(SprayTest, parse_spray__knows_its_names) {
  EXPECT_EQ(SprayMode::kMixed, parse_spray(""));
  EXPECT_EQ(SprayMode::kReps, parse_spray("reps"));
  EXPECT_EQ(SprayMode::kTwoChoices, parse_spray("two_choices"));
  EXPECT_EQ(std::nullopt, parse_spray("ecmp"));
}

TEST_F(SprayTest, oblivious__each_path_once_per_round) {
  Spray spray = make(SprayMode::kOblivious);
  for (int round = 0; round < 5; ++round) {
    const auto all = picks(spray, 16);
    EXPECT_EQ(16U, all.size());
  }
  Spray odd = make(SprayMode::kOblivious, {3, 5});
  const auto all = picks(odd, 5);
  EXPECT_EQ(5U, all.size());
  EXPECT_EQ(3, all.begin()->first);
  EXPECT_EQ(7, all.rbegin()->first);
}

TEST_F(SprayTest, bitmap__skips_once_for_each_point) {
  Spray spray = make(SprayMode::kBitmap);
  paths.on_nack(5);  // 4 points
  const auto all = picks(spray, 15 * 4);
  EXPECT_EQ(0U, all.count(5));
  EXPECT_EQ(0, paths[5].penalty);
  EXPECT_EQ(16U, picks(spray, 16).size());
}

TEST_F(SprayTest, two_choices__prefers_the_faster_and_explores_the_stale) {
  Spray spray = make(SprayMode::kTwoChoices);
  for (PathId path = 0; path < 16; ++path) {
    paths.on_echo(990'000, path, path == 9 ? 50'000 : 10'000 + path, false);
  }
  EXPECT_EQ(0U, picks(spray, 500).count(9));  // Never the better of two.
  EXPECT_GT(picks(spray, 500)[0], 40);        // The best: 1 of 8.
  for (PathId path = 0; path < 16; ++path) {
    paths.on_echo(path == 9 ? 900'000 : 990'000, path, 0, false);
  }
  paths[9].sample_ns = 900'000;
  EXPECT_GT(picks(spray, 500)[9], 40);  // Its bad sample is old.
}

TEST_F(SprayTest, two_choices__counts_its_own_bytes_in_the_air) {
  Spray spray = make(SprayMode::kTwoChoices, {0, 2});
  for (PathId path = 0; path < 2; ++path) {
    paths.on_echo(999'000, path, 10'000, false);
  }
  const std::uint64_t number = flight.add();
  flight.at(number).bytes = 100'000;
  flight.transmit(0, number, 0);
  EXPECT_EQ(100, picks(spray, 100)[1]);
}

TEST_F(SprayTest, two_choices__bytes_in_the_air_outweigh_a_round_trip) {
  Spray spray = make(SprayMode::kTwoChoices, {0, 2});
  const std::uint64_t number = flight.add();
  flight.at(number).bytes = 4096;
  flight.transmit(0, number, 0);
  paths.on_echo(999'000, 0, 10'000, false);
  paths.on_echo(999'000, 1, 14'000, false);
  EXPECT_EQ(100, picks(spray, 100)[1]);
}

TEST_F(SprayTest, two_choices__a_path_that_was_slow_in_a_row_loses_for_a_while) {
  Spray spray = make(SprayMode::kTwoChoices, {0, 2});
  const std::uint64_t number = flight.add();
  flight.at(number).bytes = 10'000'000;
  flight.transmit(0, number, 0);
  paths.on_echo(999'000, 0, 10'000, false, 10'000);
  paths.on_echo(999'000, 1, 20'001, false, 10'000);
  EXPECT_EQ(100, picks(spray, 100)[1]);  // Once is a collision.
  paths.on_echo(999'000, 1, 20'001, false, 10'000);
  EXPECT_EQ(100, picks(spray, 100)[0]);
  paths[1].slow_ns = 1'000'000 - 160'001;  // 16 round trips ago.
  EXPECT_EQ(100, picks(spray, 100)[1]);
}

TEST_F(SprayTest, reps__uses_again_what_came_back_unmarked) {
  Spray spray = make(SprayMode::kReps);
  spray.on_echo(4, false);
  spray.on_echo(5, true);
  spray.on_echo(6, false);
  EXPECT_EQ(4, spray.pick(0, 10'000, paths, flight, kNoPath));
  EXPECT_EQ(6, spray.pick(0, 10'000, paths, flight, kNoPath));
  for (PathId path = 0; path < 12; ++path) {
    spray.on_echo(path, false);
  }
  EXPECT_EQ(4, spray.pick(0, 10'000, paths, flight, kNoPath));  // The newest 8.
}

TEST_F(SprayTest, reps__after_a_timeout_only_the_proven_for_a_while) {
  Spray spray = make(SprayMode::kReps);
  spray.on_echo(4, false);
  spray.on_echo(6, false);
  spray.on_timeout(1'000'000);
  const auto all = picks(spray, 100);
  EXPECT_EQ(2U, all.size());
  EXPECT_EQ(50, all.at(4));
  std::set<PathId> later;
  for (int i = 0; i < 40; ++i) {
    later.insert(spray.pick(12'000'000, 10'000, paths, flight, kNoPath));
  }
  EXPECT_GT(later.size(), 8U);
}

TEST_F(SprayTest, mixed__recycles_else_walks) {
  Spray spray = make(SprayMode::kMixed);
  spray.on_echo(11, false);
  EXPECT_EQ(11, spray.pick(0, 10'000, paths, flight, kNoPath));
  paths.on_nack(2);
  EXPECT_EQ(15U, picks(spray, 15).size());
}

TEST_F(SprayTest, pick__avoids_the_lossy_the_dead_and_mostly_the_suspect) {
  for (SprayMode mode : {SprayMode::kOblivious, SprayMode::kTwoChoices, SprayMode::kBitmap,
                         SprayMode::kReps, SprayMode::kMixed}) {
    PathTable fresh(16, 1);
    paths = fresh;
    for (int i = 0; i < 2; ++i) {
      paths.on_loss(static_cast<TimeNs>(i), 3, true);
      paths.on_loss(0, 7, false);
    }
    paths[7].penalty = 0;
    Spray spray = make(mode);
    const auto all = picks(spray, 3200, 12);
    EXPECT_EQ(0U, all.count(3));
    EXPECT_EQ(0U, all.count(12));
    EXPECT_LT(all.count(7) != 0 ? all.at(7) : 0, 40);  // 200 / 16, and not 200.
  }
}

TEST_F(SprayTest, pick__has_an_answer_when_few_are_left) {
  Spray spray = make(SprayMode::kMixed);
  for (PathId path = 0; path < 15; ++path) {
    paths.on_loss(path * 10'000'000U + 1, path, true);
    paths.on_loss(path * 10'000'000U, path, true);
  }
  EXPECT_EQ(1U, paths.alive());
  EXPECT_EQ(100, picks(spray, 100)[15]);
  EXPECT_EQ(100, picks(spray, 100, 15)[15]);  // Better where it was lost than nowhere.
}

}  // namespace
}  // namespace tutti::transport
