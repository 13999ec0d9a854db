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
                    "net: no sign of life from " + who + " for TUTTI_NET_TIMEOUT seconds");
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

LaneChannel::LaneChannel(Lane* lane) : lane_(lane), requests_(kRequests) {
  for (Request& request : requests_) {
    request.lane = lane_;
    request.channel = this;
    request.next_free = std::exchange(free_, &request);
  }
}

LaneChannel::~LaneChannel() { lane_->engine->detach(lane_); }

Status LaneChannel::ended() const {
  return status_of(lane_->outcome == Outcome::kOk ? Outcome::kClosed : lane_->outcome,
                   lane_->is_peer_gone, lane_->who);
}

Request* LaneChannel::take() {
  Request* const request = free_;
  if (request != nullptr) {
    free_ = request->next_free;
    request->is_done.store(false, std::memory_order_relaxed);
  }
  return request;
}

Result<Request*> LaneChannel::send(transport::Tag tag, const void* data, Bytes bytes) {
  if (lane_->has_ended.load()) {
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
  if (lane_->has_ended.load()) {
    return ended();
  }
  Request* const request = take();
  if (request != nullptr) {
    request->is_send = false;
    request->receive.part_count = static_cast<std::uint8_t>(parts.size());
    request->receive.context = reinterpret_cast<std::uint64_t>(request);
    std::copy(parts.begin(), parts.end(), request->receive.parts.begin());
    lane_->engine->post(request);
  }
  return request;
}

bool LaneChannel::test(Request* request, Completion* completion) {
  if (!request->is_done.load(std::memory_order_acquire)) {
    lane_->engine->help();
    if (!request->is_done.load(std::memory_order_acquire)) {
      return false;
    }
  }
  completion->status = status_of(request->outcome, request->is_peer_gone, lane_->who);
  completion->parts = request->parts;
  completion->bytes = request->bytes;
  request->next_free = std::exchange(free_, request);
  return true;
}

bool test(Request* request, Completion* completion) {
  return static_cast<LaneChannel*>(request->channel)->test(request, completion);
}

bool has_ended(const Request* request) { return request->is_done.load(std::memory_order_acquire); }

}  // namespace tutti::net
