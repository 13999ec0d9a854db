// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// VerbsWire over the fake of libibverbs. The contract runs on real devices, too, where
// TUTTI_TEST_VERBS names two that reach each other ("rxe0,rxe1").
#include "wire/verbs/verbs_wire.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.hpp"
#include "support/fake_verbs.hpp"
#include "support/wire_contract.hpp"

namespace tutti::wire::verbs {
namespace {

using testing::Collector;
using testing::Conversation;
using testing::TestPacket;
using testing::WirePair;
using tutti::testing::FakeVerbsControl;

std::string real_devices() {
  const char* const text = std::getenv("TUTTI_TEST_VERBS");
  return text == nullptr ? "" : text;
}

const Functions& library() {
  static const Functions functions = [] {
    auto loaded = load_library(real_devices().empty() ? TUTTI_FAKE_VERBS : "libibverbs.so.1");
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.ok() ? *loaded : Functions();
  }();
  return functions;
}

FakeVerbsControl& control() { return tutti::testing::fake_verbs(TUTTI_FAKE_VERBS); }

/// Of the fake's wires: a test that has lost its processor for a while is not late by it.
transport::TimeNs slow_clock() { return monotonic_ns() / 8; }

VerbsOptions options_of(int end, const std::string& service) {
  VerbsOptions options;
  if (real_devices().empty()) {
    options.clock = slow_clock;
  }
  const std::string devices = real_devices().empty() ? "fake_0,fake_1" : real_devices();
  const std::size_t comma = devices.find(',');
  options.device = end == 0 ? devices.substr(0, comma) : devices.substr(comma + 1);
  options.service = service;
  options.paths = 8;
  options.receive_buffers = 64;
  options.bounce_buffers = 16;
  return options;
}

std::unique_ptr<VerbsWire> open(const VerbsOptions& options) {
  auto wire = VerbsWire::open(library(), options);
  EXPECT_TRUE(wire.ok()) << wire.status().message();
  return wire.ok() ? std::move(*wire) : nullptr;
}

WirePair pair_of(const std::string& service) {
  return {nullptr, open(options_of(0, service)), open(options_of(1, service))};
}

class VerbsContract : public ::testing::TestWithParam<std::tuple<const char*, testing::WireCheck>> {
};
TEST_P(VerbsContract, holds) {
  const auto& [service, check] = GetParam();
  check.run([service = service] { return pair_of(service); });
}
INSTANTIATE_TEST_SUITE_P(wire, VerbsContract,
                         ::testing::Combine(::testing::Values("uc", "rc", "ud"),
                                            ::testing::ValuesIn(testing::wire_checks())),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_" +
                                  std::get<1>(one.param).name;
                         });

/// What only the fake can do.
/// A window of b's that is open.
std::uint64_t register_and_open(Conversation& talk, std::span<std::byte> memory) {
  Wire& b = *talk.pair.b;
  EXPECT_TRUE(b.register_memory(memory).ok());
  const std::uint64_t window = b.open_window(memory);
  transport::RemoteMemory remote;
  EXPECT_TRUE(talk.wait([&] { return b.has_opened(window, &remote); }));
  EXPECT_NE(0U, remote.key);
  return window;
}

class FakeNic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!real_devices().empty()) {
      GTEST_SKIP() << "on the fake NIC alone";
    }
    control() = FakeVerbsControl();
  }
  void TearDown() override {
    if (real_devices().empty()) {
      EXPECT_EQ(0U, control().qps);
      control() = FakeVerbsControl();
    }
  }
};

/// Whole chunks on all paths, `count` of them; how many arrive.
std::size_t pass_chunks(Conversation& talk, std::uint64_t first, std::uint64_t count) {
  const transport::WireCapabilities wire = talk.pair.a->capabilities();
  std::vector<std::unique_ptr<TestPacket>> packets;
  for (std::uint64_t number = first; number < first + count; ++number) {
    packets.push_back(std::make_unique<TestPacket>(number, talk.b_named_by_a,
                                                   Conversation::kHeaderBytes, wire.chunk_bytes));
    packets.back()->transmission.path = static_cast<transport::PathId>(number % wire.paths);
    talk.send(*talk.pair.a, *packets.back());
  }
  EXPECT_TRUE(talk.wait([&] {
    return std::all_of(packets.begin(), packets.end(), [&](const auto& packet) {
      return Conversation::has_left(*talk.pair.a, talk.at_a, *packet);
    });
  }));
  std::size_t arrived = 0;
  for (const auto& packet : packets) {
    const auto found = talk.at_b.received.find(packet->transmission.cookie);
    if (found != talk.at_b.received.end()) {
      ++arrived;
      expect_equal(*packet, found->second);
    }
  }
  return arrived;
}

TEST_F(FakeNic, open__says_why_it_cannot) {
  const auto why = [](const VerbsOptions& options) {
    const auto wire = VerbsWire::open(library(), options);
    return wire.ok() ? std::string() : wire.status().message();
  };
  VerbsOptions options = options_of(0, "uc");
  options.device = "fake_7";
  EXPECT_EQ("RDMA: there is no fake_7 port 1", why(options));
  options = options_of(0, "xrc");
  EXPECT_EQ("RDMA: there is no service 'xrc'; there are auto, uc, rc and ud", why(options));
  control().inactive = ~0U;
  EXPECT_EQ("RDMA: fake_0 port 1 is not active; remedy: its link", why(options_of(0, "uc")));
  control() = FakeVerbsControl();
  control().refuses_memory = true;
  EXPECT_NE(std::string::npos, why(options_of(0, "uc")).find("remedy: a higher ulimit -l"));
  control() = FakeVerbsControl();
  control().qps_max = 0;
  EXPECT_NE(std::string::npos, why(options_of(0, "uc")).find("no UD queue pair of fake_0"));
}

TEST_F(FakeNic, open__without_uc_is_rc_and_a_fallback) {
  EXPECT_EQ(Service::kUc, open(options_of(0, "auto"))->service());
  control().has_uc = false;
  VerbsOptions options = options_of(0, "auto");
  std::string told;
  options.on_fallback = [&](const std::string& what, const std::string&) { told = what; };
  EXPECT_EQ(Service::kRc, open(options)->service());
  EXPECT_EQ("RC and not UC, which fake_0 does not have (Operation not supported)", told);
  told.clear();
  control().uc_error = ENOMEM;
  const auto wire = VerbsWire::open(library(), options);
  ASSERT_FALSE(wire.ok());
  EXPECT_EQ("RDMA: no UC queue pair of fake_0: Cannot allocate memory; remedy: a higher ulimit -l",
            wire.status().message());
  EXPECT_EQ("", told);
}

TEST_F(FakeNic, open__without_windows_says_which_error) {
  control().connect_refusals = 1;
  VerbsOptions options = options_of(0, "uc");
  std::string told;
  options.on_fallback = [&](const std::string& what, const std::string&) { told = what; };
  EXPECT_NE(nullptr, open(options));
  EXPECT_EQ(
      "copies of what arrives and not writes into receives: fake_0 has no memory windows (Network "
      "is unreachable)",
      told);
}

TEST_F(FakeNic, open__without_windows_copies_and_says_so) {
  control().has_windows = false;
  VerbsOptions options = options_of(1, "uc");
  std::string told;
  options.on_fallback = [&](const std::string& what, const std::string&) { told = what; };
  Conversation talk([&] { return WirePair{nullptr, open(options_of(0, "uc")), open(options)}; });
  EXPECT_EQ(
      0U, told.find(
              "copies of what arrives and not writes into receives: fake_1 has no memory windows"))
      << told;
  std::vector<std::byte> memory(100'000);
  ASSERT_TRUE(talk.pair.b->register_memory(memory).ok());
  EXPECT_EQ(0U, talk.pair.b->open_window(memory));
  EXPECT_EQ(8U, pass_chunks(talk, 1, 8));
  talk.pair.b->deregister_memory(memory);
}

/// As by a program that aborts: the receive has not ended.
TEST_F(FakeNic, deregister_memory__closes_its_windows_first) {
  for (const char* const service : {"uc", "rc"}) {
    Conversation talk([&] { return pair_of(service); });
    EXPECT_EQ(8U, pass_chunks(talk, 1, 8));
    Wire& b = *talk.pair.b;
    std::vector<std::byte> memory(100'000, std::byte{7});
    ASSERT_TRUE(b.register_memory(memory).ok());
    const std::uint64_t open_window = b.open_window(memory);
    TestPacket late(50, talk.b_named_by_a, Conversation::kHeaderBytes, 5000);
    ASSERT_TRUE(talk.wait([&] { return b.has_opened(open_window, &late.transmission.remote); }));
    const std::uint64_t opening = b.open_window(std::span(memory).subspan(1000));
    const std::uint64_t closing = b.open_window(std::span(memory).subspan(2000));
    transport::RemoteMemory remote;
    ASSERT_TRUE(talk.wait([&] { return b.has_opened(closing, &remote); }));
    b.close_window(closing);
    b.deregister_memory(memory);  // The fake aborts if one is still open.
    talk.send(*talk.pair.a, late);
    EXPECT_TRUE(talk.wait([&] { return Conversation::has_left(*talk.pair.a, talk.at_a, late); }));
    talk.wait([&, rounds = 0]() mutable { return ++rounds > 200; });
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(),
                            [](std::byte byte) { return byte == std::byte{7}; }));
    for (const std::uint64_t window : {open_window, opening, closing}) {
      b.close_window(window);
      EXPECT_TRUE(talk.wait([&] { return b.has_closed(window); }));
    }
  }
}

TEST_F(FakeNic, open__without_inline_data) {
  control().inline_bytes_max = 0;
  for (const char* const service : {"uc", "rc", "ud"}) {
    Conversation talk([&] { return pair_of(service); });
    const TestPacket packet(1, talk.b_named_by_a, Conversation::kHeaderBytes, 100);
    expect_equal(packet, talk.pass(packet));
  }
}

TEST_F(FakeNic, add_peer__refuses_another_service) {
  const auto a = open(options_of(0, "uc"));
  const auto b = open(options_of(1, "rc"));
  const auto peer = a->add_peer(b->address(), 0);
  ASSERT_FALSE(peer.ok());
  EXPECT_EQ(ErrorCode::kInvalidArgument, peer.status().code());
  EXPECT_EQ("RDMA: the peer uses RC, this end UC; remedy: the same TUTTI_NET_VERBS everywhere",
            peer.status().message());
}

TEST_F(FakeNic, add_peer__shares_queue_pairs_between_connections) {
  Conversation talk([] { return pair_of("uc"); });
  EXPECT_TRUE(talk.wait([&] { return talk.pair.a->reach(talk.b_named_by_a).is_known; }));
  const std::uint64_t qps = control().qps;
  EXPECT_EQ(2U * (8 + 2), qps);
  ASSERT_TRUE(talk.pair.a->add_peer(talk.pair.b->address(), 0).ok());
  EXPECT_EQ(qps, control().qps);
  ASSERT_TRUE(talk.pair.a->add_peer(talk.pair.b->address(), 0x68).ok());
  EXPECT_EQ(qps + 8, control().qps);  // Another traffic class.
}

/// More queue pairs than one datagram has room for.
TEST_F(FakeNic, add_peer__with_256_paths_and_a_short_mtu) {
  control().mtu_code = 2;  // 512 bytes
  VerbsOptions a = options_of(0, "uc");
  VerbsOptions b = options_of(1, "uc");
  a.paths = 256;
  b.paths = 200;
  Conversation talk([&] { return WirePair{nullptr, open(a), open(b)}; });
  EXPECT_TRUE(talk.wait([&] {
    return talk.pair.a->reach(talk.b_named_by_a).is_known &&
           talk.pair.b->reach(talk.a_named_by_b).is_known;
  }));
  EXPECT_EQ(2U * (200 + 2), control().qps);
  EXPECT_EQ(32U, pass_chunks(talk, 1, 32));
}

TEST_F(FakeNic, add_peer__connects_though_datagrams_are_lost) {
  control().loss = 0.4;
  Conversation talk([] { return pair_of("rc"); });
  EXPECT_TRUE(talk.wait([&] {
    return talk.pair.a->reach(talk.b_named_by_a).is_known &&
           talk.pair.b->reach(talk.a_named_by_b).is_known;
  }));
  EXPECT_EQ(16U, pass_chunks(talk, 1, 16));
}

TEST_F(FakeNic, reach__a_peer_that_is_not_there_is_tried) {
  VerbsOptions options = options_of(0, "uc");
  options.clock = nullptr;  // It is about time.
  const auto a = open(options);
  const auto b = open(options_of(1, "uc"));  // Does not know of a.
  const auto peer = a->add_peer(b->address(), 0);
  ASSERT_TRUE(peer.ok());
  Collector collector;
  const auto end = std::chrono::steady_clock::now() + Conversation::kWaitMax;
  while (!a->reach(*peer).is_tried && std::chrono::steady_clock::now() < end) {
    a->receive(collector, 1);
    b->receive(collector, 1);
  }
  EXPECT_TRUE(a->reach(*peer).is_tried);
  EXPECT_FALSE(a->reach(*peer).is_heard || a->reach(*peer).is_known);
}

TEST_F(FakeNic, send__what_uc_loses_is_lost_whole) {
  Conversation talk([] { return pair_of("uc"); });
  EXPECT_EQ(16U, pass_chunks(talk, 1, 16));
  control().loss = 0.3;
  const std::size_t arrived = pass_chunks(talk, 100, 200);
  EXPECT_GT(arrived, 100U);
  EXPECT_LT(arrived, 180U);
}

/// A queue pair that fails loses what it had, and is replaced at both ends.
TEST_F(FakeNic, send__a_failed_queue_pair_is_replaced) {
  for (const char* const service : {"uc", "rc"}) {
    Conversation talk([&] { return pair_of(service); });
    EXPECT_EQ(16U, pass_chunks(talk, 1, 16));
    const std::uint64_t qps = control().qps;
    const std::string before = talk.pair.a->report();
    EXPECT_EQ("", before);
    control().is_cut = true;  // Which RC notices, UC does not.
    const std::size_t arrived = pass_chunks(talk, 100, 8);
    control().is_cut = false;
    EXPECT_EQ(0U, arrived);
    EXPECT_TRUE(talk.wait([&] {
      return talk.pair.a->reach(talk.b_named_by_a).is_known &&
             talk.pair.b->reach(talk.a_named_by_b).is_known;
    }));
    talk.wait([&, rounds = 0]() mutable { return ++rounds > 200; });
    EXPECT_EQ(32U, pass_chunks(talk, 200, 32)) << service;
    EXPECT_TRUE(talk.wait([&] { return control().qps == qps; })) << control().qps;
    EXPECT_EQ(std::string(service) == "rc",
              talk.pair.a->report().find("transport retry counter exceeded") != std::string::npos)
        << talk.pair.a->report();
  }
}

/// A late write that ends the receiver's queue pair, as a NIC tells it that makes no completion.
TEST_F(FakeNic, send__a_queue_pair_that_the_peers_nic_has_closed_is_replaced) {
  control().tells_by_event = true;
  Conversation talk([] { return pair_of("uc"); });
  EXPECT_EQ(8U, pass_chunks(talk, 1, 8));
  const std::uint64_t qps = control().qps;
  Wire& b = *talk.pair.b;
  std::vector<std::byte> memory(100'000);
  ASSERT_TRUE(b.register_memory(memory).ok());
  const std::uint64_t window = b.open_window(memory);
  TestPacket late(50, talk.b_named_by_a, Conversation::kHeaderBytes, 5000);
  ASSERT_TRUE(talk.wait([&] { return b.has_opened(window, &late.transmission.remote); }));
  b.close_window(window);
  ASSERT_TRUE(talk.wait([&] { return b.has_closed(window); }));
  talk.send(*talk.pair.a, late);
  EXPECT_TRUE(talk.wait([&] {
    b.handle_timeout(slow_clock());
    return dynamic_cast<VerbsWire&>(b).report().find("1 queue pair(s) failed") != std::string::npos;
  }));
  EXPECT_TRUE(
      talk.wait([&] { return control().qps == qps && b.reach(talk.a_named_by_b).is_known; }));
  talk.wait([&, rounds = 0]() mutable { return ++rounds > 200; });
  EXPECT_EQ(16U, pass_chunks(talk, 100, 16));
  b.deregister_memory(memory);
}

/// The NIC has fewer queue pairs than there are to be paths: those that there are carry all.
TEST_F(FakeNic, add_peer__fewer_queue_pairs_than_paths) {
  control().qps_max = 4 + 12;
  std::string told;
  VerbsOptions a = options_of(0, "uc");
  VerbsOptions b = options_of(1, "uc");
  a.clock = b.clock = nullptr;  // Both wait for a second.
  b.on_fallback = [&](const std::string& what, const std::string&) { told = what; };
  Conversation talk([&] { return WirePair{nullptr, open(a), open(b)}; });
  EXPECT_TRUE(talk.wait([&] {
    return talk.pair.a->reach(talk.b_named_by_a).is_known &&
           talk.pair.b->reach(talk.a_named_by_b).is_known;
  }));
  EXPECT_EQ(4U, pass_chunks(talk, 8, 4));  // Paths 0 to 3.
  EXPECT_EQ(0U, told.find("fewer queue pairs than paths")) << told;
}

/// What an ARP that was lost does to a connect ends with the next one.
TEST_F(FakeNic, add_peer__tries_again_to_connect) {
  Conversation talk([] { return pair_of("uc"); });
  control().connect_refusals = 5;
  EXPECT_TRUE(talk.wait([&] {
    return talk.pair.a->reach(talk.b_named_by_a).is_known &&
           talk.pair.b->reach(talk.a_named_by_b).is_known;
  }));
  EXPECT_EQ(0, control().connect_refusals);
  EXPECT_EQ(16U, pass_chunks(talk, 1, 16));
  const std::string reports = talk.pair.a->report() + talk.pair.b->report();
  EXPECT_NE(std::string::npos,
            reports.find("(a queue pair cannot be connected: Network is unreachable)"))
      << reports;
}

/// A peer with no path at all is not reached, and the end that has given up says so.
TEST_F(FakeNic, reach__without_a_queue_pair_is_not_known) {
  for (const std::uint32_t paths : {1U, 8U}) {
    std::vector<std::string> told;
    VerbsOptions a = options_of(0, "uc");
    VerbsOptions b = options_of(1, "uc");
    for (VerbsOptions* const it : {&a, &b}) {
      it->paths = paths;
      it->clock = nullptr;  // It is about time.
      it->on_fallback = [&](const std::string& what, const std::string&) { told.push_back(what); };
    }
    Conversation talk([&] { return WirePair{nullptr, open(a), open(b)}; });
    control().connect_refusals = -1;
    EXPECT_TRUE(talk.wait([&] { return told.size() >= paths; }))
        << talk.pair.a->report() << talk.pair.b->report();
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(
        std::string(paths == 1 ? "no queue pair to a peer" : "fewer queue pairs than paths") +
            ", the NIC reaches the peer by no more (a queue pair cannot be connected: Network "
            "is unreachable)",
        told[0]);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
    while (std::chrono::steady_clock::now() < end) {
      talk.receive();
    }
    EXPECT_LE(told.size(), 2 * paths) << "each end says it once for each path";
    EXPECT_TRUE(talk.pair.a->reach(talk.b_named_by_a).is_heard);
    EXPECT_FALSE(talk.pair.a->reach(talk.b_named_by_a).is_known);
    EXPECT_FALSE(talk.pair.b->reach(talk.a_named_by_b).is_known);
    control().connect_refusals = 0;
  }
}

/// One path, which one end gives up: the other does not wait for it for ever.
TEST_F(FakeNic, add_peer__a_path_that_the_peer_gives_up) {
  std::vector<std::string> told;
  VerbsOptions a = options_of(0, "uc");
  VerbsOptions b = options_of(1, "uc");
  for (VerbsOptions* const it : {&a, &b}) {
    it->paths = 1;
    it->on_fallback = [&](const std::string& what, const std::string&) { told.push_back(what); };
  }
  Conversation talk([&] { return WirePair{nullptr, open(a), open(b)}; });
  control().connect_refusals = 7;  // One end has four of them, and the other has not.
  EXPECT_TRUE(talk.wait([&] { return told.size() == 2; }))
      << talk.pair.a->report() << talk.pair.b->report();
  control().connect_refusals = 0;
  ASSERT_EQ(2U, told.size());
  EXPECT_EQ(0U, told[0].find("no queue pair to a peer, the NIC reaches the peer by no more"));
  EXPECT_EQ("no queue pair to a peer, the peer has given it up (it has no queue pair for this one)",
            told[1]);
}

/// A NIC that stops completing, or says that it has failed: who waits for a window goes on.
TEST_F(FakeNic, close_window__ends_though_the_nic_has_stopped) {
  for (const bool tells : {false, true}) {
    for (const char* const service : {"uc", "rc"}) {
      control() = FakeVerbsControl();
      transport::TimeNs now = 1'000'000;
      std::vector<std::string> told;
      VerbsOptions options = options_of(1, service);
      options.clock = [&] { return now += 10'000; };
      options.on_fallback = [&](const std::string& what, const std::string&) {
        told.push_back(what);
      };
      Conversation talk([&] {
        return WirePair{nullptr, open(options_of(0, service)), open(options)};
      });
      EXPECT_EQ(8U, pass_chunks(talk, 1, 8));
      Wire& b = *talk.pair.b;
      std::vector<std::byte> memory(100'000);
      const std::uint64_t window = register_and_open(talk, memory);
      b.close_window(window);
      (tells ? control().fails_device : control().is_stopped) = true;
      const transport::TimeNs begin = now;
      bool has_closed = false;
      while (!(has_closed = b.has_closed(window)) && now < begin + 5'000'000'000) {
        b.receive(talk.at_b, 16);
        now += 10'000'000;
        b.handle_timeout(now);
      }
      EXPECT_TRUE(has_closed);
      EXPECT_LT(now - begin, tells ? 100'000'000U : 2'500'000'000U);
      EXPECT_EQ(tells, now - begin < 2'000'000'000U);
      const std::string why =
          tells ? "the NIC has failed" : "the NIC has completed nothing for 2 s";
      ASSERT_EQ(1U, told.size());
      EXPECT_EQ(
          "receives that are copied: the NIC failed to open or close a memory window (" + why + ")",
          told[0]);
      EXPECT_NE(std::string::npos, b.report().find("receives were copied after the NIC failed"))
          << b.report();
      EXPECT_EQ(0U, b.open_window(memory));
      b.deregister_memory(memory);  // The fake aborts if one is still open.
    }
  }
}

/// An empty send queue that refuses a request refuses it for good.
TEST_F(FakeNic, close_window__that_the_nic_refuses) {
  std::vector<std::string> told;
  VerbsOptions options = options_of(1, "uc");
  options.on_fallback = [&](const std::string& what, const std::string&) { told.push_back(what); };
  Conversation talk([&] { return WirePair{nullptr, open(options_of(0, "uc")), open(options)}; });
  Wire& b = *talk.pair.b;
  std::vector<std::byte> memory(100'000);
  const std::uint64_t window = register_and_open(talk, memory);
  control().refuses_binds = true;
  b.close_window(window);
  EXPECT_TRUE(b.has_closed(window));
  talk.receive();
  talk.receive();
  EXPECT_EQ(1U, told.size());
  control().keeps_memory = true;
  b.deregister_memory(memory);
  control().keeps_memory = false;
  ASSERT_EQ(2U, told.size());
  EXPECT_EQ(
      "memory that was given back and may still be written: the NIC keeps memory registered: "
      "Device or resource busy",
      told[1]);
  EXPECT_NE(std::string::npos, b.report().find("memory was given back 1 time(s)")) << b.report();
}

/// What has gone into a send queue that stands still ends; then the queue pair begins anew.
TEST_F(FakeNic, send__datagrams_of_a_nic_that_has_stopped_end_in_time) {
  transport::TimeNs now = 1'000'000;
  VerbsOptions options = options_of(0, "ud");
  options.clock = [&] { return now += 10'000; };
  Conversation talk([&] { return WirePair{nullptr, open(options), open(options_of(1, "ud"))}; });
  const TestPacket first(1, talk.b_named_by_a, Conversation::kHeaderBytes, 1000);
  expect_equal(first, talk.pass(first));
  const TestPacket packet(2, talk.b_named_by_a, Conversation::kHeaderBytes, 1000);
  control().is_stopped = true;
  ASSERT_TRUE(talk.pair.a->send(packet.transmission));
  const transport::TimeNs begin = now;
  while (talk.at_a.completed.count(2) == 0 && now < begin + 5'000'000'000) {
    talk.pair.a->receive(talk.at_a, 16);
    now += 10'000'000;
    talk.pair.a->handle_timeout(now);
  }
  EXPECT_EQ(1, talk.at_a.completed[2]);
  EXPECT_LT(now - begin, 2'500'000'000U);
  control().is_stopped = false;
  const TestPacket last(3, talk.b_named_by_a, Conversation::kHeaderBytes, 1000);
  expect_equal(last, talk.pass(last));
  EXPECT_EQ(0U, talk.at_b.received.count(2));
}

/// A peer that lives and takes nothing in: what waits for it ends, and its buffers are free.
TEST_F(FakeNic, send__what_a_peer_does_not_take_ends_in_time) {
  transport::TimeNs now = 1'000'000;
  VerbsOptions options = options_of(0, "rc");
  options.clock = [&] { return now += 10'000; };
  VerbsOptions other = options_of(1, "rc");
  other.receive_buffers = 10;
  Conversation talk([&] { return WirePair{nullptr, open(options), open(other)}; });
  EXPECT_EQ(8U, pass_chunks(talk, 1, 8));
  std::vector<std::unique_ptr<TestPacket>> packets;
  for (std::uint64_t number = 100; number < 160; ++number) {
    packets.push_back(
        std::make_unique<TestPacket>(number, talk.b_named_by_a, Conversation::kHeaderBytes, 5000));
    packets.back()->transmission.path = static_cast<transport::PathId>(number % 8);
    if (!talk.pair.a->send(packets.back()->transmission)) {
      packets.pop_back();
      break;
    }
  }
  EXPECT_GT(packets.size(), 8U);
  const auto end = std::chrono::steady_clock::now() + Conversation::kWaitMax;
  const auto all_left = [&] {
    return std::all_of(packets.begin(), packets.end(), [&](const auto& packet) {
      return talk.at_a.completed.count(packet->transmission.cookie) != 0;
    });
  };
  while (!all_left() && std::chrono::steady_clock::now() < end) {
    talk.pair.a->receive(talk.at_a, 16);  // b does not.
    now += 10'000'000;
    talk.pair.a->handle_timeout(now);
  }
  EXPECT_TRUE(all_left());
}

/// Payloads are read from where they are, if that is registered, else copied.
TEST_F(FakeNic, register_memory__errors_name_the_remedy) {
  const auto a = open(options_of(0, "uc"));
  std::vector<std::byte> bytes(1000);
  control().refuses_memory = true;
  const Status status = a->register_memory(bytes);
  EXPECT_EQ(ErrorCode::kUnavailable, status.code());
  EXPECT_NE(std::string::npos, status.message().find("remedy: a higher ulimit -l"));
}

/// Of a path that takes nothing, packets are lost after a while and the others go on.
TEST_F(FakeNic, send__a_full_path_does_not_hold_up_the_others_for_ever) {
  transport::TimeNs now = 1;
  VerbsOptions options = options_of(0, "rc");
  options.clock = [&] { return now += 10'000; };
  options.send_depth = 2;
  Conversation talk([&] { return WirePair{nullptr, open(options), open(options_of(1, "rc"))}; });
  EXPECT_TRUE(talk.wait([&] { return talk.pair.a->reach(talk.b_named_by_a).is_known; }));
  std::vector<std::unique_ptr<TestPacket>> packets;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    packets.push_back(
        std::make_unique<TestPacket>(number, talk.b_named_by_a, Conversation::kHeaderBytes, 5000));
  }
  EXPECT_TRUE(talk.pair.a->send(packets[0]->transmission));
  EXPECT_TRUE(talk.pair.a->send(packets[1]->transmission));
  EXPECT_FALSE(talk.pair.a->send(packets[2]->transmission));
  now += VerbsWire::kFullNsMax;
  EXPECT_TRUE(talk.pair.a->send(packets[2]->transmission));
  EXPECT_TRUE(talk.wait([&] { return talk.at_a.completed.size() == 3; }));
  EXPECT_EQ(2U, talk.at_b.received.size());
  EXPECT_EQ(1U, talk.pair.a->counters().refused);
  EXPECT_EQ(", 1 packet(s) were dropped before the NIC took them", talk.pair.a->report());
}

// What mlx5's driver counts, of the port and since the system started.
TEST_F(FakeNic, report__says_what_switches_marked_while_it_was_open) {
  VerbsOptions options = options_of(0, "uc");
  std::string directory = ::testing::TempDir() + "marks-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(directory.data()));
  const std::string port = directory + "/" + options.device + "/ports/1/";
  const auto write = [&](const std::string& file, const std::string& text) {
    const std::filesystem::path path = port + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  };
  write("gid_attrs/types/0", "RoCE v2");
  options.class_directory = directory;
  EXPECT_EQ("", open(options)->report());  // No such counters.
  write("hw_counters/np_ecn_marked_roce_packets", "100");
  write("hw_counters/rp_cnp_handled", "7");
  const auto wire = open(options);
  EXPECT_EQ("", wire->report());
  write("hw_counters/np_ecn_marked_roce_packets", "130");
  EXPECT_EQ(", while it was open " + options.device +
                " port 1 took in 30 packet(s) that switches had marked (ECN) and 0 notification(s) "
                "of such (CNP)",
            wire->report());
  write("hw_counters/rp_cnp_handled", "seven");
  EXPECT_EQ("", wire->report());
  std::filesystem::remove_all(directory);
}

// In the virtual machine the contract of wires sleeps on real events.
TEST_F(FakeNic, arm__wakes_with_what_comes_later_and_tells_what_has_come) {
  control().has_events = true;
  Conversation talk([] { return pair_of("uc"); });
  Wire& b = *talk.pair.b;
  pollfd waiting{b.file_descriptor(), POLLIN, 0};
  const auto is_quiet = [&] { return b.arm(7) == transport::kNever && poll(&waiting, 1, 0) == 0; };
  EXPECT_TRUE(talk.wait([&] { return talk.pair.a->reach(talk.b_named_by_a).is_known; }));
  EXPECT_TRUE(talk.wait(is_quiet));
  const TestPacket first(1, talk.b_named_by_a, Conversation::kHeaderBytes, 1000);
  talk.send(*talk.pair.a, first);
  for (int i = 0; i < 1000 && poll(&waiting, 1, 0) == 0; ++i) {
    talk.pair.a->receive(talk.at_a, 1);
  }
  EXPECT_EQ(1, poll(&waiting, 1, 0));
  EXPECT_EQ(7U, b.arm(7));  // It is taken, and waits for receive().
  EXPECT_EQ(0, poll(&waiting, 1, 0));
  EXPECT_TRUE(talk.wait([&] { return talk.at_b.received.count(1) != 0; }));
  EXPECT_TRUE(talk.wait(is_quiet));
}

// What arm() takes in no event tells of: who waits for the window must look again.
TEST_F(FakeNic, arm__tells_that_a_window_has_opened) {
  control().has_events = true;
  Conversation talk([] { return pair_of("uc"); });
  Wire& b = *talk.pair.b;
  EXPECT_TRUE(talk.wait([&] { return talk.pair.a->reach(talk.b_named_by_a).is_known; }));
  EXPECT_TRUE(talk.wait([&] { return b.arm(7) == transport::kNever; }));
  std::vector<std::byte> memory(1 << 16);
  ASSERT_TRUE(b.register_memory(memory).ok());
  const std::uint64_t window = b.open_window(memory);
  ASSERT_NE(0U, window);
  transport::TimeNs armed_ns = 0;
  transport::RemoteMemory remote;
  for (int i = 0; i < 1000 && !b.has_opened(window, &remote); ++i) {
    armed_ns = b.arm(7);
  }
  EXPECT_NE(0U, remote.key);
  EXPECT_EQ(7U, armed_ns);
  b.close_window(window);
  EXPECT_TRUE(talk.wait([&] { return b.has_closed(window); }));
  b.deregister_memory(memory);
}

}  // namespace
}  // namespace tutti::wire::verbs
