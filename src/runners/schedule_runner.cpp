// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/schedule_runner.hpp"

#include <cstring>
#include <limits>

#include "base/on_failure.hpp"
#include "runners/peer_watch.hpp"
#include "runners/staged_call.hpp"
#include "schedule/algorithm.hpp"

namespace tutti::runners {

namespace {

/// Programs kept; a program that shapes no longer need is made again.
constexpr std::size_t kCacheSize = 64;

}  // namespace

Result<const ScheduleRunner::Prepared*> ScheduleRunner::prepared(
    const std::string& algorithm, const schedule::Parameters& parameters, const Call& call) {
  for (const auto& known : cache_) {
    if (known->algorithm == algorithm && known->parameters == parameters &&
        is_problem_of(known->problem, call)) {
      return known.get();
    }
  }
  if (cache_.size() >= kCacheSize) {
    cache_.clear();
  }
  schedule::Problem problem = problem_of(call, me_.ranks);
  PreparedProgram program(schedule::generate(*schedule::find_algorithm(call.collective, algorithm),
                                             {layout_, problem, me_.rank, parameters}));
  TUTTI_RETURN_IF_ERROR(carrier_.prepare(program.program));
  return cache_
      .emplace_back(std::make_unique<Prepared>(
          Prepared{algorithm, parameters, std::move(problem), std::move(program)}))
      .get();
}

Status ScheduleRunner::run(const std::string& algorithm, const schedule::Parameters& parameters,
                           const Call& call, device::Stream stream) {
  TUTTI_ASSIGN_OR_RETURN(const Prepared* const ready, prepared(algorithm, parameters, call));
  const auto moves = [](const device::PointerInfo& memory, std::span<const std::uint64_t> counts,
                        std::span<const std::uint64_t> offsets) {
    return memory.kind == device::MemoryKind::kDevice || !is_dense(counts, offsets);
  };
  const bool move_send = moves(call.send_memory, call.send_counts, call.send_offsets);
  const bool move_recv = moves(call.recv_memory, call.recv_counts, call.recv_offsets);
  if (!move_send && !move_recv) {
    return run_on_host(*ready, call);
  }
  StagedCall staged;
  TUTTI_RETURN_IF_ERROR(staged.move_in(call, me_, {.move_send = move_send, .move_recv = move_recv},
                                       api_, scratch_, stream));
  OnFailure abandon([&] { staged.abandon(); });
  TUTTI_RETURN_IF_ERROR(run_on_host(*ready, staged.call()));
  abandon.succeed();
  return staged.move_out();
}

Status ScheduleRunner::run_on_host(const Prepared& prepared, const Call& call) {
  ProgramBuffers bases;
  bases.element_bytes = call.element_bytes;
  TUTTI_ASSIGN_OR_RETURN(
      Lease scratch, scratch_.pinned(prepared.program.program.scratch_count * call.element_bytes));
  const bool is_bcast = call.collective == select::Collective::kBcast;
  bases.base[0] = static_cast<std::byte*>(const_cast<void*>(is_bcast ? call.recv : call.send));
  bases.base[1] = static_cast<std::byte*>(call.recv);
  bases.base[2] = static_cast<std::byte*>(scratch.data());
  Lease own_input;
  if (needs_own_input(call)) {
    const Bytes bytes = input_elements(call, me_.rank, me_.ranks) * call.element_bytes;
    TUTTI_ASSIGN_OR_RETURN(own_input, scratch_.pinned(bytes));
    std::memcpy(own_input.data(), call.send, bytes);
    bases.base[0] = static_cast<std::byte*>(own_input.data());
  }

  OnFailure abandon([&] {
    if (!carrier_.abandon()) {
      // A message that is under way may still be written here, or read: never reused.
      scratch.abandon();
      own_input.abandon();
    }
  });
  TUTTI_RETURN_IF_ERROR(carry_out(prepared, call, bases));
  abandon.succeed();
  return {};
}

Status ScheduleRunner::carry_out(const Prepared& prepared, const Call& call,
                                 const ProgramBuffers& bases) {
  constexpr int kPollsPerLook = 1024;
  PeerWatch watch(look_, timeout_s_ > 0 ? timeout_s_ : std::numeric_limits<double>::infinity());
  std::int64_t polls = 0;
  running_.start(prepared.program, call, bases);
  while (true) {
    TUTTI_RETURN_IF_ERROR(running_.advance());
    if (running_.is_done()) {
      return {};
    }
    if (++polls % kPollsPerLook != 0) {
      continue;
    }
    const Status watched = watch.check();
    if (watched.code() == ErrorCode::kTimeout) {
      return carrier_.late(Status(
          ErrorCode::kTimeout, "schedule " + prepared.algorithm + ": not finished after " +
                                   time_limit(timeout_s_) + "; it waits for " +
                                   running_.waits_for() + ", who may be dead or not in the call"));
    }
    if (!watched.ok()) {
      return Status(watched.code(), "schedule " + prepared.algorithm + ": " + watched.message() +
                                        "; it waits for " + running_.waits_for());
    }
  }
}

}  // namespace tutti::runners
