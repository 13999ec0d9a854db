// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/channel_setup.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/host_name.hpp"
#include "base/system_random.hpp"
#include "net/bootstrap/reach_check.hpp"
#include "net/bootstrap/rendezvous.hpp"
#include "net/channel.hpp"
#include "wire/rails/rails_wire.hpp"

namespace tutti::net {
namespace {

using transport::Key;
using transport::TimeNs;
using wire::rails::RailsWire;
using wire::udp::SocketAddress;

// Threads wait for processors, for milliseconds where there are few.
constexpr TimeNs kRtoNsMin = 20'000'000;
constexpr TimeNs kTailProbeNsMin = 5'000'000;
/// An acknowledgement costs a system call at both ends, as much as a chunk of small size.
constexpr std::uint32_t kChunksPerAck = 4;
constexpr TimeNs kAckDelayNs = 20'000;
/// Where a chunk takes long, acknowledgements wait for another one: each is some 3 % of the link.
/// Elsewhere they must not, for they end the sends.
constexpr TimeNs kSlowChunkNs = 200'000;
constexpr TimeNs kTcpRttNsMax = 20'000'000;
constexpr std::uint32_t kWindowChunks = 64;
constexpr int kUnreadBytesMax = 16 << 10;  // A socket buffers more at once.
constexpr TimeNs kProcessingNs = 30'000;   ///< Of a chunk and its acknowledgement, at both ends.

/// Time of a full chunk on the link.
TimeNs chunk_ns(const transport::WireCapabilities& wire) {
  return TimeNs{wire.chunk_bytes} * wire.ps_per_byte / 1000;
}

/// On an idle network, of a full chunk: from the TCP connection's round trip, which the kernels
/// alone have measured.
TimeNs base_rtt_ns(int socket, const transport::WireCapabilities& wire) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  TimeNs rtt_ns = 0;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) {
    // After a lost SYN it is a second and more, and says nothing.
    rtt_ns = std::min(TimeNs{info.tcpi_rtt} * 1000, kTcpRttNsMax);
  }
  return std::min(rtt_ns + 2 * chunk_ns(wire) + kProcessingNs, transport::kBaseRttNsMax);
}

Result<Handshake> handshake_of(Engine& engine, const ChannelOptions& options, int socket) {
  Handshake handshake;
  handshake.host = host_name();
  handshake.process = static_cast<std::uint32_t>(getpid());
  handshake.wire = options.wire;
  handshake.address = engine.address();
  handshake.device = engine.device_id();
  handshake.capabilities = engine.capabilities();
  handshake.capabilities.base_rtt_ns = base_rtt_ns(socket, handshake.capabilities);
  handshake.controller = options.controller;
  handshake.authenticates = options.authenticates;
  handshake.traffic_class = options.traffic_class;
  handshake.id = engine.next_id();
  handshake.window_bytes = options.window_bytes;
  TUTTI_RETURN_IF_ERROR(system_random(&handshake.incarnation, sizeof handshake.incarnation));
  return handshake;
}

/// One for each of the engines.
Result<std::vector<Handshake>> handshakes_of(const std::vector<Engine*>& engines,
                                             const ChannelOptions& options, int socket) {
  std::vector<Handshake> handshakes;
  for (Engine* const engine : engines) {
    TUTTI_ASSIGN_OR_RETURN(handshakes.emplace_back(), handshake_of(*engine, options, socket));
    handshakes.back().sub_connections = static_cast<std::uint32_t>(engines.size());
  }
  return handshakes;
}

/// The options of one of `sub_connections`.
Result<transport::ConnectionOptions> options_of(const Handshake& mine, const Handshake& theirs,
                                                const Key& key, const ChannelOptions& options,
                                                bool sends, std::uint32_t sub_connections) {
  TUTTI_ASSIGN_OR_RETURN(auto connection, agree(mine, theirs, key));
  connection.spray = options.spray;
  connection.policy = options.policy;
  connection.sends = sends;
  connection.receives = !sends;
  connection.seed = mine.incarnation;
  connection.loss.give_up_ns = options.timeout_ns;
  connection.acknowledgement.lazy_ns = options.lazy_ns;
  set_windows_and_timers(connection, sub_connections);
  return connection;
}

/// The sub-connections of a channel whose two ends know each other, until datagrams have passed
/// both ways.
class SetUp {
 public:
  SetUp(Descriptor socket, const Handshake& theirs)
      : socket_(std::move(socket)),
        who_(theirs.who()),
        me_(who_is(host_name(), static_cast<std::uint32_t>(getpid()))) {
    // A report does not wait for the answer to what was sent before it.
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~SetUp() { drop(); }
  SetUp(const SetUp&) = delete;
  SetUp& operator=(const SetUp&) = delete;

  /// One side may send more handshakes than the other: the smaller number counts.
  Status attach(const std::vector<Engine*>& engines, const std::vector<Handshake>& mine,
                const std::vector<Handshake>& theirs, const Key& key, const ChannelOptions& options,
                bool sends) {
    const std::size_t sub_connections = std::min(mine.size(), theirs.size());
    std::vector<transport::ConnectionOptions> connections;
    std::vector<wire::WireAddress> addresses;
    for (std::size_t i = 0; i < sub_connections; ++i) {
      const bool has_rails = mine[i].capabilities.rails > 1;
      TUTTI_ASSIGN_OR_RETURN(
          addresses.emplace_back(),
          has_rails ? theirs[i].address : RailsWire::first_of(theirs[i].address));
      TUTTI_ASSIGN_OR_RETURN(connections.emplace_back(),
                             options_of(mine[i], theirs[i], key, options, sends,
                                        static_cast<std::uint32_t>(sub_connections)));
    }
    const std::string differing = differences(mine[0], theirs[0]);
    if (!differing.empty() && options.warn_once->is_new(differing)) {
      options.log(LogKind::kInfo, differing);
    }
    if (sub_connections > 1) {
      split_ = std::make_shared<SplitConnection>(
          std::vector<Engine*>(engines.begin(),
                               engines.begin() + static_cast<std::ptrdiff_t>(sub_connections)),
          unit_bytes_of(connections[0]));
    }
    // Sub-connection 0 last: it takes over the control connection.
    subs_.resize(sub_connections);
    for (std::size_t i = sub_connections; i-- > 0;) {
      Peer peer;
      peer.address = addresses[i];
      peer.device = theirs[i].device;
      peer.traffic_class = sends ? mine[i].traffic_class : theirs[i].traffic_class;
      peer.who = who_;
      if (i > 0) {
        connections[i].split_receives = sends ? nullptr : &split_->sources[i];
        peer.who += ", sub-connection " + std::to_string(i);
      }
      TUTTI_ASSIGN_OR_RETURN(subs_[i], engines[i]->attach(connections[i], peer, -1, split_));
    }
    check_.emplace(static_cast<std::uint32_t>(sub_connections));
    return {};
  }

  /// Null: not yet. Errors: datagrams do not pass, or the peer says so, or is gone.
  Result<std::unique_ptr<Channel>> advance(TimeNs now) {
    // A look holds up the engine, and NCCL asks without a pause.
    constexpr TimeNs kBetweenLooksNs = 200'000;
    if (now < next_look_ns_) {
      return std::unique_ptr<Channel>();
    }
    next_look_ns_ = now + kBetweenLooksNs;
    auto channel = look(now);
    if (!channel.ok()) {
      drop();
    }
    return channel;
  }

 private:
  Result<std::unique_ptr<Channel>> look(TimeNs now) {
    std::vector<wire::Reach> found;
    for (SubConnection* const sub : subs_) {
      found.push_back(sub->engine->reach(sub));
    }
    check_->look(now, found);
    const Status heard = hear(now);
    const std::vector<ReachCheck::Blocked> blocked =
        heard.ok() ? check_->blocked(now) : check_->evidence();
    if (!blocked.empty()) {
      ReachReport last;
      last.failure = text(blocked);
      (void)write(last);
      return Status(ErrorCode::kTimeout, last.failure);
    }
    TUTTI_RETURN_IF_ERROR(heard);
    if (has_room()) {
      if (const auto report = check_->report(now)) {
        TUTTI_RETURN_IF_ERROR(write(*report));
      }
    }
    if (!check_->is_done()) {
      return std::unique_ptr<Channel>();
    }
    TUTTI_RETURN_IF_ERROR(subs_[0]->engine->adopt(subs_[0], socket_.get()));
    socket_.release();
    SubConnection* const first = subs_[0];
    subs_.clear();
    return std::unique_ptr<Channel>(std::make_unique<ConnectionChannel>(first, std::move(split_)));
  }

  /// Not beyond the last report: what follows is the engine's.
  Status hear(TimeNs now) {
    while (!is_heard_out_) {
      const ssize_t got =
          recv(socket_.get(), bytes_.data() + have_, bytes_.size() - have_, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return {};
      }
      if (got <= 0) {
        return Status(ErrorCode::kTimeout,
                      "net: " + who_ + " ended while the channel was made" +
                          (got < 0 ? std::string(": ") + std::strerror(errno) : std::string()));
      }
      have_ += static_cast<std::size_t>(got);
      if (have_ < bytes_.size()) {
        continue;
      }
      have_ = 0;
      TUTTI_ASSIGN_OR_RETURN(const ReachReport report, decode_report(bytes_));
      if (!report.failure.empty()) {
        return Status(ErrorCode::kTimeout, report.failure);
      }
      check_->hear(now, report);
      is_heard_out_ = report.is_done;
    }
    return {};
  }

  Status write(const ReachReport& report) {
    const ReportBytes bytes = encode(report);
    const ssize_t put =
        send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return put == static_cast<ssize_t>(bytes.size())
               ? Status()
               : Status(ErrorCode::kTimeout, "net: " + who_ +
                                                 " ended while the channel was made: " +
                                                 std::strerror(put < 0 ? errno : EAGAIN));
  }

  /// A peer that is stopped reads nothing, and is not to be told the same for ever.
  bool has_room() const {
    int unread_bytes = 0;
    return ioctl(socket_.get(), SIOCOUTQ, &unread_bytes) != 0 || unread_bytes < kUnreadBytesMax;
  }

  std::string text(const std::vector<ReachCheck::Blocked>& blocked) const {
    std::vector<wire::Ends> ends;
    for (SubConnection* const sub : subs_) {
      ends.push_back(sub->engine->ends(sub));
    }
    return text_of(blocked, ends, who_, me_);
  }

  void drop() {
    for (SubConnection* const sub : subs_) {
      if (sub != nullptr) {
        sub->engine->detach(sub, /*aborts=*/true);
      }
    }
    subs_.clear();
  }

  Descriptor socket_;
  std::string who_;
  std::string me_;
  std::shared_ptr<SplitConnection> split_;
  std::vector<SubConnection*> subs_;  ///< Empty once they are the channel's.
  std::optional<ReachCheck> check_;
  TimeNs next_look_ns_ = 0;
  ReportBytes bytes_{};
  std::size_t have_ = 0;
  bool is_heard_out_ = false;
};

std::string not_finished(const std::string& who) {
  return "net: " + who +
         " has not finished the set-up of the channel for TUTTI_NET_TIMEOUT seconds";
}

class ChannelListener : public Listener {
 public:
  ChannelListener(const ChannelOptions& options, ChooseEngines choose)
      : options_(options),
        choose_(std::move(choose)),
        rendezvous_(options_.timeout_ns, options_.log) {}

  Status listen(const SocketAddress& local) {
    return rendezvous_.listen(local, options_.device_id);
  }

  const Handle& handle() const override { return rendezvous_.handle(); }

  Result<std::unique_ptr<Channel>> accept() override {
    for (std::size_t next = 0;;) {
      TUTTI_ASSIGN_OR_RETURN(std::optional<Caller> caller, rendezvous_.hear_pending(&next));
      if (!caller) {
        break;
      }
      TUTTI_RETURN_IF_ERROR(answer(std::move(*caller)));
    }
    for (std::size_t i = 0; i < set_ups_.size(); ++i) {
      Result<std::unique_ptr<Channel>> channel = advance(set_ups_[i]);
      if (!channel.ok() || *channel != nullptr) {
        set_ups_.erase(set_ups_.begin() + static_cast<std::ptrdiff_t>(i));
        return channel;
      }
    }
    for (std::size_t left = RendezvousListener::kPendingMax;;) {
      TUTTI_ASSIGN_OR_RETURN(std::optional<Caller> caller, rendezvous_.take_new(&left));
      if (!caller) {
        break;
      }
      TUTTI_RETURN_IF_ERROR(answer(std::move(*caller)));
    }
    return std::unique_ptr<Channel>();
  }

  void leave_wait_to_caller() override { has_timeout_ = false; }

 private:
  /// A caller whose handshake was answered; its sub-connections are being checked.
  struct Connecting {
    std::unique_ptr<SetUp> set_up;
    std::string who;
    TimeNs begun_ns;
  };

  Result<std::unique_ptr<Channel>> advance(Connecting& it) {
    auto channel = it.set_up->advance(monotonic_ns());
    if (has_timeout_ && channel.ok() && *channel == nullptr &&
        monotonic_ns() - it.begun_ns > options_.timeout_ns) {
      return Status(ErrorCode::kTimeout, not_finished(it.who));
    }
    return channel;
  }

  Status answer(Caller caller) {
    const int socket = caller.socket.get();
    const std::vector<Engine*> engines = choose_(caller.theirs[0].device);
    TUTTI_ASSIGN_OR_RETURN(const std::vector<Handshake> mine,
                           handshakes_of(engines, options_, socket));
    auto set_up = std::make_unique<SetUp>(std::move(caller.socket), caller.theirs[0]);
    Status attached =
        set_up->attach(engines, mine, caller.theirs, rendezvous_.key(), options_, /*sends=*/false);
    if (!attached.ok()) {
      rendezvous_.refuse(socket, attached);
      return attached;
    }
    TUTTI_RETURN_IF_ERROR(rendezvous_.send_handshakes(socket, mine));
    set_ups_.push_back({std::move(set_up), caller.theirs[0].who(), monotonic_ns()});
    return {};
  }

  ChannelOptions options_;
  ChooseEngines choose_;
  RendezvousListener rendezvous_;
  std::vector<Connecting> set_ups_;
  bool has_timeout_ = true;
};

class ChannelConnector : public Connector {
 public:
  ChannelConnector(const ChannelOptions& options, ChooseEngines choose)
      : options_(options), choose_(std::move(choose)), begun_ns_(monotonic_ns()) {}

  Status begin(const SocketAddress& local, const Handle& handle) {
    return rendezvous_.begin(local, handle);
  }

  Result<std::unique_ptr<Channel>> poll() override {
    auto channel = advance();
    if (has_timeout_ && channel.ok() && *channel == nullptr &&
        monotonic_ns() - begun_ns_ > options_.timeout_ns) {
      const std::string who = rendezvous_.peer().who();
      return Status(ErrorCode::kTimeout,
                    set_up_ != nullptr
                        ? not_finished(who)
                        : "net: " + who + " has not answered for TUTTI_NET_TIMEOUT seconds");
    }
    return channel;
  }

  void leave_wait_to_caller() override { has_timeout_ = false; }

 private:
  Result<std::unique_ptr<Channel>> advance() {
    if (set_up_ == nullptr) {
      TUTTI_ASSIGN_OR_RETURN(std::optional<Caller> peer,
                             rendezvous_.poll([this](std::uint64_t device, int socket) {
                               engines_ = choose_(device);
                               return handshakes_of(engines_, options_, socket);
                             }));
      if (!peer) {
        return std::unique_ptr<Channel>();
      }
      auto set_up = std::make_unique<SetUp>(std::move(peer->socket), peer->theirs[0]);
      const Status attached = set_up->attach(engines_, rendezvous_.mine(), peer->theirs,
                                             rendezvous_.peer().key, options_, /*sends=*/true);
      if (!attached.ok()) {
        return with_peer(attached, rendezvous_.peer().who());
      }
      set_up_ = std::move(set_up);
    }
    return set_up_->advance(monotonic_ns());
  }

  ChannelOptions options_;
  ChooseEngines choose_;
  TimeNs begun_ns_;
  RendezvousConnector rendezvous_;
  std::vector<Engine*> engines_;   ///< Once connected.
  std::unique_ptr<SetUp> set_up_;  ///< After both handshakes.
  bool has_timeout_ = true;
};

}  // namespace

void set_windows_and_timers(transport::ConnectionOptions& connection,
                            std::uint32_t sub_connections) {
  // A thread that has just lost its processor is a pause of many round trips: what the window holds
  // must outlast it.
  const Bytes bdp_bytes = connection.wire.base_rtt_ns * 1000 * connection.wire.rails /
                          connection.wire.ps_per_byte * 3 / 2;
  const Bytes window_bytes =
      std::max<Bytes>(bdp_bytes, Bytes{kWindowChunks} * connection.wire.chunk_bytes);
  // Each rail has a socket of its own at the peer.
  connection.window_bytes_max =
      connection.window_bytes_max == 0
          ? window_bytes
          : std::min(connection.window_bytes_max * connection.wire.rails, window_bytes);
  take_share(connection, sub_connections);
  // More than the window has: each short message is a chunk, and no stream of them alone needs all
  // of it.
  connection.chunks_max = static_cast<std::uint32_t>(std::min<Bytes>(
      transport::kChunksMax, 8 * (connection.window_bytes_max / connection.wire.chunk_bytes + 1)));
  connection.window_groups =
      std::gcd(connection.wire.paths, std::max(kWindowGroups / sub_connections, 1U));
  connection.window_bytes_min = 2 * Bytes{connection.wire.chunk_bytes};
  connection.loss.rto_ns_min = kRtoNsMin;
  connection.loss.tail_probe_ns_min = kTailProbeNsMin;
  connection.acknowledgement.ack_bytes = kChunksPerAck * connection.wire.chunk_bytes;
  // Of the whole link's chunk: what sub-connections share with each other does not make theirs
  // slow.
  const TimeNs whole_ns = chunk_ns(connection.wire) / sub_connections;
  connection.acknowledgement.ack_delay_ns = whole_ns > kSlowChunkNs ? 2 * whole_ns : kAckDelayNs;
}

Result<std::unique_ptr<Listener>> make_listener(const SocketAddress& local,
                                                const ChannelOptions& options,
                                                ChooseEngines choose) {
  auto listener = std::make_unique<ChannelListener>(options, std::move(choose));
  TUTTI_RETURN_IF_ERROR(listener->listen(local));
  return std::unique_ptr<Listener>(std::move(listener));
}

Result<std::unique_ptr<Connector>> make_connector(const SocketAddress& local, const Handle& handle,
                                                  const ChannelOptions& options,
                                                  ChooseEngines choose) {
  auto connector = std::make_unique<ChannelConnector>(options, std::move(choose));
  TUTTI_RETURN_IF_ERROR(connector->begin(local, handle));
  return std::unique_ptr<Connector>(std::move(connector));
}

}  // namespace tutti::net
