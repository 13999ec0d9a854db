// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/endpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

TEST(endpoint, transfer__messages_of_every_size_arrive_once) {
  const std::vector<std::size_t> sizes = {0, 1, 4095, 4096, 4097, 100'000, 3'000'001};
  ConnectionOptions options;
  options.wire.paths = 16;
  LossyPair pair(options);
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sent.push_back(pattern(sizes[i], i + 1));
    got.emplace_back(sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    pair.receive(1, 7, got[i], 100 + i);
    pair.send(0, 7, sent[i], i);
  }
  ASSERT_TRUE(pair.run_until_events(sizes.size(), sizes.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(sent[i], got[i]) << sizes[i];
  }
  for (int end = 0; end < 2; ++end) {
    std::vector<bool> seen(sizes.size());
    for (const Event& event : pair.events(end)) {
      EXPECT_EQ(Outcome::kOk, event.outcome);
      EXPECT_EQ(end == 0 ? EventKind::kSendDone : EventKind::kReceiveDone, event.kind);
      const std::size_t i = event.context % 100;
      EXPECT_FALSE(seen[i]);
      seen[i] = true;
      EXPECT_EQ(sizes[i], event.part_bytes[0]);
    }
  }
  EXPECT_EQ(0U, pair.counters(0).retransmissions);
  EXPECT_EQ(pair.counters(0).chunks_sent, pair.counters(1).chunks_received);
  EXPECT_EQ(0U, pair.counters(0).malformed_dropped + pair.counters(1).malformed_dropped);
}

struct Case {
  const char* name;
  testing::Faults faults;
  std::uint32_t paths = 16;
};

void PrintTo(const Case& what, std::ostream* out) { *out << what.name; }

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, int>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

class EndpointFaults : public ::testing::TestWithParam<std::tuple<Case, int>> {};

// Both directions at once, numbers next to their wrap, several tags.
TEST_P(EndpointFaults, transfer__every_message_arrives_once_and_whole) {
  const auto& [what, seed] = GetParam();
  ConnectionOptions options;
  options.wire.paths = what.paths;
  options.first_number = (1ULL << 32) - 100;
  options.seed = static_cast<std::uint64_t>(seed);
  LossyPair pair(options, static_cast<std::uint64_t>(seed));
  pair.faults = what.faults;
  constexpr std::size_t kMessages = 40;
  std::array<std::vector<std::vector<std::byte>>, 2> sent;
  std::array<std::vector<std::vector<std::byte>>, 2> got;
  Random random(static_cast<std::uint64_t>(seed));
  for (int end = 0; end < 2; ++end) {
    for (std::size_t i = 0; i < kMessages; ++i) {
      const std::size_t bytes = i % 5 == 0 ? random.below(3) : random.below(200'000);
      sent[end].push_back(pattern(bytes, random.next()));
      got[1 - end].emplace_back(bytes);
    }
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (int end = 0; end < 2; ++end) {
      pair.send(end, i % 3, sent[end][i], i);
      pair.receive(end, i % 3, got[end][i], 1000 + i);
    }
  }
  ASSERT_TRUE(pair.run_until_events(2 * kMessages, 2 * kMessages)) << pair.now();
  for (int end = 0; end < 2; ++end) {
    std::map<std::uint64_t, int> events;
    for (const Event& event : pair.events(end)) {
      EXPECT_EQ(Outcome::kOk, event.outcome);
      ++events[event.context];
    }
    EXPECT_EQ(2 * kMessages, events.size());
    for (std::size_t i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(sent[1 - end][i] == got[end][i]) << i;
    }
    const ConnectionCounters& counters = pair.counters(end);
    // A flipped bit of the version is no packet of ours, any other one does not authenticate.
    EXPECT_EQ(what.faults.corrupt > 0, counters.malformed_dropped + counters.forgeries_dropped > 0);
    EXPECT_EQ(what.faults.corrupt > 0, counters.forgeries_dropped > 0);
    EXPECT_EQ(what.faults.duplicate > 0, counters.replays_dropped > 0);
    EXPECT_EQ(what.faults.trim > 0, counters.nacks > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    endpoint, EndpointFaults,
    ::testing::Combine(
        ::testing::Values(
            Case{"loss_1", {.loss = 10}}, Case{"loss_10", {.loss = 100}},
            Case{"loss_40", {.loss = 400}}, Case{"duplicates", {.duplicate = 200}},
            Case{"delays", {.delay = 100}},
            Case{"long_delays", {.delay = 20, .delay_ns_max = 5'000'000}},
            Case{"corruption", {.corrupt = 50}}, Case{"trims", {.trim = 50}},
            Case{"marks", {.mark = 300}}, Case{"one_path", {.loss = 50}, 1},
            Case{
                "all",
                {.loss = 50, .duplicate = 50, .delay = 50, .corrupt = 20, .trim = 20, .mark = 50}}),
        ::testing::Range(1, 6)),
    name_of);

class EndpointSchemes
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::uint32_t>> {};

TEST_P(EndpointSchemes, transfer__completes_under_loss_and_marks) {
  ConnectionOptions options;
  options.wire.paths = 16;
  std::tie(options.controller, options.spray, options.window_groups) = GetParam();
  options.receives = false;
  LossyPair pair(options);
  pair.faults = {.loss = 10, .mark = 20};
  const auto sent = pattern(4'000'000, 3);
  std::vector<std::byte> got(sent.size());
  const TimeNs start = pair.now();
  pair.receive(1, 1, got);
  pair.send(0, 1, sent);
  ASSERT_TRUE(pair.run_until_events(1, 1, 10'000'000'000));
  EXPECT_TRUE(sent == got);
  EXPECT_GT(pair.counters(0).retransmissions, 0U);
  // Ideal: 80 us. No loss of 1 % may cost more than a few timeouts.
  EXPECT_LT(pair.now() - start, 20'000'000U);
}

INSTANTIATE_TEST_SUITE_P(
    endpoint, EndpointSchemes,
    ::testing::Combine(::testing::Values("nscc", "swift", "cubic", "dctcp", "timely", "fixed",
                                         "rccc", "eqds", "nscc+rccc", "swift+rccc"),
                       ::testing::Values("oblivious", "two_choices", "bitmap", "reps", "mixed"),
                       ::testing::Values(1, 4, 16)),
    [](const auto& tested) {
      std::string name = std::get<0>(tested.param) + "_" + std::get<1>(tested.param) + "_" +
                         std::to_string(std::get<2>(tested.param));
      std::replace(name.begin(), name.end(), '+', '_');
      return name;
    });

}  // namespace
}  // namespace tutti::transport
