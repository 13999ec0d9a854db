// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What probes have found (prober.hpp), in words for the user, and the longest chunk that datagrams
// carry: what wires of UDP datagrams have in common, whatever sends these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/units.hpp"
#include "wire/udp/prober.hpp"

namespace tutti::wire::udp {

struct FindingPlace {
  std::string from;                ///< This host's address.
  std::string to;                  ///< The peer's.
  std::size_t fragment_bytes = 0;  ///< UDP payload of a full datagram, before the finding.
  std::size_t ip_bytes = 0;        ///< Of the headers before it.
  std::size_t paths = 0;
  std::function<std::uint16_t(std::size_t)> port_of;  ///< Of a path.
};

struct FindingText {
  std::string what;
  std::string remedy;
};

FindingText text_of(const Prober::Finding& finding, const FindingPlace& place);

/// Payload of a full packet in datagrams of `fragment_bytes` of UDP payload, at most
/// `fragments_max` of them. `wanted_bytes` 0: as much as a link transmits in 200 us.
std::uint32_t chunk_bytes_of(std::size_t fragment_bytes, std::size_t fragments_max,
                             std::uint32_t wanted_bytes, std::uint32_t ps_per_byte);

}  // namespace tutti::wire::udp
