// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The NCCL fake beside the CUDA fake: work runs in stream order, behind the caller's back, and
// each rank has a device.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/dynamic_library.hpp"
#include "ranks.hpp"

namespace tutti::ccl {
namespace {

/// The few driver calls that these tests make, all from the fake.
struct Cuda {
  int (*init)(unsigned flags);
  int (*retain)(void** context, int device);
  int (*set_current)(void* context);
  int (*create_stream)(void** stream, unsigned flags);
  int (*query_stream)(void* stream);
  int (*wait_stream)(void* stream);
  std::unique_ptr<device::Api> api;  ///< Over the same fake.

  /// Loads the fake with `device` current; empty or what failed.
  std::string start(int device) {
    const auto library = DynamicLibrary::open(FAKE_CUDA);
    CHILD_OK(library.status());
    CHILD_EXPECT(library->resolve("cuInit", &init), "cuInit");
    CHILD_EXPECT(library->resolve("cuDevicePrimaryCtxRetain", &retain), "retain");
    CHILD_EXPECT(library->resolve("cuCtxSetCurrent", &set_current), "set current");
    CHILD_EXPECT(library->resolve("cuStreamCreate", &create_stream), "create stream");
    CHILD_EXPECT(library->resolve("cuStreamQuery", &query_stream), "query stream");
    CHILD_EXPECT(library->resolve("cuStreamSynchronize", &wait_stream), "synchronize");
    void* context = nullptr;
    CHILD_EXPECT(init(0) == 0, "init");
    CHILD_EXPECT(retain(&context, device) == 0, "retain");
    CHILD_EXPECT(set_current(context) == 0, "set current");
    device::OpenReport report;
    api = device::open_cuda(&report);
    CHILD_EXPECT(api != nullptr, report.reason);
    return "";
  }

  device::Stream stream() const {
    void* stream = nullptr;
    return create_stream(&stream, 1) == 0 ? stream : nullptr;  // Non-blocking.
  }
};

constexpr int kNotReady = 600;

TEST(CclStreams, streams__work_runs_in_stream_order) {
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    Cuda cuda;
    const std::string started = cuda.start(rank);
    CHILD_EXPECT(started.empty(), started);
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared, kTestTimeoutS, cuda.api.get(), rank);
    CHILD_OK(communicator.status());
    const device::Stream stream = cuda.stream();
    std::vector<int> value(200'000, 1);
    // Rank 2 comes late: the calls of the others return, their streams wait.
    if (rank == 2) {
      shared.barrier();
    }
    for (int round = 0; round < 4; ++round) {
      CHILD_OK((*library)->all_reduce(value.data(), value.data(), value.size(), NcclType::kInt32,
                                      NcclOp::kSum, *communicator, stream));
    }
    if (rank != 2) {
      CHILD_EXPECT(cuda.query_stream(stream) == kNotReady, "done without rank 2");
      shared.barrier();
    }
    CHILD_EXPECT(cuda.wait_stream(stream) == 0, "synchronize");
    CHILD_EXPECT(value == std::vector<int>(200'000, 81), std::to_string(value[0]));
    CHILD_OK((*library)->destroy(*communicator));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(CclStreams, streams__group_over_two_streams_is_one_unit) {
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    Cuda cuda;
    const std::string started = cuda.start(rank);
    CHILD_EXPECT(started.empty(), started);
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared, kTestTimeoutS, cuda.api.get(), rank);
    CHILD_OK(communicator.status());
    const device::Stream streams[] = {cuda.stream(), cuda.stream()};
    for (int round = 0; round < 20; ++round) {
      const std::vector<int> from(30'000, rank + round);
      std::vector<int> to(30'000, -1);
      CHILD_OK((*library)->group_start());
      CHILD_OK((*library)->send(from.data(), from.size(), NcclType::kInt32, 1 - rank, *communicator,
                                streams[0]));
      CHILD_OK((*library)->recv(to.data(), to.size(), NcclType::kInt32, 1 - rank, *communicator,
                                streams[1]));
      CHILD_OK((*library)->group_end());
      // Either stream speaks for the whole group.
      CHILD_EXPECT(cuda.wait_stream(streams[(round + rank) % 2]) == 0, "synchronize");
      CHILD_EXPECT(to == std::vector<int>(30'000, 1 - rank + round), std::to_string(round));
      CHILD_EXPECT(cuda.wait_stream(streams[(round + rank + 1) % 2]) == 0, "synchronize");
    }
    CHILD_OK((*library)->destroy(*communicator));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(CclStreams, streams__stalled_work_ends_at_abort) {
  setenv("FAKE_CCL_STALL", "ncclAllReduce@0", 1);
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    Cuda cuda;
    const std::string started = cuda.start(rank);
    CHILD_EXPECT(started.empty(), started);
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared, kTestTimeoutS, cuda.api.get(), rank);
    CHILD_OK(communicator.status());
    const device::Stream stream = cuda.stream();
    int value = 1;
    CHILD_OK((*library)->all_reduce(&value, &value, 1, NcclType::kInt32, NcclOp::kSum,
                                    *communicator, stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHILD_EXPECT(cuda.query_stream(stream) == kNotReady, "did not stall");
    CHILD_OK((*library)->async_error(*communicator));
    shared.barrier();
    CHILD_OK((*library)->abort(*communicator));
    CHILD_EXPECT(cuda.wait_stream(stream) == 0, "synchronize");
    CHILD_EXPECT(value == 1, std::to_string(value));
    return "";
  });
  unsetenv("FAKE_CCL_STALL");
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(CclStreams, init_rank__takes_the_device_given_and_not_the_current_one) {
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    Cuda cuda;
    const std::string started = cuda.start(0);  // Both: NCCL would refuse them.
    CHILD_EXPECT(started.empty(), started);
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator =
        join(**library, rank, shared, kTestTimeoutS, cuda.api.get(), rank + 1);
    CHILD_OK(communicator.status());
    CHILD_EXPECT(cuda.api->current_device() == 0, std::to_string(cuda.api->current_device()));
    CHILD_OK((*library)->destroy(*communicator));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(CclStreams, init_rank__two_ranks_on_one_device_are_refused) {
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    Cuda cuda;
    const std::string started = cuda.start(rank == 2 ? 1 : 0);
    CHILD_EXPECT(started.empty(), started);
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    return join(**library, rank, shared, kTestTimeoutS, cuda.api.get(), rank == 2 ? 1 : 0)
        .status()
        .message();
  });
  const std::string expected =
      "ncclCommInitRankConfig: invalid usage: Duplicate GPU detected: ranks 0 and 1 use the same "
      "device";
  EXPECT_EQ(answers, std::vector<std::string>(3, expected));
}

}  // namespace
}  // namespace tutti::ccl
