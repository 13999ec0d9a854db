// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A communicator of the C API: a handle around an engine::Communicator without MPI, whose bootstrap
// is the caller's callback. And how every function of one ends: errors become codes, nothing is
// thrown out.
#pragma once

#include <cxxabi.h>

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "engine/c_call.hpp"
#include "engine/communicator.hpp"
#include "runners/allgather_bootstrap.hpp"
#include "tutti/tutti.h"

struct tutti_comm {
  explicit tutti_comm(const tutti_bootstrap_t& given)
      : me{.rank = given.rank, .ranks = given.ranks},
        bootstrap(given.rank, given.ranks,
                  [given](const void* send, void* recv, tutti::Bytes bytes) {
                    return given.allgather(given.context, send, recv, bytes);
                  }) {}

  tutti::Status call(const tutti::engine::CArguments& arguments, void* stream);
  tutti::Status barrier(void* stream);
  /// What broke the communicator; `wait`: once its calls on streams are over.
  tutti::Status outcome(bool wait);
  tutti::Status order(void* earlier, void* later);
  tutti::Status mark(void* stream);

  tutti::engine::RankInfo me;
  tutti::runners::AllgatherBootstrap bootstrap;
  std::unique_ptr<tutti::engine::Communicator> engine;
  tutti::runners::Lease barrier_word;  ///< On a GPU; what a barrier on a stream reduces.
  int barrier_device = -1;             ///< Where it is.
  tutti::runners::GraphOrder::SharedEvent order_event;  ///< order()'s.
  int order_device = -1;                                ///< Where it is.
  std::string error;
  /// The code of an exception that ended a call; its words stay in `error`.
  tutti_status_t thrown = TUTTI_OK;

 private:
  /// Before a call: what earlier ones came to. One that waits lets those on streams end first: the
  /// bootstrap has no time-out, and no peer may be left waiting there for a rank that has failed.
  tutti::Status ready(tutti::select::Order order);
  void classify(tutti::engine::CCall* call);
  tutti::Result<tutti::select::Order> order_of(void* stream);
  /// This rank's GPU, by a call on a stream whose buffers are on `device`, -1: it has none.
  int own_device(int device, void* stream);
  tutti::Status carry(tutti::engine::CCall* call, void* stream, tutti::select::Order order);
};

namespace tutti::engine {

/// What a C function returns for `status`.
tutti_status_t code_of(const Status& status);

/// What tutti_error_string(NULL) gives: of this thread's calls without a communicator.
std::string& thread_error();

/// Runs `body`, which returns a Status, and keeps its words in `error`.
template <class Body>
tutti_status_t answer(std::string& error, const Body& body) {
  try {
    const Status status = body();
    if (!status.ok()) {
      error = std::string(to_string(status.code())) + ": " + status.message();
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

/// What all functions of a communicator have in common: `body(comm)`.
template <class Body>
tutti_status_t on(tutti_comm_t* comm, const Body& body) {
  if (comm == nullptr) {
    return answer(thread_error(),
                  [] { return Status(ErrorCode::kInvalidArgument, "the communicator is null"); });
  }
  if (comm->thrown != TUTTI_OK) {
    return comm->thrown;
  }
  return answer(comm->error, [&] { return body(*comm); });
}

}  // namespace tutti::engine
