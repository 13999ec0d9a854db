/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks as forked processes that meet in shared memory: a bootstrap for tests.
 */
#ifndef TUTTI_TESTS_C_API_RANKS_H_
#define TUTTI_TESTS_C_API_RANKS_H_

#include <stdio.h>

#include "tutti/tutti.h"

/* Ends a body, which has `rank` and `comm`, when it does not hold. */
#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "rank %d, line %d: " #condition ": %s\n", rank, __LINE__, \
              tutti_error_string(comm));                                        \
      return 1;                                                                 \
    }                                                                           \
  } while (0)

/* In the parent: memory that children of up to `ranks` ranks share. */
void* meeting_make(int ranks);
/* For a child; `*bootstrap` may be used as long as the process runs. */
void meeting_bootstrap(void* meeting, int rank, tutti_bootstrap_t* bootstrap);
/* Runs `body(rank)` in `ranks` children; the first exit status that is not 0, in time or by signal.
   When one child fails the others are killed. `mortal`: a rank that is to die of SIGKILL, -1: none.
 */
int run_ranks(int ranks, void* meeting, int (*body)(int rank, void* meeting), int mortal);

#endif
