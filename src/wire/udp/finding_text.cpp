// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/finding_text.hpp"

#include <algorithm>

#include "wire/udp/frame.hpp"
#include "wire/udp/udp_socket.hpp"

namespace tutti::wire::udp {
namespace {

constexpr transport::TimeNs kChunkTimeNs = 200'000;  ///< Most that one occupies a link.
constexpr Bytes kFragmentsMin = 3;                   ///< Of a chunk, on the slowest of links.
constexpr std::size_t kPortsTold = 8;
constexpr const char* kPortsRemedy =
    "let UDP pass between the hosts, from and to all ports of net.ipv4.ip_local_port_range";

}  // namespace

FindingText text_of(const Prober::Finding& finding, const FindingPlace& place) {
  const std::string where = " from " + place.from + " to " + place.to;
  if (finding.kind == Prober::FindingKind::kSilentPaths) {
    std::string ports;
    for (std::size_t i = 0; i < std::min(finding.paths.size(), kPortsTold); ++i) {
      ports += " " + std::to_string(place.port_of(finding.paths[i]));
    }
    return {std::to_string(finding.paths.size()) + " of " + std::to_string(place.paths) +
                " paths on which nothing arrives" + where + " (from UDP ports" + ports +
                (finding.paths.size() > kPortsTold ? " and others" : "") + ")",
            kPortsRemedy};
  }
  const std::string here = std::to_string(place.fragment_bytes + place.ip_bytes);
  const std::string found = std::to_string(finding.bytes + place.ip_bytes);
  const std::string remedy = "an MTU of " + here +
                             " on all switches and routers between them, or one that they let "
                             "pass on the interfaces of both hosts (ip link set DEVICE mtu " +
                             found + ")";
  if (finding.kind == Prober::FindingKind::kSmaller) {
    return {"an MTU of " + found + " and not " + here + where +
                ": longer packets do not arrive, and nothing says so",
            remedy};
  }
  return {"no packets of even " + found + " bytes" + where + ": short ones arrive, those do not",
          remedy};
}

std::uint32_t chunk_bytes_of(std::size_t fragment_bytes, std::size_t fragments_max,
                             std::uint32_t wanted_bytes, std::uint32_t ps_per_byte) {
  const std::size_t content = fragment_bytes - kPrefixBytes;
  const Bytes most = std::min<Bytes>(fragments_max * content, kContentBytesMax) - kDataHeaderBytes;
  // On a slow link a chunk is shorter, or one alone would be a long queue.
  // The header is part of the first datagram: a chunk of whole ones would spill into one more.
  const Bytes in_time = kChunkTimeNs * 1000 / ps_per_byte;
  const Bytes fitting =
      std::max<Bytes>(in_time / content, kFragmentsMin) * content - kDataHeaderBytes;
  return static_cast<std::uint32_t>(
      std::min<Bytes>(wanted_bytes == 0 ? fitting : wanted_bytes, most));
}

}  // namespace tutti::wire::udp
