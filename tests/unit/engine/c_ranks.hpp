// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks of the C API that are threads of the test, each with a device of its own.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "engine/process.hpp"
#include "support/thread_mpi.hpp"
#include "tutti/tutti.h"

namespace tutti::engine {

using testing::ThreadMpi;
using testing::ThreadWorld;

/// One rank that is a thread, and how it meets the others.
struct Rank {
  Rank(ThreadWorld& world, int own) : rank(own), ranks(world.ranks()), mpi(world, own) {
    // Freeing memory waits for its device: each rank has its own, as on a machine with GPUs.
    device::Api& api = *Process::get().device();
    EXPECT_TRUE(api.initialize().ok());
    EXPECT_TRUE(api.make_current(own).ok());
  }
  Rank(const Rank&) = delete;
  ~Rank() { EXPECT_EQ(TUTTI_OK, tutti_comm_destroy(comm)); }

  tutti_bootstrap_t bootstrap() {
    return {.size = sizeof(tutti_bootstrap_t),
            .rank = rank,
            .ranks = ranks,
            .context = this,
            .allgather = [](void* self, const void* send, void* recv, size_t bytes) {
              auto* const mine = static_cast<Rank*>(self);
              ++mine->gathers;
              if (mine->throws) {
                throw std::runtime_error("thrown");
              }
              if (mine->throws_a_number) {
                throw 7;
              }
              return mine->mpi.allgather(send, recv, bytes).ok() ? mine->answer : 1;
            }};
  }
  void make(const tutti_options_t* options = nullptr) {
    const tutti_bootstrap_t given = bootstrap();
    ASSERT_EQ(TUTTI_OK, tutti_comm_create(&given, options, &comm)) << tutti_error_string(nullptr);
  }
  std::string words() const { return tutti_error_string(comm); }

  const int rank;
  const int ranks;
  ThreadMpi mpi;
  int gathers = 0;
  int answer = 0;  ///< Of the callback.
  bool throws = false;
  bool throws_a_number = false;
  tutti_comm_t* comm = nullptr;
};

/// Options that say the memory of most calls, and this time-out in seconds; 0: TUTTI_TIMEOUT's.
inline tutti_options_t options_for(tutti_memory_t memory, double timeout_s = 0) {
  return {.size = sizeof(tutti_options_t),
          .plan = nullptr,
          .memory = memory,
          .concurrent = 0,
          .timeout_s = timeout_s};
}

template <class Body>
void on_ranks(int ranks, Body body, const tutti_options_t* options = nullptr) {
  ThreadWorld world(ranks);
  world.run([&](int rank) {
    Rank self(world, rank);
    self.make(options);
    if (self.comm != nullptr) {
      body(self);
    }
  });
}

}  // namespace tutti::engine
