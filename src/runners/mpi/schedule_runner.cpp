// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/mpi/schedule_runner.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runners/relocate.hpp"
#include "schedule/algorithm.hpp"

namespace tutti::runners {

using schedule::Program;
using schedule::Step;
using schedule::StepKind;

namespace {

/// Programs kept; a program that shapes no longer need is made again.
constexpr std::size_t kCacheSize = 64;

}  // namespace

const ScheduleRunner::Prepared& ScheduleRunner::prepared(const std::string& algorithm,
                                                         const schedule::Parameters& parameters,
                                                         const Call& call, const ScopeRank& me) {
  for (const auto& known : cache_) {
    if (known->algorithm == algorithm && known->parameters == parameters &&
        is_problem_of(known->problem, call)) {
      return *known;
    }
  }
  if (cache_.size() >= kCacheSize) {
    cache_.clear();
  }
  auto made = std::make_unique<Prepared>();
  made->algorithm = algorithm;
  made->parameters = parameters;
  made->problem = problem_of(call, me.ranks);
  made->program = schedule::generate(*schedule::find_algorithm(call.collective, algorithm),
                                     {layout_, made->problem, me.rank, parameters});
  const Program& program = made->program;
  made->first_follower.assign(program.steps.size() + 1, 0);
  for (const std::uint32_t before : program.dependencies) {
    ++made->first_follower[before + 1];
  }
  for (std::size_t i = 1; i < made->first_follower.size(); ++i) {
    made->first_follower[i] += made->first_follower[i - 1];
  }
  made->followers.resize(program.dependencies.size());
  std::vector<std::uint32_t> next = made->first_follower;
  for (std::uint32_t number = 0; number < program.steps.size(); ++number) {
    const Step& step = program.steps[number];
    made->waits_for.push_back(step.dependency_count);
    for (const std::uint32_t before : program.dependencies_of(step)) {
      made->followers[next[before]++] = number;
    }
  }
  return *cache_.emplace_back(std::move(made));
}

Status ScheduleRunner::run(const std::string& algorithm, const schedule::Parameters& parameters,
                           const Call& call, device::Stream stream) {
  const ScopeRank me = mpi_.scope_rank(Scope::kWhole);
  const Prepared& ready = prepared(algorithm, parameters, call, me);
  const auto moves = [](const device::PointerInfo& memory, std::span<const std::uint64_t> counts,
                        std::span<const std::uint64_t> offsets) {
    return memory.kind == device::MemoryKind::kDevice || !is_dense(counts, offsets);
  };
  const bool move_send = moves(call.send_memory, call.send_counts, call.send_offsets);
  const bool move_recv = moves(call.recv_memory, call.recv_counts, call.recv_offsets);
  if (!move_send && !move_recv) {
    return run_on_host(ready, call, me);
  }
  Relocated relocated;
  TUTTI_RETURN_IF_ERROR(relocated.move_in(call, me, Place::kPinnedHost, -1, move_send, move_recv,
                                          api_, scratch_, stream));
  if (Status status = run_on_host(ready, relocated.call(), me); !status.ok()) {
    relocated.abandon();
    return status;
  }
  return relocated.move_out();
}

Status ScheduleRunner::run_on_host(const Prepared& prepared, const Call& call,
                                   const ScopeRank& me) {
  const Program& program = prepared.program;
  ProgramBuffers bases;
  bases.element_bytes = call.element_bytes;
  TUTTI_ASSIGN_OR_RETURN(Lease scratch,
                         scratch_.pinned(program.scratch_count * call.element_bytes));
  const bool is_bcast = call.collective == select::Collective::kBcast;
  bases.base[0] = static_cast<std::byte*>(const_cast<void*>(is_bcast ? call.recv : call.send));
  bases.base[1] = static_cast<std::byte*>(call.recv);
  bases.base[2] = static_cast<std::byte*>(scratch.data());
  Lease own_input;
  if (needs_own_input(call)) {
    const Bytes bytes = input_elements(call, me.rank, me.ranks) * call.element_bytes;
    TUTTI_ASSIGN_OR_RETURN(own_input, scratch_.pinned(bytes));
    std::memcpy(own_input.data(), call.send, bytes);
    bases.base[0] = static_cast<std::byte*>(own_input.data());
  }

  Status status = carry_out(prepared, call, bases);
  if (!status.ok()) {
    // A message that is under way may still be written here: never reused.
    scratch.abandon();
    own_input.abandon();
  }
  return status;
}

Status ScheduleRunner::carry_out(const Prepared& prepared, const Call& call,
                                 const ProgramBuffers& bases) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPollsPerLook = 1024;
  const Program& program = prepared.program;
  waiting_ = prepared.waits_for;
  ready_.clear();
  step_of_slot_.clear();
  free_slots_.clear();
  done_ = 0;
  // Receives first: a message that finds its receive posted is not copied twice.
  for (const bool receives : {true, false}) {
    for (std::uint32_t number = 0; number < program.steps.size(); ++number) {
      if (waiting_[number] == 0 && (program.steps[number].kind == StepKind::kRecv) == receives) {
        ready_.push_back(number);
      }
    }
  }
  std::size_t begun = 0;
  int polls = 0;
  const auto start = Clock::now();
  while (done_ < program.steps.size()) {
    while (begun < ready_.size()) {
      const std::uint32_t number = ready_[begun++];
      TUTTI_RETURN_IF_ERROR(begin(program.steps[number], number, call, bases));
      const StepKind kind = program.steps[number].kind;
      if (kind == StepKind::kCopy || kind == StepKind::kReduce) {
        finish(prepared, number);
      }
    }
    if (done_ == program.steps.size()) {
      break;
    }
    if (++polls % kPollsPerLook == 0 && timeout_s_ > 0 &&
        std::chrono::duration<double>(Clock::now() - start).count() > timeout_s_) {
      return Status(ErrorCode::kTimeout, "schedule " + prepared.algorithm +
                                             ": not finished after "
                                             "TUTTI_TIMEOUT=" +
                                             std::to_string(timeout_s_) +
                                             " s; a peer may be dead or not in the call");
    }
    completed_.clear();
    TUTTI_RETURN_IF_ERROR(mpi_.test_some(static_cast<int>(step_of_slot_.size()), &completed_));
    for (const int slot : completed_) {
      free_slots_.push_back(slot);
      finish(prepared, step_of_slot_[static_cast<std::size_t>(slot)]);
    }
  }
  return {};
}

Status ScheduleRunner::begin(const Step& step, std::uint32_t number, const Call& call,
                             const ProgramBuffers& bases) {
  if (step.kind == StepKind::kCopy) {
    std::byte* const to = bases.at(step.destination);
    const std::byte* const from = bases.at(step.source);
    if (to != from) {  // In place a block may be where it belongs.
      std::memmove(to, from, bases.bytes(step.source));
    }
    return {};
  }
  if (step.kind == StepKind::kReduce) {
    return mpi_.reduce_local(bases.at(step.source), bases.at(step.destination), step.source.count,
                             call);
  }
  int slot = static_cast<int>(step_of_slot_.size());
  if (free_slots_.empty()) {
    step_of_slot_.push_back(number);
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    step_of_slot_[static_cast<std::size_t>(slot)] = number;
  }
  const int tag = static_cast<int>(step.tag);
  return step.kind == StepKind::kSend
             ? mpi_.isend(bases.at(step.source), bases.bytes(step.source), step.peer, tag, slot)
             : mpi_.irecv(bases.at(step.destination), bases.bytes(step.destination), step.peer, tag,
                          slot);
}

void ScheduleRunner::finish(const Prepared& prepared, std::uint32_t number) {
  ++done_;
  for (std::uint32_t i = prepared.first_follower[number]; i < prepared.first_follower[number + 1];
       ++i) {
    const std::uint32_t follower = prepared.followers[i];
    if (--waiting_[follower] == 0) {
      ready_.push_back(follower);
    }
  }
}

}  // namespace tutti::runners
