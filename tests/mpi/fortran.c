/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * In the place of the Fortran layer of MPICH's module mpi_f08, which starts the library and makes
 * barriers without a C function that a tool could export.
 */
#include <mpi.h>
#include <stddef.h>

__attribute__((visibility("default"))) void mpi_init_f08_(int* error);
__attribute__((visibility("default"))) void mpi_barrier_f08_(const int* comm, int* error);

void mpi_init_f08_(int* error) { *error = PMPI_Init(NULL, NULL); }

void mpi_barrier_f08_(const int* comm, int* error) { *error = PMPI_Barrier(*comm); }
