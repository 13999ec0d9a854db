// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/credit.hpp"

#include <algorithm>

#include "transport/packet.hpp"
#include "transport/serial.hpp"

namespace tutti::transport {

CreditSender::CreditSender(Bytes speculative_bytes, Bytes window_bytes_max, std::uint32_t mtu_bytes,
                           std::uint64_t first_unit)
    : credit_bytes_(static_cast<std::int64_t>(std::min(speculative_bytes, window_bytes_max))),
      window_bytes_max_(window_bytes_max),
      mtu_bytes_(mtu_bytes),
      first_unit_(first_unit),
      pulled_units_(first_unit),
      told_units_(first_unit),
      is_speculating_(credit_bytes_ > 0) {}

bool CreditSender::on_credit(std::uint32_t granted_units) {
  const std::uint64_t granted = expand(granted_units, pulled_units_);
  if (granted <= pulled_units_) {
    return false;
  }
  on_heard();
  credit_bytes_ += static_cast<std::int64_t>((granted - pulled_units_) * kCreditUnitBytes);
  pulled_units_ = granted;
  return true;
}

void CreditSender::on_heard() {
  if (is_speculating_) {
    is_speculating_ = false;
    credit_bytes_ = std::min<std::int64_t>(credit_bytes_, 0);
  }
}

std::uint64_t CreditSender::target_units(Bytes backlog_bytes) const {
  std::int64_t wanted =
      static_cast<std::int64_t>(std::min(backlog_bytes, window_bytes_max_)) - credit_bytes_;
  if (is_speculating_ && backlog_bytes > 0) {
    wanted = std::max<std::int64_t>(wanted, mtu_bytes_);
  }
  const std::int64_t units = wanted <= 0 ? 0 : (wanted + kCreditUnitBytes - 1) / kCreditUnitBytes;
  return pulled_units_ + static_cast<std::uint64_t>(units);
}

std::uint32_t CreditSender::tell_target(Bytes backlog_bytes) {
  const std::uint64_t target = target_units(backlog_bytes);
  told_units_ = std::max(told_units_, target);
  return static_cast<std::uint32_t>(target);
}

CreditPacer::CreditPacer(std::uint32_t connections, std::uint32_t ps_per_byte)
    : senders_(connections), ps_per_byte_(ps_per_byte) {}

void CreditPacer::add(std::uint32_t connection, std::uint64_t first_unit, std::uint32_t grant_bytes,
                      Bytes window_bytes_max, TimeNs base_rtt_ns) {
  Sender& it = senders_[connection];
  it = Sender{};
  it.wanted_units = first_unit;
  it.granted_units = first_unit;
  it.grant_bytes = std::max(grant_bytes / kCreditUnitBytes, 1U) * kCreditUnitBytes;
  it.window_bytes_max = window_bytes_max;
  it.is_present = true;
  round_ns_ = base_rtt_ns;
}

void CreditPacer::remove(std::uint32_t connection) {
  Sender& it = senders_[connection];
  if (!it.is_present) {
    return;
  }
  move_to(kNone, connection);
  it.is_present = false;
}

void CreditPacer::append(List list, std::uint32_t connection) {
  Queue& queue = queues_[list];
  senders_[connection].list = list;
  senders_[connection].next = kNobody;
  (queue.tail == kNobody ? queue.head : senders_[queue.tail].next) = connection;
  queue.tail = connection;
}

std::uint32_t CreditPacer::take(List list) {
  Queue& queue = queues_[list];
  const std::uint32_t connection = queue.head;
  if (connection != kNobody) {
    queue.head = senders_[connection].next;
    if (queue.head == kNobody) {
      queue.tail = kNobody;
    }
    senders_[connection].list = kNone;
  }
  return connection;
}

void CreditPacer::move_to(List list, std::uint32_t connection) {
  Sender& it = senders_[connection];
  if (it.list == list) {
    return;
  }
  if (it.list != kNone) {
    Queue& queue = queues_[it.list];
    std::uint32_t previous = kNobody;
    for (std::uint32_t i = queue.head; i != connection; i = senders_[i].next) {
      previous = i;
    }
    (previous == kNobody ? queue.head : senders_[previous].next) = it.next;
    if (queue.tail == connection) {
      queue.tail = previous;
    }
    it.list = kNone;
  }
  if (list != kNone) {
    append(list, connection);
  }
}

void CreditPacer::on_wanted(TimeNs now, std::uint32_t connection, std::uint64_t units, bool lost) {
  Sender& it = senders_[connection];
  if (next_ns() == kNever) {
    next_ns_ = std::max(next_ns_, now);
  }
  // Rounded up: the smallest windows are a part of a unit.
  const std::uint64_t units_max =
      it.granted_units + (2 * it.window_bytes_max + kCreditUnitBytes - 1) / kCreditUnitBytes;
  it.wanted_units = std::max(it.wanted_units, std::min(units, units_max));
  if (it.wanted_units > it.granted_units) {
    it.unrequested_bytes = 0;
  }
  if (lost) {
    it.lost_bytes = std::max<Bytes>(it.lost_bytes, it.grant_bytes);
    move_to(kLost, connection);
  } else if (it.wanted_units > it.granted_units && it.list != kLost) {
    move_to(kActive, connection);
  }
}

void CreditPacer::on_arrival(TimeNs now, bool ecn, bool trimmed, bool last_hop) {
  ++arrivals_;
  marks_ += ecn && !trimmed ? 1 : 0;
  core_trims_ += trimmed && !last_hop ? 1 : 0;
  if (now >= round_end_ns_) {
    adapt(now);
  }
}

// Once per round trip: congestion that is not on the last link slows the grants down.
void CreditPacer::adapt(TimeNs now) {
  constexpr std::uint32_t kGate = 307;  // A marked share of 30 %.
  constexpr std::uint32_t kStep = 10;   // 1 %
  mark_share_ = (mark_share_ + marks_ * 1024 / arrivals_) / 2;
  rate_ -= std::min(rate_, rate_ * core_trims_ / arrivals_);
  if (mark_share_ > kGate) {
    rate_ -= rate_ * (mark_share_ - kGate) / 2048;
    clean_rounds_ = 0;
  } else {
    clean_rounds_ = marks_ == 0 && core_trims_ == 0 ? std::min(clean_rounds_ + 1, 6U) : 0;
    rate_ += kStep << clean_rounds_;
  }
  rate_ = std::clamp(rate_, kStep, 1024U);
  arrivals_ = 0;
  marks_ = 0;
  core_trims_ = 0;
  round_end_ns_ = now + round_ns_;
}

CreditPacer::Grant CreditPacer::grant(TimeNs now) {
  if (next_ns() > now) {
    return {};
  }
  // Retransmissions first, as all behind them waits, but a peer that asks for ever must not starve
  // the others.
  const bool is_turn_of_active = lost_in_a_row_ >= kLostInARow && queues_[kActive].head != kNobody;
  List from = is_turn_of_active ? kActive : kLost;
  std::uint32_t connection = take(from);
  if (connection == kNobody) {
    from = kActive;
    connection = take(kActive);
  }
  if (connection == kNobody) {
    from = kIdle;
    connection = take(kIdle);
  }
  lost_in_a_row_ = from == kLost ? lost_in_a_row_ + 1 : 0;
  Sender& it = senders_[connection];
  const std::uint64_t quantum = it.grant_bytes / kCreditUnitBytes;
  std::uint64_t units = quantum;
  if (from == kActive) {
    units = std::min(quantum, it.wanted_units - it.granted_units);
  } else if (from == kIdle) {
    it.unrequested_bytes += it.grant_bytes;
  } else {
    it.lost_bytes -= std::min<Bytes>(it.lost_bytes, it.grant_bytes);
  }
  it.granted_units += units;

  if (from == kLost && it.lost_bytes > 0) {
    append(kLost, connection);
  } else if (it.wanted_units > it.granted_units) {
    append(kActive, connection);
  } else if (it.unrequested_bytes < it.window_bytes_max) {
    append(kIdle, connection);
  }

  // 99 % of the link, less what the core of the network cannot take.
  const Bytes bytes = std::max<Bytes>(units * kCreditUnitBytes, kEmptyGrantBytes);
  const std::uint64_t time_ps = bytes * ps_per_byte_ * 1024 / rate_ * 100 / 99 + remainder_ps_;
  next_ns_ = std::max(now, next_ns_) + time_ps / 1000;
  remainder_ps_ = time_ps % 1000;
  return {connection, from == kIdle};
}

}  // namespace tutti::transport
