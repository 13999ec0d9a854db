/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A failure of the library that carries a collective must reach the application as an MPI error on
 * that communicator: never MPI_SUCCESS with an unwritten buffer. The failure itself is injected
 * from outside (FAKE_CCL_FAIL of the NCCL fake, on all ranks, or TUTTI_STRICT=1 with a plan that
 * cannot be). Every call is judged alone: right result and MPI_SUCCESS, or an error.
 *
 * Usage: errors [--memory ...] [--calls N] [--handler return|count] [--kill RANK]
 *   --kill RANK  that rank kills itself in the middle; the others must end in bounded time.
 * Last line: "errors: N calls, E errors, W wrong, H handler calls" summed over the ranks. Exit
 * status 1 when W > 0.
 */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

static long handler_calls;
static MPI_Comm watched = MPI_COMM_NULL;

static void count_error(MPI_Comm* comm, int* code, ...) {
  int class = MPI_SUCCESS;
  MPI_Error_class(*code, &class);
  if (*comm == watched && class != MPI_SUCCESS) ++handler_calls;
}

typedef struct {
  long calls;
  long errors;
  long wrong;
} Tally;

/* One allreduce on `comm`, whose handler is known to return. */
static void one_call(Tally* tally, int call, MPI_Comm comm, int* device_in, int* device_out,
                     int count) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  int* mirror = malloc((size_t)count * sizeof *mirror);
  for (int i = 0; i < count; ++i) mirror[i] = -7;
  memory_write(true, device_out, mirror, (size_t)count * sizeof *mirror);
  for (int i = 0; i < count; ++i) mirror[i] = (rank + 1) * (i % 50 + 1) + call;
  memory_write(true, device_in, mirror, (size_t)count * sizeof *mirror);

  const long handled_before = handler_calls;
  const int code = MPI_Allreduce(device_in, device_out, count, MPI_INT, MPI_SUM, comm);
  ++tally->calls;
  /* After a user's handler an MPI may return success: then the handler's call is the answer. */
  if (code != MPI_SUCCESS || handler_calls != handled_before) {
    int class = MPI_SUCCESS;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    ++tally->errors;
    if (handler_calls > handled_before + 1) {
      ++tally->wrong;
      fprintf(stderr, "FAILED call %d on rank %d: the error handler was called twice\n", call,
              rank);
    }
    if (code != MPI_SUCCESS && (class == MPI_SUCCESS || length == 0)) {
      ++tally->wrong;
      fprintf(stderr, "FAILED call %d on rank %d: code %d has class %d and the text \"%s\"\n", call,
              rank, code, class, text);
    }
  } else {
    memory_read(true, mirror, device_out, (size_t)count * sizeof *mirror);
    for (int i = 0; i < count; ++i) {
      const int expected = ranks * (ranks + 1) / 2 * (i % 50 + 1) + call * ranks;
      if (mirror[i] == expected) continue;
      ++tally->wrong;
      fprintf(stderr, "FAILED call %d on rank %d: MPI_SUCCESS, but index %d is %d instead of %d\n",
              call, rank, i, mirror[i], expected);
      break;
    }
  }
  free(mirror);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* memory = "host";
  const char* handler = "return";
  int calls = 8;
  int victim = -1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--memory") == 0) memory = argv[i + 1];
    if (strcmp(argv[i], "--handler") == 0) handler = argv[i + 1];
    if (strcmp(argv[i], "--calls") == 0) calls = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--kill") == 0) victim = atoi(argv[i + 1]);
  }
  memory_open(memory, rank, false);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  watched = comm;
  MPI_Errhandler counting;
  MPI_Comm_create_errhandler(count_error, &counting);
  MPI_Comm_set_errhandler(comm, strcmp(handler, "count") == 0 ? counting : MPI_ERRORS_RETURN);

  enum { kCount = 30000 };
  int* in = memory_allocate(true, kCount * sizeof *in);
  int* out = memory_allocate(true, kCount * sizeof *out);
  Tally tally = {0};
  for (int call = 0; call < calls; ++call) {
    if (call == calls / 2 && rank == victim) raise(SIGKILL);
    one_call(&tally, call, comm, in, out, kCount);
  }
  memory_free(true, in);
  memory_free(true, out);
  MPI_Errhandler_free(&counting);
  MPI_Comm_free(&comm);

  /* The process goes on: another communicator works, on host memory. */
  int alive = 1;
  int sum = 0;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(&alive, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != ranks) ++tally.wrong;
  const long mine[4] = {tally.calls, tally.errors, tally.wrong, handler_calls};
  long total[4] = {0};
  MPI_Reduce(mine, total, 4, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) {
    printf("errors: %ld calls, %ld errors, %ld wrong, %ld handler calls\n", total[0], total[1],
           total[2], total[3]);
  }
  return tally.wrong != 0 || total[2] != 0;
}
