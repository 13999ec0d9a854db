// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// UdpWire over the host's loopback interface, as if its MTU were each of several, with and without
// offloads.
#include "wire/udp/udp_wire.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "support/forked_ranks.hpp"
#include "support/wire_contract.hpp"

namespace {
/// Calls of sendmsg() until one has no room, again and again; 0: never.
int calls_between_full = 0;
int calls_until_full = 0;
/// Sent ahead of what is sent next; null: nothing.
const std::vector<std::byte>* stray = nullptr;
/// What the kernel does not have, or does wrong.
enum class Lack { kNothing, kOption, kCutting, kCutRight, kJoinedRight, kCutPieces };
Lack lack = Lack::kNothing;
std::pair<int, int> lacked_option;  ///< Level and name.
bool marks_congestion = false;      ///< As a switch does.
std::size_t longest_bytes = 0;      ///< Longer datagrams get lost on the way; 0: none do.
bool drops_all = false;             ///< All do.

/// Of each datagram that it becomes.
std::size_t datagram_bytes(const msghdr& message) {
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == IPPROTO_UDP) {
    std::uint16_t each = 0;
    std::memcpy(&each, CMSG_DATA(head), sizeof each);
    return each;
  }
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    bytes += message.msg_iov[i].iov_len;
  }
  return bytes;
}

bool cuts(const msghdr& message) {
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  return head != nullptr && head->cmsg_level == IPPROTO_UDP;
}

/// With one bit of the last byte flipped.
ssize_t send_changed(int socket, const msghdr& message, int flags) {
  std::vector<char> bytes;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* const part = static_cast<const char*>(message.msg_iov[i].iov_base);
    bytes.insert(bytes.end(), part, part + message.msg_iov[i].iov_len);
  }
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  iovec one{bytes.data(), bytes.size()};
  msghdr changed = message;
  changed.msg_iov = &one;
  changed.msg_iovlen = 1;
  return syscall(SYS_sendmsg, socket, &changed, flags);
}
}  // namespace

/// In front of the C library's.
extern "C" int setsockopt(int socket, int level, int name, const void* value,
                          socklen_t bytes) noexcept {
  if (lack == Lack::kOption && lacked_option == std::pair(level, name)) {
    errno = ENOPROTOOPT;
    return -1;
  }
  return static_cast<int>(syscall(SYS_setsockopt, socket, level, name, value, bytes));
}

extern "C" ssize_t recv(int socket, void* buffer, std::size_t bytes, int flags) {
  const ssize_t got = syscall(SYS_recvfrom, socket, buffer, bytes, flags, nullptr, nullptr);
  if (lack == Lack::kCutRight && got > 0) {
    static_cast<char*>(buffer)[std::min<std::size_t>(static_cast<std::size_t>(got), bytes) - 1] ^=
        1;
  }
  if (lack == Lack::kCutPieces && got > 0) {
    errno = EAGAIN;
    return -1;
  }
  return got;
}

/// In front of the C library's: a loopback interface is never full.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  if (calls_between_full > 0 && calls_until_full-- == 0) {
    calls_until_full = calls_between_full;
    errno = EAGAIN;
    return -1;
  }
  if (const auto* const first = std::exchange(stray, nullptr)) {
    (void)!sendto(socket, first->data(), first->size(), 0,
                  static_cast<const sockaddr*>(message->msg_name), message->msg_namelen);
  }
  if (drops_all || (longest_bytes > 0 && datagram_bytes(*message) > longest_bytes)) {
    return 1;
  }
  if (lack == Lack::kCutting && cuts(*message)) {
    errno = EIO;
    return -1;
  }
  if (lack == Lack::kJoinedRight && cuts(*message)) {
    return send_changed(socket, *message, flags);
  }
  const int field = marks_congestion ? 3 : 2;  // Congestion experienced, ECT(0).
  setsockopt(socket, IPPROTO_IP, IP_TOS, &field, sizeof field);
  setsockopt(socket, IPPROTO_IPV6, IPV6_TCLASS, &field, sizeof field);
  return syscall(SYS_sendmsg, socket, message, flags);
}

namespace tutti::wire::udp {
namespace {

using testing::WireCheck;
using testing::WirePair;

UdpOptions options_of(int family, int mtu_bytes, bool offload) {
  UdpOptions options;
  if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(options.local.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    options.local.bytes = sizeof v6;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(options.local.storage);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    options.local.bytes = sizeof v4;
  }
  options.mtu_bytes = mtu_bytes;
  options.paths = 4;
  options.segmentation = offload;
  options.coalescing = offload;
  return options;
}

bool has_ipv6() { return UdpWire::open(options_of(AF_INET6, 1500, true)).ok(); }

/// Sends bytes that no wire made to a wire's socket.
void inject(const UdpWire& to, std::span<const std::byte> bytes) {
  const WireAddress address = to.address();
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  std::memcpy(&v4.sin_port, &address.bytes[1], 2);
  std::memcpy(&v4.sin_addr, &address.bytes[3], 4);
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  (void)!sendto(socket, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&v4),
                sizeof v4);
  close(socket);
}

WirePair make_pair(const UdpOptions& options) {
  auto a = UdpWire::open(options);
  auto b = UdpWire::open(options);
  EXPECT_TRUE(a.ok()) << a.status().message();
  EXPECT_TRUE(b.ok()) << b.status().message();
  WirePair pair;
  if (options.local.storage.ss_family == AF_INET) {
    const UdpWire* const to = b->get();
    pair.inject = [to](std::span<const std::byte> bytes) { inject(*to, bytes); };
  }
  pair.a = std::move(*a);
  pair.b = std::move(*b);
  return pair;
}

class UdpContract : public ::testing::TestWithParam<std::tuple<WireCheck, int, bool>> {};

TEST_P(UdpContract, Holds) {
  const auto& [check, mtu_bytes, offload] = GetParam();
  check.run([mtu = mtu_bytes, on = offload] { return make_pair(options_of(AF_INET, mtu, on)); });
}

INSTANTIATE_TEST_SUITE_P(Wire, UdpContract,
                         ::testing::Combine(::testing::ValuesIn(testing::wire_checks()),
                                            ::testing::Values(576, 1500, 9000, 65536),
                                            ::testing::Bool()),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param).name) + "_" +
                                  std::to_string(std::get<1>(one.param)) +
                                  (std::get<2>(one.param) ? "_offload" : "_plain");
                         });

class UdpContractV6 : public ::testing::TestWithParam<WireCheck> {};

TEST_P(UdpContractV6, Holds) {
  if (!has_ipv6()) {
    GTEST_SKIP() << "this host has no IPv6 loopback address";
  }
  GetParam().run([] { return make_pair(options_of(AF_INET6, 1500, true)); });
}

INSTANTIATE_TEST_SUITE_P(Wire, UdpContractV6, ::testing::ValuesIn(testing::wire_checks()),
                         testing::wire_check_name);

TEST(UdpWire, TheSmallerMtuOfTwoIsKept) {
  auto large = UdpWire::open(options_of(AF_INET, 9000, true));
  auto small = UdpWire::open(options_of(AF_INET, 1500, true));
  ASSERT_TRUE(large.ok() && small.ok());
  const auto peer = (*large)->add_peer((*small)->address(), 0);
  ASSERT_TRUE(peer.ok());
  const std::uint32_t bytes = (*small)->capabilities().chunk_bytes;
  const testing::TestPacket packet(1, *peer, 48, bytes);
  ASSERT_TRUE((*large)->send(packet.transmission));
  EXPECT_EQ((*large)->counters().datagrams_sent, 44U);
  testing::Collector collector;
  for (int i = 0; i < 1000 && collector.received.empty(); ++i) {
    (*small)->receive(collector, 8);
  }
  testing::expect_equal(packet, collector.received[1]);
}

TEST(UdpWire, SaysWhatItCanDo) {
  const auto wire = UdpWire::open(options_of(AF_INET, 1500, true));
  ASSERT_TRUE(wire.ok()) << wire.status().message();
  const transport::WireCapabilities it = (*wire)->capabilities();
  EXPECT_EQ(it.mtu_bytes, 1460U);
  EXPECT_EQ(it.chunk_bytes, 44U * 1460U - 48U);
  EXPECT_EQ(it.paths, 4U);
  EXPECT_NE((*wire)->description().find("in 44 datagrams"), std::string::npos)
      << (*wire)->description();
}

// 200 us of the link, in whole datagrams, but never fewer than three.
TEST(UdpWire, ChunksAreShorterOnSlowLinks) {
  UdpOptions options = options_of(AF_INET, 1500, true);
  const auto chunk_bytes = [&] {
    const auto wire = UdpWire::open(options);
    EXPECT_TRUE(wire.ok()) << wire.status().message();
    return (*wire)->capabilities().chunk_bytes;
  };
  options.ps_per_byte = 8000;  // 1 Gb/s: 25,000 bytes.
  EXPECT_EQ(chunk_bytes(), 17U * 1460U - 48U);
  options.ps_per_byte = 800'000;
  EXPECT_EQ(chunk_bytes(), 3U * 1460U - 48U);
  options.chunk_bytes = 3000;
  EXPECT_EQ(chunk_bytes(), 3000U);
  options.chunk_bytes = 1 << 20;
  EXPECT_EQ(chunk_bytes(), 44U * 1460U - 48U);
}

// Each in its turn is not there, or does wrong: that is told, with a remedy, and packets arrive.
TEST(UdpWire, WhatItHasToDoWithoutIsTold) {
  struct Case {
    Lack lack;
    std::pair<int, int> option;
    const char* what;  ///< Empty: nothing is told.
  };
  constexpr int kGro = 104;
  const Case cases[] = {
      {Lack::kNothing, {}, ""},
      {Lack::kOption, {IPPROTO_UDP, kGro}, "no UDP_GRO: Protocol not available"},
      {Lack::kOption, {IPPROTO_IP, IP_TOS}, "no ECN (IP_TOS: Protocol not available)"},
      {Lack::kOption, {IPPROTO_IP, IP_RECVTOS}, "no ECN (IP_RECVTOS: Protocol not available)"},
      {Lack::kOption, {SOL_SOCKET, SO_TIMESTAMPNS}, "no time stamps of the kernel: no SO_TIME"},
      {Lack::kCutting, {}, "no segmentation offload and no UDP_GRO: "},
      {Lack::kJoinedRight, {}, "no segmentation offload and no UDP_GRO: a packet of "},
      {Lack::kCutRight,
       {},
       "no segmentation offload and no UDP_GRO: a datagram that the kernel cut arrived cha"},
      {Lack::kCutPieces,
       {},
       "no segmentation offload and no UDP_GRO: a datagram that the kernel cut did not arr"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    UdpOptions options = options_of(AF_INET, 1500, true);
    options.timestamps = true;
    std::vector<std::string> told;
    options.on_fallback = [&](const std::string& what, const std::string& remedy) {
      EXPECT_FALSE(remedy.empty());
      // What a busy machine lacks: nobody read the packet soon enough to tell the two apart.
      if (what.find("they tell when it was read") == std::string::npos) {
        told.push_back(what);
      }
    };
    lacked_option = one.option;
    lack = one.lack;
    const auto from = UdpWire::open(options);
    const std::size_t count = told.size();
    const auto to = UdpWire::open(options);
    lack = one.lack == Lack::kOption ? one.lack : Lack::kNothing;
    ASSERT_TRUE(from.ok() && to.ok()) << from.status().message() << to.status().message();
    ASSERT_EQ(count, one.what[0] == 0 ? 0U : 1U) << ::testing::PrintToString(told);
    if (count > 0) {
      EXPECT_EQ(told[0].find(one.what), 0U) << told[0];
      const std::string known = told[0].substr(0, 6);  // "no ECN", "no UDP", ...
      EXPECT_NE((*from)->description().find(known), std::string::npos) << (*from)->description();
    }
    const bool marks = std::string(one.what).find("no ECN") != 0;
    EXPECT_EQ((*from)->capabilities().marks_ecn, marks);
    const auto peer = (*from)->add_peer((*to)->address(), 0);
    ASSERT_TRUE(peer.ok());
    const testing::TestPacket packet(1, *peer, 48, (*from)->capabilities().chunk_bytes);
    testing::Collector collector;
    ASSERT_TRUE((*from)->send(packet.transmission));
    for (int i = 0; i < 1000 && collector.received.empty(); ++i) {
      (*to)->receive(collector, 8);
    }
    lack = Lack::kNothing;
    ASSERT_EQ(collector.received.count(1), 1U);
    testing::expect_equal(packet, collector.received[1]);
  }
}

// A mark on the way is one at the end, whatever way the bytes take there.
void expect_marks_arrive(int family) {
  for (const bool offload : {true, false}) {
    const WirePair pair = make_pair(options_of(family, 1500, offload));
    const auto peer = pair.a->add_peer(pair.b->address(), 0);
    ASSERT_TRUE(peer.ok());
    std::uint64_t number = 0;
    for (const bool has_place : {true, false}) {
      for (const std::size_t bytes : {0U, 100U, 40'000U}) {
        for (const bool is_marked : {true, false}) {
          SCOPED_TRACE((offload ? "offload " : "plain ") + std::to_string(bytes) +
                       (has_place ? " placed" : " staged"));
          const testing::TestPacket packet(++number, *peer, 48, bytes);
          testing::Collector collector;
          collector.may_be_marked = true;
          collector.places = [&](std::uint64_t) { return has_place; };
          marks_congestion = is_marked;
          ASSERT_TRUE(pair.a->send(packet.transmission));
          marks_congestion = false;
          for (int i = 0; i < 1000 && collector.received.empty(); ++i) {
            pair.b->receive(collector, 8);
          }
          ASSERT_EQ(collector.received.count(number), 1U);
          testing::expect_equal(packet, collector.received[number]);
          EXPECT_EQ(collector.received[number].is_marked, is_marked);
        }
      }
    }
  }
}

TEST(UdpWire, MarksOfCongestionArrive) { expect_marks_arrive(AF_INET); }

TEST(UdpWire, MarksOfCongestionArriveOverIpv6) {
  if (!has_ipv6()) {
    GTEST_SKIP() << "this host has no IPv6 loopback address";
  }
  expect_marks_arrive(AF_INET6);
}

bool has_stamps(const Wire& wire) {
  return wire.description().find("no time stamps") == std::string::npos;
}

/// Sends a packet of `bytes` of payload, reads it 3 ms later, and compares the two with its stamp.
void expect_stamp_of_arrival(const UdpOptions& options, std::uint32_t bytes, bool has_place) {
  SCOPED_TRACE(std::to_string(bytes) + (has_place ? " bytes, placed" : " bytes"));
  const auto from = UdpWire::open(options);
  const auto to = UdpWire::open(options);
  ASSERT_TRUE(from.ok() && to.ok());
  const auto peer = (*from)->add_peer((*to)->address(), 0);
  ASSERT_TRUE(peer.ok());
  testing::Collector collector;
  collector.places = [has_place](std::uint64_t) { return has_place; };
  // The second one finds the wire expecting payload.
  for (const std::uint64_t number : {1, 2}) {
    const testing::TestPacket packet(number, *peer, 48, bytes);
    const transport::TimeNs before_ns = ReceptionClock::read_realtime().monotonic_ns;
    ASSERT_TRUE((*from)->send(packet.transmission));
    usleep(3'000);
    const transport::TimeNs read_ns = ReceptionClock::read_realtime().monotonic_ns;
    for (int i = 0; i < 1000 && collector.received.count(number) == 0; ++i) {
      (*to)->receive(collector, 8);
    }
    testing::expect_equal(packet, collector.received[number]);
    EXPECT_EQ(collector.received[number].was_placed, has_place && number == 2 && bytes > 10'000);
    // This kernel carries it to the other socket within the call that sends it.
    EXPECT_GT(collector.received[number].received_ns, before_ns);
    EXPECT_LT(collector.received[number].received_ns, read_ns - 2'000'000);
  }
}

/// The traffic class of a datagram that arrived at `socket`, or -1.
int class_of_next(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_DONTWAIT | MSG_TRUNC) < 0) {
    return -1;
  }
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head == nullptr) {
    return -2;
  }
  if (head->cmsg_level == IPPROTO_IP) {
    return *reinterpret_cast<const std::uint8_t*>(CMSG_DATA(head));
  }
  int field = 0;
  std::memcpy(&field, CMSG_DATA(head), sizeof field);
  return field;
}

TEST(UdpWire, PacketsAreOfTheirPeersTrafficClass) {
  for (const int family : {AF_INET, AF_INET6}) {
    const UdpOptions options = options_of(family, 1500, true);
    const auto wire = UdpWire::open(options);
    ASSERT_TRUE(wire.ok()) << wire.status().message();
    // A plain socket in the place of another wire.
    SocketAddress at = options.local;
    const int socket = ::socket(family, SOCK_DGRAM, 0);
    const int on = 1;
    const bool is_v4 = family == AF_INET;
    ASSERT_EQ(setsockopt(socket, is_v4 ? IPPROTO_IP : IPPROTO_IPV6,
                         is_v4 ? IP_RECVTOS : IPV6_RECVTCLASS, &on, sizeof on),
              0);
    ASSERT_EQ(bind(socket, at.get(), at.bytes), 0);
    ASSERT_EQ(getsockname(socket, at.get(), &at.bytes), 0);
    WireAddress address = (*wire)->address();
    const auto port = is_v4 ? reinterpret_cast<const sockaddr_in&>(at.storage).sin_port
                            : reinterpret_cast<const sockaddr_in6&>(at.storage).sin6_port;
    std::memcpy(&address.bytes[1], &port, sizeof port);
    std::uint64_t names[3];
    constexpr std::uint8_t kClasses[] = {0, 0xb8, 0x29};
    for (int i = 0; i < 3; ++i) {
      const auto name = (*wire)->add_peer(address, kClasses[i]);
      ASSERT_TRUE(name.ok());
      names[i] = *name;
    }
    EXPECT_EQ(*(*wire)->add_peer(address, kClasses[1]), names[1]);
    for (int i = 0; i < 3; ++i) {
      // One datagram, and many that the kernel cuts.
      for (const std::uint32_t bytes : {100U, 20'000U}) {
        const testing::TestPacket packet(1, names[i], 48, bytes);
        ASSERT_TRUE((*wire)->send(packet.transmission));
        int datagrams = 0;
        for (int field = 0; (field = class_of_next(socket)) != -1; ++datagrams) {
          EXPECT_EQ(field, (kClasses[i] & ~3) | 2) << "ECT(0) in any case";
        }
        EXPECT_EQ(datagrams > 1, bytes > 1500);
        EXPECT_GT(datagrams, 0);
      }
    }
    close(socket);
  }
}

TEST(UdpWire, TheStampIsOfTheArrivalAndNotOfTheReading) {
  for (const bool offload : {true, false}) {
    const UdpOptions options = options_of(AF_INET, 1500, offload);
    const auto wire = UdpWire::open(options);
    ASSERT_TRUE(wire.ok()) << wire.status().message();
    if (!has_stamps(**wire)) {
      GTEST_SKIP() << (*wire)->description();
    }
    expect_stamp_of_arrival(options, 100, false);
    expect_stamp_of_arrival(options, 40'000, false);
    expect_stamp_of_arrival(options, 40'000, offload);
  }
}

TEST(UdpWire, PacketsThatShareADatagramShareItsStamp) {
  const UdpOptions options = options_of(AF_INET, 1500, true);
  const auto from = UdpWire::open(options);
  const auto to = UdpWire::open(options);
  ASSERT_TRUE(from.ok() && to.ok());
  if (!has_stamps(**to)) {
    GTEST_SKIP() << (*to)->description();
  }
  const auto peer = (*from)->add_peer((*to)->address(), 0);
  ASSERT_TRUE(peer.ok());
  const testing::TestPacket first(1, *peer, 48, 10);
  const testing::TestPacket second(2, *peer, 56, 0);
  const transport::TimeNs before_ns = ReceptionClock::read_realtime().monotonic_ns;
  ASSERT_EQ((*from)->send_together(std::array{first.transmission, second.transmission}), 2U);
  usleep(3'000);
  const transport::TimeNs read_ns = ReceptionClock::read_realtime().monotonic_ns;
  testing::Collector collector;
  for (int i = 0; i < 1000 && collector.count < 2; ++i) {
    (*to)->receive(collector, 8);
  }
  ASSERT_EQ(collector.count, 2U);
  EXPECT_EQ((*to)->counters().datagrams_received, 1U);
  EXPECT_EQ(collector.received[1].received_ns, collector.received[2].received_ns);
  EXPECT_GT(collector.received[1].received_ns, before_ns);
  EXPECT_LT(collector.received[1].received_ns, read_ns - 2'000'000);
}

TEST(UdpWire, StampsCanBeSwitchedOff) {
  UdpOptions options = options_of(AF_INET, 1500, true);
  options.timestamps = false;
  const auto from = UdpWire::open(options);
  const auto to = UdpWire::open(options);
  ASSERT_TRUE(from.ok() && to.ok());
  EXPECT_NE((*to)->description().find("no time stamps of the kernel: not asked for"),
            std::string::npos)
      << (*to)->description();
  const auto peer = (*from)->add_peer((*to)->address(), 0);
  ASSERT_TRUE(peer.ok());
  const testing::TestPacket packet(1, *peer, 48, 1'000);
  ASSERT_TRUE((*from)->send(packet.transmission));
  testing::Collector collector;
  for (int i = 0; i < 1000 && collector.count == 0; ++i) {
    (*to)->receive(collector, 8);
  }
  testing::expect_equal(packet, collector.received[1]);
  EXPECT_EQ(collector.received[1].received_ns, transport::kNever);
}

/// Takes in what has come, and waits up to 5 s for it to be `count` packets.
void receive_until(Wire& wire, testing::Collector& collector, std::size_t count) {
  pollfd waiting = {wire.file_descriptor(), POLLIN, 0};
  while (collector.count < count && poll(&waiting, 1, 5'000) > 0) {
    wire.receive(collector, 8);
  }
  while (wire.receive(collector, 8) > 0) {
  }
}

/// A socket between two wires: what comes to it goes on if the test says so.
class Relay {
 public:
  Relay() : socket_(::socket(AF_INET, SOCK_DGRAM, 0)) {
    sockaddr_in any = loopback(0);
    socklen_t bytes = sizeof any;
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&any), &bytes), 0);
    port_ = any.sin_port;
  }
  ~Relay() { close(socket_); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Of this socket, for a peer of the wire with address `end`.
  WireAddress before(WireAddress end) const {
    std::memcpy(&end.bytes[1], &port_, sizeof port_);
    return end;
  }
  std::vector<std::byte> take() {
    std::vector<std::byte> datagram(65536);
    pollfd waiting = {socket_, POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 5'000), 1);
    const ssize_t bytes = recv(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT);
    datagram.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    return datagram;
  }
  /// As one call, which the receiver's kernel hands over as one: datagrams of equal size.
  void pass_joined(std::span<const std::vector<std::byte>> datagrams, const WireAddress& end) {
    constexpr int kUdpSegment = 103;
    std::vector<std::byte> all;
    for (const std::vector<std::byte>& datagram : datagrams) {
      all.insert(all.end(), datagram.begin(), datagram.end());
    }
    const auto cut = [&](int bytes) {
      EXPECT_EQ(setsockopt(socket_, IPPROTO_UDP, kUdpSegment, &bytes, sizeof bytes), 0);
    };
    cut(static_cast<int>(datagrams.front().size()));
    pass(all, end);
    cut(0);
  }
  void pass(const std::vector<std::byte>& datagram, const WireAddress& end) {
    std::uint16_t port = 0;
    std::memcpy(&port, &end.bytes[1], sizeof port);
    const sockaddr_in to = loopback(port);
    EXPECT_EQ(sendto(socket_, datagram.data(), datagram.size(), 0,
                     reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(datagram.size()));
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v4.sin_port = port;
    return v4;
  }

  int socket_;
  std::uint16_t port_ = 0;
};

// Three packets come in part; after 2^16 packets three of the same sizes come whole.
/// Two wires, and a relay between them that decides which of the one's datagrams the other gets.
class RelayedWires : public ::testing::Test {
 protected:
  void open(bool receiver_joins) {
    auto sender = UdpWire::open(options_of(AF_INET, 1500, false));
    auto receiver = UdpWire::open(options_of(AF_INET, 1500, receiver_joins));
    ASSERT_TRUE(sender.ok() && receiver.ok());
    from_ = std::move(*sender);
    to_ = std::move(*receiver);
    end_ = to_->address();
    const auto peer = from_->add_peer(relay_.before(end_), 0);
    ASSERT_TRUE(peer.ok());
    peer_ = *peer;
  }

  testing::TestPacket packet(std::uint64_t number, std::size_t payload_bytes) const {
    return {number, peer_, 48, payload_bytes};
  }

  /// The datagrams of a packet, which are at the relay now.
  std::vector<std::vector<std::byte>> send(const testing::TestPacket& packet) {
    EXPECT_TRUE(from_->send(packet.transmission));
    std::vector<std::vector<std::byte>> datagrams;
    for (std::size_t i = 0; i < kFragments; ++i) {
      datagrams.push_back(relay_.take());
    }
    return datagrams;
  }
  /// Passes on those whose number is as wanted.
  void send(const testing::TestPacket& packet, const std::function<bool(std::size_t)>& is_passed) {
    const std::vector<std::vector<std::byte>> datagrams = send(packet);
    for (std::size_t i = 0; i < kFragments; ++i) {
      if (is_passed(i)) {
        relay_.pass(datagrams[i], end_);
      }
    }
  }

  static constexpr std::size_t kFragments = 5;
  Relay relay_;
  std::unique_ptr<UdpWire> from_;
  std::unique_ptr<UdpWire> to_;
  WireAddress end_;
  std::uint64_t peer_ = 0;  ///< The receiver, as the sender knows it.
};

TEST_F(RelayedWires, WhatRemainsOfAPacketDoesNotGetIntoALaterOne) {
  constexpr int kRound = 1 << 16;
  ASSERT_NO_FATAL_FAILURE(open(/*receiver_joins=*/false));
  const Relay nobody;
  const auto silent = from_->add_peer(nobody.before(end_), 0);
  ASSERT_TRUE(silent.ok());
  const auto send = [&](std::uint64_t number, const auto& is_passed) {
    RelayedWires::send(packet(number, 7'000), is_passed);
  };
  send(1, [](std::size_t i) { return i != 2; });
  send(2, [](std::size_t i) { return i + 1 == kFragments; });
  send(3, [](std::size_t i) { return i == 0; });
  const testing::TestPacket other(9, *silent, 48, 0);
  for (int i = 3; i < kRound; ++i) {
    while (!from_->send(other.transmission)) {
    }
  }
  for (const std::uint64_t number : {4, 5, 6}) {
    send(number, [](std::size_t) { return true; });
  }
  testing::Collector collector;
  receive_until(*to_, collector, 3);
  EXPECT_EQ(collector.count, 3U);
  usleep(1'000);
  to_->receive(collector, 8);
  EXPECT_EQ(collector.partial, std::vector<std::uint64_t>{1});  // Of 2 there is no header.
  for (const std::uint64_t number : {4, 5, 6}) {
    ASSERT_EQ(collector.received.count(number), 1U) << number;
    testing::expect_equal(packet(number, 7'000), collector.received[number]);
  }
}

TEST_F(RelayedWires, APartialChunkIsReportedByItsHeader) {
  ASSERT_NO_FATAL_FAILURE(open(/*receiver_joins=*/true));
  testing::Collector collector;
  for (std::uint64_t number = 1; number <= kFragments; ++number) {
    send(packet(number, 7'000), [&](std::size_t i) { return i != number - 1; });
    receive_until(*to_, collector, 0);
  }
  EXPECT_EQ(collector.count, 0U);
  for (int i = 0; i < 1'000 && to_->next_deadline() != transport::kNever; ++i) {
    usleep(1'000);
    EXPECT_EQ(to_->receive(collector, 8), 0U);
  }
  std::sort(collector.partial.begin(), collector.partial.end());
  EXPECT_EQ(collector.partial, (std::vector<std::uint64_t>{2, 3, 4}));
}

// A packet without its third fragment and the next one's first come joined, as long as one packet;
// where payload goes to its place at once, and where it does not.
TEST_F(RelayedWires, JoinedPiecesOfTwoPacketsAreTheirOwn) {
  constexpr std::size_t kBytes = 5 * (1500 - 28 - kPrefixBytes) - 48;  // Five of equal size.
  for (const bool is_placed : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(open(/*receiver_joins=*/true));
    std::vector<std::vector<std::byte>> pieces;
    for (std::uint64_t number = 1; number <= 3; ++number) {
      for (std::vector<std::byte>& piece : send(packet(number, kBytes))) {
        pieces.push_back(std::move(piece));
      }
    }
    pieces.erase(pieces.begin() + 5 + 2);
    testing::Collector collector;
    collector.places = [&](std::uint64_t) { return is_placed; };
    for (const auto& [at, count] : {std::pair{0, 5}, {5, 5}, {10, 4}}) {
      relay_.pass_joined(std::span(pieces).subspan(at, count), end_);
    }
    receive_until(*to_, collector, 2);
    EXPECT_EQ(collector.count, 2U);
    for (const std::uint64_t number : {1, 3}) {
      testing::expect_equal(packet(number, kBytes), collector.received[number]);
    }
    for (int i = 0; i < 1'000 && collector.partial.empty(); ++i) {
      usleep(1'000);
      to_->receive(collector, 8);
    }
    EXPECT_EQ(collector.partial, std::vector<std::uint64_t>{2});
  }
}

/// The loopback interface of this network namespace is up and has this MTU.
bool set_loopback(int mtu_bytes) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const bool is_up = ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  request.ifr_mtu = mtu_bytes;
  const bool is_set = ioctl(socket, SIOCSIFMTU, &request) == 0;
  close(socket);
  return is_up && is_set;
}

/// Runs it in a process with a network of its own.
void in_own_network(const std::function<void()>& body) {
  std::fflush(stdout);
  const std::vector<std::string> answers =
      test::in_ranks(1, [&body](int, test::Shared&) -> std::string {
        if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
          return std::string("no network namespaces: ") + std::strerror(errno);
        }
        body();
        std::fflush(stdout);
        return ::testing::Test::HasFailure()  ? "failed"
               : ::testing::Test::IsSkipped() ? "no network devices can be made here"
                                              : "";
      });
  ASSERT_EQ(answers.size(), 1U);
  if (answers[0].starts_with("no network")) {
    GTEST_SKIP() << answers[0];
  }
  EXPECT_EQ(answers[0], "");
}

class UdpNarrowPath : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

// As after the news that a router on the way takes less than both ends' interfaces.
TEST_P(UdpNarrowPath, LongPacketsGoOn) {
  const auto& [family, mtu_bytes, offload] = GetParam();
  if (family == AF_INET6 && !has_ipv6()) {
    GTEST_SKIP() << "this host has no IPv6 loopback address";
  }
  in_own_network([family = family, mtu_bytes = mtu_bytes, offload = offload] {
    ASSERT_TRUE(set_loopback(65536));
    const WirePair pair = make_pair(options_of(family, mtu_bytes, offload));
    const auto peer = pair.a->add_peer(pair.b->address(), 0);
    ASSERT_TRUE(peer.ok());
    const std::uint32_t bytes = pair.a->capabilities().chunk_bytes;
    const std::size_t content = 48 + bytes;
    const std::size_t headers = family == AF_INET6 ? 48 : 28;
    const std::string before = pair.a->description();
    testing::Collector collector;
    collector.places = [](std::uint64_t number) { return number % 2 == 0; };
    std::uint64_t number = 0;
    std::uint64_t calls = 0;
    std::uint64_t datagrams = 0;
    const auto send = [&] {
      const testing::TestPacket packet(++number, *peer, 48, bytes);
      const WireCounters counters = pair.a->counters();
      ASSERT_TRUE(pair.a->send(packet.transmission));
      calls = pair.a->counters().calls_sent - counters.calls_sent;
      datagrams = pair.a->counters().datagrams_sent - counters.datagrams_sent;
      receive_until(*pair.b, collector, number);
      ASSERT_EQ(collector.received[number].count, 1) << number;
      testing::expect_equal(packet, collector.received[number]);
    };
    ASSERT_NO_FATAL_FAILURE(send());
    EXPECT_EQ(calls, offload ? 1U : datagrams);
    EXPECT_EQ(pair.a->description(), before);
    for (const int narrow_bytes : {1400, 1300}) {
      SCOPED_TRACE(narrow_bytes);
      ASSERT_TRUE(set_loopback(narrow_bytes));
      ASSERT_NO_FATAL_FAILURE(send());  // Finds out.
      for (int i = 0; i < 3; ++i) {
        ASSERT_NO_FATAL_FAILURE(send());
        if (offload) {
          const std::size_t each = static_cast<std::size_t>(narrow_bytes) - headers;
          EXPECT_EQ(datagrams, (content + each - kPrefixBytes - 1) / (each - kPrefixBytes));
          EXPECT_EQ(calls, (content + datagrams * kPrefixBytes) / (65507 / each * each) + 1);
        }
      }
    }
    const std::string after = pair.a->description();
    if (offload) {
      EXPECT_NE(after.find("datagrams of " + std::to_string(1300 - headers) +
                           " bytes where a path takes no more"),
                std::string::npos)
          << after;
    }
    // 64 KiB in 64 datagrams are more than this takes; below 1280 there is no IPv6.
    if (family == AF_INET) {
      ASSERT_TRUE(set_loopback(700));
      for (int i = 0; i < 4; ++i) {
        ASSERT_NO_FATAL_FAILURE(send());
      }
      EXPECT_EQ(calls, datagrams);
      EXPECT_TRUE(!offload || pair.a->description().find(
                                  "1 peer(s) without segmentation offload") != std::string::npos)
          << pair.a->description();
      // It is not for good.
      ASSERT_TRUE(set_loopback(65536));
      for (int i = 0; offload && calls == datagrams && i < 2000; ++i) {
        ASSERT_NO_FATAL_FAILURE(send());
      }
      EXPECT_EQ(calls < datagrams, offload);
    }
    EXPECT_EQ(pair.a->counters().refused, 0U);
    EXPECT_EQ(collector.count, number);
  });
}

INSTANTIATE_TEST_SUITE_P(Wire, UdpNarrowPath,
                         ::testing::Combine(::testing::Values(AF_INET, AF_INET6),
                                            ::testing::Values(1500, 9000, 32768),
                                            ::testing::Bool()),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param) == AF_INET ? "v4" : "v6") +
                                  "_" + std::to_string(std::get<1>(one.param)) +
                                  (std::get<2>(one.param) ? "_offload" : "_plain");
                         });

/// Two interfaces of one subnet, whose neighbours need not answer. False: this machine has none.
bool make_twins() {
  return std::system(
             "ip link set lo up && "
             "for i in 0 1; do"
             "  ip link add twin$i type veth peer name far$i && ip link set twin$i arp off &&"
             "  ip addr add 10.9.0.$((i + 1))/24 dev twin$i &&"
             "  ip -6 addr add fd09::$((i + 1))/64 dev twin$i nodad &&"
             "  ip link set twin$i up && ip link set far$i up || exit 1; "
             "done") == 0;
}

/// What has left by an interface so far.
std::uint64_t packets_sent(const std::string& interface) {
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t number = 0; words >> number;) {
      numbers.push_back(number);
    }
    if (name == interface + ":" && numbers.size() > 9) {
      return numbers[9];
    }
  }
  ADD_FAILURE() << "no interface " << interface;
  return 0;
}

SocketAddress address_of(const std::string& text) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    address.bytes = sizeof v4;
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1) << text;
    v6.sin6_family = AF_INET6;
    address.bytes = sizeof v6;
  }
  return address;
}

/// Of a wire at an address, as its peers know it.
WireAddress wire_address(const WireAddress& like, const std::string& text) {
  WireAddress address = like;
  const SocketAddress at = address_of(text);
  if (at.storage.ss_family == AF_INET6) {
    std::memcpy(&address.bytes[3], &reinterpret_cast<const sockaddr_in6&>(at.storage).sin6_addr,
                16);
  } else {
    std::memcpy(&address.bytes[3], &reinterpret_cast<const sockaddr_in&>(at.storage).sin_addr, 4);
  }
  return address;
}

/// Sends from the address of an interface, and expects that all of it leaves by another or the
/// same.
void expect_way(const std::string& interface, const std::string& from, const std::string& to,
                const std::string& by) {
  SCOPED_TRACE(from + " to " + to);
  UdpOptions options = options_of(AF_INET, 1500, true);
  options.local = address_of(from);
  options.interface = static_cast<int>(if_nametoindex(interface.c_str()));
  const auto wire = UdpWire::open(options);
  ASSERT_TRUE(wire.ok()) << wire.status().message();
  const auto peer = (*wire)->add_peer(wire_address((*wire)->address(), to), 0);
  ASSERT_TRUE(peer.ok());
  constexpr std::uint64_t kPackets = 50;
  const std::uint64_t before[] = {packets_sent("twin0"), packets_sent("twin1")};
  const testing::TestPacket packet(1, *peer, 48, 100);
  for (std::uint64_t i = 0; i < kPackets; ++i) {
    EXPECT_TRUE((*wire)->send(packet.transmission));
  }
  // IPv6 says something of its own now and then.
  for (const int i : {0, 1}) {
    const std::string name = "twin" + std::to_string(i);
    const std::uint64_t sent = packets_sent(name) - before[i];
    EXPECT_EQ(sent / kPackets, by == name ? 1U : 0U) << sent << " packets by " << name;
  }
  EXPECT_EQ((*wire)->counters().refused, 0U);
}

TEST(UdpWire, PacketsLeaveByTheirOwnInterface) {
  in_own_network([] {
    if (!make_twins()) {
      GTEST_SKIP() << "no two interfaces of our own could be made: needs root and ip";
    }
    for (const int i : {0, 1}) {
      const std::string twin = "twin" + std::to_string(i);
      expect_way(twin, "10.9.0." + std::to_string(i + 1), "10.9.0.77", twin);
      expect_way(twin, "fd09::" + std::to_string(i + 1), "fd09::77", twin);
    }
    // Routers of both.
    ASSERT_EQ(std::system("ip route add 10.7.0.0/24 via 10.9.0.254 dev twin0 metric 10 && "
                          "ip route add 10.7.0.0/24 via 10.9.0.253 dev twin1 metric 20"),
              0);
    expect_way("twin0", "10.9.0.1", "10.7.0.5", "twin0");
    expect_way("twin1", "10.9.0.2", "10.7.0.5", "twin1");
  });
}

TEST(UdpWire, PacketsLeaveAsTheRoutesSayWhereTheirInterfaceHasNoneAsGood) {
  in_own_network([] {
    if (!make_twins()) {
      GTEST_SKIP() << "no two interfaces of our own could be made: needs root and ip";
    }
    // Behind a router of the other one; a neighbour that is told to be at the other one; nobody but
    // the default router knows.
    ASSERT_EQ(std::system("ip route add 10.8.0.0/24 via 10.9.0.254 dev twin0 && "
                          "ip route add 10.9.0.88/32 dev twin0 && "
                          "ip route add default via 10.9.0.254 dev twin0 && "
                          "ip -6 route add fd08::/64 via fd09::fe dev twin0 && "
                          "ip -6 route add fd09::88/128 dev twin0"),
              0);
    for (const char* const to : {"10.8.0.5", "10.9.0.88", "192.0.2.1"}) {
      expect_way("twin1", "10.9.0.2", to, "twin0");
    }
    for (const char* const to : {"fd08::5", "fd09::88"}) {
      expect_way("twin1", "fd09::2", to, "twin0");
    }
    // Of this host, though another interface's.
    expect_way("twin1", "10.9.0.2", "10.9.0.1", "lo");
    expect_way("twin1", "fd09::2", "fd09::1", "lo");
  });
}

/// Fills the interface after each so many system calls, while it lives.
struct FullNowAndThen {
  explicit FullNowAndThen(int calls) { calls_between_full = calls_until_full = calls; }
  ~FullNowAndThen() { calls_between_full = 0; }
};

/// Everything that comes within a moment.
void collect(Wire& wire, testing::Collector& collector) {
  pollfd waiting = {wire.file_descriptor(), POLLIN, 0};
  while (poll(&waiting, 1, 100) > 0) {
    (void)wire.receive(collector, 1);
  }
}

TEST(UdpWire, APacketOfManyCallsGoesOnWhereThereWasNoRoom) {
  auto from = UdpWire::open(options_of(AF_INET, 1500, false));
  auto to = UdpWire::open(options_of(AF_INET, 1500, false));
  const std::uint64_t peer = *(*from)->add_peer((*to)->address(), 0);
  const testing::TestPacket packet(1, peer, 48, 20'000);  // Of 14 datagrams.
  testing::Collector collector;
  {
    const FullNowAndThen full(5);
    EXPECT_FALSE((*from)->send(packet.transmission));
    EXPECT_FALSE((*from)->send(packet.transmission));
    EXPECT_TRUE((*from)->send(packet.transmission));
  }
  collect(**to, collector);
  EXPECT_EQ(collector.count, 1U);
  EXPECT_EQ(collector.received[1].payload, packet.payload);
  EXPECT_EQ((*from)->counters().refused, 0U);
  EXPECT_EQ((*from)->counters().datagrams_sent, 14U);
  EXPECT_EQ((*to)->counters().datagrams_received, 14U);
  EXPECT_EQ((*to)->counters().fragments_dropped, 0U);
}

TEST(UdpWire, APacketThatIsOfferedInItsPlaceIsWholeToo) {
  auto from = UdpWire::open(options_of(AF_INET, 1500, false));
  auto to = UdpWire::open(options_of(AF_INET, 1500, false));
  const std::uint64_t peer = *(*from)->add_peer((*to)->address(), 0);
  const testing::TestPacket given_up(1, peer, 48, 20'000);
  const testing::TestPacket other(2, peer, 48, 20'000);
  testing::Collector collector;
  {
    const FullNowAndThen full(5);
    EXPECT_FALSE((*from)->send(given_up.transmission));
  }
  EXPECT_TRUE((*from)->send(other.transmission));
  EXPECT_TRUE((*from)->send(given_up.transmission));
  collect(**to, collector);
  EXPECT_EQ(collector.count, 2U);
  EXPECT_EQ(collector.received[1].payload, given_up.payload);
  EXPECT_EQ(collector.received[2].payload, other.payload);
}

TEST(UdpWire, WhatAnEarlierProcessOfThePortIsSentSwitchesNothingOff) {
  const std::string undisturbed = (*UdpWire::open(options_of(AF_INET, 1500, true)))->description();
  Prefix prefix;
  prefix.count = 1;
  prefix.header_bytes = 48;
  prefix.content_bytes = 100;
  std::vector<std::byte> foreign(kPrefixBytes + prefix.content_bytes);
  encode(prefix, foreign.data());
  stray = &foreign;
  const auto wire = UdpWire::open(options_of(AF_INET, 1500, true));
  ASSERT_TRUE(wire.ok()) << wire.status().message();
  EXPECT_EQ(stray, nullptr) << "it was not sent";
  EXPECT_EQ((*wire)->description(), undisturbed);
}

/// Two wires with addresses of their own, which ask after the way between them.
struct ProbingWires {
  explicit ProbingWires(int mtu_bytes) : wires{open(1, mtu_bytes), open(2, mtu_bytes)} {
    for (std::size_t i = 0; i < 2; ++i) {
      peers[i] = *wires[i]->add_peer(wires[1 - i]->address(), 0);
    }
  }
  ~ProbingWires() {
    longest_bytes = 0;
    drops_all = false;
  }
  std::unique_ptr<UdpWire> open(std::uint32_t host, int mtu_bytes) {
    UdpOptions options = options_of(AF_INET, mtu_bytes, true);
    reinterpret_cast<sockaddr_in&>(options.local.storage).sin_addr.s_addr =
        htonl(INADDR_LOOPBACK - 1 + host);
    options.on_fallback = [this](const std::string& what, const std::string& remedy) {
      told.push_back(what + "; remedy: " + remedy);
    };
    auto wire = UdpWire::open(options);
    EXPECT_TRUE(wire.ok()) << wire.status().message();
    return std::move(*wire);
  }
  void run(transport::TimeNs length_ns) {
    const transport::TimeNs end = now + length_ns;
    for (; now < end; now += 5'000'000) {
      for (const auto& wire : wires) {
        wire->handle_timeout(now);
      }
      for (const auto& wire : wires) {
        while (wire->receive(collected, 1) > 0) {
        }
      }
    }
  }

  std::vector<std::string> told;
  std::unique_ptr<UdpWire> wires[2];
  std::uint64_t peers[2] = {};
  transport::TimeNs now = monotonic_ns();
  testing::Collector collected;
};

TEST(UdpWire, TheWayIsKnownAfterOneQuestion) {
  ProbingWires pair(9000);
  EXPECT_FALSE(pair.wires[0]->reach(pair.peers[0]).is_known);
  EXPECT_FALSE(pair.wires[0]->reach(pair.peers[0]).is_heard);
  pair.run(10'000'000);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(pair.wires[i]->reach(pair.peers[i]).is_known);
    EXPECT_TRUE(pair.wires[i]->reach(pair.peers[i]).is_heard);
  }
  const Ends ends = pair.wires[0]->ends(pair.peers[0]);
  EXPECT_EQ(ends.senders.rfind("127.0.0.1 (UDP ports ", 0), 0U) << ends.senders;
  EXPECT_EQ(ends.peer, pair.wires[1]->ends(pair.peers[1]).receiver);
  EXPECT_EQ(ends.peer_host, "127.0.0.2");
  EXPECT_TRUE(pair.told.empty());
  EXPECT_EQ(pair.collected.count, 0U);
}

TEST(UdpWire, DatagramsAreAsLongAsTheWayTakesThoughItSaysNothing) {
  ProbingWires pair(9000);
  longest_bytes = 1472;
  pair.run(2'000'000'000);
  ASSERT_EQ(pair.told.size(), 2U);
  EXPECT_EQ(pair.told[0].rfind("an MTU of 1500 and not 9000 from 127.0.0.1 to 127.0.0.2: ", 0), 0U)
      << pair.told[0];
  EXPECT_TRUE(pair.wires[0]->reach(pair.peers[0]).is_known);
  std::vector<std::byte> payload(pair.wires[0]->capabilities().chunk_bytes, std::byte{7});
  transport::Transmission sent;
  sent.header_bytes = 48;
  sent.payload = payload.data();
  sent.payload_bytes = static_cast<std::uint32_t>(payload.size());
  sent.peer = pair.peers[0];
  EXPECT_TRUE(pair.wires[0]->send(sent));
  pair.run(10'000'000);
  ASSERT_EQ(pair.collected.received.size(), 1U);
  EXPECT_EQ(pair.collected.received.begin()->second.payload, payload);
  EXPECT_NE(pair.wires[0]->description().find(", datagrams of 1472 bytes where"),
            std::string::npos);
}

TEST(UdpWire, WhereNothingPassesItSaysWhatItTried) {
  ProbingWires pair(1500);
  drops_all = true;
  pair.run(1'500'000'000);
  const Reach reach = pair.wires[0]->reach(pair.peers[0]);
  EXPECT_FALSE(reach.is_known);
  EXPECT_TRUE(reach.is_tried);
  EXPECT_FALSE(reach.is_heard);
  EXPECT_TRUE(pair.told.empty());
  drops_all = false;
  pair.run(300'000'000);
  EXPECT_TRUE(pair.wires[0]->reach(pair.peers[0]).is_known);
}

TEST(UdpWire, ProbesOfStrangersAreNotAnswered) {
  ProbingWires pair(1500);
  auto stranger = UdpWire::open(options_of(AF_INET, 1500, true));
  ASSERT_TRUE(stranger.ok());
  // It knows the address, and is not known there.
  const auto name = (*stranger)->add_peer(pair.wires[1]->address(), 0);
  ASSERT_TRUE(name.ok());
  for (int i = 0; i < 20; ++i) {
    (*stranger)->handle_timeout(pair.now);
    pair.run(50'000'000);
    while ((*stranger)->receive(pair.collected, 1) > 0) {
    }
  }
  EXPECT_FALSE((*stranger)->reach(*name).is_known);
  EXPECT_FALSE((*stranger)->reach(*name).is_heard);
}

TEST(UdpWire, BadOptionsAreErrors) {
  UdpOptions options = options_of(AF_INET, 1500, true);
  options.paths = 0;
  EXPECT_EQ(UdpWire::open(options).status().code(), ErrorCode::kInvalidArgument);
  options = options_of(AF_INET, 100, true);
  EXPECT_EQ(UdpWire::open(options).status().code(), ErrorCode::kInvalidArgument);
  options = options_of(AF_INET, 1500, true);
  // An address that is kept for documents, so of no interface.
  reinterpret_cast<sockaddr_in&>(options.local.storage).sin_addr.s_addr = htonl(0xc0000201);
  EXPECT_EQ(UdpWire::open(options).status().code(), ErrorCode::kUnavailable);
}

TEST(UdpWire, AddressesOfOtherKindsAreErrors) {
  const auto wire = UdpWire::open(options_of(AF_INET, 1500, true));
  ASSERT_TRUE(wire.ok());
  EXPECT_FALSE((*wire)->add_peer(WireAddress(), 0).ok());
  WireAddress v6;
  v6.bytes[0] = std::byte{6};
  v6.length = 21;
  EXPECT_NE((*wire)->add_peer(v6, 0).status().message().find("NCCL_SOCKET_FAMILY"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::wire::udp
