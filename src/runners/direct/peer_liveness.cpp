// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/peer_liveness.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "runners/direct/call_records.hpp"

namespace tutti::runners {
namespace {

/// The word, then the page.
constexpr Bytes kPageAt = SharedSegment::kHeadBytes + 64;

/// What a rank's word comes to; 0: it is in the communicator.
constexpr std::uint64_t kEnded = 1;
constexpr std::uint64_t kLeft = 2;

std::atomic_ref<std::uint64_t> word_of(const SharedSegment& segment) {
  return std::atomic_ref(
      *reinterpret_cast<std::uint64_t*>(segment.data() + SharedSegment::kHeadBytes));
}

}  // namespace

PeerLiveness PeerLiveness::make() {
  PeerLiveness self;
  const Bytes bytes = kPageAt + CallRecords::kPageBytes;
  auto made = SharedSegment::make(bytes);
  if (made.ok() && (*made)->reserve(0, bytes).ok()) {
    self.own_ = std::move(*made);
  }
  return self;
}

PeerLiveness::Identity PeerLiveness::identity() const {
  Identity identity;
  if (own_ != nullptr) {
    identity.ticket = own_->ticket();
  }
  identity.process = HostProcess::self();
  return identity;
}

void PeerLiveness::open(std::span<const Identity> identities, int self) {
  for (int rank = 0; rank < static_cast<int>(identities.size()); ++rank) {
    const Identity& identity = identities[static_cast<std::size_t>(rank)];
    // In another process name space the number means nothing, or somebody else.
    if (rank == self || !identity.process.can_be_looked_at() || !identity.process.runs()) {
      continue;
    }
    Peer peer{.rank = rank, .process = identity.process, .segment = nullptr};
    Status status(ErrorCode::kUnavailable, "it could make none");
    if (identity.ticket.descriptor >= 0) {
      auto opened = SharedSegment::open(identity.ticket);
      status = opened.status();
      peer.segment = opened.ok() ? std::move(*opened) : nullptr;
    }
    if (peer.segment == nullptr) {
      log(LogLevel::kInfo, "direct: no word of rank " + std::to_string(rank) + " (" +
                               status.message() +
                               "): it counts as dead when its process ends, in whatever way");
    }
    peers_.push_back(std::move(peer));
  }
}

void PeerLiveness::close_files() {
  if (own_ != nullptr) {
    own_->close_file();
  }
  for (const Peer& peer : peers_) {
    if (peer.segment != nullptr) {
      peer.segment->close_file();
    }
  }
}

void* PeerLiveness::own_page() const { return own_ == nullptr ? nullptr : own_->data() + kPageAt; }

void* PeerLiveness::page_of(int rank) const {
  const auto peer = std::find_if(peers_.begin(), peers_.end(), [rank](const Peer& other) {
    return other.rank == rank && other.segment != nullptr;
  });
  return peer == peers_.end() ? nullptr : peer->segment->data() + kPageAt;
}

void PeerLiveness::end() {
  if (own_ != nullptr) {
    word_of(*own_).store(kEnded, std::memory_order_release);
  }
}

void PeerLiveness::leave() {
  if (own_ != nullptr) {
    word_of(*own_).store(kLeft, std::memory_order_release);
  }
}

std::uint64_t PeerLiveness::Peer::word() const {
  return segment == nullptr ? 0 : word_of(*segment).load(std::memory_order_acquire);
}

int PeerLiveness::dead_peer() const {
  // The word last: who has ended told it before.
  const auto dead = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.process.runs() && peer.word() == 0;
  });
  return dead == peers_.end() ? -1 : dead->rank;
}

bool PeerLiveness::has_ended(int rank) const {
  return std::none_of(peers_.begin(), peers_.end(), [rank](const Peer& peer) {
    return peer.rank == rank && peer.word() == 0 && peer.process.runs();
  });
}

bool PeerLiveness::is_alone() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.word() == kLeft || !peer.process.runs(); });
}

}  // namespace tutti::runners
