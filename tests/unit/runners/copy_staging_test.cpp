// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The copies of direct-copy over the fake of CUDA, in a process for each rank: what the driver
// would refuse, the fake does. A barrier in the stream's order stands for the signalling kernels,
// of which the fake has none; with them direct_test.cpp runs it all on the host device.
#include "runners/direct/copy_staging.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/dynamic_library.hpp"
#include "support/forked_ranks.hpp"

namespace tutti::runners {
namespace {

constexpr int kRanks = 3;
constexpr Bytes kPieceBytes = 10007;

/// One rank, with buffers of a piece for each.
struct Rank {
  Rank(int own_rank, test::Shared& board) : rank(own_rank), shared(board) {}

  std::string start() {
    const auto cuda = DynamicLibrary::open(FAKE_CUDA);
    CHILD_OK(cuda.status());
    CHILD_EXPECT(cuda->resolve("tutti_fake_enqueue", &enqueue), "no tutti_fake_enqueue");
    device::OpenReport report;
    api = device::open_cuda(&report);
    CHILD_EXPECT(api != nullptr, report.reason);
    CHILD_OK(api->initialize());
    auto made =
        CopyStaging::create(*api, rank, {.rank = rank, .ranks = kRanks}, device::Sharing::kIpc);
    CHILD_OK(made.status());
    staging = std::move(*made);
    const auto own = api->export_memory(staging->memory());
    CHILD_OK(own.status());
    std::vector<void*> memories;
    for (int source = 0; source < kRanks; ++source) {
      const auto handle = shared.from_rank_zero((rank + kRanks - source) % kRanks, *own);
      if (source == rank) {
        memories.push_back(staging->memory());
        continue;
      }
      auto opened = api->open_memory(rank, handle);
      CHILD_OK(opened.status());
      memories.push_back(*opened);
    }
    staging->set_memories(memories);
    auto stream = api->create_stream(rank);
    CHILD_OK(stream.status());
    signals = *stream;
    for (void** buffer : {&send, &recv}) {
      auto memory = api->allocate_device(rank, kRanks * kPieceBytes);
      CHILD_OK(memory.status());
      *buffer = *memory;
    }
    return "";
  }
  static void meet(void* argument) { static_cast<test::Shared*>(argument)->barrier(); }

  /// An alltoall in chunks.
  std::string exchange(const void* from, void* to, Bytes chunk_bytes) {
    device::kernels::DirectArguments pieces{};
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      pieces.send[peer] = static_cast<const std::byte*>(from) + peer * kPieceBytes;
      pieces.recv[peer] = static_cast<std::byte*>(to) + peer * kPieceBytes;
    }
    for (Bytes offset = 0; offset < kPieceBytes; offset += chunk_bytes) {
      const Bytes bytes = std::min(chunk_bytes, kPieceBytes - offset);
      CHILD_OK(staging->send(pieces, offset, bytes, signals));
      enqueue(signals, meet, &shared);
      CHILD_OK(staging->take(pieces, offset, bytes, signals));
    }
    CHILD_OK(staging->finish(signals));
    CHILD_OK(api->wait_stream(signals));
    // A stream may count as busy for a moment after what others see of it.
    while (!staging->is_idle()) {
      sched_yield();
    }
    return "";
  }

  const int rank;
  test::Shared& shared;
  void (*enqueue)(void* stream, void (*function)(void*), void* argument) = nullptr;
  std::unique_ptr<device::Api> api;
  std::unique_ptr<CopyStaging> staging;
  device::Stream signals = nullptr;
  void* send = nullptr;
  void* recv = nullptr;
};

unsigned char byte_of(int from, int to, Bytes i, int call) {
  return static_cast<unsigned char>(static_cast<Bytes>(from * 5 + to * 31 + call * 77) + i * 3);
}

/// What was made before goes back, which the fake and the sanitizers look at.
TEST(CopyStaging, create__lacks_an_event) {
  setenv("FAKE_GPUS", "8", 1);
  for (const int made : {0, 3}) {
    const std::string fault = "cuEventCreate:" + std::to_string(made);
    setenv("FAKE_GPU_FAIL", fault.c_str(), 1);
    const auto answers = test::in_ranks(
        1, [](int rank, test::Shared& shared) { return Rank(rank, shared).start(); });
    unsetenv("FAKE_GPU_FAIL");
    EXPECT_NE(answers.front().find("cuEventCreate"), std::string::npos) << answers.front();
  }
}

TEST(CopyStaging, exchange__whole_in_chunks_and_in_place) {
  setenv("FAKE_GPUS", "8", 1);
  const auto answers = test::in_ranks(kRanks, [](int rank, test::Shared& shared) -> std::string {
    Rank self(rank, shared);
    const std::string started = self.start();
    CHILD_EXPECT(started.empty(), started);
    int call = 0;
    for (const Bytes chunk_bytes : {kPieceBytes, Bytes{1000}, Bytes{333}, Bytes{4000}}) {
      for (const bool in_place : {false, true}) {
        ++call;
        std::vector<unsigned char> input;
        std::vector<unsigned char> expected;
        for (int peer = 0; peer < kRanks; ++peer) {
          for (Bytes i = 0; i < kPieceBytes; ++i) {
            input.push_back(byte_of(rank, peer, i, call));
            expected.push_back(byte_of(peer, rank, i, call));
          }
        }
        void* const from = in_place ? self.recv : self.send;
        CHILD_OK(self.api->copy(from, input.data(), input.size()));
        const std::string said = self.exchange(from, self.recv, chunk_bytes);
        CHILD_EXPECT(said.empty(), said);
        std::vector<unsigned char> got(expected.size());
        CHILD_OK(self.api->copy(got.data(), self.recv, got.size()));
        CHILD_EXPECT(got == expected, "call " + std::to_string(call) + " is wrong");
      }
    }
    shared.barrier();  // Nobody frees what a peer may still map.
    return "";
  });
  EXPECT_EQ(answers, test::all_well(kRanks));
}

}  // namespace
}  // namespace tutti::runners
