// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A completion queue of receives (libibverbs' extended one) that tells when the NIC completed each:
// how long a packet lay here before an engine looked is then no part of the round trip.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "transport/types.hpp"
#include "wire/verbs/driver_verbs.hpp"
#include "wire/verbs/nic_clock.hpp"

namespace tutti::wire::verbs {

class StampedCq {
 public:
  struct Options {
    int entries = 0;
    CompletionChannel* channel = nullptr;  ///< Null: none.
    int vector = 0;
    NicClock::HostClock clock;
  };
  /// Errors: why there are no stamps (kUnavailable).
  static Result<StampedCq> open(Context* context, const Options& options);

  /// The caller's to destroy.
  Cq* cq() const { return &cq_->cq; }
  /// Takes up to done.size() completions; how many there were. `received_ns` has room for as many;
  /// kNever: unknown.
  std::size_t poll(std::span<Completion> done, transport::TimeNs* received_ns);
  /// Why there are no stamps any more; empty: there are.
  const std::string& failure() const { return failure_; }

 private:
  StampedCq(ExtendedCq* cq, NicClock clock, NicClock::HostClock host_clock)
      : cq_(cq), clock_(std::move(clock)), host_clock_(std::move(host_clock)) {}

  ExtendedCq* cq_;
  NicClock clock_;
  NicClock::HostClock host_clock_;
  std::string failure_;
};

}  // namespace tutti::wire::verbs
