// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Alltoall, Bruck: blocks that must travel d ranks go 2^k ranks in each round k whose bit is in
// d. Rounds ceil(log2 P), one less where P > 2 and no d < P has the two highest bits. With b_k
// the d < P that have bit k, about P / 2: a rank sends sum b_k n; scratch (P + 2 sum b_k) n; out
// of a node b_k n in round k from each of its ranks whose partner is elsewhere, P (L - 1 + L
// log2 N) n / 2 in all on powers of two.
// Source: Bruck et al., "Efficient Algorithms for All-to-All Communications", 1997.
#include <algorithm>

#include "schedule/builder.hpp"
#include "schedule/exchange.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program alltoall_bruck(const Task& task) {
  const int ranks = task.ranks();
  const std::uint64_t count = task.problem.counts[0];
  const Exchange exchange(task.problem, task.rank);
  Builder builder;
  builder.reserve(static_cast<std::size_t>(ranks) * 4);
  // By the distance that is left to travel in all.
  const Region travels = builder.scratch(static_cast<std::uint64_t>(ranks) * count);
  auto blocks = [&](const Region& region, int first, int many) {
    return region.part(static_cast<std::uint64_t>(first) * count,
                       static_cast<std::uint64_t>(many) * count);
  };
  const Region input{Buffer::kInput, 0, travels.count};
  const int to_end = ranks - task.rank;
  builder.copy(blocks(input, task.rank, to_end), blocks(travels, 0, to_end));
  builder.copy(blocks(input, 0, task.rank), blocks(travels, to_end, task.rank));
  for (int bit = 1; bit < ranks; bit *= 2) {
    // Distances with this bit come in runs of as many.
    auto each_run = [&](auto visit) {
      int packed = 0;
      for (int first = bit; first < ranks; first += 2 * bit) {
        const int many = std::min(bit, ranks - first);
        visit(first, packed, many);
        packed += many;
      }
      return packed;
    };
    const int many = each_run([](int, int, int) {});
    const Region packed = builder.scratch(static_cast<std::uint64_t>(many) * count);
    const Region arrived = builder.scratch(packed.count);
    each_run([&](int first, int at, int run) {
      builder.copy(blocks(travels, first, run), blocks(packed, at, run));
    });
    builder.send(task.after(bit), packed);
    builder.recv(task.after(-bit), arrived);
    each_run([&](int first, int at, int run) {
      builder.copy(blocks(arrived, at, run), blocks(travels, first, run));
    });
  }
  for (int distance = 0; distance < ranks; ++distance) {
    builder.copy(blocks(travels, distance, 1), exchange.arrives(task.after(-distance)));
  }
  return std::move(builder).finish();
}

Cost alltoall_bruck_cost(const Task& task) {
  const Letters of(task);
  std::uint64_t blocks = 0;
  std::uint64_t out = 0;
  for (std::uint64_t bit = 1; bit < of.ranks; bit *= 2) {
    // Distances below P that have this bit.
    const std::uint64_t rest = of.ranks % (2 * bit);
    const std::uint64_t many = of.ranks / (2 * bit) * bit + (rest > bit ? rest - bit : 0);
    blocks += many;
    out += many * of.leaving(bit);
  }
  // The last round waits for the one before where a distance has both bits.
  const int last = log2_ceil(task.ranks());
  const bool waits = last < 2 || of.ranks > 3 * (std::uint64_t{1} << (last - 2));
  return {.rounds = waits ? last : last - 1,
          .sent_max = blocks * of.count,
          .scratch_max = (of.ranks + 2 * blocks) * of.count,
          .node_out_max = out * of.count};
}

}  // namespace tutti::schedule
