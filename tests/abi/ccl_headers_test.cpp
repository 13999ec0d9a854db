// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our declarations of NCCL against the real nccl.h: passes when it compiles. Works with every
// header from 2.18 on.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "ccl/nccl_abi.hpp"

namespace abi = tutti::ccl::abi;
using tutti::ccl::NcclOp;
using tutti::ccl::NcclType;

static_assert(NCCL_VERSION_CODE >= tutti::ccl::kMinimumVersion);
static_assert(NCCL_VERSION(2, 18, 0) == tutti::ccl::kMinimumVersion);

// ---- Enumerators --------------------------------------------------------------------------

static_assert(ncclSuccess == abi::kSuccess);
static_assert(ncclUnhandledCudaError == abi::kUnhandledCudaError);
static_assert(ncclSystemError == abi::kSystemError);
static_assert(ncclInternalError == abi::kInternalError);
static_assert(ncclInvalidArgument == abi::kInvalidArgument);
static_assert(ncclInvalidUsage == abi::kInvalidUsage);
static_assert(ncclRemoteError == abi::kRemoteError);
static_assert(ncclInProgress == abi::kInProgress);
// ncclTimeout is younger than 2.28; before it, its value is that of ncclNumResults.
static_assert(ncclNumResults >= abi::kTimeout);

static_assert(ncclInt8 == static_cast<int>(NcclType::kInt8));
static_assert(ncclUint8 == static_cast<int>(NcclType::kUint8));
static_assert(ncclInt32 == static_cast<int>(NcclType::kInt32));
static_assert(ncclUint32 == static_cast<int>(NcclType::kUint32));
static_assert(ncclInt64 == static_cast<int>(NcclType::kInt64));
static_assert(ncclUint64 == static_cast<int>(NcclType::kUint64));
static_assert(ncclFloat16 == static_cast<int>(NcclType::kFloat16));
static_assert(ncclFloat32 == static_cast<int>(NcclType::kFloat32));
static_assert(ncclFloat64 == static_cast<int>(NcclType::kFloat64));
static_assert(ncclBfloat16 == static_cast<int>(NcclType::kBfloat16));

static_assert(ncclSum == static_cast<int>(NcclOp::kSum));
static_assert(ncclProd == static_cast<int>(NcclOp::kProd));
static_assert(ncclMax == static_cast<int>(NcclOp::kMax));
static_assert(ncclMin == static_cast<int>(NcclOp::kMin));
static_assert(ncclAvg == static_cast<int>(NcclOp::kAvg));

// ---- Structures ---------------------------------------------------------------------------

static_assert(sizeof(ncclUniqueId) == sizeof(tutti::ccl::UniqueId));
static_assert(alignof(ncclUniqueId) == alignof(tutti::ccl::UniqueId));

// A newer ncclConfig_t only appends.
static_assert(sizeof(ncclConfig_t) >= sizeof(abi::Config));
static_assert(alignof(ncclConfig_t) == alignof(abi::Config));
#define SAME_PLACE(theirs, ours)                                                \
  static_assert(offsetof(ncclConfig_t, theirs) == offsetof(abi::Config, ours)); \
  static_assert(sizeof(ncclConfig_t::theirs) == sizeof(abi::Config::ours))
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cgaClusterSize, cga_cluster_size);
SAME_PLACE(minCTAs, min_ctas);
SAME_PLACE(maxCTAs, max_ctas);
SAME_PLACE(netName, net_name);
SAME_PLACE(splitShare, split_share);
#if NCCL_VERSION_CODE >= 22500
SAME_PLACE(trafficClass, padding);
#endif
static_assert(NCCL_CONFIG_UNDEF_INT == abi::kUndefinedInt);

constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
constexpr abi::Config kOurs = abi::default_config();
static_assert(kTheirs.magic == kOurs.magic);
static_assert(kTheirs.version >= kOurs.version);
static_assert(kTheirs.blocking == kOurs.blocking &&
              kTheirs.cgaClusterSize == kOurs.cga_cluster_size);
static_assert(kTheirs.minCTAs == kOurs.min_ctas && kTheirs.maxCTAs == kOurs.max_ctas);
static_assert(kTheirs.netName == kOurs.net_name && kTheirs.splitShare == kOurs.split_share);

// ---- Functions ----------------------------------------------------------------------------

/// Passed alike by the C calling convention: both pointers, or both integers (an enum is one) of
/// one size, or both structures of one size.
template <class Theirs, class Ours>
constexpr bool kPassedAlike =
    std::is_pointer_v<Theirs> == std::is_pointer_v<Ours> &&
    (std::is_enum_v<Theirs> || std::is_integral_v<Theirs>) ==
        std::is_integral_v<Ours>&& std::is_class_v<Theirs> == std::is_class_v<Ours> &&
    sizeof(Theirs) == sizeof(Ours);

template <class Theirs, class Ours>
struct Compatible : std::false_type {};
template <class TheirResult, class... Theirs, class OurResult, class... Ours>
requires(sizeof...(Theirs) ==
         sizeof...(Ours)) struct Compatible<TheirResult(Theirs...), OurResult(Ours...)>
    : std::bool_constant<kPassedAlike<TheirResult, OurResult> &&
                         (kPassedAlike<Theirs, Ours> && ...)> {
};

#define SAME_FUNCTION(theirs, ours) static_assert(Compatible<decltype(theirs), abi::ours>::value)
SAME_FUNCTION(ncclGetVersion, GetVersion);
SAME_FUNCTION(ncclGetUniqueId, GetUniqueId);
SAME_FUNCTION(ncclCommInitRankConfig, CommInitRankConfig);
SAME_FUNCTION(ncclCommFinalize, CommFinalize);
SAME_FUNCTION(ncclCommDestroy, CommDestroy);
SAME_FUNCTION(ncclCommAbort, CommAbort);
SAME_FUNCTION(ncclCommGetAsyncError, CommGetAsyncError);
SAME_FUNCTION(ncclGetErrorString, GetErrorString);
SAME_FUNCTION(ncclGetLastError, GetLastError);
SAME_FUNCTION(ncclAllReduce, AllReduce);
SAME_FUNCTION(ncclBroadcast, Broadcast);
SAME_FUNCTION(ncclReduce, Reduce);
SAME_FUNCTION(ncclAllGather, AllGather);
SAME_FUNCTION(ncclReduceScatter, ReduceScatter);
SAME_FUNCTION(ncclSend, Send);
SAME_FUNCTION(ncclRecv, Recv);
SAME_FUNCTION(ncclGroupStart, GroupStart);
SAME_FUNCTION(ncclGroupEnd, GroupEnd);
