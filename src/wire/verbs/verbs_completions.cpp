// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// VerbsWire's completion queues: what they are made of, with time stamps of the NIC or without,
// what is taken from the one of receives, and how engines sleep until something completes.
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "wire/verbs/verbs_wire.hpp"

namespace tutti::wire::verbs {
namespace {

bool never_block(int descriptor) {
  return fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) == 0;
}

}  // namespace

/// What engines sleep on. Without it they look at the wire now and then.
void VerbsWire::open_channel() {
  if (context_->async_descriptor >= 0) {
    (void)never_block(context_->async_descriptor);
  }
  if (verbs_.create_channel == nullptr || verbs_.destroy_channel == nullptr ||
      verbs_.cq_event == nullptr || verbs_.ack_cq_events == nullptr) {
    return;
  }
  errno = 0;
  channel_ = verbs_.create_channel(context_);
  if (channel_ == nullptr && errno == EOPNOTSUPP) {
    return;  // The NIC has no interrupts.
  }
  sleeper_.reset(channel_ == nullptr ? -1 : epoll_create1(EPOLL_CLOEXEC));
  if (sleeper_.get() >= 0 && never_block(channel_->descriptor) && listen_to(channel_->descriptor) &&
      listen_to(context_->async_descriptor)) {
    return;
  }
  const std::string why = std::strerror(errno);
  sleeper_.reset();
  if (channel_ != nullptr) {
    verbs_.destroy_channel(channel_);
    channel_ = nullptr;
  }
  fall_back("no events of completions on " + options_.device + ", idle engines look every 50 us (" +
                why + ")",
            "raise `ulimit -n`");
}

bool VerbsWire::listen_to(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  return descriptor < 0 || epoll_ctl(sleeper_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

/// A NIC whose driver has gone leaves its descriptors readable for ever, with nothing to read.
void VerbsWire::take_cq_events() {
  Cq* told = nullptr;
  void* context = nullptr;
  errno = 0;
  while (verbs_.cq_event(channel_, &told, &context) == 0) {
    verbs_.ack_cq_events(told, 1);
  }
  if (errno == EIO && !is_deaf_) {
    is_deaf_ = true;
    for (const int descriptor : {channel_->descriptor, context_->async_descriptor}) {
      epoll_ctl(sleeper_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
    }
  }
}

/// A queue that is null afterwards cannot be made, as errno says.
void VerbsWire::open_completions() {
  // Else the engines of all processes would be woken by interrupts of one core.
  const int vector =
      static_cast<int>(number_ % static_cast<std::uint64_t>(std::max(context_->vectors, 1)));
  // A written chunk that fails has two completions.
  send_cq_ = verbs_.create_cq(
      context_, static_cast<int>(2 * kSendSlots + Windows::kRequestsMax + kFlushesMax), nullptr,
      channel_, vector);
  if (send_cq_ == nullptr) {
    return;
  }
  const int receives = static_cast<int>(options_.receive_buffers);
  received_ns_.fill(transport::kNever);
  unstamped_ = "not asked for";
  if (options_.timestamps) {
    auto opened = StampedCq::open(context_, {receives, channel_, vector, options_.clock});
    if (opened.ok()) {
      unstamped_.clear();
      stamped_cq_.emplace(std::move(*opened));
      receive_cq_ = stamped_cq_->cq();
    } else {
      note_no_stamps(opened.status().message());
    }
  }
  if (receive_cq_ == nullptr) {
    receive_cq_ = verbs_.create_cq(context_, receives, nullptr, channel_, vector);
  }
}

void VerbsWire::note_no_stamps(const std::string& why) {
  unstamped_ = why;
  if (options_.needs_timestamps) {
    fall_back("no time stamps of the NIC: " + why, "TUTTI_NET_TIMESTAMPS=off");
  }
}

/// What the NIC has received, up to kCompletionsPerPoll. `received_ns` stays kNever without stamps.
std::size_t VerbsWire::take_received(Completion* taken, transport::TimeNs* received_ns) {
  if (!stamped_cq_) {
    const int count = context_->ops.poll_cq(receive_cq_, kCompletionsPerPoll, taken);
    return static_cast<std::size_t>(std::max(count, 0));
  }
  const std::size_t count = stamped_cq_->poll({taken, kCompletionsPerPoll}, received_ns);
  if (unstamped_ != stamped_cq_->failure()) [[unlikely]] {
    note_no_stamps(stamped_cq_->failure());
  }
  return count;
}

/// The next of what has been received; none is left of those before.
void VerbsWire::poll_receives() {
  next_completion_ = 0;
  if (drained_.empty()) {
    received_count_ = take_received(received_.data(), received_ns_.data());
    return;
  }
  received_count_ = std::min(drained_.size(), received_.size());
  for (std::size_t i = 0; i < received_count_; ++i) {
    received_[i] = drained_[i].completion;
    received_ns_[i] = drained_[i].received_ns;
  }
  drained_.erase(drained_.begin(), drained_.begin() + static_cast<std::ptrdiff_t>(received_count_));
}

/// The NIC forgets what of a queue pair's it has received and nobody has taken.
void VerbsWire::drain_receives() {
  std::array<Completion, kCompletionsPerPoll> taken;
  std::array<transport::TimeNs, kCompletionsPerPoll> received_ns;
  received_ns.fill(transport::kNever);
  std::size_t count = 0;
  do {
    count = take_received(taken.data(), received_ns.data());
    for (std::size_t i = 0; i < count; ++i) {
      drained_.push_back({taken[i], received_ns[i]});
    }
  } while (count == kCompletionsPerPoll);
}

/// A completion queue tells once, of what comes after it was asked to: what came before is taken.
transport::TimeNs VerbsWire::arm(transport::TimeNs now) {
  if (channel_ == nullptr) {
    return transport::kNever;
  }
  take_cq_events();
  take_async_events();
  bool is_armed = true;
  for (Cq* const cq : {send_cq_, receive_cq_}) {
    is_armed = context_->ops.request_notification(cq, 0) == 0 && is_armed;
  }
  const bool has_sent = poll_sends();
  if (next_completion_ == received_count_) {
    poll_receives();
  }
  if (has_sent || next_completion_ < received_count_ || !sent_cookies_.empty()) {
    return now;
  }
  const bool has_untold = is_deaf_ || !is_armed || retired_ > 0 || datagrams_failed_ ||
                          !empty_buffers_.empty() || (bounces_ != nullptr && bounces_->held() > 0);
  return has_untold ? now + kUntoldNs : transport::kNever;
}

}  // namespace tutti::wire::verbs
