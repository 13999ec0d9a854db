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

// An answer is waited for more than what tells of it.
TEST(endpoint, poll_data__passes_control_packets_by) {
  ConnectionOptions options;
  LossyPair pair(options);
  std::vector<std::byte> got(100);
  const std::vector<std::byte> sent = pattern(100, 3);
  pair.receive(1, 7, got, 1);
  pair.run(1'000'000);
  std::vector<std::byte> other(100);
  pair.receive(0, 7, other, 2);
  pair.send(0, 7, sent, 1);
  Transmission out;
  ASSERT_TRUE(pair.end(0).poll_data(pair.now(), &out));
  EXPECT_FALSE(out.is_control);
  EXPECT_FALSE(pair.end(0).poll_data(pair.now(), &out));
  ASSERT_TRUE(pair.end(0).poll_transmit(pair.now(), &out));
  EXPECT_TRUE(out.is_control);
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
  options.wire.trims = what.faults.trim > 0 && seed % 2 == 0;  // Else part of it is lost.
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

/// Polls as many packets as there are, and says whose.
std::map<std::uint64_t, Bytes> poll_all(Endpoint& end, TimeNs now, std::size_t most) {
  std::map<std::uint64_t, Bytes> bytes;
  Transmission out;
  for (std::size_t i = 0; i < most && end.poll_transmit(now, &out); ++i) {
    bytes[out.peer] += out.payload_bytes;
  }
  return bytes;
}

TEST(endpoint, poll_transmit__connections_share_equally_whatever_their_chunks) {
  Endpoint sender({4});
  Endpoint receiver({4});
  TimeNs now = 1000;
  for (std::uint32_t i = 0; i < 3; ++i) {
    ConnectionOptions options;
    options.local_id = 10 + i;
    options.remote_id = 20 + i;
    options.peer = i;
    options.wire.chunk_bytes = 4096U << (2 * i);
    options.window_bytes_max = 50'000'000;
    options.controller = "fixed";
    const auto from = sender.connect(now, options);
    const auto to = receiver.connect(now, LossyPair::mirrored(options));
    ASSERT_TRUE(from.ok() && to.ok());
    ReceiveRequest request;
    request.parts[0].capacity_bytes = 40'000'000;
    ASSERT_TRUE(receiver.post_receive(now, *to, request).ok());
    ASSERT_TRUE(sender.post_send(now, *from, {0, nullptr, 40'000'000, 0}).ok());
  }
  Transmission out;
  while (receiver.poll_transmit(now, &out)) {
    Arrival arrival;
    arrival.header = {out.header.data(), out.header_bytes};
    sender.handle_datagram(now, arrival);
  }
  auto bytes = poll_all(sender, now, 1000);
  ASSERT_EQ(3U, bytes.size());
  for (const auto& [peer, sent] : bytes) {
    EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(sent), 200'000) << peer;
  }
}

TEST(endpoint, connect__a_table_that_is_used_again_and_again) {
  LossyPair pair;
  for (std::uint32_t i = 0; i < 40; ++i) {
    std::array<ConnectionHandle, 2> handles;
    for (int end = 0; end < 2; ++end) {
      ConnectionOptions options = pair.options(end);
      options.local_id = 100 + i * 16 + static_cast<std::uint32_t>(end);
      options.remote_id = 101 + i * 16 - static_cast<std::uint32_t>(end);
      const auto made = pair.end(end).connect(pair.now(), options);
      ASSERT_TRUE(made.ok()) << made.status().message();
      handles[static_cast<std::size_t>(end)] = *made;
    }
    ASSERT_TRUE(pair.end(0).close(pair.now(), handles[0]).ok());
    ASSERT_TRUE(pair.run_until_events(i + 1, i + 1));
    EXPECT_EQ(handles[0], pair.events(0).back().connection);
  }
  const auto data = pattern(10'000, 1);
  std::vector<std::byte> into(10'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(41, 41));
  EXPECT_EQ(data, into);
}

TEST(endpoint, handle_datagram__counts_what_belongs_to_nobody) {
  LossyPair pair;
  std::array<std::byte, kHeaderBytesMax> bytes{};
  Arrival arrival;
  pair.end(0).handle_datagram(1, arrival);
  arrival.header = std::span(bytes).first(23);
  pair.end(0).handle_datagram(1, arrival);
  EXPECT_EQ(2U, pair.end(0).counters().malformed_dropped);
  arrival.header = std::span(bytes).first(24);
  pair.end(0).handle_datagram(1, arrival);
  EXPECT_EQ(1U, pair.end(0).counters().strays_dropped);
}

class Recorder final : public TraceSink {
 public:
  void record(const TraceRecord& record) override {
    ++kinds[record.kind];
    hash =
        (hash ^ record.time_ns ^ record.number ^ record.bytes ^ record.detail) * 1099511628211ULL;
    EXPECT_LE(last_ns, record.time_ns);
    last_ns = record.time_ns;
  }
  std::map<TraceKind, std::uint64_t> kinds;
  std::uint64_t hash = 1469598103934665603ULL;
  TimeNs last_ns = 0;
};

TEST(endpoint, trace__tells_what_the_counters_count_and_repeats_bit_by_bit) {
  std::array<std::uint64_t, 3> hashes{};
  for (std::size_t run = 0; run < 3; ++run) {
    Recorder recorder;
    ConnectionOptions options;
    options.wire.paths = 16;
    options.receives = false;
    options.seed = run == 2 ? 77 : 1;
    LossyPair pair(options, 9, &recorder);
    pair.faults = {.loss = 20, .mark = 20};
    const auto data = pattern(2'000'000, 1);
    std::vector<std::byte> into(2'000'000);
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    ASSERT_TRUE(pair.run_until_events(1, 1));
    const ConnectionCounters& counters = pair.counters(0);
    EXPECT_EQ(counters.chunks_sent, recorder.kinds[TraceKind::kSent]);
    EXPECT_EQ(counters.lost_rack + counters.lost_same_path + counters.lost_timeout,
              recorder.kinds[TraceKind::kLost]);
    EXPECT_EQ(2'000'000U / 4096 + 1, recorder.kinds[TraceKind::kAcknowledged]);
    hashes[run] = recorder.hash;
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], hashes[2]);
}

TEST(endpoint, window__what_is_in_the_air_stays_within_it) {
  for (const char* controller : {"nscc", "swift", "cubic", "dctcp"}) {
    ConnectionOptions options;
    options.wire.paths = 16;
    options.controller = controller;
    options.receives = false;
    LossyPair pair(options, 4);
    pair.faults = {.loss = 20, .mark = 100};
    const auto data = pattern(3'000'000, 1);
    std::vector<std::byte> into(3'000'000);
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    Bytes window_max = pair.end(0).status(pair.handle(0)).window_bytes;
    while (pair.events(0).empty()) {
      ASSERT_TRUE(pair.step(kNever - 1));
      if (!pair.events(0).empty()) {
        break;
      }
      const ConnectionStatus status = pair.end(0).status(pair.handle(0));
      window_max = std::max(window_max, status.window_bytes);
      // What left under an earlier window may still be in the air; one chunk and one probe more.
      EXPECT_LE(status.inflight_bytes, window_max + 2 * 4096);
      EXPECT_LE(status.window_bytes, 900'000U);
      window_max = std::max(status.window_bytes, std::min(window_max, status.inflight_bytes));
      EXPECT_GE(status.rto_ns, 75'000U);
    }
  }
}

TEST(endpoint, sparse_echoes__complete_as_well) {
  for (std::uint32_t loss : {0U, 20U}) {
    ConnectionOptions options;
    options.wire.paths = 16;
    options.acknowledgement.echoes = EchoMode::kSparse;
    LossyPair pair(options, 6);
    pair.faults.loss = loss;
    const auto data = pattern(4'000'000, 1);
    std::vector<std::byte> into(4'000'000);
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    ASSERT_TRUE(pair.run_until_events(1, 1));
    EXPECT_TRUE(data == into);
    EXPECT_LT(pair.counters(0).retransmissions, loss == 0 ? 1U : 60U);
    EXPECT_LT(pair.counters(1).acks_sent, 977U / 2);
  }
}

TEST(endpoint, post_send__one_tebibyte_without_content) {
  ConnectionOptions options;
  options.wire.chunk_bytes = 16 * 1024 * 1024;
  options.wire.base_rtt_ns = 700'000;  // Of such a chunk at 400 Gb/s.
  options.receives = false;
  LossyPair pair(options);
  pair.checks_invariants = false;
  ReceiveRequest request;
  request.parts[0].capacity_bytes = kMessageBytesMax;
  ASSERT_TRUE(pair.end(1).post_receive(pair.now(), pair.handle(1), request).ok());
  ASSERT_TRUE(
      pair.end(0).post_send(pair.now(), pair.handle(0), {0, nullptr, kMessageBytesMax, 0}).ok());
  ASSERT_TRUE(pair.run_until_events(1, 1, 100'000'000'000));
  EXPECT_EQ(kMessageBytesMax, pair.events(1)[0].part_bytes[0]);
  EXPECT_EQ(kMessageBytesMax, pair.counters(1).bytes_received);
  EXPECT_EQ(65'536U, pair.counters(0).chunks_sent);
}

}  // namespace
}  // namespace tutti::transport
