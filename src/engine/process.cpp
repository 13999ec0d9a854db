// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/process.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/fnv1a.hpp"
#include "base/json_document.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "discover/discover.hpp"

namespace tutti::engine {

Result<topology::TopologyFile> load_topology(const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(const std::string text, read_json_file(path));
  return topology::parse_topology(text, path);
}

Process& Process::get() {
  // Never destroyed: other threads of the host program may be in a call while statics go away.
  static Process* const process = new Process();
  return *process;
}

Process::Process() {
  ParsedConfig parsed = config_from_environment();
  config_ = parsed.config;
  problems_ = std::move(parsed.problems);
  configure_log(config_.log_level, config_.log_file);
  for (const ConfigProblem& problem : problems_) {
    if (problem.is_error && config_error_.empty()) {
      config_error_ = problem.text;
    }
  }
  auto table = select::effective_table(config_);
  if (table.ok()) {
    table_ = std::move(*table);
  } else {
    table_ = select::default_table();
    problems_.push_back({true, table.status().message()});
    if (config_error_.empty()) {
      config_error_ = table.status().message();
    }
  }
  if (!config_.topology_file.empty()) {
    auto topology = load_topology(config_.topology_file);
    if (topology.ok()) {
      topology_file_ = std::move(*topology);
    } else {
      problems_.push_back({true, topology.status().message()});
      if (config_error_.empty()) {
        config_error_ = topology.status().message();
      }
    }
  }
  Fnv1a agreement(table_.hash());
  agreement.add_number(static_cast<std::uint64_t>(config_.virtual_nodes.count));
  for (const int ranks : config_.virtual_nodes.sizes) {
    agreement.add_number(static_cast<std::uint64_t>(ranks));
  }
  agreement.add_number(config_.pipeline_chunk_bytes);
  // What ranks try at set-up, one after the other.
  for (const std::string* const text : {&config_.direct, &config_.direct_handles}) {
    for (const char letter : *text) {
      agreement.add_number(static_cast<unsigned char>(letter));
    }
    agreement.add_number(0);
  }
  agreement.add_number(config_error_.empty() ? 0 : 1);
  agreement_hash_ = agreement.value();
  device_ = device::open(config_.device, &device_report_);
  if (device_ == nullptr && config_.device != "auto" && config_.device != "none") {
    problems_.push_back({true, "TUTTI_DEVICE=" + config_.device + ": " + device_report_.reason});
  }
  scratch_ = std::make_unique<runners::Scratch>(device_.get(), config_.pinned_pool_bytes);
}

const topology::Machine& Process::machine() {
  std::call_once(machine_read_, [this] { machine_ = discover::this_machine_by_sysfs(); });
  return machine_;
}

Result<ccl::CclLibrary*> Process::ccl() {
  const std::lock_guard lock(ccl_mutex_);
  if (!ccl_tried_) {
    ccl_tried_ = true;
    if (device_ == nullptr) {
      ccl_status_ = Status(ErrorCode::kUnavailable, "no GPU library: " + device_report_.reason);
    } else if (config_.ccl == "none") {
      ccl_status_ = Status(ErrorCode::kUnavailable, "TUTTI_CCL=none");
    } else {
      auto opened = ccl::CclLibrary::open(config_.ccl, device_->name(), config_.ccl_library);
      if (opened.ok()) {
        ccl_ = std::move(*opened);
      } else {
        ccl_status_ = opened.status();
      }
    }
  }
  if (ccl_ == nullptr) {
    return ccl_status_;
  }
  return ccl_.get();
}

Result<std::shared_ptr<runners::HostMemory>> Process::host_memory(int node_ranks,
                                                                  bool has_threads) {
  const std::lock_guard lock(host_memory_mutex_);
  if (host_memory_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(
        host_memory_,
        runners::HostMemory::make(runners::HostMemory::default_options(node_ranks, has_threads)));
  }
  if (has_threads && host_memory_->shares_rings()) {
    return Status(ErrorCode::kUnavailable,
                  "this process's shared memory was made before MPI had MPI_THREAD_MULTIPLE");
  }
  return host_memory_;
}

const NodeShare& Process::node_share(int world_ranks) {
  std::call_once(share_read_, [&] { share_ = own_node_share(world_ranks); });
  return share_;
}

WatchedCalls* Process::watch_calls(std::vector<runners::HostProcess> ranks) {
  std::call_once(death_watch_started_, [&] {
    constexpr double kGraceS = 10;
    auto watch = std::make_unique<DeathWatch>(std::min(kGraceS, config_.timeout_s),
                                              [] { static_cast<void>(kill(getpid(), SIGTERM)); });
    // The process is never destroyed (get()), so the thread may go on until its end.
    auto thread = start_thread("tutti-deaths", [looks = watch.get()] {
      constexpr auto kEvery = std::chrono::seconds(1);
      const auto start = std::chrono::steady_clock::now();
      for (;;) {
        std::this_thread::sleep_for(kEvery);
        const std::chrono::duration<double> now = std::chrono::steady_clock::now() - start;
        looks->look(now.count());
      }
    });
    if (!thread.ok()) {
      log(LogLevel::kWarn, thread.status().message() +
                               ": a rank that dies while others wait for it in a collective of "
                               "the MPI library makes them wait for ever");
      return;
    }
    thread->detach();
    death_watch_ = std::move(watch);
  });
  return death_watch_ == nullptr ? &WatchedCalls::unwatched() : death_watch_->add(std::move(ranks));
}

void Process::leave(bool has_failed) {
  if (has_failed) {
    may_run_for_ever_ = true;
  }
  if (communicators_.fetch_sub(1) == 1) {
    release_scratch();
  }
}

void Process::release_scratch() {
  if (!may_run_for_ever_) {
    std::optional<device::RelaxedCapture> relaxed;
    if (device_ != nullptr) {
      relaxed.emplace(*device_);
    }
    scratch_->release();
  }
}

void Process::report_configuration(int world_rank) {
  std::call_once(reported_, [&] {
    set_log_rank(world_rank);
    if (world_rank != 0) {
      return;
    }
    for (const ConfigProblem& problem : problems_) {
      log(problem.is_error ? LogLevel::kError : LogLevel::kWarn, problem.text);
    }
    if (log_enabled(LogLevel::kInfo)) {
      const std::string file = select::tuning_file_path(config_);
      log(LogLevel::kInfo, "device " + device_report_.taken + "; tuning file " +
                               (file.empty() ? "none" : file) + "; " +
                               std::to_string(table_.rules.size()) + " rules");
    }
  });
}

Counter& Process::fallback(const std::string& text, bool is_speaker) {
  bool is_new = false;
  Counter& counter = counters_.fallback(text, &is_new);
  if (is_new && is_speaker) {
    log(LogLevel::kWarn, "fall-back: " + text);
  }
  return counter;
}

}  // namespace tutti::engine
