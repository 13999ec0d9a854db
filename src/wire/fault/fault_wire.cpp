// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/fault/fault_wire.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/random.hpp"

namespace tutti::wire::fault {

using transport::TimeNs;
using transport::Transmission;

FaultWire::FaultWire(std::unique_ptr<Wire> below, FaultPlan plan, Clock clock, std::uint64_t stream)
    : below_(std::move(below)),
      plan_(std::move(plan)),
      clock_(std::move(clock)),
      seed_(mix64(plan_.seed + stream * kGolden64)),
      start_ns_(clock_()),
      is_late_(below_->capabilities().sends_complete_late) {}

Result<std::uint64_t> FaultWire::add_peer(const WireAddress& address, std::uint8_t traffic_class) {
  TUTTI_ASSIGN_OR_RETURN(const std::uint64_t peer, below_->add_peer(address, traffic_class));
  ++users_[peer];
  return peer;
}

void FaultWire::remove_peer(std::uint64_t peer) {
  const auto users = users_.find(peer);
  if (users != users_.end() && --users->second == 0) {
    users_.erase(users);
    std::erase_if(delayed_,
                  [peer](const auto& held) { return held.second.transmission.peer == peer; });
    std::erase_if(overtaken_,
                  [peer](const Overtaken& held) { return held.copy.transmission.peer == peer; });
  }
  below_->remove_peer(peer);
}

std::uint64_t FaultWire::drawn(Draw draw) const {
  // The packet that is refused below is offered again and then has the same number.
  return tutti::draw(seed_, static_cast<std::uint64_t>(draw), counters_.sent);
}

bool FaultWire::happens(Draw draw, ChancePpb chance_ppb) const {
  return chance_ppb != 0 &&
         below(static_cast<std::uint32_t>(drawn(draw) >> 32), kAlwaysPpb) < chance_ppb;
}

bool FaultWire::is_killed(TimeNs now, const Transmission& transmission) const {
  const TimeNs age_ns = now - start_ns_;
  return std::any_of(plan_.kills.begin(), plan_.kills.end(), [&](const Kill& kill) {
    const std::uint32_t number = kill.is_rail ? transmission.rail : transmission.path;
    return (kill.number == Kill::kAll || kill.number == number) && age_ns >= kill.begin_ns &&
           age_ns - kill.begin_ns < kill.length_ns;
  });
}

FaultWire::Copy FaultWire::copy_of(const Transmission& transmission) {
  Copy copy{transmission, {}};
  if (transmission.payload != nullptr) {
    copy.payload.assign(transmission.payload, transmission.payload + transmission.payload_bytes);
    // A vector's content stays where it is when the vector is moved.
    copy.transmission.payload = copy.payload.data();
  }
  return copy;
}

void FaultWire::flip_bit(Copy* copy) const {
  const bool has_payload = !copy->payload.empty();
  // Each part has half of the chance: by the bit, a header of 40 bytes would hardly ever be hit.
  const bool in_payload =
      has_payload &&
      (plan_.corrupt_part == CorruptPart::kPayload ||
       (plan_.corrupt_part == CorruptPart::kEither && drawn(Draw::kCorruptPart) % 2 == 0));
  std::byte* bytes = in_payload ? copy->payload.data() : copy->transmission.header.data();
  const std::size_t count = in_payload ? copy->payload.size() : copy->transmission.header_bytes;
  if (count != 0) {
    const std::uint64_t bit = drawn(Draw::kCorruptBit) % (count * 8);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

void FaultWire::hold(TimeNs leaves_ns, Copy copy) {
  if (delayed_.size() >= kHeldMax) {
    ++counters_.overflowed;
    return;
  }
  delayed_.emplace(leaves_ns, std::move(copy));
}

bool FaultWire::send(const Transmission& transmission) {
  const TimeNs now = clock_();
  release(now);
  if (is_killed(now, transmission)) {
    ++counters_.killed;
    ++counters_.sent;
    note_read(transmission);
    return true;
  }
  if (happens(Draw::kDrop, plan_.drop_ppb)) {
    ++counters_.dropped;
    ++counters_.sent;
    note_read(transmission);
    return true;
  }
  const bool corrupts = happens(Draw::kCorrupt, plan_.corrupt_ppb) &&
                        (plan_.corrupt_part != CorruptPart::kPayload ||
                         (transmission.payload != nullptr && transmission.payload_bytes != 0));
  const bool delays = happens(Draw::kDelay, plan_.delay_ppb);
  const bool reorders = !delays && happens(Draw::kReorder, plan_.reorder_ppb);
  std::optional<Copy> copy;
  if (corrupts || delays || reorders) {
    copy = copy_of(transmission);
    if (corrupts) {
      flip_bit(&*copy);
    }
  }
  // Before the copy goes: what the network duplicates is what was sent.
  const bool duplicates = happens(Draw::kDuplicate, plan_.duplicate_ppb);
  std::optional<Copy> second;
  if (duplicates) {
    second = copy_of(copy ? copy->transmission : transmission);
  }
  if (!delays && !reorders && !(copy ? send_copy(&*copy) : below_->send(transmission))) {
    return false;
  }
  if (corrupts || delays || reorders) {
    note_read(transmission);
  }
  counters_.corrupted += corrupts ? 1 : 0;
  counters_.delayed += delays ? 1 : 0;
  counters_.reordered += reorders ? 1 : 0;
  if (duplicates) {
    ++counters_.duplicated;
    hold(now + plan_.duplicate_ns, std::move(*second));
  }
  if (delays) {
    hold(now + plan_.delay_ns, std::move(*copy));
  } else if (reorders) {
    const std::uint64_t overtakers = 1 + drawn(Draw::kOvertakers) % kOvertakersMax;
    if (overtaken_.size() >= kHeldMax) {
      ++counters_.overflowed;
    } else {
      // The packet itself is one of those that are counted as sent.
      overtaken_.push_back(
          {std::move(*copy), counters_.sent + 1 + overtakers, now + kReorderNsMax});
    }
  }
  ++counters_.sent;
  return true;
}

/// Keeps what the wire below says of our copies from the caller.
class FaultWire::Filter : public Arrivals {
 public:
  Filter(FaultWire* wire, Arrivals* to) : wire_(wire), to_(to) {}
  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) override {
    return to_->place(header, payload_bytes);
  }
  void arrived(const transport::Arrival& arrival) override { to_->arrived(arrival); }
  void sent(std::uint64_t cookie) override {
    if (cookie < kOwnCookies) {
      to_->sent(cookie);
    } else {
      wire_->unread_.erase(cookie);
    }
  }

 private:
  FaultWire* wire_;
  Arrivals* to_;
};

std::size_t FaultWire::receive(Arrivals& arrivals, std::size_t packets_max) {
  release(clock_());
  for (const std::uint64_t cookie : std::exchange(read_cookies_, {})) {
    arrivals.sent(cookie);
  }
  if (!is_late_) {
    return below_->receive(arrivals, packets_max);
  }
  Filter filter(this, &arrivals);
  return below_->receive(filter, packets_max);
}

void FaultWire::note_read(const Transmission& transmission) {
  if (is_late_ && transmission.payload != nullptr) {
    read_cookies_.push_back(transmission.cookie);
  }
}

bool FaultWire::send_held(TimeNs now, Copy* copy) {
  if (is_killed(now, copy->transmission)) {
    ++counters_.killed;
    return true;
  }
  return send_copy(copy);
}

bool FaultWire::send_copy(Copy* copy) {
  copy->transmission.cookie = next_cookie_;
  if (!below_->send(copy->transmission)) {
    return false;
  }
  if (is_late_ && copy->transmission.payload != nullptr) {
    unread_.emplace(next_cookie_++, std::move(*copy));
  }
  return true;
}

void FaultWire::release(TimeNs now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    if (!send_held(now, &delayed_.begin()->second)) {
      return;
    }
    delayed_.erase(delayed_.begin());
  }
  bool has_room = true;
  std::erase_if(overtaken_, [&](Overtaken& held) {
    const bool is_due = counters_.sent >= held.leaves_after || now >= held.leaves_ns;
    has_room = has_room && (!is_due || send_held(now, &held.copy));
    return is_due && has_room;
  });
}

TimeNs FaultWire::next_deadline() const {
  TimeNs next = below_->next_deadline();
  if (!delayed_.empty()) {
    next = std::min(next, delayed_.begin()->first);
  }
  for (const Overtaken& held : overtaken_) {
    next = std::min(next, held.leaves_ns);
  }
  return next;
}

std::string FaultWire::report() const {
  std::string text = ", faults in " + std::to_string(counters_.sent) + " packets:";
  const auto add = [&](const char* what, std::uint64_t count) {
    text += std::string(" ") + what + " " + std::to_string(count);
  };
  add("dropped", counters_.dropped);
  add("duplicated", counters_.duplicated);
  add("reordered", counters_.reordered);
  add("delayed", counters_.delayed);
  add("corrupted", counters_.corrupted);
  add("killed", counters_.killed);
  add("overflowed", counters_.overflowed);
  return text + below_->report();
}

std::string FaultWire::description() const {
  return below_->description() + "; with faults: " + format_fault_plan(plan_);
}

}  // namespace tutti::wire::fault
