// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/peer_probes.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

namespace tutti::wire::udp {
namespace {

constexpr std::size_t kFull = 1472;

WireAddress address_of(int host) {
  WireAddress it;
  it.bytes[0] = std::byte{4};
  it.bytes[1] = static_cast<std::byte>(host);
  it.length = 9;
  return it;
}

/// Two hosts whose datagrams arrive, but for those that are too long for the way or whose path is
/// dead.
struct TwoHosts {
  struct Host {
    PeerProbes probes{{}};
    std::vector<Prober::Finding> findings;
    std::vector<std::size_t> paths;  ///< Of all that it sent.
  };
  struct Datagram {
    std::size_t to;
    std::vector<std::byte> content;
  };

  explicit TwoHosts(std::uint32_t paths) {
    for (std::size_t self = 0; self < 2; ++self) {
      PeerProbes::Options options;
      options.own = address_of(static_cast<int>(self));
      options.paths = paths;
      options.token = 7 + self;
      options.send = [this, self](std::size_t, std::size_t path,
                                  std::span<const std::byte> content) {
        hosts[self].paths.push_back(path);
        if (content.size() <= way_bytes && path != dead_path) {
          under_way.push_back({1 - self, {content.begin(), content.end()}});
        }
      };
      options.on_finding = [this, self](std::size_t, const Prober::Finding& finding) {
        hosts[self].findings.push_back(finding);
      };
      hosts[self].probes = PeerProbes(std::move(options));
      hosts[self].probes.begin(0, address_of(static_cast<int>(1 - self)), kFull, false);
    }
  }

  void run(PeerProbes::TimeNs time_ns) {
    for (const PeerProbes::TimeNs end = now + time_ns; now < end; now += 1'000'000) {
      for (Host& host : hosts) {
        host.probes.handle_timeout(now);
      }
      for (; !under_way.empty(); under_way.pop_front()) {
        const Datagram datagram = under_way.front();
        ProbeHead head;
        ASSERT_TRUE(decode_probe(datagram.content, head));
        hosts[datagram.to].probes.take(head, now);
      }
    }
  }

  PeerProbes::TimeNs now = 1;
  std::size_t way_bytes = kFull;
  std::size_t dead_path = SIZE_MAX;
  Host hosts[2];
  std::deque<Datagram> under_way;
};

TEST(PeerProbes, both_ends_are_known_once_probes_are_answered) {
  TwoHosts two(4);
  EXPECT_FALSE(two.hosts[0].probes.reach(0).is_known);
  two.run(2'000'000'000);
  for (const auto& host : two.hosts) {
    EXPECT_TRUE(host.probes.reach(0).is_known);
    EXPECT_TRUE(host.probes.reach(0).is_heard);
    EXPECT_TRUE(host.findings.empty());
    EXPECT_EQ(host.probes.silent_paths(), 0U);
  }
}

TEST(PeerProbes, a_way_that_drops_long_datagrams_is_told) {
  TwoHosts two(2);
  two.way_bytes = 1400;
  two.run(4'000'000'000);
  for (const auto& host : two.hosts) {
    ASSERT_FALSE(host.findings.empty());
    EXPECT_EQ(host.findings[0].kind, Prober::FindingKind::kSmaller);
    EXPECT_LE(host.findings[0].bytes, 1400);
  }
}

TEST(PeerProbes, a_dead_path_is_counted) {
  TwoHosts two(4);
  two.dead_path = 2;
  two.run(4'000'000'000);
  for (const auto& host : two.hosts) {
    EXPECT_EQ(host.probes.silent_paths(), 1U);
  }
}

TEST(PeerProbes, an_answer_to_another_token_or_peer_is_nobodys) {
  TwoHosts two(1);
  PeerProbes& probes = two.hosts[0].probes;
  for (const std::uint64_t token : {0ULL, 1ULL << 16, ~0ULL}) {
    probes.take({.is_answer = true, .bytes = kFull, .token = token}, two.now);
  }
  EXPECT_FALSE(probes.reach(0).is_known);
  const WireAddress stranger = address_of(9);
  probes.take({.token = 1, .address = std::span(stranger.bytes).first(stranger.length)}, two.now);
  EXPECT_FALSE(probes.reach(0).is_heard);
  EXPECT_TRUE(two.under_way.empty()) << "a stranger was answered";
}

TEST(PeerProbes, a_peer_that_has_gone_is_not_asked) {
  TwoHosts two(1);
  two.hosts[0].probes.end(0);
  two.hosts[0].probes.end(5);  // There is none.
  two.run(1'000'000'000);
  EXPECT_TRUE(two.hosts[0].paths.empty());
  EXPECT_EQ(two.hosts[0].probes.due_ns(), transport::kNever);
  EXPECT_FALSE(two.hosts[1].probes.reach(0).is_known);
  two.hosts[0].probes.begin(0, address_of(1), kFull, false);
  two.run(2'000'000'000);
  EXPECT_TRUE(two.hosts[0].probes.reach(0).is_known);
}

TEST(PeerProbes, least_fragment_bytes__takes_the_longest_packet_in_64_datagrams) {
  for (const std::size_t full : {std::size_t{536}, kFull, std::size_t{8972}}) {
    const std::size_t content = std::min<std::size_t>(64 * (full - kPrefixBytes), 65535);
    const std::size_t least = least_fragment_bytes(full);
    EXPECT_LE(least, full);
    EXPECT_GE(64 * (least - kPrefixBytes), content);
    EXPECT_LT(64 * (least - 1 - kPrefixBytes), content);
  }
}

}  // namespace
}  // namespace tutti::wire::udp
