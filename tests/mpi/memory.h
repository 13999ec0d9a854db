/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Buffers for the MPI test programs: host memory, or memory of one kind of device, found at run
 * time so that the programs build anywhere. Sizes are in bytes. Everything goes through copies
 * from and to host mirrors, so the same program runs on real GPUs. A failure ends the process with
 * a line on stderr: a test program has nothing to fall back to.
 */
#ifndef TUTTI_TESTS_MPI_MEMORY_H_
#define TUTTI_TESTS_MPI_MEMORY_H_

#include <stdbool.h>
#include <stddef.h>

/** Names: host, hostdevice (Tutti's device made of threads; needs its preload), cuda, hip.
 * The device is `local_rank` modulo the number of devices, or 0 with `same_device`. */
void memory_open(const char* name, int local_rank, bool same_device);

/** False for "host": then every buffer is in host memory, whatever is asked for. */
bool memory_has_device(void);

void* memory_allocate(bool on_device, size_t bytes);
void memory_free(bool on_device, void* pointer);
void memory_write(bool on_device, void* destination, const void* source, size_t bytes);
void memory_read(bool on_device, void* destination, const void* source, size_t bytes);

/** Makes current what an application might have current when it calls MPI: this rank's device,
 * and on odd calls no context (CUDA) or another device (HIP, with several), and remembers it. */
void memory_before_call(unsigned call);
/** True when the current context or device still is the one of memory_before_call. */
bool memory_left_alone(void);

#endif /* TUTTI_TESTS_MPI_MEMORY_H_ */
