// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Copies into memory of GPUs: of the host device and, with TUTTI_TEST_DEVICE=cuda or hip, of a real
// one.
#include "net/gpu/gpu_copies.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/random.hpp"

namespace tutti::net {
namespace {

using Piece = wire::DeviceCopies::Piece;
using State = wire::DeviceCopies::State;

class GpuCopiesTest : public ::testing::Test {
 protected:
  static constexpr int kGpu = 0;

  void SetUp() override {
    const char* const name = std::getenv("TUTTI_TEST_DEVICE");
    device::OpenReport report;
    api_ = device::open(name == nullptr ? "host" : name, &report);
    ASSERT_TRUE(api_ != nullptr && api_->initialize().ok()) << report.reason;
    const auto made = api_->allocate_device(kGpu, kBytes);
    ASSERT_TRUE(made.ok()) << made.status().message();
    to_ = static_cast<std::byte*>(*made);
    std::vector<std::byte> zeros(kBytes);
    ASSERT_TRUE(api_->copy(to_, zeros.data(), kBytes).ok());
    for (std::byte& byte : from_) {
      byte = static_cast<std::byte>(random_.next());
    }
  }
  void TearDown() override {
    if (to_ != nullptr) {
      EXPECT_TRUE(api_->free_device(to_).ok());
    }
  }
  static void wait(GpuCopies& copies, std::uint64_t ticket) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    State state = State::kUnderWay;
    while (state == State::kUnderWay && std::chrono::steady_clock::now() < end) {
      state = copies.state(ticket);
    }
    EXPECT_EQ(State::kEnded, state);
  }
  std::vector<std::byte> there() {
    std::vector<std::byte> bytes(kBytes);
    EXPECT_TRUE(api_->copy(bytes.data(), to_, kBytes).ok());
    return bytes;
  }

  static constexpr std::size_t kBytes = 8 << 20;
  std::shared_ptr<device::Api> api_;
  std::byte* to_ = nullptr;
  /// As a wire's receive buffers: memory of its own.
  std::vector<std::byte> from_ = std::vector<std::byte>(kBytes);
  Random random_{11};
};

/// Headers lie before payloads, so sources are aligned to nothing.
TEST_F(GpuCopiesTest, start__copies_all_pieces) {
  GpuCopies copies(api_);
  copies.add_source(from_);
  EXPECT_EQ(-1, copies.device_of(from_.data()));
  EXPECT_EQ(kGpu, copies.device_of(to_ + 100));
  EXPECT_FALSE(copies.start(kGpu, {}).ok()) << "was not prepared";
  ASSERT_TRUE(copies.prepare(to_).ok());
  ASSERT_TRUE(copies.prepare(to_ + 5).ok());
  EXPECT_TRUE(copies.has_kernel(kGpu));
  EXPECT_EQ("", copies.shortfall(kGpu));
  std::vector<std::byte> expected(kBytes);
  for (const std::size_t count : {std::size_t{1}, std::size_t{7}, GpuCopies::kPiecesMax}) {
    std::vector<Piece> pieces;
    const std::size_t share = kBytes / count;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes = 1 + random_.next() % (share / 2);
      const std::size_t from = i * share + random_.next() % (share / 2);
      const std::size_t to = i * share + random_.next() % (share / 2);
      pieces.push_back({&from_[from], to_ + to, bytes});
      std::memcpy(&expected[to], &from_[from], bytes);
    }
    const auto ticket = copies.start(kGpu, pieces);
    ASSERT_TRUE(ticket.ok()) << ticket.status().message();
    ASSERT_NE(0U, *ticket);
    wait(copies, *ticket);
    EXPECT_TRUE(expected == there()) << count;
  }
  copies.remove_source(from_);
}

TEST_F(GpuCopiesTest, start__takes_so_many_at_once) {
  GpuCopies copies(api_);
  copies.add_source(from_);
  ASSERT_TRUE(copies.prepare(to_).ok());
  const Piece piece{from_.data(), to_, kBytes};
  std::vector<std::uint64_t> tickets;
  for (;;) {
    const auto ticket = copies.start(kGpu, {&piece, 1});
    ASSERT_TRUE(ticket.ok());
    if (*ticket == 0) {
      break;
    }
    tickets.push_back(*ticket);
  }
  EXPECT_EQ(4U, tickets.size());
  for (const std::uint64_t ticket : tickets) {
    wait(copies, ticket);
  }
  const auto again = copies.start(kGpu, {&piece, 1});
  ASSERT_TRUE(again.ok() && *again != 0);
  wait(copies, *again);
  EXPECT_TRUE(from_ == there());
  copies.remove_source(from_);
}

/// Memory that comes after the GPU was prepared is no kernel's; single copies take it.
TEST_F(GpuCopiesTest, start__from_memory_that_gpus_do_not_see) {
  GpuCopies copies(api_);
  ASSERT_TRUE(copies.prepare(to_).ok());
  copies.add_source(from_);
  EXPECT_FALSE(copies.has_kernel(kGpu));
  EXPECT_EQ(
      "one copy for each packet to GPU 0, not one launch for many: receive buffers came after the "
      "GPU's first registration",
      copies.shortfall(kGpu));
  const Piece pieces[] = {{&from_[3], to_ + 1, 1000}, {&from_[5000], to_ + 4096, 77}};
  const auto ticket = copies.start(kGpu, pieces);
  ASSERT_TRUE(ticket.ok()) << ticket.status().message();
  wait(copies, *ticket);
  const std::vector<std::byte> got = there();
  EXPECT_EQ(0, std::memcmp(&from_[3], &got[1], 1000));
  EXPECT_EQ(0, std::memcmp(&from_[5000], &got[4096], 77));
  copies.remove_source(from_);
}

TEST_F(GpuCopiesTest, trial_memory__is_of_the_current_gpu) {
  GpuCopies copies(api_);
  const auto previous = api_->make_current(kGpu);
  ASSERT_TRUE(previous.ok());
  const std::span<std::byte> memory = copies.trial_memory();
  EXPECT_EQ(kGpu, copies.device_of(memory.data()));
  EXPECT_EQ(memory.data(), copies.trial_memory().data());
  EXPECT_GE(memory.size(), 4096U);
  api_->restore_current(*previous);
}

}  // namespace
}  // namespace tutti::net
