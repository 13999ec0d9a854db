// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The layout of packets, version 2; docs/protocol.md describes it. Little-endian.
// A packet is a header of 24 to 96 bytes and, of data packets, a payload that this file never
// touches. Decoding trusts no length: what is short, long, reserved or of another version is not a
// packet.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/siphash.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

inline constexpr std::uint8_t kPacketVersion = 2;
inline constexpr std::size_t kCommonHeaderBytes = 24;
inline constexpr std::size_t kTagOffset = 8;
inline constexpr std::size_t kDataBytes = kCommonHeaderBytes + 24;
inline constexpr std::size_t kEchoesPerPacket = 4;
inline constexpr std::size_t kAdvertsPerPacket = 6;
inline constexpr std::size_t kMemoryAdvertsPerPacket = 2;  ///< Of kFlagMemory.
inline constexpr std::uint32_t kCreditUnitBytes = 256;
inline constexpr std::uint32_t kTurnaroundUnitNs = 8;
inline constexpr std::uint32_t kTurnaroundUnknown = 0xffffff;  ///< Or longer: 134 ms.
/// As the capacity of an advert: it withdraws the advert whose low 32 bits stand in its tag.
inline constexpr Bytes kWithdrawn = (1ULL << 48) - 1;

enum class PacketType : std::uint8_t {
  kData = 1,
  kAck = 2,
  kCredit = 3,     ///< Receiver: you may send up to this much in total.
  kRequest = 4,    ///< Sender: I want that much in total and have nothing in the air that says so.
  kAdvert = 5,     ///< Receiver: these receives are posted (clear to send).
  kAdvertAck = 6,  ///< Sender: I know all receives before this number.
  kClose = 7,
  kCloseAck = 8,
  kReset = 9,
  kPing = 10,  ///< Is this path (or the peer) alive?
  kPong = 11,
};

// Flags of data packets.
inline constexpr std::uint8_t kFlagEnd = 1;          ///< The message ends with this payload.
inline constexpr std::uint8_t kFlagCancelled = 2;    ///< With kFlagEnd: there will be no message.
inline constexpr std::uint8_t kFlagTruncated = 4;    ///< With kFlagEnd: it is too long.
inline constexpr std::uint8_t kFlagSpeculative = 8;  ///< Sent without credit.
inline constexpr std::uint8_t kFlagAckRequest = 16;  ///< The sender waits: acknowledge at once.
inline constexpr std::uint8_t kFlagRetransmission = 32;
inline constexpr std::uint8_t kFlagClosing = 64;  ///< The sender has closed and finishes its sends.
// Flags of acknowledgements, credits and requests.
inline constexpr std::uint8_t kFlagGap = 1;          ///< kAck: the chunk `cumulative` is missing.
inline constexpr std::uint8_t kFlagCopy = 2;         ///< kAck: another one has told the same.
inline constexpr std::uint8_t kFlagSlow = 1;         ///< kCredit: granted beyond what was asked.
inline constexpr std::uint8_t kFlagRetransmits = 1;  ///< kRequest: some of it was lost before.
inline constexpr std::uint8_t kFlagMemory = 1;       ///< kAdvert: each says where its memory is.

// Flags of an echo.
inline constexpr std::uint8_t kEchoEcn = 1;
inline constexpr std::uint8_t kEchoTrimmed = 2;
inline constexpr std::uint8_t kEchoLastHop = 4;  ///< The trim happened on the receiver's link.
inline constexpr std::uint8_t kEchoDuplicate = 8;

struct CommonHeader {
  PacketType type = PacketType::kData;
  std::uint8_t flags = 0;
  PathId path = 0;
  std::uint32_t connection = 0;  ///< The destination's id of it.
  std::uint32_t number = 0;      ///< Of the packet, in this direction.
  std::uint32_t stamp = 0;       ///< Sender's time in ns, low 32 bits.
};

struct DataHeader {
  std::uint32_t chunk = 0;
  std::uint32_t slot = 0;  ///< Number of the advert that it answers.
  Bytes offset = 0;        ///< Of the payload in the message.
  std::uint32_t payload_bytes = 0;
  std::uint32_t pull_target = 0;  ///< In kCreditUnitBytes, cumulative.
};

/// What the receiver saw of one packet, for the sender's eyes on that path.
struct Echo {
  std::int16_t chunk_delta = 0;  ///< The chunk's number less AckHeader::cumulative.
  PathId path = 0;
  std::uint8_t flags = 0;
  std::uint32_t stamp = 0;
  /// From the packet's reception by the host to the departure of this, in kTurnaroundUnitNs.
  std::uint32_t turnaround = kTurnaroundUnknown;
};

struct AckHeader {
  std::uint32_t cumulative = 0;    ///< All chunks before this one are here.
  std::uint32_t sack_base = 0;     ///< Number of the bitmap's lowest bit; a multiple of 64.
  std::uint64_t sack_bitmap = 0;   ///< 1: is here. Also true of numbers before `cumulative`.
  Bytes received_bytes = 0;        ///< In total; 48 bits.
  std::uint16_t out_of_order = 0;  ///< Chunks held beyond the first hole; 65535: or more.
  std::uint8_t echo_count = 0;
  std::array<Echo, kEchoesPerPacket> echoes;
};

struct Advert {
  Tag tag = 0;
  Bytes capacity_bytes = 0;  ///< kWithdrawn: see there.
  RemoteMemory remote = {};  ///< With kFlagMemory.
};

struct AdvertHeader {
  std::uint32_t first = 0;
  std::uint8_t count = 0;
  std::array<Advert, kAdvertsPerPacket> adverts;

  bool has_memory() const {
    return std::any_of(adverts.begin(), adverts.begin() + count,
                       [](const Advert& it) { return it.remote.key != 0; });
  }
};

struct PongHeader {
  std::uint32_t stamp = 0;                        ///< The ping's.
  std::uint32_t turnaround = kTurnaroundUnknown;  ///< As an echo's.
};

/// kCredit: granted in total; kRequest: pull target; kAdvertAck: adverts known. One number.
struct NumberHeader {
  std::uint32_t value = 0;
};

/// A decoded packet: `common` and the member that its type names.
struct Packet {
  CommonHeader common;
  union {
    DataHeader data;
    AckHeader ack;
    AdvertHeader advert;
    PongHeader pong;
    NumberHeader number;
  };
  Packet() : data() {}
};

using HeaderBytes = std::array<std::byte, kHeaderBytesMax>;

namespace detail {

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

/// Returns where the type's own fields begin.
inline std::byte* put_common(const CommonHeader& common, HeaderBytes& out) {
  std::byte* const at = out.data();
  put(at, static_cast<std::uint8_t>(kPacketVersion << 4 | static_cast<std::uint8_t>(common.type)));
  put(at + 1, common.flags);
  put(at + 2, common.path);
  put(at + 4, common.connection);
  put(at + kTagOffset, std::uint64_t{0});
  put(at + 16, common.number);
  put(at + 20, common.stamp);
  return at + kCommonHeaderBytes;
}

}  // namespace detail

/// Each writes a header whose tag is 0 and gives its length. Each chunk's: here, so that no field
/// goes by memory.
inline std::size_t encode_data(const CommonHeader& common, const DataHeader& data,
                               HeaderBytes& out) {
  std::byte* const at = detail::put_common(common, out);
  detail::put(at, data.chunk);
  detail::put(at + 4, data.slot);
  detail::put(at + 8, data.offset);
  detail::put(at + 16, data.payload_bytes);
  detail::put(at + 20, data.pull_target);
  return kDataBytes;
}
std::size_t encode_ack(const CommonHeader& common, const AckHeader& ack, HeaderBytes& out);
std::size_t encode_advert(const CommonHeader& common, const AdvertHeader& advert, HeaderBytes& out);
std::size_t encode_pong(const CommonHeader& common, const PongHeader& pong, HeaderBytes& out);
std::size_t encode_number(const CommonHeader& common, std::uint32_t value, HeaderBytes& out);
std::size_t encode_plain(const CommonHeader& common, HeaderBytes& out);

/// A time that a host took, for an echo or a pong.
constexpr std::uint32_t to_turnaround(TimeNs time_ns) {
  const TimeNs units = time_ns / kTurnaroundUnitNs;
  return units < kTurnaroundUnknown ? static_cast<std::uint32_t>(units) : kTurnaroundUnknown;
}

/// False: not a packet; `out` is unspecified then.
bool decode(std::span<const std::byte> header, Packet& out);

/// The destination's connection id of what may be a packet; false if it is too short to say.
bool decode_connection(std::span<const std::byte> header, std::uint32_t& out);

/// Of a packet that the transport made.
PacketType type_of(const Transmission& transmission);

/// A ping or a pong, which tells about the path that it takes.
bool is_path_probe(const Transmission& transmission);

/// The keys of the two directions of a connection, from the shared one and what both sides know:
/// a packet of another connection, direction or incarnation does not verify.
Key derive_key(const Key& shared, std::uint32_t source_id, std::uint64_t source_incarnation,
               std::uint32_t destination_id, std::uint64_t destination_incarnation);

/// The tags of one direction of a connection. They keep out what is injected, late or corrupt; who
/// reads the network reads the payload as well.
class Tags {
 public:
  explicit Tags(const Key& key) : key_(key), begun_(begin(0)) {}

  /// Of the header without its tag field, of the payload (empty: not covered), and of the packet's
  /// whole number, of which the header has the low half.
  std::uint64_t tag_of(std::span<const std::byte> header, std::span<const std::byte> payload,
                       std::uint64_t number);

 private:
  using Hash = SipHash<1, 3>;

  Hash begin(std::uint64_t high) const {
    Hash hash(key_);
    hash.add_word(high);
    return hash;
  }

  Key key_;
  /// The high half of a number comes first, and 2^32 packets have the same: its part is done once.
  std::uint64_t high_ = 0;
  Hash begun_;
};

void write_tag(std::span<std::byte> header, std::uint64_t tag);
std::uint64_t read_tag(std::span<const std::byte> header);

}  // namespace tutti::transport
