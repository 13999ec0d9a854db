/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * tutti-measure: an ordinary MPI program that times blocking collectives. It knows nothing of
 * Tutti: the info hints that tell its communicators apart come from the command line.
 *
 * Files: measure.c (options, timing loop, output), content.h (types, data pattern, layout and
 * reference of a call), mpi_call.c (its invocation), memory.c (host, CUDA, HIP), raw_ccl.c (the
 * variant that calls NCCL or RCCL itself).
 *
 * Units: counts and displacements in elements, sizes in bytes, times in microseconds (`_us`) or
 * seconds (`_s`).
 */
#ifndef TUTTI_BENCH_MEASURE_H_
#define TUTTI_BENCH_MEASURE_H_

#include <mpi.h>

#include "content.h"

/* ---- mpi_call.c ---- */

/* MPI_DATATYPE_NULL: this MPI has none. */
MPI_Datatype mpi_type(const struct type* type);
/* One blocking MPI call; the buffers are where the variant wants them. */
void call_mpi(const struct call* call, const void* send, void* recv, MPI_Comm comm);

/* ---- memory.c ---- */

enum memory { kHost, kDevice, kHostDevice };

struct memory_info {
  const char* api;  /* "cuda", "hip", "host-device", "host". */
  char name[128];   /* Of this rank's device. */
  char driver[32];  /* "13.0"; empty: unknown. */
  int ordinal;      /* This rank's device; -1: none. */
  int device_count; /* Devices this process sees. */
};

/* Chooses this rank's device (local rank modulo device count). Fails with a message. */
void memory_init(enum memory memory, int local_rank, struct memory_info* info);
void* memory_alloc(size_t bytes);
/* Host memory for copies to and from the device: page-locked where there is a device. */
void* memory_alloc_pinned(size_t bytes);
/* Blocking copies; plain copies for host memory. */
void memory_to_device(void* device, const void* host, size_t bytes);
void memory_to_host(void* host, const void* device, size_t bytes);
/* A stream for raw_ccl.c; NULL for host memory. */
void* memory_stream(void);
void memory_stream_wait(void* stream);
/* What a blocking call by a plain launch costs before any work: a kernel that does nothing but
 * store a word to host memory, and the wait for it. False: this device has no way. */
bool memory_floor_init(void);
void memory_floor_call(void);
/* dlopen of the first that exists; NULL: none. */
void* open_first(const char* const* names);

/* ---- raw_ccl.c ---- */

struct ccl_info {
  char path[512];
  char version[32];
};

/* Why the library's own call cannot carry `call`; NULL when it can. */
const char* ccl_refusal(const struct call* call, enum op op);
/* Loads the library (`path` or the usual names) and makes a communicator. Collective. */
void ccl_init(const char* path, MPI_Comm comm, struct ccl_info* info);
/* One call, complete when it returns. */
void ccl_run(const struct call* call, enum op op, const void* send, void* recv);
void ccl_finish(void);

#endif /* TUTTI_BENCH_MEASURE_H_ */
