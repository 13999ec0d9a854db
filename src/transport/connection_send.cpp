// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Data that leaves a connection: chunks, new and again. What each chunk takes once, from one place,
// is put there by order: the compiler's own limits leave calls.
#include <algorithm>

#include "transport/connection.hpp"
#include "transport/serial.hpp"

namespace tutti::transport {

tutti_transport_view Connection::view(TimeNs now) const {
  tutti_transport_view view{};
  view.now_ns = now;
  view.srtt_ns = loss_.rtt().srtt_ns();
  view.min_rtt_ns = fabric_rtt_.min_ns();
  view.base_rtt_ns = wire().base_rtt_ns;
  view.inflight_bytes = flight_.inflight_bytes();
  for (const Group& group : groups_) {
    view.window_bytes += group.controller->window_bytes();
  }
  view.backlog_bytes = outgoing_.backlog_bytes();
  view.chunk_bytes = wire().chunk_bytes;
  view.paths = wire().paths;
  view.ps_per_byte = wire().ps_per_byte;
  view.connection = options_.local_id;
  view.fabric_srtt_ns = fabric_rtt_.srtt_ns();
  return view;
}

void Connection::tell_policy(void (*hook)(void*, const tutti_transport_view*,
                                          const tutti_transport_chunk*),
                             TimeNs now, const tutti_transport_chunk& chunk) {
  const tutti_transport_view seen = view(now);
  hook(policy_.state(), &seen, &chunk);
}

// The group with the least in the air, relative to equal shares, that may send (if that matters)
// and has a living path: the engine with the least work in connection splitting. Of many groups two
// are drawn first. Equals take turns: by order, few chunks would never see the last ones.
std::uint32_t Connection::find_group(TimeNs now, std::uint32_t bytes, PathId avoid,
                                     bool needs_room) {
  const auto may_send = [&](std::uint32_t i) {
    return !needs_room || (now >= groups_[i].pace_ns && has_room(i, bytes));
  };
  const auto count = static_cast<std::uint32_t>(groups_.size());
  if (count == 1) {
    return may_send(0) ? 0 : kNoGroup;
  }
  const std::span<const Bytes> inflight(inflight_bytes_);
  const std::uint32_t avoided = avoid == kNoPath || paths_per_group_ > 1 ? count : group_of(avoid);
  const auto fits = [&](std::uint32_t i) { return i != avoided && may_send(i) && is_usable(i); };
  if (count > kFewGroups) {
    const std::uint32_t a = random_.below(count);
    const std::uint32_t b = random_.below(count);
    const std::uint32_t less = inflight[a] <= inflight[b] ? a : b;
    if (fits(less)) {
      return less;
    }
  }
  // As a rule the one with the least of all may send, and nobody has to ask the others.
  std::uint32_t least = group_turn_;
  Bytes least_bytes = inflight[least];
  const auto look = [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = begin; i < end; ++i) {
      if (inflight[i] < least_bytes) {
        least_bytes = inflight[i];
        least = i;
      }
    }
  };
  look(group_turn_ + 1, count);
  look(0, group_turn_);
  if (fits(least)) {
    return least;
  }
  std::uint32_t best = kNoGroup;
  for (std::uint32_t turn = 0, i = group_turn_; turn < count; ++turn) {
    if ((best == kNoGroup || inflight[i] < inflight[best]) && fits(i)) {
      best = i;
    }
    i = i + 1 == count ? 0 : i + 1;
  }
  if (best == kNoGroup && avoided < count && is_usable(avoided) && may_send(avoided)) {
    best = avoided;
  }
  return best;
}

/// When the first group may send that has room and lacks nothing but the time; kNever: none does.
TimeNs Connection::next_pace_ns(TimeNs now, std::uint32_t bytes) const {
  TimeNs next_ns = kNever;
  for (std::uint32_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (now < group.pace_ns && group.pace_ns < next_ns && has_room(i, bytes) && is_usable(i)) {
      next_ns = group.pace_ns;
    }
  }
  return next_ns;
}

bool Connection::has_usable_path(std::uint32_t group) const {
  bool is_usable = false;
  for (std::uint32_t i = 0; i < paths_per_group_ && !is_usable; ++i) {
    is_usable = paths_.is_usable(static_cast<PathId>(group * paths_per_group_ + i));
  }
  return is_usable;
}

bool Connection::can_send(TimeNs now) {
  found_.group = kNoGroup;
  if (state_ > ConnectionState::kDraining || !options_.sends) {
    return false;
  }
  const std::uint64_t lost = flight_.first_lost();
  const std::uint32_t cutting = outgoing_.cutting();
  const bool has_new = cutting != IndexList::kNone && !flight_.is_full();
  if (tail_probe_due_) {
    tail_probe_due_ = lost == Flight::kNoChunk && flight_.newest() != Flight::kNoChunk;
    if (tail_probe_due_) {
      return true;
    }
  }
  if (lost == Flight::kNoChunk && !has_new) {
    return false;
  }
  std::uint32_t bytes = wire().chunk_bytes;
  PathId avoid = kNoPath;
  if (lost != Flight::kNoChunk) {
    const Chunk& chunk = flight_.at(lost);
    bytes = chunk.bytes;
    avoid = chunk.path;
    if (policy_ && policy_.hooks().may_retransmit != nullptr) {
      const tutti_transport_view seen = view(now);
      const tutti_transport_chunk asked{lost, 0, chunk.bytes, chunk.path, chunk.transmissions, 0};
      if (policy_.hooks().may_retransmit(policy_.state(), &seen, &asked) == 0) {
        timers_.set(Timer::kPace, now + loss_.rtt().srtt_ns());  // Ask again then.
        return false;
      }
    }
  } else {
    const Outgoing& send = outgoing_.at(cutting);
    bytes = static_cast<std::uint32_t>(std::min<Bytes>(bytes, send.bytes - send.next_offset));
  }
  // An empty chunk costs no credit, and could not ask for any.
  if (credit_ && bytes > 0 && !credit_->can_send()) {
    return false;
  }
  if (policy_ && policy_.hooks().may_send != nullptr) {
    if (flight_.inflight_chunks() == 0) {
      return true;
    }
    const tutti_transport_view seen = view(now);
    const std::uint64_t when = policy_.hooks().may_send(policy_.state(), &seen, bytes);
    if (when > now && when != TUTTI_TRANSPORT_WAIT) {
      timers_.set(Timer::kPace, when);
    }
    return when <= now;
  }
  const std::uint32_t group = find_group(now, bytes, avoid, true);
  if (group != kNoGroup) {
    const bool stays = groups_.size() <= kFewGroups && !policy_;
    found_ = {stays ? group : kNoGroup, bytes, avoid};
    return true;
  }
  timers_.set(Timer::kPace, next_pace_ns(now, bytes));
  return false;
}

[[gnu::always_inline]] inline PathId Connection::choose_path(TimeNs now, Group& group,
                                                             const Chunk& chunk, PathId avoid) {
  if (policy_ && policy_.hooks().choose_path != nullptr) {
    const tutti_transport_view seen = view(now);
    const std::uint32_t path = policy_.hooks().choose_path(
        policy_.state(), &seen, chunk.bytes, avoid == kNoPath ? TUTTI_TRANSPORT_ANY_PATH : avoid);
    if (path < paths_.count() && paths_.is_usable(static_cast<PathId>(path))) {
      return static_cast<PathId>(path);
    }
  }
  if (Outgoing& send = outgoing_.at(chunk.message); options_.single_path_bytes != 0 &&
                                                    send.bytes <= options_.single_path_bytes &&
                                                    avoid == kNoPath) {
    if (send.path == kNoPath || !paths_.is_usable(send.path)) {
      send.path = group.spray.pick(now, loss_.rtt().srtt_ns(), paths_, flight_, kNoPath);
    }
    return send.path;
  }
  return group.spray.pick(now, loss_.rtt().srtt_ns(), paths_, flight_, avoid);
}

/// Cuts the next chunk off the first matched send.
[[gnu::always_inline]] inline std::uint64_t Connection::next_number(TimeNs now) {
  const std::uint32_t index = outgoing_.cutting();
  std::uint32_t bytes = wire().chunk_bytes;
  if (policy_ && policy_.hooks().chunk_size != nullptr) {
    const tutti_transport_view seen = view(now);
    const Outgoing& send = outgoing_.at(index);
    const std::uint32_t wanted =
        policy_.hooks().chunk_size(policy_.state(), &seen, send.bytes, send.next_offset);
    bytes = wanted == 0 ? bytes : std::min(wire().chunk_bytes, wanted);
  }
  const OutgoingTable::Piece piece = outgoing_.cut(index, bytes);
  const Outgoing& send = outgoing_.at(index);
  const std::uint64_t number = flight_.add();
  Chunk& chunk = flight_.at(number);
  chunk.message = index;
  chunk.slot = send.slot;
  chunk.offset = piece.offset;
  chunk.bytes = piece.bytes;
  chunk.flags = piece.is_last ? send.end_flags : 0;
  return number;
}

/// What leaves next: a lost chunk, a new one, or a tail probe. `avoid`: where it went before.
[[gnu::always_inline]] inline std::uint64_t Connection::take_number(TimeNs now, PathId& avoid) {
  std::uint64_t number = flight_.first_lost();
  if (number != Flight::kNoChunk) {
    avoid = flight_.at(number).path;
    loss_.on_retransmitted();
  } else if (outgoing_.cutting() != IndexList::kNone && !flight_.is_full()) {
    number = next_number(now);
  } else {
    number = flight_.newest();  // A tail probe without new data.
    avoid = flight_.at(number).path;
    inflight_bytes_[group_of(avoid)] -= flight_.at(number).bytes;
    probed_ = number;
  }
  tail_probe_due_ = false;
  return number;
}

void Connection::poll_data(TimeNs now, Transmission& out) {
  PathId avoid = kNoPath;
  const std::uint64_t number = take_number(now, avoid);
  std::uint8_t flags = 0;
  Chunk& chunk = flight_.at(number);
  if (avoid != kNoPath) {
    flags |= kFlagRetransmission;
    ++counters_.retransmissions;
  }
  // Without room go a tail probe and what a policy lets go.
  const bool is_found =
      found_.group != kNoGroup && found_.bytes == chunk.bytes && found_.avoid == avoid;
  std::uint32_t asked = is_found ? found_.group : find_group(now, chunk.bytes, avoid, true);
  asked = asked != kNoGroup ? asked : find_group(now, chunk.bytes, avoid, false);
  asked = asked != kNoGroup ? asked : 0;
  group_turn_ = group_turn_ + 1 == groups_.size() ? 0 : group_turn_ + 1;
  const PathId path = choose_path(now, groups_[asked], chunk, avoid);
  // A policy, or a message with a path of its own, may have left the group.
  const std::uint32_t group = group_of(path);
  // Only of one that had nothing to wait for: what is repeated for ever is no progress.
  if (flight_.inflight_chunks() == 0 && avoid == kNoPath &&
      flight_.first_lost() == Flight::kNoChunk) {
    progress_ns_ = now;
  }
  flight_.transmit(now, number, path);
  inflight_bytes_[group] += chunk.bytes;
  ++paths_[path].chunks_sent;
  ++counters_.chunks_sent;
  counters_.bytes_sent += chunk.bytes;
  trace(now, TraceKind::kSent, path, number, chunk.bytes, chunk.transmissions);

  // A window of a small part of a chunk and one late sample would else pause for many seconds.
  const TimeNs gap_ns =
      std::min(groups_[group].controller->gap_ns(chunk.bytes), options_.loss.rto_ns_max);
  if (gap_ns != 0) {
    // Whose turn it was, even if the path is another's: else it would never have to wait.
    groups_[asked].pace_ns = std::max(now, groups_[asked].pace_ns) + gap_ns;
  }
  std::uint32_t pull_target = 0;
  out.is_speculative = false;
  if (credit_) {
    out.is_speculative = credit_->is_speculating();
    flags |= out.is_speculative ? kFlagSpeculative : 0;
    credit_->on_sent(chunk.bytes);
    pull_target = credit_->tell_target(credit_backlog_bytes());
  }
  if (asks_for_ack(group, chunk, avoid != kNoPath)) {
    flags |= kFlagAckRequest;
  }
  if (!timers_.is_set(Timer::kRetransmit)) {
    timers_.set(Timer::kRetransmit, now + loss_.rto_ns());
  }
  // A light chunk's comes before one that was set for the traffic before it.
  if (const TimeNs probe_ns = timers_.at(Timer::kTailProbe);
      options_.loss.tail_probe && (probe_ns == kNever || loss_.counts_as_light(chunk))) {
    timers_.set(Timer::kTailProbe, std::min(probe_ns, now + loss_.tail_probe_ns(chunk)));
  }
  request_credit_if_stuck(now);

  flags |= chunk.flags;
  flags |= state_ == ConnectionState::kDraining ? kFlagClosing : 0;
  if (owes_advert_ack()) {
    note_told_known(std::min(expand(chunk.slot, told_known_) + 1, outgoing_.known_adverts()));
  }
  fill_data(now, number, flags, pull_target, out);
}

/// At the end of data that the peer waits for, and where nothing more may leave until then.
[[gnu::always_inline]] inline bool Connection::asks_for_ack(std::uint32_t group, const Chunk& chunk,
                                                            bool is_again) {
  const bool is_last = flight_.first_lost() == Flight::kNoChunk &&
                       (outgoing_.cutting() == IndexList::kNone || flight_.is_full());
  const bool is_patient = is_lazy() && outgoing_.at(chunk.message).is_patient;
  owes_request_ = owes_request_ || is_again || state_ == ConnectionState::kDraining || !is_patient;
  const bool asks = (is_last && owes_request_) || !has_room(group, wire().chunk_bytes) ||
                    (credit_ && !credit_->can_send());
  owes_request_ = owes_request_ && !asks;
  return asks;
}

[[gnu::always_inline]] inline void Connection::fill_data(TimeNs now, std::uint64_t number,
                                                         std::uint8_t flags,
                                                         std::uint32_t pull_target,
                                                         Transmission& out) {
  const Chunk& chunk = flight_.at(number);
  const PathId path = chunk.path;
  const DataHeader data{static_cast<std::uint32_t>(number), chunk.slot, chunk.offset, chunk.bytes,
                        pull_target};
  out.header_bytes = static_cast<std::uint8_t>(
      encode_data(common(now, PacketType::kData, flags, path), data, out.header));
  const Outgoing& send = outgoing_.at(chunk.message);
  out.payload = send.data == nullptr ? nullptr : send.data + send.stride.at(chunk.offset);
  out.payload_bytes = chunk.bytes;
  // Once: what is sent again may have been in time, and its receive be over.
  out.remote = {};
  if (send.remote.key != 0 && chunk.transmissions == 1 && !options_.authenticates_payload) {
    out.remote = {send.remote.address + chunk.offset, send.remote.key};
  }
  out.peer = options_.peer;
  out.path = path;
  out.rail = static_cast<std::uint8_t>(path % wire().rails);
  out.is_control = false;
  out.ecn_capable = true;
  seal(out, options_.authenticates_payload && out.payload != nullptr
                ? std::span<const std::byte>(out.payload, out.payload_bytes)
                : std::span<const std::byte>());
}

CommonHeader Connection::common(TimeNs now, PacketType type, std::uint8_t flags, PathId path) {
  CommonHeader header;
  header.type = type;
  header.flags = flags;
  header.path = path;
  header.connection = options_.remote_id;
  header.number = static_cast<std::uint32_t>(next_packet_++);
  header.stamp = static_cast<std::uint32_t>(now);
  return header;
}

void Connection::seal(Transmission& out, std::span<const std::byte> payload) {
  if (options_.authenticates) {
    const std::span<std::byte> header(out.header.data(), out.header_bytes);
    write_tag(header, sent_tags_.tag_of(header, payload, next_packet_ - 1));
  }
}

bool Connection::tell_group(Group& group, std::uint64_t order) {
  if (order < group.told_order) {
    return false;
  }
  group.told_order = flight_.orders();
  group.told_episode = loss_.episode();
  return true;
}

void Connection::lose(TimeNs now, std::uint64_t number, LossCause cause) {
  Chunk& chunk = flight_.at(number);
  const PathId path = chunk.path;
  const std::uint32_t index = group_of(path);
  Group& group = groups_[index];
  const bool is_timeout = cause == LossCause::kTimeout;
  trace(now, TraceKind::kLost, path, number, chunk.bytes, static_cast<std::uint64_t>(cause));
  loss_.on_lost(now, flight_, number);
  chunk.was_overdue = cause == LossCause::kRack && loss_.knows_lateness();
  inflight_bytes_[index] -= chunk.bytes;
  flight_.lose(number);
  Feedback feedback;
  feedback.now = now;
  feedback.bytes = chunk.bytes;
  feedback.srtt_ns = loss_.rtt().srtt_ns();
  feedback.inflight_bytes = inflight_bytes_[index];
  if (policy_ && policy_.hooks().on_loss != nullptr) {
    tell_policy(policy_.hooks().on_loss, now,
                {number, 0, chunk.bytes, path, chunk.transmissions, 0});
  }
  if (cause == LossCause::kTrim) {
    return;  // on_trimmed_echo tells the path and the controller, as it knows more.
  }
  note_path(now, path, paths_.on_loss(now, path, is_timeout));
  counters_.lost_same_path += cause == LossCause::kSamePath ? 1 : 0;
  counters_.lost_rack += cause == LossCause::kRack || cause == LossCause::kGap ? 1 : 0;
  counters_.lost_timeout += is_timeout ? 1 : 0;
  // A path that loses everything while others deliver says nothing about congestion.
  const bool is_path_fault =
      paths_.alive() > 1 && paths_[path].losses_in_a_row >= PathTable::kLossesToSuspect;
  if (is_timeout) {
    group.timed_out_bytes += chunk.bytes;
  } else if (!is_path_fault) {
    feedback.is_new_episode = tell_group(group, chunk.order);
    group.controller->on_loss(feedback);
  }
  trace_window(now, index);
}

}  // namespace tutti::transport
