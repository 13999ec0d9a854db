// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A bad network in front of any wire: drops, duplicates, reorders, delays and corrupts what is sent
// through it, and kills paths and rails, as a FaultPlan says. What is received passes untouched, so
// both ends need one for faults in both directions. Not for product traffic: what is held back or
// changed is copied. Where the wire below reads payloads after send() (sends_complete_late), copies
// last until it says that it has; what is dropped or copied has been read at once.
//
// Draws are by the packet's number, so a fault hits the same packet whatever the others do. What
// was held back leaves in send() and receive(); next_deadline() says when one of them is due, and
// stays in the past while the wire below has no room for it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "wire/fault/fault_plan.hpp"
#include "wire/wire.hpp"

namespace tutti::wire::fault {

/// Packets, by what happened to them; one packet may count in several.
struct FaultCounters {
  std::uint64_t sent = 0;  ///< Taken from the transport, whatever became of them.
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t delayed = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t killed = 0;
  std::uint64_t overflowed = 0;  ///< Lost because kHeldMax others were held back.
};

class FaultWire : public Wire {
 public:
  using Clock = std::function<transport::TimeNs()>;

  /// Packets that are held back at once; bounds the memory of copies.
  static constexpr std::size_t kHeldMax = 16384;
  static constexpr std::uint32_t kOvertakersMax = 8;
  /// A packet that nothing overtakes, because nothing is sent, leaves after this time.
  static constexpr transport::TimeNs kReorderNsMax = 1'000'000;

  /// `stream`: differs between the wires of one run, which share a plan, so that their faults do
  /// not. Kill times count from what `clock` says now.
  FaultWire(std::unique_ptr<Wire> below, FaultPlan plan, Clock clock, std::uint64_t stream = 0);

  ~FaultWire() override { below_.reset(); }  // Before the copies that it may still read.
  FaultWire(const FaultWire&) = delete;
  FaultWire& operator=(const FaultWire&) = delete;

  transport::WireCapabilities capabilities() const override { return below_->capabilities(); }
  WireAddress address() const override { return below_->address(); }
  Result<std::uint64_t> add_peer(const WireAddress& address, std::uint8_t traffic_class) override;
  /// What is held back for it is lost when nobody uses the name any more.
  void remove_peer(std::uint64_t peer) override;
  Status register_memory(std::span<std::byte> memory) override {
    return below_->register_memory(memory);
  }
  void deregister_memory(std::span<std::byte> memory) override {
    below_->deregister_memory(memory);
  }
  std::uint64_t open_window(std::span<std::byte> memory) override {
    return below_->open_window(memory);
  }
  bool has_opened(std::uint64_t window, transport::RemoteMemory* remote) override {
    return below_->has_opened(window, remote);
  }
  void close_window(std::uint64_t window) override { below_->close_window(window); }
  bool has_closed(std::uint64_t window) override { return below_->has_closed(window); }

  bool send(const transport::Transmission& transmission) override;
  std::size_t receive(Arrivals& arrivals, std::size_t packets_max) override;
  void handle_timeout(transport::TimeNs now) override { below_->handle_timeout(now); }
  Reach reach(std::uint64_t peer) const override { return below_->reach(peer); }
  Ends ends(std::uint64_t peer) const override { return below_->ends(peer); }
  transport::TimeNs next_deadline() const override;

  int file_descriptor() const override { return below_->file_descriptor(); }
  transport::TimeNs arm(transport::TimeNs now) override {
    const transport::TimeNs below_ns = below_->arm(now);
    return read_cookies_.empty() ? below_ns : now;
  }
  const WireCounters& counters() const override { return below_->counters(); }
  std::string description() const override;
  /// Who tests with faults sees whether there were any.
  std::string report() const override;

  const FaultCounters& fault_counters() const { return counters_; }

 private:
  /// What a draw is about: two faults of one packet are independent.
  enum class Draw : std::uint64_t {
    kDrop,
    kDuplicate,
    kReorder,
    kOvertakers,
    kDelay,
    kCorrupt,
    kCorruptPart,
    kCorruptBit,
  };

  class Filter;

  /// A packet and its payload, which the sender's buffer need not outlive.
  struct Copy {
    transport::Transmission transmission;
    std::vector<std::byte> payload;
  };
  struct Overtaken {
    Copy copy;
    std::uint64_t leaves_after = 0;  ///< Count of packets sent.
    transport::TimeNs leaves_ns = 0;
  };

  static constexpr std::uint64_t kOwnCookies = 1ULL << 63;  ///< A caller counts from 0.

  std::uint64_t drawn(Draw draw) const;
  bool happens(Draw draw, ChancePpb chance_ppb) const;
  bool is_killed(transport::TimeNs now, const transport::Transmission& transmission) const;
  static Copy copy_of(const transport::Transmission& transmission);
  void flip_bit(Copy* copy) const;
  void hold(transport::TimeNs leaves_ns, Copy copy);
  /// False: there is no room below; the copy stays.
  bool send_held(transport::TimeNs now, Copy* copy);
  bool send_copy(Copy* copy);
  /// Nobody will read its payload any more.
  void note_read(const transport::Transmission& transmission);
  void release(transport::TimeNs now);

  std::unique_ptr<Wire> below_;
  std::map<std::uint64_t, std::uint32_t> users_;  ///< Of a peer's name.
  FaultPlan plan_;
  Clock clock_;
  std::uint64_t seed_;
  transport::TimeNs start_ns_;
  std::multimap<transport::TimeNs, Copy> delayed_;  ///< By when they leave.
  std::vector<Overtaken> overtaken_;
  bool is_late_;  ///< The wire below reads payloads after send().
  /// Copies that it may still be reading, by their cookie.
  std::map<std::uint64_t, Copy> unread_;
  std::uint64_t next_cookie_ = kOwnCookies;
  std::vector<std::uint64_t> read_cookies_;  ///< Of the caller's, to be told.
  FaultCounters counters_;
};

}  // namespace tutti::wire::fault
