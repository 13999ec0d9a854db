// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Life of a connection, calls of the application, timeouts.
#include "transport/connection.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint32_t kChunkBytesMax = 16 * 1024 * 1024;
constexpr std::uint32_t kChunksMin = 64;
constexpr TimeNs kControlRtoNsMin = 100'000;
constexpr TimeNs kLazyNsMax = 1'000'000'000;
constexpr std::uint32_t kPostedMax = 1U << 24;  // Rounded up to a power of two it has 32 bits.
// 400 Gb/s and a second. Controllers count in parts of a byte, credit in 32 bits of 256 bytes.
constexpr Bytes kWindowBytesMax = 64ULL << 30;
/// Where answers wait for company, they may do so for long: data mostly makes them needless.
constexpr TimeNs kLazyWaits = 16;
constexpr TimeNs kGiveUpNsMin = 1'000'000;
constexpr TimeNs kStuckGiveUps = 4;  // Slow is not gone: few live paths among dead ones take time.
constexpr TimeNs kHourNs = 3'600'000'000'000;  // Times of timers stay far below 2^64.
constexpr std::uint32_t kControlBackoffMax = 20;

Bytes bdp_bytes_of(const WireCapabilities& wire) {
  return wire.base_rtt_ns * 1000 * wire.rails / wire.ps_per_byte;
}

Bytes window_bytes_of(const ConnectionOptions& options) {
  const Bytes bytes =
      options.window_bytes_max != 0 ? options.window_bytes_max : bdp_bytes_of(options.wire) * 3 / 2;
  return std::clamp<Bytes>(bytes, options.wire.chunk_bytes, kWindowBytesMax);
}

std::uint32_t chunks_of(const ConnectionOptions& options) {
  const Bytes bytes = std::max(4 * bdp_bytes_of(options.wire), 2 * window_bytes_of(options));
  const Bytes chunks =
      options.chunks_max != 0 ? options.chunks_max : bytes / options.wire.chunk_bytes + 1;
  return static_cast<std::uint32_t>(
      std::bit_ceil(std::clamp<Bytes>(chunks, kChunksMin, kChunksMax)));
}

// Data, acknowledgements and control share the numbers of a direction.
std::uint32_t replay_bits_of(const ConnectionOptions& options) {
  return std::max(4 * chunks_of(options), 1024U);
}

Status invalid(const std::string& what) {
  return Status(ErrorCode::kInvalidArgument, "transport connection: " + what);
}

Status validate(const ConnectionOptions& options) {
  const WireCapabilities& wire = options.wire;
  if (wire.chunk_bytes == 0 || wire.chunk_bytes > kChunkBytesMax || wire.mtu_bytes == 0) {
    return invalid("chunk_bytes is 1 to 16M, mtu_bytes is not 0");
  }
  if (std::min(wire.chunk_bytes, wire.mtu_bytes) == kChunkBytesMax) {
    return invalid("a chunk of 16M has an mtu_bytes below 16M");
  }
  if (wire.paths == 0 || wire.paths > kPathsMax || wire.rails == 0 || wire.rails > kRailsMax ||
      wire.rails > wire.paths) {
    return invalid("paths are 1 to 4096, rails 1 to 16 and not more than the paths");
  }
  if (wire.ps_per_byte == 0 || wire.base_rtt_ns == 0 || wire.base_rtt_ns > kBaseRttNsMax) {
    return invalid("ps_per_byte is not 0, base_rtt_ns is 1 to 1000000000");
  }
  if (options.window_groups == 0 || wire.paths % options.window_groups != 0) {
    return invalid("window_groups divides the paths");
  }
  if (options.chunks_max > kChunksMax || options.sends_max == 0 || options.receive_parts_max == 0 ||
      options.sends_max > kPostedMax || options.receive_parts_max > kPostedMax) {
    return invalid("chunks_max is at most " + std::to_string(kChunksMax) +
                   ", sends_max and receive_parts_max are 1 to " + std::to_string(kPostedMax));
  }
  if (options.window_bytes_max > kWindowBytesMax || options.window_bytes_min > kWindowBytesMax) {
    return invalid("windows are at most 64 GiB");
  }
  const LossOptions& loss = options.loss;
  if (loss.give_up_ns < kGiveUpNsMin || loss.give_up_ns > kHourNs || loss.rto_ns_max > kHourNs ||
      loss.rto_ns_min > kHourNs || loss.tail_probe_ns_min > kHourNs) {
    return invalid(
        "give_up_ns is 1 ms to 1 h, the bounds of the RTO and of the tail probe are at most 1 h");
  }
  if (options.acknowledgement.lazy_ns > kLazyNsMax ||
      options.acknowledgement.ack_delay_ns > kHourNs) {
    return invalid("lazy_ns is at most 1 s, ack_delay_ns at most 1 h");
  }
  if (wire.trims && options.authenticates_payload) {
    return invalid("a tag over the payload cannot be checked where switches trim it");
  }
  if (!parse_spray(options.spray)) {
    return invalid("spray '" + options.spray +
                   "' is not one of oblivious, two_choices, bitmap, reps, mixed");
  }
  if (options.policy != nullptr && !policy_fault(*options.policy).empty()) {
    return invalid(policy_fault(*options.policy));
  }
  return {};
}

}  // namespace

std::string policy_fault(const tutti_transport_policy& table) {
  if (table.version != TUTTI_TRANSPORT_POLICY_VERSION) {
    return "the policy is of version " + std::to_string(table.version) + ", not " +
           std::to_string(TUTTI_TRANSPORT_POLICY_VERSION);
  }
  // The hooks that version 1 began with; those that are added later go to the end.
  constexpr std::size_t kBytesMin =
      offsetof(tutti_transport_policy, on_timeout) + sizeof(tutti_transport_policy::on_timeout);
  if (table.size_bytes < kBytesMin) {
    return "the policy's table has " + std::to_string(table.size_bytes) + " bytes, fewer than " +
           std::to_string(kBytesMin);
  }
  return "";
}

Result<std::unique_ptr<Connection>> Connection::make(TimeNs now, const ConnectionOptions& options,
                                                     std::uint32_t index, CreditPacer& pacer,
                                                     TraceSink* trace) {
  TUTTI_RETURN_IF_ERROR(validate(options));
  std::unique_ptr<Connection> made(new Connection(now, options, index, pacer, trace));
  ControllerOptions controller;
  controller.chunk_bytes = options.wire.chunk_bytes;
  controller.mtu_bytes = std::min(options.wire.mtu_bytes, options.wire.chunk_bytes);
  controller.base_rtt_ns = options.wire.base_rtt_ns;
  controller.base_rtt_is_guess = options.wire.base_rtt_is_guess;
  controller.window_bytes_min = options.window_bytes_min;
  controller.bdp_bytes = std::max<Bytes>(bdp_bytes_of(options.wire) / options.window_groups, 1);
  controller.window_bytes_max =
      std::max<Bytes>(window_bytes_of(options) / options.window_groups, options.wire.chunk_bytes);
  controller.trims = options.wire.trims;
  controller.marks_ecn = options.wire.marks_ecn;
  controller.has_credit = uses_credit(options.controller);
  controller.cubic_time_scale = options.cubic_time_scale;
  const std::uint32_t groups = options.sends ? options.window_groups : 1;
  for (std::uint32_t i = 0; i < groups; ++i) {
    TUTTI_ASSIGN_OR_RETURN(auto one, make_controller(options.controller, controller));
    const Spray::Share share{static_cast<PathId>(i * made->paths_per_group_),
                             made->paths_per_group_};
    made->groups_.push_back(
        {std::move(one), Spray(*parse_spray(options.spray), share, options.wire.ps_per_byte,
                               made->random_.next())});
  }
  made->policy_.open(made->view(now));
  return made;
}

Connection::Connection(TimeNs now, const ConnectionOptions& options, std::uint32_t index,
                       CreditPacer& pacer, TraceSink* trace)
    : options_(options),
      index_(index),
      pacer_(pacer),
      trace_(trace),
      send_key_(derive_key(options.key, options.local_id, options.local_incarnation,
                           options.remote_id, options.remote_incarnation)),
      receive_key_(derive_key(options.key, options.remote_id, options.remote_incarnation,
                              options.local_id, options.local_incarnation)),
      policy_(options.policy),
      next_packet_(options.first_number),
      replay_(replay_bits_of(options), options.first_number),
      partial_(replay_bits_of(options), options.first_number),
      control_turn_(static_cast<std::uint32_t>(options.seed)),
      heard_ns_(now),
      paths_(options.sends ? options.wire.paths : 1, options.sends ? options.wire.rails : 1),
      paths_per_group_(options.sends ? options.wire.paths / options.window_groups : 1),
      random_(options.seed),
      flight_(options.sends ? chunks_of(options) : kChunksMin,
              options.sends ? options.wire.paths : 1, options.first_number),
      loss_(options.loss, options.wire),
      fabric_rtt_(options.wire.base_rtt_ns),
      outgoing_(options.sends ? options.sends_max : 1,
                options.sends ? options.receive_parts_max : 1, options.first_number),
      told_known_(options.first_number),
      acknowledger_(options.acknowledgement, options.receives ? chunks_of(options) : kChunksMin,
                    options.first_number),
      incoming_(
          options.receives && options.split_receives == nullptr ? options.receive_parts_max : 1,
          options.first_number),
      known_before_(options.first_number) {
  if (options.split_receives != nullptr) {
    split_receives_.emplace(*options.split_receives, options.receive_parts_max);
  }
  loss_.set_ack_delay(options.acknowledgement.ack_delay_ns, options.acknowledgement.lazy_ns);
  if (uses_credit(options.controller)) {
    if (options.sends) {
      credit_.emplace(options.credit.speculative_bytes, window_bytes_of(options),
                      std::min(options.wire.mtu_bytes, options.wire.chunk_bytes),
                      options.first_number);
    }
    if (options.receives) {
      pacer_.add(index_, options.first_number,
                 std::max(options.credit.grant_bytes, options.wire.chunk_bytes),
                 window_bytes_of(options), options.wire.base_rtt_ns);
    }
  }
}

Connection::~Connection() { pacer_.remove(index_); }

void Connection::trace(TimeNs now, TraceKind kind, PathId path, std::uint64_t number, Bytes bytes,
                       std::uint64_t detail) {
  if (trace_ != nullptr) [[unlikely]] {
    trace_->record({now, options_.local_id, kind, path, number, bytes, detail});
  }
}

Status Connection::post_send(TimeNs now, const SendRequest& request) {
  if (state_ != State::kOpen) {
    return Status(ErrorCode::kUnavailable, "transport send: the connection is closed");
  }
  if (!options_.sends || std::max(request.bytes, request.whole_bytes) > kMessageBytesMax) {
    return invalid("a send of more than 1 TiB, or on a connection made without sends");
  }
  if (outgoing_.is_full()) {
    return Status(ErrorCode::kTimeout, "transport send: sends_max are posted; poll the events");
  }
  outgoing_.post(request);
  note_waiting(now);
  request_credit_if_stuck(now);
  return {};
}

Status Connection::post_receive(TimeNs now, const ReceiveRequest& request) {
  if (state_ != State::kOpen) {
    return Status(ErrorCode::kUnavailable, "transport receive: the connection is closed");
  }
  if (!options_.receives || split_receives_ || request.part_count == 0 ||
      request.part_count > kReceivePartsMax) {
    return invalid("a receive of 1 to 8 parts, on a connection made with receives");
  }
  for (std::size_t i = 0; i < request.part_count; ++i) {
    const ReceivePart& part = request.parts[i];
    if (std::max(part.capacity_bytes, part.whole_bytes) > kMessageBytesMax) {
      return invalid("a receive of more than 1 TiB");
    }
  }
  if (!incoming_.has_room(request.part_count)) {
    return Status(ErrorCode::kTimeout,
                  "transport receive: receive_parts_max are posted; poll the events");
  }
  incoming_.post(request);
  note_waiting(now);
  note_untold(now);
  return {};
}

Status Connection::expect(TimeNs now, std::uint64_t slot) {
  if (state_ != State::kOpen || !split_receives_) {
    return Status(ErrorCode::kUnavailable,
                  "transport: the connection is closed, or has no split receives");
  }
  split_receives_->expect(static_cast<std::uint32_t>(slot));
  if (is_waiting()) {
    note_waiting(now);
  }
  return {};
}

Status Connection::cancel_send(TimeNs now, std::uint64_t context) {
  const std::uint32_t index = outgoing_.find(context);
  if (index == IndexList::kNone) {
    return invalid("no send of this context can be cancelled any more");
  }
  outgoing_.cancel(index);
  advance_close(now);
  return {};
}

Status Connection::cancel_receive(TimeNs now, std::uint64_t context) {
  const std::uint32_t request = incoming_.find(context);
  if (request == UINT32_MAX) {
    return invalid("no receive of this context can be cancelled any more");
  }
  if (!incoming_.withdraw(request)) {
    return Status(ErrorCode::kTimeout, "transport receive: no room for a cancellation now");
  }
  note_waiting(now);
  return {};
}

Status Connection::close(TimeNs now) {
  if (state_ != State::kOpen) {
    return Status(ErrorCode::kUnavailable, "transport: the connection is closed already");
  }
  state_ = State::kDraining;
  outgoing_.end_unmatched(Outcome::kClosed);
  incoming_.end_all(Outcome::kClosed);
  if (split_receives_) {
    split_receives_->end_all();
  }
  if (acknowledger_.due_ns() != kNever) {
    acknowledger_.request();
  }
  note_waiting(now);
  advance_close(now);
  return {};
}

void Connection::advance_close(TimeNs now) {
  if (state_ == State::kDraining && !outgoing_.has_matched()) {
    state_ = State::kClosing;
    progress_ns_ = now;
    control_ |= kClose;
    control_backoff_ = 0;
    timers_.set(Timer::kControl, now + control_rto_ns());
  }
}

Status Connection::abort(TimeNs now) {
  if (has_ended()) {
    return Status(ErrorCode::kUnavailable, "transport: the connection has ended already");
  }
  control_ = kReset;
  end(now, Outcome::kAborted, Outcome::kAborted);
  return {};
}

// Everything that was posted ends before the connection says so: take_event keeps the order.
void Connection::end(TimeNs now, Outcome outcome, Outcome of_requests) {
  state_ = State::kEnded;
  outcome_ = outcome;
  has_terminal_event_ = true;
  outgoing_.end_all(of_requests);
  incoming_.end_all(of_requests);
  if (split_receives_) {
    split_receives_->end_all();
  }
  pacer_.remove(index_);
  control_ &= kCloseAck | kReset;
  pong_count_ = 0;
  pings_due_ = 0;
  tail_probe_due_ = false;
  timers_.clear_all();
  timers_.set(Timer::kLinger, now + options_.loss.give_up_ns);
  trace(now, TraceKind::kConnectionEnded, kNoPath, 0, 0, static_cast<std::uint64_t>(outcome));
}

bool Connection::take_event(Event& event) {
  if (outgoing_.take_matched(event) || outgoing_.take_finished(event) ||
      incoming_.take_finished(event) ||
      (split_receives_ && split_receives_->take_finished(event))) {
    return true;
  }
  if (!has_terminal_event_) {
    return false;
  }
  has_terminal_event_ = false;
  event = Event{};
  event.kind = EventKind::kConnectionDone;
  event.outcome = outcome_;
  return true;
}

bool Connection::is_waiting() const {
  // Answers to withdrawn receives are matched and not posted.
  return outgoing_.posted() > 0 || outgoing_.has_matched() || incoming_.open_requests() > 0 ||
         incoming_.has_unknown() || (split_receives_ && split_receives_->open() > 0) ||
         state_ == State::kDraining || state_ == State::kClosing;
}

void Connection::note_waiting(TimeNs now) {
  if (waiting_since_ns_ == kNever) {
    waiting_since_ns_ = now;
  }
  if (!timers_.is_set(Timer::kKeepAlive)) {
    timers_.set(Timer::kKeepAlive, now + options_.loss.give_up_ns / 8);
  }
  if (incoming_.has_unknown() && !timers_.is_set(Timer::kControl)) {
    control_backoff_ = 0;
    timers_.set(Timer::kControl, now + control_rto_ns());
  }
}

TimeNs Connection::control_wait_ns(TimeNs rtt_ns) const {
  return std::max(4 * rtt_ns, kControlRtoNsMin) + kLazyWaits * options_.acknowledgement.lazy_ns;
}

TimeNs Connection::control_rto_ns() const {
  const TimeNs first = control_wait_ns(loss_.rtt().srtt_ns());
  return std::min(first << control_backoff_, std::max(options_.loss.rto_ns_max, first));
}

void Connection::on_timeout(TimeNs now) {
  for (Timer timer = timers_.pop(now); timer != Timer::kCount; timer = timers_.pop(now)) {
    switch (timer) {
      case Timer::kRetransmit:
        on_retransmit_timer(now);
        break;
      case Timer::kRack:
        timers_.set(Timer::kRack, loss_.detect_by_time(flight_, now, [&](std::uint64_t number) {
          lose(now, number, LossCause::kRack);
        }));
        request_credit_if_stuck(now);
        break;
      case Timer::kTailProbe:
        on_tail_probe_timer(now);
        break;
      case Timer::kAck:
        acknowledger_.request();
        break;
      case Timer::kPace:
        break;  // The endpoint asks can_send again.
      case Timer::kGap:
        on_gap_timer(now);
        break;
      case Timer::kRequest:
        on_request_timer(now);
        break;
      case Timer::kControl:
        on_control_timer(now);
        break;
      case Timer::kAdvert:
        has_waited_ = incoming_.has_untold();
        break;
      case Timer::kAdvertAck:
        control_ |= owes_advert_ack() ? kAdvertAck : 0U;
        break;
      case Timer::kPathProbe:
        control_ |= kPathProbe;
        break;
      case Timer::kKeepAlive:
        on_keep_alive_timer(now);
        break;
      case Timer::kLinger:
        state_ = State::kForgotten;
        break;
      case Timer::kCount:
        break;
    }
  }
}

void Connection::on_retransmit_timer(TimeNs now) {
  const std::uint64_t oldest = flight_.oldest();
  if (oldest == Flight::kNoChunk) {
    return;
  }
  const TimeNs due = std::max(flight_.at(oldest).sent_ns, progress_ns_) + loss_.rto_ns();
  if (now < due) {
    timers_.set(Timer::kRetransmit, due);
    return;
  }
  ++counters_.timeouts;
  trace(now, TraceKind::kTimeout, kNoPath, oldest, 0, loss_.backoff());
  // Only what should have been heard of by now, not all that is in the air.
  const TimeNs loss_delay_ns = loss_.rtt().srtt_ns() + loss_.reordering_ns();
  std::uint64_t number = oldest;
  do {
    lose(now, number, LossCause::kTimeout);
    number = flight_.oldest();
  } while (number != Flight::kNoChunk && flight_.at(number).sent_ns + loss_delay_ns <= now);
  loss_.on_timeout();
  for (Group& group : groups_) {
    group.spray.on_timeout(now);
    Feedback feedback;
    feedback.now = now;
    feedback.bytes = std::exchange(group.timed_out_bytes, 0);
    feedback.srtt_ns = loss_.rtt().srtt_ns();
    feedback.inflight_bytes = group.inflight_bytes;
    if (feedback.bytes > 0) {
      tell_group(group, flight_.orders());
      group.controller->on_timeout(feedback);
    }
  }
  if (policy_ && policy_.hooks().on_timeout != nullptr) {
    const tutti_transport_view seen = view(now);
    policy_.hooks().on_timeout(policy_.state(), &seen);
  }
  if (flight_.oldest() != Flight::kNoChunk) {
    timers_.set(Timer::kRetransmit, now + loss_.rto_ns());
  }
  request_credit_if_stuck(now);
}

void Connection::on_tail_probe_timer(TimeNs now) {
  const std::uint64_t newest = flight_.newest();
  if (newest == Flight::kNoChunk || loss_.is_in_recovery(flight_)) {
    return;
  }
  const TimeNs due = std::max(flight_.at(newest).sent_ns, progress_ns_) + loss_.tail_probe_ns();
  if (now < due) {
    timers_.set(Timer::kTailProbe, due);
    return;
  }
  if (probed_ == newest && flight_.at(newest).transmissions > 1) {
    return;  // At most one probe without an answer.
  }
  tail_probe_due_ = true;
  ++counters_.tail_probes;
  trace(now, TraceKind::kTailProbe, kNoPath, newest, 0, 0);
}

void Connection::on_control_timer(TimeNs now) {
  if (state_ == State::kClosing) {
    control_ |= kClose;
  } else if (incoming_.has_unknown()) {
    // Where answers wait there is always a young one without; none is lost while they come.
    if (is_lazy() && std::exchange(known_before_, incoming_.known()) != incoming_.known()) {
      control_backoff_ = 0;
      timers_.set(Timer::kControl, now + control_rto_ns());
      return;
    }
    incoming_.tell_again();
    has_waited_ = true;
  } else {
    return;
  }
  control_backoff_ = std::min(control_backoff_ + 1, kControlBackoffMax);
  timers_.set(Timer::kControl, now + control_rto_ns());
}

/// Of what the peer owes us while it gives signs of life: since when it has been missing. Nothing
/// here waits for the peer's program, but for its end of this connection alone.
TimeNs Connection::stalled_since_ns(TimeNs now) {
  if (looked_chunks_ != counters_.chunks_received) {
    looked_chunks_ = counters_.chunks_received;
    data_ns_ = now;
  }
  if (!incoming_.has_unknown() || looked_known_ != incoming_.known()) {
    looked_known_ = incoming_.known();
    known_ns_ = now;
  }
  TimeNs since_ns = known_ns_;
  if (flight_.inflight_chunks() > 0 || flight_.first_lost() != Flight::kNoChunk ||
      state_ == State::kClosing) {
    // A peer that has closed takes no data of ours, and ends us when its own is here.
    since_ns = std::min(since_ns, peer_closes_ ? std::max(progress_ns_, data_ns_) : progress_ns_);
  }
  if (credit_ && !credit_->can_send() && credit_backlog_bytes() > 0) {
    since_ns = std::min(since_ns, asked_ns_);
  }
  since_ns = std::min(since_ns, split_receives_ ? split_receives_->look(now, data_ns_)
                                                : incoming_.look(now, data_ns_));
  return std::max(since_ns, waiting_since_ns_);
}

void Connection::on_keep_alive_timer(TimeNs now) {
  if (!is_waiting()) {
    waiting_since_ns_ = kNever;
    return;
  }
  const TimeNs interval = options_.loss.give_up_ns / 8;
  const TimeNs silent_since = std::max(heard_ns_, waiting_since_ns_);
  const bool is_stuck = now - stalled_since_ns(now) >= kStuckGiveUps * options_.loss.give_up_ns;
  if (is_stuck || now - silent_since >= options_.loss.give_up_ns) {
    end(now, Outcome::kUnreachable, Outcome::kUnreachable);
    return;
  }
  // More and more of them, each on another path: of those that are dead for one direction, an end
  // that only waits knows nothing, and a ping and its answer need one that lives for both.
  const auto intervals = static_cast<std::uint32_t>((now - silent_since) / interval);
  if (intervals > 0) {
    pings_due_ = std::min(1U << (std::max(intervals, 2U) - 2), wire().paths);
  }
  timers_.set(Timer::kKeepAlive, now + interval);
}

// Credit was asked for and none came: the request or the grant was lost.
void Connection::on_request_timer(TimeNs now) {
  if (!credit_ || credit_->can_send() || credit_backlog_bytes() == 0) {
    return;
  }
  control_ |= kRequestCredit;
  control_backoff_ = std::min(control_backoff_ + 1, kControlBackoffMax);
  timers_.set(Timer::kRequest, now + control_rto_ns());
}

// A hole is older than reordering explains: without trimming nothing else would tell so soon.
void Connection::on_gap_timer(TimeNs now) {
  const TimeNs since = acknowledger_.hole_since_ns();
  if (since == kNever) {
    return;
  }
  const TimeNs delay_ns = wire().base_rtt_ns * 3 / 2;
  if (now < since + delay_ns) {
    timers_.set(Timer::kGap, since + delay_ns);
    return;
  }
  tells_gap_ = true;
  acknowledger_.request();
  pacer_.on_wanted(now, index_, pacer_.wanted_units(index_), true);
  timers_.set(Timer::kGap, now + delay_ns);
}

void Connection::on_granted(bool is_slow) {
  control_ |= kGrant;
  grant_is_slow_ = is_slow;
}

bool Connection::adverts_are_due() const {
  return incoming_.has_untold() && (!is_lazy() || has_waited_ || !incoming_.can_wait());
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

ConnectionStatus Connection::status() const {
  ConnectionStatus status;
  for (const Group& group : groups_) {
    status.window_bytes += group.controller->window_bytes();
  }
  status.inflight_bytes =
      flight_.inflight_bytes() - std::min(flight_.inflight_bytes(), hidden_bytes_);
  status.backlog_bytes = outgoing_.backlog_bytes();
  status.srtt_ns = loss_.rtt().srtt_ns();
  status.rtt_ns_min = loss_.rtt().min_ns();
  status.fabric_ns = fabric_rtt_.srtt_ns();
  status.fabric_ns_min = fabric_rtt_.min_ns();
  status.rto_ns = loss_.rto_ns();
  status.paths_alive = paths_.alive();
  status.is_in_recovery = loss_.is_in_recovery(flight_);
  return status;
}

PathCounters Connection::path_counters(PathId path) const {
  if (path >= paths_.count()) {
    return {};
  }
  const Path& it = paths_[path];
  return {it.chunks_sent, it.losses, it.marks, it.rtt_ns, flight_.path_inflight_bytes(path),
          it.state};
}

void Connection::check_invariants() const {
  flight_.check();
  Bytes inflight = 0;
  for (const Group& group : groups_) {
    inflight += group.inflight_bytes;
    CHECK(group.controller->window_bytes() > 0, "");
  }
  CHECK(inflight == flight_.inflight_bytes(), std::to_string(inflight));
  CHECK(has_ended() || flight_.inflight_chunks() == 0 || timers_.is_set(Timer::kRetransmit),
        "no timer guards what is in the air");
  CHECK(has_ended() || (!is_waiting() && flight_.inflight_chunks() == 0) ||
            timers_.is_set(Timer::kKeepAlive),
        "no timer looks after a silent peer");
  CHECK(has_ended() || (!incoming_.has_unknown() && state_ != State::kClosing) ||
            timers_.is_set(Timer::kControl),
        "no timer repeats adverts or the close");
  CHECK(
      has_ended() || !incoming_.has_untold() || adverts_are_due() || timers_.is_set(Timer::kAdvert),
      "no timer sends the adverts that wait");
  CHECK(has_ended() || !owes_advert_ack() || (control_ & kAdvertAck) != 0 ||
            timers_.is_set(Timer::kAdvertAck),
        "no timer says that adverts are known");
  CHECK(has_ended() || acknowledger_.due_ns() == kNever || acknowledger_.due_ns() == 0 ||
            timers_.is_set(Timer::kAck),
        "no timer sends the acknowledgement that waits");
  CHECK(has_ended() || !credit_ || credit_->can_send() || credit_backlog_bytes() == 0 ||
            timers_.is_set(Timer::kRequest),
        "no timer asks for the missing credit");
  CHECK(paths_.alive() > 0, "");
}

}  // namespace tutti::transport
