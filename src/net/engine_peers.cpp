// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Peers of an engine that close, fail or die, and what is left of their connections.
#include "net/engine.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "net/fork_closed_fds.hpp"
#include "transport/packet.hpp"

namespace tutti::net {
namespace {

using transport::kNever;
using transport::Outcome;
using transport::TimeNs;
constexpr int kLastTurns = 512;  ///< To read what a dead peer has left in the socket.

}  // namespace

void Engine::end(SubConnection& sub, Outcome outcome) {
  add(totals_, endpoint_.counters(sub.connection));
  if (!sub.has_failed()) {
    sub.outcome = outcome;
  }
  sub.state = SubConnection::State::kEnded;
  show(sub, monotonic_ns());
  for (std::deque<Post>* waiting : {&sub.waiting_receives, &sub.waiting_sends}) {
    for (const Post& post : *waiting) {
      finish_waiting(sub, post.request, outcome);
    }
    waiting->clear();
  }
  note_end(sub);
  if (outcome == Outcome::kUnreachable) {
    // Its other connections will not end by themselves, and the program may wait for them.
    options_.dead_peers->add(sub.peer_device);
  }
  if (sub.is_detached && sub.forget_ns == kNever) {
    sub.forget_ns = monotonic_ns() + kForgetNs;
    --subs_in_use_;
  }
}

void Engine::break_off(SubConnection& sub) {
  drop_blocked_data();
  (void)endpoint_.abort(monotonic_ns(), sub.connection);
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

bool Engine::points_into(std::span<const std::byte> buffer, const std::byte* payload) {
  const std::less<> is_before;
  return !is_before(payload, buffer.data()) && is_before(payload, buffer.data() + buffer.size());
}

/// Other sends' packets stay: each that is dropped is sent again when it is missed.
void Engine::drop_blocked_of(std::span<const std::byte> buffer) {
  drop_blocked([buffer](const transport::Transmission& packet) {
    return !packet.is_control && packet.payload_bytes > 0 && points_into(buffer, packet.payload);
  });
}

/// Drops the data of all buffers.
void Engine::drop_blocked_data() {
  drop_blocked([](const transport::Transmission& packet) { return !packet.is_control; });
}

/// Of a channel that is closed here: the peer has closed it, too, and waits for nothing more, or
/// its process has ended and cannot answer.
bool Engine::is_close_needless(const SubConnection& sub) {
  return sub.peer == PeerState::kLeft || (sub.peer == PeerState::kClosed && sub.eager.used() > 0);
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
    if (sub->is_detached && sub->break_off_ns == kNever &&
        options_.dead_peers->contains(sub->peer_device)) {
      sub->break_off_ns = now + kDeadPeerLingerNs;
    }
  }
}

/// Whether there was news: of it more may have to leave.
bool Engine::look_after_peers(TimeNs now) {
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
    if (sub.peer == PeerState::kClosed) {
      sub.peer = PeerState::kLeft;
    } else {
      sub.peer = got == 1 && byte == kCloseByte ? PeerState::kClosed : PeerState::kGone;
    }
    if (sub.peer != PeerState::kClosed) {
      if (!sub.has_ended() && (sub.peer == PeerState::kGone || sub.is_detached)) {
        take_what_is_left();
      }
      epoll_ctl(controls_, EPOLL_CTL_DEL, sub.control, nullptr);
    }
    if (sub.peer == PeerState::kGone && !sub.has_ended()) {
      sub.is_peer_gone = true;
      break_off(sub);
    } else if (sub.is_detached && is_close_needless(sub) && !sub.has_ended()) {
      break_off(sub);
    } else if (sub.close_ns != kNever) {
      sub.close_ns = now;
    }
    if (sub.split != nullptr) {
      tell_of_peer(sub);
    }
  }
  return forget_old(now) || count > 0;
}

/// Whether one has ended, or is to.
bool Engine::forget_old(TimeNs now) {
  bool did = false;
  for (std::size_t i = 0; i < subs_.size();) {
    SubConnection& sub = *subs_[i];
    did = did || std::min({sub.break_off_ns, sub.close_ns, sub.forget_ns}) <= now;
    if (sub.break_off_ns <= now) {
      sub.break_off_ns = kNever;
      if (!sub.has_ended()) {
        break_off(sub);
      }
    }
    if (sub.close_ns <= now) {
      sub.close_ns = kNever;
      if (!sub.has_ended()) {
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
  return did;
}

}  // namespace tutti::net
