// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a Network keeps for those who watch it: statistics in shared memory for `tutti top`, a file
// of metrics for Prometheus, a trace. The files are opened and written by a thread that sleeps
// while the engines do: a slow disk must stop neither them nor their callers. At the end it is
// waited for, but not for ever: one that hangs is left behind with all that it uses. Nothing is
// there before the first engine, and nothing that fails later stops the network.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/config.hpp"
#include "net/observe/log.hpp"
#include "net/observe/statistics.hpp"
#include "net/observe/trace.hpp"
#include "net/observe/wake_event.hpp"

namespace tutti::net {

/// A name that no other open network of this process has: a second one of the same name has a 2
/// before its ending. `keeps`: nor any network after it.
class OwnFileName {
 public:
  OwnFileName() = default;
  explicit OwnFileName(const std::string& pattern, bool keeps = false);
  ~OwnFileName();
  OwnFileName(const OwnFileName&) = delete;
  OwnFileName& operator=(const OwnFileName&) = delete;
  const std::string& get() const { return name_; }

 private:
  std::string name_;
  bool keeps_ = false;
};

/// What an engine writes to. All outlive it; null: nobody reads it.
struct EngineWatch {
  EngineStatistics* statistics = nullptr;
  WakeEvent* event = nullptr;  ///< Signaled when statistics are new.
  EngineTrace* trace = nullptr;
};

class Watch {
 public:
  /// Both outlive it.
  Watch(const Config& config, const Log& log) : config_(config), log_(log) {}
  ~Watch() { finish(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Errors: a file that is asked for cannot be written (kInvalidConfig).
  static Status check(const Config& config);

  /// Of an engine that is about to be made. One thread at a time.
  EngineWatch add();

  /// Writes everything once more and ends the files, if that takes no longer than kFinishTime.
  /// Engines that are still there go on, unwatched. One thread at a time, as add().
  void finish();

  static constexpr auto kFinishTime = std::chrono::seconds(2);

 private:
  class Writer;

  void start();

  const Config& config_;
  const Log& log_;
  bool is_started_ = false;
  bool has_left_out_ = false;
  std::shared_ptr<Statistics> statistics_;
  std::shared_ptr<Writer> writer_;  ///< Null: no files.
  std::thread thread_;
};

}  // namespace tutti::net
