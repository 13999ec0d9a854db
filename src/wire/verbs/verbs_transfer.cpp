// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// VerbsWire's data path: packets to the NIC and from it.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/packet.hpp"
#include "wire/verbs/verbs_wire.hpp"

namespace tutti::wire::verbs {
namespace {

using transport::TimeNs;
using transport::Transmission;

constexpr int kCompletionsPerPoll = 32;
/// A chain of receives costs the NIC one doorbell.
constexpr std::size_t kReceivesPerPost = 16;
constexpr unsigned kKindShift = 24;
constexpr std::uint32_t kHeaderMask = 0xff;

/// Whether the IP header before a datagram says that a switch marked it (RFC 3168). The GRH is an
/// IPv6 header; of IPv4, the last 20 bytes are that header (IBTA, annex A17).
bool is_marked(const std::byte* grh, bool is_ipv4) {
  constexpr unsigned kMarked = 3;
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(grh[i]); };
  return ((is_ipv4 ? at(21) : at(1) >> 4) & kMarked) == kMarked;
}

}  // namespace

bool VerbsWire::send(const Transmission& sent) {
  Peer* const peer = find(sent.peer);
  if (peer == nullptr || sent.payload_bytes > chunk_bytes_) {
    lose(sent);
    return true;
  }
  const std::span<const std::byte> header(sent.header.data(), sent.header_bytes);
  const std::span<const std::byte> payload(sent.payload,
                                           sent.payload == nullptr ? 0 : sent.payload_bytes);
  const std::size_t bytes = header.size() + payload.size();
  const bool was_connected = peer->was_settled;
  const bool fits = bytes <= static_cast<std::size_t>(port_.mtu_bytes);
  const bool is_datagram = service_ == Service::kUd || (fits && !was_connected) ||
                           (sent.is_control && payload.empty() && !transport::is_path_probe(sent));
  if (is_datagram) {
    AddressHandle* const way = peer->ways[sent.path % peer->ways.size()];
    if (post(datagrams_, *peer, header, payload, kPacket, way, sent.cookie)) {
      datagrams_full_since_ns_ = transport::kNever;
      return true;
    }
    return lose_if_late(sent, &datagrams_full_since_ns_, kFullNsMax);
  }
  Path& path = peer->paths[sent.path % peer->paths.size()];
  if (!is_up(path) && was_connected) {
    lose(sent);  // The transport leaves the path.
    return true;
  }
  if (!is_up(path)) {
    return lose_if_late(sent, &peer->wait_since_ns, kConnectNsMax);
  }
  if (post(*path.queue, *peer, header, payload, kPacket, nullptr, sent.cookie)) {
    path.full_since_ns = transport::kNever;
    return true;
  }
  return lose_if_late(sent, &path.full_since_ns, kFullNsMax);
}

/// There is no room since `*since_ns`. True: for too long, the packet is lost.
bool VerbsWire::lose_if_late(const Transmission& sent, TimeNs* since_ns, TimeNs most_ns) {
  const TimeNs now = options_.clock();
  *since_ns = std::min(*since_ns, now);
  if (now - *since_ns < most_ns) {
    return false;
  }
  lose(sent);
  return true;
}

void VerbsWire::lose(const Transmission& sent) {
  ++lost_;
  ++counters_.refused;
  if (sent.payload != nullptr) {
    sent_cookies_.push_back(sent.cookie);
  }
}

/// False: there is no room.
bool VerbsWire::post(Queue& queue, const Peer& peer, std::span<const std::byte> header,
                     std::span<const std::byte> payload, Kind kind, AddressHandle* way,
                     std::uint64_t cookie) {
  const std::uint32_t depth = way == nullptr ? options_.send_depth : kDatagramDepth;
  if (queue.outstanding >= depth || free_slots_.empty()) {
    return false;
  }
  const std::uint32_t index = free_slots_.back();
  Slot slot{&queue, cookie, kind == kPacket && payload.data() != nullptr, -1,
            slots_[index].uses + 1};
  std::array<Segment, 2> segments{};
  int count = 0;
  const bool is_inline = header.size() + payload.size() <= inline_bytes_;
  if (!header.empty()) {
    std::byte* const copy = headers_ + index * kHeaderSlotBytes;
    std::memcpy(copy, header.data(), header.size());
    segments[static_cast<std::size_t>(count++)] = {reinterpret_cast<std::uint64_t>(copy),
                                                   static_cast<std::uint32_t>(header.size()),
                                                   arena_mr_->local_key};
  }
  if (!payload.empty()) {
    const std::byte* from = payload.data();
    std::uint32_t key = 0;
    if (!is_inline) {
      const Mr* const mr = memory_->find(payload.data(), payload.size());
      if (mr == nullptr) {
        if (free_bounces_.empty()) {
          return false;
        }
        slot.bounce = free_bounces_.back();
        free_bounces_.pop_back();
        std::byte* const copy = bounces_ + static_cast<std::size_t>(slot.bounce) * bounce_bytes_;
        std::memcpy(copy, payload.data(), payload.size());
        from = copy;
      }
      key = mr == nullptr ? arena_mr_->local_key : mr->local_key;
    }
    segments[static_cast<std::size_t>(count++)] = {reinterpret_cast<std::uint64_t>(from),
                                                   static_cast<std::uint32_t>(payload.size()), key};
  }
  SendRequest request{};
  request.id = std::uint64_t{slot.uses} << 32 | index;
  request.segments = segments.data();
  request.segment_count = count;
  request.opcode = kSendWithImmediate;
  request.flags = kSignaled | (is_inline ? kInline : 0U);
  request.immediate = htonl(static_cast<std::uint32_t>(kind) << kKindShift |
                            static_cast<std::uint32_t>(header.size()));
  if (way != nullptr) {
    request.to.ud = {way, peer.end.qp_number, peer.end.qkey};
  }
  SendRequest* bad = nullptr;
  if (context_->ops.post_send(queue.qp, &request, &bad) != 0) {
    if (slot.bounce >= 0) {
      free_bounces_.push_back(slot.bounce);
    }
    return false;
  }
  free_slots_.pop_back();
  slots_[index] = slot;
  ++queue.outstanding;
  counters_.datagrams_sent += kind == kPacket ? 1 : 0;
  return true;
}

/// What it held is free again; its packet is to be told as sent.
void VerbsWire::take_back(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.has_payload) {
    sent_cookies_.push_back(slot.cookie);
  }
  if (slot.bounce >= 0) {
    free_bounces_.push_back(slot.bounce);
  }
  --slot.queue->outstanding;
  slot = {.uses = slot.uses};
  free_slots_.push_back(index);
}

void VerbsWire::complete_sends(Arrivals& arrivals) {
  std::array<Completion, kCompletionsPerPoll> done;
  int count = 0;
  do {
    count = context_->ops.poll_cq(send_cq_, kCompletionsPerPoll, done.data());
    for (int i = 0; i < count; ++i) {
      const Completion& it = done[static_cast<std::size_t>(i)];
      const auto index = static_cast<std::uint32_t>(it.id);
      Queue* const queue = slots_[index].queue;
      if (queue == nullptr || slots_[index].uses != it.id >> 32) {
        continue;  // Of a queue pair that was destroyed.
      }
      take_back(index);
      if (it.status != kSuccess && !queue->is_retired && queue != &datagrams_) {
        fail(queue, it.status);
      }
      if (queue->is_retired && queue->outstanding == 0) {
        destroy(queue);
      }
    }
  } while (count == kCompletionsPerPoll);
  // One of them may send again from within.
  told_.swap(sent_cookies_);
  for (const std::uint64_t cookie : told_) {
    arrivals.sent(cookie);
  }
  told_.clear();
}

std::size_t VerbsWire::receive(Arrivals& arrivals, std::size_t packets_max) {
  if (announce_due_ns_ != transport::kNever) {
    handle_timeout(options_.clock());
  }
  complete_sends(arrivals);
  std::size_t packets = 0;
  while (packets < packets_max) {
    if (next_completion_ == received_.size()) {
      received_.resize(kCompletionsPerPoll);
      const int count = context_->ops.poll_cq(receive_cq_, kCompletionsPerPoll, received_.data());
      received_.resize(static_cast<std::size_t>(std::max(count, 0)));
      next_completion_ = 0;
      if (received_.empty()) {
        break;
      }
    }
    const Completion& it = received_[next_completion_++];
    packets += deliver(arrivals, it) ? 1 : 0;
    empty_buffers_.push_back(static_cast<std::uint32_t>(it.id));
    if (empty_buffers_.size() >= kReceivesPerPost) {
      post_receives();
    }
  }
  if (!empty_buffers_.empty() && next_completion_ == received_.size()) {
    post_receives();
  }
  return packets;
}

/// Whether it was a packet.
bool VerbsWire::deliver(Arrivals& arrivals, const Completion& completion) {
  if (completion.status != kSuccess) {
    return false;
  }
  const std::byte* content = arena_.data() + completion.id * buffer_bytes_;
  std::size_t bytes = completion.bytes;
  const bool is_datagram = completion.qp_number == datagrams_.qp->number;
  const std::byte* const grh = content;
  if (is_datagram) {
    content += kGrhBytes;
    bytes -= std::min(bytes, kGrhBytes);
  }
  const std::uint32_t immediate =
      (completion.flags & kWithImmediate) == 0 ? UINT32_MAX : ntohl(completion.immediate);
  const std::size_t header_bytes = immediate & kHeaderMask;
  if (immediate >> kKindShift == kAnnounce && is_datagram) {
    hear({content, bytes});
    return false;
  }
  if (immediate >> kKindShift != kPacket || header_bytes == 0 ||
      header_bytes > transport::kHeaderBytesMax || header_bytes > bytes) {
    ++counters_.malformed_dropped;
    return false;
  }
  ++counters_.datagrams_received;
  transport::Arrival arrival;
  arrival.header = {content, header_bytes};
  arrival.payload = {content + header_bytes, bytes - header_bytes};
  arrival.payload_bytes = static_cast<std::uint32_t>(arrival.payload.size());
  arrival.ecn = is_datagram && port_.is_ethernet && is_marked(grh, gid_.is_ipv4());
  if (!arrival.payload.empty()) {
    std::byte* const place = arrivals.place(arrival.header, arrival.payload_bytes);
    (place == nullptr ? counters_.payload_bytes_copied : counters_.payload_bytes_placed) +=
        arrival.payload_bytes;
    if (place != nullptr) {
      std::memcpy(place, arrival.payload.data(), arrival.payload.size());
      arrival.payload = {};
    }
  }
  arrivals.arrived(arrival);
  return true;
}

void VerbsWire::post_receives() {
  std::array<ReceiveRequest, kReceivesPerPost> requests;
  std::array<Segment, kReceivesPerPost> segments;
  while (!empty_buffers_.empty()) {
    const std::size_t count = std::min(empty_buffers_.size(), kReceivesPerPost);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t buffer = empty_buffers_[empty_buffers_.size() - 1 - i];
      segments[i] = {reinterpret_cast<std::uint64_t>(arena_.data() + buffer * buffer_bytes_),
                     static_cast<std::uint32_t>(buffer_bytes_), arena_mr_->local_key};
      requests[i] = {buffer, i + 1 < count ? &requests[i + 1] : nullptr, &segments[i], 1};
    }
    ReceiveRequest* bad = nullptr;
    const int error = context_->ops.post_srq_receive(srq_, requests.data(), &bad);
    const std::size_t posted =
        error == 0 ? count : static_cast<std::size_t>(bad == nullptr ? 0 : bad - requests.data());
    empty_buffers_.resize(empty_buffers_.size() - posted);
    if (error != 0) {
      return;  // Tried again with the next packets.
    }
  }
}

}  // namespace tutti::wire::verbs
