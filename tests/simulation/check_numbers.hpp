// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Invariants 5 and 6, as the wire shows them, of what one end sends: what is acknowledged has come,
// cumulative numbers and told bits never go back, credit only grows, and a packet counts once.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "simulation/records.hpp"

namespace tutti::transport::simulation {

class CheckNumbers {
 public:
  void start(const ConnectionRecord& connection, int end);
  /// A packet of this end leaves.
  void on_transmit(const Flying& packet);
  /// A packet of the other end was handed to this one, unchanged.
  void on_handed(const Flying& packet);
  /// Each copy of a packet that was handed over again has been dropped.
  void check_replays(const ConnectionCounters& counters) const;
  /// Credit granted by this end, in bytes.
  Bytes granted_bytes() const { return granted_bytes_; }

 private:
  void on_ack(const AckHeader& ack);
  bool has(std::uint64_t chunk) const {
    const auto it = handed_.find(chunk / 64);
    return it != handed_.end() && (it->second >> (chunk % 64) & 1) != 0;
  }

  const ConnectionRecord* connection_ = nullptr;
  int end_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t next_packet_ = 0;
  std::uint64_t handed_below_ = 0;  ///< All chunks before it were handed over.
  std::uint64_t cumulative_ = 0;
  Bytes received_bytes_ = 0;
  std::uint64_t credit_units_ = 0;
  Bytes granted_bytes_ = 0;
  std::uint64_t copies_ = 0;
  std::unordered_set<std::uint32_t> packets_;
  std::unordered_map<std::uint64_t, std::uint64_t> handed_;  ///< By word of 64 chunks.
  std::unordered_map<std::uint64_t, std::uint64_t> told_;
};

}  // namespace tutti::transport::simulation
