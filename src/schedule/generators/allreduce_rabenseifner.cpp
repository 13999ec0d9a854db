// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, Rabenseifner: reduce-scatter by recursive halving, allgather by recursive doubling,
// on even parts of the vector, one for each rank of the power-of-two core (fold.hpp).
// P = 2^k: rounds 2 k; rank 0 sends most, the first 2^i parts for each 0 < i < k and n: 2 (P -
// 1) n / P where P divides n. P = 2^k + e: rounds 2 k + 2, one less where n + e <= 2^k; rank 0
// sends n more. Scratch n. Out of a node: 2 L (N - 1) n / N on powers of two where P divides n;
// else what of a rank's two parts of the vector per round goes elsewhere.
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", 2004.
#include "schedule/fold.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allreduce_rabenseifner(const Task& task) {
  return folded_allreduce(
      task, [&](const Fold& fold, const Region& output, const Region& arrived, Builder& builder) {
        const Blocks parts = Blocks::even(output.count, fold.core);
        for (int half = fold.core / 2; half >= 1; half /= 2) {
          const int peer = task.rank ^ half;
          const int mine = task.rank & ~(half - 1);
          const int theirs = peer & ~(half - 1);
          const Region keeps = parts.range(Buffer::kOutput, mine, mine + half);
          const Region contribution = arrived.part(keeps.offset, keeps.count);
          builder.send(peer, parts.range(Buffer::kOutput, theirs, theirs + half));
          builder.recv(peer, contribution);
          builder.reduce(contribution, keeps);
        }
        for (int bit = 1; bit < fold.core; bit *= 2) {
          const int peer = task.rank ^ bit;
          const int mine = task.rank & ~(bit - 1);
          const int theirs = peer & ~(bit - 1);
          builder.send(peer, parts.range(Buffer::kOutput, mine, mine + bit));
          builder.recv(peer, parts.range(Buffer::kOutput, theirs, theirs + bit));
        }
      });
}

Cost allreduce_rabenseifner_cost(const Task& task) {
  const Letters of(task);
  const Fold fold(task.ranks());
  const bool folds = fold.extra > 0;
  const Blocks parts = Blocks::even(of.count, fold.core);
  const auto elements = [&](int first, int last) {
    return parts.range(Buffer::kOutput, first, last).count;
  };
  const auto exchanged = [&](int rank, int bit) {
    const int mine = rank & ~(bit - 1);
    const int theirs = mine ^ bit;
    return elements(mine, mine + bit) + elements(theirs, theirs + bit);
  };
  // Rank 0 sends most: its parts are among the larger ones, and it is folded onto.
  std::uint64_t sent = folds ? of.count : 0;
  for (int bit = 1; bit < fold.core; bit *= 2) {
    sent += exchanged(0, bit);
  }
  // The last round waits for all others where a rank that is folded onto is the last to learn of a
  // part that is not empty: part i comes last to rank core - 1 - i.
  const bool is_last_folded = folds && of.count + whole(fold.extra) > whole(fold.core);
  return {.rounds = 2 * fold.rounds() + (folds ? 1 : 0) + (is_last_folded ? 1 : 0),
          .sent_max = sent,
          .scratch_max = of.count,
          .node_out_max = fold.node_out(task.layout, of.count, exchanged, of.count)};
}

}  // namespace tutti::schedule
