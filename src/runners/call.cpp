// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/call.hpp"

#include "base/check.hpp"

namespace tutti::runners {

using select::Collective;

BlockCounts block_counts(const Call& call, int rank, int ranks) {
  const auto all = static_cast<std::uint64_t>(ranks);
  const bool is_root = rank == call.root;
  switch (call.collective) {
    case Collective::kBarrier:
      return {0, 0};
    case Collective::kBcast:
      return is_root ? BlockCounts{1, 0} : BlockCounts{0, 1};
    case Collective::kGather:
      return {1, is_root ? all : 0};
    case Collective::kScatter:
      return {is_root ? all : 0, 1};
    case Collective::kAllgather:
      return {1, all};
    case Collective::kAlltoall:
      return {all, all};
    case Collective::kReduce:
      return {1, is_root ? 1U : 0U};
    case Collective::kAllreduce:
    case Collective::kScan:
      return {1, 1};
    case Collective::kExscan:
      return {1, rank == 0 ? 0U : 1U};
    case Collective::kReduceScatterBlock:
      return {all, 1};
    default:
      CHECK(false, select::to_string(call.collective));
  }
  return {};
}

std::uint64_t block_count_max(Collective collective, int ranks) {
  switch (collective) {
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllgather:
    case Collective::kAlltoall:
    case Collective::kReduceScatterBlock:
      return static_cast<std::uint64_t>(ranks);
    default:
      return 1;
  }
}

bool has_counts(Collective collective) {
  switch (collective) {
    case Collective::kGatherv:
    case Collective::kScatterv:
    case Collective::kAllgatherv:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
    case Collective::kReduceScatter:
      return true;
    default:
      return false;
  }
}

namespace {

bool gathers(Collective collective) {
  return collective == Collective::kGather || collective == Collective::kGatherv ||
         collective == Collective::kAllgather || collective == Collective::kAllgatherv;
}

bool scatters(Collective collective) {
  return collective == Collective::kScatter || collective == Collective::kScatterv;
}

}  // namespace

std::uint64_t own_block_offset(const Call& call, int rank) {
  const auto self = static_cast<std::size_t>(rank);
  const auto offsets = gathers(call.collective) ? call.recv_offsets : call.send_offsets;
  return offsets.empty() ? self * call.count : offsets[self];
}

Aliasing aliasing_of(const Call& call) {
  if (!call.in_place) {
    return Aliasing::kNone;
  }
  if (gathers(call.collective)) {
    return Aliasing::kSendInRecv;
  }
  return scatters(call.collective) ? Aliasing::kRecvInSend : Aliasing::kSame;
}

namespace {

std::vector<Run> counted_runs(std::span<const std::uint64_t> counts,
                              std::span<const std::uint64_t> offsets) {
  std::vector<Run> runs;
  runs.reserve(counts.size());
  std::uint64_t dense = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    runs.push_back({offsets.empty() ? dense : offsets[i], counts[i]});
    dense += counts[i];
  }
  return runs;
}

}  // namespace

std::vector<Run> send_runs(const Call& call, int rank, int ranks) {
  switch (call.collective) {
    case Collective::kGatherv:
    case Collective::kAllgatherv:
      return {{0, call.count}};
    case Collective::kScatterv:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
      return counted_runs(call.send_counts, call.send_offsets);
    case Collective::kReduceScatter:
      return counted_runs(call.recv_counts, {});
    default: {
      const BlockCounts blocks = block_counts(call, rank, ranks);
      if (blocks.send == 0) {
        return {};
      }
      return {{0, blocks.send * call.count}};
    }
  }
}

std::vector<Run> recv_runs(const Call& call, int rank, int ranks) {
  switch (call.collective) {
    case Collective::kGatherv:
    case Collective::kAllgatherv:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
      return counted_runs(call.recv_counts, call.recv_offsets);
    case Collective::kScatterv:
      return {{0, call.count}};
    case Collective::kReduceScatter:
      return {{0, call.recv_counts[static_cast<std::size_t>(rank)]}};
    default: {
      const BlockCounts blocks = block_counts(call, rank, ranks);
      if (blocks.recv == 0) {
        return {};
      }
      return {{0, blocks.recv * call.count}};
    }
  }
}

std::vector<CopyRun> dense_copies(std::span<const Run> runs) {
  std::vector<CopyRun> copies;
  std::uint64_t dense = 0;
  for (const Run& run : runs) {
    if (run.count == 0) {
      continue;
    }
    if (!copies.empty() && copies.back().source + copies.back().count == run.offset) {
      copies.back().count += run.count;
    } else {
      copies.push_back({run.offset, dense, run.count});
    }
    dense += run.count;
  }
  return copies;
}

}  // namespace tutti::runners
