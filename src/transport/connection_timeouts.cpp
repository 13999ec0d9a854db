// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a connection does when one of its timers fires. How long they are: LossDetector (loss.cpp).
#include <algorithm>
#include <utility>

#include "transport/connection.hpp"

namespace tutti::transport {
namespace {

constexpr TimeNs kStuckGiveUps = 4;  // Slow is not gone: few live paths among dead ones take time.
constexpr std::uint32_t kControlBackoffMax = 20;

}  // namespace

void Connection::on_timeout(TimeNs now) {
  for (Timer timer = timers_.pop(now); timer != Timer::kCount; timer = timers_.pop(now)) {
    switch (timer) {
      case Timer::kRetransmit:
        on_retransmit_timer(now);
        break;
      case Timer::kRack:
        timers_.set(Timer::kRack, loss_.detect_by_time(flight_, now, [&](std::uint64_t number) {
          lose(now, number, LossCause::kRack);
        }));
        request_credit_if_stuck(now);
        break;
      case Timer::kTailProbe:
        on_tail_probe_timer(now);
        break;
      case Timer::kAck:
        acknowledger_.request();
        break;
      case Timer::kPace:
        break;  // The endpoint asks can_send again.
      case Timer::kGap:
        on_gap_timer(now);
        break;
      case Timer::kRequest:
        on_request_timer(now);
        break;
      case Timer::kControl:
        on_control_timer(now);
        break;
      case Timer::kAdvert:
        has_waited_ = incoming_.has_untold();
        break;
      case Timer::kAdvertAck:
        control_ |= owes_advert_ack() ? kAdvertAck : 0U;
        break;
      case Timer::kPathProbe:
        control_ |= kPathProbe;
        break;
      case Timer::kKeepAlive:
        on_keep_alive_timer(now);
        break;
      case Timer::kLinger:
        advance(now, ConnectionEvent::kLingerElapsed);
        break;
      case Timer::kCount:
        break;
    }
  }
}

void Connection::on_retransmit_timer(TimeNs now) {
  const std::uint64_t oldest = flight_.oldest();
  if (oldest == Flight::kNoChunk) {
    return;
  }
  const TimeNs due = std::max(flight_.at(oldest).sent_ns, progress_ns_) + loss_.rto_ns();
  if (now < due) {
    timers_.set(Timer::kRetransmit, due);
    return;
  }
  ++counters_.timeouts;
  trace(now, TraceKind::kTimeout, kNoPath, oldest, 0, loss_.backoff());
  // Only what should have been heard of by now, not all that is in the air.
  const TimeNs loss_delay_ns = loss_.overdue_ns();
  std::uint64_t number = oldest;
  do {
    lose(now, number, LossCause::kTimeout);
    number = flight_.oldest();
  } while (number != Flight::kNoChunk && flight_.at(number).sent_ns + loss_delay_ns <= now);
  loss_.on_timeout();
  for (std::uint32_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    group.spray.on_timeout(now);
    Feedback feedback;
    feedback.now = now;
    feedback.bytes = std::exchange(group.timed_out_bytes, 0);
    feedback.srtt_ns = loss_.rtt().srtt_ns();
    feedback.inflight_bytes = inflight_bytes_[i];
    if (feedback.bytes > 0) {
      tell_group(group, flight_.orders());
      group.controller->on_timeout(feedback);
    }
  }
  if (policy_ && policy_.hooks().on_timeout != nullptr) {
    const tutti_transport_view seen = view(now);
    policy_.hooks().on_timeout(policy_.state(), &seen);
  }
  if (flight_.oldest() != Flight::kNoChunk) {
    timers_.set(Timer::kRetransmit, now + loss_.rto_ns());
  }
  request_credit_if_stuck(now);
}

void Connection::on_tail_probe_timer(TimeNs now) {
  const std::uint64_t newest = flight_.newest();
  if (newest == Flight::kNoChunk || loss_.is_in_recovery(flight_)) {
    return;
  }
  const TimeNs due =
      std::max(flight_.at(newest).sent_ns, progress_ns_) + loss_.tail_probe_ns(flight_.at(newest));
  if (now < due) {
    timers_.set(Timer::kTailProbe, due);
    return;
  }
  if (probed_ == newest && flight_.at(newest).transmissions > 1) {
    return;  // At most one probe without an answer.
  }
  tail_probe_due_ = true;
  ++counters_.tail_probes;
  trace(now, TraceKind::kTailProbe, kNoPath, newest, 0, 0);
}

void Connection::on_control_timer(TimeNs now) {
  if (state_ == ConnectionState::kClosing) {
    control_ |= kClose;
  } else if (incoming_.has_unknown()) {
    // Where answers wait there is always a young one without; none is lost while they come.
    if (is_lazy() && std::exchange(known_before_, incoming_.known()) != incoming_.known()) {
      control_backoff_ = 0;
      timers_.set(Timer::kControl, now + control_rto_ns());
      return;
    }
    incoming_.tell_again();
    has_waited_ = true;
  } else {
    return;
  }
  control_backoff_ = std::min(control_backoff_ + 1, kControlBackoffMax);
  timers_.set(Timer::kControl, now + control_rto_ns());
}

/// Of what the peer owes us while it gives signs of life: since when it has been missing. Nothing
/// here waits for the peer's program, but for its end of this connection alone.
TimeNs Connection::stalled_since_ns(TimeNs now) {
  if (looked_chunks_ != counters_.chunks_received) {
    looked_chunks_ = counters_.chunks_received;
    data_ns_ = now;
  }
  if (!incoming_.has_unknown() || looked_known_ != incoming_.known()) {
    looked_known_ = incoming_.known();
    known_ns_ = now;
  }
  TimeNs since_ns = known_ns_;
  if (flight_.inflight_chunks() > 0 || flight_.first_lost() != Flight::kNoChunk ||
      state_ == ConnectionState::kClosing) {
    // A peer that has closed takes no data of ours, and ends us when its own is here.
    since_ns = std::min(since_ns, peer_closes_ ? std::max(progress_ns_, data_ns_) : progress_ns_);
  }
  if (credit_ && !credit_->can_send() && credit_backlog_bytes() > 0) {
    since_ns = std::min(since_ns, asked_ns_);
  }
  since_ns = std::min(since_ns, split_receives_ ? split_receives_->look(now, data_ns_)
                                                : incoming_.look(now, data_ns_));
  return std::max(since_ns, waiting_since_ns_);
}

void Connection::on_keep_alive_timer(TimeNs now) {
  if (!is_waiting()) {
    waiting_since_ns_ = kNever;
    return;
  }
  const TimeNs interval = options_.loss.give_up_ns / 8;
  const TimeNs silent_since = std::max(heard_ns_, waiting_since_ns_);
  const bool is_stuck = now - stalled_since_ns(now) >= kStuckGiveUps * options_.loss.give_up_ns;
  if (is_stuck || now - silent_since >= options_.loss.give_up_ns) {
    advance(now, ConnectionEvent::kPeerSilent);
    return;
  }
  // More and more of them, each on another path: of those that are dead for one direction, an end
  // that only waits knows nothing, and a ping and its answer need one that lives for both.
  const auto intervals = static_cast<std::uint32_t>((now - silent_since) / interval);
  if (intervals > 0) {
    pings_due_ = std::min(1U << (std::max(intervals, 2U) - 2), wire().paths);
  }
  timers_.set(Timer::kKeepAlive, now + interval);
}

// Credit was asked for and none came: the request or the grant was lost.
void Connection::on_request_timer(TimeNs now) {
  if (!credit_ || credit_->can_send() || credit_backlog_bytes() == 0) {
    return;
  }
  control_ |= kRequestCredit;
  control_backoff_ = std::min(control_backoff_ + 1, kControlBackoffMax);
  timers_.set(Timer::kRequest, now + control_rto_ns());
}

// A hole is older than reordering explains: without trimming nothing else would tell so soon.
void Connection::on_gap_timer(TimeNs now) {
  const TimeNs since = acknowledger_.hole_since_ns();
  if (since == kNever) {
    return;
  }
  const TimeNs delay_ns = wire().base_rtt_ns * 3 / 2;
  if (now < since + delay_ns) {
    timers_.set(Timer::kGap, since + delay_ns);
    return;
  }
  tells_gap_ = true;
  acknowledger_.request();
  pacer_.on_wanted(now, index_, pacer_.wanted_units(index_), true);
  timers_.set(Timer::kGap, now + delay_ns);
}

}  // namespace tutti::transport
