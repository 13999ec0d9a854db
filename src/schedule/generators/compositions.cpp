// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The compositions there are by name (compose.hpp). Their cost is the sum of their parts' on N
// equal nodes of L ranks. Parts: trees where the vector goes as a whole, recursive doubling among
// nodes. Source: Guo et al., "Preparing MPICH for exascale", 2024, section on compositions.
#include "schedule/compose.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {
namespace {

/// Costs of parts, one after the other.
class Sum {
 public:
  explicit Sum(const Task& task) : task_(task) {}

  Sum& add(Cost (*cost)(const Task&), Collective collective, int ranks, std::uint64_t count,
           bool is_per_rank) {
    const topology::Layout layout = topology::regular_layout(1, ranks);
    const Problem problem{.collective = collective,
                          .ranks = ranks,
                          .counts = std::vector<std::uint64_t>(
                              is_per_rank ? static_cast<std::size_t>(ranks) : 1, count),
                          .matrix = {}};
    const Cost part = cost({layout, problem, 0, task_.parameters});
    total_.rounds += part.rounds;
    total_.sent_max += part.sent_max;
    return *this;
  }
  Cost total() const { return total_; }
  int width() const { return task_.layout.ranks_per_node_max(); }
  int nodes() const { return task_.layout.nodes(); }
  std::uint64_t count() const { return task_.problem.counts[0]; }

 private:
  const Task& task_;
  Cost total_;
};

}  // namespace

Program allreduce_alpha(const Task& task) {
  return alpha_allreduce(task, reduce_binomial, allreduce_recursive_doubling, bcast_knomial);
}
Cost allreduce_alpha_cost(const Task& task) {
  Sum sum(task);
  return sum.add(reduce_binomial_cost, Collective::kReduce, sum.width(), sum.count(), false)
      .add(allreduce_recursive_doubling_cost, Collective::kAllreduce, sum.nodes(), sum.count(),
           false)
      .add(bcast_knomial_cost, Collective::kBcast, sum.width(), sum.count(), false)
      .total();
}

Program allreduce_delta(const Task& task) {
  return delta_allreduce(task, reduce_scatter_pairwise, allreduce_recursive_doubling,
                         allgather_linear);
}
Cost allreduce_delta_cost(const Task& task) {
  Sum sum(task);
  const std::uint64_t slice = sum.count() / static_cast<std::uint64_t>(sum.width()) + 1;
  return sum
      .add(reduce_scatter_pairwise_cost, Collective::kReduceScatterBlock, sum.width(), slice, true)
      .add(allreduce_recursive_doubling_cost, Collective::kAllreduce, sum.nodes(), slice, false)
      .add(allgather_linear_cost, Collective::kAllgather, sum.width(), slice, true)
      .total();
}

Program bcast_alpha(const Task& task) { return alpha_bcast(task, bcast_knomial, bcast_knomial); }
Cost bcast_alpha_cost(const Task& task) {
  Sum sum(task);
  return sum.add(bcast_knomial_cost, Collective::kBcast, sum.nodes(), sum.count(), false)
      .add(bcast_knomial_cost, Collective::kBcast, sum.width(), sum.count(), false)
      .total();
}

Program reduce_alpha(const Task& task) {
  return alpha_reduce(task, reduce_binomial, reduce_binomial);
}
Cost reduce_alpha_cost(const Task& task) {
  Sum sum(task);
  return sum.add(reduce_binomial_cost, Collective::kReduce, sum.width(), sum.count(), false)
      .add(reduce_binomial_cost, Collective::kReduce, sum.nodes(), sum.count(), false)
      .total();
}

Program allgather_alpha(const Task& task) {
  return alpha_allgather(task, gather_binomial, allgather_ring, bcast_knomial);
}
Cost allgather_alpha_cost(const Task& task) {
  Sum sum(task);
  const auto of_node = static_cast<std::uint64_t>(sum.width()) * sum.count();
  return sum.add(gather_binomial_cost, Collective::kGather, sum.width(), sum.count(), true)
      .add(allgather_ring_cost, Collective::kAllgather, sum.nodes(), of_node, true)
      .add(bcast_knomial_cost, Collective::kBcast, sum.width(),
           static_cast<std::uint64_t>(task.ranks()) * sum.count(), false)
      .total();
}

}  // namespace tutti::schedule
