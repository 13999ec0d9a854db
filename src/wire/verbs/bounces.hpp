// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Packets that have come into receive buffers and whose payloads belong into memory of GPUs: first
// sent again, short, or datagrams. GPUs copy them, those that have come together by one launch;
// meanwhile nobody else has the buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "transport/types.hpp"
#include "wire/device_copies.hpp"

namespace tutti::wire::verbs {

class Bounces {
 public:
  struct Packet {
    transport::Arrival arrival;  ///< In the receive buffer.
    std::uint32_t buffer = 0;
    std::byte* place = nullptr;
    int device = 0;
  };

  explicit Bounces(DeviceCopies& copies) : copies_(copies) {}
  /// Waits for what is under way.
  ~Bounces();
  Bounces(const Bounces&) = delete;
  Bounces& operator=(const Bounces&) = delete;

  void add(const Packet& packet) {
    waiting_.push_back(packet);
    ++held_;
  }
  /// Launches the copies of what was added, as far as there is room.
  void start();
  /// One whose copy has ended, in the order in which its launch had them. False: there is none.
  /// `is_copied`: its payload is in its place.
  bool take(Packet* packet, bool* is_copied);
  /// Forgets what would still be copied there, and gives its receive buffers.
  void drop(std::span<const std::byte> memory, std::vector<std::uint32_t>* buffers);
  /// A GPU may still write there.
  bool is_under_way_into(std::span<const std::byte> memory);
  /// Of what was added and not taken.
  bool is_copying_into(std::span<const std::byte> memory) const;

  /// Packets that were added and neither taken nor dropped: each has a receive buffer.
  std::size_t held() const { return held_; }
  std::uint64_t failures() const { return failures_; }  ///< Packets that were not copied.
  const std::string& last_failure() const { return last_failure_; }

 private:
  struct Batch {
    std::uint64_t copies = 0;  ///< 0: failed when they were started.
    DeviceCopies::State state = DeviceCopies::State::kUnderWay;
    std::vector<Packet> packets;
  };
  static bool is_in(std::span<const std::byte> memory, const Packet& packet) {
    return packet.place < memory.data() + memory.size() &&
           packet.place + packet.arrival.payload.size() > memory.data();
  }
  void look(Batch& batch);

  DeviceCopies& copies_;
  std::vector<Packet> waiting_;
  std::deque<Batch> under_way_;
  std::vector<Packet> ended_;
  std::size_t next_ended_ = 0;  ///< Of those, to be taken.
  bool are_copied_ = true;      ///< Those.
  std::vector<DeviceCopies::Piece> pieces_;
  std::size_t held_ = 0;
  std::uint64_t failures_ = 0;
  std::string last_failure_;
};

}  // namespace tutti::wire::verbs
