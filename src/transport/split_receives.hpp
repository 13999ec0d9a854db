// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The receives of split messages, as seen by every sub-connection but the first: they are posted
// and advertised on sub-connection 0 (split_layout.hpp). A packet that arrives here names its
// receive by the number of the advert there. The buffer's address is looked up in a source for each
// packet, so nothing is written any more once the source says that the receive has ended. A receive
// that gets a short message costs nothing here, and no packet announces anything twice.
// incoming.hpp has the receives that are posted on the connection itself.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/packet.hpp"
#include "transport/reassembly.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

/// This connection's share of one receive.
struct SplitReceive {
  std::byte* data = nullptr;  ///< Null: bytes are counted and dropped.
  Bytes capacity_bytes = 0;
  Stride stride = {};
  std::uint64_t context = 0;     ///< Comes back in the event.
  std::uint64_t slot = kNoSlot;  ///< The receive's whole number, from the source.
};

/// Knows the receives. Called by the thread that drives the endpoint.
class SplitReceiveSource {
 public:
  virtual ~SplitReceiveSource() = default;
  /// By the low 32 bits of its number, which is all that packets have: only the source knows how
  /// many receives there were. False: there is no such receive, or it has ended.
  virtual bool find(std::uint32_t slot, SplitReceive& out) const = 0;
};

class SplitReceiveTable {
 public:
  /// `parts_max`: receives between the oldest open one and the newest; rounded up to a power of
  /// two.
  SplitReceiveTable(const SplitReceiveSource& source, std::uint32_t parts_max);

  /// False: names no receive, or bytes outside of it. An end that says "cancelled" or "too long"
  /// belongs to the connection that has the receive, and is refused.
  bool on_data(const DataHeader& data, std::uint8_t flags, std::span<const std::byte> payload);
  /// Where on_data would copy the payload to; null: nowhere.
  std::byte* place(const DataHeader& data) const;
  /// Waits for it, if it has not ended.
  void expect(std::uint32_t slot);
  /// Of those that have begun, or are waited for, the one that has waited longest: since when, as
  /// far as earlier looks tell. `data_ns`: when data of any came last. `now`: there is none.
  TimeNs look(TimeNs now, TimeNs data_ns);
  /// What is open is dropped without an event: its receive is the other connection's to end.
  void end_all();
  /// Fills the event of a receive whose share is complete; false: there is none.
  bool take_finished(Event& event);

  /// Receives that are begun, or waited for, and not complete.
  std::uint32_t open() const { return open_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Entry {
    Entry() = default;
    explicit Entry(const SplitReceive& found)
        : part(found), bytes{found.data, found.stride, found.capacity_bytes} {}

    SplitReceive part;  ///< Also of one that is complete: its number is remembered.
    Reassembly bytes;
    bool is_open = false;
    std::uint32_t next = kNone;  ///< Among the finished.
  };

  const Entry& at(std::uint32_t slot) const { return entries_[slot & (entries_.size() - 1)]; }
  Entry& at(std::uint32_t slot) { return entries_[slot & (entries_.size() - 1)]; }
  Entry* find_or_open(std::uint32_t slot);
  void drop_if_gone(Entry& entry);

  const SplitReceiveSource& source_;
  std::vector<Entry> entries_;  ///< Ring by number; power of two.
  std::uint32_t open_ = 0;
  std::uint32_t finished_head_ = kNone;
  std::uint32_t finished_tail_ = kNone;
};

}  // namespace tutti::transport
