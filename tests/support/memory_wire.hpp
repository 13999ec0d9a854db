// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The simplest wire: ends of one process, joined by queues in memory. Loses nothing, keeps the
// order, takes no time. Each end is used by one thread at a time. The shortest answer to what a
// wire has to do.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "wire/wire.hpp"

namespace tutti::wire::testing {

class MemoryWire;

/// What the ends share. Outlives them.
class MemoryNetwork {
 public:
  explicit MemoryNetwork(transport::WireCapabilities capabilities = default_capabilities(),
                         std::size_t queue_packets_max = 64)
      : capabilities_(capabilities), queue_packets_max_(queue_packets_max) {}

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

  transport::WireCapabilities capabilities_;
  std::size_t queue_packets_max_;
  std::mutex mutex_;                                    ///< Of all below.
  std::map<std::uint32_t, std::deque<Packet>> queues_;  ///< By the end that they are for.
  std::uint32_t ends_ = 0;
};

class MemoryWire : public Wire {
 public:
  explicit MemoryWire(MemoryNetwork* network) : network_(network) {
    const std::lock_guard lock(network_->mutex_);
    number_ = ++network_->ends_;
    network_->queues_[number_];
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

  bool send(const transport::Transmission& transmission) override {
    const std::lock_guard lock(network_->mutex_);
    const auto peer = peers_.find(transmission.peer);
    const auto queue =
        peer == peers_.end() ? network_->queues_.end() : network_->queues_.find(peer->second);
    if (queue == network_->queues_.end()) {
      ++counters_.refused;
      return true;
    }
    if (queue->second.size() >= network_->queue_packets_max_) {
      return false;
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
    queue->second.push_back(std::move(packet));
    ++counters_.datagrams_sent;
    return true;
  }

  std::size_t receive(Arrivals& arrivals, std::size_t packets_max) override {
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

  int file_descriptor() const override { return -1; }
  const WireCounters& counters() const override { return counters_; }
  std::string description() const override { return "memory of this process"; }

 private:
  static constexpr std::string_view kMagic = "memory";
  static constexpr std::uint8_t kAddressBytes = kMagic.size() + sizeof(std::uint32_t);

  bool take(MemoryNetwork::Packet* packet) {
    const std::lock_guard lock(network_->mutex_);
    std::deque<MemoryNetwork::Packet>& queue = network_->queues_[number_];
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
  std::uint64_t peers_named_ = 0;
  std::map<std::uint64_t, std::uint32_t> peers_;
  WireCounters counters_;
};

}  // namespace tutti::wire::testing
