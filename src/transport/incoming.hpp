// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The receiver's messages: posted receives, what the peer must still be told of them,
// and the bytes as they come in any order. Each part of a receive is one slot with a number of its
// own; a chunk names slot and offset, so its bytes go where they belong at once. Slots are a ring:
// they are reused in the order of posting. Duplicates do not come here: acknowledgement.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/packet.hpp"
#include "transport/reassembly.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class IncomingTable {
 public:
  IncomingTable(std::uint32_t parts_max, std::uint64_t first_advert);

  bool has_room(std::uint32_t parts) const;
  void post(const ReceiveRequest& request);

  enum class Placed : std::uint8_t {
    kNo,  ///< Names no open slot, or bytes outside of it.
    kYes,
    kFinished,  ///< ... and its receive has ended: take_finished().
  };
  Placed on_data(const DataHeader& data, std::uint8_t flags, std::span<const std::byte> payload);
  /// Where on_data would copy the payload to; null: nowhere.
  std::byte* place(const DataHeader& data) const;
  /// Ends all open receives.
  void end_all(Outcome outcome);
  /// Fills the event of a receive that has ended; false: there is none.
  bool take_finished(Event& event);

  /// The newest open receive of this context; UINT32_MAX: none.
  std::uint32_t find(std::uint64_t context) const;
  /// Withdraws what can be withdrawn; false: no room to say so now.
  bool withdraw(std::uint32_t request);

  /// Of those for which the peer has something to send, the one that has waited longest: since
  /// when, as far as earlier looks tell. `data_ns`: when data of any came last. `now`: there is
  /// none.
  TimeNs look(TimeNs now, TimeNs data_ns);

  /// What the peer must be told.
  bool has_untold() const { return told_ != next_; }
  bool has_unknown() const { return known_ != next_; }
  /// The peer was told of enough open receives, and what it was not told of fits into one packet.
  bool can_wait() const;
  std::uint64_t known() const { return known_; }
  /// The peer knows all adverts before `number`; true: news.
  bool on_known(std::uint64_t number);
  void tell_again() { told_ = known_; }
  void fill(AdvertHeader& out);

  std::uint32_t open_requests() const { return open_requests_; }

 private:
  static constexpr std::uint32_t kNoRequest = 0xffffffff;

  struct Slot {
    Reassembly bytes;
    Bytes whole_bytes = 0;  ///< What the peer is told.
    RemoteMemory remote;    ///< Same.
    Tag tag = 0;
    std::uint32_t request = kNoRequest;  ///< kNoRequest: has ended.
    std::uint8_t part = 0;
    bool is_withdrawal = false;
    bool is_withdrawn = false;    ///< The peer has to say what became of it.
    std::uint32_t withdrawn = 0;  ///< The slot that a withdrawal names.
  };
  struct Request {
    std::uint64_t context = 0;
    std::uint64_t first_slot = 0;
    std::uint8_t part_count = 0;
    std::uint8_t open_parts = 0;
    Outcome outcome = Outcome::kOk;
    std::array<Bytes, kReceivePartsMax> bytes{};
    std::uint32_t next = kNoRequest;  ///< In the free list or among the finished.
  };

  Slot& slot(std::uint64_t number) { return slots_[number & (slots_.size() - 1)]; }
  const Slot& slot(std::uint64_t number) const { return slots_[number & (slots_.size() - 1)]; }
  bool is_open(std::uint64_t number) const;
  bool end_part(std::uint64_t number, Bytes bytes, Outcome outcome);
  void pass_ended();

  std::vector<Slot> slots_;  ///< Ring; power of two.
  std::uint64_t first_;      ///< Oldest slot whose place is in use.
  std::uint64_t next_;
  std::uint64_t told_;   ///< Adverts before it were sent at least once since tell_again().
  std::uint64_t known_;  ///< Adverts before it are known to the peer.
  std::vector<Request> requests_;
  std::uint32_t free_ = kNoRequest;
  std::uint32_t finished_head_ = kNoRequest;
  std::uint32_t finished_tail_ = kNoRequest;
  std::uint32_t open_requests_ = 0;
  std::uint32_t open_parts_ = 0;       ///< Of all requests.
  std::uint64_t withdrawals_end_ = 0;  ///< One past the newest slot that is a withdrawal.
  bool has_memory_ = false;            ///< Of some receive the peer is told where it is.
};

}  // namespace tutti::transport
