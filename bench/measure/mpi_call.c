/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One collective call of MPI.
 */
#include <stdlib.h>

#include "measure.h"
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#if defined(MPIX_C_FLOAT16)
/* Open MPI 4, which many distributions have, lacks it: the program starts there all the same. */
#pragma weak ompi_mpi_short_float
#endif
#endif

/* In the order of type.c's table. */
MPI_Datatype mpi_type(const struct type* type) {
  switch (type->index) {
    case 0:
      return MPI_INT8_T;
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_INT16_T;
    case 3:
      return MPI_UINT16_T;
    case 4:
      return MPI_INT32_T;
    case 5:
      return MPI_UINT32_T;
    case 6:
      return MPI_INT64_T;
    case 7:
      return MPI_UINT64_T;
    case 8:
      return MPI_FLOAT;
    case 9:
      return MPI_DOUBLE;
    case 10:
      return MPI_C_FLOAT_COMPLEX;
    case 11:
      return MPI_C_DOUBLE_COMPLEX;
#if defined(MPIX_C_FLOAT16)
    case 12:
#if defined(OPEN_MPI)
      if (&ompi_mpi_short_float == NULL) return MPI_DATATYPE_NULL;
#endif
      return MPIX_C_FLOAT16;
#endif
#if defined(MPIX_BFLOAT16)
    case 13:
      return MPIX_BFLOAT16;
#endif
    default:
      return MPI_DATATYPE_NULL;
  }
}

static MPI_Op mpi_op(enum op op) {
  switch (op) {
    case kSum:
      return MPI_SUM;
    case kProd:
      return MPI_PROD;
    case kMin:
      return MPI_MIN;
    case kMax:
      return MPI_MAX;
  }
  return MPI_OP_NULL;
}

/* `type` so many times; a program has one type and one number of ranks. */
static const MPI_Datatype* same_types(MPI_Datatype type, int ranks) {
  static MPI_Datatype* types;
  if (types) return types;
  types = malloc((size_t)ranks * sizeof(MPI_Datatype));
  if (!types) fail("out of memory");
  for (int r = 0; r < ranks; ++r) types[r] = type;
  return types;
}

void call_mpi(const struct call* c, const void* send, void* recv, MPI_Comm comm) {
  const MPI_Datatype t = mpi_type(c->type);
  const MPI_Op op = mpi_op(c->op);
  const void* in = c->in_place ? MPI_IN_PLACE : send;
  const int own = c->recv_counts[c->rank];
  switch (collective_id(c->collective)) {
    case kBarrier:
      MPI_Barrier(comm);
      break;
    case kBcast:
      MPI_Bcast(recv, c->count, t, c->root, comm);
      break;
    case kGather:
      MPI_Gather(in, c->count, t, recv, c->count, t, c->root, comm);
      break;
    case kGatherv:
      MPI_Gatherv(in, own, t, recv, c->recv_counts, c->recv_displs, t, c->root, comm);
      break;
    case kScatter:
      MPI_Scatter(send, c->count, t, c->in_place ? MPI_IN_PLACE : recv, c->count, t, c->root, comm);
      break;
    case kScatterv:
      MPI_Scatterv(send, c->send_counts, c->send_displs, t, c->in_place ? MPI_IN_PLACE : recv,
                   c->send_counts[c->rank], t, c->root, comm);
      break;
    case kAllgather:
      MPI_Allgather(in, c->count, t, recv, c->count, t, comm);
      break;
    case kAllgatherv:
      MPI_Allgatherv(in, own, t, recv, c->recv_counts, c->recv_displs, t, comm);
      break;
    case kAlltoall:
      MPI_Alltoall(in, c->count, t, recv, c->count, t, comm);
      break;
    case kAlltoallv:
      MPI_Alltoallv(in, c->send_counts, c->send_displs, t, recv, c->recv_counts, c->recv_displs, t,
                    comm);
      break;
    case kAlltoallw:
      MPI_Alltoallw(in, c->send_counts, c->send_offsets, same_types(t, c->ranks), recv,
                    c->recv_counts, c->recv_offsets, same_types(t, c->ranks), comm);
      break;
    case kReduce:
      MPI_Reduce(in, recv, c->count, t, op, c->root, comm);
      break;
    case kAllreduce:
      MPI_Allreduce(in, recv, c->count, t, op, comm);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter(in, recv, c->recv_counts, t, op, comm);
      break;
    case kReduceScatterBlock:
      MPI_Reduce_scatter_block(in, recv, c->count, t, op, comm);
      break;
    case kScan:
      MPI_Scan(in, recv, c->count, t, op, comm);
      break;
    case kExscan:
      MPI_Exscan(in, recv, c->count, t, op, comm);
      break;
  }
}
