// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/split_connection.hpp"

#include <algorithm>
#include <utility>

namespace tutti::net {

void SharedReceives::open(std::uint64_t slot, const transport::SplitReceive& part) {
  // Each releases the close before it: who sees a part of this one sees that the last one is gone.
  Entry& entry = at(slot);
  entry.data.store(part.data, std::memory_order_release);
  entry.capacity_bytes.store(part.capacity_bytes, std::memory_order_release);
  entry.context.store(part.context, std::memory_order_release);
  entry.is_found.store(false, std::memory_order_relaxed);
  entry.slot.store(slot, std::memory_order_release);
}

/// Sequentially consistent, as find(): either that sees the close, or this sees that it found.
bool SharedReceives::close(std::uint64_t slot) {
  Entry& entry = at(slot);
  entry.slot.store(kNone);
  return entry.is_found.load();
}

bool SharedReceives::find(std::uint32_t slot, transport::SplitReceive& out) const {
  const Entry& entry = at(slot);
  const std::uint64_t number = entry.slot.load();
  if (number == kNone || static_cast<std::uint32_t>(number) != slot) {
    return false;
  }
  // Written once for each receive: the sub-connections do not take the cache line from each other
  // for every packet.
  if (!entry.is_found.load(std::memory_order_acquire)) {
    entry.is_found.store(true);
  }
  out.slot = number;
  out.data = entry.data.load(std::memory_order_acquire);
  out.capacity_bytes = entry.capacity_bytes.load(std::memory_order_acquire);
  out.context = entry.context.load(std::memory_order_acquire);
  return entry.slot.load() == number;
}

bool SplitConnection::Source::find(std::uint32_t slot, transport::SplitReceive& out) const {
  transport::SplitReceive whole;
  if (!split_.receives.find(slot, whole)) {
    return false;
  }
  out = split_.layout.other_part(whole, sub_);
  return true;
}

SplitConnection::SplitConnection(std::vector<Engine*> all, Bytes unit_bytes)
    : engines(std::move(all)), layout(static_cast<std::uint32_t>(engines.size()), unit_bytes) {
  for (std::uint32_t sub = 0; sub < engines.size(); ++sub) {
    sources.emplace_back(*this, sub);
  }
}

std::uint32_t SplitConnection::index_of(const Engine* engine) const {
  return static_cast<std::uint32_t>(std::find(engines.begin(), engines.end(), engine) -
                                    engines.begin());
}

bool SplitConnection::fail(transport::Outcome why, bool is_gone) {
  if (is_failing.exchange(true)) {
    return false;
  }
  outcome = why;
  is_peer_gone = is_gone;
  has_failed = true;
  return true;
}

}  // namespace tutti::net
