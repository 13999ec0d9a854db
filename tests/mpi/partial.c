/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A program of which some processes may run without Tutti. Each blocking collective is the first
 * call on a communicator of its own, and two more follow; every element is compared with the value
 * that MPI defines.
 *
 *   partial HOW [RANK | COMMAND...]
 *     world           MPI_COMM_WORLD's processes
 *     session         the same without MPI_Init (sessions model)
 *     merged          the halves of MPI_COMM_WORLD through MPI_Intercomm_merge
 *     connected       the same through MPI_Comm_accept and MPI_Comm_connect
 *     spawn COMMAND   this program's processes and two that COMMAND starts, merged
 *     child           what COMMAND is to start
 *     past RANK       world, where RANK starts MPI and calls it by the names PMPI_X
 *     mixed RANK      world, where RANK calls collectives by the names PMPI_X
 *     f08 RANK        world, started by mpi_init_f08_; RANK calls mpi_barrier_f08_
 *     version RANK    world, where RANK has no preload and announces another version (PMI-1)
 *
 * Prints a verdict from rank 0, and from each rank the plan of the last call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef MPI_SESSION_NULL /* Also of Open MPI 5, whose MPI_VERSION is 3. */
#define HAVE_SESSIONS 1
#else
#define HAVE_SESSIONS 0
#endif

enum { kWatchdogSeconds = 60, kRanksMax = 16, kCount = 3 };

static const char* doing = "start";
static long checks;
static long failures;

static void on_alarm(int number) {
  (void)number;
  static const char text[] = "partial: timed out in ";
  if (write(2, text, sizeof text - 1) < 0 || write(2, doing, strlen(doing)) < 0 ||
      write(2, "\n", 1) < 0) {
  }
  _exit(3);
}

static void expect(int rank, int index, int found, int wanted) {
  ++checks;
  if (found == wanted) return;
  if (++failures <= 10) {
    fprintf(stderr, "partial: rank %d, %s: element %d is %d, not %d\n", rank, doing, index, found,
            wanted);
  }
}

/* The functions by either name, as C programs and Open MPI's Fortran layer call them. */
typedef struct {
  int (*Barrier)(MPI_Comm);
  int (*Bcast)(void*, int, MPI_Datatype, int, MPI_Comm);
  int (*Gather)(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm);
  int (*Gatherv)(const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype, int,
                 MPI_Comm);
  int (*Scatter)(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm);
  int (*Scatterv)(const void*, const int*, const int*, MPI_Datatype, void*, int, MPI_Datatype, int,
                  MPI_Comm);
  int (*Allgather)(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm);
  int (*Allgatherv)(const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype,
                    MPI_Comm);
  int (*Alltoall)(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm);
  int (*Alltoallv)(const void*, const int*, const int*, MPI_Datatype, void*, const int*, const int*,
                   MPI_Datatype, MPI_Comm);
  int (*Alltoallw)(const void*, const int*, const int*, const MPI_Datatype*, void*, const int*,
                   const int*, const MPI_Datatype*, MPI_Comm);
  int (*Reduce)(const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
  int (*Allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Reduce_scatter)(const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Reduce_scatter_block)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Scan)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Exscan)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
} Functions;

#define FUNCTIONS(prefix)                                                                  \
  {                                                                                        \
    prefix##Barrier, prefix##Bcast, prefix##Gather, prefix##Gatherv, prefix##Scatter,      \
        prefix##Scatterv, prefix##Allgather, prefix##Allgatherv, prefix##Alltoall,         \
        prefix##Alltoallv, prefix##Alltoallw, prefix##Reduce, prefix##Allreduce,           \
        prefix##Reduce_scatter, prefix##Reduce_scatter_block, prefix##Scan, prefix##Exscan \
  }

static const Functions by_name = FUNCTIONS(MPI_);
static const Functions by_profiling_name = FUNCTIONS(PMPI_);
static const Functions* call = &by_name;

/* What rank `rank` contributes as element `index`. */
static int value(int rank, int index) { return 1000 * (rank + 1) + index; }

typedef struct {
  MPI_Comm comm;
  int rank;
  int ranks;
  int root;
  int mine[kRanksMax * kCount];
  int found[kRanksMax * kCount];
  int counts[kRanksMax];
  int offsets[kRanksMax];
  int byte_offsets[kRanksMax];
  MPI_Datatype types[kRanksMax];
} Group;

static void prepare(Group* group, MPI_Comm comm) {
  group->comm = comm;
  MPI_Comm_rank(comm, &group->rank);
  MPI_Comm_size(comm, &group->ranks);
  if (group->ranks > kRanksMax) MPI_Abort(comm, 2);
  group->root = group->ranks - 1;
  for (int i = 0; i < kRanksMax * kCount; ++i) {
    group->mine[i] = value(group->rank, i);
    group->found[i] = -7;
  }
  for (int i = 0; i < kRanksMax; ++i) {
    group->counts[i] = kCount;
    group->offsets[i] = i * kCount;
    group->byte_offsets[i] = i * kCount * (int)sizeof(int);
    group->types[i] = MPI_INT;
  }
}

static void expect_parts(const Group* group, int own_part) {
  for (int rank = 0; rank < group->ranks; ++rank) {
    for (int i = 0; i < kCount; ++i) {
      expect(group->rank, rank * kCount + i, group->found[rank * kCount + i],
             value(rank, own_part * kCount + i));
    }
  }
}

static void expect_sum(const Group* group, int first, int below, int offset) {
  for (int i = 0; i < kCount; ++i) {
    int wanted = 0;
    for (int rank = first; rank < below; ++rank) wanted += value(rank, offset + i);
    expect(group->rank, i, group->found[i], wanted);
  }
}

static void run_barrier(Group* g) {
  call->Barrier(g->comm);
  ++checks;
}

static void run_bcast(Group* g) {
  call->Bcast(g->mine, kCount, MPI_INT, g->root, g->comm);
  for (int i = 0; i < kCount; ++i) expect(g->rank, i, g->mine[i], value(g->root, i));
}

static void run_gather(Group* g) {
  call->Gather(g->mine, kCount, MPI_INT, g->found, kCount, MPI_INT, g->root, g->comm);
  if (g->rank == g->root) expect_parts(g, 0);
}

static void run_gatherv(Group* g) {
  call->Gatherv(g->mine, kCount, MPI_INT, g->found, g->counts, g->offsets, MPI_INT, g->root,
                g->comm);
  if (g->rank == g->root) expect_parts(g, 0);
}

static void expect_scattered(const Group* g) {
  for (int i = 0; i < kCount; ++i) {
    expect(g->rank, i, g->found[i], value(g->root, g->rank * kCount + i));
  }
}

static void run_scatter(Group* g) {
  call->Scatter(g->mine, kCount, MPI_INT, g->found, kCount, MPI_INT, g->root, g->comm);
  expect_scattered(g);
}

static void run_scatterv(Group* g) {
  call->Scatterv(g->mine, g->counts, g->offsets, MPI_INT, g->found, kCount, MPI_INT, g->root,
                 g->comm);
  expect_scattered(g);
}

static void run_allgather(Group* g) {
  call->Allgather(g->mine, kCount, MPI_INT, g->found, kCount, MPI_INT, g->comm);
  expect_parts(g, 0);
}

static void run_allgatherv(Group* g) {
  call->Allgatherv(g->mine, kCount, MPI_INT, g->found, g->counts, g->offsets, MPI_INT, g->comm);
  expect_parts(g, 0);
}

static void run_alltoall(Group* g) {
  call->Alltoall(g->mine, kCount, MPI_INT, g->found, kCount, MPI_INT, g->comm);
  expect_parts(g, g->rank);
}

static void run_alltoallv(Group* g) {
  call->Alltoallv(g->mine, g->counts, g->offsets, MPI_INT, g->found, g->counts, g->offsets, MPI_INT,
                  g->comm);
  expect_parts(g, g->rank);
}

static void run_alltoallw(Group* g) {
  call->Alltoallw(g->mine, g->counts, g->byte_offsets, g->types, g->found, g->counts,
                  g->byte_offsets, g->types, g->comm);
  expect_parts(g, g->rank);
}

static void run_reduce(Group* g) {
  call->Reduce(g->mine, g->found, kCount, MPI_INT, MPI_SUM, g->root, g->comm);
  if (g->rank == g->root) expect_sum(g, 0, g->ranks, 0);
}

static void run_allreduce(Group* g) {
  call->Allreduce(g->mine, g->found, kCount, MPI_INT, MPI_SUM, g->comm);
  expect_sum(g, 0, g->ranks, 0);
}

static void run_reduce_scatter(Group* g) {
  call->Reduce_scatter(g->mine, g->found, g->counts, MPI_INT, MPI_SUM, g->comm);
  expect_sum(g, 0, g->ranks, g->rank * kCount);
}

static void run_reduce_scatter_block(Group* g) {
  call->Reduce_scatter_block(g->mine, g->found, kCount, MPI_INT, MPI_SUM, g->comm);
  expect_sum(g, 0, g->ranks, g->rank * kCount);
}

static void run_scan(Group* g) {
  call->Scan(g->mine, g->found, kCount, MPI_INT, MPI_SUM, g->comm);
  expect_sum(g, 0, g->rank + 1, 0);
}

static void run_exscan(Group* g) {
  call->Exscan(g->mine, g->found, kCount, MPI_INT, MPI_SUM, g->comm);
  if (g->rank > 0) expect_sum(g, 0, g->rank, 0);
}

static const struct {
  const char* name;
  void (*run)(Group*);
} collectives[] = {
    {"MPI_Barrier", run_barrier},
    {"MPI_Bcast", run_bcast},
    {"MPI_Gather", run_gather},
    {"MPI_Gatherv", run_gatherv},
    {"MPI_Scatter", run_scatter},
    {"MPI_Scatterv", run_scatterv},
    {"MPI_Allgather", run_allgather},
    {"MPI_Allgatherv", run_allgatherv},
    {"MPI_Alltoall", run_alltoall},
    {"MPI_Alltoallv", run_alltoallv},
    {"MPI_Alltoallw", run_alltoallw},
    {"MPI_Reduce", run_reduce},
    {"MPI_Allreduce", run_allreduce},
    {"MPI_Reduce_scatter", run_reduce_scatter},
    {"MPI_Reduce_scatter_block", run_reduce_scatter_block},
    {"MPI_Scan", run_scan},
    {"MPI_Exscan", run_exscan},
};

static void print_plan(MPI_Comm comm, const char* who, int rank) {
  char plan[MPI_MAX_INFO_VAL + 1] = "none";
  int found = 0;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Comm_get_info(comm, &info);
  MPI_Info_get(info, "tutti_plan_used", MPI_MAX_INFO_VAL, plan, &found);
  MPI_Info_free(&info);
  printf("partial: %s %d: plan %s\n", who, rank, found ? plan : "none");
  fflush(stdout);
}

/* Each collective is the first call on its own communicator, made where ours make none. */
static void run_all(MPI_Comm all) {
  static Group group;
  int rank = 0;
  PMPI_Comm_rank(all, &rank);
  for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; ++i) {
    MPI_Comm comm = MPI_COMM_NULL;
    doing = collectives[i].name;
    PMPI_Comm_split(all, 0, rank, &comm);
    prepare(&group, comm);
    collectives[i].run(&group);
    prepare(&group, comm);
    run_allreduce(&group);
    prepare(&group, comm);
    run_bcast(&group);
    if (i + 1 == sizeof collectives / sizeof collectives[0]) print_plan(comm, "rank", rank);
    PMPI_Comm_free(&comm);
  }
  doing = "the sum of the failures";
  long mine[2] = {checks, failures};
  long total[2] = {0, 0};
  PMPI_Allreduce(mine, total, 2, MPI_LONG, MPI_SUM, all);
  failures = total[1];
  if (rank == 0) printf("partial: %ld checks, %ld failed\n", total[0], total[1]);
}

static MPI_Comm merge(MPI_Comm inter, int is_high) {
  MPI_Comm merged = MPI_COMM_NULL;
  doing = "MPI_Intercomm_merge";
  PMPI_Intercomm_merge(inter, is_high, &merged);
  PMPI_Comm_free(&inter);
  return merged;
}

static void run_halves(int is_connected) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int is_high = rank >= ranks / 2;
  PMPI_Comm_split(MPI_COMM_WORLD, is_high, rank, &half);
  if (is_connected) {
    char port[MPI_MAX_PORT_NAME] = "";
    doing = "MPI_Comm_accept or MPI_Comm_connect";
    if (rank == 0) PMPI_Open_port(MPI_INFO_NULL, port);
    PMPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (is_high) {
      PMPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
    } else {
      PMPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
    }
  } else {
    PMPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_high ? 0 : ranks / 2, 0, &inter);
  }
  MPI_Comm merged = merge(inter, is_high);
  run_all(merged);
  PMPI_Comm_free(&merged);
  PMPI_Comm_free(&half);
}

static void run_spawn(char** command) {
  MPI_Comm inter = MPI_COMM_NULL;
  doing = "MPI_Comm_spawn";
  PMPI_Comm_spawn(command[0], command + 1, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                  MPI_ERRCODES_IGNORE);
  MPI_Comm merged = merge(inter, 0);
  run_all(merged);
  PMPI_Comm_free(&merged);
}

static void run_child(void) {
  MPI_Comm inter = MPI_COMM_NULL;
  PMPI_Comm_get_parent(&inter);
  if (inter == MPI_COMM_NULL) PMPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Comm merged = merge(inter, 1);
  run_all(merged);
  PMPI_Comm_free(&merged);
  static Group own;
  prepare(&own, MPI_COMM_WORLD);
  run_allreduce(&own);
  print_plan(MPI_COMM_WORLD, "child", own.rank);
}

#if HAVE_SESSIONS
static void run_session(void) {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
  MPI_Comm_create_from_group(all, "tutti.partial", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  run_all(comm);
  MPI_Comm_free(&comm);
  MPI_Group_free(&all);
  MPI_Session_finalize(&session);
}
#endif

/* Of MPICH's Fortran layer, or what the test has put in its place. */
static void init_f08(void) {
  int error = MPI_ERR_OTHER;
  void (*function)(int*) = NULL;
  *(void**)&function = dlsym(RTLD_DEFAULT, "mpi_init_f08_");
  if (function) function(&error);
  if (error != MPI_SUCCESS) exit(2);
}

/* As Fortran's MPI_Barrier of the module mpi_f08 in MPICH. */
static int barrier_f08(MPI_Comm comm) {
  int error = MPI_ERR_OTHER;
  const int handle = (int)(intptr_t)comm; /* In MPICH's ABI the same in both languages. */
  void (*function)(const int*, int*) = NULL;
  *(void**)&function = dlsym(RTLD_DEFAULT, "mpi_barrier_f08_");
  if (function) function(&handle, &error);
  return error;
}

static void ask_launcher(int descriptor, const char* question, char* answer, int bytes) {
  const ssize_t written = write(descriptor, question, strlen(question));
  const ssize_t got = read(descriptor, answer, (size_t)bytes - 1);
  if (written < 0 || got <= 0) exit(2);
  answer[got] = 0;
}

/* As a rank with another build of Tutti does. */
static void announce_version(void) {
  const char* descriptor = getenv("PMI_FD");
  char answer[1024];
  char store[256] = "";
  char question[512];
  if (!descriptor) exit(2);
  ask_launcher(atoi(descriptor), "cmd=get_my_kvsname\n", answer, sizeof answer);
  const char* name = strstr(answer, "kvsname=");
  if (!name || sscanf(name, "kvsname=%255s", store) != 1) exit(2);
  snprintf(question, sizeof question, "cmd=put kvsname=%s key=tutti-%s value=0.0.1\n", store,
           getenv("PMI_RANK"));
  ask_launcher(atoi(descriptor), question, answer, sizeof answer);
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  signal(SIGALRM, on_alarm);
  alarm(kWatchdogSeconds);
  if (strcmp(how, "session") == 0) {
#if HAVE_SESSIONS
    run_session();
#else
    printf("partial: skipped: this MPI has no sessions\n");
#endif
    return failures != 0;
  }
  const int special = argc > 2 ? atoi(argv[2]) : -1;
  const char* launched = getenv("OMPI_COMM_WORLD_RANK");
  if (!launched) launched = getenv("PMI_RANK");
  const int is_special = launched && atoi(launched) == special;
  if (strcmp(how, "version") == 0 && is_special) announce_version();
  if (strcmp(how, "past") == 0 && is_special) {
    PMPI_Init(&argc, &argv);
  } else if (strcmp(how, "f08") == 0) {
    init_f08();
  } else {
    MPI_Init(&argc, &argv);
  }
  if ((strcmp(how, "past") == 0 || strcmp(how, "mixed") == 0) && is_special) {
    call = &by_profiling_name;
  }
  Functions fortran = by_name;
  fortran.Barrier = barrier_f08;
  if (strcmp(how, "f08") == 0 && is_special) call = &fortran;
  if (strcmp(how, "merged") == 0 || strcmp(how, "connected") == 0) {
    run_halves(strcmp(how, "connected") == 0);
  } else if (strcmp(how, "spawn") == 0 && argc > 2) {
    run_spawn(argv + 2);
  } else if (strcmp(how, "child") == 0) {
    run_child();
  } else {
    run_all(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return failures != 0;
}
