// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The receiver's account of chunks, and what it tells the sender of it. Each chunk yields an echo
// (path, mark, stamp, turnaround); several echoes share a packet. The bits of the chunks beyond the
// first hole are told one word of 64 per packet, in turn, so that any packet may be lost and every
// word is told again soon. Echo density is what spraying lives on: a path that is not echoed is a
// path that is not known. Told at once: the first chunk, duplicates, what is asked for, holes and
// marks where all was well, and each AcknowledgementOptions::ack_bytes; the rest later
// (on_chunk()). The sender's side of it: flight.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/packet.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class Acknowledger {
 public:
  /// `window_chunks`: a power of two, at least 64.
  Acknowledger(const AcknowledgementOptions& options, std::uint32_t window_chunks,
               std::uint64_t first_chunk);

  enum class Kind : std::uint8_t { kNew, kDuplicate, kOutside };

  /// Reference for expand().
  std::uint64_t cumulative() const { return cumulative_; }
  /// Of a chunk that came; changes nothing.
  Kind classify(std::uint64_t chunk) const;

  struct Arrived {
    std::uint64_t chunk = 0;
    std::uint32_t bytes = 0;
    PathId path = 0;
    std::uint32_t stamp = 0;
    std::uint8_t echo_flags = 0;
    bool ask = false;  ///< The sender asks for an answer at once.
    /// A whole short message: one that came in order is told of within lazy_ns.
    bool may_wait = false;
    TimeNs waited_ns = 0;  ///< In this host, until now.
  };
  /// Takes the account of a chunk of any kind but kOutside; kEchoTrimmed: its header alone came.
  void on_chunk(TimeNs now, Kind kind, const Arrived& arrived);
  /// A peer that hears nothing may ask: the next packet is due.
  void request() { is_due_ = true; }

  /// When a packet is due: 0 at once, kNever if there is nothing to say.
  TimeNs due_ns() const { return is_due_ ? 0 : due_ns_; }
  /// The next packet; due_ns() changes.
  void fill(TimeNs now, AckHeader& out);

  /// The time since when the first hole is the first hole; kNever: there is none.
  TimeNs hole_since_ns() const { return highest_ > cumulative_ ? hole_since_ns_ : kNever; }
  std::uint64_t highest() const { return highest_; }
  Bytes received_bytes() const { return received_bytes_; }
  /// Echoes that have not been told.
  std::uint32_t pending() const { return pending_count_; }

 private:
  struct Pending {
    std::uint64_t chunk = 0;
    TimeNs taken_ns = 0;   ///< When it was handled.
    TimeNs waited_ns = 0;  ///< From its reception by the host until then.
    std::uint32_t stamp = 0;
    PathId path = 0;
    std::uint8_t flags = 0;
  };
  static constexpr std::uint32_t kPendingMax = 64;  ///< Power of two. The oldest echo gives way.

  void advance(TimeNs now);

  AcknowledgementOptions options_;
  std::vector<std::uint64_t> words_;  ///< Bit n of the ring: chunk n is here; zeros before.
  std::uint64_t mask_;                ///< words_.size() - 1
  std::uint64_t cumulative_;          ///< All before are here.
  std::uint64_t highest_;             ///< One past the newest that is here.
  std::uint64_t told_word_ = 0;       ///< The word of bits told last.
  std::uint64_t held_ = 0;            ///< Chunks beyond the first hole.
  Bytes received_bytes_ = 0;
  Bytes unacknowledged_bytes_ = 0;
  TimeNs due_ns_ = kNever;  ///< Of what waits.
  TimeNs hole_since_ns_ = kNever;
  std::vector<Pending> pending_;
  std::uint32_t pending_first_ = 0;
  std::uint32_t pending_count_ = 0;
  bool is_due_ = false;
  bool said_anything_ = false;
};

}  // namespace tutti::transport
