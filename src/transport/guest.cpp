// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/guest.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::transport {

GuestTable::GuestTable(const GuestSource& source, std::uint32_t parts_max)
    : source_(source), entries_(std::bit_ceil(std::max(parts_max, 1U))) {}

bool GuestTable::fits(const Entry& entry, const DataHeader& data) {
  const Bytes end = data.offset + data.payload_bytes;
  return end <= entry.part.capacity_bytes && (!entry.has_end || end <= entry.total_bytes) &&
         data.payload_bytes <= entry.part.stride.run_bytes(data.offset);
}

/// Its receive has ended before its share was complete: it was another lane's business alone.
void GuestTable::drop_if_gone(Entry& entry) {
  GuestPart part;
  if (entry.is_open && (!source_.find(static_cast<std::uint32_t>(entry.part.slot), part) ||
                        part.slot != entry.part.slot)) {
    entry = Entry{};
    --open_;
  }
}

/// Null: there is none, or its share is complete, or its place is still in use.
GuestTable::Entry* GuestTable::find_or_open(std::uint32_t slot) {
  Entry& entry = at(slot);
  drop_if_gone(entry);
  GuestPart part;
  if (!source_.find(slot, part)) {
    return nullptr;
  }
  if (entry.part.slot == part.slot) {
    return entry.is_open ? &entry : nullptr;
  }
  if (entry.is_open || entry.has_end) {
    return nullptr;
  }
  entry = Entry{};
  entry.part = part;
  entry.is_open = true;
  ++open_;
  return &entry;
}

bool GuestTable::on_data(const DataHeader& data, std::uint8_t flags,
                         std::span<const std::byte> payload) {
  Entry* const entry = find_or_open(data.slot);
  const bool is_end = (flags & kFlagEnd) != 0;
  const Bytes end = data.offset + data.payload_bytes;
  if (entry == nullptr || !fits(*entry, data) || (flags & (kFlagCancelled | kFlagTruncated)) != 0 ||
      (is_end && entry->has_end) || (is_end && end < entry->received_bytes) ||
      (!payload.empty() && payload.size() != data.payload_bytes)) {
    return false;
  }
  if (entry->part.data != nullptr && !payload.empty()) {
    std::memcpy(entry->part.data + entry->part.stride.at(data.offset), payload.data(),
                payload.size());
  }
  entry->received_bytes += data.payload_bytes;
  if (is_end) {
    entry->has_end = true;
    entry->total_bytes = end;
  }
  if (entry->has_end && entry->received_bytes == entry->total_bytes) {
    entry->is_open = false;
    --open_;
    const auto index = static_cast<std::uint32_t>(entry - entries_.data());
    (finished_tail_ == kNone ? finished_head_ : entries_[finished_tail_].next) = index;
    finished_tail_ = index;
  }
  return true;
}

std::byte* GuestTable::place(const DataHeader& data) const {
  const Entry& entry = at(data.slot);
  Entry fresh;
  if (!source_.find(data.slot, fresh.part)) {
    return nullptr;
  }
  const bool is_known = entry.part.slot == fresh.part.slot;
  const Entry& it = is_known ? entry : fresh;
  return entry.is_open == is_known && it.part.data != nullptr && fits(it, data)
             ? it.part.data + it.part.stride.at(data.offset)
             : nullptr;
}

void GuestTable::expect(std::uint32_t slot) { (void)find_or_open(slot); }

void GuestTable::end_all() {
  for (Entry& entry : entries_) {
    entry.is_open = false;
  }
  open_ = 0;
}

bool GuestTable::take_finished(Event& event) {
  if (finished_head_ == kNone) {
    return false;
  }
  Entry& entry = entries_[finished_head_];
  event = Event{};
  event.kind = EventKind::kReceiveDone;
  event.part_count = 1;
  event.context = entry.part.context;
  event.part_bytes = {entry.total_bytes};
  finished_head_ = std::exchange(entry.next, kNone);
  if (finished_head_ == kNone) {
    finished_tail_ = kNone;
  }
  entry.has_end = false;  // Its place can be taken; its number is remembered.
  return true;
}

}  // namespace tutti::transport
