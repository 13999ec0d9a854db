// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Where the ranks of a job meet that have no MPI: each has a TCP connection to rank 0, which hands
// round what they give and tells all of them when one is gone. A bootstrap for the handles of
// channels, and for small results; not a transport. Everything ends after a bounded time, with the
// ranks in question named. One thread at a time; rank 0 passes news on only while it is in a call.
//
//   rank 0: open(), tell the others address(), join()      the others: open(), join()
//   then all, in the same order: all_gather() ...          any time: news()
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::net {

inline constexpr std::uint8_t kMeetingVersion = 1;

struct MeetingOptions {
  int rank = 0;
  int ranks = 1;
  std::string address;    ///< Of rank 0, "192.0.2.1:5000", "[2001:db8::1]:5000" or with a name. At
                          ///< rank 0 the port may be 0: any that is free.
  std::string key;        ///< Of the job: keeps others out who meet at the same place by mistake.
  double timeout_s = 30;  ///< Of join(): from the first rank that is there to the last.
};

class Meeting {
 public:
  virtual ~Meeting() = default;
  /// Rank 0 listens; nobody waits for anybody yet. Errors: an address that cannot be used.
  static Result<std::unique_ptr<Meeting>> open(const MeetingOptions& options);

  /// Where the others find rank 0, with the real port.
  virtual std::string address() const = 0;
  /// Returns when all ranks are here. Errors: who is missing after the time, or finds no descriptor
  /// left at rank 0 (kTimeout); another version, key or number of ranks, a rank that is there
  /// twice, with both values (kInvalidArgument).
  virtual Status join() = 0;

  /// Everybody's text, by rank. Errors (kTimeout): who is gone, has given up or has not come within
  /// `timeout_s`; 0: any time. No later call works after one.
  virtual Result<std::vector<std::string>> all_gather(const std::string& mine,
                                                      double timeout_s) = 0;

  /// Whether all are still there, as far as is known. Waits up to `patience_s` for bad news.
  virtual Status news(double patience_s) = 0;
  /// Tells the others that this rank cannot go on, and why. Nothing after the first bad news.
  virtual void give_up(const std::string& why) = 0;
};

}  // namespace tutti::net
