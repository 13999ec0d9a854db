// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The receiving part of XdpWire. The fragments of a packet mostly lie in the ring one after the
// other: then its payload is copied once, to its place. Those of which only the first have come
// wait a little for the rest; the others go through Assembly.
#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/udp/udp_socket.hpp"
#include "wire/xdp/xdp_wire.hpp"

namespace tutti::wire::xdp {

using transport::Arrival;
using transport::kNever;
using transport::TimeNs;
using udp::Prefix;

namespace {

constexpr TimeNs kHoldNs = 200'000;
constexpr std::size_t kDescriptorsMax = 64;  ///< Of one look at the ring.
// A look at the UDP socket is a system call: seldom, unless it had something lately.
constexpr TimeNs kKernelLookNs = 20'000;
constexpr TimeNs kKernelUsedNs = 10'000'000;

std::uint64_t name_of(const UdpEnd& end) { return std::uint64_t{end.address} << 16 | end.port; }

}  // namespace

std::size_t XdpWire::receive(Arrivals& arrivals, std::size_t packets_max) {
  const TimeNs now = options_.clock();
  std::size_t packets = 0;
  bool is_drained = false;
  // In turn, so that neither waits for the other.
  if (now >= kernel_due_ns_ && std::exchange(is_kernels_turn_, !is_kernels_turn_)) {
    packets += receive_by_kernel(arrivals, packets_max, now);
  }
  while (packets < packets_max) {
    take_in();
    if (piece_count_ == 0) {
      is_drained = true;
      break;
    }
    const std::size_t run = run_of_first();
    if (run > 1 && run == piece(0).prefix.count) {
      deliver_run(arrivals, run);
      drop_pieces(run);
      ++packets;
      continue;
    }
    if (run > 0 && run == piece_count_ && piece(0).prefix.count > 1) {
      if (held_ns_ == kNever) {
        held_ns_ = now + kHoldNs;
      }
      if (now < held_ns_) {
        is_drained = true;
        break;
      }
    }
    packets += deliver_piece(arrivals, piece(0), now) ? 1 : 0;
    drop_pieces(1);
  }
  if (is_drained && assembly_.is_waiting()) {
    assembly_.on_all_added(now, [&](std::span<const std::byte> header) {
      Arrival arrival;
      arrival.header = header;
      arrival.trimmed = true;
      arrivals.arrived(arrival);
    });
  }
  counters_.fragments_dropped +=
      assembly_.dropped() - std::exchange(assembly_dropped_, assembly_.dropped());
  xsk_->flush(is_drained);
  return packets;
}

/// What the ring has, as far as there is room, as pieces.
void XdpWire::take_in() {
  std::array<xdp_desc, kDescriptorsMax> descriptors;
  const std::size_t room = std::min(kPiecesMax - piece_count_, descriptors.size());
  const std::size_t count = xsk_->receive(std::span(descriptors).first(room));
  for (const xdp_desc& it : std::span(descriptors).first(count)) {
    ++counters_.datagrams_received;
    Datagram datagram;
    if (!read_frame(xsk_->frame(it), datagram) || datagram.target != end_) {
      ++counters_.malformed_dropped;
      xsk_->release(it.addr);
      continue;
    }
    Piece& next = piece(piece_count_++);
    next.frame = it.addr;
    next.source = name_of(datagram.source);
    next.payload = datagram.payload;
    next.is_fragment = decode(datagram.payload, next.prefix);
    next.ecn = (datagram.tos & udp::kEcnMask) == udp::kEcnMask;
  }
}

void XdpWire::drop_pieces(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    xsk_->release(piece(i).frame);
  }
  first_piece_ = (first_piece_ + count) % kPiecesMax;
  piece_count_ -= count;
  held_ns_ = kNever;
}

/// How many of the first pieces are the begin of one packet, in order.
std::size_t XdpWire::run_of_first() {
  const Piece& first = piece(0);
  if (!first.is_fragment || first.prefix.index != 0 ||
      udp::offset_of(first.prefix, static_cast<std::uint32_t>(first.content().size())) != 0) {
    return 0;
  }
  const std::size_t count = std::min<std::size_t>(first.prefix.count, piece_count_);
  Prefix expected = first.prefix;
  std::size_t run = 1;
  for (; run < count; ++run) {
    const Piece& next = piece(run);
    expected.index = static_cast<std::uint8_t>(run);
    if (!next.is_fragment || next.source != first.source || next.prefix != expected ||
        udp::offset_of(next.prefix, static_cast<std::uint32_t>(next.content().size())) !=
            run * first.content().size()) {
      break;
    }
  }
  return run;
}

/// The whole packet that the first pieces are.
void XdpWire::deliver_run(Arrivals& arrivals, std::size_t count) {
  const Piece& first = piece(0);
  const Prefix& prefix = first.prefix;
  const auto header = first.content().first(prefix.header_bytes);
  std::byte* const place =
      prefix.payload_bytes() > 0 ? arrivals.place(header, prefix.payload_bytes()) : nullptr;
  std::byte* out = place != nullptr ? place : staging_.data();
  bool ecn = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Piece& it = piece(i);
    const auto content = it.content().subspan(i == 0 ? prefix.header_bytes : 0);
    out = std::copy(content.begin(), content.end(), out);
    ecn = ecn || it.ecn;
  }
  Arrival arrival;
  arrival.header = header;
  arrival.payload_bytes = prefix.payload_bytes();
  arrival.ecn = ecn;
  if (place != nullptr) {
    counters_.payload_bytes_placed += arrival.payload_bytes;
  } else {
    arrival.payload = {staging_.data(), arrival.payload_bytes};
    counters_.payload_bytes_copied += arrival.payload_bytes;
  }
  arrivals.arrived(arrival);
}

/// False: nothing has arrived with it, or not yet.
bool XdpWire::deliver_piece(Arrivals& arrivals, const Piece& it, TimeNs now) {
  if (it.is_fragment) {
    bool ecn = it.ecn;
    const auto content = assembly_.add(now, it.source, it.prefix, it.content(), ecn);
    if (content.empty()) {
      return false;
    }
    deliver_content(arrivals, it.prefix, content, ecn);
    return true;
  }
  if (!it.payload.empty() && it.payload[0] == std::byte{udp::kMagicTogether}) {
    bool has_any = false;
    const auto take = [&](std::span<const std::byte> header, std::span<const std::byte> payload) {
      Arrival arrival;
      arrival.header = header;
      arrival.payload = payload;
      arrival.payload_bytes = static_cast<std::uint32_t>(payload.size());
      arrival.ecn = it.ecn;
      counters_.payload_bytes_copied += payload.size();
      arrivals.arrived(arrival);
      has_any = true;
    };
    counters_.malformed_dropped += udp::decode_together(it.payload, take) ? 0 : 1;
    return has_any;
  }
  udp::ProbeHead probe;
  if (udp::decode_probe(it.payload, probe)) {
    probes_.take(probe, now);
  } else {
    ++counters_.malformed_dropped;
  }
  return false;
}

void XdpWire::deliver_content(Arrivals& arrivals, const Prefix& prefix,
                              std::span<const std::byte> content, bool ecn) {
  Arrival arrival;
  arrival.header = content.first(prefix.header_bytes);
  arrival.payload = content.subspan(prefix.header_bytes);
  arrival.payload_bytes = prefix.payload_bytes();
  arrival.ecn = ecn;
  counters_.payload_bytes_copied += arrival.payload_bytes;
  arrivals.arrived(arrival);
}

/// What the UDP socket has, and when it is looked at again.
std::size_t XdpWire::receive_by_kernel(Arrivals& arrivals, std::size_t packets_max, TimeNs now) {
  std::size_t packets = 0;
  while (packets < packets_max) {
    ++counters_.calls_received;
    Datagram datagram;
    if (!stack_->receive(staging_, datagram)) {
      break;
    }
    ++kernel_received_;
    kernel_used_ns_ = now;
    ++counters_.datagrams_received;
    Piece it;
    it.source = name_of(datagram.source);
    it.payload = datagram.payload;
    it.is_fragment = decode(it.payload, it.prefix);
    it.ecn = (datagram.tos & udp::kEcnMask) == udp::kEcnMask;
    packets += deliver_piece(arrivals, it, now) ? 1 : 0;
  }
  if (packets > 0) {
    look_at_helper();
  }
  kernel_due_ns_ = now < kernel_used_ns_ + kKernelUsedNs ? 0 : now + kKernelLookNs;
  return packets;
}

}  // namespace tutti::wire::xdp
