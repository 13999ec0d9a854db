// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How a packet of the transport lies in UDP datagrams. Its content, header then payload, is cut
// into fragments of equal size (the last may be shorter), each a datagram of its own with this
// prefix, so that the kernel or the NIC can cut and join them (UDP_SEGMENT, UDP_GRO) and a receiver
// knows the place of each, whatever came before it. The header lies wholly in the first fragment.
// Little-endian; not authenticated: a wrong prefix makes a packet that does not verify.
//
// The tag of a packet covers its header only, so nothing but the prefix tells whose payload a
// fragment has. What remains of a packet may meet later ones however late: fragments may lie in the
// socket of a process that is stopped. So the number of a packet is never used again: 48 bits, at
// ten million packets a second, last for 325 days.
//
// Small packets to one peer share a datagram: kMagicTogether and their number, then of each a
// PartHead, header and payload.
//
// A datagram of kMagicProbe asks whether it arrives (prober.hpp), and its answer says so: to the
// address that it names, if that is a peer's, with the number that only its sender knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/types.hpp"

namespace tutti::wire::udp {

inline constexpr std::size_t kPrefixBytes = 12;
inline constexpr std::uint8_t kMagic = 0xd9;  ///< Also the version of this layout.
inline constexpr std::uint8_t kMagicTogether = 0xd8;
inline constexpr std::uint8_t kMagicProbe = 0xd7;
inline constexpr std::size_t kProbeHeadBytes = 19;
inline constexpr std::size_t kProbeAddressBytesMax = 40;
inline constexpr unsigned kPacketBits = 48;
inline constexpr std::size_t kPartHeadBytes = 4;
inline constexpr std::uint32_t kFragmentsMax = 64;  ///< UDP_MAX_SEGMENTS of Linux before 6.9.
inline constexpr std::uint32_t kContentBytesMax = 65535;

struct Prefix {
  std::uint8_t index = 0;
  std::uint8_t count = 1;
  std::uint8_t header_bytes = 0;
  std::uint16_t content_bytes = 0;  ///< Of the whole packet: header and payload.
  std::uint64_t packet = 0;         ///< Of kPacketBits; tells those of one source port apart.

  std::uint32_t payload_bytes() const { return content_bytes - header_bytes; }
  friend bool operator==(const Prefix&, const Prefix&) = default;
};

inline void encode(const Prefix& prefix, std::byte* out) {
  out[0] = std::byte{kMagic};
  out[1] = std::byte{prefix.index};
  out[2] = std::byte{prefix.count};
  out[3] = std::byte{prefix.header_bytes};
  out[4] = static_cast<std::byte>(prefix.content_bytes);
  out[5] = static_cast<std::byte>(prefix.content_bytes >> 8);
  for (unsigned i = 0; i < kPacketBits / 8; ++i) {
    out[6 + i] = static_cast<std::byte>(prefix.packet >> 8 * i);
  }
}

/// False: not a fragment of ours.
inline bool decode(std::span<const std::byte> in, Prefix& out) {
  if (in.size() < kPrefixBytes || in[0] != std::byte{kMagic}) {
    return false;
  }
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(in[i]); };
  out.index = at(1);
  out.count = at(2);
  out.header_bytes = at(3);
  out.content_bytes = static_cast<std::uint16_t>(at(4) | at(5) << 8);
  out.packet = 0;
  for (unsigned i = 0; i < kPacketBits / 8; ++i) {
    out.packet |= std::uint64_t{at(6 + i)} << 8 * i;
  }
  return out.count > 0 && out.count <= kFragmentsMax && out.index < out.count &&
         out.header_bytes > 0 && out.header_bytes <= transport::kHeaderBytesMax &&
         out.header_bytes <= out.content_bytes;
}

/// Of a packet that shares a datagram: bytes of its header, 0, bytes of its payload (16 bits).
inline void encode_part(std::uint8_t header_bytes, std::uint16_t payload_bytes, std::byte* out) {
  out[0] = std::byte{header_bytes};
  out[1] = std::byte{0};
  out[2] = static_cast<std::byte>(payload_bytes);
  out[3] = static_cast<std::byte>(payload_bytes >> 8);
}

/// Calls take(header, payload) for each packet of a shared datagram; false: it is not well formed,
/// and what came before the fault was taken.
template <class Take>
bool decode_together(std::span<const std::byte> in, Take&& take) {
  if (in.size() < 2 || in[0] != std::byte{kMagicTogether}) {
    return false;
  }
  const auto count = std::to_integer<std::size_t>(in[1]);
  in = in.subspan(2);
  for (std::size_t i = 0; i < count; ++i) {
    if (in.size() < kPartHeadBytes) {
      return false;
    }
    const auto header_bytes = std::to_integer<std::size_t>(in[0]);
    const std::size_t payload_bytes =
        std::to_integer<std::size_t>(in[2]) | std::to_integer<std::size_t>(in[3]) << 8;
    if (header_bytes == 0 || header_bytes > transport::kHeaderBytesMax || in[1] != std::byte{0} ||
        in.size() - kPartHeadBytes < header_bytes + payload_bytes) {
      return false;
    }
    take(in.subspan(kPartHeadBytes, header_bytes),
         in.subspan(kPartHeadBytes + header_bytes, payload_bytes));
    in = in.subspan(kPartHeadBytes + header_bytes + payload_bytes);
  }
  return count > 0 && in.empty();
}

struct ProbeHead {
  bool is_answer = false;
  std::uint16_t path = 0;   ///< By which the probe was sent.
  std::uint16_t bytes = 0;  ///< Of the probe's datagram.
  std::uint32_t round = 0;
  std::uint64_t token = 0;                  ///< Random, of its sender for this peer.
  std::span<const std::byte> address = {};  ///< Where the answer goes; of an answer empty.
};

/// Bytes written: kProbeHeadBytes and the address.
inline std::size_t encode_probe(const ProbeHead& probe, std::byte* out) {
  out[0] = std::byte{kMagicProbe};
  out[1] = std::byte{static_cast<std::uint8_t>(probe.is_answer ? 1 : 0)};
  const auto put = [out](std::size_t at, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      out[at + i] = static_cast<std::byte>(value >> 8 * i);
    }
  };
  put(2, probe.path, 2);
  put(4, probe.bytes, 2);
  put(6, probe.round, 4);
  put(10, probe.token, 8);
  put(18, probe.address.size(), 1);
  std::copy(probe.address.begin(), probe.address.end(), out + kProbeHeadBytes);
  return kProbeHeadBytes + probe.address.size();
}

/// False: not well formed, or (of a probe) not as long as it says.
inline bool decode_probe(std::span<const std::byte> in, ProbeHead& out) {
  if (in.size() < kProbeHeadBytes || in[0] != std::byte{kMagicProbe} || in[1] > std::byte{1}) {
    return false;
  }
  const auto get = [in](std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value |= std::to_integer<std::uint64_t>(in[at + i]) << 8 * i;
    }
    return value;
  };
  const auto address_bytes = static_cast<std::size_t>(get(18, 1));
  out.is_answer = in[1] == std::byte{1};
  out.path = static_cast<std::uint16_t>(get(2, 2));
  out.bytes = static_cast<std::uint16_t>(get(4, 2));
  out.round = static_cast<std::uint32_t>(get(6, 4));
  out.token = get(10, 8);
  if (out.is_answer) {
    return address_bytes == 0 && in.size() == kProbeHeadBytes;
  }
  if (address_bytes == 0 || address_bytes > kProbeAddressBytesMax ||
      in.size() < kProbeHeadBytes + address_bytes || in.size() != out.bytes) {
    return false;
  }
  out.address = in.subspan(kProbeHeadBytes, address_bytes);
  return true;
}

/// Where a fragment's `bytes` of content begin in the packet's content; UINT32_MAX: they cannot.
/// Fragments but the last have equal sizes, so each tells where it lies by its own size.
inline std::uint32_t offset_of(const Prefix& prefix, std::uint32_t bytes) {
  const bool is_last = prefix.index + 1 == prefix.count;
  const std::uint32_t content = prefix.content_bytes;
  if (bytes > content) {
    return UINT32_MAX;
  }
  if (is_last) {
    // All of it if it is alone; else what is left over by equal ones that are not smaller.
    const std::uint32_t before = content - bytes;
    const std::uint32_t others = prefix.count - 1U;
    if (others == 0) {
      return bytes == content ? 0 : UINT32_MAX;
    }
    return bytes > 0 && before % others == 0 && before / others >= bytes ? before : UINT32_MAX;
  }
  // The last one has between 1 byte and as many as this one.
  const std::uint32_t others = bytes * (prefix.count - 1U);
  const bool fits = bytes > 0 && others < content && content - others <= bytes &&
                    (prefix.index > 0 || bytes >= prefix.header_bytes);
  return fits ? bytes * prefix.index : UINT32_MAX;
}

inline std::size_t fragments(std::size_t bytes, std::size_t each) {
  return (bytes + each - 1) / each;
}

}  // namespace tutti::wire::udp
