// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a static libstdc++, libgcc or start-up code of a new system wants of glibc and glibc 2.28
// does not have (cmake/OldestGlibc.cmake). Hidden: each object of ours uses its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

// 2.32: "the process certainly has one thread". It may have more: atomics stay atomic.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// 2.33: functions in place of macros over the numbered ones.
#if defined(__x86_64__)
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif
int __xstat(int version, const char* path, struct stat* result);
int __lxstat(int version, const char* path, struct stat* result);
int __fxstat(int version, int file, struct stat* result);
int __fxstat64(int version, int file, struct stat64* result);

int stat(const char* restrict path, struct stat* restrict result) {
  return __xstat(kStatVersion, path, result);
}
int lstat(const char* restrict path, struct stat* restrict result) {
  return __lxstat(kStatVersion, path, result);
}
int fstat(int file, struct stat* result) { return __fxstat(kStatVersion, file, result); }
int fstat64(int file, struct stat64* result) { return __fxstat64(kStatVersion, file, result); }

// 2.36.
uint32_t arc4random(void) {
  uint32_t word = 0;
  while (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
  }
  return word;
}

// 2.30. The callers (std::condition_variable) look at their own clock afterwards, so a step of the
// wall clock wakes them early at worst.
int pthread_cond_clockwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex,
                           clockid_t clock, const struct timespec* restrict until) {
  typedef int ClockWait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  ClockWait* real = (ClockWait*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
  if (real != NULL) {
    return real(condition, mutex, clock, until);
  }
  enum { kNsPerS = 1000000000 };
  struct timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += until->tv_sec - now.tv_sec;
  wall.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += kNsPerS;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= kNsPerS) {
    wall.tv_nsec -= kNsPerS;
    ++wall.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &wall);
}

// 2.35: the object of a program counter, for exceptions.
typedef struct {
  uintptr_t pc;
  struct dl_find_object* result;
} Search;

static int look_into(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  Search* search = data;
  void* frames = NULL;
  int is_inside = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) {
      frames = (void*)begin;
    } else if (header->p_type == PT_LOAD && search->pc - begin < header->p_memsz) {
      search->result->dlfo_map_start = (void*)begin;
      search->result->dlfo_map_end = (void*)(begin + header->p_memsz);
      is_inside = 1;
    }
  }
  search->result->dlfo_eh_frame = frames;
  return is_inside && frames != NULL;
}

int _dl_find_object(void* pc, struct dl_find_object* result) {
  Search search = {(uintptr_t)pc, result};
  result->dlfo_flags = 0;
  result->dlfo_link_map = NULL;
  return dl_iterate_phdr(look_into, &search) ? 0 : -1;
}

#ifdef TUTTI_PROGRAM
// 2.34: the C library calls a program's constructors. Before, start-up code linked into the program
// did, which a new system no longer has.
typedef void Constructor(int argc, char** argv, char** environment);
extern Constructor* __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor* __init_array_end[] __attribute__((visibility("hidden")));
typedef int Main(int argc, char** argv, char** environment);
extern int start_main(Main* main, int argc, char** argv, Constructor* before, void (*after)(void),
                      void (*loader)(void), void* stack);
__asm__(".symver start_main, __libc_start_main@GLIBC_2.2.5");

static void construct(int argc, char** argv, char** environment) {
  for (Constructor** each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(argc, argv, environment);
  }
}

int __libc_start_main(Main* main, int argc, char** argv, Constructor* before, void (*after)(void),
                      void (*loader)(void), void* stack) {
  return start_main(main, argc, argv, before != NULL ? before : construct, after, loader, stack);
}
#endif
