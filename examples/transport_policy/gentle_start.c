/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport policy for incast on switches that drop packets: many senders, one receiver. The
 * default congestion control starts with a whole bandwidth-delay product (BDP) per sender, which
 * overflows the receiver's queue at once. This policy starts with a sixteenth of the BDP, doubles
 * it per round trip while the queue is short, and keeps the round trip at one and a half times the
 * idle one after that. It pays where many senders share a receiver and costs ramp-up time where
 * they do not. docs/guide-transport.md measures both. */
#include <stdlib.h>
#include <tutti/transport_policy.h>

struct state {
  uint64_t window_bytes;
  uint64_t window_bytes_max;
  uint64_t target_ns;
  uint64_t decreased_ns; /* At most one decrease per round trip. */
  int is_starting;       /* Until a round trip exceeded the target. */
};

static void* open_connection(const struct tutti_transport_view* view) {
  struct state* s = calloc(1, sizeof(*s));
  if (s == NULL) {
    return NULL;
  }
  const uint64_t bdp_bytes = view->base_rtt_ns * 1000 / view->ps_per_byte;
  s->window_bytes = bdp_bytes / 16;
  s->window_bytes_max = bdp_bytes * 2;
  s->target_ns = view->base_rtt_ns * 3 / 2;
  s->is_starting = 1;
  return s;
}

static void close_connection(void* state) { free(state); }

static uint64_t may_send(void* state, const struct tutti_transport_view* view, uint32_t bytes) {
  const struct state* s = state;
  const uint64_t window_bytes = s != NULL ? s->window_bytes : view->window_bytes;
  return view->inflight_bytes + bytes <= window_bytes ? 0 : TUTTI_TRANSPORT_WAIT;
}

static void decrease(struct state* s, const struct tutti_transport_view* view, uint64_t divisor) {
  if (view->now_ns - s->decreased_ns < view->srtt_ns) {
    return;
  }
  s->decreased_ns = view->now_ns;
  s->window_bytes -= s->window_bytes / divisor;
  if (s->window_bytes < view->chunk_bytes) {
    s->window_bytes = view->chunk_bytes;
  }
}

static void on_ack(void* state, const struct tutti_transport_view* view,
                   const struct tutti_transport_chunk* chunk) {
  struct state* s = state;
  if (s == NULL || chunk->rtt_ns == 0) {
    return;
  }
  if (chunk->rtt_ns > s->target_ns) {
    s->is_starting = 0;
    decrease(s, view, 8);
    return;
  }
  /* Starting: the window doubles in a round trip. Later: it grows by one chunk in a round trip. */
  s->window_bytes +=
      s->is_starting ? chunk->bytes : (uint64_t)view->chunk_bytes * chunk->bytes / s->window_bytes;
  if (s->window_bytes > s->window_bytes_max) {
    s->window_bytes = s->window_bytes_max;
  }
}

static void on_loss(void* state, const struct tutti_transport_view* view,
                    const struct tutti_transport_chunk* chunk) {
  (void)chunk;
  struct state* s = state;
  if (s != NULL) {
    s->is_starting = 0;
    decrease(s, view, 2);
  }
}

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct tutti_transport_policy*
tutti_transport_policy(void) {
  static const struct tutti_transport_policy policy = {
      .version = TUTTI_TRANSPORT_POLICY_VERSION,
      .size_bytes = sizeof(struct tutti_transport_policy),
      .name = "gentle_start",
      .open = open_connection,
      .close = close_connection,
      .may_send = may_send,
      .on_ack = on_ack,
      .on_loss = on_loss,
  };
  return &policy;
}
