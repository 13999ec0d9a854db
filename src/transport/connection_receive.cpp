// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What arrives at a connection.
#include <algorithm>
#include <bit>

#include "transport/connection.hpp"
#include "transport/serial.hpp"

namespace tutti::transport {
namespace {

/// Largest message whose acknowledgement may wait if the sender does not ask for it, bytes. Few of
/// them fit into one acknowledgement, so little is ever unacknowledged.
constexpr std::uint32_t kShortBytes = 1024;

/// kNever: unknown.
TimeNs turnaround_ns(std::uint32_t turnaround) {
  return turnaround == kTurnaroundUnknown ? kNever : TimeNs{turnaround} * kTurnaroundUnitNs;
}

ConnectionEvent event_of(PacketType end) {
  if (end == PacketType::kReset) {
    return ConnectionEvent::kPeerReset;
  }
  return end == PacketType::kClose ? ConnectionEvent::kPeerClose : ConnectionEvent::kPeerCloseAck;
}

}  // namespace

void Connection::on_arrival(TimeNs now, const Arrival& arrival) {
  const bool is_known =
      known_header_.size > 0 &&
      std::equal(arrival.header.begin(), arrival.header.end(), known_header_.bytes.begin(),
                 known_header_.bytes.begin() + static_cast<std::ptrdiff_t>(known_header_.size));
  Packet decoded;
  if (!is_known && !decode(arrival.header, decoded)) {
    ++counters_.malformed_dropped;
    return;
  }
  const Packet& packet = is_known ? known_header_.packet : decoded;
  const std::uint64_t number = expand(packet.common.number, replay_.next());
  if (arrival.trimmed && options_.authenticates_payload) {
    return;  // Nothing to check it by.
  }
  if (options_.authenticates && !(is_known && number == known_header_.number)) {
    const auto covered =
        options_.authenticates_payload ? arrival.payload : std::span<const std::byte>();
    if (received_tags_.tag_of(arrival.header, covered, number) != read_tag(arrival.header)) {
      ++counters_.forgeries_dropped;
      return;
    }
  }
  if (is_partial(arrival)) {
    on_partial(now, packet, number, arrival);
    return;
  }
  if (!replay_.take(number)) {
    ++counters_.replays_dropped;
    return;
  }
  heard_ns_ = now;
  if (has_ended()) {
    tell_of_end(packet.common);
    return;
  }
  switch (packet.common.type) {
    case PacketType::kData:
      on_data(now, packet, arrival);
      break;
    case PacketType::kAck:
      on_ack(now, packet, number, arrival.waited_ns(now));
      break;
    case PacketType::kCredit:
      on_credit(now, packet);
      break;
    case PacketType::kRequest:
      on_wanted(now, packet.number.value, (packet.common.flags & kFlagRetransmits) != 0);
      // It may ask for what was granted before: then the grant was lost.
      control_ |= pacer_.grants(index_) ? kGrant : 0U;
      break;
    case PacketType::kAdvert:
      on_advert(now, packet.advert);
      break;
    case PacketType::kAdvertAck:
      if (incoming_.on_known(expand(packet.number.value, incoming_.known()))) {
        control_backoff_ = 0;
      }
      break;
    case PacketType::kPing:
      if (pong_count_ < kPongsMax) {
        pongs_[(pong_first_ + pong_count_++) % kPongsMax] = {
            packet.common.path, packet.common.stamp, now - arrival.waited_ns(now)};
      }
      break;
    case PacketType::kPong:
      on_pong(now, packet, arrival.waited_ns(now));
      break;
    case PacketType::kClose:
    case PacketType::kCloseAck:
    case PacketType::kReset:
      advance(now, event_of(packet.common.type));
      break;
  }
}

/// It may come whole yet, if its path has reordered it, so its number is not taken. It counts once,
/// and does not show that the peer is alive: an attacker can replay its header.
void Connection::on_partial(TimeNs now, const Packet& packet, std::uint64_t number,
                            const Arrival& arrival) {
  if (packet.common.type != PacketType::kData) {
    ++counters_.malformed_dropped;
  } else if (!replay_.is_new(number) || !partial_.take(number)) {
    ++counters_.replays_dropped;
  } else if (!has_ended()) {
    on_data(now, packet, arrival);
  }
}

/// A peer that does not know yet is told; what says "ended" itself is not answered.
void Connection::tell_of_end(const CommonHeader& header) {
  if (header.type == PacketType::kClose) {
    control_ |= kCloseAck;
  } else if (header.type == PacketType::kData && (header.flags & kFlagClosing) != 0 &&
             outcome_ == Outcome::kOk) {
    control_ |= kClose;
  } else if (outcome_ != Outcome::kOk && header.type != PacketType::kReset &&
             header.type != PacketType::kCloseAck) {
    control_ |= kReset;
  }
}

std::byte* Connection::place(std::span<const std::byte> header, std::uint32_t payload_bytes) {
  known_header_.size = 0;
  Packet& packet = known_header_.packet;
  // A payload under authentication may touch nothing before it is checked.
  if (options_.authenticates_payload || !options_.receives || state_ != ConnectionState::kOpen ||
      !decode(header, packet) || packet.common.type != PacketType::kData ||
      packet.data.payload_bytes != payload_bytes) {
    return nullptr;
  }
  const std::uint64_t number = expand(packet.common.number, replay_.next());
  if (!replay_.is_new(number) ||
      (options_.authenticates && received_tags_.tag_of(header, {}, number) != read_tag(header))) {
    return nullptr;
  }
  std::copy(header.begin(), header.end(), known_header_.bytes.begin());
  known_header_.size = header.size();
  known_header_.number = number;
  if (acknowledger_.classify(expand(packet.data.chunk, acknowledger_.cumulative())) !=
      Acknowledger::Kind::kNew) {
    return nullptr;
  }
  return split_receives_ ? split_receives_->place(packet.data) : incoming_.place(packet.data);
}

void Connection::on_data(TimeNs now, const Packet& packet, const Arrival& arrival) {
  const DataHeader& data = packet.data;
  const std::uint64_t number = expand(data.chunk, acknowledger_.cumulative());
  const Acknowledger::Kind kind = acknowledger_.classify(number);
  const bool has_payload = arrival.payload_bytes == data.payload_bytes || arrival.trimmed;
  if (!options_.receives || kind == Acknowledger::Kind::kOutside || !has_payload) {
    ++counters_.malformed_dropped;
    return;
  }
  const bool is_new = kind == Acknowledger::Kind::kNew;
  if (is_partial(arrival) && !is_new) {
    return;  // It has been sent again and is here: to say so would call that needless.
  }
  peer_closes_ = peer_closes_ || (packet.common.flags & kFlagClosing) != 0;
  std::uint8_t echo = arrival.ecn ? kEchoEcn : 0;
  if (arrival.trimmed) {
    ++counters_.trims_received;
    echo |= kEchoTrimmed;
    echo |= arrival.last_hop_trim ? kEchoLastHop : 0;
  } else if (is_new) {
    if (state_ != ConnectionState::kOpen) {
      // Our receives have ended; the peer learns it from our close. If it has closed as well, so
      // have its own: neither side's sends can finish, and each would wait for the other's close.
      // Not before it is sent again: until then our own may be acknowledged.
      constexpr std::uint8_t kBoth = kFlagClosing | kFlagRetransmission;
      if ((packet.common.flags & kBoth) == kBoth) {
        advance(now, ConnectionEvent::kBothDraining);
      }
      return;
    }
    const std::uint8_t flags = packet.common.flags;
    if (split_receives_
            ? !split_receives_->on_data(data, flags, arrival.payload)
            : incoming_.on_data(data, flags, arrival.payload) == IncomingTable::Placed::kNo) {
      ++counters_.malformed_dropped;
      return;
    }
    if (split_receives_ && split_receives_->open() > 0) {
      note_waiting(now);
    }
    ++counters_.chunks_received;
    counters_.bytes_received += data.payload_bytes;
  } else {
    ++counters_.duplicates_received;
  }
  // Nothing but repetitions: our acknowledgements go to paths that lose them. Try several at once.
  repeated_ = is_new ? 0 : repeated_ + 1;
  if (repeated_ > 1) {
    spare_acks_ = std::min(wire().paths - 1, kSpareAcks);
    acknowledger_.request();
  }
  trace(now, TraceKind::kReceived, packet.common.path, number, data.payload_bytes,
        (is_new ? 0 : 1) + (arrival.trimmed ? 2 : 0));
  acknowledger_.on_chunk(now, kind,
                         {number, data.payload_bytes, packet.common.path, packet.common.stamp, echo,
                          (packet.common.flags & kFlagAckRequest) != 0,
                          (packet.common.flags & kFlagEnd) != 0 && data.offset == 0 &&
                              data.payload_bytes <= kShortBytes,
                          arrival.waited_ns(now)});
  if (acknowledger_.due_ns() != 0 && acknowledger_.due_ns() < timers_.at(Timer::kAck)) {
    timers_.set(Timer::kAck, acknowledger_.due_ns());
  }
  if (pacer_.grants(index_)) {
    pacer_.on_arrival(now, arrival.ecn, arrival.trimmed, arrival.last_hop_trim);
    on_wanted(now, data.pull_target, arrival.trimmed && is_new);
    if (!wire().trims && acknowledger_.hole_since_ns() != kNever && !timers_.is_set(Timer::kGap)) {
      timers_.set(Timer::kGap, acknowledger_.hole_since_ns() + wire().base_rtt_ns * 3 / 2);
    }
  }
  if (policy_ && !arrival.trimmed) {
    const bool is_again = (packet.common.flags & kFlagRetransmission) != 0;
    const auto hook = is_again ? policy_.hooks().on_retransmitted_data : policy_.hooks().on_data;
    if (hook != nullptr) {
      tell_policy(hook, now,
                  {number, 0, data.payload_bytes, packet.common.path, 1, arrival.ecn ? 1U : 0U});
    }
  }
}

void Connection::on_ack(TimeNs now, const Packet& packet, std::uint64_t packet_number,
                        TimeNs waited_ns) {
  const AckHeader& ack = packet.ack;
  const std::uint64_t cumulative = expand(ack.cumulative, flight_.base());
  const std::uint64_t base64 = expand(ack.sack_base, cumulative);
  if (!options_.sends || cumulative > flight_.next()) {
    ++counters_.malformed_dropped;
    return;
  }
  ++counters_.acks_received;
  if (credit_) {
    credit_->on_heard();
  }
  const std::uint64_t acked_before = acked_chunks_;
  last_feedback_ = Feedback{};
  last_feedback_.now = now;
  unechoed_bytes_ = 0;
  const bool is_copy = (packet.common.flags & kFlagCopy) != 0;
  for (std::size_t i = 0; i < ack.echo_count; ++i) {
    const std::uint64_t number =
        cumulative + static_cast<std::uint64_t>(std::int64_t{ack.echoes[i].chunk_delta});
    const bool is_told =
        number < cumulative || (number - base64 < 64 && (ack.sack_bitmap >> (number - base64) & 1));
    // A partial chunk that has come whole by now is not lost.
    const bool is_stale = is_told && (ack.echoes[i].flags & kEchoTrimmed) != 0 && !wire().trims;
    if ((!is_copy || is_open(number)) && !is_stale) {
      on_echo(now, ack.echoes[i], number, packet_number, waited_ns);
    }
  }
  // What is acknowledged without an echo: another packet's echo was lost, or echoes are sparse.
  for (std::uint64_t word = flight_.base() & ~63ULL; word < cumulative; word += 64) {
    const std::uint64_t below = cumulative - word < 64 ? (1ULL << (cumulative - word)) - 1 : ~0ULL;
    acknowledge_word(now, word, flight_.open_bits(word) & below);
  }
  acknowledge_word(now, base64, flight_.open_bits(base64) & ack.sack_bitmap);
  flush_unechoed(now);
  if (cumulative > flight_.base()) {
    flight_.advance(cumulative);
  }
  loss_.on_told(flight_, base64, ack.sack_bitmap, packet_number,
                [&](std::uint64_t number) { lose(now, number, LossCause::kSamePath); });
  if ((packet.common.flags & kFlagGap) != 0 && flight_.is_in_flight(cumulative) &&
      flight_.at(cumulative).sent_ns + loss_.rtt().srtt_ns() <= now) {
    lose(now, cumulative, LossCause::kGap);
  }
  timers_.set(Timer::kRack, loss_.detect_by_time(flight_, now, [&](std::uint64_t number) {
    lose(now, number, LossCause::kRack);
  }));
  if (acked_chunks_ != acked_before || cumulative == flight_.next()) {
    loss_.on_progress();
    progress_ns_ = now;
  }
  // 48 bits of what the receiver has in total: what no echo and no bit has told yet.
  const Bytes ahead = (ack.received_bytes - acked_bytes_) & ((1ULL << 48) - 1);
  hidden_bytes_ = ahead < 1ULL << 47 ? ahead : 0;
  request_credit_if_stuck(now);
  drain_if_done(now);
}

inline void Connection::on_echo(TimeNs now, const Echo& echo, std::uint64_t number,
                                std::uint64_t packet_number, TimeNs waited_ns) {
  if (echo.path >= paths_.count()) {
    return;
  }
  const bool is_trimmed = (echo.flags & kEchoTrimmed) != 0;
  const bool ecn = (echo.flags & kEchoEcn) != 0;
  // Of a chunk that is here no more only the stamp can tell how old it is.
  const bool is_latest = flight_.is_in_flight(number) &&
                         static_cast<std::uint32_t>(flight_.at(number).sent_ns) == echo.stamp;
  const RttSample rtt =
      believed(rtt_sample(now, echo.stamp, turnaround_ns(echo.turnaround), waited_ns),
               is_latest ? now - flight_.at(number).sent_ns : kNever);

  Group& group = groups_[group_of(echo.path)];
  group.spray.on_echo(echo.path, ecn || is_trimmed);
  // Where no switch trims, the path lost part of the chunk: no sign that the path is alive.
  const bool was_partial = is_trimmed && !wire().trims;
  if (!was_partial) {
    note_path(now, echo.path,
              paths_.on_echo(now, echo.path, is_trimmed ? 0 : rtt.fabric_ns, ecn,
                             fabric_rtt_.has_sample() ? fabric_rtt_.srtt_ns() : 0));
  }
  counters_.marks += ecn ? 1 : 0;
  if ((echo.flags & kEchoDuplicate) != 0) {
    on_duplicate_echo(now, number, echo.stamp);
  }
  if (!flight_.holds(number)) {
    return;
  }
  Chunk& chunk = flight_.at(number);
  Feedback feedback;
  feedback.now = now;
  feedback.bytes = chunk.bytes;
  feedback.round_trip_ns = rtt.round_trip_ns;
  feedback.fabric_ns = rtt.fabric_ns;
  feedback.is_full_chunk = chunk.bytes == wire().chunk_bytes;
  feedback.ecn = ecn;
  if (was_partial) {
    if (is_latest) {
      ++counters_.nacks;
      lose(now, number, LossCause::kPartial);
    }
    return;
  }
  if (is_trimmed) {
    if (is_latest) {
      on_trimmed_echo(now, echo, number, feedback);
    }
    return;
  }
  on_delivered_echo(now, echo, number, packet_number, rtt, is_latest, feedback);
}

/// Of a chunk that the peer has in whole.
inline void Connection::on_delivered_echo(TimeNs now, const Echo& echo, std::uint64_t number,
                                          std::uint64_t packet_number, const RttSample& rtt,
                                          bool is_latest, Feedback feedback) {
  Chunk& chunk = flight_.at(number);
  if (chunk.was_overdue && !is_latest && chunk.state != ChunkState::kAcknowledged) {
    // Of one that has been sent again since nobody knows when it was overtaken.
    loss_.on_late(chunk.state == ChunkState::kLost ? now - chunk.overtaken_ns
                                                   : loss_.reordering_ns());
  }
  if (rtt.round_trip_ns != 0) {
    loss_.rtt().on_sample(rtt.round_trip_ns);
  }
  if (rtt.fabric_ns != 0) {
    fabric_rtt_.on_sample(rtt.fabric_ns);
  }
  if (chunk.state == ChunkState::kAcknowledged) {
    return;
  }
  if (is_latest) {
    loss_.on_delivered(now, flight_, number, rtt.round_trip_ns);
    loss_.mark_same_path(flight_, number, packet_number);
  }
  trace(now, TraceKind::kAcknowledged, echo.path, number, chunk.bytes, rtt.fabric_ns);
  acknowledge(number);
  const std::uint32_t group = group_of(echo.path);
  feedback.srtt_ns = loss_.rtt().srtt_ns();
  feedback.inflight_bytes = inflight_bytes_[group];
  groups_[group].controller->on_ack(feedback);
  trace_window(now, group);
  last_feedback_ = feedback;
  if (policy_ && policy_.hooks().on_ack != nullptr) {
    tell_policy(policy_.hooks().on_ack, now,
                {number, rtt.fabric_ns, chunk.bytes, echo.path, chunk.transmissions,
                 feedback.ecn ? 1U : 0U});
  }
}

void Connection::on_trimmed_echo(TimeNs now, const Echo& echo, std::uint64_t number,
                                 Feedback feedback) {
  const std::uint32_t index = group_of(echo.path);
  Group& group = groups_[index];
  ++counters_.nacks;
  paths_.on_nack(echo.path);
  lose(now, number, LossCause::kTrim);
  feedback.is_new_episode = tell_group(group, flight_.at(number).order);
  feedback.last_hop = (echo.flags & kEchoLastHop) != 0;
  feedback.srtt_ns = loss_.rtt().srtt_ns();
  feedback.inflight_bytes = inflight_bytes_[index];
  group.controller->on_nack(feedback);
  trace_window(now, index);
}

// Network duplicates are caught by their packet number: this one we sent twice.
void Connection::on_duplicate_echo(TimeNs now, std::uint64_t number, std::uint32_t stamp) {
  if (number == probed_) {
    return;  // A tail probe is meant to be needless.
  }
  ++counters_.spurious_retransmissions;
  const auto age_ns = static_cast<std::uint32_t>(static_cast<std::uint32_t>(now) - stamp);
  if (loss_.on_spurious(flight_, number, now - std::min<TimeNs>(age_ns, now))) {
    ++counters_.undone;
    for (Group& group : groups_) {
      if (group.told_episode == loss_.episode()) {
        group.controller->on_spurious(now);
      }
    }
    trace(now, TraceKind::kUndone, kNoPath, number, groups_[0].controller->window_bytes(), 0);
  }
}

inline void Connection::acknowledge(std::uint64_t number) {
  const Chunk& chunk = flight_.at(number);
  if (chunk.state == ChunkState::kInFlight) {
    inflight_bytes_[group_of(chunk.path)] -= chunk.bytes;
  }
  flight_.acknowledge(number);
  acked_bytes_ += chunk.bytes;
  ++acked_chunks_;
  outgoing_.on_acknowledged(chunk.message);
}

void Connection::acknowledge_bits(TimeNs now, std::uint64_t base64, std::uint64_t bits) {
  for (; bits != 0; bits &= bits - 1) {
    const std::uint64_t number = base64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    const Chunk& chunk = flight_.at(number);
    trace(now, TraceKind::kAcknowledged, chunk.path, number, chunk.bytes, 0);
    acknowledge(number);
    if (policy_ && policy_.hooks().on_ack != nullptr) {
      tell_policy(policy_.hooks().on_ack, now,
                  {number, 0, chunk.bytes, chunk.path, chunk.transmissions, 0});
    }
    if (groups_.size() == 1) {
      unechoed_bytes_ += chunk.bytes;
      continue;
    }
    const std::uint32_t group = group_of(chunk.path);
    Feedback feedback = last_feedback_;
    feedback.bytes = chunk.bytes;
    feedback.inflight_bytes = inflight_bytes_[group];
    feedback.srtt_ns = loss_.rtt().srtt_ns();
    groups_[group].controller->on_ack(feedback);
  }
}

/// They share the fate of the last echo, which is of their time.
void Connection::flush_unechoed(TimeNs now) {
  if (unechoed_bytes_ == 0) {
    return;
  }
  last_feedback_.bytes = unechoed_bytes_;
  last_feedback_.inflight_bytes = inflight_bytes_[0];
  last_feedback_.srtt_ns = loss_.rtt().srtt_ns();
  groups_[0].controller->on_ack(last_feedback_);
  trace_window(now, 0);
}

void Connection::trace_window(TimeNs now, std::uint32_t group) {
  if (trace_ != nullptr) [[unlikely]] {
    trace(now, TraceKind::kWindow, kNoPath, group, groups_[group].controller->window_bytes(),
          inflight_bytes_[group]);
  }
}

void Connection::note_change(TimeNs now, PathId path, PathTable::Change change) {
  const bool rail_down = change == PathTable::Change::kRailDown;
  counters_.path_deaths += change == PathTable::Change::kDead || rail_down ? 1 : 0;
  counters_.rail_deaths += rail_down ? 1 : 0;
  trace(now, TraceKind::kPath, path, 0, 0, static_cast<std::uint64_t>(paths_[path].state));
  if (rail_down || change == PathTable::Change::kRailUp) {
    trace(now, TraceKind::kRail, path, paths_.rail_of(path), 0, rail_down ? 1 : 0);
  }
  if ((control_ & kPathProbe) == 0) {
    timers_.set(Timer::kPathProbe, paths_.next_probe_ns());
  }
}

void Connection::on_advert(TimeNs now, const AdvertHeader& advert) {
  if (!options_.sends) {
    ++counters_.malformed_dropped;
    return;
  }
  std::uint64_t number = expand(advert.first, outgoing_.known_adverts());
  const bool is_old = number < outgoing_.known_adverts();
  for (std::size_t i = 0; i < advert.count; ++i) {
    outgoing_.on_advert(number++, advert.adverts[i]);
  }
  if (outgoing_.has_matched()) {
    note_waiting(now);
  }
  if (is_old || !is_lazy()) {
    control_ |= kAdvertAck;  // What has told of them before was lost.
  } else if (owes_advert_ack() && !timers_.is_set(Timer::kAdvertAck)) {
    // Data for the last of them says the same. The peer is patient for twice as long.
    timers_.set(Timer::kAdvertAck,
                now + control_wait_ns(std::min(wire().base_rtt_ns, loss_.rtt().srtt_ns())) / 2);
  }
  request_credit_if_stuck(now);
}

void Connection::on_credit(TimeNs now, const Packet& packet) {
  if (!credit_ || !credit_->on_credit(packet.number.value)) {
    return;
  }
  timers_.clear(Timer::kRequest);
  request_credit_if_stuck(now);
  trace(now, TraceKind::kCredit, kNoPath, 0, credit_->granted_bytes(), 0);
  if (policy_ && policy_.hooks().on_credit != nullptr) {
    const tutti_transport_view seen = view(now);
    policy_.hooks().on_credit(policy_.state(), &seen, credit_->granted_bytes());
  }
}

void Connection::on_wanted(TimeNs now, std::uint32_t target, bool lost) {
  if (pacer_.grants(index_)) {
    pacer_.on_wanted(now, index_, expand(target, pacer_.wanted_units(index_)), lost);
  }
}

/// When the ping of this stamp left; 0: too many have since.
TimeNs Connection::pinged_ns(std::uint32_t stamp) const {
  const auto* found = std::find_if(pinged_ns_.begin(), pinged_ns_.end(), [&](TimeNs sent_ns) {
    return static_cast<std::uint32_t>(sent_ns) == stamp;
  });
  return found == pinged_ns_.end() ? 0 : *found;
}

void Connection::on_pong(TimeNs now, const Packet& packet, TimeNs waited_ns) {
  const PathId path = packet.common.path;
  if (path < paths_.count()) {
    const RttSample rtt = believed(
        rtt_sample(now, packet.pong.stamp, turnaround_ns(packet.pong.turnaround), waited_ns),
        now - pinged_ns(packet.pong.stamp));
    note_path(now, path, paths_.on_echo(now, path, rtt.fabric_ns, false));
  }
}

}  // namespace tutti::transport
