// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/stream_calls.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::runners {

namespace {

constexpr auto kGlance = std::chrono::milliseconds(50);
/// Between looks at the peers, which cost system calls or the library's lock.
constexpr auto kLook = std::chrono::milliseconds(500);
/// How long the thread glances at nothing before it sleeps: waking it costs the next call.
constexpr int kIdleGlances = 20;
constexpr auto kDrainPause = std::chrono::microseconds(20);

/// At the end of the process, with calls that nobody waited for: the driver has ended them, and
/// what is told to end them would call into it, or into a library that goes away.
bool is_driver_gone(const Status& status) { return status.code() == ErrorCode::kUnavailable; }

}  // namespace

Status check_on_device(const Call& call, int device) {
  const auto fits = [&](const void* buffer, const device::PointerInfo& memory) {
    return buffer == nullptr || memory.is_usable_on(device);
  };
  if (fits(call.send, call.send_memory) && fits(call.recv, call.recv_memory)) {
    return {};
  }
  return Status(
      ErrorCode::kInvalidArgument,
      std::string(select::to_string(call.collective)) +
          ": a call on a stream takes memory of its communicator's GPU, which is number " +
          std::to_string(device) +
          ", and of its primary context; wait for the call to use other memory");
}

Result<device::Stream> stream_to_order(device::Api& api, int device, device::Stream stream) {
  TUTTI_RETURN_IF_ERROR(api.check_stream(stream, device));
  if (stream == nullptr) {
    return api.default_stream(device);  // Which cannot be captured, nor always be asked.
  }
  TUTTI_ASSIGN_OR_RETURN(const auto current, device::CurrentDevice::set(api, device, stream));
  TUTTI_ASSIGN_OR_RETURN(const bool is_captured, api.is_capturing(stream));
  return is_captured
             ? Status(ErrorCode::kUnsupported,
                      "a stream that is being captured has no order with others outside of its "
                      "graph")
             : Result<device::Stream>(stream);
}

/// The last calls of all communicators on one GPU.
struct StreamCalls::Line {
  struct Last {
    const StreamCalls* owner = nullptr;  ///< Null: gone.
    bool takes_turns = false;
    bool has_kernels = false;  ///< It, or what it stands behind.
    SharedEvent after;
  };

  /// For the life of the process. `api` lives as long, or ends when no call is in line: another one
  /// may come to its address.
  static Line& of(const device::Api& api, int device) {
    static std::mutex mutex;
    // Never destroyed: communicators may be freed after static destructors.
    static auto* const lines = new std::map<std::pair<const device::Api*, int>, Line>;
    const std::lock_guard lock(mutex);
    return (*lines)[{&api, device}];
  }
  /// What a call of `owner` that takes turns waits for.
  std::vector<SharedEvent> ahead_of(const StreamCalls* owner, Carrier carrier) {
    const std::lock_guard lock(mutex);
    std::vector<SharedEvent> ahead;
    for (const Last& last : in_flight) {
      if (last.owner != nullptr && last.owner != owner && last.takes_turns &&
          (carrier == Carrier::kKernels || last.has_kernels)) {
        ahead.push_back(last.after);
      }
    }
    return ahead;
  }
  /// The call was queued; `after` is its end, and that of all that its owner queued before.
  void join(const StreamCalls* owner, bool takes_turns, Carrier carrier, const SharedEvent& after) {
    const std::lock_guard lock(mutex);
    const auto found = std::find_if(in_flight.begin(), in_flight.end(),
                                    [&](const Last& last) { return last.owner == owner; });
    Last& last = found == in_flight.end() ? in_flight.emplace_back() : *found;
    const bool has_kernels = takes_turns && carrier == Carrier::kKernels;
    last = {owner, takes_turns, last.has_kernels || has_kernels, after};
  }
  /// That end has come, or may never come and its owner goes: nobody waits for it any more.
  void leave(const SharedEvent& after, bool is_over) {
    const std::lock_guard lock(mutex);
    std::erase_if(in_flight, [&](const Last& last) { return last.after == after; });
    if (!is_over) {
      in_flight.emplace_back().after = after;
    }
  }

  std::mutex mutex;
  std::vector<Last> in_flight;              ///< The last call of each owner; few.
  std::weak_ptr<void> order;                ///< Of graphs with calls of those that take turns.
  std::atomic<bool> has_order{false};       ///< There was one.
  std::vector<std::weak_ptr<void>> orders;  ///< That one, and those of others.
};

void StreamCalls::abandon(device::Api& api, int device, device::Stream stream) {
  auto after = GraphOrder::make_event(api, device);
  if (after.ok() && api.record_event(after->get(), stream).ok()) {
    Line::of(api, device).leave(*after, /*is_over=*/false);
  }
}

bool StreamCalls::is_quiet(device::Api& api, int device) {
  Line& line = Line::of(api, device);
  std::vector<SharedEvent> ends;
  {
    const std::lock_guard lock(line.mutex);
    for (const Line::Last& last : line.in_flight) {
      ends.push_back(last.after);
    }
    for (const std::weak_ptr<void>& order : line.orders) {
      if (SharedEvent event = order.lock()) {
        ends.push_back(std::move(event));
      }
    }
  }
  if (ends.empty()) {
    return true;
  }
  // Without the lock, which who queues takes: the driver may make this thread wait.
  const device::RelaxedCapture relaxed(api);
  for (const SharedEvent& end : ends) {
    const auto is_over = api.event_done(end.get());
    if (is_over.ok() && !*is_over) {  // A driver that has failed runs nothing.
      return false;
    }
  }
  const std::lock_guard lock(line.mutex);
  std::erase_if(line.in_flight, [&](const Line::Last& last) {
    return last.owner == nullptr && std::find(ends.begin(), ends.end(), last.after) != ends.end();
  });
  return true;
}

StreamCalls::~StreamCalls() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  for (Queued& call : calls_) {
    call.lease.abandon();  // Its kernel may still use it.
  }
  if (!calls_.empty()) {
    line_->leave(calls_.back().after, /*is_over=*/false);
  } else if (own_stream_ != nullptr) {
    Status ignored = api_->destroy_stream(own_stream_);
    static_cast<void>(ignored);
  }
}

void StreamCalls::join(Carrier carrier, device::Api& api, int device, Member member) {
  const std::lock_guard ending(members_mutex_);
  if (has_ended_) {
    for (const auto& step : {member.close, member.end}) {
      if (step) {
        step();
      }
    }
  }
  const std::lock_guard lock(mutex_);
  if (api_ == nullptr) {
    api_ = &api;
    device_ = device;
    line_ = &Line::of(api, device);
  }
  members_[index(carrier)] = std::move(member);
  is_closing_ = false;
}

void StreamCalls::leave(Carrier carrier) {
  static_cast<void>(status(/*wait=*/true));
  if (const Status failure = reason(); !failure.ok() && !is_driver_gone(failure)) {
    end(failure);
  }
  std::thread watch;
  {
    const std::lock_guard ending(members_mutex_);
    const std::lock_guard lock(mutex_);
    members_[index(carrier)] = {};
    if (std::all_of(members_.begin(), members_.end(), [](const Member& one) { return !one.end; })) {
      is_closing_ = true;  // Who waits for a call yet needs no watch.
      changed_.notify_all();
      watch = std::move(thread_);
    }
  }
  if (watch.joinable()) {
    watch.join();
  }
}

void StreamCalls::end(const Status& reason) {
  const std::lock_guard ending(members_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (has_ended_.exchange(true)) {
      return;
    }
    has_failed_ = true;
    failure_ = failure_.ok() ? reason : failure_;
  }
  for (const auto step : {&Member::close, &Member::end}) {
    for (const Member& member : members_) {
      if (member.*step != nullptr) {
        (member.*step)();
      }
    }
  }
}

Status StreamCalls::reason() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

StreamCalls::SharedEvent StreamCalls::order_of_graphs() {
  if (order_ == nullptr && line_->has_order && takes_turns()) {
    const std::lock_guard lock(line_->mutex);
    order_ = line_->order.lock();
  }
  return order_;
}

/// Behind what runs now, of all communicators that have the same.
Status StreamCalls::make_order() {
  TUTTI_ASSIGN_OR_RETURN(const SharedEvent made, GraphOrder::make_event(*api_, device_));
  std::vector<SharedEvent> ends;
  {
    const std::lock_guard lock(line_->mutex);
    order_ = takes_turns() ? line_->order.lock() : nullptr;
    if (order_ != nullptr) {
      return {};
    }
    order_ = made;
    for (const Line::Last& last : line_->in_flight) {
      if (last.owner == this || (last.owner != nullptr && takes_turns() && last.takes_turns)) {
        ends.push_back(last.after);
      }
    }
    std::erase_if(line_->orders, [](const auto& one) { return one.expired(); });
    line_->orders.emplace_back(order_);
    if (takes_turns()) {
      line_->order = order_;
      line_->has_order = true;
    }
  }
  if (ends.empty()) {
    return {};
  }
  TUTTI_ASSIGN_OR_RETURN(const device::Stream stream, own_stream());
  for (const SharedEvent& end : ends) {
    TUTTI_RETURN_IF_ERROR(api_->stream_wait_event(stream, end.get()));
  }
  return api_->record_event(order_.get(), stream);
}

Status StreamCalls::open_captured(Carrier carrier, device::Stream stream, bool* is_behind_other) {
  {
    const std::lock_guard lock(mutex_);
    TUTTI_RETURN_IF_ERROR(failure_);
    has_queued_ = members_[index(carrier)].has_queued = true;
    wake_watch();
  }
  if (!members_[index(Carrier::kKernels)].orders_graphs) {
    return {};
  }
  if (order_of_graphs() == nullptr) {
    TUTTI_RETURN_IF_ERROR(make_order());
  }
  if (!graphs_.has_event()) {
    graphs_.use(*api_, device_, order_);
  }
  forget_graphs();
  TUTTI_RETURN_IF_ERROR(graphs_.open(stream, static_cast<int>(carrier), is_behind_other));
  *is_behind_other = *is_behind_other && members_[1 - index(carrier)].end;
  has_captured_[index(carrier)] = true;
  return {};
}

Status StreamCalls::failed_before(Carrier carrier) const {
  return Status(ErrorCode::kLibraryFailed,
                std::string(members_[index(carrier)].name) +
                    ": this communicator failed before: " + reason().message());
}

Status StreamCalls::check(Carrier carrier) const {
  return !has_ended_ ? Status() : has_queued_ ? reason() : failed_before(carrier);
}

void StreamCalls::recycle(Queued& call) {
  if (call.after != nullptr) {
    line_->leave(call.after, /*is_over=*/true);
  }
  call.previous.reset();
  for (SharedEvent* const event : {&call.before, &call.after}) {
    // Another communicator's thread may be about to wait for it: it must not be recorded anew.
    if (event->use_count() == 1) {
      free_.push_back(std::move(*event));
    }
  }
}

Status StreamCalls::show(Carrier carrier) {
  const std::lock_guard lock(mutex_);
  TUTTI_RETURN_IF_ERROR(failure_);
  if (const Member& member = members_[index(carrier)];
      member.timeout_s > 0 || member.look != nullptr) {  // Else nothing would be looked for.
    wake_watch();                                        // First: there may be no thread.
  }
  queueing_ = {carrier, Clock::now()};
  return {};
}

Status StreamCalls::begin(Queued* call) {
  const std::lock_guard lock(mutex_);
  TUTTI_RETURN_IF_ERROR(failure_);
  has_queued_ = members_[index(call->carrier)].has_queued = true;
  ++unasked_;
  // glance() comes first where somebody asks before each call.
  const bool is_due = unasked_ > 2 * kUnaskedMax || holds_memory_;
  if (Status status = is_due ? reap() : Status(); !status.ok()) {
    fail(status);
    return status;
  }
  last_ = call->carrier;
  if (!calls_.empty()) {
    call->previous = calls_.back().after;
    call->previous_stream_id = calls_.back().stream_id;
  }
  for (SharedEvent* const wanted : {&call->before, &call->after}) {
    if (!free_.empty()) {
      *wanted = std::move(free_.back());
      free_.pop_back();
    }
  }
  wake_watch();  // First: there may be no thread for it.
  queueing_ = {call->carrier, Clock::now()};
  return {};
}

void StreamCalls::wake_watch() {
  if (!thread_.joinable()) {
    last_look_ = Clock::now();
    thread_ = std::thread([this] { watch(); });
  } else if (is_asleep_ || is_end_due_) {
    changed_.notify_all();
  }
}

Status StreamCalls::open(device::Stream stream, Queued* call) {
  std::vector<SharedEvent> ahead;
  if (members_[index(call->carrier)].takes_turns) {
    ahead = line_->ahead_of(this, call->carrier);
  }
  call->stream_id = api_->stream_id(stream);
  if (SharedEvent previous = std::exchange(call->previous, nullptr);
      previous != nullptr &&
      (call->stream_id == 0 || call->stream_id != call->previous_stream_id)) {
    ahead.push_back(std::move(previous));  // On its own stream the call is behind it anyway.
  }
  for (const SharedEvent& other : ahead) {
    TUTTI_RETURN_IF_ERROR(api_->stream_wait_event(stream, other.get()));
  }
  call->order = order_of_graphs();
  if (call->order != nullptr) {
    TUTTI_RETURN_IF_ERROR(api_->stream_wait_event(stream, call->order.get()));
  }
  for (SharedEvent* const wanted : {&call->before, &call->after}) {
    if (*wanted == nullptr) {
      TUTTI_ASSIGN_OR_RETURN(*wanted, GraphOrder::make_event(*api_, device_));
    }
  }
  return api_->record_event(call->before.get(), stream);
}

Status StreamCalls::commit(Queued&& call, const Status& status) {
  const std::lock_guard lock(mutex_);
  if (status.ok() && failure_.ok()) {
    line_->join(this, members_[index(call.carrier)].takes_turns, call.carrier, call.after);
    holds_memory_ = holds_memory_ || call.lease.data() != nullptr;
    calls_.push_back(std::move(call));
  } else {
    call.lease.abandon();
    recycle(call);
  }
  return settle(status);
}

Status StreamCalls::settle(const Status& status) {
  queueing_.reset();
  if (!status.ok()) {
    fail(status);
  }
  return failure_;  // The watch may have had its own reason meanwhile.
}

Status StreamCalls::reap() {
  unasked_ = 0;
  if (calls_.empty()) {
    return {};  // A call that is waited for comes by here: nothing is asked of the driver.
  }
  const device::RelaxedCapture relaxed(*api_);
  // They end in their order, so a few questions find how many are over.
  std::size_t over = 0;
  std::size_t open = calls_.size();
  while (over < open) {
    const std::size_t middle = over + (open - over) / 2;
    TUTTI_ASSIGN_OR_RETURN(const bool is_over, api_->event_done(calls_[middle].after.get()));
    (is_over ? over : open) = is_over ? middle + 1 : middle;
  }
  for (; over > 0; --over) {
    recycle(calls_.front());
    calls_.pop_front();
    ++reaped_;
  }
  holds_memory_ = holds_memory_ && !calls_.empty();
  return {};
}

Status StreamCalls::outcome() const {
  for (const Member& member : members_) {
    if (member.has_queued && member.outcome != nullptr) {
      TUTTI_RETURN_IF_ERROR(member.outcome());
    }
  }
  return {};
}

void StreamCalls::fail(const Status& status) {
  if (failure_.ok()) {
    failure_ = status;
    has_failed_ = true;
    is_end_due_ = !is_driver_gone(status);
    wake_watch();  // A library may take its time to end; who asks need not wait.
  }
}

Status StreamCalls::status(bool wait) {
  if (!has_queued_) {
    return {};
  }
  if (!wait) {
    return are_over(0).status();
  }
  TUTTI_RETURN_IF_ERROR(this->wait(added()));
  return graphs_.graphs()->load() == 0 ? Status() : wait_for_graphs();
}

Status StreamCalls::glance() {
  if (!has_queued_) {
    return {};
  }
  {
    const std::lock_guard lock(mutex_);
    TUTTI_RETURN_IF_ERROR(failure_);
    if (!calls_.empty() && unasked_ < kUnaskedMax && graphs_.graphs()->load() == 0) {
      return {};
    }
  }
  return are_over(0).status();
}

Status StreamCalls::wait_for_graphs() {
  const auto start = Clock::now();
  while (!graphs_.is_over()) {
    TUTTI_RETURN_IF_ERROR(are_over(0).status());
    {
      const std::lock_guard lock(mutex_);
      if (const Status late = timed_out(Carrier::kKernels, Clock::now() - start,
                                        "the launch of a graph is not finished");
          !late.ok()) {
        fail(late);
        return failure_;
      }
    }
    for (const Member& member : members_) {
      if (member.progress != nullptr) {
        member.progress();
      }
    }
    std::this_thread::sleep_for(kDrainPause);
  }
  return are_over(0).status();
}

std::uint64_t StreamCalls::added() const {
  const std::lock_guard lock(mutex_);
  return reaped_ + calls_.size();
}

Result<bool> StreamCalls::are_over(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  TUTTI_RETURN_IF_ERROR(check_number(number));
  // Of a thread that queues the watch takes care: questions to the driver would wait for it.
  if (failure_.ok() && !queueing_) {
    Status status = reap();
    if (status.ok() && reaped_ >= number) {
      status = outcome();
    }
    if (!status.ok()) {
      fail(status);
    }
  }
  TUTTI_RETURN_IF_ERROR(failure_);
  return reaped_ >= number;
}

Status StreamCalls::wait(std::uint64_t number) {
  for (;;) {
    TUTTI_ASSIGN_OR_RETURN(const bool is_over, are_over(number));
    if (is_over) {
      return {};
    }
    for (const Member& member : members_) {
      if (member.progress != nullptr) {
        member.progress();
      }
    }
    std::this_thread::sleep_for(kDrainPause);
  }
}

Status StreamCalls::check_number(std::uint64_t number) const {
  return number <= reaped_ + calls_.size()
             ? Status()
             : Status(ErrorCode::kInvalidArgument,
                      "this communicator has made " + std::to_string(reaped_ + calls_.size()) +
                          " calls on streams, not " + std::to_string(number));
}

Status StreamCalls::wait_on_stream(std::uint64_t number, device::Stream stream) {
  SharedEvent end;
  {
    const std::lock_guard lock(mutex_);
    TUTTI_RETURN_IF_ERROR(failure_);
    TUTTI_RETURN_IF_ERROR(check_number(number));
    if (number <= reaped_) {
      if (Status status = outcome(); !status.ok()) {
        fail(status);
      }
      return failure_;
    }
    end = calls_[number - reaped_ - 1].after;
  }
  TUTTI_ASSIGN_OR_RETURN(const device::Stream own, stream_to_order(*api_, device_, stream));
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(*api_, device_, own));
  const device::RelaxedCapture relaxed(*api_);
  return api_->stream_wait_event(own, end.get());
}

Result<device::Stream> StreamCalls::own_stream() {
  if (own_stream_ == nullptr && api_ != nullptr) {
    TUTTI_ASSIGN_OR_RETURN(own_stream_, api_->create_stream(device_));
  }
  return own_stream_;
}

Status StreamCalls::timed_out(Carrier carrier, Clock::duration waited, const char* what) const {
  const Member& member = members_[index(carrier)];
  if (member.timeout_s <= 0 || std::chrono::duration<double>(waited).count() <= member.timeout_s) {
    return {};
  }
  const std::string late = member.late == nullptr ? std::string() : member.late();
  return Status(ErrorCode::kTimeout, std::string(member.name) + ": " + what + " after " +
                                         time_limit(member.timeout_s) + held_up_by(late));
}

Status StreamCalls::look_at_peers(Carrier carrier, Clock::time_point now) {
  const Member& member = members_[index(carrier)];
  last_look_ = now;
  return member.look == nullptr ? Status() : member.look();
}

/// Asks the driver nothing: it may let no other thread in until its queue has room.
Status StreamCalls::look_at_queueing(Clock::time_point now) {
  const auto waited = now - queueing_->since;
  TUTTI_RETURN_IF_ERROR(timed_out(queueing_->carrier, waited, "a call could not be queued"));
  if (waited < kLook || now - last_look_ < kLook || calls_.empty() || !calls_.front().is_running) {
    return {};
  }
  return look_at_peers(calls_.front().carrier, now);
}

Status StreamCalls::look_at_first(Clock::time_point now) {
  TUTTI_RETURN_IF_ERROR(look_at_graphs(now));
  const std::uint64_t before = reaped_;
  TUTTI_RETURN_IF_ERROR(reap());
  if (calls_.empty()) {
    return reaped_ == before ? Status() : outcome();
  }
  Queued& first = calls_.front();
  if (!first.is_running) {
    TUTTI_ASSIGN_OR_RETURN(first.is_running, api_->event_done(first.before.get()));
    first.since = now;
  }
  TUTTI_RETURN_IF_ERROR(
      timed_out(first.carrier, now - first.since, "a call on a stream is not finished"));
  if (now - last_look_ < kLook) {
    return {};
  }
  last_look_ = now;
  TUTTI_RETURN_IF_ERROR(outcome());  // What the call stands behind may have been ended for good.
  return first.is_running ? look_at_peers(first.carrier, now) : Status();
}

/// Launches that nobody here sees begin: who waits too long says so itself (outcome()). Asks the
/// driver nothing, which a program that fills a queue with launches may hold. So a dead peer is an
/// error while there are graphs, launched or not.
Status StreamCalls::look_at_graphs(Clock::time_point now) {
  if (graphs_.graphs()->load() == 0 || now - last_look_ < kLook) {
    return {};
  }
  last_look_ = now;
  const Member& kernels = members_[index(Carrier::kKernels)];
  for (const auto* const question : {&kernels.outcome, &kernels.look}) {
    TUTTI_RETURN_IF_ERROR(*question == nullptr ? Status() : (*question)());
  }
  return {};
}

void StreamCalls::watch() {
  const device::RelaxedCapture relaxed(*api_);
  std::unique_lock lock(mutex_);
  int idle = 0;
  for (;;) {
    if (std::exchange(is_end_due_, false)) {
      const Status reason = failure_;
      lock.unlock();
      end(reason);
      lock.lock();
    }
    if (is_closing_) {
      return;
    }
    if (!failure_.ok() || idle > kIdleGlances) {
      is_asleep_ = true;
      changed_.wait(lock);
      is_asleep_ = false;
      idle = 0;
      continue;
    }
    const bool is_idle = calls_.empty() && !queueing_;
    changed_.wait_for(lock, is_idle && graphs_.graphs()->load() > 0 ? kLook : kGlance);
    if (is_closing_ || !failure_.ok()) {
      continue;
    }
    idle = calls_.empty() && !queueing_ && graphs_.graphs()->load() == 0 ? idle + 1 : 0;
    const auto now = Clock::now();
    if (const Status status = queueing_ ? look_at_queueing(now) : look_at_first(now);
        !status.ok()) {
      fail(status);
    }
  }
}

}  // namespace tutti::runners
