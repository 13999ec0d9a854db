// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The receiving part of UdpWire: datagrams taken to their place or staged, and handed on.
#include <netinet/udp.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "wire/udp/udp_socket.hpp"
#include "wire/udp/udp_wire.hpp"

namespace tutti::wire::udp {
namespace {

using transport::Arrival;

constexpr std::size_t kLookBytes = kPrefixBytes + transport::kHeaderBytesMax;
constexpr std::size_t kBulkBytes = 4096;
constexpr int kBulkMemory = 8;  ///< Small packets in a row that end the looking ahead.

std::uint64_t name_of(const sockaddr_storage& source) {
  if (source.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(source);
    return std::uint64_t{v4.sin_addr.s_addr} << 16 | v4.sin_port;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(source);
  std::uint64_t halves[2];
  std::memcpy(halves, &v6.sin6_addr, sizeof halves);
  return (halves[0] * 0x9e3779b97f4a7c15U ^ halves[1]) * 0x9e3779b97f4a7c15U ^ v6.sin6_port;
}

}  // namespace

std::ptrdiff_t UdpWire::take(std::span<iovec> parts, int flags, Batch& batch) {
  sockaddr_storage source;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) * 2 + CMSG_SPACE(sizeof(timespec))];
  msghdr message{};
  message.msg_name = &source;
  message.msg_namelen = sizeof source;
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ++counters_.calls_received;
  const std::ptrdiff_t bytes = recvmsg(receiver_, &message, MSG_DONTWAIT | MSG_TRUNC | flags);
  if (bytes < 0) {
    return -1;
  }
  batch.bytes = static_cast<std::size_t>(bytes);
  batch.fragment_bytes = batch.bytes;
  batch.source = name_of(source);
  batch.received_ns = transport::kNever;
  batch.ecn = false;
  for (cmsghdr* it = CMSG_FIRSTHDR(&message); it != nullptr; it = CMSG_NXTHDR(&message, it)) {
    if (it->cmsg_level == IPPROTO_UDP && it->cmsg_type == kUdpGro) {
      int size = 0;
      std::memcpy(&size, CMSG_DATA(it), sizeof size);
      batch.fragment_bytes = size > 0 ? static_cast<std::size_t>(size) : batch.bytes;
    } else if ((it->cmsg_level == IPPROTO_IP && it->cmsg_type == IP_TOS) ||
               (it->cmsg_level == IPPROTO_IPV6 && it->cmsg_type == IPV6_TCLASS)) {
      // One byte of IPv4, an int of IPv6: its low byte comes first.
      batch.ecn = (*CMSG_DATA(it) & kEcnMask) == kEcnMask;
    } else if (it->cmsg_level == SOL_SOCKET && it->cmsg_type == SCM_TIMESTAMPNS &&
               (flags & MSG_PEEK) == 0) {
      timespec stamp{};
      std::memcpy(&stamp, CMSG_DATA(it), sizeof stamp);
      const auto stamp_ns = static_cast<transport::TimeNs>(stamp.tv_sec) * 1'000'000'000U +
                            static_cast<transport::TimeNs>(stamp.tv_nsec);
      if (clock_.is_due(stamp_ns)) {
        clock_.look(ReceptionClock::read_realtime());
      }
      batch.received_ns = clock_.received_ns(stamp_ns);
    }
  }
  return bytes;
}

std::size_t UdpWire::receive(Arrivals& arrivals, std::size_t packets_max) {
  const transport::TimeNs begun_ns = assembly_.is_waiting() ? monotonic_ns() : 0;
  std::size_t packets = 0;
  while (packets < packets_max) {
    bool has_data = true;
    if (bulk_ > 0 && receive_placed(arrivals, has_data)) {
      ++packets;
      continue;
    }
    if (!has_data || !receive_staged(arrivals)) {
      if (begun_ns != 0) {
        report_partial(arrivals, begun_ns);
      }
      break;
    }
    ++packets;
  }
  return packets;
}

void UdpWire::report_partial(Arrivals& arrivals, transport::TimeNs now_ns) {
  assembly_.on_all_added(now_ns, [&](std::span<const std::byte> header) {
    Arrival arrival;
    arrival.header = header;
    arrival.trimmed = true;
    arrivals.arrived(arrival);
  });
}

// Looks at the first bytes, and if a whole packet is there whose place is known, takes it there.
// False: nothing was taken.
bool UdpWire::receive_placed(Arrivals& arrivals, bool& has_data) {
  std::byte look[kLookBytes];
  iovec one = {look, sizeof look};
  Batch batch;
  const std::ptrdiff_t got = take({&one, 1}, MSG_PEEK, batch);
  if (got < 0) {
    has_data = false;
    return false;
  }
  const std::size_t known = std::min(batch.bytes, sizeof look);
  Prefix prefix;
  if (!decode({look, std::min(known, batch.fragment_bytes)}, prefix) || prefix.index != 0 ||
      batch.bytes != prefix.content_bytes + prefix.count * kPrefixBytes ||
      fragments(batch.bytes, batch.fragment_bytes) != prefix.count ||
      batch.bytes > staging_.size() || batch.fragment_bytes < kPrefixBytes + prefix.header_bytes ||
      batch.bytes < kBulkBytes) {
    return false;
  }
  std::byte* const place =
      arrivals.place({look + kPrefixBytes, prefix.header_bytes}, prefix.payload_bytes());
  if (place == nullptr) {
    return false;
  }
  std::size_t used = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < prefix.count; ++i) {
    const std::size_t head = kPrefixBytes + (i == 0 ? prefix.header_bytes : 0);
    std::byte* const head_at =
        i == 0 ? look : prefixes_.data() + i * kPrefixBytes;  // The same bytes once more.
    parts_[used++] = {head_at, head};
    const std::size_t bytes = std::min(batch.fragment_bytes - head, prefix.payload_bytes() - at);
    if (bytes > 0) {
      parts_[used++] = {place + at, bytes};
      at += bytes;
    }
  }
  if (take({parts_.data(), used}, 0, batch) < 0) {
    return false;
  }
  for (std::size_t i = 1; i < prefix.count; ++i) {
    Prefix other;
    if (!decode({prefixes_.data() + i * kPrefixBytes, kPrefixBytes}, other) || other.index != i ||
        other.packet != prefix.packet || other.content_bytes != prefix.content_bytes) {
      // Parts of two packets of the same sizes: what was written lies where more is to come.
      std::size_t to = 0;
      for (const iovec& part : std::span(parts_).first(used)) {
        std::memcpy(staging_.data() + to, part.iov_base, part.iov_len);
        to += part.iov_len;
      }
      deliver(arrivals, batch);
      return true;
    }
  }
  counters_.datagrams_received += prefix.count;
  bulk_ = kBulkMemory;
  counters_.payload_bytes_placed += prefix.payload_bytes();
  Arrival arrival;
  arrival.header = {look + kPrefixBytes, prefix.header_bytes};
  arrival.payload_bytes = prefix.payload_bytes();
  arrival.received_ns = batch.received_ns;
  arrival.ecn = batch.ecn;
  arrivals.arrived(arrival);
  return true;
}

bool UdpWire::receive_staged(Arrivals& arrivals) {
  iovec one = {staging_.data(), staging_.size()};
  Batch batch;
  if (take({&one, 1}, 0, batch) < 0) {
    return false;
  }
  bulk_ = batch.bytes >= kBulkBytes ? kBulkMemory : std::max(0, bulk_ - 1);
  if (batch.bytes > staging_.size()) {
    ++counters_.malformed_dropped;
    return true;
  }
  deliver(arrivals, batch);
  return true;
}

void UdpWire::deliver(Arrivals& arrivals, const Batch& batch) {
  std::byte* const base = staging_.data();
  Prefix first;
  const std::size_t count = batch.bytes == 0 ? 0 : fragments(batch.bytes, batch.fragment_bytes);
  counters_.datagrams_received += count;
  // One whole packet: its pieces are moved together.
  if (count > 0 && decode({base, std::min(batch.bytes, batch.fragment_bytes)}, first) &&
      first.index == 0 && first.count == count &&
      batch.bytes == first.content_bytes + count * kPrefixBytes &&
      batch.fragment_bytes >= kPrefixBytes + first.header_bytes) {
    // Two packets of the same sizes, of which one lost its last and one its first: joined they are
    // as long as one. Then each piece is looked at by itself.
    bool fits = true;
    for (std::size_t i = 1; i < count && fits; ++i) {
      const std::size_t from = i * batch.fragment_bytes;
      Prefix other;
      fits = decode({base + from, std::min(batch.fragment_bytes, batch.bytes - from)}, other) &&
             other.index == i && other.packet == first.packet &&
             other.content_bytes == first.content_bytes;
    }
    if (fits) {
      std::size_t to = batch.fragment_bytes;
      for (std::size_t i = 1; i < count; ++i) {
        const std::size_t from = i * batch.fragment_bytes;
        const std::size_t bytes = std::min(batch.fragment_bytes, batch.bytes - from);
        std::memmove(base + to, base + from + kPrefixBytes, bytes - kPrefixBytes);
        to += bytes - kPrefixBytes;
      }
      deliver_content(arrivals, first, {base + kPrefixBytes, first.content_bytes},
                      batch.received_ns, batch.ecn);
      return;
    }
  }
  const transport::TimeNs now_ns = monotonic_ns();
  for (std::size_t from = 0; from < batch.bytes; from += batch.fragment_bytes) {
    const std::size_t bytes = std::min(batch.fragment_bytes, batch.bytes - from);
    if (base[from] == std::byte{kMagicTogether}) {
      const auto take = [&](std::span<const std::byte> header, std::span<const std::byte> payload) {
        Arrival arrival;
        arrival.header = header;
        arrival.payload = payload;
        arrival.payload_bytes = static_cast<std::uint32_t>(payload.size());
        arrival.received_ns = batch.received_ns;
        arrival.ecn = batch.ecn;
        counters_.payload_bytes_copied += payload.size();
        arrivals.arrived(arrival);
      };
      counters_.malformed_dropped += decode_together({base + from, bytes}, take) ? 0 : 1;
      continue;
    }
    Prefix prefix;
    if (!decode({base + from, bytes}, prefix)) {
      ProbeHead probe;
      if (decode_probe({base + from, bytes}, probe)) {
        probes_.take(probe, now_ns);
      } else {
        ++counters_.malformed_dropped;
      }
      continue;
    }
    bool ecn = batch.ecn;
    const std::span<const std::byte> content = assembly_.add(
        now_ns, batch.source, prefix, {base + from + kPrefixBytes, bytes - kPrefixBytes}, ecn);
    if (!content.empty()) {
      deliver_content(arrivals, prefix, content, batch.received_ns, ecn);
    }
  }
  counters_.fragments_dropped +=
      assembly_.dropped() - std::exchange(assembly_dropped_, assembly_.dropped());
}

void UdpWire::deliver_content(Arrivals& arrivals, const Prefix& prefix,
                              std::span<const std::byte> content, transport::TimeNs received_ns,
                              bool ecn) {
  Arrival arrival;
  arrival.header = content.first(prefix.header_bytes);
  arrival.payload = content.subspan(prefix.header_bytes);
  arrival.payload_bytes = prefix.payload_bytes();
  arrival.received_ns = received_ns;
  arrival.ecn = ecn;
  counters_.payload_bytes_copied += arrival.payload_bytes;
  arrivals.arrived(arrival);
}

}  // namespace tutti::wire::udp
