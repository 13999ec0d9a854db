// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Where engine threads run.
#include "net/processors.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>

#include "base/thread.hpp"

namespace tutti::net {
namespace {

using Processors = std::vector<int>;

/// `fallback`: a part of what is told in place of all that was asked for; empty: nothing is told.
Processors chosen(const std::string& affinity, const Processors& near, const Processors& allowed,
                  const std::string& fallback = "") {
  std::string told = "left from before";
  const auto result = choose_processors(affinity, near, allowed, &told);
  EXPECT_EQ(told.empty(), fallback.empty()) << told;
  EXPECT_NE(told.find(fallback), std::string::npos) << told;
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : Processors{-1};
}

TEST(NetProcessors, choose_processors__near_the_device_and_allowed) {
  EXPECT_EQ(chosen("near", {0, 1, 2, 3}, {2, 3, 4, 5}), (Processors{2, 3}));
  EXPECT_EQ(chosen("near", {0, 1}, {2, 3}, "may use none of those near it, 0-1"), Processors());
  EXPECT_EQ(chosen("near", {0, 1, 2}, {0, 1}), Processors()) << "nothing narrower";
  EXPECT_EQ(chosen("near", {}, {0, 1}, "it does not tell which are near"), Processors());
  EXPECT_EQ(chosen("off", {0}, {0, 1}), Processors());
}

TEST(NetProcessors, choose_processors__a_list) {
  EXPECT_EQ(chosen("1-3,8", {0}, {0, 1, 2, 8, 9}, "on processors 1-2,8 and not on 1-3,8"),
            (Processors{1, 2, 8}));
  EXPECT_EQ(chosen("0-1", {}, {0, 1}), (Processors{0, 1}));
  EXPECT_EQ(chosen("0-2", {}, {0, 1}, "on processors 0-1 and not on 0-2"), (Processors{0, 1}));
  std::string told;
  const auto none = choose_processors("4,5", {}, {0, 1, 2}, &told);
  EXPECT_EQ(none.status().code(), ErrorCode::kInvalidConfig);
  EXPECT_EQ(none.status().message(),
            "TUTTI_NET_AFFINITY=4,5: this process may use none of these, only 0-2");
  for (const char* text : {"", "here", "1-", "3-1", "near,1", "-1"}) {
    EXPECT_EQ(choose_processors(text, {}, {0, 1, 2}, &told).status().code(),
              ErrorCode::kInvalidConfig)
        << text;
  }
}

TEST(NetProcessors, bind_thread__it_runs_there) {
  const Processors allowed = processors_of_process();
  ASSERT_FALSE(allowed.empty());
  std::atomic<bool> is_bound = false;
  std::atomic<int> at = -1;
  auto thread = start_thread("bound", [&] {
    while (!is_bound) {
      sched_yield();
    }
    at = sched_getcpu();
  });
  ASSERT_TRUE(thread.ok()) << thread.status().message();
  EXPECT_TRUE(bind_thread(*thread, {}).ok());
  const Status bound = bind_thread(*thread, {allowed.back()});
  EXPECT_TRUE(bound.ok()) << bound.message();
  is_bound = true;
  thread->join();
  EXPECT_EQ(at, allowed.back());
}

TEST(NetProcessors, bind_thread__a_processor_that_is_not_there) {
  std::atomic<bool> is_over = false;
  auto thread = start_thread("unbound", [&] {
    while (!is_over) {
      sched_yield();
    }
  });
  ASSERT_TRUE(thread.ok()) << thread.status().message();
  EXPECT_EQ(bind_thread(*thread, {8000}).code(), ErrorCode::kUnavailable);
  is_over = true;
  thread->join();
}

}  // namespace
}  // namespace tutti::net
