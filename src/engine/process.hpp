// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a process has once: the configuration, the tuning table, the device and CCL tables,
// scratch memory, counters. Made at the first eligible collective, never when the library loads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/config.hpp"
#include "ccl/ccl.hpp"
#include "device/device.hpp"
#include "engine/counters.hpp"
#include "engine/death_watch.hpp"
#include "engine/node_share.hpp"
#include "engine/summary.hpp"
#include "runners/direct/host_memory.hpp"
#include "runners/scratch.hpp"
#include "select/table.hpp"
#include "topology/topology_file.hpp"

namespace tutti::engine {

/// Reads and checks a topology file. Errors name file, line and key.
Result<topology::TopologyFile> load_topology(const std::string& path);

class Process {
 public:
  /// The one of this process; configured from its environment.
  static Process& get();

  const Config& config() const { return config_; }
  const select::Table& table() const { return table_; }
  /// What TUTTI_TOPOLOGY_FILE says; no nodes when there is none.
  const topology::TopologyFile& topology_file() const { return topology_file_; }
  /// This machine by sysfs, read at the first call.
  const topology::Machine& machine();
  /// Empty when the configuration is sound; else the first problem. Calls then run natively, or
  /// fail under TUTTI_STRICT.
  const std::string& config_error() const { return config_error_; }
  /// Hash of everything that must be equal on all ranks for equal plans.
  std::uint64_t agreement_hash() const { return agreement_hash_; }

  /// Null on a machine without a GPU library.
  device::Api* device() { return device_.get(); }
  const device::OpenReport& device_report() const { return device_report_; }
  /// Loads the CCL at the first call; the same answer afterwards.
  Result<ccl::CclLibrary*> ccl();

  /// What this process gives to the others of its node for collectives on host memory, made at the
  /// first call; an error is not kept, and the next call tries again.
  Result<std::shared_ptr<runners::HostMemory>> host_memory(int node_ranks, bool has_threads);
  /// This process's share of its node, asked for at the first call.
  const NodeShare& node_share(int world_ranks);

  /// Ends this process when it waits for one of these in a collective of the MPI library and that
  /// one has died (death_watch.hpp), where the system gives a thread for it.
  WatchedCalls* watch_calls(std::vector<runners::HostProcess> ranks);
  /// DeathWatch::set_find.
  void watch_for(WatchedCalls* calls, std::function<std::string()> find) {
    if (death_watch_ != nullptr) {
      death_watch_->set_find(calls, std::move(find));
    }
  }
  void unwatch_calls(WatchedCalls* calls) {
    if (calls != &WatchedCalls::unwatched() && death_watch_ != nullptr) {
      death_watch_->remove(calls);
    }
  }

  /// Live communicators with direct kernels: each has staging memory on its GPU.
  std::atomic<int> direct_communicators{0};
  /// A communicator lives until leave(), which comes after everything of it has gone. The last one
  /// frees what is cached of scratch memory, unless one failed: memory of a GPU is freed when all
  /// that runs there is done, and something may run for ever.
  void enter() { communicators_.fetch_add(1); }
  void leave(bool has_failed);
  /// Same, of the last one's part of it.
  void release_scratch();

  runners::Scratch& scratch() { return *scratch_; }
  Counters& counters() { return counters_; }
  /// Null when nobody wants one (TUTTI_SUMMARY).
  Summary* summary() { return config_.summary ? &summary_ : nullptr; }

  /// Prints configuration problems and the effective configuration, once, from one rank.
  void report_configuration(int world_rank);
  /// Counts a fall-back and, the first time, warns about it from `is_speaker`.
  Counter& fallback(const std::string& text, bool is_speaker);

 private:
  Process();

  Config config_;
  std::vector<ConfigProblem> problems_;
  select::Table table_;
  topology::TopologyFile topology_file_;
  std::once_flag machine_read_;
  topology::Machine machine_;
  std::string config_error_;
  std::uint64_t agreement_hash_ = 0;
  device::OpenReport device_report_;
  std::unique_ptr<device::Api> device_;
  std::unique_ptr<runners::Scratch> scratch_;
  std::atomic<int> communicators_{0};
  std::atomic<bool> may_run_for_ever_ = false;  ///< What a communicator that failed left on a GPU.
  std::once_flag share_read_;
  NodeShare share_;
  std::mutex host_memory_mutex_;
  std::shared_ptr<runners::HostMemory> host_memory_;
  std::once_flag death_watch_started_;
  std::unique_ptr<DeathWatch> death_watch_;  ///< Null where there is no thread for it.
  std::mutex ccl_mutex_;
  bool ccl_tried_ = false;
  std::unique_ptr<ccl::CclLibrary> ccl_;
  Status ccl_status_;
  Counters counters_;
  Summary summary_;
  std::once_flag reported_;
};

}  // namespace tutti::engine
