// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The simplest wire: ends of one process, joined by queues in memory. Loses nothing, keeps the
// order, takes no time. Each end is used by one thread at a time. The shortest answer to what a
// wire has to do. Where its capabilities say so it is like a NIC that is polled: it completes sends
// late, some rounds of receive() after the packet has arrived, and aborts if a payload was touched
// before, or memory was deregistered of which payloads are under way. With events it tells of what
// arrives, as a NIC does: once, after it was armed.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/descriptors.hpp"
#include "wire/wire.hpp"

namespace tutti::wire::testing {

class MemoryWire;

/// What the ends share. Outlives them.
class MemoryNetwork {
 public:
  explicit MemoryNetwork(transport::WireCapabilities capabilities = default_capabilities(),
                         std::size_t queue_packets_max = 64, bool has_events = false)
      : capabilities_(capabilities),
        queue_packets_max_(queue_packets_max),
        has_events_(has_events) {}

  static transport::WireCapabilities default_capabilities() {
    transport::WireCapabilities capabilities;
    capabilities.chunk_bytes = 8192;
    capabilities.mtu_bytes = 1500;
    capabilities.paths = 16;
    capabilities.rails = 2;
    return capabilities;
  }

 private:
  friend class MemoryWire;
  struct Packet {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
    std::uint32_t payload_bytes = 0;
    std::uint8_t rail = 0;
  };

  struct Queue {
    std::deque<Packet> packets;
    Descriptor event;  ///< An eventfd.
    bool is_armed = false;
  };

  transport::WireCapabilities capabilities_;
  std::size_t queue_packets_max_;
  bool has_events_;
  std::mutex mutex_;                       ///< Of all below.
  std::map<std::uint32_t, Queue> queues_;  ///< By the end that they are for.
  std::uint32_t ends_ = 0;
};

class MemoryWire : public Wire {
 public:
  explicit MemoryWire(MemoryNetwork* network) : network_(network) {
    const std::lock_guard lock(network_->mutex_);
    number_ = ++network_->ends_;
    MemoryNetwork::Queue& queue = network_->queues_[number_];
    if (network_->has_events_) {
      queue.event.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    event_ = queue.event.get();
  }
  ~MemoryWire() override {
    const std::lock_guard lock(network_->mutex_);
    network_->queues_.erase(number_);
  }
  MemoryWire(const MemoryWire&) = delete;
  MemoryWire& operator=(const MemoryWire&) = delete;

  transport::WireCapabilities capabilities() const override { return network_->capabilities_; }

  WireAddress address() const override {
    WireAddress address;
    std::memcpy(address.bytes.data(), kMagic.data(), kMagic.size());
    std::memcpy(&address.bytes[kMagic.size()], &number_, sizeof(number_));
    address.length = kAddressBytes;
    return address;
  }

  Result<std::uint64_t> add_peer(const WireAddress& address,
                                 std::uint8_t /*traffic_class*/) override {
    if (address.length != kAddressBytes ||
        std::memcmp(address.bytes.data(), kMagic.data(), kMagic.size()) != 0) {
      return Status(ErrorCode::kInvalidArgument, "not an address of a memory wire");
    }
    std::uint32_t number = 0;
    std::memcpy(&number, &address.bytes[kMagic.size()], sizeof(number));
    peers_[++peers_named_] = number;
    return peers_named_;
  }
  void remove_peer(std::uint64_t peer) override { peers_.erase(peer); }

  Status register_memory(std::span<std::byte> memory) override {
    registered_.push_back(memory);
    return {};
  }
  void deregister_memory(std::span<std::byte> memory) override {
    const auto is_it = [&](std::span<std::byte> it) {
      return it.data() == memory.data() && it.size() == memory.size();
    };
    const auto found = std::find_if(registered_.begin(), registered_.end(), is_it);
    CHECK(found != registered_.end(), "deregistered what was not registered");
    for (const Unsent& it : unsent_) {
      CHECK(!contains(memory, it.packet.payload), "deregistered while a payload is under way");
    }
    registered_.erase(found);
  }
  /// Bytes of payload that left from registered memory.
  std::uint64_t registered_bytes_sent() const { return registered_bytes_sent_; }

  bool send(const transport::Transmission& transmission) override {
    const std::lock_guard lock(network_->mutex_);
    const auto peer = peers_.find(transmission.peer);
    const auto queue =
        peer == peers_.end() ? network_->queues_.end() : network_->queues_.find(peer->second);
    const bool is_lost = queue == network_->queues_.end();
    if (!is_lost && queue->second.packets.size() >= network_->queue_packets_max_) {
      return false;
    }
    take(transmission);
    if (is_lost) {
      ++counters_.refused;
      return true;
    }
    MemoryNetwork::Packet packet;
    packet.header.assign(transmission.header.begin(),
                         transmission.header.begin() + transmission.header_bytes);
    if (transmission.payload != nullptr) {
      packet.payload.assign(transmission.payload,
                            transmission.payload + transmission.payload_bytes);
    }
    packet.payload_bytes = transmission.payload_bytes;
    packet.rail = transmission.rail;
    queue->second.packets.push_back(std::move(packet));
    if (std::exchange(queue->second.is_armed, false)) {
      eventfd_write(queue->second.event.get(), 1);
    }
    ++counters_.datagrams_sent;
    return true;
  }

  std::size_t receive(Arrivals& arrivals, std::size_t packets_max) override {
    complete(arrivals);
    std::size_t count = 0;
    // Taken out first: the receiver may send from within arrived().
    MemoryNetwork::Packet packet;
    for (; count < packets_max && take(&packet); ++count) {
      ++counters_.datagrams_received;
      transport::Arrival arrival;
      arrival.header = packet.header;
      arrival.payload = packet.payload;
      arrival.payload_bytes = packet.payload_bytes;
      arrival.rail = packet.rail;
      if (!packet.payload.empty()) {
        place(arrivals, &arrival);
      }
      arrivals.arrived(arrival);
    }
    return count;
  }

  int file_descriptor() const override { return event_; }
  transport::TimeNs arm(transport::TimeNs now) override {
    eventfd_t told = 0;
    eventfd_read(event_, &told);
    const std::lock_guard lock(network_->mutex_);
    MemoryNetwork::Queue& queue = network_->queues_[number_];
    if (!queue.packets.empty()) {
      return now;
    }
    queue.is_armed = network_->has_events_;
    // Sends complete by calls of receive() alone.
    return unsent_.empty() ? transport::kNever : now + kLookNs;
  }
  const WireCounters& counters() const override { return counters_; }
  std::string description() const override { return "memory of this process"; }

 private:
  static constexpr std::string_view kMagic = "memory";
  static constexpr std::uint8_t kAddressBytes = kMagic.size() + sizeof(std::uint32_t);
  static constexpr transport::TimeNs kLookNs = 50'000;
  static constexpr std::uint64_t kLateRounds = 500;  ///< Of receive(), until a send completes.

  struct Unsent {
    transport::Transmission packet;
    std::vector<std::byte> payload;  ///< As it was when it was taken.
    std::uint64_t round = 0;
  };

  static bool contains(std::span<const std::byte> memory, const std::byte* payload) {
    const std::less<> is_before;
    return !is_before(payload, memory.data()) && is_before(payload, memory.data() + memory.size());
  }
  bool is_registered(const std::byte* payload) const {
    return payload != nullptr &&
           std::any_of(registered_.begin(), registered_.end(),
                       [&](std::span<const std::byte> it) { return contains(it, payload); });
  }

  void take(const transport::Transmission& packet) {
    const std::byte* const payload = packet.payload;
    if (payload != nullptr && network_->capabilities_.sends_complete_late) {
      unsent_.push_back({packet, {payload, payload + packet.payload_bytes}, rounds_});
    }
    registered_bytes_sent_ += is_registered(payload) ? packet.payload_bytes : 0;
  }

  /// Every other one overtakes the one before it: completions come in any order.
  void complete(Arrivals& arrivals) {
    ++rounds_;
    while (!unsent_.empty() && unsent_.front().round + kLateRounds < rounds_) {
      const auto it = unsent_.begin() + (unsent_.size() > 1 && rounds_ % 2 == 0 ? 1 : 0);
      CHECK(std::memcmp(it->packet.payload, it->payload.data(), it->payload.size()) == 0,
            "a payload was touched before it was sent");
      const std::uint64_t cookie = it->packet.cookie;
      unsent_.erase(it);
      arrivals.sent(cookie);
    }
  }

  bool take(MemoryNetwork::Packet* packet) {
    const std::lock_guard lock(network_->mutex_);
    std::deque<MemoryNetwork::Packet>& queue = network_->queues_[number_].packets;
    if (queue.empty()) {
      return false;
    }
    *packet = std::move(queue.front());
    queue.pop_front();
    return true;
  }

  void place(Arrivals& arrivals, transport::Arrival* arrival) {
    std::byte* target = arrivals.place(arrival->header, arrival->payload_bytes);
    if (target == nullptr) {
      counters_.payload_bytes_copied += arrival->payload_bytes;
      return;
    }
    std::memcpy(target, arrival->payload.data(), arrival->payload.size());
    counters_.payload_bytes_placed += arrival->payload_bytes;
    arrival->payload = {};
  }

  MemoryNetwork* network_;
  std::uint32_t number_;
  int event_ = -1;
  std::uint64_t peers_named_ = 0;
  std::map<std::uint64_t, std::uint32_t> peers_;
  std::vector<std::span<std::byte>> registered_;
  std::uint64_t registered_bytes_sent_ = 0;
  std::deque<Unsent> unsent_;
  std::uint64_t rounds_ = 0;  ///< Calls of receive().
  WireCounters counters_;
};

}  // namespace tutti::wire::testing
