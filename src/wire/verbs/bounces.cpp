// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/bounces.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace tutti::wire::verbs {

Bounces::~Bounces() {
  for (Batch& batch : under_way_) {
    for (look(batch); batch.state == DeviceCopies::State::kUnderWay; look(batch)) {
      sched_yield();
    }
  }
}

void Bounces::start() {
  std::vector<Packet> left;
  while (!waiting_.empty()) {
    const int device = waiting_.front().device;
    Batch batch;
    std::vector<Packet> others;
    pieces_.clear();
    for (const Packet& packet : waiting_) {
      if (packet.device == device && batch.packets.size() < DeviceCopies::kPiecesMax) {
        batch.packets.push_back(packet);
        const std::span<const std::byte> payload = packet.arrival.payload;
        pieces_.push_back({payload.data(), packet.place, payload.size()});
      } else {
        others.push_back(packet);
      }
    }
    const Result<std::uint64_t> started = copies_.start(device, pieces_);
    if (started.ok() && *started == 0) {
      // Later, with what comes until then. Other GPUs' may go.
      for (const Packet& packet : waiting_) {
        if (packet.device == device) {
          left.push_back(packet);
        }
      }
      std::erase_if(waiting_, [&](const Packet& it) { return it.device == device; });
      continue;
    }
    if (started.ok()) {
      batch.copies = *started;
    } else {
      last_failure_ = started.status().message();
    }
    under_way_.push_back(std::move(batch));
    waiting_ = std::move(others);
  }
  waiting_ = std::move(left);
}

bool Bounces::take(Packet* packet, bool* is_copied) {
  for (auto it = under_way_.begin(); next_ended_ == ended_.size() && it != under_way_.end(); ++it) {
    look(*it);
    if (it->state != DeviceCopies::State::kUnderWay) {
      are_copied_ = it->state == DeviceCopies::State::kEnded;
      if (!are_copied_ && it->copies != 0) {
        last_failure_ = "a copy has failed";
      }
      failures_ += are_copied_ ? 0 : it->packets.size();
      ended_ = std::move(it->packets);
      next_ended_ = 0;
      under_way_.erase(it);
      break;
    }
  }
  if (next_ended_ == ended_.size()) {
    return false;
  }
  *packet = ended_[next_ended_++];
  *is_copied = are_copied_;
  --held_;
  return true;
}

/// Asked once more is void.
void Bounces::look(Batch& batch) {
  if (batch.state == DeviceCopies::State::kUnderWay) {
    batch.state = batch.copies == 0 ? DeviceCopies::State::kFailed : copies_.state(batch.copies);
  }
}

void Bounces::drop(std::span<const std::byte> memory, std::vector<std::uint32_t>* buffers) {
  std::erase_if(waiting_, [&](const Packet& packet) {
    if (is_in(memory, packet)) {
      buffers->push_back(packet.buffer);
      --held_;
      return true;
    }
    return false;
  });
}

bool Bounces::is_under_way_into(std::span<const std::byte> memory) {
  return std::any_of(under_way_.begin(), under_way_.end(), [&](Batch& batch) {
    look(batch);
    return batch.state == DeviceCopies::State::kUnderWay &&
           std::any_of(batch.packets.begin(), batch.packets.end(),
                       [&](const Packet& packet) { return is_in(memory, packet); });
  });
}

bool Bounces::is_copying_into(std::span<const std::byte> memory) const {
  const auto is_there = [&](const Packet& packet) { return is_in(memory, packet); };
  return std::any_of(waiting_.begin(), waiting_.end(), is_there) ||
         std::any_of(under_way_.begin(), under_way_.end(), [&](const Batch& batch) {
           return std::any_of(batch.packets.begin(), batch.packets.end(), is_there);
         });
}

}  // namespace tutti::wire::verbs
