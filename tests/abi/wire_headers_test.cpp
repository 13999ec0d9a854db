// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our declarations of libibverbs against rdma-core's header, at compile time: that this file
// compiles is the test.
#include <infiniband/verbs.h>

#include <cstddef>

#include "abi/fits.hpp"
#include "wire/verbs/driver_verbs.hpp"

// Macros and inline functions hide two of the symbols.
#undef ibv_query_port
#undef ibv_reg_mr

using tutti::abi::fits;
namespace verbs = tutti::wire::verbs;

#define TUTTI_CHECK(member, symbol, result, parameters) \
  static_assert(fits<decltype(verbs::Functions::member), decltype(::symbol)>(), #symbol);
TUTTI_VERBS_FUNCTIONS(TUTTI_CHECK)
TUTTI_VERBS_OPTIONAL_FUNCTIONS(TUTTI_CHECK)
#undef TUTTI_CHECK

#define TUTTI_MEMBER(Ours, ours, Theirs, theirs)                          \
  static_assert(offsetof(verbs::Ours, ours) == offsetof(Theirs, theirs)); \
  static_assert(sizeof(verbs::Ours::ours) == sizeof(Theirs::theirs))

static_assert(sizeof(verbs::Gid) == sizeof(ibv_gid));
static_assert(sizeof(verbs::Pd) == sizeof(ibv_pd));
static_assert(sizeof(verbs::AddressHandle) == sizeof(ibv_ah));
static_assert(sizeof(verbs::CompletionChannel) == sizeof(ibv_comp_channel));
static_assert(sizeof(verbs::Cq) == sizeof(ibv_cq));
static_assert(sizeof(verbs::Srq) == sizeof(ibv_srq));
static_assert(sizeof(verbs::Segment) == sizeof(ibv_sge));
static_assert(sizeof(verbs::SrqAttributes) == sizeof(ibv_srq_init_attr));
static_assert(sizeof(verbs::Context) == sizeof(ibv_context));
static_assert(sizeof(verbs::ContextOps) == sizeof(ibv_context_ops));

static_assert(sizeof(verbs::Mr) == sizeof(ibv_mr));
TUTTI_MEMBER(Mr, address, ibv_mr, addr);
TUTTI_MEMBER(Mr, bytes, ibv_mr, length);
TUTTI_MEMBER(Mr, local_key, ibv_mr, lkey);
TUTTI_MEMBER(Mr, remote_key, ibv_mr, rkey);

static_assert(sizeof(verbs::Mw) == sizeof(ibv_mw));
TUTTI_MEMBER(Mw, remote_key, ibv_mw, rkey);
TUTTI_MEMBER(Mw, type, ibv_mw, type);

static_assert(sizeof(verbs::Bind) == sizeof(ibv_mw_bind));
TUTTI_MEMBER(Bind, id, ibv_mw_bind, wr_id);
TUTTI_MEMBER(Bind, flags, ibv_mw_bind, send_flags);
TUTTI_MEMBER(Bind, mr, ibv_mw_bind, bind_info.mr);
TUTTI_MEMBER(Bind, address, ibv_mw_bind, bind_info.addr);
TUTTI_MEMBER(Bind, bytes, ibv_mw_bind, bind_info.length);
TUTTI_MEMBER(Bind, access, ibv_mw_bind, bind_info.mw_access_flags);

static_assert(sizeof(verbs::Qp) == sizeof(ibv_qp));
TUTTI_MEMBER(Qp, number, ibv_qp, qp_num);
TUTTI_MEMBER(Qp, state, ibv_qp, state);

static_assert(sizeof(verbs::AsyncEvent) == sizeof(ibv_async_event));
TUTTI_MEMBER(AsyncEvent, about, ibv_async_event, element);
TUTTI_MEMBER(AsyncEvent, type, ibv_async_event, event_type);

static_assert(sizeof(verbs::Completion) == sizeof(ibv_wc));
TUTTI_MEMBER(Completion, id, ibv_wc, wr_id);
TUTTI_MEMBER(Completion, status, ibv_wc, status);
TUTTI_MEMBER(Completion, opcode, ibv_wc, opcode);
TUTTI_MEMBER(Completion, bytes, ibv_wc, byte_len);
TUTTI_MEMBER(Completion, immediate, ibv_wc, imm_data);
TUTTI_MEMBER(Completion, qp_number, ibv_wc, qp_num);
TUTTI_MEMBER(Completion, source_qp, ibv_wc, src_qp);
TUTTI_MEMBER(Completion, flags, ibv_wc, wc_flags);

static_assert(sizeof(verbs::SendRequest) == sizeof(ibv_send_wr));
TUTTI_MEMBER(SendRequest, next, ibv_send_wr, next);
TUTTI_MEMBER(SendRequest, segments, ibv_send_wr, sg_list);
TUTTI_MEMBER(SendRequest, opcode, ibv_send_wr, opcode);
TUTTI_MEMBER(SendRequest, flags, ibv_send_wr, send_flags);
TUTTI_MEMBER(SendRequest, immediate, ibv_send_wr, imm_data);
TUTTI_MEMBER(SendRequest, to, ibv_send_wr, wr);
TUTTI_MEMBER(SendRequest, to.ud.address, ibv_send_wr, wr.ud.ah);
TUTTI_MEMBER(SendRequest, to.ud.qp_number, ibv_send_wr, wr.ud.remote_qpn);
TUTTI_MEMBER(SendRequest, to.ud.qkey, ibv_send_wr, wr.ud.remote_qkey);
TUTTI_MEMBER(SendRequest, to.rdma.remote_key, ibv_send_wr, wr.rdma.rkey);

static_assert(sizeof(verbs::ReceiveRequest) == sizeof(ibv_recv_wr));
TUTTI_MEMBER(ReceiveRequest, segments, ibv_recv_wr, sg_list);

static_assert(sizeof(verbs::AddressAttributes) == sizeof(ibv_ah_attr));
TUTTI_MEMBER(AddressAttributes, route.flow_label, ibv_ah_attr, grh.flow_label);
TUTTI_MEMBER(AddressAttributes, route.gid_index, ibv_ah_attr, grh.sgid_index);
TUTTI_MEMBER(AddressAttributes, route.traffic_class, ibv_ah_attr, grh.traffic_class);
TUTTI_MEMBER(AddressAttributes, lid, ibv_ah_attr, dlid);
TUTTI_MEMBER(AddressAttributes, is_global, ibv_ah_attr, is_global);
TUTTI_MEMBER(AddressAttributes, port, ibv_ah_attr, port_num);

static_assert(sizeof(verbs::QpInitial) == sizeof(ibv_qp_init_attr));
TUTTI_MEMBER(QpInitial, capacity.inline_bytes, ibv_qp_init_attr, cap.max_inline_data);
TUTTI_MEMBER(QpInitial, type, ibv_qp_init_attr, qp_type);
TUTTI_MEMBER(QpInitial, signals_all, ibv_qp_init_attr, sq_sig_all);

static_assert(sizeof(verbs::QpAttributes) == sizeof(ibv_qp_attr));
TUTTI_MEMBER(QpAttributes, state, ibv_qp_attr, qp_state);
TUTTI_MEMBER(QpAttributes, path_mtu, ibv_qp_attr, path_mtu);
TUTTI_MEMBER(QpAttributes, qkey, ibv_qp_attr, qkey);
TUTTI_MEMBER(QpAttributes, receive_psn, ibv_qp_attr, rq_psn);
TUTTI_MEMBER(QpAttributes, send_psn, ibv_qp_attr, sq_psn);
TUTTI_MEMBER(QpAttributes, remote_qp, ibv_qp_attr, dest_qp_num);
TUTTI_MEMBER(QpAttributes, access_flags, ibv_qp_attr, qp_access_flags);
TUTTI_MEMBER(QpAttributes, address, ibv_qp_attr, ah_attr);
TUTTI_MEMBER(QpAttributes, pkey_index, ibv_qp_attr, pkey_index);
TUTTI_MEMBER(QpAttributes, reads_out, ibv_qp_attr, max_rd_atomic);
TUTTI_MEMBER(QpAttributes, reads_in, ibv_qp_attr, max_dest_rd_atomic);
TUTTI_MEMBER(QpAttributes, not_ready_timer, ibv_qp_attr, min_rnr_timer);
TUTTI_MEMBER(QpAttributes, port, ibv_qp_attr, port_num);
TUTTI_MEMBER(QpAttributes, timeout, ibv_qp_attr, timeout);
TUTTI_MEMBER(QpAttributes, retries, ibv_qp_attr, retry_cnt);
TUTTI_MEMBER(QpAttributes, not_ready_retries, ibv_qp_attr, rnr_retry);

static_assert(sizeof(verbs::PortAttributes) >= sizeof(ibv_port_attr));
TUTTI_MEMBER(PortAttributes, state, ibv_port_attr, state);
TUTTI_MEMBER(PortAttributes, active_mtu, ibv_port_attr, active_mtu);
TUTTI_MEMBER(PortAttributes, gid_count, ibv_port_attr, gid_tbl_len);
TUTTI_MEMBER(PortAttributes, lid, ibv_port_attr, lid);
TUTTI_MEMBER(PortAttributes, active_width, ibv_port_attr, active_width);
TUTTI_MEMBER(PortAttributes, active_speed, ibv_port_attr, active_speed);
TUTTI_MEMBER(PortAttributes, link_layer, ibv_port_attr, link_layer);

TUTTI_MEMBER(ContextOps, alloc_mw, ibv_context_ops, alloc_mw);
TUTTI_MEMBER(ContextOps, bind_mw, ibv_context_ops, bind_mw);
TUTTI_MEMBER(ContextOps, dealloc_mw, ibv_context_ops, dealloc_mw);
TUTTI_MEMBER(ContextOps, poll_cq, ibv_context_ops, poll_cq);
TUTTI_MEMBER(ContextOps, request_notification, ibv_context_ops, req_notify_cq);
TUTTI_MEMBER(ContextOps, post_srq_receive, ibv_context_ops, post_srq_recv);
TUTTI_MEMBER(ContextOps, post_send, ibv_context_ops, post_send);
TUTTI_MEMBER(ContextOps, post_receive, ibv_context_ops, post_recv);
TUTTI_MEMBER(Context, ops, ibv_context, ops);
TUTTI_MEMBER(Context, async_descriptor, ibv_context, async_fd);
TUTTI_MEMBER(Context, abi_compat, ibv_context, abi_compat);

static_assert(sizeof(verbs::ExtendedCqInitial) == sizeof(ibv_cq_init_attr_ex));
TUTTI_MEMBER(ExtendedCqInitial, entries, ibv_cq_init_attr_ex, cqe);
TUTTI_MEMBER(ExtendedCqInitial, channel, ibv_cq_init_attr_ex, channel);
TUTTI_MEMBER(ExtendedCqInitial, vector, ibv_cq_init_attr_ex, comp_vector);
TUTTI_MEMBER(ExtendedCqInitial, tells, ibv_cq_init_attr_ex, wc_flags);
TUTTI_MEMBER(ExtendedCqInitial, valid, ibv_cq_init_attr_ex, comp_mask);

#define TUTTI_FUNCTION(Ours, ours, Theirs, theirs) \
  TUTTI_MEMBER(Ours, ours, Theirs, theirs);        \
  static_assert(fits<decltype(verbs::Ours::ours), decltype(Theirs::theirs)>(), #theirs)

static_assert(sizeof(verbs::ExtendedCq) == sizeof(ibv_cq_ex));
TUTTI_MEMBER(ExtendedCq, cq.entries, ibv_cq_ex, cqe);
TUTTI_MEMBER(ExtendedCq, status, ibv_cq_ex, status);
TUTTI_MEMBER(ExtendedCq, id, ibv_cq_ex, wr_id);
TUTTI_FUNCTION(ExtendedCq, start_poll, ibv_cq_ex, start_poll);
TUTTI_FUNCTION(ExtendedCq, next_poll, ibv_cq_ex, next_poll);
TUTTI_FUNCTION(ExtendedCq, end_poll, ibv_cq_ex, end_poll);
TUTTI_FUNCTION(ExtendedCq, opcode, ibv_cq_ex, read_opcode);
TUTTI_FUNCTION(ExtendedCq, bytes, ibv_cq_ex, read_byte_len);
TUTTI_FUNCTION(ExtendedCq, immediate, ibv_cq_ex, read_imm_data);
TUTTI_FUNCTION(ExtendedCq, qp_number, ibv_cq_ex, read_qp_num);
TUTTI_FUNCTION(ExtendedCq, flags, ibv_cq_ex, read_wc_flags);
TUTTI_FUNCTION(ExtendedCq, time, ibv_cq_ex, read_completion_ts);

static_assert(sizeof(verbs::ExtendedDeviceAttributes) == sizeof(ibv_device_attr_ex));
TUTTI_MEMBER(ExtendedDeviceAttributes, time_mask, ibv_device_attr_ex, completion_timestamp_mask);
TUTTI_MEMBER(ExtendedDeviceAttributes, clock_khz, ibv_device_attr_ex, hca_core_clock);

static_assert(sizeof(verbs::RealTimeValues) == sizeof(ibv_values_ex));
TUTTI_MEMBER(RealTimeValues, valid, ibv_values_ex, comp_mask);
TUTTI_MEMBER(RealTimeValues, raw_clock, ibv_values_ex, raw_clock);

// It grows at its beginning: places count from its end.
#define TUTTI_TAIL(ours, theirs)                                                           \
  static_assert(sizeof(verbs::ExtendedContext) - offsetof(verbs::ExtendedContext, ours) == \
                sizeof(verbs_context) - offsetof(verbs_context, theirs));                  \
  static_assert(sizeof(verbs::ExtendedContext::ours) == sizeof(verbs_context::theirs), #theirs)
TUTTI_TAIL(query_real_time, query_rt_values);
TUTTI_TAIL(create_cq, create_cq_ex);
TUTTI_TAIL(query_device, query_device_ex);
TUTTI_TAIL(bytes, sz);
TUTTI_TAIL(context, context);
static_assert(fits<decltype(verbs::ExtendedContext::query_real_time),
                   decltype(verbs_context::query_rt_values)>());
static_assert(
    fits<decltype(verbs::ExtendedContext::create_cq), decltype(verbs_context::create_cq_ex)>());
static_assert(fits<decltype(verbs::ExtendedContext::query_device),
                   decltype(verbs_context::query_device_ex)>());
static_assert(offsetof(verbs::ExtendedContext, query_real_time) == 0);
#undef TUTTI_TAIL
#undef TUTTI_FUNCTION
#undef TUTTI_MEMBER

static_assert(verbs::kQpRc == IBV_QPT_RC && verbs::kQpUc == IBV_QPT_UC &&
              verbs::kQpUd == IBV_QPT_UD);
static_assert(verbs::kStateReset == IBV_QPS_RESET && verbs::kStateInit == IBV_QPS_INIT &&
              verbs::kStateReadyToReceive == IBV_QPS_RTR &&
              verbs::kStateReadyToSend == IBV_QPS_RTS && verbs::kStateError == IBV_QPS_ERR);
static_assert(verbs::kPortActive == IBV_PORT_ACTIVE);
static_assert(verbs::kCqFailed == IBV_EVENT_CQ_ERR && verbs::kQpFatal == IBV_EVENT_QP_FATAL &&
              verbs::kQpRequestError == IBV_EVENT_QP_REQ_ERR &&
              verbs::kQpAccessError == IBV_EVENT_QP_ACCESS_ERR &&
              verbs::kDeviceFatal == IBV_EVENT_DEVICE_FATAL);
static_assert(verbs::kResponseTimeout == IBV_WC_RESP_TIMEOUT_ERR);
static_assert(verbs::kLinkEthernet == IBV_LINK_LAYER_ETHERNET);
static_assert(verbs::kWrite == IBV_WR_RDMA_WRITE &&
              verbs::kWriteWithImmediate == IBV_WR_RDMA_WRITE_WITH_IMM &&
              verbs::kRead == IBV_WR_RDMA_READ);
static_assert(verbs::kSend == IBV_WR_SEND && verbs::kSendWithImmediate == IBV_WR_SEND_WITH_IMM);
static_assert(verbs::kSuccess == IBV_WC_SUCCESS && verbs::kFlushed == IBV_WC_WR_FLUSH_ERR);
static_assert(verbs::kReceivedWrite == IBV_WC_RECV_RDMA_WITH_IMM);
static_assert(verbs::kReceived == IBV_WC_RECV && verbs::kWithImmediate == IBV_WC_WITH_IMM);
static_assert(verbs::kSignaled == IBV_SEND_SIGNALED && verbs::kInline == IBV_SEND_INLINE);
static_assert(verbs::kLocalWrite == IBV_ACCESS_LOCAL_WRITE &&
              verbs::kRemoteWrite == IBV_ACCESS_REMOTE_WRITE &&
              verbs::kRemoteRead == IBV_ACCESS_REMOTE_READ &&
              verbs::kMayBind == IBV_ACCESS_MW_BIND && verbs::kWindowOfDomain == IBV_MW_TYPE_1);
static_assert(
    verbs::kMaskState == IBV_QP_STATE && verbs::kMaskAccessFlags == IBV_QP_ACCESS_FLAGS &&
    verbs::kMaskPkeyIndex == IBV_QP_PKEY_INDEX && verbs::kMaskPort == IBV_QP_PORT &&
    verbs::kMaskQkey == IBV_QP_QKEY && verbs::kMaskAddress == IBV_QP_AV &&
    verbs::kMaskPathMtu == IBV_QP_PATH_MTU && verbs::kMaskTimeout == IBV_QP_TIMEOUT &&
    verbs::kMaskRetries == IBV_QP_RETRY_CNT && verbs::kMaskNotReadyRetries == IBV_QP_RNR_RETRY &&
    verbs::kMaskReceivePsn == IBV_QP_RQ_PSN && verbs::kMaskReadsOut == IBV_QP_MAX_QP_RD_ATOMIC &&
    verbs::kMaskNotReadyTimer == IBV_QP_MIN_RNR_TIMER && verbs::kMaskSendPsn == IBV_QP_SQ_PSN &&
    verbs::kMaskReadsIn == IBV_QP_MAX_DEST_RD_ATOMIC && verbs::kMaskRemoteQp == IBV_QP_DEST_QPN);
static_assert(verbs::kTellsBytes == IBV_WC_EX_WITH_BYTE_LEN &&
              verbs::kTellsImmediate == IBV_WC_EX_WITH_IMM &&
              verbs::kTellsQpNumber == IBV_WC_EX_WITH_QP_NUM &&
              verbs::kTellsTime == IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
static_assert(verbs::kRawClock == IBV_VALUES_MASK_RAW_CLOCK);
static_assert(verbs::kGrhBytes == sizeof(ibv_grh));
