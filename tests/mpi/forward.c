/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A preload that only hands each collective on to the MPI library: what no preload can be below.
 * bench/host_memory.py --forward measures it in the place of ours.
 */
#include <mpi.h>

#define FORWARD(name, parameters, arguments) \
  int MPI_##name parameters { return PMPI_##name arguments; }

FORWARD(Barrier, (MPI_Comm comm), (comm))
FORWARD(Bcast, (void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
        (buffer, count, type, root, comm))
FORWARD(Gather,
        (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
         MPI_Datatype out_type, int root, MPI_Comm comm),
        (in, in_count, in_type, out, out_count, out_type, root, comm))
FORWARD(Scatter,
        (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
         MPI_Datatype out_type, int root, MPI_Comm comm),
        (in, in_count, in_type, out, out_count, out_type, root, comm))
FORWARD(Allgather,
        (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
         MPI_Datatype out_type, MPI_Comm comm),
        (in, in_count, in_type, out, out_count, out_type, comm))
FORWARD(Allgatherv,
        (const void* in, int in_count, MPI_Datatype in_type, void* out, const int out_counts[],
         const int displs[], MPI_Datatype out_type, MPI_Comm comm),
        (in, in_count, in_type, out, out_counts, displs, out_type, comm))
FORWARD(Alltoall,
        (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
         MPI_Datatype out_type, MPI_Comm comm),
        (in, in_count, in_type, out, out_count, out_type, comm))
FORWARD(Alltoallv,
        (const void* in, const int in_counts[], const int in_displs[], MPI_Datatype in_type,
         void* out, const int out_counts[], const int out_displs[], MPI_Datatype out_type,
         MPI_Comm comm),
        (in, in_counts, in_displs, in_type, out, out_counts, out_displs, out_type, comm))
FORWARD(Reduce,
        (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root,
         MPI_Comm comm),
        (in, out, count, type, op, root, comm))
FORWARD(Allreduce,
        (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (in, out, count, type, op, comm))
FORWARD(Reduce_scatter,
        (const void* in, void* out, const int counts[], MPI_Datatype type, MPI_Op op,
         MPI_Comm comm),
        (in, out, counts, type, op, comm))
FORWARD(Reduce_scatter_block,
        (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (in, out, count, type, op, comm))
