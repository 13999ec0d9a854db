// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Time stamps of the NIC, over the fake of libibverbs, in virtual time: every look at the clock
// takes 40 ns.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.hpp"
#include "support/fake_verbs.hpp"
#include "support/wire_contract.hpp"
#include "transport/rtt.hpp"
#include "wire/verbs/verbs_wire.hpp"

namespace tutti::wire::verbs {
namespace {

using testing::Conversation;
using testing::TestPacket;
using testing::WirePair;
using transport::TimeNs;
using tutti::testing::FakeNicClock;
using tutti::testing::FakeVerbsControl;

constexpr TimeNs kUs = 1'000;
constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kSecond = 1'000'000'000;

TimeNs virtual_ns = 0;
TimeNs virtual_clock() { return virtual_ns += 40; }

FakeVerbsControl& fake() { return tutti::testing::fake_verbs(TUTTI_FAKE_VERBS); }

struct Fallback {
  std::string what;
  std::string remedy;
};

std::unique_ptr<VerbsWire> open_stamped(int end, const std::string& service, TimeNs (*clock)(),
                                        std::vector<Fallback>* told = nullptr) {
  static const auto library = load_library(TUTTI_FAKE_VERBS);
  EXPECT_TRUE(library.ok()) << library.status().message();
  VerbsOptions options;
  options.clock = clock;
  options.device = "fake_" + std::to_string(end);
  options.service = service;
  options.paths = 4;
  options.receive_buffers = 64;
  options.bounce_buffers = 16;
  options.timestamps = true;
  if (told != nullptr) {
    options.on_fallback = [told](const std::string& what, const std::string& remedy) {
      told->push_back({what, remedy});
    };
  }
  auto wire = VerbsWire::open(*library, options);
  EXPECT_TRUE(wire.ok()) << wire.status().message();
  return wire.ok() ? std::move(*wire) : nullptr;
}

class Stamps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("TUTTI_TEST_VERBS") != nullptr) {
      GTEST_SKIP() << "on the fake NIC alone";
    }
    virtual_ns = 100 * kSecond;
    fake() = FakeVerbsControl();
    fake().completes_at_once = true;
    fake().clock.host_ns = virtual_clock;
  }
  void TearDown() override { fake() = FakeVerbsControl(); }
};

/// Two wires that are connected. What arrives at b lies there for a while before b looks.
struct Talk {
  explicit Talk(const std::string& service, std::vector<Fallback>* told = nullptr)
      : it([&] {
          return WirePair{nullptr, open_stamped(0, service, virtual_clock),
                          open_stamped(1, service, virtual_clock, told)};
        }) {
    EXPECT_TRUE(it.wait([&] {
      virtual_ns += 10 * kUs;
      return it.pair.a->reach(it.b_named_by_a).is_known &&
             it.pair.b->reach(it.a_named_by_b).is_known;
    }));
    for (int i = 0; i < 1000; ++i) {  // What is left of it.
      virtual_ns += kUs;
      it.receive();
    }
  }

  /// When it came, by b's NIC; it did between `came_ns` and `came_by_ns`.
  TimeNs pass(TimeNs wait_ns, const transport::RemoteMemory& remote = {}) {
    TestPacket packet(++number, it.b_named_by_a, Conversation::kHeaderBytes, 2000);
    packet.transmission.path = static_cast<transport::PathId>(number % 4);
    packet.transmission.remote = remote;
    EXPECT_TRUE(it.pair.a->send(packet.transmission));
    came_ns = virtual_ns;
    it.pair.a->receive(it.at_a, 16);
    came_by_ns = virtual_ns;
    virtual_ns += wait_ns;
    it.pair.b->receive(it.at_b, 16);
    EXPECT_EQ(1U, it.at_b.received.count(number));
    return it.at_b.received[number].received_ns;
  }
  /// How far that is from the truth, at most.
  TimeNs error_of(TimeNs received_ns) const {
    return received_ns < came_ns      ? came_ns - received_ns
           : received_ns > came_by_ns ? received_ns - came_by_ns
                                      : 0;
  }

  Conversation it;
  std::uint64_t number = 0;
  TimeNs came_ns = 0;
  TimeNs came_by_ns = 0;
};

TEST_F(Stamps, arrive_when_the_packet_came) {
  for (const char* const service : {"uc", "rc", "ud"}) {
    for (const std::uint64_t khz : {78'125, 156'250, 427'777, 1'000'000, 3'000'000}) {
      fake().clock.khz = fake().clock.told_khz = khz;
      std::vector<Fallback> told;
      Talk talk(service, &told);
      EXPECT_EQ(std::string::npos, talk.it.pair.b->description().find("no time stamps"));
      for (const TimeNs wait_ns : {TimeNs{0}, 2 * kUs, 900 * kUs, 4 * kMs, 30 * kMs, kSecond}) {
        EXPECT_LE(talk.error_of(talk.pass(wait_ns)), 150U)
            << service << ' ' << khz << ' ' << wait_ns;
      }
      EXPECT_TRUE(told.empty());
    }
  }
}

/// What the NIC writes by itself has the stamp of its write.
TEST_F(Stamps, of_written_chunks) {
  for (const char* const service : {"uc", "rc"}) {
    Talk talk(service);
    Wire& b = *talk.it.pair.b;
    std::vector<std::byte> memory(100'000);
    ASSERT_TRUE(b.register_memory(memory).ok());
    const std::uint64_t window = b.open_window(memory);
    transport::RemoteMemory remote;
    ASSERT_TRUE(talk.it.wait([&] { return b.has_opened(window, &remote); }));
    EXPECT_LE(talk.error_of(talk.pass(700 * kUs, remote)), 150U) << service;
    EXPECT_EQ(2000U, b.counters().payload_bytes_placed);
    b.close_window(window);
    EXPECT_TRUE(talk.it.wait([&] { return b.has_closed(window); }));
    b.deregister_memory(memory);
  }
}

/// Who goes to sleep has looked: what it has taken in then came when it came.
TEST_F(Stamps, of_what_is_taken_in_before_a_sleep) {
  fake().has_events = true;
  Talk talk("uc");
  Wire& b = *talk.it.pair.b;
  ASSERT_TRUE(talk.it.wait([&] { return b.arm(7) == transport::kNever; }));
  const TestPacket packet(++talk.number, talk.it.b_named_by_a, Conversation::kHeaderBytes, 2000);
  ASSERT_TRUE(talk.it.pair.a->send(packet.transmission));
  const TimeNs came_ns = virtual_ns;
  talk.it.pair.a->receive(talk.it.at_a, 16);
  pollfd waiting{b.file_descriptor(), POLLIN, 0};
  EXPECT_EQ(1, poll(&waiting, 1, 0));
  virtual_ns += kMs;
  EXPECT_EQ(7U, b.arm(7));
  virtual_ns += kMs;
  b.receive(talk.it.at_b, 16);
  const auto& received = talk.it.at_b.received[talk.number];
  testing::expect_equal(packet, received);
  EXPECT_GE(received.received_ns + 150, came_ns);
  EXPECT_LE(received.received_ns, came_ns + 2 * kUs);
}

/// Both hosts look late. The round trip is what the network took.
TEST_F(Stamps, late_looks_do_not_lengthen_the_round_trip) {
  Talk talk("uc");
  for (const TimeNs late_ns : {TimeNs{0}, 50 * kUs, 3 * kMs, 20 * kMs}) {
    const auto stamp = static_cast<std::uint32_t>(virtual_ns);
    const TimeNs there_ns = talk.pass(late_ns);
    const TestPacket answer(++talk.number, talk.it.a_named_by_b, Conversation::kHeaderBytes, 0);
    const TimeNs turnaround_ns = virtual_ns - there_ns;
    EXPECT_TRUE(talk.it.pair.b->send(answer.transmission));
    talk.it.pair.b->receive(talk.it.at_b, 16);
    virtual_ns += late_ns;
    talk.it.pair.a->receive(talk.it.at_a, 16);
    transport::Arrival arrival;
    arrival.received_ns = talk.it.at_a.received[talk.number].received_ns;
    const auto sample =
        transport::rtt_sample(virtual_ns, stamp, turnaround_ns, arrival.waited_ns(virtual_ns));
    EXPECT_GE(sample.round_trip_ns, 2 * late_ns);
    EXPECT_GT(sample.fabric_ns, 0U) << late_ns;
    EXPECT_LT(sample.fabric_ns, 3 * kUs) << late_ns;
  }
}

/// A packet in 1 ms for two seconds, by an oscillator that is off, or a frequency told as rounded.
TEST_F(Stamps, follow_a_clock_that_drifts) {
  for (const std::int64_t drift_ppm : {-2500, -100, 100, 2500}) {
    std::vector<Fallback> told;
    fake().clock.drift_ppm = drift_ppm;
    Talk talk("rc", &told);
    const auto off_ns = static_cast<TimeNs>(std::abs(drift_ppm) * 7);  // In 7 ms.
    for (int i = 0; i < 2000; ++i) {
      virtual_ns += 800 * kUs;
      const TimeNs error_ns = talk.error_of(talk.pass(200 * kUs));
      ASSERT_LE(error_ns, 200 + (i < 250 ? off_ns : 0)) << drift_ppm << ' ' << i;
    }
    EXPECT_TRUE(told.empty());
    // It warms up.
    fake().clock.drift_ppm += 20;
    for (int i = 0; i < 300; ++i) {
      virtual_ns += 800 * kUs;
      ASSERT_LE(talk.error_of(talk.pass(200 * kUs)), 400U) << drift_ppm << ' ' << i;
    }
  }
}

/// Looking costs: it is done now and then, however many packets come.
TEST_F(Stamps, the_clock_is_read_now_and_then) {
  Talk talk("ud");
  fake().clock.readings = 0;
  for (int i = 0; i < 10'000; ++i) {  // 100 ms
    virtual_ns += 8 * kUs;
    talk.pass(2 * kUs);
  }
  EXPECT_GE(fake().clock.readings, 15U);
  EXPECT_LE(fake().clock.readings, 25U) << "in b alone: nothing comes to a";
}

/// One that takes long has lost its processor between the readings.
TEST_F(Stamps, the_fastest_of_some_readings_counts) {
  static int calls = 0;
  calls = 0;
  fake().clock.host_ns = [] {
    if (++calls % 2 == 0) {
      virtual_ns += 30 * kUs;  // Within every second reading, or before a packet.
    }
    return virtual_clock();
  };
  Talk talk("uc");
  for (int i = 0; i < 200; ++i) {
    virtual_ns += kMs;
    ASSERT_LE(talk.error_of(talk.pass(500 * kUs)), 200U) << i;
  }
}

TEST_F(Stamps, a_counter_that_begins_anew) {
  struct Case {
    std::uint64_t khz;
    int bits;
  };
  for (const Case& one : {Case{1'000'000, 32}, Case{156'250, 28}, Case{427'000, 48}}) {
    std::vector<Fallback> told;
    FakeNicClock& clock = fake().clock;
    clock.khz = clock.told_khz = one.khz;
    clock.mask = UINT64_MAX >> (64 - one.bits);
    clock.drift_ppm = 30;
    clock.ticks = clock.mask - 20 * one.khz;  // 20 ms before its end.
    Talk talk("uc", &told);
    for (int i = 0; i < 100; ++i) {
      virtual_ns += kMs;
      ASSERT_LE(talk.error_of(talk.pass(300 * kUs)), 600U) << one.bits << ' ' << i;
    }
    for (const TimeNs idle_ns : {kSecond, 5 * kSecond, 300 * kSecond}) {
      virtual_ns += idle_ns;
      EXPECT_LE(talk.error_of(talk.pass(300 * kUs)), 600U) << one.bits << ' ' << idle_ns;
    }
    EXPECT_TRUE(told.empty());
  }
}

TEST_F(Stamps, what_is_missing_is_told) {
  struct Case {
    void (*lack)(FakeNicClock& clock);
    const char* why;
  };
  constexpr Case kCases[] = {
      {[](FakeNicClock& it) { it.is_extended = false; },
       "libibverbs or its driver has no ibv_query_device_ex"},
      {[](FakeNicClock& it) { it.mask = 0; }, "the NIC does not stamp completions"},
      {[](FakeNicClock& it) { it.told_khz = 0; }, "the driver reports no clock frequency"},
      {[](FakeNicClock& it) { it.is_readable = false; },
       "its clock cannot be read: Operation not supported"},
      {[](FakeNicClock& it) { it.read_error = EIO; },
       "its clock cannot be read: Input/output error"},
      {[](FakeNicClock& it) { it.told_khz = 156; }, "its clock does not run at 156 kHz"},
      {[](FakeNicClock& it) { it.khz = 0; }, "its clock does not run at 156250 kHz"},
      {[](FakeNicClock& it) { it.refuses_cqs = true; }, "ibv_create_cq_ex: Cannot allocate memory"},
  };
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.why);
    fake().clock = FakeNicClock();
    fake().clock.host_ns = virtual_clock;
    one.lack(fake().clock);
    std::vector<Fallback> told;
    Talk talk("uc", &told);
    ASSERT_EQ(1U, told.size());
    EXPECT_EQ(std::string("no time stamps of the NIC: ") + one.why, told[0].what);
    EXPECT_EQ("TUTTI_NET_TIMESTAMPS=off", told[0].remedy);
    EXPECT_NE(std::string::npos, talk.it.pair.b->description().find(
                                     std::string(", no time stamps of the NIC: ") + one.why));
    EXPECT_EQ(transport::kNever, talk.pass(kMs));
  }
}

/// They end when the clock says nothing any more, and packets go on.
TEST_F(Stamps, a_clock_that_fails_later) {
  struct Case {
    void (*fail)(FakeNicClock& clock);
    const char* why;
  };
  constexpr Case kCases[] = {
      {[](FakeNicClock& it) { it.read_error = EIO; },
       "no time stamps of the NIC: its clock cannot be read: Input/output error"},
      {[](FakeNicClock& it) { it.khz = 150'000; },
       "no time stamps of the NIC: its clock does not run at 156250 kHz"},
      {[](FakeNicClock& it) { it.stamps_ahead = 156'250ULL * 10'000; },
       "no time stamps of the NIC: the stamps are of another clock than the one that the driver "
       "reads"},
      {[](FakeNicClock& it) { it.stamps_ahead = std::uint64_t{0} - 156'250ULL * 10'000; },
       "no time stamps of the NIC: the stamps are of another clock than the one that the driver "
       "reads"},
  };
  for (const Case& one : kCases) {
    fake().clock.stamps_ahead = 0;
    fake().clock.read_error = 0;
    fake().clock.khz = 156'250;
    std::vector<Fallback> told;
    Talk talk("rc", &told);
    EXPECT_LE(talk.error_of(talk.pass(kMs)), 150U);
    one.fail(fake().clock);
    TimeNs received_ns = 0;
    for (int i = 0; i < 40; ++i) {
      virtual_ns += kMs;
      received_ns = talk.pass(100 * kUs);
      EXPECT_GE(received_ns, talk.came_ns - 400 * kUs) << "a wait that was not";
    }
    EXPECT_EQ(transport::kNever, received_ns);
    ASSERT_EQ(1U, told.size());
    EXPECT_EQ(one.why, told[0].what);
    EXPECT_NE(std::string::npos, talk.it.pair.b->description().find(one.why));
  }
}

/// A NIC that was reset: no packet has waited for longer than it has.
TEST_F(Stamps, a_clock_that_is_set) {
  for (const bool is_back : {false, true}) {
    std::vector<Fallback> told;
    Talk talk("uc", &told);
    talk.pass(0);
    const std::uint64_t half_a_second = 78'125'000;
    fake().clock.ticks += is_back ? std::uint64_t{0} - half_a_second : half_a_second;
    for (int i = 0; i < 20; ++i) {
      virtual_ns += kMs;
      const TimeNs received_ns = talk.pass(200 * kUs);
      EXPECT_GE(received_ns, talk.came_ns - 150) << is_back << i;
      if (i >= 6) {
        EXPECT_LE(talk.error_of(received_ns), 150U) << is_back << i;
      }
    }
    EXPECT_TRUE(told.empty());
  }
}

/// Who asked for a controller, not for stamps, hears of it where the wire is described.
TEST_F(Stamps, are_no_fall_back_where_nobody_needs_them) {
  fake().clock.mask = 0;
  const auto library = load_library(TUTTI_FAKE_VERBS);
  ASSERT_TRUE(library.ok());
  VerbsOptions options;
  options.device = "fake_0";
  options.timestamps = true;
  options.needs_timestamps = false;
  int fallbacks = 0;
  options.on_fallback = [&](const std::string&, const std::string&) { ++fallbacks; };
  const auto wire = VerbsWire::open(*library, options);
  ASSERT_TRUE(wire.ok());
  EXPECT_EQ(0, fallbacks);
  EXPECT_NE(std::string::npos,
            (*wire)->description().find("no time stamps of the NIC: the NIC does not stamp"));
}

/// With stamps and without: what is tried for them comes after it, and sets errno anew.
TEST_F(Stamps, a_refused_completion_queue_is_told_with_its_reason) {
  const auto library = load_library(TUTTI_FAKE_VERBS);
  ASSERT_TRUE(library.ok());
  VerbsOptions options;
  options.device = "fake_0";
  options.clock = virtual_clock;
  for (const bool has_stamps : {false, true}) {
    options.timestamps = has_stamps;
    fake().refused_cqs = 1;
    const auto wire = VerbsWire::open(*library, options);
    ASSERT_FALSE(wire.ok());
    EXPECT_NE(std::string::npos, wire.status().message().find("Cannot allocate memory"))
        << wire.status().message();
  }
}

TEST_F(Stamps, cost_nothing_when_they_are_not_asked_for) {
  const auto library = load_library(TUTTI_FAKE_VERBS);
  ASSERT_TRUE(library.ok());
  VerbsOptions options;
  options.device = "fake_0";
  const auto wire = VerbsWire::open(*library, options);
  ASSERT_TRUE(wire.ok());
  EXPECT_EQ(0U, fake().clock.readings);
  EXPECT_NE(std::string::npos,
            (*wire)->description().find(", no time stamps of the NIC: not asked for"));
}

TimeNs slow_stamps_clock() { return monotonic_ns() / 8; }

class StampedContract
    : public ::testing::TestWithParam<std::tuple<const char*, testing::WireCheck>> {};
TEST_P(StampedContract, holds) {
  if (std::getenv("TUTTI_TEST_VERBS") != nullptr) {
    GTEST_SKIP() << "on the fake NIC alone";
  }
  const auto& [service, check] = GetParam();
  fake() = FakeVerbsControl();
  fake().clock.host_ns = slow_stamps_clock;
  check.run([service = service] {
    return WirePair{nullptr, open_stamped(0, service, slow_stamps_clock),
                    open_stamped(1, service, slow_stamps_clock)};
  });
  fake() = FakeVerbsControl();
}
INSTANTIATE_TEST_SUITE_P(wire, StampedContract,
                         ::testing::Combine(::testing::Values("uc", "rc", "ud"),
                                            ::testing::ValuesIn(testing::wire_checks())),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_" +
                                  std::get<1>(one.param).name;
                         });

}  // namespace
}  // namespace tutti::wire::verbs
