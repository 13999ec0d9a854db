// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/packet.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.hpp"

namespace tutti::wire::xdp {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

/// A frame with this payload, from 10.1.2.3:40000 to 10.1.2.4:50000.
std::vector<std::byte> frame_of(std::span<const std::byte> payload) {
  PacketHead head;
  head.target_mac = {2, 0, 0, 0, 0, 1};
  head.source_mac = {2, 0, 0, 0, 0, 2};
  head.source = {htonl(0x0a010203), htons(40000)};
  head.target = {htonl(0x0a010204), htons(50000)};
  head.tos = 0xba;
  std::vector<std::byte> frame(kHeadBytes + payload.size());
  std::copy(payload.begin(), payload.end(), frame.begin() + kHeadBytes);
  write_head(head, payload.size(), frame.data());
  return frame;
}

std::vector<std::byte> noise(Random& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random.next()); });
  return bytes;
}

/// Word by word, as RFC 1071 defines it.
std::uint16_t plain_sum(std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto low = i + 1 < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + 1]) : 0;
    sum += std::to_integer<std::uint32_t>(bytes[i]) << 8 | low;
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(sum);
}

// The example of RFC 1071, section 3.
TEST(XdpPacket, SumOfTheStandardsExample) {
  const auto bytes = bytes_of({0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7});
  EXPECT_EQ(0xddf2, ntohs(fold_sum(add_to_sum(0, bytes))));
}

TEST(XdpPacket, SumOfAnyLength) {
  Random random(1);
  for (std::size_t count = 0; count < 300; ++count) {
    const auto bytes = noise(random, count);
    EXPECT_EQ(plain_sum(bytes), ntohs(fold_sum(add_to_sum(0, bytes)))) << count;
  }
  const std::vector<std::byte> most(65535, std::byte{0xff});
  EXPECT_EQ(plain_sum(most), ntohs(fold_sum(add_to_sum(0, most))));
}

// Compared with what Linux sends.
TEST(XdpPacket, HeadersAreTheKernels) {
  const auto frame = frame_of(bytes_of({'a', 'b', 'c'}));
  const auto expected = bytes_of({
      2,    0,    0,    0,    0,    1,    2,    0,    0,    0,    0,   2, 0x08, 0x00,  //
      0x45, 0xba, 0x00, 0x1f, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,                      //
      0x22, 0x0c, 10,   1,    2,    3,    10,   1,    2,    4,                         //
      0x9c, 0x40, 0xc3, 0x50, 0x00, 0x0b, 0xc3, 0xdb, 'a',  'b',  'c',
  });
  EXPECT_EQ(expected, frame);
}

TEST(XdpPacket, WhatIsWrittenIsRead) {
  Random random(2);
  for (const std::size_t count : {0, 1, 2, 17, 18, 100, 1471, 1472, 3798}) {
    const auto payload = noise(random, count);
    auto frame = frame_of(payload);
    frame.resize(std::max<std::size_t>(frame.size(), 60));  // Padded, as Ethernet does.
    Datagram datagram;
    ASSERT_TRUE(read_frame(frame, datagram)) << count;
    EXPECT_EQ((UdpEnd{htonl(0x0a010203), htons(40000)}), datagram.source);
    EXPECT_EQ((UdpEnd{htonl(0x0a010204), htons(50000)}), datagram.target);
    EXPECT_EQ(0xba, datagram.tos);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), datagram.payload.begin(),
                           datagram.payload.end()));
  }
}

TEST(XdpPacket, EachChangedBitOfTheDatagramIsSeen) {
  Random random(3);
  const auto frame = frame_of(noise(random, 64));
  // From the length of IP on, but what UDP's checksum does not cover: number, flags, time to live,
  // IP's own checksum.
  const auto is_covered = [](std::size_t at) {
    return at >= kEthernetBytes + 2 && (at < 18 || at > 25) && at != 22;
  };
  for (std::size_t at = 0; at < frame.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = frame;
      changed[at] ^= static_cast<std::byte>(1 << bit);
      Datagram datagram;
      EXPECT_FALSE(is_covered(at) && read_frame(changed, datagram)) << at << ":" << bit;
    }
  }
}

TEST(XdpPacket, NoChecksumIsLegal) {
  auto frame = frame_of(bytes_of({'a', 'b', 'c'}));
  frame[kHeadBytes - 2] = frame[kHeadBytes - 1] = std::byte{0};
  Datagram datagram;
  EXPECT_TRUE(read_frame(frame, datagram));
  EXPECT_EQ(3U, datagram.payload.size());
}

// A sum of 0 is sent as 0xffff: 0 says that there is none.
TEST(XdpPacket, ChecksumIsNeverZero) {
  for (int word = 0; word <= 0xffff; ++word) {
    const auto frame = frame_of(bytes_of({word >> 8, word & 0xff}));
    ASSERT_FALSE(frame[40] == std::byte{0} && frame[41] == std::byte{0}) << word;
    Datagram datagram;
    ASSERT_TRUE(read_frame(frame, datagram)) << word;
  }
}

TEST(XdpPacket, OthersAreNotRead) {
  const auto frame = frame_of(bytes_of({'a', 'b', 'c', 'd'}));
  const auto is_read_with = [&](std::size_t at, int value) {
    auto changed = frame;
    changed[at] = static_cast<std::byte>(value);
    // Without a checksum, so that nothing but the field decides.
    changed[40] = changed[41] = std::byte{0};
    Datagram datagram;
    return read_frame(changed, datagram);
  };
  EXPECT_TRUE(is_read_with(14, 0x45));
  EXPECT_FALSE(is_read_with(12, 0x86));  // Another protocol above Ethernet.
  EXPECT_FALSE(is_read_with(14, 0x46));  // Options.
  EXPECT_FALSE(is_read_with(14, 0x65));
  EXPECT_FALSE(is_read_with(23, 6));     // TCP.
  EXPECT_FALSE(is_read_with(20, 0x20));  // More fragments follow.
  EXPECT_FALSE(is_read_with(21, 1));     // A later fragment.
  EXPECT_FALSE(is_read_with(17, 27));    // Lengths that do not fit.
  EXPECT_FALSE(is_read_with(17, 33));
  EXPECT_FALSE(is_read_with(16, 1));
  EXPECT_FALSE(is_read_with(39, 7));
  for (std::size_t count = 0; count < frame.size(); ++count) {
    Datagram datagram;
    EXPECT_FALSE(read_frame(std::span(frame).first(count), datagram)) << count;
  }
}

// Whatever comes: what is read lies within the frame.
TEST(XdpPacket, NoiseIsHarmless) {
  Random random(4);
  std::size_t read = 0;
  for (int i = 0; i < 200'000; ++i) {
    auto frame = frame_of(noise(random, random.below(64)));
    for (std::uint32_t changes = random.below(4); changes > 0; --changes) {
      frame[random.below(static_cast<std::uint32_t>(frame.size()))] =
          static_cast<std::byte>(random.next());
    }
    // Of its own, so that an address sanitizer sees a byte too far.
    const std::vector<std::byte> cut(
        frame.begin(),
        frame.end() - random.below(3) * random.below(static_cast<std::uint32_t>(frame.size()) / 2));
    Datagram datagram;
    if (read_frame(cut, datagram)) {
      ++read;
      ASSERT_GE(datagram.payload.data(), cut.data() + kHeadBytes);
      ASSERT_LE(datagram.payload.data() + datagram.payload.size(), cut.data() + cut.size());
    }
  }
  EXPECT_GT(read, 1000U);
}

}  // namespace
}  // namespace tutti::wire::xdp
