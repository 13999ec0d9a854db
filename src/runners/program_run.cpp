// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/program_run.hpp"

#include <cstring>
#include <set>
#include <utility>

namespace tutti::runners {

using schedule::Step;
using schedule::StepKind;

namespace {

/// Peers that a message names; more are counted.
constexpr std::size_t kNamedPeers = 8;

}  // namespace

PreparedProgram::PreparedProgram(schedule::Program of) : program(std::move(of)) {
  first_follower.assign(program.steps.size() + 1, 0);
  for (const std::uint32_t before : program.dependencies) {
    ++first_follower[before + 1];
  }
  for (std::size_t i = 1; i < first_follower.size(); ++i) {
    first_follower[i] += first_follower[i - 1];
  }
  followers.resize(program.dependencies.size());
  waits_for.reserve(program.steps.size());
  std::vector<std::uint32_t> next = first_follower;
  for (std::uint32_t number = 0; number < program.steps.size(); ++number) {
    const Step& step = program.steps[number];
    waits_for.push_back(step.dependency_count);
    for (const std::uint32_t before : program.dependencies_of(step)) {
      followers[next[before]++] = number;
    }
  }
}

void ProgramRun::start(const PreparedProgram& prepared, const Call& call,
                       const ProgramBuffers& bases) {
  prepared_ = &prepared;
  call_ = &call;
  bases_ = bases;
  waiting_ = prepared.waits_for;
  ready_.clear();
  begun_ = 0;
  step_of_slot_.clear();
  free_slots_.clear();
  done_ = 0;
  carrier_.start(call.collective);
  const std::vector<Step>& steps = prepared.program.steps;
  // Receives first: a message that finds its receive posted is not copied twice.
  for (const bool receives : {true, false}) {
    for (std::uint32_t number = 0; number < steps.size(); ++number) {
      if (waiting_[number] == 0 && (steps[number].kind == StepKind::kRecv) == receives) {
        ready_.push_back(number);
      }
    }
  }
}

Status ProgramRun::advance() {
  while (begun_ < ready_.size()) {
    const std::uint32_t number = ready_[begun_++];
    TUTTI_RETURN_IF_ERROR(begin(number));
    const StepKind kind = prepared_->program.steps[number].kind;
    if (kind == StepKind::kCopy || kind == StepKind::kReduce) {
      finish(number);
    }
  }
  if (is_done()) {
    return {};
  }
  completed_.clear();
  TUTTI_RETURN_IF_ERROR(carrier_.test_some(static_cast<int>(step_of_slot_.size()), &completed_));
  for (const int slot : completed_) {
    free_slots_.push_back(slot);
    finish(step_of_slot_[static_cast<std::size_t>(slot)]);
  }
  return {};
}

Status ProgramRun::begin(std::uint32_t number) {
  const Step& step = prepared_->program.steps[number];
  if (step.kind == StepKind::kCopy) {
    std::byte* const to = bases_.at(step.destination);
    const std::byte* const from = bases_.at(step.source);
    if (to != from) {  // In place a block may be where it belongs.
      std::memmove(to, from, bases_.bytes(step.source));
    }
    return {};
  }
  if (step.kind == StepKind::kReduce) {
    return carrier_.reduce_local(bases_.at(step.source), bases_.at(step.destination),
                                 step.source.count, *call_);
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
             ? carrier_.isend(bases_.at(step.source), bases_.bytes(step.source), step.peer, tag,
                              slot)
             : carrier_.irecv(bases_.at(step.destination), bases_.bytes(step.destination),
                              step.peer, tag, slot);
}

void ProgramRun::finish(std::uint32_t number) {
  ++done_;
  for (std::uint32_t i = prepared_->first_follower[number];
       i < prepared_->first_follower[number + 1]; ++i) {
    const std::uint32_t follower = prepared_->followers[i];
    if (--waiting_[follower] == 0) {
      ready_.push_back(follower);
    }
  }
}

std::string ProgramRun::waits_for() const {
  const std::set<int> idle(free_slots_.begin(), free_slots_.end());
  std::set<int> peers;
  for (std::size_t slot = 0; slot < step_of_slot_.size(); ++slot) {
    if (!idle.contains(static_cast<int>(slot))) {
      peers.insert(prepared_->program.steps[step_of_slot_[slot]].peer);
    }
  }
  std::string text = peers.size() == 1 ? "rank " : "ranks ";
  std::size_t named = 0;
  for (const int peer : peers) {
    if (named == kNamedPeers) {
      return text + " and " + std::to_string(peers.size() - named) + " others";
    }
    text += (named++ > 0 ? ", " : "") + std::to_string(peer);
  }
  return text;
}

}  // namespace tutti::runners
