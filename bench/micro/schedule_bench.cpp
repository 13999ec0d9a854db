// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What one rank pays for its program: generate() for one rank of `ranks` on nodes of eight, each
// algorithm. The rank is one in the middle; programs of other ranks differ by a few steps.
#include <benchmark/benchmark.h>

#include <string>

#include "schedule/algorithm.hpp"

namespace {

using tutti::schedule::Algorithm;
using tutti::schedule::Collective;
using tutti::schedule::Problem;

constexpr int kRanksPerNode = 8;

Problem problem_of(Collective collective, int ranks) {
  Problem problem{.collective = collective, .ranks = ranks};
  switch (collective) {
    case Collective::kBarrier:
      break;
    case Collective::kBcast:
    case Collective::kReduce:
    case Collective::kAllreduce:
      problem.counts = {1'000'000};
      break;
    case Collective::kAlltoall:
      problem.counts = {100};
      break;
    default:
      problem.counts.assign(static_cast<std::size_t>(ranks), 100);
  }
  return problem;
}

void generate_one_rank(benchmark::State& state, const Algorithm& algorithm) {
  const auto ranks = static_cast<int>(state.range(0));
  const auto layout = tutti::topology::regular_layout(ranks / kRanksPerNode, kRanksPerNode);
  const Problem problem = problem_of(algorithm.collective, ranks);
  std::size_t steps = 0;
  for (auto _ : state) {
    const auto program = tutti::schedule::generate(algorithm, {layout, problem, ranks / 2 + 1, {}});
    steps = program.steps.size();
    benchmark::DoNotOptimize(program.steps.data());
  }
  state.counters["steps"] = static_cast<double>(steps);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Algorithm& algorithm : tutti::schedule::algorithms()) {
    const std::string name = std::string(to_string(algorithm.collective)) + ":" + algorithm.name;
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the library keeps it.
    benchmark::RegisterBenchmark(name.c_str(), generate_one_rank, algorithm)
        ->Arg(10'000)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
