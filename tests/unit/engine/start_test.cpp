// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The contract of Communicator::start for the plans of one device, on ranks that are threads: the
// host device, or, where this is built with their paths, the fakes of CUDA and NCCL.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.hpp"
#include "support/thread_mpi.hpp"

namespace tutti::engine {
namespace {

using select::Collective;
using select::DataType;
using select::ReduceOp;

constexpr int kRanks = 2;
constexpr std::uint64_t kCount = 500;

class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
#ifdef FAKE_CUDA
    ASSERT_NE(dlopen(FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    setenv("TUTTI_DEVICE", "cuda", 1);
    setenv("TUTTI_CCL_LIBRARY", FAKE_NCCL, 1);
#else
    setenv("TUTTI_DEVICE", "host", 1);
#endif
    setenv("TUTTI_LOG_LEVEL", "error", 1);
    setenv("TUTTI_TIMEOUT", "1", 1);
  }
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment());

#ifdef FAKE_CUDA
int device_of(int rank) { return rank; }
#else
int device_of(int /*rank*/) { return 0; }
#endif

/// A rank with a communicator of one plan and a vector of ones on its device.
class Rank {
 public:
  Rank(testing::ThreadWorld& world, int own_rank, const std::string& plan,
       const std::string& memory_kinds)
      : rank(own_rank), mpi_(world, own_rank) {
    auto made = Communicator::create(
        Process::get(), mpi_, &mpi_,
        {.rank = rank, .ranks = kRanks, .world_rank = rank, .world_ranks = kRanks},
        {.plan = plan, .memory_kinds = memory_kinds});
    EXPECT_TRUE(made.ok()) << made.status().message();
    comm = std::move(*made);
    device::Api& api = *Process::get().device();
    EXPECT_TRUE(api.initialize().ok());
    data_ = static_cast<std::int64_t*>(*api.allocate_device(device_of(rank), kCount * 8));
    std::fill_n(data_, kCount, 1);
    call.type = DataType::kInt64;
    call.op = ReduceOp::kSum;
    call.element_bytes = 8;
    call.count = kCount;
    call.send = call.recv = data_;
    call.in_place = true;
    call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, device_of(rank)};
  }
  ~Rank() {
    comm.reset();
    EXPECT_TRUE(Process::get().device()->free_device(data_).ok());
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// Collective the first time.
  Route route(select::Order order) {
    const auto found =
        comm->route(Collective::kAllreduce, kCount * 8, call.type, call.op, device_of(rank), order);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return **found;
  }
  Result<runners::StartedCall> start() {
    started_ = started_ ? started_ : route(select::Order::kStream);
    return comm->start(*started_, call);
  }
  bool all(std::int64_t value) const {
    return std::all_of(data_, data_ + kCount, [&](std::int64_t one) { return one == value; });
  }

  const int rank;
  std::unique_ptr<Communicator> comm;
  runners::Call call;

 private:
  testing::ThreadMpi mpi_;
  std::int64_t* data_ = nullptr;
  std::optional<Route> started_;
};

template <class Body>
void on_ranks(const std::string& plan, const Body& body, const std::string& memory_kinds = {}) {
  testing::ThreadWorld world(kRanks);
  world.run([&](int rank) {
    Rank self(world, rank, plan, memory_kinds);
    body(self);
  });
}

/// By the plan.
class Start : public ::testing::TestWithParam<const char*> {};

TEST_P(Start, test__is_false_until_the_peer_has_come_and_never_waits) {
  std::atomic<bool> may_come = false;
  on_ranks(GetParam(), [&](Rank& self) {
    self.route(select::Order::kStream);  // Collective.
    while (self.rank == 1 && !may_come) {
      std::this_thread::yield();
    }
    auto started = self.start();
    ASSERT_TRUE(started.ok()) << started.status().message();
    if (self.rank == 0) {
      const auto early = started->test();
      EXPECT_TRUE(early.ok() && !*early);
      may_come = true;
    }
    std::optional<Result<bool>> tested;
    do {
      tested = started->test();
      ASSERT_TRUE(tested->ok()) << tested->status().message();
    } while (!**tested);
    EXPECT_TRUE(self.all(2));
  });
}

TEST_P(Start, wait__several_calls_and_one_that_waits_in_their_order) {
  on_ranks(GetParam(), [](Rank& self) {
    auto first = self.start();
    ASSERT_TRUE(first.ok()) << first.status().message();
    auto second = self.start();
    ASSERT_TRUE(second.ok());
    EXPECT_TRUE(second->wait().ok());
    EXPECT_TRUE(self.all(4));
    EXPECT_TRUE(*first->test());
    ASSERT_TRUE(self.start().ok());  // Nobody keeps it.
    EXPECT_TRUE(self.comm->run(self.route(select::Order::kBlocking), self.call).ok());
    EXPECT_TRUE(self.all(16));
    // A rank that cannot start a call waits for it, and the other need not.
    if (self.rank == 0) {
      auto last = self.start();
      ASSERT_TRUE(last.ok());
      EXPECT_TRUE(last->wait().ok());
    } else {
      EXPECT_TRUE(self.comm->run(self.route(select::Order::kStream), self.call).ok());
    }
    EXPECT_TRUE(self.all(32));
  });
}

TEST_P(Start, test__a_call_whose_communicator_has_gone) {
  on_ranks(GetParam(), [](Rank& self) {
    auto started = self.start();
    ASSERT_TRUE(started.ok()) << started.status().message();
    self.comm.reset();
    EXPECT_TRUE(self.all(2));
    const auto tested = started->test();
    EXPECT_TRUE(tested.ok() && *tested);
  });
}

TEST_P(Start, wait__a_peer_that_does_not_come_is_an_error_of_it_and_of_later_calls) {
  std::atomic<bool> is_over = false;
  on_ranks(GetParam(), [&](Rank& self) {
    const Route blocking = self.route(select::Order::kBlocking);
    auto well = self.start();
    ASSERT_TRUE(well.ok()) << well.status().message();
    ASSERT_TRUE(well->wait().ok());
    if (self.rank == 0) {
      const auto begun = std::chrono::steady_clock::now();
      auto started = self.start();
      ASSERT_TRUE(started.ok());
      ASSERT_TRUE(self.start().ok());  // Behind it; nobody keeps it.
      EXPECT_EQ(started->wait().code(), ErrorCode::kTimeout);
      EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
      EXPECT_EQ(started->test().status().code(), ErrorCode::kTimeout);
      EXPECT_EQ(self.start().status().code(), ErrorCode::kTimeout);
      EXPECT_FALSE(self.comm->run(blocking, self.call).ok());
      is_over = true;
    }
    while (!is_over) {
      std::this_thread::yield();
    }
  });
}

class RefusedStart : public Start {};

TEST_P(RefusedStart, start__a_plan_that_needs_its_caller_says_so_and_begins_nothing) {
  on_ranks(GetParam(), [](Rank& self) {
    const Route route = self.route(select::Order::kBlocking);
    EXPECT_TRUE(to_string(route.plan).starts_with(GetParam())) << to_string(route.plan);
    const auto refused = self.comm->start(route, self.call);
    EXPECT_EQ(refused.status().code(), ErrorCode::kUnsupported);
    EXPECT_NE(refused.status().message().find(to_string(route.plan)), std::string::npos)
        << refused.status().message();
    EXPECT_TRUE(self.comm->run(route, self.call).ok());
    EXPECT_TRUE(self.all(2));
  });
}

std::string name_of(const ::testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

#ifdef FAKE_CUDA
INSTANTIATE_TEST_SUITE_P(fakes, Start, ::testing::Values("ccl-beta"), name_of);
INSTANTIATE_TEST_SUITE_P(fakes, RefusedStart, ::testing::Values("mpi", "ccl-streams(4)"), name_of);
#else
INSTANTIATE_TEST_SUITE_P(host_device, Start, ::testing::Values("direct-gamma"), name_of);
INSTANTIATE_TEST_SUITE_P(host_device, RefusedStart, ::testing::Values("mpi", "rings"), name_of);

TEST(StartOnHost, start__host_memory_needs_its_caller) {
  on_ranks(
      "direct-gamma",
      [](Rank& self) {
        std::vector<std::int64_t> values(3, 1);
        self.call.count = values.size();
        self.call.send = self.call.recv = values.data();
        self.call.send_memory = self.call.recv_memory = {};
        const auto route =
            self.comm->route(Collective::kAllreduce, 24, self.call.type, self.call.op, -1);
        ASSERT_TRUE(route.ok());
        EXPECT_EQ(self.comm->start(**route, self.call).status().code(), ErrorCode::kUnsupported);
        const Status status = self.comm->run(**route, self.call);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(values, std::vector<std::int64_t>(3, 2));
      },
      "system");
}
#endif

}  // namespace
}  // namespace tutti::engine
