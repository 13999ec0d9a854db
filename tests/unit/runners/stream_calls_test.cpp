// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls on streams of the host device whose work is held back by gates.
#include "runners/stream_calls.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "runners/direct/deferred_free.hpp"
#include "runners/direct/direct_runner.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::runners {
namespace {

using namespace std::chrono_literals;

using Carrier = StreamCalls::Carrier;

/// Of a communicator with one of the members.
class Calls : public StreamCalls {
 public:
  Calls(device::Api& api, Member member, Carrier carrier = Carrier::kKernels) : carrier_(carrier) {
    join(carrier, api, 0, std::move(member));
  }
  ~Calls() { leave(carrier_); }
  template <class Queue>
  Status add(device::Stream stream, const Queue& queue) {
    return StreamCalls::add(carrier_, stream, queue);
  }
  template <class Queue>
  Status watch_over(const Queue& queue) {
    return StreamCalls::watch_over(carrier_, queue);
  }
  Status drain() { return status(/*wait=*/true); }
  Status failure() { return status(/*wait=*/false); }

 private:
  Carrier carrier_;
};

class StreamCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (device::Stream& stream : streams_) {
      stream = *api_->create_stream(0);
    }
  }
  void TearDown() override {
    gate_.release(64);
    for (const device::Stream stream : streams_) {
      EXPECT_TRUE(api_->destroy_stream(stream).ok());
    }
  }
  StreamCalls::Member member(double timeout_s) {
    return {.name = "test",
            .timeout_s = timeout_s,
            .outcome = [this] { return outcome_; },
            .look = [this] { return gone_ ? Status(ErrorCode::kTimeout, "gone") : Status(); },
            .end = [this] { ++ends_; }};
  }
  /// Work that waits for release() of the gate and then counts.
  static void held(void* self) {
    static_cast<StreamCallsTest*>(self)->gate_.acquire();
    ++static_cast<StreamCallsTest*>(self)->done_;
  }
  static void counted(void* self) { ++static_cast<StreamCallsTest*>(self)->done_; }
  auto queue(device::Stream stream, void (*work)(void*)) {
    return [this, stream, work](Lease*) -> Status {
      tutti_host_device_enqueue(stream, work, this);
      return {};
    };
  }
  template <class Condition>
  static bool comes_true(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    return condition();
  }

  std::unique_ptr<device::Api> api_ = device::open("host", nullptr);
  std::array<device::Stream, 2> streams_{};
  std::counting_semaphore<64> gate_{0};
  std::atomic<int> done_{0};
  std::atomic<int> ends_{0};
  std::atomic<bool> gone_{false};
  Status outcome_;
};

TEST_F(StreamCallsTest, add__a_call_on_another_stream_waits_for_the_one_before) {
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(calls.add(streams_[1], queue(streams_[1], &counted)).ok());
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(done_, 0);
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  EXPECT_EQ(done_, 2);
}

TEST_F(StreamCallsTest, wait_on_stream__waits_for_that_call_and_none_behind_it) {
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(calls.wait_on_stream(1, streams_[1]).ok());
  std::atomic<bool> is_behind = false;
  tutti_host_device_enqueue(
      streams_[1], [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &is_behind);
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(is_behind);
  gate_.release();
  EXPECT_TRUE(comes_true([&] { return is_behind.load(); }));
  EXPECT_EQ(done_, 1);
  EXPECT_TRUE(*calls.are_over(1));
  EXPECT_FALSE(*calls.are_over(2));
  EXPECT_EQ(ErrorCode::kInvalidArgument, calls.wait_on_stream(3, streams_[1]).code());
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  EXPECT_TRUE(calls.wait_on_stream(2, streams_[1]).ok());
}

TEST_F(StreamCallsTest, mark__is_a_call_behind_what_its_stream_has) {
  Calls calls(*api_, member(0));
  EXPECT_TRUE(calls.mark(streams_[0]).ok());  // Behind nothing.
  EXPECT_EQ(0U, calls.added());
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  tutti_host_device_enqueue(streams_[0], &held, this);
  ASSERT_TRUE(calls.mark(streams_[0]).ok());
  EXPECT_EQ(2U, calls.added());
  EXPECT_TRUE(comes_true([&] { return *calls.are_over(1); }));
  EXPECT_FALSE(*calls.are_over(2));
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  EXPECT_EQ(2, done_);
}

TEST_F(StreamCallsTest, wait_on_stream__tells_what_ended_the_calls) {
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  gone_ = true;
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
  EXPECT_EQ(ErrorCode::kTimeout, calls.wait_on_stream(1, streams_[1]).code());
  gate_.release();
}

/// Many calls that are over are found by a few questions, in whatever number they are.
TEST_F(StreamCallsTest, are_over__counts_all_that_are) {
  constexpr int kCalls = 40;
  Calls calls(*api_, member(0));
  for (const int over : {0, 1, 2, 3, 15, 27, kCalls}) {
    const std::uint64_t before = calls.added();
    for (int call = 0; call < kCalls; ++call) {
      ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
    }
    gate_.release(over);
    const std::uint64_t last = before + static_cast<std::uint64_t>(over);
    EXPECT_TRUE(comes_true([&] { return *calls.are_over(last); }));
    if (over < kCalls) {
      EXPECT_FALSE(*calls.are_over(last + 1));
    } else {
      EXPECT_EQ(ErrorCode::kInvalidArgument, calls.are_over(last + 1).status().code());
    }
    gate_.release(kCalls - over);
    ASSERT_TRUE(calls.drain().ok());
  }
}

/// Memory of a call that is over is free for the next one.
TEST_F(StreamCallsTest, add__gives_back_what_calls_have_leased) {
  Scratch scratch(api_.get(), Bytes{1} << 20);
  {
    Calls calls(*api_, member(0));
    void* first = nullptr;
    for (int call = 0; call < 5; ++call) {
      void* taken = nullptr;
      const auto lease = [&](Lease* of_call) -> Status {
        TUTTI_ASSIGN_OR_RETURN(*of_call, scratch.device(0, 1 << 20, /*may_wait=*/false));
        taken = of_call->data();
        return {};
      };
      ASSERT_TRUE(calls.add(streams_[0], lease).ok());
      ASSERT_TRUE(api_->wait_stream(streams_[0]).ok());
      first = call == 0 ? taken : first;
      EXPECT_EQ(first, taken);
    }
  }
}

/// Also what nobody has asked about when it ended, and what is found when it is over.
TEST_F(StreamCallsTest, wait_on_stream__tells_what_the_library_says_of_calls_that_are_over) {
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  EXPECT_TRUE(comes_true([&] { return *calls.are_over(1); }));
  EXPECT_TRUE(calls.wait_on_stream(1, streams_[1]).ok());
  outcome_ = Status(ErrorCode::kLibraryFailed, "what the library says");
  EXPECT_EQ("what the library says", calls.wait_on_stream(1, streams_[1]).message());
}

TEST_F(StreamCallsTest, watch__asks_the_library_when_the_last_call_is_over) {
  Calls calls(*api_, member(5));
  outcome_ = Status(ErrorCode::kLibraryFailed, "what the library says");
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  EXPECT_TRUE(comes_true([&] { return !calls.reason().ok(); }));
}

TEST_F(StreamCallsTest, glance__asks_now_and_then_and_where_nothing_is_queued) {
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  outcome_ = Status(ErrorCode::kLibraryFailed, "what the library says");
  EXPECT_TRUE(calls.glance().ok());
  Status status;
  int asked = 0;
  for (; status.ok() && asked < 40; ++asked) {
    ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok() || !calls.glance().ok());
    status = calls.glance();
  }
  EXPECT_EQ("what the library says", status.message());
  EXPECT_LT(asked, 20);
  gate_.release();
}

TEST_F(StreamCallsTest, add__a_call_of_the_other_member_waits_for_the_one_before) {
  Calls calls(*api_, member(0));
  calls.join(Carrier::kLibrary, *api_, 0, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  EXPECT_TRUE(calls.is_behind_other(Carrier::kLibrary));
  const auto counts = queue(streams_[1], &counted);
  ASSERT_TRUE(calls.StreamCalls::add(Carrier::kLibrary, streams_[1], counts).ok());
  EXPECT_FALSE(calls.is_behind_other(Carrier::kLibrary));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(done_, 0);
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  EXPECT_EQ(done_, 2);
}

/// In a graph: its first call, and one behind a call of the other member. Elsewhere: while there is
/// a graph with calls of the other member.
TEST_F(StreamCallsTest, capture__what_may_be_behind_the_other_member) {
  auto own = member(0);
  own.orders_graphs = true;
  Calls calls(*api_, own);
  calls.join(Carrier::kLibrary, *api_, 0, own);
  const auto captures = [&](std::vector<Carrier> carriers) {
    std::string behind;
    tutti_host_device_begin_capture(streams_[0]);
    for (const Carrier carrier : carriers) {
      const auto queue = [&](bool is_behind_other) {
        behind += is_behind_other ? '1' : '0';
        return Status();
      };
      EXPECT_TRUE(calls.capture(carrier, streams_[0], queue).ok());
    }
    void* const graph = tutti_host_device_end_capture(streams_[0]);
    behind += calls.is_behind_other(Carrier::kKernels) ? " 1" : " 0";
    tutti_host_device_destroy_graph(graph);
    return behind + (calls.is_behind_other(Carrier::kKernels) ? '1' : '0');
  };
  constexpr Carrier kOurs = Carrier::kKernels;
  constexpr Carrier kTheirs = Carrier::kLibrary;
  EXPECT_EQ("100 00", captures({kOurs, kOurs, kOurs}));
  EXPECT_EQ("10110 10", captures({kOurs, kOurs, kTheirs, kOurs, kOurs}));
  EXPECT_EQ("10 00", captures({kOurs, kOurs}));
}

TEST_F(StreamCallsTest, add__kernels_of_two_communicators_take_turns) {
  auto own = member(0);
  own.takes_turns = true;
  Calls first(*api_, own);
  own.timeout_s = 1.5;  // Of which the wait for others is no part.
  Calls second(*api_, own);
  ASSERT_TRUE(first.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(second.add(streams_[1], queue(streams_[1], &counted)).ok());
  ASSERT_TRUE(second.add(streams_[1], queue(streams_[1], &counted)).ok());
  std::this_thread::sleep_for(2000ms);
  EXPECT_EQ(done_, 0);
  gate_.release();
  EXPECT_TRUE(first.drain().ok());
  EXPECT_TRUE(second.drain().ok());
  EXPECT_EQ(done_, 3);
  EXPECT_TRUE(StreamCalls::is_quiet(*api_, 0));
}

TEST_F(StreamCallsTest, add__the_librarys_calls_wait_for_kernels_of_ours_alone) {
  auto own = member(0);
  Calls beside(*api_, own);
  own.takes_turns = true;
  Calls library(*api_, own, Carrier::kLibrary);
  Calls other_library(*api_, own, Carrier::kLibrary);
  Calls kernels(*api_, own);
  const device::Stream third = *api_->create_stream(0);
  ASSERT_TRUE(library.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(other_library.add(streams_[1], queue(streams_[1], &counted)).ok());
  EXPECT_TRUE(comes_true([&] { return done_ == 1; }));
  ASSERT_TRUE(kernels.add(streams_[1], queue(streams_[1], &counted)).ok());
  ASSERT_TRUE(other_library.add(third, queue(third, &counted)).ok());
  ASSERT_TRUE(beside.add(*api_->default_stream(0), queue(*api_->default_stream(0), &counted)).ok());
  EXPECT_TRUE(comes_true([&] { return done_ == 2; }));  // Who is not in line.
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(done_, 2);
  gate_.release();
  for (Calls* const calls : {&library, &other_library, &kernels, &beside}) {
    EXPECT_TRUE(calls->drain().ok());
  }
  EXPECT_EQ(done_, 5);
  EXPECT_TRUE(api_->destroy_stream(third).ok());
}

/// Memory is freed when all that runs on a device is over, here as on a GPU.
TEST_F(StreamCallsTest, end__of_another_communicator_does_not_wait_for_these_calls) {
  Scratch scratch(api_.get(), 0);
  auto runner = DirectRunner::create(*api_, 0, {.rank = 0, .ranks = 1}, scratch, {});
  ASSERT_TRUE(runner.ok()) << runner.status().message();
  void* const arena = (*runner)->arena();
  ASSERT_TRUE((*runner)->open_arenas({&arena, 1}).ok());
  const auto is_freed = [&] { return api_->classify(arena).kind == device::MemoryKind::kHost; };
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  std::binary_semaphore is_over{0};
  std::thread opens([&] {  // Where the end waits, it is over at last, and too late.
    (void)is_over.try_acquire_for(5s);
    gate_.release();
  });
  runner->reset();
  EXPECT_EQ(done_, 0);
  EXPECT_FALSE(is_freed());
  free_deferred(*api_);
  EXPECT_EQ(done_, 0);
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  free_deferred(*api_);
  EXPECT_TRUE(is_freed());
  is_over.release();
  opens.join();
}

TEST_F(StreamCallsTest, is_quiet__once_calls_that_were_left_have_ended_too) {
  const auto is_quiet = [&] { return StreamCalls::is_quiet(*api_, 0); };
  auto own = member(0);
  own.takes_turns = true;
  EXPECT_TRUE(is_quiet());
  {
    Calls calls(*api_, own);
    ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
    EXPECT_FALSE(is_quiet());
    gone_ = true;
    EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
  }
  EXPECT_FALSE(is_quiet());
  Calls others(*api_, own);  // Nobody waits for what was left.
  ASSERT_TRUE(others.add(streams_[1], queue(streams_[1], &counted)).ok());
  EXPECT_TRUE(comes_true([&] { return done_ == 1; }));
  gate_.release();
  EXPECT_TRUE(comes_true(is_quiet));
}

TEST_F(StreamCallsTest, add__a_lease_lives_until_its_work_is_done) {
  Scratch scratch(api_.get(), 0);
  Calls calls(*api_, member(0));
  void* leased = nullptr;
  ASSERT_TRUE(calls
                  .add(streams_[0],
                       [&](Lease* lease) -> Status {
                         TUTTI_ASSIGN_OR_RETURN(*lease, scratch.device(0, 4096));
                         leased = lease->data();
                         tutti_host_device_enqueue(streams_[0], &held, this);
                         return {};
                       })
                  .ok());
  {
    const auto other = scratch.device(0, 4096);
    ASSERT_TRUE(other.ok());
    EXPECT_NE(other->data(), leased);
  }
  gate_.release();
  ASSERT_TRUE(calls.drain().ok());
  const auto first = scratch.device(0, 4096);
  const auto second = scratch.device(0, 4096);
  EXPECT_TRUE(first->data() == leased || second->data() == leased);
}

TEST_F(StreamCallsTest, watch__a_call_that_never_ends_times_out_once) {
  Calls calls(*api_, member(0.2));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
  EXPECT_EQ(calls.failure().code(), ErrorCode::kTimeout);
  EXPECT_EQ(calls.drain().code(), ErrorCode::kTimeout);
  EXPECT_EQ(calls.add(streams_[1], queue(streams_[1], &counted)).code(), ErrorCode::kTimeout);
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(done_, 0);
}

TEST_F(StreamCallsTest, watch__time_before_the_call_began_does_not_count) {
  Calls calls(*api_, member(0.3));
  tutti_host_device_enqueue(streams_[0], &held, this);  // The application's own work.
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  std::this_thread::sleep_for(900ms);
  EXPECT_TRUE(calls.failure().ok()) << calls.failure().message();
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  EXPECT_EQ(ends_, 0);
}

TEST_F(StreamCallsTest, watch__a_peer_that_is_gone_ends_the_call) {
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(ends_, 0);
  gone_ = true;
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
  EXPECT_EQ(calls.failure().message(), "gone");
}

TEST_F(StreamCallsTest, drain__tells_what_the_work_left_behind) {
  Calls calls(*api_, member(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  gone_ = true;  // After the end of the work nobody needs the peers.
  ASSERT_TRUE(calls.drain().ok());
  outcome_ = Status(ErrorCode::kLibraryFailed, "its kernel gave up");
  EXPECT_EQ(calls.drain().message(), "its kernel gave up");
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
}

TEST_F(StreamCallsTest, failure__does_not_wait_for_the_end_that_it_brings) {
  std::binary_semaphore may_end{0};
  std::atomic<bool> has_ended = false;
  auto own = member(0);
  own.end = [&] {
    ++ends_;
    (void)may_end.try_acquire_for(20s);  // As a library that takes its time.
    has_ended = true;
  };
  {
    Calls calls(*api_, own);
    ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
    ASSERT_TRUE(calls.drain().ok());
    outcome_ = Status(ErrorCode::kLibraryFailed, "the library's own error");
    EXPECT_EQ(calls.failure().message(), "the library's own error");
    EXPECT_EQ(calls.drain().message(), "the library's own error");
    EXPECT_FALSE(has_ended);
    may_end.release();
  }
  EXPECT_TRUE(has_ended);  // However soon it goes.
  EXPECT_EQ(ends_, 1);
}

TEST_F(StreamCallsTest, add__a_failure_to_queue_ends_the_calls) {
  Calls calls(*api_, member(0));
  const auto fails = [](Lease*) { return Status(ErrorCode::kLibraryFailed, "no launch"); };
  EXPECT_EQ(calls.add(streams_[0], fails).message(), "no launch");
  EXPECT_EQ(calls.failure().message(), "no launch");
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
}

/// As the driver does when its queue is full of work that waits for a dead peer.
TEST_F(StreamCallsTest, watch__ends_the_calls_while_the_caller_is_held_in_queueing) {
  std::binary_semaphore ended{0};
  auto own = member(0.3);
  own.end = [&] {
    ++ends_;
    ended.release();
  };
  Calls calls(*api_, own);
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  std::atomic<bool> is_held = false;
  std::thread asks([&] {
    while (!is_held) {
      std::this_thread::yield();
    }
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(calls.failure().ok());
    EXPECT_LT(std::chrono::steady_clock::now() - start, 200ms);
  });
  const Status status = calls.add(streams_[0], [&](Lease*) -> Status {
    is_held = true;
    return ended.try_acquire_for(20s) ? Status() : Status(ErrorCode::kLibraryFailed, "held");
  });
  asks.join();
  EXPECT_EQ(status.code(), ErrorCode::kTimeout);
  EXPECT_NE(status.message().find("could not be queued"), std::string::npos) << status.message();
  EXPECT_EQ(calls.failure().code(), ErrorCode::kTimeout);
  EXPECT_EQ(ends_, 1);
}

TEST_F(StreamCallsTest, watch_over__ends_a_call_that_is_held_in_queueing) {
  std::binary_semaphore ended{0};
  auto own = member(1);
  own.end = [&] {
    ++ends_;
    ended.release();
  };
  Calls calls(*api_, own);
  EXPECT_TRUE(calls.watch_over([] { return Status(); }).ok());
  std::this_thread::sleep_for(1300ms);  // What is over is not watched any more.
  EXPECT_TRUE(calls.failure().ok());
  const Status status = calls.watch_over([&] {
    return ended.try_acquire_for(20s) ? Status(ErrorCode::kLibraryFailed, "aborted") : Status();
  });
  EXPECT_EQ(status.code(), ErrorCode::kTimeout) << status.message();
  EXPECT_EQ(calls.watch_over([] { return Status(); }).code(), ErrorCode::kTimeout);
  EXPECT_EQ(ends_, 1);
}

TEST_F(StreamCallsTest, watch__sees_that_a_peer_is_gone_while_the_caller_is_held_in_queueing) {
  std::binary_semaphore ended{0};
  auto own = member(0);  // No time-out: the peer alone.
  own.end = [&] {
    ++ends_;
    ended.release();
  };
  Calls calls(*api_, own);
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  std::this_thread::sleep_for(200ms);  // It is seen to run.
  gone_ = true;
  const Status status = calls.add(streams_[0], [&](Lease*) -> Status {
    return ended.try_acquire_for(20s) ? Status() : Status(ErrorCode::kLibraryFailed, "held");
  });
  EXPECT_EQ(status.message(), "gone");
  EXPECT_EQ(ends_, 1);
}

TEST_F(StreamCallsTest, add__after_a_pause_the_watch_is_awake_again) {
  Calls calls(*api_, member(0.2));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  ASSERT_TRUE(calls.drain().ok());
  std::this_thread::sleep_for(1500ms);  // Longer than the thread looks at nothing.
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
}

class StreamCallsEnd : public ::testing::Test {
 protected:
  static Status failure(const std::string& text) { return {ErrorCode::kTimeout, text}; }
  void join(Carrier carrier, const std::string& name) {
    calls_.join(carrier, *api_, 0,
                {.close = [this, name] { steps_.push_back("close " + name); },
                 .end = [this, name] { steps_.push_back("end " + name); }});
  }

  std::unique_ptr<device::Api> api_ = device::open("host", nullptr);
  StreamCalls calls_;
  std::vector<std::string> steps_;
};

TEST_F(StreamCallsEnd, end__closes_all_before_it_ends_the_first_and_does_so_once) {
  join(Carrier::kKernels, "kernels");
  join(Carrier::kLibrary, "library");
  EXPECT_TRUE(calls_.reason().ok());
  calls_.end(failure("first"));
  calls_.end(failure("second"));
  EXPECT_EQ(steps_, (std::vector<std::string>{"close library", "close kernels", "end library",
                                              "end kernels"}));
  EXPECT_EQ(calls_.reason().message(), "first");
}

TEST_F(StreamCallsEnd, join__after_the_end_is_the_end_at_once) {
  calls_.end(failure("early"));
  join(Carrier::kKernels, "kernels");
  EXPECT_EQ(steps_, (std::vector<std::string>{"close kernels", "end kernels"}));
}

TEST_F(StreamCallsEnd, leave__is_not_ended_any_more) {
  join(Carrier::kKernels, "kernels");
  join(Carrier::kLibrary, "library");
  calls_.leave(Carrier::kKernels);
  calls_.end(failure("late"));
  EXPECT_EQ(steps_, (std::vector<std::string>{"close library", "end library"}));
}

TEST_F(StreamCallsEnd, end__whoever_comes_second_waits_and_who_asks_for_the_reason_does_not) {
  std::latch begun(1);
  std::latch go_on(1);
  std::atomic<bool> is_over = false;
  calls_.join(Carrier::kLibrary, *api_, 0,
              {.close = [] {},
               .end =
                   [&] {
                     begun.count_down();
                     go_on.wait();
                     is_over = true;
                   }});
  std::thread first([&] { calls_.end(failure("first")); });
  begun.wait();
  EXPECT_EQ(calls_.reason().message(), "first");
  std::thread second([&] {
    calls_.end(failure("second"));
    EXPECT_TRUE(is_over);
  });
  std::thread leaves([&] {
    calls_.leave(Carrier::kLibrary);
    EXPECT_TRUE(is_over);
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(is_over);
  go_on.count_down();
  first.join();
  second.join();
  leaves.join();
}

}  // namespace
}  // namespace tutti::runners
