// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Receiver-driven credit (EQDS, NSDI 2022; RCCC of Ultra Ethernet): who may send what fills the
// last link. CreditSender is a sending connection's account; CreditPacer is one per endpoint and
// grants to all senders together at 99 % of its link. Amounts on the wire are cumulative and in
// units of 256 bytes, so that any packet may be lost, repeated or late: the newest number wins.
// Bytes of payload; times in ns.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/packet.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class CreditSender {
 public:
  CreditSender(Bytes speculative_bytes, Bytes window_bytes_max, std::uint32_t mtu_bytes,
               std::uint64_t first_unit);

  bool can_send() const { return credit_bytes_ > 0; }
  bool is_speculating() const { return is_speculating_; }
  void on_sent(std::uint32_t bytes) { credit_bytes_ -= bytes; }
  /// The receiver granted up to this many units in total; true: news.
  bool on_credit(std::uint32_t granted_units);
  /// Something was heard of what was sent: the speculation is over.
  void on_heard();

  /// What the receiver is asked to grant in total, now that something leaves that says so.
  /// `backlog_bytes`: not sent once, and lost.
  std::uint32_t tell_target(Bytes backlog_bytes);
  /// Nothing that has left asks for as much.
  bool is_untold(Bytes backlog_bytes) const { return target_units(backlog_bytes) > told_units_; }
  /// Since the connection began.
  Bytes granted_bytes() const { return (pulled_units_ - first_unit_) * kCreditUnitBytes; }
  std::int64_t credit_bytes() const { return credit_bytes_; }

 private:
  std::uint64_t target_units(Bytes backlog_bytes) const;

  /// Falls below 0 by less than a chunk, and by each tail probe, which needs no credit.
  std::int64_t credit_bytes_;
  Bytes window_bytes_max_;
  std::uint32_t mtu_bytes_;
  std::uint64_t first_unit_;
  std::uint64_t pulled_units_;
  std::uint64_t told_units_;  ///< The highest target that has left.
  bool is_speculating_;
};

class CreditPacer {
 public:
  CreditPacer(std::uint32_t connections, std::uint32_t ps_per_byte);

  /// The connection receives under credit; before anything else about it.
  void add(std::uint32_t connection, std::uint64_t first_unit, std::uint32_t grant_bytes,
           Bytes window_bytes_max, TimeNs base_rtt_ns);
  void remove(std::uint32_t connection);

  /// Reference for expand().
  std::uint64_t wanted_units(std::uint32_t connection) const {
    return senders_[connection].wanted_units;
  }
  std::uint64_t granted_units(std::uint32_t connection) const {
    return senders_[connection].granted_units;
  }
  bool grants(std::uint32_t connection) const { return senders_[connection].is_present; }

  /// The sender wants that much in total; `lost`: some of it was lost before. No sender asks for
  /// more than about a window beyond its grants: what is beyond two is not believed.
  void on_wanted(TimeNs now, std::uint32_t connection, std::uint64_t units, bool lost);
  /// Data came, marked or trimmed: what the core of the network has to say about the rate.
  void on_arrival(TimeNs now, bool ecn, bool trimmed, bool last_hop);

  /// When the next grant may be made; kNever: nobody is owed one.
  TimeNs next_ns() const { return is_owed() ? next_ns_ : kNever; }
  /// Grants to one connection; kNobody: not yet or nobody.
  struct Grant {
    std::uint32_t connection = 0xffffffff;
    bool is_slow = false;  ///< Beyond what was asked.
  };
  Grant grant(TimeNs now);

  /// Share of the link's rate that is granted, in 1/1024.
  std::uint32_t rate() const { return rate_; }

 private:
  enum List : std::uint8_t { kLost, kActive, kIdle, kNone };
  static constexpr std::uint32_t kNobody = 0xffffffff;
  static constexpr std::uint32_t kLostInARow = 3;
  static constexpr Bytes kEmptyGrantBytes = 1024;  ///< Time that a grant without demand takes.

  struct Sender {
    std::uint64_t wanted_units = 0;
    std::uint64_t granted_units = 0;
    Bytes lost_bytes = 0;  ///< Grants that its retransmissions still come first for.
    Bytes unrequested_bytes = 0;
    Bytes window_bytes_max = 0;
    std::uint32_t grant_bytes = 0;
    std::uint32_t next = kNobody;
    List list = kNone;
    bool is_present = false;
  };
  struct Queue {
    std::uint32_t head = kNobody;
    std::uint32_t tail = kNobody;
  };

  bool is_owed() const {
    return queues_[kLost].head != kNobody || queues_[kActive].head != kNobody ||
           queues_[kIdle].head != kNobody;
  }
  void append(List list, std::uint32_t connection);
  std::uint32_t take(List list);
  void move_to(List list, std::uint32_t connection);
  void adapt(TimeNs now);

  std::vector<Sender> senders_;
  std::array<Queue, 3> queues_;
  std::uint32_t ps_per_byte_;
  TimeNs next_ns_ = 0;
  std::uint64_t remainder_ps_ = 0;
  std::uint32_t lost_in_a_row_ = 0;
  // Reaction to congestion in the network's core.
  std::uint32_t rate_ = 1024;
  std::uint32_t mark_share_ = 0;  ///< Smoothed, in 1/1024.
  std::uint32_t arrivals_ = 0;
  std::uint32_t marks_ = 0;
  std::uint32_t core_trims_ = 0;
  std::uint32_t clean_rounds_ = 0;
  TimeNs round_ns_ = 12'000;
  TimeNs round_end_ns_ = 0;
};

}  // namespace tutti::transport
