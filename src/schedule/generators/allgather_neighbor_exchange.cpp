// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, neighbour exchange: neighbours swap blocks and form pairs; then, by turns with the
// one neighbour and with the other, a rank passes on the pair of blocks that it got last. Even P
// only.
// Rounds P / 2. A rank sends (P - 1) n. Out of a node: 4 floor(P / 4) n for even L, both of
// whose ends turn outwards at the same time; (P - 1) n for odd L.
// Source: Chen et al., "Performance Evaluation of Allgather Algorithms on Terascale Linux
// Cluster with Fast Ethernet", 2005.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allgather_neighbor_exchange(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  const int ranks = task.ranks();
  Builder builder;
  builder.copy({Buffer::kInput, 0, blocks.count(task.rank)}, blocks.in(Buffer::kOutput, task.rank));
  if (ranks == 1) {
    return std::move(builder).finish();
  }
  // The rank of the own pair is neighbour 0. Pairs that come from a side are, from round to round
  // with that side, two pairs further in its direction.
  const bool even = task.rank % 2 == 0;
  const int neighbors[] = {task.after(even ? 1 : -1), task.after(even ? -1 : 1)};
  const int step[] = {even ? 2 : -2, even ? -2 : 2};
  auto pair = [&](int first) { return blocks.range(Buffer::kOutput, first, first + 2); };
  builder.send(neighbors[0], blocks.in(Buffer::kOutput, task.rank));
  builder.recv(neighbors[0], blocks.in(Buffer::kOutput, neighbors[0]));
  const int own = task.rank - task.rank % 2;
  int arrived[] = {own, own};
  int sends = own;
  for (int round = 1; round < ranks / 2; ++round) {
    const int side = round % 2;
    arrived[side] = (arrived[side] + step[side] + ranks) % ranks;
    builder.send(neighbors[side], pair(sends));
    builder.recv(neighbors[side], pair(arrived[side]));
    sends = arrived[side];
  }
  return std::move(builder).finish();
}

Cost allgather_neighbor_exchange_cost(const Task& task) {
  const Letters of(task);
  const std::uint64_t sent = (of.ranks - 1) * of.count;
  // The two ends of an even node turn to other nodes at the same time, those of an odd one by
  // turns.
  const std::uint64_t out = of.width % 2 == 0 ? 4 * (of.ranks / 4) * of.count : sent;
  return {.rounds = task.ranks() / 2, .sent_max = sent, .node_out_max = of.nodes > 1 ? out : 0};
}

}  // namespace tutti::schedule
