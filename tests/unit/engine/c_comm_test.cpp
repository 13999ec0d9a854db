// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The C API's communicators on ranks that are threads, on the host device: making and freeing them,
// errors, order, and peers that do not come. Results of all collectives: tests/c_api.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <thread>

#include "c_ranks.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::engine {
namespace {

using nlohmann::json;

class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("TUTTI_DEVICE", "host", 1);
    setenv("TUTTI_LOG_LEVEL", "error", 1);
    setenv("TUTTI_TIMEOUT", "1", 1);
  }
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment());

/// Memory of the host device that all CPUs see.
class DeviceInts {
 public:
  explicit DeviceInts(std::size_t count, std::int32_t value = 0)
      : data_(static_cast<std::int32_t*>(tutti_host_device_alloc(count * 4))), count_(count) {
    std::fill_n(data_, count, value);
  }
  DeviceInts(const DeviceInts&) = delete;
  ~DeviceInts() { tutti_host_device_free(data_); }
  std::int32_t* data() { return data_; }
  bool all(std::int32_t value) const {
    return std::all_of(data_, data_ + count_, [&](std::int32_t one) { return one == value; });
  }

 private:
  std::int32_t* data_;
  std::size_t count_;
};

tutti_status_t sum(Rank& self, std::int32_t* data, std::int64_t count, void* stream) {
  return tutti_allreduce(self.comm, TUTTI_IN_PLACE, data, count, TUTTI_INT32, TUTTI_SUM, stream);
}

TEST(CComm, create__bad_arguments_have_codes_and_words) {
  ThreadWorld world(1);
  Rank self(world, 0);
  tutti_bootstrap_t good = self.bootstrap();
  tutti_comm_t* comm = reinterpret_cast<tutti_comm_t*>(&good);
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_create(&good, nullptr, nullptr));
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_create(nullptr, nullptr, &comm));
  EXPECT_EQ(nullptr, comm);
  tutti_bootstrap_t bad = good;
  bad.size = 0;
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_create(&bad, nullptr, &comm));
  EXPECT_NE(std::string(tutti_error_string(nullptr)).find("size"), std::string::npos);
  bad = good;
  bad.allgather = nullptr;
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_create(&bad, nullptr, &comm));
  bad = good;
  bad.rank = 1;
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_create(&bad, nullptr, &comm));
  EXPECT_NE(std::string(tutti_error_string(nullptr)).find("rank 1 of 1"), std::string::npos);
  EXPECT_EQ(0, self.gathers);
}

TEST(CComm, create__options_that_one_rank_cannot_read_fail_on_all_ranks) {
  const tutti_options_t good = {.size = sizeof good,
                                .plan = nullptr,
                                .memory = TUTTI_MEMORY_ANY,
                                .concurrent = 0,
                                .timeout_s = 0};
  tutti_options_t no_time = good;
  no_time.timeout_s = -1;
  tutti_options_t no_memory = good;
  no_memory.memory = static_cast<tutti_memory_t>(7);
  tutti_options_t no_size = good;
  no_size.size = 0;
  for (const auto& [bad, words] :
       {std::pair(no_time, "is no time"), std::pair(no_memory, "memory 7 is none of"),
        std::pair(no_size, "`size` is not set")}) {
    ThreadWorld world(2);
    world.run([&, bad = bad, words = words](int rank) {
      Rank self(world, rank);
      const tutti_bootstrap_t given = self.bootstrap();
      EXPECT_EQ(rank == 1 ? TUTTI_ERROR_INVALID_ARGUMENT : TUTTI_ERROR_INVALID_CONFIG,
                tutti_comm_create(&given, rank == 1 ? &bad : &good, &self.comm));
      EXPECT_EQ(nullptr, self.comm);
      const std::string told = tutti_error_string(nullptr);
      EXPECT_NE(told.find(rank == 1 ? words : "rank 1 has some that cannot be read"),
                std::string::npos)
          << told;
    });
  }
}

TEST(CComm, calls__without_a_communicator) {
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_barrier(nullptr, TUTTI_BLOCKING));
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_status(nullptr));
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_wait(nullptr));
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_order(nullptr, nullptr, nullptr));
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_mark(nullptr, nullptr));
  EXPECT_EQ(0U, tutti_comm_calls(nullptr));
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_wait_on(nullptr, 0, nullptr));
  int are_over = 0;
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_test(nullptr, 0, &are_over));
  EXPECT_STRNE("", tutti_error_string(nullptr));
  EXPECT_EQ(TUTTI_OK, tutti_comm_destroy(nullptr));
  char* const plan = tutti_comm_plan_json(nullptr, "{}");
  EXPECT_TRUE(json::parse(plan).contains("error"));
  tutti_free(plan);
}

TEST(CComm, create__a_bootstrap_that_fails_is_an_error) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    Rank self(world, rank);
    self.answer = 42;
    const tutti_bootstrap_t given = self.bootstrap();
    EXPECT_EQ(TUTTI_ERROR_LIBRARY, tutti_comm_create(&given, nullptr, &self.comm));
    EXPECT_EQ(nullptr, self.comm);
    EXPECT_NE(std::string(tutti_error_string(nullptr)).find("returned 42"), std::string::npos);
  });
}

TEST(CComm, create__options_that_differ_in_plans_fail_on_all_ranks) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    Rank self(world, rank);
    const tutti_bootstrap_t given = self.bootstrap();
    const tutti_options_t options = {.size = sizeof options,
                                     .plan = rank == 0 ? "direct" : "ccl",
                                     .memory = TUTTI_MEMORY_ANY,
                                     .concurrent = 0,
                                     .timeout_s = 0};
    EXPECT_EQ(TUTTI_ERROR_INVALID_CONFIG, tutti_comm_create(&given, &options, &self.comm));
    EXPECT_NE(std::string(tutti_error_string(nullptr)).find("rank 1 has other tuning rules"),
              std::string::npos)
        << tutti_error_string(nullptr);
  });
}

TEST(CComm, create__the_bootstrap_of_an_older_caller_is_enough) {
  ThreadWorld world(1);
  Rank self(world, 0);
  tutti_bootstrap_t older = self.bootstrap();
  older.size = offsetof(tutti_bootstrap_t, allgather) + sizeof(older.allgather);
  EXPECT_EQ(TUTTI_OK, tutti_comm_create(&older, nullptr, &self.comm));
}

TEST(CComm, create__a_plan_that_cannot_be_read_fails_on_all_ranks) {
  for (const bool everywhere : {true, false}) {
    ThreadWorld world(2);
    world.run([&](int rank) {
      Rank self(world, rank);
      const tutti_bootstrap_t given = self.bootstrap();
      const tutti_options_t options = {.size = sizeof options,
                                       .plan = everywhere || rank == 1 ? "no-such-plan" : nullptr,
                                       .memory = TUTTI_MEMORY_ANY,
                                       .concurrent = 0,
                                       .timeout_s = 0};
      EXPECT_EQ(TUTTI_ERROR_INVALID_CONFIG, tutti_comm_create(&given, &options, &self.comm));
      const std::string words = tutti_error_string(nullptr);
      EXPECT_NE(words.find(everywhere || rank == 1 ? "options: plan" : "rank 1 has some that"),
                std::string::npos)
          << words;
    });
  }
}

TEST(CComm, create__options_that_differ_in_memory_fail_on_all_ranks) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    Rank self(world, rank);
    const tutti_bootstrap_t given = self.bootstrap();
    const tutti_options_t options = {.size = sizeof options,
                                     .plan = nullptr,
                                     .memory = rank == 0 ? TUTTI_MEMORY_ANY : TUTTI_MEMORY_DEVICE,
                                     .concurrent = 0,
                                     .timeout_s = 0};
    EXPECT_EQ(TUTTI_ERROR_INVALID_CONFIG, tutti_comm_create(&given, &options, &self.comm));
    EXPECT_NE(std::string(tutti_error_string(nullptr)).find("differ in their memory"),
              std::string::npos);
  });
}

TEST(CComm, collectives__a_bootstrap_that_fails_during_a_set_up_breaks_the_communicator) {
  // No agreement goes before the set-up of the kernels, which would call it a refusal.
  const tutti_options_t options = options_for(TUTTI_MEMORY_DEVICE);
  on_ranks(
      2,
      [](Rank& self) {
        DeviceInts data(1, 1);
        self.answer = 7;
        EXPECT_EQ(TUTTI_ERROR_LIBRARY, sum(self, data.data(), 1, TUTTI_BLOCKING)) << self.words();
        self.answer = 0;
        EXPECT_EQ(TUTTI_ERROR_LIBRARY, tutti_comm_status(self.comm));
        EXPECT_EQ(TUTTI_ERROR_LIBRARY, sum(self, data.data(), 1, TUTTI_BLOCKING));
        EXPECT_NE(self.words().find("returned 7"), std::string::npos) << self.words();
      },
      &options);
}

TEST(CComm, collectives__a_callback_that_throws_breaks_the_communicator) {
  on_ranks(2, [](Rank& self) {
    std::int32_t value = 1;
    self.throws = true;
    EXPECT_EQ(TUTTI_ERROR_INTERNAL, sum(self, &value, 1, TUTTI_BLOCKING)) << self.words();
    self.throws = false;
    EXPECT_EQ(TUTTI_ERROR_INTERNAL, sum(self, &value, 1, TUTTI_BLOCKING));
    EXPECT_EQ(TUTTI_ERROR_INTERNAL, tutti_comm_status(self.comm));
  });
}

TEST(CComm, collectives__nothing_that_a_callback_throws_leaves_the_library) {
  on_ranks(2, [](Rank& self) {
    std::int32_t value = 1;
    self.throws_a_number = true;
    EXPECT_EQ(TUTTI_ERROR_INTERNAL, sum(self, &value, 1, TUTTI_BLOCKING)) << self.words();
    EXPECT_NE(self.words().find("no std::exception"), std::string::npos) << self.words();
    EXPECT_EQ(TUTTI_ERROR_INTERNAL, tutti_comm_wait(self.comm));
    const tutti_bootstrap_t given = self.bootstrap();
    tutti_comm_t* other = nullptr;
    EXPECT_EQ(TUTTI_ERROR_INTERNAL, tutti_comm_create(&given, nullptr, &other));
    EXPECT_EQ(nullptr, other);
  });
}

TEST(CComm, explain_json__numbers_that_are_no_ranks_are_errors) {
  for (const char* const query :
       {R"({"ranks": 2147483647, "nodes": 2})", R"({"ranks": 4294967297})", R"({"ranks": 1e300})",
        R"({"ranks": 0})", R"({"ranks": 2, "nodes": 3})", R"({"nodes": -1})"}) {
    char* const text = tutti_explain_json(query);
    EXPECT_TRUE(json::parse(text).contains("error")) << query << ": " << text;
    tutti_free(text);
  }
  char* const text = tutti_explain_json(R"({"ranks": 65536, "nodes": 8192})");
  EXPECT_FALSE(json::parse(text).contains("error")) << text;
  tutti_free(text);
}

TEST(CComm, explain_json__rules_for_an_mpi_and_for_ranks_with_a_core_each) {
  const auto plan = [](const std::string& more) {
    const std::string query =
        R"({"collective": "allreduce", "bytes": 65536, "ranks": 2, "memory": "host",
            "op": "sum", "type": "float32")" +
        more + "}";
    char* const text = tutti_explain_json(query.c_str());
    const json found = json::parse(text);
    tutti_free(text);
    return found["plan"].get<std::string>();
  };
  EXPECT_EQ("direct-gamma", plan(R"(, "mpi_name": "mpich")"));
  EXPECT_EQ("mpi-gamma", plan(R"(, "mpi_name": "mpich", "oversubscribed": true)"));
  EXPECT_EQ("mpi-gamma", plan(""));
}

TEST(CComm, streams__a_buffer_of_nothing_may_be_anywhere) {
  on_ranks(2, [](Rank& self) {
    DeviceInts data(8, self.rank);
    std::int32_t nowhere = 0;
    const std::int64_t counts[] = {5, 0};
    ASSERT_EQ(TUTTI_OK, tutti_allgatherv(self.comm, self.rank == 0 ? data.data() : &nowhere,
                                         counts[self.rank], data.data(), counts, nullptr,
                                         TUTTI_INT32, nullptr))
        << self.words();
    // With a root, too: at rank 1 neither side has anything.
    DeviceInts results(5, 7);
    std::int32_t* const from = self.rank == 0 ? data.data() : &nowhere;
    std::int32_t* const to = self.rank == 0 ? results.data() : &nowhere;
    ASSERT_EQ(TUTTI_OK, tutti_gatherv(self.comm, from, counts[self.rank], to, counts, nullptr,
                                      TUTTI_INT32, 0, nullptr))
        << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_scatterv(self.comm, from, counts, nullptr, to, counts[self.rank],
                                       TUTTI_INT32, 0, nullptr))
        << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
    EXPECT_EQ(0, data.data()[0]);
    EXPECT_TRUE(results.all(self.rank == 0 ? 0 : 7));
  });
}

TEST(CComm, collectives__a_bad_argument_leaves_the_communicator_as_it_was) {
  on_ranks(2, [](Rank& self) {
    std::int32_t value = self.rank;
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, sum(self, &value, -1, TUTTI_BLOCKING));
    EXPECT_NE(self.words().find("count is negative"), std::string::npos);
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT,
              tutti_bcast(self.comm, &value, 1, TUTTI_INT32, 2, TUTTI_BLOCKING));
    // Host memory has no place on a stream.
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, sum(self, &value, 1, nullptr));
    EXPECT_NE(self.words().find("takes memory of its communicator's GPU"), std::string::npos)
        << self.words();
    EXPECT_EQ(TUTTI_OK, tutti_comm_status(self.comm));
    EXPECT_EQ(TUTTI_OK, sum(self, &value, 1, TUTTI_BLOCKING));
    EXPECT_EQ(1, value);
  });
}

TEST(CComm, collectives__mixed_kinds_of_memory) {
  on_ranks(3, [](Rank& self) {
    for (int turn = 0; turn < 10; ++turn) {
      DeviceInts device(3000, self.rank + 1);
      std::vector<std::int32_t> host(3000, self.rank + 1);
      const bool on_device = (turn + self.rank) % 2 == 0;
      ASSERT_EQ(TUTTI_OK, sum(self, on_device ? device.data() : host.data(), 3000, TUTTI_BLOCKING))
          << self.words();
      EXPECT_TRUE(on_device ? device.all(6) : host == std::vector<std::int32_t>(3000, 6));
    }
  });
}

TEST(CComm, streams__the_bootstrap_is_not_asked_once_all_is_set_up) {
  on_ranks(2, [](Rank& self) {
    DeviceInts data(100, 1);
    ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, nullptr)) << self.words();
    const int before = self.gathers;
    for (int call = 0; call < 9; ++call) {
      ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr));
      ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, nullptr));
    }
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
    EXPECT_EQ(before, self.gathers);
    EXPECT_TRUE(data.all(1 << 10));
  });
}

TEST(CComm, streams__the_call_returns_before_its_peers_come) {
  ThreadWorld world(2);
  std::atomic<bool> queued = false;
  world.run([&](int rank) {
    Rank self(world, rank);
    self.make();
    DeviceInts data(100, 1);
    ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
    if (rank == 0) {
      ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr));  // Rank 1 waits for its return.
      queued = true;
    } else {
      while (!queued) {
        std::this_thread::yield();
      }
      ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr));
    }
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
    EXPECT_TRUE(data.all(4));
  });
}

TEST(CComm, streams__a_call_beside_the_callers_own_work) {
  on_ranks(2, [](Rank& self) {
    device::Api* const api = Process::get().device();
    const device::Stream work = *api->create_stream(self.rank);
    const device::Stream beside = *api->create_stream(self.rank);
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_wait_on(self.comm, 1, work));
    DeviceInts data(100, 0);
    for (int turn = 1; turn <= 40; ++turn) {
      const std::uint64_t before = tutti_comm_calls(self.comm);
      std::atomic<bool> may_go_on = false;
      struct Fill {
        DeviceInts& data;
        std::atomic<bool>& may_go_on;
        std::int32_t value;
      } fill{data, may_go_on, turn + self.rank};
      tutti_host_device_enqueue(
          work,
          [](void* argument) {
            Fill& it = *static_cast<Fill*>(argument);
            it.may_go_on.wait(false);
            std::fill_n(it.data.data(), 100, it.value);
          },
          &fill);
      ASSERT_EQ(TUTTI_OK, tutti_comm_order(self.comm, work, beside)) << self.words();
      ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, beside)) << self.words();
      const std::uint64_t calls = tutti_comm_calls(self.comm);
      EXPECT_EQ(before + 1, calls);
      int are_over = 1;
      ASSERT_EQ(TUTTI_OK, tutti_comm_test(self.comm, calls, &are_over));
      EXPECT_EQ(0, are_over);
      ASSERT_EQ(TUTTI_OK, tutti_comm_wait_on(self.comm, calls, work)) << self.words();
      std::atomic<std::int32_t> seen = 0;
      struct Look {
        DeviceInts& data;
        std::atomic<std::int32_t>& seen;
      } look{data, seen};
      tutti_host_device_enqueue(
          work,
          [](void* argument) {
            const Look& it = *static_cast<Look*>(argument);
            it.seen = it.data.data()[99];
          },
          &look);
      may_go_on = true;
      may_go_on.notify_all();
      ASSERT_TRUE(api->wait_stream(work).ok());
      EXPECT_EQ(2 * turn + 1, seen);
      ASSERT_EQ(TUTTI_OK, tutti_comm_test(self.comm, calls, &are_over));
      EXPECT_NE(0, are_over);
    }
    const std::uint64_t last = tutti_comm_calls(self.comm);
    int are_over = 1;
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_test(self.comm, last, nullptr));
    EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_test(self.comm, last + 1, &are_over));
    EXPECT_EQ(0, are_over);
    EXPECT_NE(
        std::string::npos,
        std::string(tutti_error_string(nullptr)).find("has made 40 calls on streams, not 41"));
    tutti_host_device_begin_capture(work);
    EXPECT_EQ(TUTTI_ERROR_UNSUPPORTED, tutti_comm_mark(self.comm, work));
    std::atomic<bool> may_begin = false;
    tutti_host_device_enqueue(
        beside, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }, &may_begin);
    ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, beside)) << self.words();
    EXPECT_EQ(TUTTI_ERROR_UNSUPPORTED, tutti_comm_wait_on(self.comm, last + 1, work));
    EXPECT_EQ(TUTTI_OK, tutti_comm_wait_on(self.comm, last + 1, nullptr));
    may_begin = true;
    may_begin.notify_all();
    EXPECT_EQ(TUTTI_ERROR_UNSUPPORTED, tutti_comm_order(self.comm, work, beside));
    EXPECT_EQ(TUTTI_ERROR_UNSUPPORTED, tutti_comm_order(self.comm, beside, work));
    tutti_host_device_destroy_graph(tutti_host_device_end_capture(work));
    EXPECT_EQ(TUTTI_OK, tutti_comm_mark(self.comm, work));
    EXPECT_EQ(last + 2, tutti_comm_calls(self.comm));
    EXPECT_EQ(TUTTI_OK, tutti_comm_destroy(self.comm));
    self.comm = nullptr;
    EXPECT_TRUE(api->destroy_stream(work).ok());
    EXPECT_TRUE(api->destroy_stream(beside).ok());
  });
}

TEST(CComm, streams__two_communicators_do_not_disturb_each_other) {
  ThreadWorld world(2);
  ThreadWorld other_world(2);
  world.run([&](int rank) {
    Rank self(world, rank);
    Rank other(other_world, rank);
    self.make();
    other.make();
    DeviceInts mine(500, 1);
    DeviceInts its(500, 3);
    for (int turn = 0; turn < 8; ++turn) {
      ASSERT_EQ(TUTTI_OK, sum(self, mine.data(), 500, nullptr)) << self.words();
      ASSERT_EQ(TUTTI_OK, sum(other, its.data(), 500, nullptr)) << other.words();
    }
    EXPECT_EQ(TUTTI_OK, tutti_comm_destroy(self.comm));  // Waits for its own.
    self.comm = nullptr;
    EXPECT_TRUE(mine.all(1 << 8));
    ASSERT_EQ(TUTTI_OK, sum(other, its.data(), 500, nullptr));
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(other.comm));
    EXPECT_TRUE(its.all(3 << 9));
  });
}

TEST(CComm, streams__a_peer_that_does_not_come_is_an_error_of_the_next_call) {
  ThreadWorld world(2);
  std::atomic<bool> over = false;
  world.run([&](int rank) {
    Rank self(world, rank);
    self.make();
    DeviceInts data(100, 1);
    ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
    if (rank == 0) {
      ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr));
      EXPECT_EQ(TUTTI_ERROR_TIMEOUT, tutti_comm_wait(self.comm));
      EXPECT_NE(self.words().find("TUTTI_TIMEOUT"), std::string::npos) << self.words();
      EXPECT_EQ(TUTTI_ERROR_TIMEOUT, tutti_comm_status(self.comm));
      EXPECT_EQ(TUTTI_ERROR_TIMEOUT, sum(self, data.data(), 100, nullptr));
      EXPECT_EQ(TUTTI_ERROR_TIMEOUT, sum(self, data.data(), 100, TUTTI_BLOCKING));
      EXPECT_EQ(TUTTI_ERROR_TIMEOUT, tutti_comm_destroy(self.comm));
      self.comm = nullptr;
      over = true;
    }
    while (!over) {
      std::this_thread::yield();
    }
  });
}

TEST(CComm, streams__a_failure_is_seen_before_a_call_that_waits_meets_its_peers) {
  ThreadWorld world(2);
  std::atomic<bool> over = false;
  world.run([&](int rank) {
    Rank self(world, rank);
    self.make();
    DeviceInts data(100, 1);
    ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
    if (rank == 0) {
      ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr));
      const int before = self.gathers;
      // The first call of its kind: it would meet rank 1 in the bootstrap, which does not come.
      EXPECT_EQ(TUTTI_ERROR_TIMEOUT, sum(self, data.data(), 100, TUTTI_BLOCKING));
      EXPECT_EQ(before, self.gathers);
      EXPECT_EQ(TUTTI_ERROR_TIMEOUT, tutti_comm_destroy(self.comm));
      self.comm = nullptr;
      over = true;
    }
    while (!over) {
      std::this_thread::yield();
    }
  });
}

TEST(CComm, abort__ends_a_call_that_waits_and_all_later_ones) {
  ThreadWorld world(2);
  // Far above what the threads' turns take on a busy machine: it is the abort that ends the call.
  const tutti_options_t options = options_for(TUTTI_MEMORY_ANY, 60);
  std::atomic<bool> is_over = false;
  world.run([&](int rank) {
    Rank self(world, rank);
    self.make(&options);
    std::int32_t value = 1;
    ASSERT_EQ(TUTTI_OK, sum(self, &value, 1, TUTTI_BLOCKING)) << self.words();
    ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, TUTTI_BLOCKING));
    if (rank == 1) {
      is_over.wait(false);
      return;
    }
    std::thread other([&] {
      for (int turn = 0; turn < 2000; ++turn) {
        std::this_thread::yield();  // Most likely the other is in its call then; either is right.
      }
      EXPECT_EQ(TUTTI_OK, tutti_comm_abort(self.comm));
    });
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(TUTTI_ERROR_LIBRARY, tutti_barrier(self.comm, TUTTI_BLOCKING));
    EXPECT_NE(self.words().find("was aborted"), std::string::npos) << self.words();
    other.join();
    EXPECT_EQ(TUTTI_ERROR_LIBRARY, sum(self, &value, 1, TUTTI_BLOCKING));
    EXPECT_EQ(TUTTI_ERROR_LIBRARY, tutti_comm_status(self.comm));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    is_over = true;
    is_over.notify_all();
  });
  EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, tutti_comm_abort(nullptr));
}

TEST(CComm, plan_json__says_plan_why_and_what_was_refused) {
  on_ranks(2, [](Rank& self) {
    DeviceInts data(8, 1);  // What no call has needed yet would count as usable.
    ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 8, nullptr));
    char* text = tutti_comm_plan_json(
        self.comm, R"({"collective": "allreduce", "bytes": 4096, "type": "float32", "op": "sum",
                       "memory": "device", "order": "captured"})");
    const json captured = json::parse(text);
    tutti_free(text);
    EXPECT_EQ(captured["plan"], "direct-gamma");
    EXPECT_EQ("captured", captured["call"]["order"]);
    EXPECT_EQ(false, captured["communicator"]["mpi"]);
    text = tutti_comm_plan_json(self.comm,
                                R"({"collective": "allgatherv", "bytes": 4096, "type": "float32",
                       "memory": "device", "order": "captured"})");
    EXPECT_NE(std::string(text).find("alike between all pairs of ranks"), std::string::npos)
        << text;
    EXPECT_TRUE(json::parse(text)["plan"].is_null());
    tutti_free(text);
    std::int32_t value = 1;
    ASSERT_EQ(TUTTI_OK, sum(self, &value, 1, TUTTI_BLOCKING));
    text =
        tutti_comm_plan_json(self.comm, R"({"collective": "allreduce", "bytes": 4, "type": "int32",
                                                 "op": "sum", "memory": "host"})");
    EXPECT_EQ("direct-gamma", json::parse(text)["plan"]);
    EXPECT_EQ("direct-gamma", json::parse(text)["last_plan"]);
    tutti_free(text);
    text = tutti_comm_plan_json(self.comm, "no json");
    EXPECT_TRUE(json::parse(text).contains("error"));
    tutti_free(text);
  });
}

TEST(CComm, options__memory_that_is_said_is_not_asked_for) {
  const tutti_options_t options = options_for(TUTTI_MEMORY_HOST);
  on_ranks(
      2,
      [](Rank& self) {
        std::int32_t value = 1;
        ASSERT_EQ(TUTTI_OK, sum(self, &value, 1, TUTTI_BLOCKING));
        const int before = self.gathers;
        for (int call = 0; call < 20; ++call) {
          ASSERT_EQ(TUTTI_OK, sum(self, &value, 1, TUTTI_BLOCKING));
        }
        EXPECT_EQ(before, self.gathers);
        EXPECT_EQ(1 << 21, value);
        // "Mostly": other memory is right too, and streams take it.
        DeviceInts data(100, 1);
        ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, TUTTI_BLOCKING)) << self.words();
        ASSERT_EQ(TUTTI_OK, sum(self, data.data(), 100, nullptr)) << self.words();
        ASSERT_EQ(TUTTI_OK, tutti_comm_wait(self.comm));
        EXPECT_TRUE(data.all(4));
      },
      &options);
}

TEST(CComm, options__a_plan_goes_before_every_rule) {
  const tutti_options_t options = {.size = sizeof options,
                                   .plan = "ccl",
                                   .memory = TUTTI_MEMORY_ANY,
                                   .concurrent = 0,
                                   .timeout_s = 0};
  on_ranks(
      2,
      [](Rank& self) {
        char* const text =
            tutti_comm_plan_json(self.comm, R"({"collective": "bcast", "bytes": 4})");
        const json plan = json::parse(text);
        tutti_free(text);
        EXPECT_EQ("direct-gamma", plan["plan"]);
        EXPECT_EQ(true, plan["fallback"]);  // The wish is refused, with a reason.
        ASSERT_EQ(1U, plan["refused"].size());
        EXPECT_EQ("buffers are in host memory", plan["refused"][0]["reason"]);
      },
      &options);
}

}  // namespace
}  // namespace tutti::engine
