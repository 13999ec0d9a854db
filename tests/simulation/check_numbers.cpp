// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/check_numbers.hpp"

#include "transport/serial.hpp"

namespace tutti::transport::simulation {

void CheckNumbers::start(const ConnectionRecord& connection, int end) {
  connection_ = &connection;
  end_ = end;
  first_ = connection.ends[end].options.first_number;
  next_packet_ = first_;
  handed_below_ = first_;
  cumulative_ = first_;
  credit_units_ = first_;
}

void CheckNumbers::on_transmit(const Flying& packet) {
  Packet decoded;
  if (!decode({packet.out.header.data(), packet.out.header_bytes}, decoded)) {
    fail("packet", name_of(*connection_, end_) + ": sent what is no packet");
  }
  if (expand(decoded.common.number, next_packet_) != next_packet_) {
    fail("packet", name_of(*connection_, end_) + ": packet number " +
                       std::to_string(decoded.common.number) + " is not the next");
  }
  ++next_packet_;
  if (decoded.common.type == PacketType::kAck) {
    on_ack(decoded.ack);
  } else if (decoded.common.type == PacketType::kCredit) {
    const std::uint64_t units = expand(decoded.number.value, credit_units_);
    if (units < credit_units_) {
      fail("credit", name_of(*connection_, end_) + ": granted credit fell");
    }
    credit_units_ = units;
    granted_bytes_ = (units - first_) * kCreditUnitBytes;
  }
}

void CheckNumbers::on_handed(const Flying& packet) {
  Packet decoded;
  if (!decode({packet.out.header.data(), packet.out.header_bytes}, decoded)) {
    return;
  }
  if (packet.trimmed && !connection_->knobs.options.wire.trims) {
    return;  // A partial chunk: it may come whole yet, so it is not taken.
  }
  copies_ += packets_.insert(decoded.common.number).second ? 0 : 1;
  if (packet.trimmed || decoded.common.type != PacketType::kData) {
    return;
  }
  const std::uint64_t chunk = expand(decoded.data.chunk, cumulative_);
  handed_[chunk / 64] |= 1ULL << (chunk % 64);
  while (has(handed_below_)) {
    ++handed_below_;
  }
}

void CheckNumbers::check_replays(const ConnectionCounters& counters) const {
  if (counters.replays_dropped < copies_) {
    fail("replay", name_of(*connection_, end_) + ": took a packet twice; " +
                       std::to_string(copies_) + " copies came");
  }
}

void CheckNumbers::on_ack(const AckHeader& ack) {
  const std::string name = name_of(*connection_, end_);
  const std::uint64_t cumulative = expand(ack.cumulative, cumulative_);
  if (cumulative < cumulative_ || ack.received_bytes < received_bytes_) {
    fail("acknowledgement", name + ": what was acknowledged went back");
  }
  if (cumulative > handed_below_) {
    fail("acknowledgement", name + ": acknowledged " + std::to_string(cumulative) +
                                ", which never came (" + std::to_string(handed_below_) + ")");
  }
  cumulative_ = cumulative;
  received_bytes_ = ack.received_bytes;
  const std::uint64_t base = expand(ack.sack_base, cumulative);
  std::uint64_t told = told_[base / 64];
  if (base < first_) {
    told &= ~0ULL << (first_ - base);
  }
  if ((told & ~ack.sack_bitmap) != 0) {
    fail("acknowledgement", name + ": a bit that was told is taken back");
  }
  std::uint64_t here = handed_[base / 64];
  if (base < handed_below_) {
    here |= handed_below_ - base >= 64 ? ~0ULL : (1ULL << (handed_below_ - base)) - 1;
  }
  if ((ack.sack_bitmap & ~here) != 0) {
    fail("acknowledgement", name + ": a chunk of word " + std::to_string(base) + " never came");
  }
  told_[base / 64] |= ack.sack_bitmap;
}

}  // namespace tutti::transport::simulation
