// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The search for what arrives, on a clock of its own and over ways that lose what they are told to.
#include "wire/udp/prober.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>

#include "base/random.hpp"

namespace tutti::wire::udp {
namespace {

using transport::TimeNs;
using Probe = Prober::Probe;
using Kind = Prober::FindingKind;

constexpr TimeNs kMillisecondNs = 1'000'000;
constexpr TimeNs kSecondNs = 1000 * kMillisecondNs;
constexpr std::uint16_t kJumbo = 9000 - 28;
constexpr std::uint16_t kUsual = 1500 - 28;
constexpr std::uint16_t kLeast = 1036;

/// The way to a peer that answers all that arrives.
class Way {
 public:
  explicit Way(const Prober::Options& options) : prober_(options) {}

  Prober& prober() { return prober_; }
  TimeNs now() const { return now_; }
  std::size_t sent() const { return sent_; }
  const std::vector<Prober::Finding>& findings() const { return findings_; }

  std::function<bool(const Probe&)> arrives = [](const Probe&) { return true; };
  TimeNs trip_ns = 100'000;
  bool has_data = false;

  void run(TimeNs length_ns) {
    const TimeNs end = now_ + length_ns;
    while (true) {
      if (has_data) {
        prober_.on_data();
      }
      const TimeNs next = std::min(prober_.due_ns(),
                                   answers_.empty() ? transport::kNever : answers_.begin()->first);
      if (next > end) {
        break;
      }
      now_ = std::max(now_, next);
      while (!answers_.empty() && answers_.begin()->first <= now_) {
        prober_.on_answer(now_, answers_.begin()->second);
        answers_.erase(answers_.begin());
      }
      prober_.poll(now_, [this](const Probe& probe) {
        ++sent_;
        if (arrives(probe)) {
          answers_.emplace(now_ + trip_ns, probe);
        }
      });
      while (auto finding = prober_.take_finding()) {
        findings_.push_back(*finding);
      }
    }
    now_ = end;
  }

 private:
  Prober prober_;
  TimeNs now_ = 5 * kSecondNs;
  std::multimap<TimeNs, Probe> answers_;
  std::size_t sent_ = 0;
  std::vector<Prober::Finding> findings_;
};

Prober::Options options(std::uint16_t bytes, std::uint32_t paths) {
  return {.bytes = bytes, .least_bytes = kLeast, .ip_bytes = 28, .paths = paths, .is_near = false};
}

TEST(Prober, OneRoundTripAndItIsKnown) {
  Way way(options(kJumbo, 64));
  way.run(way.trip_ns + 1);
  EXPECT_TRUE(way.prober().is_known());
  EXPECT_EQ(way.prober().bytes(), kJumbo);
  way.run(kSecondNs);
  // A long and a short one for each path, and the first path is asked again once it has answered.
  EXPECT_LE(way.sent(), 2U * 64);
  EXPECT_TRUE(way.findings().empty());
  // Nothing is sent where no data is.
  const std::size_t sent = way.sent();
  way.run(100 * kSecondNs);
  EXPECT_EQ(way.sent(), sent);
  EXPECT_EQ(way.prober().due_ns(), transport::kNever);
}

TEST(Prober, WhatLongDatagramsDoNotPassIsFound) {
  for (const std::uint16_t mtu : {8950, 4000, 1500, 1499, 1450, 1280, 1100}) {
    Way way(options(kJumbo, 8));
    way.arrives = [mtu](const Probe& probe) { return probe.bytes + 28 <= mtu; };
    way.run(2 * kSecondNs);
    EXPECT_TRUE(way.prober().is_known()) << mtu;
    EXPECT_FALSE(way.prober().is_too_small());
    EXPECT_LE(way.prober().bytes() + 28, mtu);
    EXPECT_GE(way.prober().bytes() + 28, mtu == 4000 ? 2304 : mtu == 1100 ? 1064 : mtu - 8);
    ASSERT_EQ(way.findings().size(), 1U) << mtu;
    EXPECT_EQ(way.findings()[0].kind, Kind::kSmaller);
    EXPECT_EQ(way.findings()[0].bytes, way.prober().bytes());
  }
}

TEST(Prober, OneOfManyPathsMayBeTheNarrowOne) {
  Way way(options(kJumbo, 16));
  way.arrives = [](const Probe& probe) { return probe.path != 11 || probe.bytes <= kUsual; };
  way.run(way.trip_ns + 1);
  EXPECT_TRUE(way.prober().is_known());
  way.run(2 * kSecondNs);
  EXPECT_EQ(way.prober().bytes(), kUsual);
  EXPECT_EQ(way.findings().size(), 1U);
}

TEST(Prober, ABlackHoleThatAppearsWhileThereIsDataIsFound) {
  Way way(options(kJumbo, 8));
  way.has_data = true;
  way.run(10 * kSecondNs);
  EXPECT_EQ(way.prober().bytes(), kJumbo);
  way.arrives = [](const Probe& probe) { return probe.bytes <= kUsual; };
  way.run(2 * kSecondNs);
  EXPECT_EQ(way.prober().bytes(), kUsual);
  // Once more.
  way.arrives = [](const Probe& probe) { return probe.bytes <= 1280 - 28; };
  way.run(2 * kSecondNs);
  EXPECT_EQ(way.prober().bytes(), 1280 - 28);
  EXPECT_EQ(way.findings().size(), 2U);
  // And of one path, as soon as its turn comes.
  way.arrives = [](const Probe& probe) { return probe.path != 5 || probe.bytes <= kLeast; };
  way.run(4 * kSecondNs);
  EXPECT_EQ(way.prober().bytes(), kLeast);
}

TEST(Prober, CongestionIsNoBlackHole) {
  // Long ones are lost most of the time, short ones less often, and sometimes nothing passes.
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Way way(options(kJumbo, 16));
    way.has_data = true;
    std::uint64_t count = 0;
    way.arrives = [&](const Probe& probe) {
      const bool is_out = way.now() / (3 * kSecondNs) % 3 == 2;
      const std::uint64_t drawn = draw(seed, 0, count++) % 100;
      return !is_out && drawn >= (probe.bytes > kUsual ? 30U : 10U);
    };
    way.run(60 * kSecondNs);
    EXPECT_TRUE(way.prober().is_known());
    EXPECT_EQ(way.prober().bytes(), kJumbo) << seed;
    way.arrives = [&](const Probe& probe) {
      return probe.bytes <= kUsual && draw(seed, 0, count++) % 100 >= 20;
    };
    way.run(5 * kSecondNs);
    EXPECT_EQ(way.prober().bytes(), kUsual) << seed;
  }
}

TEST(Prober, AnswersMayTakeLong) {
  Way way(options(kJumbo, 4));
  way.trip_ns = 250 * kMillisecondNs;
  way.has_data = true;
  way.run(10 * kSecondNs);
  EXPECT_TRUE(way.prober().is_known());
  EXPECT_EQ(way.prober().bytes(), kJumbo);
  way.trip_ns = 2 * kSecondNs;  // Longer than a round.
  way.run(20 * kSecondNs);
  EXPECT_EQ(way.prober().bytes(), kJumbo);
  EXPECT_TRUE(way.findings().empty());
}

TEST(Prober, SilentPathsAreNamedOnceAndTheOthersCount) {
  Way way(options(kJumbo, 16));
  way.arrives = [](const Probe& probe) { return probe.path != 0 && probe.path != 9; };
  way.run(3 * kSecondNs);
  EXPECT_TRUE(way.prober().is_known());
  EXPECT_EQ(way.prober().bytes(), kJumbo);
  ASSERT_EQ(way.findings().size(), 1U);
  EXPECT_EQ(way.findings()[0].kind, Kind::kSilentPaths);
  EXPECT_EQ(way.findings()[0].paths, (std::vector<std::uint16_t>{0, 9}));
  way.has_data = true;
  way.run(20 * kSecondNs);
  EXPECT_EQ(way.findings().size(), 1U);
}

TEST(Prober, APeerThatIsNotThereYetIsAskedLittleAndFoundAtOnce) {
  Way way(options(kJumbo, 64));
  way.arrives = [](const Probe&) { return false; };
  way.run(10 * kSecondNs);
  EXPECT_FALSE(way.prober().is_known());
  EXPECT_TRUE(way.prober().is_tried());
  EXPECT_TRUE(way.findings().empty());
  EXPECT_LT(way.sent(), 2000U);
  way.arrives = [](const Probe&) { return true; };
  way.prober().on_heard();
  EXPECT_FALSE(way.prober().is_tried());
  way.run(way.trip_ns + 1);
  EXPECT_TRUE(way.prober().is_known());
  way.run(kSecondNs);
  EXPECT_TRUE(way.findings().empty());
}

TEST(Prober, WhereNothingUsefulPassesItSaysSo) {
  Way way(options(kJumbo, 4));
  way.arrives = [](const Probe& probe) { return probe.bytes <= 600; };
  way.run(3 * kSecondNs);
  EXPECT_FALSE(way.prober().is_known());
  EXPECT_TRUE(way.prober().is_too_small());
  ASSERT_EQ(way.findings().size(), 1U);
  EXPECT_EQ(way.findings()[0].kind, Kind::kNoneFits);
}

TEST(Prober, OnOneHostShortOnesSayAll) {
  Prober::Options near = options(65507, 1);
  near.is_near = true;
  Way way(near);
  way.has_data = true;
  way.arrives = [](const Probe& probe) { return probe.bytes == Prober::kShortBytes; };
  way.run(kSecondNs);
  EXPECT_TRUE(way.prober().is_known());
  EXPECT_EQ(way.prober().bytes(), 65507);
  EXPECT_EQ(way.sent(), 1U);
}

TEST(Prober, AnswersThatNobodyAskedForAreHarmless) {
  Way way(options(kJumbo, 2));
  way.arrives = [](const Probe&) { return false; };
  way.run(100 * kMillisecondNs);
  way.prober().on_answer(way.now(), {7, kJumbo, 0});
  way.prober().on_answer(way.now(), {1, 3, 0xffffffff});
  way.prober().on_answer(way.now(), {1, 3, 0});
  EXPECT_FALSE(way.prober().is_known());
}

}  // namespace
}  // namespace tutti::wire::udp
