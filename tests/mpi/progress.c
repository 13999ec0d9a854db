/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A message that needs its sender's progress, completed by the receiver before it enters a
 * collective in which the sender waits already (MPI 4.1 section 3.7.4). A collective that waits
 * without the MPI library's progress never ends here.
 *
 * Usage: progress [BYTES of the message]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 32768, ROUNDS = 5 };

static float values[COUNT];
static float sums[COUNT];

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int bytes = argc > 1 ? atoi(argv[1]) : 8 << 20;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char* message = calloc((size_t)bytes, 1);
  if (!message) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int i = 0; i < COUNT; ++i) values[i] = 1;
  long failed = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0) {
      message[bytes - 1] = (char)(round + 1);
      MPI_Isend(message, bytes, MPI_BYTE, 1, round, MPI_COMM_WORLD, &request);
    } else if (rank == 1) {
      MPI_Recv(message, bytes, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Allreduce(values, sums, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    failed += rank < 2 && message[bytes - 1] != (char)(round + 1);
    failed += sums[0] < 2 || sums[COUNT - 1] != sums[0];
  }
  free(message);
  long all = 0;
  MPI_Reduce(&failed, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("progress: %d checks, %ld failed\n", 2 * ROUNDS, all);
  MPI_Finalize();
  return all != 0;
}
