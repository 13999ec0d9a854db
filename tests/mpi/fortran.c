/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * In the place of the Fortran layer of MPICH's module mpi_f08, which starts the library, makes
 * barriers and communicators without a C function that a tool could export.
 */
#define _GNU_SOURCE
#include "native.h"

__attribute__((visibility("default"))) void mpi_init_f08_(int* error);
__attribute__((visibility("default"))) void mpi_barrier_f08_(const int* comm, int* error);
__attribute__((visibility("default"))) void mpi_comm_dup_f08_(const int* comm, int* copy,
                                                              int* error);
__attribute__((visibility("default"))) void mpi_comm_split_f08_(const int* comm, const int* color,
                                                                const int* key, int* part,
                                                                int* error);

void mpi_init_f08_(int* error) { *error = PMPI_Init(NULL, NULL); }

void mpi_barrier_f08_(const int* comm, int* error) { *error = PMPI_Barrier(*comm); }

void mpi_comm_dup_f08_(const int* comm, int* copy, int* error) {
  *error = NATIVE(MPI_Comm_dup)(*comm, copy);
}

void mpi_comm_split_f08_(const int* comm, const int* color, const int* key, int* part, int* error) {
  *error = NATIVE(MPI_Comm_split)(*comm, *color, *key, part);
}
