// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Registered memory and memory windows, on functions that count.
#include "wire/verbs/registered_memory.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "wire/verbs/library.hpp"
#include "wire/verbs/windows.hpp"

namespace tutti::wire::verbs {
namespace {

int regions = 0;
int registrations = 0;
int release_error = 0;  ///< Of dereg_mr and dealloc_mw.
std::vector<std::string> kept;

void keep(const std::string& why) { kept.push_back(why); }

Mr* reg_mr(Pd* pd, void* address, std::size_t bytes, int /*access*/) {
  ++regions;
  ++registrations;
  return new Mr{nullptr, pd, address, bytes, 0, 0, 0};
}
int dereg_mr(Mr* mr) {
  --regions;
  delete mr;
  return release_error;
}

Functions functions() {
  Functions verbs;
  verbs.reg_mr = reg_mr;
  verbs.dereg_mr = dereg_mr;
  return verbs;
}

TEST(registered_memory, find__only_what_lies_wholly_inside) {
  const Functions verbs = functions();
  RegisteredMemory memory(verbs, nullptr, keep);
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
    RegisteredMemory memory(verbs, nullptr, keep);
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
  RegisteredMemory memory(verbs, nullptr, keep);
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

TEST(registered_memory, remove__says_what_the_nic_keeps) {
  const Functions verbs = functions();
  kept.clear();
  RegisteredMemory memory(verbs, nullptr, keep);
  std::vector<std::byte> bytes(100);
  ASSERT_TRUE(memory.add(bytes).ok());
  release_error = EBUSY;
  memory.remove(bytes);
  release_error = 0;
  EXPECT_EQ((std::vector<std::string>{"the NIC keeps memory registered: Device or resource busy"}),
            kept);
}

std::uint32_t windows_max = 0;
std::uint32_t windows_made = 0;
std::uint32_t windows_asked = 0;
std::uint64_t bound = 0;  ///< Id of the last bind.

Mw* alloc_mw(Pd* pd, int type) {
  ++windows_asked;
  if (windows_made == windows_max) {
    errno = ENOMEM;
    return nullptr;
  }
  ++windows_made;
  return new Mw{nullptr, pd, windows_made << 8, 0, type};
}
int dealloc_mw(Mw* mw) {
  delete mw;
  return release_error;
}
int bind_mw(Qp* /*qp*/, Mw* /*mw*/, Bind* bind) {
  bound = bind->id;
  return 0;
}

class WindowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    context_.ops.alloc_mw = alloc_mw;
    context_.ops.dealloc_mw = dealloc_mw;
    context_.ops.bind_mw = bind_mw;
    windows_max = UINT32_MAX;
    windows_made = windows_asked = 0;
    kept.clear();
  }
  std::uint64_t open(Windows& windows) {
    const std::uint64_t window = windows.open(nullptr, memory_);
    if (window != 0) {
      windows.complete(bound, kSuccess);
    }
    return window;
  }
  static void close(Windows& windows, std::uint64_t window) {
    windows.close(window);
    windows.complete(bound, kSuccess);
    EXPECT_TRUE(windows.has_closed(window));
  }

  Context context_{};
  std::vector<std::byte> memory_ = std::vector<std::byte>(100);
};

TEST_F(WindowsTest, try_one__says_which_error) {
  Windows windows(&context_, nullptr, nullptr, keep);
  EXPECT_EQ(0, windows.try_one());
  windows_max = windows_made;
  EXPECT_EQ(ENOMEM, windows.try_one());
  context_.ops.alloc_mw = nullptr;
  EXPECT_EQ(ENOSYS, windows.try_one());
}

TEST_F(WindowsTest, open__that_is_refused_for_good_is_a_failure) {
  Windows windows(&context_, nullptr, nullptr, keep);
  context_.ops.bind_mw = [](Qp*, Mw*, Bind*) { return EOPNOTSUPP; };
  EXPECT_EQ(0U, windows.open(nullptr, memory_));
  EXPECT_TRUE(windows.has_failed());
}

TEST_F(WindowsTest, revoke__makes_room_for_another_window) {
  Windows windows(&context_, nullptr, nullptr, keep);
  windows_max = 1;
  EXPECT_NE(0U, open(windows));
  EXPECT_EQ(0U, open(windows)) << "the NIC has no more";
  EXPECT_TRUE(windows.revoke(nullptr));
  windows_max = 2;  // It has that one again.
  EXPECT_NE(0U, open(windows));
}

/// So many that a key does not come again soon, and no more.
TEST_F(WindowsTest, open__makes_windows_while_few_are_free) {
  Windows windows(&context_, nullptr, nullptr, keep);
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < 2 * Windows::kFreeMin; ++i) {
    const std::uint64_t window = open(windows);
    EXPECT_NE(last & UINT32_MAX, window & UINT32_MAX);
    last = window;
    close(windows, window);
  }
  EXPECT_EQ(std::uint32_t{Windows::kFreeMin}, windows_made);
}

TEST_F(WindowsTest, open__asks_no_more_after_a_refusal) {
  Windows windows(&context_, nullptr, nullptr, keep);
  windows_max = 2;
  const std::uint64_t one = open(windows);
  const std::uint64_t two = open(windows);
  EXPECT_TRUE(one != 0 && two != 0);
  EXPECT_EQ(0U, open(windows));
  EXPECT_EQ(0U, open(windows));
  EXPECT_EQ(3U, windows_asked);
  close(windows, one);
  EXPECT_NE(0U, open(windows));
  EXPECT_EQ(3U, windows_asked);
}

TEST_F(WindowsTest, abandon__says_what_the_nic_keeps) {
  Windows windows(&context_, nullptr, nullptr, keep);
  const std::uint64_t window = open(windows);
  windows.close(window);
  EXPECT_FALSE(windows.has_closed(window));
  release_error = EBUSY;
  windows.abandon();
  release_error = 0;
  EXPECT_TRUE(windows.has_failed() && windows.has_closed(window));
  EXPECT_EQ((std::vector<std::string>{"the NIC keeps a memory window: Device or resource busy"}),
            kept);
}

}  // namespace
}  // namespace tutti::wire::verbs
