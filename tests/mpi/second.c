/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The source of a library whose name is that of an MPI: Tutti finds two of them in the process.
 */
__attribute__((visibility("default"))) int tutti_second_mpi(void);

int tutti_second_mpi(void) { return 0; }
