// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/packet.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace tutti::wire::xdp {
namespace {

constexpr std::uint16_t kIpv4Type = 0x0800;
constexpr std::uint8_t kVersionAndLength = 0x45;  ///< IPv4, 5 words: no options.
constexpr std::uint16_t kDoNotFragment = 0x4000;
constexpr std::uint16_t kFragmentMask = 0x3fff;  ///< More fragments, and the offset.
constexpr std::uint8_t kTimeToLive = 64;
constexpr std::uint8_t kUdp = 17;
constexpr std::size_t kIpAt = kEthernetBytes;
constexpr std::size_t kUdpAt = kIpAt + kIpBytes;

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Of UDP's checksum: addresses, protocol, length.
std::uint64_t pseudo_sum(const std::byte* frame, std::size_t udp_bytes) {
  return add_to_sum(0, {frame + kIpAt + 12, 8}) + htons(kUdp) +
         htons(static_cast<std::uint16_t>(udp_bytes));
}

}  // namespace

std::uint64_t add_to_sum(std::uint64_t sum, std::span<const std::byte> bytes) {
  // Longer words are as good as those of 16 bits, as long as what they carry over is added.
  std::uint64_t words = 0;
  std::uint64_t carries = 0;
  const auto add = [&](std::uint64_t word) {
    words += word;
    carries += words < word ? 1 : 0;
  };
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 4 * sizeof(std::uint64_t); left -= 4 * sizeof(std::uint64_t)) {
    for (std::size_t i = 0; i < 4; ++i, at += sizeof(std::uint64_t)) {
      add(get<std::uint64_t>(at));
    }
  }
  for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t)) {
    add(get<std::uint64_t>(at));
    at += sizeof(std::uint64_t);
  }
  std::uint64_t rest = 0;
  if (left > 0) {
    std::memcpy(&rest, at, left);
  }
  add(rest);
  // Below 2^34: thousands of them fit into 64 bits.
  return sum + (words & UINT32_MAX) + (words >> 32) + carries;
}

std::uint16_t fold_sum(std::uint64_t sum) {
  while (sum >> 16 != 0) {
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(sum);
}

void write_head(const PacketHead& head, std::size_t payload_bytes, std::byte* frame) {
  std::memcpy(frame, head.target_mac.data(), head.target_mac.size());
  std::memcpy(frame + 6, head.source_mac.data(), head.source_mac.size());
  put(frame + 12, htons(kIpv4Type));

  std::byte* const ip = frame + kIpAt;
  const std::size_t udp_bytes = kUdpBytes + payload_bytes;
  put(ip, kVersionAndLength);
  put(ip + 1, head.tos);
  put(ip + 2, htons(static_cast<std::uint16_t>(kIpBytes + udp_bytes)));
  put(ip + 4, std::uint16_t{0});  // Of a datagram that is never cut the number says nothing.
  put(ip + 6, htons(kDoNotFragment));
  put(ip + 8, kTimeToLive);
  put(ip + 9, kUdp);
  put(ip + 10, std::uint16_t{0});
  put(ip + 12, head.source.address);
  put(ip + 16, head.target.address);
  put(ip + 10, static_cast<std::uint16_t>(~fold_sum(add_to_sum(0, {ip, kIpBytes}))));

  std::byte* const udp = frame + kUdpAt;
  put(udp, head.source.port);
  put(udp + 2, head.target.port);
  put(udp + 4, htons(static_cast<std::uint16_t>(udp_bytes)));
  put(udp + 6, std::uint16_t{0});
  const auto checksum = static_cast<std::uint16_t>(
      ~fold_sum(add_to_sum(pseudo_sum(frame, udp_bytes), {udp, udp_bytes})));
  // 0 would say that there is none.
  put(udp + 6, checksum == 0 ? std::uint16_t{0xffff} : checksum);
}

bool read_frame(std::span<const std::byte> frame, Datagram& out) {
  if (frame.size() < kHeadBytes || get<std::uint16_t>(&frame[12]) != htons(kIpv4Type)) {
    return false;
  }
  const std::byte* const ip = &frame[kIpAt];
  const std::byte* const udp = &frame[kUdpAt];
  const std::size_t ip_bytes = ntohs(get<std::uint16_t>(ip + 2));
  // Short frames are padded behind the datagram.
  if (get<std::uint8_t>(ip) != kVersionAndLength || get<std::uint8_t>(ip + 9) != kUdp ||
      (ntohs(get<std::uint16_t>(ip + 6)) & kFragmentMask) != 0 || ip_bytes < kIpBytes + kUdpBytes ||
      ip_bytes > frame.size() - kEthernetBytes ||
      ntohs(get<std::uint16_t>(udp + 4)) != ip_bytes - kIpBytes) {
    return false;
  }
  const std::size_t udp_bytes = ip_bytes - kIpBytes;
  if (get<std::uint16_t>(udp + 6) != 0 &&
      fold_sum(add_to_sum(pseudo_sum(frame.data(), udp_bytes), {udp, udp_bytes})) != 0xffff) {
    return false;
  }
  out.source = {get<std::uint32_t>(ip + 12), get<std::uint16_t>(udp)};
  out.target = {get<std::uint32_t>(ip + 16), get<std::uint16_t>(udp + 2)};
  out.tos = get<std::uint8_t>(ip + 1);
  out.payload = {udp + kUdpBytes, udp_bytes - kUdpBytes};
  return true;
}

}  // namespace tutti::wire::xdp
