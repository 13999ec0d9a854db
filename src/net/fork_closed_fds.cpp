// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/fork_closed_fds.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace tutti::net {
namespace {

struct ForkClosedFds {
  std::mutex mutex;
  std::vector<int> descriptors;
};

/// Never destroyed: threads may outlive the statics.
ForkClosedFds& all() {
  static auto* const it = new ForkClosedFds;
  return *it;
}

// The mutex is held over the fork, so the child's copy of the list is whole.
void prepare() { all().mutex.lock(); }

void go_on() { all().mutex.unlock(); }

void give_up() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int descriptor : all().descriptors) {
    if (null < 0 || dup3(null, descriptor, O_CLOEXEC) < 0) {
      close(descriptor);
    }
  }
  if (null >= 0) {
    close(null);
  }
  all().descriptors.clear();
  go_on();
}

}  // namespace

Status add_fork_closed_fd(int descriptor) {
  static const int handlers = pthread_atfork(prepare, go_on, give_up);
  if (handlers != 0) {
    return Status(ErrorCode::kOutOfMemory, "net: no memory for fork handlers");
  }
  const std::lock_guard lock(all().mutex);
  all().descriptors.push_back(descriptor);
  return {};
}

void remove_fork_closed_fd(int descriptor) {
  const std::lock_guard lock(all().mutex);
  std::erase(all().descriptors, descriptor);
}

}  // namespace tutti::net
