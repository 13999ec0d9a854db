// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/engine.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/thread.hpp"
#include "net/fork_closed_fds.hpp"
#include "net/processors.hpp"

namespace tutti::net {
namespace {

using transport::kNever;
using transport::TimeNs;
/// A spinning thread that has not turned for this time has no processor.
constexpr TimeNs kLateNs = 50'000;
/// The close of a receiver may overtake its last acknowledgement, or that may be lost, and the
/// sender would then take delivered data for lost. For this time the sender's probes are still
/// answered, unless it sends its close message before.
constexpr TimeNs kCloseLingerNs = 500'000'000;
/// How long the last round before the end of the process answers what has arrived:
/// acknowledgements may still wait to be piggybacked, and another thread may be working.
constexpr TimeNs kLastAnswersNs = 500'000;
constexpr TimeNs kAnswerLockNs = 50'000'000;

/// Takes the lock for a caller that must have it: a spinning thread lets it go first.
class CallerLock {
 public:
  CallerLock(std::mutex& mutex, std::atomic<int>& wanted) : wanted_(wanted) {
    ++wanted_;
    lock_ = std::unique_lock(mutex);
    --wanted_;
  }

 private:
  std::atomic<int>& wanted_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

Engine::Engine(std::unique_ptr<wire::Wire> wire, const EngineOptions& options)
    : options_(options),
      wire_(std::move(wire)),
      address_(wire_->address()),
      capabilities_(wire_->capabilities()),
      endpoint_({.connections = options.connections},
                std::max(capabilities_.ps_per_byte / capabilities_.rails, 1U), options.watch.trace),
      sub_of_(options.connections) {}

void Engine::stop() {
  stop_ = true;
  if (thread_.joinable()) {
    wake(Sleep::kNap);
    thread_.join();
  }
}

Engine::~Engine() {
  stop();
  for (const std::unique_ptr<SubConnection>& sub : subs_) {
    if (sub->control >= 0) {
      remove_fork_closed_fd(sub->control);
      close(sub->control);
    }
  }
  for (const int descriptor : {wake_fd_, controls_}) {
    if (descriptor >= 0) {
      close(descriptor);
    }
  }
  wire_.reset();  // Before the eager buffers: it may still read them.
}

Status Engine::start() {
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  controls_ = epoll_create1(EPOLL_CLOEXEC);
  if (wake_fd_ < 0 || controls_ < 0) {
    return Status(ErrorCode::kUnavailable,
                  "net: no descriptors for an engine: " + why_no_descriptor());
  }
  options_.dead_peers->subscribe([this] { wake(Sleep::kDeep); });
  TUTTI_ASSIGN_OR_RETURN(thread_, start_thread(options_.name, [this] { run(); }));
  return bind_thread(thread_, options_.processors);
}

Result<SubConnection*> Engine::attach(const transport::ConnectionOptions& options, const Peer& peer,
                                      int control, const std::shared_ptr<SplitConnection>& split) {
  const CallerLock lock(mutex_, wanted_);
  TUTTI_ASSIGN_OR_RETURN(const std::uint64_t wire_peer,
                         wire_->add_peer(peer.address, peer.traffic_class));
  auto sub = std::make_unique<SubConnection>();
  sub->engine = this;
  sub->who = peer.who;
  sub->wire_peer = wire_peer;
  sub->peer_device = peer.device;
  sub->split = split;
  sub->index = split == nullptr ? 0 : split->index_of(this);
  sub->receives = options.receives;
  // Before the connection: one that is aborted at once would end with an event without
  // a sub-connection.
  const Status watched = control < 0 ? Status() : watch_control(*sub, control);
  if (!watched.ok()) {
    wire_->remove_peer(wire_peer);
    return watched;
  }
  transport::ConnectionOptions with_peer = options;
  with_peer.peer = wire_peer;
  auto connection = endpoint_.connect(monotonic_ns(), with_peer);
  if (!connection.ok()) {
    if (control >= 0) {
      epoll_ctl(controls_, EPOLL_CTL_DEL, control, nullptr);
      remove_fork_closed_fd(control);
    }
    wire_->remove_peer(wire_peer);
    return connection.status();
  }
  sub->connection = *connection;
  watch_sub(*sub, options);
  sub_of_[connection->index] = sub.get();
  ++subs_in_use_;
  options_.dead_peers->remove(peer.device);
  SubConnection* const attached = sub.get();
  subs_.push_back(std::move(sub));
  if (split != nullptr) {
    split->subs[attached->index] = attached;
    look_after(*split);
  }
  wake(Sleep::kDeep);
  return attached;
}

Status Engine::watch_control(SubConnection& sub, int control) {
  TUTTI_RETURN_IF_ERROR(add_fork_closed_fd(control));
  epoll_event interest{};
  interest.events = EPOLLIN | EPOLLRDHUP;
  interest.data.ptr = &sub;
  if (epoll_ctl(controls_, EPOLL_CTL_ADD, control, &interest) != 0) {
    const std::string why = std::strerror(errno);
    remove_fork_closed_fd(control);
    return Status(ErrorCode::kUnavailable, "net: cannot watch the peer's connection: " + why);
  }
  sub.control = control;
  return {};
}

Status Engine::adopt(SubConnection* sub, int control) {
  const CallerLock lock(mutex_, wanted_);
  TUTTI_RETURN_IF_ERROR(watch_control(*sub, control));
  const std::string silent = wire_->reach(sub->wire_peer).silent;
  if (!silent.empty() && options_.fallbacks != nullptr) {
    options_.fallbacks->add(options_.device, "rails on which no UDP datagram arrives: " + silent,
                            "let UDP pass there, or name the other interfaces alone");
  }
  wake(Sleep::kDeep);
  return {};
}

wire::Reach Engine::reach(SubConnection* sub) {
  const CallerLock lock(mutex_, wanted_);
  // Packets that have arrived count even if the engine's thread has had no processor.
  if (work()) {
    has_more_ = true;
    wake(Sleep::kDeep);
  }
  return wire_->reach(sub->wire_peer);
}

wire::Ends Engine::ends(SubConnection* sub) {
  const CallerLock lock(mutex_, wanted_);
  return wire_->ends(sub->wire_peer);
}

void Engine::detach(SubConnection* sub, bool aborts) {
  const CallerLock lock(mutex_, wanted_);
  take_posted();
  sub->is_detached = true;
  if (!sub->has_ended()) {
    if (aborts || sub->open_requests > 0 || is_close_needless(*sub)) {
      break_off(*sub);
    } else {
      // From now on the end of the TCP connection is orderly.
      if (sub->control >= 0) {
        (void)::send(sub->control, &kCloseByte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      drop_blocked_data();
      const PeerState peer = sub->split == nullptr ? sub->peer : sub->split->peer.load();
      if (sub->receives && !has_closed(peer)) {
        sub->close_ns = monotonic_ns() + kCloseLingerNs;
      } else {
        (void)endpoint_.close(monotonic_ns(), sub->connection);
      }
      if (options_.dead_peers->contains(sub->peer_device)) {
        sub->break_off_ns = monotonic_ns() + kDeadPeerLingerNs;
      }
    }
  }
  work();
  while (is_held(*sub)) {
    wire_->receive(*this, kPacketsPerTurn);
    wire_->handle_timeout(monotonic_ns());
    take_events();
  }
  has_more_ = true;
  if (sub->has_ended() && sub->forget_ns == kNever) {
    sub->forget_ns = monotonic_ns() + kForgetNs;
    --subs_in_use_;
  }
  wake(Sleep::kDeep);
}

Status Engine::register_memory(std::span<std::byte> memory) {
  const CallerLock lock(mutex_, wanted_);
  return wire_->register_memory(memory);
}

Status Engine::register_device_memory(wire::DeviceMemory memory) {
  wire::DeviceCopies* const copies = options_.device_copies.get();
  memory.device = copies == nullptr ? -1 : copies->device_of(memory.span.data());
  if (copies == nullptr) {
    return wire::Wire::no_device_memory();
  }
  if (memory.device < 0) {
    return register_memory(memory.span);  // Pinned or managed memory, in fact.
  }
  // Without the lock: it may take a while, and kernels that wait for this engine go on.
  TUTTI_RETURN_IF_ERROR(copies->prepare(memory.span.data()));
  const std::string shortfall = copies->shortfall(memory.device);
  if (!shortfall.empty() && options_.fallbacks != nullptr) {
    options_.fallbacks->add(options_.device, shortfall,
                            "a build with this GPU's kernels, and a driver that pins host memory");
  }
  const CallerLock lock(mutex_, wanted_);
  return wire_->register_device_memory(memory);
}

void Engine::deregister_memory(std::span<std::byte> memory) {
  const CallerLock lock(mutex_, wanted_);
  wire_->deregister_memory(memory);
}

void Engine::post(Request* request) {
  if (options_.watch.trace != nullptr) [[unlikely]] {
    request->posted_ns = monotonic_ns();
  }
  request->is_on_device = options_.device_copies != nullptr && is_on_device(*request);
  ++open_requests_;
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({request->sub, request});
    ++posted_;
  }
  // The advert of a receive can wait for what its caller does next: a send, or a test.
  const bool spins = spins_;
  if (request->is_send) {
    help();
  }
  wake(spins ? Sleep::kNap : Sleep::kDeep);
}

void Engine::help() {
  if (spins_ && asleep_.load() == Sleep::kAwake &&
      monotonic_ns() <= turned_ns_.load(std::memory_order_relaxed) + kLateNs) {
    return;
  }
  helped_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  do {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      // The owner of the lock looks at the inbox once more afterwards: a caller in this loop, the
      // thread before a deep sleep. While it naps, callers come, and the next one takes the work.
      return;
    }
    if (work()) {
      has_more_ = true;
      wake(Sleep::kDeep);  // What the thread sleeps for may have changed.
    }
  } while (posted_.load() != 0);
}

void Engine::wait_for_round() { const CallerLock lock(mutex_, wanted_); }

void Engine::answer_all() {
  // A thread that the end of the process has stopped may hold the lock for ever.
  const TimeNs hopeless_ns = monotonic_ns() + kAnswerLockNs;
  TimeNs until_ns = kNever;
  while (monotonic_ns() < std::min(until_ns, hopeless_ns)) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) {
      until_ns = std::min(until_ns, monotonic_ns() + kLastAnswersNs);
      has_finished_ = false;
      work();
    } else {
      sched_yield();
    }
  }
}

std::string Engine::awaited() {
  const CallerLock lock(mutex_, wanted_);
  std::string text;
  for (const std::unique_ptr<SubConnection>& sub : subs_) {
    if (!sub->has_ended()) {
      text += (text.empty() ? "" : "; ") + sub->who + (sub->receives ? ", receiving" : ", sending");
    }
  }
  return text;
}

std::string Engine::report() {
  const CallerLock lock(mutex_, wanted_);
  const transport::ConnectionCounters sum = this->sum();
  const wire::WireCounters& wire = wire_->counters();
  const auto text = [](const char* name, std::uint64_t value) {
    return std::string(", ") + name + " " + std::to_string(value);
  };
  return "chunks sent " + std::to_string(sum.chunks_sent) + text("received", sum.chunks_received) +
         text("acknowledgements received", sum.acks_received) +
         text("retransmissions", sum.retransmissions) +
         text("needless", sum.spurious_retransmissions) + text("lost in part", sum.nacks) +
         text("lost by their path", sum.lost_same_path) + text("by time", sum.lost_rack) +
         text("timeouts", sum.timeouts) + text("tail probes", sum.tail_probes) +
         text("marks", sum.marks) + text("path deaths", sum.path_deaths) +
         text("forged or malformed", sum.forgeries_dropped + sum.malformed_dropped) +
         text("datagrams sent", wire.datagrams_sent) + text("received", wire.datagrams_received) +
         text("calls sent", wire.calls_sent) + text("calls received", wire.calls_received) +
         text("bytes placed", wire.payload_bytes_placed) +
         text("bytes copied", wire.payload_bytes_copied) +
         text("fragments dropped", wire.fragments_dropped) + text("refused", wire.refused) +
         text("times without a processor", times_crowded_.load()) +
         text("fall-backs", fallbacks()) + wire_->report();
}

}  // namespace tutti::net
