// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Bring-up among processes that have met: usable on all, or refused on all in bounded time.
#include "runners/net/net_start.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "support/forked_ranks.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {
namespace {

constexpr int kRanks = 3;
constexpr Bytes kBytesMax = 4096;

/// The caller's: it waits for ever where a rank does not come.
class SharedBootstrap : public Bootstrap {
 public:
  SharedBootstrap(int rank, test::Shared& shared, std::byte* memory, int dies_after)
      : rank_(rank), shared_(shared), memory_(memory), dies_after_(dies_after) {}

  Status allgather(const void* send, void* recv, Bytes bytes_each) override {
    if (bytes_each > kBytesMax / kRanks) {
      return Status(ErrorCode::kInvalidArgument, "too much for a test");
    }
    std::memcpy(memory_ + static_cast<Bytes>(rank_) * bytes_each, send, bytes_each);
    shared_.barrier();
    std::memcpy(recv, memory_, kRanks * bytes_each);
    shared_.barrier();
    if (++gathers_ == dies_after_) {
      raise(SIGKILL);
    }
    return {};
  }
  Status max_in_place(std::uint64_t* /*values*/, int /*count*/) override { return {}; }
  Status make_scopes(int /*node*/) override { return {}; }
  ScopeRank scope_rank(Scope /*scope*/) const override { return {rank_, kRanks}; }

 private:
  int rank_;
  test::Shared& shared_;
  std::byte* memory_;
  int dies_after_;
  int gathers_ = 0;
};

TEST(NetStart, ARankThatDiesOnceAllAreConnectedIsARefusalOnTheOthers) {
  for (const int victim : {0, 2}) {
    auto* const memory = static_cast<std::byte*>(
        mmap(nullptr, kBytesMax, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    const auto answers = test::in_ranks(
        kRanks,
        [&](int rank, test::Shared& shared) -> std::string {
          prctl(PR_SET_PDEATHSIG, SIGKILL);
          setenv("NCCL_SOCKET_IFNAME", "lo", 1);
          setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
          SharedBootstrap bootstrap(rank, shared, memory, rank == victim ? 2 : 0);
          NetRunner::Options options;
          options.rank = rank;
          options.layout = topology::make_layout({0, 1, 0});
          options.timeout_s = 0;
          std::string refusal;
          const auto runner = start_net_runner(bootstrap, options, &refusal);
          CHILD_OK(runner.status());
          CHILD_EXPECT(*runner == nullptr, "it is up");
          CHILD_EXPECT(refusal.find("rank " + std::to_string(victim) + " (") != std::string::npos,
                       refusal);
          return "";
        },
        std::chrono::seconds(20));
    std::vector<std::string> expected = test::all_well(kRanks);
    expected[static_cast<std::size_t>(victim)] = "died of signal 9";
    EXPECT_EQ(answers, expected);
    munmap(memory, kBytesMax);
  }
}

}  // namespace
}  // namespace tutti::runners
