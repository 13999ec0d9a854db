// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/ccl/ccl_schedule_runner.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "runners/ccl/group.hpp"
#include "schedule/rounds.hpp"

namespace tutti::runners {

using schedule::Program;
using schedule::Step;
using schedule::StepKind;

namespace {

/// Programs kept; a program that shapes no longer need is made again.
constexpr std::size_t kCacheSize = 64;

/// Of the parts of one piece of scratch: what cudaMalloc gives.
constexpr Bytes kPartAlignment = 256;

bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
}

}  // namespace

const CclScheduleRunner::Prepared& CclScheduleRunner::prepared(
    const std::string& algorithm, const schedule::Parameters& parameters, const Call& call,
    const ScopeRank& me) {
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
  std::vector<Program> programs;
  for (int rank = 0; rank < me.ranks; ++rank) {
    programs.push_back(schedule::generate(*schedule::find_algorithm(call.collective, algorithm),
                                          {layout_, made->problem, rank, parameters}));
  }
  made->round = schedule::rounds_of(programs, me.rank);
  made->program = std::move(programs[static_cast<std::size_t>(me.rank)]);
  made->order.resize(made->program.steps.size());
  std::iota(made->order.begin(), made->order.end(), 0U);
  const auto place = [&](std::uint32_t number) {
    const Step& step = made->program.steps[number];
    // Both ends of a pair and direction issue the messages of a round in the order of their tags.
    return is_message(step) ? std::tuple(made->round[number], 0, step.peer, step.tag)
                            : std::tuple(made->round[number], 1, 0, number);
  };
  std::sort(made->order.begin(), made->order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
  return *cache_.emplace_back(std::move(made));
}

Status CclScheduleRunner::run(const std::string& algorithm, const schedule::Parameters& parameters,
                              const Call& call) {
  const ScopeRank me = bootstrap_.scope_rank(Scope::kWhole);
  const Prepared& ready = prepared(algorithm, parameters, call, me);
  return ccl_.run_queued(call, [&](const Call& moved, CclRunner::Target& target) {
    return queue(ready, moved, me, target);
  });
}

Status CclScheduleRunner::queue(const Prepared& prepared, const Call& call, const ScopeRank& me,
                                CclRunner::Target& target) {
  const Program& program = prepared.program;
  const bool is_bcast = call.collective == select::Collective::kBcast;
  ProgramBuffers bases;
  bases.element_bytes = call.element_bytes;
  bases.base[0] = static_cast<std::byte*>(const_cast<void*>(is_bcast ? call.recv : call.send));
  bases.base[1] = static_cast<std::byte*>(call.recv);
  const Bytes input_bytes =
      needs_own_input(call) ? input_elements(call, me.rank, me.ranks) * call.element_bytes : 0;
  const Bytes scratch_bytes = (program.scratch_count * call.element_bytes + kPartAlignment - 1) /
                              kPartAlignment * kPartAlignment;
  if (scratch_bytes + input_bytes > 0) {
    // Kept by the pool: only the first call of a size allocates.
    TUTTI_ASSIGN_OR_RETURN(target.scratch, scratch_.device(device_, scratch_bytes + input_bytes));
    bases.base[2] = static_cast<std::byte*>(target.scratch.data());
  }
  if (input_bytes > 0) {
    bases.base[0] = bases.base[2] + scratch_bytes;
    TUTTI_RETURN_IF_ERROR(api_.copy_async(bases.base[0], call.send, input_bytes, target.stream));
  }
  for (std::size_t at = 0; at < prepared.order.size();) {
    const Step& step = program.steps[prepared.order[at]];
    if (is_message(step)) {
      TUTTI_RETURN_IF_ERROR(queue_round(prepared, &at, bases, target));
    } else {
      TUTTI_RETURN_IF_ERROR(queue_local(step, call, bases, target));
      ++at;
    }
  }
  return {};
}

Status CclScheduleRunner::queue_round(const Prepared& prepared, std::size_t* at,
                                      const ProgramBuffers& bases,
                                      const CclRunner::Target& target) {
  const std::vector<Step>& steps = prepared.program.steps;
  const std::uint32_t round = prepared.round[prepared.order[*at]];
  TUTTI_ASSIGN_OR_RETURN(auto group, Group::open(library_));
  for (; *at < prepared.order.size(); ++*at) {
    const std::uint32_t number = prepared.order[*at];
    const Step& step = steps[number];
    if (!is_message(step) || prepared.round[number] != round) {
      break;
    }
    TUTTI_RETURN_IF_ERROR(
        step.kind == StepKind::kSend
            ? library_.send(bases.at(step.source), bases.bytes(step.source), ccl::NcclType::kUint8,
                            step.peer, target.communicator, target.stream)
            : library_.recv(bases.at(step.destination), bases.bytes(step.destination),
                            ccl::NcclType::kUint8, step.peer, target.communicator, target.stream));
  }
  return group.close();
}

Status CclScheduleRunner::queue_local(const Step& step, const Call& call,
                                      const ProgramBuffers& bases,
                                      const CclRunner::Target& target) {
  std::byte* const to = bases.at(step.destination);
  const std::byte* const from = bases.at(step.source);
  if (step.kind == StepKind::kReduce) {
    return reduce_(to, from, step.source.count, call.type, call.op, target.stream);
  }
  // In place a block may be where it belongs.
  return to == from ? Status() : api_.copy_async(to, from, bases.bytes(step.source), target.stream);
}

}  // namespace tutti::runners
