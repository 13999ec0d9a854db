// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Communicators of the C API: a handle around an engine::Communicator without MPI, whose bootstrap
// is the caller's callback. Here C becomes C++ and errors become codes; nothing is thrown out.
#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "device/pointer_kind.hpp"
#include "engine/c_call.hpp"
#include "engine/c_text.hpp"
#include "engine/communicator.hpp"
#include "engine/process.hpp"
#include "runners/allgather_bootstrap.hpp"
#include "tutti/tutti.h"

using tutti::ErrorCode;
using tutti::Result;
using tutti::Status;
using tutti::device::Api;
using tutti::device::CurrentDevice;
using tutti::engine::CArguments;
using tutti::engine::CCall;
using tutti::engine::Process;
using tutti::engine::Route;
using tutti::select::Collective;
using tutti::select::Order;

namespace {

tutti_status_t code_of(const Status& status) {
  switch (status.code()) {
    case ErrorCode::kOk:
      return TUTTI_OK;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kMismatch:
      return TUTTI_ERROR_INVALID_ARGUMENT;
    case ErrorCode::kInvalidConfig:
      return TUTTI_ERROR_INVALID_CONFIG;
    case ErrorCode::kUnsupported:
      return TUTTI_ERROR_UNSUPPORTED;
    case ErrorCode::kUnavailable:
      return TUTTI_ERROR_UNAVAILABLE;
    case ErrorCode::kOutOfMemory:
      return TUTTI_ERROR_OUT_OF_MEMORY;
    case ErrorCode::kTimeout:
      return TUTTI_ERROR_TIMEOUT;
    case ErrorCode::kLibraryFailed:
    case ErrorCode::kMpiFailed:
      return TUTTI_ERROR_LIBRARY;
    case ErrorCode::kFallback:
      return TUTTI_ERROR_FALLBACK;
  }
  return TUTTI_ERROR_INTERNAL;
}

/// Of calls without a communicator.
std::string& thread_error() {
  thread_local std::string text;
  return text;
}

/// Runs `body`, which returns a Status, and keeps its words in `error`.
template <class Body>
tutti_status_t answer(std::string& error, const Body& body) {
  try {
    const Status status = body();
    if (!status.ok()) {
      error = std::string(tutti::to_string(status.code())) + ": " + status.message();
    }
    return code_of(status);
  } catch (const std::bad_alloc&) {
    error.clear();  // No memory for words either.
    return TUTTI_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& thrown) {
    error = std::string("internal error: ") + thrown.what();
    return TUTTI_ERROR_INTERNAL;
  } catch (const abi::__forced_unwind&) {
    throw;  // The thread is being cancelled.
  } catch (...) {
    error = "internal error: the allgather callback threw what is no std::exception";
    return TUTTI_ERROR_INTERNAL;
  }
}

Status invalid(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

/// The default stream's handle in CUDA and HIP is as good as null.
void* without_legacy(void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) == 1 ? nullptr : stream;
}

/// The bootstrap of ABI version 1, which callers may have for ever; later fields come after it.
constexpr std::size_t kBootstrapBytes =
    offsetof(tutti_bootstrap_t, allgather) + sizeof(tutti_bootstrap_t::allgather);

/// A caller's structure in the size it has here: fields that the caller does not know are zero.
template <class T>
T sized(const T* given) {
  T own{};
  std::memcpy(&own, given, std::min(given->size, sizeof own));
  return own;
}

/// A caller's options, null or of any version.
Result<tutti_options_t> read_options(const tutti_options_t* given) {
  if (given == nullptr) {
    return tutti_options_t{};
  }
  if (given->size < sizeof(given->size)) {
    return invalid("options: `size` is not set");
  }
  const tutti_options_t own = sized(given);
  if (own.memory < TUTTI_MEMORY_ANY || own.memory > TUTTI_MEMORY_DEVICE) {
    return invalid("options: memory " + std::to_string(static_cast<int>(own.memory)) +
                   " is none of tutti_memory_t");
  }
  return own;
}

/// What cannot be read is told to the peers, who would wait for this rank.
tutti::engine::Hints hints_of(const Result<tutti_options_t>& options) {
  tutti::engine::Hints hints;
  hints.unread = options.status();
  if (options.ok()) {
    hints.plan = options->plan == nullptr ? "" : options->plan;
    hints.memory_kinds = options->memory == TUTTI_MEMORY_HOST     ? "system"
                         : options->memory == TUTTI_MEMORY_DEVICE ? "cuda:device"
                                                                  : "";
  }
  return hints;
}

/// False: the ranks came to the same answer, or this rank's call can never work, and nothing was
/// begun. After every other error this rank has missed what its peers are in: its next call would
/// meet their last one.
bool breaks(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kUnavailable:
    case ErrorCode::kMismatch:
    case ErrorCode::kFallback:
      return false;
    default:
      return true;
  }
}

/// For what fails after the ranks chose a plan: whatever it is, it is no refusal any more.
Status begun(const Status& status) {
  return status.ok() || breaks(status.code()) || status.code() == ErrorCode::kMismatch
             ? status
             : Status(ErrorCode::kLibraryFailed,
                      std::string(tutti::to_string(status.code())) + ": " + status.message());
}

}  // namespace

struct tutti_comm {
  tutti_comm(const tutti_bootstrap_t& given)
      : me{.rank = given.rank, .ranks = given.ranks},
        bootstrap(given.rank, given.ranks,
                  [given](const void* send, void* recv, tutti::Bytes bytes) {
                    return given.allgather(given.context, send, recv, bytes);
                  }) {}

  Status call(const CArguments& arguments, void* stream);
  Status barrier(void* stream);
  /// What broke the communicator; `wait`: once its calls on streams are over.
  Status outcome(bool wait);

  tutti::engine::RankInfo me;
  tutti::runners::AllgatherBootstrap bootstrap;
  std::unique_ptr<tutti::engine::Communicator> engine;
  tutti::runners::Lease barrier_word;  ///< On a GPU; what a barrier on a stream reduces.
  int barrier_device = -1;             ///< Where it is.
  std::string error;
  /// The code of an exception that ended a call; its words stay in `error`.
  tutti_status_t thrown = TUTTI_OK;

 private:
  /// Before a call: what earlier ones came to. One that waits lets those on streams end first: the
  /// bootstrap has no time-out, and no peer may be left waiting there for a rank that has failed.
  Status ready(Order order) { return outcome(/*wait=*/order == Order::kBlocking); }
  void classify(CCall* call);
  Result<Order> order_of(void* stream);
  /// This rank's GPU, by a call on a stream whose buffers are on `device`, -1: it has none.
  int own_device(int device, void* stream);
  Status carry(CCall* call, void* stream, Order order);
};

void tutti_comm::classify(CCall* prepared) {
  tutti::runners::Call& call = prepared->call;
  if (!engine->classifies()) {
    return;
  }
  Api* const api = engine->process().device();
  call.send_memory = tutti::device::kind_of_pointer(api, call.send);
  call.recv_memory = tutti::device::kind_of_pointer(api, call.recv);
  // A side that is not there, or where nothing is, moves nowhere.
  const bool sends = call.send != nullptr && !prepared->is_send_empty;
  const bool receives = call.recv != nullptr && !prepared->is_recv_empty;
  if (!sends && (receives || call.send == nullptr)) {
    call.send_memory = call.recv_memory;
  } else if (!receives && (sends || call.recv == nullptr)) {
    call.recv_memory = call.send_memory;
  }
}

Result<Order> tutti_comm::order_of(void* stream) {
  if (stream == TUTTI_BLOCKING) {
    return Order::kBlocking;
  }
  Api* const api = engine->process().device();
  // The default stream cannot be captured, a thread's own can: that of the communicator's GPU.
  if (api == nullptr || stream == nullptr) {
    return Order::kStream;
  }
  std::optional<Result<CurrentDevice>> current;
  if (Api::is_default_stream(stream) && engine->device() >= 0) {
    current.emplace(CurrentDevice::set(*api, engine->device()));
    TUTTI_RETURN_IF_ERROR(current->status());
  }
  TUTTI_ASSIGN_OR_RETURN(const bool is_captured, api->is_capturing(stream));
  return is_captured ? Order::kCaptured : Order::kStream;
}

int tutti_comm::own_device(int device, void* stream) {
  if (engine->device() >= 0) {
    return engine->device();
  }
  Api* const api = engine->process().device();
  return device >= 0 || api == nullptr ? device : api->stream_device(stream);
}

Status tutti_comm::outcome(bool wait) {
  Status status = engine->stream_status(wait);  // Calls may be on streams after a failure, too.
  TUTTI_RETURN_IF_ERROR(engine->failure());
  return status;
}

Status tutti_comm::carry(CCall* prepared, void* stream, Order order) {
  tutti::runners::Call& call = prepared->call;
  classify(prepared);
  Process& process = engine->process();
  int device = std::max(call.send_memory.device, call.recv_memory.device);
  if (prepared->is_send_empty && prepared->is_recv_empty) {
    call.send = call.recv = nullptr;  // They have told which GPU is this rank's; no more is asked.
  }
  if (order != Order::kBlocking) {
    // Before anything that peers could wait for.
    device = own_device(device, stream);
    TUTTI_RETURN_IF_ERROR(tutti::runners::check_on_device(call, std::max(device, 0)));
    if (process.device() != nullptr && device >= 0) {
      TUTTI_RETURN_IF_ERROR(process.device()->check_stream(stream, device));
    }
  } else if (process.config().sync_device && device >= 0) {
    std::optional<tutti::device::RelaxedCapture> relaxed;
    engine->relax(&relaxed);
    TUTTI_RETURN_IF_ERROR(process.device()->wait_device(device));
  }
  TUTTI_ASSIGN_OR_RETURN(
      const Route* const route,
      engine->route(call.collective, prepared->bytes, call.type, call.op, device, order));
  if (order == Order::kBlocking) {
    return begun(engine->run(*route, call));
  }
  if (stream == nullptr) {
    auto own = process.device()->default_stream(engine->device());
    TUTTI_RETURN_IF_ERROR(begun(own.status()));
    stream = *own;
  }
  Status status = engine->start(*route, call, stream).status();
  // What cannot be captured is found before anything goes into the graph.
  return order == Order::kCaptured && status.code() == ErrorCode::kUnsupported ? status
                                                                               : begun(status);
}

Status tutti_comm::call(const CArguments& arguments, void* stream) {
  CCall prepared;
  TUTTI_RETURN_IF_ERROR(tutti::engine::make_call(arguments, me.rank, me.ranks, &prepared));
  if (prepared.bytes == tutti::Bytes{0}) {
    return {};  // Nothing moves; the same on every rank.
  }
  TUTTI_ASSIGN_OR_RETURN(const Order order, order_of(stream));
  TUTTI_RETURN_IF_ERROR(ready(order));
  return carry(&prepared, stream, order);
}

Status tutti_comm::barrier(void* stream) {
  TUTTI_ASSIGN_OR_RETURN(const Order order, order_of(stream));
  TUTTI_RETURN_IF_ERROR(ready(order));
  CCall prepared;
  if (order == Order::kBlocking) {
    TUTTI_RETURN_IF_ERROR(tutti::engine::make_call({}, me.rank, me.ranks, &prepared));
    Status status = carry(&prepared, stream, order);
    if (status.code() != ErrorCode::kUnsupported) {
      return status;
    }
    const char mine = 0;  // No plan, on all ranks: they meet where they first met.
    std::string all(static_cast<std::size_t>(me.ranks), '\0');
    return bootstrap.allgather(&mine, all.data(), 1);
  }
  // Every plan for streams has an allreduce; NCCL has no barrier.
  const int device = own_device(-1, stream);
  if (barrier_word.data() == nullptr || barrier_device != device) {
    if (order == Order::kCaptured || device < 0) {
      return {ErrorCode::kUnsupported,
              "barrier: the first one on a stream needs memory of this rank's GPU: make one before "
              "the capture begins, with the GPU chosen"};
    }
    const tutti::device::RelaxedCapture relaxed(*engine->process().device());
    TUTTI_ASSIGN_OR_RETURN(barrier_word,
                           engine->process().scratch().device(device, sizeof(std::uint32_t)));
    barrier_device = device;
  }
  TUTTI_RETURN_IF_ERROR(tutti::engine::make_call({.collective = Collective::kAllreduce,
                                                  .send = TUTTI_IN_PLACE,
                                                  .recv = barrier_word.data(),
                                                  .count = 1,
                                                  .type = TUTTI_UINT32,
                                                  .op = TUTTI_MAX},
                                                 me.rank, me.ranks, &prepared));
  return carry(&prepared, stream, order);
}

namespace {

/// What all functions of a communicator have in common: `body(comm)`.
template <class Body>
tutti_status_t on(tutti_comm_t* comm, const Body& body) {
  if (comm == nullptr) {
    return answer(thread_error(), [] { return invalid("the communicator is null"); });
  }
  if (comm->thrown != TUTTI_OK) {
    return comm->thrown;
  }
  return answer(comm->error, [&] { return body(*comm); });
}

/// A collective: after an error that left this rank behind its peers, the communicator is broken.
template <class Body>
tutti_status_t collective(tutti_comm_t* comm, const Body& body) {
  bool has_answered = false;
  const tutti_status_t code = on(comm, [&](tutti_comm& self) -> Status {
    Status status = self.engine->failure();
    if (status.ok()) {
      status = body(self);
      if (breaks(status.code()) && self.engine->failure().ok()) {
        self.engine->fail(status);
      }
    }
    has_answered = true;
    return status;
  });
  if (comm != nullptr && !has_answered && comm->thrown == TUTTI_OK) {
    comm->thrown = code;
    comm->engine->fail(Status(ErrorCode::kLibraryFailed, comm->error));
  }
  return code;
}

tutti_status_t collective(tutti_comm_t* comm, const CArguments& arguments, void* stream) {
  return collective(comm,
                    [&](tutti_comm& self) { return self.call(arguments, without_legacy(stream)); });
}

}  // namespace

extern "C" {

tutti_status_t tutti_comm_create(const tutti_bootstrap_t* bootstrap, const tutti_options_t* options,
                                 tutti_comm_t** comm) {
  return answer(thread_error(), [&]() -> Status {
    if (comm == nullptr) {
      return invalid("tutti_comm_create: `comm` is null");
    }
    *comm = nullptr;
    if (bootstrap == nullptr || bootstrap->size < kBootstrapBytes) {
      return invalid("tutti_comm_create: the bootstrap is null or its `size` is not set");
    }
    const tutti_bootstrap_t given = sized(bootstrap);
    if (given.allgather == nullptr || given.ranks < 1 || given.rank < 0 ||
        given.rank >= given.ranks) {
      return invalid("tutti_comm_create: rank " + std::to_string(given.rank) + " of " +
                     std::to_string(given.ranks) +
                     (given.allgather == nullptr ? ", and the allgather callback is null"
                                                 : "; ranks count from 0"));
    }
    const Result<tutti_options_t> wanted = read_options(options);
    Process& process = Process::get();
    process.report_configuration(given.rank);
    auto made = std::make_unique<tutti_comm>(given);
    made->me.world_rank = given.rank;
    made->me.world_ranks = given.ranks;
    made->me.thread_multiple = wanted.ok() && wanted->concurrent != 0;
    TUTTI_ASSIGN_OR_RETURN(made->engine,
                           tutti::engine::Communicator::create(process, made->bootstrap, nullptr,
                                                               made->me, hints_of(wanted)));
    *comm = made.release();
    return {};
  });
}

tutti_status_t tutti_comm_destroy(tutti_comm_t* comm) {
  if (comm == nullptr) {
    return TUTTI_OK;
  }
  return answer(thread_error(), [&] {
    const std::unique_ptr<tutti_comm> owned(comm);
    Status status = owned->engine->stream_status(/*wait=*/true);
    if (!status.ok()) {
      owned->barrier_word.abandon();  // A kernel may still be at it.
    }
    owned->engine->begin_end();  // Of both carriers, before one is waited for.
    return status;
  });
}

tutti_status_t tutti_comm_status(tutti_comm_t* comm) {
  return on(comm, [](tutti_comm& self) { return self.outcome(/*wait=*/false); });
}

tutti_status_t tutti_comm_wait(tutti_comm_t* comm) {
  if (comm != nullptr && comm->thrown != TUTTI_OK) {
    std::string unheard;  // The exception's words stay.
    static_cast<void>(answer(unheard, [&] { return comm->outcome(/*wait=*/true); }));
  }
  return on(comm, [](tutti_comm& self) { return self.outcome(/*wait=*/true); });
}

const char* tutti_error_string(tutti_comm_t* comm) {
  return comm == nullptr ? thread_error().c_str() : comm->error.c_str();
}

char* tutti_comm_plan_json(tutti_comm_t* comm, const char* query) {
  using tutti::engine::document;
  return tutti::engine::guarded([&] {
    if (comm == nullptr) {
      return document(nlohmann::json{{"error", "the communicator is null"}});
    }
    tutti::select::Shape shape;
    const auto parsed = nlohmann::json::parse(query == nullptr ? "" : query, nullptr, false);
    const std::string problem = tutti::engine::read_shape(parsed, &shape);
    if (!problem.empty()) {
      return document(nlohmann::json{{"error", problem}});
    }
    auto explained = nlohmann::ordered_json::parse(comm->engine->explain(shape));
    explained["last_plan"] = comm->engine->last_plan();
    return document(explained.dump());
  });
}

tutti_status_t tutti_allreduce(tutti_comm_t* comm, const void* send, void* recv, int64_t count,
                               tutti_type_t type, tutti_op_t op, void* stream) {
  return collective(comm,
                    {.collective = Collective::kAllreduce,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .op = op},
                    stream);
}

tutti_status_t tutti_reduce(tutti_comm_t* comm, const void* send, void* recv, int64_t count,
                            tutti_type_t type, tutti_op_t op, int root, void* stream) {
  return collective(comm,
                    {.collective = Collective::kReduce,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .op = op,
                     .root = root},
                    stream);
}

tutti_status_t tutti_bcast(tutti_comm_t* comm, void* buffer, int64_t count, tutti_type_t type,
                           int root, void* stream) {
  return collective(comm,
                    {.collective = Collective::kBcast,
                     .recv = buffer,
                     .count = count,
                     .type = type,
                     .root = root},
                    stream);
}

tutti_status_t tutti_allgather(tutti_comm_t* comm, const void* send, void* recv, int64_t count,
                               tutti_type_t type, void* stream) {
  return collective(comm,
                    {.collective = Collective::kAllgather,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type},
                    stream);
}

tutti_status_t tutti_allgatherv(tutti_comm_t* comm, const void* send, int64_t send_count,
                                void* recv, const int64_t* recv_counts, const int64_t* recv_displs,
                                tutti_type_t type, void* stream) {
  return collective(comm,
                    {.collective = Collective::kAllgatherv,
                     .send = send,
                     .recv = recv,
                     .count = send_count,
                     .recv_counts = recv_counts,
                     .recv_displs = recv_displs,
                     .type = type},
                    stream);
}

tutti_status_t tutti_reduce_scatter(tutti_comm_t* comm, const void* send, void* recv,
                                    const int64_t* recv_counts, tutti_type_t type, tutti_op_t op,
                                    void* stream) {
  return collective(comm,
                    {.collective = Collective::kReduceScatter,
                     .send = send,
                     .recv = recv,
                     .recv_counts = recv_counts,
                     .type = type,
                     .op = op},
                    stream);
}

tutti_status_t tutti_reduce_scatter_block(tutti_comm_t* comm, const void* send, void* recv,
                                          int64_t count, tutti_type_t type, tutti_op_t op,
                                          void* stream) {
  return collective(comm,
                    {.collective = Collective::kReduceScatterBlock,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .op = op},
                    stream);
}

tutti_status_t tutti_alltoall(tutti_comm_t* comm, const void* send, void* recv, int64_t count,
                              tutti_type_t type, void* stream) {
  return collective(comm,
                    {.collective = Collective::kAlltoall,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type},
                    stream);
}

tutti_status_t tutti_alltoallv(tutti_comm_t* comm, const void* send, const int64_t* send_counts,
                               const int64_t* send_displs, void* recv, const int64_t* recv_counts,
                               const int64_t* recv_displs, tutti_type_t type, void* stream) {
  return collective(comm,
                    {.collective = Collective::kAlltoallv,
                     .send = send,
                     .recv = recv,
                     .send_counts = send_counts,
                     .send_displs = send_displs,
                     .recv_counts = recv_counts,
                     .recv_displs = recv_displs,
                     .type = type},
                    stream);
}

tutti_status_t tutti_gather(tutti_comm_t* comm, const void* send, void* recv, int64_t count,
                            tutti_type_t type, int root, void* stream) {
  return collective(comm,
                    {.collective = Collective::kGather,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .root = root},
                    stream);
}

tutti_status_t tutti_gatherv(tutti_comm_t* comm, const void* send, int64_t send_count, void* recv,
                             const int64_t* recv_counts, const int64_t* recv_displs,
                             tutti_type_t type, int root, void* stream) {
  return collective(comm,
                    {.collective = Collective::kGatherv,
                     .send = send,
                     .recv = recv,
                     .count = send_count,
                     .recv_counts = recv_counts,
                     .recv_displs = recv_displs,
                     .type = type,
                     .root = root},
                    stream);
}

tutti_status_t tutti_scatter(tutti_comm_t* comm, const void* send, void* recv, int64_t count,
                             tutti_type_t type, int root, void* stream) {
  return collective(comm,
                    {.collective = Collective::kScatter,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .root = root},
                    stream);
}

tutti_status_t tutti_scatterv(tutti_comm_t* comm, const void* send, const int64_t* send_counts,
                              const int64_t* send_displs, void* recv, int64_t recv_count,
                              tutti_type_t type, int root, void* stream) {
  return collective(comm,
                    {.collective = Collective::kScatterv,
                     .send = send,
                     .recv = recv,
                     .count = recv_count,
                     .send_counts = send_counts,
                     .send_displs = send_displs,
                     .type = type,
                     .root = root},
                    stream);
}

tutti_status_t tutti_barrier(tutti_comm_t* comm, void* stream) {
  return collective(comm, [&](tutti_comm& self) { return self.barrier(without_legacy(stream)); });
}

}  // extern "C"
