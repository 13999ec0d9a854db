// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Test code in processes of its own: for what a process can do only once (load a library for the
// first time) and for several ranks on one machine without a launcher. A child answers with a
// text, empty when all went well; one that dies or hangs is reported as such.
#pragma once

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <vector>

/// Of the address sanitizer's runtime, where there is one.
extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

namespace tutti::test {

/// Memory that all children of one run share.
class Shared {
 public:
  explicit Shared(int ranks) : ranks_(ranks) {}

  int ranks() const { return ranks_; }

  /// Rank 0's bytes on every rank; for example a unique id.
  template <class T>
  T from_rank_zero(int rank, const T& value) {
    static_assert(sizeof(T) <= sizeof bytes_);
    if (rank == 0) {
      *reinterpret_cast<T*>(bytes_) = value;
    }
    barrier();
    const T copy = *reinterpret_cast<const T*>(bytes_);
    barrier();
    return copy;
  }

  /// Ends with the process that waits in it, not before all ranks came.
  void barrier() {
    const int mine = generation_.load();
    if (waiting_.fetch_add(1) + 1 == ranks_) {
      waiting_.store(0);
      generation_.fetch_add(1);
      return;
    }
    while (generation_.load() == mine) {
      sched_yield();
    }
  }

 private:
  const int ranks_;
  std::atomic<int> waiting_{0};
  std::atomic<int> generation_{0};
  alignas(16) char bytes_[256] = {};
};

/// Asks the leak checker, where there is one. It crashes in a forked child that has threads left,
/// such as those of a device fake.
inline bool leaks() {
  if (__lsan_do_recoverable_leak_check == nullptr) {
    return false;
  }
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks)) == 1 && __lsan_do_recoverable_leak_check() != 0;
}

/// Forks `ranks` children that each run `body(rank, shared)`; their answers by rank.
inline std::vector<std::string> in_ranks(
    int ranks, const std::function<std::string(int rank, Shared& shared)>& body,
    std::chrono::seconds limit = std::chrono::seconds(120)) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared(ranks);
  struct Child {
    pid_t pid;
    int pipe;
  };
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) {
      return {"pipe failed"};
    }
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      std::string answer = body(rank, *shared);
      if (leaks()) {
        answer += "leaks";
      }
      for (std::size_t at = 0; at < answer.size();) {
        const ssize_t written = write(ends[1], answer.data() + at, answer.size() - at);
        if (written <= 0) {
          break;
        }
        at += static_cast<std::size_t>(written);
      }
      _exit(0);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }

  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<std::string> answers;
  for (const Child& child : children) {
    std::string answer;
    char buffer[4096];
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd readable{child.pipe, POLLIN, 0};
      if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) == 0) {
        answer += "hangs";
        kill(child.pid, SIGKILL);
        break;
      }
      const ssize_t got = read(child.pipe, buffer, sizeof buffer);
      if (got <= 0) {
        break;
      }
      answer.append(buffer, static_cast<std::size_t>(got));
    }
    close(child.pipe);
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (WIFSIGNALED(status) && answer != "hangs") {
      answer += "died of signal " + std::to_string(WTERMSIG(status));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      answer += "ended with status " + std::to_string(WEXITSTATUS(status));
    }
    answers.push_back(std::move(answer));
  }
  munmap(memory, sizeof(Shared));
  return answers;
}

/// One child.
inline std::string in_child(const std::function<std::string()>& body) {
  return in_ranks(1, [&](int, Shared&) { return body(); }).front();
}

/// The answers of `ranks` children that found nothing wrong.
inline std::vector<std::string> all_well(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

}  // namespace tutti::test

/// In a child's body: answers with the place and `text` unless the condition holds.
#define CHILD_EXPECT(condition, text)                                                 \
  do {                                                                                \
    if (!(condition)) {                                                               \
      return std::string("line ") + std::to_string(__LINE__) + ": " #condition ": " + \
             std::string(text);                                                       \
    }                                                                                 \
  } while (0)

/// For a Status or a Result's status.
#define CHILD_OK(status)                                     \
  do {                                                       \
    const auto& child_status = (status);                     \
    CHILD_EXPECT(child_status.ok(), child_status.message()); \
  } while (0)
