// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/communicator.hpp"

#include "runners/direct/deferred_free.hpp"

namespace tutti::engine {
namespace {

Status aborted() { return Status(ErrorCode::kLibraryFailed, "the communicator was aborted"); }

}  // namespace

Communicator::~Communicator() {
  context_.process.unwatch_calls(watched_calls_);
  if (mpi_ != nullptr) {
    mpi_->set_look(nullptr);
  }
  give_back_host_memory(/*is_known=*/!is_complete_);
  free_deferred_memory();
}

/// Of communicators that were freed earlier; this one may have no kernels of ours.
void Communicator::free_deferred_memory() {
  if (!inert_ && context_.process.device() != nullptr) {
    runners::free_deferred(*context_.process.device());
  }
}

void Communicator::abort() {
  context_.is_aborted->store(true, std::memory_order_release);
  context_.calls->end(aborted());
}

Status Communicator::why_ended() const {
  return failure_.ok() && context_.is_aborted->load(std::memory_order_acquire) ? aborted()
                                                                               : failure_;
}

void Communicator::fail(const Status& status) {
  if (mpi_ != nullptr && failure_.ok()) {
    mpi_->leave();
  }
  failure_ = status;
  context_.calls->set_failed();
  forget_routes();  // No call goes to the MPI as it did before.
  for (PlanRunner* const one : backends_.all) {
    one->fail(status);
  }
}

void Communicator::give_back_host_memory(bool is_known) {
  calls_line_ = unread_line_.data();
  backends_.host.give_back(is_known || !failure_.ok());
}

void Communicator::refuse(select::Collective collective) {
  if (!asserted_host_) {
    count_doubted();
  }
  backends_.host.tell_refusal();
  // Where calls in doubt have no number, refusals of another collective do not belong together.
  const auto told = asserted_host_ ? static_cast<std::uint64_t>(collective) : calls_;
  if (mpi_ == nullptr || !mpi_->refuse(told)) {
    fail(Status(ErrorCode::kInvalidArgument,
                "an earlier call of this rank had wrong arguments; other ranks may be in it"));
  }
}

void Communicator::begin_end() {
  settle_agreements(/*agrees=*/false);
  for (PlanRunner* const one : backends_.all) {
    one->begin_end();
  }
}

}  // namespace tutti::engine
