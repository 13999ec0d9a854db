// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls on streams of the host device whose work is held back by gates.
#include "runners/stream_calls.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "device/host_memory.hpp"
#include "runners/direct/deferred_free.hpp"
#include "runners/direct/direct_runner.hpp"

namespace tutti::runners {
namespace {

using namespace std::chrono_literals;

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
  StreamCalls::Options options(double timeout_s) {
    return {.name = "test",
            .timeout_s = timeout_s,
            .outcome = [this] { return outcome_; },
            .look = [this] { return gone_ ? Status(ErrorCode::kTimeout, "gone") : Status(); },
            .end = [this](const Status&) { ++ends_; }};
  }
  /// Work that waits for release() of the gate and then counts.
  static void held(void* self) {
    static_cast<StreamCallsTest*>(self)->gate_.acquire();
    ++static_cast<StreamCallsTest*>(self)->done_;
  }
  static void counted(void* self) { ++static_cast<StreamCallsTest*>(self)->done_; }
  auto queue(device::Stream stream, void (*work)(void*)) {
    return [this, stream, work](Lease*) -> Status {
      device::host_device_enqueue(stream, work, this);
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

  std::unique_ptr<device::Api> api_ = device::open_host();
  std::array<device::Stream, 2> streams_{};
  std::counting_semaphore<64> gate_{0};
  std::atomic<int> done_{0};
  std::atomic<int> ends_{0};
  std::atomic<bool> gone_{false};
  Status outcome_;
};

TEST_F(StreamCallsTest, add__a_call_on_another_stream_waits_for_the_one_before) {
  StreamCalls calls(*api_, 0, options(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(calls.add(streams_[1], queue(streams_[1], &counted)).ok());
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(done_, 0);
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  EXPECT_EQ(done_, 2);
}

TEST_F(StreamCallsTest, precede__what_comes_later_waits) {
  StreamCalls calls(*api_, 0, options(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(calls.precede(streams_[1]).ok());
  device::host_device_enqueue(streams_[1], &counted, this);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(done_, 0);
  gate_.release();
  EXPECT_TRUE(api_->wait_stream(streams_[1]).ok());
  EXPECT_EQ(done_, 2);
}

TEST_F(StreamCallsTest, add__kernels_of_two_communicators_take_turns) {
  auto own = options(0);
  own.kind = StreamLine::Kind::kKernel;
  StreamCalls first(*api_, 0, own);
  own.timeout_s = 1.5;  // Of which the wait for others is no part.
  StreamCalls second(*api_, 0, own);
  ASSERT_TRUE(first.add(streams_[0], queue(streams_[0], &held)).ok());
  ASSERT_TRUE(second.add(streams_[1], queue(streams_[1], &counted)).ok());
  ASSERT_TRUE(second.add(streams_[1], queue(streams_[1], &counted)).ok());
  std::this_thread::sleep_for(2000ms);
  EXPECT_EQ(done_, 0);
  gate_.release();
  EXPECT_TRUE(first.drain().ok());
  EXPECT_TRUE(second.drain().ok());
  EXPECT_EQ(done_, 3);
  // Over: whoever comes now waits for nobody.
  EXPECT_TRUE(StreamLine::of(*api_, 0).ahead_of(this, own.kind).empty());
}

TEST_F(StreamCallsTest, add__the_librarys_calls_wait_for_kernels_of_ours_alone) {
  auto own = options(0);
  StreamCalls beside(*api_, 0, own);
  own.kind = StreamLine::Kind::kLibrary;
  StreamCalls library(*api_, 0, own);
  StreamCalls other_library(*api_, 0, own);
  own.kind = StreamLine::Kind::kKernel;
  StreamCalls kernels(*api_, 0, own);
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
  for (StreamCalls* const calls : {&library, &other_library, &kernels, &beside}) {
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
  StreamCalls calls(*api_, 0, options(0));
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
  StreamLine& line = StreamLine::of(*api_, 0);
  EXPECT_TRUE(line.is_quiet(*api_));
  {
    StreamCalls calls(*api_, 0, options(0));
    ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
    EXPECT_FALSE(line.is_quiet(*api_));
    gone_ = true;
    EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
  }
  EXPECT_FALSE(line.is_quiet(*api_));
  EXPECT_TRUE(line.ahead_of(this, StreamLine::Kind::kKernel).empty());
  gate_.release();
  EXPECT_TRUE(comes_true([&] { return line.is_quiet(*api_); }));
}

TEST_F(StreamCallsTest, add__a_lease_lives_until_its_work_is_done) {
  Scratch scratch(api_.get(), 0);
  StreamCalls calls(*api_, 0, options(0));
  void* leased = nullptr;
  ASSERT_TRUE(calls
                  .add(streams_[0],
                       [&](Lease* lease) -> Status {
                         TUTTI_ASSIGN_OR_RETURN(*lease, scratch.device(0, 4096));
                         leased = lease->data();
                         device::host_device_enqueue(streams_[0], &held, this);
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
  StreamCalls calls(*api_, 0, options(0.2));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
  EXPECT_EQ(calls.failure().code(), ErrorCode::kTimeout);
  EXPECT_EQ(calls.drain().code(), ErrorCode::kTimeout);
  EXPECT_EQ(calls.add(streams_[1], queue(streams_[1], &counted)).code(), ErrorCode::kTimeout);
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(done_, 0);
}

TEST_F(StreamCallsTest, watch__time_before_the_call_began_does_not_count) {
  StreamCalls calls(*api_, 0, options(0.3));
  device::host_device_enqueue(streams_[0], &held, this);  // The application's own work.
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  std::this_thread::sleep_for(900ms);
  EXPECT_TRUE(calls.failure().ok()) << calls.failure().message();
  gate_.release();
  EXPECT_TRUE(calls.drain().ok());
  EXPECT_EQ(ends_, 0);
}

TEST_F(StreamCallsTest, watch__a_peer_that_is_gone_ends_the_call) {
  StreamCalls calls(*api_, 0, options(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(ends_, 0);
  gone_ = true;
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
  EXPECT_EQ(calls.failure().message(), "gone");
}

TEST_F(StreamCallsTest, drain__tells_what_the_work_left_behind) {
  StreamCalls calls(*api_, 0, options(0));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  gone_ = true;  // After the end of the work nobody needs the peers.
  ASSERT_TRUE(calls.drain().ok());
  outcome_ = Status(ErrorCode::kLibraryFailed, "its kernel gave up");
  EXPECT_EQ(calls.drain().message(), "its kernel gave up");
  EXPECT_EQ(ends_, 1);
}

TEST_F(StreamCallsTest, failure__does_not_wait_for_the_end_that_it_brings) {
  std::binary_semaphore may_end{0};
  std::atomic<bool> has_ended = false;
  auto own = options(0);
  own.end = [&](const Status&) {
    ++ends_;
    (void)may_end.try_acquire_for(20s);  // As a library that takes its time.
    has_ended = true;
  };
  {
    StreamCalls calls(*api_, 0, own);
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
  StreamCalls calls(*api_, 0, options(0));
  const auto fails = [](Lease*) { return Status(ErrorCode::kLibraryFailed, "no launch"); };
  EXPECT_EQ(calls.add(streams_[0], fails).message(), "no launch");
  EXPECT_EQ(calls.failure().message(), "no launch");
  EXPECT_EQ(ends_, 1);
}

/// As the driver does when its queue is full of work that waits for a dead peer.
TEST_F(StreamCallsTest, watch__ends_the_calls_while_the_caller_is_held_in_queueing) {
  std::binary_semaphore ended{0};
  auto own = options(0.3);
  own.end = [&](const Status&) {
    ++ends_;
    ended.release();
  };
  StreamCalls calls(*api_, 0, own);
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
  auto own = options(1);
  own.end = [&](const Status&) {
    ++ends_;
    ended.release();
  };
  StreamCalls calls(*api_, 0, own);
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
  auto own = options(0);  // No time-out: the peer alone.
  own.end = [&](const Status&) {
    ++ends_;
    ended.release();
  };
  StreamCalls calls(*api_, 0, own);
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
  StreamCalls calls(*api_, 0, options(0.2));
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &counted)).ok());
  ASSERT_TRUE(calls.drain().ok());
  std::this_thread::sleep_for(1500ms);  // Longer than the thread looks at nothing.
  ASSERT_TRUE(calls.add(streams_[0], queue(streams_[0], &held)).ok());
  EXPECT_TRUE(comes_true([&] { return ends_ == 1; }));
}

}  // namespace
}  // namespace tutti::runners
