// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What UdpWire tries when it opens, by packets to itself: whether the kernel cuts, joins and stamps
// them right. UdpWire::open (udp_wire.cpp) decides by it.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "wire/udp/udp_socket.hpp"
#include "wire/udp/udp_wire.hpp"

namespace tutti::wire::udp {
namespace {

using transport::Arrival;
using transport::Transmission;

constexpr Bytes kProbeBufferBytes = 1 << 20;  ///< A packet, and what the kernel needs for it.
constexpr int kProbeWaitMs = 200;
constexpr int kStraysMax = 64;  ///< Before a probe, and pieces of it that come one by one.
/// The kernel begins to stamp a while after it was asked to. Until then it does so when it is read.
constexpr int kStampTries = 20;
constexpr transport::TimeNs kStampWaitNs = 500'000;

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
  grow_buffer(*socket, SO_RCVBUFFORCE, SO_RCVBUF, kProbeBufferBytes);
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
  if (!set_option(receiver_, SOL_SOCKET, SO_TIMESTAMPNS, 1)) {
    return "no SO_TIMESTAMPNS: " + errno_text();
  }
  auto self = add_peer(address(), 0);
  if (!self.ok()) {
    return self.status().message();
  }
  clock_.look(ReceptionClock::read_realtime());
  std::string wrong;
  for (int i = 0; i < kStampTries; ++i) {
    Transmission sent;
    sent.header.fill(static_cast<std::byte>(i));
    sent.header_bytes = kDataHeaderBytes;
    sent.peer = *self;
    Probe probe({sent.header.data(), sent.header_bytes}, {});
    const ReceptionClock::Reading before = ReceptionClock::read_realtime();
    send(sent);
    pollfd waiting = {receiver_, POLLIN, 0};
    wrong = "a packet did not arrive";
    if (poll(&waiting, 1, kProbeWaitMs) <= 0) {
      break;
    }
    const timespec pause = {0, static_cast<long>(kStampWaitNs)};
    nanosleep(&pause, nullptr);
    const transport::TimeNs read_ns = ReceptionClock::read_realtime().monotonic_ns;
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

}  // namespace tutti::wire::udp
