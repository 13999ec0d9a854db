// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The table of docs/algorithms.md: what every algorithm costs where P, N and L are powers of two,
// the root is rank 0 and the vector divides evenly. generators_test.cpp holds the cost functions
// against the programs, on any number of ranks; this holds them against the table.
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "tasks.hpp"

namespace tutti::schedule {
namespace {

using Number = std::uint64_t;

Number log2_of(Number power) { return static_cast<Number>(std::bit_width(power)) - 1; }

/// By "collective name". P ranks on N nodes of L; n elements, of each block or of the vector.
std::map<std::string, Cost> table(Number nodes, Number width, Number n) {
  const Number ranks = nodes * width;
  const Number others = ranks - 1;
  const Number log_p = log2_of(ranks);
  const Number log_n = log2_of(nodes);
  const Number log_l = log2_of(width);
  const Number is_many = ranks > 1 ? 1 : 0;
  const Number is_wide = width > 1 ? 1 : 0;
  const Number crosses = nodes > 1 ? 1 : 0;
  const auto row = [](Number rounds, Number sent, Number scratch, Number out) {
    return Cost{static_cast<int>(rounds), sent, scratch, out};
  };
  const Number to_others = width * (ranks - width) * n;  // Of a node: from each to each elsewhere.
  const Number of_others = (ranks - width) * n;          // What a node has to learn.
  // A node's edges in two trees to other nodes are few however large they are.
  const Number down = crosses * (width == 1   ? 2
                                 : nodes == 2 ? std::min<Number>(width, 3)
                                              : std::min<Number>(2 * width, 5));
  const Number up_and_down =
      crosses * (nodes == 2 ? std::min<Number>(2 * width, 6) : std::min<Number>(4 * width, 10));
  const auto rings = [&](Number rounds) {
    return row(nodes - 1 + rounds, others * n, 0, of_others);
  };
  const Number half = ranks > 1 ? ranks / 2 * n : 0;
  const Number half_kept = ranks > 2 ? half : 0;
  return {
      {"allgather linear", row(is_many, others * n, 0, to_others)},
      {"allgather ring", row(others, others * n, 0, crosses * others * n)},
      {"allgather recursive-doubling", row(log_p, others * n, 0, to_others)},
      {"allgather bruck",
       row(log_p, others * n, 0, crosses * (to_others + (width * width - 1) / 3 * n))},
      {"allgather neighbor-exchange",
       row(ranks / 2, others * n, 0, crosses * (width == 1 ? others : ranks) * n)},
      {"allgather rings", rings(is_wide)},
      {"allgather rings-xor", rings(is_wide)},
      {"allgather rings-knomial", rings((log_l + 1) / 2)},
      {"allgather rings-binomial-doubling", rings(log_l)},
      {"allgather rings-binomial-halving", rings(log_l)},
      {"allgather rings-recursive-doubling", rings(log_l)},
      {"allgather rings-inter-socket", rings(is_wide)},
      {"allgather rings-inter-socket-pipelined", rings(is_wide)},
      {"allgather alpha", row(nodes - 1 + 2 * log_l, ((nodes - 1) * width + log_l * ranks) * n,
                              width > 2 ? width / 2 * n : 0, of_others)},
      {"reduce_scatter_block ring",
       row(others, others * n, ranks > 2 ? (ranks - 2) * n : 0, crosses * others * n)},
      {"reduce_scatter_block pairwise", row(is_many, others * n, others * n, to_others)},
      {"reduce_scatter_block recursive-halving", row(log_p, others * n, 2 * ranks * n, to_others)},
      {"reduce_scatter_block rings",
       row(nodes - 1 + is_wide, others * n, (ranks + nodes - 1) * n, of_others)},
      {"allreduce ring", row(2 * others, 2 * others * n / ranks, others * n / ranks,
                             crosses * 2 * others * n / ranks)},
      {"allreduce recursive-doubling", row(log_p, log_p * n, n, width * log_n * n)},
      {"allreduce rabenseifner",
       row(2 * log_p, 2 * others * n / ranks, n, 2 * width * (nodes - 1) * n / nodes)},
      {"allreduce rings", row(2 * (nodes - 1 + is_wide), 2 * others * n / ranks,
                              (ranks + nodes - 1) * n / ranks, 2 * (nodes - 1) * n / nodes)},
      {"allreduce double-tree",
       row(2 * log_p, is_many * (ranks > 2 ? 2 : 1) * n, is_many * n, up_and_down * n / 2)},
      {"allreduce alpha", row(2 * log_l + log_n, (log_l + log_n) * n, (log_l + 1) * n, log_n * n)},
      {"allreduce delta",
       row(2 * is_wide + log_n, (2 * (width - 1) + log_n) * n / width, n, log_n * n)},
      {"bcast knomial", row(log_p, log_p * n, 0, log_n * n)},
      {"bcast chain", row(others, is_many * n, 0, crosses * n)},
      {"bcast scatter-allgather",
       row(others, is_many * (2 * n - 2 * n / ranks), 0, 2 * (nodes - 1) * n / nodes)},
      {"bcast double-tree", row(log_p, is_many * n, 0, down * n / 2)},
      {"bcast alpha", row(log_p, log_p * n, 0, log_n * n)},
      {"reduce binomial", row(log_p, is_many * n, log_p * n, crosses * n)},
      {"reduce chain", row(others, is_many * n, is_many * n, crosses * n)},
      {"reduce alpha", row(log_p, is_many * n, (log_p + (nodes > 2 ? 1 : 0)) * n, crosses * n)},
      {"gather binomial", row(log_p, half, half_kept, crosses * half)},
      {"scatter binomial", row(log_p, others * n, half_kept, of_others)},
      {"alltoall linear", row(is_many, others * n, 0, to_others)},
      {"alltoall pairwise", row(others, others * n, 0, to_others)},
      {"alltoall bruck", row(log_p, ranks * log_p / 2 * n, ranks * (1 + log_p) * n,
                             crosses * ranks * (width - 1 + width * log_n) / 2 * n)},
      {"alltoall rails", row(is_wide + crosses, (ranks - width + nodes * (width - 1)) * n,
                             2 * (2 * ranks - width - nodes) * n, to_others)},
      {"barrier dissemination", row(log_p, 0, 0, 0)},
  };
}

TEST(formulas, cost_of__is_the_table_on_powers_of_two) {
  for (const int nodes : {1, 2, 4, 8, 32}) {
    for (const int width : {1, 2, 4, 8, 16}) {
      constexpr Number kCount = 3 * 512;
      const auto expected = table(static_cast<Number>(nodes), static_cast<Number>(width), kCount);
      ASSERT_EQ(algorithms().size(), expected.size());
      const topology::Layout layout = topology::regular_layout(nodes, width);
      for (const Algorithm& algorithm : algorithms()) {
        const std::string name =
            std::string(select::to_string(algorithm.collective)) + " " + algorithm.name;
        const Problem problem = testing::equal_problem(algorithm.collective, nodes * width, kCount);
        if (algorithm.refusal != nullptr && !algorithm.refusal({layout, problem, 0, {}}).empty()) {
          continue;
        }
        ASSERT_TRUE(expected.contains(name)) << name;
        EXPECT_EQ(testing::text(expected.at(name)),
                  testing::text(cost_of(algorithm, {layout, problem, 0, {}})))
            << name << " on " << nodes << " nodes of " << width;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::schedule
