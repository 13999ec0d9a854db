/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Preloaded behind libtutti-mpi.so and libtutti-host-device.so, with TUTTI_DEVICE=host: what the
 * program itself allocates is memory of the host device, so that a program that knows no GPU passes
 * device buffers to MPI. What libraries allocate stays as it is. tools/suites.py does so for plans
 * with +hostdevice.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* glibc's own, by other names. */
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

enum { kMost = 1 << 16 };

static struct {
  void* pointer;
  size_t bytes;
} allocated[kMost]; /* By address; a null pointer ends a search, kGone does not. */
static char gone_mark;
#define kGone ((void*)&gone_mark)
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t code_begin, code_end;
static void* (*device_alloc)(size_t);
static void (*device_free)(void*);
static _Atomic int in_use; /* How many of the table's entries were ever used. */

static int find_code(struct dl_phdr_info* program, size_t size, void* unused) {
  (void)size, (void)unused;
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &program->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
      code_begin = program->dlpi_addr + part->p_vaddr;
      code_end = code_begin + part->p_memsz;
    }
  }
  return 1; /* The first is the program. */
}

__attribute__((constructor)) static void start(void) {
  void* alloc = dlsym(RTLD_DEFAULT, "tutti_host_device_alloc");
  void* release = dlsym(RTLD_DEFAULT, "tutti_host_device_free");
  if (alloc == NULL || release == NULL) return; /* A launcher or a shell, without Tutti. */
  memcpy(&device_alloc, &alloc, sizeof alloc);
  memcpy(&device_free, &release, sizeof release);
  dl_iterate_phdr(find_code, NULL);
}

static size_t slot_of(const void* pointer) {
  return ((uintptr_t)pointer >> 4) * 0x9e3779b97f4a7c15u >> 48;
}

static void* device_memory(size_t bytes) {
  void* made = device_alloc(bytes > 0 ? bytes : 1);
  if (made == NULL) return NULL;
  pthread_mutex_lock(&mutex);
  bool is_kept = false;
  if (in_use < kMost / 2) {
    size_t slot = slot_of(made);
    while (allocated[slot].pointer != NULL && allocated[slot].pointer != kGone)
      slot = (slot + 1) % kMost;
    if (allocated[slot].pointer == NULL) ++in_use;
    allocated[slot].pointer = made;
    allocated[slot].bytes = bytes;
    is_kept = true;
  }
  pthread_mutex_unlock(&mutex);
  if (is_kept) return made;
  device_free(made);
  return NULL;
}

/* Whether it was memory of the device; it is forgotten then, unless it is only looked at. */
static bool take(void* pointer, size_t* bytes, bool forget) {
  if (in_use == 0 || pointer == NULL) return false;
  bool is_ours = false;
  pthread_mutex_lock(&mutex);
  for (size_t slot = slot_of(pointer); allocated[slot].pointer != NULL; slot = (slot + 1) % kMost) {
    if (allocated[slot].pointer != pointer) continue;
    *bytes = allocated[slot].bytes;
    if (forget) allocated[slot].pointer = kGone;
    is_ours = true;
    break;
  }
  pthread_mutex_unlock(&mutex);
  return is_ours;
}

static bool is_program(const void* caller) {
  return device_alloc != NULL && (uintptr_t)caller >= code_begin && (uintptr_t)caller < code_end;
}
#define FROM_PROGRAM is_program(__builtin_return_address(0))

void* malloc(size_t bytes) {
  void* made = FROM_PROGRAM ? device_memory(bytes) : NULL;
  return made != NULL ? made : __libc_malloc(bytes);
}

void* calloc(size_t count, size_t each) {
  size_t bytes = 0;
  void* made = NULL;
  if (FROM_PROGRAM && !__builtin_mul_overflow(count, each, &bytes)) made = device_memory(bytes);
  return made != NULL ? memset(made, 0, bytes) : __libc_calloc(count, each);
}

void free(void* pointer) {
  size_t bytes = 0;
  if (take(pointer, &bytes, true)) {
    device_free(pointer);
  } else {
    __libc_free(pointer);
  }
}

void* realloc(void* pointer, size_t bytes) {
  size_t before = 0;
  if (!take(pointer, &before, false)) return __libc_realloc(pointer, bytes);
  void* made = device_memory(bytes);
  if (made == NULL) made = __libc_malloc(bytes);
  if (made != NULL) {
    memcpy(made, pointer, before < bytes ? before : bytes);
    free(pointer);
  }
  return made;
}

/* Memory of the device begins at a page. */
int posix_memalign(void** pointer, size_t alignment, size_t bytes) {
  *pointer = FROM_PROGRAM && alignment <= 4096 ? device_memory(bytes) : NULL;
  if (*pointer == NULL) *pointer = __libc_memalign(alignment, bytes);
  return *pointer != NULL ? 0 : ENOMEM;
}
