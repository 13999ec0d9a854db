// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One connection: it wires the objects of this room together and decides nothing that one of them
// could. Its code is split by event: connection.cpp (life, calls of the application),
// connection_timeouts.cpp, connection_send.cpp (data that leaves), connection_control.cpp (control
// packets that leave), connection_receive.cpp (what arrives). Its states: connection_state.hpp. The
// endpoint calls it and afterwards asks what it needs: control_due, can_send, next_deadline.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "transport/acknowledgement.hpp"
#include "transport/congestion/controller.hpp"
#include "transport/connection_state.hpp"
#include "transport/credit.hpp"
#include "transport/flight.hpp"
#include "transport/incoming.hpp"
#include "transport/loss.hpp"
#include "transport/outgoing.hpp"
#include "transport/packet.hpp"
#include "transport/path.hpp"
#include "transport/policy.hpp"
#include "transport/replay.hpp"
#include "transport/split_receives.hpp"
#include "transport/spray.hpp"
#include "transport/timers.hpp"
#include "transport/trace.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class Connection {
 public:
  /// Checks the options and allocates all that the connection will ever use.
  static Result<std::unique_ptr<Connection>> make(TimeNs now, const ConnectionOptions& options,
                                                  std::uint32_t index, CreditPacer& pacer,
                                                  TraceSink* trace);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::uint32_t local_id() const { return options_.local_id; }

  // Calls of the application.
  Status post_send(TimeNs now, const SendRequest& request);
  Status post_receive(TimeNs now, const ReceiveRequest& request);
  Status expect(TimeNs now, std::uint64_t slot);
  Status cancel_send(TimeNs now, std::uint64_t context);
  Status cancel_receive(TimeNs now, std::uint64_t context);
  Status close(TimeNs now);
  Status abort(TimeNs now);

  // What happens.
  void on_arrival(TimeNs now, const Arrival& arrival);
  /// Where the payload of this packet belongs if it is what on_arrival would deliver, or null.
  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes);
  void on_timeout(TimeNs now);
  /// The pacer granted credit: the sender has to be told.
  void on_granted(bool is_slow);

  // What is needed next.
  bool control_due() const {
    return control_ != 0 ||
           (!has_ended() && (acknowledger_.due_ns() == 0 || spare_acks_ > 0 || adverts_are_due() ||
                             pong_count_ > 0 || pings_due_ > 0));
  }
  bool poll_control(TimeNs now, Transmission& out);
  /// A packet waits to be piggybacked.
  bool has_piggyback() const {
    return is_lazy() && !has_ended() &&
           (acknowledger_.due_ns() != kNever || owes_advert_ack() || incoming_.has_untold());
  }
  /// Such a packet, to be piggybacked on a control packet or on data.
  bool poll_piggyback(TimeNs now, bool with_control, Transmission& out);
  std::uint64_t peer() const { return options_.peer; }
  /// Some data may leave now. Sets the pacing timer if only the time is missing.
  bool can_send(TimeNs now);
  /// Same, where nothing has happened to the connection since can_send: time takes no leave away.
  /// A policy may, and many groups are drawn anew.
  bool can_still_send(TimeNs now) { return found_.group != kNoGroup || can_send(now); }
  /// After can_send.
  void poll_data(TimeNs now, Transmission& out);
  std::uint32_t chunk_bytes() const { return wire().chunk_bytes; }
  bool take_event(Event& event);
  TimeNs next_deadline() const { return timers_.next(); }
  /// Has ended, said so, and nobody will ask again.
  bool is_forgettable() const { return state_ == ConnectionState::kForgotten; }
  bool has_ended() const { return state_ >= ConnectionState::kEnded; }
  /// The table is full and this one has ended: forget it now.
  bool can_be_replaced() const { return state_ >= ConnectionState::kReported; }

  const ConnectionCounters& counters() const { return counters_; }
  ConnectionStatus status() const;
  PathCounters path_counters(PathId path) const;
  void check_invariants() const;

 private:
  enum Control : std::uint32_t {
    kCloseAck = static_cast<std::uint32_t>(EndPacket::kCloseAck),
    kReset = static_cast<std::uint32_t>(EndPacket::kReset),
    kClose = static_cast<std::uint32_t>(EndPacket::kClose),
    kGrant = 8,
    kAdvertAck = 16,
    kRequestCredit = 32,
    kPathProbe = 64,
  };
  /// What each chunk looks at comes first, in one line of the cache.
  struct alignas(64) Group {
    std::unique_ptr<Controller> controller;
    TimeNs pace_ns = 0;  ///< No chunk before it.
    Spray spray;
    Bytes timed_out_bytes = 0;  ///< By the timeout at hand.
    /// Transmissions before it were in the air when the controller was last told of a loss: what
    /// else of them is lost is of the same overload.
    std::uint64_t told_order = 0;
    std::uint64_t told_episode = 0;  ///< Of the connection, in which that was; 0: none.
  };
  struct Pong {
    PathId path = 0;
    std::uint32_t stamp = 0;
    TimeNs received_ns = 0;  ///< The ping, by the host.
  };
  static constexpr std::uint32_t kNoGroup = UINT32_MAX;
  static constexpr std::size_t kFewGroups = 8;  ///< Of more, two are drawn first.
  static constexpr std::uint32_t kPongsMax = 16;
  static constexpr std::uint32_t kSpareAcks = 3;

  Connection(TimeNs now, const ConnectionOptions& options, std::uint32_t index, CreditPacer& pacer,
             TraceSink* trace);

  const WireCapabilities& wire() const { return options_.wire; }
  /// Part of it was lost: no switch trims here.
  bool is_partial(const Arrival& arrival) const { return arrival.trimmed && !wire().trims; }

  // connection.cpp
  /// One step of connection_state.hpp; false: the event changes nothing in this state.
  bool advance(TimeNs now, ConnectionEvent event);
  void end(TimeNs now);
  void drain_if_done(TimeNs now);
  bool is_waiting() const;
  void note_waiting(TimeNs now);
  TimeNs control_rto_ns() const;
  /// How long an answer to an advert or a close may take.
  TimeNs control_wait_ns(TimeNs rtt_ns) const;
  void trace(TimeNs now, TraceKind kind, PathId path, std::uint64_t number, Bytes bytes,
             std::uint64_t detail) {
    if (trace_ != nullptr) [[unlikely]] {
      trace_->record({now, options_.local_id, kind, path, number, bytes, detail});
    }
  }

  // connection_timeouts.cpp
  TimeNs stalled_since_ns(TimeNs now);
  void on_retransmit_timer(TimeNs now);
  void on_tail_probe_timer(TimeNs now);
  void on_control_timer(TimeNs now);
  void on_keep_alive_timer(TimeNs now);
  void on_request_timer(TimeNs now);
  void on_gap_timer(TimeNs now);

  // connection_send.cpp
  /// A chunk that is neither acknowledged nor unknown.
  bool is_open(std::uint64_t number) const {
    return flight_.holds(number) && flight_.at(number).state != ChunkState::kAcknowledged;
  }
  std::uint32_t group_of(PathId path) const { return path / paths_per_group_; }
  bool has_room(std::uint32_t group, std::uint32_t bytes) const {
    const Bytes hidden = groups_.size() == 1 ? hidden_bytes_ : 0;
    const Bytes inflight = inflight_bytes_[group] - std::min(inflight_bytes_[group], hidden);
    return inflight == 0 || inflight + bytes <= groups_[group].controller->window_bytes();
  }
  std::uint32_t find_group(TimeNs now, std::uint32_t bytes, PathId avoid, bool needs_room);
  TimeNs next_pace_ns(TimeNs now, std::uint32_t bytes) const;
  /// Some path of the group is not dead.
  bool is_usable(std::uint32_t group) const {
    return paths_.alive() == paths_.count() || has_usable_path(group);
  }
  bool has_usable_path(std::uint32_t group) const;
  inline std::uint64_t next_number(TimeNs now);
  inline PathId choose_path(TimeNs now, Group& group, const Chunk& chunk, PathId avoid);
  inline std::uint64_t take_number(TimeNs now, PathId& avoid);
  inline void fill_data(TimeNs now, std::uint64_t number, std::uint8_t flags,
                        std::uint32_t pull_target, Transmission& out);
  void seal(Transmission& out, std::span<const std::byte> payload);
  CommonHeader common(TimeNs now, PacketType type, std::uint8_t flags, PathId path);
  bool is_lazy() const { return options_.acknowledgement.lazy_ns != 0; }
  inline bool asks_for_ack(std::uint32_t group, const Chunk& chunk, bool is_again);
  void lose(TimeNs now, std::uint64_t number, LossCause cause);
  /// The group's controller hears of the loss of a transmission; true: a new overload to it.
  bool tell_group(Group& group, std::uint64_t order);
  tutti_transport_view view(TimeNs now) const;

  // connection_control.cpp
  PathId control_path();
  Bytes credit_backlog_bytes() const;
  void request_credit_if_stuck(TimeNs now);
  void set_ack_timer();
  void fill_control(Transmission& out, PathId path, std::size_t header_bytes);
  void fill_ack(TimeNs now, Transmission& out, PathId path);
  void fill_ping(TimeNs now, Transmission& out, PathId path);
  void encode_last_ack(TimeNs now, Transmission& out, PathId path, std::uint8_t flags);
  void fill_number(TimeNs now, Transmission& out, PathId path, PacketType type, std::uint8_t flags,
                   std::uint32_t value);
  void fill_advert(TimeNs now, Transmission& out, PathId path);
  void fill_advert_ack(TimeNs now, Transmission& out, PathId path);
  /// The peer has not been told that we know its adverts.
  bool owes_advert_ack() const { return told_known_ < outgoing_.known_adverts(); }
  void note_told_known(std::uint64_t known);
  bool adverts_are_due() const {
    return incoming_.has_untold() && (!is_lazy() || has_waited_ || !incoming_.can_wait());
  }
  void note_untold(TimeNs now);

  // connection_receive.cpp
  void on_data(TimeNs now, const Packet& packet, const Arrival& arrival);
  void on_ack(TimeNs now, const Packet& packet, std::uint64_t packet_number, TimeNs waited_ns);
  inline void on_echo(TimeNs now, const Echo& echo, std::uint64_t number,
                      std::uint64_t packet_number, TimeNs waited_ns);
  void on_trimmed_echo(TimeNs now, const Echo& echo, std::uint64_t number, Feedback feedback);
  inline void on_delivered_echo(TimeNs now, const Echo& echo, std::uint64_t number,
                                std::uint64_t packet_number, const RttSample& rtt, bool is_latest,
                                Feedback feedback);
  void on_duplicate_echo(TimeNs now, std::uint64_t number, std::uint32_t stamp);
  void on_partial(TimeNs now, const Packet& packet, std::uint64_t number, const Arrival& arrival);
  void tell_of_end(const CommonHeader& header);
  inline void acknowledge(std::uint64_t number);
  void tell_policy(void (*hook)(void*, const tutti_transport_view*, const tutti_transport_chunk*),
                   TimeNs now, const tutti_transport_chunk& chunk);
  void acknowledge_word(TimeNs now, std::uint64_t base64, std::uint64_t bits) {
    if (bits != 0) {
      acknowledge_bits(now, base64, bits);
    }
  }
  void acknowledge_bits(TimeNs now, std::uint64_t base64, std::uint64_t bits);
  void flush_unechoed(TimeNs now);
  void note_path(TimeNs now, PathId path, PathTable::Change change) {
    if (change != PathTable::Change::kNone) [[unlikely]] {
      note_change(now, path, change);
    }
  }
  void note_change(TimeNs now, PathId path, PathTable::Change change);
  void on_advert(TimeNs now, const AdvertHeader& advert);
  void on_credit(TimeNs now, const Packet& packet);
  void on_wanted(TimeNs now, std::uint32_t target, bool lost);
  TimeNs pinged_ns(std::uint32_t stamp) const;
  void on_pong(TimeNs now, const Packet& packet, TimeNs waited_ns);
  void trace_window(TimeNs now, std::uint32_t group);

  ConnectionOptions options_;
  std::uint32_t index_;
  CreditPacer& pacer_;
  TraceSink* trace_;
  Tags sent_tags_;
  Tags received_tags_;
  ConnectionState state_ = ConnectionState::kOpen;
  bool peer_closes_ = false;        ///< It finishes its sends and takes none of ours.
  Outcome outcome_ = Outcome::kOk;  ///< Once it has ended.
  ConnectionCounters counters_;
  Timers timers_;
  Policy policy_;

  // Both directions.
  std::uint64_t next_packet_;
  ReplayWindow replay_;
  ReplayWindow partial_;         ///< Packets reported as partial chunks.
  std::uint32_t control_ = 0;    ///< Bits of Control.
  std::uint32_t pings_due_ = 0;  ///< Pings to a silent peer.
  std::array<Pong, kPongsMax> pongs_{};
  std::uint32_t pong_first_ = 0;
  std::uint32_t pong_count_ = 0;
  static constexpr std::uint32_t kPingsMax = 64;
  std::array<TimeNs, kPingsMax> pinged_ns_{};  ///< When the last pings left, each time once.
  std::uint32_t pinged_ = 0;                   ///< Of these times.
  std::uint32_t control_turn_;
  std::uint32_t control_first_ = 0;  ///< Path that this round began with.
  TimeNs heard_ns_;                  ///< When a packet of the peer last arrived.
  TimeNs waiting_since_ns_ = kNever;
  std::uint32_t control_backoff_ = 0;

  // Sending.
  PathTable paths_;
  std::vector<Group> groups_;
  std::vector<Bytes> inflight_bytes_;  ///< Of each group: every chunk looks at all of them.
  std::uint32_t paths_per_group_;
  std::uint32_t group_turn_ = 0;  ///< Which of equal groups comes first.
  struct Found {
    std::uint32_t group = kNoGroup;
    std::uint32_t bytes = 0;
    PathId avoid = 0;
  };
  /// By the last can_send, and nothing has happened since: time takes no leave away.
  Found found_;
  Random random_;
  Flight flight_;
  LossDetector loss_;        ///< Knows round trips with the time that hosts take.
  RttEstimator fabric_rtt_;  ///< Without it.
  OutgoingTable outgoing_;
  std::optional<CreditSender> credit_;
  Bytes acked_bytes_ = 0;
  std::uint64_t acked_chunks_ = 0;
  Bytes hidden_bytes_ = 0;  ///< At the receiver, by its own count, and not known one by one.
  TimeNs progress_ns_ = 0;  ///< When something was acknowledged last.
  TimeNs asked_ns_ = 0;     ///< Since when credit is missing.
  bool tail_probe_due_ = false;
  std::uint64_t probed_ = UINT64_MAX;  ///< Chunk that the last tail probe repeated.
  bool owes_request_ = false;          ///< Awaited data was sent without an ACK request.
  std::uint64_t told_known_;           ///< Adverts before it the peer was told that we know.
  Feedback last_feedback_;             ///< Of the packet at hand: what unechoed chunks share.
  Bytes unechoed_bytes_ = 0;

  // Receiving.
  Acknowledger acknowledger_;
  std::uint32_t repeated_ = 0;    ///< Chunks in a row that were here already.
  std::uint32_t spare_acks_ = 0;  ///< Copies of the last acknowledgement that are to follow it.
  AckHeader last_ack_;
  IncomingTable incoming_;
  std::uint64_t looked_chunks_ = 0;  ///< Received when the keep-alive timer fired last.
  TimeNs data_ns_ = 0;               ///< Of the first time with so many.
  std::uint64_t looked_known_ = 0;   ///< Adverts that the peer knew then.
  TimeNs known_ns_ = 0;              ///< The last time with news of them, or none to tell.
  std::uint64_t known_before_;       ///< Adverts that the peer knew when their timer fired last.
  std::optional<SplitReceiveTable> split_receives_;  ///< In place of it.
  /// The header that place() has decoded and found authentic: as a rule that of the next arrival.
  struct KnownHeader {
    HeaderBytes bytes;
    std::size_t size = 0;
    std::uint64_t number = 0;
    Packet packet;
  };
  KnownHeader known_header_;
  bool has_waited_ = false;    ///< Adverts have waited long enough.
  TimeNs piggybacked_ns_ = 0;  ///< When a packet was last piggybacked on data.
  bool tells_gap_ = false;
  bool grant_is_slow_ = false;
};

}  // namespace tutti::transport
