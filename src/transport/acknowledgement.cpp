// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/acknowledgement.hpp"

#include <algorithm>
#include <bit>

namespace tutti::transport {

Acknowledger::Acknowledger(const AcknowledgementOptions& options, std::uint32_t window_chunks,
                           std::uint64_t first_chunk)
    // One word more than the window in any position of it, so that words never meet.
    : options_(options),
      words_(std::max(window_chunks / 64 * 2, 2U)),
      mask_(words_.size() - 1),
      cumulative_(first_chunk),
      highest_(first_chunk),
      told_word_(first_chunk / 64),
      pending_(kPendingMax) {}

Acknowledger::Kind Acknowledger::classify(std::uint64_t chunk) const {
  if (chunk < cumulative_) {
    return Kind::kDuplicate;
  }
  if (chunk - cumulative_ >= words_.size() * 32) {
    return Kind::kOutside;
  }
  return (words_[(chunk / 64) & mask_] >> (chunk % 64) & 1) != 0 ? Kind::kDuplicate : Kind::kNew;
}

void Acknowledger::on_chunk(TimeNs now, Kind kind, const Arrived& arrived) {
  std::uint8_t flags = arrived.echo_flags;
  const bool is_trimmed = (flags & kEchoTrimmed) != 0;
  const bool had_hole = highest_ > cumulative_;
  if (kind == Kind::kDuplicate) {
    flags |= kEchoDuplicate;
  } else if (!is_trimmed) {
    words_[(arrived.chunk / 64) & mask_] |= 1ULL << (arrived.chunk % 64);
    ++held_;
    received_bytes_ += arrived.bytes;
    highest_ = std::max(highest_, arrived.chunk + 1);
    if (arrived.chunk == cumulative_) {
      advance(now);
    } else if (hole_since_ns_ == kNever) {
      hole_since_ns_ = now;
    }
  }
  const bool may_wait = arrived.may_wait && options_.lazy_ns != 0;
  due_ns_ = std::min(due_ns_, now + (may_wait ? options_.lazy_ns : options_.ack_delay_ns));
  unacknowledged_bytes_ += arrived.bytes;
  const bool fills = unacknowledged_bytes_ >= options_.ack_bytes;
  // What may wait does so only where all is well.
  const bool is_bad_news = had_hole || highest_ > cumulative_ || (flags & kEchoEcn) != 0;
  const bool urgent = kind == Kind::kDuplicate || is_trimmed || arrived.ask || !said_anything_ ||
                      (may_wait && is_bad_news);
  const bool dense = options_.echoes == EchoMode::kDense;
  // Sparse acknowledgement answers a mark at once, as it would else be lost to the sender.
  const bool now_due = fills || urgent || (!dense && (flags & kEchoEcn) != 0);
  if (dense || now_due) {
    if (pending_count_ == kPendingMax) {
      ++pending_first_;
      --pending_count_;
    }
    pending_[(pending_first_ + pending_count_++) & (kPendingMax - 1)] = {
        arrived.chunk, now, arrived.waited_ns, arrived.stamp, arrived.path, flags};
  }
  is_due_ = is_due_ || now_due || pending_count_ >= kEchoesPerPacket;
}

void Acknowledger::advance(TimeNs now) {
  while (true) {
    std::uint64_t& word = words_[(cumulative_ / 64) & mask_];
    const auto run = std::min<std::uint64_t>(
        static_cast<std::uint64_t>(std::countr_one(word >> (cumulative_ % 64))),
        64 - cumulative_ % 64);
    cumulative_ += run;
    held_ -= run;
    if (run == 0 || cumulative_ % 64 != 0) {
      break;
    }
    word = 0;  // All 64 lie before the hole: the word's place is for numbers to come.
  }
  hole_since_ns_ = highest_ > cumulative_ ? now : kNever;
}

void Acknowledger::fill(TimeNs now, AckHeader& out) {
  out.cumulative = static_cast<std::uint32_t>(cumulative_);
  out.received_bytes = received_bytes_;
  out.out_of_order = static_cast<std::uint16_t>(std::min<std::uint64_t>(held_, 0xffff));

  const std::uint64_t first_word = cumulative_ / 64;
  const std::uint64_t last_word = highest_ == 0 ? 0 : (highest_ - 1) / 64;
  ++told_word_;
  if (told_word_ < first_word || told_word_ > last_word) {
    told_word_ = first_word;
  }
  out.sack_base = static_cast<std::uint32_t>(told_word_ * 64);
  out.sack_bitmap = words_[told_word_ & mask_];
  if (told_word_ == first_word) {
    out.sack_bitmap |= (1ULL << (cumulative_ % 64)) - 1;
  }

  out.echo_count = 0;
  while (pending_count_ > 0 && out.echo_count < kEchoesPerPacket) {
    const Pending& pending = pending_[pending_first_ & (kPendingMax - 1)];
    const auto delta = static_cast<std::int64_t>(pending.chunk - cumulative_);
    if (delta >= INT16_MIN && delta <= INT16_MAX) {
      out.echoes[out.echo_count++] = {static_cast<std::int16_t>(delta), pending.path, pending.flags,
                                      pending.stamp,
                                      to_turnaround(now - pending.taken_ns + pending.waited_ns)};
    }
    ++pending_first_;
    --pending_count_;
  }
  said_anything_ = true;
  is_due_ = pending_count_ >= kEchoesPerPacket;
  unacknowledged_bytes_ = 0;
  due_ns_ = pending_count_ == 0
                ? kNever
                : pending_[pending_first_ & (kPendingMax - 1)].taken_ns + options_.ack_delay_ns;
}

}  // namespace tutti::transport
