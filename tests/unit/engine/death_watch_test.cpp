// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/death_watch.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace tutti::engine {
namespace {

using runners::HostProcess;

/// A process that waits for its end; another of this machine.
class Child {
 public:
  Child() {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    number_ = fork();
    if (number_ == 0) {
      const HostProcess self = HostProcess::self();
      static_cast<void>(write(ready[1], &self, sizeof(self)));
      for (;;) {
        pause();
      }
    }
    EXPECT_EQ(read(ready[0], &process_, sizeof(process_)), static_cast<ssize_t>(sizeof(process_)));
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() { die(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void die() {
    if (number_ > 0) {
      kill(number_, SIGKILL);
      waitpid(std::exchange(number_, 0), nullptr, 0);
    }
  }
  const HostProcess& process() const { return process_; }

 private:
  pid_t number_ = 0;
  HostProcess process_;
};

struct Watched {
  explicit Watched(double grace_s = 10) : watch(grace_s, [this] { ++ends; }) {
    calls = watch.add({HostProcess::self(), child.process(), HostProcess()});
  }

  Child child;
  int ends = 0;
  DeathWatch watch;
  WatchedCalls* calls = nullptr;
};

TEST(DeathWatch, look__ends_the_process_that_waits_for_a_dead_one_once_and_after_the_grace) {
  Watched a;
  const WatchedCall call(*a.calls);
  for (double now_s : {1.0, 2.0, 100.0}) {
    a.watch.look(now_s);
  }
  EXPECT_EQ(a.ends, 0) << "it lives";
  a.child.die();
  a.watch.look(101);
  a.watch.look(110.9);
  EXPECT_EQ(a.ends, 0);
  a.watch.look(111);
  a.watch.look(200);
  EXPECT_EQ(a.ends, 1);
}

TEST(DeathWatch, look__one_that_is_in_no_call_or_in_new_ones_goes_on) {
  Watched a;
  a.child.die();
  for (int now_s = 0; now_s < 100; ++now_s) {
    a.watch.look(now_s);
  }
  for (int now_s = 100; now_s < 200; ++now_s) {
    const WatchedCall call(*a.calls);
    a.watch.look(now_s);
  }
  EXPECT_EQ(a.ends, 0);
  const WatchedCall call(*a.calls);
  a.watch.look(200);
  a.watch.look(201);
  a.watch.look(211);
  EXPECT_EQ(a.ends, 1);
}

TEST(DeathWatch, look__a_call_that_ends_within_the_grace_is_none_to_end) {
  Watched a;
  a.child.die();
  {
    const WatchedCall call(*a.calls);
    for (double now_s : {1.0, 2.0, 11.0}) {
      a.watch.look(now_s);
    }
  }
  const WatchedCall call(*a.calls);
  for (double now_s : {12.0, 13.0, 22.0}) {
    a.watch.look(now_s);
  }
  EXPECT_EQ(a.ends, 0);
}

TEST(DeathWatch, look__without_a_grace_nothing_ends) {
  Watched a(/*grace_s=*/0);
  a.child.die();
  const WatchedCall call(*a.calls);
  for (double now_s : {1.0, 2.0, 1e6}) {
    a.watch.look(now_s);
  }
  EXPECT_EQ(a.ends, 0);
}

TEST(DeathWatch, look__asks_what_keeps_a_call_from_its_end) {
  Watched a;
  bool is_stuck = false;
  int asked = 0;
  a.watch.set_find(a.calls, [&] {
    ++asked;
    return std::string(is_stuck ? "rank 1 is elsewhere" : "");
  });
  for (double now_s : {1.0, 2.0}) {
    a.watch.look(now_s);
  }
  EXPECT_EQ(asked, 0) << "in no call";
  const WatchedCall call(*a.calls);
  for (double now_s : {3.0, 4.0, 100.0}) {
    a.watch.look(now_s);
  }
  EXPECT_EQ(asked, 2) << "not where the look before saw another call";
  EXPECT_EQ(a.ends, 0);
  is_stuck = true;
  for (double now_s : {101.0, 110.9}) {
    a.watch.look(now_s);
  }
  EXPECT_EQ(a.ends, 0);
  a.watch.look(111);
  EXPECT_EQ(a.ends, 1);
}

TEST(DeathWatch, remove__in_a_call_whose_error_handler_frees_the_communicator) {
  Watched a;
  a.child.die();
  {
    const WatchedCall call(*a.calls);
    a.watch.look(1);
    a.watch.look(2);
    a.watch.remove(a.calls);
    a.watch.look(100);
  }
  a.watch.look(200);
  EXPECT_EQ(a.ends, 0);
}

TEST(DeathWatch, look__a_call_that_was_left_by_a_jump_ends_with_the_next_one) {
  Watched a;
  a.child.die();
  alignas(WatchedCall) std::byte left[sizeof(WatchedCall)];
  new (left) WatchedCall(*a.calls);
  { const WatchedCall next(*a.calls); }
  for (double now_s : {1.0, 2.0, 100.0}) {
    a.watch.look(now_s);
  }
  EXPECT_EQ(a.ends, 0);
}

TEST(DeathWatch, add__leaves_out_who_was_never_seen_to_run_and_asks_once) {
  Child child;
  Child another;
  int ends = 0;
  DeathWatch watch(0.5, [&] { ++ends; });
  WatchedCalls* const first = watch.add({HostProcess::self(), child.process()});
  child.die();
  another.die();
  {
    const WatchedCall call(*watch.add({HostProcess::self(), another.process()}));
    for (double now_s : {1.0, 2.0, 100.0}) {
      watch.look(now_s);
    }
    EXPECT_EQ(ends, 0) << "cannot be looked at, as far as is known";
  }
  watch.remove(first);
  const WatchedCall call(*watch.add({HostProcess::self(), child.process()}));
  for (double now_s : {101.0, 102.0, 103.0}) {
    watch.look(now_s);
  }
  EXPECT_EQ(ends, 1) << "seen to run by another communicator";
}

}  // namespace
}  // namespace tutti::engine
