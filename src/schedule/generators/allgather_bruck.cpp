// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, Bruck: in round k a rank has the 2^k blocks from its own on and gets the next ones
// from the rank 2^k further. Blocks lie where they belong at once, so that a run of blocks that
// goes around the end is two messages and nothing is rotated afterwards.
// Rounds ceil(log2 P), one less where the last passes on nothing that the one before brought:
// where P is no power of two and at most 3/2 of one. A rank sends (P - 1) n. Out of a node:
// min(2^k, P - 2^k) n in round k from each of its ranks whose partner is elsewhere, min(2^k, L)
// of them while 2^k <= P - L; on powers of two (L (P - L) + (L^2 - 1) / 3) n.
// Source: Bruck et al., "Efficient Algorithms for All-to-All Communications", 1997.
#include <algorithm>

#include "schedule/builder.hpp"
#include "schedule/fold.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {
namespace {

/// Blocks first, first + 1, ... around the end, as one or two regions.
template <class Visit>
void around(const Blocks& blocks, int first, int many, Visit visit) {
  const int straight = std::min(many, blocks.size() - first);
  visit(blocks.range(Buffer::kOutput, first, first + straight));
  visit(blocks.range(Buffer::kOutput, 0, many - straight));
}

}  // namespace

Program allgather_bruck(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  Builder builder;
  builder.copy({Buffer::kInput, 0, blocks.count(task.rank)}, blocks.in(Buffer::kOutput, task.rank));
  for (int have = 1; have < task.ranks(); have *= 2) {
    const int many = std::min(have, task.ranks() - have);
    around(blocks, task.rank, many,
           [&](const Region& region) { builder.send(task.after(-have), region); });
    around(blocks, task.after(have), many,
           [&](const Region& region) { builder.recv(task.after(have), region); });
  }
  return std::move(builder).finish();
}

Cost allgather_bruck_cost(const Task& task) {
  const Letters of(task);
  std::uint64_t out = 0;
  for (std::uint64_t have = 1; have < of.ranks; have *= 2) {
    out += std::min(have, of.ranks - have) * of.leaving(have) * of.count;
  }
  const Fold fold(task.ranks());
  return {.rounds = fold.rounds() + (2 * fold.extra > fold.core ? 1 : 0),
          .sent_max = (of.ranks - 1) * of.count,
          .node_out_max = out};
}

}  // namespace tutti::schedule
