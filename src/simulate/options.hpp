// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a network is like. Zero in a size means "from the bandwidth-delay product": the values of
// the public UEC simulator, so that figures can stand beside its own (docs/network-simulation.md).
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/fabric.hpp"
#include "simulate/time.hpp"

namespace tutti::simulate {

/// How a chunk larger than a packet crosses switches.
enum class Forwarding : std::uint8_t {
  kChunk,  ///< Stored and forwarded whole.
  kMtu,    ///< Cut into packets by the NIC.
};

/// Packets that die on the last link of their way, so that a rate is end to end. Probabilities in
/// 1/2^32. A Gilbert-Elliott chain when `good_to_bad` is not 0: a state per link, moved per packet.
struct LossModel {
  std::uint32_t good_q32 = 0;  ///< Probability of loss in the good state.
  std::uint32_t bad_q32 = 0;   ///< ... in the bad state.
  std::uint32_t good_to_bad_q32 = 0;
  std::uint32_t bad_to_good_q32 = 0;
};

/// From `at_ps` on a link has this rate; 0: what is sent over it is lost.
struct LinkChange {
  TimePs at_ps = 0;
  std::uint32_t link = 0;
  std::uint64_t mbit_per_s = 0;
};

struct SimNetworkOptions {
  std::uint64_t seed = 1;
  std::uint64_t mbit_per_s = 400'000;
  TimePs latency_ps = kPsPerUs;  ///< Of each link; also the lookahead of a window. Not 0.
  std::uint32_t header_bytes = 64;
  std::uint32_t mtu_bytes = 4096;    ///< Payload of the largest packet.
  std::uint32_t chunk_bytes = 4096;  ///< Payload that a host hands to the NIC at once.
  Forwarding forwarding = Forwarding::kChunk;

  bool trim = true;                  ///< Overflow cuts a packet to its header; false: drops it.
  std::uint32_t queue_bytes = 0;     ///< Data per port; 0: 1 BDP with trimming, 5 without.
  std::uint32_t control_bytes = 0;   ///< Control per port; 0: twice queue_bytes.
  std::uint32_t ecn_low_bytes = 0;   ///< Marking begins; 0: 20 % of the BDP.
  std::uint32_t ecn_high_bytes = 0;  ///< Everything is marked; 0: 80 % of the BDP.
  bool ecn_on_last_hop = true;       ///< False: switches do not mark towards hosts.
  bool lossless = false;             ///< Pause in place of overflow; queue_bytes has no meaning.
  std::uint32_t pause_bytes = 0;     ///< Of one in-link held by a switch; 0: a fifth of the BDP.
  std::uint32_t resume_bytes = 0;    ///< 0: half of pause_bytes.
  LossModel loss{};
  std::vector<LinkChange> changes{};

  PsPerByteQ16 rate() const { return ps_per_byte_q16(mbit_per_s); }
  /// The largest packet on the wire, header included.
  std::uint32_t packet_bytes() const;
  /// Full packets there, empty ones back, over the longest way, without queues.
  TimePs base_rtt_ps(const Fabric& fabric) const;
  /// Bytes that base_rtt_ps holds.
  std::uint64_t bdp_bytes(const Fabric& fabric) const;
};

/// The options with their zeros filled in.
SimNetworkOptions resolved(SimNetworkOptions options, const Fabric& fabric);

}  // namespace tutti::simulate
