// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/arrivals.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "base/random.hpp"

namespace tutti::simulate {
namespace {

TEST(arrivals, sorted__by_time_then_source_up_to_the_windows_end) {
  constexpr TimePs kStart = 5'000'000;
  constexpr TimePs kEnd = 6'000'000;
  for (const std::uint32_t per_ring : {1U, 40U}) {
    std::vector<std::unique_ptr<Ring>> rings;
    std::vector<std::uint64_t> expected;
    ArrivalMerge arrivals;
    arrivals.clear(kStart, kEnd);
    for (std::uint32_t source = 0; source < 9; ++source) {
      rings.push_back(std::make_unique<Ring>());
      TimePs time = kStart;
      for (std::uint32_t i = 0; i < per_ring; ++i) {
        // Coarse steps, so that sources collide.
        time += 1000 * (1 + draw(1, source, i) % 60);
        rings.back()->push({.time_ps = time});
        rings.back()->mark_sent();
        if (time < kEnd) {
          expected.push_back((time - kStart) << ArrivalMerge::kSourceBits | source);
        }
      }
      rings.back()->publish();
      arrivals.add(source, *rings.back());
    }
    std::sort(expected.begin(), expected.end());
    const auto sorted = arrivals.sorted();
    EXPECT_EQ(expected, std::vector<std::uint64_t>(sorted.begin(), sorted.end()));
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(expected.back() & 0xffff, ArrivalMerge::source(expected.back()));
  }
}

}  // namespace
}  // namespace tutti::simulate
