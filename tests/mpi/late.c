/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that comes late to each of some collectives on host memory. MPI waits for it, so must we,
 * whatever TUTTI_TIMEOUT is.
 *
 * Usage: late [--seconds S] [--first S] [--kill yes] [--ahead yes] [--leave yes]
 *   --first  how late it is to the first call, if not as to all.
 *   --kill  the late rank kills itself instead of coming to the second call.
 *   --ahead  then rank 0 gives to all in calls to which the last rank comes late and the others do
 *            not.
 *   --leave  then all but rank 0 free a communicator as soon as they have what it gives them there,
 *            the last one late.
 * Last line: "late: N calls, W wrong" of rank 0.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct timespec span(double seconds) {
  const struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
  return t;
}

static int are_wrong_bcasts(int bytes, int rank) {
  enum { kCalls = 60, kMost = 4096 };
  char data[kMost];
  int wrong = 0;
  for (int i = 1; i <= kCalls; ++i) {
    memset(data, rank == 0 ? i : 0, (size_t)bytes);
    MPI_Bcast(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int k = 0; k < bytes; ++k) {
      if (data[k] != i) {
        ++wrong;
        break;
      }
    }
  }
  if (wrong > 0)
    fprintf(stderr, "late: rank %d: %d bcasts of %d bytes wrong\n", rank, wrong, bytes);
  return wrong;
}

/* A root waits for the late rank, and others have long freed the communicator. */
static int is_wrong_where_others_leave(int rank, int is_late, const struct timespec* pause) {
  enum { kBytes = 1 << 20 };
  char* data = malloc(kBytes);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Barrier(comm);
  memset(data, rank == 0 ? 7 : 0, kBytes);
  if (is_late) nanosleep(pause, NULL);
  MPI_Bcast(data, kBytes, MPI_BYTE, 0, comm);
  const int is_wrong = data[0] != 7 || data[kBytes - 1] != 7;
  MPI_Comm_free(&comm);
  free(data);
  return is_wrong;
}

/* Hydra ends the others when it finds a dead rank's connection closed before it hears of its end: a
 * child holds the connection open for as long as `survivor` runs. */
static void die(long survivor) {
  if (fork() == 0) {
    const struct timespec moment = {0, 50000000};
    char path[32];
    char program[8];
    /* Of a process that has ended there is none, also where nobody has waited for it. */
    snprintf(path, sizeof path, "/proc/%ld/exe", survivor);
    for (int i = 0; i < 3; ++i) close(i); /* The launcher reads these to their end. */
    for (int i = 0; i < 400 && readlink(path, program, sizeof program) > 0; ++i)
      nanosleep(&moment, NULL);
    _exit(0);
  }
  raise(SIGKILL);
}

int main(int argc, char** argv) {
  double seconds = 3;
  double first = -1;
  int dies = 0;
  int ahead = 0;
  int leave = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--seconds") == 0) seconds = atof(argv[i + 1]);
    if (strcmp(argv[i], "--first") == 0) first = atof(argv[i + 1]);
    if (strcmp(argv[i], "--kill") == 0) dies = 1;
    if (strcmp(argv[i], "--ahead") == 0) ahead = 1;
    if (strcmp(argv[i], "--leave") == 0) leave = 1;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const struct timespec pause = span(seconds);
  const struct timespec first_pause = span(first < 0 ? seconds : first);
  const int late = ranks - 1;
  long survivor = getpid();
  if (dies) MPI_Bcast(&survivor, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  int calls = 0;
  int wrong = 0;
  for (int i = 0; i < 2; ++i) {
    if (rank == late) nanosleep(i == 0 ? &first_pause : &pause, NULL);
    if (rank == late && dies && i == 1) die(survivor);
    if (dies) signal(SIGUSR1, SIG_IGN); /* By which Hydra tells of a death. */
    int value = rank + i;
    int sum = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong += sum != ranks * (ranks - 1) / 2 + i * ranks;
    if (rank == late) nanosleep(&pause, NULL);
    int word = rank == late ? 77 + i : -1;
    MPI_Bcast(&word, 1, MPI_INT, late, MPI_COMM_WORLD);
    wrong += word != 77 + i;
    calls += 2;
  }
  static const int bytes[] = {32, 600, 4000};
  for (int i = 0; ahead && i < 3; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == late) nanosleep(&pause, NULL);
    int mine = are_wrong_bcasts(bytes[i], rank);
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong += all;
    ++calls;
  }
  if (leave) {
    int mine = is_wrong_where_others_leave(rank, rank == late, &pause);
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong += all;
    ++calls;
  }
  if (rank == 0) printf("late: %d calls, %d wrong\n", calls, wrong);
  MPI_Finalize();
  return wrong > 0;
}
