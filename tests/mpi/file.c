/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes a file together, for which MPI libraries make collectives of their own, and makes one
 * barrier. Prints "file: done". Usage: file PATH
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_File file;
  char block[1000];
  memset(block, 'a' + rank, sizeof block);
  const int amode = MPI_MODE_CREATE | MPI_MODE_WRONLY;
  const MPI_Offset offset = rank * (MPI_Offset)sizeof block;
  if (MPI_File_open(MPI_COMM_WORLD, argv[1], amode, MPI_INFO_NULL, &file) != MPI_SUCCESS ||
      MPI_File_write_at_all(file, offset, block, sizeof block, MPI_CHAR, MPI_STATUS_IGNORE) !=
          MPI_SUCCESS ||
      MPI_File_close(&file) != MPI_SUCCESS) {
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("file: done\n");
  MPI_Finalize();
  return 0;
}
