// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What every wire has to do, as checks that run against any pair of wires that reach each other
// and lose nothing while few packets are in flight. A test instantiates them:
//
//   class UdpContract : public ::testing::TestWithParam<testing::WireCheck> {};
//   TEST_P(UdpContract, holds) { GetParam().run(make_pair); }
//   INSTANTIATE_TEST_SUITE_P(wire, UdpContract, ::testing::ValuesIn(testing::wire_checks()),
//                            testing::wire_check_name);
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "wire/wire.hpp"

namespace tutti::wire::testing {

struct WirePair {
  std::shared_ptr<void> network;  ///< What the wires stand on, if anything; goes last.
  std::unique_ptr<Wire> a;
  std::unique_ptr<Wire> b;
  /// Hands b these bytes as if a foreign program had sent them. Empty: nobody can do that.
  std::function<void(std::span<const std::byte>)> inject = {};
};
using MakeWirePair = std::function<WirePair()>;

struct WireCheck {
  const char* name;
  void (*run)(const MakeWirePair& make);
};

inline void PrintTo(const WireCheck& check, std::ostream* out) { *out << check.name; }
inline std::string wire_check_name(const ::testing::TestParamInfo<WireCheck>& info) {
  return info.param.name;
}

/// Takes in everything; a packet is known by the number in the first bytes of its header.
class Collector : public Arrivals {
 public:
  static constexpr std::size_t kNumberBytes = sizeof(std::uint64_t);

  struct Received {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
    std::uint32_t payload_bytes = 0;
    std::uint8_t rail = 0;
    transport::TimeNs received_ns = transport::kNever;
    bool was_placed = false;
    bool is_marked = false;  ///< ECN: congestion experienced.
    int count = 0;
  };

  static std::uint64_t number_of(std::span<const std::byte> header) {
    std::uint64_t number = 0;
    std::memcpy(&number, header.data(), std::min(header.size(), kNumberBytes));
    return number;
  }

  /// Says whether the payload of the packet with this number has a place.
  std::function<bool(std::uint64_t)> places = [](std::uint64_t) { return false; };
  std::map<std::uint64_t, Received> received;
  std::vector<std::uint64_t> partial;      ///< Numbers, as they were told.
  std::map<std::uint64_t, int> completed;  ///< How often each cookie was told as sent.
  std::size_t count = 0;
  std::size_t asked = 0;       ///< Calls of place().
  bool may_be_marked = false;  ///< Else nobody marks, and none is.

  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) override {
    ++asked;
    const std::uint64_t number = number_of(header);
    if (!places(number)) {
      return nullptr;
    }
    // The same place each time: a piece must not end up somewhere else than the ones before.
    std::vector<std::byte>& target = targets_[number];
    target.resize(payload_bytes);
    return target.data();
  }

  void arrived(const transport::Arrival& arrival) override {
    if (arrival.trimmed) {
      EXPECT_TRUE(arrival.payload.empty() && arrival.payload_bytes == 0);
      partial.push_back(number_of(arrival.header));
      return;
    }
    ++count;
    Received& it = received[number_of(arrival.header)];
    ++it.count;
    it.header.assign(arrival.header.begin(), arrival.header.end());
    it.was_placed = arrival.payload.empty() && arrival.payload_bytes != 0;
    it.payload.assign(arrival.payload.begin(), arrival.payload.end());
    if (it.was_placed) {
      it.payload = targets_[number_of(arrival.header)];
    }
    it.payload_bytes = arrival.payload_bytes;
    it.rail = arrival.rail;
    it.received_ns = arrival.received_ns;
    it.is_marked = arrival.ecn;
    EXPECT_TRUE(may_be_marked || !arrival.ecn);
  }

  void sent(std::uint64_t cookie) override { ++completed[cookie]; }

 private:
  std::map<std::uint64_t, std::vector<std::byte>> targets_;
};

/// A packet of random content; `bytes` of payload, which lies in its own buffer.
struct TestPacket {
  transport::Transmission transmission;
  std::vector<std::byte> payload;

  TestPacket(std::uint64_t number, std::uint64_t peer, std::size_t header_bytes, std::size_t bytes)
      : payload(bytes) {
    Random random(number);
    for (std::byte& byte : transmission.header) {
      byte = static_cast<std::byte>(random.next());
    }
    std::memcpy(transmission.header.data(), &number, sizeof(number));
    for (std::byte& byte : payload) {
      byte = static_cast<std::byte>(random.next());
    }
    transmission.header_bytes = static_cast<std::uint8_t>(header_bytes);
    transmission.payload = bytes == 0 ? nullptr : payload.data();
    transmission.payload_bytes = static_cast<std::uint32_t>(bytes);
    transmission.peer = peer;
    transmission.cookie = number;
  }
};

/// Two wires that know each other, and what has arrived at each.
class Conversation {
 public:
  static constexpr std::chrono::seconds kWaitMax{5};
  static constexpr std::size_t kHeaderBytes = 40;

  explicit Conversation(const MakeWirePair& make) : pair(make()) {
    const auto b_of_a = pair.a->add_peer(pair.b->address(), 0);
    const auto a_of_b = pair.b->add_peer(pair.a->address(), 0);
    EXPECT_TRUE(b_of_a.ok()) << b_of_a.status().message();
    EXPECT_TRUE(a_of_b.ok()) << a_of_b.status().message();
    b_named_by_a = b_of_a.ok() ? *b_of_a : 0;
    a_named_by_b = a_of_b.ok() ? *a_of_b : 0;
  }

  WirePair pair;
  std::uint64_t b_named_by_a = 0;
  std::uint64_t a_named_by_b = 0;
  Collector at_a;
  Collector at_b;

  void receive() {
    pair.a->receive(at_a, 16);
    pair.b->receive(at_b, 16);
  }

  /// Receives until `done` holds; false: it has taken too long.
  bool wait(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kWaitMax;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
      receive();
      std::this_thread::yield();
    }
    return true;
  }

  /// Sends, and receives where there is no room.
  void send(Wire& wire, const TestPacket& packet) {
    bool is_sent = false;
    EXPECT_TRUE(wait([&] { return is_sent = is_sent || wire.send(packet.transmission); }));
  }

  /// The wire reads it no more.
  static bool has_left(const Wire& wire, const Collector& at, const TestPacket& packet) {
    return !wire.capabilities().sends_complete_late || packet.payload.empty() ||
           at.completed.count(packet.transmission.cookie) != 0;
  }

  /// One packet from a to b; what arrived.
  const Collector::Received& pass(const TestPacket& packet) {
    send(*pair.a, packet);
    const std::uint64_t number = Collector::number_of(packet.transmission.header);
    EXPECT_TRUE(wait([&] { return at_b.received.count(number) != 0; })) << "nothing arrived";
    EXPECT_TRUE(wait([&] { return has_left(*pair.a, at_a, packet); })) << "not told as sent";
    return at_b.received[number];
  }
};

inline void expect_equal(const TestPacket& sent, const Collector::Received& got) {
  EXPECT_EQ(1, got.count);
  const auto* begin = sent.transmission.header.data();
  EXPECT_EQ(std::vector<std::byte>(begin, begin + sent.transmission.header_bytes), got.header);
  EXPECT_EQ(sent.payload.size(), got.payload_bytes);
  EXPECT_TRUE(sent.payload == got.payload) << sent.payload.size() << " bytes of payload";
}

namespace checks {

inline void capabilities_agree(const MakeWirePair& make) {
  const Conversation talk(make);
  const transport::WireCapabilities a = talk.pair.a->capabilities();
  const transport::WireCapabilities b = talk.pair.b->capabilities();
  EXPECT_EQ(a.chunk_bytes, b.chunk_bytes);
  EXPECT_EQ(a.mtu_bytes, b.mtu_bytes);
  EXPECT_EQ(a.paths, b.paths);
  EXPECT_EQ(a.rails, b.rails);
  EXPECT_GT(a.chunk_bytes, 0U);
  EXPECT_GT(a.mtu_bytes, 0U);
  EXPECT_GE(a.rails, 1U);
  EXPECT_LE(a.rails, transport::kRailsMax);
  EXPECT_GE(a.paths, a.rails);
  EXPECT_LE(a.paths, transport::kPathsMax);
  EXPECT_GT(a.ps_per_byte, 0U);
  EXPECT_GT(a.base_rtt_ns, 0U);
}

inline void description_is_one_line(const MakeWirePair& make) {
  const std::string description = make().a->description();
  EXPECT_FALSE(description.empty());
  EXPECT_EQ(std::string::npos, description.find('\n'));
}

inline void address_is_steady_and_its_own(const MakeWirePair& make) {
  const Conversation talk(make);
  const WireAddress a = talk.pair.a->address();
  const WireAddress b = talk.pair.b->address();
  EXPECT_GT(a.length, 0U);
  EXPECT_LE(a.length, a.bytes.size());
  EXPECT_EQ(a.bytes, talk.pair.a->address().bytes);
  EXPECT_NE(a.bytes, b.bytes);
}

inline void add_peer_refuses_what_is_no_address(const MakeWirePair& make) {
  Conversation talk(make);
  WireAddress shorter = talk.pair.b->address();
  --shorter.length;
  WireAddress longer = talk.pair.b->address();
  ++longer.length;
  WireAddress noise;
  noise.bytes.fill(std::byte{0xff});
  noise.length = static_cast<std::uint8_t>(noise.bytes.size());
  WireAddress beyond = talk.pair.b->address();
  beyond.length = 0xff;
  for (const WireAddress& address : {WireAddress{}, shorter, longer, noise, beyond}) {
    const auto peer = talk.pair.a->add_peer(address, 0);
    ASSERT_FALSE(peer.ok()) << int{address.length};
    EXPECT_EQ(ErrorCode::kInvalidArgument, peer.status().code());
    EXPECT_FALSE(peer.status().message().empty());
  }
}

inline void receive_of_nothing(const MakeWirePair& make) {
  Conversation talk(make);
  EXPECT_EQ(0U, talk.pair.a->receive(talk.at_a, 16));
  EXPECT_EQ(0U, talk.at_a.count + talk.at_a.asked);
}

inline void headers_of_each_length(const MakeWirePair& make) {
  Conversation talk(make);
  for (const std::size_t bytes : {std::size_t{24}, std::size_t{57}, transport::kHeaderBytesMax}) {
    const TestPacket packet(bytes, talk.b_named_by_a, bytes, 0);
    expect_equal(packet, talk.pass(packet));
  }
}

inline void payloads(const MakeWirePair& make, bool places) {
  Conversation talk(make);
  talk.at_b.places = [places](std::uint64_t) { return places; };
  const transport::WireCapabilities wire = talk.pair.a->capabilities();
  std::uint64_t number = 0;
  for (const std::uint32_t bytes :
       {1U, 2U, 63U, 64U, 1000U, wire.mtu_bytes - 1, wire.mtu_bytes, wire.mtu_bytes + 1,
        2 * wire.mtu_bytes, wire.chunk_bytes - 1, wire.chunk_bytes}) {
    if (bytes > wire.chunk_bytes) {
      continue;
    }
    const TestPacket packet(++number, talk.b_named_by_a, Conversation::kHeaderBytes, bytes);
    const Collector::Received& got = talk.pass(packet);
    expect_equal(packet, got);
    EXPECT_FALSE(!places && got.was_placed);
  }
}

inline void payloads_without_a_place(const MakeWirePair& make) { payloads(make, false); }
inline void payloads_with_a_place(const MakeWirePair& make) { payloads(make, true); }

inline void payloads_with_a_place_now_and_then(const MakeWirePair& make) {
  Conversation talk(make);
  talk.at_b.places = [](std::uint64_t number) { return number % 3 != 0; };
  const std::uint32_t bytes = talk.pair.a->capabilities().chunk_bytes;
  for (std::uint64_t number = 1; number <= 24; ++number) {
    // A last chunk is shorter; what was predicted from the one before does not hold.
    const TestPacket packet(number, talk.b_named_by_a, Conversation::kHeaderBytes,
                            number % 5 == 0 ? bytes / 3 : bytes);
    expect_equal(packet, talk.pass(packet));
  }
}

/// Packets of all sizes both ways, on all rails and several paths, a few at a time.
inline void many_packets(const MakeWirePair& make) {
  constexpr std::uint64_t kPackets = 400;
  // Each way; two chunks of 64 KiB fit into a socket's buffer of any size that systems have.
  constexpr std::uint64_t kWindow = 2;
  Conversation talk(make);
  talk.at_a.places = talk.at_b.places = [](std::uint64_t number) { return number % 2 == 0; };
  const transport::WireCapabilities wire = talk.pair.a->capabilities();
  Random random(1);
  std::vector<TestPacket> to_b;
  std::vector<TestPacket> to_a;
  to_b.reserve(kPackets);
  to_a.reserve(kPackets);
  for (std::uint64_t i = 0; i < kPackets; ++i) {
    for (const bool is_to_b : {true, false}) {
      std::vector<TestPacket>& list = is_to_b ? to_b : to_a;
      list.emplace_back(i, is_to_b ? talk.b_named_by_a : talk.a_named_by_b,
                        24 + random.below(transport::kHeaderBytesMax - 23),
                        i % 4 == 0 ? 0 : random.below(wire.chunk_bytes + 1));
      transport::Transmission& transmission = list.back().transmission;
      transmission.path = static_cast<transport::PathId>(random.below(wire.paths));
      transmission.rail = static_cast<std::uint8_t>(transmission.path % wire.rails);
      transmission.is_control = list.back().payload.empty();
      talk.send(is_to_b ? *talk.pair.a : *talk.pair.b, list.back());
    }
    const std::size_t due = i + 1 < kWindow ? 0 : i + 1 - kWindow;
    ASSERT_TRUE(talk.wait([&] { return talk.at_a.count >= due && talk.at_b.count >= due; }))
        << i << " sent, " << talk.at_a.count << " and " << talk.at_b.count << " arrived";
  }
  ASSERT_TRUE(talk.wait([&] { return talk.at_a.count >= kPackets && talk.at_b.count >= kPackets; }))
      << talk.at_a.count << " and " << talk.at_b.count << " of " << kPackets;
  for (std::uint64_t i = 0; i < kPackets; ++i) {
    expect_equal(to_b[i], talk.at_b.received[i]);
    expect_equal(to_a[i], talk.at_a.received[i]);
    EXPECT_LT(talk.at_b.received[i].rail, wire.rails);
  }
  talk.receive();
  EXPECT_EQ(kPackets, talk.at_a.count);
  EXPECT_EQ(kPackets, talk.at_b.count);
}

inline void receive_takes_no_more_than_asked(const MakeWirePair& make) {
  constexpr std::size_t kPackets = 8;
  Conversation talk(make);
  std::deque<TestPacket> packets;
  for (std::uint64_t number = 0; number < kPackets; ++number) {
    packets.emplace_back(number, talk.b_named_by_a, Conversation::kHeaderBytes, 100);
    ASSERT_TRUE(talk.pair.a->send(packets.back().transmission));
  }
  const auto deadline = std::chrono::steady_clock::now() + Conversation::kWaitMax;
  while (talk.at_b.count < kPackets && std::chrono::steady_clock::now() < deadline) {
    talk.pair.a->receive(talk.at_a, 1);
    const std::size_t before = talk.at_b.count;
    const std::size_t count = talk.pair.b->receive(talk.at_b, 3);
    EXPECT_LE(count, 3U);
    EXPECT_EQ(count, talk.at_b.count - before);
  }
  EXPECT_EQ(kPackets, talk.at_b.count);
}

inline void descriptor_wakes(const MakeWirePair& make) {
  Conversation talk(make);
  pollfd waiting{talk.pair.b->file_descriptor(), POLLIN, 0};
  if (waiting.fd < 0) {
    return;  // This wire has none, and says so.
  }
  // What is left of the set-up comes first.
  const auto is_quiet = [&] {
    return talk.pair.b->arm(1) == transport::kNever && poll(&waiting, 1, 0) == 0;
  };
  EXPECT_TRUE(talk.wait(is_quiet)) << "readable with nothing there";
  const TestPacket packet(1, talk.b_named_by_a, Conversation::kHeaderBytes, 1000);
  talk.send(*talk.pair.a, packet);
  EXPECT_EQ(1, poll(&waiting, 1, 2000));
  EXPECT_TRUE(talk.wait([&] { return talk.at_b.received.count(1) != 0; }));
  expect_equal(packet, talk.at_b.received[1]);
}

inline void counters_count(const MakeWirePair& make) {
  Conversation talk(make);
  talk.at_b.places = [](std::uint64_t number) { return number == 1; };
  const std::uint32_t bytes = talk.pair.a->capabilities().chunk_bytes;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    talk.pass({number, talk.b_named_by_a, Conversation::kHeaderBytes, bytes});
  }
  EXPECT_GE(talk.pair.a->counters().datagrams_sent, 2U);
  const WireCounters& counters = talk.pair.b->counters();
  EXPECT_GE(counters.datagrams_received, 2U);
  EXPECT_EQ(2 * std::uint64_t{bytes},
            counters.payload_bytes_placed + counters.payload_bytes_copied);
  EXPECT_LE(counters.payload_bytes_placed, bytes);
  EXPECT_EQ(0U, counters.malformed_dropped + counters.fragments_dropped + counters.refused);
}

inline void peers_come_and_go(const MakeWirePair& make) {
  Conversation talk(make);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    const TestPacket packet(number, talk.b_named_by_a, Conversation::kHeaderBytes, 2000);
    expect_equal(packet, talk.pass(packet));
    talk.pair.a->remove_peer(talk.b_named_by_a);
    const auto again = talk.pair.a->add_peer(talk.pair.b->address(), 0);
    ASSERT_TRUE(again.ok()) << again.status().message();
    talk.b_named_by_a = *again;
  }
}

/// A name of a peer that has gone is lost, not an accident.
inline void sends_to_a_removed_peer_are_lost(const MakeWirePair& make) {
  Conversation talk(make);
  const std::uint64_t gone = talk.b_named_by_a;
  talk.pair.a->remove_peer(gone);
  const TestPacket lost(1, gone, Conversation::kHeaderBytes, 100);
  EXPECT_TRUE(talk.pair.a->send(lost.transmission));
  const auto other = talk.pair.a->add_peer(talk.pair.b->address(), 0);
  ASSERT_TRUE(other.ok());
  const TestPacket packet(2, *other, Conversation::kHeaderBytes, 100);
  expect_equal(packet, talk.pass(packet));
  EXPECT_EQ(0U, talk.at_b.received.count(1));
}

/// Two connections to one peer: the other one goes on.
inline void peers_are_counted(const MakeWirePair& make) {
  Conversation talk(make);
  const auto other = talk.pair.a->add_peer(talk.pair.b->address(), 0);
  ASSERT_TRUE(other.ok());
  talk.pair.a->remove_peer(talk.b_named_by_a);
  const TestPacket packet(1, *other, Conversation::kHeaderBytes, 100);
  expect_equal(packet, talk.pass(packet));
}

/// What may leave in one datagram arrives whole and once.
inline void together_or_not(const MakeWirePair& make) {
  Conversation talk(make);
  std::vector<std::unique_ptr<TestPacket>> packets;
  std::vector<transport::Transmission> transmissions;
  for (std::uint64_t number = 1; number <= kTogetherMax; ++number) {
    packets.push_back(std::make_unique<TestPacket>(number, talk.b_named_by_a,
                                                   Conversation::kHeaderBytes, number * 40));
    transmissions.push_back(packets.back()->transmission);
  }
  std::size_t taken = 0;
  EXPECT_TRUE(talk.wait([&] {
    taken += talk.pair.a->send_together(std::span(transmissions).subspan(taken));
    return taken == transmissions.size();
  }));
  EXPECT_TRUE(talk.wait([&] { return talk.at_b.received.size() == packets.size(); }));
  for (std::size_t i = 0; i < packets.size(); ++i) {
    expect_equal(*packets[i], talk.at_b.received[i + 1]);
  }
}

/// Each payload once, and whether or not anybody takes it in; nothing of a wire that has read it
/// all when send() returns.
inline void sends_complete(const MakeWirePair& make) {
  Conversation talk(make);
  const bool is_late = talk.pair.a->capabilities().sends_complete_late;
  const auto gone = talk.pair.a->add_peer(talk.pair.b->address(), 0);
  ASSERT_TRUE(gone.ok());
  std::vector<std::unique_ptr<TestPacket>> packets;
  for (std::uint64_t number = 1; number <= 5; ++number) {
    packets.push_back(std::make_unique<TestPacket>(number, number == 5 ? *gone : talk.b_named_by_a,
                                                   Conversation::kHeaderBytes,
                                                   number == 3 ? 0 : 1000));
  }
  talk.pair.a->remove_peer(*gone);
  for (const auto& packet : packets) {
    talk.send(*talk.pair.a, *packet);
  }
  EXPECT_TRUE(talk.wait([&] {
    return std::all_of(packets.begin(), packets.end(), [&](const auto& packet) {
      return Conversation::has_left(*talk.pair.a, talk.at_a, *packet);
    });
  }));
  talk.receive();
  const std::map<std::uint64_t, int> expected = {{1, 1}, {2, 1}, {4, 1}, {5, 1}};
  EXPECT_EQ(is_late ? expected : decltype(expected){}, talk.at_a.completed);
  EXPECT_TRUE(talk.at_b.completed.empty());
}

/// Sent from and placed in registered memory, and next to it.
inline void registered_memory(const MakeWirePair& make) {
  Conversation talk(make);
  talk.at_b.places = [](std::uint64_t number) { return number == 1; };
  const std::uint32_t bytes = talk.pair.a->capabilities().chunk_bytes;
  TestPacket packet(1, talk.b_named_by_a, Conversation::kHeaderBytes, bytes);
  const TestPacket other(2, talk.b_named_by_a, Conversation::kHeaderBytes, bytes);
  std::byte* const place = talk.at_b.place(packet.transmission.header, bytes);
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(talk.pair.a->register_memory(packet.payload).ok());
    ASSERT_TRUE(talk.pair.b->register_memory({place, bytes}).ok());
  }
  expect_equal(packet, talk.pass(packet));
  expect_equal(other, talk.pass(other));
  talk.pair.a->deregister_memory(packet.payload);
  packet.transmission.cookie = 3;
  std::memcpy(packet.transmission.header.data(), &packet.transmission.cookie,
              sizeof(std::uint64_t));
  expect_equal(packet, talk.pass(packet));
  talk.pair.a->deregister_memory(packet.payload);
  for (int times = 0; times < 2; ++times) {
    talk.pair.b->deregister_memory({place, bytes});
  }
}

/// Where the wire has windows: a payload is written into one, once closed nothing is any more.
inline void writes_into_windows(const MakeWirePair& make) {
  Conversation talk(make);
  Wire& b = *talk.pair.b;
  const std::uint32_t bytes = talk.pair.a->capabilities().chunk_bytes;
  std::vector<std::byte> memory(bytes + 128, std::byte{0xee});
  ASSERT_TRUE(b.register_memory(memory).ok());
  for (std::uint64_t number = 1; number <= 5; ++number) {
    const std::uint64_t window = b.open_window(std::span(memory).subspan(64, bytes));
    if (window == 0) {
      EXPECT_EQ(0U, talk.pair.a->capabilities().window_bytes_min);
      break;
    }
    TestPacket packet(number, talk.b_named_by_a, Conversation::kHeaderBytes, bytes);
    ASSERT_TRUE(talk.wait([&] { return b.has_opened(window, &packet.transmission.remote); }));
    ASSERT_NE(0U, packet.transmission.remote.key);
    const std::size_t asked = talk.at_b.asked;
    const Collector::Received& got = talk.pass(packet);
    EXPECT_EQ(1, got.count);
    EXPECT_TRUE(got.payload.empty());
    EXPECT_EQ(bytes, got.payload_bytes);
    EXPECT_EQ(asked, talk.at_b.asked);
    EXPECT_TRUE(std::equal(packet.payload.begin(), packet.payload.end(), &memory[64]));
    EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + 64,
                            [](std::byte it) { return it == std::byte{0xee}; }));
    EXPECT_TRUE(std::all_of(memory.end() - 64, memory.end(),
                            [](std::byte it) { return it == std::byte{0xee}; }));
    b.close_window(window);
    ASSERT_TRUE(talk.wait([&] { return b.has_closed(window); }));
    const std::vector<std::byte> before = memory;
    TestPacket late(100 + number, talk.b_named_by_a, Conversation::kHeaderBytes, bytes);
    late.transmission.remote = packet.transmission.remote;
    late.transmission.path = 1;  // Which may end with it.
    talk.send(*talk.pair.a, late);
    EXPECT_TRUE(talk.wait([&] { return Conversation::has_left(*talk.pair.a, talk.at_a, late); }));
    const TestPacket other(200 + number, talk.b_named_by_a, Conversation::kHeaderBytes, bytes);
    expect_equal(other, talk.pass(other));
    EXPECT_TRUE(before == memory);
  }
  b.deregister_memory(memory);
}

inline void strangers_are_dropped(const MakeWirePair& make) {
  Conversation talk(make);
  if (!talk.pair.inject) {
    return;  // No foreign program can reach this wire.
  }
  Random random(1);
  for (const std::size_t bytes : {0, 1, 2, 3, 7, 8, 15, 16, 23, 24, 100, 1400}) {
    std::vector<std::byte> noise(bytes, std::byte{0xff});
    talk.pair.inject(noise);
    for (std::byte& byte : noise) {
      byte = static_cast<std::byte>(random.next());
    }
    talk.pair.inject(noise);
    talk.receive();
  }
  // What looks like a packet may be handed on; the transport tells it from one of its own.
  const TestPacket packet(0x1234'5678, talk.b_named_by_a, Conversation::kHeaderBytes, 2000);
  expect_equal(packet, talk.pass(packet));
  EXPECT_GT(talk.pair.b->counters().malformed_dropped, 0U);
}

}  // namespace checks

inline std::vector<WireCheck> wire_checks() {
  return {
      {"capabilities_agree", checks::capabilities_agree},
      {"description_is_one_line", checks::description_is_one_line},
      {"address_is_steady_and_its_own", checks::address_is_steady_and_its_own},
      {"add_peer_refuses_what_is_no_address", checks::add_peer_refuses_what_is_no_address},
      {"receive_of_nothing", checks::receive_of_nothing},
      {"headers_of_each_length", checks::headers_of_each_length},
      {"payloads_without_a_place", checks::payloads_without_a_place},
      {"payloads_with_a_place", checks::payloads_with_a_place},
      {"payloads_with_a_place_now_and_then", checks::payloads_with_a_place_now_and_then},
      {"many_packets", checks::many_packets},
      {"receive_takes_no_more_than_asked", checks::receive_takes_no_more_than_asked},
      {"descriptor_wakes", checks::descriptor_wakes},
      {"counters_count", checks::counters_count},
      {"peers_come_and_go", checks::peers_come_and_go},
      {"peers_are_counted", checks::peers_are_counted},
      {"together_or_not", checks::together_or_not},
      {"sends_to_a_removed_peer_are_lost", checks::sends_to_a_removed_peer_are_lost},
      {"sends_complete", checks::sends_complete},
      {"registered_memory", checks::registered_memory},
      {"writes_into_windows", checks::writes_into_windows},
      {"strangers_are_dropped", checks::strangers_are_dropped},
  };
}

}  // namespace tutti::wire::testing
