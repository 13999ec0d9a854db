// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/xdp_wire.hpp"

#include <net/if.h>
#include <net/if_arp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/random.hpp"
#include "base/system_random.hpp"
#include "wire/udp/finding_text.hpp"
#include "wire/udp/udp_socket.hpp"
#include "wire/xdp/xdp_helper.hpp"

namespace tutti::wire::xdp {

using udp::errno_text;
using udp::kPrefixBytes;
using udp::set_option;

namespace {

static_assert(std::endian::native == std::endian::little, "prefixes and addresses are copied");

constexpr std::byte kAddressMagic{0xa4};  ///< No first byte of an address of UdpWire.
constexpr std::uint8_t kAddressBytes = 1 + 2 + 4 + 2;
constexpr std::size_t kFragmentBytesMin = 512;
constexpr std::uint32_t kOpenPackets = 512;
constexpr std::uint32_t kReceiveFramesMin = 256;
constexpr Bytes kKernelBufferBytes = 8 << 20;
// Of path 0: of those that systems take for outgoing connections, and firewalls let pass.
constexpr std::uint32_t kFirstPort = 32768;
constexpr std::uint32_t kPortsEnd = 60999;

std::string end_text(const UdpEnd& end, bool with_port) {
  udp::SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = end.address;
  v4.sin_port = end.port;
  return with_port ? udp::to_text(address) : udp::host_text(address);
}

}  // namespace

XdpWire::XdpWire(const XdpOptions& options)
    : options_(options),
      staging_(udp::kContentBytesMax + 1),
      kernel_staging_(udp::kContentBytesMax + 1),
      assembly_(kOpenPackets) {
  if (!options_.clock) {
    options_.clock = monotonic_ns;
  }
}

Status XdpWire::check_options() const {
  if (options_.paths == 0 || options_.paths > 1024) {
    return Status(ErrorCode::kInvalidArgument, "xdp wire: paths must be 1 to 1024");
  }
  if (options_.mtu_bytes < 576) {
    return Status(ErrorCode::kInvalidArgument, "xdp wire: the interface's MTU is " +
                                                   std::to_string(options_.mtu_bytes) +
                                                   " bytes; it must be at least 576");
  }
  if (options_.local.storage.ss_family != AF_INET) {
    return Status(ErrorCode::kUnsupported,
                  "xdp wire: " + options_.interface +
                      ": only IPv4 is supported; NCCL_SOCKET_FAMILY=AF_INET, or "
                      "TUTTI_NET_WIRE=udp");
  }
  return {};
}

void XdpWire::number_from(std::uint64_t packet, std::uint64_t token) {
  next_packet_ = packet;
  first_port_ =
      static_cast<std::uint16_t>(kFirstPort + token % (kPortsEnd - kFirstPort - options_.paths));
}

Result<std::unique_ptr<XdpWire>> XdpWire::open(const XdpOptions& options) {
  std::unique_ptr<XdpWire> wire(new XdpWire(options));
  TUTTI_RETURN_IF_ERROR(wire->check_options());
  // From a random one on: a process that is started again may get the ports of the one before.
  std::uint64_t random[2] = {};
  TUTTI_RETURN_IF_ERROR(system_random(random, sizeof random));
  wire->number_from(random[0], random[1]);
  TUTTI_RETURN_IF_ERROR(wire->open_kernel_socket());
  TUTTI_RETURN_IF_ERROR(wire->open_xdp_socket());
  TUTTI_RETURN_IF_ERROR(wire->open_epoll());
  wire->begin_probing(random[1]);
  return wire;
}

Result<std::unique_ptr<XdpWire>> XdpWire::open(const XdpOptions& options, XdpKernel kernel) {
  std::unique_ptr<XdpWire> wire(new XdpWire(options));
  TUTTI_RETURN_IF_ERROR(wire->check_options());
  const std::uint64_t token = mix64(kernel.random);
  wire->number_from(kernel.random, token);
  wire->end_ = kernel.end;
  wire->mac_ = kernel.mac;
  wire->stack_ = std::move(kernel.stack);
  wire->choose_frames();
  wire->xsk_options_.receive_frames = kernel.receive_frames;
  wire->xsk_options_.send_frames = kernel.send_frames;
  wire->xsk_ = std::make_unique<Xsk>(kernel.open_xsk(wire->xsk_options_), wire->xsk_options_);
  wire->begin_probing(token);
  return wire;
}

void XdpWire::fall_back(const std::string& what, const std::string& remedy) const {
  if (options_.on_fallback) {
    options_.on_fallback(what, remedy);
  }
}

Status XdpWire::open_kernel_socket() {
  kernel_.reset(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (kernel_.get() < 0) {
    return Status(ErrorCode::kUnavailable, "xdp wire: no UDP socket: " + why_no_descriptor());
  }
  udp::SocketAddress local = options_.local;
  auto& v4 = reinterpret_cast<sockaddr_in&>(local.storage);
  v4.sin_port = 0;
  if (bind(kernel_.get(), local.get(), local.bytes) != 0 ||
      getsockname(kernel_.get(), local.get(), &local.bytes) != 0) {
    return Status(ErrorCode::kUnavailable,
                  "xdp wire: cannot bind to the interface's address: " + errno_text());
  }
  end_ = {v4.sin_addr.s_addr, v4.sin_port};
  kernel_buffer_bytes_ =
      udp::grow_buffer(kernel_.get(), SO_RCVBUFFORCE, SO_RCVBUF, kKernelBufferBytes);
  if (!set_option(kernel_.get(), IPPROTO_IP, IP_RECVTOS, 1)) {
    fall_back("no ECN (IP_RECVTOS: " + errno_text() + ") in packets that the kernel's UDP receives",
              "a system that lets UDP sockets receive the TOS field");
  }

  ifreq request{};
  options_.interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(kernel_.get(), SIOCGIFHWADDR, &request) != 0) {
    return Status(ErrorCode::kUnavailable,
                  "xdp wire: no interface '" + options_.interface + "': " + errno_text());
  }
  if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER) {
    return Status(ErrorCode::kUnsupported, "xdp wire: " + options_.interface +
                                               " is no Ethernet interface; TUTTI_NET_WIRE=udp");
  }
  std::memcpy(mac_.data(), request.ifr_hwaddr.sa_data, mac_.size());
  xsk_options_.interface = static_cast<int>(if_nametoindex(options_.interface.c_str()));
  if (xsk_options_.interface == 0) {
    return Status(ErrorCode::kUnavailable,
                  "xdp wire: no interface '" + options_.interface + "': " + errno_text());
  }
  stack_ = std::make_unique<SystemStack>(kernel_.get(), xsk_options_.interface, end_.address);
  return {};
}

/// Sizes of frames and datagrams. UDP payload of the longest datagram that the interface takes.
std::size_t XdpWire::choose_frames() {
  const auto wanted = static_cast<std::size_t>(options_.mtu_bytes) - udp::kIpv4Bytes;
  const auto room = [](std::size_t frame_bytes) {
    return frame_bytes - kHeadroomBytes - kHeadBytes;
  };
  xsk_options_.frame_bytes = wanted <= room(2048) ? 2048 : 4096;
  fragment_bytes_ = std::min(wanted, room(xsk_options_.frame_bytes));
  xsk_options_.end = end_;
  return wanted;
}

Status XdpWire::open_xdp_socket() {
  const std::size_t wanted = choose_frames();
  xsk_options_.mode = options_.mode;
  xsk_options_.receive_frames = static_cast<std::uint32_t>(std::bit_floor(std::clamp<Bytes>(
      options_.buffer_bytes / xsk_options_.frame_bytes, kReceiveFramesMin, kFramesMax)));
  auto parts = open_xsk(xsk_options_, &program_);
  if (!parts.ok() && parts.status().code() == ErrorCode::kUnsupported && !options_.helper.empty()) {
    auto asked = ask_helper(options_.helper, xsk_options_, kernel_.get());
    if (!asked.ok()) {
      return {asked.status().code(),
              parts.status().message() + "; the helper: " + asked.status().message()};
    }
    helper_ = std::move(asked->connection);
    parts = std::move(asked->parts);
  }
  if (!parts.ok()) {
    const ErrorCode code = parts.status().code();
    return {code == ErrorCode::kTimeout ? ErrorCode::kUnavailable : code,
            options_.interface + ": " + parts.status().message()};
  }
  TUTTI_ASSIGN_OR_RETURN(xsk_, Xsk::open(std::move(*parts), xsk_options_));
  if (options_.mode == AttachMode::kAny && mode() == AttachMode::kGeneric) {
    const int error = xsk_->parts().native_error;
    fall_back("AF_XDP in generic mode, in which the kernel copies each packet twice" +
                  (error == 0 ? "" : "; native mode: " + std::string(std::strerror(error))),
              "a driver with XDP (some need a smaller MTU, or fewer queues for it), or "
              "TUTTI_NET_WIRE=udp");
  }
  if (fragment_bytes_ < wanted) {
    fall_back("packets of " + std::to_string(fragment_bytes_ + udp::kIpv4Bytes) +
                  " bytes and not " + std::to_string(options_.mtu_bytes) +
                  ": one of AF_XDP lies in a page",
              "TUTTI_NET_WIRE=udp where jumbo frames matter");
  }
  return {};
}

Status XdpWire::open_epoll() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (epoll_.get() < 0) {
    return Status(ErrorCode::kUnavailable, "xdp wire: no epoll: " + why_no_descriptor());
  }
  for (const int descriptor : {xsk_->descriptor(), kernel_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return Status(ErrorCode::kUnavailable, "xdp wire: epoll: " + errno_text());
    }
  }
  return {};
}

transport::WireCapabilities XdpWire::capabilities() const {
  transport::WireCapabilities it;
  it.chunk_bytes = udp::chunk_bytes_of(fragment_bytes_, udp::kFragmentsMax, options_.chunk_bytes,
                                       options_.ps_per_byte);
  it.mtu_bytes = static_cast<std::uint32_t>(fragment_bytes_ - kPrefixBytes);
  it.paths = options_.paths;
  it.rails = 1;
  it.ps_per_byte = options_.ps_per_byte;
  it.base_rtt_ns = options_.base_rtt_ns;
  it.base_rtt_is_guess = true;
  return it;
}

WireAddress XdpWire::address() const { return address_of(end_, fragment_bytes_); }

// Magic, port, address, bytes of a full datagram.
WireAddress XdpWire::address_of(const UdpEnd& end, std::size_t fragment_bytes) const {
  WireAddress out;
  out.bytes[0] = kAddressMagic;
  std::memcpy(&out.bytes[1], &end.port, 2);
  std::memcpy(&out.bytes[3], &end.address, 4);
  const auto full = static_cast<std::uint16_t>(fragment_bytes);
  std::memcpy(&out.bytes[7], &full, 2);
  out.length = kAddressBytes;
  return out;
}

Result<std::uint64_t> XdpWire::add_peer(const WireAddress& address, std::uint8_t traffic_class) {
  if (address.length != kAddressBytes || address.bytes[0] != kAddressMagic) {
    return Status(ErrorCode::kInvalidArgument, "xdp wire: the peer's address is not one of AF_XDP");
  }
  UdpEnd end;
  std::uint16_t full = 0;
  std::memcpy(&end.port, &address.bytes[1], 2);
  std::memcpy(&end.address, &address.bytes[3], 4);
  std::memcpy(&full, &address.bytes[7], 2);
  // One name for an address: small packets of all its connections may share datagrams.
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].users > 0 && peers_[i].traffic_class == traffic_class && peers_[i].end == end) {
      ++peers_[i].users;
      return i;
    }
  }
  const auto free = std::find_if(peers_.begin(), peers_.end(),
                                 [](const Peer& known) { return known.users == 0; });
  const auto at = static_cast<std::size_t>(free - peers_.begin());
  if (free == peers_.end()) {
    peers_.emplace_back();
  }
  Peer& peer = peers_[at];
  peer = {};
  peer.end = end;
  peer.traffic_class = traffic_class;
  peer.fragment_bytes = std::clamp<std::size_t>(full, kFragmentBytesMin, fragment_bytes_);
  peer.users = 1;
  look(peer, options_.clock());
  probes_.begin(at, address, peer.fragment_bytes, peer.kind == NextHop::Kind::kLocal);
  return at;
}

void XdpWire::remove_peer(std::uint64_t peer) {
  if (Peer* const it = find(peer); it != nullptr && --it->users == 0) {
    probes_.end(peer);
  }
}

void XdpWire::handle_timeout(transport::TimeNs now) {
  if (now >= kick_due_ns_) {
    kick();
  }
  probes_.handle_timeout(now);
}

transport::TimeNs XdpWire::next_deadline() const {
  // Pieces that wait for nothing are to be taken now: no descriptor tells of them.
  const transport::TimeNs pieces_ns =
      held_ns_ == transport::kNever && piece_count_ > 0 ? 0 : held_ns_;
  return std::min({assembly_.due_ns(), probes_.due_ns(), kick_due_ns_, pieces_ns});
}

/// Whether it still serves us. Afterwards nothing arrives at the AF_XDP socket.
void XdpWire::look_at_helper() {
  char byte = 0;
  if (helper_.get() < 0 || (recv(helper_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
                            (errno == EAGAIN || errno == EINTR))) {
    return;
  }
  helper_.reset();
  fall_back("tutti-xdp-helper serves " + options_.interface +
                " no more: packets arrive by the kernel's UDP and not by AF_XDP",
            "restart the helper and the job; the helper's own messages say why");
}

std::uint16_t XdpWire::port_of(std::size_t path) const {
  return static_cast<std::uint16_t>(first_port_ + path % options_.paths);
}

void XdpWire::begin_probing(std::uint64_t token) {
  udp::PeerProbes::Options options;
  options.own = address();
  options.paths = options_.paths;
  options.ip_bytes = udp::kIpv4Bytes;
  options.token = token;
  options.send = [this](std::size_t peer, std::size_t path, std::span<const std::byte> datagram) {
    send_probe(peers_[peer], static_cast<transport::PathId>(path), datagram);
  };
  options.on_finding = [this](std::size_t peer, const udp::Prober::Finding& finding) {
    take_finding(peers_[peer], finding);
  };
  probes_ = udp::PeerProbes(std::move(options));
}

void XdpWire::take_finding(Peer& peer, const udp::Prober::Finding& finding) {
  const udp::FindingText text =
      udp::text_of(finding, {.from = end_text(end_, false),
                             .to = end_text(peer.end, false),
                             .fragment_bytes = peer.fragment_bytes,
                             .ip_bytes = udp::kIpv4Bytes,
                             .paths = options_.paths,
                             .port_of = [this](std::size_t path) { return port_of(path); }});
  fall_back(text.what, text.remedy);
  if (finding.kind == udp::Prober::FindingKind::kSmaller) {
    peer.fragment_bytes = finding.bytes;
  }
}

Ends XdpWire::ends(std::uint64_t peer) const {
  if (peer >= peers_.size()) {
    return {};
  }
  return {.senders = end_text(end_, false) + " (UDP ports " + std::to_string(port_of(0)) + " to " +
                     std::to_string(port_of(options_.paths - 1)) + ")",
          .receiver = end_text(end_, true),
          .peer = end_text(peers_[peer].end, true),
          .peer_host = end_text(peers_[peer].end, false)};
}

std::string XdpWire::description() const {
  const XskParts& parts = xsk_->parts();
  return "AF_XDP on " + options_.interface + " queue " + std::to_string(parts.queue) + ", " +
         to_string(parts.mode) + ", " + (parts.is_zero_copy ? "zero copy" : "copy mode") +
         (helper_.get() >= 0 ? ", by the helper" : "") + ", " + std::to_string(options_.paths) +
         " paths, chunks of " + std::to_string(capabilities().chunk_bytes) + " bytes in " +
         std::to_string(udp::fragments(capabilities().chunk_bytes + udp::kDataHeaderBytes,
                                       fragment_bytes_ - kPrefixBytes)) +
         " datagrams, " + std::to_string(buffer_bytes() >> 10) + " KiB of frames, " +
         std::to_string(kernel_buffer_bytes_ >> 10) + " KiB in the kernel's UDP";
}

std::string XdpWire::report() const {
  std::string text;
  if (const std::uint64_t dropped = xsk_->dropped(); dropped > 0) {
    text += ", " + std::to_string(dropped) + " frames dropped for want of a buffer";
  }
  if (kernel_sent_ + kernel_received_ > 0) {
    text += ", " + std::to_string(kernel_sent_) + " datagrams sent and " +
            std::to_string(kernel_received_) + " received by the kernel's UDP";
  }
  if (probes_.silent_paths() > 0) {
    text +=
        ", " + std::to_string(probes_.silent_paths()) + " paths to peers on which nothing arrives";
  }
  return text;
}

}  // namespace tutti::wire::xdp
