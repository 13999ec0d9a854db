// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the library says is wrong reaches the caller as a Status, and nothing waits for ever.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ranks.hpp"
#include "support/scoped_environment.hpp"

namespace tutti::ccl {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Status sum_of_ints(Rank me, std::size_t count = 4) {
  const std::vector<int> send(count, 1);
  std::vector<int> recv(count);
  return me.library.all_reduce(send.data(), recv.data(), count, NcclType::kInt32, NcclOp::kSum,
                               me.communicator, nullptr);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(CclFailures, init_rank__missing_rank_is_a_timeout) {
  const auto answer = test::in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto id = (*library)->unique_id();
    CHILD_OK(id.status());
    const auto begin = std::chrono::steady_clock::now();
    const auto communicator = (*library)->init_rank(2, *id, 0, 0.3);
    const double waited = seconds_since(begin);
    CHILD_EXPECT(communicator.status().code() == ErrorCode::kTimeout, "code");
    const std::string text = communicator.status().message();
    CHILD_EXPECT(contains(text, "ncclCommInitRankConfig: rank 0 of 2 waited 0.3 s"), text);
    CHILD_EXPECT(waited >= 0.3 && waited < 20, std::to_string(waited));
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclFailures, init_rank__stalled_init_is_a_timeout_on_that_rank) {
  const test::ScopedEnvironment stall("FAKE_CCL_STALL", "ncclCommInitRankConfig@1");
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared, 0.3);
    if (communicator.ok()) {
      CHILD_OK((*library)->abort(*communicator));
    }
    return to_string(communicator.status().code());
  });
  EXPECT_EQ(answers, (std::vector<std::string>{"ok", "timeout"}));
}

TEST(CclFailures, init_rank__failure_is_a_status_with_the_librarys_words) {
  const test::ScopedEnvironment fail("FAKE_CCL_FAIL", "ncclCommInitRankConfig");
  const auto answer = test::in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = (*library)->init_rank(1, *(*library)->unique_id(), 0, 5);
    return std::string(to_string(communicator.status().code())) + "|" +
           communicator.status().message();
  });
  EXPECT_EQ(answer,
            "library failed|ncclCommInitRankConfig: internal error: ncclCommInitRankConfig told to "
            "fail by FAKE_CCL_FAIL");
}

TEST(CclFailures, init_rank__impossible_ranks_and_ids) {
  const auto answer = test::in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const UniqueId none{};
    for (const auto& [ranks, rank] : {std::pair{0, 0}, {2, 2}, {2, -1}}) {
      const auto communicator = (*library)->init_rank(ranks, none, rank, 1);
      CHILD_EXPECT(communicator.status().code() == ErrorCode::kInvalidArgument,
                   communicator.status().message());
    }
    const auto communicator = (*library)->init_rank(2, none, 0, 1);
    CHILD_EXPECT(contains(communicator.status().message(), "unique id"),
                 communicator.status().message());
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclFailures, init_rank__rank_that_dies_during_init_is_an_error_for_the_others) {
  const auto answers = test::in_ranks(3, [](int rank, test::Shared& shared) -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const UniqueId id = shared.from_rank_zero(rank, *(*library)->unique_id());
    if (rank == 1) {
      return "";  // Never comes.
    }
    // Rank 2 gives up first; rank 0 hears of that long before its own timeout.
    const auto communicator = (*library)->init_rank(3, id, rank, rank == 2 ? 0.5 : 60);
    return to_string(communicator.status().code());
  });
  EXPECT_EQ(answers, (std::vector<std::string>{"library failed", "", "timeout"}));
}

TEST(CclFailures, operations__failure_is_a_status_with_the_librarys_words) {
  const test::ScopedEnvironment fail("FAKE_CCL_FAIL", "ncclAllReduce:2");
  const auto answers = on_ranks(2, [](Rank me) -> std::string {
    CHILD_OK(sum_of_ints(me));
    CHILD_OK(sum_of_ints(me));
    const Status third = sum_of_ints(me);
    CHILD_EXPECT(third.code() == ErrorCode::kLibraryFailed, "code");
    CHILD_EXPECT(third.message() ==
                     "ncclAllReduce: internal error: ncclAllReduce told to fail "
                     "by FAKE_CCL_FAIL",
                 third.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(CclFailures, operations__each_symbol_fails_under_its_own_name) {
  const char* const symbols[] = {"ncclAllReduce", "ncclBroadcast",     "ncclReduce",
                                 "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                 "ncclRecv"};
  for (const std::string symbol : symbols) {
    const test::ScopedEnvironment fail("FAKE_CCL_FAIL", symbol);
    const auto answers = on_ranks(1, [&](Rank me) -> std::string {
      int from = 1;
      int to = 0;
      const auto type = NcclType::kInt32;
      const CclComm comm = me.communicator;
      std::vector<Status> failed;
      for (Status& status : std::vector<Status>{
               me.library.all_reduce(&from, &to, 1, type, NcclOp::kSum, comm, nullptr),
               me.library.broadcast(&from, &to, 1, type, 0, comm, nullptr),
               me.library.reduce(&from, &to, 1, type, NcclOp::kSum, 0, comm, nullptr),
               me.library.all_gather(&from, &to, 1, type, comm, nullptr),
               me.library.reduce_scatter(&from, &to, 1, type, NcclOp::kSum, comm, nullptr),
               me.library.group_start(),
               me.library.send(&from, 1, type, 0, comm, nullptr),
               me.library.recv(&to, 1, type, 0, comm, nullptr),
           }) {
        if (!status.ok()) {
          failed.push_back(std::move(status));
        }
      }
      // A group in which a call failed fails as a whole.
      const bool in_group = symbol == "ncclSend" || symbol == "ncclRecv";
      CHILD_EXPECT(me.library.group_end().ok() == !in_group, "group end");
      CHILD_EXPECT(failed.size() == 1, std::to_string(failed.size()));
      CHILD_EXPECT(contains(failed[0].message(), symbol + ": internal error"), failed[0].message());
      return "";
    });
    EXPECT_EQ(answers, test::all_well(1)) << symbol;
  }
}

TEST(CclFailures, operations__wrong_arguments_are_refused_by_the_library) {
  const auto answers = on_ranks(1, [](Rank me) -> std::string {
    int buffer = 1;
    const Status type = me.library.all_reduce(&buffer, &buffer, 1, static_cast<NcclType>(77),
                                              NcclOp::kSum, me.communicator, nullptr);
    CHILD_EXPECT(type.message() ==
                     "ncclAllReduce: invalid argument: invalid "
                     "type 77",
                 type.message());
    const Status op = me.library.all_reduce(&buffer, &buffer, 1, NcclType::kInt32,
                                            static_cast<NcclOp>(9), me.communicator, nullptr);
    CHILD_EXPECT(contains(op.message(), "invalid operation 9"), op.message());
    const Status root =
        me.library.broadcast(&buffer, &buffer, 1, NcclType::kInt32, 1, me.communicator, nullptr);
    CHILD_EXPECT(contains(root.message(), "invalid root or peer 1"), root.message());
    const Status null = me.library.all_reduce(nullptr, &buffer, 1, NcclType::kInt32, NcclOp::kSum,
                                              me.communicator, nullptr);
    CHILD_EXPECT(contains(null.message(), "null buffer"), null.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(1));
}

TEST(CclFailures, operations__null_communicator_is_an_invalid_argument) {
  const auto answers = on_ranks(1, [](Rank me) -> std::string {
    Rank nobody = me;
    nobody.communicator = nullptr;
    CHILD_EXPECT(sum_of_ints(nobody).code() == ErrorCode::kInvalidArgument, "op");
    CHILD_EXPECT(me.library.destroy(nullptr).code() == ErrorCode::kInvalidArgument, "destroy");
    CHILD_EXPECT(me.library.abort(nullptr).code() == ErrorCode::kInvalidArgument, "abort");
    CHILD_EXPECT(me.library.async_error(nullptr).code() == ErrorCode::kInvalidArgument,
                 "async error");
    return "";
  });
  EXPECT_EQ(answers, test::all_well(1));
}

TEST(CclFailures, operations__ranks_that_disagree_are_told) {
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared);
    CHILD_OK(communicator.status());
    const Status status = sum_of_ints({**library, *communicator, rank, 2, shared}, 4 + rank);
    CHILD_OK((*library)->abort(*communicator));
    return status.message();
  });
  // The one that notices second may find its peer gone already.
  EXPECT_TRUE(std::any_of(answers.begin(), answers.end(),
                          [](const std::string& answer) {
                            return contains(answer, "invalid usage") &&
                                   contains(answer, "called ncclAllReduce of");
                          }))
      << answers[0] << "\n"
      << answers[1];
  for (const std::string& answer : answers) {
    EXPECT_TRUE(contains(answer, "ncclAllReduce: ")) << answer;
  }
}

TEST(CclFailures, group_end__without_a_group_is_refused_by_the_library) {
  const auto answers = on_ranks(1, [](Rank me) -> std::string {
    const Status status = me.library.group_end();
    CHILD_EXPECT(
        status.message() == "ncclGroupEnd: invalid usage: ncclGroupEnd without ncclGroupStart",
        status.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(1));
}

TEST(CclFailures, group_end__failure_is_a_status_and_closes_the_group) {
  const test::ScopedEnvironment fail("FAKE_CCL_FAIL", "ncclGroupEnd@0");
  const auto answers = on_ranks(1, [](Rank me) -> std::string {
    CHILD_OK(me.library.group_start());
    CHILD_OK(sum_of_ints(me));
    const Status status = me.library.group_end();
    CHILD_EXPECT(contains(status.message(), "ncclGroupEnd: internal error"), status.message());
    unsetenv("FAKE_CCL_FAIL");
    CHILD_OK(sum_of_ints(me));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(1));
}

TEST(CclFailures, group_start__failure_opens_no_group) {
  const test::ScopedEnvironment fail("FAKE_CCL_FAIL", "ncclGroupStart");
  const auto answers = on_ranks(1, [](Rank me) -> std::string {
    const Status status = me.library.group_start();
    CHILD_EXPECT(contains(status.message(), "ncclGroupStart: internal error"), status.message());
    CHILD_OK(sum_of_ints(me));  // Runs at once: no group is open.
    return "";
  });
  EXPECT_EQ(answers, test::all_well(1));
}

TEST(CclFailures, async_error__tells_of_a_peer_that_is_gone) {
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared);
    CHILD_OK(communicator.status());
    const Rank me{**library, *communicator, rank, 2, shared};
    CHILD_OK(sum_of_ints(me));
    CHILD_OK(me.library.async_error(me.communicator));
    if (rank == 1) {
      _exit(0);  // Without destroy, as a process that was killed.
    }
    const auto begin = std::chrono::steady_clock::now();
    const Status status = sum_of_ints(me);
    CHILD_EXPECT(seconds_since(begin) < 30, "slow");
    CHILD_EXPECT(contains(status.message(), "remote process exited"), status.message());
    const Status again = me.library.async_error(me.communicator);
    CHILD_EXPECT(again.code() == ErrorCode::kLibraryFailed, again.message());
    CHILD_EXPECT(contains(again.message(), "rank 1 is gone"), again.message());
    CHILD_OK(me.library.abort(me.communicator));
    // Another thread may have been on its way into a call.
    CHILD_EXPECT(me.library.async_error(me.communicator).code() == ErrorCode::kInvalidArgument, "");
    CHILD_EXPECT(sum_of_ints(me).code() == ErrorCode::kInvalidArgument, "a call after abort");
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(CclFailures, abort__frees_a_peer_that_waits) {
  const test::ScopedEnvironment fail("FAKE_CCL_FAIL", "ncclAllReduce@1");
  const auto answers = test::in_ranks(2, [](int rank, test::Shared& shared) -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared);
    CHILD_OK(communicator.status());
    const Status status = sum_of_ints({**library, *communicator, rank, 2, shared});
    CHILD_EXPECT(status.code() == ErrorCode::kLibraryFailed, status.message());
    CHILD_OK((*library)->abort(*communicator));
    shared.barrier();  // Neither process ends before both have their error.
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(CclFailures, destroy__failure_is_a_status) {
  const test::ScopedEnvironment fail("FAKE_CCL_FAIL", "ncclCommDestroy");
  const auto answer = test::in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = (*library)->init_rank(1, *(*library)->unique_id(), 0, 5);
    CHILD_OK(communicator.status());
    return (*library)->destroy(*communicator).message();
  });
  EXPECT_EQ(answer,
            "ncclCommDestroy: internal error: ncclCommDestroy told to fail by FAKE_CCL_FAIL");
}

TEST(CclFailures, unique_id__failure_is_a_status) {
  const test::ScopedEnvironment fail("FAKE_CCL_FAIL", "ncclGetUniqueId");
  const auto answer = test::in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    return to_string((*library)->unique_id().status().code());
  });
  EXPECT_EQ(answer, "library failed");
}

TEST(CclFailures, log__one_line_a_call) {
  const std::string path = "/tmp/tutti-ccl-log-" + std::to_string(getpid());
  {
    const test::ScopedEnvironment log("FAKE_CCL_LOG", path);
    const auto answers = on_ranks(1, [](Rank me) -> std::string {
      CHILD_OK(sum_of_ints(me, 12));
      return "";
    });
    EXPECT_EQ(answers, test::all_well(1));
  }
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  unlink(path.c_str());
  EXPECT_EQ(lines, (std::vector<std::string>{"ncclGetVersion - - - -", "ncclGetUniqueId - - - -",
                                             "ncclCommInitRankConfig - - - 0/1",
                                             "ncclAllReduce 12 int32 sum 0/1",
                                             "ncclCommDestroy - - - 0/1"}));
}

TEST(CclFailures, lifetime__communicators_come_and_go) {
  // Children look for leaks when they end.
  const auto answer = test::in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    for (int round = 0; round < 3; ++round) {
      const auto id = (*library)->unique_id();
      CHILD_OK(id.status());
      const auto communicator = (*library)->init_rank(1, *id, 0, 5);
      CHILD_OK(communicator.status());
      const int from = 20 + round;
      int to = 0;
      CHILD_OK((*library)->all_reduce(&from, &to, 1, NcclType::kInt32, NcclOp::kSum, *communicator,
                                      nullptr));
      CHILD_EXPECT(to == from, std::to_string(to));
      CHILD_OK(round == 2 ? (*library)->abort(*communicator) : (*library)->destroy(*communicator));
    }
    const auto id = (*library)->unique_id();
    CHILD_OK(id.status());
    return to_string((*library)->init_rank(2, *id, 1, 0.1).status().code());
  });
  EXPECT_EQ(answer, "timeout");
}

}  // namespace
}  // namespace tutti::ccl
