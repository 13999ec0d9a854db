// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/split_receives.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti::transport {

SplitReceiveTable::SplitReceiveTable(const SplitReceiveSource& source, std::uint32_t parts_max)
    : source_(source), entries_(std::bit_ceil(std::max(parts_max, 1U))) {}

/// Drops an entry whose receive has ended before its share was complete: the message was not split.
void SplitReceiveTable::drop_if_gone(Entry& entry) {
  SplitReceive part;
  if (entry.is_open && (!source_.find(static_cast<std::uint32_t>(entry.part.slot), part) ||
                        part.slot != entry.part.slot)) {
    entry = Entry{};
    --open_;
  }
}

/// Null: there is none, or its share is complete, or its place is still in use.
SplitReceiveTable::Entry* SplitReceiveTable::find_or_open(std::uint32_t slot) {
  Entry& entry = at(slot);
  drop_if_gone(entry);
  SplitReceive part;
  if (!source_.find(slot, part)) {
    return nullptr;
  }
  if (entry.part.slot == part.slot) {
    return entry.is_open ? &entry : nullptr;
  }
  if (entry.is_open || entry.bytes.has_end) {
    return nullptr;
  }
  entry = Entry(part);
  entry.is_open = true;
  ++open_;
  return &entry;
}

bool SplitReceiveTable::on_data(const DataHeader& data, std::uint8_t flags,
                                std::span<const std::byte> payload) {
  Entry* const entry = find_or_open(data.slot);
  if (entry == nullptr || (flags & (kFlagCancelled | kFlagTruncated)) != 0 ||
      !entry->bytes.on_data(data, (flags & kFlagEnd) != 0, payload)) {
    return false;
  }
  if (entry->bytes.is_complete()) {
    entry->is_open = false;
    --open_;
    const auto index = static_cast<std::uint32_t>(entry - entries_.data());
    (finished_tail_ == kNone ? finished_head_ : entries_[finished_tail_].next) = index;
    finished_tail_ = index;
  }
  return true;
}

std::byte* SplitReceiveTable::place(const DataHeader& data) const {
  SplitReceive part;
  if (!source_.find(data.slot, part)) {
    return nullptr;
  }
  const Entry& entry = at(data.slot);
  if (entry.part.slot == part.slot) {
    return entry.is_open ? entry.bytes.place(data) : nullptr;
  }
  return entry.is_open ? nullptr : Entry(part).bytes.place(data);
}

void SplitReceiveTable::expect(std::uint32_t slot) { (void)find_or_open(slot); }

TimeNs SplitReceiveTable::look(TimeNs now, TimeNs data_ns) {
  TimeNs since_ns = now;
  for (Entry& entry : entries_) {
    drop_if_gone(entry);
    if (entry.is_open) {
      const TimeNs own_ns = entry.bytes.look(now);
      since_ns = std::min(since_ns, entry.bytes.has_begun() ? own_ns : std::max(own_ns, data_ns));
    }
  }
  return since_ns;
}

void SplitReceiveTable::end_all() {
  for (Entry& entry : entries_) {
    entry.is_open = false;
  }
  open_ = 0;
}

bool SplitReceiveTable::take_finished(Event& event) {
  if (finished_head_ == kNone) {
    return false;
  }
  Entry& entry = entries_[finished_head_];
  event = Event{};
  event.kind = EventKind::kReceiveDone;
  event.part_count = 1;
  event.context = entry.part.context;
  event.part_bytes = {entry.bytes.total_bytes};
  finished_head_ = std::exchange(entry.next, kNone);
  if (finished_head_ == kNone) {
    finished_tail_ = kNone;
  }
  entry.bytes.has_end = false;  // Its place can be taken; its number is remembered.
  return true;
}

}  // namespace tutti::transport
