// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/call_records.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "select/shape.hpp"

namespace tutti::runners {
namespace {

/// Entries that a pair keeps: a rank is at most a few calls ahead of a peer that compares them.
constexpr std::size_t kDepth = 8;
/// In place of a number, while the rest is written.
constexpr std::uint64_t kBeingWritten = UINT64_MAX;

using Number = std::atomic<std::uint64_t>;
static_assert(Number::is_always_lock_free && sizeof(Number) == sizeof(std::uint64_t));

}  // namespace

std::uint64_t CallRecords::Entry::form_of(const Call& call, std::uint32_t warps,
                                          std::uint64_t rounds) {
  const int root = select::is_rooted(call.collective) ? call.root : 0;
  return static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(root) << 8 |
         static_cast<std::uint64_t>(warps) << 16 | rounds << 32;
}

std::string CallRecords::Entry::text() const {
  const auto collective = static_cast<select::Collective>(form & 0xff);
  return std::string(select::to_string(collective)) +
         (select::is_rooted(collective) ? " of root " + std::to_string(form >> 8 & 0xff) : "") +
         " (sends " + std::to_string(send_bytes) + " bytes, receives " +
         std::to_string(recv_bytes) + ")";
}

struct CallRecords::Page {
  /// Relaxed but for the number: it is stored last and looked at before and after the rest.
  struct Slot {
    Number number;
    Number form;
    Number send_bytes;
    Number recv_bytes;
  };
  alignas(64) std::array<Number, kRanksMax> completed;
  alignas(64) Number failed;
  alignas(64) std::array<std::array<Slot, kDepth>, kRanksMax> slots;

  /// Of the last call with a rank that was written in whole; 0: there was none.
  std::uint64_t last_number(int rank) const {
    std::uint64_t last = 0;
    for (const Slot& slot : slots[static_cast<std::size_t>(rank)]) {
      const std::uint64_t number = slot.number.load(std::memory_order_acquire);
      last = number == kBeingWritten ? last : std::max(last, number);
    }
    return last;
  }
};

const Bytes CallRecords::kPageBytes = sizeof(CallRecords::Page);

void CallRecords::set_own(int rank, void* page) {
  self_ = rank;
  own_ = static_cast<Page*>(page);
}

void CallRecords::set_peer(int rank, void* page) {
  peers_[static_cast<std::size_t>(rank)] = static_cast<const Page*>(page);
}

void CallRecords::write(int peer, const Entry& entry) {
  if (own_ == nullptr) {
    return;
  }
  Page::Slot& slot = own_->slots[static_cast<std::size_t>(peer)][entry.number % kDepth];
  slot.number.store(kBeingWritten, std::memory_order_relaxed);
  slot.form.store(entry.form, std::memory_order_release);
  slot.send_bytes.store(entry.send_bytes, std::memory_order_release);
  slot.recv_bytes.store(entry.recv_bytes, std::memory_order_release);
  slot.number.store(entry.number, std::memory_order_release);
}

CallRecords::Found CallRecords::find(int peer, std::uint64_t number, Entry* entry) const {
  const Page* const page = peers_[static_cast<std::size_t>(peer)];
  if (page == nullptr) {
    return Found::kLost;
  }
  const Page::Slot& slot = page->slots[static_cast<std::size_t>(self_)][number % kDepth];
  const std::uint64_t found = slot.number.load(std::memory_order_acquire);
  *entry = {.number = number,
            .form = slot.form.load(std::memory_order_acquire),
            .send_bytes = slot.send_bytes.load(std::memory_order_acquire),
            .recv_bytes = slot.recv_bytes.load(std::memory_order_acquire)};
  if (found == kBeingWritten) {
    return Found::kBusy;
  }
  if (found != number) {
    return found < number ? Found::kBehind : Found::kLost;
  }
  return slot.number.load(std::memory_order_relaxed) == number ? Found::kEntry : Found::kLost;
}

std::uint64_t CallRecords::calls_behind(int peer) const {
  const Page* const page = peers_[static_cast<std::size_t>(peer)];
  if (own_ == nullptr || page == nullptr) {
    return 0;
  }
  const std::uint64_t own = own_->last_number(peer);
  const std::uint64_t theirs = page->last_number(self_);
  return own - std::min(own, theirs);
}

std::string CallRecords::who_is_behind() const {
  std::uint64_t most = 1;
  std::vector<int> ranks;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    const std::uint64_t calls = peer == self_ ? 0 : calls_behind(peer);
    if (calls > most) {
      most = calls;
      ranks.clear();
    }
    if (calls == most) {
      ranks.push_back(peer);
    }
  }
  std::string text;
  for (const int rank : ranks) {
    text += (text.empty() ? (ranks.size() > 1 ? "ranks " : "rank ") : ", ") + std::to_string(rank);
  }
  return ranks.empty() ? text
                       : text + (ranks.size() > 1 ? " are " : " is ") + std::to_string(most) +
                             (most > 1 ? " calls behind" : " call behind");
}

void CallRecords::set_completed(int peer, std::uint64_t epoch) {
  if (own_ != nullptr) {
    own_->completed[static_cast<std::size_t>(peer)].store(epoch, std::memory_order_release);
  }
}

bool CallRecords::has_completed(int peer, std::uint64_t epoch) const {
  const Page* const page = peers_[static_cast<std::size_t>(peer)];
  return page != nullptr && page->failed.load(std::memory_order_acquire) == 0 &&
         page->completed[static_cast<std::size_t>(self_)].load(std::memory_order_acquire) >= epoch;
}

void CallRecords::set_failed() {
  if (own_ != nullptr) {
    own_->failed.store(1, std::memory_order_release);
  }
}

int CallRecords::failed_peer() const {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer] != nullptr && peers_[peer]->failed.load(std::memory_order_acquire) != 0) {
      return static_cast<int>(peer);
    }
  }
  return -1;
}

}  // namespace tutti::runners
