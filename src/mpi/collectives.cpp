// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The wrappers: each describes a call by a View of its arguments and by how to call MPI itself;
// perform() (collective_call.cpp) does the rest for all of them. One template serves the int and
// the _c form.
#include <algorithm>

#include "device/pointer_kind.hpp"
#include "mpi/collective_call.hpp"
#include "mpi/types.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {
namespace {

using select::Collective;

/// A call: `native(send, recv)` calls MPI with these buffers. What `native` captures is captured by
/// value: it stays in registers until it is needed.
template <Collective kOf, class Native>
struct Described {
  static constexpr Collective kCollective = kOf;
  MPI_Comm comm;
  View view;
  Native native;

  int call_native() const { return native(view.send, view.recv); }
};

template <Collective kOf, class Fill, class Native>
inline Described<kOf, Native> describe(MPI_Comm comm, const void* send, void* recv, Fill fill,
                                       Native native) {
  Described<kOf, Native> call{comm, {}, native};
  call.view.collective = kOf;
  call.view.send = send;
  call.view.recv = recv;
  fill(call.view);
  return call;
}

/// Any call; apart, so that those that are known need no stack frame for it.
template <auto kDescribe, class... Arguments>
[[gnu::noinline, gnu::cold]] int look_and_perform(Arguments... arguments) {
  auto call = kDescribe(arguments...);
  int error = MPI_SUCCESS;
  CommState* state = comm_state_of(call.comm, &error);
  if (state == nullptr) {
    return error == MPI_SUCCESS ? call.call_native() : error;
  }
  const engine::TimedCall timed(state->engine->process().summary(), call.view.collective);
  return perform(*state, call.view, NativeCall(call.native));
}

inline bool is_on_host(device::Api* api, const void* buffer) {
  return buffer == MPI_IN_PLACE || device::is_host(api, buffer);
}

inline bool is_surely_on_host(const void* buffer) {
  return buffer == MPI_IN_PLACE || device::is_surely_host(buffer);
}

/// Where nobody uses a GPU one question does for both buffers: in a program with other code in the
/// processor's caches it takes 30 ns.
inline bool are_on_host(device::Api* api, const View& view) {
  return api == nullptr || (is_surely_on_host(view.send) && is_surely_on_host(view.recv)) ||
         !api->is_in_use() || (is_on_host(api, view.send) && is_on_host(api, view.recv));
}

/// At a root: its own block may lie in the other buffer, for which it alone may be refused.
inline bool may_be_aliased(const View& view, std::size_t ranks) {
  constexpr std::size_t kElementBytesMax = 32;  // Of predefined types.
  const auto send = reinterpret_cast<std::uintptr_t>(view.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(view.recv);
  const auto count = static_cast<std::size_t>(std::max(view.send_count, view.recv_count));
  return (send > recv ? send - recv : recv - send) <= kElementBytesMax * count * ranks;
}

/// And one elsewhere.
constexpr bool has_two_buffers_at_root(Collective collective) {
  return select::is_rooted(collective) && collective != Collective::kBcast;
}

template <class Described>
[[gnu::always_inline]] inline int carry_remembered(const Described& call,
                                                   const engine::KnownRoute& known) {
  const engine::WatchedCall watched = t_last.engine->pass_by_watched(known);
  return call.call_native();
}

/// At the root of a rooted collective, which may be refused there alone; apart, since the arguments
/// are saved for it.
template <auto kDescribe, auto kOther, class... Arguments>
[[gnu::noinline]] int carry_at_root(Arguments... arguments, const engine::KnownRoute* known) {
  const auto call = kDescribe(arguments...);
  if (call.view.send == call.view.recv) [[unlikely]] {
    return kOther(arguments...);  // Likely to be refused, and has no number then.
  }
  CommState* const state = t_last.state;
  const engine::Communicator* const engine = t_last.engine;
  const int code = carry_remembered(call, *known);
  if (code != MPI_SUCCESS) [[unlikely]] {
    note_refused(*state, *engine, call.view);
  }
  return code;
}

/// A call that is not known, or t_last.known where memory may be a device's; apart, since the looks
/// at the buffers are calls, for which the arguments are saved and restored.
template <auto kDescribe, auto kOther, class... Arguments>
[[gnu::noinline]] int look_and_carry(Arguments... arguments) {
  const auto call = kDescribe(arguments...);
  if (t_last.state == nullptr) {
    return call.call_native();
  }
  constexpr Collective kOf = decltype(call)::kCollective;
  const NativeMemo& memo = *t_last.memo;
  const engine::KnownRoute* const known =
      NativeMemo::may_know_on_host(kOf) ? t_last.known : nullptr;
  if (known == nullptr || memo.epoch() != t_last.engine->routes_epoch() ||
      !engine::Communicator::is_on_host(*known->route) || !are_on_host(memo.device(), call.view))
      [[unlikely]] {
    return kOther(arguments...);
  }
  if constexpr (has_two_buffers_at_root(kOf)) {
    if (call.view.root == memo.rank()) {
      if (may_be_aliased(call.view, memo.ranks())) [[unlikely]] {
        return kOther(arguments...);  // As carry_at_root() does, and nothing is agreed then.
      }
      engine::Communicator::take_agreed(*known->route);
      return carry_at_root<kDescribe, kOther, Arguments...>(arguments..., known);
    }
  }
  engine::Communicator::take_agreed(*known->route);
  return carry_remembered(call, *known);
}

/// What the application calls: kDescribe tells of it. Carries what is known to go to MPI as it is,
/// with the description never in memory, and leaves all else to kOther, which takes the same.
template <auto kDescribe, auto kOther, class... Arguments>
inline int carry(Arguments... arguments) {
  const auto call = kDescribe(arguments...);
  constexpr Collective kOf = decltype(call)::kCollective;
  if (!is_last(call.comm)) [[unlikely]] {
    return kOther(arguments...);
  }
  const NativeMemo* const memo = t_last.memo;
  const engine::KnownRoute* const known = memo->find<kOf>(call.view);
  if (known == nullptr || memo->surely_epoch() != t_last.engine->routes_epoch()) [[unlikely]] {
    if constexpr (NativeMemo::may_know_on_host(kOf)) {
      t_last.known = known;
    }
    return look_and_carry<kDescribe, kOther, Arguments...>(arguments...);
  }
  if constexpr (has_two_buffers_at_root(kOf)) {
    if (call.view.root == memo->rank()) {
      return carry_at_root<kDescribe, kOther, Arguments...>(arguments..., known);
    }
  }
  return carry_remembered(call, *known);
}

template <class C>
struct Wrap {
  using D = Displacement<C>;

  static auto Bcast(void* buffer, C count, MPI_Datatype type, int root, MPI_Comm comm) {
    return describe<Collective::kBcast>(
        comm, nullptr, buffer,
        [=](View& view) {
          view.recv_count = count;
          view.recv_type = type;
          view.root = root;
        },
        [=](const void*, void* recv) {
          return pmpi.native<C>().Bcast(recv, count, type, root, comm);
        });
  }

  static auto Gather(const void* send, C send_count, MPI_Datatype send_type, void* recv,
                     C recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm) {
    return describe<Collective::kGather>(
        comm, send, recv,
        [=](View& view) {
          view.send_count = send_count;
          view.send_type = send_type;
          view.recv_count = recv_count;
          view.recv_type = recv_type;
          view.root = root;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Gather(s, send_count, send_type, r, recv_count, recv_type, root,
                                         comm);
        });
  }

  static auto Gatherv(const void* send, C send_count, MPI_Datatype send_type, void* recv,
                      const C* recv_counts, const D* recv_displs, MPI_Datatype recv_type, int root,
                      MPI_Comm comm) {
    return describe<Collective::kGatherv>(
        comm, send, recv,
        [=](View& view) {
          view.send_count = send_count;
          view.send_type = send_type;
          view.recv_counts = recv_counts;
          view.recv_displs = recv_displs;
          view.recv_type = recv_type;
          view.root = root;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Gatherv(s, send_count, send_type, r, recv_counts, recv_displs,
                                          recv_type, root, comm);
        });
  }

  static auto Scatter(const void* send, C send_count, MPI_Datatype send_type, void* recv,
                      C recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm) {
    return describe<Collective::kScatter>(
        comm, send, recv,
        [=](View& view) {
          view.send_count = send_count;
          view.send_type = send_type;
          view.recv_count = recv_count;
          view.recv_type = recv_type;
          view.root = root;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Scatter(s, send_count, send_type, r, recv_count, recv_type, root,
                                          comm);
        });
  }

  static auto Scatterv(const void* send, const C* send_counts, const D* send_displs,
                       MPI_Datatype send_type, void* recv, C recv_count, MPI_Datatype recv_type,
                       int root, MPI_Comm comm) {
    return describe<Collective::kScatterv>(
        comm, send, recv,
        [=](View& view) {
          view.send_counts = send_counts;
          view.send_displs = send_displs;
          view.send_type = send_type;
          view.recv_count = recv_count;
          view.recv_type = recv_type;
          view.root = root;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Scatterv(s, send_counts, send_displs, send_type, r, recv_count,
                                           recv_type, root, comm);
        });
  }

  static auto Allgather(const void* send, C send_count, MPI_Datatype send_type, void* recv,
                        C recv_count, MPI_Datatype recv_type, MPI_Comm comm) {
    return describe<Collective::kAllgather>(
        comm, send, recv,
        [=](View& view) {
          view.send_count = send_count;
          view.send_type = send_type;
          view.recv_count = recv_count;
          view.recv_type = recv_type;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Allgather(s, send_count, send_type, r, recv_count, recv_type,
                                            comm);
        });
  }

  static auto Allgatherv(const void* send, C send_count, MPI_Datatype send_type, void* recv,
                         const C* recv_counts, const D* recv_displs, MPI_Datatype recv_type,
                         MPI_Comm comm) {
    return describe<Collective::kAllgatherv>(
        comm, send, recv,
        [=](View& view) {
          view.send_count = send_count;
          view.send_type = send_type;
          view.recv_counts = recv_counts;
          view.recv_displs = recv_displs;
          view.recv_type = recv_type;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Allgatherv(s, send_count, send_type, r, recv_counts, recv_displs,
                                             recv_type, comm);
        });
  }

  static auto Alltoall(const void* send, C send_count, MPI_Datatype send_type, void* recv,
                       C recv_count, MPI_Datatype recv_type, MPI_Comm comm) {
    return describe<Collective::kAlltoall>(
        comm, send, recv,
        [=](View& view) {
          view.send_count = send_count;
          view.send_type = send_type;
          view.recv_count = recv_count;
          view.recv_type = recv_type;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Alltoall(s, send_count, send_type, r, recv_count, recv_type,
                                           comm);
        });
  }

  static auto Alltoallv(const void* send, const C* send_counts, const D* send_displs,
                        MPI_Datatype send_type, void* recv, const C* recv_counts,
                        const D* recv_displs, MPI_Datatype recv_type, MPI_Comm comm) {
    return describe<Collective::kAlltoallv>(
        comm, send, recv,
        [=](View& view) {
          view.send_counts = send_counts;
          view.send_displs = send_displs;
          view.send_type = send_type;
          view.recv_counts = recv_counts;
          view.recv_displs = recv_displs;
          view.recv_type = recv_type;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Alltoallv(s, send_counts, send_displs, send_type, r, recv_counts,
                                            recv_displs, recv_type, comm);
        });
  }

  static auto Alltoallw(const void* send, const C* send_counts, const D* send_displs,
                        const MPI_Datatype* send_types, void* recv, const C* recv_counts,
                        const D* recv_displs, const MPI_Datatype* recv_types, MPI_Comm comm) {
    return describe<Collective::kAlltoallw>(
        comm, send, recv,
        [=](View& view) {
          view.send_counts = send_counts;
          view.send_displs = send_displs;
          view.send_types = send_types;
          view.recv_counts = recv_counts;
          view.recv_displs = recv_displs;
          view.recv_types = recv_types;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Alltoallw(s, send_counts, send_displs, send_types, r, recv_counts,
                                            recv_displs, recv_types, comm);
        });
  }

  static auto Reduce(const void* send, void* recv, C count, MPI_Datatype type, MPI_Op op, int root,
                     MPI_Comm comm) {
    return describe<Collective::kReduce>(
        comm, send, recv,
        [=](View& view) {
          fill_reduction(view, count, type, op);
          view.root = root;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Reduce(s, r, count, type, op, root, comm);
        });
  }

  static auto Allreduce(const void* send, void* recv, C count, MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm) {
    return describe<Collective::kAllreduce>(
        comm, send, recv, [=](View& view) { fill_reduction(view, count, type, op); },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Allreduce(s, r, count, type, op, comm);
        });
  }

  static auto Reduce_scatter(const void* send, void* recv, const C* recv_counts, MPI_Datatype type,
                             MPI_Op op, MPI_Comm comm) {
    return describe<Collective::kReduceScatter>(
        comm, send, recv,
        [=](View& view) {
          fill_reduction(view, 0, type, op);
          view.recv_counts = recv_counts;
        },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Reduce_scatter(s, r, recv_counts, type, op, comm);
        });
  }

  static auto Reduce_scatter_block(const void* send, void* recv, C count, MPI_Datatype type,
                                   MPI_Op op, MPI_Comm comm) {
    return describe<Collective::kReduceScatterBlock>(
        comm, send, recv, [=](View& view) { fill_reduction(view, count, type, op); },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Reduce_scatter_block(s, r, count, type, op, comm);
        });
  }

  static auto Scan(const void* send, void* recv, C count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
    return describe<Collective::kScan>(
        comm, send, recv, [=](View& view) { fill_reduction(view, count, type, op); },
        [=](const void* s, void* r) { return pmpi.native<C>().Scan(s, r, count, type, op, comm); });
  }

  static auto Exscan(const void* send, void* recv, C count, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm) {
    return describe<Collective::kExscan>(
        comm, send, recv, [=](View& view) { fill_reduction(view, count, type, op); },
        [=](const void* s, void* r) {
          return pmpi.native<C>().Exscan(s, r, count, type, op, comm);
        });
  }

 private:
  static void fill_reduction(View& view, C count, MPI_Datatype type, MPI_Op op) {
    view.recv_count = count;
    view.recv_type = type;
    view.op = op;
  }
};

/// No buffers: the MPI's own, or a schedule. Asked for all the same, so that a rule that wants
/// something else is reported as the fall-back it is.
/// `*native`: its route where the MPI's own is to carry it.
Status run_barrier(CommState& state, const engine::Route** native) {
  engine::Communicator& engine = *state.engine;
  // A rank that failed sends nothing more: peers that are still in the call that failed would take
  // a barrier's messages for that call's, and its data for arrived.
  if (!engine.failure().ok()) [[unlikely]] {
    return engine.failure();
  }
  TUTTI_RETURN_IF_ERROR(settle_apart(state, /*agrees=*/false));
  TUTTI_ASSIGN_OR_RETURN(
      const engine::Route* route,
      engine.route(Collective::kBarrier, 0, select::DataType::kByte, select::ReduceOp::kNone, -1));
  if (route->native_flat) {
    engine.pass_by();
    *native = route;
    return {};
  }
  runners::Call call;
  call.collective = Collective::kBarrier;
  return engine.run(*route, call);
}

int any_barrier(MPI_Comm comm) {
  int error = MPI_SUCCESS;
  CommState* state = comm_state_of(comm, &error);
  if (state == nullptr) {
    return error == MPI_SUCCESS ? pmpi.Barrier(comm) : error;
  }
  const engine::TimedCall timed(state->engine->process().summary(), Collective::kBarrier);
  const engine::Route* native = nullptr;
  engine::Communicator& engine = *state->engine;
  const Status status = guarded([&] { return run_barrier(*state, &native); });
  if (!status.ok()) {
    return fail_call(*state, engine, status);
  }
  if (native == nullptr) {
    return MPI_SUCCESS;
  }
  remember_native(*state, View(), *native);
  const engine::WatchedCall watched = state->engine->watch();
  return pmpi.Barrier(comm);
}

int Barrier(MPI_Comm comm) {
  constexpr auto kDescribe = [](MPI_Comm of) {
    return describe<Collective::kBarrier>(
        of, nullptr, nullptr, [](View& /*view*/) {},
        [=](const void*, void*) { return pmpi.Barrier(of); });
  };
  return carry<kDescribe, any_barrier>(comm);
}

// --- Hints -------------------------------------------------------------------------------------

constexpr const char* kPlanUsedKey = "tutti_plan_used";

/// Collective. A communicator that has started starts anew on every rank, whatever the rank's own
/// info says: hints may differ, and agreeing on them is part of the start. Returns an MPI code.
int take_hints(MPI_Comm comm, MPI_Info info) {
  const Status taken = guarded([&]() -> Status {
    engine::Hints hints{info_value(info, kPlanKey), info_value(info, kMemoryKindsKey)};
    const bool is_hinted = !hints.plan.empty() || !hints.memory_kinds.empty();
    TUTTI_ASSIGN_OR_RETURN(CommState * state, is_hinted
                                                  ? comm_state_for_hints(comm)
                                                  : Result<CommState*>(existing_comm_state(comm)));
    if (state == nullptr) {
      return {};
    }
    if (!hints.plan.empty()) {
      state->hints.plan = std::move(hints.plan);
    }
    if (!hints.memory_kinds.empty()) {
      state->hints.memory_kinds = std::move(hints.memory_kinds);
    }
    restart(state);
    return {};
  });
  return taken.ok() ? MPI_SUCCESS : raise(comm, taken);
}

/// Of MPI_Comm_dup, or MPI_Comm_split with `split`; `code`: what it has returned.
int set_up_derived(int code, MPI_Comm comm, const MPI_Comm* derived, const Split* split) {
  if (code != MPI_SUCCESS) {
    decline_derived(comm);
    return code;
  }
  const Status started = guarded([&] { return start_derived(comm, *derived, split); });
  return started.ok() ? MPI_SUCCESS : raise(comm, started);
}

int Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  return set_up_derived(pmpi.Comm_dup(comm, copy), comm, copy, nullptr);
}

int Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part) {
  const Split split{color, key};
  return set_up_derived(pmpi.Comm_split(comm, color, key, part), comm, part, &split);
}

int Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* copy) {
  const int code = pmpi.Comm_dup_with_info(comm, info, copy);
  return code == MPI_SUCCESS && *copy != MPI_COMM_NULL ? take_hints(*copy, info) : code;
}

int Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* part) {
  const int code = pmpi.Comm_split_type(comm, type, key, info, part);
  return code == MPI_SUCCESS && *part != MPI_COMM_NULL ? take_hints(*part, info) : code;
}

int Comm_set_info(MPI_Comm comm, MPI_Info info) {
  const int code = pmpi.Comm_set_info(comm, info);
  return code == MPI_SUCCESS ? take_hints(comm, info) : code;
}

int Comm_get_info(MPI_Comm comm, MPI_Info* info) {
  const int code = pmpi.Comm_get_info(comm, info);
  if (code != MPI_SUCCESS || comm == MPI_COMM_NULL) {
    return code;
  }
  const CommState* state = existing_comm_state(comm);
  if (state == nullptr) {
    return code;
  }
  auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) {
      pmpi.Info_set(*info, key, value.c_str());
    }
  };
  return guarded_code(comm, [&] {
    set(kPlanKey, state->hints.plan);
    set(kMemoryKindsKey, state->hints.memory_kinds);
    if (state->inert || state->engine != nullptr) {
      set(kPlanUsedKey, state->inert ? "native" : state->engine->last_plan());
    }
    return MPI_SUCCESS;
  });
}

template <class Function>
void* entry(Function* function) {
  return reinterpret_cast<void*>(function);
}

template <auto kDescribe, class Call, class... Arguments>
void* entry_of(Call (*)(Arguments...)) {
  return entry(carry<kDescribe, look_and_perform<kDescribe, Arguments...>, Arguments...>);
}

}  // namespace

}  // namespace tutti::mpi::TUTTI_FLAVOUR

namespace tutti::mpi {

bool TUTTI_PASTE(fill_function_table_, TUTTI_FLAVOUR)(Lookup lookup, FunctionTable* table) {
  namespace flavour = TUTTI_FLAVOUR;
  if (!flavour::load_pmpi(lookup)) {
    return false;
  }
  flavour::load_types();
  flavour::load_comm_states(lookup);
  table->start = flavour::start_world;
#define TUTTI_ENTRY(name, arguments)                                                               \
  table->entries[k##name] = flavour::entry_of<flavour::Wrap<int>::name>(flavour::Wrap<int>::name); \
  table->entries[k##name##_c] =                                                                    \
      flavour::entry_of<flavour::Wrap<MPI_Count>::name>(flavour::Wrap<MPI_Count>::name);
  TUTTI_COUNTED_COLLECTIVES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
#define TUTTI_ENTRY(name, arguments) table->entries[k##name] = flavour::entry(flavour::name);
  TUTTI_OTHER_ENTRIES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
  return true;
}

}  // namespace tutti::mpi
