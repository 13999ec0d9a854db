// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/algorithm.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "schedule/builder.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {
namespace {

std::string odd_ranks(const Task& task) {
  return task.ranks() > 1 && task.ranks() % 2 != 0
             ? "neighbor-exchange needs an even number of ranks; there are " +
                   std::to_string(task.ranks())
             : "";
}

std::string irregular(const Task& task) {
  return task.problem.collective == Collective::kAlltoall
             ? ""
             : "it needs blocks of one size; alltoallv has any";
}

/// Of 4096 elements or more, and not so many that latency outweighs what overlaps.
int long_chain(const Task& task) {
  return static_cast<int>(std::clamp<std::uint64_t>(task.problem.counts[0] / 4096, 1, 64));
}

/// Eight, but no more steps than a program of some thousand ranks can have: its many rounds overlap
/// as they are.
int few(const Task& task) { return std::clamp(16384 / task.ranks(), 1, 8); }

#define TUTTI_ENTRY(name) name, name##_cost
const Algorithm kAlgorithms[] = {
    {Collective::kAllgather, "linear", "every rank sends to every other",
     TUTTI_ENTRY(allgather_linear)},
    {Collective::kAllgather, "ring", "blocks go round a ring of ranks",
     TUTTI_ENTRY(allgather_ring)},
    {Collective::kAllgather, "recursive-doubling", "twice as many blocks to a rank twice as far",
     TUTTI_ENTRY(allgather_recursive_doubling)},
    {Collective::kAllgather, "bruck", "log2 P rounds on any number of ranks",
     TUTTI_ENTRY(allgather_bruck)},
    {Collective::kAllgather, "neighbor-exchange", "pairs of blocks between neighbours",
     TUTTI_ENTRY(allgather_neighbor_exchange), odd_ranks},
    {Collective::kAllgather, "rings", "a ring per local rank over the nodes (Parallel Rings)",
     TUTTI_ENTRY(allgather_rings)},
    {Collective::kAllgather, "rings-xor",
     "Parallel Rings; in the node no two send to one at a time", TUTTI_ENTRY(allgather_rings_xor)},
    {Collective::kAllgather, "rings-knomial", "Parallel Rings; k-nomial trees in the node",
     TUTTI_ENTRY(allgather_rings_knomial)},
    {Collective::kAllgather, "rings-binomial-doubling",
     "Parallel Rings; binomial trees in the node, nearest first",
     TUTTI_ENTRY(allgather_rings_binomial_doubling)},
    {Collective::kAllgather, "rings-binomial-halving",
     "Parallel Rings; binomial trees in the node, farthest first",
     TUTTI_ENTRY(allgather_rings_binomial_halving)},
    {Collective::kAllgather, "rings-recursive-doubling",
     "Parallel Rings; recursive doubling in the node",
     TUTTI_ENTRY(allgather_rings_recursive_doubling)},
    {Collective::kAllgather, "rings-inter-socket",
     "Parallel Rings; a block crosses between sockets once, in three phases",
     TUTTI_ENTRY(allgather_rings_inter_socket)},
    {Collective::kAllgather, "rings-inter-socket-pipelined",
     "the same in segments that do not wait for phases", TUTTI_ENTRY(allgather_rings_inter_socket),
     nullptr, few},
    {Collective::kAllgather, "alpha", "gather to leaders, ring of leaders, broadcast in nodes",
     TUTTI_ENTRY(allgather_alpha)},
    {Collective::kReduceScatterBlock, "ring", "sums go round a ring of ranks",
     TUTTI_ENTRY(reduce_scatter_ring)},
    {Collective::kReduceScatterBlock, "pairwise", "every rank sends to every other",
     TUTTI_ENTRY(reduce_scatter_pairwise)},
    {Collective::kReduceScatterBlock, "recursive-halving", "half the blocks, half as far",
     TUTTI_ENTRY(reduce_scatter_recursive_halving)},
    {Collective::kReduceScatterBlock, "rings", "a ring per local rank over the nodes",
     TUTTI_ENTRY(reduce_scatter_rings)},
    {Collective::kAllreduce, "ring", "reduce-scatter and allgather round a ring; segments overlap",
     TUTTI_ENTRY(allreduce_ring)},
    {Collective::kAllreduce, "recursive-doubling", "the whole vector, log2 P times",
     TUTTI_ENTRY(allreduce_recursive_doubling)},
    {Collective::kAllreduce, "rabenseifner", "recursive halving, then recursive doubling",
     TUTTI_ENTRY(allreduce_rabenseifner)},
    {Collective::kAllreduce, "rings", "Parallel Rings there and back",
     TUTTI_ENTRY(allreduce_rings)},
    {Collective::kAllreduce, "double-tree", "half the vector up and down each of two trees",
     TUTTI_ENTRY(allreduce_double_tree), nullptr, long_chain},
    {Collective::kAllreduce, "alpha", "reduce to leaders, exchange among them, broadcast in nodes",
     TUTTI_ENTRY(allreduce_alpha)},
    {Collective::kAllreduce, "delta", "as alpha, every rank the leader of a slice",
     TUTTI_ENTRY(allreduce_delta)},
    {Collective::kBcast, "knomial", "a tree with radix - 1 children per level; 2 is binomial",
     TUTTI_ENTRY(bcast_knomial)},
    {Collective::kBcast, "chain", "segments pass from rank to rank", TUTTI_ENTRY(bcast_chain),
     nullptr, long_chain},
    {Collective::kBcast, "scatter-allgather", "binomial scatter, ring allgather",
     TUTTI_ENTRY(bcast_scatter_allgather)},
    {Collective::kBcast, "double-tree", "half the vector down each of two trees",
     TUTTI_ENTRY(bcast_double_tree), nullptr, long_chain},
    {Collective::kBcast, "alpha", "a tree of leaders, then trees in nodes",
     TUTTI_ENTRY(bcast_alpha)},
    {Collective::kReduce, "binomial", "a tree", TUTTI_ENTRY(reduce_binomial)},
    {Collective::kReduce, "chain", "segments of the sum pass from rank to rank",
     TUTTI_ENTRY(reduce_chain), nullptr, long_chain},
    {Collective::kReduce, "alpha", "trees in nodes, then a tree of leaders",
     TUTTI_ENTRY(reduce_alpha)},
    {Collective::kGather, "binomial", "a tree", TUTTI_ENTRY(gather_binomial)},
    {Collective::kScatter, "binomial", "a tree", TUTTI_ENTRY(scatter_binomial)},
    {Collective::kAlltoall, "linear", "everything at once", TUTTI_ENTRY(alltoall_linear)},
    {Collective::kAlltoall, "pairwise", "one partner each way at a time",
     TUTTI_ENTRY(alltoall_pairwise)},
    {Collective::kAlltoall, "bruck", "log2 P rounds for small blocks", TUTTI_ENTRY(alltoall_bruck),
     irregular},
    {Collective::kAlltoall, "rails", "a rank carries what goes to its local index elsewhere",
     TUTTI_ENTRY(alltoall_rails), irregular},
    {Collective::kBarrier, "dissemination", "log2 P rounds", TUTTI_ENTRY(barrier_dissemination)},
};
#undef TUTTI_ENTRY

/// v-forms have the algorithms of their regular forms.
Collective family(Collective collective) {
  switch (collective) {
    case Collective::kAllgatherv:
      return Collective::kAllgather;
    case Collective::kGatherv:
      return Collective::kGather;
    case Collective::kScatterv:
      return Collective::kScatter;
    case Collective::kReduceScatter:
      return Collective::kReduceScatterBlock;
    case Collective::kAlltoallv:
      return Collective::kAlltoall;
    default:
      return collective;
  }
}

}  // namespace

Program generate(const Algorithm& algorithm, const Task& task) {
  int segments = task.parameters.segments;
  if (segments < 1) {
    segments = algorithm.segments != nullptr ? algorithm.segments(task) : 1;
  }
  Program program = algorithm.make(task);
  return segments > 1 ? Builder::segmented(program, segments) : program;
}

Cost cost_of(const Algorithm& algorithm, const Task& task) {
  Problem problem = task.problem;
  CHECK(problem.collective != Collective::kAlltoallv, "it has no one block size");
  if (!problem.counts.empty()) {
    const std::uint64_t largest = *std::max_element(problem.counts.begin(), problem.counts.end());
    if (largest == 0) {
      return {};
    }
    std::fill(problem.counts.begin(), problem.counts.end(), largest);
  }
  return algorithm.cost({task.layout, problem, task.rank, task.parameters});
}

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective == family(collective) && algorithm.name == name) {
      return &algorithm;
    }
  }
  return nullptr;
}

}  // namespace tutti::schedule
