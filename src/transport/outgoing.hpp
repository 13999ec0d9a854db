// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The sender's messages: posted sends, the receives that the peer advertised, and which goes into
// which: of each tag, the n-th send into the n-th receive. A matched send is cut into chunks in
// the order of matching. It ends when all its chunks are acknowledged. Not the chunks themselves:
// flight.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/packet.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

/// An intrusive list of table positions.
struct IndexList {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t head = kNone;
  std::uint32_t tail = kNone;
};

struct Outgoing {
  Tag tag = 0;
  const std::byte* data = nullptr;
  Stride stride;
  Bytes bytes = 0;        ///< Of the message; less than posted once it is cancelled or too long.
  Bytes whole_bytes = 0;  ///< What the receive must hold.
  RemoteMemory remote;    ///< Same, once it is matched.
  Bytes next_offset = 0;  ///< Cut so far.
  std::uint64_t context = 0;
  std::uint64_t age = 0;  ///< Sends posted before it.
  std::uint32_t slot = 0;
  std::uint32_t open_chunks = 0;  ///< Cut and not acknowledged.
  std::uint32_t next = IndexList::kNone;
  std::uint32_t previous = IndexList::kNone;
  PathId path = kNoPath;  ///< Of a message that stays on one path.
  std::uint8_t end_flags = kFlagEnd;
  Outcome outcome = Outcome::kOk;
  enum class State : std::uint8_t {
    kFree,
    kUnmatched,
    kCutting,
    kCut,
    kEnded
  } state = State::kFree;
  bool has_event = true;  ///< false: it only tells the peer that a withdrawn receive has ended.
  bool tells_match = false;
  bool is_patient = false;
};

class OutgoingTable {
 public:
  OutgoingTable(std::uint32_t sends_max, std::uint32_t adverts_max, std::uint64_t first_advert);

  Outgoing& at(std::uint32_t index) { return sends_[index]; }
  std::uint32_t posted() const { return posted_; }
  bool is_full() const { return posted_ >= sends_max_; }

  /// Not if is_full(). Matched at once if a receive waits, or if it names one.
  void post(const SendRequest& request);

  /// All adverts before this are known: what the peer is told.
  std::uint64_t known_adverts() const { return next_advert_; }
  /// False: it is known already, or must wait for one before it (packets overtake each other), or
  /// there is no room, which a peer that keeps the agreed limit never causes.
  bool on_advert(std::uint64_t number, const Advert& advert);

  /// The send to cut from; IndexList::kNone: none.
  std::uint32_t cutting() const { return cutting_.head; }
  /// Bytes not yet cut of all matched sends.
  Bytes backlog_bytes() const { return backlog_bytes_; }
  /// Takes up to `bytes` off; the send leaves the list when nothing is left.
  struct Piece {
    Bytes offset = 0;
    std::uint32_t bytes = 0;
    bool is_last = false;
  };
  Piece cut(std::uint32_t index, std::uint32_t bytes);

  /// The newest send of this context that can still be stopped; kNone.
  std::uint32_t find(std::uint64_t context) const;
  /// An unmatched send ends (true). A matched one is cut off where it stands; its end comes with
  /// its last acknowledgement.
  bool cancel(std::uint32_t index);
  /// One chunk less is open; true: with it the send has ended.
  bool on_acknowledged(std::uint32_t index);
  /// Ends the unmatched sends, or all.
  void end_unmatched(Outcome outcome);
  void end_all(Outcome outcome);
  /// Fills the event of a match that is to be told; false: there is none.
  bool take_matched(Event& event);
  /// Fills the event of a send that has ended; false: there is none.
  bool take_finished(Event& event);
  /// Some send is matched and not acknowledged.
  bool has_matched() const { return matched_ > 0; }

 private:
  struct Waiting {
    Tag tag = 0;
    Bytes capacity_bytes = 0;
    RemoteMemory remote;
    bool is_open = false;
    bool is_early = false;  ///< Came before the one before it, and waits for it.
  };

  struct Match {
    std::uint64_t context = 0;
    std::uint64_t slot = 0;
  };

  void take_advert(const Advert& advert);
  void match(std::uint32_t index, std::uint64_t advert);
  void begin(std::uint32_t index, std::uint64_t slot);
  void end(std::uint32_t index);
  std::uint32_t allocate();
  void append(IndexList& list, std::uint32_t index);
  void remove(IndexList& list, std::uint32_t index);
  void pass_used_adverts();

  std::vector<Outgoing> sends_;
  std::uint32_t sends_max_;
  std::uint32_t posted_ = 0;  ///< Their event has not been taken.
  std::uint32_t matched_ = 0;
  std::uint64_t next_age_ = 0;
  IndexList free_;
  IndexList unmatched_;
  IndexList cutting_;
  IndexList ended_;
  Bytes backlog_bytes_ = 0;
  std::vector<Waiting> adverts_;  ///< Ring; power of two.
  std::uint64_t first_open_advert_;
  std::uint64_t next_advert_;
  std::vector<Match> matches_;  ///< Ring: those that are to be told.
  std::uint64_t first_match_ = 0;
  std::uint64_t next_match_ = 0;
};

// What each chunk passes, here: calls from one place, where the compiler puts them.

inline OutgoingTable::Piece OutgoingTable::cut(std::uint32_t index, std::uint32_t bytes) {
  Outgoing& it = sends_[index];
  const Bytes left = it.bytes - it.next_offset;
  Piece piece;
  piece.offset = it.next_offset;
  piece.bytes = static_cast<std::uint32_t>(
      std::min({left, Bytes{bytes}, it.stride.run_bytes(it.next_offset)}));
  piece.is_last = piece.bytes == left;
  it.next_offset += piece.bytes;
  ++it.open_chunks;
  backlog_bytes_ -= piece.bytes;
  if (piece.is_last) {
    remove(cutting_, index);
    it.state = Outgoing::State::kCut;
  }
  return piece;
}

inline bool OutgoingTable::on_acknowledged(std::uint32_t index) {
  Outgoing& it = sends_[index];
  if (--it.open_chunks > 0 || it.state != Outgoing::State::kCut) {
    return false;
  }
  end(index);
  return true;
}

}  // namespace tutti::transport
