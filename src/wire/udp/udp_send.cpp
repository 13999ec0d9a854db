// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The sending part of UdpWire: packets cut into datagrams, control messages, refused sizes.
#include <netinet/udp.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/udp/udp_socket.hpp"
#include "wire/udp/udp_wire.hpp"

namespace tutti::wire::udp {
namespace {

using transport::Transmission;

constexpr std::size_t kWatchedBytes = 1024;  ///< Shorter packets pass wherever any do.
/// Ways change, and a route may be gone for a moment: it is tried again, for a call in vain.
constexpr std::uint32_t kPlainPackets = 1024;

/// One control message more, for which there is room.
template <class T>
void add_control(msghdr& message, int level, int type, T value) {
  auto* const control =
      reinterpret_cast<cmsghdr*>(static_cast<char*>(message.msg_control) + message.msg_controllen);
  control->cmsg_level = level;
  control->cmsg_type = type;
  control->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(control), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
}

/// By which interface, with which address: both, for the one replaces the socket's other.
void add_interface(msghdr& message, const SocketAddress& local, int interface) {
  if (local.storage.ss_family == AF_INET6) {
    in6_pktinfo info{};
    info.ipi6_ifindex = static_cast<unsigned>(interface);
    info.ipi6_addr = reinterpret_cast<const sockaddr_in6&>(local.storage).sin6_addr;
    add_control(message, IPPROTO_IPV6, IPV6_PKTINFO, info);
  } else {
    in_pktinfo info{};
    info.ipi_ifindex = interface;
    info.ipi_spec_dst = reinterpret_cast<const sockaddr_in&>(local.storage).sin_addr;
    add_control(message, IPPROTO_IP, IP_PKTINFO, info);
  }
}

}  // namespace

bool UdpWire::send(const Transmission& sent) {
  if (sent.peer >= peers_.size() || peers_[sent.peer].users == 0) {
    ++counters_.refused;
    return true;
  }
  Peer& to = peers_[sent.peer];
  const std::size_t each = to.fragment_bytes - kPrefixBytes;
  const std::size_t content = sent.header_bytes + std::size_t{sent.payload_bytes};
  if (fragments(content, each) > kFragmentsMax) {
    ++counters_.refused;  // Longer than both ends agreed on.
    return true;
  }
  Prefix prefix;
  prefix.count = static_cast<std::uint8_t>(std::max<std::size_t>(1, fragments(content, each)));
  prefix.header_bytes = sent.header_bytes;
  prefix.content_bytes = static_cast<std::uint16_t>(content);
  std::size_t first = goes_on(to, sent) ? stopped_.first : 0;
  prefix.packet = first > 0 ? stopped_.number : next_packet_++ & ((1ULL << kPacketBits) - 1);
  stopped_.first = 0;

  // Prefix, header, payload; prefix, payload; ... The kernel cuts after each fragment_bytes_.
  std::size_t used = 0;
  std::size_t payload_at = 0;
  const auto add = [&](const void* data, std::size_t bytes) {
    parts_[used++] = {const_cast<void*>(data), bytes};
  };
  for (std::uint8_t i = 0; i < prefix.count; ++i) {
    prefix.index = i;
    std::byte* const at = prefixes_.data() + i * kPrefixBytes;
    encode(prefix, at);
    add(at, kPrefixBytes);
    std::size_t room = each;
    if (i == 0) {
      add(sent.header.data(), sent.header_bytes);
      room -= sent.header_bytes;
    }
    const std::size_t bytes = std::min(room, sent.payload_bytes - payload_at);
    if (bytes > 0) {
      add(sent.payload + payload_at, bytes);
      payload_at += bytes;
    }
  }
  const int socket = senders_[sent.path % senders_.size()];
  const Outcome outcome =
      send_parts(to, socket, used, content + prefix.count * kPrefixBytes, &first);
  counters_.datagrams_sent += outcome == Outcome::kTaken ? prefix.count : 0;
  if (outcome == Outcome::kNoRoom && first > 0) {
    stopped_ = {first, prefix.packet, to.fragment_bytes, sent};
  }
  if (content > kWatchedBytes) {
    probes_.on_data(sent.peer);
  }
  return outcome == Outcome::kRecut ? send(sent) : outcome == Outcome::kTaken;
}

bool UdpWire::goes_on(const Peer& to, const Transmission& sent) const {
  const Transmission& it = stopped_.sent;
  return stopped_.first > 0 && stopped_.fragment_bytes == to.fragment_bytes &&
         it.peer == sent.peer && it.path == sent.path && it.payload == sent.payload &&
         it.payload_bytes == sent.payload_bytes && it.header_bytes == sent.header_bytes &&
         std::equal(sent.header.begin(), sent.header.begin() + sent.header_bytes,
                    it.header.begin());
}

std::size_t UdpWire::send_together(std::span<const Transmission> packets) {
  if (packets.size() == 1) {
    return send(packets.front()) ? 1 : 0;
  }
  std::size_t bytes = 2;
  for (const Transmission& packet : packets) {
    bytes += kPartHeadBytes + packet.header_bytes + packet.payload_bytes;
  }
  const Transmission& last = packets.back();
  if (packets.size() > kTogetherMax || last.peer >= peers_.size() || peers_[last.peer].users == 0 ||
      bytes > peers_[last.peer].fragment_bytes) {
    return Wire::send_together(packets);
  }
  std::byte* head = prefixes_.data();
  head[0] = std::byte{kMagicTogether};
  head[1] = static_cast<std::byte>(packets.size());
  std::size_t used = 0;
  parts_[used++] = {head, 2};
  head += 2;
  for (const Transmission& packet : packets) {
    encode_part(packet.header_bytes, static_cast<std::uint16_t>(packet.payload_bytes), head);
    parts_[used++] = {head, kPartHeadBytes};
    head += kPartHeadBytes;
    parts_[used++] = {const_cast<std::byte*>(packet.header.data()), packet.header_bytes};
    if (packet.payload_bytes > 0) {
      parts_[used++] = {const_cast<std::byte*>(packet.payload), packet.payload_bytes};
    }
  }
  std::size_t first = 0;
  if (send_parts(peers_[last.peer], senders_[last.path % senders_.size()], used, bytes, &first) !=
      Outcome::kTaken) {
    return 0;
  }
  ++counters_.datagrams_sent;
  return packets.size();
}

// Sends the first `count` of parts_, which together are `bytes`. What goes wrong is a loss, unless
// nothing was sent and another attempt may go better.
UdpWire::Outcome UdpWire::send_parts(Peer& to, int socket, std::size_t count, std::size_t bytes,
                                     std::size_t* next) {
  const std::size_t each = to.fragment_bytes;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(std::uint16_t)) + CMSG_SPACE(sizeof(int)) +
                                CMSG_SPACE(sizeof(in6_pktinfo))] = {};
  msghdr message{};
  message.msg_name = to.address.get();
  message.msg_namelen = to.address.bytes;
  // The kernel takes a tenth longer for a short datagram in five pieces.
  if (bytes <= std::min(each, short_.size()) && count > 1) {
    std::byte* end = short_.data();
    for (std::size_t i = 0; i < count; ++i) {
      end = std::copy_n(static_cast<const std::byte*>(parts_[i].iov_base), parts_[i].iov_len, end);
    }
    parts_[0] = {short_.data(), bytes};
    count = 1;
  }
  // Bytes of a call. A packet that is cut finer than both ends agreed on may need two.
  const bool may_cut = bytes > each && options_.segmentation && to.plain_packets == 0;
  const std::size_t most = may_cut ? kDatagramBytesMax / each * each : each;
  for (std::size_t& first = *next; first < count;) {
    std::size_t end = bytes <= most ? count : first;
    std::size_t room = bytes <= most ? most - bytes : most;
    for (; end < count && parts_[end].iov_len <= room; ++end) {
      room -= parts_[end].iov_len;
    }
    const bool is_cut = most - room > each;
    message.msg_iov = parts_.data() + first;
    message.msg_iovlen = end - first;
    message.msg_control = control;
    message.msg_controllen = 0;
    if (is_cut) {
      add_control(message, IPPROTO_UDP, kUdpSegment, static_cast<std::uint16_t>(each));
    }
    if (to.traffic_class != 0) {
      const int field = (to.traffic_class & ~kEcnMask) | kEct0;
      const bool is_v6 = to.address.storage.ss_family == AF_INET6;
      add_control(message, is_v6 ? IPPROTO_IPV6 : IPPROTO_IP, is_v6 ? IPV6_TCLASS : IP_TOS, field);
    }
    if (to.interface != 0) {
      add_interface(message, bound_, to.interface);
    }
    ++counters_.calls_sent;
    if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
      const int error = errno;
      if (error == EAGAIN || error == ENOBUFS || error == EINTR) {
        return Outcome::kNoRoom;
      }
      // The MTU on the way is smaller (older kernels: EINVAL), or a device cannot fill in
      // checksums (udp(7)), or the way is encrypted.
      if (first == 0 && is_cut && (error == EMSGSIZE || error == EINVAL || error == EIO)) {
        if (learn_way(to, error)) {
          return Outcome::kRecut;
        }
      }
      ++counters_.refused;
      return Outcome::kTaken;
    }
    first = end;
  }
  to.plain_packets -= bytes > each && to.plain_packets > 0 ? 1 : 0;
  return Outcome::kTaken;
}

// The kernel refused to cut a packet to this peer: from now on fragments as small as the way asks,
// and if that is not why, each in a call of its own for a while. IP would cut those that are too
// long, too, but has only 16 bits to tell which pieces belong together. False: it cannot be asked
// now; the packet is lost, and the next one asks again.
bool UdpWire::learn_way(Peer& to, int error) {
  const std::size_t least = least_fragment_bytes(to.fragment_bytes);
  const auto probe = open_socket();
  if (!probe.ok()) {
    // Known to take none: on without asking. A descriptor may never be free again.
    to.plain_packets = to.was_plain ? kPlainPackets : 0;
    return to.was_plain;
  }
  const std::size_t room = room_on_way(to, *probe);
  close(*probe);
  if (room >= least && room < to.fragment_bytes) {
    to.fragment_bytes = room;
    probes_.limit(static_cast<std::size_t>(&to - peers_.data()), room);
    least_fragment_bytes_ =
        least_fragment_bytes_ == 0 ? room : std::min(least_fragment_bytes_, room);
    return true;
  }
  to.plain_packets = kPlainPackets;
  plain_peers_why_ = std::strerror(error);
  if (!std::exchange(to.was_plain, true) && is_open_) {
    ++plain_peers_;
    fall_back("no segmentation offload to " + host_text(to.address) + ": " + plain_peers_why_,
              "an interface with UDP checksums on the way there, and an MTU of at least " +
                  std::to_string(least +
                                 (bound_.storage.ss_family == AF_INET6 ? kIpv6Bytes : kIpv4Bytes)) +
                  ", or TUTTI_NET_OFFLOAD=0");
  }
  return true;
}

// UDP payload of the largest datagram that goes to this peer in one piece; 0: nobody knows.
// `probe`: a socket of its own, for only a connected one tells.
std::size_t UdpWire::room_on_way(const Peer& to, int probe) {
  const bool is_v6 = to.address.storage.ss_family == AF_INET6;
  const std::size_t headers = is_v6 ? kIpv6Bytes : kIpv4Bytes;
  int mtu_bytes = 0;
  socklen_t length = sizeof mtu_bytes;
  if (to.interface != 0) {
    set_option(probe, SOL_SOCKET, kSoBindToIfindex, to.interface);
  }
  const bool is_known = connect(probe, to.address.get(), to.address.bytes) == 0 &&
                        getsockopt(probe, is_v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                   is_v6 ? IPV6_MTU : IP_MTU, &mtu_bytes, &length) == 0 &&
                        mtu_bytes > static_cast<int>(headers);
  return is_known ? static_cast<std::size_t>(mtu_bytes) - headers : 0;
}

}  // namespace tutti::wire::udp
