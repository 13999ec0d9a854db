// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/scheduled_call.hpp"

#include <algorithm>

namespace tutti::runners {

using select::Collective;

namespace {

/// schedule::Problem::counts of a call has one number for all, not one for each rank.
bool has_one_count(Collective collective) {
  return collective == Collective::kBcast || collective == Collective::kReduce ||
         collective == Collective::kAllreduce || collective == Collective::kAlltoall;
}

}  // namespace

schedule::Problem problem_of(const Call& call, int ranks) {
  schedule::Problem problem;
  problem.collective = call.collective;
  problem.ranks = ranks;
  problem.root = call.root;
  switch (call.collective) {
    case Collective::kBarrier:
      break;
    case Collective::kAlltoallv:
      problem.sends.assign(call.send_counts.begin(), call.send_counts.end());
      problem.recvs.assign(call.recv_counts.begin(), call.recv_counts.end());
      break;
    case Collective::kAllgatherv:
    case Collective::kReduceScatter:
      problem.counts.assign(call.recv_counts.begin(), call.recv_counts.end());
      break;
    default:
      problem.counts.assign(has_one_count(call.collective) ? 1 : static_cast<std::size_t>(ranks),
                            call.count);
  }
  return problem;
}

bool is_problem_of(const schedule::Problem& problem, const Call& call) {
  if (problem.collective != call.collective || problem.root != call.root) {
    return false;
  }
  const auto same = [](const std::vector<std::uint64_t>& known,
                       std::span<const std::uint64_t> counts) {
    return std::equal(known.begin(), known.end(), counts.begin(), counts.end());
  };
  switch (call.collective) {
    case Collective::kBarrier:
      return true;
    case Collective::kAlltoallv:
      return same(problem.sends, call.send_counts) && same(problem.recvs, call.recv_counts);
    case Collective::kAllgatherv:
    case Collective::kReduceScatter:
      return same(problem.counts, call.recv_counts);
    default:
      return problem.counts.front() == call.count;
  }
}

bool is_dense(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> offsets) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (counts[i] > 0 && offsets[i] != end) {
      return false;
    }
    end += counts[i];
  }
  return true;
}

bool needs_own_input(const Call& call) {
  return call.in_place &&
         (call.collective == Collective::kAlltoall || call.collective == Collective::kAlltoallv ||
          call.collective == Collective::kReduceScatter ||
          call.collective == Collective::kReduceScatterBlock);
}

std::uint64_t input_elements(const Call& call, int rank, int ranks) {
  std::uint64_t elements = 0;
  for (const Run& run : send_runs(call, rank, ranks)) {
    elements += run.count;
  }
  return elements;
}

}  // namespace tutti::runners
