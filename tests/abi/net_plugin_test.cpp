// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// src/nccl_net/abi.hpp against what NCCL's headers say, written down a second time: each member of
// each structure in its order, with its kind, and each function of each version. Passes when it
// compiles. The plugin, the driver and the baseline share abi.hpp, so two members of one kind that
// changed places there would be wrong on both sides of every call, and no other test would notice.
// NVIDIA/nccl, plugins/net/example/nccl/ (net_v6.h to net_v12.h, net_device.h, common.h, net.h) and
// src/include/plugin/net/, up to NCCL 2.30.7; no package that this project fetches from has them.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ccl/nccl_abi.hpp"
#include "nccl_net/abi.hpp"

namespace abi = tutti::nccl_net::abi;
namespace nccl = tutti::ccl::abi;

namespace {

// ---- Enumerators and constants ------------------------------------------------------------

using abi::DeviceType;
using abi::LogLevel;
using Code = abi::Result;

// Ours of nccl.h, which ccl_headers_test.cpp compares with the real one.
static_assert(static_cast<int>(Code::kSuccess) == nccl::kSuccess);
static_assert(static_cast<int>(Code::kUnhandledCudaError) == nccl::kUnhandledCudaError);
static_assert(static_cast<int>(Code::kSystemError) == nccl::kSystemError);
static_assert(static_cast<int>(Code::kInternalError) == nccl::kInternalError);
static_assert(static_cast<int>(Code::kInvalidArgument) == nccl::kInvalidArgument);
static_assert(static_cast<int>(Code::kInvalidUsage) == nccl::kInvalidUsage);
static_assert(static_cast<int>(Code::kRemoteError) == nccl::kRemoteError);

static_assert(static_cast<int>(LogLevel::kNone) == 0 && static_cast<int>(LogLevel::kVersion) == 1);
static_assert(static_cast<int>(LogLevel::kWarn) == 2 && static_cast<int>(LogLevel::kInfo) == 3);
static_assert(static_cast<int>(LogLevel::kAbort) == 4 && static_cast<int>(LogLevel::kTrace) == 5);
static_assert(abi::kLogInit == 1 && abi::kLogNet == 16 && abi::kLogAll == ~0UL);
static_assert(static_cast<int>(DeviceType::kHost) == 0 &&
              static_cast<int>(DeviceType::kUnpack) == 1);

static_assert(abi::kPointerHost == 0x1 && abi::kPointerCuda == 0x2 && abi::kPointerDmaBuf == 0x4);
static_assert(abi::kHandleBytes == 128 && abi::kRequestsMax == 32 && abi::kUndefined == -1);
static_assert(abi::kMessageBytesMax == 1024ULL * 1024 * 1024 * 1024);

// ---- Structures ---------------------------------------------------------------------------

/// A member as it was found in our structure.
struct Member {
  std::size_t offset;
  std::size_t bytes;
  std::size_t alignment;
  std::size_t values;  ///< More than 1: an array.
  bool is_of_its_kind;
};

template <class Kind, class Ours>
constexpr Member member(std::size_t offset) {
  return {offset, sizeof(Kind), alignof(Kind), std::is_array_v<Kind> ? std::extent_v<Kind> : 1,
          std::is_same_v<Kind, Ours>};
}

/// `kind` and `name` of a member of `Of`, which is whose list it stands in.
#define MEMBER(name, ...) member<__VA_ARGS__, decltype(Of::name)>(offsetof(Of, name))

struct Anything {
  template <class T>
  operator T() const;
};

/// The values that an initialiser of `Of` takes; those of an array count one by one.
template <class Of, class... Values>
consteval std::size_t value_count() {
  if constexpr (requires { Of{Values()..., Anything()}; }) {
    return value_count<Of, Values..., Anything>();
  } else {
    return sizeof...(Values);
  }
}

inline constexpr std::size_t kNone = ~std::size_t{0};

/// Index of the first member that does not stand where C puts it behind those before it, or is of
/// another kind; the number of members when `Of` has more or fewer. kNone: all is as it should be.
template <class Of, std::size_t kMembers>
consteval std::size_t first_wrong(const Member (&members)[kMembers]) {
  std::size_t end = 0;
  std::size_t values = 0;
  std::size_t alignment = 1;
  const auto up = [](std::size_t to, std::size_t multiple) {
    return (to + multiple - 1) / multiple * multiple;
  };
  for (std::size_t i = 0; i < kMembers; ++i) {
    const Member& one = members[i];
    if (one.offset != up(end, one.alignment) || !one.is_of_its_kind) {
      return i;
    }
    end = one.offset + one.bytes;
    values += one.values;
    alignment = one.alignment > alignment ? one.alignment : alignment;
  }
  const bool is_whole = sizeof(Of) == up(end, alignment) && alignof(Of) == alignment &&
                        value_count<Of>() == values && std::is_standard_layout_v<Of>;
  return is_whole ? kNone : kMembers;
}

/// A structure with the list of its members.
template <class Structure>
struct Is;

#define STRUCTURE(structure, ...)                                              \
  template <>                                                                  \
  struct Is<structure> {                                                       \
    using Of = structure;                                                      \
    static constexpr std::size_t kFirstWrong = first_wrong<Of>({__VA_ARGS__}); \
  };                                                                           \
  static_assert(Is<structure>::kFirstWrong == kNone)

// trafficClass
STRUCTURE(abi::CommConfig, MEMBER(traffic_class, int));

// netDeviceType, netDeviceVersion, handle, size, needsProxyProgress
STRUCTURE(abi::DeviceHandle, MEMBER(type, DeviceType), MEMBER(version, int), MEMBER(handle, void*),
          MEMBER(size, std::size_t), MEMBER(needs_proxy_progress, int));

// ndevs, devs: up to 4 of them, from version 12 on 8
STRUCTURE(abi::VirtualDevice<4>, MEMBER(count, int), MEMBER(devices, int[4]));
STRUCTURE(abi::VirtualDevice<8>, MEMBER(count, int), MEMBER(devices, int[8]));

// maxConcurrentPeers, minConcurrentPeers, maxFlowsPerPeer, minFlowsPerPeer
STRUCTURE(abi::CommAttributes, MEMBER(concurrent_peers_max, std::int32_t),
          MEMBER(concurrent_peers_min, std::int32_t), MEMBER(flows_per_peer_max, std::int32_t),
          MEMBER(flows_per_peer_min, std::int32_t));

// sendCommAttr, recvCommAttr, op, algo, proto
STRUCTURE(abi::NetAttributes, MEMBER(send, abi::CommAttributes),
          MEMBER(receive, abi::CommAttributes), MEMBER(operation, std::uint32_t),
          MEMBER(algorithm, std::uint32_t), MEMBER(protocol, std::uint32_t));

// name, pciPath, guid, ptrSupport, speed, port, latency, maxComms, maxRecvs
STRUCTURE(abi::Properties<6>, MEMBER(name, char*), MEMBER(pci_path, char*),
          MEMBER(guid, std::uint64_t), MEMBER(pointer_support, int), MEMBER(speed_mbps, int),
          MEMBER(port, int), MEMBER(latency_us, float), MEMBER(comms_max, int),
          MEMBER(receives_max, int));

// And netDeviceType, netDeviceVersion.
STRUCTURE(abi::Properties<7>, MEMBER(name, char*), MEMBER(pci_path, char*),
          MEMBER(guid, std::uint64_t), MEMBER(pointer_support, int), MEMBER(speed_mbps, int),
          MEMBER(port, int), MEMBER(latency_us, float), MEMBER(comms_max, int),
          MEMBER(receives_max, int), MEMBER(device_type, DeviceType), MEMBER(device_version, int));

// And regIsGlobal, behind ptrSupport.
STRUCTURE(abi::Properties<8>, MEMBER(name, char*), MEMBER(pci_path, char*),
          MEMBER(guid, std::uint64_t), MEMBER(pointer_support, int), MEMBER(reg_is_global, int),
          MEMBER(speed_mbps, int), MEMBER(port, int), MEMBER(latency_us, float),
          MEMBER(comms_max, int), MEMBER(receives_max, int), MEMBER(device_type, DeviceType),
          MEMBER(device_version, int));

// And forceFlush, behind regIsGlobal; vProps, maxP2pBytes, maxCollBytes at the end.
STRUCTURE(abi::Properties<9>, MEMBER(name, char*), MEMBER(pci_path, char*),
          MEMBER(guid, std::uint64_t), MEMBER(pointer_support, int), MEMBER(reg_is_global, int),
          MEMBER(force_flush, int), MEMBER(speed_mbps, int), MEMBER(port, int),
          MEMBER(latency_us, float), MEMBER(comms_max, int), MEMBER(receives_max, int),
          MEMBER(device_type, DeviceType), MEMBER(device_version, int),
          MEMBER(virtual_device, abi::VirtualDevice<4>), MEMBER(p2p_bytes_max, std::size_t),
          MEMBER(collective_bytes_max, std::size_t));

// The same.
static_assert(std::is_base_of_v<abi::Properties<9>, abi::Properties<10>>);
static_assert(sizeof(abi::Properties<10>) == sizeof(abi::Properties<9>));
static_assert(std::is_standard_layout_v<abi::Properties<10>>, "no members of its own");

// And maxMultiRequestSize.
STRUCTURE(abi::Properties<11>, MEMBER(name, char*), MEMBER(pci_path, char*),
          MEMBER(guid, std::uint64_t), MEMBER(pointer_support, int), MEMBER(reg_is_global, int),
          MEMBER(force_flush, int), MEMBER(speed_mbps, int), MEMBER(port, int),
          MEMBER(latency_us, float), MEMBER(comms_max, int), MEMBER(receives_max, int),
          MEMBER(device_type, DeviceType), MEMBER(device_version, int),
          MEMBER(virtual_device, abi::VirtualDevice<4>), MEMBER(p2p_bytes_max, std::size_t),
          MEMBER(collective_bytes_max, std::size_t), MEMBER(multi_request_max, int));

// And railId, planeId; vProps has more devices.
STRUCTURE(abi::Properties<12>, MEMBER(name, char*), MEMBER(pci_path, char*),
          MEMBER(guid, std::uint64_t), MEMBER(pointer_support, int), MEMBER(reg_is_global, int),
          MEMBER(force_flush, int), MEMBER(speed_mbps, int), MEMBER(port, int),
          MEMBER(latency_us, float), MEMBER(comms_max, int), MEMBER(receives_max, int),
          MEMBER(device_type, DeviceType), MEMBER(device_version, int),
          MEMBER(virtual_device, abi::VirtualDevice<8>), MEMBER(p2p_bytes_max, std::size_t),
          MEMBER(collective_bytes_max, std::size_t), MEMBER(multi_request_max, int),
          MEMBER(rail_id, std::int16_t), MEMBER(plane_id, std::int16_t));

// ---- Functions ----------------------------------------------------------------------------

template <class... Parameters>
using Call = Code (*)(Parameters...);

/// From one version of the interface on.
template <int kVersion, class Kind>
struct From {
  static constexpr int kSince = kVersion;
  using Type = Kind;
};

/// The last one whose version is not above kVersion; they come in ascending order.
template <int kVersion, class First, class... More>
struct NewestOf {
  static_assert(First::kSince <= kVersion);
  using Type = typename First::Type;
};
template <int kVersion, class First, class Second, class... More>
requires(Second::kSince <= kVersion) struct NewestOf<kVersion, First, Second, More...>
    : NewestOf<kVersion, Second, More...> {
};
template <int kVersion, class... Changes>
using Newest = typename NewestOf<kVersion, Changes...>::Type;

// Parameters that the types do not tell apart are in the order of the comment.

// ctx, commId, config, logFunction, profFunction
template <int kVersion>
using Init =
    Newest<kVersion, From<6, Call<abi::Logger*>>, From<10, Call<abi::Logger*, abi::Profiler*>>,
           From<11, Call<void**, std::uint64_t, abi::CommConfig*, abi::Logger*, abi::Profiler*>>>;
// ctx, dev, handle, listenComm
template <int kVersion>
using Listen =
    Newest<kVersion, From<6, Call<int, void*, void**>>, From<11, Call<void*, int, void*, void**>>>;
// ctx (11) or config behind dev (10), dev, handle, sendComm, sendDevComm
template <int kVersion>
using Connect = Newest<kVersion, From<6, Call<int, void*, void**>>,
                       From<7, Call<int, void*, void**, abi::DeviceHandle**>>,
                       From<10, Call<int, abi::CommConfig*, void*, void**, abi::DeviceHandle**>>,
                       From<11, Call<void*, int, void*, void**, abi::DeviceHandle**>>>;
// listenComm, recvComm, recvDevComm
template <int kVersion>
using Accept = Newest<kVersion, From<6, Call<void*, void**>>,
                      From<7, Call<void*, void**, abi::DeviceHandle**>>>;
// comm, data, size, type, mhandle
template <int kVersion>
using RegMr = Newest<kVersion, From<6, Call<void*, void*, int, int, void**>>,
                     From<8, Call<void*, void*, std::size_t, int, void**>>>;
// comm, data, size, type, offset, fd, mhandle
using RegMrDmaBuf = Call<void*, void*, std::size_t, int, std::uint64_t, int, void**>;
// sendComm, data, size, tag, mhandle, phandle, request
template <int kVersion>
using Isend = Newest<kVersion, From<6, Call<void*, void*, int, int, void*, void**>>,
                     From<9, Call<void*, void*, std::size_t, int, void*, void**>>,
                     From<10, Call<void*, void*, std::size_t, int, void*, void*, void**>>>;
// recvComm, n, data, sizes, tags, mhandles, phandles, request
template <int kVersion>
using Irecv =
    Newest<kVersion, From<6, Call<void*, int, void**, int*, int*, void**, void**>>,
           From<9, Call<void*, int, void**, std::size_t*, int*, void**, void**>>,
           From<10, Call<void*, int, void**, std::size_t*, int*, void**, void**, void**>>>;
// recvComm, n, data, sizes, mhandles, request
using Iflush = Call<void*, int, void**, int*, void**, void**>;
// request, done, sizes
using Test = Call<void*, int*, int*>;
// comm, mhandle, dptr_mhandle; recvComm, n, request
using GetDeviceMr = Call<void*, void*, void**>;
using IrecvConsumed = Call<void*, int, void*>;
// d, props
template <int kVersion>
using MakeVDevice = Newest<kVersion, From<9, Call<int*, abi::VirtualDevice<4>*>>,
                           From<12, Call<int*, abi::VirtualDevice<8>*>>>;

static_assert(std::is_same_v<abi::Logger*, void (*)(LogLevel, unsigned long, const char*, int,
                                                    const char*, ...)>);
static_assert(std::is_same_v<abi::Profiler*, Call<void**, int, void*, std::int64_t, void*>>);

/// What all tables begin with.
template <int kVersion>
consteval bool begins_as_listed() {
  using Of = abi::Calls<kVersion>;
  return first_wrong<Of>({MEMBER(name, const char*),     //
                          MEMBER(init, Init<kVersion>),  //
                          MEMBER(devices, Call<int*>),   //
                          MEMBER(get_properties, Call<int, abi::Properties<kVersion>*>),
                          MEMBER(listen, Listen<kVersion>),      //
                          MEMBER(connect, Connect<kVersion>),    //
                          MEMBER(accept, Accept<kVersion>),      //
                          MEMBER(reg_mr, RegMr<kVersion>),       //
                          MEMBER(reg_mr_dma_buf, RegMrDmaBuf),   //
                          MEMBER(dereg_mr, Call<void*, void*>),  //
                          MEMBER(isend, Isend<kVersion>),        //
                          MEMBER(irecv, Irecv<kVersion>),        //
                          MEMBER(iflush, Iflush),                //
                          MEMBER(test, Test),                    //
                          MEMBER(close_send, Call<void*>),       //
                          MEMBER(close_recv, Call<void*>),       //
                          MEMBER(close_listen, Call<void*>)}) == kNone;
}
static_assert(begins_as_listed<6>());
static_assert(begins_as_listed<7>());
static_assert(begins_as_listed<8>());
static_assert(begins_as_listed<9>());
static_assert(begins_as_listed<10>());
static_assert(begins_as_listed<11>());
static_assert(begins_as_listed<12>());

// What follows: nothing, getDeviceMr and irecvConsumed, makeVDevice, finalize and setNetAttr.
STRUCTURE(abi::Net<6>, MEMBER(calls, abi::Calls<6>));
STRUCTURE(abi::Net<7>, MEMBER(calls, abi::Calls<7>), MEMBER(get_device_mr, GetDeviceMr),
          MEMBER(irecv_consumed, IrecvConsumed));
STRUCTURE(abi::Net<8>, MEMBER(calls, abi::Calls<8>), MEMBER(get_device_mr, GetDeviceMr),
          MEMBER(irecv_consumed, IrecvConsumed));
STRUCTURE(abi::Net<9>, MEMBER(calls, abi::Calls<9>), MEMBER(get_device_mr, GetDeviceMr),
          MEMBER(irecv_consumed, IrecvConsumed), MEMBER(make_virtual_device, MakeVDevice<9>));
STRUCTURE(abi::Net<10>, MEMBER(calls, abi::Calls<10>), MEMBER(get_device_mr, GetDeviceMr),
          MEMBER(irecv_consumed, IrecvConsumed), MEMBER(make_virtual_device, MakeVDevice<10>));
STRUCTURE(abi::Net<11>, MEMBER(calls, abi::Calls<11>), MEMBER(get_device_mr, GetDeviceMr),
          MEMBER(irecv_consumed, IrecvConsumed), MEMBER(make_virtual_device, MakeVDevice<11>),
          MEMBER(finalize, Call<void*>), MEMBER(set_attributes, Call<void*, abi::NetAttributes*>));
STRUCTURE(abi::Net<12>, MEMBER(calls, abi::Calls<12>), MEMBER(get_device_mr, GetDeviceMr),
          MEMBER(irecv_consumed, IrecvConsumed), MEMBER(make_virtual_device, MakeVDevice<12>),
          MEMBER(finalize, Call<void*>), MEMBER(set_attributes, Call<void*, abi::NetAttributes*>));

}  // namespace
