// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs of processes over the loopback: every collective, and ranks that die, stop, or do something
// else. tests/python and tests/lab run the measured program over it.
#include "runners/net/net_runner.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/collective_cases.hpp"
#include "support/forked_ranks.hpp"

namespace tutti::runners {
namespace {

using testing::CollectiveCase;
using Clock = std::chrono::steady_clock;

struct Address {
  char text[64] = {};
};

/// A rank of a job on two nodes (one, if there are two ranks or fewer).
Result<std::unique_ptr<NetRunner>> join(int rank, test::Shared& shared, double timeout_s = 60) {
  // A child that hangs must not outlive the test.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
  net::TcpBootstrapOptions options;
  options.rank = rank;
  options.ranks = shared.ranks();
  options.address = "127.0.0.1:0";
  options.key = "job";
  std::unique_ptr<net::TcpBootstrap> bootstrap;
  Address address;
  if (rank == 0) {
    TUTTI_ASSIGN_OR_RETURN(bootstrap, net::TcpBootstrap::open(options));
    std::strncpy(address.text, bootstrap->address().c_str(), sizeof address.text - 1);
  }
  address = shared.from_rank_zero(rank, address);
  if (rank != 0) {
    options.address = address.text;
    TUTTI_ASSIGN_OR_RETURN(bootstrap, net::TcpBootstrap::open(options));
  }
  TUTTI_RETURN_IF_ERROR(bootstrap->join());
  TUTTI_ASSIGN_OR_RETURN(auto network, net::open_network([](net::LogKind, const auto&) {}));
  NetRunner::Options of_runner;
  of_runner.rank = rank;
  of_runner.node = "node" + std::to_string(shared.ranks() > 2 ? rank % 2 : 0);
  of_runner.timeout_s = timeout_s;
  return NetRunner::create(std::move(network), std::move(bootstrap), of_runner);
}

/// No rank goes on, or leaves, before all have what they wait for.
std::string meet_again(NetRunner& runner) {
  const auto all = runner.bootstrap().all_gather("", 60);
  CHILD_OK(all.status());
  return "";
}

class NetRunnerOf : public ::testing::TestWithParam<int> {};

TEST_P(NetRunnerOf, CarriesEveryAlgorithm) {
  const int ranks = GetParam();
  const auto answers = test::in_ranks(ranks, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    const auto& layout = (*runner)->layout();
    CHILD_EXPECT(layout.ranks() == shared.ranks() && layout.nodes() == (shared.ranks() > 2 ? 2 : 1),
                 std::to_string(layout.nodes()));
    for (const schedule::Algorithm& algorithm : schedule::algorithms()) {
      for (const std::uint64_t count : {0U, 1U, 1001U}) {
        for (const bool in_place : {false, true}) {
          CollectiveCase test(algorithm.collective, rank, shared.ranks(), shared.ranks() - 1, count,
                              in_place, false);
          if (!(*runner)->refusal(algorithm.name, test.call).empty()) {
            CHILD_EXPECT(std::string(algorithm.name) == "neighbor-exchange",
                         (*runner)->refusal(algorithm.name, test.call));
            continue;
          }
          const std::string name = std::string(to_string(algorithm.collective)) + " by " +
                                   algorithm.name + " of " + std::to_string(count);
          const Status status = (*runner)->run(algorithm.name, {}, test.call);
          CHILD_EXPECT(status.ok(), name + ": " + status.message());
          CHILD_EXPECT(algorithm.collective == select::Collective::kBarrier || test.wrong() == 0,
                       name + ": " + std::to_string(test.wrong()) + " wrong elements");
        }
      }
    }
    return meet_again(**runner);
  });
  EXPECT_EQ(answers, test::all_well(ranks));
}

INSTANTIATE_TEST_SUITE_P(Ranks, NetRunnerOf, ::testing::Values(1, 2, 3, 4));

TEST(NetRunner, CarriesLargeBlocksAndMoreMessagesThanTheTransportTakes) {
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    for (const auto& [name, segments] : {std::pair{"ring", 700}, std::pair{"linear", 1}}) {
      CollectiveCase test(select::Collective::kAllgather, rank, 3, 0, 100'003, false, false);
      CHILD_OK((*runner)->run(name, {0, segments}, test.call));
      CHILD_EXPECT(test.wrong() == 0, name);
    }
    CollectiveCase sum(select::Collective::kAllreduce, rank, 3, 0, 200'001, true, false);
    CHILD_OK((*runner)->run("ring", {0, 300}, sum.call));
    CHILD_EXPECT(sum.wrong() == 0, "allreduce");
    return meet_again(**runner);
  });
  EXPECT_EQ(answers, test::all_well(3));
}

/// Of an alltoallv with one byte more between ranks 0 and 1 rank 2 has run the program before.
TEST(NetRunner, RanksMayPrepareDifferentPrograms) {
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    for (const bool more : {false, true, false}) {
      std::vector<std::uint64_t> counts = {1, 1, 1};
      if (more && rank < 2) {
        counts[static_cast<std::size_t>(1 - rank)] = 2;
      }
      const std::vector<std::uint64_t> offsets = {0, counts[0], counts[0] + counts[1]};
      std::vector<char> send(offsets[2] + 1, static_cast<char>('a' + rank));
      std::vector<char> recv(send.size(), '-');
      Call call;
      call.collective = select::Collective::kAlltoallv;
      call.send = send.data();
      call.recv = recv.data();
      call.send_counts = call.recv_counts = counts;
      call.send_offsets = call.recv_offsets = offsets;
      CHILD_OK((*runner)->run("linear", {}, call));
      const std::string wanted = std::string(counts[0], 'a') + std::string(counts[1], 'b') + "c";
      CHILD_EXPECT(std::string(recv.begin(), recv.end()) == wanted, wanted);
    }
    return meet_again(**runner);
  });
  EXPECT_EQ(answers, test::all_well(3));
}

/// Rank r's piece has n + r bytes, and the root's buffer a gap before each piece.
std::string move_pieces(NetRunner& runner, select::Collective collective, int root,
                        std::uint64_t n) {
  const bool gathers = collective == select::Collective::kGatherv;
  std::vector<std::uint64_t> counts, offsets;
  std::string whole;
  for (int rank = 0; rank < runner.ranks(); ++rank) {
    counts.push_back(n + static_cast<std::uint64_t>(rank));
    whole += '-';
    offsets.push_back(whole.size());
    whole += std::string(counts.back(), static_cast<char>('a' + rank));
  }
  const auto self = static_cast<std::size_t>(runner.rank());
  std::string piece(counts[self], static_cast<char>('a' + runner.rank()));
  std::string at_root = gathers ? std::string(whole.size(), '-') : whole;
  std::string at_piece = gathers ? piece : std::string(piece.size(), '?');
  Call call;
  call.collective = collective;
  call.root = root;
  call.count = piece.size();
  call.send = gathers ? at_piece.data() : at_root.data();
  call.recv = gathers ? at_root.data() : at_piece.data();
  if (runner.rank() == root) {
    (gathers ? call.recv_counts : call.send_counts) = counts;
    (gathers ? call.recv_offsets : call.send_offsets) = offsets;
  }
  CHILD_EXPECT(runner.refusal("linear", call).empty(), runner.refusal("linear", call));
  CHILD_OK(runner.run("linear", {}, call));
  CHILD_EXPECT(!gathers || runner.rank() != root || at_root == whole, at_root);
  CHILD_EXPECT(at_piece == piece, at_piece);
  return "";
}

TEST(NetRunner, CarriesPiecesOfARootWhoseCountsTheOthersDoNotKnow) {
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    for (const auto collective : {select::Collective::kGatherv, select::Collective::kScatterv}) {
      for (int root = 0; root < 3; ++root) {
        for (const std::uint64_t n : {0U, 5U, 100'000U}) {
          if (std::string why = move_pieces(**runner, collective, root, n); !why.empty()) {
            return why;
          }
        }
      }
    }
    return meet_again(**runner);
  });
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(NetRunner, SaysWhatItCannotCarry) {
  const auto answers = test::in_ranks(1, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    Call call;
    call.collective = select::Collective::kAllreduce;
    call.count = 1;
    call.type = select::DataType::kFloat32;
    call.op = select::ReduceOp::kUser;
    CHILD_EXPECT((*runner)->refusal("ring", call) == "no reduction user of float32",
                 (*runner)->refusal("ring", call));
    call.op = select::ReduceOp::kSum;
    CHILD_EXPECT((*runner)->refusal("ring", call).empty(), (*runner)->refusal("ring", call));
    CHILD_EXPECT((*runner)
                     ->refusal("bruck", call)
                     .starts_with("no algorithm bruck for allreduce; "
                                  "there are ring, "),
                 (*runner)->refusal("bruck", call));
    call.collective = select::Collective::kScan;
    CHILD_EXPECT((*runner)->refusal("ring", call) == "no algorithm ring for scan, which has none",
                 (*runner)->refusal("ring", call));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(1));
}

/// Ranks but `victim` call until there is an error, which must come within `bound_s` of what the
/// victim does and say `words`.
std::vector<std::string> with_victim(int ranks, int victim, const char* algorithm,
                                     const std::function<void()>& then, double bound_s,
                                     const std::string& words) {
  return test::in_ranks(ranks, [&](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    std::vector<std::byte> send(100'000);
    std::vector<std::byte> recv(send.size() * static_cast<std::size_t>(shared.ranks()));
    Call call;
    call.collective = select::Collective::kAllgather;
    call.count = send.size();
    call.send = send.data();
    call.recv = recv.data();
    for (int i = 0; i < 5; ++i) {
      CHILD_OK((*runner)->run(algorithm, {}, call));
    }
    if (std::string why = meet_again(**runner); !why.empty()) {
      return why;
    }
    if (rank == victim) {
      then();
    }
    const auto start = Clock::now();
    Status status;
    while (status.ok()) {
      status = (*runner)->run(algorithm, {}, call);
    }
    const double took_s = std::chrono::duration<double>(Clock::now() - start).count();
    CHILD_EXPECT(status.code() == ErrorCode::kTimeout, status.message());
    CHILD_EXPECT(status.message().find(words) != std::string::npos, status.message());
    CHILD_EXPECT(took_s < bound_s, std::to_string(took_s) + " s");
    // The memory is the caller's again, and no later call works.
    std::fill(recv.begin(), recv.end(), std::byte{7});
    CHILD_EXPECT(!(*runner)->run(algorithm, {}, call).ok(), "a call after the error");
    for (const std::byte byte : recv) {
      CHILD_EXPECT(byte == std::byte{7}, "written after the error");
    }
    return "";
  });
}

TEST(NetRunner, ARankThatDiesIsAnErrorOnAllWithItsName) {
  for (const int victim : {0, 2}) {
    auto answers = with_victim(
        4, victim, "ring", [] { raise(SIGKILL); }, 3, "rank " + std::to_string(victim) + " (");
    std::vector<std::string> expected = test::all_well(4);
    expected[static_cast<std::size_t>(victim)] = "died of signal 9";
    EXPECT_EQ(answers, expected);
  }
}

/// Stops this process; another one ends it later, or nobody would.
void fall_silent() {
  const pid_t self = getpid();
  if (fork() == 0) {
    sleep(4);
    kill(self, SIGKILL);
    _exit(0);
  }
  raise(SIGSTOP);
}

TEST(NetRunner, ARankThatFallsSilentIsAnErrorAfterTheNetworksTimeout) {
  setenv("TUTTI_NET_TIMEOUT", "1", 1);
  const auto answers = with_victim(3, 2, "linear", fall_silent, 3.5, "rank 2: ");
  unsetenv("TUTTI_NET_TIMEOUT");
  EXPECT_EQ(answers, (std::vector<std::string>{"", "", "died of signal 9"}));
}

/// It answers no channel until it is in the call.
TEST(NetRunner, ARankMayBeLateForLongerThanTheNetworksTimeout) {
  setenv("TUTTI_NET_TIMEOUT", "2", 1);
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    for (const int late : {2, 0}) {
      if (rank == late) {
        std::this_thread::sleep_for(std::chrono::seconds(4));
      }
      CollectiveCase test(select::Collective::kAllreduce, rank, 3, 0, 8, false, false);
      CHILD_OK((*runner)->run(late == 2 ? "ring" : "recursive-doubling", {}, test.call));
      CHILD_EXPECT(test.wrong() == 0, "wrong elements");
    }
    return meet_again(**runner);
  });
  unsetenv("TUTTI_NET_TIMEOUT");
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(NetRunner, ARankThatDoesNotComeIsAnErrorAfterTheTimeout) {
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared, 0.5);
    CHILD_OK(runner.status());
    CollectiveCase first(select::Collective::kAllreduce, rank, 3, 0, 8, false, false);
    if (rank != 1) {
      const Status status = (*runner)->run("ring", {}, first.call);
      CHILD_EXPECT(status.code() == ErrorCode::kTimeout, status.message());
      CHILD_EXPECT(status.message().find("rank 1: net: no channel with it") != std::string::npos,
                   status.message());
    } else {
      // Its processes live on: the others find it missing, not dead.
      CHILD_EXPECT(!(*runner)->bootstrap().news(20).ok(), "no news");
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(NetRunner, TheLateRankIsNamedAndNotOneThatWaitsForIt) {
  const auto answers = test::in_ranks(4, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared, 2);
    CHILD_OK(runner.status());
    CollectiveCase test(select::Collective::kAllreduce, rank, 4, 0, 8, false, false);
    CHILD_OK((*runner)->run("recursive-doubling", {}, test.call));
    if (rank == 3) {
      CHILD_EXPECT(!(*runner)->bootstrap().news(20).ok(), "no news");
      return "";
    }
    const Status status = (*runner)->run("recursive-doubling", {}, test.call);
    CHILD_EXPECT(status.code() == ErrorCode::kTimeout, status.message());
    CHILD_EXPECT(
        status.message().find("not in the exchange yet after 1 s: rank 3") != std::string::npos,
        status.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(4));
}

/// As above, of a rank that only sends.
TEST(NetRunner, ARankThatMakesNoChannelIsAnErrorAfterTheTimeout) {
  const auto answers = test::in_ranks(
      2,
      [](int rank, test::Shared& shared) -> std::string {
        auto runner = join(rank, shared, 2);
        CHILD_OK(runner.status());
        const std::string words = "rank 0: net: no channel with it";
        if (rank == 0) {
          const Status status = (*runner)->bootstrap().news(15);
          CHILD_EXPECT(status.message().find("rank 1 has given up: " + words) != std::string::npos,
                       status.message());
          return "";
        }
        CollectiveCase test(select::Collective::kBcast, rank, 2, 0, 8, true, false);
        const Status status = (*runner)->run("chain", {}, test.call);
        CHILD_EXPECT(status.code() == ErrorCode::kTimeout, status.message());
        CHILD_EXPECT(status.message().starts_with(words), status.message());
        return "";
      },
      std::chrono::seconds(20));
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(NetRunner, AnotherCallOfTheSameMessagesIsNotTakenForIt) {
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared, 1);
    CHILD_OK(runner.status());
    const auto collective =
        rank == 0 ? select::Collective::kAllgather : select::Collective::kAlltoall;
    CollectiveCase test(collective, rank, 2, 0, 8, false, false);
    const Status status = (*runner)->run("linear", {}, test.call);
    CHILD_EXPECT(status.code() == ErrorCode::kTimeout, status.message());
    CHILD_EXPECT(status.message().find("; do all ranks make the same calls?") != std::string::npos,
                 status.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(NetRunner, RanksThatMakeDifferentCallsAreToldSo) {
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    auto runner = join(rank, shared);
    CHILD_OK(runner.status());
    CollectiveCase test(select::Collective::kAllgather, rank, 2, 0, rank == 0 ? 1000 : 2000, false,
                        false);
    const Status status = (*runner)->run("ring", {}, test.call);
    CHILD_EXPECT(!status.ok(), "no error");
    CHILD_EXPECT(status.message().find("same call") != std::string::npos ||
                     status.message().find("longer than the receive") != std::string::npos,
                 status.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

}  // namespace
}  // namespace tutti::runners
