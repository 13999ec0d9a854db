// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/udp_wire.hpp"

#include <fcntl.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/random.hpp"
#include "base/system_random.hpp"
#include "wire/udp/route.hpp"

namespace tutti::wire::udp {
namespace {

using transport::Arrival;
using transport::Transmission;

static_assert(std::endian::native == std::endian::little, "prefixes and addresses are copied");

// Headers of older C libraries lack them; the values are the kernel's.
constexpr int kUdpSegment = 103;
constexpr int kUdpGro = 104;
constexpr int kSoBindToIfindex = 62;

constexpr std::size_t kIpv4Bytes = 20 + 8;
constexpr std::size_t kIpv6Bytes = 40 + 8;
constexpr std::size_t kDatagramBytesMax = 65507;  ///< Of IPv4; IPv6 takes a little more.
constexpr std::uint32_t kDataHeaderBytes = 48;
constexpr std::size_t kFragmentBytesMin = 512;
constexpr std::uint8_t kAddressBytesV4 = 1 + 2 + 4 + 2;
constexpr std::uint8_t kAddressBytesV6 = 1 + 2 + 16 + 2;
constexpr std::size_t kLookBytes = kPrefixBytes + transport::kHeaderBytesMax;
constexpr std::size_t kBulkBytes = 4096;
constexpr int kBulkMemory = 8;  ///< Small packets in a row that end the looking ahead.
constexpr transport::TimeNs kChunkTimeNs = 200'000;  ///< Most that one occupies a link.
constexpr std::size_t kWatchedBytes = 1024;          ///< Shorter packets pass wherever any do.
constexpr Bytes kFragmentsMin = 3;                   ///< Of a chunk, on the slowest of links.
constexpr std::uint32_t kOpenPackets = 512;
constexpr int kEct0 = 2;
constexpr int kEcnMask = 3;
constexpr Bytes kSendBufferBytes = 8 << 20;
constexpr Bytes kBufferBytesMax = INT_MAX / 2;  ///< That a socket takes, before it is doubled.
constexpr Bytes kProbeBufferBytes = 1 << 20;    ///< A packet, and what the kernel needs for it.
constexpr int kProbeWaitMs = 200;
constexpr std::size_t kPortsTold = 8;
constexpr const char* kPortsRemedy =
    "let UDP pass between the hosts, from and to all ports of net.ipv4.ip_local_port_range";
constexpr int kStraysMax = 64;  ///< Before a probe, and pieces of it that come one by one.
constexpr const char* kNoOffloads = "no segmentation offload and no UDP_GRO: ";
constexpr const char* kOffloadRemedy =
    "a kernel whose UDP_SEGMENT and UDP_GRO work (Linux 5.0 and later), or TUTTI_NET_OFFLOAD=0";
/// Ways change, and a route may be gone for a moment: it is tried again, for a call in vain.
constexpr std::uint32_t kPlainPackets = 1024;
/// The kernel begins to stamp a while after it was asked to. Until then it does so when it is read.
constexpr int kStampTries = 20;
constexpr transport::TimeNs kStampWaitNs = 500'000;

std::string errno_text() { return std::strerror(errno); }

template <class T>
bool set(int socket, int level, int name, T value) {
  return setsockopt(socket, level, name, &value, sizeof value) == 0;
}

/// The socket's buffer becomes as large as the system allows; its size.
Bytes grow(int socket, int forced, int plain, Bytes bytes) {
  const auto wanted = static_cast<int>(std::min(bytes, kBufferBytesMax));
  if (!set(socket, SOL_SOCKET, forced, wanted)) {
    set(socket, SOL_SOCKET, plain, wanted);
  }
  int got = 0;
  socklen_t length = sizeof got;
  getsockopt(socket, SOL_SOCKET, plain, &got, &length);
  return static_cast<Bytes>(std::max(got, 0));
}

std::uint64_t name_of(const sockaddr_storage& source) {
  if (source.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(source);
    return std::uint64_t{v4.sin_addr.s_addr} << 16 | v4.sin_port;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(source);
  std::uint64_t halves[2];
  std::memcpy(halves, &v6.sin6_addr, sizeof halves);
  return (halves[0] * 0x9e3779b97f4a7c15U ^ halves[1]) * 0x9e3779b97f4a7c15U ^ v6.sin6_port;
}

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

std::size_t fragments(std::size_t bytes, std::size_t each) { return (bytes + each - 1) / each; }

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
  TUTTI_RETURN_IF_ERROR(system_random(&wire->token_, sizeof wire->token_));
  TUTTI_RETURN_IF_ERROR(wire->open_sockets());
  if (wire->options_.segmentation || wire->options_.coalescing) {
    wire->plain_ = wire->try_offloads();
    if (!wire->plain_.empty()) {
      wire->options_.segmentation = false;
      wire->options_.coalescing = false;
      set(wire->receiver_, IPPROTO_UDP, kUdpGro, 0);
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
    set(wire->receiver_, SOL_SOCKET, SO_TIMESTAMPNS, 0);
    if (wire->options_.timestamps) {
      wire->fall_back("no time stamps of the kernel: " + wire->unstamped_,
                      "TUTTI_NET_TIMESTAMPS=off");
    }
  }
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
  const bool marks = family == AF_INET6 ? set(socket, IPPROTO_IPV6, IPV6_TCLASS, kEct0)
                                        : set(socket, IPPROTO_IP, IP_TOS, kEct0);
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
  buffer_bytes_ = grow(receiver_, SO_RCVBUFFORCE, SO_RCVBUF, options_.buffer_bytes);
  const bool is_v6 = bound_.storage.ss_family == AF_INET6;
  if (!(is_v6 ? set(receiver_, IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
              : set(receiver_, IPPROTO_IP, IP_RECVTOS, 1))) {
    unmarked_ = std::string(is_v6 ? "IPV6_RECVTCLASS: " : "IP_RECVTOS: ") + errno_text();
  }
  if (options_.coalescing && !set(receiver_, IPPROTO_UDP, kUdpGro, 1)) {
    options_.coalescing = false;
    unjoined_ = errno_text();
    fall_back("no UDP_GRO: " + unjoined_, kOffloadRemedy);
  }
  send_buffer_bytes_ = 2 * kSendBufferBytes;
  for (std::uint32_t path = 0; path < options_.paths; ++path) {
    TUTTI_ASSIGN_OR_RETURN(const int socket, open_socket());
    senders_.push_back(socket);
    send_buffer_bytes_ =
        std::min(send_buffer_bytes_, grow(socket, SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes));
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
  const std::size_t content = fragment_bytes_ - kPrefixBytes;
  const std::size_t count = std::min<std::size_t>(
      kFragmentsMax, std::max<std::size_t>(1, kDatagramBytesMax / fragment_bytes_));
  const auto most = static_cast<std::uint32_t>(
      std::min<std::size_t>(count * content, kContentBytesMax) - kDataHeaderBytes);
  transport::WireCapabilities it;
  // On a slow link a chunk is shorter, or one alone would be a long queue.
  // The header is part of the first datagram: a chunk of whole ones would spill into one more.
  const Bytes in_time = kChunkTimeNs * 1000 / options_.ps_per_byte;
  const Bytes fitting =
      std::max<Bytes>(in_time / content, kFragmentsMin) * content - kDataHeaderBytes;
  const Bytes wanted = options_.chunk_bytes == 0 ? fitting : options_.chunk_bytes;
  it.chunk_bytes = static_cast<std::uint32_t>(std::min<Bytes>(wanted, most));
  it.mtu_bytes = static_cast<std::uint32_t>(content);
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
    begin_probing(peers_[at], at);
  }
  return at;
}

/// Content of the longest packet that both ends may have agreed on, in the fewest bytes each.
std::size_t UdpWire::least_bytes(const Peer& to) {
  const std::size_t content =
      std::min<std::size_t>(kFragmentsMax * (to.fragment_bytes - kPrefixBytes), kContentBytesMax);
  return kPrefixBytes + fragments(content, kFragmentsMax);
}

void UdpWire::begin_probing(Peer& peer, std::size_t at) {
  const bool is_v6 = bound_.storage.ss_family == AF_INET6;
  Prober::Options options;
  options.bytes = static_cast<std::uint16_t>(peer.fragment_bytes);
  options.least_bytes =
      static_cast<std::uint16_t>(std::min(least_bytes(peer), peer.fragment_bytes));
  options.ip_bytes = is_v6 ? kIpv6Bytes : kIpv4Bytes;
  options.is_near = host_text(peer.address) == host_text(bound_);
  options.paths = options.is_near ? 1 : options_.paths;
  peer.prober.emplace(options);
  // Its place in the low bits: an answer finds it at once.
  token_ = mix64(token_ + 1);
  peer.token = (token_ << 16) | (at & 0xffff);
  probe_due_ns_ = 0;
}

void UdpWire::probe_peers(transport::TimeNs now) {
  probe_due_ns_ = transport::kNever;
  for (Peer& peer : peers_) {
    if (peer.users > 0 && peer.prober) {
      peer.prober->poll(now, [&](const Prober::Probe& probe) { send_probe(peer, probe); });
      tell_findings(peer);
      probe_due_ns_ = std::min(probe_due_ns_, peer.prober->due_ns());
    }
  }
}

/// As data is sent: by the same socket and interface, with the same rules for what is too long.
void UdpWire::send_probe(Peer& to, const Prober::Probe& probe) {
  probe_.resize(std::max<std::size_t>(probe_.size(), probe.bytes));
  const WireAddress mine = address();
  (void)encode_probe({.is_answer = false,
                      .path = probe.path,
                      .bytes = probe.bytes,
                      .round = probe.round,
                      .token = to.token,
                      .address = std::span(mine.bytes).first(mine.length)},
                     probe_.data());
  parts_[0] = {probe_.data(), probe.bytes};
  std::size_t first = 0;
  (void)send_parts(to, senders_[probe.path % senders_.size()], 1, probe.bytes, &first);
}

void UdpWire::take_probe(const ProbeHead& probe, transport::TimeNs now) {
  if (probe.is_answer) {
    const std::size_t at = probe.token & 0xffff;
    if (at < peers_.size() && peers_[at].users > 0 && peers_[at].prober &&
        peers_[at].token == probe.token) {
      peers_[at].prober->on_answer(now, {probe.path, probe.bytes, probe.round});
      tell_findings(peers_[at]);
      probe_due_ns_ = std::min(probe_due_ns_, peers_[at].prober->due_ns());
    }
    return;
  }
  bool is_answered = false;
  for (Peer& peer : peers_) {
    const WireAddress address = address_of(peer.address, 0);
    // The last two bytes are no part of the place.
    const std::size_t bytes = address.length - 2U;
    if (peer.users == 0 || !peer.prober || probe.address.size() != address.length ||
        !std::equal(probe.address.begin(), probe.address.end() - 2, address.bytes.begin(),
                    address.bytes.begin() + static_cast<std::ptrdiff_t>(bytes))) {
      continue;
    }
    peer.prober->on_heard();
    probe_due_ns_ = std::min(probe_due_ns_, peer.prober->due_ns());
    if (!std::exchange(is_answered, true)) {
      ProbeHead answer = probe;
      answer.is_answer = true;
      answer.address = {};
      std::array<std::byte, kProbeHeadBytes> out{};
      parts_[0] = {out.data(), encode_probe(answer, out.data())};
      std::size_t first = 0;
      // Each try by another path back: one that is dead does not make those there look so.
      (void)send_parts(peer, senders_[(probe.path + (probe.round & 0xff)) % senders_.size()], 1,
                       out.size(), &first);
    }
  }
}

void UdpWire::tell_findings(Peer& peer) {
  auto finding = peer.prober->take_finding();
  if (!finding) {
    return;  // Nearly always; what follows costs more than a look.
  }
  const std::size_t ip_bytes = bound_.storage.ss_family == AF_INET6 ? kIpv6Bytes : kIpv4Bytes;
  const std::string where = " from " + host_text(bound_) + " to " + host_text(peer.address);
  for (; finding; finding = peer.prober->take_finding()) {
    const std::string here = std::to_string(peer.fragment_bytes + ip_bytes);
    const std::string found = std::to_string(finding->bytes + ip_bytes);
    const std::string remedy = "an MTU of " + here +
                               " on all switches and routers between them, or one that they let "
                               "pass on the interfaces of both hosts (ip link set DEVICE mtu " +
                               found + ")";
    switch (finding->kind) {
      case Prober::FindingKind::kSmaller:
        fall_back("an MTU of " + found + " and not " + here + where +
                      ": longer packets do not arrive, and nothing says so",
                  remedy);
        peer.fragment_bytes = finding->bytes;
        least_fragment_bytes_ = least_fragment_bytes_ == 0
                                    ? peer.fragment_bytes
                                    : std::min(least_fragment_bytes_, peer.fragment_bytes);
        break;
      case Prober::FindingKind::kNoneFits:
        fall_back(
            "no packets of even " + found + " bytes" + where + ": short ones arrive, those do not",
            remedy);
        break;
      case Prober::FindingKind::kSilentPaths: {
        silent_paths_ += finding->paths.size();
        std::string ports;
        for (std::size_t i = 0; i < std::min(finding->paths.size(), kPortsTold); ++i) {
          ports += " " + std::to_string(port_of(finding->paths[i]));
        }
        fall_back(std::to_string(finding->paths.size()) + " of " + std::to_string(senders_.size()) +
                      " paths on which nothing arrives" + where + " (from UDP ports" + ports +
                      (finding->paths.size() > kPortsTold ? " and others" : "") + ")",
                  kPortsRemedy);
        break;
      }
    }
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

Reach UdpWire::reach(std::uint64_t peer) const {
  if (peer >= peers_.size() || !peers_[peer].prober) {
    return {};
  }
  const Prober& it = *peers_[peer].prober;
  return {.is_known = it.is_known(),
          .is_tried = it.is_tried(),
          .is_heard = it.is_heard(),
          .is_too_small = it.is_too_small(),
          .silent = {}};
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
    --peers_[peer].users;
  }
}

bool UdpWire::send(const Transmission& sent) {
  if (sent.peer >= peers_.size() || peers_[sent.peer].users == 0) {
    ++counters_.refused;
    return true;
  }
  Outcome outcome = Outcome::kRecut;
  while (outcome == Outcome::kRecut) {
    outcome = send_packet(peers_[sent.peer], sent);
  }
  return outcome == Outcome::kTaken;
}

UdpWire::Outcome UdpWire::send_packet(Peer& to, const Transmission& sent) {
  const std::size_t each = to.fragment_bytes - kPrefixBytes;
  const std::size_t content = sent.header_bytes + std::size_t{sent.payload_bytes};
  if (fragments(content, each) > kFragmentsMax) {
    ++counters_.refused;  // Longer than both ends agreed on.
    return Outcome::kTaken;
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
  if (content > kWatchedBytes && to.prober) {
    to.prober->on_data();
    probe_due_ns_ = std::min(probe_due_ns_, to.prober->due_ns());
  }
  return outcome;
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
  std::size_t bytes = 2;
  for (const Transmission& packet : packets) {
    bytes += kPartHeadBytes + packet.header_bytes + packet.payload_bytes;
  }
  const Transmission& last = packets.back();
  if (packets.size() == 1 || packets.size() > kTogetherMax || last.peer >= peers_.size() ||
      peers_[last.peer].users == 0 || bytes > peers_[last.peer].fragment_bytes) {
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
  const std::size_t least = least_bytes(to);
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
    if (to.prober) {
      to.prober->limit(static_cast<std::uint16_t>(room));
    }
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
    set(probe, SOL_SOCKET, kSoBindToIfindex, to.interface);
  }
  const bool is_known = connect(probe, to.address.get(), to.address.bytes) == 0 &&
                        getsockopt(probe, is_v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                   is_v6 ? IPV6_MTU : IP_MTU, &mtu_bytes, &length) == 0 &&
                        mtu_bytes > static_cast<int>(headers);
  return is_known ? static_cast<std::size_t>(mtu_bytes) - headers : 0;
}

std::ptrdiff_t UdpWire::take(std::span<iovec> parts, int flags, Batch& batch) {
  sockaddr_storage source;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) * 2 + CMSG_SPACE(sizeof(timespec))];
  msghdr message{};
  message.msg_name = &source;
  message.msg_namelen = sizeof source;
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ++counters_.calls_received;
  const std::ptrdiff_t bytes = recvmsg(receiver_, &message, MSG_DONTWAIT | MSG_TRUNC | flags);
  if (bytes < 0) {
    return -1;
  }
  batch.bytes = static_cast<std::size_t>(bytes);
  batch.fragment_bytes = batch.bytes;
  batch.source = name_of(source);
  batch.received_ns = transport::kNever;
  batch.ecn = false;
  for (cmsghdr* it = CMSG_FIRSTHDR(&message); it != nullptr; it = CMSG_NXTHDR(&message, it)) {
    if (it->cmsg_level == IPPROTO_UDP && it->cmsg_type == kUdpGro) {
      int size = 0;
      std::memcpy(&size, CMSG_DATA(it), sizeof size);
      batch.fragment_bytes = size > 0 ? static_cast<std::size_t>(size) : batch.bytes;
    } else if ((it->cmsg_level == IPPROTO_IP && it->cmsg_type == IP_TOS) ||
               (it->cmsg_level == IPPROTO_IPV6 && it->cmsg_type == IPV6_TCLASS)) {
      // One byte of IPv4, an int of IPv6: its low byte comes first.
      batch.ecn = (*CMSG_DATA(it) & kEcnMask) == kEcnMask;
    } else if (it->cmsg_level == SOL_SOCKET && it->cmsg_type == SCM_TIMESTAMPNS &&
               (flags & MSG_PEEK) == 0) {
      timespec stamp{};
      std::memcpy(&stamp, CMSG_DATA(it), sizeof stamp);
      const auto stamp_ns = static_cast<transport::TimeNs>(stamp.tv_sec) * 1'000'000'000U +
                            static_cast<transport::TimeNs>(stamp.tv_nsec);
      if (clock_.is_due(stamp_ns)) {
        clock_.look(ReceptionClock::read());
      }
      batch.received_ns = clock_.received_ns(stamp_ns);
    }
  }
  return bytes;
}

std::size_t UdpWire::receive(Arrivals& arrivals, std::size_t packets_max) {
  const transport::TimeNs begun_ns = assembly_.is_waiting() ? monotonic_ns() : 0;
  std::size_t packets = 0;
  while (packets < packets_max) {
    bool has_data = true;
    if (bulk_ > 0 && receive_placed(arrivals, has_data)) {
      ++packets;
      continue;
    }
    if (!has_data || !receive_staged(arrivals)) {
      if (begun_ns != 0) {
        report_partial(arrivals, begun_ns);
      }
      break;
    }
    ++packets;
  }
  return packets;
}

void UdpWire::report_partial(Arrivals& arrivals, transport::TimeNs now_ns) {
  assembly_.on_all_added(now_ns, [&](std::span<const std::byte> header) {
    Arrival arrival;
    arrival.header = header;
    arrival.trimmed = true;
    arrivals.arrived(arrival);
  });
}

// Looks at the first bytes, and if a whole packet is there whose place is known, takes it there.
// False: nothing was taken.
bool UdpWire::receive_placed(Arrivals& arrivals, bool& has_data) {
  std::byte look[kLookBytes];
  iovec one = {look, sizeof look};
  Batch batch;
  const std::ptrdiff_t got = take({&one, 1}, MSG_PEEK, batch);
  if (got < 0) {
    has_data = false;
    return false;
  }
  const std::size_t known = std::min(batch.bytes, sizeof look);
  Prefix prefix;
  if (!decode({look, std::min(known, batch.fragment_bytes)}, prefix) || prefix.index != 0 ||
      batch.bytes != prefix.content_bytes + prefix.count * kPrefixBytes ||
      fragments(batch.bytes, batch.fragment_bytes) != prefix.count ||
      batch.bytes > staging_.size() || batch.fragment_bytes < kPrefixBytes + prefix.header_bytes ||
      batch.bytes < kBulkBytes) {
    return false;
  }
  std::byte* const place =
      arrivals.place({look + kPrefixBytes, prefix.header_bytes}, prefix.payload_bytes());
  if (place == nullptr) {
    return false;
  }
  std::size_t used = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < prefix.count; ++i) {
    const std::size_t head = kPrefixBytes + (i == 0 ? prefix.header_bytes : 0);
    std::byte* const head_at =
        i == 0 ? look : prefixes_.data() + i * kPrefixBytes;  // The same bytes once more.
    parts_[used++] = {head_at, head};
    const std::size_t bytes = std::min(batch.fragment_bytes - head, prefix.payload_bytes() - at);
    if (bytes > 0) {
      parts_[used++] = {place + at, bytes};
      at += bytes;
    }
  }
  if (take({parts_.data(), used}, 0, batch) < 0) {
    return false;
  }
  for (std::size_t i = 1; i < prefix.count; ++i) {
    Prefix other;
    if (!decode({prefixes_.data() + i * kPrefixBytes, kPrefixBytes}, other) || other.index != i ||
        other.packet != prefix.packet || other.content_bytes != prefix.content_bytes) {
      // Parts of two packets of the same sizes: what was written lies where more is to come.
      std::size_t to = 0;
      for (const iovec& part : std::span(parts_).first(used)) {
        std::memcpy(staging_.data() + to, part.iov_base, part.iov_len);
        to += part.iov_len;
      }
      deliver(arrivals, batch);
      return true;
    }
  }
  counters_.datagrams_received += prefix.count;
  bulk_ = kBulkMemory;
  counters_.payload_bytes_placed += prefix.payload_bytes();
  Arrival arrival;
  arrival.header = {look + kPrefixBytes, prefix.header_bytes};
  arrival.payload_bytes = prefix.payload_bytes();
  arrival.received_ns = batch.received_ns;
  arrival.ecn = batch.ecn;
  arrivals.arrived(arrival);
  return true;
}

bool UdpWire::receive_staged(Arrivals& arrivals) {
  iovec one = {staging_.data(), staging_.size()};
  Batch batch;
  if (take({&one, 1}, 0, batch) < 0) {
    return false;
  }
  bulk_ = batch.bytes >= kBulkBytes ? kBulkMemory : std::max(0, bulk_ - 1);
  if (batch.bytes > staging_.size()) {
    ++counters_.malformed_dropped;
    return true;
  }
  deliver(arrivals, batch);
  return true;
}

void UdpWire::deliver(Arrivals& arrivals, const Batch& batch) {
  std::byte* const base = staging_.data();
  Prefix first;
  const std::size_t count = batch.bytes == 0 ? 0 : fragments(batch.bytes, batch.fragment_bytes);
  counters_.datagrams_received += count;
  // One whole packet: its pieces are moved together.
  if (count > 0 && decode({base, std::min(batch.bytes, batch.fragment_bytes)}, first) &&
      first.index == 0 && first.count == count &&
      batch.bytes == first.content_bytes + count * kPrefixBytes &&
      batch.fragment_bytes >= kPrefixBytes + first.header_bytes) {
    // Two packets of the same sizes, of which one lost its last and one its first: joined they are
    // as long as one. Then each piece is looked at by itself.
    bool fits = true;
    for (std::size_t i = 1; i < count && fits; ++i) {
      const std::size_t from = i * batch.fragment_bytes;
      Prefix other;
      fits = decode({base + from, std::min(batch.fragment_bytes, batch.bytes - from)}, other) &&
             other.index == i && other.packet == first.packet &&
             other.content_bytes == first.content_bytes;
    }
    if (fits) {
      std::size_t to = batch.fragment_bytes;
      for (std::size_t i = 1; i < count; ++i) {
        const std::size_t from = i * batch.fragment_bytes;
        const std::size_t bytes = std::min(batch.fragment_bytes, batch.bytes - from);
        std::memmove(base + to, base + from + kPrefixBytes, bytes - kPrefixBytes);
        to += bytes - kPrefixBytes;
      }
      deliver_content(arrivals, first, {base + kPrefixBytes, first.content_bytes},
                      batch.received_ns, batch.ecn);
      return;
    }
  }
  const transport::TimeNs now_ns = monotonic_ns();
  for (std::size_t from = 0; from < batch.bytes; from += batch.fragment_bytes) {
    const std::size_t bytes = std::min(batch.fragment_bytes, batch.bytes - from);
    if (base[from] == std::byte{kMagicTogether}) {
      const auto take = [&](std::span<const std::byte> header, std::span<const std::byte> payload) {
        Arrival arrival;
        arrival.header = header;
        arrival.payload = payload;
        arrival.payload_bytes = static_cast<std::uint32_t>(payload.size());
        arrival.received_ns = batch.received_ns;
        arrival.ecn = batch.ecn;
        counters_.payload_bytes_copied += payload.size();
        arrivals.arrived(arrival);
      };
      counters_.malformed_dropped += decode_together({base + from, bytes}, take) ? 0 : 1;
      continue;
    }
    Prefix prefix;
    if (!decode({base + from, bytes}, prefix)) {
      ProbeHead probe;
      if (decode_probe({base + from, bytes}, probe)) {
        take_probe(probe, now_ns);
      } else {
        ++counters_.malformed_dropped;
      }
      continue;
    }
    bool ecn = batch.ecn;
    const std::span<const std::byte> content = assembly_.add(
        now_ns, batch.source, prefix, {base + from + kPrefixBytes, bytes - kPrefixBytes}, ecn);
    if (!content.empty()) {
      deliver_content(arrivals, prefix, content, batch.received_ns, ecn);
    }
  }
  counters_.fragments_dropped +=
      assembly_.dropped() - std::exchange(assembly_dropped_, assembly_.dropped());
}

void UdpWire::deliver_content(Arrivals& arrivals, const Prefix& prefix,
                              std::span<const std::byte> content, transport::TimeNs received_ns,
                              bool ecn) {
  Arrival arrival;
  arrival.header = content.first(prefix.header_bytes);
  arrival.payload = content.subspan(prefix.header_bytes);
  arrival.payload_bytes = prefix.payload_bytes();
  arrival.received_ns = received_ns;
  arrival.ecn = ecn;
  counters_.payload_bytes_copied += arrival.payload_bytes;
  arrivals.arrived(arrival);
}

namespace {

/// Takes one packet and compares it with what was sent.
class Probe : public Arrivals {
 public:
  Probe(std::span<const std::byte> header, std::span<const std::byte> payload)
      : header_(header), payload_(payload) {}
  std::byte* place(std::span<const std::byte>, std::uint32_t) override { return nullptr; }
  void arrived(const Arrival& arrival) override {
    // What an earlier process of this port is still sent does not count.
    if (same_ || arrival.trimmed ||
        !std::equal(arrival.header.begin(), arrival.header.end(), header_.begin(), header_.end())) {
      return;
    }
    came_ = true;
    received_ns_ = arrival.received_ns;
    same_ = std::equal(arrival.payload.begin(), arrival.payload.end(), payload_.begin(),
                       payload_.end());
  }
  bool came() const { return came_; }
  bool same() const { return same_; }
  transport::TimeNs received_ns() const { return received_ns_; }

 private:
  std::span<const std::byte> header_;
  std::span<const std::byte> payload_;
  transport::TimeNs received_ns_ = transport::kNever;
  bool came_ = false;
  bool same_ = false;
};

}  // namespace

std::string UdpWire::try_offloads() {
  auto self = add_peer(address(), 0);
  if (!self.ok()) {
    return self.status().message();
  }
  const std::uint32_t most = capabilities().chunk_bytes;
  const std::size_t each = fragment_bytes_ - kPrefixBytes;
  // With a short last fragment, and all of one size: some kernels mangled the latter.
  const std::uint32_t even =
      static_cast<std::uint32_t>(most / each > 1 ? most / each * each - kDataHeaderBytes : most);
  std::string wrong;
  for (const std::uint32_t bytes : {most - 1, even}) {
    std::vector<std::byte> payload(bytes);
    for (std::size_t i = 0; i < payload.size(); ++i) {
      payload[i] = static_cast<std::byte>(i * 2654435761U >> 13);
    }
    Transmission sent;
    sent.header.fill(std::byte{0x5a});
    sent.header_bytes = kDataHeaderBytes;
    sent.payload = payload.data();
    sent.payload_bytes = bytes;
    sent.peer = *self;
    Probe probe({sent.header.data(), sent.header_bytes}, payload);
    send(sent);
    pollfd waiting = {receiver_, POLLIN, 0};
    for (int i = 0; i < kStraysMax && !probe.came() && poll(&waiting, 1, kProbeWaitMs) > 0; ++i) {
      (void)receive(probe, 1);
    }
    if (peers_[*self].was_plain) {
      wrong = "refused: " + plain_peers_why_;
    } else if (!probe.came()) {
      wrong = "a packet of " + std::to_string(bytes) + " bytes did not arrive";
    } else if (!probe.same()) {
      wrong = "a packet of " + std::to_string(bytes) + " bytes arrived changed";
    } else if (options_.segmentation) {
      wrong = try_cutting(sent);
    }
    if (!wrong.empty()) {
      break;
    }
  }
  remove_peer(*self);
  bulk_ = 0;
  counters_ = {};
  return wrong;
}

// To itself a host hands over what is to be cut in one piece, to a socket with UDP_GRO. For one
// without, the kernel cuts it as for a peer.
std::string UdpWire::try_cutting(Transmission sent) {
  const auto socket = open_socket();
  if (!socket.ok()) {
    return socket.status().message();
  }
  grow(*socket, SO_RCVBUFFORCE, SO_RCVBUF, kProbeBufferBytes);
  SocketAddress at;
  at.bytes = sizeof at.storage;
  (void)getsockname(*socket, at.get(), &at.bytes);
  const auto peer = add_peer(address_of(at, fragment_bytes_), 0);
  if (!peer.ok()) {
    close(*socket);
    return peer.status().message();
  }
  sent.peer = *peer;
  send(sent);
  const std::uint64_t number = (next_packet_ - 1) & ((1ULL << kPacketBits) - 1);
  const std::size_t each = peers_[*peer].fragment_bytes - kPrefixBytes;
  std::vector<std::byte> content(sent.header.begin(), sent.header.begin() + sent.header_bytes);
  content.insert(content.end(), sent.payload, sent.payload + sent.payload_bytes);
  const std::size_t count = fragments(content.size(), each);
  std::vector<std::byte> datagram(peers_[*peer].fragment_bytes);
  std::string wrong;
  std::size_t taken = 0;
  pollfd waiting = {*socket, POLLIN, 0};
  for (std::size_t i = 0; taken < count && wrong.empty() && i < count + kStraysMax; ++i) {
    if (poll(&waiting, 1, kProbeWaitMs) <= 0) {
      break;
    }
    const std::ptrdiff_t bytes =
        recv(*socket, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_TRUNC);
    Prefix prefix;
    if (bytes < 0 ||
        !decode(
            std::span(datagram).first(std::min(static_cast<std::size_t>(bytes), datagram.size())),
            prefix) ||
        prefix.packet != number) {
      continue;
    }
    const auto piece =
        std::span(content).subspan(taken * each, std::min(each, content.size() - taken * each));
    if (prefix.index != taken) {
      wrong = "datagrams that the kernel cut arrived out of order, or one of them did not";
    } else if (static_cast<std::size_t>(bytes) != kPrefixBytes + piece.size() ||
               !std::equal(piece.begin(), piece.end(), datagram.begin() + kPrefixBytes)) {
      wrong = "a datagram that the kernel cut arrived changed";
    }
    ++taken;
  }
  remove_peer(*peer);
  close(*socket);
  return wrong.empty() && taken < count ? "a datagram that the kernel cut did not arrive" : wrong;
}

// A packet that lies in the socket for a while: the stamp must be of its arrival.
std::string UdpWire::try_timestamps() {
  if (!set(receiver_, SOL_SOCKET, SO_TIMESTAMPNS, 1)) {
    return "no SO_TIMESTAMPNS: " + errno_text();
  }
  auto self = add_peer(address(), 0);
  if (!self.ok()) {
    return self.status().message();
  }
  clock_.look(ReceptionClock::read());
  std::string wrong;
  for (int i = 0; i < kStampTries; ++i) {
    Transmission sent;
    sent.header.fill(static_cast<std::byte>(i));
    sent.header_bytes = kDataHeaderBytes;
    sent.peer = *self;
    Probe probe({sent.header.data(), sent.header_bytes}, {});
    const ReceptionClock::Reading before = ReceptionClock::read();
    send(sent);
    pollfd waiting = {receiver_, POLLIN, 0};
    wrong = "a packet did not arrive";
    if (poll(&waiting, 1, kProbeWaitMs) <= 0) {
      break;
    }
    const timespec pause = {0, static_cast<long>(kStampWaitNs)};
    nanosleep(&pause, nullptr);
    const transport::TimeNs read_ns = ReceptionClock::read().monotonic_ns;
    while (!probe.same() && receive(probe, 1) > 0) {
    }
    const transport::TimeNs received_ns = probe.received_ns();
    wrong = received_ns == transport::kNever     ? "it gives none"
            : received_ns <= before.monotonic_ns ? "one is from before its packet"
                                                 : "they tell when it was read, not when it came";
    if (probe.same() && received_ns > before.monotonic_ns && received_ns < read_ns) {
      wrong.clear();
      break;
    }
  }
  remove_peer(*self);
  bulk_ = 0;
  counters_ = {};
  return wrong;
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
  if (silent_paths_ > 0) {
    text += ", " + std::to_string(silent_paths_) + " paths to peers on which nothing arrives";
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
