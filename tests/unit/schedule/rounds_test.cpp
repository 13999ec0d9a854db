// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/rounds.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tasks.hpp"

namespace tutti::schedule {
namespace {

using testing::equal_problem;
using testing::generate_all;
using testing::odd_layout;

bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
}

TEST(Rounds, rounds_of__a_ring_has_one_message_each_way_in_every_round) {
  const Problem problem = equal_problem(Collective::kAllgather, 4, 5);
  const auto programs = generate_all(*find_algorithm(Collective::kAllgather, "ring"),
                                     topology::regular_layout(1, 4), problem);
  const auto rounds = rounds_of(programs, 2);
  std::map<std::uint32_t, int> sends;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    sends[rounds[i]] += programs[2].steps[i].kind == StepKind::kSend ? 1 : 0;
    EXPECT_EQ(rounds[i] == 0, programs[2].steps[i].kind == StepKind::kCopy);
  }
  EXPECT_EQ(sends, (std::map<std::uint32_t, int>{{0, 0}, {1, 1}, {2, 1}, {3, 1}}));
}

/// Both ends of a message in one round, after all it waits for; as many rounds as the validator
/// counts.
void expect_rounds(const Algorithm& algorithm, const topology::Layout& layout,
                   const Problem& problem, Parameters parameters) {
  const auto programs = generate_all(algorithm, layout, problem, parameters);
  const Report report = validate(problem, programs);
  ASSERT_TRUE(report.ok());
  std::map<std::tuple<int, int, std::uint32_t>, std::uint32_t> sent;
  std::vector<std::vector<std::uint32_t>> rounds;
  std::uint32_t last = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const Program& program = programs[static_cast<std::size_t>(rank)];
    rounds.push_back(rounds_of(programs, rank));
    const auto& own = rounds.back();
    ASSERT_EQ(own.size(), program.steps.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Step& step = program.steps[i];
      for (const std::uint32_t before : program.dependencies_of(step)) {
        ASSERT_TRUE(is_message(step) ? own[before] < own[i] : own[before] <= own[i]);
      }
      if (step.kind == StepKind::kSend) {
        sent[{rank, step.peer, step.tag}] = own[i];
      }
      last = std::max(last, own[i]);
    }
  }
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const Program& program = programs[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      if (step.kind == StepKind::kRecv) {
        ASSERT_EQ((sent.at({step.peer, rank, step.tag})),
                  rounds[static_cast<std::size_t>(rank)][i]);
      }
    }
  }
  EXPECT_EQ(static_cast<int>(last), report.rounds) << algorithm.name;
}

TEST(Rounds, rounds_of__every_algorithm) {
  for (const Algorithm& algorithm : algorithms()) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const int ranks = static_cast<int>(1 + seed);
      const auto layout = odd_layout(ranks, seed);
      const Problem problem = equal_problem(algorithm.collective, ranks, seed % 4 * 7, ranks / 2);
      for (const Parameters parameters : {Parameters{}, Parameters{3, 3}}) {
        if (algorithm.refusal == nullptr ||
            algorithm.refusal({layout, problem, 0, parameters}).empty()) {
          expect_rounds(algorithm, layout, problem, parameters);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::schedule
