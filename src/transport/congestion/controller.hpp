// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How much may be in the air: one object per group of paths. What happened (on_...) is separate
// from what may be done (window, gap). Windows are bytes, times ns, all integers; a controller
// keeps no clock and does not count what is in the air: both are in the feedback.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

struct ControllerOptions {
  std::uint32_t chunk_bytes = 4096;
  std::uint32_t mtu_bytes = 4096;
  TimeNs base_rtt_ns = 12'000;  ///< Of a full chunk on idle links.
  Bytes bdp_bytes = 600'000;    ///< Line rate times base_rtt; of this group's share.
  Bytes window_bytes_max = 900'000;
  Bytes window_bytes_min = 0;      ///< Below its own floor, for those that pace; 0: theirs.
  bool base_rtt_is_guess = false;  ///< See WireCapabilities.
  bool trims = false;
  bool marks_ecn = true;
  bool has_credit = false;  ///< The receiver grants credit too.
  std::uint32_t cubic_time_scale = 1;
};

/// One piece of news about chunks of the group.
struct Feedback {
  TimeNs now = 0;
  Bytes bytes = 0;            ///< Newly acknowledged, lost or trimmed.
  TimeNs round_trip_ns = 0;   ///< With the time that hosts take; 0: none.
  TimeNs fabric_ns = 0;       ///< Without it; 0: none.
  bool is_full_chunk = true;  ///< A shorter chunk has a shorter idle round trip.
  bool ecn = false;
  /// Of a loss or trim: sent after the latest reaction to one; false: of the same overload.
  bool is_new_episode = true;
  bool last_hop = false;     ///< Of a trim.
  TimeNs srtt_ns = 0;        ///< Of the round trip: after so long a change is heard of.
  Bytes inflight_bytes = 0;  ///< Of the group, after the news.
};

class Controller {
 public:
  virtual ~Controller() = default;

  virtual void on_ack(const Feedback& feedback) = 0;
  /// A switch trimmed a chunk.
  virtual void on_nack(const Feedback& feedback) { on_loss(feedback); }
  /// A chunk was lost.
  virtual void on_loss(const Feedback& feedback) = 0;
  /// Nothing was heard for a whole RTO.
  virtual void on_timeout(const Feedback& feedback) = 0;
  /// All retransmissions of the latest episode were needless.
  virtual void on_spurious(TimeNs now) { static_cast<void>(now); }

  /// Time between two chunks of `bytes`; 0: no pacing.
  virtual TimeNs gap_ns(Bytes bytes) const {
    static_cast<void>(bytes);
    return 0;
  }

  Bytes window_bytes() const { return window_bytes_; }

 protected:
  /// The first window: each controller's constructor says which of the options it is;
  /// connection.cpp fills them.
  explicit Controller(Bytes window_bytes) : window_bytes_(window_bytes) {}

  Bytes window_bytes_;  ///< At least 1 while a connection can make progress.
};

/// True of "rccc", "eqds" and NAME+rccc.
bool uses_credit(std::string_view name);
/// True of those that look at Feedback::fabric_ns.
bool uses_delay(std::string_view name);

/// All names: "nscc, swift, ...".
std::string controller_names();

/// Errors: kInvalidArgument, with the known names.
Result<std::unique_ptr<Controller>> make_controller(std::string_view name,
                                                    const ControllerOptions& options);

}  // namespace tutti::transport
