// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// UDP sockets as a wire. Paths are source ports, which switches hash (ECMP); all of a peer's paths
// arrive at one socket. A packet of up to 64 KiB goes down in one system call (UDP_SEGMENT) and
// comes up in one (UDP_GRO), where the payload belongs if the transport knows it: its first bytes
// are looked at (MSG_PEEK) before the whole is taken. Both offloads are tried at the start, for
// there were kernels that mangled them; without them each fragment is a datagram of its own. A peer
// behind a link with a smaller MTU gets smaller ones as soon as the kernel refuses the first. A
// link that drops long ones and says nothing is found by probes (prober.hpp). The kernel says when
// it took a datagram in (SO_TIMESTAMPNS), which is tried as well; without that it is when we read
// it. What the wire has to do without is told (UdpOptions::on_fallback).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire/reception_clock.hpp"
#include "wire/udp/assembly.hpp"
#include "wire/udp/frame.hpp"
#include "wire/udp/peer_probes.hpp"
#include "wire/udp/socket_address.hpp"
#include "wire/wire.hpp"

namespace tutti::wire::udp {

struct UdpOptions {
  SocketAddress local;   ///< Of the interface; its port is not looked at.
  int interface = 0;     ///< The kernel's number of it; 0: unknown, routes alone decide.
  int mtu_bytes = 1500;  ///< Of the interface.
  std::uint32_t paths = 32;
  std::uint32_t chunk_bytes = 0;  ///< 0: as much as one system call takes.
  std::uint32_t ps_per_byte = 800;
  transport::TimeNs base_rtt_ns = 50'000;
  Bytes buffer_bytes = 64 << 20;  ///< Of the receiving socket, as far as the system allows.
  bool segmentation = true;
  bool coalescing = true;
  bool timestamps = true;  ///< Of their reception by the kernel.
  /// Told what the wire was to have and has not, and the remedy: by open(), and for a single peer
  /// by a send. Null: nobody wants to know.
  std::function<void(const std::string& what, const std::string& remedy)> on_fallback;
};

class UdpWire : public Wire {
 public:
  /// Errors: the system has no socket for us, or packets to ourselves do not arrive.
  static Result<std::unique_ptr<UdpWire>> open(const UdpOptions& options);
  ~UdpWire() override;
  UdpWire(const UdpWire&) = delete;
  UdpWire& operator=(const UdpWire&) = delete;

  transport::WireCapabilities capabilities() const override;
  WireAddress address() const override;
  Result<std::uint64_t> add_peer(const WireAddress& address, std::uint8_t traffic_class) override;
  void remove_peer(std::uint64_t peer) override;
  bool send(const transport::Transmission& transmission) override;
  std::size_t send_together(std::span<const transport::Transmission> packets) override;
  std::size_t receive(Arrivals& arrivals, std::size_t packets_max) override;
  void handle_timeout(transport::TimeNs now) override { probes_.handle_timeout(now); }
  Reach reach(std::uint64_t peer) const override { return probes_.reach(peer); }
  Ends ends(std::uint64_t peer) const override;
  transport::TimeNs next_deadline() const override {
    return std::min(assembly_.due_ns(), probes_.due_ns());
  }
  int file_descriptor() const override { return receiver_; }
  const WireCounters& counters() const override { return counters_; }
  std::string description() const override;

  /// What the receiving socket holds before it drops.
  Bytes buffer_bytes() const { return buffer_bytes_; }
  /// What it would hold if the system allowed it: the kernel doubles UdpOptions::buffer_bytes.
  Bytes buffer_bytes_wanted() const;

 private:
  /// What one system call brought.
  struct Batch {
    std::size_t bytes = 0;
    std::size_t fragment_bytes = 0;  ///< Of each but the last, prefix included.
    std::uint64_t source = 0;
    transport::TimeNs received_ns = transport::kNever;  ///< By the kernel, by our clock.
    bool ecn = false;
  };

  struct Peer {
    SocketAddress address;
    std::size_t fragment_bytes = 0;   ///< Smallest full datagram of both ends and the way.
    std::uint32_t users = 0;          ///< add_peer() less remove_peer(); 0: the place is free.
    int interface = 0;                ///< By which it is to leave; 0: as the routes say.
    std::uint32_t plain_packets = 0;  ///< So many more go uncut: the kernel has refused to.
    bool was_plain = false;           ///< Once.
    std::uint8_t traffic_class = 0;
  };

  enum class Outcome : std::uint8_t {
    kTaken,   ///< Or lost.
    kNoRoom,  ///< For it, or for the rest of it (stopped_).
    kRecut,   ///< Nothing of it was sent; there is another way to cut it now.
  };

  /// A packet in several calls for whose last ones there was no room. It is offered again.
  struct Stopped {
    std::size_t first = 0;  ///< Of parts_, the next one; 0: there is no such packet.
    std::uint64_t number = 0;
    std::size_t fragment_bytes = 0;
    transport::Transmission sent;
  };

  explicit UdpWire(const UdpOptions& options);
  Status open_sockets();
  Result<int> open_socket();
  void fall_back(const std::string& what, const std::string& remedy) const;
  static WireAddress address_of(const SocketAddress& bound, std::size_t fragment_bytes);
  /// Empty: packets come as they were sent; else what is wrong.
  std::string try_offloads();
  /// Same, where the kernel does not join what it has cut.
  std::string try_cutting(transport::Transmission sent);
  /// Same, of the kernel's stamps.
  std::string try_timestamps();
  /// Whether it is what is stopped.
  bool goes_on(const Peer& to, const transport::Transmission& sent) const;
  /// `first`: of the parts, moved to the one for which there was no room.
  Outcome send_parts(Peer& to, int socket, std::size_t count, std::size_t bytes,
                     std::size_t* first);
  bool learn_way(Peer& to, int error);
  void name_interface(Peer& peer);
  void begin_probing(std::uint64_t token);
  void take_finding(Peer& peer, const Prober::Finding& finding);
  std::uint16_t port_of(std::size_t path) const;
  static std::size_t room_on_way(const Peer& to, int probe);
  std::ptrdiff_t take(std::span<iovec> parts, int flags, Batch& batch);
  bool receive_placed(Arrivals& arrivals, bool& has_data);
  bool receive_staged(Arrivals& arrivals);
  void report_partial(Arrivals& arrivals, transport::TimeNs now_ns);
  void deliver(Arrivals& arrivals, const Batch& batch);
  void deliver_content(Arrivals& arrivals, const Prefix& prefix, std::span<const std::byte> content,
                       transport::TimeNs received_ns, bool ecn);

  UdpOptions options_;
  std::size_t fragment_bytes_;  ///< UDP payload of a full datagram.
  int receiver_ = -1;
  std::vector<int> senders_;  ///< By path.
  SocketAddress bound_;
  Bytes buffer_bytes_ = 0;
  Bytes send_buffer_bytes_ = 0;  ///< Of the sending socket that has least.
  std::string plain_;            ///< Why there are no offloads at all; empty: there are.
  std::string unjoined_;         ///< Same, of UDP_GRO.
  std::string unmarked_;         ///< Same, of ECN.
  std::string unstamped_;        ///< Same, of the kernel's stamps.
  bool is_open_ = false;         ///< What is tried before is no fall-back for a peer.
  ReceptionClock clock_;
  std::vector<Peer> peers_;
  std::uint64_t next_packet_ = 0;
  Stopped stopped_;
  std::size_t least_fragment_bytes_ = 0;  ///< Of paths that take less than their ends; 0: none.
  std::uint32_t plain_peers_ = 0;         ///< That were so once.
  std::string plain_peers_why_;
  bool has_unknown_ways_ = false;
  PeerProbes probes_{{}};  ///< Of nobody, while the wire is tried.
  int bulk_ = 0;           ///< Above 0: payload is expected, and worth a look ahead.
  std::vector<std::byte> staging_;
  std::uint64_t assembly_dropped_ = 0;   ///< Of fragments, that counters_ has.
  std::array<std::byte, 1024> short_{};  ///< A datagram that is copied together.
  std::vector<std::byte> prefixes_;
  std::vector<iovec> parts_;
  Assembly assembly_;
  WireCounters counters_;
};

}  // namespace tutti::wire::udp
