// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/endpoint.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "transport/connection.hpp"
#include "transport/credit.hpp"
#include "transport/round_robin.hpp"
#include "transport/timing_wheel.hpp"

namespace tutti::transport {

class Endpoint::Core {
 public:
  Core(const EndpointLimits& limits, std::uint32_t ps_per_byte, TraceSink* trace)
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

  Result<ConnectionHandle> connect(TimeNs now, const ConnectionOptions& options) {
    now = clamp(now);
    if (find(options.local_id) != kNone && !retire(find(options.local_id))) {
      return Status(
          ErrorCode::kInvalidArgument,
          "transport connection: local_id " + std::to_string(options.local_id) + " is in use");
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

  /// The connection, or null for a void handle.
  Connection* at(ConnectionHandle handle) const {
    if (handle.index >= slots_.size() || handle.generation == 0 ||
        slots_[handle.index].generation != handle.generation) {
      return nullptr;
    }
    return slots_[handle.index].connection.get();
  }

  template <class Call>
  Status apply(TimeNs now, ConnectionHandle handle, Call&& call) {
    Connection* connection = at(handle);
    if (connection == nullptr) {
      return Status(ErrorCode::kUnavailable, "transport: the connection has ended");
    }
    now = clamp(now);
    Status status = call(*connection, now);
    settle(now, handle.index);
    return status;
  }

  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) {
    std::uint32_t id = 0;
    const std::uint32_t index = decode_connection(header, id) ? find(id) : kNone;
    return index == kNone ? nullptr : slots_[index].connection->place(header, payload_bytes);
  }

  void handle_datagram(TimeNs now, const Arrival& arrival) {
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

  void handle_timeout(TimeNs now) {
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

  TimeNs next_deadline() const { return wheel_.next(); }

  bool poll_control(TimeNs now, Transmission* out) {
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

  bool poll_piggyback(TimeNs now, const Transmission& with, Transmission* out) {
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

  bool poll_data(TimeNs now, Transmission* out) {
    now = clamp(now);
    while (!data_.is_empty()) {
      const std::uint32_t index = data_.front();
      Connection& connection = *slots_[index].connection;
      if (!connection.can_send(now)) {
        data_.remove_front();
        settle(now, index);
        continue;
      }
      if (!data_.may_take(connection.chunk_bytes())) {
        continue;  // The next one's turn.
      }
      connection.poll_data(now, *out);
      data_.take(out->payload_bytes);
      settle(now, index);
      return true;
    }
    return false;
  }

  bool poll_event(Event* out) {
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

  const EndpointCounters& counters() const { return counters_; }

  void check_invariants() const {
    for (const Slot& slot : slots_) {
      if (slot.connection) {
        slot.connection->check_invariants();
      }
    }
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    std::uint32_t piggyback = kNone;  ///< Index in piggybacks_.
  };

  TimeNs clamp(TimeNs now) {
    now_ = std::max(now_, now);
    return now_;
  }

  /// After anything that may have changed what the connection needs.
  void settle(TimeNs now, std::uint32_t index) {
    Connection& connection = *slots_[index].connection;
    if (connection.control_due()) {
      controls_.push(index);
    }
    if (connection.can_send(now)) {
      data_.add(index);
    }
    set_piggyback(index, connection.has_piggyback());
    wheel_.set(index, connection.next_deadline());
    wheel_.set(static_cast<std::uint32_t>(slots_.size()), pacer_.next_ns());
    events_.push(index);
    if (connection.is_forgettable()) {
      forget(index);
    }
  }

  void set_piggyback(std::uint32_t index, bool is_pending) {
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

  void grant(TimeNs now) {
    for (CreditPacer::Grant grant = pacer_.grant(now); grant.connection != kNone;
         grant = pacer_.grant(now)) {
      slots_[grant.connection].connection->on_granted(grant.is_slow);
      controls_.push(grant.connection);
    }
    wheel_.set(static_cast<std::uint32_t>(slots_.size()), pacer_.next_ns());
  }

  std::uint32_t free_slot() {
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

  /// Frees a connection that only waits for a late peer.
  bool retire(std::uint32_t index) {
    if (!slots_[index].connection->can_be_replaced()) {
      return false;
    }
    forget(index);
    return true;
  }

  void forget(std::uint32_t index) {
    controls_.remove(index);
    data_.remove(index);
    events_.remove(index);
    set_piggyback(index, false);
    wheel_.set(index, kNever);
    erase(slots_[index].connection->local_id());
    slots_[index].connection.reset();
    wheel_.set(static_cast<std::uint32_t>(slots_.size()), pacer_.next_ns());
  }

  // Local id to index: open addressing with linear probing, never more than half full.
  std::size_t home(std::uint32_t id) const { return (id * 0x9e3779b1U) & (ids_.size() - 1); }
  std::uint32_t find(std::uint32_t id) const {
    for (std::size_t i = home(id); ids_[i] != kNone; i = (i + 1) & (ids_.size() - 1)) {
      if (slots_[ids_[i]].connection->local_id() == id) {
        return ids_[i];
      }
    }
    return kNone;
  }
  void insert(std::uint32_t id, std::uint32_t index) {
    std::size_t i = home(id);
    while (ids_[i] != kNone) {
      i = (i + 1) & (ids_.size() - 1);
    }
    ids_[i] = index;
  }
  void erase(std::uint32_t id) {
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

  CreditPacer pacer_;  ///< Outlives the connections, which take leave of it.
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> ids_;
  TimingWheel wheel_;  ///< One item for each connection, one more for the pacer.
  IndexQueue controls_;
  RoundRobin data_;
  IndexQueue events_;
  std::vector<std::uint32_t> piggybacks_;  ///< Connections with one, in any order.
  TraceSink* trace_;
  TimeNs now_ = 0;
  EndpointCounters counters_;
};

Endpoint::Endpoint(const EndpointLimits& limits, std::uint32_t ps_per_byte, TraceSink* trace)
    : core_(std::make_unique<Core>(limits, ps_per_byte, trace)) {}

Endpoint::~Endpoint() = default;

Result<ConnectionHandle> Endpoint::connect(TimeNs now, const ConnectionOptions& options) {
  return core_->connect(now, options);
}

Status Endpoint::post_send(TimeNs now, ConnectionHandle connection, const SendRequest& request) {
  return core_->apply(now, connection,
                      [&](Connection& it, TimeNs at) { return it.post_send(at, request); });
}

Status Endpoint::post_receive(TimeNs now, ConnectionHandle connection,
                              const ReceiveRequest& request) {
  return core_->apply(now, connection,
                      [&](Connection& it, TimeNs at) { return it.post_receive(at, request); });
}

Status Endpoint::expect(TimeNs now, ConnectionHandle connection, std::uint64_t slot) {
  return core_->apply(now, connection,
                      [&](Connection& it, TimeNs at) { return it.expect(at, slot); });
}

Status Endpoint::cancel_send(TimeNs now, ConnectionHandle connection, std::uint64_t context) {
  return core_->apply(now, connection,
                      [&](Connection& it, TimeNs at) { return it.cancel_send(at, context); });
}

Status Endpoint::cancel_receive(TimeNs now, ConnectionHandle connection, std::uint64_t context) {
  return core_->apply(now, connection,
                      [&](Connection& it, TimeNs at) { return it.cancel_receive(at, context); });
}

Status Endpoint::close(TimeNs now, ConnectionHandle connection) {
  return core_->apply(now, connection, [](Connection& it, TimeNs at) { return it.close(at); });
}

Status Endpoint::abort(TimeNs now, ConnectionHandle connection) {
  return core_->apply(now, connection, [](Connection& it, TimeNs at) { return it.abort(at); });
}

std::byte* Endpoint::place(std::span<const std::byte> header, std::uint32_t payload_bytes) {
  return core_->place(header, payload_bytes);
}

void Endpoint::handle_datagram(TimeNs now, const Arrival& arrival) {
  core_->handle_datagram(now, arrival);
}

void Endpoint::handle_timeout(TimeNs now) { core_->handle_timeout(now); }

TimeNs Endpoint::next_deadline() const { return core_->next_deadline(); }

bool Endpoint::poll_transmit(TimeNs now, Transmission* out) {
  return core_->poll_control(now, out) || core_->poll_data(now, out);
}

bool Endpoint::poll_piggyback(TimeNs now, const Transmission& with, Transmission* out) {
  return core_->poll_piggyback(now, with, out);
}

bool Endpoint::poll_control(TimeNs now, Transmission* out) { return core_->poll_control(now, out); }

bool Endpoint::poll_data(TimeNs now, Transmission* out) { return core_->poll_data(now, out); }

bool Endpoint::poll_event(Event* out) { return core_->poll_event(out); }

const ConnectionCounters* Endpoint::counters(ConnectionHandle connection) const {
  const Connection* it = core_->at(connection);
  return it == nullptr ? nullptr : &it->counters();
}

ConnectionStatus Endpoint::status(ConnectionHandle connection) const {
  const Connection* it = core_->at(connection);
  return it == nullptr ? ConnectionStatus{} : it->status();
}

PathCounters Endpoint::path_counters(ConnectionHandle connection, PathId path) const {
  const Connection* it = core_->at(connection);
  return it == nullptr ? PathCounters{} : it->path_counters(path);
}

const EndpointCounters& Endpoint::counters() const { return core_->counters(); }

void Endpoint::check_invariants() const { core_->check_invariants(); }

}  // namespace tutti::transport
