// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/outgoing.hpp"

#include <algorithm>
#include <bit>

#include "transport/serial.hpp"

namespace tutti::transport {

// One entry more than the sends for each advert: a withdrawn receive is answered by one.
OutgoingTable::OutgoingTable(std::uint32_t sends_max, std::uint32_t adverts_max,
                             std::uint64_t first_advert)
    : sends_(sends_max + std::bit_ceil(std::max(adverts_max, 1U))),
      sends_max_(sends_max),
      adverts_(std::bit_ceil(std::max(adverts_max, 1U))),
      first_open_advert_(first_advert),
      next_advert_(first_advert),
      matches_(sends_max) {
  for (std::uint32_t i = 0; i < sends_.size(); ++i) {
    append(free_, i);
  }
}

void OutgoingTable::append(IndexList& list, std::uint32_t index) {
  sends_[index].next = IndexList::kNone;
  sends_[index].previous = list.tail;
  (list.tail == IndexList::kNone ? list.head : sends_[list.tail].next) = index;
  list.tail = index;
}

void OutgoingTable::remove(IndexList& list, std::uint32_t index) {
  const Outgoing& it = sends_[index];
  (it.previous == IndexList::kNone ? list.head : sends_[it.previous].next) = it.next;
  (it.next == IndexList::kNone ? list.tail : sends_[it.next].previous) = it.previous;
}

std::uint32_t OutgoingTable::allocate() {
  const std::uint32_t index = free_.head;
  remove(free_, index);
  sends_[index] = Outgoing{};
  sends_[index].age = next_age_++;
  return index;
}

void OutgoingTable::post(const SendRequest& request) {
  const std::uint32_t index = allocate();
  Outgoing& it = sends_[index];
  it.tag = request.tag;
  it.data = request.data;
  it.stride = request.stride;
  it.bytes = request.bytes;
  it.whole_bytes = request.whole_bytes == 0 ? request.bytes : request.whole_bytes;
  it.tells_match = request.tells_match;
  it.is_patient = request.is_patient;
  it.context = request.context;
  it.state = Outgoing::State::kUnmatched;
  ++posted_;
  append(unmatched_, index);
  if (request.slot != kNoSlot) {
    begin(index, request.slot);
    return;
  }
  for (std::uint64_t n = first_open_advert_; n != next_advert_; ++n) {
    const Waiting& waiting = adverts_[n & (adverts_.size() - 1)];
    if (waiting.is_open && waiting.tag == it.tag) {
      match(index, n);
      return;
    }
  }
}

bool OutgoingTable::on_advert(std::uint64_t number, const Advert& advert) {
  if (number < next_advert_ || number - first_open_advert_ >= adverts_.size()) {
    return false;
  }
  adverts_[number & (adverts_.size() - 1)] = {advert.tag, advert.capacity_bytes, advert.remote,
                                              false, true};
  const bool is_next = number == next_advert_;
  while (next_advert_ - first_open_advert_ < adverts_.size()) {
    const Waiting& next = adverts_[next_advert_ & (adverts_.size() - 1)];
    if (!next.is_early) {
      break;
    }
    take_advert({next.tag, next.capacity_bytes, next.remote});
  }
  return is_next;
}

/// The next one in order.
void OutgoingTable::take_advert(const Advert& advert) {
  const std::uint64_t number = next_advert_++;
  Waiting& waiting = adverts_[number & (adverts_.size() - 1)];
  waiting = {advert.tag, advert.capacity_bytes, advert.remote, advert.capacity_bytes != kWithdrawn,
             false};
  if (!waiting.is_open) {
    const std::uint64_t target = expand(advert.tag, number);
    const bool exists = target >= first_open_advert_ && target < number;
    Waiting& withdrawn = adverts_[target & (adverts_.size() - 1)];
    if (exists && withdrawn.is_open && free_.head != IndexList::kNone) {
      const std::uint32_t index = allocate();
      sends_[index].has_event = false;
      sends_[index].state = Outgoing::State::kUnmatched;
      sends_[index].tag = withdrawn.tag;
      append(unmatched_, index);
      match(index, target);
      sends_[index].end_flags = kFlagEnd | kFlagCancelled;
    }
    pass_used_adverts();
    return;
  }
  for (std::uint32_t i = unmatched_.head; i != IndexList::kNone; i = sends_[i].next) {
    if (sends_[i].tag == advert.tag) {
      match(i, number);
      break;
    }
  }
}

void OutgoingTable::match(std::uint32_t index, std::uint64_t advert) {
  Outgoing& it = sends_[index];
  Waiting& waiting = adverts_[advert & (adverts_.size() - 1)];
  waiting.is_open = false;
  it.remote = waiting.remote;
  if (it.whole_bytes > waiting.capacity_bytes) {
    it.bytes = 0;
    it.outcome = Outcome::kTruncated;
    it.end_flags = kFlagEnd | kFlagTruncated;
  } else if (it.tells_match) {
    // There is room: no send has two, and no place is given to another before its event.
    matches_[next_match_++ % matches_.size()] = {it.context, advert};
  }
  begin(index, advert);
  pass_used_adverts();
}

void OutgoingTable::begin(std::uint32_t index, std::uint64_t slot) {
  Outgoing& it = sends_[index];
  it.slot = static_cast<std::uint32_t>(slot);
  remove(unmatched_, index);
  it.state = Outgoing::State::kCutting;
  append(cutting_, index);
  backlog_bytes_ += it.bytes;
  ++matched_;
}

void OutgoingTable::pass_used_adverts() {
  while (first_open_advert_ != next_advert_ &&
         !adverts_[first_open_advert_ & (adverts_.size() - 1)].is_open) {
    ++first_open_advert_;
  }
}

std::uint32_t OutgoingTable::find(std::uint64_t context) const {
  std::uint32_t found = IndexList::kNone;
  for (std::uint32_t i = 0; i < sends_.size(); ++i) {
    const Outgoing& it = sends_[i];
    const bool can_stop =
        it.state == Outgoing::State::kUnmatched || it.state == Outgoing::State::kCutting;
    if (can_stop && it.has_event && it.context == context &&
        (found == IndexList::kNone || it.age > sends_[found].age)) {
      found = i;
    }
  }
  return found;
}

bool OutgoingTable::cancel(std::uint32_t index) {
  Outgoing& it = sends_[index];
  it.outcome = Outcome::kCancelled;
  if (it.state == Outgoing::State::kUnmatched) {
    end(index);
    return true;
  }
  backlog_bytes_ -= it.bytes - it.next_offset;
  it.bytes = it.next_offset;  // An empty piece with the end follows.
  it.end_flags = kFlagEnd | kFlagCancelled;
  return false;
}

void OutgoingTable::end(std::uint32_t index) {
  Outgoing& it = sends_[index];
  if (it.state == Outgoing::State::kUnmatched) {
    remove(unmatched_, index);
  } else {
    --matched_;
    if (it.state == Outgoing::State::kCutting) {
      remove(cutting_, index);
      backlog_bytes_ -= it.bytes - it.next_offset;
    }
  }
  it.state = it.has_event ? Outgoing::State::kEnded : Outgoing::State::kFree;
  append(it.has_event ? ended_ : free_, index);
}

void OutgoingTable::end_unmatched(Outcome outcome) {
  while (unmatched_.head != IndexList::kNone) {
    sends_[unmatched_.head].outcome = outcome;
    end(unmatched_.head);
  }
}

void OutgoingTable::end_all(Outcome outcome) {
  for (std::uint32_t i = 0; i < sends_.size(); ++i) {
    Outgoing& it = sends_[i];
    if (it.state != Outgoing::State::kFree && it.state != Outgoing::State::kEnded) {
      it.outcome = outcome;
      end(i);
    }
  }
}

bool OutgoingTable::take_matched(Event& event) {
  if (first_match_ == next_match_) {
    return false;
  }
  const Match& match = matches_[first_match_++ % matches_.size()];
  event = Event{};
  event.kind = EventKind::kSendMatched;
  event.context = match.context;
  event.slot = match.slot;
  return true;
}

bool OutgoingTable::take_finished(Event& event) {
  const std::uint32_t index = ended_.head;
  if (index == IndexList::kNone) {
    return false;
  }
  Outgoing& it = sends_[index];
  event.kind = EventKind::kSendDone;
  event.outcome = it.outcome;
  event.context = it.context;
  event.part_count = 1;
  event.part_bytes = {it.next_offset};
  remove(ended_, index);
  it.state = Outgoing::State::kFree;
  append(free_, index);
  --posted_;
  return true;
}

}  // namespace tutti::transport
