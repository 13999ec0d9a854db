// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/watch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/file_name.hpp"
#include "net/metrics.hpp"
#include "net/thread.hpp"

namespace tutti::net {
namespace {

constexpr char kDirectory[] = "/dev/shm";
constexpr auto kMetricsInterval = std::chrono::seconds(1);

struct UsedNames {
  std::mutex mutex;
  std::set<std::string> names;

  static UsedNames& instance() {
    static auto* const used = new UsedNames;  // Networks may outlive static objects.
    return *used;
  }
};

Status check_file(const char* variable, const std::string& pattern) {
  if (pattern.empty()) {
    return {};
  }
  const std::string file = expand_own_file_name(pattern);
  const std::size_t slash = file.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : file.substr(0, slash + 1);
  struct stat about {};
  if (pattern.back() == '/' || (stat(file.c_str(), &about) == 0 && S_ISDIR(about.st_mode))) {
    return Status(ErrorCode::kInvalidConfig,
                  std::string(variable) + ": '" + pattern + "' is a directory; name a file in it");
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return Status(ErrorCode::kInvalidConfig,
                  std::string(variable) + ": cannot write in '" + directory +
                      "': " + std::strerror(errno) +
                      "; name a file in a directory that is there and may be written to");
  }
  return {};
}

}  // namespace

OwnFileName::OwnFileName(const std::string& pattern) {
  UsedNames& used = UsedNames::instance();
  const std::lock_guard lock(used.mutex);
  const std::string first = expand_own_file_name(pattern);
  name_ = first;
  for (int i = 2; !used.names.insert(name_).second; ++i) {
    name_ = before_ending(first, std::to_string(i));
  }
}

OwnFileName::~OwnFileName() {
  UsedNames& used = UsedNames::instance();
  const std::lock_guard lock(used.mutex);
  used.names.erase(name_);
}

Status Watch::check(const Config& config) { return check_file("TUTTI_METRICS", config.metrics); }

Watch::~Watch() {
  stop_ = true;
  if (thread_.joinable()) {
    bell_.ring();
    thread_.join();
  }
}

void Watch::add(EngineOptions* engine) {
  if (!is_started_) {
    is_started_ = true;
    start();
  }
  if (statistics_ == nullptr) {
    return;
  }
  engine->statistics = statistics_->add_engine();
  engine->bell = thread_.joinable() ? &bell_ : nullptr;
  if (engine->statistics == nullptr && !std::exchange(has_left_out_, true)) {
    log_(LogKind::kInfo, "net: statistics and metrics are of the first " +
                             std::to_string(kEnginesShownMax) + " engines");
  }
}

void Watch::start() {
  if (config_.net_statistics) {
    auto shared = Statistics::open(kDirectory, static_cast<std::uint32_t>(config_.net_paths));
    if (shared.ok()) {
      statistics_ = std::move(*shared);
    } else {
      log_(LogKind::kInfo,
           "net: `tutti top` cannot show this process: " + shared.status().message() +
               " (TUTTI_NET_STATISTICS=0 does without it)");
    }
  }
  if (config_.metrics.empty()) {
    return;
  }
  if (statistics_ == nullptr) {
    auto own = Statistics::open("", static_cast<std::uint32_t>(config_.net_paths));
    if (!own.ok()) {
      return warn_once(own.status().message());
    }
    statistics_ = std::move(*own);
  }
  metrics_file_ = OwnFileName(config_.metrics);
  auto thread = start_thread("tutti-watch", [this] { run(); });
  if (!thread.ok()) {
    return warn_once(thread.status().message());
  }
  thread_ = std::move(*thread);
  log_(LogKind::kInfo, "net: metrics in " + metrics_file_.get());
}

void Watch::run() {
  Clock::time_point next = Clock::now();
  bool is_due = false;
  while (!stop_) {
    if (is_due) {
      bell_.wait_until(next);
    } else {
      bell_.wait();
    }
    is_due = true;
    if (Clock::now() >= next) {
      write_metrics();
      is_due = false;
      next = Clock::now() + kMetricsInterval;
    }
  }
  write_metrics();
}

void Watch::write_metrics() {
  const Status status = write_atomically(metrics_file_.get(), metrics_text(*statistics_));
  if (!status.ok()) {
    warn_once("TUTTI_METRICS: " + status.message());
  }
}

void Watch::warn_once(const std::string& text) {
  if (!std::exchange(has_warned_, true)) {
    log_(LogKind::kWarning, "net: " + text);
  }
}

}  // namespace tutti::net
