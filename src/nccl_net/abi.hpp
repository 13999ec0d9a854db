// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What NCCL and RCCL expect of a network plugin, versions 6 to 12 of that interface: result codes,
// callbacks, property records and function tables. Our own declarations, after the headers of
// NCCL's example plugin (NVIDIA/nccl, plugins/net/example/nccl/net_v6.h to net_v12.h, net_device.h,
// common.h, up to NCCL 2.30.7). A library finds the plugin by the symbol ncclNetPlugin_v<N>, which
// is a Net<N>; it takes the newest that it knows. Linux on 64-bit machines only (asserted below).
//
//   version  NCCL that knows it  what changed
//   6        2.15 to 2.30        -
//   7        2.19                the device handle of connect and accept; get_device_mr,
//                                irecv_consumed; device type and version in the properties
//   8        2.20                registration sizes are size_t; reg_is_global
//   9        2.24                message sizes are size_t; make_virtual_device; force_flush, the
//                                devices behind a virtual one, the longest messages
//   10       2.26                init gets a profiler's callback, connect a configuration, isend
//                                and irecv the profiler's handles
//   11       2.28                init is called for each communicator and makes a context, which
//                                goes to listen and connect; finalize; set_attributes; the
//                                configuration moves to init; max_multi_request_size
//   12       2.30                up to 8 devices behind a virtual one, 4 before; rail and plane
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::nccl_net::abi {

/// ncclResult_t.
enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

enum class LogLevel : int { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kAbort = 4, kTrace = 5 };

/// Subsystems, a mask.
inline constexpr unsigned long kLogInit = 1;
inline constexpr unsigned long kLogNet = 16;
inline constexpr unsigned long kLogAll = ~0UL;

using Logger = void(LogLevel level, unsigned long subsystems, const char* file, int line,
                    const char* format, ...);
using Profiler = Result(void** event, int type, void* handle, std::int64_t plugin_id, void* data);

inline constexpr std::size_t kHandleBytes = 128;  ///< Of listen's handle.
inline constexpr int kRequestsMax = 32;  ///< Unfinished ones of a comm, times the parts of each.

/// Kinds of memory, a mask.
inline constexpr int kPointerHost = 1;
inline constexpr int kPointerCuda = 2;
inline constexpr int kPointerDmaBuf = 4;

inline constexpr std::size_t kMessageBytesMax = std::size_t{1} << 40;
inline constexpr int kUndefined = -1;  ///< A traffic class, a rail, a plane.

/// Version 9 and later: what irecv may find in *request. The receive's completion is then of no
/// interest, for the data carry flags; a valid request is still wanted.
inline void* const kOptionalCompletion = reinterpret_cast<void*>(1);

struct CommConfig {
  int traffic_class;
};

enum class DeviceType : int { kHost = 0, kUnpack = 1 };

/// For plugins with device code of their own.
struct DeviceHandle {
  DeviceType type;
  int version;
  void* handle;
  std::size_t size;
  int needs_proxy_progress;
};

template <int kDevicesMax>
struct VirtualDevice {
  int count;
  int devices[kDevicesMax];
};

struct CommAttributes {
  std::int32_t concurrent_peers_max;
  std::int32_t concurrent_peers_min;
  std::int32_t flows_per_peer_max;
  std::int32_t flows_per_peer_min;
};

struct NetAttributes {
  CommAttributes send;
  CommAttributes receive;
  std::uint32_t operation;
  std::uint32_t algorithm;
  std::uint32_t protocol;
};

// The properties of a device. Strings stay the plugin's and must not move.
template <int kVersion>
struct Properties;

template <>
struct Properties<6> {
  char* name;
  char* pci_path;      ///< Below /sys, or null.
  std::uint64_t guid;  ///< Equal: functions of one card.
  int pointer_support;
  int speed_mbps;
  int port;
  float latency_us;
  int comms_max;
  int receives_max;  ///< Parts of a grouped receive.
};

template <>
struct Properties<7> {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int speed_mbps;
  int port;
  float latency_us;
  int comms_max;
  int receives_max;
  DeviceType device_type;
  int device_version;
};

template <>
struct Properties<8> {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int reg_is_global;  ///< A registration serves all comms.
  int speed_mbps;
  int port;
  float latency_us;
  int comms_max;
  int receives_max;
  DeviceType device_type;
  int device_version;
};

template <>
struct Properties<9> {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int comms_max;
  int receives_max;
  DeviceType device_type;
  int device_version;
  VirtualDevice<4> virtual_device;
  std::size_t p2p_bytes_max;
  std::size_t collective_bytes_max;
};

template <>
struct Properties<10> : Properties<9> {};

template <>
struct Properties<11> {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int comms_max;
  int receives_max;
  DeviceType device_type;
  int device_version;
  VirtualDevice<4> virtual_device;
  std::size_t p2p_bytes_max;
  std::size_t collective_bytes_max;
  int multi_request_max;
};

template <>
struct Properties<12> {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int comms_max;
  int receives_max;
  DeviceType device_type;
  int device_version;
  VirtualDevice<8> virtual_device;
  std::size_t p2p_bytes_max;
  std::size_t collective_bytes_max;
  int multi_request_max;
  std::int16_t rail_id;
  std::int16_t plane_id;
};

// The functions whose types changed: Signature<version>::Name is the newest one not above it.
template <int kVersion>
struct Signatures : Signatures<kVersion - 1> {};

template <>
struct Signatures<6> {
  using Init = Result(Logger* logger);
  using Listen = Result(int device, void* handle, void** listen_comm);
  using Connect = Result(int device, void* handle, void** send_comm);
  using Accept = Result(void* listen_comm, void** recv_comm);
  using RegMr = Result(void* comm, void* data, int bytes, int type, void** mhandle);
  using Isend = Result(void* send_comm, void* data, int bytes, int tag, void* mhandle,
                       void** request);
  using Irecv = Result(void* recv_comm, int parts, void** data, int* bytes, int* tags,
                       void** mhandles, void** request);
};

template <>
struct Signatures<7> : Signatures<6> {
  using Connect = Result(int device, void* handle, void** send_comm, DeviceHandle** device_handle);
  using Accept = Result(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
};

template <>
struct Signatures<8> : Signatures<7> {
  using RegMr = Result(void* comm, void* data, std::size_t bytes, int type, void** mhandle);
};

template <>
struct Signatures<9> : Signatures<8> {
  using Isend = Result(void* send_comm, void* data, std::size_t bytes, int tag, void* mhandle,
                       void** request);
  using Irecv = Result(void* recv_comm, int parts, void** data, std::size_t* bytes, int* tags,
                       void** mhandles, void** request);
};

template <>
struct Signatures<10> : Signatures<9> {
  using Init = Result(Logger* logger, Profiler* profiler);
  using Connect = Result(int device, CommConfig* config, void* handle, void** send_comm,
                         DeviceHandle** device_handle);
  using Isend = Result(void* send_comm, void* data, std::size_t bytes, int tag, void* mhandle,
                       void* profiler_handle, void** request);
  using Irecv = Result(void* recv_comm, int parts, void** data, std::size_t* bytes, int* tags,
                       void** mhandles, void** profiler_handles, void** request);
};

template <>
struct Signatures<11> : Signatures<10> {
  using Init = Result(void** context, std::uint64_t comm_id, CommConfig* config, Logger* logger,
                      Profiler* profiler);
  using Listen = Result(void* context, int device, void* handle, void** listen_comm);
  using Connect = Result(void* context, int device, void* handle, void** send_comm,
                         DeviceHandle** device_handle);
};

/// What the tables of all versions begin with. A null comm or request from a call that succeeded
/// says "not yet, call again"; no call blocks.
template <int kVersion>
struct Calls {
  using Signature = Signatures<kVersion>;

  const char* name;
  typename Signature::Init* init;
  Result (*devices)(int* count);
  Result (*get_properties)(int device, Properties<kVersion>* properties);
  typename Signature::Listen* listen;
  typename Signature::Connect* connect;
  typename Signature::Accept* accept;
  typename Signature::RegMr* reg_mr;
  Result (*reg_mr_dma_buf)(void* comm, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int fd, void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  typename Signature::Isend* isend;
  typename Signature::Irecv* irecv;
  Result (*iflush)(void* recv_comm, int parts, void** data, int* bytes, void** mhandles,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);  ///< `bytes` of each part, or null.
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
};

using GetDeviceMr = Result(void* comm, void* mhandle, void** device_mhandle);
using IrecvConsumed = Result(void* recv_comm, int parts, void* request);

/// The table, ncclNet_v<N>_t. All that follows `calls` may be null.
template <int kVersion>
struct Net {
  Calls<kVersion> calls;
  GetDeviceMr* get_device_mr;
  IrecvConsumed* irecv_consumed;
  Result (*make_virtual_device)(int* device, VirtualDevice<kVersion >= 12 ? 8 : 4>* members);
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, NetAttributes* attributes);
};

template <int kVersion>
requires(kVersion == 6) struct Net<kVersion> {
  Calls<kVersion> calls;
};

template <int kVersion>
requires(kVersion == 7 || kVersion == 8) struct Net<kVersion> {
  Calls<kVersion> calls;
  GetDeviceMr* get_device_mr;
  IrecvConsumed* irecv_consumed;
};

template <int kVersion>
requires(kVersion == 9 || kVersion == 10) struct Net<kVersion> {
  Calls<kVersion> calls;
  GetDeviceMr* get_device_mr;
  IrecvConsumed* irecv_consumed;
  Result (*make_virtual_device)(int* device, VirtualDevice<4>* members);
};

inline constexpr int kVersionMin = 6;
inline constexpr int kVersionMax = 12;

static_assert(sizeof(void*) == 8 && sizeof(int) == 4 && sizeof(std::size_t) == 8);
static_assert(sizeof(DeviceHandle) == 32 && offsetof(DeviceHandle, needs_proxy_progress) == 24);
static_assert(sizeof(CommConfig) == 4 && sizeof(NetAttributes) == 44);

static_assert(sizeof(Properties<6>) == 48 && offsetof(Properties<6>, receives_max) == 44);
static_assert(sizeof(Properties<7>) == 56 && offsetof(Properties<7>, device_version) == 52);
static_assert(sizeof(Properties<8>) == 64 && offsetof(Properties<8>, speed_mbps) == 32);
static_assert(sizeof(Properties<9>) == 104 && offsetof(Properties<9>, speed_mbps) == 36);
static_assert(offsetof(Properties<9>, virtual_device) == 64 &&
              offsetof(Properties<9>, p2p_bytes_max) == 88);
static_assert(sizeof(Properties<10>) == sizeof(Properties<9>));
static_assert(sizeof(Properties<11>) == 112 && offsetof(Properties<11>, multi_request_max) == 104);
static_assert(sizeof(Properties<12>) == 128 && offsetof(Properties<12>, p2p_bytes_max) == 104);
static_assert(offsetof(Properties<12>, rail_id) == 124 &&
              offsetof(Properties<12>, plane_id) == 126);

static_assert(offsetof(Calls<6>, connect) == 40 && offsetof(Calls<6>, isend) == 80 &&
              offsetof(Calls<6>, test) == 104 && offsetof(Calls<6>, close_listen) == 128);
static_assert(sizeof(Net<6>) == 136 && sizeof(Net<7>) == 152 && sizeof(Net<8>) == 152);
static_assert(sizeof(Net<9>) == 160 && sizeof(Net<10>) == 160);
static_assert(sizeof(Net<11>) == 176 && sizeof(Net<12>) == 176);
static_assert(offsetof(Net<12>, finalize) == 160 && std::is_standard_layout_v<Net<12>>);

}  // namespace tutti::nccl_net::abi
