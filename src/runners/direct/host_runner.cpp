// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/host_runner.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace tutti::runners {

using select::Collective;

namespace {

/// More than a core's own cache, for the reason at the head of host_layout.hpp.
constexpr Bytes kRingBytesWanted = 2 << 20;
constexpr Bytes kRingBytesMin = 64 << 10;
constexpr Bytes kNodeRingBytes = 64 << 20;
/// Looks before the core is given away: some milliseconds where each rank can have a core, since on
/// a busy machine a core that was given away comes back after a whole time slice of somebody
/// else's.
constexpr int kSpinsOnOwnCore = 200000;
constexpr int kSpinsOnSharedCore = 20;

/// What a rank tells the others; fixed size.
struct Introduction {
  SegmentTicket ticket;
  HostProcess process;
  cpu_set_t cores;  ///< On which the rank may run.
};
struct Answer {
  std::int32_t code = 0;
  char text[252] = {};
};

/// The first failure in rank order, the same on all ranks.
Status agree(Bootstrap& bootstrap, int ranks, const Status& status) {
  Answer mine;
  mine.code = static_cast<std::int32_t>(status.code());
  std::strncpy(mine.text, status.message().c_str(), sizeof(mine.text) - 1);
  std::vector<Answer> all(static_cast<std::size_t>(ranks));
  TUTTI_RETURN_IF_ERROR(bootstrap.allgather(&mine, all.data(), sizeof(mine)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code != 0) {
      return Status(static_cast<ErrorCode>(all[rank].code),
                    "rank " + std::to_string(rank) + ": " + all[rank].text);
    }
  }
  return {};
}

Bytes sum_of(std::span<const std::uint64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

/// The largest contribution of a rank, where all ranks know it.
std::optional<Bytes> contribution_bytes(const Call& call, int ranks) {
  const auto all = static_cast<std::uint64_t>(ranks);
  switch (call.collective) {
    case Collective::kBarrier:
      return 0;
    case Collective::kBcast:
    case Collective::kGather:
    case Collective::kAllgather:
    case Collective::kReduce:
    case Collective::kAllreduce:
      return call.count * call.element_bytes;
    case Collective::kAllgatherv:
      return *std::max_element(call.recv_counts.begin(), call.recv_counts.end()) *
             call.element_bytes;
    case Collective::kScatter:
    case Collective::kAlltoall:
    case Collective::kReduceScatterBlock:
      return all * call.count * call.element_bytes;
    case Collective::kReduceScatter:
      return sum_of(call.recv_counts) * call.element_bytes;
    default:
      return std::nullopt;
  }
}

/// Only the root gives.
bool from_root(Collective collective) {
  return collective == Collective::kBcast || collective == Collective::kScatter;
}
/// Only the root takes.
bool to_root(Collective collective) {
  return collective == Collective::kGather || collective == Collective::kReduce;
}

void copy(void* to, const void* from, Bytes bytes) {
  if (bytes > 0 && to != from) {
    std::memcpy(to, from, bytes);
  }
}

bool is_carried(Collective collective) {
  return collective != Collective::kScan && collective != Collective::kExscan;
}

}  // namespace

Result<std::unique_ptr<DirectHostRunner>> DirectHostRunner::create(Bootstrap& bootstrap,
                                                                   double timeout_s,
                                                                   Bytes ring_bytes) {
  const ScopeRank me = bootstrap.scope_rank(Scope::kWhole);
  HostLayout layout;
  layout.ranks = me.ranks;
  // A cache line for each rank in each part.
  const Bytes least = static_cast<Bytes>(me.ranks) * HostLayout::kRingUnit;
  layout.ring_bytes = HostLayout::round_up(std::max(ring_bytes, least), HostLayout::kRingUnit);

  std::shared_ptr<SharedSegment> segment;
  Status status;
  const auto keep = [&](Result<std::shared_ptr<SharedSegment>> result) {
    status = result.status();
    if (result.ok()) {
      segment = *result;
    }
  };
  Introduction introduction;
  introduction.process = HostProcess::self();
  CPU_ZERO(&introduction.cores);
  sched_getaffinity(0, sizeof(introduction.cores), &introduction.cores);
  if (me.rank == 0) {
    keep(SharedSegment::make(layout.segment_bytes()));
    if (segment != nullptr) {
      introduction.ticket = segment->ticket();
    }
  }
  std::vector<Introduction> all(static_cast<std::size_t>(me.ranks));
  TUTTI_RETURN_IF_ERROR(bootstrap.allgather(&introduction, all.data(), sizeof(introduction)));
  if (me.rank != 0 && all[0].ticket.descriptor >= 0) {
    keep(SharedSegment::open(all[0].ticket));
  }
  if (segment != nullptr) {
    status = segment->reserve(layout.area_at(me.rank), layout.area_bytes());
  }
  TUTTI_RETURN_IF_ERROR(agree(bootstrap, me.ranks, status));
  segment->close_file();

  HostPeers peers;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const Introduction& other : all) {
    peers.processes.push_back(other.process);
    CPU_OR(&cores, &cores, &other.cores);
  }
  peers.timeout_s = timeout_s;
  peers.spins = CPU_COUNT(&cores) >= me.ranks ? kSpinsOnOwnCore : kSpinsOnSharedCore;
  return std::unique_ptr<DirectHostRunner>(
      new DirectHostRunner(std::move(segment), layout, me.rank, std::move(peers)));
}

Bytes DirectHostRunner::default_ring_bytes(int ranks) {
  return std::clamp(kNodeRingBytes / static_cast<Bytes>(ranks), kRingBytesMin, kRingBytesWanted);
}

DirectHostRunner::DirectHostRunner(std::shared_ptr<SharedSegment> segment, const HostLayout& layout,
                                   int rank, HostPeers peers)
    : segment_(std::move(segment)), layout_(layout), rank_(rank), peers_(std::move(peers)) {
  const auto all = static_cast<std::size_t>(layout_.ranks);
  for (int other = 0; other < layout_.ranks; ++other) {
    peers_.areas.emplace_back(layout_, segment_->data() + layout_.area_at(other));
  }
  spread_taken_.resize(all);
  posted_.resize(all);
  taken_.resize(all);
  credit_.resize(all);
  inputs_.resize(all);
}

DirectHostRunner::~DirectHostRunner() = default;

Status DirectHostRunner::run(Scope scope, const Call& call) {
  if (!failure_.ok()) {
    return Status(failure_.code(),
                  "direct: this communicator failed before: " + failure_.message());
  }
  if (scope != Scope::kWhole || !is_carried(call.collective)) {
    return Status(ErrorCode::kUnsupported,
                  std::string("direct does not carry ") + select::to_string(call.collective) +
                      (scope == Scope::kWhole ? "" : " on part of a communicator"));
  }
  if (select::is_reduction(call.collective) &&
      reduce_function(isa_, call.type, call.op) == nullptr) {
    return Status(ErrorCode::kUnsupported, std::string("direct does not reduce ") +
                                               select::to_string(call.type) + " with " +
                                               select::to_string(call.op));
  }
  if (!carry_out(call)) {
    give_up(Status(failure_.code(), std::string("direct ") + select::to_string(call.collective) +
                                        ": " + failure_.message()));
    return failure_;
  }
  return {};
}

void DirectHostRunner::give_up(const Status& reason) {
  mine().failed().publish(1);
  failure_ = reason;
}

bool DirectHostRunner::await(const HostCounter& counter, std::uint64_t at_least, int peer) {
  if (counter.read() >= at_least) {
    return true;
  }
  Patience patience(peers_);
  while (counter.read() < at_least) {
    if (!patience.wait([peer](int rank) { return rank == peer; })) {
      failure_ = patience.failure();
      return false;
    }
  }
  return true;
}

bool DirectHostRunner::carry_out(const Call& call) {
  const std::optional<Bytes> bytes = contribution_bytes(call, layout_.ranks);
  if (bytes && *bytes <= HostLayout::kBriefBytes) {
    return run_brief(call, *bytes);
  }
  if (select::is_reduction(call.collective)) {
    return reduce_in_rounds(call);
  }
  switch (call.collective) {
    case Collective::kBcast:
    case Collective::kAllgather:
    case Collective::kAllgatherv:
      return spread(call);
    default:
      return exchange(call);
  }
}

// ---- brief collectives -------------------------------------------------------------------------

bool DirectHostRunner::run_brief(const Call& call, Bytes contribution_bytes) {
  ++briefs_;
  const bool gives = from_root(call.collective) ? is_mine(call.root)
                                                : !to_root(call.collective) || !is_mine(call.root);
  const bool takes = to_root(call.collective) ? is_mine(call.root)
                                              : !from_root(call.collective) || !is_mine(call.root);
  if (gives && !post_brief(call, contribution_bytes)) {
    return false;
  }
  if (takes) {
    const bool taken = select::is_reduction(call.collective)
                           ? reduce_brief(call, contribution_bytes)
                           : take_brief(call, contribution_bytes);
    if (!taken) {
      return false;
    }
  } else if (call.collective == Collective::kScatter && !call.in_place) {
    copy(call.recv, at(call.send, own_block_offset(call, rank_), call.element_bytes),
         call.count * call.element_bytes);
  }
  if (gives && takes) {
    // Everybody has come to this one, so everybody has left the one before.
    briefs_left_ = briefs_ - 1;
  }
  mine().brief_done().publish(briefs_);
  return true;
}

bool DirectHostRunner::post_brief(const Call& call, Bytes contribution_bytes) {
  if (briefs_left_ + HostLayout::kBriefSlots < briefs_) {
    // The slot was used before; whoever may have to read it must be done.
    std::uint64_t left = briefs_ - 1;
    for (int peer = 0; peer < layout_.ranks; ++peer) {
      if (is_mine(peer)) {
        continue;
      }
      const HostCounter done = area(peer).brief_done();
      if (!await(done, briefs_ - HostLayout::kBriefSlots, peer)) {
        return false;
      }
      left = std::min(left, done.read());
    }
    briefs_left_ = left;
  }
  const bool is_bcast = call.collective == Collective::kBcast;
  const bool counts_differ = call.collective == Collective::kAllgatherv;
  const Bytes bytes = counts_differ ? call.count * call.element_bytes : contribution_bytes;
  copy(mine().brief_data(briefs_, contribution_bytes), is_bcast ? call.recv : call.send, bytes);
  mine().brief_sequence(briefs_, contribution_bytes).publish(briefs_);
  return true;
}

const std::byte* DirectHostRunner::await_brief(int peer, Bytes contribution_bytes) {
  if (!await(area(peer).brief_sequence(briefs_, contribution_bytes), briefs_, peer)) {
    return nullptr;
  }
  return area(peer).brief_data(briefs_, contribution_bytes);
}

bool DirectHostRunner::take_brief(const Call& call, Bytes contribution_bytes) {
  const Bytes block_bytes = call.count * call.element_bytes;
  const auto self = static_cast<std::uint64_t>(rank_);
  if (from_root(call.collective)) {
    const std::byte* from = await_brief(call.root, contribution_bytes);
    if (from == nullptr) {
      return false;
    }
    copy(call.recv, from + (call.collective == Collective::kScatter ? self * block_bytes : 0),
         block_bytes);
    return true;
  }
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    const auto i = static_cast<std::uint64_t>(peer);
    // The own contribution lies in the own slot, except a root's: that one gives nothing.
    const bool is_own = is_mine(peer);
    const std::byte* from =
        is_own ? static_cast<const std::byte*>(call.send) : await_brief(peer, contribution_bytes);
    if (from == nullptr && !is_own) {
      return false;
    }
    switch (call.collective) {
      case Collective::kGather:
      case Collective::kAllgather:
        copy(at(call.recv, i * call.count, call.element_bytes), from, block_bytes);
        break;
      case Collective::kAllgatherv:
        copy(at(call.recv, call.recv_offsets[i], call.element_bytes), from,
             call.recv_counts[i] * call.element_bytes);
        break;
      case Collective::kAlltoall:
        copy(at(call.recv, i * call.count, call.element_bytes), from + self * block_bytes,
             block_bytes);
        break;
      default:
        break;  // A barrier has nothing to take.
    }
  }
  return true;
}

bool DirectHostRunner::reduce_brief(const Call& call, Bytes contribution_bytes) {
  std::uint64_t first = 0;
  std::uint64_t count = call.count;
  if (call.collective == Collective::kReduceScatterBlock) {
    first = static_cast<std::uint64_t>(rank_) * count;
  } else if (call.collective == Collective::kReduceScatter) {
    first = sum_of(call.recv_counts.first(static_cast<std::size_t>(rank_)));
    count = call.recv_counts[static_cast<std::size_t>(rank_)];
  }
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    const void* from = is_mine(peer) ? call.send : await_brief(peer, contribution_bytes);
    if (from == nullptr && !is_mine(peer)) {
      return false;
    }
    inputs_[static_cast<std::size_t>(peer)] = at(from, first, call.element_bytes);
  }
  if (count > 0) {
    reduce_function(isa_, call.type, call.op)(call.recv, inputs_.data(), layout_.ranks, count);
  }
  return true;
}

}  // namespace tutti::runners
