// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/file_name.hpp"
#include "base/host_name.hpp"

namespace tutti {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarn)};
std::atomic<int> g_rank{-1};
std::atomic<int> g_fd{STDERR_FILENO};

}  // namespace

bool log_enabled(LogLevel level) {
  return static_cast<int>(level) <= g_level.load(std::memory_order_relaxed);
}

void log(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) {
    return;
  }
  static constexpr const char* kNames[] = {"ERROR", "WARN", "INFO", "DEBUG"};
  int rank = g_rank.load(std::memory_order_relaxed);
  const std::string line = "tutti " + host_name() + ":" + std::to_string(getpid()) + " " +
                           (rank < 0 ? "-" : std::to_string(rank)) + " " +
                           kNames[static_cast<int>(level)] + " " + text + "\n";
  log_text(line);
}

void log_text(const std::string& text) {
  const char* data = text.data();
  std::size_t left = text.size();
  while (left > 0) {
    ssize_t written = write(g_fd.load(std::memory_order_relaxed), data, left);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return;  // Nowhere to complain to.
    }
    data += written;
    left -= static_cast<std::size_t>(written);
  }
}

void set_log_rank(int world_rank) { g_rank.store(world_rank, std::memory_order_relaxed); }

void configure_log(LogLevel level, const std::string& file) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
  if (file.empty()) {
    return;
  }
  std::string path = expand_file_name(file);
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    log(LogLevel::kError, "TUTTI_LOG_FILE: cannot open '" + path + "': " + std::strerror(errno) +
                              "; logging to stderr");
    return;
  }
  g_fd.store(fd, std::memory_order_relaxed);
}

}  // namespace tutti
