// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/comm_context.hpp"

#include "base/log.hpp"

namespace tutti::engine {

void CommContext::lose_messages() {
  facts.messages_refusal =
      "no communicator of ours is to be had beside the application's (it has many; the MPI library "
      "has few)";
  if (is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, facts.messages_refusal);
  }
}

Status CommContext::choose_device(int wanted) {
  if (process.device() == nullptr) {
    return Status(ErrorCode::kUnavailable, "no GPU library");
  }
  device::Api& api = *process.device();
  if (device < 0) {
    device = wanted >= 0 ? wanted : api.current_device();
  }
  TUTTI_RETURN_IF_ERROR(api.initialize());
  if (device < 0) {
    TUTTI_ASSIGN_OR_RETURN(const int count, api.device_count());
    if (count < 1) {
      return Status(ErrorCode::kUnavailable, "no GPU is visible");
    }
    device = machines.local_of[static_cast<std::size_t>(me.rank)] % count;
  }
  return {};
}

Status CommContext::agree_step(const Status& status, const char* what, std::string* refusal) const {
  std::uint64_t failed = status.ok() ? 0 : static_cast<std::uint64_t>(me.rank) + 1;
  TUTTI_RETURN_IF_ERROR(bootstrap.max_in_place(&failed, 1));
  if (failed != 0) {
    // Once: a job may make hundreds of communicators, all of which fail alike.
    if (!status.ok() && process.counters().is_first(status.message())) {
      log(LogLevel::kWarn, status.message());
    }
    *refusal = "rank " + std::to_string(failed - 1) + " " + what + " (see its log)";
  }
  return {};
}

}  // namespace tutti::engine
