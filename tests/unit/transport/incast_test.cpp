// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Many senders, one receiver, one queue before its link: marks above a fifth of the buffer, and
// drops or trims what does not fit. The smallest network in which a controller has something to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "transport/congestion/controller.hpp"
#include "transport/endpoint.hpp"
#include "transport/random.hpp"

namespace tutti::transport {
namespace {

constexpr TimeNs kOneWayNs = 5'000;
constexpr std::uint64_t kPsPerByte = 20;
constexpr Bytes kBufferBytes = 600'000;

struct Result {
  TimeNs time_ns = 0;
  TimeNs ideal_ns = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t drops = 0;
  Bytes queue_bytes_max_late = 0;  ///< In the second half of the time.
};

struct Packet {
  TimeNs arrival_ns = 0;
  Transmission packet;
  bool ecn = false;
  bool trimmed = false;
  int to = 0;  ///< Sender; -1: the receiver.
};

struct Options {
  int senders = 15;
  Bytes bytes = 4'000'000;
  std::string controller = "nscc";
  bool trims = false;
  std::uint32_t chunk_bytes = 4096;
};

class Incast {
 public:
  explicit Incast(const Options& options) : options_(options), receiver_({64}) {
    for (int i = 0; i < options.senders; ++i) {
      ConnectionOptions connection;
      connection.local_id = 100 + static_cast<std::uint32_t>(i);
      connection.remote_id = 200 + static_cast<std::uint32_t>(i);
      connection.peer = static_cast<std::uint64_t>(i);
      connection.controller = options.controller;
      connection.wire.paths = 16;
      connection.wire.trims = options.trims;
      connection.wire.chunk_bytes = options.chunk_bytes;
      connection.wire.base_rtt_ns = 2 * kOneWayNs + 3 * options.chunk_bytes * kPsPerByte / 1000;
      connection.receives = false;
      connection.seed = static_cast<std::uint64_t>(i) + 1;
      senders_.push_back(std::make_unique<Endpoint>(EndpointLimits{1}));
      const auto from = senders_.back()->connect(now_, connection);
      std::swap(connection.local_id, connection.remote_id);
      std::swap(connection.sends, connection.receives);
      const auto to = receiver_.connect(now_, connection);
      EXPECT_TRUE(from.ok() && to.ok());
      handles_.push_back(*from);
      ReceiveRequest request;
      request.parts[0].capacity_bytes = options.bytes;
      EXPECT_TRUE(receiver_.post_receive(now_, *to, request).ok());
      EXPECT_TRUE(senders_.back()->post_send(now_, *from, {0, nullptr, options.bytes, 0}).ok());
      nic_free_ns_.push_back(now_);
    }
  }

  Result run() {
    const TimeNs start = now_;
    Result result;
    result.ideal_ns = static_cast<TimeNs>(options_.senders) * options_.bytes * kPsPerByte / 1000;
    int done = 0;
    while (done < options_.senders && now_ - start < 50 * result.ideal_ns + 100'000'000) {
      transmit(result);
      Event event;
      for (auto& sender : senders_) {
        while (sender->poll_event(&event)) {
          EXPECT_EQ(Outcome::kOk, event.outcome);
          ++done;
        }
      }
      while (receiver_.poll_event(&event)) {
        EXPECT_EQ(options_.bytes, event.part_bytes[0]);
      }
      if (now_ - start > result.ideal_ns / 2) {
        result.queue_bytes_max_late = std::max(result.queue_bytes_max_late, queue_bytes());
      }
      advance();
    }
    EXPECT_EQ(options_.senders, done);
    result.time_ns = now_ - start;
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      const ConnectionCounters& counters = *senders_[i]->counters(handles_[i]);
      result.retransmissions += counters.retransmissions;
      result.timeouts += counters.timeouts;
    }
    return result;
  }

 private:
  Bytes queue_bytes() const {
    return link_free_ns_ > now_ ? (link_free_ns_ - now_) * 1000 / kPsPerByte : 0;
  }

  void transmit(Result& result) {
    Transmission out;
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      while (nic_free_ns_[i] <= now_ && senders_[i]->poll_transmit(now_, &out)) {
        nic_free_ns_[i] = std::max(nic_free_ns_[i], now_) + out.payload_bytes * kPsPerByte / 1000;
        enqueue(out, result);
      }
    }
    while (receiver_.poll_transmit(now_, &out)) {
      back_.push_back({now_ + kOneWayNs, out, false, false, static_cast<int>(out.peer)});
    }
  }

  void enqueue(const Transmission& out, Result& result) {
    if (out.is_control) {
      control_.push_back({now_ + kOneWayNs, out, false, false, -1});
      return;
    }
    const Bytes queue = queue_bytes();
    if (queue + out.payload_bytes > kBufferBytes) {
      ++result.drops;
      if (options_.trims) {
        control_.push_back({now_ + kOneWayNs, out, false, true, -1});
      }
      return;
    }
    // Marked with a chance that grows from a fifth of the buffer to four fifths.
    const Bytes low = kBufferBytes / 5;
    const bool mark = queue > low && random_.below(3 * kBufferBytes / 5) < queue - low;
    link_free_ns_ =
        std::max(link_free_ns_, now_) + (out.payload_bytes + out.header_bytes) * kPsPerByte / 1000;
    data_.push_back({link_free_ns_ + kOneWayNs, out, mark, false, -1});
  }

  void advance() {
    TimeNs next = receiver_.next_deadline();
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      next = std::min(next, senders_[i]->next_deadline());
      next = nic_free_ns_[i] > now_ ? std::min(next, nic_free_ns_[i]) : next;
    }
    for (const auto* queue : {&data_, &control_, &back_}) {
      next = queue->empty() ? next : std::min(next, queue->front().arrival_ns);
    }
    ASSERT_NE(kNever, next);
    now_ = std::max(now_, next);
    for (auto* queue : {&data_, &control_, &back_}) {
      while (!queue->empty() && queue->front().arrival_ns <= now_) {
        const Packet& it = queue->front();
        Arrival arrival;
        arrival.header = {it.packet.header.data(), it.packet.header_bytes};
        arrival.payload_bytes = it.trimmed ? 0 : it.packet.payload_bytes;
        arrival.ecn = it.ecn;
        arrival.trimmed = it.trimmed;
        arrival.last_hop_trim = it.trimmed;
        (it.to < 0 ? receiver_ : *senders_[static_cast<std::size_t>(it.to)])
            .handle_datagram(now_, arrival);
        queue->pop_front();
      }
    }
    receiver_.handle_timeout(now_);
    for (auto& sender : senders_) {
      sender->handle_timeout(now_);
    }
  }

  Options options_;
  TimeNs now_ = 1'000'000;
  Random random_{1};
  Endpoint receiver_;
  std::vector<std::unique_ptr<Endpoint>> senders_;
  std::vector<ConnectionHandle> handles_;
  std::vector<TimeNs> nic_free_ns_;
  TimeNs link_free_ns_ = 0;
  std::deque<Packet> data_;
  std::deque<Packet> control_;
  std::deque<Packet> back_;
};

class IncastSchemes : public ::testing::TestWithParam<std::tuple<std::string, bool, int>> {};

TEST_P(IncastSchemes, run__the_link_is_busy_and_losses_are_few) {
  Options options;
  std::tie(options.controller, options.trims, options.senders) = GetParam();
  const Result result = Incast(options).run();
  // The advert's way, data's and the last acknowledgement's take three one-way times.
  const double slowdown =
      static_cast<double>(result.time_ns - 3 * kOneWayNs) / static_cast<double>(result.ideal_ns);
  const auto chunks =
      static_cast<double>(options.bytes / 4096 * static_cast<Bytes>(options.senders));
  // Baselines that halve at the first burst take long to come back in so short a transfer.
  const bool is_baseline = options.controller == "dctcp" || options.controller == "timely";
  EXPECT_LT(slowdown, is_baseline ? 1.6 : 1.2);
  // The first windows of 15 senders alone exceed the buffer by a fifth of all bytes.
  EXPECT_LT(static_cast<double>(result.retransmissions),
            (options.controller == "timely" ? 0.6 : 0.4) * chunks);
  if (uses_credit(options.controller)) {
    EXPECT_LT(result.queue_bytes_max_late, 10'000U);  // Credit leaves nothing to queue.
    EXPECT_EQ(0U, result.timeouts);
  }
}

INSTANTIATE_TEST_SUITE_P(incast, IncastSchemes,
                         ::testing::Combine(::testing::Values("nscc", "swift", "cubic", "dctcp",
                                                              "rccc", "nscc+rccc", "timely"),
                                            ::testing::Bool(), ::testing::Values(1, 4, 15)),
                         [](const auto& tested) {
                           std::string name = std::get<0>(tested.param) +
                                              (std::get<1>(tested.param) ? "_trims_" : "_drops_") +
                                              std::to_string(std::get<2>(tested.param));
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

}  // namespace
}  // namespace tutti::transport
