// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/communicator.hpp"

#include "base/log.hpp"
#include "runners/direct/deferred_free.hpp"

namespace tutti::engine {

Communicator::~Communicator() {
  membership_.has_failed = !failure_.ok();
  if (device_combine_ != nullptr && (!failure_.ok() || !end_->reason().ok())) {
    device_combine_->abandon();  // Its kernels may be behind one that never ends.
  }
  if (direct_runner_ != nullptr) {
    process_.direct_communicators.fetch_sub(1, std::memory_order_relaxed);
  }
  process_.unwatch_calls(watched_calls_);
  if (mpi_ != nullptr) {
    mpi_->set_look(nullptr);
  }
  give_back_host_memory(/*is_known=*/!is_complete_);
  free_deferred_memory();
}

/// Of communicators that were freed earlier; this one may have no kernels of ours.
void Communicator::free_deferred_memory() {
  if (!inert_ && process_.device() != nullptr) {
    runners::free_deferred(*process_.device());
  }
}

void Communicator::fail(const Status& status) {
  if (mpi_ != nullptr && failure_.ok()) {
    mpi_->leave();
  }
  failure_ = status;
  forget_routes();  // No call goes to the MPI as it did before.
  if (host_introductions().size() > 1 && host_memory_ != nullptr) {
    host_memory_->tell_failure(host_introductions()[static_cast<std::size_t>(place_.rank)].part);
  }
  if (direct_host_runner_ != nullptr) {
    direct_host_runner_->give_up(status);
  }
  if (ccl_runner_ != nullptr) {
    ccl_runner_->set_failed();
  }
}

/// On all ranks.
void Communicator::lose_messages() {
  facts_.messages_refusal =
      "no communicator of ours is to be had beside the application's (it has many; the MPI library "
      "has few)";
  if (is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, facts_.messages_refusal);
  }
}

void Communicator::refuse() {
  count_doubted();
  if (direct_host_runner_ != nullptr) {
    direct_host_runner_->tell_refusal();
  } else if (host_memory_ != nullptr) {
    runners::DirectHostRunner::tell_refusal(
        *host_memory_, host_introductions()[static_cast<std::size_t>(place_.rank)], place_.ranks,
        calls_);
  }
  if (mpi_ == nullptr || !mpi_->refuse(calls_)) {
    fail(Status(ErrorCode::kInvalidArgument,
                "an earlier call of this rank had wrong arguments; other ranks may be in it"));
  }
}

void Communicator::begin_end() {
  if (direct_runner_ != nullptr) {
    direct_runner_->begin_end();
  }
  if (ccl_runner_ != nullptr) {
    ccl_runner_->begin_end();
  }
}

/// What keeps a rank from coming to this communicator's calls; kUnavailable: nothing tells.
Status Communicator::look_at_peers(bool in_call) {
  if (direct_host_runner_ != nullptr) {
    return direct_host_runner_->look_at_peers(in_call);
  }
  if (host_memory_ != nullptr &&
      host_introductions().size() == static_cast<std::size_t>(place_.ranks)) {
    return runners::DirectHostRunner::look_at_peers(*host_memory_, place_.rank,
                                                    host_introductions(), in_call ? calls_ : 0);
  }
  return Status(ErrorCode::kUnavailable, "the ranks share no memory");
}

/// Null: no other rank reads it.
std::byte* Communicator::find_calls_line() const {
  if (direct_host_runner_ != nullptr) {
    return direct_host_runner_->calls_line();
  }
  return host_memory_ == nullptr
             ? nullptr
             : runners::DirectHostRunner::calls_line(
                   *host_memory_, host_introductions()[static_cast<std::size_t>(place_.rank)],
                   place_.ranks);
}

/// `is_known`: others may have heard of it, and still count on it.
void Communicator::give_back_host_memory(bool is_known) {
  calls_line_ = unread_line_.data();
  if (!host_introductions().empty() && host_memory_ != nullptr) {
    const bool is_alone = host_introductions().size() == 1;
    const auto& mine = host_introductions()[is_alone ? 0 : static_cast<std::size_t>(place_.rank)];
    // After a failure of this rank the others may be in a call and still look at the memory.
    if (failure_.ok() && !is_known) {
      runners::DirectHostRunner::give_back(host_memory_, mine);
    } else {
      host_memory_->abandon(mine.part);
    }
  }
  host_introductions_.reset();
  host_memory_.reset();
}

}  // namespace tutti::engine
