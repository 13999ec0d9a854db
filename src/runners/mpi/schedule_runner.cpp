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
using schedule::Region;
using schedule::Step;
using schedule::StepKind;
using select::Collective;

namespace {

/// Programs kept; a program that shapes no longer need is made again.
constexpr std::size_t kCacheSize = 64;

/// schedule::Problem::counts of a call has one number for all, not one for each rank.
bool has_one_count(Collective collective) {
  return collective == Collective::kBcast || collective == Collective::kReduce ||
         collective == Collective::kAllreduce || collective == Collective::kAlltoall;
}

schedule::Problem problem_of(const Call& call, int ranks) {
  schedule::Problem problem;
  problem.collective = call.collective;
  problem.ranks = ranks;
  problem.root = call.root;
  if (call.collective == Collective::kReduceScatter) {
    problem.counts.assign(call.recv_counts.begin(), call.recv_counts.end());
  } else {
    problem.counts.assign(has_one_count(call.collective) ? 1 : static_cast<std::size_t>(ranks),
                          call.count);
  }
  return problem;
}

/// Whether a call has this problem; allocates nothing.
bool is_problem_of(const schedule::Problem& problem, const Call& call) {
  return problem.collective == call.collective && problem.root == call.root &&
         (call.collective == Collective::kReduceScatter
              ? std::equal(problem.counts.begin(), problem.counts.end(), call.recv_counts.begin(),
                           call.recv_counts.end())
              : problem.counts.front() == call.count);
}

/// In place, programs read the input only to copy it to where it belongs in the output, except
/// where MPI puts the output elsewhere in the input (reduce_scatter) or on all of it (alltoall).
bool needs_own_input(const Call& call) {
  return call.in_place && (call.collective == Collective::kAlltoall ||
                           call.collective == Collective::kReduceScatter ||
                           call.collective == Collective::kReduceScatterBlock);
}

}  // namespace

/// Addresses of the three buffers.
struct ScheduleRunner::Bases {
  std::byte* base[3] = {};
  Bytes element_bytes = 1;

  std::byte* at(const Region& region) const {
    return base[static_cast<std::size_t>(region.buffer)] + region.offset * element_bytes;
  }
  Bytes bytes(const Region& region) const { return region.count * element_bytes; }
};

const ScheduleRunner::Prepared& ScheduleRunner::prepared(const std::string& algorithm,
                                                         const Call& call, const ScopeRank& me) {
  for (const auto& known : cache_) {
    if (known->algorithm == algorithm && is_problem_of(known->problem, call)) {
      return *known;
    }
  }
  if (cache_.size() >= kCacheSize) {
    cache_.clear();
  }
  auto made = std::make_unique<Prepared>();
  made->algorithm = algorithm;
  made->problem = problem_of(call, me.ranks);
  made->program = schedule::generate(*schedule::find_algorithm(call.collective, algorithm),
                                     {layout_, made->problem, me.rank, {}});
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

Status ScheduleRunner::run(const std::string& algorithm, const Call& call, device::Stream stream) {
  const ScopeRank me = mpi_.scope_rank(Scope::kWhole);
  const Prepared& ready = prepared(algorithm, call, me);
  const auto on_device = [](const device::PointerInfo& memory) {
    return memory.kind == device::MemoryKind::kDevice;
  };
  if (!on_device(call.send_memory) && !on_device(call.recv_memory)) {
    return run_on_host(ready, call, me);
  }
  Relocated relocated;
  TUTTI_RETURN_IF_ERROR(relocated.move_in(call, me, Place::kPinnedHost, -1,
                                          on_device(call.send_memory), on_device(call.recv_memory),
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
  Bases bases;
  bases.element_bytes = call.element_bytes;
  TUTTI_ASSIGN_OR_RETURN(Lease scratch,
                         scratch_.pinned(program.scratch_count * call.element_bytes));
  const bool is_bcast = call.collective == Collective::kBcast;
  bases.base[0] = static_cast<std::byte*>(const_cast<void*>(is_bcast ? call.recv : call.send));
  bases.base[1] = static_cast<std::byte*>(call.recv);
  bases.base[2] = static_cast<std::byte*>(scratch.data());
  Lease own_input;
  if (needs_own_input(call)) {
    Bytes bytes = 0;
    for (const Run& run : send_runs(call, me.rank, me.ranks)) {
      bytes += run.count * call.element_bytes;
    }
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

Status ScheduleRunner::carry_out(const Prepared& prepared, const Call& call, const Bases& bases) {
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
                             const Bases& bases) {
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
