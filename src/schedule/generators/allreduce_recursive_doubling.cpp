// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, recursive doubling: in round k exchange the whole vector with the rank whose k-th
// bit differs and add. Not a power of two: fold.hpp.
// P = 2^k: rounds k; a rank sends k n, a node L log2(N) n to others. P = 2^k + e: rounds k + 2;
// a rank sends (k + 1) n; out of a node n for each message to another. Scratch n.
// Source: Thakur et al. 2005, section 4.5.
#include "schedule/fold.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allreduce_recursive_doubling(const Task& task) {
  return folded_allreduce(
      task, [&](const Fold& fold, const Region& output, const Region& arrived, Builder& builder) {
        for (int bit = 1; bit < fold.core; bit *= 2) {
          builder.send(task.rank ^ bit, output);
          builder.recv(task.rank ^ bit, arrived);
          builder.reduce(arrived, output);
        }
      });
}

Cost allreduce_recursive_doubling_cost(const Task& task) {
  const Letters of(task);
  const Fold fold(task.ranks());
  const bool folds = fold.extra > 0;
  return {.rounds = fold.rounds() + (folds ? 2 : 0),
          .sent_max = whole(fold.rounds() + (folds ? 1 : 0)) * of.count,
          .scratch_max = of.count,
          .node_out_max = fold.node_out(
              task.layout, of.count, [&](int, int) { return of.count; }, of.count)};
}

}  // namespace tutti::schedule
