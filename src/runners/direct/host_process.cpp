// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/host_process.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <sstream>
#include <string>

namespace tutti::runners {
namespace {

/// proc(5), /proc/pid/stat: what follows the name in parentheses, from field 3 on.
struct ProcessState {
  char letter = '?';              ///< Field 3.
  std::uint64_t threads = 1;      ///< Field 20.
  std::uint64_t start_ticks = 0;  ///< Field 22.
};

/// Nothing where the file cannot be read; `*gone`: because there is no such process.
std::optional<ProcessState> read_state(std::int32_t number, bool* gone) {
  *gone = false;
  const std::string path = "/proc/" + std::to_string(number) + "/stat";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    *gone = errno == ENOENT && access("/proc/self/stat", R_OK) == 0;
    return std::nullopt;
  }
  std::array<char, 1024> text{};
  const ssize_t length = read(file, text.data(), text.size() - 1);
  *gone = length < 0 && errno == ESRCH;
  close(file);
  const std::string line(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(line.substr(name_end + 1));
  ProcessState state;
  fields >> state.letter;
  std::string skipped;
  for (int field = 4; field < 20; ++field) {
    fields >> skipped;
  }
  fields >> state.threads >> skipped >> state.start_ticks;
  return fields ? std::optional(state) : std::nullopt;
}

/// Forks that led to this process since it was first asked for.
std::atomic<std::uint32_t> g_forks{0};

}  // namespace

/// Each communicator asks several times, and getpid() would take longer than all the rest.
const HostProcess& HostProcess::self() {
  thread_local HostProcess process;
  thread_local std::uint32_t forks = 0;
  static const bool sees_forks = pthread_atfork(nullptr, nullptr, [] { ++g_forks; }) == 0;
  if (process.number == 0 || forks != g_forks || !sees_forks) {
    const std::int32_t number = getpid();
    forks = g_forks;
    struct stat space {};
    const bool is_known = stat("/proc/self/ns/pid", &space) == 0;
    process = {.number = number,
               .number_space = is_known ? static_cast<std::uint32_t>(space.st_ino) : 0,
               .start_ticks = 0};
    bool gone = false;
    if (const auto state = read_state(number, &gone)) {
      process.start_ticks = state->start_ticks;
    }
  }
  return process;
}

bool HostProcess::runs() const {
  if (number_space != self().number_space) {
    return true;  // In a container of its own, say: here the number is another process's or none's.
  }
  bool gone = false;
  const auto state = read_state(number, &gone);
  if (!state) {
    return !gone;
  }
  if (start_ticks != 0 && state->start_ticks != start_ticks) {
    return false;
  }
  // A first thread that has ended is a zombie too while others go on.
  const bool ended = state->letter == 'Z' || state->letter == 'X';
  return !ended || state->threads > 1;
}

}  // namespace tutti::runners
