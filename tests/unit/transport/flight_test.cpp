// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/flight.hpp"

#include <gtest/gtest.h>

#include <set>

#include "transport/random.hpp"

namespace tutti::transport {
namespace {

TEST(flight, add__the_ring_grows_up_to_the_capacity_and_keeps_chunks_and_lists) {
  // From a number in whose low bits the links wrap.
  constexpr std::uint64_t kFirst = (1ULL << 32) - 100;
  constexpr std::uint32_t kPaths = 3;
  Flight flight(1024, kPaths, kFirst);
  TimeNs now = 0;
  while (!flight.is_full()) {
    const std::uint64_t number = flight.add();
    flight.at(number).offset = number;
    flight.at(number).bytes = 10;
    flight.transmit(++now, number, static_cast<PathId>(number % kPaths));
    if (number % 7 == 0) {
      flight.lose(number);
    }
  }
  EXPECT_EQ(kFirst + 1024, flight.next());
  flight.check();
  std::uint64_t expected = kFirst;
  for (std::uint64_t n = flight.oldest(); n != Flight::kNoChunk; n = flight.after(n)) {
    expected += expected % 7 == 0 ? 1 : 0;
    EXPECT_EQ(expected, n);
    EXPECT_EQ(n, flight.at(n).offset);
    ++expected;
  }
  const std::uint64_t newest = flight.newest();
  EXPECT_EQ(newest - kPaths - ((newest - kPaths) % 7 == 0 ? kPaths : 0),
            flight.before_on_path(newest));
  EXPECT_EQ(0U, flight.first_lost() % 7);
}

TEST(flight, check__holds_whatever_happens_in_any_window) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Flight flight(512, 4, 0xffff - 50);
    std::set<std::uint64_t> open;
    TimeNs now = 0;
    for (int step = 0; step < 4000; ++step) {
      const bool adds = random.below(100) < (step < 2000 ? 55 : 45);
      if (adds && !flight.is_full()) {
        const std::uint64_t number = flight.add();
        flight.at(number).bytes = 1 + random.below(100);
        flight.transmit(++now, number, static_cast<PathId>(random.below(4)));
        open.insert(number);
      } else if (!open.empty()) {
        const std::uint64_t from =
            flight.base() + random.below(static_cast<std::uint32_t>(flight.next() - flight.base()));
        const auto found = open.lower_bound(from);
        const std::uint64_t number = found == open.end() ? *open.begin() : *found;
        if (random.below(4) == 0 && flight.is_in_flight(number)) {
          flight.lose(number);
        } else if (random.below(4) == 0) {
          flight.transmit(++now, number, static_cast<PathId>(random.below(4)));
        } else {
          EXPECT_TRUE(flight.acknowledge(number));
          open.erase(number);
          flight.advance(open.empty() ? flight.next() : *open.begin());
        }
      }
      if (step % 50 == 0) {
        flight.check();
      }
    }
  }
}

}  // namespace
}  // namespace tutti::transport
