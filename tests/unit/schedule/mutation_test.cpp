// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The validator is only worth what it catches: every generator's programs are broken in ways that
// programmers break them, and each break must be seen.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tasks.hpp"

namespace tutti::schedule {
namespace {

using testing::equal_problem;
using testing::generate_all;

using Mutation = std::function<bool(std::vector<Program>&, std::mt19937_64&)>;

/// A random step of a random rank that `fits`; null when there is none.
Step* pick(std::vector<Program>& programs, std::mt19937_64& random, Program** program,
           const std::function<bool(const Step&)>& fits) {
  for (int tries = 0; tries < 1000; ++tries) {
    *program = &programs[random() % programs.size()];
    if ((*program)->steps.empty()) {
      continue;
    }
    Step& step = (*program)->steps[random() % (*program)->steps.size()];
    if (fits(step)) {
      return &step;
    }
  }
  return nullptr;
}

bool forget_a_message(std::vector<Program>& programs, std::mt19937_64& random) {
  Program* program = nullptr;
  Step* step =
      pick(programs, random, &program, [](const Step& s) { return s.kind == StepKind::kRecv; });
  if (step == nullptr) {
    return false;
  }
  *step = {.kind = StepKind::kCopy,
           .first_dependency = step->first_dependency,
           .dependency_count = step->dependency_count};
  return true;
}

bool send_to_another_rank(std::vector<Program>& programs, std::mt19937_64& random) {
  Program* program = nullptr;
  Step* step =
      pick(programs, random, &program, [](const Step& s) { return s.kind == StepKind::kSend; });
  if (step == nullptr) {
    return false;
  }
  step->peer = (step->peer + 1) % static_cast<int>(programs.size());
  return true;
}

bool shift_what_is_sent(std::vector<Program>& programs, std::mt19937_64& random) {
  Program* program = nullptr;
  Step* step = pick(programs, random, &program,
                    [](const Step& s) { return s.kind == StepKind::kSend && s.source.count > 0; });
  if (step == nullptr) {
    return false;
  }
  step->source.offset += 1;
  return true;
}

bool forget_every_order(std::vector<Program>& programs, std::mt19937_64& random) {
  Program* program = nullptr;
  Step* step = pick(programs, random, &program, [](const Step& s) {
    return s.dependency_count > 0 && s.kind != StepKind::kRecv;
  });
  if (step == nullptr) {
    return false;
  }
  for (Step& each : program->steps) {
    each.dependency_count = 0;
  }
  return true;
}

bool swap_two_tags(std::vector<Program>& programs, std::mt19937_64& random) {
  Program* program = nullptr;
  Step* step =
      pick(programs, random, &program, [](const Step& s) { return s.kind == StepKind::kSend; });
  if (step == nullptr) {
    return false;
  }
  step->tag += 1000;
  return true;
}

class EveryMutation : public ::testing::TestWithParam<int> {};

TEST_P(EveryMutation, is_caught) {
  const Algorithm& algorithm = algorithms()[static_cast<std::size_t>(GetParam())];
  const std::vector<std::pair<const char*, Mutation>> mutations = {
      {"forget a message", forget_a_message},
      {"send to another rank", send_to_another_rank},
      {"shift what is sent", shift_what_is_sent},
      {"forget every order", forget_every_order},
      {"another tag", swap_two_tags}};
  int applied = 0;
  for (const auto& [name, mutate] : mutations) {
    if (std::string(algorithm.name) == "pairwise" && std::string(name) == "forget every order") {
      continue;  // Its order is for speed: without it, it is the linear algorithm.
    }
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      std::mt19937_64 random(seed);
      const Problem problem = equal_problem(algorithm.collective, 8, 16);
      const topology::Layout layout = topology::regular_layout(2, 4);
      auto programs = generate_all(algorithm, layout, problem);
      ASSERT_TRUE(validate(problem, programs).ok());
      if (mutate(programs, random)) {
        ++applied;
        EXPECT_FALSE(validate(problem, programs).ok()) << name << ", seed " << seed;
      }
    }
  }
  EXPECT_GE(applied, 36);  // At least three kinds for every generator.
}

INSTANTIATE_TEST_SUITE_P(generators, EveryMutation,
                         ::testing::Range(0, static_cast<int>(algorithms().size())));

}  // namespace
}  // namespace tutti::schedule
