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
  const tutti_options_t options = {.size = sizeof options,
                                   .plan = nullptr,
                                   .memory = TUTTI_MEMORY_DEVICE,
                                   .concurrent = 0,
                                   .timeout_s = 0};
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

}  // namespace
}  // namespace tutti::engine
