// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/channel.hpp"

#include <algorithm>
#include <utility>

namespace tutti::net {
namespace {

using transport::Outcome;

Status status_of(Outcome outcome, bool is_peer_gone, const std::string& who) {
  if (is_peer_gone) {
    return Status(ErrorCode::kTimeout, "net: the peer (" + who + ") is gone: its process ended");
  }
  switch (outcome) {
    case Outcome::kOk:
      return {};
    case Outcome::kTruncated:
      return Status(
          ErrorCode::kInvalidArgument,
          "net: a message is longer than the receive that was posted for it (" + who + ")");
    case Outcome::kUnreachable:
      return Status(ErrorCode::kTimeout,
                    "net: no sign of life from " + who +
                        " for TUTTI_NET_TIMEOUT seconds, or no progress for four times as long");
    case Outcome::kReset:
      return Status(ErrorCode::kTimeout, "net: the peer (" + who + ") gave the channel up");
    case Outcome::kClosed:
    case Outcome::kCancelled:
    case Outcome::kAborted:
      break;
  }
  return Status(ErrorCode::kTimeout, "net: the channel with " + who + " is closed");
}

}  // namespace

LaneChannel::LaneChannel(Lane* lane, std::shared_ptr<Bundle> bundle)
    : lane_(lane), bundle_(std::move(bundle)), requests_(kRequests) {
  if (bundle_ != nullptr) {
    bundle_->request_count = requests_.size();
    bundle_->requests = requests_.data();
  }
  for (Request& request : requests_) {
    request.lane = lane_;
    request.channel = this;
    request.next_free = std::exchange(free_, &request);
  }
}

LaneChannel::~LaneChannel() {
  if (bundle_ == nullptr) {
    lane_->engine->detach(lane_);
    return;
  }
  // A part of a receive may be any lane's, and only lane 0 would know of it.
  const bool aborts = std::any_of(requests_.begin(), requests_.end(),
                                  [](const Request& it) { return it.is_taken && !it.is_done; });
  for (const Request& request : requests_) {
    if (request.is_taken) {
      (void)unshare(request);
    }
  }
  for (std::uint32_t i = 0; i < bundle_->split.lanes(); ++i) {
    bundle_->engines[i]->detach(bundle_->lanes[i], aborts);
  }
}

bool LaneChannel::has_ended() const {
  return lane_->is_over.load() || (bundle_ != nullptr && bundle_->has_failed);
}

Status LaneChannel::ended() const {
  if (bundle_ != nullptr) {
    return status_of(bundle_->why_ended(), bundle_->is_peer_gone, lane_->who);
  }
  return status_of(lane_->outcome == Outcome::kOk ? Outcome::kClosed : lane_->outcome,
                   lane_->is_peer_gone, lane_->who);
}

Request* LaneChannel::take() {
  Request* const request = free_;
  if (request != nullptr) {
    free_ = request->next_free;
    request->is_taken = true;
    request->others = 0;
    request->open_parts.store(Request::kFirstPart, std::memory_order_relaxed);
    for (std::atomic<Bytes>& bytes : request->bytes) {
      bytes.store(0, std::memory_order_relaxed);
    }
    // Who sees that it is not done sees that it has not been accepted.
    request->is_accepted.store(false, std::memory_order_relaxed);
    request->is_done.store(false, std::memory_order_release);
  }
  return request;
}

bool LaneChannel::can_share(std::size_t parts) const {
  for (std::size_t i = 0; i < parts; ++i) {
    if (!bundle_->receives.is_free(next_slot_ + i)) {
      return false;
    }
  }
  return true;
}

/// Receives are numbered as lane 0 tells the peer of them: in the order of their posting. None that
/// the transport would refuse may come here.
void LaneChannel::share(Request& request, std::span<const transport::ReceivePart> parts) {
  request.first_slot = next_slot_;
  for (std::size_t i = 0; i < parts.size(); ++i, ++next_slot_) {
    request.receive.parts[i] = bundle_->split.first_part(parts[i]);
    if (bundle_->split.is_split(parts[i].capacity_bytes)) {
      bundle_->receives.open(next_slot_, {.data = parts[i].data,
                                          .capacity_bytes = parts[i].capacity_bytes,
                                          .context = request.receive.context + i});
    }
  }
}

Result<Request*> LaneChannel::send(transport::Tag tag, const void* data, Bytes bytes) {
  if (has_ended()) {
    return ended();
  }
  Request* const request = take();
  if (request != nullptr) {
    request->is_send = true;
    request->send = {.tag = tag,
                     .data = static_cast<const std::byte*>(data),
                     .bytes = bytes,
                     .context = reinterpret_cast<std::uint64_t>(request)};
    lane_->engine->post(request);
  }
  return request;
}

Result<Request*> LaneChannel::receive(std::span<const transport::ReceivePart> parts) {
  if (parts.empty() || parts.size() > transport::kReceivePartsMax) {
    return Status(ErrorCode::kInvalidArgument, "net: a receive has 1 to " +
                                                   std::to_string(transport::kReceivePartsMax) +
                                                   " parts, not " + std::to_string(parts.size()));
  }
  for (const transport::ReceivePart& part : parts) {
    // The transport would refuse it as well, but after share() has given it a number.
    if (part.capacity_bytes > transport::kMessageBytesMax) {
      return Status(ErrorCode::kInvalidArgument, "net: a receive of more than 1 TiB");
    }
  }
  if (has_ended()) {
    return ended();
  }
  Request* const request = bundle_ == nullptr || can_share(parts.size()) ? take() : nullptr;
  if (request != nullptr) {
    request->is_send = false;
    request->receive.part_count = static_cast<std::uint8_t>(parts.size());
    request->receive.context = reinterpret_cast<std::uint64_t>(request);
    if (bundle_ == nullptr) {
      std::copy(parts.begin(), parts.end(), request->receive.parts.begin());
    } else {
      share(*request, parts);
    }
    lane_->engine->post(request);
  }
  return request;
}

bool LaneChannel::is_split(const Request& request) const {
  if (bundle_ == nullptr) {
    return false;
  }
  const auto& parts = request.receive.parts;
  return request.is_send ? bundle_->split.is_split(request.send.bytes)
                         : std::any_of(parts.begin(), parts.begin() + request.receive.part_count,
                                       [](const auto& part) { return part.whole_bytes != 0; });
}

void LaneChannel::help(const Request& request) {
  lane_->engine->help();
  if (is_split(request)) {
    for (std::uint32_t i = 1; i < bundle_->split.lanes(); ++i) {
      bundle_->engines[i]->help();
    }
  }
}

std::uint32_t LaneChannel::unshare(const Request& request) {
  if (bundle_ == nullptr || request.is_send) {
    return 0;
  }
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < request.receive.part_count; ++i) {
    if (request.receive.parts[i].whole_bytes != 0) {
      found += bundle_->receives.close(request.first_slot + i) ? 1 : 0;
    }
  }
  return found;
}

/// It has ended.
void LaneChannel::give_back(Request* request) {
  // Parts that lane 0 has counted are complete on all lanes. Others can only come from a peer that
  // has lost its way, and one may be arriving now.
  const std::uint32_t found = unshare(*request);
  if (found > 0 && found * (bundle_->split.lanes() - 1) > request->others) {
    for (std::uint32_t i = 1; i < bundle_->split.lanes(); ++i) {
      bundle_->engines[i]->wait_for_round();
    }
  }
  request->is_taken = false;
  request->next_free = std::exchange(free_, request);
}

bool LaneChannel::test(Request* request, Completion* completion) {
  if (!request->is_done.load(std::memory_order_acquire)) {
    help(*request);
    if (!request->is_done.load(std::memory_order_acquire)) {
      return false;
    }
  }
  completion->status = status_of(request->outcome, request->is_peer_gone, lane_->who);
  completion->parts = request->parts;
  std::copy(request->bytes.begin(), request->bytes.end(), completion->bytes.begin());
  give_back(request);
  return true;
}

bool test(Request* request, Completion* completion) {
  return static_cast<LaneChannel*>(request->channel)->test(request, completion);
}

bool has_ended(const Request* request) { return request->is_done.load(std::memory_order_acquire); }

}  // namespace tutti::net
