// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/watch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
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

OwnFileName::OwnFileName(const std::string& pattern, bool keeps) : keeps_(keeps) {
  UsedNames& used = UsedNames::instance();
  const std::lock_guard lock(used.mutex);
  const std::string first = expand_own_file_name(pattern);
  name_ = first;
  for (int i = 2; !used.names.insert(name_).second; ++i) {
    name_ = before_ending(first, std::to_string(i));
  }
}

OwnFileName::~OwnFileName() {
  if (keeps_) {
    return;
  }
  UsedNames& used = UsedNames::instance();
  const std::lock_guard lock(used.mutex);
  used.names.erase(name_);
}

Status Watch::check(const Config& config) {
  TUTTI_RETURN_IF_ERROR(check_file("TUTTI_METRICS", config.metrics));
  return check_file("TUTTI_TRACE", config.trace);
}

void Watch::finish() {
  stop_ = true;
  if (thread_.joinable()) {
    bell_.ring();
    thread_.join();
  }
  trace_file_.reset();
  if (statistics_ != nullptr) {
    statistics_->remove_file();
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
  if (trace_file_ != nullptr) {
    const std::lock_guard lock(traces_mutex_);
    engine->trace = &traces_.emplace_back(&bell_);
  }
}

void Watch::start() {
  const auto paths = static_cast<std::uint32_t>(config_.net_paths);
  if (config_.net_statistics) {
    auto shared = Statistics::open(kDirectory, paths);
    if (shared.ok()) {
      statistics_ = std::move(*shared);
    } else {
      log_(LogKind::kInfo,
           "net: `tutti top` cannot show this process: " + shared.status().message() +
               " (TUTTI_NET_STATISTICS=0 does without it)");
    }
  }
  if (config_.metrics.empty() && config_.trace.empty()) {
    return;
  }
  if (statistics_ == nullptr) {
    auto own = Statistics::open("", paths);
    if (!own.ok()) {
      return warn_once(own.status().message());
    }
    statistics_ = std::move(*own);
  }
  if (!config_.metrics.empty()) {
    metrics_file_.emplace(config_.metrics);
    log_(LogKind::kInfo, "net: metrics in " + metrics_file_->get());
  }
  if (!config_.trace.empty()) {
    open_trace();
  }
  auto thread = start_thread("tutti-watch", [this] {
    try {
      run();
    } catch (const std::exception& error) {
      warn_once(std::string("metrics and traces end here: ") + error.what());
    }
  });
  if (!thread.ok()) {
    trace_file_.reset();
    return warn_once(thread.status().message());
  }
  thread_ = std::move(*thread);
}

void Watch::open_trace() {
  const FileHeader& header = statistics_->header();
  const OwnFileName name(config_.trace, /*keeps=*/true);
  auto file = TraceFile::open(
      name.get(),
      header.program.data() + (" " + std::to_string(header.process)) + " on " + header.host.data(),
      header.start_ns, header.start_unix_ns);
  if (!file.ok()) {
    return warn_once("TUTTI_TRACE: " + file.status().message());
  }
  trace_file_ = std::move(*file);
  log_(LogKind::kInfo, "net: trace in " + name.get());
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
    write_trace();
    is_due = true;
    if (Clock::now() >= next) {
      write_metrics();
      is_due = false;
      next = Clock::now() + kMetricsInterval;
    }
  }
  write_trace();
  write_metrics();
  if (trace_file_ != nullptr && trace_file_->left_out() > 0) {
    log_(LogKind::kInfo, "net: the trace is without " + std::to_string(trace_file_->left_out()) +
                             " events that there was no room for");
  }
}

void Watch::write_metrics() {
  if (!metrics_file_) {
    return;
  }
  const Status status = write_atomically(metrics_file_->get(), metrics_text(*statistics_));
  if (!status.ok()) {
    warn_once("TUTTI_METRICS: " + status.message());
  }
}

void Watch::write_trace() {
  if (trace_file_ == nullptr) {
    return;
  }
  std::vector<TraceEvent> events;
  std::vector<std::string> names;
  std::uint64_t left_out = 0;
  for (std::uint32_t i = 0;; ++i) {
    EngineTrace* trace = nullptr;
    {
      const std::lock_guard lock(traces_mutex_);
      trace = i < traces_.size() ? &traces_[i] : nullptr;
    }
    if (trace == nullptr) {
      break;
    }
    trace->take(&events, &names, &left_out);
    trace_file_->write(i, events, names, left_out);
  }
  const Status status = trace_file_->flush();
  if (!status.ok()) {
    warn_once("TUTTI_TRACE: " + status.message());
  }
}

void Watch::warn_once(const std::string& text) {
  if (!std::exchange(has_warned_, true)) {
    log_(LogKind::kWarning, "net: " + text);
  }
}

}  // namespace tutti::net
