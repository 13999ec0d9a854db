// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/gpu_sharing.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "device/device.hpp"

namespace tutti::engine {
namespace {

constexpr int kUnlimited = device::Api::kUnlimited;
using Gpus = std::vector<GpuOfRank>;

TEST(GpuSharing, own_gpus__need_nothing_of_the_driver) {
  const Gpus gpus = {{"a", 0}, {"b", 0}};
  EXPECT_FALSE(share_gpus(gpus));
  EXPECT_EQ(sharing_refusal(gpus), "");
  EXPECT_EQ(shared_blocks_max(gpus, 64), 64u);
}

TEST(GpuSharing, share_gpus_in_process__is_of_two_ranks_in_one_process) {
  const runners::HostProcess one{.number = 1, .start_ticks = 5};
  const runners::HostProcess other{.number = 2, .start_ticks = 5};
  EXPECT_FALSE(share_gpus_in_process(Gpus{{"a", 132, one}, {"a", 132, other}}));
  EXPECT_FALSE(share_gpus_in_process(Gpus{{"a", 132, one}, {"b", 132, one}}));
  EXPECT_TRUE(share_gpus_in_process(Gpus{{"a", 132, one}, {"b", 132, other}, {"a", 132, one}}));
}

TEST(GpuSharing, refusal__names_the_ranks_whose_kernels_take_turns) {
  const Gpus gpus = {{"a", 132}, {"b", 0}, {"a", 132}, {"b", 132}};
  EXPECT_TRUE(share_gpus(gpus));
  const std::string refusal = sharing_refusal(gpus);
  EXPECT_NE(refusal.find("ranks 1 and 3 share b"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("multi-process service"), std::string::npos) << refusal;
  EXPECT_EQ(sharing_refusal(Gpus{{"a", 132}, {"b", 0}, {"a", 132}}), "");
}

TEST(GpuSharing, blocks__two_kernels_of_each_rank_fit_on_the_fullest_gpu) {
  EXPECT_EQ(shared_blocks_max(Gpus{{"a", 132}, {"a", 132}, {"b", 132}}, 64), 32u);
  EXPECT_EQ(shared_blocks_max(Gpus(8, {"a", 132}), 64), 8u);
  EXPECT_EQ(shared_blocks_max(Gpus(2, {"a", 108}), 64), 27u);
  EXPECT_EQ(shared_blocks_max(Gpus(8, {"a", 132}), 4), 1u);  // One at least.
  // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10 on one rank counts for all: grids are alike.
  EXPECT_EQ(shared_blocks_max(Gpus{{"a", 132}, {"b", 13}}, 64), 6u);
  EXPECT_EQ(shared_blocks_max(Gpus(4, {"a", kUnlimited}), 64), 64u);
}

}  // namespace
}  // namespace tutti::engine
