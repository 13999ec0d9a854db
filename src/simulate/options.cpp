// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/options.hpp"

#include <algorithm>

namespace tutti::simulate {

std::uint32_t SimNetworkOptions::packet_bytes() const {
  const bool whole = forwarding == Forwarding::kChunk;
  return (whole ? chunk_bytes : std::min(chunk_bytes, mtu_bytes)) + header_bytes;
}

TimePs SimNetworkOptions::base_rtt_ps(const Fabric& fabric) const {
  const std::uint32_t hops = fabric.hops_max();
  return hops * (2 * latency_ps + serialisation_ps(packet_bytes(), rate()) +
                 serialisation_ps(header_bytes, rate()));
}

std::uint64_t SimNetworkOptions::bdp_bytes(const Fabric& fabric) const {
  // A link without a rate is refused where it is used.
  return (base_rtt_ps(fabric) << 16) / std::max<PsPerByteQ16>(1, rate());
}

SimNetworkOptions resolved(SimNetworkOptions options, const Fabric& fabric) {
  const auto bdp = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(options.bdp_bytes(fabric), std::uint32_t{1} << 28));
  const auto fill = [](std::uint32_t* field, std::uint32_t value) {
    *field = *field == 0 ? value : *field;
  };
  fill(&options.queue_bytes, options.trim ? bdp : 5 * bdp);
  fill(&options.control_bytes, 2 * options.queue_bytes);
  fill(&options.ecn_low_bytes, bdp / 5);
  fill(&options.ecn_high_bytes, bdp - bdp / 5);
  fill(&options.pause_bytes, bdp / 5);
  fill(&options.resume_bytes, options.pause_bytes / 2);
  return options;
}

}  // namespace tutti::simulate
