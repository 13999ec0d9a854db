// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/staged_call.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/host_device/host_device.hpp"

namespace tutti {
namespace {

using runners::Aliasing;
using runners::Call;
using runners::StagedCall;
using select::Collective;

constexpr device::PointerInfo kDevice{device::MemoryKind::kDevice, 0};
constexpr runners::Staging kBoth{.move_send = true, .move_recv = true};

class Buffers {
 public:
  ~Buffers() {
    for (void* buffer : buffers_) {
      tutti_host_device_free(buffer);
    }
  }
  std::uint8_t* make(std::size_t bytes, std::uint8_t first) {
    auto* data = static_cast<std::uint8_t*>(tutti_host_device_alloc(bytes));
    std::iota(data, data + bytes, first);
    buffers_.push_back(data);
    return data;
  }

 private:
  std::vector<void*> buffers_;
};

TEST(StagedCall, move_in__v_form_with_holes_becomes_dense_and_holes_survive) {
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 20);
  Buffers buffers;
  const std::vector<std::uint64_t> send_counts = {2, 0, 3};
  const std::vector<std::uint64_t> send_offsets = {10, 99, 0};
  const std::vector<std::uint64_t> recv_counts = {1, 2, 0};
  const std::vector<std::uint64_t> recv_offsets = {4, 8, 0};
  Call call;
  call.collective = Collective::kAlltoallv;
  call.send = buffers.make(16, 100);
  auto* recv = buffers.make(16, 0);
  call.recv = recv;
  call.send_memory = call.recv_memory = kDevice;
  call.send_counts = send_counts;
  call.send_offsets = send_offsets;
  call.recv_counts = recv_counts;
  call.recv_offsets = recv_offsets;

  StagedCall moved;
  ASSERT_TRUE(moved.move_in(call, {0, 3}, kBoth, api.get(), scratch).ok());
  const Call& there = moved.call();
  EXPECT_EQ(device::MemoryKind::kHost, there.send_memory.kind);
  const auto* dense = static_cast<const std::uint8_t*>(there.send);
  EXPECT_EQ((std::vector<std::uint8_t>{110, 111, 100, 101, 102}),
            std::vector<std::uint8_t>(dense, dense + 5));
  EXPECT_EQ((std::vector<std::uint64_t>{0, 2, 2}),
            std::vector<std::uint64_t>(there.send_offsets.begin(), there.send_offsets.end()));
  auto* received = static_cast<std::uint8_t*>(there.recv);
  received[0] = 201;
  received[1] = 202;
  received[2] = 203;
  ASSERT_TRUE(moved.move_out().ok());
  std::vector<std::uint8_t> expected(16);
  std::iota(expected.begin(), expected.end(), 0);
  expected[4] = 201;
  expected[8] = 202;
  expected[9] = 203;
  EXPECT_EQ(expected, std::vector<std::uint8_t>(recv, recv + 16));
}

TEST(StagedCall, move_in__in_place_stays_in_place) {
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 20);
  Buffers buffers;
  Call call;
  call.collective = Collective::kAllgather;
  call.count = 4;
  auto* recv = buffers.make(12, 0);
  call.recv = recv;
  call.send = recv + 4;
  call.send_memory = call.recv_memory = kDevice;
  // Equal addresses mean nothing: a rank with nothing to send may pass any pointer.
  ASSERT_EQ(Aliasing::kNone, aliasing_of(call));
  call.in_place = true;
  ASSERT_EQ(Aliasing::kSendInRecv, aliasing_of(call));
  StagedCall moved;
  ASSERT_TRUE(moved.move_in(call, {1, 3}, kBoth, api.get(), scratch).ok());
  EXPECT_EQ(Aliasing::kSendInRecv, aliasing_of(moved.call()));
  EXPECT_EQ(4, *static_cast<const std::uint8_t*>(moved.call().send));

  call.collective = Collective::kAlltoall;
  call.send = recv;
  ASSERT_EQ(Aliasing::kSame, aliasing_of(call));
  StagedCall exchange;
  ASSERT_TRUE(exchange.move_in(call, {1, 3}, kBoth, api.get(), scratch).ok());
  EXPECT_EQ(exchange.call().send, exchange.call().recv);
  EXPECT_EQ(11, static_cast<const std::uint8_t*>(exchange.call().send)[11]);
}

TEST(StagedCall, move_in__one_side_only) {
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 20);
  Buffers buffers;
  std::uint8_t host[4] = {9, 8, 7, 6};
  Call call;
  call.collective = Collective::kAllgather;
  call.count = 4;
  call.send = host;
  auto* recv = buffers.make(8, 0);
  call.recv = recv;
  call.recv_memory = kDevice;
  StagedCall moved;
  ASSERT_TRUE(moved.move_in(call, {0, 2}, {.move_recv = true}, api.get(), scratch).ok());
  EXPECT_EQ(host, moved.call().send);
  std::fill_n(static_cast<std::uint8_t*>(moved.call().recv), 8, std::uint8_t{77});
  EXPECT_EQ(0, recv[0]);
  ASSERT_TRUE(moved.move_out().ok());
  EXPECT_EQ(77, recv[7]);
}

TEST(scratch, lease__is_reused_and_abandoned_memory_is_not) {
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 20);
  void* first = nullptr;
  {
    auto lease = scratch.pinned(5000);
    ASSERT_TRUE(lease.ok());
    first = lease->data();
  }
  auto again = scratch.pinned(6000);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(first, again->data());
  auto other = scratch.pinned(6000);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(first, other->data());
  again->abandon();
  auto fresh = scratch.pinned(6000);
  ASSERT_TRUE(fresh.ok());
  EXPECT_NE(first, fresh->data());
  EXPECT_FALSE(scratch.pinned(Bytes{1} << 60).ok());
}

}  // namespace
}  // namespace tutti
