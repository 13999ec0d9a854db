// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/compose.hpp"

#include <algorithm>

#include "schedule/columns.hpp"

namespace tutti::schedule {
namespace {

std::size_t index(int number) { return topology::Layout::index(number); }

/// Ranks that carry out a part among themselves, in its order.
struct Group {
  std::vector<int> ranks;

  int size() const { return static_cast<int>(ranks.size()); }
  int place_of(int rank) const {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
  bool has(int rank) const { return place_of(rank) < size(); }
};

/// Appends what the task's rank does in a part; nothing if it is not of the group.
void append(Builder& builder, const Task& task, const Group& group, Make make,
            Collective collective, std::vector<std::uint64_t> counts, int root, const Region& input,
            const Region& output) {
  if (!group.has(task.rank)) {
    return;
  }
  // Within a part all ranks are alike: on one node, or each on a node of its own.
  const topology::Layout layout = topology::regular_layout(1, group.size());
  const Problem problem{.collective = collective,
                        .ranks = group.size(),
                        .root = group.place_of(root),
                        .counts = std::move(counts)};
  builder.append(make({layout, problem, group.place_of(task.rank), task.parameters}), group.ranks,
                 input, output);
}

class Nodes {
 public:
  explicit Nodes(const Task& task) : layout_(task.layout), root_(task.root()) {}

  Group of(int rank) const { return {layout_.ranks_of[index(layout_.node_of[index(rank)])]}; }
  /// The root on its node, the first rank elsewhere.
  int leader_of(int node) const {
    return layout_.node_of[index(root_)] == node ? root_ : layout_.ranks_of[index(node)].front();
  }
  int leader_for(int rank) const { return leader_of(layout_.node_of[index(rank)]); }
  Group leaders() const {
    Group group;
    for (int node = 0; node < layout_.nodes(); ++node) {
      group.ranks.push_back(leader_of(node));
    }
    return group;
  }

 private:
  const topology::Layout& layout_;
  int root_;
};

}  // namespace

Program alpha_allreduce(const Task& task, Make reduce, Make allreduce, Make bcast) {
  const Nodes nodes(task);
  const std::uint64_t count = task.problem.counts[0];
  const Region output{Buffer::kOutput, 0, count};
  const int leader = nodes.leader_for(task.rank);
  const Group node = nodes.of(task.rank);
  Builder builder;
  builder.copy({Buffer::kInput, 0, count}, output);
  append(builder, task, node, reduce, Collective::kReduce, {count}, leader, output, output);
  append(builder, task, nodes.leaders(), allreduce, Collective::kAllreduce, {count}, leader, output,
         output);
  append(builder, task, node, bcast, Collective::kBcast, {count}, leader, output, output);
  return std::move(builder).finish();
}

Program alpha_bcast(const Task& task, Make among_leaders, Make within) {
  const Nodes nodes(task);
  const std::uint64_t count = task.problem.counts[0];
  const Region output{Buffer::kOutput, 0, count};
  Builder builder;
  if (task.rank == task.root()) {
    builder.copy({Buffer::kInput, 0, count}, output);
  }
  append(builder, task, nodes.leaders(), among_leaders, Collective::kBcast, {count}, task.root(),
         output, output);
  append(builder, task, nodes.of(task.rank), within, Collective::kBcast, {count},
         nodes.leader_for(task.rank), output, output);
  return std::move(builder).finish();
}

Program alpha_reduce(const Task& task, Make within, Make among_leaders) {
  const Nodes nodes(task);
  const std::uint64_t count = task.problem.counts[0];
  const int leader = nodes.leader_for(task.rank);
  Builder builder;
  Region sum{Buffer::kOutput, 0, count};  // Only the root has an output.
  if (task.rank != task.root() && task.rank == leader) {
    sum = builder.scratch(count);
  }
  append(builder, task, nodes.of(task.rank), within, Collective::kReduce, {count}, leader,
         {Buffer::kInput, 0, count}, sum);
  append(builder, task, nodes.leaders(), among_leaders, Collective::kReduce, {count}, task.root(),
         sum, sum);
  return std::move(builder).finish();
}

Program alpha_allgather(const Task& task, Make gather, Make allgather, Make bcast) {
  const Nodes nodes(task);
  const topology::Layout& layout = task.layout;
  const Blocks blocks = blocks_of(task.problem);
  const Group node = nodes.of(task.rank);
  const Group leaders = nodes.leaders();
  const int leader = nodes.leader_for(task.rank);
  std::vector<std::uint64_t> of_nodes;
  std::vector<std::uint64_t> of_ranks;  // Of this node.
  for (const auto& ranks : layout.ranks_of) {
    std::uint64_t total = 0;
    for (const int rank : ranks) {
      total += blocks.count(rank);
    }
    of_nodes.push_back(total);
  }
  for (const int rank : node.ranks) {
    of_ranks.push_back(blocks.count(rank));
  }
  Builder builder;
  const Region output{Buffer::kOutput, 0, blocks.total()};
  const Region block = blocks.in(Buffer::kOutput, task.rank);
  // From here on all is in the output, of which the input may be a part (in place).
  builder.copy({Buffer::kInput, 0, block.count}, block);
  // In the order of nodes; that of ranks may be another.
  Region gathered = output;
  Region own = output;
  if (task.rank == leader) {
    if (!layout.is_consecutive()) {
      gathered = builder.scratch(blocks.total());
    }
    const Blocks by_node(of_nodes);
    const int place = leaders.place_of(task.rank);
    own = gathered.part(by_node.offset(place), by_node.count(place));
  }
  append(builder, task, node, gather, Collective::kGather, of_ranks, leader, block, own);
  append(builder, task, leaders, allgather, Collective::kAllgather, of_nodes, leader, own,
         gathered);
  if (task.rank == leader && gathered != output) {
    std::uint64_t at = 0;
    for (const auto& ranks : layout.ranks_of) {
      for (const int rank : ranks) {
        builder.copy(gathered.part(at, blocks.count(rank)), blocks.in(Buffer::kOutput, rank));
        at += blocks.count(rank);
      }
    }
  }
  append(builder, task, node, bcast, Collective::kBcast, {blocks.total()}, leader, output, output);
  return std::move(builder).finish();
}

Program delta_allreduce(const Task& task, Make reduce_scatter, Make allreduce, Make allgather) {
  const Nodes nodes(task);
  const std::uint64_t count = task.problem.counts[0];
  const Group node = nodes.of(task.rank);
  const int width = node.size();
  const int slices = task.layout.ranks_per_node_max();
  const Blocks cut = Blocks::even(count, slices);
  const int own_node = task.layout.node_of[index(task.rank)];
  const int local = task.layout.local_of[index(task.rank)];
  Builder builder;
  builder.copy({Buffer::kInput, 0, count}, {Buffer::kOutput, 0, count});
  // A smaller node has its ranks lead several slices: as many at a time as it has ranks.
  auto each_run = [&](auto visit) {
    for (int first = 0; first < slices; first += width) {
      const int last = std::min(first + width, slices);
      std::vector<std::uint64_t> counts(index(width), 0);
      for (int slice = first; slice < last; ++slice) {
        counts[index(slice - first)] = cut.count(slice);
      }
      Region own{Buffer::kOutput, cut.offset(first), 0};
      if (first + local < last) {
        own = cut.in(Buffer::kOutput, first + local);
      }
      visit(counts, cut.range(Buffer::kOutput, first, last), own);
    }
  };
  each_run([&](const auto& counts, const Region& run, const Region& own) {
    append(builder, task, node, reduce_scatter, Collective::kReduceScatterBlock, counts,
           node.ranks.front(), run, own);
  });
  for (int slice = 0; slice < slices; ++slice) {
    Group owners;
    for (const auto& ranks : task.layout.ranks_of) {
      owners.ranks.push_back(ranks[index(slice) % ranks.size()]);
    }
    const Region region = cut.in(Buffer::kOutput, slice);
    append(builder, task, owners, allreduce, Collective::kAllreduce, {region.count},
           owners.ranks[index(own_node)], region, region);
  }
  each_run([&](const auto& counts, const Region& run, const Region& own) {
    append(builder, task, node, allgather, Collective::kAllgather, counts, node.ranks.front(), own,
           run);
  });
  return std::move(builder).finish();
}

}  // namespace tutti::schedule
