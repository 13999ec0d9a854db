// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Every generator against the validator and against its own closed formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "schedule/double_tree.hpp"
#include "schedule/formula.hpp"
#include "support/sanitized.hpp"
#include "tasks.hpp"

namespace tutti::schedule {
namespace {

using testing::equal_problem;
using testing::first_error;
using testing::generate_all;
using testing::odd_layout;
using testing::text;
using testing::uneven_problem;
using topology::Layout;

class EveryGenerator : public ::testing::TestWithParam<int> {
 protected:
  const Algorithm& algorithm() const { return algorithms()[static_cast<std::size_t>(GetParam())]; }
  bool refuses(const Layout& layout, const Problem& problem, Parameters parameters = {}) const {
    return algorithm().refusal != nullptr &&
           !algorithm().refusal({layout, problem, 0, parameters}).empty();
  }
  void expect_right(const Layout& layout, const Problem& problem, Parameters parameters = {}) {
    if (refuses(layout, problem, parameters)) {
      return;
    }
    const auto programs = generate_all(algorithm(), layout, problem, parameters);
    for (const bool in_place : {false, true}) {
      const Report report = validate(problem, programs, in_place);
      EXPECT_TRUE(report.ok()) << problem.ranks << " ranks on " << layout.nodes() << " nodes, root "
                               << problem.root << (in_place ? ", in place: " : ": ")
                               << first_error(report);
    }
    ++checked_;
  }
  int checked_ = 0;
};

constexpr int kRanksMax = kIsSanitized ? 17 : 64;
constexpr std::uint64_t kOddLayouts = kIsSanitized ? 15 : 60;

TEST_P(EveryGenerator, all_ranks_and_sizes) {
  for (int ranks = 1; ranks <= kRanksMax; ++ranks) {
    // 0, 1, fewer elements than ranks, a prime: blocks of parts that differ and are empty.
    for (const std::uint64_t count : {0, 1, 13}) {
      expect_right(topology::regular_layout(1, ranks),
                   equal_problem(algorithm().collective, ranks, count));
    }
  }
  EXPECT_GT(checked_, kIsSanitized ? 20 : 90);
}

TEST_P(EveryGenerator, odd_layouts_and_blocks) {
  for (std::uint64_t seed = 0; seed < kOddLayouts; ++seed) {
    const int ranks = static_cast<int>(1 + seed * 7 % 41);
    const int root = static_cast<int>(seed % static_cast<std::uint64_t>(ranks));
    expect_right(odd_layout(ranks, seed),
                 uneven_problem(algorithm().collective, ranks, seed, root));
    expect_right(odd_layout(ranks, seed), equal_problem(algorithm().collective, ranks, 24, root));
  }
}

TEST_P(EveryGenerator, segments_and_radix) {
  for (const Parameters parameters : {Parameters{3, 1}, Parameters{4, 3}, Parameters{7, 5}}) {
    for (const int ranks : {1, 2, 6, 17, 27}) {
      expect_right(topology::regular_layout(1, ranks),
                   equal_problem(algorithm().collective, ranks, 29), parameters);
    }
  }
}

/// What the programs of all ranks cost.
Cost counted(const Layout& layout, const Problem& problem, const std::vector<Program>& programs) {
  const Report report = validate(problem, programs);
  EXPECT_TRUE(report.ok()) << first_error(report);
  const auto out = network_out(programs, layout);
  Cost cost{.rounds = report.rounds,
            .sent_max = *std::max_element(report.sent.begin(), report.sent.end()),
            .node_out_max = *std::max_element(out.begin(), out.end())};
  for (const Program& program : programs) {
    cost.scratch_max = std::max(cost.scratch_max, program.scratch_count);
  }
  return cost;
}

TEST_P(EveryGenerator, cost_is_the_closed_formula) {
  int compared = 0;
  for (const auto& [nodes, width] :
       {std::pair(1, 1), {1, 2}, {2, 1},  {1, 3},  {3, 1},  {1, 6}, {1, 16},
        {1, 23},         {4, 1}, {4, 4},  {8, 2},  {2, 8},  {3, 5}, {5, 3},
        {7, 2},          {6, 6}, {13, 1}, {11, 4}, {16, 4}, {64, 1}}) {
    const Layout layout = topology::regular_layout(nodes, width);
    const int ranks = nodes * width;
    if (kIsSanitized && ranks > 24) {
      continue;
    }
    std::set<int> roots{0};
    if (is_rooted(algorithm().collective)) {
      roots.insert({1 % ranks, ranks / 2, ranks - 1});
    }
    for (const int root : roots) {
      // The largest are cut into segments by the algorithms that choose to.
      for (const auto& [count, radix] : {std::pair<std::uint64_t, int>(0, 0),
                                         {1, 0},
                                         {2, 0},
                                         {17, 3},
                                         {48, 0},
                                         {101, 4},
                                         {20001, 0}}) {
        const Parameters parameters{radix, 0};
        const Problem problem = equal_problem(algorithm().collective, ranks, count, root);
        if (refuses(layout, problem)) {
          continue;
        }
        const Cost cost = cost_of(algorithm(), {layout, problem, 0, parameters});
        const auto programs = generate_all(algorithm(), layout, problem, parameters);
        EXPECT_EQ(text(cost), text(counted(layout, problem, programs)))
            << nodes << " nodes of " << width << ", root " << root << ", " << count
            << " elements, radix " << radix;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, kIsSanitized ? 50 : 70);
}

TEST_P(EveryGenerator, cost_bounds_rounds_and_scratch_on_any_layout) {
  for (std::uint64_t seed = 0; seed < kOddLayouts / 2; ++seed) {
    const int ranks = static_cast<int>(1 + seed * 7 % 41);
    const int root = static_cast<int>(seed % static_cast<std::uint64_t>(ranks));
    const Layout layout = odd_layout(ranks, seed);
    for (Problem problem : {uneven_problem(algorithm().collective, ranks, seed, root),
                            equal_problem(algorithm().collective, ranks, 24, root)}) {
      if (problem.collective == Collective::kAlltoallv || refuses(layout, problem)) {
        continue;
      }
      for (const int segments : {0, 3}) {
        const Parameters parameters{0, segments};
        const Cost cost = cost_of(algorithm(), {layout, problem, 0, parameters});
        const Cost real =
            counted(layout, problem, generate_all(algorithm(), layout, problem, parameters));
        EXPECT_GE(cost.rounds, real.rounds) << "seed " << seed << ", segments " << segments;
        EXPECT_GE(cost.scratch_max, real.scratch_max) << "seed " << seed;
      }
    }
  }
}

TEST_P(EveryGenerator, thousands_of_ranks) {
  // Whole programs at 256 (alltoall has 256 times as many blocks: 96), under a sanitizer at 96; one
  // rank's own part at 1024 and 4096.
  const int nodes = kIsSanitized || algorithm().collective == Collective::kAlltoall ? 12 : 32;
  expect_right(topology::regular_layout(nodes, 8),
               equal_problem(algorithm().collective, nodes * 8, 3, 50));
  for (const int ranks : {1024, 4096}) {
    const Layout layout = topology::regular_layout(ranks / 8, 8);
    const Problem problem = equal_problem(algorithm().collective, ranks, 3, 77);
    for (const int rank : {0, 77, ranks / 2 + 1, ranks - 1}) {
      if (algorithm().collective == Collective::kAlltoall && ranks > 1024) {
        break;
      }
      const Program program = generate(algorithm(), {layout, problem, rank, {}});
      EXPECT_LE(program.steps.size(), static_cast<std::size_t>(40 * ranks));
      if (program.steps.size() < 6000) {
        const auto errors = validate_local(problem, rank, program);
        EXPECT_TRUE(errors.empty()) << errors.front();
      }
    }
  }
}

class EveryRootedGenerator : public EveryGenerator {};

TEST_P(EveryRootedGenerator, all_roots) {
  for (const int ranks : {2, 3, 5, 8, 13, 16}) {
    for (int root = 0; root < ranks; ++root) {
      const auto seed = static_cast<std::uint64_t>(root);
      expect_right(topology::regular_layout(1, ranks),
                   equal_problem(algorithm().collective, ranks, 7, root));
      expect_right(topology::regular_layout(1, ranks),
                   uneven_problem(algorithm().collective, ranks, seed, root));
    }
  }
}

std::vector<int> rooted() {
  std::vector<int> numbers;
  for (std::size_t i = 0; i < algorithms().size(); ++i) {
    if (is_rooted(algorithms()[i].collective)) {
      numbers.push_back(static_cast<int>(i));
    }
  }
  return numbers;
}

std::string name_of(const ::testing::TestParamInfo<int>& info) {
  const Algorithm& algorithm = algorithms()[static_cast<std::size_t>(info.param)];
  std::string name = std::string(select::to_string(algorithm.collective)) + "_" + algorithm.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(generators, EveryGenerator,
                         ::testing::Range(0, static_cast<int>(algorithms().size())), name_of);

INSTANTIATE_TEST_SUITE_P(generators, EveryRootedGenerator, ::testing::ValuesIn(rooted()), name_of);

TEST(generators, rings__use_every_rail_alike_and_no_more_than_needed) {
  const Layout layout = topology::regular_layout(4, 4);
  const Problem problem = equal_problem(Collective::kAllgather, 16, 100);
  const Algorithm& rings = *find_algorithm(Collective::kAllgather, "rings");
  const auto programs = generate_all(rings, layout, problem);
  for (const std::uint64_t out : network_out(programs, layout)) {
    EXPECT_EQ(12U * 100, out);  // (P - L) n: what the node has to learn, once.
  }
  for (std::size_t rank = 0; rank < 16; ++rank) {
    std::uint64_t over_network = 0;
    for (const Step& step : programs[rank].steps) {
      if (step.kind == StepKind::kSend &&
          layout.node_of[static_cast<std::size_t>(step.peer)] != layout.node_of[rank]) {
        over_network += step.count();
      }
    }
    EXPECT_EQ(3U * 100, over_network);
  }
}

TEST(generators, rings_inter_socket__crosses_once_and_never_two_to_one) {
  Layout layout = topology::regular_layout(1, 4);
  layout.socket_of = {0, 0, 1, 1};
  const Problem problem = equal_problem(Collective::kAllgather, 4, 10);
  for (const char* name : {"rings-inter-socket", "rings-inter-socket-pipelined"}) {
    const auto programs =
        generate_all(*find_algorithm(Collective::kAllgather, name), layout, problem, {0, 2});
    ASSERT_TRUE(validate(problem, programs).ok());
    // The ring 0 -> 2 -> 1 -> 3 -> 0.
    const int across[] = {2, 3, 1, 0};
    for (int rank = 0; rank < 4; ++rank) {
      std::uint64_t crossed = 0;
      for (const Step& step : programs[static_cast<std::size_t>(rank)].steps) {
        if (step.kind == StepKind::kSend && layout.socket(step.peer) != layout.socket(rank)) {
          EXPECT_EQ(across[rank], step.peer);
          crossed += step.count();
        }
      }
      EXPECT_EQ(10U, crossed);
    }
  }
}

TEST(generators, rings_inter_socket__cost_on_equal_sockets) {
  for (const auto& [nodes, per_socket, rounds] : {std::tuple(1, 2, 3), {4, 3, 6}, {3, 1, 3}}) {
    Layout layout = topology::regular_layout(nodes, 2 * per_socket);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      layout.socket_of.push_back(layout.local_of[Layout::index(rank)] / per_socket);
    }
    const Problem problem = equal_problem(Collective::kAllgather, layout.ranks(), 5);
    const Algorithm& algorithm = *find_algorithm(Collective::kAllgather, "rings-inter-socket");
    const Cost cost = cost_of(algorithm, {layout, problem, 0, {}});
    EXPECT_EQ(rounds, cost.rounds);
    EXPECT_EQ(text(cost), text(counted(layout, problem, generate_all(algorithm, layout, problem))));
  }
}

TEST(generators, double_tree__who_has_children_in_one_has_none_in_the_other) {
  for (int ranks = 1; ranks <= 70; ++ranks) {
    const DoubleTree trees(ranks);
    int in_both = 0;
    for (const int tree : {0, 1}) {
      std::vector<int> parent(static_cast<std::size_t>(ranks), -1);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_LE(trees.node(tree, rank).children.size(), 2U);
        for (const int child : trees.node(tree, rank).children) {
          EXPECT_EQ(rank, trees.node(tree, child).parent);
          parent[static_cast<std::size_t>(child)] = rank;
        }
      }
      EXPECT_EQ(ranks - 1,
                std::count_if(parent.begin(), parent.end(), [](int p) { return p >= 0; }));
    }
    for (int rank = 1; rank < ranks; ++rank) {
      in_both += !trees.node(0, rank).children.empty() && !trees.node(1, rank).children.empty();
    }
    EXPECT_EQ(0, in_both) << ranks << " ranks";
  }
}

// The square of such a radix is over an int; 65536's own is 0 there, and the digit a division by
// it.
TEST(generators, knomial__a_radix_above_the_root_of_an_int) {
  constexpr int kRanks = 100'000;
  const Layout apart = topology::regular_layout(kRanks, 1);
  const Layout together = topology::regular_layout(1, kRanks);
  const Problem bcast = equal_problem(Collective::kBcast, kRanks, 1);
  const Problem allgather = equal_problem(Collective::kAllgather, kRanks, 1);
  const auto count = [](const Program& program, StepKind kind) {
    return std::count_if(program.steps.begin(), program.steps.end(),
                         [kind](const Step& step) { return step.kind == kind; });
  };
  for (const int radix : {46'341, 50'000, 65'536}) {
    // Digits of one place below, and kRanks / radix of the next.
    const int children = radix - 1 + (kRanks - 1) / radix;
    EXPECT_EQ(2, (Knomial{kRanks, radix}.depth())) << radix;
    EXPECT_EQ(children, (Knomial{kRanks, radix}.children())) << radix;
    const Algorithm& tree = *find_algorithm(Collective::kBcast, "knomial");
    const Parameters parameters{.radix = radix};
    EXPECT_EQ(children, count(generate(tree, {apart, bcast, 0, parameters}), StepKind::kSend));
    const Program last = generate(tree, {apart, bcast, kRanks - 1, parameters});
    ASSERT_EQ(1, count(last, StepKind::kRecv)) << radix;
    EXPECT_EQ((kRanks - 1) / radix * radix, last.steps.front().peer) << radix;
    // In the node every rank is the root once: all that one sends is a message per other rank.
    const Algorithm& rings = *find_algorithm(Collective::kAllgather, "rings-knomial");
    const Program program = generate(rings, {together, allgather, 7, parameters});
    EXPECT_EQ(kRanks - 1, count(program, StepKind::kSend)) << radix;
    EXPECT_EQ(kRanks - 1, count(program, StepKind::kRecv)) << radix;
  }
}

TEST(generators, find_algorithm__v_forms_share_names) {
  EXPECT_NE(nullptr, find_algorithm(Collective::kAllgatherv, "rings"));
  EXPECT_EQ(nullptr, find_algorithm(Collective::kAllgather, "no-such"));
  EXPECT_EQ(nullptr, find_algorithm(Collective::kScan, "ring"));
}

}  // namespace
}  // namespace tutti::schedule
