// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The end of CCL runners whose library waits for all ranks in it, on the fakes of CUDA and NCCL.
// A rank that waits for ever hangs, and the test with it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ccl_ranks.hpp"

namespace tutti::runners {
namespace {

using select::Collective;
using testing::CollectiveCase;

/// Sets a variable of the fakes for the ranks of a test.
class Knob {
 public:
  Knob(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  Knob(const Knob&) = delete;
  Knob& operator=(const Knob&) = delete;
  ~Knob() { unsetenv(name_); }

 private:
  const char* name_;
};

/// Where the fake logs its calls.
class CallLog {
 public:
  explicit CallLog(int ranks = 2) : ranks_(ranks), knob_("FAKE_CCL_LOG", path_) {}
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;
  ~CallLog() { std::filesystem::remove(path_); }
  int calls(const std::string& symbol, int rank) const {
    const std::string wanted =
        symbol + " - - - " + std::to_string(rank) + "/" + std::to_string(ranks_);
    int found = 0;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      found += line == wanted ? 1 : 0;
    }
    return found;
  }

 private:
  const int ranks_;
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("tutti-ccl-" + std::to_string(getpid()))).string();
  const Knob knob_;
};

/// Threads may still be in them. What a lasting variable points to is no leak.
void leave_behind(CclRank& self) {
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  kept->emplace_back(std::move(self.library));
  kept->emplace_back(std::move(self.api));
}

TEST(CclEnd, end__of_two_in_another_order_on_each_rank) {
  const Knob meet("FAKE_CCL_MEET", "ncclCommDestroy");
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const std::string added = self.add_streams(1);
    CHILD_EXPECT(added.empty(), added);
    (self.rank == 0 ? self.runner : self.other).reset();
    (self.rank == 0 ? self.other : self.runner).reset();
    leave_behind(self);
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(CclEnd, begin_end__waits_for_no_peer) {
  const Knob meet("FAKE_CCL_MEET", "ncclCommDestroy");
  const CallLog log;
  const auto answers = on_ccl_ranks(2, [&](CclRank& self) -> std::string {
    const std::string added = self.add_streams(1);
    CHILD_EXPECT(added.empty(), added);
    if (self.rank == 0) {
      self.runner->begin_end();
      self.other->begin_end();
      while (log.calls("ncclCommDestroy", 0) < 2) {
        usleep(1000);
      }
    }
    self.shared.barrier();
    self.other.reset();
    self.runner.reset();
    leave_behind(self);
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
  EXPECT_EQ(log.calls("ncclCommDestroy", 0), 2);
  EXPECT_EQ(log.calls("ncclCommDestroy", 1), 2);
}

/// The peer lives and does not come to its end.
TEST(CclEnd, end__after_a_failure_elsewhere_is_an_abort) {
  const Knob meet("FAKE_CCL_MEET", "ncclCommDestroy");
  const CallLog log;
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    if (self.rank == 0) {
      self.runner->calls().set_failed();
      self.runner.reset();
    }
    self.shared.barrier();
    self.runner.reset();
    leave_behind(self);
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
  EXPECT_EQ(log.calls("ncclCommAbort", 0), 1);
  EXPECT_EQ(log.calls("ncclCommDestroy", 0), 0);
  EXPECT_EQ(log.calls("ncclCommDestroy", 1), 1);
}

/// As in versions whose abort waits for the ranks of a node.
TEST(CclEnd, run__a_time_out_does_not_wait_for_the_abort) {
  const Knob meet("FAKE_CCL_MEET", "ncclCommAbort,ncclCommDestroy");
  const Knob stall("FAKE_CCL_STALL", "ncclAllReduce:0");
  const auto answers = on_ccl_ranks(
      2,
      [](CclRank& self) -> std::string {
        if (self.rank == 0) {
          const CollectiveCase test(Collective::kAllreduce, 0, 2, 0, 100, false, false);
          const Status status = self.runner->run(Scope::kWhole, self.placed(test, true));
          CHILD_EXPECT(status.code() == ErrorCode::kTimeout, status.message());
          self.runner.reset();
        }
        self.shared.barrier();
        self.runner.reset();
        leave_behind(self);
        return "";
      },
      2);
  EXPECT_EQ(answers, test::all_well(2));
}

/// NCCL connects to a peer in the first call that needs it, however long that takes.
TEST(CclEnd, run__a_call_that_stays_in_the_library_is_a_timeout) {
  const Knob connect("FAKE_CCL_CONNECT", "ncclAllReduce:0@0");
  for (const bool in_chunks : {false, true}) {
    const auto answers = on_ccl_ranks(
        2,
        [&](CclRank& self) -> std::string {
          const std::string added = self.add_streams(2);
          CHILD_EXPECT(added.empty(), added);
          const CollectiveCase test(Collective::kAllreduce, self.rank, 2, 0, 100, false, false);
          const Call call = self.placed(test, true);
          const Status status = in_chunks
                                    ? self.runner->run_pipeline(select::Pipeline::kComms, 2, call)
                                    : self.runner->run(Scope::kWhole, call);
          CHILD_EXPECT(!status.ok(), "went well");
          CHILD_EXPECT(self.rank == 1 || status.code() == ErrorCode::kTimeout, status.message());
          CHILD_EXPECT(!self.runner->run(Scope::kWhole, call).ok(), "went well later");
          return "";
        },
        1);
    EXPECT_EQ(answers, test::all_well(2));
  }
}

TEST(CclEnd, run_queued__a_late_call_is_out_of_the_library_before_its_communicator_ends) {
  const CallLog log(1);
  const auto answers = on_ccl_ranks(
      1,
      [&](CclRank& self) -> std::string {
        const CollectiveCase test(Collective::kAllreduce, self.rank, 1, 0, 100, false, false);
        int aborted = 0;
        const Status status = self.runner->run_queued(
            self.placed(test, true), [&](const Call&, CclRunner::Target&) -> Status {
              usleep(500'000);  // After the time-out and within the grace.
              aborted = log.calls("ncclCommAbort", 0);
              return {};
            });
        CHILD_EXPECT(status.code() == ErrorCode::kTimeout, status.message());
        CHILD_EXPECT(aborted == 0, "aborted with a call in the library");
        self.runner.reset();
        CHILD_EXPECT(log.calls("ncclCommAbort", 0) == 1, "not aborted");
        return "";
      },
      0.2);
  EXPECT_EQ(answers, test::all_well(1));
}

/// A process that ends right after a call: the driver answers that it is gone.
TEST(CclEnd, enqueue_on__a_driver_that_is_gone_ends_nothing) {
  const CallLog log;
  const Knob stall("FAKE_CCL_STALL", "ncclAllReduce:0");
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const auto cuda = DynamicLibrary::open(FAKE_CUDA);
    void (*fail)(const char*) = nullptr;
    CHILD_EXPECT(cuda.ok() && cuda->resolve("tutti_fake_fail", &fail), "no failures");
    const CollectiveCase test(Collective::kAllreduce, self.rank, 2, 0, 100, false, false);
    const device::Stream stream = *self.api->create_stream(self.rank);
    CHILD_OK(self.runner->enqueue_on(self.placed(test, true), stream, false));
    fail("cuEventQuery=4");
    usleep(300'000);  // The watch has looked.
    const Status status = self.runner->calls().status(/*wait=*/false);
    CHILD_EXPECT(status.code() == ErrorCode::kUnavailable, status.message());
    _exit(0);
  });
  EXPECT_EQ(answers, test::all_well(2));
  EXPECT_EQ(log.calls("ncclCommAbort", 0) + log.calls("ncclCommAbort", 1), 0);
}

TEST(CclEnd, run__the_watch_asks_the_driver_nothing) {
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const auto cuda = DynamicLibrary::open(FAKE_CUDA);
    long (*calls)(const char*) = nullptr;
    CHILD_EXPECT(cuda.ok() && cuda->resolve("tutti_fake_calls", &calls), "no count");
    const CollectiveCase test(Collective::kAllreduce, self.rank, 2, 0, 100, false, false);
    const auto asked = [&] {
      return calls("cuThreadExchangeStreamCaptureMode") + calls("cuEventQuery") +
             calls("cuEventRecord") + calls("cuStreamWaitEvent");
    };
    const char* const relax = "cuThreadExchangeStreamCaptureMode";
    const long relaxed = calls(relax);
    CHILD_OK(self.runner->run(Scope::kWhole, self.placed(test, true)));
    // The watch's thread has begun, which asks for that once.
    for (int i = 0; i < 20'000 && calls(relax) == relaxed; ++i) {
      usleep(1'000);
    }
    CHILD_EXPECT(calls(relax) == relaxed + 1, "no watch");
    const long before = asked();
    CHILD_OK(self.runner->run(Scope::kWhole, self.placed(test, true)));
    CHILD_EXPECT(asked() == before, std::to_string(asked() - before));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

}  // namespace
}  // namespace tutti::runners
