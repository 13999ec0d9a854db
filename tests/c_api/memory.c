/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 */
#define _GNU_SOURCE
#include "memory.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of libtutti-host-device.so. */
void* tutti_host_device_alloc(size_t bytes);
void tutti_host_device_free(void* pointer);

typedef unsigned long long address; /* CUdeviceptr */

/* X(symbol, parameters): what is used of the driver API, CUDA 12's names. */
#define FUNCTIONS(X)                                             \
  X(cuInit, (unsigned))                                          \
  X(cuDeviceGetCount, (int*))                                    \
  X(cuDeviceGet, (int*, int))                                    \
  X(cuDevicePrimaryCtxRetain, (void**, int))                     \
  X(cuCtxGetCurrent, (void**))                                   \
  X(cuCtxSetCurrent, (void*))                                    \
  X(cuMemAlloc_v2, (address*, size_t))                           \
  X(cuMemFree_v2, (address))                                     \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                  \
  X(cuMemcpyHtoDAsync_v2, (address, const void*, size_t, void*)) \
  X(cuMemcpyDtoHAsync_v2, (void*, address, size_t, void*))       \
  X(cuStreamCreate, (void**, unsigned))                          \
  X(cuStreamSynchronize, (void*))
#define GRAPH_FUNCTIONS(X)                                            \
  X(cuStreamBeginCapture_v2, (void*, int))                            \
  X(cuStreamEndCapture, (void*, void**))                              \
  X(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long)) \
  X(cuGraphLaunch, (void*, void*))                                    \
  X(cuGraphDestroy, (void*))                                          \
  X(cuGraphExecDestroy, (void*))

static struct {
#define MEMBER(symbol, parameters) int(*symbol) parameters;
  FUNCTIONS(MEMBER)
  GRAPH_FUNCTIONS(MEMBER)
#undef MEMBER
} cu;
/* The fake of the driver has no graphs of its own; what it records runs once when that ends. */
static void (*fake_capture)(void* stream, int on);
static enum memory_kind the_kind;

static void ended(const char* what, int code) {
  fprintf(stderr, "%s failed: %d\n", what, code);
  exit(3);
}

#define CHECK(call)        \
  do {                     \
    const int code = call; \
    if (code != 0) {       \
      ended(#call, code);  \
    }                      \
  } while (0)

static int open_cuda(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    return 0;
  }
#define RESOLVE(symbol, parameters)                \
  *(void**)(&cu.symbol) = dlsym(library, #symbol); \
  if (cu.symbol == NULL) {                         \
    return 0;                                      \
  }
  FUNCTIONS(RESOLVE)
#undef RESOLVE
#define RESOLVE(symbol, parameters) *(void**)(&cu.symbol) = dlsym(library, #symbol);
  GRAPH_FUNCTIONS(RESOLVE)
#undef RESOLVE
  *(void**)(&fake_capture) = dlsym(library, "tutti_fake_capture");
  return 1;
}

int graph_launches_max(void) {
  return fake_capture != NULL                                             ? 1
         : cu.cuStreamBeginCapture_v2 != NULL && cu.cuGraphLaunch != NULL ? 1000
                                                                          : 0;
}

void memory_open(enum memory_kind kind, int device) {
  the_kind = kind;
  if (kind != MEMORY_CUDA) {
    return;
  }
  if (!open_cuda()) {
    ended("libcuda.so.1", 0);
  }
  int handle = 0;
  int devices = 0;
  void* context = NULL;
  CHECK(cu.cuInit(0));
  CHECK(cu.cuDeviceGetCount(&devices));
  CHECK(cu.cuDeviceGet(&handle, device % devices));
  CHECK(cu.cuDevicePrimaryCtxRetain(&context, handle));
  CHECK(cu.cuCtxSetCurrent(context));
}

static int cuda_devices(void) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(open_cuda() && cu.cuInit(0) == 0 && cu.cuDeviceGetCount(&count) == 0 ? count : 0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                               : 0;
}

int memory_has_gpus(int ranks, int share) {
  const int devices = cuda_devices();
  const int needed = share ? 1 : ranks;
  if (devices < needed) {
    printf("%d GPUs are needed, %d are here\n", needed, devices);
  }
  return devices >= needed;
}

void* memory_take(size_t bytes) {
  void* pointer = NULL;
  if (the_kind == MEMORY_CUDA) {
    address device = 0;
    CHECK(cu.cuMemAlloc_v2(&device, bytes));
    memcpy(&pointer, &device, sizeof pointer);
  } else {
    pointer = the_kind == MEMORY_HOST_DEVICE ? tutti_host_device_alloc(bytes) : malloc(bytes);
  }
  if (pointer == NULL) {
    ended("memory", 0);
  }
  return pointer;
}

void memory_give(void* pointer) {
  if (the_kind == MEMORY_CUDA) {
    CHECK(cu.cuMemFree_v2((address)(size_t)pointer));
  } else if (the_kind == MEMORY_HOST_DEVICE) {
    tutti_host_device_free(pointer);
  } else {
    free(pointer);
  }
}

void* memory_take_host(size_t bytes) {
  void* pointer = NULL;
  if (the_kind == MEMORY_CUDA) {
    CHECK(cu.cuMemHostAlloc(&pointer, bytes, 0));
  } else {
    pointer = malloc(bytes);
  }
  if (pointer == NULL) {
    ended("host memory", 0);
  }
  return pointer;
}

void memory_fill(void* pointer, const void* host, size_t bytes, void* stream) {
  if (the_kind == MEMORY_CUDA) {
    CHECK(cu.cuMemcpyHtoDAsync_v2((address)(size_t)pointer, host, bytes, stream));
  } else {
    memcpy(pointer, host, bytes);
  }
}

void memory_read(void* host, const void* pointer, size_t bytes, void* stream) {
  if (the_kind == MEMORY_CUDA) {
    CHECK(cu.cuMemcpyDtoHAsync_v2(host, (address)(size_t)pointer, bytes, stream));
  } else {
    memcpy(host, pointer, bytes);
  }
}

void* stream_make(void) {
  void* stream = NULL;
  if (the_kind == MEMORY_CUDA) {
    CHECK(cu.cuStreamCreate(&stream, 1)); /* Not ordered with the default stream. */
  }
  return stream;
}

void* stream_make_on(int device) {
  int handle = 0;
  void* context = NULL;
  void* own = NULL;
  CHECK(cu.cuCtxGetCurrent(&own));
  CHECK(cu.cuDeviceGet(&handle, device));
  CHECK(cu.cuDevicePrimaryCtxRetain(&context, handle));
  CHECK(cu.cuCtxSetCurrent(context));
  void* const stream = stream_make();
  CHECK(cu.cuCtxSetCurrent(own));
  return stream;
}

void stream_wait(void* stream) {
  if (the_kind == MEMORY_CUDA) {
    CHECK(cu.cuStreamSynchronize(stream));
  }
}

void capture_begin(void* stream) {
  if (fake_capture != NULL) {
    fake_capture(stream, 1);
  } else {
    CHECK(cu.cuStreamBeginCapture_v2(stream, 0));
  }
}

void* capture_end(void* stream) {
  void* graph = NULL;
  void* executable = NULL;
  if (fake_capture != NULL) {
    fake_capture(stream, 0);
    return stream;
  }
  if (cu.cuStreamEndCapture(stream, &graph) != 0 || graph == NULL) {
    return NULL;
  }
  const int code = cu.cuGraphInstantiateWithFlags(&executable, graph, 0);
  CHECK(cu.cuGraphDestroy(graph));
  return code == 0 ? executable : NULL;
}

void graph_launch(void* graph, void* stream) {
  if (fake_capture == NULL) {
    CHECK(cu.cuGraphLaunch(graph, stream));
  }
}

void graph_destroy(void* graph) {
  if (fake_capture == NULL && graph != NULL) {
    CHECK(cu.cuGraphExecDestroy(graph));
  }
}
