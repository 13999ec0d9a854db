// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The C API's communicators on ranks that are threads, on the fakes of CUDA and NCCL: what they
// take of a GPU's driver and give back.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include "c_ranks.hpp"

namespace tutti::engine {
namespace {

using device::Api;

constexpr int kRanks = 2;

void* g_cuda = nullptr;

template <class F>
F* cuda(const char* symbol) {
  void* const found = dlsym(g_cuda, symbol);
  EXPECT_NE(found, nullptr) << symbol;
  return reinterpret_cast<F*>(found);
}

class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
    g_cuda = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(g_cuda, nullptr) << dlerror();
    setenv("TUTTI_DEVICE", "cuda", 1);
    setenv("TUTTI_CCL_LIBRARY", FAKE_NCCL, 1);
    setenv("TUTTI_LOG_LEVEL", "error", 1);
    setenv("TUTTI_TIMEOUT", "20", 1);
  }
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment());

/// Memory of a rank's GPU, which the CPU can read and write on the fake.
class GpuInts {
 public:
  GpuInts(int device, std::size_t count)
      : data_(static_cast<std::int32_t*>(
            *Process::get().device()->allocate_device(device, count * sizeof(std::int32_t)))) {}
  GpuInts(const GpuInts&) = delete;
  ~GpuInts() { EXPECT_TRUE(Process::get().device()->free_device(data_).ok()); }
  std::int32_t* data() { return data_; }

 private:
  std::int32_t* data_;
};

TEST(CCommCuda, destroy__the_last_communicator_leaves_no_scratch_memory) {
  constexpr std::size_t kCount = 3 << 20;
  const auto memory = cuda<std::size_t(int)>("tutti_fake_memory");
  const std::vector<std::size_t> before = {memory(0), memory(1)};
  std::vector<std::size_t> kept(kRanks);
  on_ranks(kRanks, [&](Rank& self) {
    {
      GpuInts data(self.rank, kRanks * kCount);
      std::fill_n(data.data(), kRanks * kCount, self.rank);
      ASSERT_EQ(TUTTI_OK, tutti_alltoall(self.comm, TUTTI_IN_PLACE, data.data(), kCount,
                                         TUTTI_INT32, TUTTI_BLOCKING))
          << self.words();
      EXPECT_EQ(0, data.data()[kCount - 1]);
      EXPECT_EQ(1, data.data()[kCount]);
    }
    ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, nullptr)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
    const auto rank = static_cast<std::size_t>(self.rank);
    kept[rank] = memory(self.rank) - before[rank];
  });
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_GE(kept[rank], kRanks * kCount * sizeof(std::int32_t));  // For the next such call.
    EXPECT_EQ(memory(static_cast<int>(rank)), before[rank]);
  }
}

TEST(CCommCuda, destroy__what_others_may_use_again_is_kept) {
  constexpr std::size_t kCount = 1 << 20;
  const auto memory = cuda<std::size_t(int)>("tutti_fake_memory");
  ThreadWorld world(kRanks);
  ThreadWorld other_world(kRanks);
  const std::size_t before = memory(0);
  world.run([&](int rank) {
    Rank self(world, rank);
    self.make();
    {
      Rank other(other_world, rank);
      other.make();
      GpuInts data(rank, kRanks * kCount);
      ASSERT_EQ(TUTTI_OK, tutti_alltoall(other.comm, TUTTI_IN_PLACE, data.data(), kCount,
                                         TUTTI_INT32, TUTTI_BLOCKING))
          << other.words();
    }
    if (rank == 0) {
      EXPECT_GE(memory(0) - before, kRanks * kCount * sizeof(std::int32_t));
    }
  });
  EXPECT_EQ(memory(0), before);
}

TEST(CCommCuda, average__of_floats_on_all_memory) {
  on_ranks(kRanks, [&](Rank& self) {
    GpuInts memory(self.rank, 8);
    auto* const data = reinterpret_cast<float*>(memory.data());
    std::fill_n(data, 8, static_cast<float>(self.rank + 1));
    ASSERT_EQ(TUTTI_OK, tutti_allreduce(self.comm, TUTTI_IN_PLACE, data, 8, TUTTI_FLOAT32,
                                        TUTTI_AVG, TUTTI_BLOCKING))
        << self.words();
    EXPECT_EQ(std::vector<float>(data, data + 8), std::vector<float>(8, 1.5F));
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT,
              tutti_allreduce(self.comm, TUTTI_IN_PLACE, data, 8, TUTTI_INT32, TUTTI_AVG,
                              TUTTI_BLOCKING));
    EXPECT_NE(self.words().find("'avg' is not defined for int32"), std::string::npos);
    std::vector<float> host(8, static_cast<float>(self.rank + 1));
    ASSERT_EQ(TUTTI_OK, tutti_allreduce(self.comm, TUTTI_IN_PLACE, host.data(), 8, TUTTI_FLOAT32,
                                        TUTTI_AVG, TUTTI_BLOCKING))
        << self.words();
    EXPECT_EQ(host, std::vector<float>(8, 1.5F));
    ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, TUTTI_BLOCKING)) << self.words();
  });
}

TEST(CCommCuda, streams__one_of_another_context_is_refused_before_anything_is_begun) {
  on_ranks(kRanks, [&](Rank& self) {
    GpuInts data(self.rank, 8);
    std::fill_n(data.data(), 8, 1);
    const auto push = cuda<int(void*)>("cuCtxPushCurrent_v2");
    const auto pop = cuda<int(void**)>("cuCtxPopCurrent_v2");
    void* stream = nullptr;
    void* popped = nullptr;
    ASSERT_EQ(0, push(cuda<void*(int)>("tutti_fake_new_context")(self.rank)));
    ASSERT_EQ(0, cuda<int(void**, unsigned)>("cuStreamCreate")(&stream, 1));
    // The default stream of such a context is another one than ours, too.
    for (void* const one : {stream, static_cast<void*>(nullptr)}) {
      EXPECT_EQ(
          TUTTI_ERROR_INVALID_ARGUMENT,
          tutti_allreduce(self.comm, TUTTI_IN_PLACE, data.data(), 8, TUTTI_INT32, TUTTI_SUM, one));
      EXPECT_NE(self.words().find("other than its primary one"), std::string::npos) << self.words();
    }
    ASSERT_EQ(0, cuda<int(void*)>("cuStreamDestroy_v2")(stream));
    ASSERT_EQ(0, pop(&popped));
    EXPECT_EQ(TUTTI_OK, tutti_comm_status(self.comm)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_allreduce(self.comm, TUTTI_IN_PLACE, data.data(), 8, TUTTI_INT32,
                                        TUTTI_SUM, nullptr))
        << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm)) << self.words();
    EXPECT_EQ(kRanks, data.data()[7]);
  });
}

TEST(CCommCuda, collectives__memory_of_another_context_is_copied_or_refused) {
  on_ranks(kRanks, [&](Rank& self) {
    void* popped = nullptr;
    std::int32_t* data = nullptr;
    ASSERT_EQ(0, cuda<int(void*)>("cuCtxPushCurrent_v2")(
                     cuda<void*(int)>("tutti_fake_new_context")(self.rank)));
    ASSERT_EQ(0, cuda<int(std::int32_t**, std::size_t)>("cuMemAlloc_v2")(&data, 32));
    ASSERT_EQ(0, cuda<int(void**)>("cuCtxPopCurrent_v2")(&popped));
    std::fill_n(data, 8, 1);
    const auto add = [&](void* stream) {
      return tutti_allreduce(self.comm, TUTTI_IN_PLACE, data, 8, TUTTI_INT32, TUTTI_SUM, stream);
    };
    ASSERT_EQ(TUTTI_OK, add(TUTTI_BLOCKING)) << self.words();
    EXPECT_EQ(kRanks, data[7]);
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, add(nullptr));
    EXPECT_NE(self.words().find("primary context"), std::string::npos) << self.words();
    ASSERT_EQ(TUTTI_OK, add(TUTTI_BLOCKING)) << self.words();
    EXPECT_EQ(kRanks * kRanks, data[0]);
  });
}

TEST(CCommCuda, streams__what_is_none_leaves_the_communicator_as_it_was) {
  on_ranks(kRanks, [&](Rank& self) {
    GpuInts data(self.rank, 8);
    std::fill_n(data.data(), 8, 1);
    std::int32_t no_stream = 0;
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_allreduce(self.comm, TUTTI_IN_PLACE, data.data(),
                                                            8, TUTTI_INT32, TUTTI_SUM, &no_stream));
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_barrier(self.comm, &no_stream));
    // The names that CUDA and HIP have for default streams, with another GPU chosen, too.
    std::int32_t expected = 1;
    for (const int device : {self.rank, kRanks}) {
      ASSERT_TRUE(Process::get().device()->make_current(device).ok());
      for (const std::uintptr_t handle : {0, 1, 2}) {
        void* const stream = reinterpret_cast<void*>(handle);
        ASSERT_EQ(TUTTI_OK, tutti_allreduce(self.comm, TUTTI_IN_PLACE, data.data(), 8, TUTTI_INT32,
                                            TUTTI_SUM, stream))
            << self.words();
        ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, stream)) << self.words();
        expected *= kRanks;
      }
    }
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm)) << self.words();
    EXPECT_EQ(expected, data.data()[7]);
  });
}

TEST(CCommCuda, barrier__the_first_call_on_a_stream_is_on_the_streams_gpu) {
  on_ranks(kRanks, [&](Rank& self) {
    Api& api = *Process::get().device();
    void* const stream = *api.create_stream(self.rank);
    ASSERT_TRUE(api.make_current(self.rank + kRanks).ok());
    ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, stream)) << self.words();
    GpuInts data(self.rank, 8);
    std::fill_n(data.data(), 8, 1);
    ASSERT_EQ(TUTTI_OK, tutti_allreduce(self.comm, TUTTI_IN_PLACE, data.data(), 8, TUTTI_INT32,
                                        TUTTI_SUM, stream))
        << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm)) << self.words();
    EXPECT_EQ(kRanks, data.data()[7]);
    EXPECT_TRUE(api.destroy_stream(stream).ok());
  });
}

TEST(CCommCuda, collectives__no_buffers_in_the_first_call_on_a_stream) {
  on_ranks(kRanks, [&](Rank& self) {
    Api& api = *Process::get().device();
    void* const stream = *api.create_stream(self.rank);
    ASSERT_TRUE(api.make_current(self.rank + kRanks).ok());
    const std::int64_t none[kRanks] = {};
    ASSERT_EQ(TUTTI_OK, tutti_alltoallv(self.comm, nullptr, none, none, nullptr, none, none,
                                        TUTTI_INT32, stream))
        << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, stream)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm)) << self.words();
    EXPECT_TRUE(api.destroy_stream(stream).ok());
  });
}

/// What a stream has to do until somebody lets it go on.
struct Held {
  static void work(void* self) {
    auto& held = *static_cast<Held*>(self);
    held.may_end.acquire();
    held.is_over = true;
  }
  std::binary_semaphore may_end{0};
  std::atomic<bool> is_over = false;
};

/// NCCL has no exclusive or: copies in host memory carry it.
tutti_status_t exclusive_or(const Rank& self, std::int32_t* data, void* stream) {
  return tutti_allreduce(self.comm, TUTTI_IN_PLACE, data, 8, TUTTI_INT32, TUTTI_BXOR, stream);
}

TEST(CCommCuda, streams__a_call_through_host_memory_and_a_mark_wait_for_what_is_before_them) {
  const auto enqueue = cuda<void(void*, void (*)(void*), void*)>("tutti_fake_enqueue");
  on_ranks(kRanks, [&](Rank& self) {
    Api& api = *Process::get().device();
    void* const stream = *api.create_stream(self.rank);
    GpuInts data(self.rank, 8);
    std::fill_n(data.data(), 8, 1 << self.rank);
    for (const bool is_call : {true, false}) {
      Held held;
      std::atomic<bool> has_begun = false;
      enqueue(stream, Held::work, &held);
      std::thread releases([&] {
        has_begun.wait(false);
        held.may_end.release();
      });
      has_begun = true;
      has_begun.notify_all();
      EXPECT_EQ(TUTTI_OK, is_call ? exclusive_or(self, data.data(), stream)
                                  : tutti_comm_mark(self.comm, stream))
          << self.words();
      EXPECT_TRUE(held.is_over);
      releases.join();
    }
    EXPECT_EQ(3, data.data()[7]);
    int are_over = 0;
    EXPECT_EQ(TUTTI_OK, tutti_comm_test(self.comm, tutti_comm_calls(self.comm), &are_over));
    EXPECT_EQ(1, are_over);
    EXPECT_TRUE(api.destroy_stream(stream).ok());
  });
}

TEST(CCommCuda, abort__ends_the_wait_for_a_stream) {
  const auto enqueue = cuda<void(void*, void (*)(void*), void*)>("tutti_fake_enqueue");
  on_ranks(kRanks, [&](Rank& self) {
    Api& api = *Process::get().device();
    void* const stream = *api.create_stream(self.rank);
    GpuInts data(self.rank, 8);
    ASSERT_EQ(TUTTI_OK, exclusive_or(self, data.data(), stream)) << self.words();
    Held held;
    enqueue(stream, Held::work, &held);
    std::binary_semaphore has_returned(0);
    bool is_in_time = false;
    std::thread aborts([&] {
      EXPECT_EQ(TUTTI_OK, tutti_comm_abort(self.comm));
      is_in_time = has_returned.try_acquire_for(std::chrono::seconds(10));
      held.may_end.release();
    });
    EXPECT_EQ(TUTTI_ERROR_LIBRARY, exclusive_or(self, data.data(), stream)) << self.words();
    has_returned.release();
    aborts.join();
    EXPECT_TRUE(is_in_time);
    EXPECT_TRUE(api.wait_stream(stream).ok());
    EXPECT_TRUE(api.destroy_stream(stream).ok());
  });
}

/// What the fake refuses while a stream is captured, and a driver ends the capture for.
TEST(CCommCuda, collectives__a_capture_in_another_thread_goes_on) {
  std::barrier all(kRanks);
  on_ranks(kRanks, [&](Rank& self) {
    Api& api = *Process::get().device();
    void* const stream = *api.create_stream(self.rank);
    GpuInts data(self.rank, 8);
    std::fill_n(data.data(), 8, 1);
    std::vector<std::int32_t> on_host(8, 1);
    all.arrive_and_wait();  // The rest is not for a capture.
    cuda<void(void*, int)>("tutti_fake_capture")(stream, 1);
    all.arrive_and_wait();
    for (std::int32_t* const buffer : {data.data(), on_host.data()}) {
      EXPECT_EQ(TUTTI_OK, tutti_allreduce(self.comm, TUTTI_IN_PLACE, buffer, 8, TUTTI_INT32,
                                          TUTTI_SUM, TUTTI_BLOCKING))
          << self.words();
      EXPECT_EQ(kRanks, buffer[7]);
    }
    EXPECT_EQ(TUTTI_OK, tutti_barrier(self.comm, nullptr)) << self.words();
    EXPECT_EQ(TUTTI_OK, tutti_barrier(self.comm, TUTTI_BLOCKING)) << self.words();
    EXPECT_EQ(TUTTI_OK, tutti_comm_destroy(self.comm));
    self.comm = nullptr;
    all.arrive_and_wait();
    cuda<void(void*, int)>("tutti_fake_capture")(stream, 0);
    all.arrive_and_wait();
    EXPECT_TRUE(api.destroy_stream(stream).ok());
  });
}

TEST(CCommCuda, wait__is_for_calls_on_streams_after_a_failure_of_another_call_too) {
  std::barrier all(kRanks);
  const auto fail = cuda<void(const char*)>("tutti_fake_fail");
  on_ranks(kRanks, [&](Rank& self) {
    GpuInts data(self.rank, 8);
    std::fill_n(data.data(), 8, 1);
    const auto add = [&](void* stream) {
      return tutti_allreduce(self.comm, TUTTI_IN_PLACE, data.data(), 8, TUTTI_INT32, TUTTI_SUM,
                             stream);
    };
    std::binary_semaphore gate{0};
    std::atomic<bool> is_open = false;
    cuda<void(void*, void (*)(void*), void*)>("tutti_fake_enqueue")(
        nullptr, [](void* held) { static_cast<std::binary_semaphore*>(held)->acquire(); }, &gate);
    EXPECT_EQ(TUTTI_OK, add(nullptr)) << self.words();
    // The barrier's word, before the barrier is anywhere.
    fail("cuMemAlloc_v2");
    all.arrive_and_wait();
    EXPECT_EQ(TUTTI_ERROR_OUT_OF_MEMORY, tutti_barrier(self.comm, nullptr)) << self.words();
    all.arrive_and_wait();
    fail("");
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      is_open = true;
      gate.release();
    });
    EXPECT_EQ(TUTTI_ERROR_OUT_OF_MEMORY, tutti_comm_wait(self.comm));
    EXPECT_TRUE(is_open);
    EXPECT_EQ(kRanks, data.data()[7]);
    opener.join();
  });
}

/// Last: after a failure the process keeps scratch memory, and other tests count on none.
TEST(CCommCuda, streams__an_error_of_the_driver_is_what_it_is) {
  const auto fail = cuda<void(const char*)>("tutti_fake_fail");
  const std::pair<const char*, tutti_status_t> faults[] = {
      {"cuStreamIsCapturing=2", TUTTI_ERROR_OUT_OF_MEMORY},
      {"cuStreamGetCtx=700", TUTTI_ERROR_LIBRARY},
      {"cuStreamGetCtx=400", TUTTI_ERROR_INVALID_ARGUMENT},
      {"cuStreamIsCapturing=709", TUTTI_ERROR_INVALID_ARGUMENT},
  };
  for (const auto& [fault, expected] : faults) {
    std::barrier all(kRanks);
    on_ranks(kRanks, [&](Rank& self) {
      GpuInts data(self.rank, 8);
      void* stream = nullptr;
      EXPECT_TRUE(Process::get().device()->make_current(self.rank).ok());
      EXPECT_EQ(0, cuda<int(void**, unsigned)>("cuStreamCreate")(&stream, 1));
      all.arrive_and_wait();
      fail(fault);
      all.arrive_and_wait();
      EXPECT_EQ(expected, tutti_allreduce(self.comm, TUTTI_IN_PLACE, data.data(), 8, TUTTI_INT32,
                                          TUTTI_SUM, stream))
          << fault << ": " << self.words();
      all.arrive_and_wait();
      fail("");
      all.arrive_and_wait();
      EXPECT_EQ(0, cuda<int(void*)>("cuStreamDestroy_v2")(stream));
    });
  }
}

}  // namespace
}  // namespace tutti::engine
