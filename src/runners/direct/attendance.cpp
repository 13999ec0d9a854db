// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/attendance.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "runners/direct/call_board.hpp"

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

Attendance Attendance::make() {
  Attendance self;
  const Bytes bytes = kPageAt + CallBoard::kPageBytes;
  auto made = SharedSegment::make(bytes);
  if (made.ok() && (*made)->reserve(0, bytes).ok()) {
    self.own_ = std::move(*made);
  }
  return self;
}

Attendance::Card Attendance::card() const {
  Card card;
  if (own_ != nullptr) {
    card.ticket = own_->ticket();
  }
  card.process = HostProcess::self();
  return card;
}

void Attendance::open(std::span<const Card> cards, int self) {
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    // In another process name space the number means nothing, or somebody else.
    if (rank == self || !card.process.can_be_looked_at() || !card.process.runs()) {
      continue;
    }
    Peer peer{.rank = rank, .process = card.process, .segment = nullptr};
    Status status(ErrorCode::kUnavailable, "it could make none");
    if (card.ticket.descriptor >= 0) {
      auto opened = SharedSegment::open(card.ticket);
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

void Attendance::close_files() {
  if (own_ != nullptr) {
    own_->close_file();
  }
  for (const Peer& peer : peers_) {
    if (peer.segment != nullptr) {
      peer.segment->close_file();
    }
  }
}

void* Attendance::own_page() const { return own_ == nullptr ? nullptr : own_->data() + kPageAt; }

void* Attendance::page_of(int rank) const {
  const auto peer = std::find_if(peers_.begin(), peers_.end(), [rank](const Peer& other) {
    return other.rank == rank && other.segment != nullptr;
  });
  return peer == peers_.end() ? nullptr : peer->segment->data() + kPageAt;
}

void Attendance::end() {
  if (own_ != nullptr) {
    word_of(*own_).store(kEnded, std::memory_order_release);
  }
}

void Attendance::leave() {
  if (own_ != nullptr) {
    word_of(*own_).store(kLeft, std::memory_order_release);
  }
}

std::uint64_t Attendance::Peer::word() const {
  return segment == nullptr ? 0 : word_of(*segment).load(std::memory_order_acquire);
}

int Attendance::dead_peer() const {
  // The word last: who has ended told it before.
  const auto dead = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.process.runs() && peer.word() == 0;
  });
  return dead == peers_.end() ? -1 : dead->rank;
}

bool Attendance::has_ended(int rank) const {
  return std::none_of(peers_.begin(), peers_.end(), [rank](const Peer& peer) {
    return peer.rank == rank && peer.word() == 0 && peer.process.runs();
  });
}

bool Attendance::is_alone() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.word() == kLeft || !peer.process.runs(); });
}

}  // namespace tutti::runners
