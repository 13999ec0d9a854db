// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Start-up of a job without MPI: each rank has a TCP connection to rank 0, which distributes what
// the ranks contribute and tells all of them when one is gone. It carries the handles of channels
// and small results; it is not a transport. Every call ends after a bounded time, with the ranks in
// question named. One thread at a time; rank 0 passes failures on only while it is in a call.
//
//   rank 0: open(), tell the others address(), join()      the others: open(), join()
//   then all, in the same order: all_gather() ...          any time: news()
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::net {

inline constexpr std::uint8_t kBootstrapVersion = 1;

struct TcpBootstrapOptions {
  int rank = 0;
  int ranks = 1;
  std::string address;    ///< Of rank 0, "192.0.2.1:5000", "[2001:db8::1]:5000" or with a name. At
                          ///< rank 0 the port may be 0: any that is free.
  std::string key;        ///< Of the job: ranks of another job at the same address are refused.
  double timeout_s = 30;  ///< Of join(): from the first rank that is there to the last.
};

class TcpBootstrap {
 public:
  virtual ~TcpBootstrap() = default;
  /// Rank 0 listens; no rank waits yet. Errors: an address that cannot be used.
  static Result<std::unique_ptr<TcpBootstrap>> open(const TcpBootstrapOptions& options);

  /// Where the others find rank 0, with the real port.
  virtual std::string address() const = 0;
  /// Returns when all ranks have joined. Errors: who is missing after the time, or rank 0 has no
  /// descriptor left (kTimeout); another version, key or number of ranks, a rank that is there
  /// twice, with both values (kInvalidArgument).
  virtual Status join() = 0;

  /// The texts of all ranks, by rank. Errors (kTimeout): who is gone, has given up or has not come
  /// within `timeout_s`; 0: any time. No later call works after one.
  virtual Result<std::vector<std::string>> all_gather(const std::string& mine,
                                                      double timeout_s) = 0;

  /// An error once a rank is known to be gone. Waits up to `wait_s` for one.
  virtual Status news(double wait_s) = 0;
  /// Tells the others that this rank cannot go on, and why. No effect after a first failure.
  virtual void give_up(const std::string& why) = 0;
};

}  // namespace tutti::net
