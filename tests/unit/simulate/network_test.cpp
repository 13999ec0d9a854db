// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.hpp"
#include "unit/simulate/window_host.hpp"

namespace tutti::simulate {
namespace {

constexpr TimePs kData = 4160 * 20;
constexpr TimePs kHeader = 64 * 20;

/// All hosts in one random circle; each sends to the next.
void permutation(WindowNetwork* net, std::uint64_t seed, std::uint32_t packets,
                 std::uint32_t window) {
  const auto n = static_cast<std::uint32_t>(net->hosts.size());
  std::vector<std::uint32_t> order(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    order[i] = i;
  }
  for (std::uint32_t i = n - 1; i > 0; --i) {
    std::swap(order[i], order[below(static_cast<std::uint32_t>(draw(seed, 0, i) >> 32), i + 1)]);
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    net->hosts[order[i]].start({.dst = order[(i + 1) % n], .packets = packets, .window = window});
  }
}

void incast(WindowNetwork* net, std::uint32_t packets, std::uint32_t window) {
  for (std::uint32_t src = 1; src < net->hosts.size(); ++src) {
    net->hosts[src].start({.dst = 0, .packets = packets, .window = window});
  }
}

PortCounters sum(const SimNetwork& network) {
  PortCounters all;
  for (std::uint32_t link = 0; link < network.fabric().links(); ++link) {
    const PortCounters& one = network.counters(link);
    all.packets += one.packets;
    all.marked += one.marked;
    all.trimmed += one.trimmed;
    all.dropped += one.dropped;
    all.lost += one.lost;
    all.pauses += one.pauses;
  }
  return all;
}

TEST(options, resolved__equal_to_the_public_simulators_defaults) {
  const Fabric fabric(*fat_tree(1024));
  const SimNetworkOptions small = resolved({}, fabric);
  EXPECT_EQ(12'506'880U, small.base_rtt_ps(fabric));
  EXPECT_EQ(625'344U, small.bdp_bytes(fabric));
  EXPECT_EQ(625'344U, small.queue_bytes);
  EXPECT_EQ(125'068U, small.ecn_low_bytes);
  EXPECT_EQ(500'276U, small.ecn_high_bytes);
  const SimNetworkOptions large = resolved({.chunk_bytes = 32768, .trim = false}, fabric);
  EXPECT_EQ(15'947'520U, large.base_rtt_ps(fabric));
  EXPECT_EQ(5 * large.bdp_bytes(fabric), large.queue_bytes);
}

TEST(network, run__one_packet_takes_its_serialisations_and_latencies) {
  struct Case {
    const char* fabric;
    std::uint32_t dst;
    TimePs links;
  };
  for (const Case& c :
       {Case{"single:16", 15, 2}, Case{"leaf-spine:16:4:4", 15, 4}, Case{"fat-tree:16", 1, 2},
        Case{"fat-tree:16", 3, 4}, Case{"fat-tree:16", 15, 6}}) {
    WindowNetwork net(*parse_fabric(c.fabric), {});
    net.hosts[0].start({.dst = c.dst, .packets = 1, .window = 1});
    EXPECT_EQ(kNever, net.network->run(kNever));
    ASSERT_EQ(1U, net.hosts[c.dst].arrivals.size()) << c.fabric;
    EXPECT_EQ(c.links * (kData + kPsPerUs), net.hosts[c.dst].arrivals[0].time_ps);
    EXPECT_EQ(1U, net.hosts[0].acknowledged);
    EXPECT_EQ(c.links * (kData + kHeader + 2 * kPsPerUs), net.hosts[0].done_ps);
    EXPECT_EQ(2 * c.links, net.network->events());
    EXPECT_EQ(0, net.network->unaccounted());
  }
}

TEST(network, run__packets_follow_at_line_rate) {
  WindowNetwork net(*fat_tree(16), {});
  net.hosts[0].start({.dst = 1, .packets = 100, .window = 100});
  net.network->run(kNever);
  ASSERT_EQ(100U, net.hosts[1].arrivals.size());
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ((2 + i) * kData + 2 * kPsPerUs, net.hosts[1].arrivals[i].time_ps);
  }
}

TEST(network, run__stops_before_its_time_and_goes_on) {
  WindowNetwork net(*fat_tree(16), {});
  net.hosts[0].start({.dst = 1, .packets = 100, .window = 100});
  const TimePs next = net.network->run(4 * kPsPerUs);
  EXPECT_GE(next, 4 * kPsPerUs);
  EXPECT_LT(next, 5 * kPsPerUs);
  EXPECT_EQ(0U, net.hosts[0].acknowledged);
  EXPECT_EQ(kNever, net.network->run(kNever));
  EXPECT_EQ(100U, net.hosts[0].acknowledged);
}

TEST(network, run__a_timer_wakes_the_nic) {
  WindowNetwork net(single_switch(2), {});
  net.hosts[0].begin_ps = 77 * kPsPerUs + 5;
  net.hosts[0].start({.dst = 1, .packets = 1, .window = 1});
  net.hosts[0].timer_ps = 77 * kPsPerUs + 5;
  net.network = std::make_unique<SimNetwork>(net.fabric, SimNetworkOptions{},
                                             std::vector<Host*>{&net.hosts[0], &net.hosts[1]});
  net.network->run(kNever);
  ASSERT_EQ(1U, net.hosts[1].arrivals.size());
  EXPECT_EQ(79 * kPsPerUs + 5 + 2 * kData, net.hosts[1].arrivals[0].time_ps);
}

TEST(network, run__permutation_is_delivered_and_every_packet_accounted_for) {
  WindowNetwork net(*fat_tree(128), {});
  permutation(&net, 1, 1000, 225);
  net.network->run(kNever);
  std::uint64_t trims = 0;
  std::uint64_t sent = 0;
  for (const WindowHost& host : net.hosts) {
    EXPECT_EQ(1000U, host.acknowledged);
    EXPECT_EQ(1000U, host.arrivals.size() - host.trims);
    trims += host.trims;
    sent += host.transmissions;
  }
  const PortCounters ports = sum(*net.network);
  EXPECT_GT(trims, 0U);
  EXPECT_EQ(trims, ports.trimmed);
  EXPECT_EQ(128'000 + trims, sent);
  EXPECT_EQ(0U, ports.dropped);
  EXPECT_EQ(0, net.network->unaccounted());
}

TEST(network, run__incast_is_as_fast_as_its_last_link) {
  WindowNetwork net(single_switch(16), {.queue_bytes = 2'000'000});
  incast(&net, 500, 20);
  net.network->run(kNever);
  // 15 * 500 packets one behind the other over one link; nothing is trimmed.
  EXPECT_EQ(2 * kPsPerUs + kData * (15 * 500 + 1), net.hosts[0].last_arrival_ps);
  EXPECT_EQ(0U, sum(*net.network).trimmed);
}

TEST(network, run__pauses_lose_nothing_where_queues_would) {
  for (const bool lossless : {false, true}) {
    WindowNetwork net(*fat_tree(16), {.trim = false, .queue_bytes = 100'000, .lossless = lossless});
    incast(&net, 500, 500);
    net.network->run(kNever);
    const PortCounters ports = sum(*net.network);
    if (!lossless) {
      EXPECT_GT(ports.dropped, 1000U);
      EXPECT_EQ(0U, ports.pauses);
    } else {
      EXPECT_EQ(0U, ports.dropped);
      EXPECT_GT(ports.pauses, 10U);
      for (std::uint32_t src = 1; src < 16; ++src) {
        EXPECT_EQ(500U, net.hosts[src].acknowledged);
      }
      // The last link hardly idles, though resumed senders are up to six links away.
      const TimePs busy = 2 * kPsPerUs + kData * (15 * 500 + 1);
      EXPECT_GE(net.hosts[0].last_arrival_ps, busy);
      EXPECT_LE(net.hosts[0].last_arrival_ps, busy + busy / 100);
      // A switch holds of one link what it paused at and what came until the pause was heard.
      const SimNetworkOptions& options = net.network->options();
      const std::uint32_t headroom = 2 * 50'000 + 3 * 4160;
      for (std::uint32_t link = 0; link < net.fabric.links(); ++link) {
        EXPECT_LE(net.network->counters(link).queue_bytes_max,
                  net.fabric.ports(net.fabric.from(link)) * (options.pause_bytes + headroom));
      }
    }
    EXPECT_EQ(0, net.network->unaccounted());
  }
}

TEST(network, run__paths_spread_over_all_cores) {
  WindowNetwork net(*fat_tree(128), {});
  net.hosts[0].start({.dst = 127, .packets = 3200, .window = 3200, .paths = 3200});
  net.network->run(kNever);
  std::uint64_t used = 0;
  for (std::uint32_t link = 0; link < net.fabric.links(); ++link) {
    if (net.fabric.kind(net.fabric.from(link)) == NodeKind::kAgg &&
        net.fabric.kind(net.fabric.to(link)) == NodeKind::kCore) {
      const std::uint64_t packets = net.network->counters(link).packets;
      if (net.network->counters(link).bytes > packets * 64) {
        ++used;
        // 3200 packets over 16 cores, five standard deviations.
        EXPECT_NEAR(200, packets, 5 * std::sqrt(200 * 15.0 / 16));
      }
    }
  }
  EXPECT_EQ(16U, used);
}

TEST(network, run__one_path_stays_one_path) {
  WindowNetwork net(*fat_tree(128), {});
  net.hosts[0].start({.dst = 127, .packets = 100, .window = 100, .paths = 1});
  net.network->run(kNever);
  std::map<NodeKind, std::uint32_t> links;
  for (std::uint32_t link = 0; link < net.fabric.links(); ++link) {
    if (net.network->counters(link).bytes >= 100 * 4160) {
      ++links[net.fabric.kind(net.fabric.from(link))];
    }
  }
  EXPECT_EQ(1U, links[NodeKind::kHost]);
  EXPECT_EQ(2U, links[NodeKind::kLeaf]);
  EXPECT_EQ(2U, links[NodeKind::kAgg]);
  EXPECT_EQ(1U, links[NodeKind::kCore]);
}

TEST(network, run__a_chunk_is_cut_into_packets_that_overlap_on_their_way) {
  SimNetworkOptions options{.mtu_bytes = 4096, .chunk_bytes = 32768};
  for (const Forwarding forwarding : {Forwarding::kChunk, Forwarding::kMtu}) {
    options.forwarding = forwarding;
    WindowNetwork net(*fat_tree(16), options);
    net.hosts[0].start({.dst = 15, .packets = 1, .window = 1, .packet_bytes = 32768 + 64});
    net.network->run(kNever);
    const auto& arrivals = net.hosts[15].arrivals;
    if (forwarding == Forwarding::kChunk) {
      ASSERT_EQ(1U, arrivals.size());
      EXPECT_EQ(6 * ((32768 + 64) * 20 + kPsPerUs), arrivals[0].time_ps);
    } else {
      ASSERT_EQ(8U, arrivals.size());
      for (std::uint16_t i = 0; i < 8; ++i) {
        EXPECT_EQ(i, arrivals[i].fragment);
        EXPECT_EQ(8, arrivals[i].fragments);
        EXPECT_EQ(4160U, arrivals[i].bytes);
        EXPECT_EQ((6 + i) * kData + 6 * kPsPerUs, arrivals[i].time_ps);
      }
    }
  }
}

TEST(network, run__a_link_that_goes_down_loses_what_it_carries_and_comes_back) {
  SimNetworkOptions options;
  const Fabric fabric(single_switch(2));
  const std::uint32_t to_host1 = fabric.first_link(2) + 1;
  options.changes = {{.at_ps = 6 * kPsPerUs, .link = to_host1, .mbit_per_s = 400'000},
                     {.at_ps = 3 * kPsPerUs, .link = to_host1, .mbit_per_s = 0}};
  WindowNetwork net(single_switch(2), options);
  net.hosts[0].start({.dst = 1, .packets = 100, .window = 100});
  net.network->run(kNever);
  // Packet i leaves the switch from (1 + i) * kData + 1 us on.
  std::uint32_t expected = 0;
  for (TimePs i = 0; i < 100; ++i) {
    const TimePs leaves = (1 + i) * kData + kPsPerUs;
    expected += leaves >= 3 * kPsPerUs && leaves < 6 * kPsPerUs ? 1 : 0;
  }
  EXPECT_EQ(36U, expected);
  EXPECT_EQ(100 - expected, net.hosts[1].arrivals.size());
  EXPECT_EQ(expected, net.hosts[0].lost);
  EXPECT_EQ(0, net.network->unaccounted());
}

TEST(network, run__losses_are_end_to_end) {
  SimNetworkOptions options;
  options.loss.good_q32 = UINT32_MAX / 100;
  WindowNetwork net(*fat_tree(16), options);
  net.hosts[0].start({.dst = 15, .packets = 20'000, .window = 20'000, .paths = 4096});
  net.network->run(kNever);
  // 1 % of the packets, counted where they were sent from; five standard deviations.
  EXPECT_NEAR(200, net.hosts[0].lost, 5 * std::sqrt(198));
  EXPECT_EQ(20'000 - net.hosts[0].lost, net.hosts[15].arrivals.size());
  EXPECT_EQ(0, net.network->unaccounted());
}

std::uint64_t hash_of(std::uint64_t seed) {
  SimNetworkOptions options{.seed = seed};
  options.loss.good_q32 = UINT32_MAX / 1000;
  WindowNetwork net(*fat_tree(16), options);
  permutation(&net, 1, 500, 225);
  net.network->run(kNever);
  return net.network->trace_hash();
}

TEST(network, trace_hash__is_the_seeds_alone) {
  EXPECT_EQ(hash_of(1), hash_of(1));
  EXPECT_NE(hash_of(1), hash_of(2));
  // Written down so that another build or compiler cannot differ unseen.
  EXPECT_EQ(6794444747705688987U, hash_of(1));
}

TEST(network, step__the_order_of_nodes_changes_nothing) {
  WindowNetwork net(*fat_tree(16), {.seed = 9});
  WindowNetwork backwards(*fat_tree(16), {.seed = 9});
  permutation(&net, 1, 500, 225);
  permutation(&backwards, 1, 500, 225);
  net.network->run(kNever);
  SimNetwork& network = *backwards.network;
  const auto publish = [&] {
    TimePs next = kNever;
    for (std::uint32_t node = network.nodes(); node > 0; --node) {
      next = std::min(next, network.publish(node - 1, node));
    }
    return next;
  };
  for (TimePs next = publish(); next != kNever; next = publish()) {
    network.begin_window(next);
    for (std::uint32_t node = network.nodes(); node > 0; --node) {
      network.step(node - 1, node);
    }
    network.end_window();
  }
  EXPECT_EQ(net.network->trace_hash(), network.trace_hash());
  EXPECT_EQ(net.network->events(), network.events());
}

}  // namespace
}  // namespace tutti::simulate
