// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/observe/watch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file_name.hpp"
#include "base/thread.hpp"
#include "net/observe/metrics.hpp"

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
  // Absolute: it is opened later and again, and the program may go elsewhere meanwhile.
  std::error_code error;
  const std::filesystem::path path = expand_own_file_name(pattern);
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const std::string first = error ? path : absolute;
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

/// The files, and what the thread works with.
class Watch::Writer {
 public:
  Writer(const Config& config, Log log, std::shared_ptr<Statistics> statistics)
      : log_(std::move(log)), statistics_(std::move(statistics)) {
    if (!config.metrics.empty()) {
      metrics_file_.emplace(config.metrics);
      tell(LogKind::kInfo, "metrics in " + metrics_file_->get());
    }
    if (!config.trace.empty()) {
      trace_name_.emplace(config.trace, /*keeps=*/true);
    }
  }

  WakeEvent* wake_event() { return &wake_event_; }

  /// Null: there is no trace.
  EngineTrace* add_trace() {
    if (!trace_name_) {
      return nullptr;
    }
    const std::lock_guard lock(traces_mutex_);
    return &traces_.emplace_back(&wake_event_);
  }

  /// The thread.
  void run() {
    try {
      open_trace();
      write_until_stopped();
    } catch (const std::exception& error) {
      warn_once(std::string("metrics and traces end here: ") + error.what());
    }
    trace_file_.reset();
    const std::lock_guard lock(end_mutex_);
    has_ended_ = true;
    ended_.notify_all();
  }

  /// False: it hangs, and tells nobody anything from now on.
  bool stop() {
    stop_ = true;
    wake_event_.signal();
    std::unique_lock lock(end_mutex_);
    const bool ended = ended_.wait_for(lock, kFinishTime, [this] { return has_ended_; });
    is_left_ = !ended;
    return ended;
  }

  void warn_once(const std::string& text) {
    if (!std::exchange(has_warned_, true)) {
      tell(LogKind::kWarning, text);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void tell(LogKind kind, const std::string& text) const {
    if (!is_left_) {
      log_(kind, "net: " + text);
    }
  }

  void open_trace();
  void write_until_stopped();
  void write_metrics();
  void write_trace();

  const Log log_;
  const std::shared_ptr<Statistics> statistics_;
  std::optional<OwnFileName> metrics_file_;
  std::optional<OwnFileName> trace_name_;
  std::unique_ptr<TraceFile> trace_file_;
  bool has_warned_ = false;
  std::mutex traces_mutex_;
  std::deque<EngineTrace> traces_;
  WakeEvent wake_event_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> is_left_ = false;
  std::mutex end_mutex_;  ///< Of the next two.
  std::condition_variable ended_;
  bool has_ended_ = false;
};

void Watch::finish() {
  if (thread_.joinable()) {
    if (writer_->stop()) {
      thread_.join();
    } else {
      thread_.detach();
      log_(LogKind::kWarning,
           "net: metrics and traces are not finished: a disk has not answered for " +
               std::to_string(kFinishTime.count()) + " seconds");
    }
  }
  if (statistics_ != nullptr) {
    statistics_->remove_file();
  }
}

EngineWatch Watch::add() {
  if (!is_started_) {
    is_started_ = true;
    start();
  }
  EngineWatch engine;
  if (statistics_ == nullptr) {
    return engine;
  }
  engine.statistics = statistics_->add_engine();
  if (engine.statistics == nullptr && !std::exchange(has_left_out_, true)) {
    log_(LogKind::kInfo, "net: statistics and metrics are of the first " +
                             std::to_string(kEnginesShownMax) + " engines");
  }
  if (writer_ != nullptr) {
    engine.event = writer_->wake_event();
    engine.trace = writer_->add_trace();
  }
  return engine;
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
      log_(LogKind::kWarning, "net: " + own.status().message());
      return;
    }
    statistics_ = std::move(*own);
  }
  auto writer = std::make_shared<Writer>(config_, log_, statistics_);
  auto thread = start_thread("tutti-watch", [writer] { writer->run(); });
  if (!thread.ok()) {
    return writer->warn_once(thread.status().message());
  }
  writer_ = std::move(writer);
  thread_ = std::move(*thread);
}

void Watch::Writer::open_trace() {
  if (!trace_name_) {
    return;
  }
  const FileHeader& header = statistics_->header();
  auto file = TraceFile::open(
      trace_name_->get(),
      header.program.data() + (" " + std::to_string(header.process)) + " on " + header.host.data(),
      header.start_ns, header.start_unix_ns);
  if (!file.ok()) {
    return warn_once("TUTTI_TRACE: " + file.status().message());
  }
  trace_file_ = std::move(*file);
  tell(LogKind::kInfo, "trace in " + trace_name_->get());
}

void Watch::Writer::write_until_stopped() {
  Clock::time_point next = Clock::now();
  bool is_due = false;
  while (!stop_) {
    if (is_due) {
      wake_event_.wait_until(next);
    } else {
      wake_event_.wait();
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
    tell(LogKind::kInfo, "the trace is without " + std::to_string(trace_file_->left_out()) +
                             " events that there was no room for");
  }
}

void Watch::Writer::write_metrics() {
  if (!metrics_file_) {
    return;
  }
  const Status status = write_atomically(metrics_file_->get(), metrics_text(*statistics_));
  if (!status.ok()) {
    warn_once("TUTTI_METRICS: " + status.message());
  }
}

/// Where the file could not be opened, what engines tell is dropped.
void Watch::Writer::write_trace() {
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
    if (trace_file_ != nullptr) {
      trace_file_->write(i, events, names, left_out);
    }
  }
  const Status status = trace_file_ == nullptr ? Status() : trace_file_->flush();
  if (!status.ok()) {
    warn_once("TUTTI_TRACE: " + status.message());
  }
}

}  // namespace tutti::net
