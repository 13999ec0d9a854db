// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/udp_wire.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/random.hpp"
#include "base/system_random.hpp"
#include "wire/udp/finding_text.hpp"
#include "wire/udp/route.hpp"
#include "wire/udp/udp_socket.hpp"

namespace tutti::wire::udp {
namespace {

static_assert(std::endian::native == std::endian::little, "prefixes and addresses are copied");

constexpr std::size_t kFragmentBytesMin = 512;
constexpr std::uint8_t kAddressBytesV4 = 1 + 2 + 4 + 2;
constexpr std::uint8_t kAddressBytesV6 = 1 + 2 + 16 + 2;
constexpr std::uint32_t kOpenPackets = 512;
constexpr Bytes kSendBufferBytes = 8 << 20;
constexpr const char* kNoOffloads = "no segmentation offload and no UDP_GRO: ";
constexpr const char* kOffloadRemedy =
    "a kernel whose UDP_SEGMENT and UDP_GRO work (Linux 5.0 and later), or TUTTI_NET_OFFLOAD=0";

/// "416 KiB", or what there would be if the system's limit `name` allowed it.
std::string kib_of(Bytes bytes, Bytes wanted_bytes, const char* name) {
  const std::string text = std::to_string(bytes >> 10);
  return bytes >= wanted_bytes
             ? text + " KiB"
             : text + " of " + std::to_string(wanted_bytes >> 10) + " KiB (" + name + ")";
}

}  // namespace

UdpWire::UdpWire(const UdpOptions& options)
    : options_(options),
      fragment_bytes_(std::clamp<std::size_t>(
          static_cast<std::size_t>(std::max(options.mtu_bytes, 0)) -
              (options.local.storage.ss_family == AF_INET6 ? kIpv6Bytes : kIpv4Bytes),
          kFragmentBytesMin, kDatagramBytesMax)),
      staging_(kContentBytesMax + 1),
      prefixes_((kFragmentsMax + 1) * kPrefixBytes + transport::kHeaderBytesMax),
      parts_(2 * kFragmentsMax + 2),
      assembly_(kOpenPackets) {}

UdpWire::~UdpWire() {
  for (const int socket : senders_) {
    close(socket);
  }
  if (receiver_ >= 0) {
    close(receiver_);
  }
}

Result<std::unique_ptr<UdpWire>> UdpWire::open(const UdpOptions& options) {
  if (options.paths == 0 || options.paths > 1024) {
    return Status(ErrorCode::kInvalidArgument, "udp wire: paths must be 1 to 1024");
  }
  if (options.mtu_bytes < 576) {
    return Status(ErrorCode::kInvalidArgument, "udp wire: the interface's MTU is " +
                                                   std::to_string(options.mtu_bytes) +
                                                   " bytes; it must be at least 576");
  }
  std::unique_ptr<UdpWire> wire(new UdpWire(options));
  // From a random one on: a process that is started again may get the ports of the one before.
  TUTTI_RETURN_IF_ERROR(system_random(&wire->next_packet_, sizeof wire->next_packet_));
  std::uint64_t token = 0;
  TUTTI_RETURN_IF_ERROR(system_random(&token, sizeof token));
  TUTTI_RETURN_IF_ERROR(wire->open_sockets());
  if (wire->options_.segmentation || wire->options_.coalescing) {
    wire->plain_ = wire->try_offloads();
    if (!wire->plain_.empty()) {
      wire->options_.segmentation = false;
      wire->options_.coalescing = false;
      set_option(wire->receiver_, IPPROTO_UDP, kUdpGro, 0);
      const std::string still = wire->try_offloads();
      if (!still.empty()) {
        return Status(ErrorCode::kUnavailable,
                      "udp wire: packets of this host to itself do not arrive (" + still +
                          "); is UDP filtered?");
      }
      wire->fall_back(kNoOffloads + wire->plain_, kOffloadRemedy);
    }
  } else if (!options.segmentation && !options.coalescing) {
    wire->plain_ = "switched off";
  }
  wire->unstamped_ = wire->options_.timestamps ? wire->try_timestamps() : "not asked for";
  if (!wire->unstamped_.empty()) {
    set_option(wire->receiver_, SOL_SOCKET, SO_TIMESTAMPNS, 0);
    if (wire->options_.timestamps) {
      wire->fall_back("no time stamps of the kernel: " + wire->unstamped_,
                      "TUTTI_NET_TIMESTAMPS=off");
    }
  }
  wire->begin_probing(token);
  wire->is_open_ = true;
  return wire;
}

void UdpWire::fall_back(const std::string& what, const std::string& remedy) const {
  if (options_.on_fallback) {
    options_.on_fallback(what, remedy);
  }
}

Result<int> UdpWire::open_socket() {
  const int family = options_.local.storage.ss_family;
  const int socket = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) {
    return Status(ErrorCode::kUnavailable, "udp wire: no socket: " + why_no_descriptor());
  }
  SocketAddress local = options_.local;
  if (family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(local.storage).sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in&>(local.storage).sin_port = 0;
  }
  const bool marks = family == AF_INET6 ? set_option(socket, IPPROTO_IPV6, IPV6_TCLASS, kEct0)
                                        : set_option(socket, IPPROTO_IP, IP_TOS, kEct0);
  if (!marks) {
    unmarked_ = std::string(family == AF_INET6 ? "IPV6_TCLASS: " : "IP_TOS: ") + errno_text();
  }
  if (bind(socket, local.get(), local.bytes) != 0) {
    const std::string why = errno_text();
    close(socket);
    return Status(ErrorCode::kUnavailable,
                  "udp wire: cannot bind to the interface's address: " + why);
  }
  return socket;
}

Status UdpWire::open_sockets() {
  TUTTI_ASSIGN_OR_RETURN(receiver_, open_socket());
  bound_.bytes = sizeof bound_.storage;
  if (getsockname(receiver_, bound_.get(), &bound_.bytes) != 0) {
    return Status(ErrorCode::kUnavailable, "udp wire: getsockname: " + errno_text());
  }
  buffer_bytes_ = grow_buffer(receiver_, SO_RCVBUFFORCE, SO_RCVBUF, options_.buffer_bytes);
  const bool is_v6 = bound_.storage.ss_family == AF_INET6;
  if (!(is_v6 ? set_option(receiver_, IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
              : set_option(receiver_, IPPROTO_IP, IP_RECVTOS, 1))) {
    unmarked_ = std::string(is_v6 ? "IPV6_RECVTCLASS: " : "IP_RECVTOS: ") + errno_text();
  }
  if (options_.coalescing && !set_option(receiver_, IPPROTO_UDP, kUdpGro, 1)) {
    options_.coalescing = false;
    unjoined_ = errno_text();
    fall_back("no UDP_GRO: " + unjoined_, kOffloadRemedy);
  }
  send_buffer_bytes_ = 2 * kSendBufferBytes;
  for (std::uint32_t path = 0; path < options_.paths; ++path) {
    TUTTI_ASSIGN_OR_RETURN(const int socket, open_socket());
    senders_.push_back(socket);
    send_buffer_bytes_ = std::min(send_buffer_bytes_,
                                  grow_buffer(socket, SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes));
  }
  if (!unmarked_.empty()) {
    fall_back("no ECN (" + unmarked_ + "): congestion control and the choice of paths see no marks",
              "a system that lets this program set and read the field of its packets");
  }
  return {};
}

Bytes UdpWire::buffer_bytes_wanted() const {
  return 2 * std::min(options_.buffer_bytes, kBufferBytesMax);
}

transport::WireCapabilities UdpWire::capabilities() const {
  const std::size_t count = std::min<std::size_t>(
      kFragmentsMax, std::max<std::size_t>(1, kDatagramBytesMax / fragment_bytes_));
  transport::WireCapabilities it;
  it.chunk_bytes =
      chunk_bytes_of(fragment_bytes_, count, options_.chunk_bytes, options_.ps_per_byte);
  it.mtu_bytes = static_cast<std::uint32_t>(fragment_bytes_ - kPrefixBytes);
  it.paths = options_.paths;
  it.rails = 1;
  it.ps_per_byte = options_.ps_per_byte;
  it.base_rtt_ns = options_.base_rtt_ns;
  it.base_rtt_is_guess = true;
  it.marks_ecn = unmarked_.empty();
  return it;
}

// Family (4 or 6), port, address, bytes of a full datagram.
WireAddress UdpWire::address() const { return address_of(bound_, fragment_bytes_); }

WireAddress UdpWire::address_of(const SocketAddress& bound, std::size_t fragment_bytes) {
  WireAddress out;
  if (bound.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bound.storage);
    out.bytes[0] = std::byte{6};
    std::memcpy(&out.bytes[1], &v6.sin6_port, 2);
    std::memcpy(&out.bytes[3], &v6.sin6_addr, 16);
    out.length = kAddressBytesV6;
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound.storage);
    out.bytes[0] = std::byte{4};
    std::memcpy(&out.bytes[1], &v4.sin_port, 2);
    std::memcpy(&out.bytes[3], &v4.sin_addr, 4);
    out.length = kAddressBytesV4;
  }
  const auto full = static_cast<std::uint16_t>(fragment_bytes);
  std::memcpy(&out.bytes[out.length - 2U], &full, 2);
  return out;
}

Result<std::uint64_t> UdpWire::add_peer(const WireAddress& address, std::uint8_t traffic_class) {
  SocketAddress peer;
  const bool is_v6 = address.length == kAddressBytesV6 && address.bytes[0] == std::byte{6};
  const bool is_v4 = address.length == kAddressBytesV4 && address.bytes[0] == std::byte{4};
  if (!is_v4 && !is_v6) {
    return Status(ErrorCode::kInvalidArgument, "udp wire: the peer's address is not one of UDP");
  }
  if (is_v6 != (bound_.storage.ss_family == AF_INET6)) {
    return Status(ErrorCode::kInvalidArgument,
                  "udp wire: one side uses IPv4 and the other IPv6; set NCCL_SOCKET_FAMILY to the "
                  "same on both");
  }
  if (is_v6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(peer.storage);
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_port, &address.bytes[1], 2);
    std::memcpy(&v6.sin6_addr, &address.bytes[3], 16);
    v6.sin6_scope_id = reinterpret_cast<const sockaddr_in6&>(bound_.storage).sin6_scope_id;
    peer.bytes = sizeof(sockaddr_in6);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(peer.storage);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_port, &address.bytes[1], 2);
    std::memcpy(&v4.sin_addr, &address.bytes[3], 4);
    peer.bytes = sizeof(sockaddr_in);
  }
  // One name for an address: small packets of all its connections may share datagrams.
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& known = peers_[i];
    if (known.users > 0 && known.traffic_class == traffic_class &&
        known.address.bytes == peer.bytes &&
        std::memcmp(&known.address.storage, &peer.storage, peer.bytes) == 0) {
      ++known.users;
      name_interface(known);
      return i;
    }
  }
  const auto free = std::find_if(peers_.begin(), peers_.end(),
                                 [](const Peer& known) { return known.users == 0; });
  const auto at = static_cast<std::size_t>(free - peers_.begin());
  if (free == peers_.end()) {
    peers_.emplace_back();
  }
  std::uint16_t full = 0;
  std::memcpy(&full, &address.bytes[address.length - 2U], 2);
  peers_[at] = {};
  peers_[at].address = peer;
  name_interface(peers_[at]);
  peers_[at].traffic_class = traffic_class;
  peers_[at].fragment_bytes = std::clamp<std::size_t>(full, kFragmentBytesMin, fragment_bytes_);
  peers_[at].users = 1;
  if (is_open_) {
    probes_.begin(at, address, peers_[at].fragment_bytes, host_text(peer) == host_text(bound_));
  }
  return at;
}

void UdpWire::begin_probing(std::uint64_t token) {
  PeerProbes::Options options;
  options.own = address();
  options.paths = options_.paths;
  options.ip_bytes = bound_.storage.ss_family == AF_INET6 ? kIpv6Bytes : kIpv4Bytes;
  options.token = token;
  // As data is sent: by the same socket and interface, with the same rules for what is too long.
  options.send = [this](std::size_t peer, std::size_t path, std::span<const std::byte> datagram) {
    parts_[0] = {const_cast<std::byte*>(datagram.data()), datagram.size()};
    std::size_t first = 0;
    (void)send_parts(peers_[peer], senders_[path % senders_.size()], 1, datagram.size(), &first);
  };
  options.on_finding = [this](std::size_t peer, const Prober::Finding& finding) {
    take_finding(peers_[peer], finding);
  };
  probes_ = PeerProbes(std::move(options));
}

void UdpWire::take_finding(Peer& peer, const Prober::Finding& finding) {
  const FindingText text =
      text_of(finding, {.from = host_text(bound_),
                        .to = host_text(peer.address),
                        .fragment_bytes = peer.fragment_bytes,
                        .ip_bytes = bound_.storage.ss_family == AF_INET6 ? kIpv6Bytes : kIpv4Bytes,
                        .paths = senders_.size(),
                        .port_of = [this](std::size_t path) { return port_of(path); }});
  fall_back(text.what, text.remedy);
  if (finding.kind == Prober::FindingKind::kSmaller) {
    peer.fragment_bytes = finding.bytes;
    least_fragment_bytes_ = least_fragment_bytes_ == 0
                                ? peer.fragment_bytes
                                : std::min(least_fragment_bytes_, peer.fragment_bytes);
  }
}

std::uint16_t UdpWire::port_of(std::size_t path) const {
  SocketAddress at;
  at.bytes = sizeof at.storage;
  (void)getsockname(senders_[path % senders_.size()], at.get(), &at.bytes);
  return ntohs(at.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(at.storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(at.storage).sin_port);
}

Ends UdpWire::ends(std::uint64_t peer) const {
  if (peer >= peers_.size()) {
    return {};
  }
  std::uint16_t least = UINT16_MAX;
  std::uint16_t most = 0;
  for (std::size_t path = 0; path < senders_.size(); ++path) {
    const std::uint16_t port = port_of(path);
    least = std::min(least, port);
    most = std::max(most, port);
  }
  return {.senders = host_text(bound_) + " (UDP ports " + std::to_string(least) + " to " +
                     std::to_string(most) + ")",
          .receiver = to_text(bound_),
          .peer = to_text(peers_[peer].address),
          .peer_host = host_text(peers_[peer].address)};
}

// Asked again with each of its users: routes come and go.
void UdpWire::name_interface(Peer& peer) {
  const Way way =
      options_.interface == 0 ? Way::kByRoutes : find_way(options_.interface, bound_, peer.address);
  peer.interface = way == Way::kByInterface ? options_.interface : 0;
  has_unknown_ways_ = has_unknown_ways_ || way == Way::kUnknown;
}

void UdpWire::remove_peer(std::uint64_t peer) {
  if (peer < peers_.size() && peers_[peer].users > 0) {
    if (--peers_[peer].users == 0) {
      probes_.end(peer);
    }
  }
}

std::string UdpWire::description() const {
  std::string text = "udp, " + std::to_string(options_.paths) + " paths, chunks of " +
                     std::to_string(capabilities().chunk_bytes) + " bytes in " +
                     std::to_string(fragments(capabilities().chunk_bytes + kDataHeaderBytes,
                                              fragment_bytes_ - kPrefixBytes)) +
                     " datagrams, buffer " +
                     kib_of(buffer_bytes_, buffer_bytes_wanted(), "net.core.rmem_max");
  if (send_buffer_bytes_ < 2 * kSendBufferBytes) {
    text +=
        ", send buffers " + kib_of(send_buffer_bytes_, 2 * kSendBufferBytes, "net.core.wmem_max");
  }
  if (!plain_.empty()) {
    text += std::string(", ") + kNoOffloads + plain_;
  }
  if (!unjoined_.empty()) {
    text += ", no UDP_GRO: " + unjoined_;
  }
  if (!unmarked_.empty()) {
    text += ", no ECN: " + unmarked_;
  }
  if (least_fragment_bytes_ > 0) {
    text += ", datagrams of " + std::to_string(least_fragment_bytes_) +
            " bytes where a path takes no more";
  }
  if (probes_.silent_paths() > 0) {
    text +=
        ", " + std::to_string(probes_.silent_paths()) + " paths to peers on which nothing arrives";
  }
  if (plain_peers_ > 0) {
    text += ", " + std::to_string(plain_peers_) +
            " peer(s) without segmentation offload: " + plain_peers_why_;
  }
  if (has_unknown_ways_) {
    text += ", interfaces by the routes alone: the kernel tells of none";
  }
  if (!unstamped_.empty()) {
    text += ", no time stamps of the kernel: " + unstamped_;
  }
  return text;
}

}  // namespace tutti::wire::udp
