// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// An AF_XDP socket as a wire: frames go from and to memory that the driver knows, past the kernel's
// network stack. Packets are cut into datagrams as UdpWire cuts them (udp/frame.hpp), with headers
// and checksums of our own. Paths are source ports, which nobody else needs to leave alone, as
// nothing is sent to them. One wire has one queue of the interface.
//
// Beside it the wire has an ordinary UDP socket. It owns the port. What it carries: datagrams to
// peers whose MAC address the kernel does not know yet (which makes it ask, by ARP), or no more for
// certain; those to peers that are not behind this interface (also those on this host); and those
// that arrive at another queue of the interface, which the XDP program leaves to the kernel.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptors.hpp"
#include "wire/udp/assembly.hpp"
#include "wire/udp/frame.hpp"
#include "wire/udp/peer_probes.hpp"
#include "wire/udp/socket_address.hpp"
#include "wire/wire.hpp"
#include "wire/xdp/kernel_stack.hpp"
#include "wire/xdp/netlink.hpp"
#include "wire/xdp/packet.hpp"
#include "wire/xdp/xdp_program.hpp"
#include "wire/xdp/xsk.hpp"

namespace tutti::wire::xdp {

struct XdpOptions {
  udp::SocketAddress local;  ///< Of the interface, IPv4; its port is not looked at.
  std::string interface;     ///< Its name.
  int mtu_bytes = 1500;      ///< Of the interface.
  std::uint32_t paths = 32;
  std::uint32_t chunk_bytes = 0;  ///< 0: as much as 64 datagrams take.
  std::uint32_t ps_per_byte = 800;
  transport::TimeNs base_rtt_ns = 50'000;
  Bytes buffer_bytes = 16 << 20;  ///< Of frames to receive into, half of them at a time; pinned.
  /// At most kFramesMax.
  AttachMode mode = AttachMode::kAny;
  /// Where tutti-xdp-helper listens, who is asked if this process may not. Empty: nobody.
  std::string helper;
  std::function<transport::TimeNs()> clock;  ///< Null: the system's.
  /// As udp::UdpOptions::on_fallback.
  std::function<void(const std::string& what, const std::string& remedy)> on_fallback;
};

/// What a wire has of the kernel. Tests give one that runs in virtual time.
struct XdpKernel {
  UdpEnd end;  ///< Of the UDP socket.
  MacAddress mac{};
  std::unique_ptr<KernelStack> stack;
  std::function<std::unique_ptr<XskKernel>(const XskOptions&)> open_xsk;
  std::uint32_t receive_frames = 256;  ///< As XskOptions has them.
  std::uint32_t send_frames = 256;
  std::uint64_t random = 0;  ///< What ports, packets and probes are numbered from.
};

class XdpWire : public Wire {
 public:
  /// Errors: neither this process nor a helper may open AF_XDP sockets, or the interface has no
  /// free queue, has an XDP program of somebody else, or is not one of Ethernet with IPv4.
  static Result<std::unique_ptr<XdpWire>> open(const XdpOptions& options);
  /// Over that kernel. There is no descriptor to sleep on.
  static Result<std::unique_ptr<XdpWire>> open(const XdpOptions& options, XdpKernel kernel);
  XdpWire(const XdpWire&) = delete;
  XdpWire& operator=(const XdpWire&) = delete;

  transport::WireCapabilities capabilities() const override;
  WireAddress address() const override;
  Result<std::uint64_t> add_peer(const WireAddress& address, std::uint8_t traffic_class) override;
  void remove_peer(std::uint64_t peer) override;
  bool send(const transport::Transmission& transmission) override;
  std::size_t send_together(std::span<const transport::Transmission> packets) override;
  std::size_t receive(Arrivals& arrivals, std::size_t packets_max) override;
  void handle_timeout(transport::TimeNs now) override;
  Reach reach(std::uint64_t peer) const override { return probes_.reach(peer); }
  Ends ends(std::uint64_t peer) const override;
  transport::TimeNs next_deadline() const override;
  int file_descriptor() const override { return epoll_.get(); }
  const WireCounters& counters() const override { return counters_; }
  std::string description() const override;
  std::string report() const override;

  /// Of frames to receive into.
  Bytes buffer_bytes() const {
    return Bytes{xsk_options_.receive_frames} * xsk_options_.frame_bytes;
  }
  AttachMode mode() const { return xsk_->parts().mode; }
  /// Datagrams that the UDP socket carried.
  std::uint64_t kernel_sent() const { return kernel_sent_; }
  std::uint64_t kernel_received() const { return kernel_received_; }

 private:
  static constexpr std::size_t kPiecesMax = 128;  ///< A power of two; more than kFragmentsMax.

  /// A datagram that has come, and is not delivered yet.
  struct Piece {
    static constexpr std::uint64_t kNoFrame = UINT64_MAX;
    std::uint64_t frame = kNoFrame;  ///< That it lies in.
    std::uint64_t source = 0;        ///< Address and port of its sender.
    std::span<const std::byte> payload;
    udp::Prefix prefix;
    bool is_fragment = false;  ///< It has a prefix.
    bool ecn = false;

    std::span<const std::byte> content() const { return payload.subspan(udp::kPrefixBytes); }
  };

  struct Peer {
    UdpEnd end;
    std::size_t fragment_bytes = 0;  ///< Smallest full datagram of both ends and the way.
    std::uint32_t users = 0;         ///< add_peer() less remove_peer(); 0: the place is free.
    std::uint8_t traffic_class = 0;
    NextHop::Kind kind = NextHop::Kind::kNone;
    std::optional<MacAddress> mac;  ///< None: datagrams leave by the UDP socket.
    bool probes_neighbour = false;  ///< The next one does, so that the kernel looks for it anew.
    bool has_warned_no_route = false;
    transport::TimeNs look_ns = 0;     ///< When the kernel's tables are looked at again.
    transport::TimeNs unknown_ns = 0;  ///< Pause after the last look that found no MAC address.
  };

  explicit XdpWire(const XdpOptions& options);
  Status check_options() const;
  void number_from(std::uint64_t packet, std::uint64_t token);
  std::size_t choose_frames();
  Status open_kernel_socket();
  Status open_xdp_socket();
  Status open_epoll();
  void look_at_helper();
  void fall_back(const std::string& what, const std::string& remedy) const;
  WireAddress address_of(const UdpEnd& end, std::size_t fragment_bytes) const;
  std::uint16_t port_of(std::size_t path) const;
  Peer* find(std::uint64_t peer);

  // Sending.
  void look(Peer& to, transport::TimeNs now);
  bool leaves_by_xdp(Peer& to);
  bool send_datagram(Peer& to, transport::PathId path, std::uint64_t frame,
                     std::span<const std::byte> payload);
  void kick();
  template <class Write>
  bool send_one(Peer& to, transport::PathId path, Write&& write);
  void send_probe(Peer& to, transport::PathId path, std::span<const std::byte> datagram);

  // Receiving.
  Piece& piece(std::size_t at) { return pieces_[(first_piece_ + at) % kPiecesMax]; }
  void take_in();
  void drop_pieces(std::size_t count);
  std::size_t run_of_first();
  void deliver_run(Arrivals& arrivals, std::size_t count);
  bool deliver_piece(Arrivals& arrivals, const Piece& it, transport::TimeNs now);
  void deliver_content(Arrivals& arrivals, const udp::Prefix& prefix,
                       std::span<const std::byte> content, bool ecn);
  std::size_t receive_by_kernel(Arrivals& arrivals, std::size_t packets_max, transport::TimeNs now);

  void begin_probing(std::uint64_t token);
  void take_finding(Peer& peer, const udp::Prober::Finding& finding);

  XdpOptions options_;
  XskOptions xsk_options_;
  std::size_t fragment_bytes_ = 0;  ///< UDP payload of a full datagram.
  MacAddress mac_{};
  UdpEnd end_;
  std::uint16_t first_port_ = 0;  ///< Of path 0, in host byte order; others follow.
  Descriptor kernel_;             ///< The UDP socket, which this uses:
  std::unique_ptr<KernelStack> stack_;
  XdpProgram program_;  ///< Or the helper has it:
  Descriptor helper_;   ///< connected as long as we need it.
  std::unique_ptr<Xsk> xsk_;
  Descriptor epoll_;
  std::vector<Peer> peers_;
  std::uint64_t next_packet_ = 0;
  udp::PeerProbes probes_{{}};
  transport::TimeNs kick_due_ns_ = transport::kNever;
  bool has_send_failed_ = false;

  std::array<Piece, kPiecesMax> pieces_;
  std::size_t first_piece_ = 0;
  std::size_t piece_count_ = 0;
  /// Until when the first pieces wait for the rest of their packet.
  transport::TimeNs held_ns_ = transport::kNever;
  transport::TimeNs kernel_due_ns_ = 0;  ///< When the UDP socket is looked at again.
  transport::TimeNs kernel_used_ns_ = 0;
  bool is_kernels_turn_ = true;
  std::vector<std::byte> staging_;         ///< A packet without a place.
  std::vector<std::byte> kernel_staging_;  ///< A datagram of the UDP socket.
  udp::Assembly assembly_;
  std::uint64_t assembly_dropped_ = 0;
  Bytes kernel_buffer_bytes_ = 0;  ///< Of the UDP socket, as the kernel counts.
  std::uint64_t kernel_sent_ = 0;
  std::uint64_t kernel_received_ = 0;
  WireCounters counters_;
};

}  // namespace tutti::wire::xdp
