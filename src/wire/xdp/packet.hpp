// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// An Ethernet frame with one UDP datagram over IPv4 (RFC 768, 791), as it is written and read
// without the kernel. Frames with IP options and IP fragments are not read: the kernel gets them
// (xdp_program.hpp). So are frames with a VLAN tag, if the tag is in the frame: a NIC that strips
// tags (`ethtool -K DEV rxvlan off` ends that) makes frames of all its VLANs look alike, and the
// program takes those with the wire's address and port. Addresses and ports are in network byte
// order, as in sockaddr_in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::wire::xdp {

inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpBytes = 20;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kHeadBytes = kEthernetBytes + kIpBytes + kUdpBytes;

using MacAddress = std::array<std::uint8_t, 6>;

/// One end of a datagram.
struct UdpEnd {
  std::uint32_t address = 0;
  std::uint16_t port = 0;
  friend bool operator==(const UdpEnd&, const UdpEnd&) = default;
};

struct PacketHead {
  MacAddress target_mac{};
  MacAddress source_mac{};
  UdpEnd source;
  UdpEnd target;
  std::uint8_t tos = 0;  ///< IPv4's field of that name: DSCP and ECN.
};

struct Datagram {
  UdpEnd source;
  UdpEnd target;
  std::uint8_t tos = 0;
  std::span<const std::byte> payload;  ///< Within the frame.
};

/// Adds the 16-bit words of `bytes` to a sum for fold_sum(); an odd last byte gets a zero. Words
/// are added in the byte order of the host, which the ones' complement sum allows (RFC 1071, 2 B).
std::uint64_t add_to_sum(std::uint64_t sum, std::span<const std::byte> bytes);
/// The ones' complement sum of 16 bits; its complement is the checksum.
std::uint16_t fold_sum(std::uint64_t sum);

/// Writes the kHeadBytes before `payload_bytes` of UDP payload that lie at `frame` + kHeadBytes
/// already: both checksums are of what is there.
void write_head(const PacketHead& head, std::size_t payload_bytes, std::byte* frame);

/// False: not such a frame, or one whose UDP checksum is wrong (0: it has none, which IPv4 allows).
/// IP's own checksum is not looked at: UDP's covers the addresses.
bool read_frame(std::span<const std::byte> frame, Datagram& out);

}  // namespace tutti::wire::xdp
