// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the validator must refuse, one fault at a time, in programs written by hand.
#include "schedule/validate.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "schedule/builder.hpp"
#include "tasks.hpp"

namespace tutti::schedule {
namespace {

using testing::equal_problem;

constexpr Region kIn{Buffer::kInput, 0, 4};
constexpr Region kOut{Buffer::kOutput, 0, 4};

Program made(const std::function<void(Builder&)>& write) {
  Builder builder;
  write(builder);
  return std::move(builder).finish();
}

/// The first error of a broadcast of four elements over two ranks.
std::string bcast_error(const Program& root, const Program& other) {
  return testing::first_error(validate(equal_problem(Collective::kBcast, 2, 4), {root, other}));
}

const Program kRoot = made([](Builder& b) {
  b.copy(kIn, kOut);
  b.send(1, kOut);
});
const Program kOther = made([](Builder& b) { b.recv(0, kOut); });

TEST(validate, accepts_a_broadcast) { EXPECT_EQ("", bcast_error(kRoot, kOther)); }

TEST(validate, refuses_a_send_without_receive_and_the_other_way_round) {
  EXPECT_NE(std::string::npos, bcast_error(kRoot, {}).find("has no receive"));
  const Program copies = made([](Builder& b) { b.copy(kIn, kOut); });
  EXPECT_NE(std::string::npos, bcast_error(copies, kOther).find("has no send"));
}

TEST(validate, refuses_messages_of_two_sizes) {
  const Program shorter = made([](Builder& b) { b.recv(0, kOut.part(0, 3)); });
  EXPECT_NE(std::string::npos, bcast_error(kRoot, shorter).find("of another size"));
}

TEST(validate, refuses_what_only_eager_sends_would_let_through) {
  // Both ranks send before they receive, in an order that they insist on.
  auto exchange = [](int peer) {
    return made([&](Builder& b) {
      b.copy(kIn, kOut.part(static_cast<std::uint64_t>(1 - peer) * 4, 4));
      b.send(peer, kIn);
      b.fence();
      b.recv(peer, kOut.part(static_cast<std::uint64_t>(peer) * 4, 4));
    });
  };
  const Report report =
      validate(equal_problem(Collective::kAllgather, 2, 4), {exchange(1), exchange(0)});
  EXPECT_NE(std::string::npos, testing::first_error(report).find("never completes"));
}

TEST(validate, refuses_data_from_nowhere_and_wrong_data) {
  const Program sends_nothing = made([](Builder& b) { b.send(1, kOut); });
  EXPECT_NE(std::string::npos, bcast_error(sends_nothing, kOther).find("never written"));
  const Program shifted = made([](Builder& b) {
    b.copy(kIn, kOut);
    b.send(1, kOut.part(2, 2));
    b.send(1, kOut.part(0, 2));
  });
  const Program two = made([](Builder& b) {
    b.recv(0, kOut.part(0, 2));
    b.recv(0, kOut.part(2, 2));
  });
  EXPECT_NE(std::string::npos, bcast_error(shifted, two).find("not what bcast says"));
}

TEST(validate, refuses_a_contribution_that_counts_twice) {
  auto twice = [](int peer) {
    return made([&](Builder& b) {
      b.copy(kIn, kOut);
      b.send(peer, kIn);
      const Region arrived = b.scratch(4);
      b.recv(peer, arrived);
      b.reduce(arrived, kOut);
      b.reduce(arrived, kOut);
    });
  };
  const Report report = validate(equal_problem(Collective::kAllreduce, 2, 4), {twice(1), twice(0)});
  EXPECT_NE(std::string::npos, testing::first_error(report).find("a rank twice"));
}

TEST(validate, refuses_a_forgotten_dependency) {
  Program forgets = kRoot;
  forgets.steps[1].dependency_count = 0;
  EXPECT_NE(std::string::npos, bcast_error(forgets, kOther).find("may run while"));
}

TEST(validate, refuses_regions_outside_and_writes_to_the_input) {
  const Program outside = made([](Builder& b) { b.recv(0, {Buffer::kOutput, 1, 4}); });
  EXPECT_NE(std::string::npos, bcast_error(kRoot, outside).find("leaves the buffer"));
  const Program writes = made([](Builder& b) {
    b.copy(kIn, kOut);
    b.copy(kOut, kIn);
    b.send(1, kOut);
  });
  EXPECT_NE(std::string::npos, bcast_error(writes, kOther).find("writes to the input"));
}

TEST(validate, refuses_a_barrier_that_some_rank_can_leave_early) {
  const Problem barrier = equal_problem(Collective::kBarrier, 3, 0);
  auto to_right = [](int rank) {
    return made([&](Builder& b) {
      b.send_token((rank + 1) % 3);
      b.recv_token((rank + 2) % 3);
    });
  };
  const Report report = validate(barrier, {to_right(0), to_right(1), to_right(2)});
  EXPECT_NE(std::string::npos, testing::first_error(report).find("leaves the barrier"));
}

}  // namespace
}  // namespace tutti::schedule
