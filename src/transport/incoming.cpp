// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/incoming.hpp"

#include <algorithm>
#include <bit>

#include "transport/serial.hpp"

namespace tutti::transport {

IncomingTable::IncomingTable(std::uint32_t parts_max, std::uint64_t first_advert)
    : slots_(std::bit_ceil(std::max(parts_max, 1U))),
      first_(first_advert),
      next_(first_advert),
      told_(first_advert),
      known_(first_advert),
      requests_(slots_.size()) {
  for (std::uint32_t i = 0; i < requests_.size(); ++i) {
    requests_[i].next = free_;
    free_ = i;
  }
}

bool IncomingTable::has_room(std::uint32_t parts) const {
  return next_ - first_ + parts <= slots_.size() && free_ != kNoRequest;
}

void IncomingTable::post(const ReceiveRequest& request) {
  const std::uint32_t index = free_;
  Request& it = requests_[index];
  free_ = it.next;
  it = Request{};
  it.context = request.context;
  it.first_slot = next_;
  it.part_count = request.part_count;
  it.open_parts = request.part_count;
  ++open_requests_;
  open_parts_ += request.part_count;
  for (std::uint8_t part = 0; part < request.part_count; ++part) {
    const ReceivePart& from = request.parts[part];
    Slot& to = slot(next_++);
    to = Slot{};
    to.bytes = {from.data, from.stride, from.capacity_bytes};
    to.whole_bytes = from.whole_bytes == 0 ? from.capacity_bytes : from.whole_bytes;
    to.remote = from.remote;
    has_memory_ = has_memory_ || from.remote.key != 0;
    to.tag = from.tag;
    to.request = index;
    to.part = part;
  }
}

bool IncomingTable::is_open(std::uint64_t number) const {
  return number >= first_ && number < next_ && slot(number).request != kNoRequest;
}

IncomingTable::Placed IncomingTable::on_data(const DataHeader& data, std::uint8_t flags,
                                             std::span<const std::byte> payload) {
  const std::uint64_t number = expand(data.slot, next_);
  const bool is_end = (flags & kFlagEnd) != 0;
  if (!is_open(number) || !slot(number).bytes.on_data(data, is_end, payload)) {
    return Placed::kNo;
  }
  Slot& it = slot(number);
  if (is_end && (flags & (kFlagCancelled | kFlagTruncated)) != 0) {
    requests_[it.request].outcome =
        (flags & kFlagTruncated) != 0 ? Outcome::kTruncated : Outcome::kCancelled;
  }
  on_known(number + 1);
  if (!it.bytes.is_complete()) {
    return Placed::kYes;
  }
  return end_part(number, it.bytes.total_bytes, Outcome::kOk) ? Placed::kFinished : Placed::kYes;
}

std::byte* IncomingTable::place(const DataHeader& data) const {
  const std::uint64_t number = expand(data.slot, next_);
  return is_open(number) ? slot(number).bytes.place(data) : nullptr;
}

bool IncomingTable::end_part(std::uint64_t number, Bytes bytes, Outcome outcome) {
  Slot& it = slot(number);
  const std::uint32_t index = it.request;
  Request& request = requests_[index];
  request.bytes[it.part] = bytes;
  if (outcome != Outcome::kOk) {
    request.outcome = outcome;
  }
  it.request = kNoRequest;
  --open_parts_;
  pass_ended();
  if (--request.open_parts > 0) {
    return false;
  }
  request.next = kNoRequest;
  (finished_tail_ == kNoRequest ? finished_head_ : requests_[finished_tail_].next) = index;
  finished_tail_ = index;
  return true;
}

void IncomingTable::pass_ended() {
  while (first_ != next_ && first_ < known_ && slot(first_).request == kNoRequest) {
    ++first_;
  }
}

void IncomingTable::end_all(Outcome outcome) {
  for (std::uint64_t n = first_; n != next_; ++n) {
    if (slot(n).request != kNoRequest) {
      end_part(n, slot(n).bytes.received_bytes, outcome);
    }
  }
  told_ = next_;
  known_ = next_;
  pass_ended();
}

bool IncomingTable::take_finished(Event& event) {
  const std::uint32_t index = finished_head_;
  if (index == kNoRequest) {
    return false;
  }
  Request& request = requests_[index];
  event.kind = EventKind::kReceiveDone;
  event.outcome = request.outcome;
  event.context = request.context;
  event.part_count = request.part_count;
  event.part_bytes = request.bytes;
  finished_head_ = request.next;
  if (finished_head_ == kNoRequest) {
    finished_tail_ = kNoRequest;
  }
  request.next = free_;
  free_ = index;
  --open_requests_;
  return true;
}

std::uint32_t IncomingTable::find(std::uint64_t context) const {
  for (std::uint64_t n = next_; n != first_; --n) {
    const Slot& it = slot(n - 1);
    if (it.request != kNoRequest && requests_[it.request].context == context) {
      return it.request;
    }
  }
  return kNoRequest;
}

bool IncomingTable::withdraw(std::uint32_t request) {
  std::uint32_t needed = 0;
  const Request& it = requests_[request];
  for (std::uint64_t n = it.first_slot; n != it.first_slot + it.part_count; ++n) {
    needed += n >= first_ && slot(n).request == request ? 1 : 0;
  }
  if (next_ - first_ + needed > slots_.size()) {
    return false;
  }
  for (std::uint64_t n = it.first_slot; n != it.first_slot + it.part_count; ++n) {
    if (n >= first_ && slot(n).request == request) {
      slot(n).is_withdrawn = true;
      Slot& to = slot(next_++);
      to = Slot{};
      to.is_withdrawal = true;
      withdrawals_end_ = next_;
      to.withdrawn = static_cast<std::uint32_t>(n);
    }
  }
  return true;
}

// A message is sent from its first byte to its last, so one that has begun goes on whatever else
// there is. Of one that has not, the others are the reason as long as they go on.
TimeNs IncomingTable::look(TimeNs now, TimeNs data_ns) {
  TimeNs since_ns = now;
  for (std::uint64_t n = first_; n != next_; ++n) {
    Slot& it = slot(n);
    const bool has_begun = it.bytes.has_begun();
    if (it.request != kNoRequest && (has_begun || it.is_withdrawn)) {
      const TimeNs own_ns = it.bytes.look(now);
      since_ns = std::min(since_ns, has_begun ? own_ns : std::max(own_ns, data_ns));
    }
  }
  return since_ns;
}

bool IncomingTable::on_known(std::uint64_t number) {
  if (number <= known_ || number > next_) {
    return false;
  }
  known_ = number;
  told_ = std::max(told_, known_);
  pass_ended();
  return true;
}

// What has not been told has not ended either, but for withdrawals, which do not wait.
bool IncomingTable::can_wait() const {
  constexpr std::uint64_t kEnough = 2;
  const std::uint64_t untold = next_ - told_;
  return untold < (has_memory_ ? kMemoryAdvertsPerPacket : kAdvertsPerPacket) &&
         withdrawals_end_ <= told_ && open_parts_ >= untold + kEnough && 2 * untold <= open_parts_;
}

void IncomingTable::fill(AdvertHeader& out) {
  out.first = static_cast<std::uint32_t>(told_);
  out.count = 0;
  const std::size_t most = has_memory_ ? kMemoryAdvertsPerPacket : kAdvertsPerPacket;
  while (told_ != next_ && out.count < most) {
    const Slot& it = slot(told_++);
    out.adverts[out.count++] = it.is_withdrawal ? Advert{it.withdrawn, kWithdrawn, {}}
                                                : Advert{it.tag, it.whole_bytes, it.remote};
  }
}

}  // namespace tutti::transport
