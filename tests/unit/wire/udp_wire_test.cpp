// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// UdpWire over the host's loopback interface, as if its MTU were each of several, with and without
// offloads.
#include "wire/udp/udp_wire.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <tuple>

#include "support/wire_contract.hpp"

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
  const auto peer = (*large)->add_peer((*small)->address());
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
  EXPECT_EQ(it.mtu_bytes, 1464U);
  EXPECT_EQ(it.chunk_bytes, 44U * 1464U - 48U);
  EXPECT_EQ(it.chunk_bytes_min, 10U * 1464U - 48U);  // 12.5 us of 10 Gb/s.
  EXPECT_EQ(it.paths, 4U);
  EXPECT_NE((*wire)->description().find("in 44 datagrams"), std::string::npos)
      << (*wire)->description();
}

// A faster link sends a long chunk in the time of a short one; memory has no paths.
TEST(UdpWire, SpreadsShortMessagesWhereLinksAreSlow) {
  UdpOptions options = options_of(AF_INET, 1500, true);
  const auto least_of_full = [&] {
    const auto wire = UdpWire::open(options);
    EXPECT_TRUE(wire.ok()) << wire.status().message();
    const transport::WireCapabilities it = (*wire)->capabilities();
    EXPECT_LE(it.chunk_bytes_min, it.chunk_bytes);
    return std::pair(it.chunk_bytes_min, it.chunk_bytes);
  };
  options.ps_per_byte = 80;
  EXPECT_EQ(least_of_full().first, least_of_full().second);
  options.ps_per_byte = 8000;
  EXPECT_EQ(least_of_full().first, 3U * 1464U - 48U);
  options.chunk_bytes = 3000;
  EXPECT_EQ(least_of_full().first, 3000U);
  options.chunk_bytes = 0;
  options.is_memory = true;
  EXPECT_EQ(least_of_full().first, least_of_full().second);
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
  const auto peer = (*from)->add_peer((*to)->address());
  ASSERT_TRUE(peer.ok());
  testing::Collector collector;
  collector.places = [has_place](std::uint64_t) { return has_place; };
  // The second one finds the wire expecting payload.
  for (const std::uint64_t number : {1, 2}) {
    const testing::TestPacket packet(number, *peer, 48, bytes);
    const transport::TimeNs before_ns = ReceptionClock::read().monotonic_ns;
    ASSERT_TRUE((*from)->send(packet.transmission));
    usleep(3'000);
    const transport::TimeNs read_ns = ReceptionClock::read().monotonic_ns;
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
  const auto peer = (*from)->add_peer((*to)->address());
  ASSERT_TRUE(peer.ok());
  const testing::TestPacket first(1, *peer, 48, 10);
  const testing::TestPacket second(2, *peer, 56, 0);
  const transport::TimeNs before_ns = ReceptionClock::read().monotonic_ns;
  ASSERT_EQ((*from)->send_together(std::array{first.transmission, second.transmission}), 2U);
  usleep(3'000);
  const transport::TimeNs read_ns = ReceptionClock::read().monotonic_ns;
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
  const auto peer = (*from)->add_peer((*to)->address());
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
  EXPECT_FALSE((*wire)->add_peer(WireAddress()).ok());
  WireAddress v6;
  v6.bytes[0] = std::byte{6};
  v6.length = 21;
  EXPECT_NE((*wire)->add_peer(v6).status().message().find("NCCL_SOCKET_FAMILY"), std::string::npos);
}

}  // namespace
}  // namespace tutti::wire::udp
