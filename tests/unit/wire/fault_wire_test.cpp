// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/fault/fault_wire.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>

#include "base/random.hpp"
#include "support/memory_wire.hpp"
#include "support/wire_contract.hpp"
#include "transport/endpoint.hpp"
#include "wire/udp/udp_wire.hpp"

namespace tutti::wire::fault {
namespace {

using testing::Collector;
using testing::MemoryNetwork;
using testing::MemoryWire;
using testing::TestPacket;
using transport::kNever;
using transport::TimeNs;

/// A fault wire, an end that receives from it, and a clock that stands until it is set.
class FaultWireTest : public ::testing::Test {
 protected:
  void open(const std::string& text, std::uint64_t stream = 0,
            std::size_t queue_packets_max = 4096) {
    const Result<FaultPlan> plan = parse_fault_plan(text);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    wire_.reset();
    far_.reset();
    network_ =
        std::make_unique<MemoryNetwork>(MemoryNetwork::default_capabilities(), queue_packets_max);
    wire_ = std::make_unique<FaultWire>(
        std::make_unique<MemoryWire>(network_.get()), *plan, [this] { return now_; }, stream);
    far_ = std::make_unique<MemoryWire>(network_.get());
    peer_ = *wire_->add_peer(far_->address(), 0);
    got_ = {};
  }

  bool send(std::uint64_t number, std::size_t bytes = 100, transport::PathId path = 0) {
    TestPacket packet(number, peer_, 40, bytes);
    packet.transmission.path = path;
    packet.transmission.rail = static_cast<std::uint8_t>(path % 2);
    // The buffer is gone when this returns.
    return wire_->send(packet.transmission);
  }

  /// Numbers of what has come since the last call, in order.
  std::vector<std::uint64_t> arrived() {
    wire_->receive(nothing_, 16);
    std::vector<std::uint64_t> numbers;
    Recorder recorder(&got_, &numbers);
    far_->receive(recorder, 1'000'000);
    return numbers;
  }

  class Recorder : public Arrivals {
   public:
    Recorder(Collector* collector, std::vector<std::uint64_t>* numbers)
        : collector_(collector), numbers_(numbers) {}
    std::byte* place(std::span<const std::byte>, std::uint32_t) override { return nullptr; }
    void arrived(const transport::Arrival& arrival) override {
      numbers_->push_back(Collector::number_of(arrival.header));
      collector_->arrived(arrival);
    }

   private:
    Collector* collector_;
    std::vector<std::uint64_t>* numbers_;
  };

  TimeNs now_ = 5'000;
  std::unique_ptr<MemoryNetwork> network_;
  std::unique_ptr<FaultWire> wire_;
  std::unique_ptr<MemoryWire> far_;
  std::uint64_t peer_ = 0;
  Collector got_;
  Collector nothing_;
};

TEST_F(FaultWireTest, drop__as_often_as_asked_and_the_same_each_time) {
  std::vector<std::vector<std::uint64_t>> runs;
  for (const auto& [seed, stream] : {std::pair{"7", 0U}, {"7", 0U}, {"8", 0U}, {"7", 1U}}) {
    open("drop=0.25,seed=" + std::string(seed), stream);
    for (std::uint64_t i = 0; i < 2000; ++i) {
      ASSERT_TRUE(send(i));
    }
    runs.push_back(arrived());
    EXPECT_NEAR(1500, static_cast<double>(runs.back().size()), 80);
    EXPECT_EQ(2000U, wire_->fault_counters().sent);
    EXPECT_EQ(2000U - runs.back().size(), wire_->fault_counters().dropped);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
  EXPECT_NE(runs[0], runs[3]);
}

TEST_F(FaultWireTest, drop__hits_the_same_packets_whatever_else_happens) {
  open("seed=3,drop=0.1");
  for (std::uint64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(send(i));
  }
  const std::vector<std::uint64_t> alone = arrived();
  open("seed=3,drop=0.1,duplicate=0.2,reorder=0.2,corrupt=0.2:payload");
  for (std::uint64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(send(i));
  }
  now_ += FaultWire::kReorderNsMax;
  std::vector<std::uint64_t> among = arrived();
  std::sort(among.begin(), among.end());
  among.erase(std::unique(among.begin(), among.end()), among.end());
  EXPECT_EQ(alone, among);
}

TEST_F(FaultWireTest, duplicate__a_second_copy_after_its_time) {
  open("duplicate=1:1ms");
  ASSERT_TRUE(send(1, 300));
  EXPECT_EQ((std::vector<std::uint64_t>{1}), arrived());
  EXPECT_EQ(now_ + 1'000'000, wire_->next_deadline());
  now_ += 999'999;
  EXPECT_TRUE(arrived().empty());
  now_ += 1;
  EXPECT_EQ((std::vector<std::uint64_t>{1}), arrived());
  EXPECT_EQ(2, got_.received[1].count);
  EXPECT_TRUE(TestPacket(1, peer_, 40, 300).payload == got_.received[1].payload);
  EXPECT_EQ(kNever, wire_->next_deadline());
}

TEST_F(FaultWireTest, delay__leaves_in_receive_when_its_time_has_come) {
  open("delay=1:200us");
  ASSERT_TRUE(send(1, 500));
  now_ += 50'000;
  ASSERT_TRUE(send(2));
  EXPECT_TRUE(arrived().empty());
  EXPECT_EQ(TimeNs{205'000}, wire_->next_deadline());
  now_ = 205'000;
  EXPECT_EQ((std::vector<std::uint64_t>{1}), arrived());
  EXPECT_TRUE(TestPacket(1, peer_, 40, 500).payload == got_.received[1].payload);
  now_ = 255'000;
  EXPECT_EQ((std::vector<std::uint64_t>{2}), arrived());
  EXPECT_EQ(2U, wire_->fault_counters().delayed);
}

TEST_F(FaultWireTest, reorder__is_overtaken_by_a_few_and_never_lost) {
  open("seed=5,reorder=0.1");
  constexpr std::uint64_t kPackets = 1000;
  for (std::uint64_t i = 0; i < kPackets; ++i) {
    ASSERT_TRUE(send(i));
  }
  now_ += FaultWire::kReorderNsMax;
  const std::vector<std::uint64_t> order = arrived();
  ASSERT_EQ(kPackets, order.size());
  std::uint64_t late = 0;
  std::uint64_t newest = 0;
  for (const std::uint64_t number : order) {
    newest = std::max(newest, number);
    late += number < newest ? 1 : 0;
    // Overtakers may themselves be held back and so be fewer, but not more.
    EXPECT_LE(newest - number, std::uint64_t{FaultWire::kOvertakersMax});
  }
  EXPECT_NEAR(100, static_cast<double>(late), 40);
  EXPECT_EQ(kNever, wire_->next_deadline());
}

TEST_F(FaultWireTest, reorder__the_last_packet_leaves_by_time) {
  open("reorder=1");
  ASSERT_TRUE(send(1));
  EXPECT_EQ(now_ + FaultWire::kReorderNsMax, wire_->next_deadline());
  EXPECT_TRUE(arrived().empty());
  now_ = wire_->next_deadline();
  EXPECT_EQ((std::vector<std::uint64_t>{1}), arrived());
}

/// Bits that differ.
int distance(std::span<const std::byte> a, std::span<const std::byte> b) {
  EXPECT_EQ(a.size(), b.size());
  int bits = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    bits += std::popcount(static_cast<unsigned char>(a[i] ^ b[i]));
  }
  return bits;
}

TEST_F(FaultWireTest, corrupt__one_bit_of_the_part_that_was_asked_for) {
  for (const char* part : {"", ":header", ":payload"}) {
    open("corrupt=1" + std::string(part));
    int header_bits = 0;
    int payload_bits = 0;
    for (std::uint64_t i = 0; i < 50; ++i) {
      TestPacket packet(i, peer_, 40, 1000);
      const TestPacket before(i, peer_, 40, 1000);
      ASSERT_TRUE(wire_->send(packet.transmission));
      EXPECT_TRUE(before.payload == packet.payload) << "the sender's own buffer";
      Collector one;
      ASSERT_EQ(1U, far_->receive(one, 16));
      const Collector::Received& got = one.received.begin()->second;
      const int header = distance({packet.transmission.header.data(), 40}, got.header);
      const int payload = distance(packet.payload, got.payload);
      EXPECT_EQ(1, header + payload);
      header_bits += header;
      payload_bits += payload;
    }
    EXPECT_EQ(std::string(part) != ":payload", header_bits > 0) << part;
    EXPECT_EQ(std::string(part) != ":header", payload_bits > 0) << part;
    EXPECT_EQ(50U, wire_->fault_counters().corrupted);
  }
}

TEST_F(FaultWireTest, corrupt__a_packet_without_payload_has_none_to_corrupt) {
  open("corrupt=1:payload");
  ASSERT_TRUE(send(1, 0));
  ASSERT_EQ((std::vector<std::uint64_t>{1}), arrived());
  EXPECT_EQ(0U, wire_->fault_counters().corrupted);
}

TEST_F(FaultWireTest, kill__a_path_for_ever_and_all_for_a_time) {
  open("kill_path=3@1s,kill_path=all@2s:500ms");
  const TimeNs start = now_;
  const auto passes = [&](TimeNs after_ns, transport::PathId path) {
    now_ = start + after_ns;
    EXPECT_TRUE(send(1, 100, path));
    return !arrived().empty();
  };
  EXPECT_TRUE(passes(999'999'999, 3));
  EXPECT_FALSE(passes(1'000'000'000, 3));
  EXPECT_TRUE(passes(1'000'000'000, 4));
  EXPECT_TRUE(passes(1'999'999'999, 4));
  EXPECT_FALSE(passes(2'000'000'000, 4));
  EXPECT_FALSE(passes(2'499'999'999, 4));
  EXPECT_TRUE(passes(2'500'000'000, 4));
  EXPECT_FALSE(passes(1'000'000'000'000, 3));
  EXPECT_EQ(4U, wire_->fault_counters().killed);
}

TEST_F(FaultWireTest, kill__a_rail_takes_its_paths_and_what_is_under_way) {
  open("delay=1:10us,kill_rail=1@1ms");
  now_ += 995'000;
  ASSERT_TRUE(send(1, 100, 1));
  ASSERT_TRUE(send(2, 100, 2));
  now_ += 10'000;
  EXPECT_EQ((std::vector<std::uint64_t>{2}), arrived());
  EXPECT_EQ(1U, wire_->fault_counters().killed);
}

TEST_F(FaultWireTest, send__a_refused_packet_is_the_same_packet_when_it_is_offered_again) {
  open("seed=9,corrupt=0.5,duplicate=0.5");
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(send(i));
  }
  arrived();
  const FaultCounters with_room = wire_->fault_counters();
  open("seed=9,corrupt=0.5,duplicate=0.5", 0, 1);
  int refused = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    while (!send(i)) {
      ++refused;
      arrived();
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_EQ(with_room.sent, wire_->fault_counters().sent);
  EXPECT_EQ(with_room.corrupted, wire_->fault_counters().corrupted);
  EXPECT_EQ(with_room.duplicated, wire_->fault_counters().duplicated);
}

TEST_F(FaultWireTest, receive__what_is_due_waits_for_room) {
  open("delay=1:1us", 0, 1);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(send(i));
  }
  now_ += 1'000;
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ((std::vector<std::uint64_t>{i}), arrived());
  }
}

TEST_F(FaultWireTest, send__holds_no_more_than_it_may) {
  open("delay=1:1s", 0, 2 * FaultWire::kHeldMax);
  for (std::uint64_t i = 0; i < FaultWire::kHeldMax + 10; ++i) {
    ASSERT_TRUE(send(i, 0));
  }
  EXPECT_EQ(10U, wire_->fault_counters().overflowed);
  now_ += 1'000'000'000;
  EXPECT_EQ(FaultWire::kHeldMax, arrived().size());
}

TEST_F(FaultWireTest, send__reorders_no_more_than_it_may) {
  open("reorder=1", 0, /*queue_packets_max=*/1);
  for (std::uint64_t i = 0; i < FaultWire::kHeldMax + 10; ++i) {
    ASSERT_TRUE(send(i, 0));
  }
  // One has found room.
  EXPECT_EQ(9U, wire_->fault_counters().overflowed);
}

TEST_F(FaultWireTest, remove_peer__who_shares_its_name_loses_nothing) {
  udp::UdpOptions options;
  auto& v4 = reinterpret_cast<sockaddr_in&>(options.local.storage);
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  options.local.bytes = sizeof v4;
  auto below = udp::UdpWire::open(options);
  auto far = udp::UdpWire::open(options);
  ASSERT_TRUE(below.ok() && far.ok());
  FaultWire wire(std::move(*below), *parse_fault_plan("delay=1:1us"), [this] { return now_; });
  const std::uint64_t peer = *wire.add_peer((*far)->address(), 0);
  ASSERT_EQ(peer, *wire.add_peer((*far)->address(), 0));
  ASSERT_TRUE(wire.send(TestPacket(1, peer, 40, 100).transmission));
  wire.remove_peer(peer);
  now_ += 1'000;
  wire.receive(nothing_, 16);
  pollfd waiting = {(*far)->file_descriptor(), POLLIN, 0};
  EXPECT_EQ(1, poll(&waiting, 1, 5000));
}

TEST_F(FaultWireTest, remove_peer__what_is_held_for_it_is_lost) {
  open("delay=1:1us");
  const std::uint64_t other = *wire_->add_peer(far_->address(), 0);
  ASSERT_TRUE(send(1));
  wire_->remove_peer(std::exchange(peer_, other));
  ASSERT_TRUE(send(2));
  now_ += 1'000;
  EXPECT_EQ((std::vector<std::uint64_t>{2}), arrived());
}

TEST_F(FaultWireTest, description__says_what_is_done_to_it) {
  open("drop=0.5,seed=4");
  EXPECT_EQ("memory of this process; with faults: seed=4,drop=0.5", wire_->description());
}

TEST_F(FaultWireTest, report__says_what_was_done) {
  open("kill_path=3@1s");
  EXPECT_EQ(
      ", faults in 0 packets: dropped 0 duplicated 0 reordered 0 delayed 0 corrupted 0 killed 0 "
      "overflowed 0",
      wire_->report());
  open("drop=1");
  ASSERT_TRUE(send(1));
  ASSERT_TRUE(send(2));
  EXPECT_EQ(
      ", faults in 2 packets: dropped 2 duplicated 0 reordered 0 delayed 0 corrupted 0 killed 0 "
      "overflowed 0",
      wire_->report());
}

/// One end of a connection over a wire.
struct End : Arrivals {
  explicit End(std::unique_ptr<FaultWire> its_wire) : wire(std::move(its_wire)) {}

  std::byte* place(std::span<const std::byte>, std::uint32_t) override { return nullptr; }
  void arrived(const transport::Arrival& arrival) override {
    endpoint.handle_datagram(now, arrival);
  }

  /// True: something happened.
  bool turn(TimeNs time) {
    now = time;
    bool is_busy = wire->receive(*this, 64) != 0;
    if (endpoint.next_deadline() <= now) {
      endpoint.handle_timeout(now);
      is_busy = true;
    }
    while (has_packet || endpoint.poll_transmit(now, &packet)) {
      has_packet = !wire->send(packet);
      if (has_packet) {
        break;
      }
      is_busy = true;
    }
    transport::Event event;
    while (endpoint.poll_event(&event)) {
      events.push_back(event);
      is_busy = true;
    }
    endpoint.check_invariants();
    return is_busy;
  }
  TimeNs next() const {
    return has_packet ? now : std::min(endpoint.next_deadline(), wire->next_deadline());
  }

  std::unique_ptr<FaultWire> wire;
  transport::Endpoint endpoint{{4}};
  transport::ConnectionHandle connection;
  transport::Transmission packet;
  bool has_packet = false;
  TimeNs now = 0;
  std::vector<transport::Event> events;
};

/// Two endpoints over two fault wires, in virtual time.
class EndpointsOverFaults {
 public:
  explicit EndpointsOverFaults(std::uint64_t seed) : seed_(seed), random_(seed) {}
  void every_message_arrives_once_and_whole_and_it_ends();

 private:
  static constexpr std::size_t kMessages = 8;
  static constexpr TimeNs kTurnNs = 2'000;

  static FaultPlan random_plan(Random* random) {
    const auto chance = [random](std::uint32_t ppb_max) {
      return random->below(2) == 0 ? 0 : random->below(ppb_max);
    };
    FaultPlan plan;
    plan.seed = random->next();
    plan.drop_ppb = chance(kAlwaysPpb / 5);
    plan.duplicate_ppb = chance(kAlwaysPpb / 5);
    plan.duplicate_ns = random->below(2'000'000);
    plan.reorder_ppb = chance(kAlwaysPpb / 5);
    plan.delay_ppb = chance(kAlwaysPpb / 5);
    plan.delay_ns = random->below(1'000'000);
    plan.corrupt_ppb = chance(kAlwaysPpb / 20);
    if (random->below(3) == 0) {
      plan.kills.push_back({false, random->below(16), random->below(500'000), kNever});
    }
    if (random->below(3) == 0) {
      plan.kills.push_back({true, random->below(2), random->below(500'000), kNever});
    }
    if (random->below(4) == 0) {
      plan.kills.push_back({false, Kill::kAll, random->below(500'000), random->below(300'000'000)});
    }
    return plan;
  }

  static std::vector<std::byte> content(std::size_t bytes, Random* random) {
    std::vector<std::byte> data(bytes);
    for (std::byte& byte : data) {
      byte = static_cast<std::byte>(random->next());
    }
    return data;
  }

  void connect(const FaultPlan& plan) {
    for (std::size_t i = 0; i < 2; ++i) {
      ends_.push_back(std::make_unique<End>(std::make_unique<FaultWire>(
          std::make_unique<MemoryWire>(&network_), plan, [this] { return now_; }, i)));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      transport::ConnectionOptions options;
      options.local_id = static_cast<std::uint32_t>(10 + i);
      options.remote_id = static_cast<std::uint32_t>(11 - i);
      options.local_incarnation = 1 + i;
      options.remote_incarnation = 2 - i;
      options.key = {seed_, ~seed_};
      // Flipped bits of the payload must not be taken for data.
      options.authenticates_payload = true;
      options.peer = *ends_[i]->wire->add_peer(ends_[1 - i]->wire->address(), 0);
      options.wire = ends_[i]->wire->capabilities();
      options.seed = seed_ + i;
      const auto made = ends_[i]->endpoint.connect(now_, options);
      ASSERT_TRUE(made.ok()) << made.status().message();
      ends_[i]->connection = *made;
    }
  }

  void run(const std::function<bool()>& done) {
    while (!done() && now_ < kEndNs) {
      bool is_busy = false;
      TimeNs next = kNever;
      for (const auto& end : ends_) {
        is_busy |= end->turn(now_);
        next = std::min(next, end->next());
      }
      if (!is_busy && next == kNever) {
        return;
      }
      now_ = is_busy ? now_ + kTurnNs : std::max(now_ + 1, next);
    }
  }

  static constexpr TimeNs kEndNs = 120'000'000'000;
  std::uint64_t seed_;
  Random random_;
  TimeNs now_ = 1'000'000;
  MemoryNetwork network_;
  std::vector<std::unique_ptr<End>> ends_;
};

void EndpointsOverFaults::every_message_arrives_once_and_whole_and_it_ends() {
  const FaultPlan plan = random_plan(&random_);
  SCOPED_TRACE("seed " + std::to_string(seed_) + ": " + format_fault_plan(plan));
  connect(plan);
  std::array<std::vector<std::vector<std::byte>>, 2> sent;
  std::array<std::vector<std::vector<std::byte>>, 2> got;
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (std::size_t end = 0; end < 2; ++end) {
      sent[end].push_back(
          content(i % 4 == 0 ? random_.below(3) : random_.below(100'000), &random_));
      got[1 - end].emplace_back(sent[end].back().size());
    }
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (std::size_t end = 0; end < 2; ++end) {
      End& it = *ends_[end];
      const auto tag = static_cast<transport::Tag>(i % 3);
      ASSERT_TRUE(
          it.endpoint
              .post_send(now_, it.connection, {tag, sent[end][i].data(), sent[end][i].size(), i})
              .ok());
      transport::ReceiveRequest request;
      request.parts[0] = {tag, got[end][i].data(), got[end][i].size()};
      request.context = 1000 + i;
      ASSERT_TRUE(it.endpoint.post_receive(now_, it.connection, request).ok());
    }
  }
  run([&] {
    return ends_[0]->events.size() >= 2 * kMessages && ends_[1]->events.size() >= 2 * kMessages;
  });
  std::uint64_t corrupted = 0;
  std::uint64_t refused = 0;
  for (std::size_t end = 0; end < 2; ++end) {
    const End& it = *ends_[end];
    std::map<std::uint64_t, int> events;
    for (const transport::Event& event : it.events) {
      EXPECT_EQ(transport::Outcome::kOk, event.outcome) << to_string(event.outcome);
      ++events[event.context];
    }
    ASSERT_EQ(2 * kMessages, events.size()) << "at " << now_ << " ns";
    for (const auto& [context, count] : events) {
      EXPECT_EQ(1, count) << context;
    }
    for (std::size_t i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(sent[1 - end][i] == got[end][i]) << "message " << i << " to " << end;
    }
    const transport::ConnectionCounters& counters = *it.endpoint.counters(it.connection);
    const FaultCounters& faults = it.wire->fault_counters();
    EXPECT_EQ(0U, faults.overflowed);
    corrupted += faults.corrupted;
    refused += counters.forgeries_dropped + counters.malformed_dropped +
               it.endpoint.counters().malformed_dropped + it.endpoint.counters().strays_dropped;
  }
  EXPECT_EQ(corrupted > 20, refused > 0 && corrupted > 20);

  // Closed in order, whatever the network does to the last packets.
  for (const auto& end : ends_) {
    ASSERT_TRUE(end->endpoint.close(now_, end->connection).ok());
  }
  run([&] {
    return ends_[0]->events.size() > 2 * kMessages && ends_[1]->events.size() > 2 * kMessages;
  });
  for (const auto& end : ends_) {
    ASSERT_EQ(2 * kMessages + 1, end->events.size());
    EXPECT_EQ(transport::EventKind::kConnectionDone, end->events.back().kind);
  }
}

constexpr std::uint64_t kSeedsPerCase = 20;

class EndpointsOverFaultsTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(EndpointsOverFaultsTest, every_message_arrives_once_and_whole_and_it_ends) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + kSeedsPerCase; ++seed) {
    EndpointsOverFaults(seed).every_message_arrives_once_and_whole_and_it_ends();
  }
}

INSTANTIATE_TEST_SUITE_P(seeds, EndpointsOverFaultsTest,
                         ::testing::Range<std::uint64_t>(1, 201, kSeedsPerCase));

}  // namespace
}  // namespace tutti::wire::fault
