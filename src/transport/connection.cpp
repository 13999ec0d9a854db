// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Life of a connection, calls of the application.
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
constexpr TimeNs kHourNs = 3'600'000'000'000;  // Times of timers stay far below 2^64.

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
                             static_cast<std::uint16_t>(made->paths_per_group_)};
    made->groups_.push_back({.controller = std::move(one),
                             .spray = Spray(*parse_spray(options.spray), share,
                                            options.wire.ps_per_byte, made->random_.next())});
  }
  made->inflight_bytes_.resize(groups);
  made->policy_.open(made->view(now));
  return made;
}

Connection::Connection(TimeNs now, const ConnectionOptions& options, std::uint32_t index,
                       CreditPacer& pacer, TraceSink* trace)
    : options_(options),
      index_(index),
      pacer_(pacer),
      trace_(trace),
      sent_tags_(derive_key(options.key, options.local_id, options.local_incarnation,
                            options.remote_id, options.remote_incarnation)),
      received_tags_(derive_key(options.key, options.remote_id, options.remote_incarnation,
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

Status Connection::post_send(TimeNs now, const SendRequest& request) {
  if (state_ != ConnectionState::kOpen) {
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
  if (state_ != ConnectionState::kOpen) {
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
  if (state_ != ConnectionState::kOpen || !split_receives_) {
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
  drain_if_done(now);
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
  if (!advance(now, ConnectionEvent::kClose)) {
    return Status(ErrorCode::kUnavailable, "transport: the connection is closed already");
  }
  return {};
}

Status Connection::abort(TimeNs now) {
  if (!advance(now, ConnectionEvent::kAbort)) {
    return Status(ErrorCode::kUnavailable, "transport: the connection has ended already");
  }
  return {};
}

bool Connection::advance(TimeNs now, ConnectionEvent event) {
  const ConnectionTransition* const step = find_transition(state_, event);
  if (step == nullptr) {
    return false;
  }
  state_ = step->to;
  control_ |= static_cast<std::uint32_t>(step->tells);
  if (state_ == ConnectionState::kDraining) {
    outgoing_.end_unmatched(Outcome::kClosed);
    incoming_.end_all(Outcome::kClosed);
    if (split_receives_) {
      split_receives_->end_all();
    }
    if (acknowledger_.due_ns() != kNever) {
      acknowledger_.request();
    }
    note_waiting(now);
    drain_if_done(now);
  } else if (state_ == ConnectionState::kClosing) {
    progress_ns_ = now;
    control_backoff_ = 0;
    timers_.set(Timer::kControl, now + control_rto_ns());
  } else if (state_ == ConnectionState::kEnded) {
    control_ = static_cast<std::uint32_t>(step->tells);
    outcome_ = step->outcome;
    end(now);
  }
  return true;
}

void Connection::drain_if_done(TimeNs now) {
  if (state_ == ConnectionState::kDraining && !outgoing_.has_matched()) {
    advance(now, ConnectionEvent::kDrained);
  }
}

// Everything that was posted ends before the connection says so: take_event keeps the order.
void Connection::end(TimeNs now) {
  const Outcome of_requests = outcome_ == Outcome::kOk ? Outcome::kClosed : outcome_;
  outgoing_.end_all(of_requests);
  incoming_.end_all(of_requests);
  if (split_receives_) {
    split_receives_->end_all();
  }
  pacer_.remove(index_);
  pong_count_ = 0;
  pings_due_ = 0;
  tail_probe_due_ = false;
  timers_.clear_all();
  timers_.set(Timer::kLinger, now + options_.loss.give_up_ns);
  trace(now, TraceKind::kConnectionEnded, kNoPath, 0, 0, static_cast<std::uint64_t>(outcome_));
}

bool Connection::take_event(Event& event) {
  if (outgoing_.take_matched(event) || outgoing_.take_finished(event) ||
      incoming_.take_finished(event) ||
      (split_receives_ && split_receives_->take_finished(event))) {
    return true;
  }
  if (!advance(0, ConnectionEvent::kEventTaken)) {
    return false;
  }
  event = Event{};
  event.kind = EventKind::kConnectionDone;
  event.outcome = outcome_;
  return true;
}

bool Connection::is_waiting() const {
  // Answers to withdrawn receives are matched and not posted.
  return outgoing_.posted() > 0 || outgoing_.has_matched() || incoming_.open_requests() > 0 ||
         incoming_.has_unknown() || (split_receives_ && split_receives_->open() > 0) ||
         state_ == ConnectionState::kDraining || state_ == ConnectionState::kClosing;
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
  const bool lingers = state_ == ConnectionState::kEnded || state_ == ConnectionState::kReported;
  CHECK(lingers == timers_.is_set(Timer::kLinger), "a late peer is answered for a while");
  CHECK(state_ != ConnectionState::kDraining || outgoing_.has_matched(),
        "nothing is left to drain, and the peer has not been told");
  CHECK(!has_ended() || (!outgoing_.has_matched() && !incoming_.has_unknown()),
        "a connection that has ended has open requests");
  CHECK(state_ < ConnectionState::kReported ||
            (outgoing_.posted() == 0 && incoming_.open_requests() == 0),
        "the end of a connection was told before the end of a request");
  flight_.check();
  Bytes inflight = 0;
  for (std::uint32_t i = 0; i < groups_.size(); ++i) {
    inflight += inflight_bytes_[i];
    CHECK(groups_[i].controller->window_bytes() > 0, "");
  }
  CHECK(inflight == flight_.inflight_bytes(), std::to_string(inflight));
  CHECK(has_ended() || flight_.inflight_chunks() == 0 || timers_.is_set(Timer::kRetransmit),
        "no timer guards what is in the air");
  CHECK(has_ended() || (!is_waiting() && flight_.inflight_chunks() == 0) ||
            timers_.is_set(Timer::kKeepAlive),
        "no timer looks after a silent peer");
  CHECK(has_ended() || (!incoming_.has_unknown() && state_ != ConnectionState::kClosing) ||
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
