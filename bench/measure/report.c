/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "content.h"

size_t parse_size(const char* option, const char* text) {
  char* end = NULL;
  const unsigned long long value = strtoull(text, &end, 10);
  const char suffix = *end;
  int shift = suffix == 'k' || suffix == 'K'   ? 10
              : suffix == 'm' || suffix == 'M' ? 20
              : suffix == 'g' || suffix == 'G' ? 30
                                               : 0;
  if (shift != 0) ++end;
  if (end == text || *end != '\0' || text[0] == '-') fail("%s %s: not a size", option, text);
  return (size_t)value << shift;
}

int default_iterations(size_t bytes) {
  if (bytes <= (size_t)64 << 10) return 1000;
  if (bytes <= (size_t)256 << 10) return 500;
  if (bytes <= (size_t)1 << 20) return 200;
  if (bytes <= (size_t)4 << 20) return 50;
  if (bytes <= (size_t)16 << 20) return 20;
  return bytes <= (size_t)64 << 20 ? 10 : 5;
}

double size_steps(size_t begin, size_t end, size_t factor) {
  if (begin == 0) return 1;
  return 1 + floor(log((double)end / (double)begin) / log((double)factor) + 1e-9);
}

void print_text(const char* text) {
  putchar('"');
  for (; *text; ++text) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') {
      printf("\\%c", c);
    } else if (c < 0x20) {
      putchar(' ');
    } else {
      putchar(c);
    }
  }
  putchar('"');
}

void print_field(const char* key, const char* value) {
  printf(", \"%s\": ", key);
  print_text(value);
}

void print_progress(double done) {
  printf("{\"progress\": %.4f}\n", done);
  fflush(stdout);
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Nearest rank: the smallest sample that `fraction` of the samples do not exceed. */
static double percentile(const double* sorted, int count, double fraction) {
  int index = (int)ceil(fraction * count) - 1;
  return sorted[index < 0 ? 0 : index];
}

double sort_samples(double* samples_us, int count) {
  qsort(samples_us, (size_t)count, sizeof *samples_us, compare);
  return percentile(samples_us, count, 0.5);
}

void begin_row(size_t bytes, const char* variant) {
  printf("{\"bytes\": %zu", bytes);
  print_field("variant", variant);
}

void end_row(double* samples_us, int count, bool is_checked, size_t wrong) {
  const double median_us = sort_samples(samples_us, count);
  printf(
      ", \"min_us\": %.3f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f, "
      "\"iterations\": %d, \"checked\": %s, \"wrong\": %zu}\n",
      samples_us[0], median_us, percentile(samples_us, count, 0.99), samples_us[count - 1], count,
      is_checked ? "true" : "false", wrong);
  fflush(stdout);
}
