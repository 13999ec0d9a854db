// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Alltoall, Bruck: blocks that must travel d ranks go 2^k ranks in each round k whose bit is in d.
// Rounds ceil(log2 P); each rank sends P / 2 blocks or fewer per round; scratch 3 P n.
// Source: Bruck et al., "Efficient Algorithms for All-to-All Communications", 1997.
#include <bit>

#include "schedule/builder.hpp"
#include "schedule/exchange.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program alltoall_bruck(const Task& task) {
  const int ranks = task.ranks();
  const std::uint64_t count = task.problem.counts[0];
  const Exchange exchange(task.problem, task.rank);
  Builder builder;
  // By the distance that is left to travel in all.
  const Region travels = builder.scratch(static_cast<std::uint64_t>(ranks) * count);
  auto block = [&](int distance) {
    return travels.part(static_cast<std::uint64_t>(distance) * count, count);
  };
  for (int distance = 0; distance < ranks; ++distance) {
    builder.copy(exchange.leaves(task.after(distance)), block(distance));
  }
  for (int bit = 1; bit < ranks; bit *= 2) {
    std::uint64_t many = 0;
    for (int distance = bit; distance < ranks; ++distance) {
      many += (distance & bit) != 0 ? 1 : 0;
    }
    const Region packed = builder.scratch(many * count);
    const Region arrived = builder.scratch(many * count);
    std::uint64_t next = 0;
    for (int distance = bit; distance < ranks; ++distance) {
      if ((distance & bit) != 0) {
        builder.copy(block(distance), packed.part(next, count));
        next += count;
      }
    }
    builder.send(task.after(bit), packed);
    builder.recv(task.after(-bit), arrived);
    next = 0;
    for (int distance = bit; distance < ranks; ++distance) {
      if ((distance & bit) != 0) {
        builder.copy(arrived.part(next, count), block(distance));
        next += count;
      }
    }
  }
  for (int distance = 0; distance < ranks; ++distance) {
    builder.copy(block(distance), exchange.arrives(task.after(-distance)));
  }
  return std::move(builder).finish();
}

Cost alltoall_bruck_cost(const Task& task) {
  const auto ranks = static_cast<unsigned>(task.ranks());
  std::uint64_t blocks = 0;
  for (unsigned distance = 1; distance < ranks; ++distance) {
    blocks += static_cast<unsigned>(std::popcount(distance));
  }
  return {static_cast<int>(std::bit_width(ranks - 1)), blocks * task.problem.counts[0]};
}

}  // namespace tutti::schedule
