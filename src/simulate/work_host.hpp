// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A host with something to do, whatever its protocol is.
#pragma once

#include <utility>

#include "simulate/host.hpp"
#include "simulate/workload.hpp"

namespace tutti::simulate {

/// What a protocol did on one host, as far as all protocols have it.
struct HostCounters {
  std::uint64_t packets_sent = 0;  ///< Of data, retransmissions included.
  std::uint64_t retransmissions = 0;
  std::uint64_t spurious = 0;  ///< Retransmissions that were not needed.
  std::uint64_t timeouts = 0;
  std::uint64_t acks_sent = 0;
  std::uint64_t bytes_received = 0;  ///< Payload, each byte once.
};

class WorkHost : public Host {
 public:
  explicit WorkHost(HostWork work) : progress_(std::move(work)) {}

  const Progress& progress() const { return progress_; }
  Progress& progress() { return progress_; }
  virtual HostCounters counters() const = 0;

 protected:
  Progress progress_;
};

}  // namespace tutti::simulate
