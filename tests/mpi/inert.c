/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A program that has nothing to do with MPI. Preloaded into it, Tutti must do nothing: no library
 * loaded, no thread started, nothing printed, and threads, fork, exec and exit work as ever.
 * Prints nothing when all is well, else what is not, and exits 1.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "inert: %s\n", what);
}

static int threads(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return -1;
  for (struct dirent* entry = readdir(tasks); entry; entry = readdir(tasks)) {
    count += entry->d_name[0] != '.';
  }
  closedir(tasks);
  return count;
}

static void check_maps(void) {
  static const char* const foreign[] = {"libcuda",     "libcudart", "libnccl",   "librccl",
                                        "libamdhip64", "libmpi.so", "libmpi_abi"};
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  expect(maps != NULL, "/proc/self/maps cannot be read");
  while (maps && fgets(line, sizeof line, maps)) {
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; ++i) {
      expect(strstr(line, foreign[i]) == NULL, foreign[i]);
    }
  }
  if (maps) fclose(maps);
}

static void* add_one(void* argument) {
  ++*(int*)argument;
  return NULL;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--child") == 0) {
    expect(threads() == 1, "a thread of somebody else's after exec");
    check_maps();
    return failures != 0;
  }
  expect(threads() == 1, "a thread of somebody else's at start");
  check_maps();

  int value = 0;
  pthread_t thread;
  expect(pthread_create(&thread, NULL, add_one, &value) == 0, "pthread_create failed");
  pthread_join(thread, NULL);
  expect(value == 1, "the thread did not run");

  int status = -1;
  pid_t child = fork();
  if (child == 0) _exit(threads() == 1 ? 17 : 18);
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 17, "fork");

  child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "inert", "--child", (char*)NULL);
    _exit(19);
  }
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "exec");

  expect(system("exit 3") >> 8 == 3, "system");
  expect(threads() == 1, "a thread of somebody else's at the end");
  check_maps();
  return failures != 0;
}
