// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <utility>

namespace tutti {

Result<std::thread> start_thread(const std::string& name, std::function<void()> body) {
  // The program's signals are for the program's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  Status status;
  try {
    thread = std::thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  } catch (const std::exception& error) {
    status =
        Status(ErrorCode::kUnavailable, "no thread for " + name + ": " + std::string(error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) {
    return status;
  }
  return thread;
}

}  // namespace tutti
