// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The node model against cases worked out by hand, against the closed forms of one node with two
// sockets, and on every algorithm. Rates here: a byte takes 1 ns over NVLink, 10 ns between
// sockets, 5 ns over the network.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runners/sim/nccl_rings.hpp"
#include "runners/sim/sim_runner.hpp"
#include "schedule/builder.hpp"
#include "unit/schedule/tasks.hpp"

namespace tutti::runners::sim {
namespace {

using schedule::Buffer;
using schedule::Builder;
using schedule::Program;
using schedule::Region;
using topology::Layout;

constexpr TimePs kNs = 1000;
constexpr TimePs kUs = 1000 * kNs;

Cluster small_cluster() {
  Cluster cluster;
  cluster.gpus_per_node = 4;
  cluster.nics_per_node = 4;
  cluster.socket_of_gpu = {0, 0, 1, 1};
  cluster.link(LinkClass::kNvlink) = {.mb_per_s = 1000, .shares_inbound = false};
  cluster.link(LinkClass::kInterSocket) = {.mb_per_s = 100, .incast_percent = 80};
  cluster.link(LinkClass::kNetwork) = {.mb_per_s = 200};
  return cluster;
}

/// Builders of all ranks; a message is named once.
struct Writer {
  explicit Writer(int ranks) : builders(static_cast<std::size_t>(ranks)) {}

  void message(int from, int to, const Region& source, const Region& destination) {
    builders[static_cast<std::size_t>(from)].send(to, source);
    builders[static_cast<std::size_t>(to)].recv(from, destination);
  }
  /// From the input to a place of its own in the output.
  void message(int from, int to, std::uint64_t count) {
    message(from, to, {Buffer::kInput, 0, count}, {Buffer::kOutput, next, count});
    next += count;
  }
  std::vector<Program> programs() {
    std::vector<Program> made;
    for (Builder& builder : builders) {
      made.push_back(std::move(builder).finish());
    }
    return made;
  }
  std::vector<Builder> builders;
  std::uint64_t next = 0;
};

SimOutcome run_well(const std::vector<Program>& programs, const Cluster& cluster,
                    const Layout& layout, Bytes element_bytes = 1) {
  auto outcome = run(programs, layout, cluster, element_bytes, true);
  EXPECT_TRUE(outcome.ok()) << outcome.status().message();
  return outcome.ok() ? std::move(*outcome) : SimOutcome{};
}

SimOutcome run_well(Writer& writer, const Cluster& cluster) {
  const int ranks = static_cast<int>(writer.builders.size());
  return run_well(writer.programs(), cluster, layout_of(cluster, ranks));
}

TEST(sim_runner, one_message_takes_its_bytes_over_the_rate) {
  Writer writer(2);
  writer.message(0, 1, 1000);
  const SimOutcome outcome = run_well(writer, small_cluster());
  EXPECT_EQ(outcome.end_ps, kUs);
  EXPECT_EQ(outcome.finish_ps, (std::vector<TimePs>{kUs, kUs}));
  ASSERT_EQ(outcome.transfers.size(), 1U);
  EXPECT_EQ(outcome.transfers[0].bytes, 1000U);
  EXPECT_EQ(outcome.transfers[0].kind, LinkClass::kNvlink);
  EXPECT_EQ(outcome.out[0].bytes, 1000U);
  EXPECT_EQ(outcome.out[0].busy_ps, kUs);
  EXPECT_EQ(outcome.in[1].bytes, 1000U);
}

TEST(sim_runner, elements_have_a_size) {
  Writer writer(2);
  writer.message(0, 1, 1000);
  const Cluster cluster = small_cluster();
  EXPECT_EQ(run_well(writer.programs(), cluster, layout_of(cluster, 2), 4).end_ps, 4 * kUs);
}

TEST(sim_runner, a_message_holds_its_engine_before_the_first_byte) {
  Cluster cluster = small_cluster();
  cluster.link(LinkClass::kNvlink).message_ns = 70;
  Writer writer(2);
  writer.message(0, 1, 1000);
  writer.message(0, 1, 500);
  EXPECT_EQ(run_well(writer, cluster).end_ps, 1500 * kNs + 2 * 70 * kNs);
}

TEST(sim_runner, an_engine_sends_one_after_another_in_posting_order) {
  Cluster cluster = small_cluster();
  cluster.socket_of_gpu = {0, 0, 0, 0};
  Writer writer(3);
  writer.message(0, 2, 1000);
  writer.message(0, 1, 500);
  const SimOutcome outcome = run_well(writer, cluster);
  EXPECT_EQ(outcome.finish_ps, (std::vector<TimePs>{1500 * kNs, 1500 * kNs, 1000 * kNs}));
}

TEST(sim_runner, kinds_of_link_work_side_by_side) {
  Writer writer(5);
  writer.message(0, 1, 1000);  // NVLink: 1 us
  writer.message(0, 2, 1000);  // Between sockets: 10 us
  writer.message(0, 4, 1000);  // Network: 5 us
  const SimOutcome outcome = run_well(writer, small_cluster());
  EXPECT_EQ(outcome.finish_ps[1], kUs);
  EXPECT_EQ(outcome.finish_ps[2], 10 * kUs);
  EXPECT_EQ(outcome.finish_ps[4], 5 * kUs);
  EXPECT_EQ(outcome.end_ps, 10 * kUs);
}

TEST(sim_runner, two_into_one_share_less_than_the_rate) {
  Writer writer(3);
  writer.message(0, 2, 1000);
  writer.message(1, 2, 1000);
  const SimOutcome outcome = run_well(writer, small_cluster());
  EXPECT_EQ(outcome.end_ps, 25 * kUs);  // 80 % of 100 MB/s for 2000 bytes.
  const auto end = static_cast<std::size_t>(3 + 2);
  EXPECT_EQ(outcome.in[end].bytes, 2000U);
  EXPECT_EQ(outcome.in[end].busy_ps, 25 * kUs);
  EXPECT_EQ(outcome.in[end].incast_ps, 25 * kUs);
}

TEST(sim_runner, rates_change_when_another_comes_and_goes) {
  // 1 -> 2 begins when 1 has its 4000 bytes from 0, at 4 us; by then 0 -> 2 has moved 400 of
  // its 1000. Both at 40 MB/s: 0 -> 2 is through 15 us later, 1 -> 2 has 400 left, 4 us alone.
  Writer writer(3);
  writer.message(0, 2, 1000);
  writer.message(0, 1, {Buffer::kInput, 0, 4000}, {Buffer::kOutput, 5000, 4000});
  writer.message(1, 2, {Buffer::kOutput, 5000, 1000}, {Buffer::kOutput, 2000, 1000});
  const SimOutcome outcome = run_well(writer, small_cluster());
  EXPECT_EQ(outcome.finish_ps[0], 19 * kUs);
  EXPECT_EQ(outcome.finish_ps[2], 23 * kUs);
  EXPECT_EQ(outcome.in[3 + 2].busy_ps, 23 * kUs);
  EXPECT_EQ(outcome.in[3 + 2].incast_ps, 15 * kUs);
}

TEST(sim_runner, a_shorter_message_that_comes_later_overtakes) {
  // 0 -> 2 has 900 of its 1000 bytes left at 1 us; both at 40 MB/s; 100 bytes take 2.5 us. Then
  // 800 are left.
  Writer writer(3);
  writer.message(0, 2, 1000);
  writer.message(0, 1, {Buffer::kInput, 0, 1000}, {Buffer::kOutput, 5000, 1000});
  writer.message(1, 2, {Buffer::kOutput, 5000, 100}, {Buffer::kOutput, 2000, 100});
  const SimOutcome outcome = run_well(writer, small_cluster());
  EXPECT_EQ(outcome.finish_ps[1], 3500 * kNs);
  EXPECT_EQ(outcome.finish_ps[2], 11500 * kNs);
}

TEST(sim_runner, a_mesh_has_no_incast_and_a_switch_shares) {
  Cluster cluster = small_cluster();
  cluster.socket_of_gpu = {0, 0, 0, 0};
  Writer mesh(3);
  mesh.message(0, 2, 1000);
  mesh.message(1, 2, 1000);
  EXPECT_EQ(run_well(mesh, cluster).end_ps, kUs);
  cluster.link(LinkClass::kNvlink).shares_inbound = true;
  Writer through_switch(3);
  through_switch.message(0, 2, 1000);
  through_switch.message(1, 2, 1000);
  EXPECT_EQ(run_well(through_switch, cluster).end_ps, 2 * kUs);
}

TEST(sim_runner, a_forward_waits_for_its_data) {
  Writer writer(3);
  writer.message(0, 1, {Buffer::kInput, 0, 1000}, {Buffer::kOutput, 0, 1000});
  writer.builders[1].copy({Buffer::kOutput, 0, 1000}, {Buffer::kOutput, 1000, 1000});
  writer.message(1, 2, {Buffer::kOutput, 1000, 1000}, {Buffer::kOutput, 0, 1000});
  EXPECT_EQ(run_well(writer, small_cluster()).end_ps, 11 * kUs);
}

TEST(sim_runner, a_message_waits_for_its_receive_and_lets_others_pass) {
  // 2 takes the second message from 0 into a place that it must first have sent from, which takes
  // until 5 us; the third is received at once and does not wait behind the second.
  Writer writer(5);
  writer.message(2, 4, {Buffer::kOutput, 0, 1000}, {Buffer::kOutput, 0, 1000});
  writer.message(0, 2, {Buffer::kInput, 0, 200}, {Buffer::kOutput, 0, 200});
  writer.message(0, 2, {Buffer::kInput, 0, 200}, {Buffer::kOutput, 5000, 200});
  const SimOutcome outcome = run_well(writer, small_cluster());
  ASSERT_EQ(outcome.transfers.size(), 3U);
  EXPECT_EQ(outcome.transfers[0].ready_ps, 5 * kUs);
  EXPECT_EQ(outcome.transfers[0].end_ps, 7 * kUs);
  EXPECT_EQ(outcome.transfers[1].end_ps, 2 * kUs);
}

TEST(sim_runner, ranks_share_nics_and_stripe_over_them) {
  Cluster cluster = small_cluster();
  cluster.nics_per_node = 1;
  Writer shared(8);
  shared.message(0, 4, 1000);
  shared.message(1, 5, 1000);
  EXPECT_EQ(run_well(shared, cluster).end_ps, 10 * kUs);
  cluster.gpus_per_node = 1;
  cluster.nics_per_node = 2;
  cluster.socket_of_gpu = {0};
  Writer striped(2);
  striped.message(0, 1, 1000);
  striped.message(0, 1, 1000);
  EXPECT_EQ(run_well(striped, cluster).end_ps, 5 * kUs);
}

TEST(sim_runner, wrong_programs_are_errors) {
  const Cluster cluster = small_cluster();
  auto error_of = [&](Writer& writer, const Cluster& on) {
    const auto programs = writer.programs();
    const auto outcome = run(programs, layout_of(on, static_cast<int>(programs.size())), on, 1);
    return outcome.ok() ? "" : outcome.status().message();
  };
  Writer lonely(2);
  lonely.builders[0].send(1, {Buffer::kInput, 0, 1});
  EXPECT_EQ(error_of(lonely, cluster),
            "simulation: a send without its other end: from rank 0 to rank 1, tag 0");
  Writer waiting(2);
  waiting.builders[1].recv(0, {Buffer::kOutput, 0, 1});
  EXPECT_EQ(error_of(waiting, cluster),
            "simulation: a receive without its other end: from rank 0 to rank 1, tag 0");
  Writer circle(2);
  for (const int rank : {0, 1}) {
    Builder& builder = circle.builders[static_cast<std::size_t>(rank)];
    builder.send(1 - rank, {Buffer::kOutput, 0, 1});
    builder.recv(1 - rank, {Buffer::kOutput, 0, 1});
  }
  EXPECT_EQ(error_of(circle, cluster), "simulation: 4 steps wait for each other for ever");
  Cluster split = cluster;
  split.link(LinkClass::kInterSocket).mb_per_s = 0;
  Writer across(3);
  across.message(0, 2, 1);
  EXPECT_EQ(error_of(across, split),
            "simulation: the cluster has no inter_socket link, which rank 0 needs to reach rank 2");
}

/// Cluster A's proportions: N / u = 7.5, e = 0.8. Times in units of a block over NVLink.
double units(const char* algorithm, schedule::Parameters parameters = {}) {
  Cluster cluster = small_cluster();
  cluster.link(LinkClass::kNvlink).mb_per_s = 90000;
  cluster.link(LinkClass::kInterSocket).mb_per_s = 12000;
  constexpr std::uint64_t kBlock = 90'000'000;
  const Layout layout = layout_of(cluster, 4);
  const auto problem =
      schedule::testing::equal_problem(schedule::Collective::kAllgather, 4, kBlock);
  const auto* found = schedule::find_algorithm(schedule::Collective::kAllgather, algorithm);
  EXPECT_NE(found, nullptr) << algorithm;
  const auto programs = schedule::testing::generate_all(*found, layout, problem, parameters);
  return static_cast<double>(run_well(programs, cluster, layout).end_ps) / (1000.0 * kUs);
}

TEST(sim_runner, closed_forms_of_two_sockets) {
  constexpr double kRatio = 7.5;
  constexpr double kIncast = 0.8;
  constexpr double kClose = 1e-6;
  EXPECT_NEAR(units("rings"), 4 * kRatio / kIncast, kClose);
  EXPECT_NEAR(units("rings-knomial"), 4 * kRatio / kIncast, kClose);
  EXPECT_NEAR(units("rings-binomial-doubling"), (2 / kIncast + 2) * kRatio, kClose);
  EXPECT_NEAR(units("rings-binomial-halving"), 3 * kRatio, kClose);
  EXPECT_NEAR(units("recursive-doubling"), 2 * kRatio + 1, kClose);
  EXPECT_NEAR(units("rings-inter-socket"), kRatio + 2, kClose);
  // Ours: no incast; and all but one segment's last swap hidden.
  EXPECT_NEAR(units("rings-xor"), 2 * kRatio, kClose);
  EXPECT_NEAR(units("rings-inter-socket-pipelined", {.radix = 0, .segments = 8}), kRatio + 1.0 / 8,
              kClose);
}

/// Two sockets on each node, and links that all share and cost something per message.
struct Case {
  Layout layout;
  Cluster cluster;
};

Case odd_case(int ranks, std::uint64_t seed) {
  Case made{seed % 3 == 0 ? topology::regular_layout(1, ranks)
                          : schedule::testing::odd_layout(ranks, seed),
            small_cluster()};
  std::mt19937_64 random(seed);
  made.layout.socket_of.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    made.layout.socket_of.push_back(static_cast<int>(random() % 2));
  }
  for (LinkModel& link : made.cluster.links) {
    link.message_ns = random() % 20;
    link.shares_inbound = random() % 2 == 0;
  }
  return made;
}

void expect_sound(const std::vector<Program>& programs, const Case& one, const char* name) {
  const SimOutcome outcome = run_well(programs, one.cluster, one.layout, 8);
  Bytes sent = 0;
  std::size_t messages = 0;
  for (const Program& program : programs) {
    for (const schedule::Step& step : program.steps) {
      sent += step.kind == schedule::StepKind::kSend ? step.count() * 8 : 0;
      messages += step.kind == schedule::StepKind::kSend ? 1 : 0;
    }
  }
  Bytes out = 0;
  Bytes in = 0;
  for (std::size_t end = 0; end < outcome.ends.size(); ++end) {
    out += outcome.out[end].bytes;
    in += outcome.in[end].bytes;
    EXPECT_LE(outcome.out[end].busy_ps, outcome.end_ps);
    EXPECT_LE(outcome.in[end].busy_ps, outcome.end_ps);
  }
  EXPECT_EQ(out, sent) << name;
  EXPECT_EQ(in, sent) << name;
  ASSERT_EQ(outcome.transfers.size(), messages) << name;
  EXPECT_EQ(outcome.end_ps > 0, sent > 0) << name;
  for (const Transfer& transfer : outcome.transfers) {
    const LinkModel& link = one.cluster.link(transfer.kind);
    EXPECT_LE(transfer.ready_ps, transfer.start_ps);
    EXPECT_GE(transfer.end_ps, transfer.start_ps + link.message_ns * kNs +
                                   transfer.bytes * 1'000'000 / link.mb_per_s);
    EXPECT_LE(transfer.end_ps, outcome.end_ps);
  }
}

TEST(sim_runner, every_algorithm_runs_to_its_end) {
  int runs = 0;
  for (const schedule::Algorithm& algorithm : schedule::algorithms()) {
    for (int ranks = 1; ranks <= 16; ++ranks) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const Case one = odd_case(ranks, seed);
        const auto problem = schedule::testing::equal_problem(algorithm.collective, ranks, 24);
        if (algorithm.refusal != nullptr &&
            !algorithm.refusal({one.layout, problem, 0, {}}).empty()) {
          continue;
        }
        const auto programs = schedule::testing::generate_all(algorithm, one.layout, problem);
        const bool has_bytes = problem.collective != schedule::Collective::kBarrier;
        if (has_bytes) {
          expect_sound(programs, one, algorithm.name);
        } else {
          run_well(programs, one.cluster, one.layout);
        }
        ++runs;
      }
    }
  }
  EXPECT_GT(runs, 1500);
}

TEST(sim_runner, equal_input_gives_equal_output) {
  for (const char* name : {"linear", "rings", "rings-inter-socket-pipelined", "bruck"}) {
    const Case one = odd_case(13, 7);
    const auto problem =
        schedule::testing::equal_problem(schedule::Collective::kAllgather, 13, 1000);
    const auto* algorithm = schedule::find_algorithm(schedule::Collective::kAllgather, name);
    ASSERT_NE(algorithm, nullptr);
    const auto programs = schedule::testing::generate_all(*algorithm, one.layout, problem);
    const SimOutcome first = run_well(programs, one.cluster, one.layout);
    const SimOutcome second = run_well(programs, one.cluster, one.layout);
    EXPECT_EQ(first.finish_ps, second.finish_ps);
    ASSERT_EQ(first.transfers.size(), second.transfers.size());
    for (std::size_t i = 0; i < first.transfers.size(); ++i) {
      EXPECT_EQ(first.transfers[i].start_ps, second.transfers[i].start_ps);
      EXPECT_EQ(first.transfers[i].end_ps, second.transfers[i].end_ps);
    }
  }
}

TEST(nccl_rings, is_an_allgather_on_any_layout) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Layout layout = odd_case(ranks, seed).layout;
      const auto problem =
          schedule::testing::uneven_problem(schedule::Collective::kAllgather, ranks, seed);
      std::vector<Program> programs;
      for (int rank = 0; rank < ranks; ++rank) {
        programs.push_back(nccl_rings({layout, problem, rank, {}}));
      }
      const auto report = schedule::validate(problem, programs);
      EXPECT_TRUE(report.ok()) << ranks << " ranks: " << schedule::testing::first_error(report);
    }
  }
}

}  // namespace
}  // namespace tutti::runners::sim
