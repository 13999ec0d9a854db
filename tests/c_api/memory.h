/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory and streams for a test of the C API: the host's, the host device's (TUTTI_DEVICE=host), or
 * a GPU's by CUDA's driver API, opened at run time. Functions end the process with a line when
 * something fails: a test cannot go on.
 */
#ifndef TUTTI_TESTS_C_API_MEMORY_H_
#define TUTTI_TESTS_C_API_MEMORY_H_

#include <stddef.h>

enum memory_kind { MEMORY_HOST, MEMORY_HOST_DEVICE, MEMORY_CUDA };

/* Before all others, after fork(): chooses GPU `device`, modulo their number. */
void memory_open(enum memory_kind kind, int device);
void* memory_take(size_t bytes);
void memory_give(void* pointer);
/* In the order of `stream` where there are streams; `host` is memory of memory_take_host. */
void memory_fill(void* pointer, const void* host, size_t bytes, void* stream);
void memory_read(void* host, const void* pointer, size_t bytes, void* stream);
void* memory_take_host(size_t bytes);

/* NULL, the default stream, where none can be made. */
void* stream_make(void);
/* With MEMORY_CUDA: of another GPU than memory_open's. */
void* stream_make_on(int device);
/* Until all on the stream is done; the caller waits for the communicator where there are none. */
void stream_wait(void* stream);

/* Whether CUDA has a GPU for each rank, or, with `share`, one: ranks share GPUs then. Says what is
 * missing. Leaves nothing behind: asks in a child. */
int memory_has_gpus(int ranks, int share);
/* 0: there are no graphs here. */
int graph_launches_max(void);
/* Records what is put on `stream` between the two. */
void capture_begin(void* stream);
/* NULL when what was recorded cannot become a graph. */
void* capture_end(void* stream);
void graph_launch(void* graph, void* stream);
void graph_destroy(void* graph);

#endif
