// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Whether datagrams pass both ways between two processes that are connected by TCP. Both ends ask
// by datagrams (wire::Wire::reach) and tell each other by TCP what came: so a firewall that drops
// UDP is found, and in which direction, and is not taken for a peer that is stopped, late or gone,
// which tells nothing. No clock, no sockets.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "transport/types.hpp"
#include "wire/wire.hpp"

namespace tutti::net {

/// What an end says of the set-up, by TCP. Sub-connection i is bit i.
struct ReachReport {
  /// All its sub-connections reach the peer's and are reached; the last report.
  bool is_done = false;
  std::uint32_t heard = 0;  ///< Sub-connections on which datagrams have come.
  std::uint32_t tried = 0;  ///< Sub-connections that have asked often, in vain.
  std::string failure;      ///< Why there is no channel; the last report.
  friend bool operator==(const ReachReport&, const ReachReport&) = default;
};

inline constexpr std::size_t kFailureBytes = 1008;
inline constexpr std::size_t kReportBytes = 1024;
using ReportBytes = std::array<std::byte, kReportBytes>;

/// A failure is cut to kFailureBytes.
ReportBytes encode(const ReachReport& report);
/// Errors: not a report (kInvalidArgument).
Result<ReachReport> decode_report(std::span<const std::byte> bytes);

class ReachCheck {
 public:
  using TimeNs = transport::TimeNs;

  static constexpr TimeNs kReportNs = 500'000'000;    ///< Between reports.
  static constexpr TimeNs kEvidenceNs = 500'000'000;  ///< In which what is on its way arrives.

  enum class Direction : std::uint8_t { kTo, kFrom, kTooSmall };
  struct Blocked {
    std::uint32_t sub = 0;
    Direction direction = Direction::kTo;
    friend bool operator==(const Blocked&, const Blocked&) = default;
  };

  explicit ReachCheck(std::uint32_t sub_connections)
      : sub_connections_(sub_connections), tried_ns_(sub_connections, transport::kNever) {}

  /// What the wires have found so far.
  void look(TimeNs now, std::span<const wire::Reach> sub_connections);
  void hear(TimeNs now, const ReachReport& report);
  /// What is to be sent now, if anything.
  std::optional<ReachReport> report(TimeNs now);
  /// Both ends are, and have said so.
  bool is_done() const { return is_known_ && has_said_done_ && theirs_ && theirs_->is_done; }
  /// What does not pass; empty: that is open.
  std::vector<Blocked> blocked(TimeNs now);
  /// Same, without waiting for more: the peer has gone.
  std::vector<Blocked> evidence() const;

 private:
  std::uint32_t sub_connections_;
  std::vector<TimeNs> tried_ns_;  ///< By sub-connection: since when it has been tried.
  ReachReport mine_;
  bool is_known_ = false;
  std::uint32_t too_small_ = 0;
  std::optional<ReachReport> theirs_;
  TimeNs heard_ns_ = transport::kNever;    ///< When their last report came.
  TimeNs tells_ns_ = transport::kNever;    ///< When they first reported one as tried.
  TimeNs report_ns_ = transport::kNever;   ///< When the next one of ours is due.
  TimeNs evident_ns_ = transport::kNever;  ///< Since when something has been.
  bool has_said_done_ = false;
};

/// `who`: the peer. `ends`: by sub-connection.
std::string text_of(std::span<const ReachCheck::Blocked> blocked, std::span<const wire::Ends> ends,
                    const std::string& who, const std::string& me);

}  // namespace tutti::net
