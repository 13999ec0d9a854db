// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/collective_call.hpp"

#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "mpi/arguments.hpp"
#include "mpi/movement.hpp"
#include "mpi/native_staged.hpp"
#include "mpi/types.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using select::Collective;

namespace {

/// One collective call. Lives on the stack of perform().
class CollectiveCall {
 public:
  CollectiveCall(CommState& state, const View& view, const NativeCall& native)
      : state_(state),
        engine_(*state.engine),
        view_(view),
        native_(native),
        arguments_(state.comm, *state.library, view) {}

  /// Empty: the code to return is in `code`.
  Status run(int* code);
  /// Of a native call that was refused, and has its number.
  Status note_refused_native();

 private:
  Status turn_away(int* code, const engine::Route* route);
  /// The application's call as it is.
  int call_native() const {
    const engine::WatchedCall watched = engine_.watch();
    return native_(view_.send, view_.recv);
  }
  Result<const engine::Route*> find_route(int device) {
    return engine_.route(view_.collective, bytes_, arguments_.type(), arguments_.op(), device);
  }
  RefusedAtRoot refused_at_root(bool may_be_apart, bool has_number) const;
  bool doubt_agreement(int* code);
  Status refuse_at_root_alone(int* code, const engine::Route& route);
  bool is_like_refused() const;
  bool is_refused_again() const;
  void settle_refused();
  bool reads_everything(const engine::Route& route) const {
    return !arguments_.is_on_device() || !route.stages_device;
  }
  Status refuse_uneven(const Status& uneven, const engine::Route& route);
  Status wait_for_device() const;
  Status run_reduction(const engine::Route& route) const;

  CommState& state_;
  engine::Communicator& engine_;
  const View& view_;
  const NativeCall& native_;
  Arguments arguments_;
  std::optional<Bytes> bytes_;
};

RefusedAtRoot CollectiveCall::refused_at_root(bool may_be_apart, bool has_number) const {
  return {
      view_.collective, view_.root, bytes_,       arguments_.type(), arguments_.op(),
      view_.send,       view_.recv, may_be_apart, has_number,        !engine_.is_asserted_host()};
}

Status CollectiveCall::note_refused_native() {
  if (arguments_.read()) {
    bytes_ = arguments_.total_bytes();
    if (arguments_.is_refused_at_root_alone()) {
      state_.refused = std::make_unique<RefusedAtRoot>(
          refused_at_root(/*may_be_apart=*/false, /*has_number=*/true));
      engine_.forget_routes();
    }
  }
  return {};
}

/// What the others agree on next tells whether they are in this call. False: it could not.
bool CollectiveCall::doubt_agreement(int* code) {
  if (engine_.classifies()) {
    arguments_.classify(engine_.process().device());
  }
  if (!engine_.doubt_agreement(view_.collective, bytes_, arguments_.device())) {
    return false;
  }
  *code = arguments_.found_aliasing();
  state_.refused = std::make_unique<RefusedAtRoot>(
      refused_at_root(/*may_be_apart=*/false, /*has_number=*/false));
  state_.refused->is_agreed = false;
  call_errhandler(state_.comm, *code);
  return true;
}

Status CollectiveCall::refuse_at_root_alone(int* code, const engine::Route& route) {
  const bool may_be_apart =
      !route.native_flat && !route.is_in_shared_memory() &&
      (!engine_.may_be_missed(route, view_.root) || state_.library->shares_messages());
  const bool is_native = route.native_flat && reads_everything(route);
  *code = arguments_.found_aliasing();
  {
    const QuietErrors quiet(state_.comm);
    if (is_native && quiet.is_quiet()) {
      *code = call_native();  // In MPI's own words.
    }
  }
  if (*code == MPI_SUCCESS) {
    engine_.pass_by();  // It was none that MPI refuses.
    return {};
  }
  engine_.doubt_call();
  if (engine_.may_be_missed(route, view_.root)) {
    state_.library->miss();
  }
  if (may_be_apart && state_.library->shares_messages()) {
    engine_.refuse(
        view_.collective);  // Now: other communicators' agreements must not come in between.
  } else {
    state_.refused =
        std::make_unique<RefusedAtRoot>(refused_at_root(may_be_apart, /*has_number=*/false));
  }
  call_errhandler(state_.comm, *code);
  return {};
}

/// This call and the refused one are the same for the others.
bool CollectiveCall::is_like_refused() const {
  const RefusedAtRoot& refused = *state_.refused;
  return view_.collective == refused.collective && view_.root == refused.root &&
         bytes_ == refused.bytes && arguments_.type() == refused.type &&
         arguments_.op() == refused.op;
}

/// The refused call, with one other buffer.
bool CollectiveCall::is_refused_again() const {
  const RefusedAtRoot& refused = *state_.refused;
  return is_like_refused() && (view_.send == refused.send) != (view_.recv == refused.recv);
}

/// An earlier call may have been refused at its root alone, this rank.
void CollectiveCall::settle_refused() {
  if (is_refused_again()) {
    engine_.make_again(state_.refused->has_number, state_.refused->is_agreed);
  } else if (is_like_refused()) {
    engine_.count_doubted();  // What the others sent for the refused one is not this one's.
  } else if (engine_.has_doubts()) {
    return;
  }
  state_.refused.reset();
}

/// A call with wrong arguments, or a legal one that is none of ours. What MPI would refuse goes to
/// MPI, which says so in its own words. Arguments that are wrong on this rank alone keep it out of
/// what the others do: where its size can be read it still comes to what they agree on; in shared
/// memory they hear of it; where they may be in other steps of ours the engine has to find out.
/// `route`: what was agreed on before, or null.
Status CollectiveCall::turn_away(int* code, const engine::Route* route) {
  bool may_be_apart = engine_.may_be_apart(view_.collective);
  if (route == nullptr && may_be_apart && arguments_.has_readable_size()) {
    bytes_ = arguments_.total_bytes();
    may_be_apart = bytes_ != Bytes{0};
    if (may_be_apart) {
      TUTTI_ASSIGN_OR_RETURN(route, find_route(-1));
    }
  }
  if (route != nullptr) {
    may_be_apart = !route->native_flat && !route->is_in_shared_memory();
  }
  engine_.turn_away();
  bool is_raised = false;
  *code = arguments_.refused();
  if (arguments_.refused() == MPI_SUCCESS) {
    std::optional<QuietErrors> quiet;
    if (may_be_apart) {
      quiet.emplace(state_.comm);  // MPICH says MPI_SUCCESS after a handler of the application's.
    }
    *code = call_native();
    is_raised = !quiet || !quiet->is_quiet();
  }
  if (*code == MPI_SUCCESS) {
    return {};
  }
  // The application's error handler may free the communicator: it has, or it comes last.
  if (may_be_apart && (!is_raised || has_engine(&state_, &engine_))) {
    engine_.refuse(view_.collective);
  }
  if (!is_raised) {
    call_errhandler(state_.comm, *code);
  }
  return {};
}

/// MPI's rule: what fills a buffer is finished before the call. Asking the default stream whether
/// it is costs 1.5 us a call, as much as all of ours, so it is left to TUTTI_SYNC_DEVICE.
Status CollectiveCall::wait_for_device() const {
  if (!engine_.process().config().sync_device || arguments_.device() < 0) {
    return {};
  }
  std::optional<device::RelaxedCapture> relaxed;
  engine_.relax(&relaxed);
  return engine_.process().device()->wait_device(arguments_.device());
}

/// An error of this call alone where the others hear of it. In other plans what they have sent
/// would be taken for the next call's.
Status CollectiveCall::refuse_uneven(const Status& uneven, const engine::Route& route) {
  if (!route.is_in_shared_memory()) {
    return Status(ErrorCode::kInvalidArgument, uneven.message());
  }
  engine_.turn_away();
  return uneven;
}

Status CollectiveCall::run(int* code) {
  if (!engine_.failure().ok()) [[unlikely]] {
    return engine_.failure();
  }
  const bool is_read = arguments_.read();
  if (is_read) {
    bytes_ = arguments_.total_bytes();
  }
  const bool is_asserted_host = engine_.is_asserted_host();
  const bool is_refused_at_root =
      is_read && bytes_ != Bytes{0} && arguments_.is_refused_at_root_alone();
  if (is_refused_at_root && !is_asserted_host && doubt_agreement(code)) [[unlikely]] {
    return {};
  }
  if (state_.refused != nullptr && !(is_read && is_refused_again())) [[unlikely]] {
    TUTTI_RETURN_IF_ERROR(settle_apart(
        state_, is_read && bytes_ != Bytes{0} && engine_.agrees_on(view_.collective, bytes_)));
  }
  if (!is_read) {
    return turn_away(code, nullptr);
  }
  if (bytes_ == Bytes{0}) {
    engine_.pass_by();
    *code = call_native();  // Nothing moves; the same on every rank.
    return {};
  }
  if (is_asserted_host && is_refused_at_root) [[unlikely]] {
    TUTTI_ASSIGN_OR_RETURN(
        const engine::Route route,
        engine_.route_of_refused(view_.collective, bytes_, arguments_.type(), arguments_.op()));
    return refuse_at_root_alone(code, route);
  }
  if (state_.refused != nullptr) [[unlikely]] {
    settle_refused();
    TUTTI_RETURN_IF_ERROR(engine_.failure());
  }
  if (engine_.classifies()) {
    arguments_.classify(engine_.process().device());
  }
  TUTTI_RETURN_IF_ERROR(wait_for_device());
  TUTTI_ASSIGN_OR_RETURN(const engine::Route* route, find_route(arguments_.device()));
  if (!is_asserted_host && is_refused_at_root) [[unlikely]] {
    return refuse_at_root_alone(code, *route);
  }
  if ((!route->native_flat || !reads_everything(*route)) && arguments_.is_refused_by_mpi()) {
    return turn_away(code, route);
  }
  if (route->native_flat) {
    engine_.pass_by();
    if (!reads_everything(*route)) {
      return run_native_staged(state_, arguments_, native_, code);
    }
    remember_native(state_, view_, *route);
    *code = call_native();
    return {};
  }
  *code = MPI_SUCCESS;
  if (arguments_.is_reduction()) {
    return run_reduction(*route);
  }
  if (Status uneven = check_own_block(arguments_); !uneven.ok()) [[unlikely]] {
    return refuse_uneven(uneven, *route);
  }
  return run_movement(state_, arguments_, *route);
}

/// Of basic types with predefined operations: selection gives all others native plans.
Status CollectiveCall::run_reduction(const engine::Route& route) const {
  runners::Call call;
  call.collective = view_.collective;
  call.type = arguments_.type();
  call.op = arguments_.op();
  // Of a pair with its padding; kOther stays native and never comes here.
  call.element_bytes = select::size_of(call.type);
  call.root = view_.root;
  call.mpi_type = handle_bits(view_.recv_type);
  call.mpi_op = handle_bits(view_.op);
  runners::CallSide send;
  runners::CallSide recv;
  send.buffer = arguments_.send().buffer;
  send.memory = arguments_.send().memory;
  // An MPI that lets aliased buffers pass does as much.
  send.in_place = arguments_.send().in_place || arguments_.is_aliased();
  recv.buffer = arguments_.recv().present() ? view_.recv : nullptr;
  recv.memory = arguments_.recv().memory;
  send.count = recv.count = static_cast<std::uint64_t>(view_.recv_count);
  std::vector<std::uint64_t> counts;
  if (view_.collective == Collective::kReduceScatter) {
    const auto ranks = static_cast<std::size_t>(arguments_.ranks());
    counts.reserve(ranks);
    for (std::size_t i = 0; i < ranks; ++i) {
      counts.push_back(static_cast<std::uint64_t>(view_.recv_counts[i]));
    }
    recv.counts = counts;
  }
  runners::set_sides(send, recv, arguments_.rank(), &call);
  return engine_.run(route, call);
}

}  // namespace

void note_refused(CommState& state, const engine::Communicator& engine, const View& view) {
  if (!has_engine(&state, &engine)) {
    return;  // The application's error handler has freed the communicator.
  }
  auto none = [](const void* /*send*/, const void* /*recv*/) -> int { return MPI_SUCCESS; };
  // Without memory for it the root is ahead of the others if it makes the call again.
  static_cast<void>(
      guarded([&] { return CollectiveCall(state, view, NativeCall(none)).note_refused_native(); }));
}

Status settle_apart(CommState& state, bool agrees) {
  if (state.engine->has_agreements_in_doubt()) {
    state.refused.reset();
    state.engine->settle_agreements(agrees);
  }
  if (state.refused != nullptr && (state.refused->may_be_apart || state.refused->is_agreed)) {
    const bool may_be_apart = state.refused->may_be_apart;
    const Collective collective = state.refused->collective;
    state.refused.reset();
    state.engine->count_doubted();
    if (may_be_apart) {
      state.engine->refuse(collective);
    }
  }
  return state.engine->failure();
}

void remember_native(CommState& state, const View& view, const engine::Route& route) {
  engine::Communicator& engine = *state.engine;
  // Many communicators have one call.
  if (!std::exchange(route.was_taken, true)) {
    return;
  }
  const bool has_devices = !engine.is_host_only();
  if (route.fallbacks != nullptr ||
      (has_devices && (!engine.is_often_host() || route.memory != select::Memory::kHost))) {
    return;
  }
  try {
    if (state.memo == nullptr) {
      state.memo = std::make_unique<NativeMemo>(state.library->rank(), state.library->ranks(),
                                                has_devices, engine.process().device());
    }
  } catch (const std::bad_alloc&) {
    return;  // Slower, and right.
  }
  if (state.memo->epoch() != engine.routes_epoch()) {
    state.memo->renew(engine.routes_epoch());
  }
  if (t_last.state == &state) {
    t_last.set_memo(state.memo.get());
  }
  state.memo->add(view, &route, !has_devices && !engine.has_own_plans(view.collective));
}

int fail_call(CommState& state, engine::Communicator& engine, const Status& status) {
  if (status.raised() && !has_engine(&state, &engine)) {
    return status.mpi_code();  // The application's error handler has freed the communicator.
  }
  if (status.code() != ErrorCode::kFallback && status.code() != ErrorCode::kMismatch) {
    const Status failed = guarded([&]() -> Status {
      // What MPI has raised is raised for this call alone; later ones raise it themselves.
      engine.fail(status.raised() ? Status::mpi(status.mpi_code(), status.message()) : status);
      return {};
    });
    if (!failed.ok()) {
      engine.fail(failed);
    }
  }
  return raise(state.comm, status);
}

int perform(CommState& state, const View& view, const NativeCall& native) {
  int code = MPI_SUCCESS;
  engine::Communicator& engine = *state.engine;
  const Status status = guarded([&] { return CollectiveCall(state, view, native).run(&code); });
  return status.ok() ? code : fail_call(state, engine, status);
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
