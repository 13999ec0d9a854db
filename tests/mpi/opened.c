/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A program that is not linked to an MPI library and opens it at run time, as Julia and ctypes do.
 * Prints "opened: done". Usage: opened WAY FILE
 *   handle    opens the library FILE and takes each function from that handle
 *   idle      opens the library FILE and calls nothing of it
 *   deepbind  opens FILE, a module linked to the library, with RTLD_DEEPBIND, and runs it
 *   local     the same without RTLD_DEEPBIND
 *   silent    as `local`, with a module that makes no collective
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static void* symbol(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  if (found == NULL) fprintf(stderr, "opened: %s\n", dlerror());
  return found;
}

static int by_handle(void* library) {
  int (*init)(int*, char***) = (int (*)(int*, char***))symbol(library, "MPI_Init");
  int (*barrier)(MPI_Comm) = (int (*)(MPI_Comm))symbol(library, "MPI_Barrier");
  int (*finalize)(void) = (int (*)(void))symbol(library, "MPI_Finalize");
#ifdef OPEN_MPI
  MPI_Comm world = (MPI_Comm)symbol(library, "ompi_mpi_comm_world");
#else
  MPI_Comm world = MPI_COMM_WORLD;
#endif
  if (init == NULL || barrier == NULL || finalize == NULL) return 1;
  return init(NULL, NULL) || barrier(world) || finalize();
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int deep = strcmp(argv[1], "deepbind") == 0 ? RTLD_DEEPBIND : 0;
  void* opened = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | deep);
  if (opened == NULL) {
    fprintf(stderr, "opened: %s\n", dlerror());
    return 1;
  }
  int failed = 0;
  if (strcmp(argv[1], "handle") == 0) {
    failed = by_handle(opened);
  } else if (strcmp(argv[1], "idle") != 0) {
    int (*run)(int) = (int (*)(int))symbol(opened, "run");
    failed = run == NULL || run(strcmp(argv[1], "silent") != 0);
  }
  if (!failed) printf("opened: done\n");
  return failed;
}
