// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/processors.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "base/message.hpp"
#include "topology/machine.hpp"

namespace tutti::net {
namespace {

constexpr int kProcessorsMax = 8192;  // Linux has no more.
using Mask = std::array<cpu_set_t, kProcessorsMax / CPU_SETSIZE>;

std::vector<int> read_processors() {
  Mask mask{};
  std::vector<int> found;
  // By number: of the first thread. NCCL binds its own threads as it likes.
  if (sched_getaffinity(getpid(), sizeof(mask), mask.data()) == 0) {
    for (int i = 0; i < kProcessorsMax; ++i) {
      if (CPU_ISSET_S(static_cast<unsigned>(i), sizeof(mask), mask.data())) {
        found.push_back(i);
      }
    }
  }
  return found;
}

}  // namespace

const std::vector<int>& processors_of_process() {
  static const auto* const found =
      new std::vector<int>(read_processors());  // Threads may outlive it.
  return *found;
}

Status check_affinity(const std::string& affinity) {
  const std::optional<std::vector<int>> listed = topology::parse_cpus(affinity);
  if (affinity == "off" || affinity == "near" || (listed && !listed->empty())) {
    return {};
  }
  return {ErrorCode::kInvalidConfig, "TUTTI_NET_AFFINITY: " + in_quotes(affinity) +
                                         " is not near, off or a list of processors like 0-3,8"};
}

Result<std::vector<int>> choose_processors(const std::string& affinity,
                                           const std::vector<int>& near,
                                           const std::vector<int>& allowed, std::string* fallback) {
  fallback->clear();
  TUTTI_RETURN_IF_ERROR(check_affinity(affinity));
  if (affinity == "off") {
    return std::vector<int>();
  }
  const bool is_near = affinity == "near";
  const std::optional<std::vector<int>> listed = topology::parse_cpus(affinity);
  const std::vector<int>& wanted = is_near ? near : *listed;
  std::vector<int> chosen;
  std::set_intersection(wanted.begin(), wanted.end(), allowed.begin(), allowed.end(),
                        std::back_inserter(chosen));
  if (!is_near && chosen.empty()) {
    return Status(ErrorCode::kInvalidConfig, "TUTTI_NET_AFFINITY=" + affinity +
                                                 ": this process may use none of these, only " +
                                                 topology::format_cpus(allowed));
  }
  if (is_near && near.empty()) {
    *fallback = "engines on any processor, for it does not tell which are near";
  } else if (chosen.empty()) {
    *fallback = "engines on any processor, for this process may use none of those near it, " +
                topology::format_cpus(near);
  } else if (!is_near && chosen != *listed) {
    *fallback = "engines on processors " + topology::format_cpus(chosen) + " and not on " +
                affinity + ", of which this process may use no others";
  }
  return is_near && chosen == allowed ? std::vector<int>() : chosen;
}

Status bind_thread(std::thread& thread, const std::vector<int>& processors) {
  if (processors.empty()) {
    return {};
  }
  Mask mask{};
  for (const int processor : processors) {
    CPU_SET_S(static_cast<unsigned>(processor), sizeof(mask), mask.data());
  }
  const int error = pthread_setaffinity_np(thread.native_handle(), sizeof(mask), mask.data());
  return error == 0 ? Status()
                    : Status(ErrorCode::kUnavailable,
                             "net: a thread cannot be bound to processors " +
                                 topology::format_cpus(processors) + ": " + std::strerror(error));
}

}  // namespace tutti::net
