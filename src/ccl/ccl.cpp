// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Communicators are blocking: a non-blocking one hands every call to a thread of the library, which
// was measured to cost 0.3 ms a call on NVLink where the call itself takes 16 us. Init waits for
// peers at length: it runs on a thread of ours, and the wait for it is bounded. An operation may
// wait for them too, when it is the first of its kind and the library connects what it needs (NCCL
// from 2.22 on): nothing here bounds that. Who calls operations has another thread abort() the
// communicator when one does not return, and bounds the wait for the stream.
#include "ccl/ccl.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "ccl/loaded_library.hpp"
#include "ccl/nccl_abi.hpp"

namespace tutti::ccl {

namespace {

/// What a CclComm points to.
struct Handle {
  std::atomic<abi::Comm> comm = nullptr;  ///< Null: aborted.
};

Handle* handle_of(CclComm communicator) { return static_cast<Handle*>(communicator); }

struct Functions {
  abi::GetVersion* get_version = nullptr;
  abi::GetUniqueId* get_unique_id = nullptr;
  abi::CommInitRankConfig* init_rank_config = nullptr;
  abi::CommDestroy* destroy = nullptr;
  abi::CommAbort* abort = nullptr;
  abi::CommGetAsyncError* get_async_error = nullptr;
  abi::GetErrorString* get_error_string = nullptr;
  abi::GetLastError* get_last_error = nullptr;
  abi::AllReduce* all_reduce = nullptr;
  abi::Broadcast* broadcast = nullptr;
  abi::Reduce* reduce = nullptr;
  abi::AllGather* all_gather = nullptr;
  abi::ReduceScatter* reduce_scatter = nullptr;
  abi::Send* send = nullptr;
  abi::Recv* recv = nullptr;
  abi::GroupStart* group_start = nullptr;
  abi::GroupEnd* group_end = nullptr;

  /// Empty, or the first symbol that the library lacks.
  std::string resolve(const DynamicLibrary& library) {
    const char* missing = nullptr;
    const auto need = [&](const char* name, auto** function) {
      if (!library.resolve(name, function) && missing == nullptr) {
        missing = name;
      }
    };
    need("ncclGetVersion", &get_version);
    need("ncclGetUniqueId", &get_unique_id);
    need("ncclCommInitRankConfig", &init_rank_config);
    need("ncclCommDestroy", &destroy);
    need("ncclCommAbort", &abort);
    need("ncclCommGetAsyncError", &get_async_error);
    need("ncclGetErrorString", &get_error_string);
    need("ncclGetLastError", &get_last_error);
    need("ncclAllReduce", &all_reduce);
    need("ncclBroadcast", &broadcast);
    need("ncclReduce", &reduce);
    need("ncclAllGather", &all_gather);
    need("ncclReduceScatter", &reduce_scatter);
    need("ncclSend", &send);
    need("ncclRecv", &recv);
    need("ncclGroupStart", &group_start);
    need("ncclGroupEnd", &group_end);
    return missing == nullptr ? std::string() : missing;
  }

  /// "ncclAllReduce: internal error: <the library's last words>".
  Status check(abi::Result result, const char* symbol, abi::Comm comm) const {
    if (result == abi::kSuccess) {
      return {};
    }
    std::string text = symbol;
    if (const char* what = get_error_string(result); what != nullptr && what[0] != '\0') {
      text += std::string(": ") + what;
    }
    if (const char* why = get_last_error(comm); why != nullptr && why[0] != '\0') {
      text += std::string(": ") + why;
    }
    return {result == abi::kTimeout ? ErrorCode::kTimeout : ErrorCode::kLibraryFailed, text};
  }
};

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

class LoadedLibrary final : public CclLibrary {
 public:
  LoadedLibrary(Brand brand, std::string path, std::string found_by, int version,
                const Functions& functions)
      : brand_(brand),
        path_(std::move(path)),
        found_by_(std::move(found_by)),
        version_(version),
        nccl_(functions) {}

  const char* name() const override { return to_string(brand_); }
  std::string path() const override { return path_; }
  std::string found_by() const override { return found_by_; }
  int version() const override { return version_; }

  Result<UniqueId> unique_id() override {
    UniqueId id{};
    TUTTI_RETURN_IF_ERROR(check(nccl_.get_unique_id(&id), "ncclGetUniqueId", nullptr));
    return id;
  }

  Result<CclComm> init_rank(int ranks, const UniqueId& id, int rank, double timeout_s,
                            device::Api* api, int device) override {
    if (ranks < 1 || rank < 0 || rank >= ranks) {
      return Status(ErrorCode::kInvalidArgument, "ncclCommInitRankConfig: rank " +
                                                     std::to_string(rank) + " of " +
                                                     std::to_string(ranks) + " ranks");
    }
    const auto init = std::make_shared<Init>();
    // Takes a copy of the table: an abandoned thread may outlive this object.
    std::thread thread([nccl = nccl_, init, ranks, id, rank, api, device] {
      Status status;
      abi::Comm comm = nullptr;
      {
        // The current device is a thread's own.
        std::optional<Result<device::CurrentDevice>> current;
        std::optional<device::RelaxedCapture> relaxed;  // As is what ends a capture.
        if (api != nullptr) {
          current.emplace(device::CurrentDevice::set(*api, device));
          relaxed.emplace(*api);
          status = current->status();
        }
        if (status.ok()) {
          abi::Config config = abi::default_config();
          config.blocking = 1;
          status = nccl.check(nccl.init_rank_config(&comm, ranks, id, rank, &config),
                              "ncclCommInitRankConfig", nullptr);
        }
      }
      const std::lock_guard lock(init->mutex);
      if (init->abandoned && comm != nullptr) {
        static_cast<void>(nccl.abort(comm));  // Nobody waits for it any more.
        comm = nullptr;
      }
      init->comm = comm;
      init->status = std::move(status);
      init->done = true;
      init->changed.notify_all();
    });
    std::unique_lock lock(init->mutex);
    const auto is_done = [&] { return init->done; };
    if (timeout_s > 0) {
      init->changed.wait_for(lock, std::chrono::duration<double>(timeout_s), is_done);
    } else {
      init->changed.wait(lock, is_done);
    }
    if (!init->done) {
      // The library offers no way to stop a blocking init; its thread ends with it, or never.
      init->abandoned = true;
      thread.detach();
      return Status(ErrorCode::kTimeout,
                    "ncclCommInitRankConfig: rank " + std::to_string(rank) + " of " +
                        std::to_string(ranks) + " waited " + seconds_text(timeout_s) +
                        " for the others; see whether a rank died or does not take part, or raise "
                        "TUTTI_TIMEOUT");
    }
    lock.unlock();
    thread.join();
    TUTTI_RETURN_IF_ERROR(init->status);
    return CclComm(new Handle{.comm = init->comm});
  }

  Status destroy(CclComm communicator) override {
    const std::unique_ptr<Handle> handle(handle_of(communicator));
    if (handle == nullptr) {
      return no_communicator("ncclCommDestroy");
    }
    return check_last(nccl_.destroy(handle->comm), "ncclCommDestroy");
  }

  Status abort(CclComm communicator) override {
    Handle* handle = handle_of(communicator);
    const abi::Comm comm = handle == nullptr ? nullptr : handle->comm.exchange(nullptr);
    if (comm == nullptr) {
      return no_communicator("ncclCommAbort");
    }
    {
      // Kept: another thread may be in a call with it.
      const std::lock_guard lock(aborted_mutex_);
      aborted_.emplace_back(handle);
    }
    return check_last(nccl_.abort(comm), "ncclCommAbort");
  }

  Status async_error(CclComm communicator) override {
    Handle* handle = handle_of(communicator);
    if (handle == nullptr) {
      return no_communicator("ncclCommGetAsyncError");
    }
    const abi::Comm comm = handle->comm;
    if (comm == nullptr) {
      return no_communicator("ncclCommGetAsyncError");
    }
    abi::Result state = abi::kSuccess;
    TUTTI_RETURN_IF_ERROR(
        check(nccl_.get_async_error(comm, &state), "ncclCommGetAsyncError", comm));
    return state == abi::kInProgress ? Status() : check(state, "ncclCommGetAsyncError", comm);
  }

  Status all_reduce(const void* send, void* recv, std::size_t count, NcclType type, NcclOp op,
                    CclComm communicator, device::Stream stream) override {
    return operate("ncclAllReduce", communicator, [&](abi::Comm comm) {
      return nccl_.all_reduce(send, recv, count, static_cast<int>(type), static_cast<int>(op), comm,
                              stream);
    });
  }

  Status broadcast(const void* send, void* recv, std::size_t count, NcclType type, int root,
                   CclComm communicator, device::Stream stream) override {
    return operate("ncclBroadcast", communicator, [&](abi::Comm comm) {
      return nccl_.broadcast(send, recv, count, static_cast<int>(type), root, comm, stream);
    });
  }

  Status reduce(const void* send, void* recv, std::size_t count, NcclType type, NcclOp op, int root,
                CclComm communicator, device::Stream stream) override {
    return operate("ncclReduce", communicator, [&](abi::Comm comm) {
      return nccl_.reduce(send, recv, count, static_cast<int>(type), static_cast<int>(op), root,
                          comm, stream);
    });
  }

  Status all_gather(const void* send, void* recv, std::size_t send_count, NcclType type,
                    CclComm communicator, device::Stream stream) override {
    return operate("ncclAllGather", communicator, [&](abi::Comm comm) {
      return nccl_.all_gather(send, recv, send_count, static_cast<int>(type), comm, stream);
    });
  }

  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, NcclType type,
                        NcclOp op, CclComm communicator, device::Stream stream) override {
    return operate("ncclReduceScatter", communicator, [&](abi::Comm comm) {
      return nccl_.reduce_scatter(send, recv, recv_count, static_cast<int>(type),
                                  static_cast<int>(op), comm, stream);
    });
  }

  Status send(const void* buffer, std::size_t count, NcclType type, int peer, CclComm communicator,
              device::Stream stream) override {
    return operate("ncclSend", communicator, [&](abi::Comm comm) {
      return nccl_.send(buffer, count, static_cast<int>(type), peer, comm, stream);
    });
  }

  Status recv(void* buffer, std::size_t count, NcclType type, int peer, CclComm communicator,
              device::Stream stream) override {
    return operate("ncclRecv", communicator, [&](abi::Comm comm) {
      return nccl_.recv(buffer, count, static_cast<int>(type), peer, comm, stream);
    });
  }

  Status group_start() override { return check(nccl_.group_start(), "ncclGroupStart", nullptr); }

  Status group_end() override { return check(nccl_.group_end(), "ncclGroupEnd", nullptr); }

 private:
  static Status no_communicator(const char* symbol) {
    return {ErrorCode::kInvalidArgument, std::string(symbol) + ": no communicator"};
  }

  Status check(abi::Result result, const char* symbol, abi::Comm comm) const {
    return nccl_.check(result, symbol, comm);
  }

  /// For calls after which the communicator may be gone or is not one: in-progress means that a
  /// thread of the library finishes the work, and nothing may be asked of the handle any more.
  Status check_last(abi::Result result, const char* symbol) const {
    return result == abi::kInProgress ? Status() : check(result, symbol, nullptr);
  }

  /// What init's thread and its caller share; it outlives a caller that gave up.
  struct Init {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    bool abandoned = false;
    abi::Comm comm = nullptr;
    Status status;
  };

  template <class Call>
  Status operate(const char* symbol, CclComm communicator, Call&& call) {
    Handle* handle = handle_of(communicator);
    const abi::Comm comm = handle == nullptr ? nullptr : handle->comm.load();
    if (comm == nullptr) {
      return no_communicator(symbol);
    }
    const abi::Result result = call(comm);
    // The library's last words for a communicator that was aborted meanwhile are not to be had.
    return check(result, symbol, handle->comm == comm ? comm : nullptr);
  }

  const Brand brand_;
  const std::string path_;
  const std::string found_by_;
  const int version_;
  const Functions nccl_;
  std::mutex aborted_mutex_;
  std::vector<std::unique_ptr<Handle>> aborted_;
};

}  // namespace

Result<std::unique_ptr<CclLibrary>> make_library(Brand brand, const DynamicLibrary& library,
                                                 const std::string& found_by) {
  const std::string path = library.path();
  Functions functions;
  if (const std::string missing = functions.resolve(library); !missing.empty()) {
    // An old version lacks symbols; its number says more than the first name that is missing.
    int version = 0;
    const bool old = functions.get_version != nullptr &&
                     functions.get_version(&version) == abi::kSuccess && version < kMinimumVersion;
    return Status(ErrorCode::kUnsupported, old ? path + ": version " + format_version(version) +
                                                     " is below " + format_version(kMinimumVersion)
                                               : path + ": has no symbol " + missing);
  }
  int version = 0;
  if (const abi::Result result = functions.get_version(&version); result != abi::kSuccess) {
    return Status(ErrorCode::kLibraryFailed,
                  path + ": ncclGetVersion: " + functions.get_error_string(result));
  }
  if (version < kMinimumVersion) {
    return Status(ErrorCode::kUnsupported, path + ": version " + format_version(version) +
                                               " is below " + format_version(kMinimumVersion));
  }
  return std::unique_ptr<CclLibrary>(
      std::make_unique<LoadedLibrary>(brand, path, found_by, version, functions));
}

std::string format_version(int version) {
  // Since 2.9 the major version counts ten thousands; before, thousands.
  const int major_unit = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / 100) +
         "." + std::to_string(version % 100);
}

}  // namespace tutti::ccl
