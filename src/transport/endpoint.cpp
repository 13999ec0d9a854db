// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/endpoint.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"
#include "transport/connection.hpp"

namespace tutti::transport {

Endpoint::Endpoint(const EndpointLimits& limits, std::uint32_t ps_per_byte, TraceSink* trace)
    : pacer_(limits.connections, ps_per_byte),
      slots_(limits.connections),
      ids_(std::bit_ceil(2 * limits.connections + 2), kNone),
      wheel_(limits.connections + 1),
      controls_(limits.connections),
      data_(limits.connections),
      events_(limits.connections),
      trace_(trace) {
  CHECK(limits.connections > 0 && limits.connections < 1U << 30, "connections");
  piggybacks_.reserve(limits.connections);
}

Endpoint::~Endpoint() = default;

Result<ConnectionHandle> Endpoint::connect(TimeNs now, const ConnectionOptions& options) {
  now = clamp(now);
  if (find(options.local_id) != kNone && !retire(find(options.local_id))) {
    return Status(ErrorCode::kInvalidArgument, "transport connection: local_id " +
                                                   std::to_string(options.local_id) + " is in use");
  }
  const std::uint32_t index = free_slot();
  if (index == kNone) {
    return Status(ErrorCode::kUnavailable,
                  "transport: all connections of the endpoint are in "
                  "use; raise EndpointLimits::connections");
  }
  TUTTI_ASSIGN_OR_RETURN(auto connection, Connection::make(now, options, index, pacer_, trace_));
  Slot& slot = slots_[index];
  slot.connection = std::move(connection);
  ++slot.generation;
  insert(options.local_id, index);
  return ConnectionHandle{index, slot.generation};
}

Connection* Endpoint::at(ConnectionHandle handle) const {
  if (handle.index >= slots_.size() || handle.generation == 0 ||
      slots_[handle.index].generation != handle.generation) {
    return nullptr;
  }
  return slots_[handle.index].connection.get();
}

template <class Call>
Status Endpoint::apply(TimeNs now, ConnectionHandle handle, Call&& call) {
  Connection* connection = at(handle);
  if (connection == nullptr) {
    return Status(ErrorCode::kUnavailable, "transport: the connection has ended");
  }
  now = clamp(now);
  Status status = call(*connection, now);
  settle(now, handle.index);
  return status;
}

Status Endpoint::post_send(TimeNs now, ConnectionHandle connection, const SendRequest& request) {
  return apply(now, connection,
               [&](Connection& it, TimeNs at) { return it.post_send(at, request); });
}

Status Endpoint::post_receive(TimeNs now, ConnectionHandle connection,
                              const ReceiveRequest& request) {
  return apply(now, connection,
               [&](Connection& it, TimeNs at) { return it.post_receive(at, request); });
}

Status Endpoint::expect(TimeNs now, ConnectionHandle connection, std::uint64_t slot) {
  return apply(now, connection, [&](Connection& it, TimeNs at) { return it.expect(at, slot); });
}

Status Endpoint::cancel_send(TimeNs now, ConnectionHandle connection, std::uint64_t context) {
  return apply(now, connection,
               [&](Connection& it, TimeNs at) { return it.cancel_send(at, context); });
}

Status Endpoint::cancel_receive(TimeNs now, ConnectionHandle connection, std::uint64_t context) {
  return apply(now, connection,
               [&](Connection& it, TimeNs at) { return it.cancel_receive(at, context); });
}

Status Endpoint::close(TimeNs now, ConnectionHandle connection) {
  return apply(now, connection, [](Connection& it, TimeNs at) { return it.close(at); });
}

Status Endpoint::abort(TimeNs now, ConnectionHandle connection) {
  return apply(now, connection, [](Connection& it, TimeNs at) { return it.abort(at); });
}

bool Endpoint::poll_transmit(TimeNs now, Transmission* out) {
  return (!controls_.is_empty() && poll_control(now, out)) || poll_data(now, out);
}

const ConnectionCounters* Endpoint::counters(ConnectionHandle connection) const {
  const Connection* it = at(connection);
  return it == nullptr ? nullptr : &it->counters();
}

ConnectionStatus Endpoint::status(ConnectionHandle connection) const {
  const Connection* it = at(connection);
  return it == nullptr ? ConnectionStatus{} : it->status();
}

PathCounters Endpoint::path_counters(ConnectionHandle connection, PathId path) const {
  const Connection* it = at(connection);
  return it == nullptr ? PathCounters{} : it->path_counters(path);
}

std::byte* Endpoint::place(std::span<const std::byte> header, std::uint32_t payload_bytes) {
  std::uint32_t id = 0;
  const std::uint32_t index = decode_connection(header, id) ? find(id) : kNone;
  return index == kNone ? nullptr : slots_[index].connection->place(header, payload_bytes);
}

void Endpoint::handle_datagram(TimeNs now, const Arrival& arrival) {
  now = clamp(now);
  std::uint32_t id = 0;
  if (!decode_connection(arrival.header, id)) {
    ++counters_.malformed_dropped;
    return;
  }
  const std::uint32_t index = find(id);
  if (index == kNone) {
    ++counters_.strays_dropped;
    return;
  }
  slots_[index].connection->on_arrival(now, arrival);
  settle(now, index);
}

void Endpoint::handle_timeout(TimeNs now) {
  now = clamp(now);
  std::uint32_t item = 0;
  while (wheel_.pop(now, &item)) {
    if (item == slots_.size()) {
      grant(now);
    } else {
      slots_[item].connection->on_timeout(now);
      settle(now, item);
    }
  }
}

bool Endpoint::poll_control(TimeNs now, Transmission* out) {
  now = clamp(now);
  while (!controls_.is_empty()) {
    const std::uint32_t index = controls_.front();
    Connection& connection = *slots_[index].connection;
    const bool is_filled = connection.poll_control(now, *out);
    controls_.pop();
    settle(now, index);
    if (is_filled) {
      return true;
    }
  }
  return false;
}

bool Endpoint::poll_piggyback(TimeNs now, const Transmission& with, Transmission* out) {
  now = clamp(now);
  for (const std::uint32_t index : piggybacks_) {
    Connection& connection = *slots_[index].connection;
    if (connection.peer() == with.peer && connection.poll_piggyback(now, with.is_control, *out)) {
      settle(now, index);
      return true;
    }
  }
  return false;
}

bool Endpoint::poll_data(TimeNs now, Transmission* out) {
  now = clamp(now);
  while (!data_.is_empty()) {
    const std::uint32_t index = data_.front();
    Connection& connection = *slots_[index].connection;
    if (!connection.can_still_send(now)) {
      data_.remove_front();
      settle(now, index);
      continue;
    }
    if (!data_.may_take(connection.chunk_bytes())) {
      continue;  // The next one's turn.
    }
    connection.poll_data(now, *out);
    data_.take(out->payload_bytes);
    note_needs(now, index, connection);  // A chunk that leaves ends nothing and grants nothing.
    return true;
  }
  return false;
}

bool Endpoint::poll_event(Event* out) {
  while (!events_.is_empty()) {
    const std::uint32_t index = events_.front();
    if (slots_[index].connection->take_event(*out)) {
      out->connection = {index, slots_[index].generation};
      return true;
    }
    events_.pop();
    if (slots_[index].connection->is_forgettable()) {
      forget(index);
    }
  }
  return false;
}

void Endpoint::check_invariants() const {
  for (const Slot& slot : slots_) {
    if (slot.connection) {
      slot.connection->check_invariants();
    }
  }
}

TimeNs Endpoint::clamp(TimeNs now) {
  now_ = std::max(now_, now);
  return now_;
}

[[gnu::always_inline]] inline void Endpoint::note_needs(TimeNs now, std::uint32_t index,
                                                        Connection& connection) {
  if (connection.control_due()) {
    controls_.push(index);
  }
  if (connection.can_send(now)) {
    data_.add(index);
  }
  if (const bool has_one = connection.has_piggyback();
      has_one != (slots_[index].piggyback != kNone)) {
    set_piggyback(index, has_one);
  }
  wheel_.set(index, connection.next_deadline());
}

void Endpoint::settle(TimeNs now, std::uint32_t index) {
  Connection& connection = *slots_[index].connection;
  note_needs(now, index, connection);
  wheel_.set(static_cast<std::uint32_t>(slots_.size()), pacer_.next_ns());
  events_.push(index);
  if (connection.is_forgettable()) {
    forget(index);
  }
}

void Endpoint::set_piggyback(std::uint32_t index, bool is_pending) {
  std::uint32_t& place = slots_[index].piggyback;
  if (is_pending == (place != kNone)) {
    return;
  }
  if (is_pending) {
    place = static_cast<std::uint32_t>(piggybacks_.size());
    piggybacks_.push_back(index);
    return;
  }
  piggybacks_[place] = piggybacks_.back();
  slots_[piggybacks_[place]].piggyback = place;
  piggybacks_.pop_back();
  place = kNone;
}

void Endpoint::grant(TimeNs now) {
  for (CreditPacer::Grant grant = pacer_.grant(now); grant.connection != kNone;
       grant = pacer_.grant(now)) {
    slots_[grant.connection].connection->on_granted(grant.is_slow);
    controls_.push(grant.connection);
  }
  wheel_.set(static_cast<std::uint32_t>(slots_.size()), pacer_.next_ns());
}

std::uint32_t Endpoint::free_slot() {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].connection) {
      return i;
    }
  }
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (retire(i)) {
      return i;
    }
  }
  return kNone;
}

bool Endpoint::retire(std::uint32_t index) {
  if (!slots_[index].connection->can_be_replaced()) {
    return false;
  }
  forget(index);
  return true;
}

void Endpoint::forget(std::uint32_t index) {
  controls_.remove(index);
  data_.remove(index);
  events_.remove(index);
  set_piggyback(index, false);
  wheel_.set(index, kNever);
  erase(slots_[index].connection->local_id());
  slots_[index].connection.reset();
  wheel_.set(static_cast<std::uint32_t>(slots_.size()), pacer_.next_ns());
}

std::uint32_t Endpoint::find(std::uint32_t id) const {
  for (std::size_t i = home(id); ids_[i] != kNone; i = (i + 1) & (ids_.size() - 1)) {
    if (slots_[ids_[i]].connection->local_id() == id) {
      return ids_[i];
    }
  }
  return kNone;
}

void Endpoint::insert(std::uint32_t id, std::uint32_t index) {
  std::size_t i = home(id);
  while (ids_[i] != kNone) {
    i = (i + 1) & (ids_.size() - 1);
  }
  ids_[i] = index;
}

void Endpoint::erase(std::uint32_t id) {
  std::size_t i = home(id);
  while (slots_[ids_[i]].connection->local_id() != id) {
    i = (i + 1) & (ids_.size() - 1);
  }
  ids_[i] = kNone;
  // Those behind it in the run may have been pushed over its place.
  for (i = (i + 1) & (ids_.size() - 1); ids_[i] != kNone; i = (i + 1) & (ids_.size() - 1)) {
    const std::uint32_t moved = std::exchange(ids_[i], kNone);
    insert(slots_[moved].connection->local_id(), moved);
  }
}

}  // namespace tutti::transport
