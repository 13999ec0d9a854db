// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls on their routes, on streams, and the numbers of those that were refused.
#include "engine/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

namespace tutti::engine {

using runners::DoubtedCall;
using select::Collective;

namespace {

constexpr double kNoLimitS = std::numeric_limits<double>::infinity();

}  // namespace

Status Communicator::run(const Route& route, const runners::Call& call) {
  if (context_.calls->has_queued()) {
    TUTTI_RETURN_IF_ERROR(stream_status(/*wait=*/true));  // Calls run in the order of their making.
  }
  if (route.is_in_shared_memory()) {
    if (doubted_ > 0) [[unlikely]] {
      find_number(call);
    }
    ++calls_;
  } else {
    if (!may_be_missed(route, call.root)) {
      count_doubted();  // Steps of ours go by numbers, and do not show them.
    }
    pass_by();
    if (mpi_ != nullptr && !route.native_flat) {
      TUTTI_RETURN_IF_ERROR(mpi_->settle());
    }
  }
  Status status = route.runner->run(route, call);
  // Calls that differ are an error of that call alone, unless they have ended the runners.
  if (status.code() == ErrorCode::kMismatch && failure_.ok() && context_.calls->has_ended()) {
    fail(Status(ErrorCode::kLibraryFailed, "this communicator failed before: " + status.message()));
  }
  return status;
}

Result<runners::StartedCall> Communicator::start(const Route& route, const runners::Call& call,
                                                 device::Stream stream) {
  if (mpi_ != nullptr) {
    TUTTI_RETURN_IF_ERROR(mpi_->settle());
  }
  if (stream == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(stream, context_.calls->own_stream());
  }
  if (route.is_through_host) {  // It is copied here and now.
    const int device = std::max(call.send_memory.device, call.recv_memory.device);
    TUTTI_RETURN_IF_ERROR(wait_for_stream(std::max(device, context_.device), stream));
    has_copied_ = true;
    TUTTI_RETURN_IF_ERROR(run(route, call));
    return runners::StartedCall(context_.calls);
  }
  TUTTI_RETURN_IF_ERROR(route.runner->start(route, call, stream));
  count_doubted();
  pass_by();
  return runners::StartedCall(context_.calls);
}

Status Communicator::mark(device::Stream stream) {
  // Where every call was over at its return there is none that a number could stand behind.
  return has_copied_ && !context_.calls->has_queued() ? wait_for_stream(context_.device, stream)
                                                      : context_.calls->mark(stream);
}

/// Until what the stream has now is done, which may be another communicator's call: an abort ends
/// the wait. The driver's own wait could not be left.
Status Communicator::wait_for_stream(int device, device::Stream stream) {
  constexpr auto kPause = std::chrono::microseconds(20);
  std::optional<device::RelaxedCapture> relaxed;
  relax(&relaxed);
  device::Api& api = *context_.process.device();
  TUTTI_ASSIGN_OR_RETURN(const auto current, device::CurrentDevice::set(api, device, stream));
  for (;;) {
    TUTTI_ASSIGN_OR_RETURN(const bool is_done, api.stream_done(stream));
    TUTTI_RETURN_IF_ERROR(why_ended());
    if (is_done) {
      return {};
    }
    context_.bootstrap.progress();
    std::this_thread::sleep_for(kPause);
  }
}

Status Communicator::stream_status(bool wait) { return noted(context_.calls->status(wait)); }

Status Communicator::stream_glance() { return noted(context_.calls->glance()); }

Status Communicator::noted(Status status) {
  if (!status.ok() && failure_.ok()) {
    fail(status);
  }
  return status;
}

void Communicator::doubt_call() {
  if (doubted_ == kDoubtedMax) {
    count_doubted();
  }
  ++doubted_;
  tell_doubts();
  forget_routes();  // The entry point must see whether the next one is it again.
}

bool Communicator::agrees_on(Collective collective, std::optional<Bytes> bytes) const {
  return !asserted_ && collective != Collective::kBarrier && disagreement_.empty() &&
         agreement_due(modes_->of(collective, bytes).calls + 1);
}

bool Communicator::doubt_agreement(Collective collective, std::optional<Bytes> bytes, int device) {
  if (doubted_ == kDoubtedMax) {
    count_doubted();
  }
  // Others, which are in doubt without an agreement, would leave open which number theirs has.
  if (doubted_ != doubted_agreements_.size() || mpi_ == nullptr || !agrees_on(collective, bytes)) {
    return false;
  }
  MemoryModes::Class& memory = modes_->of(collective, bytes);
  // With another of its class in doubt it is not known whether there is an agreement on this one.
  if (std::any_of(doubted_agreements_.begin(), doubted_agreements_.end(),
                  [&memory](const auto& doubted) { return doubted.first == &memory; }) ||
      !mpi_->doubt(modes_->number_of(memory), device >= 0)) {
    return false;
  }
  doubted_agreements_.emplace_back(&memory, device);
  doubt_call();
  return true;
}

/// Of the oldest. Made again it has its number then, and here it has what was agreed on.
void Communicator::settle_agreement(double limit_s, bool is_again) {
  const auto [memory, device] = doubted_agreements_.front();
  doubted_agreements_.erase(doubted_agreements_.begin());
  --doubted_;
  const Result<DoubtedCall> settled = mpi_->settle_doubt(limit_s);
  if (!settled.ok()) {
    fail(settled.status());
    return;
  }
  const DoubtedCall found = *settled;
  if (found == DoubtedCall::kNotMade) {
    return;
  }
  if (found != DoubtedCall::kRefused) {
    ++memory->calls;
    const Status taken = take_memory(*memory, found == DoubtedCall::kMadeOnDevice, device);
    if (!taken.ok()) {
      fail(taken);
      return;
    }
    is_next_agreed_ = is_again;
  }
  if (!is_next_agreed_) {
    turn_away();  // Others may wait for this rank there.
  }
}

void Communicator::settle_agreements(bool agrees) {
  if (doubted_agreements_.empty()) {
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (!doubted_agreements_.empty()) {
    const double left_s = std::chrono::duration<double>(end - Clock::now()).count();
    settle_agreement(agrees ? kNoLimitS : std::max(left_s, 0.0), /*is_again=*/false);
  }
  tell_doubts();
}

void Communicator::tell_doubts() {
  if (std::byte* const line = backends_.host.calls_line(); line != nullptr) {
    const runners::HostCounter turned_away = runners::HostArea::turned_away(line);
    turned_away.publish(std::max({turned_away.read(), calls_, std::uint64_t{1}}));
    runners::HostArea::in_doubt(line).publish(has_doubts() ? 1 : 0);
  }
}

void Communicator::make_again(bool has_number, bool is_agreed) {
  is_next_agreed_ = is_agreed;
  if (has_agreements_in_doubt()) {
    while (has_agreements_in_doubt()) {
      settle_agreement(kNoLimitS, /*is_again=*/doubted_agreements_.size() == 1);
    }
    tell_doubts();
    return;
  }
  if (has_number) {
    --calls_;  // It is native again, and told by the same number.
  } else if (has_doubts()) {
    --doubted_;
    tell_doubts();
  }
}

void Communicator::count_doubted() {
  settle_agreements(/*agrees=*/false);
  if (has_doubts()) {
    for (; doubted_ > 0; --doubted_) {
      turn_away();
    }
    tell_doubts();
  }
}

/// Of a call in shared memory, among the numbers that it may have with the others.
void Communicator::find_number(const runners::Call& call) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (has_doubts()) {
    const std::optional<bool> is_it = backends_.host.runner()->has_number(call, calls_ + 1, end);
    if (!is_it) {
      return;  // This call does not tell.
    }
    if (*is_it) {
      break;
    }
    --doubted_;
    turn_away();  // Others may wait for this rank there.
  }
  doubted_ = 0;
  tell_doubts();
}

std::string Communicator::last_plan() const {
  return last_route_ == nullptr ? std::string() : to_string(last_route_->plan);
}

}  // namespace tutti::engine
