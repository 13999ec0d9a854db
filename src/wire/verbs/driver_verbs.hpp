// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of libibverbs that this wire calls, in our own declarations: building needs no
// rdma-core. Names, values and layouts are the library's ABI (rdma-core 44, stable since 1.1);
// tests/abi compares them with infiniband/verbs.h where that header is installed. What the data
// path calls are no symbols but members of ContextOps, which the driver of the device fills in.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace tutti::wire::verbs {

struct Device;  // ibv_device
struct Context;

/// ibv_gid: of RoCE, an IPv6 address or an IPv4-mapped one.
using Gid = std::array<std::uint8_t, 16>;

// ibv_qp_type
inline constexpr int kQpRc = 2;
inline constexpr int kQpUc = 3;
inline constexpr int kQpUd = 4;
// ibv_qp_state
inline constexpr int kStateReset = 0;
inline constexpr int kStateInit = 1;
inline constexpr int kStateReadyToReceive = 2;
inline constexpr int kStateReadyToSend = 3;
inline constexpr int kStateError = 6;
// ibv_port_state, IBV_LINK_LAYER_ETHERNET
inline constexpr int kPortActive = 4;
inline constexpr std::uint8_t kLinkEthernet = 2;
// ibv_wr_opcode
inline constexpr int kWrite = 0;
inline constexpr int kWriteWithImmediate = 1;
inline constexpr int kSend = 2;
inline constexpr int kSendWithImmediate = 3;
inline constexpr int kRead = 4;
// ibv_wc_status, ibv_wc_opcode, ibv_wc_flags
inline constexpr int kSuccess = 0;
inline constexpr int kFlushed = 5;
inline constexpr int kResponseTimeout = 20;
inline constexpr int kReceived = 128;
inline constexpr int kReceivedWrite = 129;
inline constexpr unsigned kWithImmediate = 1U << 1;
// ibv_send_flags
inline constexpr unsigned kSignaled = 1U << 1;
inline constexpr unsigned kInline = 1U << 3;
// ibv_event_type
inline constexpr int kCqFailed = 0;
inline constexpr int kQpFatal = 1;
inline constexpr int kQpRequestError = 2;
inline constexpr int kQpAccessError = 3;
inline constexpr int kDeviceFatal = 8;
// ibv_access_flags
inline constexpr int kLocalWrite = 1;
inline constexpr int kRemoteWrite = 1 << 1;
inline constexpr int kRemoteRead = 1 << 2;
inline constexpr int kMayBind = 1 << 4;
// ibv_mw_type
inline constexpr int kWindowOfDomain = 1;  ///< Type 1: for all queue pairs of a protection domain.
// ibv_qp_attr_mask
inline constexpr int kMaskState = 1 << 0;
inline constexpr int kMaskAccessFlags = 1 << 3;
inline constexpr int kMaskPkeyIndex = 1 << 4;
inline constexpr int kMaskPort = 1 << 5;
inline constexpr int kMaskQkey = 1 << 6;
inline constexpr int kMaskAddress = 1 << 7;
inline constexpr int kMaskPathMtu = 1 << 8;
inline constexpr int kMaskTimeout = 1 << 9;
inline constexpr int kMaskRetries = 1 << 10;
inline constexpr int kMaskNotReadyRetries = 1 << 11;
inline constexpr int kMaskReceivePsn = 1 << 12;
inline constexpr int kMaskReadsOut = 1 << 13;
inline constexpr int kMaskNotReadyTimer = 1 << 15;
inline constexpr int kMaskSendPsn = 1 << 16;
inline constexpr int kMaskReadsIn = 1 << 17;
inline constexpr int kMaskRemoteQp = 1 << 20;

// ibv_create_cq_wc_flags
inline constexpr std::uint64_t kTellsBytes = 1U << 0;
inline constexpr std::uint64_t kTellsImmediate = 1U << 1;
inline constexpr std::uint64_t kTellsQpNumber = 1U << 2;
inline constexpr std::uint64_t kTellsTime = 1U << 7;
// ibv_values_mask
inline constexpr std::uint32_t kRawClock = 1U << 0;

/// Before the content of each datagram that a UD queue pair receives.
inline constexpr std::size_t kGrhBytes = 40;

struct Pd {  // ibv_pd
  Context* context;
  std::uint32_t handle;
};

struct Mr {  // ibv_mr
  Context* context;
  Pd* pd;
  void* address;  ///< Of a dma-buf the library writes its offset here.
  std::size_t bytes;
  std::uint32_t handle;
  std::uint32_t local_key;
  std::uint32_t remote_key;
};

struct Mw {  // ibv_mw
  Context* context;
  Pd* pd;
  std::uint32_t remote_key;
  std::uint32_t handle;
  int type;
};

struct Bind {  // ibv_mw_bind
  std::uint64_t id;
  unsigned flags;
  Mr* mr;
  std::uint64_t address;
  std::uint64_t bytes;  ///< 0: binds the window to nothing.
  unsigned access;
};

struct AddressHandle {  // ibv_ah
  Context* context;
  Pd* pd;
  std::uint32_t handle;
};

struct CompletionChannel {  // ibv_comp_channel
  Context* context;
  int descriptor;
  int references;
};

struct Cq {  // ibv_cq
  Context* context;
  CompletionChannel* channel;
  void* cq_context;
  std::uint32_t handle;
  int entries;
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  std::uint32_t completion_events;
  std::uint32_t async_events;
};

struct Srq {  // ibv_srq
  Context* context;
  void* srq_context;
  Pd* pd;
  std::uint32_t handle;
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  std::uint32_t events;
};

struct Qp {  // ibv_qp
  Context* context;
  void* qp_context;
  Pd* pd;
  Cq* send_cq;
  Cq* receive_cq;
  Srq* srq;
  std::uint32_t handle;
  std::uint32_t number;
  int state;
  int type;
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  std::uint32_t events;
};

struct AsyncEvent {  // ibv_async_event
  union {
    Qp* qp;
    int port;
  } about;
  int type;
};

struct Completion {  // ibv_wc
  std::uint64_t id;
  int status;
  int opcode;
  std::uint32_t vendor_error;
  std::uint32_t bytes;
  std::uint32_t immediate;  ///< Big-endian.
  std::uint32_t qp_number;
  std::uint32_t source_qp;
  unsigned flags;
  std::uint16_t pkey_index;
  std::uint16_t source_lid;
  std::uint8_t service_level;
  std::uint8_t path_bits;
};

struct Segment {  // ibv_sge
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint32_t local_key;
};

struct SendRequest {  // ibv_send_wr
  std::uint64_t id;
  SendRequest* next;
  Segment* segments;
  int segment_count;
  int opcode;
  unsigned flags;
  std::uint32_t immediate;  ///< Big-endian.
  union {
    struct {
      std::uint64_t remote_address;
      std::uint32_t remote_key;
    } rdma;
    struct {
      AddressHandle* address;
      std::uint32_t qp_number;
      std::uint32_t qkey;
    } ud;
    std::uint64_t atomic[4];
  } to;
  std::uint32_t shared_queue;
  std::uint64_t window[6];
};

struct ReceiveRequest {  // ibv_recv_wr
  std::uint64_t id;
  ReceiveRequest* next;
  Segment* segments;
  int segment_count;
};

struct Route {  // ibv_global_route
  alignas(8) Gid to;
  std::uint32_t flow_label;
  std::uint8_t gid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
};

struct AddressAttributes {  // ibv_ah_attr
  Route route;
  std::uint16_t lid;
  std::uint8_t service_level;
  std::uint8_t path_bits;
  std::uint8_t static_rate;
  std::uint8_t is_global;
  std::uint8_t port;
};

struct SrqAttributes {  // ibv_srq_init_attr
  void* srq_context;
  std::uint32_t requests_max;
  std::uint32_t segments_max;
  std::uint32_t limit;
};

struct QpCapacity {  // ibv_qp_cap
  std::uint32_t send_requests;
  std::uint32_t receive_requests;
  std::uint32_t send_segments;
  std::uint32_t receive_segments;
  std::uint32_t inline_bytes;
};

struct QpInitial {  // ibv_qp_init_attr
  void* qp_context;
  Cq* send_cq;
  Cq* receive_cq;
  Srq* srq;
  QpCapacity capacity;
  int type;
  int signals_all;
};

struct QpAttributes {  // ibv_qp_attr
  int state;
  int current_state;
  int path_mtu;
  int migration_state;
  std::uint32_t qkey;
  std::uint32_t receive_psn;
  std::uint32_t send_psn;
  std::uint32_t remote_qp;
  unsigned access_flags;
  QpCapacity capacity;
  AddressAttributes address;
  AddressAttributes other_address;
  std::uint16_t pkey_index;
  std::uint16_t other_pkey_index;
  std::uint8_t notifies;
  std::uint8_t is_draining;
  std::uint8_t reads_out;
  std::uint8_t reads_in;
  std::uint8_t not_ready_timer;
  std::uint8_t port;
  std::uint8_t timeout;  ///< 4.096 us * 2^timeout; 0: none.
  std::uint8_t retries;
  std::uint8_t not_ready_retries;  ///< 7: without end.
  std::uint8_t other_port;
  std::uint8_t other_timeout;
  std::uint32_t rate_limit;
};

/// ibv_port_attr, as ibv_query_port fills it in for callers of its oldest version: without the
/// last 8 bytes, which are ours to clear.
struct PortAttributes {
  int state;
  int mtu_max;     ///< ibv_mtu: 1 is 256 bytes, 5 is 4096.
  int active_mtu;  ///< Same.
  int gid_count;
  std::uint32_t capabilities;
  std::uint32_t message_bytes_max;
  std::uint32_t bad_pkeys;
  std::uint32_t qkey_violations;
  std::uint16_t pkey_count;
  std::uint16_t lid;
  std::uint16_t manager_lid;
  std::uint8_t lid_mask;
  std::uint8_t lanes_max;
  std::uint8_t manager_level;
  std::uint8_t subnet_timeout;
  std::uint8_t initialized;
  std::uint8_t active_width;  ///< 1: 1 lane, 2: 4, 4: 8, 8: 12, 16: 2.
  std::uint8_t active_speed;
  std::uint8_t physical_state;
  std::uint8_t link_layer;
  std::uint8_t flags;
  std::uint16_t capabilities2;
  std::uint32_t reserved;
};

struct ContextOps {  // ibv_context_ops
  void* other_0[7];
  Mw* (*alloc_mw)(Pd* pd, int type);
  int (*bind_mw)(Qp* qp, Mw* mw, Bind* bind);
  int (*dealloc_mw)(Mw* mw);
  void* other_1;
  int (*poll_cq)(Cq* cq, int count, Completion* completions);
  int (*request_notification)(Cq* cq, int solicited_only);
  void* other_2[7];
  int (*post_srq_receive)(Srq* srq, ReceiveRequest* request, ReceiveRequest** bad);
  void* other_3[4];
  int (*post_send)(Qp* qp, SendRequest* request, SendRequest** bad);
  int (*post_receive)(Qp* qp, ReceiveRequest* request, ReceiveRequest** bad);
  void* other_4[5];
};

struct Context {  // ibv_context
  Device* device;
  ContextOps ops;
  int command_descriptor;
  int async_descriptor;
  int vectors;
  pthread_mutex_t mutex;
  void* abi_compat;
};

struct ExtendedCqInitial {  // ibv_cq_init_attr_ex
  std::uint32_t entries;
  void* cq_context;
  CompletionChannel* channel;
  std::uint32_t vector;
  std::uint64_t tells;  ///< kTells...: what the read_ functions are asked for.
  std::uint32_t valid;
  std::uint32_t flags;
  Pd* parent_domain;
};

/// ibv_cq_ex: a completion is read field by field. start_poll() and next_poll() return 0, or ENOENT
/// if there is none; end_poll() comes after a start_poll() that returned 0.
struct ExtendedCq {
  Cq cq;
  std::uint32_t valid;
  int status;  ///< Of the current completion. If it has failed, only id and qp_number are valid.
  std::uint64_t id;
  int (*start_poll)(ExtendedCq* cq, void* attributes);
  int (*next_poll)(ExtendedCq* cq);
  void (*end_poll)(ExtendedCq* cq);
  int (*opcode)(ExtendedCq* cq);
  void* other_0;
  std::uint32_t (*bytes)(ExtendedCq* cq);
  std::uint32_t (*immediate)(ExtendedCq* cq);  ///< Big-endian.
  std::uint32_t (*qp_number)(ExtendedCq* cq);
  void* other_1;
  unsigned (*flags)(ExtendedCq* cq);
  void* other_2[3];
  std::uint64_t (*time)(ExtendedCq* cq);  ///< Ticks of the NIC's clock.
  void* other_3[4];
};

struct ExtendedDeviceAttributes {  // ibv_device_attr_ex
  alignas(8) std::byte other_0[264];
  std::uint64_t time_mask;  ///< Of ExtendedCq::time(); 0: the NIC stamps nothing.
  std::uint64_t clock_khz;  ///< 0: unknown.
  std::byte other_1[120];
};

struct RealTimeValues {  // ibv_values_ex
  std::uint32_t valid;   ///< Asked for, and then given.
  timespec raw_clock;    ///< Ticks; drivers put them into tv_nsec.
};

/// verbs_context, from its first function that we call on: it grows at its beginning.
struct ExtendedContext {
  int (*query_real_time)(Context* context, RealTimeValues* values);
  ExtendedCq* (*create_cq)(Context* context, ExtendedCqInitial* initial);
  void* other_0;
  int (*query_device)(Context* context, const void* input, ExtendedDeviceAttributes* attributes,
                      std::size_t attributes_bytes);
  void* other_1[11];
  std::size_t bytes;  ///< Of all of it, with what stands before.
  Context context;
};

/// `abi_compat` of a context that is the end of an extended one.
inline constexpr std::uintptr_t kIsExtended = UINTPTR_MAX;

/// X(member, symbol, result, parameters): every function that we call, with the library's symbol.
#define TUTTI_VERBS_FUNCTIONS(X)                                                                  \
  X(device_list, ibv_get_device_list, Device**, (int* count))                                     \
  X(free_device_list, ibv_free_device_list, void, (Device * *list))                               \
  X(device_name, ibv_get_device_name, const char*, (Device * device))                             \
  X(open_device, ibv_open_device, Context*, (Device * device))                                    \
  X(close_device, ibv_close_device, int, (Context * context))                                     \
  X(query_port, ibv_query_port, int, (Context * context, std::uint8_t port, PortAttributes * it)) \
  X(query_gid, ibv_query_gid, int, (Context * context, std::uint8_t port, int index, Gid* gid))   \
  X(alloc_pd, ibv_alloc_pd, Pd*, (Context * context))                                             \
  X(dealloc_pd, ibv_dealloc_pd, int, (Pd * pd))                                                   \
  X(reg_mr, ibv_reg_mr, Mr*, (Pd * pd, void* address, std::size_t bytes, int access))             \
  X(dereg_mr, ibv_dereg_mr, int, (Mr * mr))                                                       \
  X(create_cq, ibv_create_cq, Cq*,                                                                \
    (Context * context, int entries, void* cq_context, CompletionChannel* channel, int vector))   \
  X(destroy_cq, ibv_destroy_cq, int, (Cq * cq))                                                   \
  X(create_srq, ibv_create_srq, Srq*, (Pd * pd, SrqAttributes * attributes))                      \
  X(destroy_srq, ibv_destroy_srq, int, (Srq * srq))                                               \
  X(create_qp, ibv_create_qp, Qp*, (Pd * pd, QpInitial * initial))                                \
  X(modify_qp, ibv_modify_qp, int, (Qp * qp, QpAttributes * attributes, int mask))                \
  X(destroy_qp, ibv_destroy_qp, int, (Qp * qp))                                                   \
  X(create_ah, ibv_create_ah, AddressHandle*, (Pd * pd, AddressAttributes * attributes))          \
  X(destroy_ah, ibv_destroy_ah, int, (AddressHandle * address))                                   \
  X(async_event, ibv_get_async_event, int, (Context * context, AsyncEvent * event))               \
  X(ack_async_event, ibv_ack_async_event, void, (AsyncEvent * event))                             \
  X(status_text, ibv_wc_status_str, const char*, (int status))

/// Functions that a library may lack: reg_dmabuf_mr came with rdma-core 34; without those of
/// channels the wire is polled.
#define TUTTI_VERBS_OPTIONAL_FUNCTIONS(X)                                                     \
  X(create_channel, ibv_create_comp_channel, CompletionChannel*, (Context * context))         \
  X(destroy_channel, ibv_destroy_comp_channel, int, (CompletionChannel * channel))            \
  X(cq_event, ibv_get_cq_event, int, (CompletionChannel * channel, Cq * *cq, void** context)) \
  X(ack_cq_events, ibv_ack_cq_events, void, (Cq * cq, unsigned count))                        \
  X(reg_dmabuf_mr, ibv_reg_dmabuf_mr, Mr*,                                                    \
    (Pd * pd, std::uint64_t offset, std::size_t bytes, std::uint64_t address, int descriptor, \
     int access))

struct Functions {
#define TUTTI_VERBS_MEMBER(member, symbol, result, parameters) result(*member) parameters = nullptr;
  TUTTI_VERBS_FUNCTIONS(TUTTI_VERBS_MEMBER)
  TUTTI_VERBS_OPTIONAL_FUNCTIONS(TUTTI_VERBS_MEMBER)
#undef TUTTI_VERBS_MEMBER
};

}  // namespace tutti::wire::verbs
