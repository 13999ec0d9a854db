// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Several NICs as one wire: each is a rail, a wire of its own below, and path p of a connection is
// path p / rails of rail p % rails (transport::WireCapabilities). So one connection has the links
// of all of them, and outlives one that fails: the transport leaves its paths. Rail i of one end
// sends to rail i of the other; of ends that have differently many, the first ones are used.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "wire/wire.hpp"

namespace tutti::wire::rails {

class RailsWire : public Wire {
 public:
  /// As many as an address has room for.
  static constexpr std::size_t kRailsMax = 8;

  using Clock = std::function<transport::TimeNs()>;

  /// After this time without room a rail no longer delays the others: packets for it are lost, and
  /// the transport leaves its paths.
  static constexpr transport::TimeNs kFullNsMax = 20'000'000;

  /// Of one kind. Errors: none, too many, or an address that is too long (kInvalidArgument); the
  /// system has no descriptor to sleep on (kUnavailable).
  static Result<std::unique_ptr<RailsWire>> open(std::vector<std::unique_ptr<Wire>> rails,
                                                 Clock clock);
  ~RailsWire() override;
  RailsWire(const RailsWire&) = delete;
  RailsWire& operator=(const RailsWire&) = delete;

  /// What a wire like those below can send to, of an address of rails: the first one's. Any other
  /// address is left as it is. Errors: it is cut off (kInvalidArgument).
  static Result<WireAddress> first_of(const WireAddress& address);

  /// Of the weakest rail; the paths of all, as many of each.
  transport::WireCapabilities capabilities() const override;
  /// Their number, then of each rail the length of its address and the address.
  WireAddress address() const override { return address_; }
  /// A peer without rails (the address of a wire like those below) has one.
  Result<std::uint64_t> add_peer(const WireAddress& address, std::uint8_t traffic_class) override;
  void remove_peer(std::uint64_t peer) override;
  /// With all rails or none.
  Status register_memory(std::span<std::byte> memory) override;
  Status register_device_memory(const DeviceMemory& memory) override;
  bool is_registered(std::span<const std::byte> memory) const override;
  bool is_copying_into(std::span<const std::byte> memory) const override;
  void deregister_memory(std::span<std::byte> memory) override;

  bool send(const transport::Transmission& transmission) override;
  /// They leave by the rail of the last one.
  std::size_t send_together(std::span<const transport::Transmission> packets) override;
  std::size_t receive(Arrivals& arrivals, std::size_t packets_max) override;
  void handle_timeout(transport::TimeNs now) override;
  /// Of the best rail, once all are known or tried; those that are silent then are named.
  Reach reach(std::uint64_t peer) const override;
  Ends ends(std::uint64_t peer) const override;
  transport::TimeNs next_deadline() const override;

  int file_descriptor() const override { return all_; }
  transport::TimeNs arm(transport::TimeNs now) override;
  const WireCounters& counters() const override;
  std::string description() const override;
  std::string report() const override;

 private:
  struct Peer {
    std::array<std::uint64_t, kRailsMax> names{};  ///< By rail.
    std::uint32_t rails = 0;                       ///< Of both ends.
    std::uint32_t users = 0;  ///< add_peer() less remove_peer(); 0: the place is free.
  };

  RailsWire(std::vector<std::unique_ptr<Wire>> rails, Clock clock)
      : rails_(std::move(rails)),
        full_since_ns_(rails_.size(), transport::kNever),
        clock_(std::move(clock)) {}
  Status open_address();
  Status open_descriptor();
  /// How many of the packets count as taken, where the rail took so many.
  std::size_t count_taken(std::size_t rail, std::size_t taken,
                          std::span<const transport::Transmission> offered);
  /// They count as sent.
  void lose(std::span<const transport::Transmission> packets);
  /// As the rail below knows it; which rail that is stands in its `rail`.
  transport::Transmission on_rail(const Peer& peer, const transport::Transmission& sent) const;

  std::vector<std::unique_ptr<Wire>> rails_;
  std::vector<transport::TimeNs> full_since_ns_;  ///< By rail; kNever: it has room.
  Clock clock_;
  std::uint64_t lost_ = 0;                   ///< Packets for rails without room.
  std::vector<std::uint64_t> lost_cookies_;  ///< Of packets that no rail took, to be told.
  WireAddress address_;
  int all_ = -1;  ///< epoll of the rails'.
  std::vector<Peer> peers_;
  std::size_t next_ = 0;  ///< The rail that is asked first what has come.
  mutable WireCounters sum_;
};

}  // namespace tutti::wire::rails
