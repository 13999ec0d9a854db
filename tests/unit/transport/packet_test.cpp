// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/packet.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "transport/serial.hpp"
#include "transport/siphash.hpp"

namespace tutti::transport {
namespace {

std::span<const std::byte> span_of(const HeaderBytes& bytes, std::size_t size) {
  return {bytes.data(), size};
}

CommonHeader common_of(PacketType type, std::uint8_t flags = 0) {
  return {type, flags, 0xabc, 0x11223344, 0x55667788, 0x99aabbcc};
}

TEST(packet, data__round_trip_and_place_of_each_field) {
  HeaderBytes bytes{};
  const DataHeader data{0x01020304, 0x05060708, 1ULL << 39, 32768, 0x0a0b0c0d};
  const std::size_t size = encode_data(common_of(PacketType::kData, kFlagEnd), data, bytes);
  EXPECT_EQ(48U, size);
  const std::array<int, 48> expected = {0x21, 0x01, 0xbc, 0x0a, 0x44, 0x33, 0x22, 0x11, 0,    0,
                                        0,    0,    0,    0,    0,    0,    0x88, 0x77, 0x66, 0x55,
                                        0xcc, 0xbb, 0xaa, 0x99, 0x04, 0x03, 0x02, 0x01, 0x08, 0x07,
                                        0x06, 0x05, 0,    0,    0,    0,    0x80, 0,    0,    0,
                                        0,    0x80, 0,    0,    0x0d, 0x0c, 0x0b, 0x0a};
  for (std::size_t i = 0; i < size; ++i) {
    EXPECT_EQ(expected[i], std::to_integer<int>(bytes[i])) << i;
  }
  Packet packet;
  ASSERT_TRUE(decode(span_of(bytes, size), packet));
  EXPECT_EQ(PacketType::kData, packet.common.type);
  EXPECT_EQ(kFlagEnd, packet.common.flags);
  EXPECT_EQ(0xabc, packet.common.path);
  EXPECT_EQ(0x55667788U, packet.common.number);
  EXPECT_EQ(0x99aabbccU, packet.common.stamp);
  EXPECT_EQ(data.chunk, packet.data.chunk);
  EXPECT_EQ(data.slot, packet.data.slot);
  EXPECT_EQ(data.offset, packet.data.offset);
  EXPECT_EQ(data.payload_bytes, packet.data.payload_bytes);
  EXPECT_EQ(data.pull_target, packet.data.pull_target);
  std::uint32_t connection = 0;
  ASSERT_TRUE(decode_connection(span_of(bytes, size), connection));
  EXPECT_EQ(0x11223344U, connection);
  EXPECT_FALSE(decode_connection(span_of(bytes, 23), connection));
}

TEST(packet, ack__round_trip_with_each_number_of_echoes) {
  for (std::uint8_t count = 0; count <= kEchoesPerPacket; ++count) {
    AckHeader ack;
    ack.cumulative = 0xfffffff0;
    ack.sack_base = 0xffffffc0;
    ack.sack_bitmap = 0x8000000000000001ULL;
    ack.received_bytes = (1ULL << 48) - 1;
    ack.out_of_order = 0xfffe;
    ack.echo_count = count;
    for (std::uint8_t i = 0; i < count; ++i) {
      ack.echoes[i] = {static_cast<std::int16_t>(-5 + i), static_cast<PathId>(4095 - i),
                       static_cast<std::uint8_t>(15 - i), 0xdeadbeef + i, kTurnaroundUnknown - i};
    }
    HeaderBytes bytes{};
    const std::size_t size = encode_ack(common_of(PacketType::kAck, kFlagGap), ack, bytes);
    EXPECT_EQ(52U + 11U * count, size);
    Packet packet;
    ASSERT_TRUE(decode(span_of(bytes, size), packet));
    EXPECT_EQ(ack.cumulative, packet.ack.cumulative);
    EXPECT_EQ(ack.sack_base, packet.ack.sack_base);
    EXPECT_EQ(ack.sack_bitmap, packet.ack.sack_bitmap);
    EXPECT_EQ(ack.received_bytes, packet.ack.received_bytes);
    EXPECT_EQ(ack.out_of_order, packet.ack.out_of_order);
    ASSERT_EQ(count, packet.ack.echo_count);
    for (std::uint8_t i = 0; i < count; ++i) {
      EXPECT_EQ(ack.echoes[i].chunk_delta, packet.ack.echoes[i].chunk_delta);
      EXPECT_EQ(ack.echoes[i].path, packet.ack.echoes[i].path);
      EXPECT_EQ(ack.echoes[i].flags, packet.ack.echoes[i].flags);
      EXPECT_EQ(ack.echoes[i].stamp, packet.ack.echoes[i].stamp);
      EXPECT_EQ(ack.echoes[i].turnaround, packet.ack.echoes[i].turnaround);
    }
    EXPECT_FALSE(decode(span_of(bytes, size - 1), packet));
  }
}

TEST(packet, advert__round_trip) {
  AdvertHeader advert;
  advert.first = 0xffffffff;
  advert.count = 2;
  advert.adverts[0] = {7, kMessageBytesMax};
  advert.adverts[1] = {8, kWithdrawn};
  HeaderBytes bytes{};
  const std::size_t size = encode_advert(common_of(PacketType::kAdvert), advert, bytes);
  EXPECT_EQ(52U, size);
  Packet packet;
  ASSERT_TRUE(decode(span_of(bytes, size), packet));
  EXPECT_EQ(0xffffffffU, packet.advert.first);
  ASSERT_EQ(2, packet.advert.count);
  EXPECT_EQ(7U, packet.advert.adverts[0].tag);
  EXPECT_EQ(kMessageBytesMax, packet.advert.adverts[0].capacity_bytes);
  EXPECT_EQ(kWithdrawn, packet.advert.adverts[1].capacity_bytes);
  advert.adverts[1].capacity_bytes = kMessageBytesMax + 1;
  encode_advert(common_of(PacketType::kAdvert), advert, bytes);
  EXPECT_FALSE(decode(span_of(bytes, size), packet));
}

TEST(packet, number_and_plain__round_trip) {
  for (PacketType type : {PacketType::kCredit, PacketType::kRequest, PacketType::kAdvertAck}) {
    HeaderBytes bytes{};
    const std::size_t size = encode_number(common_of(type), 0x12345678, bytes);
    EXPECT_EQ(32U, size);
    Packet packet;
    ASSERT_TRUE(decode(span_of(bytes, size), packet));
    EXPECT_EQ(type, packet.common.type);
    EXPECT_EQ(0x12345678U, packet.number.value);
    bytes[28] = std::byte{1};  // Reserved.
    EXPECT_FALSE(decode(span_of(bytes, size), packet));
  }
  for (PacketType type :
       {PacketType::kClose, PacketType::kCloseAck, PacketType::kReset, PacketType::kPing}) {
    HeaderBytes bytes{};
    const std::size_t size = encode_plain(common_of(type), bytes);
    EXPECT_EQ(24U, size);
    Packet packet;
    ASSERT_TRUE(decode(span_of(bytes, size), packet));
    EXPECT_EQ(type, packet.common.type);
    EXPECT_FALSE(decode(span_of(bytes, size + 1), packet));
    EXPECT_FALSE(decode(span_of(bytes, size - 1), packet));
  }
}

TEST(packet, pong__round_trip) {
  for (const std::uint32_t turnaround : {0U, 0x123456U, kTurnaroundUnknown}) {
    HeaderBytes bytes{};
    const std::size_t size =
        encode_pong(common_of(PacketType::kPong), {0xdeadbeef, turnaround}, bytes);
    EXPECT_EQ(32U, size);
    Packet packet;
    ASSERT_TRUE(decode(span_of(bytes, size), packet));
    EXPECT_EQ(0xdeadbeefU, packet.pong.stamp);
    EXPECT_EQ(turnaround, packet.pong.turnaround);
    EXPECT_FALSE(decode(span_of(bytes, size - 1), packet));
    bytes[31] = std::byte{1};  // Reserved.
    EXPECT_FALSE(decode(span_of(bytes, size), packet));
  }
}

TEST(packet, to_turnaround__as_long_as_it_has_bits) {
  EXPECT_EQ(0U, to_turnaround(7));
  EXPECT_EQ(1U, to_turnaround(8));
  EXPECT_EQ(12'500'000U, to_turnaround(100'000'000));
  EXPECT_EQ(kTurnaroundUnknown - 1, to_turnaround(TimeNs{kTurnaroundUnknown} * 8 - 1));
  EXPECT_EQ(kTurnaroundUnknown, to_turnaround(TimeNs{kTurnaroundUnknown} * 8));
  EXPECT_EQ(kTurnaroundUnknown, to_turnaround(kNever));
}

TEST(packet, decode__refuses_what_this_version_does_not_send) {
  HeaderBytes bytes{};
  const std::size_t size = encode_data(common_of(PacketType::kData), DataHeader{}, bytes);
  Packet packet;
  ASSERT_TRUE(decode(span_of(bytes, size), packet));
  const auto refused = [&](std::size_t at, int value) {
    HeaderBytes changed = bytes;
    changed[at] = static_cast<std::byte>(value);
    return !decode(span_of(changed, size), packet);
  };
  EXPECT_TRUE(refused(0, 0x11));  // Another version.
  EXPECT_TRUE(refused(0, 0x20));  // No type.
  EXPECT_TRUE(refused(0, 0x2c));  // An unknown type.
  EXPECT_TRUE(refused(1, 128));   // An unknown flag.
  EXPECT_TRUE(refused(3, 0x1a));  // A path of more than 12 bits.
  EXPECT_TRUE(refused(38, 1));    // An offset beyond 1 TiB.
  EXPECT_FALSE(refused(24, 255));
}

/// Of inputs 00..n-1, from `size` bytes on.
template <class Hash, std::size_t kCount>
void expect_tags(const Key& key, const std::array<std::uint64_t, kCount>& expected,
                 std::size_t size) {
  std::array<std::byte, 16> input{};
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = static_cast<std::byte>(i);
  }
  for (const std::uint64_t tag : expected) {
    EXPECT_EQ(tag, Hash(key).finish(std::span(input).first(size))) << size;
    Hash pieces(key);
    const std::size_t whole = size & ~std::size_t{7};
    pieces.add_words(std::span(input).first(whole));
    EXPECT_EQ(tag, pieces.finish(std::span(input).subspan(whole, size - whole)));
    // Bytes before the last piece are no part of it.
    std::array<std::byte, 24> behind{};
    std::copy_n(input.begin(), size, behind.begin() + 8);
    EXPECT_EQ(tag, Hash(key).finish(std::span(behind).subspan(8, size)));
    ++size;
  }
}

// Test vectors of the reference code (key 00..0f).
TEST(siphash, vectors_of_2_4) {
  constexpr std::array<std::uint64_t, 16> kExpected = {
      0x726fdb47dd0e0e31ULL, 0x74f839c593dc67fdULL, 0x0d6c8009d9a94f5aULL, 0x85676696d7fb7e2dULL,
      0xcf2794e0277187b7ULL, 0x18765564cd99a68dULL, 0xcbc9466e58fee3ceULL, 0xab0200f58b01d137ULL,
      0x93f5f5799a932462ULL, 0x9e0082df0ba9e4b0ULL, 0x7a5dbbc594ddb9f3ULL, 0xf4b32f46226bada7ULL,
      0x751e8fbc860ee5fbULL, 0x14ea5627c0843d90ULL, 0xf723ca908e7af2eeULL, 0xa129ca6149be45e5ULL};
  expect_tags<SipHash<2, 4>>({0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL}, kExpected, 0);
}

// What CPython 3.11 (siphash13) says of bytes(range(n)) with PYTHONHASHSEED=1, whose key this is.
TEST(siphash, vectors_of_1_3) {
  constexpr std::array<std::uint64_t, 15> kExpected = {
      0xecd3e5afcecda4b9ULL, 0xbf360f1ea1745965ULL, 0x8d5b20ab227ba858ULL, 0x968a3280faeeb716ULL,
      0xbbda3b5f513c3d69ULL, 0xa77f099d6ffed90eULL, 0xfd15e78052a69ddfULL, 0xc0b5739e7e28dd01ULL,
      0x208a1a5a0cbbf778ULL, 0xb99907ab3e3e597cULL, 0x4d9ec6e9c5127521ULL, 0x9b07906e87e344adULL,
      0x75973ed5708eb192ULL, 0x3a6b5d52e1c90862ULL, 0xfa87985f39e97a53ULL};
  expect_tags<SipHash<1, 3>>({0xaed66ce184be2329ULL, 0xebe9bbf1f1499052ULL}, kExpected, 1);
}

TEST(packet, derive_key__differs_by_direction_connection_and_incarnation) {
  const Key shared{1, 2};
  const Key base = derive_key(shared, 10, 100, 20, 200);
  const auto differs = [&](const Key& other) {
    return other.low != base.low && other.high != base.high;
  };
  EXPECT_EQ(base.low, derive_key(shared, 10, 100, 20, 200).low);
  EXPECT_NE(base.low, base.high);
  EXPECT_TRUE(differs(derive_key(shared, 20, 200, 10, 100)));
  EXPECT_TRUE(differs(derive_key(shared, 11, 100, 20, 200)));
  EXPECT_TRUE(differs(derive_key(shared, 10, 101, 20, 200)));
  EXPECT_TRUE(differs(derive_key(shared, 10, 100, 21, 200)));
  EXPECT_TRUE(differs(derive_key(shared, 10, 100, 20, 201)));
  EXPECT_TRUE(differs(derive_key({2, 1}, 10, 100, 20, 200)));
}

TEST(packet, tag__covers_header_and_payload_and_not_itself) {
  HeaderBytes bytes{};
  const std::size_t size = encode_data(common_of(PacketType::kData), DataHeader{}, bytes);
  const Key key{3, 4};
  const std::array<std::byte, 5> payload = {std::byte{1}};
  const std::uint64_t tag = Tags(key).tag_of(span_of(bytes, size), {}, 7);
  const std::uint64_t with_payload = Tags(key).tag_of(span_of(bytes, size), payload, 7);
  EXPECT_NE(tag, with_payload);
  EXPECT_NE(tag,
            Tags(key).tag_of(span_of(bytes, size), {}, 7 + (1ULL << 32)));  // As old as a wrap.
  write_tag({bytes.data(), size}, tag);
  EXPECT_EQ(tag, read_tag(span_of(bytes, size)));
  EXPECT_EQ(tag, Tags(key).tag_of(span_of(bytes, size), {}, 7));
  Tags wraps(key);
  const std::uint64_t later = wraps.tag_of(span_of(bytes, size), {}, 7 + (1ULL << 32));
  EXPECT_EQ(tag, wraps.tag_of(span_of(bytes, size), {}, 7));
  EXPECT_EQ(later, Tags(key).tag_of(span_of(bytes, size), {}, 7 + (1ULL << 32)));
  for (std::size_t i = 0; i < size; ++i) {
    HeaderBytes changed = bytes;
    changed[i] ^= std::byte{0x10};
    const bool is_tag = i >= kTagOffset && i < kTagOffset + 8;
    EXPECT_EQ(is_tag, tag == Tags(key).tag_of(span_of(changed, size), {}, 7)) << i;
  }
}

TEST(serial, expand__gives_the_closest_number) {
  EXPECT_EQ(5U, expand(5, 0));
  EXPECT_EQ(0x1'0000'0001ULL, expand(1, 0xffff'fff0ULL));
  EXPECT_EQ(0xffff'fff0ULL, expand(0xffff'fff0U, 0x1'0000'0005ULL));
  EXPECT_EQ(0x7'0000'0000ULL, expand(0, 0x7'0000'0000ULL));
  EXPECT_EQ(0x6'ffff'ffffULL, expand(0xffff'ffffU, 0x7'0000'0000ULL));
  EXPECT_EQ(0x8'7fff'ffffULL, expand(0x7fff'ffffU, 0x8'0000'0000ULL));
  EXPECT_EQ(0xffff'fff0U, expand(0xffff'fff0U, 3));  // Nothing lies below 0.
}

}  // namespace
}  // namespace tutti::transport
