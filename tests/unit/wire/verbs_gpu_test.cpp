// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// VerbsWire and memory of GPUs, over the fake of libibverbs: what is copied, in how many launches,
// and what waits for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "support/fake_verbs.hpp"
#include "support/wire_contract.hpp"
#include "wire/verbs/verbs_wire.hpp"

namespace tutti::wire::verbs {
namespace {

using testing::Collector;
using testing::Conversation;
using testing::TestPacket;
using testing::WirePair;
using tutti::testing::FakeVerbsControl;

/// A GPU whose copies end when the test says so.
class ManualCopies : public DeviceCopies {
 public:
  std::vector<std::span<const std::byte>> memory;  ///< The GPU's.
  std::vector<std::size_t> launches;               ///< Pieces of each.
  std::size_t launches_max = 4;                    ///< Under way.
  Status error;                                    ///< Of every start().
  State ends_as = State::kUnderWay;                ///< All of them.
  std::vector<std::span<std::byte>> sources;

  int device_of(const void* pointer) override {
    const auto* const at = static_cast<const std::byte*>(pointer);
    return std::any_of(memory.begin(), memory.end(),
                       [&](auto it) { return at >= it.data() && at < it.data() + it.size(); })
               ? 0
               : -1;
  }
  std::span<std::byte> trial_memory() override { return {}; }
  Status prepare(const void* /*memory*/) override { return {}; }
  void add_source(std::span<std::byte> added) override { sources.push_back(added); }
  void remove_source(std::span<std::byte> removed) override {
    EXPECT_TRUE(open_.empty());
    std::erase_if(sources, [&](const auto& it) { return it.data() == removed.data(); });
  }
  Result<std::uint64_t> start(int device, std::span<const Piece> pieces) override {
    EXPECT_EQ(0, device);
    EXPECT_FALSE(pieces.empty());
    TUTTI_RETURN_IF_ERROR(error);
    if (open_.size() == launches_max) {
      return std::uint64_t{0};
    }
    for (const Piece& piece : pieces) {
      EXPECT_TRUE(std::any_of(sources.begin(), sources.end(), [&](const auto& it) {
        return piece.from >= it.data() && piece.from + piece.bytes <= it.data() + it.size();
      }));
      EXPECT_EQ(0, device_of(piece.to));
    }
    launches.push_back(pieces.size());
    open_[launches.size()] = {pieces.begin(), pieces.end()};
    return launches.size();
  }
  State state(std::uint64_t copies) override {
    const auto found = open_.find(copies);
    EXPECT_NE(open_.end(), found) << "asked after its end";
    if (ends_as != State::kUnderWay) {
      for (const Piece& piece : found->second) {
        if (ends_as == State::kEnded) {
          std::memcpy(piece.to, piece.from, piece.bytes);
        }
      }
      open_.erase(found);
    }
    return ends_as;
  }

 private:
  std::map<std::uint64_t, std::vector<Piece>> open_;
};

/// A stream's chunks reach the transport as they came.
TEST(bounces, take__in_their_order) {
  ManualCopies copies;
  std::vector<std::byte> from(64);
  std::vector<std::byte> to(64);
  copies.add_source(from);
  copies.memory.push_back(to);
  {
    Bounces bounces(copies);
    for (std::uint32_t i = 0; i < 4; ++i) {
      Bounces::Packet packet;
      packet.arrival.payload = std::span(from).subspan(8 * i, 8);
      packet.buffer = i;
      packet.place = &to[8 * i];
      bounces.add(packet);
    }
    bounces.start();
    copies.ends_as = DeviceCopies::State::kEnded;
    Bounces::Packet packet;
    bool is_copied = false;
    for (std::uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(4 - i, bounces.held());
      ASSERT_TRUE(bounces.take(&packet, &is_copied));
      EXPECT_TRUE(is_copied);
      EXPECT_EQ(i, packet.buffer);
    }
    EXPECT_FALSE(bounces.take(&packet, &is_copied));
    EXPECT_EQ(0U, bounces.held());
  }
  copies.remove_source(from);
}

class VerbsGpu : public ::testing::TestWithParam<const char*> {
 protected:
  static const Functions& library() {
    static const Functions functions = *load_library(TUTTI_FAKE_VERBS);
    return functions;
  }
  static FakeVerbsControl& control() { return tutti::testing::fake_verbs(TUTTI_FAKE_VERBS); }
  void SetUp() override {
    control() = FakeVerbsControl();
    talk_ = std::make_unique<Conversation>([&] { return WirePair{nullptr, open(0), open(1)}; });
    EXPECT_TRUE(talk_->wait([&] { return talk_->pair.a->reach(talk_->b_named_by_a).is_known; }));
    talk_->at_b.places = [](std::uint64_t) { return true; };
  }
  void TearDown() override {
    talk_.reset();
    EXPECT_TRUE(copies_->sources.empty());
    EXPECT_EQ(0U, control().qps);
  }
  std::unique_ptr<VerbsWire> open(int end) const {
    VerbsOptions options;
    options.device = end == 0 ? "fake_0" : "fake_1";
    options.service = GetParam();
    options.paths = 8;
    options.receive_buffers = 32;
    options.bounce_buffers = 16;
    options.copies = copies_;
    options.clock = [this] { return monotonic_ns() + skipped_ns_; };
    auto wire = VerbsWire::open(library(), options);
    EXPECT_TRUE(wire.ok()) << wire.status().message();
    return std::move(*wire);
  }
  /// Its place at b is a GPU's memory, and is registered.
  std::unique_ptr<TestPacket> packet_to_gpu(std::uint64_t number, std::size_t bytes) {
    auto packet = std::make_unique<TestPacket>(number, talk_->b_named_by_a,
                                               Conversation::kHeaderBytes, bytes);
    std::byte* const place =
        talk_->at_b.place(packet->transmission.header, static_cast<std::uint32_t>(bytes));
    copies_->memory.push_back({place, bytes});
    EXPECT_TRUE(talk_->pair.b->register_device_memory({.span = {place, bytes}}).ok());
    packet->transmission.path = static_cast<transport::PathId>(number % 8);
    return packet;
  }
  void turn(int times) {
    for (int i = 0; i < times; ++i) {
      talk_->receive();
    }
  }

  transport::TimeNs skipped_ns_ = 0;  ///< By the wires' clock.
  std::shared_ptr<ManualCopies> copies_ = std::make_shared<ManualCopies>();
  std::unique_ptr<Conversation> talk_;
};

/// What has come together goes by one launch, and nothing is told of it before.
TEST_P(VerbsGpu, receive__tells_after_the_copies) {
  turn(100);
  EXPECT_TRUE(copies_->launches.empty()) << "where there is nothing";
  std::vector<std::unique_ptr<TestPacket>> packets;
  for (std::uint64_t number = 1; number <= 6; ++number) {
    packets.push_back(packet_to_gpu(number, 1000 + number));
  }
  for (const auto& packet : packets) {
    talk_->send(*talk_->pair.a, *packet);
  }
  turn(200);
  std::size_t pieces = 0;
  for (const std::size_t count : copies_->launches) {
    pieces += count;
  }
  EXPECT_EQ(6U, pieces);
  EXPECT_LE(copies_->launches.size(), 4U);
  EXPECT_EQ(0U, talk_->at_b.count);
  for (const auto& packet : packets) {
    std::byte* const place =
        talk_->at_b.place(packet->transmission.header, packet->transmission.payload_bytes);
    const std::span<std::byte> span(place, packet->payload.size());
    EXPECT_TRUE(talk_->pair.b->is_copying_into(span));
    EXPECT_TRUE(
        std::all_of(span.begin(), span.end(), [](std::byte it) { return it == std::byte{}; }));
  }
  EXPECT_FALSE(talk_->pair.b->is_copying_into(packets[0]->payload));
  // Their receive buffers are nobody else's meanwhile.
  talk_->at_b.places = [](std::uint64_t number) { return number <= 6; };
  for (std::uint64_t number = 100; number < 150; ++number) {
    const TestPacket other(number, talk_->b_named_by_a, Conversation::kHeaderBytes, 3000);
    expect_equal(other, talk_->pass(other));
  }
  copies_->ends_as = DeviceCopies::State::kEnded;
  EXPECT_TRUE(talk_->wait([&] { return talk_->at_b.count == 56; }));
  for (const auto& packet : packets) {
    const auto& got = talk_->at_b.received[packet->transmission.cookie];
    EXPECT_TRUE(got.was_placed);
    EXPECT_NE(transport::kNever, got.received_ns);
    expect_equal(*packet, got);
  }
}

/// More than the GPU takes at once: the rest goes together, and no receive buffer is lost.
TEST_P(VerbsGpu, receive__what_waits_goes_together) {
  copies_->launches_max = 1;
  std::vector<std::unique_ptr<TestPacket>> packets;
  for (std::uint64_t number = 1; number <= 9; ++number) {
    packets.push_back(packet_to_gpu(number, 500));
    talk_->send(*talk_->pair.a, *packets.back());
    turn(20);  // Each alone.
  }
  EXPECT_EQ(std::vector<std::size_t>{1}, copies_->launches);
  copies_->ends_as = DeviceCopies::State::kEnded;
  EXPECT_TRUE(talk_->wait([&] { return talk_->at_b.count == 9; }));
  EXPECT_EQ((std::vector<std::size_t>{1, 8}), copies_->launches);
  for (std::uint64_t number = 100; number < 200; ++number) {
    const auto packet = packet_to_gpu(number, 600);
    expect_equal(*packet, talk_->pass(*packet));
  }
}

/// A GPU that lags leaves half of the receive buffers to all others.
TEST_P(VerbsGpu, receive__copies_hold_half_of_the_buffers) {
  std::vector<std::unique_ptr<TestPacket>> packets;
  for (std::uint64_t number = 1; number <= 20; ++number) {
    packets.push_back(packet_to_gpu(number, 500));
    talk_->send(*talk_->pair.a, *packets.back());
    turn(20);
  }
  turn(200);
  EXPECT_EQ(", 4 packet(s) for GPUs were dropped: copies held half of the receive buffers",
            talk_->pair.b->report());
  copies_->ends_as = DeviceCopies::State::kEnded;
  EXPECT_TRUE(talk_->wait([&] { return talk_->at_b.count == 16; }));
  for (std::uint64_t number = 100; number < 140; ++number) {
    const auto packet = packet_to_gpu(number, 600);
    expect_equal(*packet, talk_->pass(*packet));
  }
}

/// Who deregisters memory frees it: a copy that goes on into it is told.
TEST_P(VerbsGpu, deregister_memory__says_that_a_copy_goes_on) {
  const auto packet = packet_to_gpu(1, 1000);
  talk_->send(*talk_->pair.a, *packet);
  turn(200);
  ASSERT_EQ(1U, copies_->launches.size());
  talk_->pair.b->deregister_memory(std::span(
      talk_->at_b.place(packet->transmission.header, packet->transmission.payload_bytes), 1000));
  EXPECT_EQ(
      ", memory was given back 1 time(s) while it could still be written (a GPU's copy into it has "
      "not ended within 100 ms)",
      talk_->pair.b->report());
  copies_->ends_as = DeviceCopies::State::kEnded;
  EXPECT_TRUE(talk_->wait([&] { return talk_->at_b.count == 1; }));
}

/// As if they were lost on the way.
TEST_P(VerbsGpu, receive__copies_that_fail) {
  auto& wire = static_cast<VerbsWire&>(*talk_->pair.b);
  copies_->error = Status(ErrorCode::kLibraryFailed, "CUDA_ERROR_ILLEGAL_ADDRESS");
  talk_->send(*talk_->pair.a, *packet_to_gpu(1, 1000));
  turn(100);
  EXPECT_EQ(", 1 packet(s) could not be copied into a GPU's memory (CUDA_ERROR_ILLEGAL_ADDRESS)",
            wire.report());
  copies_->error = {};
  copies_->ends_as = DeviceCopies::State::kFailed;
  talk_->send(*talk_->pair.a, *packet_to_gpu(2, 1000));
  turn(100);
  EXPECT_EQ(", 2 packet(s) could not be copied into a GPU's memory (a copy has failed)",
            wire.report());
  EXPECT_EQ(0U, talk_->at_b.count);
  copies_->ends_as = DeviceCopies::State::kEnded;
  const auto packet = packet_to_gpu(3, 1000);
  expect_equal(*packet, talk_->pass(*packet));
}

/// The CPU writes nothing where a GPU's memory was registered.
TEST_P(VerbsGpu, receive__into_memory_that_is_registered_no_more) {
  const auto packet = packet_to_gpu(1, 1000);
  const auto span = std::span(
      talk_->at_b.place(packet->transmission.header, packet->transmission.payload_bytes), 1000);
  talk_->pair.b->deregister_memory(span);
  talk_->send(*talk_->pair.a, *packet);
  turn(100);
  EXPECT_EQ(0U, talk_->at_b.count);
  EXPECT_TRUE(copies_->launches.empty());
  EXPECT_TRUE(
      std::all_of(span.begin(), span.end(), [](std::byte it) { return it == std::byte{}; }));
}

/// By the NIC, from where it is; the CPU reads nothing.
TEST_P(VerbsGpu, send__from_registered_memory_alone) {
  TestPacket packet(1, talk_->b_named_by_a, Conversation::kHeaderBytes, 100);
  copies_->memory.push_back(packet.payload);
  talk_->at_b.places = [](std::uint64_t) { return false; };
  talk_->send(*talk_->pair.a, packet);
  EXPECT_TRUE(talk_->wait([&] { return talk_->at_a.completed.count(1) != 0; }));
  turn(100);
  EXPECT_EQ(0U, talk_->at_b.count);
  EXPECT_EQ(1U, talk_->pair.a->counters().refused);
  ASSERT_TRUE(talk_->pair.a->register_device_memory({.span = packet.payload}).ok());
  packet.transmission.cookie = 2;
  std::memcpy(packet.transmission.header.data(), &packet.transmission.cookie,
              sizeof(std::uint64_t));
  expect_equal(packet, talk_->pass(packet));
  talk_->pair.a->deregister_memory(packet.payload);
}

/// What comes through a window the NIC has written, and there is no launch.
TEST_P(VerbsGpu, receive__through_windows) {
  Wire& b = *talk_->pair.b;
  const std::uint32_t bytes = talk_->pair.a->capabilities().chunk_bytes;
  std::vector<std::byte> memory(bytes);
  copies_->memory.push_back(memory);
  ASSERT_TRUE(b.register_device_memory({.span = memory}).ok());
  const std::uint64_t window = b.open_window(memory);
  if (talk_->pair.a->capabilities().window_bytes_min == 0) {
    EXPECT_EQ(0U, window);
    return;
  }
  ASSERT_NE(0U, window);
  TestPacket packet(1, talk_->b_named_by_a, Conversation::kHeaderBytes, bytes);
  ASSERT_TRUE(talk_->wait([&] { return b.has_opened(window, &packet.transmission.remote); }));
  EXPECT_EQ(bytes, talk_->pass(packet).payload_bytes);
  EXPECT_TRUE(packet.payload == memory);
  EXPECT_TRUE(copies_->launches.empty());
  EXPECT_FALSE(b.is_copying_into(memory));
  const auto flush = b.start_flush(memory);
  ASSERT_TRUE(flush.ok());
  EXPECT_NE(0U, *flush);
  EXPECT_TRUE(talk_->wait([&] { return *b.has_flushed(*flush); }));
  EXPECT_EQ(1U, control().reads);
  b.close_window(window);
  ASSERT_TRUE(talk_->wait([&] { return b.has_closed(window); }));
  b.deregister_memory(memory);
}

/// A flush that the NIC does not complete is an error, and the next one begins anew.
TEST_P(VerbsGpu, start_flush__of_a_nic_that_has_stopped) {
  Wire& b = *talk_->pair.b;
  std::vector<std::byte> memory(5000);
  copies_->memory.push_back(memory);
  ASSERT_TRUE(b.register_device_memory({.span = memory}).ok());
  control().reads_wait = true;
  const auto lost = b.start_flush(memory);
  ASSERT_TRUE(lost.ok());
  if (b.capabilities().window_bytes_min != 0) {
    ASSERT_NE(0U, *lost);
    for (int i = 0; i < 300 && b.has_flushed(*lost).ok(); ++i) {
      EXPECT_FALSE(*b.has_flushed(*lost));
      skipped_ns_ += 10'000'000;
      b.handle_timeout(monotonic_ns() + skipped_ns_);
      turn(1);
    }
    const auto flushed = b.has_flushed(*lost);
    ASSERT_FALSE(flushed.ok());
    EXPECT_EQ("RDMA: the GPU's memory cannot be flushed: the NIC has completed nothing for 2 s",
              flushed.status().message());
    control().reads_wait = false;
    const auto again = b.start_flush(memory);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE(talk_->wait([&] {
      const auto has_flushed = b.has_flushed(*again);
      EXPECT_TRUE(has_flushed.ok());
      return !has_flushed.ok() || *has_flushed;
    }));
    EXPECT_EQ(1U, control().reads);
    // A later failure changes nothing about those before.
    control().reads_wait = true;
    const auto lost_too = b.start_flush(memory);
    ASSERT_TRUE(lost_too.ok());
    EXPECT_TRUE(talk_->wait([&] {
      skipped_ns_ += 10'000'000;
      b.handle_timeout(monotonic_ns() + skipped_ns_);
      return !b.has_flushed(*lost_too).ok();
    }));
    EXPECT_FALSE(b.has_flushed(*lost).ok());
    EXPECT_TRUE(b.has_flushed(*again).ok());
    control().reads_wait = false;
  }
  b.deregister_memory(memory);
}

/// The library gives a dma-buf's offset as its address, and binds no window to it.
TEST_P(VerbsGpu, register_device_memory__by_dma_buf) {
  Wire& b = *talk_->pair.b;
  std::vector<std::byte> memory(100'000);
  copies_->memory.push_back(memory);
  ASSERT_TRUE(b.register_device_memory({.span = memory, .descriptor = 0, .offset = 1 << 20}).ok());
  EXPECT_TRUE(b.is_registered(memory));
  EXPECT_EQ(0U, b.open_window(memory));
  const std::uint64_t qps = control().qps;
  EXPECT_EQ(0U, *b.start_flush(memory)) << "GPUs have copied all";
  EXPECT_EQ(qps, control().qps);
  b.deregister_memory(memory);
  EXPECT_FALSE(b.is_registered(memory));
  control().has_dma_buf = false;
  EXPECT_EQ(ErrorCode::kUnavailable,
            b.register_device_memory({.span = memory, .descriptor = 0}).code());
  EXPECT_FALSE(b.is_registered(memory));
}

/// Where there are no GPUs, nothing of them.
TEST_P(VerbsGpu, register_device_memory__without_gpus) {
  copies_ = nullptr;
  const auto wire = open(0);
  copies_ = std::make_shared<ManualCopies>();
  std::vector<std::byte> memory(100);
  EXPECT_EQ(ErrorCode::kInvalidArgument, wire->register_device_memory({.span = memory}).code());
}

INSTANTIATE_TEST_SUITE_P(wire, VerbsGpu, ::testing::Values("uc", "rc", "ud"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tutti::wire::verbs
