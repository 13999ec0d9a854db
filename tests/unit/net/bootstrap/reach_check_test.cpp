// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Two ends that find out which way datagrams pass, on a clock of its own.
#include "net/bootstrap/reach_check.hpp"

#include <gtest/gtest.h>

namespace tutti::net {
namespace {

using transport::TimeNs;
using Blocked = ReachCheck::Blocked;

constexpr TimeNs kMillisecondNs = 1'000'000;
constexpr TimeNs kTriedNs = 800 * kMillisecondNs;  ///< From the first probe to "tried".

/// What the wire of an end says, sub-connection by sub-connection, at that age.
std::vector<wire::Reach> reach(TimeNs age_ns, std::span<const bool> to,
                               std::span<const bool> from) {
  std::vector<wire::Reach> sub_connections;
  for (std::size_t i = 0; i < to.size(); ++i) {
    sub_connections.push_back({.is_known = to[i] && from[i],
                               .is_tried = !(to[i] && from[i]) && age_ns >= kTriedNs,
                               .is_heard = from[i],
                               .is_too_small = false,
                               .silent = {}});
  }
  return sub_connections;
}

struct CheckedEnds {
  std::vector<Blocked> blocked[2];
  TimeNs at_ns[2] = {};
  bool is_done[2] = {};
};

/// `passes[e]`: of the datagrams that end e sends, by sub-connection. Until both know, or for 10 s.
/// `stopped`: an end that does nothing.
CheckedEnds run(std::vector<char> from_first, std::vector<char> from_second, int stopped = -1) {
  const std::size_t sub_connections = from_first.size();
  std::unique_ptr<bool[]> passes[2] = {std::make_unique<bool[]>(sub_connections),
                                       std::make_unique<bool[]>(sub_connections)};
  std::copy(from_first.begin(), from_first.end(), passes[0].get());
  std::copy(from_second.begin(), from_second.end(), passes[1].get());
  ReachCheck ends[2] = {ReachCheck(static_cast<std::uint32_t>(sub_connections)),
                        ReachCheck(static_cast<std::uint32_t>(sub_connections))};
  CheckedEnds out;
  for (TimeNs now = 0; now < 10'000 * kMillisecondNs; now += 10 * kMillisecondNs) {
    for (int e = 0; e < 2; ++e) {
      if (e == stopped || out.is_done[e] || !out.blocked[e].empty()) {
        continue;
      }
      ends[e].look(now, reach(now, {passes[e].get(), sub_connections},
                              {passes[1 - e].get(), sub_connections}));
      if (const auto report = ends[e].report(now)) {
        ends[1 - e].hear(now, *report);
      }
      out.blocked[e] = ends[e].blocked(now);
      out.is_done[e] = ends[e].is_done();
      out.at_ns[e] = now;
    }
  }
  return out;
}

TEST(ReachCheck, WhatPassesIsDoneAtOnce) {
  const CheckedEnds out = run({1, 1}, {1, 1});
  for (int e = 0; e < 2; ++e) {
    EXPECT_TRUE(out.is_done[e]);
    EXPECT_LE(out.at_ns[e], 10 * kMillisecondNs);
    EXPECT_TRUE(out.blocked[e].empty());
  }
}

TEST(ReachCheck, TheDirectionThatIsBlockedIsNamedByBoth) {
  const CheckedEnds out = run({1, 0}, {1, 1});
  EXPECT_EQ(out.blocked[0], (std::vector<Blocked>{{1, ReachCheck::Direction::kTo}}));
  EXPECT_EQ(out.blocked[1], (std::vector<Blocked>{{1, ReachCheck::Direction::kFrom}}));
  EXPECT_LE(out.at_ns[0], 3000 * kMillisecondNs);
  EXPECT_LE(out.at_ns[1], 3000 * kMillisecondNs);
}

TEST(ReachCheck, BothDirectionsAreNamed) {
  const CheckedEnds out = run({0}, {0});
  for (int e = 0; e < 2; ++e) {
    EXPECT_EQ(out.blocked[e], (std::vector<Blocked>{{0, ReachCheck::Direction::kTo},
                                                    {0, ReachCheck::Direction::kFrom}}));
  }
}

TEST(ReachCheck, APeerThatIsStoppedIsNotBlamedOnTheNetwork) {
  const CheckedEnds out = run({1}, {0}, /*stopped=*/1);
  EXPECT_TRUE(out.blocked[0].empty());
  EXPECT_FALSE(out.is_done[0]);
}

TEST(ReachCheck, APeerThatIsStoppedAfterItsReportIsNotBlamedOnTheNetwork) {
  ReachCheck check(1);
  const wire::Reach sub{
      .is_known = false, .is_tried = true, .is_heard = false, .is_too_small = false, .silent = {}};
  check.look(0, {&sub, 1});
  check.hear(0, {.is_done = false, .heard = 0, .tried = 1, .failure = {}});
  for (TimeNs now = 0; now < 20'000 * kMillisecondNs; now += 100 * kMillisecondNs) {
    check.look(now, {&sub, 1});
    EXPECT_TRUE(check.blocked(now).empty()) << now;
  }
}

TEST(ReachCheck, APeerThatComesLateIsFound) {
  ReachCheck check(1);
  // It has asked for long, and nobody was there.
  wire::Reach sub{
      .is_known = false, .is_tried = true, .is_heard = false, .is_too_small = false, .silent = {}};
  TimeNs now = 0;
  for (; now < 20'000 * kMillisecondNs; now += 100 * kMillisecondNs) {
    check.look(now, {&sub, 1});
    EXPECT_TRUE(check.blocked(now).empty());
  }
  // Now somebody is, and has not been asked yet when it reports.
  check.hear(now, {.is_done = false, .heard = 0, .tried = 0, .failure = {}});
  EXPECT_TRUE(check.blocked(now).empty());
  sub = {};
  now += 100 * kMillisecondNs;
  check.look(now, {&sub, 1});
  check.hear(now, {.is_done = true, .heard = 1, .tried = 0, .failure = {}});
  EXPECT_TRUE(check.blocked(now).empty());
  EXPECT_TRUE(check.report(now)->is_done);
  EXPECT_FALSE(check.report(now).has_value());
  EXPECT_TRUE(check.is_done());
}

TEST(ReachCheck, DatagramsThatMustBeTooShortAreSaid) {
  ReachCheck check(1);
  const wire::Reach sub{
      .is_known = false, .is_tried = false, .is_heard = true, .is_too_small = true, .silent = {}};
  check.look(0, {&sub, 1});
  EXPECT_EQ(check.blocked(0), (std::vector<Blocked>{{0, ReachCheck::Direction::kTooSmall}}));
}

TEST(ReachCheck, TheTextHasAddressesPortsDirectionAndRemedy) {
  const wire::Ends ends{.senders = "10.0.0.1 (UDP ports 40001 to 40064)",
                        .receiver = "10.0.0.1:40000",
                        .peer = "10.0.0.2:41000",
                        .peer_host = "10.0.0.2"};
  const std::vector<Blocked> both = {{0, ReachCheck::Direction::kTo},
                                     {0, ReachCheck::Direction::kFrom}};
  EXPECT_EQ(
      text_of(both, {&ends, 1}, "host2, process 5", "host1, process 4"),
      "net: no UDP datagram of 10.0.0.1 (UDP ports 40001 to 40064) (host1, process 4) arrives "
      "at 10.0.0.2:41000 (host2, process 5); no UDP datagram of 10.0.0.2 (host2, process 5) "
      "arrives at 10.0.0.1:40000 (host1, process 4), though TCP passes; remedy: let UDP pass "
      "(firewall, security group) between both hosts, in both directions, from and to all "
      "ports of net.ipv4.ip_local_port_range");
}

TEST(ReachReport, ComesAsItWasSent) {
  const ReachReport report{
      .is_done = true, .heard = 5, .tried = 0x80000000, .failure = "net: no UDP"};
  const auto read = decode_report(encode(report));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, report);
  ReportBytes odd = encode(report);
  odd[0] ^= std::byte{1};
  EXPECT_EQ(decode_report(odd).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode_report({odd.data(), 100}).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti::net
