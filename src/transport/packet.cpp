// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/packet.hpp"

#include <bit>
#include <cstring>
#include <utility>

namespace tutti::transport {
namespace {

using detail::put;
using detail::put_common;

static_assert(std::endian::native == std::endian::little,
              "fields are copied as they lie in memory; a big-endian host needs swaps here");

constexpr std::size_t kAckBytes = kCommonHeaderBytes + 28;
constexpr std::size_t kEchoBytes = 11;
constexpr std::size_t kAdvertHeadBytes = kCommonHeaderBytes + 8;
constexpr std::size_t kAdvertBytes = 10;
constexpr std::size_t kMemoryBytes = 12;  ///< More, with kFlagMemory.
constexpr std::size_t kNumberBytes = kCommonHeaderBytes + 8;
static_assert(kAckBytes + kEchoesPerPacket * kEchoBytes <= kHeaderBytesMax);
static_assert(kAdvertHeadBytes + kAdvertsPerPacket * kAdvertBytes <= kHeaderBytesMax);
static_assert(kAdvertHeadBytes + kMemoryAdvertsPerPacket * (kAdvertBytes + kMemoryBytes) <=
              kHeaderBytesMax);

constexpr Bytes kMask48 = (1ULL << 48) - 1;

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

void put24(std::byte* at, std::uint32_t value) { std::memcpy(at, &value, 3); }

std::uint32_t get24(const std::byte* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, 3);
  return value;
}

void put48(std::byte* at, std::uint64_t value) { std::memcpy(at, &value, 6); }

std::uint64_t get48(const std::byte* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, 6);
  return value;
}

/// The flags that a type may carry.
std::uint8_t flags_of(PacketType type) {
  switch (type) {
    case PacketType::kData:
      return 127;
    case PacketType::kAck:
      return 3;
    case PacketType::kCredit:
    case PacketType::kRequest:
    case PacketType::kAdvert:
      return 1;
    default:
      return 0;
  }
}

bool decode_data(std::span<const std::byte> header, DataHeader& out) {
  if (header.size() != kDataBytes) {
    return false;
  }
  const std::byte* at = header.data() + kCommonHeaderBytes;
  out.chunk = get<std::uint32_t>(at);
  out.slot = get<std::uint32_t>(at + 4);
  out.offset = get<std::uint64_t>(at + 8);
  out.payload_bytes = get<std::uint32_t>(at + 16);
  out.pull_target = get<std::uint32_t>(at + 20);
  return out.offset <= kMessageBytesMax && out.payload_bytes <= kMessageBytesMax - out.offset;
}

bool decode_ack(std::span<const std::byte> header, AckHeader& out) {
  if (header.size() < kAckBytes) {
    return false;
  }
  const std::byte* at = header.data() + kCommonHeaderBytes;
  out.cumulative = get<std::uint32_t>(at);
  out.sack_base = get<std::uint32_t>(at + 4);
  out.sack_bitmap = get<std::uint64_t>(at + 8);
  out.received_bytes = get48(at + 16);
  out.out_of_order = get<std::uint16_t>(at + 22);
  out.echo_count = get<std::uint8_t>(at + 24);
  if (out.sack_base % 64 != 0 || out.echo_count > kEchoesPerPacket ||
      get<std::uint32_t>(at + 24) > kEchoesPerPacket ||
      header.size() != kAckBytes + out.echo_count * kEchoBytes) {
    return false;
  }
  at += 28;
  for (std::size_t i = 0; i < out.echo_count; ++i, at += kEchoBytes) {
    Echo& echo = out.echoes[i];
    echo.chunk_delta = get<std::int16_t>(at);
    const auto path_and_flags = get<std::uint16_t>(at + 2);
    echo.path = path_and_flags & 0xfff;
    echo.flags = static_cast<std::uint8_t>(path_and_flags >> 12);
    echo.stamp = get<std::uint32_t>(at + 4);
    echo.turnaround = get24(at + 8);
  }
  return true;
}

bool decode_advert(std::span<const std::byte> header, bool has_memory, AdvertHeader& out) {
  if (header.size() < kAdvertHeadBytes) {
    return false;
  }
  const std::byte* at = header.data() + kCommonHeaderBytes;
  out.first = get<std::uint32_t>(at);
  const auto count = get<std::uint32_t>(at + 4);
  const std::size_t each_bytes = kAdvertBytes + (has_memory ? kMemoryBytes : 0);
  if (count == 0 || count > (has_memory ? kMemoryAdvertsPerPacket : kAdvertsPerPacket) ||
      header.size() != kAdvertHeadBytes + count * each_bytes) {
    return false;
  }
  out.count = static_cast<std::uint8_t>(count);
  at += 8;
  for (std::size_t i = 0; i < out.count; ++i, at += each_bytes) {
    out.adverts[i] = {get<std::uint32_t>(at), get48(at + 4), {}};
    if (has_memory) {
      out.adverts[i].remote = {get<std::uint64_t>(at + 10), get<std::uint32_t>(at + 18)};
    }
    if (out.adverts[i].capacity_bytes > kMessageBytesMax &&
        out.adverts[i].capacity_bytes != kWithdrawn) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::size_t encode_ack(const CommonHeader& common, const AckHeader& ack, HeaderBytes& out) {
  std::byte* at = put_common(common, out);
  put(at, ack.cumulative);
  put(at + 4, ack.sack_base);
  put(at + 8, ack.sack_bitmap);
  put48(at + 16, ack.received_bytes & kMask48);
  put(at + 22, ack.out_of_order);
  put(at + 24, std::uint32_t{ack.echo_count});
  at += 28;
  for (std::size_t i = 0; i < ack.echo_count; ++i, at += kEchoBytes) {
    const Echo& echo = ack.echoes[i];
    put(at, echo.chunk_delta);
    put(at + 2, static_cast<std::uint16_t>(echo.path | echo.flags << 12));
    put(at + 4, echo.stamp);
    put24(at + 8, echo.turnaround);
  }
  return kAckBytes + ack.echo_count * kEchoBytes;
}

std::size_t encode_advert(const CommonHeader& common, const AdvertHeader& advert,
                          HeaderBytes& out) {
  std::byte* at = put_common(common, out);
  put(at, advert.first);
  put(at + 4, std::uint32_t{advert.count});
  at += 8;
  const bool has_memory = (common.flags & kFlagMemory) != 0;
  const std::size_t each_bytes = kAdvertBytes + (has_memory ? kMemoryBytes : 0);
  for (std::size_t i = 0; i < advert.count; ++i, at += each_bytes) {
    put(at, advert.adverts[i].tag);
    put48(at + 4, advert.adverts[i].capacity_bytes);
    if (has_memory) {
      put(at + 10, advert.adverts[i].remote.address);
      put(at + 18, advert.adverts[i].remote.key);
    }
  }
  return kAdvertHeadBytes + advert.count * each_bytes;
}

std::size_t encode_pong(const CommonHeader& common, const PongHeader& pong, HeaderBytes& out) {
  std::byte* at = put_common(common, out);
  put(at, pong.stamp);
  put(at + 4, std::uint32_t{0});
  put24(at + 4, pong.turnaround);
  return kNumberBytes;
}

std::size_t encode_number(const CommonHeader& common, std::uint32_t value, HeaderBytes& out) {
  put(put_common(common, out), std::uint64_t{value});
  return kNumberBytes;
}

std::size_t encode_plain(const CommonHeader& common, HeaderBytes& out) {
  put_common(common, out);
  return kCommonHeaderBytes;
}

bool decode(std::span<const std::byte> header, Packet& out) {
  if (header.size() < kCommonHeaderBytes || header.size() > kHeaderBytesMax) {
    return false;
  }
  const std::byte* at = header.data();
  const auto first = get<std::uint8_t>(at);
  if (first >> 4 != kPacketVersion) {
    return false;
  }
  CommonHeader& common = out.common;
  common.type = static_cast<PacketType>(first & 15);
  common.flags = get<std::uint8_t>(at + 1);
  common.path = get<std::uint16_t>(at + 2);
  common.connection = get<std::uint32_t>(at + 4);
  common.number = get<std::uint32_t>(at + 16);
  common.stamp = get<std::uint32_t>(at + 20);
  if ((common.flags & ~flags_of(common.type)) != 0 || common.path >= kPathsMax) {
    return false;
  }
  switch (common.type) {
    case PacketType::kData:
      return decode_data(header, out.data);
    case PacketType::kAck:
      return decode_ack(header, out.ack);
    case PacketType::kAdvert:
      return decode_advert(header, (common.flags & kFlagMemory) != 0, out.advert);
    case PacketType::kCredit:
    case PacketType::kRequest:
    case PacketType::kAdvertAck:
      if (header.size() != kNumberBytes || get<std::uint32_t>(at + kCommonHeaderBytes + 4) != 0) {
        return false;
      }
      out.number.value = get<std::uint32_t>(at + kCommonHeaderBytes);
      return true;
    case PacketType::kPong:
      if (header.size() != kNumberBytes || header[kNumberBytes - 1] != std::byte{0}) {
        return false;
      }
      out.pong.stamp = get<std::uint32_t>(at + kCommonHeaderBytes);
      out.pong.turnaround = get24(at + kCommonHeaderBytes + 4);
      return true;
    case PacketType::kClose:
    case PacketType::kCloseAck:
    case PacketType::kReset:
    case PacketType::kPing:
      return header.size() == kCommonHeaderBytes;
  }
  return false;
}

bool decode_connection(std::span<const std::byte> header, std::uint32_t& out) {
  if (header.size() < kCommonHeaderBytes) {
    return false;
  }
  out = get<std::uint32_t>(header.data() + 4);
  return true;
}

PacketType type_of(const Transmission& transmission) {
  return static_cast<PacketType>(std::to_integer<int>(transmission.header[0]) & 0xf);
}

bool is_path_probe(const Transmission& transmission) {
  const PacketType type = type_of(transmission);
  return type == PacketType::kPing || type == PacketType::kPong;
}

Key derive_key(const Key& shared, std::uint32_t source_id, std::uint64_t source_incarnation,
               std::uint32_t destination_id, std::uint64_t destination_incarnation) {
  Key derived;
  for (std::uint64_t half = 0; half < 2; ++half) {
    SipHash<2, 4> hash(shared);
    hash.add_word(half);
    hash.add_word(source_id | std::uint64_t{destination_id} << 32);
    hash.add_word(source_incarnation);
    hash.add_word(destination_incarnation);
    (half == 0 ? derived.low : derived.high) = hash.finish();
  }
  return derived;
}

std::uint64_t Tags::tag_of(std::span<const std::byte> header, std::span<const std::byte> payload,
                           std::uint64_t number) {
  // The header has the low half; with the high one a packet of 2^32 packets ago does not fit.
  if (number >> 32 != high_) [[unlikely]] {
    high_ = number >> 32;
    begun_ = begin(high_);
  }
  Hash hash = begun_;
  hash.add_word(get<std::uint64_t>(header.data()));
  std::span<const std::byte> last = header.subspan(kTagOffset + 8);
  if (!payload.empty()) {
    // Pieces before the last are whole words: data headers are (kDataBytes).
    static_assert(kDataBytes % 8 == 0);
    hash.add_words(std::exchange(last, payload));
  }
  return hash.finish(last);
}

void write_tag(std::span<std::byte> header, std::uint64_t tag) {
  put(header.data() + kTagOffset, tag);
}

std::uint64_t read_tag(std::span<const std::byte> header) {
  return get<std::uint64_t>(header.data() + kTagOffset);
}

}  // namespace tutti::transport
