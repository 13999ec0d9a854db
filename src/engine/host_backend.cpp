// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/host_backend.hpp"

#include <utility>

#include "base/log.hpp"

namespace tutti::engine {

using runners::DirectHostRunner;

DirectHostRunner::Introduction HostBackend::introduce(
    Result<std::shared_ptr<runners::HostMemory>> memory) {
  DirectHostRunner::Introduction own = DirectHostRunner::introduce(memory, context_.me.ranks);
  memory_ = memory.ok() ? std::move(*memory) : nullptr;
  set_introductions({own});
  return own;
}

const HostBackend::Introductions& HostBackend::introductions() const {
  static const Introductions none;
  return introductions_ == nullptr ? none : *introductions_;
}

std::function<std::string()> HostBackend::other_way_finder() const {
  return [memory = memory_, rank = context_.me.rank, introductions = introductions_] {
    return DirectHostRunner::find_call_another_way(*memory, rank, *introductions);
  };
}

void HostBackend::give_back(bool is_known) {
  if (!introductions().empty() && memory_ != nullptr) {
    const auto& mine = introductions().size() == 1 ? introductions()[0] : own();
    if (has_posted()) {
      // Peers may have mapped it and still read it.
      memory_->retire(mine.part, std::exchange(posted_, {}).use);
    } else if (!is_known) {
      DirectHostRunner::give_back(memory_, mine);
    } else {
      memory_->abandon(mine.part);
    }
  }
  introductions_.reset();
  memory_.reset();
}

Status HostBackend::prepare(const select::Plan& /*plan*/, int /*device*/,
                            std::string* /*ccl_refusal*/) {
  return was_tried_ ? Status() : set_up();
}

Status HostBackend::set_up() {
  was_tried_ = true;
  std::string& refusal = context_.facts.direct_host_refusal;
  refusal.clear();
  Status status = agree(&refusal);
  if (!status.ok()) {
    refusal = "its set-up failed: " + status.message();
  }
  return status;
}

bool HostBackend::post_set_up() {
  if (!has_posted() && context_.machines.nodes() == 1 && !introductions().empty() &&
      memory_ != nullptr) {
    posted_ = DirectHostRunner::post(*memory_, context_.me.rank, introductions());
  }
  return posted_.is_mapped;
}

Status HostBackend::agree(std::string* refusal) {
  *refusal = context_.machines.nodes() != 1
                 ? "ranks are on " + std::to_string(context_.machines.nodes()) + " machines"
                 : "";
  if (!refusal->empty()) {
    return {};
  }
  if (introductions().empty()) {
    *refusal = "more ranks than a machine has";
    return {};
  }
  const auto all = std::exchange(introductions_, nullptr);
  posted_ = {};
  auto made = DirectHostRunner::create(std::move(memory_), context_.me.rank, *all,
                                       {.timeout_s = context_.timeout_s,
                                        // As MPI does; the C API promises a limit.
                                        .waits_for_the_living = context_.facts.has_mpi,
                                        .is_crowded = context_.facts.oversubscribed,
                                        .are_mapped = are_mapped_,
                                        .progress = [this] { context_.bootstrap.progress(); },
                                        .is_aborted = context_.is_aborted,
                                        .calls = &calls_,
                                        .calls_doubted = calls_doubted_});
  if (made.ok()) {
    runner_ = std::move(*made);
  } else if (made.status().code() != ErrorCode::kUnavailable) {
    return made.status();  // Nothing was agreed: the others may have it.
  } else {
    *refusal = made.status().message();  // No rank has it.
  }
  if (context_.is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, refusal->empty() ? "direct: shared memory of this communicator is ready"
                                          : "no direct backend for host memory: " + *refusal);
  }
  return {};
}

Status HostBackend::run(const Route& route, const runners::Call& call) {
  const auto run_one = [this](const runners::Call& one) {
    return runner_->run(runners::Scope::kWhole, one);
  };
  const auto carry = [&](const runners::Call& on_host) {
    return on_host.op == select::ReduceOp::kAvg ? run_average(on_host, run_one) : run_one(on_host);
  };
  if (!runners::is_on_device(call)) {
    return carry(call);
  }
  return run_through_host(route, call, carry,
                          [this](const Status& status) { runner_->give_up(status); });
}

void HostBackend::fail(const Status& status) {
  if (introductions().size() > 1 && memory_ != nullptr) {
    memory_->tell_failure(own().part);
  }
  if (runner_ != nullptr) {
    runner_->give_up(status);
  }
}

Status HostBackend::look_at_peers(bool in_call) const {
  if (runner_ != nullptr) {
    return runner_->look_at_peers(in_call);
  }
  if (memory_ != nullptr && introductions().size() == static_cast<std::size_t>(context_.me.ranks)) {
    return DirectHostRunner::look_at_peers(*memory_, context_.me.rank, introductions(),
                                           in_call ? calls_ : 0);
  }
  return Status(ErrorCode::kUnavailable, "the ranks share no memory");
}

std::byte* HostBackend::calls_line() const {
  if (runner_ != nullptr) {
    return runner_->calls_line();
  }
  return memory_ == nullptr ? nullptr
                            : DirectHostRunner::calls_line(*memory_, own(), context_.me.ranks);
}

void HostBackend::tell_refusal() const {
  if (runner_ != nullptr) {
    runner_->tell_refusal();
  } else if (memory_ != nullptr) {
    DirectHostRunner::tell_refusal(*memory_, own(), context_.me.ranks, calls_);
  }
}

}  // namespace tutti::engine
