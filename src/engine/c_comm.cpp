// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Life of a communicator of the C API: made, waited for, asked, destroyed.
#include "engine/c_comm.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/c_text.hpp"
#include "engine/process.hpp"

using tutti::ErrorCode;
using tutti::Result;
using tutti::Status;
using namespace tutti::engine;

namespace tutti::engine {

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

std::string& thread_error() {
  thread_local std::string text;
  return text;
}

}  // namespace tutti::engine

namespace {

Status invalid(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

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
  constexpr double kTimeoutMaxS = 1e9;
  if (!(own.timeout_s >= 0 && own.timeout_s <= kTimeoutMaxS)) {
    return invalid("options: timeout_s " + std::to_string(own.timeout_s) + " is no time");
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
    hints.timeout_s = options->timeout_s;
  }
  return hints;
}

}  // namespace

Status tutti_comm::outcome(bool wait) {
  Status status = engine->stream_status(wait);  // Calls may be on streams after a failure, too.
  TUTTI_RETURN_IF_ERROR(engine->why_ended());
  return status;
}

Status tutti_comm::ready(tutti::select::Order order) {
  if (order == tutti::select::Order::kBlocking) {
    return outcome(/*wait=*/true);
  }
  Status status = engine->stream_glance();
  TUTTI_RETURN_IF_ERROR(engine->why_ended());
  return status;
}

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

tutti_status_t tutti_comm_abort(tutti_comm_t* comm) {
  // The communicator's own words are of the thread that is in its call.
  return answer(thread_error(), [&]() -> Status {
    if (comm == nullptr) {
      return invalid("tutti_comm_abort: `comm` is null");
    }
    comm->engine->abort();
    return {};
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

}  // extern "C"
