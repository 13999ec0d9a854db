/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport policy: keeps the round trip at one and a half times the idle one, and sends each
 * chunk on the path that answered fastest of two drawn ones. docs/transport-policy.md is the
 * tutorial. */
#include <stdlib.h>
#include <tutti/transport_policy.h>

struct state {
  uint64_t window_bytes;
  uint64_t window_bytes_max;
  uint64_t target_ns;
  uint64_t decreased_ns; /* At most one decrease per round trip. */
  uint64_t draw;         /* State of a small generator: equal runs stay equal. */
  uint32_t path_count;
  uint64_t path_rtt_ns[]; /* Smoothed, 0: never heard of. */
};

static void* open_connection(const struct tutti_transport_view* view) {
  struct state* s = calloc(1, sizeof(*s) + view->paths * sizeof(s->path_rtt_ns[0]));
  if (s == NULL) {
    return NULL;
  }
  s->window_bytes_max = view->base_rtt_ns * 2000 / view->ps_per_byte;
  s->window_bytes = s->window_bytes_max / 2; /* What fits into an idle round trip. */
  s->target_ns = view->base_rtt_ns * 3 / 2;
  s->draw = view->connection;
  s->path_count = view->paths;
  return s;
}

static void close_connection(void* state) { free(state); }

static uint64_t may_send(void* state, const struct tutti_transport_view* view, uint32_t bytes) {
  const struct state* s = state;
  if (s == NULL) {
    return view->inflight_bytes + bytes <= view->window_bytes ? 0 : TUTTI_TRANSPORT_WAIT;
  }
  return view->inflight_bytes + bytes <= s->window_bytes ? 0 : TUTTI_TRANSPORT_WAIT;
}

static uint32_t draw_path(struct state* s) {
  s->draw = s->draw * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((s->draw >> 33) % s->path_count);
}

static uint32_t choose_path(void* state, const struct tutti_transport_view* view, uint32_t bytes,
                            uint32_t lost_path) {
  struct state* s = state;
  (void)view;
  (void)bytes;
  if (s == NULL) {
    return TUTTI_TRANSPORT_ANY_PATH;
  }
  const uint32_t a = draw_path(s);
  const uint32_t b = draw_path(s);
  const uint32_t faster = s->path_rtt_ns[a] <= s->path_rtt_ns[b] ? a : b;
  return faster == lost_path ? TUTTI_TRANSPORT_ANY_PATH : faster;
}

static void on_ack(void* state, const struct tutti_transport_view* view,
                   const struct tutti_transport_chunk* chunk) {
  struct state* s = state;
  if (s == NULL || chunk->rtt_ns == 0) {
    return;
  }
  uint64_t* rtt = &s->path_rtt_ns[chunk->path];
  *rtt = *rtt == 0 ? chunk->rtt_ns : *rtt - *rtt / 8 + chunk->rtt_ns / 8;
  if (chunk->rtt_ns <= s->target_ns) { /* One chunk more per window. */
    s->window_bytes += (uint64_t)view->chunk_bytes * chunk->bytes / s->window_bytes;
  } else if (view->now_ns - s->decreased_ns >= view->srtt_ns) {
    s->window_bytes -= s->window_bytes / 8;
    s->decreased_ns = view->now_ns;
  }
  if (s->window_bytes > s->window_bytes_max) {
    s->window_bytes = s->window_bytes_max;
  }
  if (s->window_bytes < view->chunk_bytes) {
    s->window_bytes = view->chunk_bytes;
  }
}

static void on_timeout(void* state, const struct tutti_transport_view* view) {
  struct state* s = state;
  if (s != NULL) {
    s->window_bytes = view->chunk_bytes;
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
      .name = "delay_target",
      .open = open_connection,
      .close = close_connection,
      .may_send = may_send,
      .choose_path = choose_path,
      .on_ack = on_ack,
      .on_timeout = on_timeout,
  };
  return &policy;
}
