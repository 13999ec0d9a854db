// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Packets whose fragments come one by one: the kernel did not join them, or the network mixed or
// lost some. A packet that is not complete when its place is needed is dropped, which the transport
// sees as a loss; until then it does no harm, for no later one has its number (frame.hpp). Not the
// common case, in which all fragments come in one system call: udp_wire.
//
// The fragments of a packet share a path, and a path mostly keeps order: where a later one is here
// and an earlier one is missing for a while, the packet is a partial chunk, and the transport gets
// its header. How long such gaps may last until they close is learnt from those that did (as RACK's
// reordering window, RFC 8985, is adapted to what was reordered): hosts that forward by several
// processors reorder, switches hardly ever.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wire/udp/frame.hpp"

namespace tutti::wire::udp {

class Assembly {
 public:
  /// Up to `packets` incomplete ones. All memory is allocated here.
  explicit Assembly(std::uint32_t packets);

  /// A whole packet's content, valid until the next call; empty: more is missing, or the fragment
  /// makes no sense with those before. `source` names the sender's address and port. `ecn` becomes
  /// true if any fragment was marked.
  std::span<const std::byte> add(transport::TimeNs now, std::uint64_t source, const Prefix& prefix,
                                 std::span<const std::byte> content, bool& ecn);

  /// There are incomplete packets: on_all_added() is of use.
  bool is_waiting() const { return waiting_ > 0; }
  /// When it would have something to tell; kNever.
  transport::TimeNs due_ns() const { return due_ns_; }
  /// All that had arrived by `now` has been added: what lies unread is not missing. Calls
  /// tell(header) once for each packet that is a partial chunk by now. It may become whole all the
  /// same.
  template <class Tell>
  void on_all_added(transport::TimeNs now, Tell&& tell) {
    all_added_ns_ = now;
    if (now < due_ns_) {
      return;
    }
    due_ns_ = transport::kNever;
    for (std::uint32_t at = 0; at < open_.size(); ++at) {
      Open& it = open_[at];
      if (it.gap_ns == transport::kNever || it.is_partial) {
        continue;
      }
      if (it.gap_ns + reordering_ns_ > now) {
        due_ns_ = std::min(due_ns_, it.gap_ns + reordering_ns_);
        continue;
      }
      it.is_partial = true;
      tell(std::span<const std::byte>{memory(at), it.prefix.header_bytes});
    }
  }

  /// Fragments that were given up.
  std::uint64_t dropped() const { return dropped_; }

  /// Bounds of the time that a gap may last.
  static constexpr transport::TimeNs kReorderingNsMin = 100'000;
  static constexpr transport::TimeNs kReorderingNsMax = 20'000'000;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Open {
    std::uint64_t source = 0;
    std::uint64_t here = 0;         ///< Bit i: fragment i.
    std::uint64_t age = 0;          ///< Smaller: opened before.
    Prefix prefix;                  ///< Of any; index without meaning.
    std::uint32_t whole_bytes = 0;  ///< Of the fragments but the last; 0: not known yet.
    std::uint32_t next = kNone;     ///< Of the same bucket, or free.
    transport::TimeNs gap_ns = transport::kNever;  ///< Since when there is one behind the header.
    bool ecn = false;
    bool is_partial = false;
  };
  std::byte* memory(std::size_t index) { return memory_.get() + index * kContentBytesMax; }
  std::uint32_t& bucket(std::uint64_t source);
  std::uint32_t find(std::uint64_t source, const Prefix& prefix);
  std::uint32_t open(std::uint64_t source, const Prefix& prefix);
  void close(std::uint32_t at);
  void note_gap(transport::TimeNs now, Open& it, unsigned index);

  std::vector<Open> open_;
  std::vector<std::uint32_t> buckets_;   ///< The newest of each; a power of two of them.
  std::unique_ptr<std::byte[]> memory_;  ///< Not written before it is used: pages come with need.
  std::uint32_t free_ = 0;
  std::uint64_t opened_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint32_t waiting_ = 0;
  transport::TimeNs all_added_ns_ = 0;
  transport::TimeNs due_ns_ = transport::kNever;
  transport::TimeNs reordering_ns_ = kReorderingNsMin;
};

}  // namespace tutti::wire::udp
