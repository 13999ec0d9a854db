// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Two endpoints with a network of nothing but delay and faults between them, in virtual time: the
// smallest thing that the shipped endpoint runs in. Each path of a direction is a queue of its own
// with the rate of the wire, so that paths reorder against each other.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <vector>

#include "transport/endpoint.hpp"
#include "transport/packet.hpp"
#include "transport/random.hpp"
#include "transport/trace.hpp"

namespace tutti::transport::testing {

/// Chances are in 1/1000; each packet draws for itself.
struct Faults {
  std::uint32_t loss = 0;
  std::uint32_t duplicate = 0;
  std::uint32_t delay = 0;  ///< Of an extra delay of up to `delay_ns_max`.
  TimeNs delay_ns_max = 100'000;
  std::uint32_t corrupt = 0;  ///< One bit of the header.
  std::uint32_t trim = 0;
  std::uint32_t mark = 0;
};

class LossyPair {
 public:
  struct Delivered {
    std::array<std::byte, kHeaderBytesMax> header;
    std::size_t header_bytes = 0;
    std::vector<std::byte> payload;
    std::uint32_t payload_bytes = 0;
    std::uint8_t rail = 0;
    PathId path = 0;
    TimeNs received_ns = 0;  ///< By the host.
    bool ecn = false;
    bool trimmed = false;
    int to = 0;
  };

  /// `trace`: of the first end. `patient`: the end that bears with everything, as one does that
  /// has lost its way; -1: none.
  explicit LossyPair(ConnectionOptions options = {}, std::uint64_t seed = 1,
                     TraceSink* trace = nullptr, int patient = -1)
      : random_(seed), ends_{Endpoint({16}, 20, trace), Endpoint({16})} {
    if (options.local_id == 0) {
      options.local_id = 10;
      options.remote_id = 20;
    }
    options.local_incarnation = 1;
    options.remote_incarnation = 2;
    options_[0] = options;
    options_[1] = mirrored(options);
    if (patient >= 0) {
      options_[static_cast<std::size_t>(patient)].loss.give_up_ns = 3'600'000'000'000;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      auto made = ends_[i].connect(now_, options_[i]);
      EXPECT_TRUE(made.ok()) << made.status().message();
      handles_[i] = *made;
    }
  }

  static ConnectionOptions mirrored(ConnectionOptions options) {
    std::swap(options.local_id, options.remote_id);
    std::swap(options.local_incarnation, options.remote_incarnation);
    std::swap(options.sends, options.receives);
    options.seed += 1;
    return options;
  }

  Endpoint& end(int i) { return ends_[static_cast<std::size_t>(i)]; }
  ConnectionHandle handle(int i) const { return handles_[static_cast<std::size_t>(i)]; }
  const ConnectionOptions& options(int i) const { return options_[static_cast<std::size_t>(i)]; }
  TimeNs now() const { return now_; }
  const ConnectionCounters& counters(int i) { return *end(i).counters(handle(i)); }
  std::vector<Event>& events(int i) { return events_[static_cast<std::size_t>(i)]; }
  Faults faults;
  /// True: the packet vanishes. Seen before the random faults.
  std::function<bool(const Delivered&)> drop = {};
  /// True: only the header of this data comes.
  std::function<bool(const Delivered&)> is_partial = {};
  std::uint64_t packets = 0;
  /// Each end looks at what has come at multiples of it, and sleeps meanwhile. 0: at once.
  std::array<TimeNs, 2> nap_ns{};
  bool has_stamps = true;  ///< The hosts know when it came all the same.
  /// Packets that may wait are piggybacked, and control packets go with the data behind them.
  bool piggybacks = false;
  std::uint64_t datagrams = 0;
  bool checks_invariants = true;

  void send(int from, Tag tag, const std::vector<std::byte>& data, std::uint64_t context = 0) {
    const Status status =
        end(from).post_send(now_, handle(from), {tag, data.data(), data.size(), context});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void receive(int at, Tag tag, std::vector<std::byte>& data, std::uint64_t context = 0) {
    ReceiveRequest request;
    request.parts[0] = {tag, data.data(), data.size()};
    request.context = context;
    const Status status = end(at).post_receive(now_, handle(at), request);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  /// A message of so many bytes from the first end to the second; true: it is there as it was.
  bool carry(Bytes bytes) {
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<std::byte>(i * 2654435761U >> 16);
    }
    std::vector<std::byte> into(bytes);
    receive(1, 1, into);
    send(0, 1, data);
    return run_until_events(1, 1) && data == into;
  }

  /// Runs until `until` or until nothing will ever happen; true: the events of both are `wanted`.
  bool run_until_events(std::size_t wanted0, std::size_t wanted1, TimeNs until = 60'000'000'000) {
    while (events_[0].size() < wanted0 || events_[1].size() < wanted1) {
      if (!step(until)) {
        return false;
      }
    }
    return true;
  }
  void run(TimeNs time_ns) {
    const TimeNs until = now_ + time_ns;
    while (step(until)) {
    }
    now_ = until;
  }

  /// One moment of virtual time.
  bool step(TimeNs until) {
    drain();
    TimeNs next = std::min(ends_[0].next_deadline(), ends_[1].next_deadline());
    if (!in_air_.empty()) {
      next = std::min(next, in_air_.begin()->first);
    }
    if (next == kNever || next > until) {
      return false;
    }
    now_ = std::max(now_, next);
    while (!in_air_.empty() && in_air_.begin()->first <= now_) {
      const Delivered packet = std::move(in_air_.begin()->second);
      in_air_.erase(in_air_.begin());
      deliver(packet);
    }
    for (Endpoint& it : ends_) {
      if (it.next_deadline() <= now_) {
        it.handle_timeout(now_);
      }
      if (checks_invariants) {
        it.check_invariants();
      }
    }
    drain();
    return true;
  }

  void deliver(const Delivered& packet) {
    Arrival arrival;
    arrival.header = {packet.header.data(), packet.header_bytes};
    arrival.payload = packet.payload;
    arrival.payload_bytes = packet.trimmed ? 0 : packet.payload_bytes;
    arrival.rail = packet.rail;
    arrival.received_ns = has_stamps ? packet.received_ns : kNever;
    arrival.ecn = packet.ecn;
    arrival.trimmed = packet.trimmed;
    end(packet.to).handle_datagram(now_, arrival);
  }

  std::multimap<TimeNs, Delivered>& in_air() { return in_air_; }

 private:
  bool chance(std::uint32_t in_1000) { return in_1000 != 0 && random_.below(1000) < in_1000; }

  void drain() {
    for (int i = 0; i < 2; ++i) {
      Transmission out;
      Transmission piggyback;
      bool is_new = true;
      while (end(i).poll_transmit(now_, &out)) {
        while (piggybacks && end(i).poll_piggyback(now_, out, &piggyback)) {
          launch(1 - i, piggyback);
        }
        launch(1 - i, out);
        datagrams += is_new || !piggybacks ? 1 : 0;
        is_new = !out.is_control;
      }
      Event event;
      while (end(i).poll_event(&event)) {
        events(i).push_back(event);
      }
    }
  }

  void launch(int to, const Transmission& out) {
    ++packets;
    Delivered packet;
    packet.header = out.header;
    packet.header_bytes = out.header_bytes;
    if (out.payload != nullptr) {
      packet.payload.assign(out.payload, out.payload + out.payload_bytes);
    }
    packet.payload_bytes = out.payload_bytes;
    packet.rail = out.rail;
    packet.path = out.path;
    packet.to = to;
    if ((drop && drop(packet)) || chance(faults.loss)) {
      return;
    }
    packet.ecn = out.ecn_capable && chance(faults.mark);
    if (!out.is_control && ((is_partial && is_partial(packet)) || chance(faults.trim))) {
      packet.trimmed = true;
      packet.payload.clear();
    }
    if (chance(faults.corrupt)) {
      const std::uint32_t bit = random_.below(static_cast<std::uint32_t>(packet.header_bytes) * 8);
      packet.header[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    const WireCapabilities& wire = options_[0].wire;
    TimeNs& free = path_free_[static_cast<std::size_t>(to)][out.path];
    free = std::max(free, now_) +
           (packet.trimmed ? 64 : out.payload_bytes + out.header_bytes) * wire.ps_per_byte / 1000;
    const TimeNs arrival = free + wire.base_rtt_ns / 2 +
                           (chance(faults.delay) ? random_.next() % faults.delay_ns_max : 0);
    const int copies = chance(faults.duplicate) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      packet.received_ns = arrival + static_cast<TimeNs>(copy) * (1 + random_.next() % 1'000'000);
      const TimeNs nap_ns_here = std::max<TimeNs>(nap_ns[static_cast<std::size_t>(to)], 1);
      in_air_.emplace((packet.received_ns + nap_ns_here - 1) / nap_ns_here * nap_ns_here, packet);
    }
  }

  TimeNs now_ = 1'000'000;
  Random random_;
  std::array<Endpoint, 2> ends_;
  std::array<ConnectionOptions, 2> options_;
  std::array<ConnectionHandle, 2> handles_;
  std::array<std::vector<Event>, 2> events_;
  std::array<std::map<PathId, TimeNs>, 2> path_free_;
  std::multimap<TimeNs, Delivered> in_air_;
};

/// Bytes that differ in every place and message.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t key) {
  std::vector<std::byte> data(bytes);
  Random random(key);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>(random.next());
  }
  return data;
}

}  // namespace tutti::transport::testing
