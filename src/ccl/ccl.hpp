// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One table for NCCL (>= 2.18) and RCCL: the same API, found at run time, never linked. Knows
// nothing of plans or MPI. Types and operations are NCCL's; the translation from the call's type
// and op, and what is refused, stands in runners/ccl/types.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "device/device.hpp"

namespace tutti::ccl {

/// ncclUniqueId: 128 opaque bytes.
struct UniqueId {
  char bytes[128];
};

/// ncclDataType_t; values as in nccl.h (checked at compile time in tests/abi).
enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

/// ncclRedOp_t.
enum class NcclOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

/// An ncclComm_t with the device it is bound to; owned by CclLibrary::init_rank's caller.
using CclComm = void*;

/// A loaded NCCL or RCCL. Thread-safe as the library is: one thread at a time per communicator.
class CclLibrary {
 public:
  /// Search order: already loaded in the process; `path` (TUTTI_CCL_LIBRARY); the PyTorch wheel's
  /// copy (nvidia/nccl/lib beside site-packages on the loader's and Python's paths); the system's.
  /// A given `path` that does not load is an error, not a reason to look further.
  /// `wanted` is auto | nccl | rccl; auto follows `device_name` ("cuda" -> nccl, "hip" -> rccl).
  /// Errors: not found (each place with its reason), version below 2.18, a symbol missing.
  static Result<std::unique_ptr<CclLibrary>> open(const std::string& wanted,
                                                  const std::string& device_name,
                                                  const std::string& path);
  virtual ~CclLibrary() = default;

  virtual const char* name() const = 0;      ///< "nccl" or "rccl".
  virtual std::string path() const = 0;      ///< The file that was taken.
  virtual std::string found_by() const = 0;  ///< Which step of the search took it.
  virtual int version() const = 0;           ///< ncclGetVersion, for example 22807.

  virtual Result<UniqueId> unique_id() = 0;
  /// Collective over `ranks`. Runs on a thread of its own, on which `device` of `api` is made
  /// current (null: none), so that the wait for the others is bounded by `timeout_s` (0: none).
  /// After a time-out that thread is left to end by itself: `api` must outlive the process's use.
  virtual Result<CclComm> init_rank(int ranks, const UniqueId& id, int rank, double timeout_s,
                                    device::Api* api = nullptr, int device = -1) = 0;
  /// For a communicator whose work is done; abort() for any other. Both take the handle, also when
  /// they return an error: it must not be used again.
  virtual Status destroy(CclComm communicator) = 0;
  /// abort() is for any thread, also while another one is in a call with the communicator, whose
  /// calls with it are errors from then on.
  virtual Status abort(CclComm communicator) = 0;
  /// ncclCommGetAsyncError: ok, or what went wrong behind our back.
  virtual Status async_error(CclComm communicator) = 0;

  virtual Status all_reduce(const void* send, void* recv, std::size_t count, NcclType type,
                            NcclOp op, CclComm communicator, device::Stream stream) = 0;
  virtual Status broadcast(const void* send, void* recv, std::size_t count, NcclType type, int root,
                           CclComm communicator, device::Stream stream) = 0;
  virtual Status reduce(const void* send, void* recv, std::size_t count, NcclType type, NcclOp op,
                        int root, CclComm communicator, device::Stream stream) = 0;
  virtual Status all_gather(const void* send, void* recv, std::size_t send_count, NcclType type,
                            CclComm communicator, device::Stream stream) = 0;
  virtual Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, NcclType type,
                                NcclOp op, CclComm communicator, device::Stream stream) = 0;
  virtual Status send(const void* buffer, std::size_t count, NcclType type, int peer,
                      CclComm communicator, device::Stream stream) = 0;
  virtual Status recv(void* buffer, std::size_t count, NcclType type, int peer,
                      CclComm communicator, device::Stream stream) = 0;
  virtual Status group_start() = 0;
  virtual Status group_end() = 0;
};

/// Lowest version we accept (ncclCommInitRankConfig and the config's `blocking`).
inline constexpr int kMinimumVersion = 21800;

/// 22807 -> "2.28.7".
std::string format_version(int version);

}  // namespace tutti::ccl
