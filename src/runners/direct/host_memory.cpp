// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/host_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.hpp"

namespace tutti::runners {
namespace {

/// Of all processes of a node together.
constexpr Bytes kNodeBytes = 60 << 20;
/// More than a core's own cache, for the reason at the head of host_layout.hpp.
constexpr Bytes kRingBytesWanted = 2 << 20;
constexpr Bytes kRingBytesMin = 64 << 10;
/// A quarter of a process's memory at most.
constexpr Bytes kBlocksBytesWanted = 4 << 20;
constexpr Bytes kSetsForThreadsMax = 4;
/// Pages for blocks are taken in steps of this.
constexpr Bytes kBlocksReserved = 256 << 10;
/// Retired blocks that are looked at each time one is wanted.
constexpr int kLooksAtRetired = 8;

constexpr Bytes kPage = 4096;
constexpr Bytes kLineBytes = 128;  // Two lines: prefetchers take them in pairs.

Bytes head_bytes() { return HostLayout::round_up(SharedSegment::kHeadBytes, kPage); }

}  // namespace

bool HostUse::is_taken(int peer) const {
  const HostArea& area = peers.areas[static_cast<std::size_t>(peer)];
  return peer == rank || peers.has_ended(peer) || area.failed().read() != 0 ||
         area.calls_done().read() >= last_call;
}

HostMemory::Options HostMemory::default_options(int node_ranks, bool has_threads) {
  const Bytes own = kNodeBytes / static_cast<Bytes>(std::max(node_ranks, 1));
  Options options;
  options.blocks_bytes = HostLayout::round_up(std::min(kBlocksBytesWanted, own / 4), kPage);
  const Bytes rings = own - std::min(own, options.blocks_bytes);
  options.shares_rings = !has_threads;
  options.ring_sets =
      has_threads ? static_cast<int>(std::clamp<Bytes>(rings / HostLayout::set_bytes(kRingBytesMin),
                                                       1, kSetsForThreadsMax))
                  : 1;
  const Bytes each = rings / static_cast<Bytes>(options.ring_sets) / 4;
  options.ring_bytes =
      std::clamp(each - std::min(each, HostLayout::kSlotsBytes), kRingBytesMin, kRingBytesWanted) /
      HostLayout::kRingUnit * HostLayout::kRingUnit;
  return options;
}

Result<std::shared_ptr<HostMemory>> HostMemory::make(const Options& options) {
  const Bytes bytes =
      head_bytes() + options.blocks_bytes +
      static_cast<Bytes>(options.ring_sets) * HostLayout::set_bytes(options.ring_bytes);
  TUTTI_ASSIGN_OR_RETURN(auto segment, SharedSegment::make(bytes));
  return std::shared_ptr<HostMemory>(new HostMemory(std::move(segment), options));
}

HostMemory::HostMemory(std::shared_ptr<SharedSegment> segment, const Options& options)
    : segment_(std::move(segment)), options_(options) {
  users_.resize(static_cast<std::size_t>(options.ring_sets));
  has_pages_.resize(static_cast<std::size_t>(options.ring_sets));
  for (int set = options.ring_sets; set-- > 0 && !options.shares_rings;) {
    free_sets_.push_back(set);
  }
}

Bytes HostMemory::set_at(int set) const {
  return head_bytes() + options_.blocks_bytes +
         static_cast<Bytes>(set) * HostLayout::set_bytes(options_.ring_bytes);
}

Status HostMemory::reserve_rings(const Part& part) {
  const std::lock_guard lock(mutex_);
  const auto set = static_cast<std::size_t>(part.set);
  if (!has_pages_[set]) {
    const Bytes bytes = HostLayout::set_bytes(options_.ring_bytes);
    TUTTI_RETURN_IF_ERROR(segment_->reserve(part.rings_at, bytes));
    segment_->touch(part.rings_at, bytes);
    has_pages_[set] = true;
  }
  return {};
}

void HostMemory::touch_rings(const Hold& hold, const Part& part, SharedSegment& segment) {
  CHECK(hold.mutex() == &mutex_ && hold.owns_lock(), "of this memory");
  Peer* const peer = &segment == segment_.get() ? nullptr : peer_of(segment.ticket());
  if (peer != nullptr &&
      std::find(peer->touched.begin(), peer->touched.end(), part.rings_at) == peer->touched.end()) {
    segment.touch(part.rings_at, HostLayout::set_bytes(part.ring_bytes));
    peer->touched.push_back(part.rings_at);
  }
}

Status HostMemory::reserve_blocks(Bytes end) {
  if (end > blocks_reserved_) {
    const Bytes bytes =
        std::min(options_.blocks_bytes, HostLayout::round_up(end, kBlocksReserved)) -
        blocks_reserved_;
    TUTTI_RETURN_IF_ERROR(segment_->reserve(head_bytes() + blocks_reserved_, bytes));
    blocks_reserved_ += bytes;
  }
  return {};
}

Result<HostMemory::Part> HostMemory::take(int ranks) {
  const std::lock_guard lock(mutex_);
  reuse_retired();
  HostLayout layout;
  layout.ranks = ranks;
  const Bytes bytes = HostLayout::round_up(layout.block_bytes(), kLineBytes);
  if (!options_.shares_rings && free_sets_.empty()) {
    return Status(ErrorCode::kUnavailable,
                  "this process has memory for " + std::to_string(options_.ring_sets) +
                      " communicators at once under MPI_THREAD_MULTIPLE; free some");
  }
  Part part;
  std::vector<Bytes>& free = free_blocks_[bytes];
  if (!free.empty()) {
    part.block_at = free.back();
    free.pop_back();
  } else if (blocks_end_ + bytes <= options_.blocks_bytes) {
    TUTTI_RETURN_IF_ERROR(reserve_blocks(blocks_end_ + bytes));
    part.block_at = head_bytes() + blocks_end_;
    blocks_end_ += bytes;
  } else {
    return Status(ErrorCode::kUnavailable,
                  "this process has no shared memory left for one more communicator; free some");
  }
  part.set = options_.shares_rings ? 0 : free_sets_.back();
  part.rings_at = set_at(part.set);
  part.ring_bytes = options_.ring_bytes;
  if (!options_.shares_rings) {
    free_sets_.pop_back();
  }
  std::byte* const block = data() + part.block_at;
  // First the life: a rank of the last communicator may still look at the other counters, which are
  // cleared only once it can see that they are another's.
  const HostCounter life(block);
  part.life = life.read() + 1;
  life.publish(part.life);
  // A line that is written has to come from all who have looked at it: only those that are not 0.
  // Nobody else writes here, so what is read needs no order.
  static constexpr std::array<std::byte, kLineBytes> kZeros{};
  for (Bytes line = 0; line < bytes; line += kLineBytes) {
    const Bytes first = line == 0 ? sizeof(std::uint64_t) : line;
    if (std::memcmp(block + first, kZeros.data(), line + kLineBytes - first) == 0) {
      continue;
    }
    for (Bytes at = first; at < line + kLineBytes; at += sizeof(std::uint64_t)) {
      HostCounter(block + at).publish(0);
    }
  }
  part.ticket = segment_->ticket();
  sizes_[part.block_at] = bytes;
  blocks_taken_ += bytes;
  return part;
}

bool HostMemory::is_half_taken() {
  const std::lock_guard lock(mutex_);
  return blocks_taken_ > options_.blocks_bytes / 2;
}

void HostMemory::put_back(const Part& part) {
  const auto size = sizes_.find(part.block_at);
  free_blocks_[size->second].push_back(part.block_at);
  blocks_taken_ -= size->second;
  sizes_.erase(size);
  if (!options_.shares_rings) {
    free_sets_.push_back(part.set);
  }
}

void HostMemory::give_back(const Part& part) {
  const std::lock_guard lock(mutex_);
  HostCounter(data() + part.block_at).publish(part.life + 1);
  put_back(part);
}

void HostMemory::abandon(const Part& part) {
  if (part.life != 0) {
    tell_failure(part);
    HostCounter(data() + part.block_at).publish(part.life + 1);
  }
}

void HostMemory::tell_failure(const Part& part) {
  if (part.life != 0) {
    HostCounter(data() + part.block_at + HostLayout::kFailed * sizeof(std::uint64_t)).publish(1);
  }
}

void HostMemory::retire(const Part& part, std::shared_ptr<HostUse> use) {
  HostCounter(data() + part.block_at).publish(part.life + 1);
  const std::lock_guard lock(mutex_);
  retired_.push_back({part, std::move(use)});
}

void HostMemory::reuse_retired() {
  for (int looks = 0; looks < kLooksAtRetired && !retired_.empty(); ++looks) {
    Retired next = std::move(retired_.front());
    retired_.pop_front();
    bool all_ended = true;
    for (int peer = 0; peer < static_cast<int>(next.use->peers.areas.size()) && all_ended; ++peer) {
      all_ended = next.use->peers.has_ended(peer);
    }
    if (all_ended) {
      put_back(next.part);
    } else {
      retired_.push_back(std::move(next));
    }
  }
}

HostMemory::Peer* HostMemory::peer_of(const SegmentTicket& ticket) {
  for (std::size_t looks = 0; looks < peers_.size(); ++looks) {
    next_peer_ = next_peer_ < peers_.size() ? next_peer_ : 0;
    Peer& peer = peers_[next_peer_++];
    if (peer.segment->ticket().key == ticket.key) {
      return &peer;
    }
  }
  return nullptr;
}

Result<std::shared_ptr<SharedSegment>> HostMemory::map(const Hold& hold, const Part& part,
                                                       const HostProcess& process) {
  CHECK(hold.mutex() == &mutex_ && hold.owns_lock(), "of this memory");
  if (part.ticket.key == segment_->ticket().key) {
    return segment_;
  }
  if (const Peer* const peer = peer_of(part.ticket)) {
    return peer->segment;
  }
  std::erase_if(peers_, [](const Peer& peer) { return !peer.process.runs(); });
  TUTTI_ASSIGN_OR_RETURN(auto segment, SharedSegment::open(part.ticket));
  peers_.push_back({process, segment, {}});
  return segment;
}

}  // namespace tutti::runners
