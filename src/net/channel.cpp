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
                    "net: the peer (" + who +
                        ") is unreachable: nothing arrived for TUTTI_NET_TIMEOUT seconds, or it "
                        "made no progress for four times as long");
    case Outcome::kReset:
      return Status(ErrorCode::kTimeout, "net: the peer (" + who + ") has reset the channel");
    case Outcome::kClosed:
    case Outcome::kCancelled:
    case Outcome::kAborted:
      break;
  }
  return Status(ErrorCode::kTimeout, "net: the channel with " + who + " is closed");
}

}  // namespace

ConnectionChannel::ConnectionChannel(SubConnection* sub, std::shared_ptr<SplitConnection> split)
    : sub_(sub), split_(std::move(split)), requests_(kRequests) {
  if (split_ != nullptr) {
    split_->request_count = requests_.size();
    split_->requests = requests_.data();
  }
  for (Request& request : requests_) {
    request.sub = sub_;
    request.channel = this;
    request.next_free = std::exchange(free_, &request);
  }
}

ConnectionChannel::~ConnectionChannel() {
  const std::vector<Engine*> own(engines().begin(), engines().end());
  detach();
  // What nobody has deregistered: the NIC would keep it for whatever lies there next.
  for (const std::span<std::byte> memory : registered_) {
    for (Engine* const engine : own) {
      engine->deregister_memory(memory);
    }
  }
}

void ConnectionChannel::detach() {
  if (split_ == nullptr) {
    sub_->engine->detach(sub_);
    return;
  }
  // Any sub-connection may have a part of a receive, and only sub-connection 0 knows of it.
  const bool aborts = std::any_of(requests_.begin(), requests_.end(),
                                  [](const Request& it) { return it.is_taken && !it.is_done; });
  for (const Request& request : requests_) {
    if (request.is_taken) {
      (void)unshare(request);
    }
  }
  for (std::uint32_t i = 0; i < split_->layout.sub_connections(); ++i) {
    split_->engines[i]->detach(split_->subs[i], aborts);
  }
}

std::span<Engine* const> ConnectionChannel::engines() const {
  return split_ == nullptr ? std::span<Engine* const>(&sub_->engine, 1) : split_->engines;
}

template <class Memory>
Status ConnectionChannel::register_with(const Memory& memory, std::span<std::byte> span) {
  TUTTI_RETURN_IF_ERROR(wire::register_with_all(engines(), memory));
  const std::lock_guard lock(registered_mutex_);
  registered_.push_back(span);
  return {};
}

Status ConnectionChannel::register_memory(std::span<std::byte> memory) {
  return register_with(memory, memory);
}

Status ConnectionChannel::register_device_memory(const wire::DeviceMemory& memory) {
  return register_with(memory, memory.span);
}

void ConnectionChannel::deregister_memory(std::span<std::byte> memory) {
  {
    const std::lock_guard lock(registered_mutex_);
    const auto found = std::find_if(registered_.begin(), registered_.end(), [&](const auto& it) {
      return it.data() == memory.data() && it.size() == memory.size();
    });
    if (found == registered_.end()) {
      return;
    }
    registered_.erase(found);
  }
  for (Engine* const engine : engines()) {
    engine->deregister_memory(memory);
  }
}

bool ConnectionChannel::has_ended() const {
  return sub_->has_failed() || (split_ != nullptr && split_->has_failed);
}

Status ConnectionChannel::ended() const {
  if (split_ != nullptr) {
    return status_of(split_->why_ended(), split_->is_peer_gone, sub_->who);
  }
  return status_of(sub_->outcome == Outcome::kOk ? Outcome::kClosed : sub_->outcome,
                   sub_->is_peer_gone, sub_->who);
}

Request* ConnectionChannel::take() {
  Request* const request = free_;
  if (request != nullptr) {
    free_ = request->next_free;
    request->is_taken = true;
    request->others = 0;
    request->flushed = {};
    request->flush = 0;
    request->error = {};
    request->open_parts.store(Request::kFirstPart, std::memory_order_relaxed);
    for (std::atomic<Bytes>& bytes : request->bytes) {
      bytes.store(0, std::memory_order_relaxed);
    }
    // An engine that reads is_done as false reads is_accepted as false, too.
    request->is_accepted.store(false, std::memory_order_relaxed);
    request->is_done.store(false, std::memory_order_release);
  }
  return request;
}

bool ConnectionChannel::can_share(std::size_t parts) const {
  for (std::size_t i = 0; i < parts; ++i) {
    if (!split_->receives.is_free(next_slot_ + i)) {
      return false;
    }
  }
  return true;
}

/// Receives are numbered as sub-connection 0 tells the peer of them: in the order of their posting.
/// None that the transport would refuse may come here.
void ConnectionChannel::share(Request& request, std::span<const transport::ReceivePart> parts) {
  request.first_slot = next_slot_;
  for (std::size_t i = 0; i < parts.size(); ++i, ++next_slot_) {
    request.receive.parts[i] = split_->layout.first_part(parts[i]);
    if (split_->layout.is_split(parts[i].capacity_bytes)) {
      split_->receives.open(next_slot_, {.data = parts[i].data,
                                         .capacity_bytes = parts[i].capacity_bytes,
                                         .context = request.receive.context + i});
    }
  }
}

Result<Request*> ConnectionChannel::send(transport::Tag tag, const void* data, Bytes bytes) {
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
    sub_->engine->post(request);
  }
  return request;
}

Result<Request*> ConnectionChannel::receive(std::span<const transport::ReceivePart> parts) {
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
  Request* const request = split_ == nullptr || can_share(parts.size()) ? take() : nullptr;
  if (request != nullptr) {
    request->is_send = false;
    request->receive.part_count = static_cast<std::uint8_t>(parts.size());
    request->receive.context = reinterpret_cast<std::uint64_t>(request);
    if (split_ == nullptr) {
      std::copy(parts.begin(), parts.end(), request->receive.parts.begin());
    } else {
      share(*request, parts);
    }
    sub_->engine->post(request);
  }
  return request;
}

Result<Request*> ConnectionChannel::flush(std::span<const std::byte> memory) {
  if (has_ended()) {
    return ended();
  }
  Request* const request = take();
  if (request != nullptr) {
    request->is_send = false;
    request->flushed = memory;
    request->receive.part_count = 0;
    request->receive.context = reinterpret_cast<std::uint64_t>(request);
    sub_->engine->post(request);
  }
  return request;
}

bool ConnectionChannel::is_split(const Request& request) const {
  if (split_ == nullptr) {
    return false;
  }
  const auto& parts = request.receive.parts;
  return request.is_send ? split_->layout.is_split(request.send.bytes)
                         : std::any_of(parts.begin(), parts.begin() + request.receive.part_count,
                                       [](const auto& part) { return part.whole_bytes != 0; });
}

void ConnectionChannel::help(const Request& request) {
  sub_->engine->help();
  if (is_split(request)) {
    for (std::uint32_t i = 1; i < split_->layout.sub_connections(); ++i) {
      split_->engines[i]->help();
    }
  }
}

std::uint32_t ConnectionChannel::unshare(const Request& request) {
  if (split_ == nullptr || request.is_send) {
    return 0;
  }
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < request.receive.part_count; ++i) {
    if (request.receive.parts[i].whole_bytes != 0) {
      found += split_->receives.close(request.first_slot + i) ? 1 : 0;
    }
  }
  return found;
}

/// To be called once the request is done.
void ConnectionChannel::give_back(Request* request) {
  // Parts that sub-connection 0 has counted are complete on all sub-connections. Others can only
  // come from a peer that violates the protocol, and one may be arriving now.
  const std::uint32_t found = unshare(*request);
  if (found > 0 && found * (split_->layout.sub_connections() - 1) > request->others) {
    for (std::uint32_t i = 1; i < split_->layout.sub_connections(); ++i) {
      split_->engines[i]->wait_for_round();
    }
  }
  request->is_taken = false;
  request->next_free = std::exchange(free_, request);
}

bool ConnectionChannel::test(Request* request, Completion* completion) {
  if (!request->is_done.load(std::memory_order_acquire)) {
    help(*request);
    if (!request->is_done.load(std::memory_order_acquire)) {
      return false;
    }
  }
  completion->status = request->error.ok()
                           ? status_of(request->outcome, request->is_peer_gone, sub_->who)
                           : request->error;
  completion->parts = request->parts;
  std::copy(request->bytes.begin(), request->bytes.end(), completion->bytes.begin());
  give_back(request);
  return true;
}

bool test(Request* request, Completion* completion) {
  return static_cast<ConnectionChannel*>(request->channel)->test(request, completion);
}

bool has_ended(const Request* request) { return request->is_done.load(std::memory_order_acquire); }

}  // namespace tutti::net
