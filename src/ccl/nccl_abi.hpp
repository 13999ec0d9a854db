// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of the NCCL and RCCL binary interface that we call, declared by us so that neither
// library's header is needed to build. tests/abi compares every line with the real nccl.h.
// Private to this room and to the fake library of the tests.
#pragma once

#include <climits>
#include <cstddef>
#include <type_traits>

#include "ccl/ccl.hpp"

namespace tutti::ccl::abi {

/// ncclComm_t: opaque to everybody but the library.
using Comm = struct OpaqueComm*;
/// cudaStream_t or hipStream_t.
using Stream = void*;

/// ncclResult_t. An int, not an enum: a newer library may return a value that we do not know.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;
inline constexpr Result kTimeout = 8;  ///< Newer versions only; in 2.28 still the count of results.

/// ncclConfig_t as of 2.18. `size` and `version` tell a newer library where our knowledge ends:
/// it takes its own defaults for every field that came later.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
  /// Padding in 2.18, where 2.25 put trafficClass; "undefined" suits both readings.
  int padding;
};
static_assert(std::is_standard_layout_v<Config> && std::is_trivially_copyable_v<Config>);

inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr unsigned kConfigVersion = 21801;
inline constexpr int kUndefinedInt = INT_MIN;

/// What NCCL_CONFIG_INITIALIZER gives.
constexpr Config default_config() {
  return {sizeof(Config), kConfigMagic,  kConfigVersion, kUndefinedInt, kUndefinedInt,
          kUndefinedInt,  kUndefinedInt, nullptr,        kUndefinedInt, kUndefinedInt};
}

// Function types, named after their symbols without the prefix. Types and operations travel as
// int: ncclDataType_t and ncclRedOp_t are C enums of that size.
using GetVersion = Result(int* version);
using GetUniqueId = Result(UniqueId* id);
using CommInitRankConfig = Result(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
using CommFinalize = Result(Comm comm);
using CommDestroy = Result(Comm comm);
using CommAbort = Result(Comm comm);
using CommGetAsyncError = Result(Comm comm, Result* async_error);
using GetErrorString = const char*(Result result);
using GetLastError = const char*(Comm comm);
using AllReduce = Result(const void* send, void* recv, std::size_t count, int type, int op,
                         Comm comm, Stream stream);
using Broadcast = Result(const void* send, void* recv, std::size_t count, int type, int root,
                         Comm comm, Stream stream);
using Reduce = Result(const void* send, void* recv, std::size_t count, int type, int op, int root,
                      Comm comm, Stream stream);
using AllGather = Result(const void* send, void* recv, std::size_t send_count, int type, Comm comm,
                         Stream stream);
using ReduceScatter = Result(const void* send, void* recv, std::size_t recv_count, int type, int op,
                             Comm comm, Stream stream);
using Send = Result(const void* buffer, std::size_t count, int type, int peer, Comm comm,
                    Stream stream);
using Recv = Result(void* buffer, std::size_t count, int type, int peer, Comm comm, Stream stream);
using GroupStart = Result();
using GroupEnd = Result();

}  // namespace tutti::ccl::abi
