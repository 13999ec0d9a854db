// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The sending part of XdpWire: packets cut into frames, and by which way they leave.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/random.hpp"
#include "wire/udp/udp_socket.hpp"
#include "wire/xdp/xdp_wire.hpp"

namespace tutti::wire::xdp {

using transport::PathId;
using transport::TimeNs;
using transport::Transmission;
using udp::kPrefixBytes;
using udp::Prefix;

namespace {

constexpr std::size_t kWatchedBytes = 1024;   ///< Shorter packets pass wherever any do.
constexpr TimeNs kLookNs = 1'000'000'000;     ///< Between looks at what is known.
constexpr TimeNs kUnknownLookNs = 1'000'000;  ///< After the first look that found no MAC address.
constexpr TimeNs kKickNs = 50'000;            ///< Until the kernel is asked to go on.
constexpr TimeNs kFailedKickNs = 5'000'000;   ///< Same, after an error.

std::byte* append(std::byte* out, const void* data, std::size_t bytes) {
  return std::copy_n(static_cast<const std::byte*>(data), bytes, out);
}

}  // namespace

XdpWire::Peer* XdpWire::find(std::uint64_t peer) {
  return peer < peers_.size() && peers_[peer].users > 0 ? &peers_[peer] : nullptr;
}

/// What the kernel knows of the way to it now.
void XdpWire::look(Peer& to, TimeNs now) {
  const NextHop hop = stack_->next_hop(to.end.address);
  to.kind = hop.kind;
  to.mac.reset();
  to.look_ns = now + kLookNs;
  if (hop.kind != NextHop::Kind::kNeighbour) {
    if (hop.kind == NextHop::Kind::kNone && !std::exchange(to.has_warned_no_route, true)) {
      udp::SocketAddress peer;
      const sockaddr_in address = socket_address_of(to.end);
      std::memcpy(&peer.storage, &address, sizeof address);
      fall_back("no route by this interface to " + udp::host_text(peer) +
                    ": sent by the kernel's UDP and not by AF_XDP",
                "a route to it by " + options_.interface);
    }
    return;
  }
  if (const auto neighbour = stack_->neighbour(hop.address)) {
    to.mac = neighbour->mac;
    to.probes_neighbour = neighbour->is_stale;
    to.unknown_ns = 0;
  } else {
    to.unknown_ns = std::clamp(2 * to.unknown_ns, kUnknownLookNs, kLookNs);
    to.look_ns = now + to.unknown_ns;
  }
}

/// Whether the next packet does; else it leaves by the UDP socket.
bool XdpWire::leaves_by_xdp(Peer& to) {
  const TimeNs now = options_.clock();
  if (now >= to.look_ns) {
    look(to, now);
  }
  return to.mac && !std::exchange(to.probes_neighbour, false);
}

/// `frame`: that `payload` lies in, behind kHeadBytes; kNoFrame: it leaves by the UDP socket.
/// False: that has no room.
bool XdpWire::send_datagram(Peer& to, PathId path, std::uint64_t frame,
                            std::span<const std::byte> payload) {
  const int tos = (to.traffic_class & ~udp::kEcnMask) | udp::kEct0;
  if (frame != Piece::kNoFrame) {
    PacketHead head;
    head.target_mac = *to.mac;
    head.source_mac = mac_;
    head.source = {end_.address, htons(port_of(path))};
    head.target = to.end;
    head.tos = static_cast<std::uint8_t>(tos);
    write_head(head, payload.size(), xsk_->at(frame));
    xsk_->push(frame, static_cast<std::uint32_t>(kHeadBytes + payload.size()));
    ++counters_.datagrams_sent;
    return true;
  }
  counters_.calls_sent += 2;
  if (const int error = stack_->send(to.end, tos, payload); error != 0) {
    if (error == EAGAIN || error == ENOBUFS || error == EINTR) {
      return false;
    }
    ++counters_.refused;
    return true;
  }
  ++kernel_sent_;
  ++counters_.datagrams_sent;
  return true;
}

void XdpWire::kick() {
  counters_.calls_sent += xsk_->kick();
  if (xsk_->send_error() != 0 && !std::exchange(has_send_failed_, true)) {
    fall_back("the kernel sends nothing by " + options_.interface + ": " +
                  std::strerror(xsk_->send_error()),
              "the interface up again");
  }
  const TimeNs pause_ns = xsk_->send_error() == 0 ? kKickNs : kFailedKickNs;
  kick_due_ns_ = xsk_->has_unsent() ? options_.clock() + pause_ns : transport::kNever;
}

bool XdpWire::send(const Transmission& sent) {
  Peer* const to = find(sent.peer);
  const std::size_t content = sent.header_bytes + std::size_t{sent.payload_bytes};
  const std::size_t each = to == nullptr ? 1 : to->fragment_bytes - kPrefixBytes;
  const std::size_t count = std::max<std::size_t>(1, udp::fragments(content, each));
  if (to == nullptr || count > udp::kFragmentsMax) {
    ++counters_.refused;  // Gone, or longer than both ends agreed on.
    return true;
  }
  const bool is_xdp = leaves_by_xdp(*to);
  if (is_xdp && xsk_->free_frames() < count) {
    kick();
    return false;
  }
  Prefix prefix;
  prefix.count = static_cast<std::uint8_t>(count);
  prefix.header_bytes = sent.header_bytes;
  prefix.content_bytes = static_cast<std::uint16_t>(content);
  prefix.packet = next_packet_++ & ((1ULL << udp::kPacketBits) - 1);
  std::size_t payload_at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    prefix.index = static_cast<std::uint8_t>(i);
    const std::uint64_t frame = is_xdp ? xsk_->take_frame() : Piece::kNoFrame;
    std::byte* const begin = is_xdp ? xsk_->at(frame) + kHeadBytes : kernel_staging_.data();
    encode(prefix, begin);
    std::byte* end = begin + kPrefixBytes;
    if (i == 0) {
      end = append(end, sent.header.data(), sent.header_bytes);
    }
    const std::size_t room = each - static_cast<std::size_t>(end - begin - kPrefixBytes);
    const std::size_t bytes = std::min<std::size_t>(room, sent.payload_bytes - payload_at);
    if (bytes > 0) {
      end = append(end, sent.payload + payload_at, bytes);
      payload_at += bytes;
    }
    if (!send_datagram(*to, sent.path, frame, {begin, end})) {
      if (i == 0) {
        return false;
      }
      ++counters_.refused;  // Half of it is away: the transport sends it again.
      break;
    }
  }
  if (is_xdp) {
    kick();
  }
  if (content > kWatchedBytes) {
    probes_.on_data(sent.peer);
  }
  return true;
}

/// One datagram, which write(out) writes; it returns the end. False: there is no room.
template <class Write>
bool XdpWire::send_one(Peer& to, PathId path, Write&& write) {
  const bool is_xdp = leaves_by_xdp(to);
  if (is_xdp && xsk_->free_frames() == 0) {
    kick();
    return false;
  }
  const std::uint64_t frame = is_xdp ? xsk_->take_frame() : Piece::kNoFrame;
  std::byte* const begin = is_xdp ? xsk_->at(frame) + kHeadBytes : kernel_staging_.data();
  std::byte* const end = write(begin);
  const bool is_sent = send_datagram(to, path, frame, {begin, end});
  if (is_xdp) {
    kick();
  }
  return is_sent;
}

/// One that is not sent is lost: others follow.
void XdpWire::send_probe(Peer& to, PathId path, std::span<const std::byte> datagram) {
  (void)send_one(to, path,
                 [&](std::byte* out) { return std::copy(datagram.begin(), datagram.end(), out); });
}

std::size_t XdpWire::send_together(std::span<const Transmission> packets) {
  if (packets.size() == 1) {
    return send(packets.front()) ? 1 : 0;
  }
  std::size_t bytes = 2;
  for (const Transmission& packet : packets) {
    bytes += udp::kPartHeadBytes + packet.header_bytes + packet.payload_bytes;
  }
  Peer* const to = packets.empty() ? nullptr : find(packets.back().peer);
  if (packets.size() > kTogetherMax || to == nullptr || bytes > to->fragment_bytes) {
    return Wire::send_together(packets);
  }
  const bool is_sent = send_one(*to, packets.back().path, [&](std::byte* out) {
    *out++ = std::byte{udp::kMagicTogether};
    *out++ = static_cast<std::byte>(packets.size());
    for (const Transmission& packet : packets) {
      udp::encode_part(packet.header_bytes, static_cast<std::uint16_t>(packet.payload_bytes), out);
      out = append(out + udp::kPartHeadBytes, packet.header.data(), packet.header_bytes);
      out = append(out, packet.payload, packet.payload_bytes);
    }
    return out;
  });
  return is_sent ? packets.size() : 0;
}

}  // namespace tutti::wire::xdp
