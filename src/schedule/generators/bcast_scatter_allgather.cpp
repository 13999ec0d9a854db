// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Broadcast for long vectors: binomial scatter of P even parts, then a ring allgather of them,
// in which nobody is sent what the scatter brought it.
// Rounds P - 1: the root's own part goes all around, the others are scattered meanwhile. The
// root sends most, 2 n less the first two parts: 2 (P - 1) n / P where P divides n (n for P =
// 2). Out of a node: the runs of the scatter that go elsewhere, and by its last rank n less the
// next one's run; 2 (N - 1) n / N on powers of two, from the first rank, where P divides n.
// Source: van de Geijn; Thakur et al. 2005, section 4.2.
#include <algorithm>
#include <bit>

#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program bcast_scatter_allgather(const Task& task) {
  const int ranks = task.ranks();
  const int me = task.after(-task.root());
  const std::uint64_t count = task.problem.counts[0];
  const Blocks parts = Blocks::even(count, ranks);
  auto rank_of = [&](int relative) { return (relative + task.root()) % ranks; };
  auto run = [&](int first, int width) {
    return parts.range(Buffer::kOutput, first, std::min(first + width, ranks));
  };
  Builder builder;
  int width = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
  if (me == 0) {
    builder.copy({Buffer::kInput, 0, count}, {Buffer::kOutput, 0, count});
  } else {
    width = me & -me;
    builder.recv(rank_of(me - width), run(me, width));
  }
  for (int half = width / 2; half >= 1; half /= 2) {
    if (me + half < ranks) {
      builder.send(rank_of(me + half), run(me + half, half));
    }
  }
  auto part = [&](int index) { return parts.in(Buffer::kOutput, (index % ranks + ranks) % ranks); };
  // A rank has its own run of parts from the scatter; around the ring it gets the others alone, and
  // its right neighbour, which lacks all but its own run, needs each that is not in there.
  auto has = [&](int relative, int index) {
    const int wide = relative == 0 ? ranks : relative & -relative;
    return index >= relative && index < relative + wide;
  };
  const int right = (me + 1) % ranks;
  for (int round = 0; round < ranks - 1; ++round) {
    const int leaves = ((me - round) % ranks + ranks) % ranks;
    const int arrives = ((me - round - 1) % ranks + ranks) % ranks;
    if (!has(right, leaves)) {
      builder.send(task.after(1), part(leaves));
    }
    if (!has(me, arrives)) {
      builder.recv(task.after(-1), part(arrives));
    }
  }
  return std::move(builder).finish();
}

Cost bcast_scatter_allgather_cost(const Task& task) {
  const Letters of(task);
  const int ranks = task.ranks();
  const Blocks parts = Blocks::even(of.count, ranks);
  if (ranks == 1) {
    return {};
  }
  NodeOut out(task.layout);
  const Knomial tree{ranks};
  tree.each_edge(task.root(), [&](int parent, int child, int relative) {
    const int end = std::min(relative + tree.unit(relative), ranks);
    const std::uint64_t run = parts.range(Buffer::kOutput, relative, end).count;
    out.add(parent, child, run);
    out.add((child + ranks - 1) % ranks, child, of.count - run);
  });
  return {.rounds = ranks - 1,
          .sent_max = 2 * of.count - parts.count(0) - parts.count(1),
          .node_out_max = out.most()};
}

}  // namespace tutti::schedule
