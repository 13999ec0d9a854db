/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The MPI library's own functions, past the preload: that has PMPI names too, for profilers. Define
 * _GNU_SOURCE before the first include.
 */
#pragma once

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Null: the library does not have it. */
static inline void* native_symbol(const char* name) {
  static void* library = NULL;
  Dl_info info;
  /* A function that the preload does not have. */
  if (library == NULL && dladdr(dlsym(RTLD_DEFAULT, "PMPI_Comm_rank"), &info) != 0) {
    library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }
  if (library == NULL) {
    fprintf(stderr, "native.h: the MPI library was not found\n");
    exit(2);
  }
  return dlsym(library, name);
}

#define NATIVE(name) ((__typeof__(&P##name))native_symbol("P" #name))
