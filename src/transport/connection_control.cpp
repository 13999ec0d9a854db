// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Control packets that leave a connection: which are due, on which path, and what is in them.
#include <algorithm>

#include "transport/connection.hpp"

namespace tutti::transport {

// In turn over all paths: one that has died loses few of many control packets, and each kind of
// them bears loss. Each round begins elsewhere: a repeated group of as many packets as there are
// paths would else meet a dead path with the same packet each time.
PathId Connection::control_path() {
  const std::uint32_t paths = wire().paths;
  // A path that is dead to our data may carry this: perhaps only its answers were lost. And two
  // ends that leave their paths in step with each other would else never meet.
  constexpr std::uint32_t kBlindOneIn = 8;
  if (paths_.alive() < paths_.count() && random_.below(kBlindOneIn) == 0) {
    return static_cast<PathId>(random_.below(paths));
  }
  for (std::uint32_t tries = 0; tries < paths; ++tries) {
    if (control_turn_ % paths == 0) {
      control_first_ = random_.below(paths);
    }
    const auto path = static_cast<PathId>((control_first_ + control_turn_++) % paths);
    if (path >= paths_.count() || paths_.is_usable(path)) {
      return path;
    }
  }
  return 0;
}

Bytes Connection::credit_backlog_bytes() const {
  return outgoing_.backlog_bytes() + flight_.lost_bytes();
}

/// Nothing that leaves will carry the pull target: ask by a packet of its own.
void Connection::request_credit_if_stuck(TimeNs now) {
  if (!credit_ || credit_->can_send() || timers_.is_set(Timer::kRequest) ||
      credit_backlog_bytes() == 0) {
    return;
  }
  // Data in the air carries the target of its time; what was lost did not bring it.
  if (flight_.inflight_chunks() == 0 || flight_.lost_bytes() > 0 ||
      credit_->is_untold(credit_backlog_bytes())) {
    control_ |= kRequestCredit;
  }
  control_backoff_ = 0;
  asked_ns_ = now;
  timers_.set(Timer::kRequest, now + control_rto_ns());
}

void Connection::fill_control(Transmission& out, PathId path, std::size_t header_bytes) {
  out.header_bytes = static_cast<std::uint8_t>(header_bytes);
  out.payload = nullptr;
  out.payload_bytes = 0;
  out.peer = options_.peer;
  out.path = path;
  out.rail = static_cast<std::uint8_t>(path % wire().rails);
  out.is_control = true;
  out.is_speculative = false;
  out.ecn_capable = false;
  seal(out, {});
}

void Connection::encode_last_ack(TimeNs now, Transmission& out, PathId path, std::uint8_t flags) {
  ++counters_.acks_sent;
  fill_control(out, path,
               encode_ack(common(now, PacketType::kAck, flags, path), last_ack_, out.header));
}

void Connection::fill_ack(TimeNs now, Transmission& out, PathId path) {
  acknowledger_.fill(now, last_ack_);
  set_ack_timer();
  encode_last_ack(now, out, path, tells_gap_ ? kFlagGap : 0);
  tells_gap_ = false;
}

void Connection::fill_number(TimeNs now, Transmission& out, PathId path, PacketType type,
                             std::uint8_t flags, std::uint32_t value) {
  fill_control(out, path, encode_number(common(now, type, flags, path), value, out.header));
}

void Connection::fill_advert(TimeNs now, Transmission& out, PathId path) {
  AdvertHeader advert;
  incoming_.fill(advert);
  if (!timers_.is_set(Timer::kControl)) {
    timers_.set(Timer::kControl, now + control_rto_ns());
  }
  if (!incoming_.has_untold()) {
    has_waited_ = false;
    timers_.clear(Timer::kAdvert);
  }
  fill_control(
      out, path,
      encode_advert(common(now, PacketType::kAdvert, advert.has_memory() ? kFlagMemory : 0, path),
                    advert, out.header));
}

void Connection::fill_advert_ack(TimeNs now, Transmission& out, PathId path) {
  note_told_known(outgoing_.known_adverts());
  fill_number(now, out, path, PacketType::kAdvertAck, 0,
              static_cast<std::uint32_t>(outgoing_.known_adverts()));
}

void Connection::note_told_known(std::uint64_t known) {
  told_known_ = std::max(told_known_, known);
  if (!owes_advert_ack()) {
    timers_.clear(Timer::kAdvertAck);
  }
}

// With data only now and then, for each packet costs time: in a stream every message would take an
// acknowledgement of one other along.
bool Connection::poll_piggyback(TimeNs now, bool with_control, Transmission& out) {
  constexpr std::uint32_t kWorthIt = 3;
  const bool is_time = with_control || now == piggybacked_ns_ ||
                       now >= piggybacked_ns_ + options_.acknowledgement.lazy_ns;
  if (!has_piggyback() || (!is_time && acknowledger_.pending() < kWorthIt)) {
    return false;
  }
  piggybacked_ns_ = with_control ? piggybacked_ns_ : now;
  const PathId path = control_path();
  if (acknowledger_.due_ns() != kNever) {
    fill_ack(now, out, path);
  } else if (incoming_.has_untold()) {
    fill_advert(now, out, path);
  } else {
    fill_advert_ack(now, out, path);
  }
  return true;
}

void Connection::fill_ping(TimeNs now, Transmission& out, PathId path) {
  if (pinged_ == 0 || pinged_ns_[(pinged_ - 1) % kPingsMax] != now) {
    pinged_ns_[pinged_++ % kPingsMax] = now;
  }
  fill_control(out, path, encode_plain(common(now, PacketType::kPing, 0, path), out.header));
}

bool Connection::poll_control(TimeNs now, Transmission& out) {
  PathId path = control_path();
  const auto take = [&](Control bit) {
    const bool is_set = (control_ & bit) != 0;
    control_ &= ~static_cast<std::uint32_t>(bit);
    return is_set;
  };
  const auto plain = [&](PacketType type) {
    fill_control(out, path, encode_plain(common(now, type, 0, path), out.header));
    return true;
  };
  const auto number = [&](PacketType type, std::uint8_t flags, std::uint32_t value) {
    fill_number(now, out, path, type, flags, value);
    return true;
  };
  if (take(kReset)) {
    return plain(PacketType::kReset);
  }
  if (take(kCloseAck)) {
    return plain(PacketType::kCloseAck);
  }
  if (has_ended()) {
    return take(kClose) && plain(PacketType::kClose);
  }
  if (acknowledger_.due_ns() == 0) {
    fill_ack(now, out, path);
    return true;
  }
  if (spare_acks_ > 0) {
    --spare_acks_;
    for (std::size_t i = 0; i < last_ack_.echo_count; ++i) {
      last_ack_.echoes[i].turnaround = kTurnaroundUnknown;  // It was of the first copy's time.
    }
    encode_last_ack(now, out, path, kFlagCopy);
    return true;
  }
  if (take(kGrant)) {
    return number(PacketType::kCredit, grant_is_slow_ ? kFlagSlow : 0,
                  static_cast<std::uint32_t>(pacer_.granted_units(index_)));
  }
  if (take(kRequestCredit) && credit_) {
    const std::uint8_t flags = flight_.lost_bytes() > 0 ? kFlagRetransmits : 0;
    return number(PacketType::kRequest, flags, credit_->tell_target(credit_backlog_bytes()));
  }
  if (take(kAdvertAck)) {
    fill_advert_ack(now, out, path);
    return true;
  }
  if (adverts_are_due()) {
    fill_advert(now, out, path);
    return true;
  }
  if (pong_count_ > 0) {
    const Pong pong = pongs_[pong_first_++ % kPongsMax];
    --pong_count_;
    path = pong.path;
    const PongHeader header{pong.stamp, to_turnaround(now - pong.received_ns)};
    fill_control(out, path,
                 encode_pong(common(now, PacketType::kPong, 0, path), header, out.header));
    return true;
  }
  if (take(kClose)) {
    return plain(PacketType::kClose);
  }
  if (pings_due_ > 0) {
    --pings_due_;
    fill_ping(now, out, path);
    return true;
  }
  if ((control_ & kPathProbe) != 0) {
    const PathId probed = paths_.take_probe(now);
    if (probed != kNoPath) {
      fill_ping(now, out, probed);
      return true;
    }
    take(kPathProbe);
    timers_.set(Timer::kPathProbe, paths_.next_probe_ns());
  }
  return false;
}

void Connection::on_granted(bool is_slow) {
  control_ |= kGrant;
  grant_is_slow_ = is_slow;
}

/// Adverts that may wait for company do so for a while.
void Connection::note_untold(TimeNs now) {
  if (is_lazy() && incoming_.has_untold() && !timers_.is_set(Timer::kAdvert)) {
    timers_.set(Timer::kAdvert, now + options_.acknowledgement.lazy_ns);
  }
}

void Connection::set_ack_timer() {
  const TimeNs due_ns = acknowledger_.due_ns();
  timers_.set(Timer::kAck, due_ns == 0 ? kNever : due_ns);
}

}  // namespace tutti::transport
