// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The C API's communicators of several nodes, which are virtual ones of this process. Results of
// all collectives: tests/c_api.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "c_ranks.hpp"

namespace tutti::engine {
namespace {

class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("TUTTI_DEVICE", "host", 1);
    setenv("TUTTI_LOG_LEVEL", "error", 1);
    setenv("TUTTI_VIRTUAL_NODES", "2", 1);
    setenv("TUTTI_STRICT", "1", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment());

/// It has no buffers that could be staged: a job whose device memory is NCCL's needs no transport.
TEST(CCommOfNodes, barrier__on_device_memory_meets_in_the_bootstrap) {
  const tutti_options_t options = options_for(TUTTI_MEMORY_DEVICE);
  on_ranks(
      2,
      [](Rank& self) {
        ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, TUTTI_BLOCKING)) << self.words();
        const int before = self.gathers;
        ASSERT_EQ(TUTTI_OK, tutti_barrier(self.comm, TUTTI_BLOCKING)) << self.words();
        EXPECT_EQ(before + 1, self.gathers);
      },
      &options);
}

TEST(CCommOfNodes, strict__no_call_on_a_stream_goes_through_host_memory) {
  const tutti_options_t options = options_for(TUTTI_MEMORY_DEVICE);
  on_ranks(
      2,
      [](Rank& self) {
        device::Api& api = *Process::get().device();
        void* const stream = *api.create_stream(self.rank);
        void* const data = *api.allocate_device(self.rank, 64);
        EXPECT_EQ(TUTTI_ERROR_FALLBACK, tutti_allreduce(self.comm, TUTTI_IN_PLACE, data, 8,
                                                        TUTTI_INT32, TUTTI_SUM, stream));
        EXPECT_NE(self.words().find("through host memory"), std::string::npos) << self.words();
        EXPECT_EQ(TUTTI_OK, tutti_comm_status(self.comm)) << self.words();
        EXPECT_TRUE(api.free_device(data).ok());
        EXPECT_TRUE(api.destroy_stream(stream).ok());
      },
      &options);
}

/// Its next call is of the same form, and must not pass for the one that its peers are in.
TEST(CCommOfNodes, collectives__a_call_that_one_rank_refuses_counts_as_its_call) {
  const tutti_options_t options = options_for(TUTTI_MEMORY_HOST, 1);
  on_ranks(
      3,
      [](Rank& self) {
        std::int32_t value = 1;
        const auto sum = [&](std::int64_t count) {
          return tutti_allreduce(self.comm, TUTTI_IN_PLACE, &value, count, TUTTI_INT32, TUTTI_SUM,
                                 TUTTI_BLOCKING);
        };
        EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, sum(-1));  // On all ranks: as it was.
        EXPECT_EQ(TUTTI_OK, sum(1)) << self.words();
        EXPECT_EQ(3, value);
        if (self.rank == 1) {
          EXPECT_EQ(TUTTI_ERROR_INVALID_ARGUMENT, sum(-1));
        }
        EXPECT_EQ(TUTTI_ERROR_TIMEOUT, sum(1));
        EXPECT_NE(self.words().find(" (allreduce), rank "), std::string::npos) << self.words();
      },
      &options);
}

}  // namespace
}  // namespace tutti::engine
