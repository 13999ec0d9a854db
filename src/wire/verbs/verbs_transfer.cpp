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

/// A chain of receives costs the NIC one doorbell.
constexpr std::size_t kReceivesPerPost = 16;

// Immediate data: 3 bits kind, 7 bits length of the header, 22 bits of a chunk that is written: its
// length, or (UC) the number of the write.
constexpr unsigned kKindShift = 29;
constexpr unsigned kHeaderShift = 22;
constexpr std::uint32_t kHeaderMask = 0x7f;
constexpr std::uint32_t kNumberMask = (1U << kHeaderShift) - 1;
static_assert(transport::kHeaderBytesMax <= kHeaderMask);

std::uint32_t immediate_of(std::uint32_t kind, std::size_t header_bytes, std::uint32_t number) {
  return htonl(kind << kKindShift | static_cast<std::uint32_t>(header_bytes) << kHeaderShift |
               (number & kNumberMask));
}

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
  bool is_known = true;
  const bool is_hosts =
      bounces_ == nullptr || device_of(payload.data(), payload.size(), &is_known) < 0;
  if (!is_known) {
    lose(sent);  // Of a GPU, and nobody could read it.
    return true;
  }
  const bool was_connected = peer->was_settled;
  const bool is_datagram =
      service_ == Service::kUd ||
      (!was_connected && header.size() + payload.size() <= datagram_bytes_of(*peer)) ||
      (sent.is_control && payload.empty() && !transport::is_path_probe(sent));
  if (is_datagram) {
    AddressHandle* const way = peer->ways[sent.path % peer->ways.size()];
    if (post(datagrams_, *peer, header, payload, kPacket, way, sent.cookie, is_hosts)) {
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
  if (sent.is_control && note_ping(*path.queue, sent)) {
    fail(path.queue, kResponseTimeout);
    lose(sent);
    return true;
  }
  if (sent.remote.key != 0 && !payload.empty()
          ? post_write(*path.queue, sent)
          : post(*path.queue, *peer, header, payload, kPacket, nullptr, sent.cookie, is_hosts)) {
    path.full_since_ns = transport::kNever;
    return true;
  }
  return lose_if_late(sent, &path.full_since_ns, kFullNsMax);
}

/// UC: nobody says when the peer's NIC takes no more of a queue pair, after a write into a closed
/// window or (Linux's rxe) after one that was lost in part. The transport leaves the path and
/// pings it now and then. Notes when a ping is sent. True: the one before has had no answer either.
bool VerbsWire::note_ping(Queue& queue, const Transmission& sent) const {
  if (service_ != Service::kUc || transport::type_of(sent) != transport::PacketType::kPing ||
      sent.header_bytes != transport::kCommonHeaderBytes) {
    return false;
  }
  const TimeNs now = options_.clock();
  queue.asked_ns = std::min(queue.asked_ns, now);
  return now - queue.asked_ns >= kAnswerNsMax;
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
  ++counters_.refused;
  if (sent.payload != nullptr) {
    sent_cookies_.push_back(sent.cookie);
  }
}

int VerbsWire::device_of(const std::byte* memory, std::size_t bytes, bool* is_known) const {
  if (bounces_ == nullptr || bytes == 0) {
    return -1;
  }
  if (const auto* const region = memory_->find_region(memory, bytes)) {
    return region->device;
  }
  const int device = options_.copies->device_of(memory);
  *is_known = device < 0;
  return device;
}

/// False: there is no room. `may_be_inline`: the CPU may read the payload.
bool VerbsWire::post(Queue& queue, const Peer& peer, std::span<const std::byte> header,
                     std::span<const std::byte> payload, Kind kind, AddressHandle* way,
                     std::uint64_t cookie, bool may_be_inline) {
  const std::uint32_t depth = way == nullptr ? options_.send_depth : kDatagramDepth;
  // Data leaves room for what goes by datagrams.
  const std::size_t kept = way == nullptr ? kDatagramDepth : 0;
  if (queue.outstanding >= depth || free_slots_.size() <= kept ||
      (datagrams_failed_ && &queue == &datagrams_)) {
    return false;
  }
  const std::uint32_t index = free_slots_.back();
  Slot slot{&queue, cookie, kind == kPacket && payload.data() != nullptr, -1,
            (slots_[index].uses + 1) & kUsesMask};
  std::array<Segment, 2> segments{};
  int count = 0;
  const bool is_inline = may_be_inline && header.size() + payload.size() <= inline_bytes_;
  if (!header.empty()) {
    std::byte* const copy = headers_ + index * kHeaderSlotBytes;
    std::memcpy(copy, header.data(), header.size());
    segments[static_cast<std::size_t>(count++)] = {reinterpret_cast<std::uint64_t>(copy),
                                                   static_cast<std::uint32_t>(header.size()),
                                                   arena_mr_->local_key};
  }
  if (!payload.empty()) {
    Segment& segment = segments[static_cast<std::size_t>(count++)];
    if (is_inline) {
      segment = {reinterpret_cast<std::uint64_t>(payload.data()),
                 static_cast<std::uint32_t>(payload.size()), 0};
    } else if (!fill_segment(payload, &segment, &slot)) {
      return false;
    }
  }
  SendRequest request{};
  request.id = std::uint64_t{slot.uses} << 32 | index;
  request.segments = segments.data();
  request.segment_count = count;
  request.opcode = kSendWithImmediate;
  request.flags = kSignaled | (is_inline ? kInline : 0U);
  request.immediate = immediate_of(kind, header.size(), 0);
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
  note_posted(queue);
  counters_.datagrams_sent += kind == kPacket ? 1 : 0;
  return true;
}

inline void VerbsWire::note_posted(Queue& queue) {
  if (queue.outstanding++ == 0) {
    queue.progress_ns = options_.clock();
    queue.is_suspect = false;
    look_due_ns_ = std::min(look_due_ns_, queue.progress_ns + kLookNs);
  }
}

/// Of memory that the NIC does not know. False: there is no room to copy it to.
bool VerbsWire::copy_to_segment(std::span<const std::byte> payload, Segment* segment, Slot* slot) {
  if (free_bounces_.empty()) {
    return false;
  }
  slot->bounce = free_bounces_.back();
  free_bounces_.pop_back();
  std::byte* const copy = copies_ + static_cast<std::size_t>(slot->bounce) * bounce_bytes_;
  std::memcpy(copy, payload.data(), payload.size());
  *segment = {reinterpret_cast<std::uint64_t>(copy), static_cast<std::uint32_t>(payload.size()),
              arena_mr_->local_key};
  return true;
}

/// A chunk whose place in the peer's memory is known: a write, and a send with its header. RC keeps
/// their order and loses neither, so the header says that the write has come. Of UC either may be
/// lost: the write has a completion of its own, and the header goes ahead.
[[gnu::always_inline]] inline bool VerbsWire::post_write(Queue& queue, const Transmission& sent) {
  if (queue.outstanding >= options_.send_depth || free_slots_.size() <= kDatagramDepth) {
    return false;
  }
  const std::uint32_t index = free_slots_.back();
  Slot& slot = slots_[index];  // Free until the NIC has taken it.
  const std::uint32_t uses = (slot.uses + 1) & kUsesMask;
  const bool is_inline = sent.header_bytes <= inline_bytes_;
  const std::byte* header = sent.header.data();
  if (!is_inline) {
    std::byte* const copy = headers_ + index * kHeaderSlotBytes;
    std::memcpy(copy, header, sent.header_bytes);
    header = copy;
  }
  Segment of_header{reinterpret_cast<std::uint64_t>(header), sent.header_bytes,
                    is_inline ? 0 : arena_mr_->local_key};
  Segment of_payload{};
  if (!fill_segment({sent.payload, sent.payload_bytes}, &of_payload, &slot)) {
    return false;
  }
  const bool is_uc = service_ == Service::kUc;
  const std::uint32_t number = is_uc ? ++queue.writes : sent.payload_bytes;
  SendRequest& said = said_;
  SendRequest& written = written_;
  said.id = written.id = std::uint64_t{uses} << 32 | index;
  said.segments = &of_header;
  said.segment_count = 1;
  said.opcode = kSendWithImmediate;
  said.flags = (is_inline ? kInline : 0U) | (is_uc ? 0U : kSignaled);
  said.immediate = immediate_of(is_uc ? kAhead : kWritten, sent.header_bytes, number);
  written.segments = &of_payload;
  written.segment_count = 1;
  written.opcode = is_uc ? kWriteWithImmediate : kWrite;
  written.flags = is_uc ? kSignaled : 0U;
  written.immediate = immediate_of(kPlaced, 0, number);
  written.to.rdma = {sent.remote.address, sent.remote.key};
  said.next = is_uc ? &written : nullptr;
  written.next = is_uc ? nullptr : &said;
  SendRequest* bad = nullptr;
  SendRequest* const first = is_uc ? &said : &written;
  const bool is_posted = context_->ops.post_send(queue.qp, first, &bad) == 0;
  if (!is_posted && bad == first) {
    if (slot.bounce >= 0) {
      free_bounces_.push_back(std::exchange(slot.bounce, -1));
    }
    return false;
  }
  free_slots_.pop_back();
  slot.queue = &queue;
  slot.cookie = sent.cookie;
  slot.has_payload = true;
  slot.uses = uses;
  note_posted(queue);
  ++counters_.datagrams_sent;
  if (!is_posted) {
    fail(&queue, kFlushed);  // Half of it is: the rest is flushed, and the chunk sent again.
  }
  return true;
}

/// Takes in what the NIC has completed; whether there was anything. What is to be told of it is
/// told by complete_sends().
bool VerbsWire::poll_sends() {
  std::array<Completion, kCompletionsPerPoll> done;
  bool did = false;
  int count = 0;
  do {
    count = context_->ops.poll_cq(send_cq_, kCompletionsPerPoll, done.data());
    did = did || count > 0;
    for (int i = 0; i < count; ++i) {
      const Completion& it = done[static_cast<std::size_t>(i)];
      if ((it.id & Windows::kCompletion) != 0) {
        windows_->complete(it.id, it.status);
        if (it.status != kSuccess) {
          note_failed_windows(verbs_.status_text(it.status));
        }
        continue;
      }
      if ((it.id & kFlush) != 0) {
        if ((it.id & ~kFlush) <= flushed_) {
          continue;  // Of a queue pair that was destroyed.
        }
        if (it.status != kSuccess && !flush_failed_) {
          lose_flushes(verbs_.status_text(it.status));
        }
        ++flushed_;
        continue;
      }
      const auto index = static_cast<std::uint32_t>(it.id);
      Queue* const queue = slots_[index].queue;
      if (queue == nullptr || slots_[index].uses != it.id >> 32) {
        continue;  // Of a queue pair that was destroyed.
      }
      take_back(index);
      queue->progress_ns = now_;
      queue->is_suspect = false;
      if (it.status != kSuccess && queue == &datagrams_) {
        // The first one says why, the others are flushed.
        last_failure_ = datagrams_failed_ ? last_failure_ : verbs_.status_text(it.status);
        datagrams_failed_ = true;
      } else if (it.status != kSuccess && !queue->is_retired) {
        fail(queue, it.status);
      }
    }
  } while (count == kCompletionsPerPoll);
  if (datagrams_failed_ && datagrams_.outstanding == 0 && now_ >= revive_due_ns_) {
    revive_datagrams();
  }
  if (windows_ != nullptr) {
    windows_->poll();
    if (windows_->has_failed() && window_failure_.empty()) [[unlikely]] {
      note_failed_windows("its send queue takes no request");
    }
  }
  return did;
}

void VerbsWire::complete_sends(Arrivals& arrivals) {
  poll_sends();
  // One of them may send again from within.
  told_.swap(sent_cookies_);
  for (const std::uint64_t cookie : told_) {
    arrivals.sent(cookie);
  }
  told_.clear();
}

std::size_t VerbsWire::receive(Arrivals& arrivals, std::size_t packets_max) {
  if (announce_due_ns_ != transport::kNever || retired_ > 0) {
    handle_timeout(options_.clock());
  }
  complete_sends(arrivals);
  std::size_t packets = 0;
  while (packets < packets_max) {
    if (bounces_ != nullptr && deliver_bounced(arrivals)) {
      ++packets;
      continue;
    }
    if (next_completion_ == received_count_) {
      poll_receives();
      if (received_count_ == 0) {
        break;
      }
    }
    packets +=
        deliver(arrivals, received_[next_completion_], received_ns_[next_completion_]) ? 1 : 0;
    ++next_completion_;
    if (empty_buffers_.size() >= kReceivesPerPost) {
      post_receives();
    }
  }
  if (next_completion_ == received_count_) {
    if (!empty_buffers_.empty()) {
      post_receives();
    }
    if (bounces_ != nullptr) {
      bounces_->start();
    }
  }
  return packets;
}

/// A packet whose payload a GPU has copied. False: there is none.
bool VerbsWire::deliver_bounced(Arrivals& arrivals) {
  Bounces::Packet packet;
  bool is_copied = false;
  if (!bounces_->take(&packet, &is_copied)) {
    return false;
  }
  if (is_copied) {
    packet.arrival.payload = {};
    counters_.payload_bytes_copied += packet.arrival.payload_bytes;
    arrivals.arrived(packet.arrival);
  }
  empty_buffers_.push_back(packet.buffer);
  return true;
}

/// Whether it was a packet. `received_ns`: when the NIC took it in; kNever: unknown.
bool VerbsWire::deliver(Arrivals& arrivals, const Completion& completion, TimeNs received_ns) {
  const auto buffer = static_cast<std::uint32_t>(completion.id);
  if (completion.status != kSuccess) {
    empty_buffers_.push_back(buffer);
    fail_receiver(completion);
    return false;
  }
  const std::byte* content = arena_.data() + buffer * buffer_bytes_;
  std::size_t bytes = completion.opcode == kReceivedWrite ? 0 : completion.bytes;
  const bool is_datagram = completion.qp_number == datagrams_.qp->number;
  const std::byte* const grh = content;
  if (is_datagram) {
    content += kGrhBytes;
    bytes -= std::min(bytes, kGrhBytes);
  }
  const std::uint32_t immediate =
      (completion.flags & kWithImmediate) == 0 ? 0 : ntohl(completion.immediate);
  const std::uint32_t kind = immediate >> kKindShift;
  const std::size_t header_bytes = immediate >> kHeaderShift & kHeaderMask;
  const std::uint32_t number = immediate & kNumberMask;
  Queue* const from = is_datagram ? nullptr : queue_of(completion.qp_number);
  if (from != nullptr) {
    from->asked_ns = transport::kNever;
  }
  if (from != nullptr && kind != kPlaced) {
    drop_ahead(arrivals, *from);  // Its write would have been next.
  }
  const bool has_header =
      header_bytes > 0 && header_bytes <= transport::kHeaderBytesMax && header_bytes <= bytes;
  empty_buffers_.push_back(buffer);  // Not posted before this returns.
  if (kind == kAhead && from != nullptr && has_header) {
    // Copied: many queue pairs whose writes are lost would keep all buffers.
    std::copy_n(content, header_bytes, from->ahead.begin());
    from->ahead_bytes = static_cast<std::uint8_t>(header_bytes);
    from->ahead_number = number;
    return false;
  }
  if (kind == kAnnounce && is_datagram) {
    hear({content, bytes});
    return false;
  }
  if (kind == kPlaced && from != nullptr) {
    return deliver_write(arrivals, *from, completion.bytes, number, received_ns);
  }
  if ((kind != kPacket && (kind != kWritten || is_datagram)) || !has_header) {
    ++counters_.malformed_dropped;
    return false;
  }
  ++counters_.datagrams_received;
  transport::Arrival arrival;
  arrival.header = {content, header_bytes};
  arrival.received_ns = received_ns;
  arrival.ecn = is_datagram && port_.is_ethernet && is_marked(grh, gid_.is_ipv4());
  if (kind == kWritten) {
    arrival.payload_bytes = number;
    counters_.payload_bytes_placed += number;
  } else {
    arrival.payload = {content + header_bytes, bytes - header_bytes};
    arrival.payload_bytes = static_cast<std::uint32_t>(arrival.payload.size());
  }
  if (arrival.payload.empty() || place_payload(arrivals, buffer, &arrival)) {
    arrivals.arrived(arrival);
  }
  return true;
}

/// Copies the payload to where the transport wants it, if it does. False: a GPU is to copy it, or
/// it is lost.
bool VerbsWire::place_payload(Arrivals& arrivals, std::uint32_t buffer,
                              transport::Arrival* arrival) {
  std::byte* const place = arrivals.place(arrival->header, arrival->payload_bytes);
  bool is_known = true;
  const int device = place == nullptr ? -1 : device_of(place, arrival->payload_bytes, &is_known);
  if (device >= 0) {
    // All peers share the buffers: a GPU that lags leaves half of them to the others.
    const bool has_room = bounces_->held() < std::max<std::size_t>(options_.receive_buffers / 2, 1);
    if (is_known && has_room) {
      empty_buffers_.pop_back();  // The last is this one: it stays until the GPU has copied.
      arrival->received_ns = std::min(arrival->received_ns, options_.clock());
      bounces_->add({*arrival, buffer, place, device});
    } else if (is_known) {
      ++copies_dropped_;
    }
    return false;  // What is not copied is lost: not registered any more, or no room.
  }
  (place == nullptr ? counters_.payload_bytes_copied : counters_.payload_bytes_placed) +=
      arrival->payload_bytes;
  if (place != nullptr) {
    std::memcpy(place, arrival->payload.data(), arrival->payload.size());
    arrival->payload = {};
  }
  return true;
}

/// UC. Of a write without its header nobody can say what it was: the chunk counts as lost.
bool VerbsWire::deliver_write(Arrivals& arrivals, Queue& queue, std::uint32_t bytes,
                              std::uint32_t number, TimeNs received_ns) {
  if (queue.ahead_bytes == 0 || queue.ahead_number != number) {
    drop_ahead(arrivals, queue);
    ++counters_.fragments_dropped;
    return false;
  }
  transport::Arrival arrival;
  arrival.header = {queue.ahead.data(), std::exchange(queue.ahead_bytes, std::uint8_t{0})};
  arrival.payload_bytes = bytes;
  arrival.received_ns = received_ns;
  ++counters_.datagrams_received;
  counters_.payload_bytes_placed += bytes;
  arrivals.arrived(arrival);
  return true;
}

/// The write of a header that came ahead is lost: the sender is to know at once.
void VerbsWire::drop_ahead(Arrivals& arrivals, Queue& queue) {
  if (queue.ahead_bytes == 0) {
    return;
  }
  transport::Arrival arrival;
  arrival.header = {queue.ahead.data(), std::exchange(queue.ahead_bytes, std::uint8_t{0})};
  arrival.trimmed = true;
  ++counters_.fragments_dropped;
  arrivals.arrived(arrival);
}

/// A receive has failed: its queue pair takes no more. So it is after a write that came late, into
/// a window that is closed.
void VerbsWire::fail_receiver(const Completion& completion) {
  Queue* const queue = queue_of(completion.qp_number);
  if (queue != nullptr && !queue->is_retired) {
    fail(queue, completion.status);
  }
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
