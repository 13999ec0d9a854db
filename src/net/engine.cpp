// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/engine.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "base/descriptors.hpp"
#include "base/pause.hpp"
#include "base/thread.hpp"
#include "net/clock.hpp"
#include "net/fork_closed_fds.hpp"
#include "net/thread.hpp"
#include "transport/packet.hpp"

namespace tutti::net {
namespace {

using transport::kNever;
using transport::Outcome;
using transport::TimeNs;

/// A turn sends and receives little: acknowledgements and adverts must not wait for long data
/// before them. Looking for more work between turns costs less than a short packet.
constexpr Bytes kBytesPerTurn = 128 << 10;
constexpr std::size_t kPacketsPerTurn = 8;
constexpr int kLastTurns = 512;  ///< To read what a dead peer has left in the socket.
/// Largest send that leaves before arrived packets are read and answered, bytes.
constexpr Bytes kShortBytes = 16 << 10;
constexpr std::uint32_t kSmallBytes = 1024;  ///< Header and payload; more is not worth a copy.
/// Packets are piggybacked as long as all of them fit into a datagram of the usual length.
constexpr std::size_t kTogetherBytes = 1400;
constexpr TimeNs kHoldNs = 2'000;  ///< Of a spinning thread, for the caller's answer.
constexpr int kPauses = 2;         ///< Of a spinning thread, between looks: up to 0.1 us.
/// A spinning thread that has not turned for this time has no processor.
constexpr TimeNs kLateNs = 50'000;
constexpr TimeNs kCrowdedNs = 100'000'000;  ///< How long a crowded thread does not spin.
constexpr TimeNs kNapNs = 500'000;
constexpr TimeNs kBlockedNs = 100'000;       ///< Until a wire without room is tried again.
constexpr TimeNs kLookNs = 10'000'000;       ///< Between looks at the peers' TCP connections.
constexpr TimeNs kForgetNs = 2'000'000'000;  ///< How long an ended connection still answers.
/// The close of a receiver may overtake its last acknowledgement, or that may be lost, and the
/// sender would then take delivered data for lost. For this time the sender's probes are still
/// answered, unless it sends its close message before.
constexpr TimeNs kCloseLingerNs = 500'000'000;
/// How long the last round before the end of the process answers what has arrived:
/// acknowledgements may still wait to be piggybacked, and another thread may be working.
constexpr TimeNs kLastAnswersNs = 500'000;
constexpr TimeNs kAnswerLockNs = 50'000'000;
/// How long a peer that was declared dead may take to answer a close: it may be back.
constexpr TimeNs kDeadPeerLingerNs = 250'000'000;
constexpr char kCloseByte = 'B';
/// Of a context: which part of the request, whose address has zeros there.
constexpr std::uint64_t kPartMask = transport::kReceivePartsMax - 1;
static_assert(alignof(Request) > kPartMask);
/// In place of the part: the context of an eager send, whose buffer number is in the other bits.
/// Other sends have one part, and it is 0.
constexpr std::uint64_t kEagerPart = 1;
constexpr std::uint64_t kEagerUnit = kPartMask + 1;

bool is_small(const transport::Transmission& it) {
  return it.header_bytes + it.payload_bytes <= kSmallBytes;
}

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
                std::max(capabilities_.ps_per_byte / capabilities_.rails, 1U), options.trace),
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
  auto connection = endpoint_.connect(now_ns(), with_peer);
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
  if (!sub->has_ended) {
    if (aborts || sub->open_requests > 0 || is_close_needless(*sub)) {
      break_off(*sub);
    } else {
      // From now on the end of the TCP connection is orderly.
      if (sub->control >= 0) {
        (void)::send(sub->control, &kCloseByte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      drop_blocked_data();
      const bool has_peer_closed =
          sub->split == nullptr ? sub->has_peer_closed : sub->split->has_peer_closed.load();
      if (sub->receives && !has_peer_closed) {
        sub->close_ns = now_ns() + kCloseLingerNs;
      } else {
        (void)endpoint_.close(now_ns(), sub->connection);
      }
      if (sub->is_peer_dead) {
        sub->break_off_ns = now_ns() + kDeadPeerLingerNs;
      }
    }
  }
  work();
  has_more_ = true;
  if (sub->has_ended && sub->forget_ns == kNever) {
    sub->forget_ns = now_ns() + kForgetNs;
    --subs_in_use_;
  }
  wake(Sleep::kDeep);
}

void Engine::post(Request* request) {
  if (options_.trace != nullptr) [[unlikely]] {
    request->posted_ns = now_ns();
  }
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
  if (!spins_ || asleep_.load() != Sleep::kAwake ||
      now_ns() > turned_ns_.load(std::memory_order_relaxed) + kLateNs) {
    work_if_free();
  }
}

void Engine::wait_for_round() { const CallerLock lock(mutex_, wanted_); }

void Engine::work_if_free() {
  helped_ns_.store(now_ns(), std::memory_order_relaxed);
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

void Engine::answer_all() {
  // A thread that the end of the process has stopped may hold the lock for ever.
  const TimeNs hopeless_ns = now_ns() + kAnswerLockNs;
  TimeNs until_ns = kNever;
  while (now_ns() < std::min(until_ns, hopeless_ns)) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) {
      until_ns = std::min(until_ns, now_ns() + kLastAnswersNs);
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
    if (!sub->has_ended) {
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

void Engine::run() {
  TimeNs idle_since_ns = now_ns();
  TimeNs crowded_until_ns = 0;
  while (!stop_) {
    while (wanted_.load() > 0) {
      sched_yield();
    }
    const TimeNs now = now_ns();
    turned_ns_.store(now, std::memory_order_relaxed);
    bool did = false;
    // Start of an idle turn. If it is long, another thread is assumed to have had the processor.
    TimeNs begin_ns = now;
    if (!is_helped(now)) {
      const std::lock_guard lock(mutex_);
      begin_ns = now_ns();  // Waiting for the lock does not count.
      did = work();
    }
    if (did) {
      idle_since_ns = now;
      continue;
    }
    // Also without open requests: waking up takes longer than a short collective does.
    if (spins_ && (now < idle_since_ns || now - idle_since_ns < options_.spin_ns)) {
      // Leaves the socket's lock and the other hardware thread to threads that have work.
      for (int i = 0; i < kPauses && posted_.load(std::memory_order_relaxed) == 0; ++i) {
        pause_briefly();
      }
      if (now_ns() - begin_ns > options_.preempted_ns) {
        // Spinning while other threads wait for the processor takes it from those with work.
        spins_ = false;
        crowded_until_ns = now + kCrowdedNs;
        ++times_crowded_;
      }
      continue;
    }
    sleep();
    idle_since_ns = now_ns();
    spins_ = options_.is_busy && idle_since_ns > crowded_until_ns;
  }
}

/// Callers have done the work recently, and still have open requests.
bool Engine::is_helped(TimeNs now) const {
  const TimeNs helped_ns = helped_ns_.load(std::memory_order_relaxed);
  return !spins_ && open_requests_.load() > 0 && now < helped_ns + kNapNs;
}

void Engine::sleep() {
  const TimeNs now = now_ns();
  // While callers do the work, they read what arrives, and the lock is left to them.
  const bool naps = is_helped(now);
  TimeNs until_ns = now + kNapNs;
  // Set before the deadlines are read: a thread that changes one afterwards wakes this one.
  asleep_ = naps ? Sleep::kNap : Sleep::kDeep;
  if (!naps) {
    const std::lock_guard lock(mutex_);
    if (has_more_) {  // A caller came just before and saw this thread awake.
      asleep_ = Sleep::kAwake;
      return;
    }
    until_ns = std::min({endpoint_.next_deadline(), wire_->next_deadline(), watch_ns()});
    if (is_blocked_) {
      until_ns = std::min(until_ns, now + kBlockedNs);
    }
    for (const std::unique_ptr<SubConnection>& sub : subs_) {
      until_ns = std::min({until_ns, sub->forget_ns, sub->close_ns, sub->break_off_ns});
    }
  }
  pollfd descriptors[] = {
      {wake_fd_, POLLIN, 0}, {controls_, POLLIN, 0}, {wire_->file_descriptor(), POLLIN, 0}};
  timespec timeout{};
  if (until_ns != kNever) {
    const TimeNs left_ns = until_ns > now ? until_ns - now : 0;
    timeout.tv_sec = static_cast<time_t>(left_ns / 1'000'000'000U);
    timeout.tv_nsec = static_cast<long>(left_ns % 1'000'000'000U);
  }
  // A post between the last look at the inbox and asleep_ has not woken this thread.
  const bool has_news =
      posted_.load() != 0 || options_.dead_peers->version() != dead_peers_version_;
  if ((naps || !has_news) && !stop_) {
    ppoll(descriptors, naps ? 1 : 3, until_ns == kNever ? nullptr : &timeout, nullptr);
  }
  asleep_ = Sleep::kAwake;
  has_news_of_peers_ = has_news_of_peers_ || descriptors[1].revents != 0 || !naps;
  std::uint64_t count = 0;
  (void)!read(wake_fd_, &count, sizeof count);
}

void Engine::wake(Sleep at_least) {
  if (wake_fd_ >= 0 && asleep_.load() >= at_least) {
    const std::uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof one);
  }
}

bool Engine::work() {
  bool did = take_posted();
  if (std::exchange(has_new_send_, false)) {
    transmit_first(now_ns());
  }
  has_more_ = false;
  did |= receive();
  const TimeNs now = now_ns();
  if (endpoint_.next_deadline() <= now) {
    endpoint_.handle_timeout(now);
    did = true;
  }
  wire_->handle_timeout(now);
  did |= take_events();
  did |= transmit(now);
  if (options_.dead_peers->version() != dead_peers_version_) {
    apply_dead_peers(now);
  }
  if (now - looked_ns_ > kLookNs || has_news_of_peers_) {
    looked_ns_ = now;
    has_news_of_peers_ = false;
    look_after_peers(now);
  }
  watch(now, did);
  return did;
}

/// Whether a turn that has moved `bytes` goes on. Posts may also be work from other engines.
bool Engine::may_go_on(Bytes bytes) const {
  return bytes < kShortBytes || (bytes < kBytesPerTurn && posted_.load() == 0);
}

bool Engine::receive() {
  arrived_bytes_ = 0;
  std::size_t packets = 0;
  while (packets < kPacketsPerTurn && may_go_on(arrived_bytes_) && wire_->receive(*this, 1) > 0) {
    ++packets;
  }
  return packets > 0;
}

bool Engine::take_posted() {
  if (posted_.load() == 0) {
    return false;
  }
  {
    const std::lock_guard lock(inbox_mutex_);
    taken_.swap(inbox_);
    taken_news_.swap(news_);
    posted_ = 0;
  }
  // A caller that posts a receive often posts a send next: it must not wait for the advert.
  hold_ns_ = taken_.empty() ? 0 : now_ns() + kHoldNs;
  for (const Post& post : taken_) {
    SubConnection& sub = *post.sub;
    if (post.request == nullptr || post.request->is_send) {
      hold_ns_ = 0;
      // A long send would delay reading what has arrived, and gains nothing by leaving first.
      has_new_send_ =
          has_new_send_ || (post.request != nullptr && post.request->send.bytes <= kShortBytes);
    }
    if (post.request == nullptr) {
      (void)endpoint_.expect(now_ns(), sub.connection, post.slot);
      continue;
    }
    std::deque<Post>& waiting = post.request->is_send ? sub.waiting_sends : sub.waiting_receives;
    ++sub.open_requests;
    if (sub.index == 0) {
      post.request->is_accepted = true;
    }
    if (!waiting.empty() || !post_now(post)) {
      waiting.push_back(post);
    }
  }
  taken_.clear();
  for (const std::shared_ptr<SplitConnection>& split : taken_news_) {
    look_after(*split);
  }
  taken_news_.clear();
  return true;
}

/// False: there is no room for it now.
bool Engine::post_now(const Post& post) {
  SubConnection& sub = *post.sub;
  Request* const request = post.request;
  if (sub.has_ended || sub.is_peer_gone) {
    finish(sub, request, sub.outcome == Outcome::kOk ? Outcome::kClosed : sub.outcome, 0);
    return true;
  }
  const TimeNs now = now_ns();
  // Of several sub-connections, the others may be closed while this one still has eager sends.
  const bool is_eager = request->is_send && sub.split == nullptr && !sub.eager.is_full() &&
                        options_.eager_bytes_max > 0 &&
                        request->send.bytes <= options_.eager_bytes_max;
  const auto send_part = [&] {
    if (sub.split == nullptr) {
      return is_eager ? eager_send(sub, request) : request->send;
    }
    const transport::SplitLayout& layout = sub.split->layout;
    return sub.index == 0 ? layout.first_part(request->send)
                          : layout.other_part(request->send, sub.index, post.slot);
  };
  Status status;
  if (request->is_send) {
    const transport::SendRequest send = send_part();
    status = endpoint_.post_send(now, sub.connection, send);
    if (is_eager && !status.ok()) {
      sub.eager.give_back(static_cast<std::uint32_t>(send.context / kEagerUnit));
      --eager_sends_;
    }
  } else {
    status = endpoint_.post_receive(now, sub.connection, request->receive);
  }
  if (status.code() == ErrorCode::kTimeout) {
    return false;
  }
  if (!status.ok()) {
    const bool is_too_long = status.code() == ErrorCode::kInvalidArgument;
    finish(sub, request, is_too_long ? Outcome::kTruncated : Outcome::kClosed, 0);
  }
  return true;
}

/// The send of a copy of the request's bytes.
transport::SendRequest Engine::eager_send(SubConnection& sub, Request* request) {
  transport::SendRequest send = request->send;
  send.is_patient = sub.eager.has_plenty();
  const std::uint32_t copy = sub.eager.take(send.data, send.bytes, request);
  ++eager_sends_;
  send.data = sub.eager.data(copy);
  send.context = copy * kEagerUnit + kEagerPart;
  send.tells_match = true;
  return send;
}

void Engine::take_eager_event(SubConnection& sub, const transport::Event& event) {
  const auto copy = static_cast<std::uint32_t>(event.context / kEagerUnit);
  Request* const request = sub.eager.release(copy);
  if (request != nullptr) {
    const bool is_matched = event.kind == transport::EventKind::kSendMatched;
    const Bytes bytes = is_matched ? request->send.bytes : event.part_bytes[0];
    request->bytes[0].store(bytes, std::memory_order_relaxed);
    request->parts = 1;
    answer(sub, request, event.outcome, bytes);
    has_answer_ = true;
  }
  if (event.kind == transport::EventKind::kSendDone) {
    drop_blocked_of({sub.eager.data(copy), EagerBuffers::kBytesMax});
    sub.eager.give_back(copy);
    --eager_sends_;
    post_waiting(sub);
  }
}

void Engine::post_waiting(SubConnection& sub) {
  for (std::deque<Post>* waiting : {&sub.waiting_receives, &sub.waiting_sends}) {
    while (!waiting->empty() && post_now(waiting->front())) {
      waiting->pop_front();
    }
  }
}

/// A send that has just been posted leaves before adverts and acknowledgements to other peers, each
/// of which costs a datagram; those to the same peer are piggybacked.
void Engine::transmit_first(TimeNs now) {
  transport::Transmission data;
  if (together_count_ > 0 || has_next_ || !endpoint_.poll_data(now, &data)) {
    return;
  }
  std::size_t bytes = data.header_bytes + data.payload_bytes + transport::kHeaderBytesMax;
  transport::Transmission other;
  bool has_other = false;
  while (bytes <= kTogetherBytes && together_count_ + 1 < together_.size() && !has_other &&
         endpoint_.poll_control(now, &other)) {
    has_other = other.peer != data.peer || transport::is_path_probe(other);
    if (!has_other) {
      together_[together_count_++] = other;
      bytes += other.header_bytes;
    }
  }
  next_ = data;
  if (is_small(data)) {
    add_piggybacks();
  }
  together_[together_count_++] = data;
  flush();
  next_ = other;
  has_next_ = has_other;
}

bool Engine::transmit(TimeNs now) {
  // A caller that has just received a message often answers it: one datagram then carries the
  // answer, the acknowledgement and the advert of the next receive. Not if the answer was an eager
  // send that is complete already: then no caller has to come back.
  const bool is_left_alone = std::exchange(has_answer_, false) && open_requests_.load() == 0;
  if (std::exchange(has_finished_, false) && !is_left_alone) {
    hold_ns_ = now + kHoldNs;
    if (!spins_) {
      return true;  // The caller does the next round.
    }
  }
  const bool holds = spins_ && now < hold_ns_;
  if (is_blocked_ && !flush()) {
    return false;
  }
  std::size_t packets = 0;
  Bytes bytes = 0;
  for (; packets < kPacketsPerTurn && may_go_on(bytes); ++packets) {
    has_next_ = has_next_ || (holds ? endpoint_.poll_data(now_ns(), &next_)
                                    : endpoint_.poll_transmit(now_ns(), &next_));
    if (!has_next_) {
      break;
    }
    bytes += next_.payload_bytes;
    const bool is_alone =
        together_count_ > 0 && (!is_small(next_) || next_.peer != together_[0].peer);
    if (is_alone && !flush()) {
      return true;
    }
    if (is_small(next_)) {
      add_piggybacks();
    }
    together_[together_count_++] = next_;
    has_next_ = false;
    // A datagram has one path: that of its data, or of the probe in it.
    const bool has_path = !next_.is_control || transport::is_path_probe(next_);
    if ((has_path || !is_small(next_) || together_count_ == together_.size()) && !flush()) {
      return true;
    }
  }
  flush();
  return packets > 0 || holds;
}

/// Piggybacks packets that may wait on `next_`. They go before it: the last one sets the path.
void Engine::add_piggybacks() {
  const TimeNs now = now_ns();
  std::size_t bytes = next_.header_bytes + next_.payload_bytes + transport::kHeaderBytesMax;
  for (std::size_t i = 0; i < together_count_; ++i) {
    bytes += together_[i].header_bytes;
  }
  while (bytes <= kTogetherBytes && together_count_ + 1 < together_.size() &&
         endpoint_.poll_piggyback(now, next_, &together_[together_count_])) {
    bytes += together_[together_count_++].header_bytes;
  }
}

/// False: the wire has no room; the rest stays in together_.
bool Engine::flush() {
  const std::size_t taken =
      together_count_ == 0 ? 0 : wire_->send_together({together_.data(), together_count_});
  std::copy(together_.begin() + static_cast<std::ptrdiff_t>(taken),
            together_.begin() + static_cast<std::ptrdiff_t>(together_count_), together_.begin());
  together_count_ -= taken;
  is_blocked_ = together_count_ > 0;
  return !is_blocked_;
}

bool Engine::take_events() {
  bool did = false;
  transport::Event event;
  while (endpoint_.poll_event(&event)) {
    did = true;
    SubConnection& sub = *sub_of_[event.connection.index];
    if (event.kind == transport::EventKind::kConnectionDone) {
      end(sub, event.outcome);
      continue;
    }
    const std::uint64_t first_part = event.context & kPartMask;
    if (event.kind != transport::EventKind::kReceiveDone && first_part == kEagerPart) {
      take_eager_event(sub, event);
      continue;
    }
    auto* const request = reinterpret_cast<Request*>(event.context & ~kPartMask);
    if (event.kind == transport::EventKind::kSendMatched) {
      share_out(sub, request, event.slot);
      continue;
    }
    Bytes bytes = 0;
    for (std::size_t i = 0; i < event.part_count; ++i) {
      bytes += event.part_bytes[i];
      std::atomic<Bytes>& sum = request->bytes[first_part + i];
      if (sub.split == nullptr) {
        sum.store(event.part_bytes[i], std::memory_order_relaxed);
      } else {
        sum.fetch_add(event.part_bytes[i], std::memory_order_relaxed);
      }
    }
    if (sub.index == 0) {
      request->parts = event.part_count;
      if (!request->is_send) {
        count_others(sub, request, event);
      }
    }
    finish(sub, request, event.outcome, bytes);
    post_waiting(sub);
  }
  return did;
}

/// Completes a sub-connection's part of a request. Most requests have one part.
void Engine::finish(SubConnection& sub, Request* request, Outcome outcome, Bytes bytes) {
  if (request->is_send) {
    drop_blocked_of({request->send.data, request->send.bytes});  // The buffer is released.
  }
  has_finished_ = has_finished_ || sub.index == 0;
  const bool fails_with_connection = outcome == Outcome::kAborted || outcome == Outcome::kReset ||
                                     outcome == Outcome::kUnreachable;
  if (fails_with_connection && sub.split == nullptr && !sub.is_over) {
    sub.outcome = outcome;
    sub.is_over = true;
  }
  answer(sub, request, outcome, bytes);
}

/// Releases a sub-connection's part of a request.
void Engine::answer(SubConnection& sub, Request* request, Outcome outcome, Bytes bytes) {
  if (options_.trace != nullptr) [[unlikely]] {
    trace_end(sub, *request, outcome, bytes);
  }
  // Receives are posted on sub-connection 0 alone.
  if (request->is_send || sub.index == 0) {
    --sub.open_requests;
    --open_requests_;
  }
  settle(sub, request, outcome);
}

void Engine::end(SubConnection& sub, Outcome outcome) {
  add(totals_, endpoint_.counters(sub.connection));
  sub.is_counted = true;
  if (!sub.is_over) {
    sub.outcome = outcome;
  }
  sub.has_ended = true;
  sub.is_over = true;
  show(sub, now_ns());
  for (std::deque<Post>* waiting : {&sub.waiting_receives, &sub.waiting_sends}) {
    for (const Post& post : *waiting) {
      finish(sub, post.request, outcome == Outcome::kOk ? Outcome::kClosed : outcome, 0);
    }
    waiting->clear();
  }
  note_end(sub);
  if (outcome == Outcome::kUnreachable) {
    // Its other connections will not end by themselves, and the program may wait for them.
    options_.dead_peers->add(sub.peer_device);
  }
  if (sub.is_detached && sub.forget_ns == kNever) {
    sub.forget_ns = now_ns() + kForgetNs;
    --subs_in_use_;
  }
}

void Engine::break_off(SubConnection& sub) {
  drop_blocked_data();
  (void)endpoint_.abort(now_ns(), sub.connection);
  take_events();
}

/// Drops packets that the wire had no room for and that point into a buffer of the caller. The
/// receiver sees a loss; control packets have no buffer and are kept.
template <class IsDropped>
void Engine::drop_blocked(IsDropped is_dropped) {
  const auto end = together_.begin() + static_cast<std::ptrdiff_t>(together_count_);
  const auto kept = std::remove_if(together_.begin(), end, is_dropped);
  together_count_ = static_cast<std::size_t>(kept - together_.begin());
  has_next_ = has_next_ && !is_dropped(next_);
  is_blocked_ = together_count_ > 0;
}

/// Other sends' packets stay: each that is dropped is sent again when it is missed.
void Engine::drop_blocked_of(std::span<const std::byte> buffer) {
  drop_blocked([buffer](const transport::Transmission& packet) {
    const std::less<> is_before;
    return !packet.is_control && packet.payload_bytes > 0 &&
           !is_before(packet.payload, buffer.data()) &&
           is_before(packet.payload, buffer.data() + buffer.size());
  });
}

/// Drops the data of all buffers.
void Engine::drop_blocked_data() {
  drop_blocked([](const transport::Transmission& packet) { return !packet.is_control; });
}

/// Of a channel that is closed here: the peer has closed it, too, and waits for nothing more, or
/// its process has ended and cannot answer.
bool Engine::is_close_needless(const SubConnection& sub) {
  return sub.has_peer_closed && (sub.eager.used() > 0 || sub.is_peer_disconnected);
}

/// Reads the last packets of a peer that has ended: they may hold acknowledgements.
void Engine::take_what_is_left() {
  for (int i = 0; i < kLastTurns && wire_->receive(*this, kPacketsPerTurn) > 0; ++i) {
  }
  take_events();
}

/// Applies what this engine or another one has found.
void Engine::apply_dead_peers(TimeNs now) {
  dead_peers_version_ = options_.dead_peers->version();
  for (const auto& sub : subs_) {
    sub->is_peer_dead = options_.dead_peers->contains(sub->peer_device);
    if (sub->is_peer_dead && sub->is_detached && sub->break_off_ns == kNever) {
      sub->break_off_ns = now + kDeadPeerLingerNs;
    }
  }
}

void Engine::look_after_peers(TimeNs now) {
  epoll_event events[16];
  const int count = epoll_wait(controls_, events, 16, 0);
  for (int i = 0; i < count; ++i) {
    SubConnection& sub = *static_cast<SubConnection*>(events[i].data.ptr);
    char byte = 0;
    const ssize_t got = recv(sub.control, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      continue;
    }
    // After the close message only the end of the connection can follow.
    sub.is_peer_disconnected = sub.has_peer_closed || got != 1 || byte != kCloseByte;
    sub.has_peer_closed = sub.has_peer_closed || !sub.is_peer_disconnected;
    if (sub.is_peer_disconnected) {
      if (!sub.has_ended && (!sub.has_peer_closed || sub.is_detached)) {
        take_what_is_left();
      }
      epoll_ctl(controls_, EPOLL_CTL_DEL, sub.control, nullptr);
    }
    if (!sub.has_peer_closed && !sub.has_ended) {
      sub.is_peer_gone = true;
      break_off(sub);
    } else if (sub.is_detached && is_close_needless(sub) && !sub.has_ended) {
      break_off(sub);
    } else if (sub.close_ns != kNever) {
      sub.close_ns = now;
    }
    if (sub.split != nullptr) {
      tell_of_peer(sub);
    }
  }
  forget_old(now);
}

void Engine::forget_old(TimeNs now) {
  for (std::size_t i = 0; i < subs_.size();) {
    SubConnection& sub = *subs_[i];
    if (sub.break_off_ns <= now) {
      sub.break_off_ns = kNever;
      if (!sub.has_ended) {
        break_off(sub);
      }
    }
    if (sub.close_ns <= now) {
      sub.close_ns = kNever;
      if (!sub.has_ended) {
        (void)endpoint_.close(now, sub.connection);
      }
    }
    if (sub.forget_ns > now) {
      ++i;
      continue;
    }
    // A child that another library forked past our handler may hold the connection open: the peer
    // must see its end all the same.
    if (sub.control >= 0) {
      epoll_ctl(controls_, EPOLL_CTL_DEL, sub.control, nullptr);
      shutdown(sub.control, SHUT_RDWR);
      remove_fork_closed_fd(sub.control);
      close(sub.control);
    }
    if (sub.split != nullptr) {
      sub.split->subs[sub.index] = nullptr;
    }
    wire_->remove_peer(sub.wire_peer);
    unwatch_sub(sub);
    if (sub_of_[sub.connection.index] == &sub) {
      sub_of_[sub.connection.index] = nullptr;
    }
    subs_[i] = std::move(subs_.back());
    subs_.pop_back();
  }
}

std::byte* Engine::place(std::span<const std::byte> header, std::uint32_t payload_bytes) {
  return endpoint_.place(header, payload_bytes);
}

void Engine::arrived(const transport::Arrival& arrival) {
  arrived_bytes_ += arrival.payload_bytes;
  endpoint_.handle_datagram(now_ns(), arrival);
}

}  // namespace tutti::net
