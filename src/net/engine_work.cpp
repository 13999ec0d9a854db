// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A turn of an engine: requests taken, packets received and sent, requests completed.
#include "net/engine.hpp"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/pause.hpp"
#include "transport/packet.hpp"

namespace tutti::net {
namespace {

using transport::kNever;
using transport::Outcome;
using transport::TimeNs;

/// A turn sends and receives little: acknowledgements and adverts must not wait for long data
/// before them. Looking for more work between turns costs less than a short packet.
constexpr Bytes kBytesPerTurn = 128 << 10;
/// Largest send that leaves before arrived packets are read and answered, bytes.
constexpr Bytes kShortBytes = 16 << 10;
constexpr std::uint32_t kSmallBytes = 1024;  ///< Header and payload; more is not worth a copy.
/// Packets are piggybacked as long as all of them fit into a datagram of the usual length.
constexpr std::size_t kTogetherBytes = 1400;
constexpr TimeNs kHoldNs = 2'000;           ///< Of a spinning thread, for the caller's answer.
constexpr int kPauses = 2;                  ///< Of a spinning thread, between looks: up to 0.1 us.
constexpr TimeNs kCrowdedNs = 100'000'000;  ///< How long a crowded thread does not spin.
constexpr TimeNs kNapNs = 500'000;
constexpr TimeNs kBlockedNs = 100'000;  ///< Until a wire without room is tried again.
constexpr TimeNs kPolledNs = 50'000;    ///< Between looks at a wire that wakes nobody.
constexpr TimeNs kLookNs = 10'000'000;  ///< Between looks at the peers' TCP connections.
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

}  // namespace

void Engine::run() {
  TimeNs idle_since_ns = monotonic_ns();
  TimeNs crowded_until_ns = 0;
  while (!stop_) {
    while (wanted_.load() > 0) {
      sched_yield();
    }
    const TimeNs now = monotonic_ns();
    turned_ns_.store(now, std::memory_order_relaxed);
    bool did = false;
    // Start of an idle turn. If it is long, another thread is assumed to have had the processor.
    TimeNs begin_ns = now;
    if (!is_helped(now)) {
      const std::lock_guard lock(mutex_);
      begin_ns = monotonic_ns();  // Waiting for the lock does not count.
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
      if (monotonic_ns() - begin_ns > options_.preempted_ns) {
        // Spinning while other threads wait for the processor takes it from those with work.
        spins_ = false;
        crowded_until_ns = now + kCrowdedNs;
        ++times_crowded_;
      }
      continue;
    }
    sleep();
    idle_since_ns = monotonic_ns();
    spins_ = options_.is_busy && idle_since_ns > crowded_until_ns;
  }
}

/// Callers have done the work recently, and still have open requests.
bool Engine::is_helped(TimeNs now) const {
  const TimeNs helped_ns = helped_ns_.load(std::memory_order_relaxed);
  return !spins_ && open_requests_.load() > 0 && now < helped_ns + kNapNs;
}

void Engine::sleep() {
  const TimeNs now = monotonic_ns();
  // While callers do the work, they read what arrives, and the lock is left to them.
  const bool naps = is_helped(now);
  TimeNs until_ns = now + kNapNs;
  // Set before the deadlines are read: a thread that changes one afterwards wakes this one.
  asleep_ = naps ? Sleep::kNap : Sleep::kDeep;
  if (!naps) {
    const std::lock_guard lock(mutex_);
    // A caller came just before and saw this thread awake; or what is held back may go on.
    if (has_more_ || opens_windows_ || !held_.empty()) {
      asleep_ = Sleep::kAwake;
      return;
    }
    // Armed first: it may find what changes the deadlines.
    const TimeNs armed_ns = wire_->arm(now);
    until_ns = std::min({endpoint_.next_deadline(), wire_->next_deadline(), watch_ns()});
    if (armed_ns <= now || subs_in_use_.load() > 0) {
      until_ns = std::min(until_ns, armed_ns);
    }
    if (is_blocked_) {
      until_ns = std::min(until_ns, now + kBlockedNs);
    }
    if (wire_->file_descriptor() < 0 && subs_in_use_.load() > 0) {
      until_ns = std::min(until_ns, now + kPolledNs);
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
  if (std::exchange(opens_windows_, false)) {
    for (const std::unique_ptr<SubConnection>& sub : subs_) {
      post_waiting(*sub);
    }
    did = true;
  }
  if (std::exchange(has_new_send_, false)) {
    transmit_first(monotonic_ns());
  }
  has_more_ = false;
  did |= receive();
  const TimeNs now = monotonic_ns();
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
    did |= look_after_peers(now);
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
  hold_ns_ = taken_.empty() ? 0 : monotonic_ns() + kHoldNs;
  for (const Post& post : taken_) {
    SubConnection& sub = *post.sub;
    if (post.request == nullptr || post.request->is_send) {
      hold_ns_ = 0;
      // A long send would delay reading what has arrived, and gains nothing by leaving first.
      has_new_send_ =
          has_new_send_ || (post.request != nullptr && post.request->send.bytes <= kShortBytes);
    }
    if (post.request == nullptr) {
      (void)endpoint_.expect(monotonic_ns(), sub.connection, post.slot);
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
  if (sub.has_ended() || sub.is_peer_gone) {
    finish_waiting(sub, request, sub.outcome);
    return true;
  }
  if (request->is_on_device) {
    request->error = check_registered(*request);
    if (!request->error.ok()) {
      finish_waiting(sub, request, Outcome::kCancelled);
      return true;
    }
  }
  if (!request->flushed.empty()) {
    return start_flush(sub, request);
  }
  if (!request->is_send && !open_windows(sub, request)) {
    opens_windows_ = true;
    return false;
  }
  const TimeNs now = monotonic_ns();
  // Of several sub-connections, the others may be closed while this one still has eager sends.
  const bool is_eager = request->is_send && sub.split == nullptr && !sub.eager.is_full() &&
                        options_.eager_bytes_max > 0 && !request->is_on_device &&
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
    finish_waiting(sub, request, is_too_long ? Outcome::kTruncated : Outcome::kClosed);
  }
  return true;
}

bool Engine::is_on_device(const Request& request) const {
  const auto is_there = [&](const std::byte* data, Bytes bytes) {
    return bytes > 0 && options_.device_copies->device_of(data) >= 0;
  };
  if (request.is_send) {
    return is_there(request.send.data, request.send.bytes);
  }
  const auto& parts = request.receive.parts;
  return std::any_of(parts.begin(), parts.begin() + request.receive.part_count,
                     [&](const auto& part) { return is_there(part.data, part.capacity_bytes); });
}

/// The CPU may neither read nor write what is a GPU's: the NIC must reach it.
Status Engine::check_registered(const Request& request) const {
  const auto fits = [&](const std::byte* data, Bytes bytes) {
    return bytes == 0 || wire_->is_registered({data, bytes}) ||
           options_.device_copies->device_of(data) < 0;
  };
  const auto& parts = request.receive.parts;
  const bool do_fit =
      request.is_send
          ? fits(request.send.data, request.send.bytes)
          : std::all_of(parts.begin(), parts.begin() + request.receive.part_count,
                        [&](const auto& part) { return fits(part.data, part.capacity_bytes); });
  return do_fit ? Status()
                : Status(ErrorCode::kInvalidArgument,
                         std::string("net: a ") + (request.is_send ? "send from" : "receive into") +
                             " a GPU's memory that is not registered; remedy: register all of it "
                             "(regMr, regMrDmaBuf)");
}

/// Its end is held back until the GPU sees what has been written. False: there is no room now.
bool Engine::start_flush(SubConnection& sub, Request* request) {
  const Result<std::uint64_t> started = wire_->start_flush(request->flushed);
  if (!started.ok() && started.status().code() == ErrorCode::kTimeout) {
    opens_windows_ = true;  // It is tried again in the next turn.
    return false;
  }
  request->error = started.status();
  request->flush = started.ok() ? *started : 0;
  transport::Event event;
  event.kind = transport::EventKind::kReceiveDone;
  event.outcome = started.ok() ? Outcome::kOk : Outcome::kCancelled;
  event.context = request->receive.context;
  held_.push_back({&sub, event});
  return true;
}

/// Whether someone may still write into the memory of a receive that has ended, or the GPU may not
/// see yet what was written into that of a flush.
bool Engine::is_touched(Request* request) {
  if (!close_windows(request)) {
    return true;
  }
  if (request->flush != 0) {
    const Result<bool> has_flushed = wire_->has_flushed(request->flush);
    request->error = has_flushed.status();
    return has_flushed.ok() && !*has_flushed;
  }
  const auto& parts = request->receive.parts;
  return request->is_on_device &&
         std::any_of(parts.begin(), parts.begin() + request->receive.part_count,
                     [&](const auto& part) {
                       return wire_->is_copying_into({part.data, part.capacity_bytes});
                     });
}

/// Lets the peer's NIC write into long receives. False: not all of it is open yet.
bool Engine::open_windows(const SubConnection& sub, Request* request) {
  if (capabilities_.window_bytes_min == 0 || sub.split != nullptr ||
      request->window_state == Request::WindowState::kOpen) {
    return true;
  }
  const std::span parts(request->receive.parts.data(), request->receive.part_count);
  if (request->window_state == Request::WindowState::kNone) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool is_long = parts[i].capacity_bytes >= capabilities_.window_bytes_min &&
                           parts[i].stride.unit_bytes == 0;
      request->windows[i] =
          is_long ? wire_->open_window({parts[i].data, parts[i].capacity_bytes}) : 0;
    }
    const auto used = std::span(request->windows).first(parts.size());
    if (std::all_of(used.begin(), used.end(), [](std::uint64_t window) { return window == 0; })) {
      return true;
    }
    request->window_state = Request::WindowState::kOpening;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (request->windows[i] != 0 && !wire_->has_opened(request->windows[i], &parts[i].remote)) {
      return false;
    }
  }
  request->window_state = Request::WindowState::kOpen;
  return true;
}

/// False: a peer may still write into one of them.
bool Engine::close_windows(Request* request) {
  if (request->window_state == Request::WindowState::kNone) {
    return true;
  }
  const auto used = std::span(request->windows).first(request->receive.part_count);
  if (std::exchange(request->window_state, Request::WindowState::kClosing) !=
      Request::WindowState::kClosing) {
    for (const std::uint64_t window : used) {
      if (window != 0) {
        wire_->close_window(window);
      }
    }
  }
  bool are_closed = true;
  for (std::uint64_t& window : used) {
    if (window != 0 && wire_->has_closed(window)) {
      window = 0;
    }
    are_closed = are_closed && window == 0;
  }
  if (are_closed) {
    request->window_state = Request::WindowState::kNone;
  }
  return are_closed;
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
    has_next_ = has_next_ || (holds ? endpoint_.poll_data(monotonic_ns(), &next_)
                                    : endpoint_.poll_transmit(monotonic_ns(), &next_));
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
  const TimeNs now = monotonic_ns();
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
  std::uint64_t cookie = first_unsent_ + unsent_.size();
  for (std::size_t i = 0; i < together_count_; ++i) {
    together_[i].cookie = together_[i].payload == nullptr ? 0 : cookie++;
  }
  const std::size_t taken =
      together_count_ == 0 ? 0 : wire_->send_together({together_.data(), together_count_});
  for (std::size_t i = 0; capabilities_.sends_complete_late && i < taken; ++i) {
    if (together_[i].payload != nullptr) {
      unsent_.push_back(together_[i].payload);
    }
  }
  std::copy(together_.begin() + static_cast<std::ptrdiff_t>(taken),
            together_.begin() + static_cast<std::ptrdiff_t>(together_count_), together_.begin());
  together_count_ -= taken;
  is_blocked_ = together_count_ > 0;
  return !is_blocked_;
}

bool Engine::take_events() {
  bool did = !held_.empty();
  for (const HeldEvent& it : std::exchange(held_, {})) {
    take_event(*it.sub, it.event);
  }
  transport::Event event;
  while (endpoint_.poll_event(&event)) {
    did = true;
    take_event(*sub_of_[event.connection.index], event);
  }
  return did;
}

void Engine::take_event(SubConnection& sub, const transport::Event& event) {
  if (must_wait(sub, event)) {
    held_.push_back({&sub, event});
    return;
  }
  if (event.kind == transport::EventKind::kConnectionDone) {
    end(sub, event.outcome);
    return;
  }
  const std::uint64_t first_part = event.context & kPartMask;
  if (event.kind != transport::EventKind::kReceiveDone && first_part == kEagerPart) {
    take_eager_event(sub, event);
    return;
  }
  auto* const request = reinterpret_cast<Request*>(event.context & ~kPartMask);
  if (event.kind == transport::EventKind::kSendMatched) {
    share_out(sub, request, event.slot);
    return;
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

/// Whether the wire still reads bytes of a send that has ended, or a peer or a GPU may still write
/// into a receive that has: its caller may not have them yet. The end of the connection waits with
/// it.
bool Engine::must_wait(SubConnection& sub, const transport::Event& event) {
  if (event.kind == transport::EventKind::kConnectionDone) {
    return is_held(sub);
  }
  if (event.kind == transport::EventKind::kReceiveDone && sub.split == nullptr) {
    return is_touched(reinterpret_cast<Request*>(event.context & ~kPartMask));
  }
  if (event.kind != transport::EventKind::kSendDone) {
    return false;
  }
  std::span<const std::byte> buffer;
  if ((event.context & kPartMask) == kEagerPart) {
    const auto copy = static_cast<std::uint32_t>(event.context / kEagerUnit);
    buffer = {sub.eager.data(copy), EagerBuffers::kBytesMax};
  } else {
    const auto* const request = reinterpret_cast<const Request*>(event.context);
    buffer = {request->send.data, request->send.bytes};
  }
  drop_blocked_of(buffer);
  return std::any_of(unsent_.begin(), unsent_.end(), [&](const std::byte* payload) {
    return payload != nullptr && points_into(buffer, payload);
  });
}

bool Engine::is_held(const SubConnection& sub) const {
  return std::any_of(held_.begin(), held_.end(),
                     [&](const HeldEvent& it) { return it.sub == &sub; });
}

/// Completes a sub-connection's part of a request. Most requests have one part.
void Engine::finish(SubConnection& sub, Request* request, Outcome outcome, Bytes bytes) {
  has_finished_ = has_finished_ || sub.index == 0;
  const bool fails_with_connection = outcome == Outcome::kAborted || outcome == Outcome::kReset ||
                                     outcome == Outcome::kUnreachable;
  if (fails_with_connection && sub.split == nullptr && !sub.has_failed()) {
    sub.outcome = outcome;
    sub.state = SubConnection::State::kFailed;
  }
  answer(sub, request, outcome, bytes);
}

/// Of a request that the transport does not have. Its windows may be open, or opening.
void Engine::finish_waiting(SubConnection& sub, Request* request, Outcome outcome) {
  outcome = outcome == Outcome::kOk ? Outcome::kClosed : outcome;
  if (request->is_send || request->window_state == Request::WindowState::kNone) {
    finish(sub, request, outcome, 0);
    return;
  }
  transport::Event event;
  event.kind = transport::EventKind::kReceiveDone;
  event.outcome = outcome;
  event.context = request->receive.context;
  held_.push_back({&sub, event});
}

/// Releases a sub-connection's part of a request.
void Engine::answer(SubConnection& sub, Request* request, Outcome outcome, Bytes bytes) {
  if (options_.watch.trace != nullptr) [[unlikely]] {
    trace_end(sub, *request, outcome, bytes);
  }
  // Receives are posted on sub-connection 0 alone.
  if (request->is_send || sub.index == 0) {
    --sub.open_requests;
    --open_requests_;
  }
  settle(sub, request, outcome);
}

std::byte* Engine::place(std::span<const std::byte> header, std::uint32_t payload_bytes) {
  return endpoint_.place(header, payload_bytes);
}

void Engine::arrived(const transport::Arrival& arrival) {
  arrived_bytes_ += arrival.payload_bytes;
  endpoint_.handle_datagram(monotonic_ns(), arrival);
}

void Engine::sent(std::uint64_t cookie) {
  CHECK(cookie - first_unsent_ < unsent_.size(), std::to_string(cookie));
  unsent_[cookie - first_unsent_] = nullptr;
  while (!unsent_.empty() && unsent_.front() == nullptr) {
    unsent_.pop_front();
    ++first_unsent_;
  }
}

}  // namespace tutti::net
