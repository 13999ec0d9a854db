/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the measured programs print, and what their options have in common. JSON Lines on stdout:
 * a header (the program's own), rows, {"progress": 0..1}.
 */
#ifndef TUTTI_BENCH_REPORT_H_
#define TUTTI_BENCH_REPORT_H_

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "64K" -> 65536; fails with the option's name. */
size_t parse_size(const char* option, const char* text);
/* Timed calls of a size where nobody says how many. */
int default_iterations(size_t bytes);
/* Sizes from `begin` to `end`, each `factor` times the one before. */
double size_steps(size_t begin, size_t end, size_t factor);

/* A JSON string. */
void print_text(const char* text);
/* , "key": "value" */
void print_field(const char* key, const char* value);
void print_progress(double done);
/* A row is begin_row, fields of its own, end_row. */
void begin_row(size_t bytes, const char* variant);
/* Returns the median. */
double sort_samples(double* samples_us, int count);
/* Sorts the samples. */
void end_row(double* samples_us, int count, bool is_checked, size_t wrong);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_BENCH_REPORT_H_ */
