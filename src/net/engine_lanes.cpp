// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the engines of one channel's lanes have to do with each other. All of it is done under the
// lock of one engine and goes to others through their inboxes.
//
// A request is done when all its parts are. Lane 0's is one in any case; the parts of other lanes
// may be done before lane 0's engine knows that there are any, so each is taken off as it ends, and
// lane 0's adds how many there are. Where a lane has ended, a request waits for the end of all.
#include <mutex>
#include <utility>

#include "net/clock.hpp"
#include "net/engine.hpp"

namespace tutti::net {
namespace {

using transport::Outcome;

/// The connection has ended, and with it whatever it had of the request.
bool is_end_of_lane(Outcome outcome) {
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

void Engine::hear_of(const std::shared_ptr<Bundle>& bundle) {
  {
    const std::lock_guard lock(inbox_mutex_);
    news_.push_back(bundle);
    ++posted_;
  }
  wake(Sleep::kNap);
}

/// Lane 0's part of a send is matched: the others send theirs into the same receive.
void Engine::share_out(Lane& lane, Request* request, std::uint64_t slot) {
  if (lane.bundle == nullptr || lane.has_ended) {
    return;
  }
  Bundle& bundle = *lane.bundle;
  request->others = bundle.split.lanes() - 1;
  for (std::uint32_t other = 1; other < bundle.split.lanes(); ++other) {
    bundle.engines[other]->hand_over({bundle.lanes[other], request, slot});
  }
}

/// Lane 0's part of a receive has come: the other lanes' parts of what is split are still to come,
/// or have. A lane to which nothing comes would else not notice that the peer is gone.
void Engine::count_others(Lane& lane, Request* request, const transport::Event& event) {
  if (lane.bundle == nullptr || is_end_of_lane(event.outcome)) {
    return;
  }
  Bundle& bundle = *lane.bundle;
  std::uint32_t split = 0;
  for (std::size_t i = 0; i < event.part_count; ++i) {
    split += bundle.split.is_split(event.part_bytes[i]) ? 1 : 0;
  }
  request->others = split * (bundle.split.lanes() - 1);
  const std::int32_t before = request->open_parts.load();
  if (before + static_cast<std::int32_t>(request->others) == Request::kFirstPart) {
    return;
  }
  for (std::size_t i = 0; i < event.part_count; ++i) {
    if (!bundle.split.is_split(event.part_bytes[i])) {
      continue;
    }
    for (std::uint32_t other = 1; other < bundle.split.lanes(); ++other) {
      bundle.engines[other]->hand_over({bundle.lanes[other], nullptr, request->first_slot + i});
    }
  }
}

void Engine::settle(Lane& lane, Request* request, Outcome outcome) {
  if (lane.bundle == nullptr) {
    complete(request, outcome, lane.is_peer_gone);
    return;
  }
  Bundle& bundle = *lane.bundle;
  if (is_end_of_lane(outcome)) {
    if (lane.index == 0 && bundle.have_all_ended()) {
      complete(request, bundle.why_ended(), bundle.is_peer_gone);
    }
    return;  // Else end_requests() does, when all have.
  }
  std::int32_t more = -1;
  if (lane.index == 0) {
    request->outcome = outcome;
    more = static_cast<std::int32_t>(request->others) - Request::kFirstPart;
  }
  const std::int32_t open = request->open_parts.fetch_add(more, std::memory_order_acq_rel) + more;
  if (open == 0) {
    complete(request, request->outcome, false);
  } else if (open < 0) {
    // More parts have come than lane 0's has: the peer has lost its way.
    (void)bundle.fail(Outcome::kReset, false);
    tell_others(lane);
    hear_of(lane.bundle);
  }
}

/// It is the caller's again.
void Engine::complete(Request* request, Outcome outcome, bool is_peer_gone) {
  request->outcome = outcome;
  request->is_peer_gone = is_peer_gone;
  request->is_done.store(true, std::memory_order_release);
}

void Engine::tell_others(const Lane& lane) {
  for (Engine* const other : lane.bundle->engines) {
    if (other != this) {
      other->hear_of(lane.bundle);
    }
  }
}

/// The TCP connection has ended, with or without a farewell. This lane may have, too.
void Engine::tell_of_peer(const Lane& lane) {
  if (lane.has_peer_closed) {
    lane.bundle->has_peer_closed = true;
    lane.bundle->is_peer_disconnected = lane.is_peer_disconnected;
  } else {
    (void)lane.bundle->fail(Outcome::kAborted, true);
  }
  tell_others(lane);
}

void Engine::note_end(Lane& lane) {
  if (lane.bundle == nullptr) {
    return;
  }
  Bundle& bundle = *lane.bundle;
  const bool fails = lane.outcome != Outcome::kOk && bundle.fail(lane.outcome, lane.is_peer_gone);
  if (bundle.ended.fetch_add(1) == 0 || fails) {
    tell_others(lane);
  }
  if (!bundle.have_all_ended()) {
    return;
  }
  if (lane.index == 0) {
    end_requests(lane);
  } else {
    bundle.engines[0]->hear_of(lane.bundle);
  }
}

/// Another engine has written something into a bundle.
void Engine::look_after(const Bundle& bundle) {
  Lane* const lane = bundle.lanes[bundle.index_of(this)];
  if (lane == nullptr) {
    return;  // It sees that when it is attached, or is forgotten.
  }
  if (bundle.has_failed && !lane->has_ended) {
    if (bundle.is_peer_gone) {
      take_what_is_left();
    }
    lane->is_peer_gone = bundle.is_peer_gone;
    if (!lane->has_ended) {
      break_off(*lane);
    }
  }
  if (bundle.is_peer_disconnected && lane->is_detached && !lane->has_ended) {
    break_off(*lane);  // Nobody is there to answer.
  }
  // The peer has closed that one in order, or we have: it does so with all, but its word may be
  // lost, and it may be gone. Who closes asks for an answer, and gives a silent peer up.
  if (bundle.ended > 0 && !lane->has_ended) {
    (void)endpoint_.close(now_ns(), lane->connection);
  }
  if (bundle.has_peer_closed && lane->close_ns != transport::kNever) {
    lane->close_ns = now_ns();
    has_news_of_peers_ = true;
  }
  if (lane->index == 0 && bundle.have_all_ended()) {
    end_requests(*lane);
  }
}

/// All lanes have ended. What lane 0 accepted and is not done never will be; what it accepts from
/// now on ends at once.
void Engine::end_requests(Lane& lane) {
  const Bundle& bundle = *lane.bundle;
  Request* const requests = bundle.requests;
  if (lane.is_detached || requests == nullptr) {
    return;
  }
  for (std::size_t i = 0; i < bundle.request_count; ++i) {
    // In this order: a request that its caller has taken anew is not done, nor yet accepted.
    if (!requests[i].is_done && requests[i].is_accepted) {
      complete(&requests[i], bundle.why_ended(), bundle.is_peer_gone);
    }
  }
}

}  // namespace tutti::net
