// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Agreements of the ranks on the private communicator, and what is told there of calls that were
// refused.
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/on_failure.hpp"
#include "mpi/library.hpp"
#include "runners/peer_watch.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

Status Library::usable() const {
  return private_ == nullptr || !private_->has_left
             ? Status()
             : Status(ErrorCode::kUnavailable,
                      "an earlier call of these ranks failed, maybe on another communicator: its "
                      "messages may still be under way");
}

template <class Body>
Status Library::agree(Body body) {
  TUTTI_RETURN_IF_ERROR(failure_);
  Status status = usable();
  if (status.ok()) {
    status = settle();
  }
  if (status.ok()) {
    status = body();
  }
  if (!status.ok()) {
    leave();
    // What MPI has raised, it has raised for this call alone.
    failure_ = status.raised() ? Status::mpi(status.mpi_code(), status.message()) : status;
  }
  return status;
}

/// One that comes late may have waited for a peer itself, as long as it may (an NCCL communicator
/// that did not come about), and for the end of that.
double Library::limit_s() const {
  constexpr double kEndS = 2;
  return timeout_s_ > 0 ? 2 * timeout_s_ + kEndS : std::numeric_limits<double>::infinity();
}

/// A blocking collective would wait for ever for a rank whose call failed, or whose arguments were
/// refused: it makes another call or none.
Status Library::await(MPI_Request request, std::unique_ptr<std::byte[]>* data, const char* what,
                      double limit_s, bool waits_for_the_living) {
  constexpr int kPollsPerLook = 256;
  runners::PeerWatch watch(look_, limit_s, waits_for_the_living);
  // MPI may still write there, also where it has found an error.
  OnFailure give_up([&] { static_cast<void>(data->release()); });
  for (std::uint64_t polls = 1;; ++polls) {
    int done = 0;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Test(&request, &done, MPI_STATUS_IGNORE), what));
    if (done != 0) {
      give_up.succeed();
      return {};
    }
    if (polls % kPollsPerLook != 0) {
      continue;
    }
    const Status watched = watch.check();
    if (watched.ok()) {
      std::this_thread::yield();
      continue;
    }
    const std::string which = std::string("an agreement of the ranks (") + what + ")";
    if (watched.code() == ErrorCode::kTimeout) {
      return Status(ErrorCode::kTimeout, which + " did not end within " + std::to_string(limit_s) +
                                             " s (TUTTI_TIMEOUT=" + std::to_string(timeout_s_) +
                                             "); some rank failed, is dead or not in the call");
    }
    return Status(watched.code(), which + ": " + watched.message());
  }
}

/// Of what tells calls apart: calls of a communicator, and their kinds (agree_on_call()).
constexpr unsigned kCallBits = 40;
constexpr unsigned kKindBits = 16;

struct Library::Agreement {
  enum Kind : int { kRefusal = 1, kCall, kStep };
  static constexpr std::size_t kMost = 12;

  static constexpr int words() { return sizeof(Agreement) / sizeof(std::uint64_t); }
  void set_call_kind(std::uint64_t to) {
    call_kind = to;
    call_kind_inverse = ~to;
  }

  std::uint64_t kind = 0;
  std::uint64_t number = 0;
  std::uint64_t inverse = 0;
  std::uint64_t call_kind = 0;
  std::uint64_t call_kind_inverse = 0;
  std::uint64_t is_refused = 0;
  std::uint64_t is_doubted = 0;
  std::array<std::uint64_t, kMost> values{};

  /// Of the maxima over all ranks: they were in the same one, or some were refused in its place.
  bool is_same() const { return number == ~inverse; }
  /// A rank took its part for a call that the others are not in: they agree anew.
  bool is_void() const { return is_doubted != 0 && call_kind != ~call_kind_inverse; }
};

Library::Agreement Library::agreement(int kind, std::uint64_t call, std::uint64_t call_kind) const {
  Agreement made;
  made.kind = static_cast<std::uint64_t>(kind);
  made.number = (number_ << kCallBits) + call;
  made.inverse = ~made.number;
  if (kind == Agreement::kRefusal) {
    made.is_refused = 1;  // Of a call of whatever kind.
  } else {
    made.set_call_kind(call_kind == 0 ? 0 : (number_ << kKindBits) + call_kind);
  }
  return made;
}

Result<Library::PendingAgreement> Library::begin(const Agreement& agreement) const {
  static_assert(std::is_trivially_copyable_v<Agreement>);
  PendingAgreement begun;
  begun.values = std::make_unique<std::byte[]>(sizeof(agreement));
  std::memcpy(begun.values.get(), &agreement, sizeof(agreement));
  TUTTI_RETURN_IF_ERROR(check(pmpi.Iallreduce(MPI_IN_PLACE, begun.values.get(), Agreement::words(),
                                              MPI_UINT64_T, MPI_MAX, own(), &begun.request),
                              "MPI_Iallreduce"));
  return begun;
}

Status Library::end(PendingAgreement* pending, Agreement* met) {
  return end_within(limit_s(), /*waits_for_the_living=*/true, pending, met);
}

Status Library::end_within(double limit_s, bool waits_for_the_living, PendingAgreement* pending,
                           Agreement* met) {
  TUTTI_RETURN_IF_ERROR(
      await(pending->request, &pending->values, "MPI_Iallreduce", limit_s, waits_for_the_living));
  std::memcpy(met, pending->values.get(), sizeof(*met));
  return {};
}

namespace {

Status in_different_calls() {
  return Status(ErrorCode::kInvalidArgument,
                "the ranks are in different calls: some rank's arguments were wrong, in this call "
                "or in an earlier one");
}

}  // namespace

Status Library::exchange(Agreement* agreement) {
  const Agreement own = *agreement;
  while (!doubts_.empty()) {  // Nobody has waited for their ends.
    TUTTI_RETURN_IF_ERROR(end(&doubts_.front(), agreement));
    doubts_.erase(doubts_.begin());
    late_doubts_ = 0;
    if (agreement->is_void()) {
      continue;
    }
    // The others took it for this rank's part in what it comes to now, or in what it was not in.
    const bool is_this = agreement->kind == own.kind && agreement->number == own.number &&
                         agreement->call_kind == own.call_kind;
    return is_this ? Status() : in_different_calls();
  }
  do {
    TUTTI_ASSIGN_OR_RETURN(PendingAgreement begun, begin(own));
    TUTTI_RETURN_IF_ERROR(end(&begun, agreement));
  } while (agreement->is_void());
  if (agreement->kind == own.kind && agreement->is_same()) {
    return {};
  }
  return in_different_calls();
}

Status Library::allgather(const void* send, void* recv, Bytes bytes_each) {
  if (private_ != nullptr) {
    TUTTI_RETURN_IF_ERROR(max_in_place(nullptr, 0));  // Nobody is in another agreement.
  }
  return agree([&]() -> Status {
    const int bytes = static_cast<int>(bytes_each);
    if (private_ == nullptr) {
      return own_check(pmpi.small.Allgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, own()),
                       "MPI_Allgather");
    }
    // The own part last, in memory that may be left behind.
    const Bytes all_bytes = bytes_each * static_cast<Bytes>(ranks_);
    auto data = std::make_unique<std::byte[]>(all_bytes + bytes_each);
    std::memcpy(data.get() + all_bytes, send, bytes_each);
    MPI_Request request = MPI_REQUEST_NULL;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Iallgather(data.get() + all_bytes, bytes, MPI_BYTE, data.get(),
                                                bytes, MPI_BYTE, own(), &request),
                                "MPI_Iallgather"));
    TUTTI_RETURN_IF_ERROR(
        await(request, &data, "MPI_Iallgather", limit_s(), /*waits_for_the_living=*/true));
    std::memcpy(recv, data.get(), all_bytes);
    return {};
  });
}

Status Library::max_in_place(std::uint64_t* values, int count) {
  return agree([&]() -> Status {
    if (private_ == nullptr) {
      return own_check(
          pmpi.small.Allreduce(MPI_IN_PLACE, values, count, MPI_UINT64_T, MPI_MAX, own()),
          "MPI_Allreduce");
    }
    if (static_cast<std::size_t>(count) > Agreement::kMost) {
      return Status(ErrorCode::kUnsupported, "an agreement on more values than there is room for");
    }
    Agreement step = agreement(Agreement::kStep, 0, 0);
    std::copy_n(values, count, step.values.begin());
    TUTTI_RETURN_IF_ERROR(exchange(&step));
    std::copy_n(step.values.begin(), count, values);
    return {};
  });
}

Result<bool> Library::agree_on_call(std::uint64_t call, std::uint64_t kind, bool on_device) {
  Agreement made = agreement(Agreement::kCall, call, kind);
  made.values[0] = on_device ? 1 : 0;
  if (private_ == nullptr) {
    TUTTI_RETURN_IF_ERROR(agree([&] {
      return own_check(pmpi.small.Allreduce(MPI_IN_PLACE, &made, Agreement::words(), MPI_UINT64_T,
                                            MPI_MAX, own()),
                       "MPI_Allreduce");
    }));
    return made.is_same() ? Result<bool>(made.values[0] != 0) : in_different_calls();
  }
  TUTTI_RETURN_IF_ERROR(agree([&] { return exchange(&made); }));
  if (made.is_refused != 0) {
    return Status(ErrorCode::kMismatch, "another rank's arguments of this call are wrong");
  }
  return made.values[0] != 0;
}

/// It completes where all ranks are in it, or in the agreement on this call.
bool Library::refuse(std::uint64_t call) {
  constexpr std::size_t kPendingMax = 64;
  if (private_ == nullptr) {
    return true;  // On the application's nothing may be begun; ranks in different calls meet next.
  }
  if (private_->has_left || (refusals_.size() >= kPendingMax && !settle().ok())) {
    return false;
  }
  Result<PendingAgreement> begun = begin(agreement(Agreement::kRefusal, call, 0));
  if (begun.ok()) {
    begun->call = call;
    refusals_.push_back(std::move(*begun));
  }
  return begun.ok();
}

bool Library::doubt(std::uint64_t kind, bool on_device) {
  if (private_.use_count() != 1 || private_->has_left || !failure_.ok()) {
    return false;
  }
  Agreement doubted;
  doubted.kind = Agreement::kRefusal;
  doubted.set_call_kind((number_ << kKindBits) + kind);
  doubted.is_doubted = 1;
  doubted.values[0] = on_device ? 1 : 0;
  Result<PendingAgreement> begun = begin(doubted);
  if (begun.ok()) {
    doubts_.push_back(std::move(*begun));
  }
  return begun.ok();
}

Result<runners::DoubtedCall> Library::settle_doubt(double wait_s) {
  using runners::DoubtedCall;
  if (late_doubts_ == doubts_.size()) {
    return DoubtedCall::kNotMade;
  }
  PendingAgreement& doubt = doubts_[late_doubts_];
  if (std::isfinite(wait_s)) {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration<double>(wait_s);
    int done = 0;
    while (done == 0) {
      TUTTI_RETURN_IF_ERROR(check(pmpi.Test(&doubt.request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
      if (done == 0 && Clock::now() >= until) {
        ++late_doubts_;
        return DoubtedCall::kNotMade;
      }
      std::this_thread::yield();
    }
  }
  Agreement met;
  const Status ended = agree([&] { return end(&doubt, &met); });
  doubts_.erase(doubts_.begin() + static_cast<std::ptrdiff_t>(late_doubts_));
  TUTTI_RETURN_IF_ERROR(ended);
  if (met.is_void()) {
    return DoubtedCall::kNotMade;
  }
  return met.is_refused != 0 || met.kind != Agreement::kCall ? DoubtedCall::kRefused
         : met.values[0] != 0                                ? DoubtedCall::kMadeOnDevice
                                                             : DoubtedCall::kMadeOnHost;
}

Status Library::settle() { return settle_within(limit_s()); }

Status Library::settle_within(double limit_s) {
  Status settled;
  for (PendingAgreement& refusal : std::exchange(refusals_, {})) {
    if (!settled.ok()) {
      static_cast<void>(refusal.values.release());  // MPI may still write there.
      continue;
    }
    settled = settle_refusal(&refusal, limit_s);
  }
  return settled;
}

Status Library::settle_refusal(PendingAgreement* refusal, double limit_s) {
  Agreement met;
  const Status ended = end_within(limit_s, /*waits_for_the_living=*/false, refusal, &met);
  if (ended.ok() && met.is_void()) {
    const std::uint64_t call = refusal->call;
    TUTTI_ASSIGN_OR_RETURN(*refusal, begin(agreement(Agreement::kRefusal, call, 0)));
    refusal->call = call;
    return settle_refusal(refusal, limit_s);
  }
  return ended.ok() && met.is_same() && met.kind <= Agreement::kCall
             ? Status()
             : Status(
                   ErrorCode::kInvalidArgument,
                   "an earlier call of this rank had wrong arguments, and other ranks are in it");
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
