// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/registered_memory.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"
#include "wire/verbs/library.hpp"

namespace tutti::wire::verbs {
namespace {

int regions = 0;
int registrations = 0;

Mr* reg_mr(Pd* pd, void* address, std::size_t bytes, int /*access*/) {
  ++regions;
  ++registrations;
  return new Mr{nullptr, pd, address, bytes, 0, 0, 0};
}
int dereg_mr(Mr* mr) {
  --regions;
  delete mr;
  return 0;
}

Functions functions() {
  Functions verbs;
  verbs.reg_mr = reg_mr;
  verbs.dereg_mr = dereg_mr;
  return verbs;
}

TEST(registered_memory, find__only_what_lies_wholly_inside) {
  const Functions verbs = functions();
  RegisteredMemory memory(verbs, nullptr);
  std::vector<std::byte> bytes(100);
  ASSERT_TRUE(memory.add(std::span(bytes).subspan(10, 50)).ok());
  EXPECT_EQ(nullptr, memory.find(&bytes[9], 1));
  EXPECT_NE(nullptr, memory.find(&bytes[10], 50));
  EXPECT_EQ(nullptr, memory.find(&bytes[10], 51));
  EXPECT_NE(nullptr, memory.find(&bytes[59], 1));
  EXPECT_EQ(nullptr, memory.find(&bytes[60], 1));
}

TEST(registered_memory, add__the_nic_is_told_once) {
  const Functions verbs = functions();
  registrations = 0;
  {
    RegisteredMemory memory(verbs, nullptr);
    std::vector<std::byte> bytes(100);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(memory.add(bytes).ok());
    }
    EXPECT_EQ(1, registrations);
    memory.remove(bytes);
    memory.remove(bytes);
    EXPECT_NE(nullptr, memory.find(bytes.data(), 100));
    memory.remove(bytes);
    EXPECT_EQ(nullptr, memory.find(bytes.data(), 100));
    EXPECT_EQ(0, regions);
    ASSERT_TRUE(memory.add(bytes).ok());
  }
  EXPECT_EQ(0, regions);  // The rest goes with it.
}

/// Against a list of what is registered, with overlapping spans of all lengths.
TEST(registered_memory, find__as_a_search_through_all) {
  const Functions verbs = functions();
  RegisteredMemory memory(verbs, nullptr);
  std::vector<std::byte> bytes(4096);
  std::vector<std::span<std::byte>> all;
  Random random(3);
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t begin = random.next() % bytes.size();
    const std::size_t most = std::min<std::size_t>(bytes.size() - begin, 1 + random.next() % 1000);
    const std::span<std::byte> span(&bytes[begin], most);
    switch (random.next() % 4) {
      case 0:
        ASSERT_TRUE(memory.add(span).ok());
        all.push_back(span);
        break;
      case 1:
        if (!all.empty()) {
          const std::size_t at = random.next() % all.size();
          memory.remove(all[at]);
          all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
        }
        break;
      default: {
        const bool expected = std::any_of(all.begin(), all.end(), [&](const auto& it) {
          return it.data() <= span.data() && span.data() + most <= it.data() + it.size();
        });
        ASSERT_EQ(expected, memory.find(span.data(), most) != nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::wire::verbs
