// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The probers (prober.hpp) of all peers of a wire: whose an answer is, when the next probe is due.
// A wire whose datagrams are those of frame.hpp sends what it is given here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "wire/udp/frame.hpp"
#include "wire/udp/prober.hpp"
#include "wire/wire.hpp"

namespace tutti::wire::udp {

class PeerProbes {
 public:
  using TimeNs = transport::TimeNs;

  struct Options {
    WireAddress own;  ///< Goes with probes: the peer answers to it.
    std::uint32_t paths = 1;
    std::uint16_t ip_bytes = 28;  ///< Prober::Options::ip_bytes.
    std::uint64_t token = 0;      ///< Random: an answer to an earlier process is nobody's.
    /// Sends a datagram, or loses it.
    std::function<void(std::size_t peer, std::size_t path, std::span<const std::byte> datagram)>
        send;
    std::function<void(std::size_t peer, const Prober::Finding& finding)> on_finding;
  };

  explicit PeerProbes(Options options) : options_(std::move(options)) {}

  /// A new peer with this number; `fragment_bytes`: UDP payload of a full datagram to it;
  /// `is_near`: it is on this host.
  void begin(std::size_t peer, const WireAddress& address, std::size_t fragment_bytes,
             bool is_near);
  void end(std::size_t peer);
  void handle_timeout(TimeNs now) {
    if (now >= due_ns_) {
      poll(now);
    }
  }
  TimeNs due_ns() const { return due_ns_; }

  /// A probe or an answer has come.
  void take(const ProbeHead& probe, TimeNs now);
  /// Data is sent to the peer.
  void on_data(std::size_t peer) {
    if (Prober* const it = find(peer)) {
      it->on_data();
      due_ns_ = std::min(due_ns_, it->due_ns());
    }
  }
  /// This host itself has been told of a smaller size.
  void limit(std::size_t peer, std::size_t fragment_bytes);

  Reach reach(std::uint64_t peer) const;
  /// Of all findings.
  std::size_t silent_paths() const { return silent_paths_; }

 private:
  struct Peer {
    std::optional<Prober> prober;  ///< None: the number is free.
    WireAddress address;
    std::uint64_t token = 0;
  };

  Prober* find(std::size_t peer) {
    return peer < peers_.size() && peers_[peer].prober ? &*peers_[peer].prober : nullptr;
  }
  void poll(TimeNs now);
  void tell(std::size_t peer);

  Options options_;
  std::vector<Peer> peers_;
  std::vector<std::byte> datagram_;
  TimeNs due_ns_ = transport::kNever;
  std::size_t silent_paths_ = 0;
};

/// UDP payload of the smallest full datagram by which the longest packet can still be sent that two
/// ends agreed on with datagrams of `fragment_bytes`; at most that.
std::size_t least_fragment_bytes(std::size_t fragment_bytes);

}  // namespace tutti::wire::udp
