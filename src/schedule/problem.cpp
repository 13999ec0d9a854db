// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/problem.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace tutti::schedule {
namespace {

std::uint64_t row_total(const Problem& problem, int rank, bool sends) {
  std::uint64_t total = 0;
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const auto me = static_cast<std::size_t>(rank);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    total += problem.matrix[sends ? me * ranks + peer : peer * ranks + me];
  }
  return total;
}

}  // namespace

Blocks::Blocks(std::vector<std::uint64_t> counts) : counts_(std::move(counts)) {
  offsets_.reserve(counts_.size() + 1);
  for (const std::uint64_t count : counts_) {
    offsets_.push_back(offsets_.back() + count);
  }
}

Blocks Blocks::even(std::uint64_t total, int parts) {
  const auto many = static_cast<std::uint64_t>(parts);
  std::vector<std::uint64_t> counts;
  counts.reserve(many);
  for (std::uint64_t part = 0; part < many; ++part) {
    counts.push_back(total / many + (part < total % many ? 1 : 0));
  }
  return Blocks(std::move(counts));
}

Region Blocks::even_part(const Region& region, int parts, int part) {
  const auto many = static_cast<std::uint64_t>(parts);
  const auto number = static_cast<std::uint64_t>(part);
  const std::uint64_t least = region.count / many;
  const std::uint64_t longer = region.count % many;  // So many have one more; they come first.
  return region.part(number * least + std::min(number, longer), least + (number < longer ? 1 : 0));
}

Blocks blocks_of(const Problem& problem) {
  CHECK(problem.counts.size() == static_cast<std::size_t>(problem.ranks),
        std::to_string(problem.counts.size()));
  return Blocks(problem.counts);
}

std::uint64_t input_count(const Problem& problem, int rank) {
  switch (problem.collective) {
    case Collective::kBarrier:
      return 0;
    case Collective::kBcast:
      return rank == problem.root ? problem.counts[0] : 0;
    case Collective::kReduce:
    case Collective::kAllreduce:
      return problem.counts[0];
    case Collective::kAllgather:
    case Collective::kAllgatherv:
    case Collective::kGather:
    case Collective::kGatherv:
      return problem.counts[static_cast<std::size_t>(rank)];
    case Collective::kScatter:
    case Collective::kScatterv:
      return rank == problem.root ? blocks_of(problem).total() : 0;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterBlock:
      return blocks_of(problem).total();
    case Collective::kAlltoall:
      return problem.counts[0] * static_cast<std::uint64_t>(problem.ranks);
    case Collective::kAlltoallv:
      return row_total(problem, rank, true);
    case Collective::kAlltoallw:
    case Collective::kScan:
    case Collective::kExscan:
      break;
  }
  CHECK(false, "no schedule has this collective");
}

std::uint64_t output_count(const Problem& problem, int rank) {
  switch (problem.collective) {
    case Collective::kBarrier:
      return 0;
    case Collective::kBcast:
    case Collective::kAllreduce:
      return problem.counts[0];
    case Collective::kReduce:
      return rank == problem.root ? problem.counts[0] : 0;
    case Collective::kAllgather:
    case Collective::kAllgatherv:
      return blocks_of(problem).total();
    case Collective::kGather:
    case Collective::kGatherv:
      return rank == problem.root ? blocks_of(problem).total() : 0;
    case Collective::kScatter:
    case Collective::kScatterv:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterBlock:
      return problem.counts[static_cast<std::size_t>(rank)];
    case Collective::kAlltoall:
      return problem.counts[0] * static_cast<std::uint64_t>(problem.ranks);
    case Collective::kAlltoallv:
      return row_total(problem, rank, false);
    case Collective::kAlltoallw:
    case Collective::kScan:
    case Collective::kExscan:
      break;
  }
  CHECK(false, "no schedule has this collective");
}

}  // namespace tutti::schedule
