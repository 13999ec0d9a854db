// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/allgather_bootstrap.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/thread_mpi.hpp"

namespace tutti::runners {
namespace {

using testing::ThreadMpi;
using testing::ThreadWorld;

/// An allgather over the board of thread ranks.
AllgatherBootstrap bootstrap_of(ThreadMpi& mpi, int rank, int ranks) {
  return {rank, ranks, [&mpi](const void* send, void* recv, Bytes bytes) {
            return mpi.allgather(send, recv, bytes).ok() ? 0 : 1;
          }};
}

TEST(AllgatherBootstrap, max_in_place__element_by_element) {
  ThreadWorld world(3);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    AllgatherBootstrap bootstrap = bootstrap_of(mpi, rank, 3);
    std::array<std::uint64_t, 3> values = {static_cast<std::uint64_t>(rank),
                                           static_cast<std::uint64_t>(2 - rank), ~std::uint64_t{0}};
    ASSERT_TRUE(bootstrap.max_in_place(values.data(), 3).ok());
    EXPECT_EQ(values, (std::array<std::uint64_t, 3>{2, 2, ~std::uint64_t{0}}));
  });
}

TEST(AllgatherBootstrap, make_scopes__as_an_mpi_makes_them) {
  const std::vector<int> nodes = {7, 3, 7, 3, 9};
  ThreadWorld world(5);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    AllgatherBootstrap bootstrap = bootstrap_of(mpi, rank, 5);
    const int node = nodes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(bootstrap.scope_rank(Scope::kWhole).rank, rank);
    EXPECT_EQ(bootstrap.scope_rank(Scope::kNode).rank, -1);
    ASSERT_TRUE(bootstrap.make_scopes(node).ok());
    ASSERT_TRUE(mpi.make_scopes(node).ok());
    for (const Scope scope : {Scope::kWhole, Scope::kNode, Scope::kLeaders}) {
      EXPECT_EQ(bootstrap.scope_rank(scope).rank, mpi.scope_rank(scope).rank) << rank;
      if (mpi.scope_rank(scope).rank >= 0) {
        EXPECT_EQ(bootstrap.scope_rank(scope).ranks, mpi.scope_rank(scope).ranks) << rank;
      }
    }
  });
}

TEST(AllgatherBootstrap, allgather__a_failure_is_for_good) {
  int calls = 0;
  AllgatherBootstrap bootstrap(0, 1,
                               [&](const void*, void*, Bytes) { return ++calls == 1 ? 5 : 0; });
  std::uint64_t value = 0;
  const Status first = bootstrap.max_in_place(&value, 1);
  EXPECT_EQ(first.code(), ErrorCode::kLibraryFailed);
  EXPECT_NE(first.message().find("returned 5"), std::string::npos) << first.message();
  EXPECT_EQ(bootstrap.make_scopes(0).message(), first.message());
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tutti::runners
