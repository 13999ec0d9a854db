/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Transport policies: a table of hooks that take decisions of the transport over, in a shared
 * object of its own, on every wire and in the simulator. docs/transport-policy.md is the tutorial,
 * examples/transport_policy/ a whole one.
 *
 * TUTTI_TRANSPORT_POLICY=path/to/mine.so loads the object; it exports
 *
 *     const struct tutti_transport_policy* tutti_transport_policy(void);
 *
 * Each hook may be null: then the transport's own decision stands. Hooks of one connection are
 * called by one thread at a time, must not block, and must depend on nothing but their arguments
 * and their state (the simulator repeats runs). Times are nanoseconds of one monotonic clock, sizes
 * bytes. */
#ifndef TUTTI_TRANSPORT_POLICY_H
#define TUTTI_TRANSPORT_POLICY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a hook changes its meaning. New hooks go to the end, and size_bytes tells of them. */
#define TUTTI_TRANSPORT_POLICY_VERSION 1

/* may_send: not until something is acknowledged. */
#define TUTTI_TRANSPORT_WAIT UINT64_MAX
/* choose_path: let the transport choose. */
#define TUTTI_TRANSPORT_ANY_PATH UINT32_MAX

/* What a connection knows, at the time of a call. */
struct tutti_transport_view {
  uint64_t now_ns;
  uint64_t srtt_ns;        /* Smoothed round trip, with the time that hosts take: after so long a
                              change is heard of. */
  uint64_t min_rtt_ns;     /* The least one, without it. */
  uint64_t base_rtt_ns;    /* Of idle links, as configured. */
  uint64_t inflight_bytes; /* Sent and neither acknowledged nor lost. */
  uint64_t window_bytes;   /* Of the built-in controller. */
  uint64_t backlog_bytes;  /* May be sent for the first time. */
  uint32_t chunk_bytes;    /* Of the wire: what chunk_size may not exceed. */
  uint32_t paths;
  uint32_t ps_per_byte;    /* Of one rail. */
  uint32_t connection;     /* Local id. */
  uint64_t fabric_srtt_ns; /* Smoothed round trip without the time that hosts take. */
};

/* One chunk and what has just become known of it. */
struct tutti_transport_chunk {
  uint64_t number;
  uint64_t rtt_ns; /* on_ack: round trip without the time that hosts take; 0: unknown. */
  uint32_t bytes;
  uint32_t path;
  uint32_t transmissions; /* So far; 1 at the receiver, which does not know. */
  uint32_t marked;        /* on_ack, on_data: it is known to have met congestion (ECN). */
};

struct tutti_transport_policy {
  uint32_t version;    /* TUTTI_TRANSPORT_POLICY_VERSION */
  uint32_t size_bytes; /* sizeof(struct tutti_transport_policy) */
  const char* name;

  /* State of one connection: passed to each hook; null is a state like any other. */
  void* (*open)(const struct tutti_transport_view* view);
  void (*close)(void* state);

  /* Bytes of the next chunk of a message; 0: as without a policy. */
  uint32_t (*chunk_size)(void* state, const struct tutti_transport_view* view,
                         uint64_t message_bytes, uint64_t offset);
  /* Pacing and window, in place of the controller's: 0 send now, TUTTI_TRANSPORT_WAIT, or the time
   * before which not. A question, asked after each event and perhaps several times before a chunk
   * leaves (choose_path tells that one does): charge nothing here. `bytes`: at most so many. Not
   * asked for tail probes, nor while nothing is in the air: one chunk is always allowed. */
  uint64_t (*may_send)(void* state, const struct tutti_transport_view* view, uint32_t bytes);
  /* Path of a chunk that is about to leave; `lost_path`: where it was lost or, of a tail probe,
   * where it went before; or any. One that is dead or does not exist: the transport chooses. */
  uint32_t (*choose_path)(void* state, const struct tutti_transport_view* view, uint32_t bytes,
                          uint32_t lost_path);
  /* Nonzero: the lost chunk may be sent again now. Asked again after each packet, timeout and round
   * trip. */
  int (*may_retransmit)(void* state, const struct tutti_transport_view* view,
                        const struct tutti_transport_chunk* chunk);

  /* Receiver: data that came whole, new or a duplicate; and data that the sender says it sent
   * again.
   */
  void (*on_data)(void* state, const struct tutti_transport_view* view,
                  const struct tutti_transport_chunk* chunk);
  void (*on_retransmitted_data)(void* state, const struct tutti_transport_view* view,
                                const struct tutti_transport_chunk* chunk);
  /* Sender: a chunk is acknowledged, once, by whatever tells it (rtt_ns 0 and marked 0 where no
   * echo did); credit came (total so far); a chunk is lost or was trimmed, before the transport
   * itself reacts; an RTO passed. */
  void (*on_ack)(void* state, const struct tutti_transport_view* view,
                 const struct tutti_transport_chunk* chunk);
  void (*on_credit)(void* state, const struct tutti_transport_view* view, uint64_t granted_bytes);
  void (*on_loss)(void* state, const struct tutti_transport_view* view,
                  const struct tutti_transport_chunk* chunk);
  void (*on_timeout)(void* state, const struct tutti_transport_view* view);
};

#ifdef __cplusplus
}
#endif

#endif
