// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Statistics and traces of an engine. Under its lock, but for publish().
//
// The thread or caller that drives the engine also writes its statistics: a round over all
// connections at most every interval, a few connections at a time. An engine whose statistics are
// behind when it goes idle wakes up once more for the rest, and then sleeps as without statistics.
//
// A connection of 64 paths takes about 4 us to write, of which 3 are the file's (measured on one
// core of a virtual machine), one that did nothing since the last round 0.01 us: 128 that all work
// cost a two-hundredth of a core.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/clock.hpp"
#include "net/engine.hpp"

namespace tutti::net {
namespace {

using transport::kNever;
using transport::TimeNs;

/// While there is work to do. It waits for these, so they are few.
constexpr std::size_t kSubConnectionsPerTurn = 4;
constexpr int kTriesToPublish = 1000;
constexpr auto kTimeOfATry = std::chrono::microseconds(100);

}  // namespace

void Engine::watch_sub(SubConnection& sub, const transport::ConnectionOptions& connection) {
  sub.local_id = connection.local_id;
  sub.opened_ns = monotonic_ns();
  sub.paths = connection.wire.paths;
  if (options_.watch.statistics != nullptr) {
    sub.slot = options_.watch.statistics->take();
    sub.number = options_.watch.statistics->next_number();
    has_changed_ = true;
  }
  if (options_.watch.trace != nullptr) {
    options_.watch.trace->open(sub.opened_ns, sub.local_id,
                               (sub.receives ? "from " : "to ") + sub.who + " (" + options_.device +
                                   " engine " + std::to_string(options_.number) + ")");
  }
}

void Engine::unwatch_sub(SubConnection& sub) {
  if (options_.watch.statistics != nullptr) {
    options_.watch.statistics->give_back(sub.slot);
    // Another sub-connection takes its place in the list, maybe behind the round's back.
    has_changed_ = true;
  }
  if (options_.watch.trace != nullptr) {
    options_.watch.trace->forget(monotonic_ns(), sub.local_id);
  }
}

void Engine::trace_end(const SubConnection& sub, const Request& request, transport::Outcome outcome,
                       Bytes bytes) {
  options_.watch.trace->request(request.posted_ns, monotonic_ns(), sub.local_id, request.is_send,
                                bytes, outcome);
}

TimeNs Engine::watch_ns() const {
  if (options_.watch.statistics == nullptr || (!has_changed_ && round_next_ == SIZE_MAX)) {
    return kNever;
  }
  return round_next_ != SIZE_MAX ? 0 : round_ns_ + options_.watch.statistics->interval_ns();
}

void Engine::watch(TimeNs now, bool did) {
  if (options_.watch.statistics == nullptr) {
    return;
  }
  has_changed_ |= did;
  if (round_next_ == SIZE_MAX) {
    if (!has_changed_ || now < watch_ns()) {
      return;
    }
    has_changed_ = false;
    round_ns_ = now;
    round_next_ = 0;
  }
  const std::size_t turn_end = did ? round_next_ + kSubConnectionsPerTurn : subs_.size();
  for (; round_next_ < std::min(turn_end, subs_.size()); ++round_next_) {
    show(*subs_[round_next_], now);
  }
  if (round_next_ >= subs_.size()) {
    round_next_ = SIZE_MAX;
    show_sum(now);
  }
}

bool Engine::publish() {
  ++wanted_;
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int i = 0; i < kTriesToPublish && !lock.owns_lock(); ++i) {
    std::this_thread::sleep_for(kTimeOfATry);
    (void)lock.try_lock();
  }
  --wanted_;
  if (!lock.owns_lock()) {
    return false;
  }
  if (options_.watch.statistics == nullptr) {
    return true;
  }
  for (const std::unique_ptr<SubConnection>& sub : subs_) {
    show(*sub, monotonic_ns());
  }
  show_sum(monotonic_ns());
  return true;
}

void Engine::show(const SubConnection& sub, TimeNs now) {
  const transport::ConnectionCounters* const counters = endpoint_.counters(sub.connection);
  if (sub.slot == EngineStatistics::kNoSlot || counters == nullptr) {
    return;
  }
  const RecordState state = sub.has_ended() ? RecordState::kEnded : RecordState::kOpen;
  const ConnectionRecord& last = options_.watch.statistics->last(sub.slot);
  if (last.state == state && last.open_requests == sub.open_requests &&
      std::memcmp(&last.counters, counters, sizeof *counters) == 0) {
    return;
  }
  const transport::ConnectionStatus status = endpoint_.status(sub.connection);
  ConnectionRecord record{};
  record.state = state;
  record.direction = sub.receives ? Direction::kReceives : Direction::kSends;
  record.number = sub.number;
  record.opened_ns = sub.opened_ns;
  record.updated_ns = now;
  set_text(record.peer, sub.who);
  record.counters = *counters;
  record.window_bytes = status.window_bytes;
  record.inflight_bytes = status.inflight_bytes;
  record.backlog_bytes = status.backlog_bytes;
  record.srtt_ns = status.srtt_ns;
  record.rtt_ns_min = status.rtt_ns_min == kNever ? 0 : status.rtt_ns_min;
  record.fabric_ns = status.fabric_ns;
  record.fabric_ns_min = status.fabric_ns_min == kNever ? 0 : status.fabric_ns_min;
  record.rto_ns = status.rto_ns;
  record.paths_alive = status.paths_alive;
  record.paths = sub.paths;
  record.open_requests = sub.open_requests;
  record.is_in_recovery = status.is_in_recovery ? 1 : 0;
  record.outcome = sub.outcome;
  path_records_.resize(std::min(sub.paths, options_.watch.statistics->paths_max()));
  for (std::size_t i = 0; i < path_records_.size(); ++i) {
    const transport::PathCounters path =
        endpoint_.path_counters(sub.connection, static_cast<transport::PathId>(i));
    path_records_[i] = {path.chunks_sent,
                        path.losses,
                        path.marks,
                        path.rtt_ns,
                        path.inflight_bytes,
                        static_cast<std::uint32_t>(path.state),
                        0};
  }
  options_.watch.statistics->write(sub.slot, record, path_records_);
}

void Engine::show_sum(TimeNs now) {
  EngineRecord record{};
  record.state = RecordState::kOpen;
  record.number = options_.number;
  record.updated_ns = now;
  record.connections = static_cast<std::uint32_t>(subs_.size());
  record.connections_left_out = static_cast<std::uint32_t>(
      std::count_if(subs_.begin(), subs_.end(), [](const std::unique_ptr<SubConnection>& sub) {
        return sub->slot == EngineStatistics::kNoSlot;
      }));
  record.speed_mbps = options_.speed_mbps;
  record.is_busy = options_.is_busy ? 1 : 0;
  record.fallbacks = fallbacks();
  set_text(record.device, options_.device);
  set_text(record.address, options_.address);
  set_text(record.controller, options_.controller);
  set_text(record.description, wire_->description());
  record.counters = sum();
  record.of_strangers = endpoint_.counters();
  record.wire = wire_->counters();
  options_.watch.statistics->write(record);
  if (options_.watch.event != nullptr) {
    options_.watch.event->signal();
  }
}

transport::ConnectionCounters Engine::sum() const {
  transport::ConnectionCounters sum = totals_;
  for (const std::unique_ptr<SubConnection>& sub : subs_) {
    add(sum, sub->has_ended() ? nullptr : endpoint_.counters(sub->connection));
  }
  return sum;
}

void Engine::add(transport::ConnectionCounters& sum, const transport::ConnectionCounters* one) {
  if (one == nullptr) {
    return;
  }
  // All of them are numbers of one type.
  using Numbers = std::array<std::uint64_t, sizeof sum / sizeof(std::uint64_t)>;
  Numbers numbers = std::bit_cast<Numbers>(sum);
  const Numbers more = std::bit_cast<Numbers>(*one);
  std::transform(numbers.begin(), numbers.end(), more.begin(), numbers.begin(), std::plus<>());
  sum = std::bit_cast<transport::ConnectionCounters>(numbers);
}

}  // namespace tutti::net
