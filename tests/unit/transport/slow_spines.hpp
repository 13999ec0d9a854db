// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Hosts around a few spines that are slower than their links, in virtual time: what a path takes
// depends on who else has drawn its spine, as in Ethernet fabrics with ECMP. Every packet waits
// behind all others of its links, acknowledgements too. Nothing is lost unless `loss` says so: each
// retransmission is needless.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transport/endpoint.hpp"
#include "transport/random.hpp"

namespace tutti::transport::testing {

class SlowSpines {
 public:
  struct Shape {
    std::uint32_t hosts = 4;
    std::uint32_t spines = 8;
    std::uint32_t ps_per_byte = 500;  ///< Of a host's link; a spine's takes `spines` times as long.
    std::uint32_t degraded = 1;  ///< The first spine's take so many times as long as the others'.
    TimeNs hop_ns = 10'000;
    std::uint32_t loss = 0;     ///< Of data packets, in 1/100,000.
    std::uint32_t partial = 0;  ///< Of the lost ones, in 1/100,000: parts of them arrive.
    /// 0: each sends to the next; else each sends to all others.
    bool is_alltoall = false;
    std::uint32_t connections = 2;  ///< Of each pair.
    std::uint32_t in_flight = 8;    ///< Messages of each connection.
    Bytes message_bytes = 1 << 20;
  };

  SlowSpines(const Shape& shape, const ConnectionOptions& options, std::uint64_t seed)
      : shape_(shape), random_(seed) {
    std::uint32_t id = 1;
    for (std::uint32_t host = 0; host < shape.hosts; ++host) {
      ends_.push_back(std::make_unique<Endpoint>(EndpointLimits{64}, shape.ps_per_byte));
    }
    nic_ns_.resize(shape.hosts);
    for (auto* links : {&up_ns_, &down_ns_}) {
      links->resize(std::size_t{shape.hosts} * shape.spines);
    }
    for (std::uint32_t from = 0; from < shape.hosts; ++from) {
      for (std::uint32_t hop = 1; hop < (shape.is_alltoall ? shape.hosts : 2); ++hop) {
        for (std::uint32_t i = 0; i < shape.connections; ++i) {
          connect(options, from, (from + hop) % shape.hosts, id++);
        }
      }
    }
  }

  /// Every message's end is followed by the next message, for so long.
  void run(TimeNs time_ns) {
    const TimeNs until = now_ + time_ns;
    for (std::uint32_t host = 0; host < shape_.hosts; ++host) {
      drain(host);
    }
    while (now_ < until) {
      TimeNs next = in_air_.empty() ? kNever : in_air_.begin()->first;
      std::uint32_t due = shape_.hosts;
      for (std::uint32_t host = 0; host < shape_.hosts; ++host) {
        const TimeNs wake = std::max(now_, std::min(ends_[host]->next_deadline(), wake_ns(host)));
        if (wake < next) {
          next = wake;
          due = host;
        }
      }
      if (next == kNever) {
        break;
      }
      now_ = std::max(now_ + (due < shape_.hosts && next == now_ ? 1 : 0), next);
      if (due == shape_.hosts) {
        const Packet packet = in_air_.begin()->second;
        in_air_.erase(in_air_.begin());
        due = packet.to;
        Arrival arrival;
        arrival.header = {packet.header.data(), packet.header_bytes};
        arrival.payload_bytes = packet.is_partial ? 0 : packet.payload_bytes;
        arrival.trimmed = packet.is_partial;
        ends_[due]->handle_datagram(now_, arrival);
      } else {
        ends_[due]->handle_timeout(now_);
      }
      drain(due);
    }
  }

  ConnectionCounters sum() const {
    ConnectionCounters sum;
    for (const Stream& stream : streams_) {
      const ConnectionCounters& one = *ends_[stream.from]->counters(stream.sender);
      sum.chunks_sent += one.chunks_sent;
      sum.retransmissions += one.retransmissions;
      sum.spurious_retransmissions += one.spurious_retransmissions;
      sum.lost_same_path += one.lost_same_path;
      sum.lost_rack += one.lost_rack;
      sum.lost_timeout += one.lost_timeout;
      sum.tail_probes += one.tail_probes;
      sum.nacks += one.nacks;
    }
    return sum;
  }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t lost() const { return lost_; }

  ConnectionStatus status(std::size_t stream) const {
    return ends_[streams_[stream].from]->status(streams_[stream].sender);
  }

 private:
  struct Stream {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    ConnectionHandle sender;
    ConnectionHandle receiver;
    std::vector<std::uint32_t> spine_of;  ///< By path, of data; of what comes back, the other way.
    std::vector<std::uint32_t> spine_back;
  };
  struct Packet {
    std::array<std::byte, kHeaderBytesMax> header;
    std::size_t header_bytes = 0;
    std::uint32_t payload_bytes = 0;
    std::uint32_t to = 0;
    bool is_partial = false;
  };
  static constexpr TimeNs kNicNs = 100'000;  ///< So much a host's link takes ahead.

  void connect(ConnectionOptions options, std::uint32_t from, std::uint32_t to, std::uint32_t id) {
    Stream stream;
    stream.from = from;
    stream.to = to;
    options.local_id = 2 * id;
    options.remote_id = 2 * id + 1;
    options.local_incarnation = 1;
    options.remote_incarnation = 2;
    options.receives = false;
    options.seed = random_.next();
    options.peer = streams_.size() * 2;
    auto sender = ends_[from]->connect(now_, options);
    std::swap(options.local_id, options.remote_id);
    std::swap(options.local_incarnation, options.remote_incarnation);
    std::swap(options.sends, options.receives);
    ++options.peer;
    auto receiver = ends_[to]->connect(now_, options);
    EXPECT_TRUE(sender.ok() && receiver.ok());
    stream.sender = *sender;
    stream.receiver = *receiver;
    for (std::uint32_t path = 0; path < options.wire.paths; ++path) {
      stream.spine_of.push_back(random_.below(shape_.spines));
      stream.spine_back.push_back(random_.below(shape_.spines));
    }
    streams_.push_back(stream);
    for (std::uint32_t i = 0; i < shape_.in_flight; ++i) {
      post(streams_.size() - 1);
    }
  }

  void post(std::size_t index) {
    const Stream& stream = streams_[index];
    ReceiveRequest receive;
    receive.parts[0] = {0, nullptr, shape_.message_bytes};
    EXPECT_TRUE(ends_[stream.to]->post_receive(now_, stream.receiver, receive).ok());
    const SendRequest send{
        .tag = 0, .data = nullptr, .bytes = shape_.message_bytes, .context = index};
    EXPECT_TRUE(ends_[stream.from]->post_send(now_, stream.sender, send).ok());
  }

  /// When a host whose link is busy may send again.
  TimeNs wake_ns(std::uint32_t host) const {
    return nic_ns_[host] > now_ + kNicNs ? nic_ns_[host] - kNicNs : kNever;
  }

  void drain(std::uint32_t host) {
    Transmission out;
    while (nic_ns_[host] <= now_ + kNicNs ? ends_[host]->poll_transmit(now_, &out)
                                          : ends_[host]->poll_control(now_, &out)) {
      launch(host, out);
    }
    Event event;
    std::vector<std::size_t> ended;
    while (ends_[host]->poll_event(&event)) {
      EXPECT_EQ(event.outcome, Outcome::kOk);
      if (event.kind == EventKind::kSendDone) {
        ended.push_back(event.context);
      }
    }
    for (const std::size_t stream : ended) {
      ++messages_;
      post(stream);
    }
    if (!ended.empty()) {
      for (std::uint32_t other = 0; other < shape_.hosts; ++other) {
        drain(other);
      }
    }
  }

  void launch(std::uint32_t host, const Transmission& out) {
    const Stream& stream = streams_[out.peer / 2];
    const bool is_back = out.peer % 2 != 0;
    const std::uint32_t to = is_back ? stream.from : stream.to;
    const std::uint32_t spine = (is_back ? stream.spine_back : stream.spine_of)[out.path];
    Packet packet;
    packet.header = out.header;
    packet.header_bytes = out.header_bytes;
    packet.payload_bytes = out.payload_bytes;
    packet.to = to;
    const TimeNs link_ns = TimeNs{out.payload_bytes + 64U} * shape_.ps_per_byte / 1000;
    // A packet is many datagrams: its first one is long gone when its last one comes.
    TimeNs& nic = nic_ns_[host];
    TimeNs first = std::max(nic, now_) + shape_.hop_ns;
    nic = std::max(nic, now_) + link_ns;
    TimeNs last = nic + shape_.hop_ns;
    for (TimeNs* link :
         {&up_ns_[host * shape_.spines + spine], &down_ns_[to * shape_.spines + spine]}) {
      first = std::max(*link, first);
      last = std::max(first + link_ns * shape_.spines * (spine == 0 ? shape_.degraded : 1), last);
      *link = last;
      first += shape_.hop_ns;
      last += shape_.hop_ns;
    }
    if (out.payload_bytes > 0 && random_.below(100'000) < shape_.loss) {
      ++lost_;
      if (random_.below(100'000) >= shape_.partial) {
        return;
      }
      packet.is_partial = true;
    }
    in_air_.emplace(last, packet);
  }

  Shape shape_;
  Random random_;
  TimeNs now_ = 1'000'000;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::vector<Stream> streams_;
  std::vector<TimeNs> nic_ns_;  ///< When each link is idle again.
  std::vector<TimeNs> up_ns_;
  std::vector<TimeNs> down_ns_;
  std::multimap<TimeNs, Packet> in_air_;
  std::uint64_t messages_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace tutti::transport::testing
