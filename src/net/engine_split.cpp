// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How the engines of a split connection work together. Everything here runs under the lock of one
// engine and reaches other engines through their inboxes.
//
// A request is done when all its parts are. Sub-connection 0 always has one part. Parts of other
// sub-connections may end before sub-connection 0's engine knows that there are any: each part that
// ends is subtracted from a counter, and sub-connection 0 adds their number. Once a sub-connection
// has ended, a request waits for the end of all.
#include <mutex>
#include <utility>

#include "base/clock.hpp"
#include "net/engine.hpp"

namespace tutti::net {
namespace {

using transport::Outcome;

/// The connection has ended, and with it whatever it had of the request.
bool is_end_of_connection(Outcome outcome) {
  return outcome != Outcome::kOk && outcome != Outcome::kTruncated &&
         outcome != Outcome::kCancelled;
}

}  // namespace

void Engine::hand_over(const Post& post) {
  open_requests_ += post.request != nullptr ? 1 : 0;
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(post);
    ++posted_;
  }
  wake(spins_ ? Sleep::kNap : Sleep::kDeep);
}

void Engine::hear_of(const std::shared_ptr<SplitConnection>& split) {
  {
    const std::lock_guard lock(inbox_mutex_);
    news_.push_back(split);
    ++posted_;
  }
  wake(Sleep::kNap);
}

/// Sub-connection 0's part of a send is matched: the others send theirs into the same receive.
void Engine::share_out(SubConnection& sub, Request* request, std::uint64_t slot) {
  if (sub.split == nullptr || sub.has_ended()) {
    return;
  }
  SplitConnection& split = *sub.split;
  request->others = split.layout.sub_connections() - 1;
  for (std::uint32_t other = 1; other < split.layout.sub_connections(); ++other) {
    split.engines[other]->hand_over({split.subs[other], request, slot});
  }
}

/// Sub-connection 0's part of a receive has come: the other sub-connections' parts of what is split
/// are still to come, or have. A sub-connection that receives nothing would otherwise not notice
/// that the peer is gone.
void Engine::count_others(SubConnection& sub, Request* request, const transport::Event& event) {
  if (sub.split == nullptr || is_end_of_connection(event.outcome)) {
    return;
  }
  SplitConnection& split = *sub.split;
  std::uint32_t split_parts = 0;
  for (std::size_t i = 0; i < event.part_count; ++i) {
    split_parts += split.layout.is_split(event.part_bytes[i]) ? 1 : 0;
  }
  request->others = split_parts * (split.layout.sub_connections() - 1);
  const std::int32_t before = request->open_parts.load();
  if (before + static_cast<std::int32_t>(request->others) == Request::kFirstPart) {
    return;
  }
  for (std::size_t i = 0; i < event.part_count; ++i) {
    if (!split.layout.is_split(event.part_bytes[i])) {
      continue;
    }
    for (std::uint32_t other = 1; other < split.layout.sub_connections(); ++other) {
      split.engines[other]->hand_over({split.subs[other], nullptr, request->first_slot + i});
    }
  }
}

void Engine::settle(SubConnection& sub, Request* request, Outcome outcome) {
  if (sub.split == nullptr) {
    complete(request, outcome, sub.is_peer_gone);
    return;
  }
  SplitConnection& split = *sub.split;
  if (is_end_of_connection(outcome)) {
    if (sub.index == 0 && split.have_all_ended()) {
      complete(request, split.why_ended(), split.is_peer_gone);
    }
    return;  // Else end_requests() does, when all have.
  }
  std::int32_t more = -1;
  if (sub.index == 0) {
    request->outcome = outcome;
    more = static_cast<std::int32_t>(request->others) - Request::kFirstPart;
  }
  const std::int32_t open = request->open_parts.fetch_add(more, std::memory_order_acq_rel) + more;
  if (open == 0) {
    complete(request, request->outcome, false);
  } else if (open < 0) {
    // More parts have come than sub-connection 0's has: the peer violates the protocol.
    (void)split.fail(Outcome::kReset, false);
    tell_others(sub);
    hear_of(sub.split);
  }
}

/// Hands the request back to the caller.
void Engine::complete(Request* request, Outcome outcome, bool is_peer_gone) {
  request->outcome = outcome;
  request->is_peer_gone = is_peer_gone;
  request->is_done.store(true, std::memory_order_release);
}

void Engine::tell_others(const SubConnection& sub) {
  for (Engine* const other : sub.split->engines) {
    if (other != this) {
      other->hear_of(sub.split);
    }
  }
}

/// The peer has sent its close message, or its TCP connection has ended.
void Engine::tell_of_peer(const SubConnection& sub) {
  sub.split->peer = sub.peer;
  if (sub.peer == PeerState::kGone) {
    (void)sub.split->fail(Outcome::kAborted, true);
  }
  tell_others(sub);
}

void Engine::note_end(SubConnection& sub) {
  if (sub.split == nullptr) {
    return;
  }
  SplitConnection& split = *sub.split;
  const bool fails = sub.outcome != Outcome::kOk && split.fail(sub.outcome, sub.is_peer_gone);
  if (split.ended.fetch_add(1) == 0 || fails) {
    tell_others(sub);
  }
  if (!split.have_all_ended()) {
    return;
  }
  if (sub.index == 0) {
    end_requests(sub);
  } else {
    split.engines[0]->hear_of(sub.split);
  }
}

/// Another engine has written something into a split connection.
void Engine::look_after(const SplitConnection& split) {
  SubConnection* const sub = split.subs[split.index_of(this)];
  if (sub == nullptr) {
    return;  // It sees that when it is attached, or is forgotten.
  }
  if (split.has_failed && !sub->has_ended()) {
    if (split.is_peer_gone) {
      take_what_is_left();
    }
    sub->is_peer_gone = split.is_peer_gone;
    if (!sub->has_ended()) {
      break_off(*sub);
    }
  }
  if (split.peer == PeerState::kLeft && sub->is_detached && !sub->has_ended()) {
    break_off(*sub);  // No process is left to answer.
  }
  // One end has closed another sub-connection in order, and closes all of them; but the packet may
  // be lost and the peer gone. A close asks for an answer and times out.
  if (split.ended > 0 && !sub->has_ended()) {
    (void)endpoint_.close(monotonic_ns(), sub->connection);
  }
  if (has_closed(split.peer) && sub->close_ns != transport::kNever) {
    sub->close_ns = monotonic_ns();
    has_news_of_peers_ = true;
  }
  if (sub->index == 0 && split.have_all_ended()) {
    end_requests(*sub);
  }
}

/// All sub-connections have ended. What sub-connection 0 accepted and is not done never will be;
/// what it accepts from now on ends at once.
void Engine::end_requests(SubConnection& sub) {
  const SplitConnection& split = *sub.split;
  Request* const requests = split.requests;
  if (sub.is_detached || requests == nullptr) {
    return;
  }
  for (std::size_t i = 0; i < split.request_count; ++i) {
    // In this order: a request that its caller has taken anew is not done, nor yet accepted.
    if (!requests[i].is_done && requests[i].is_accepted) {
      complete(&requests[i], split.why_ended(), split.is_peer_gone);
    }
  }
}

}  // namespace tutti::net
