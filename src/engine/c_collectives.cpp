// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives of the C API on a communicator: what a call's stream and buffers say, its route, and
// what its failure leaves.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "device/pointer_kind.hpp"
#include "engine/c_comm.hpp"
#include "engine/process.hpp"

using tutti::ErrorCode;
using tutti::Result;
using tutti::Status;
using tutti::device::Api;
using tutti::device::CurrentDevice;
using tutti::runners::stream_to_order;
using tutti::select::Collective;
using tutti::select::Order;
using namespace tutti::engine;

namespace {

/// The default stream's handle in CUDA and HIP is as good as null.
void* without_legacy(void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) == 1 ? nullptr : stream;
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

Status tutti_comm::order(void* earlier, void* later) {
  Api* const api = engine->process().device();
  const int device = own_device(-1, later);
  if (api == nullptr || device < 0) {
    return {ErrorCode::kUnavailable, "no GPU library, or no GPU is this rank's yet"};
  }
  TUTTI_ASSIGN_OR_RETURN(void* const from, stream_to_order(*api, device, earlier));
  TUTTI_ASSIGN_OR_RETURN(void* const to, stream_to_order(*api, device, later));
  const tutti::device::RelaxedCapture relaxed(*api);
  if (order_event == nullptr || order_device != device) {
    TUTTI_ASSIGN_OR_RETURN(order_event, tutti::runners::GraphOrder::make_event(*api, device));
    order_device = device;
  }
  {
    TUTTI_ASSIGN_OR_RETURN(const auto current, CurrentDevice::set(*api, device, from));
    TUTTI_RETURN_IF_ERROR(api->record_event(order_event.get(), from));
  }
  TUTTI_ASSIGN_OR_RETURN(const auto current, CurrentDevice::set(*api, device, to));
  // For that recording, whatever is recorded later.
  return api->stream_wait_event(to, order_event.get());
}

Status tutti_comm::mark(void* stream) {
  Api* const api = engine->process().device();
  const int device = own_device(-1, stream);
  TUTTI_RETURN_IF_ERROR(ready(Order::kStream));
  if (api == nullptr || device < 0) {
    return {};  // No call is on a stream that this could be behind.
  }
  TUTTI_ASSIGN_OR_RETURN(void* const own, stream_to_order(*api, device, stream));
  TUTTI_ASSIGN_OR_RETURN(const auto current, CurrentDevice::set(*api, device, own));
  return engine->mark(own);
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
  if (Status made = make_call(arguments, me.rank, me.ranks, &prepared); !made.ok()) {
    if (stream == TUTTI_BLOCKING) {
      engine->count_refused_call();
    }
    return made;
  }
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
    TUTTI_RETURN_IF_ERROR(make_call({}, me.rank, me.ranks, &prepared));
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
  TUTTI_RETURN_IF_ERROR(make_call({.collective = Collective::kAllreduce,
                                   .send = TUTTI_IN_PLACE,
                                   .recv = barrier_word.data(),
                                   .count = 1,
                                   .type = TUTTI_UINT32,
                                   .op = TUTTI_MAX},
                                  me.rank, me.ranks, &prepared));
  return carry(&prepared, stream, order);
}

namespace {

/// A collective: after an error that left this rank behind its peers, the communicator is broken.
template <class Body>
tutti_status_t collective(tutti_comm_t* comm, const Body& body) {
  bool has_answered = false;
  const tutti_status_t code = on(comm, [&](tutti_comm& self) -> Status {
    Status status = self.engine->why_ended();
    if (status.ok()) {
      status = body(self);
      if (breaks(status.code()) && self.engine->failure().ok()) {
        self.engine->fail(status);
      }
    } else if (self.engine->failure().ok()) {
      self.engine->fail(status);  // Aborted: peers hear of it.
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

/// The communicator's own words are of the thread that is in its call.
template <class Body>
tutti_status_t from_any_thread(tutti_comm_t* comm, const Body& body) {
  return answer(thread_error(), [&]() -> Status {
    if (comm == nullptr) {
      return {ErrorCode::kInvalidArgument, "the communicator is null"};
    }
    return body(*comm);
  });
}

tutti_status_t collective(tutti_comm_t* comm, const CArguments& arguments, void* stream) {
  return collective(comm,
                    [&](tutti_comm& self) { return self.call(arguments, without_legacy(stream)); });
}

}  // namespace

extern "C" {

tutti_status_t tutti_comm_order(tutti_comm_t* comm, void* earlier, void* later) {
  return on(comm, [&](tutti_comm& self) {
    return self.order(without_legacy(earlier), without_legacy(later));
  });
}

tutti_status_t tutti_comm_mark(tutti_comm_t* comm, void* stream) {
  return on(comm, [&](tutti_comm& self) { return self.mark(without_legacy(stream)); });
}

uint64_t tutti_comm_calls(tutti_comm_t* comm) {
  return comm == nullptr ? 0 : comm->engine->stream_calls().added();
}

tutti_status_t tutti_comm_wait_on(tutti_comm_t* comm, uint64_t number, void* stream) {
  return from_any_thread(comm, [&](tutti_comm& self) {
    return self.engine->stream_calls().wait_on_stream(number, without_legacy(stream));
  });
}

tutti_status_t tutti_comm_test(tutti_comm_t* comm, uint64_t number, int* are_over) {
  return from_any_thread(comm, [&](tutti_comm& self) -> Status {
    if (are_over == nullptr) {
      return {ErrorCode::kInvalidArgument, "tutti_comm_test: `are_over` is null"};
    }
    *are_over = 0;
    TUTTI_ASSIGN_OR_RETURN(const bool is_over, self.engine->stream_calls().are_over(number));
    *are_over = is_over ? 1 : 0;
    return {};
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
