// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The regions of an alltoall(v) on one rank: what goes to and comes from each peer.
#pragma once

#include "schedule/problem.hpp"

namespace tutti::schedule {

class Exchange {
 public:
  Exchange(const Problem& problem, int rank) {
    if (!problem.sends.empty()) {
      sends_ = Blocks(problem.sends);
      recvs_ = Blocks(problem.recvs);
      return;
    }
    std::vector<std::uint64_t> sends;
    std::vector<std::uint64_t> recvs;
    const bool regular = problem.collective == Collective::kAlltoall;
    const auto ranks = static_cast<std::size_t>(problem.ranks);
    const auto me = static_cast<std::size_t>(rank);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      sends.push_back(regular ? problem.counts[0] : problem.matrix[me * ranks + peer]);
      recvs.push_back(regular ? problem.counts[0] : problem.matrix[peer * ranks + me]);
    }
    sends_ = Blocks(std::move(sends));
    recvs_ = Blocks(std::move(recvs));
  }
  Region leaves(int peer) const { return sends_.in(Buffer::kInput, peer); }
  Region arrives(int peer) const { return recvs_.in(Buffer::kOutput, peer); }

 private:
  Blocks sends_;
  Blocks recvs_;
};

}  // namespace tutti::schedule
