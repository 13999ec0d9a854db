// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/port.hpp"

#include <algorithm>
#include <utility>

#include "base/random.hpp"

namespace tutti::simulate {

void Port::set_up(std::uint32_t link, PsPerByteQ16 rate, const PortRules* rules,
                  std::uint32_t* held) {
  link_ = link;
  rate_ = rate;
  rules_ = rules;
  held_ = held;
}

std::uint32_t Port::random_bits() {
  return static_cast<std::uint32_t>(draw(rules_->seed, link_, draws_++) >> 32);
}

void Port::arrive(TimePs now_ps, SimPacket packet, std::vector<SimPacket>* dead) {
  catch_up(now_ps);
  // Whatever may still wait now may not be sent: the serialiser has been idle until this packet.
  free_ps_ = std::max(free_ps_, now_ps);
  admit(packet, dead);
  catch_up(now_ps);
}

void Port::pause(TimePs now_ps, bool stop) {
  catch_up(now_ps);
  counters_.pauses += stop && !paused_ ? 1 : 0;
  paused_ = stop;
  free_ps_ = std::max(free_ps_, now_ps);
  catch_up(now_ps);
}

void Port::set_rate(TimePs now_ps, PsPerByteQ16 rate) {
  catch_up(now_ps);
  down_ = rate == 0;
  rate_ = down_ ? rate_ : rate;
}

void Port::admit(SimPacket packet, std::vector<SimPacket>* dead) {
  if (packet.priority == Priority::kControl) {
    queue_control(packet, dead);
  } else if (rules_->lossless || data_bytes_ == 0 ||
             data_bytes_ + packet.bytes <= rules_->queue_bytes) {
    queue_data(packet);
  } else {
    overflow(packet, dead);
  }
}

void Port::queue_data(const SimPacket& packet) {
  ring(Priority::kData).push(packet);
  data_bytes_ += packet.bytes;
  counters_.queue_bytes_max = std::max(counters_.queue_bytes_max, data_bytes_);
}

void Port::queue_control(const SimPacket& packet, std::vector<SimPacket>* dead) {
  if (control_bytes_ + packet.bytes > rules_->control_bytes) {
    ++counters_.dropped;
    dead->push_back(packet);
    return;
  }
  ring(Priority::kControl).push(packet);
  control_bytes_ += packet.bytes;
}

// A fair coin says whether the arriving or the newest waiting packet is cut, as in NDP (Handley et
// al., SIGCOMM 2017): otherwise senders in step lose their packets always or never.
void Port::overflow(SimPacket packet, std::vector<SimPacket>* dead) {
  if (!rules_->trim) {
    ++counters_.dropped;
    dead->push_back(packet);
    return;
  }
  SimPacket& newest = ring(Priority::kData).newest();
  if ((random_bits() & 1) != 0 &&
      data_bytes_ - newest.bytes + packet.bytes <= rules_->queue_bytes) {
    std::swap(packet, newest);
    data_bytes_ = data_bytes_ - packet.bytes + newest.bytes;
  }
  packet.bytes = rules_->header_bytes;
  packet.priority = Priority::kControl;
  packet.flags |= packet_flags::kTrimmed;
  packet.flags |= rules_->last_hop ? packet_flags::kTrimmedLast : std::uint8_t{0};
  ++counters_.trimmed;
  queue_control(packet, dead);
}

// Linear between the thresholds, as in RED, on the present queue.
bool Port::marks() {
  if (data_bytes_ <= rules_->ecn_low_bytes) {
    return false;
  }
  if (data_bytes_ >= rules_->ecn_high_bytes) {
    return true;
  }
  const std::uint64_t span = rules_->ecn_high_bytes - rules_->ecn_low_bytes;
  return random_bits() * span < std::uint64_t{data_bytes_ - rules_->ecn_low_bytes} << 32;
}

bool Port::loses() {
  const LossModel& loss = rules_->loss;
  if (loss.good_to_bad_q32 != 0) {
    bad_ = bad_ ? random_bits() >= loss.bad_to_good_q32 : random_bits() < loss.good_to_bad_q32;
  }
  const std::uint32_t limit = bad_ ? loss.bad_q32 : loss.good_q32;
  return limit != 0 && random_bits() < limit;
}

void Port::send_one() {
  const bool control = rings_[1].has_queued();
  Ring& ring = rings_[control ? 1 : 0];
  SimPacket& packet = ring.next_to_send();
  free_ps_ += serialisation_ps(packet.bytes, rate_);
  packet.time_ps = free_ps_ + rules_->latency_ps;
  ++counters_.packets;
  counters_.bytes += packet.bytes;
  if (control) {
    control_bytes_ -= packet.bytes;
  } else {
    data_bytes_ -= packet.bytes;
    ++counters_.queue[std::min<std::size_t>(data_bytes_ / rules_->bin_bytes, kQueueBins - 1)];
    if (marks()) {
      packet.flags |= packet_flags::kEcn;
      ++counters_.marked;
    }
    if (rules_->lossless && packet.ingress != kNoLink) {
      held_[packet.ingress] -= packet.bytes;
    }
  }
  if (down_ || loses()) [[unlikely]] {
    packet.flags |= packet_flags::kLost;
    ++counters_.lost;
  }
  ring.mark_sent();
}

}  // namespace tutti::simulate
