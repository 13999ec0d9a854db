/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators that MPI_Comm_dup and MPI_Comm_split derive, from one that has been used and from
 * one that has not: who is in them and where, and that calls are right on all of them, whatever
 * became of their parent.
 *
 * Usage: derived --case CASE
 *   only      two are derived, and no collective is called on them
 *   order     colors, keys and MPI_UNDEFINED; duplicates of what was split
 *   lone      one rank alone has made a call on the parent that MPI refuses
 *   unequal   the parent's last call differed between the ranks
 *   first     the same of the first call on a derived one
 *   apart     a call of the parent that one rank refuses has failed on another, before any use of
 *             shared memory
 *   freed     the parent is freed at once, by one rank later than by the others
 *   many      1200 live ones, twice
 *
 * Last line: "derived: N calls, W wrong", of all ranks. Exit status 1 when W > 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMany = 1200, kLarge = 20000 };

static int world_rank, world_ranks;
static long calls, wrong;
static int large_in[kLarge], large_out[kLarge];

static void expect(int is_right, const char* what) {
  if (!is_right) {
    ++wrong;
    fprintf(stderr, "derived: rank %d: %s\n", world_rank, what);
  }
}

/* Calls whose results depend on who is in the communicator and where. `members`: its ranks, as
 * ranks of MPI_COMM_WORLD; `first`: the call to begin with. */
static void use(MPI_Comm comm, const int* members, int ranks, int first) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  expect(size == ranks && members[rank] == world_rank, "another place than the standard says");
  if (size != ranks) return;
  int expected = 0;
  for (int i = 0; i < ranks; ++i) expected += members[i] + 1;
  for (int i = 0; i < 4; ++i) {
    switch ((first + i) % 4) {
      case 0: {
        int sum = -1;
        const int mine = world_rank + 1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect(sum == expected, "a short sum is wrong");
        break;
      }
      case 1: {
        for (int k = 0; k < kLarge; ++k) large_in[k] = world_rank + 1 + k % 7;
        memset(large_out, 0xee, sizeof(large_out));
        MPI_Allreduce(large_in, large_out, kLarge, MPI_INT, MPI_SUM, comm);
        int is_right = 1;
        for (int k = 0; k < kLarge; ++k) is_right &= large_out[k] == expected + ranks * (k % 7);
        expect(is_right, "a long sum is wrong");
        break;
      }
      case 2: {
        int all[64];
        MPI_Allgather(&world_rank, 1, MPI_INT, all, 1, MPI_INT, comm);
        expect(memcmp(all, members, (size_t)ranks * sizeof(int)) == 0, "an allgather is wrong");
        break;
      }
      default:
        for (int root = 0; root < ranks; ++root) {
          int value = world_rank;
          MPI_Bcast(&value, 1, MPI_INT, root, comm);
          expect(value == members[root], "a bcast is wrong");
        }
    }
    ++calls;
  }
}

static void everyone(int* members) {
  for (int i = 0; i < world_ranks; ++i) members[i] = i;
}

static void use_duplicate(MPI_Comm parent, int first) {
  int members[64];
  everyone(members);
  MPI_Comm comm;
  MPI_Comm_dup(parent, &comm);
  use(comm, members, world_ranks, first);
  MPI_Comm_free(&comm);
}

static void only(MPI_Comm parent) {
  MPI_Comm comm[2];
  MPI_Comm_dup(parent, &comm[0]);
  MPI_Comm_split(parent, 0, 0, &comm[1]);
  MPI_Comm_free(&comm[0]);
  MPI_Comm_free(&comm[1]);
}

/* One split, its duplicate, and a split of that in the opposite order. */
static void use_split(MPI_Comm parent, int color, int key, const int* members, int ranks,
                      int first) {
  MPI_Comm comm, copy, reversed;
  MPI_Comm_split(parent, color, key, &comm);
  expect((comm == MPI_COMM_NULL) == (color == MPI_UNDEFINED), "MPI_UNDEFINED");
  if (comm == MPI_COMM_NULL) return;
  use(comm, members, ranks, first);
  MPI_Comm_dup(comm, &copy);
  use(copy, members, ranks, first + 1);
  MPI_Comm_free(&comm);
  int backwards[64], rank;
  for (int i = 0; i < ranks; ++i) backwards[i] = members[ranks - 1 - i];
  MPI_Comm_rank(copy, &rank);
  MPI_Comm_split(copy, 7, -rank, &reversed);
  use(reversed, backwards, ranks, first + 2);
  MPI_Comm_free(&reversed);
  MPI_Comm_free(&copy);
}

static void order(MPI_Comm parent) {
  int members[64], ranks = 0;
  for (int first = 0; first < 4; ++first) {
    everyone(members);
    use_split(parent, 3, 5, members, world_ranks, first); /* Equal keys: as in the parent. */
    for (int i = 0; i < world_ranks; ++i) members[i] = world_ranks - 1 - i;
    use_split(parent, 0, 1000 - world_rank, members, world_ranks, first);
    ranks = 0;
    for (int i = world_rank % 2; i < world_ranks; i += 2) members[ranks++] = i;
    use_split(parent, world_rank % 2, -5, members, ranks, first);
    ranks = 0;
    for (int i = 1; i < world_ranks; ++i) members[ranks++] = i;
    use_split(parent, world_rank == 0 ? MPI_UNDEFINED : 2, 0, members, ranks, first);
    members[0] = world_rank;
    use_split(parent, world_rank, 0, members, 1, first);
  }
}

static void lone(MPI_Comm parent) {
  MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
  if (world_rank == 0) {
    int value = 0;
    expect(MPI_Bcast(&value, 1, MPI_INT, -7, parent) != MPI_SUCCESS, "a root of -7 is one");
  }
  for (int first = 0; first < 4; ++first) use_duplicate(parent, first);
}

static void unequal(MPI_Comm parent) {
  MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
  MPI_Bcast(large_in, world_rank == 0 ? kLarge : kLarge / 2, MPI_INT, 0, parent);
  for (int first = 0; first < 4; ++first) use_duplicate(parent, first);
}

static void first(MPI_Comm parent) {
  MPI_Comm comm;
  MPI_Comm_dup(parent, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Bcast(large_in, world_rank == 0 ? kLarge : kLarge / 2, MPI_INT, 0, comm);
  MPI_Comm_free(&comm);
}

static void apart(MPI_Comm parent) {
  MPI_Comm comm;
  MPI_Comm_split(parent, 0, 0, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Barrier(comm);
  MPI_Bcast(large_in, world_rank == 0 ? -1 : kLarge, MPI_INT, 0, comm);
  for (int i = 0; i < 4; ++i) use_duplicate(comm, i);
  MPI_Comm_free(&comm);
}

static void freed(MPI_Comm world) {
  int members[64];
  everyone(members);
  for (int i = 0; i < 20; ++i) {
    MPI_Comm parent, comm;
    MPI_Comm_dup(world, &parent);
    use(parent, members, world_ranks, i);
    MPI_Comm_dup(parent, &comm);
    if (world_rank == i % world_ranks) usleep(20000);
    MPI_Comm_free(&parent);
    use_duplicate(world, i);
    use(comm, members, world_ranks, i + 1);
    MPI_Comm_free(&comm);
  }
}

static void many(MPI_Comm parent) {
  static MPI_Comm comms[kMany];
  int members[64];
  everyone(members);
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < kMany; ++i) MPI_Comm_dup(i % 3 == 2 ? comms[i - 1] : parent, &comms[i]);
    for (int i = 0; i < kMany; ++i) use(comms[i], members, world_ranks, i);
    for (int i = 0; i < kMany; ++i) MPI_Comm_free(&comms[i]);
  }
}

int main(int argc, char** argv) {
  const char* name = argc == 3 && strcmp(argv[1], "--case") == 0 ? argv[2] : "";
  const struct {
    const char* name;
    void (*run)(MPI_Comm);
  } cases[] = {{"only", only},   {"order", order}, {"lone", lone},   {"unequal", unequal},
               {"first", first}, {"apart", apart}, {"freed", freed}, {"many", many}};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_ranks);
  MPI_Comm used;
  int members[64];
  everyone(members);
  MPI_Comm_dup(MPI_COMM_WORLD, &used);
  int is_known = 0;
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
    if (strcmp(name, cases[i].name) != 0) continue;
    is_known = 1;
    const int is_usual = strcmp(name, "order") == 0 || strcmp(name, "many") == 0 ||
                         strcmp(name, "freed") == 0 || strcmp(name, "only") == 0;
    if (is_usual) cases[i].run(MPI_COMM_WORLD); /* Not used before. */
    if (strcmp(name, "apart") != 0) use(used, members, world_ranks, 0);
    cases[i].run(used);
  }
  MPI_Comm_free(&used);
  long totals[2] = {calls, wrong}, sums[2] = {0, 0};
  MPI_Reduce(totals, sums, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (world_rank == 0) printf("derived: %ld calls, %ld wrong\n", sums[0], sums[1]);
  MPI_Finalize();
  return !is_known || wrong > 0;
}
