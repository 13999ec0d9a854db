// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// After connect() the core takes no memory from the heap, whatever the network does. Every new of
// this program is counted; the network of this test has its memory before it begins.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "transport/endpoint.hpp"
#include "transport/random.hpp"

namespace {

std::uint64_t allocations = 0;

}  // namespace

// The replaceable forms that all others come down to. Not inlined: the compiler would miss the
// pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace tutti::transport {
namespace {

/// Two endpoints and a network that loses, repeats and overtakes, in memory of a fixed size.
class FixedPair {
 public:
  explicit FixedPair(const ConnectionOptions& options)
      : air_(4096), data_(kMessage), into_(kMessage) {
    ConnectionOptions mirrored = options;
    std::swap(mirrored.local_id, mirrored.remote_id);
    for (int i = 0; i < 2; ++i) {
      handles_[i] = *ends_[i].connect(now_, i == 0 ? options : mirrored);
    }
  }

  /// Messages of both ends, all at once; true: they ended well.
  bool exchange(int messages) {
    int done = 0;
    for (int i = 0; i < 2 * messages; ++i) {
      const int end = i % 2;
      ReceiveRequest receive;
      receive.parts[0] = {static_cast<Tag>(i % 3), into_.data(), kMessage};
      const SendRequest send{static_cast<Tag>(i % 3), data_.data(), kMessage, 0};
      if (!ends_[1 - end].post_receive(now_, handles_[1 - end], receive).ok() ||
          !ends_[end].post_send(now_, handles_[end], send).ok()) {
        return false;
      }
    }
    Event event;
    while (done < 4 * messages && now_ < 5'000'000'000) {
      for (int i = 0; i < 2; ++i) {
        transmit(i);
        while (ends_[i].poll_event(&event)) {
          done += event.outcome == Outcome::kOk ? 1 : 0;
        }
      }
      advance();
    }
    return done == 4 * messages;
  }

  bool close() {
    Event event;
    int ended = 0;
    if (!ends_[0].close(now_, handles_[0]).ok()) {
      return false;
    }
    while (ended < 2 && now_ < 10'000'000'000) {
      for (int i = 0; i < 2; ++i) {
        transmit(i);
        while (ends_[i].poll_event(&event)) {
          ended += event.kind == EventKind::kConnectionDone ? 1 : 0;
        }
      }
      advance();
    }
    return ended == 2;
  }

 private:
  static constexpr Bytes kMessage = 70'001;

  struct InAir {
    TimeNs arrival_ns = kNever;  ///< kNever: this place is free.
    int to = 0;
    Transmission packet;
  };

  void transmit(int from) {
    Transmission packet;
    while (has_room() && ends_[from].poll_transmit(now_, &packet)) {
      const std::uint32_t fate = random_.below(100);
      const int copies = fate < 3 ? 0 : fate < 5 ? 2 : 1;
      for (int copy = 0; copy < copies; ++copy) {
        launch(1 - from, packet, now_ + 6'000 + random_.below(fate < 20 ? 40'000 : 500));
      }
    }
  }

  bool has_room() const { return in_air_ + 2 <= air_.size(); }

  void launch(int to, const Transmission& packet, TimeNs arrival_ns) {
    while (air_[next_].arrival_ns != kNever) {
      next_ = (next_ + 1) % air_.size();
    }
    air_[next_] = {arrival_ns, to, packet};
    ++in_air_;
  }

  void advance() {
    TimeNs next = std::min(ends_[0].next_deadline(), ends_[1].next_deadline());
    for (const InAir& it : air_) {
      next = std::min(next, it.arrival_ns);
    }
    now_ = std::max(now_ + 1, next);
    for (InAir& it : air_) {
      if (it.arrival_ns <= now_) {
        it.arrival_ns = kNever;
        --in_air_;
        Arrival arrival;
        arrival.header = {it.packet.header.data(), it.packet.header_bytes};
        arrival.payload = {it.packet.payload, it.packet.payload_bytes};
        arrival.payload_bytes = it.packet.payload_bytes;
        arrival.rail = it.packet.rail;
        arrival.ecn = random_.below(10) == 0;
        ends_[it.to].handle_datagram(now_, arrival);
      }
    }
    for (Endpoint& end : ends_) {
      if (end.next_deadline() <= now_) {
        end.handle_timeout(now_);
      }
    }
  }

  Endpoint ends_[2] = {Endpoint({2}), Endpoint({2})};
  ConnectionHandle handles_[2];
  std::vector<InAir> air_;
  std::size_t in_air_ = 0;
  std::size_t next_ = 0;
  std::vector<std::byte> data_;
  std::vector<std::byte> into_;
  TimeNs now_ = 1'000;
  Random random_{7};
};

TEST(allocation, none_after_connect) {
  for (const char* controller :
       {"nscc", "nscc+rccc", "rccc", "swift", "cubic", "dctcp", "timely"}) {
    ConnectionOptions options;
    options.local_id = 1;
    options.remote_id = 2;
    options.wire.paths = 64;
    options.wire.rails = 2;
    options.controller = controller;
    options.window_groups = 2;
    FixedPair pair(options);
    const std::uint64_t before = allocations;
    ASSERT_GT(before, 0U) << "new is not counted";
    const bool is_exchanged = pair.exchange(40);
    const bool is_closed = pair.close();
    EXPECT_EQ(before, allocations) << controller;
    EXPECT_TRUE(is_exchanged) << controller;
    EXPECT_TRUE(is_closed) << controller;
  }
}

}  // namespace
}  // namespace tutti::transport
