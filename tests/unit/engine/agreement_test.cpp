// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/agreement.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::engine {
namespace {

using select::Collective;
using select::Memory;

TEST(agreement, agreement_due__powers_of_two_then_every_8192nd) {
  std::vector<std::uint64_t> due;
  for (std::uint64_t call = 1; call <= 24576; ++call) {
    if (agreement_due(call)) {
      due.push_back(call);
    }
  }
  EXPECT_EQ((std::vector<std::uint64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                        8192, 16384, 24576}),
            due);
}

TEST(agreement, of__small_and_large_calls_hold_their_own_mode) {
  MemoryModes modes;
  modes.of(Collective::kAllreduce, 8).mode = Memory::kHost;
  modes.of(Collective::kAllreduce, 1 << 20).mode = Memory::kDevice;
  EXPECT_EQ(Memory::kHost, modes.of(Collective::kAllreduce, 15).mode);
  EXPECT_EQ(Memory::kDevice, modes.of(Collective::kAllreduce, (1 << 20) + 1).mode);
  EXPECT_EQ(Memory::kHost, modes.of(Collective::kBcast, 1 << 20).mode);
  modes.of(Collective::kAlltoallv, std::nullopt).mode = Memory::kDevice;
  EXPECT_EQ(Memory::kDevice, modes.of(Collective::kAlltoallv, std::nullopt).mode);
  EXPECT_EQ(Memory::kHost, modes.of(Collective::kAlltoallv, kBytesMax).mode);
}

TEST(agreement, known__not_before_a_call_that_agrees) {
  MemoryModes modes;
  MemoryModes::Class& memory = modes.of(Collective::kAlltoallv, std::nullopt);
  memory.mode = Memory::kDevice;
  for (const bool is_known : {false, false, true, false, true}) {
    EXPECT_EQ(is_known, modes.known(Collective::kAlltoallv).has_value()) << memory.calls;
    ++memory.calls;
  }
  EXPECT_EQ(Memory::kDevice, modes.known(Collective::kAlltoallv));
}

TEST(agreement, asserted_memory__only_what_leaves_no_doubt) {
  EXPECT_EQ(Memory::kDevice, asserted_memory("cuda:device"));
  EXPECT_EQ(Memory::kDevice, asserted_memory("rocm:device"));
  EXPECT_EQ(Memory::kHost, asserted_memory("system"));
  EXPECT_EQ(Memory::kHost, asserted_memory("system,mpi, cuda:host"));
  EXPECT_EQ(std::nullopt, asserted_memory("system,cuda:device"));
  EXPECT_EQ(std::nullopt, asserted_memory("cuda:managed"));
  EXPECT_EQ(std::nullopt, asserted_memory("nonsense"));
  EXPECT_EQ(std::nullopt, asserted_memory(""));
}

}  // namespace
}  // namespace tutti::engine
