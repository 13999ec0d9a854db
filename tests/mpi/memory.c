/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 */
#define _GNU_SOURCE
#include "memory.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The few driver calls that are needed, with their types spelled out, so that neither CUDA nor HIP
 * headers are needed to build. CUdeviceptr is 64 bits wide, contexts are pointers. */
typedef unsigned long long DevicePointer;

static struct {
  enum { kHost, kHostDevice, kCuda, kHip } kind;
  int device;
  int devices;
  void* (*host_device_alloc)(size_t);
  void (*host_device_free)(void*);

  void* context;
  void* expected_context;
  int (*cuInit)(unsigned);
  int (*cuDeviceGetCount)(int*);
  int (*cuDeviceGet)(int*, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxSetCurrent)(void*);
  int (*cuCtxGetCurrent)(void**);
  int (*cuMemAlloc)(DevicePointer*, size_t);
  int (*cuMemFree)(DevicePointer);
  int (*cuMemcpyHtoD)(DevicePointer, const void*, size_t);
  int (*cuStreamSynchronize)(void*);
  int (*cuMemcpyDtoH)(void*, DevicePointer, size_t);

  int expected_device;
  int (*hipGetDeviceCount)(int*);
  int (*hipSetDevice)(int);
  int (*hipGetDevice)(int*);
  int (*hipMalloc)(void**, size_t);
  int (*hipFree)(void*);
  int (*hipMemcpy)(void*, const void*, size_t, int);
} state;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "memory: %s: %s\n", what, why);
  fflush(NULL);
  _Exit(70);
}

static void succeed(const char* what, int code) {
  if (code != 0) {
    char text[32];
    snprintf(text, sizeof text, "error %d", code);
    fail(what, text);
  }
}
#define TRY(call) succeed(#call, (call))

static void* open_library(const char* const* names) {
  for (; *names; ++names) {
    void* library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
    if (library) return library;
  }
  fail("dlopen", dlerror());
  return NULL;
}

/* ISO C has no conversion from an object pointer to a function pointer; POSIX has. */
static void find(void* library, const char* name, void* function_pointer) {
  void* symbol = dlsym(library, name);
  if (!symbol) fail(name, "symbol not found");
  memcpy(function_pointer, &symbol, sizeof symbol);
}

static void bind(void) {
  if (state.kind == kCuda) TRY(state.cuCtxSetCurrent(state.context));
  if (state.kind == kHip) TRY(state.hipSetDevice(state.device));
}

static void choose_device(int local_rank, bool same_device) {
  if (state.devices < 1) fail("memory", "no device is visible");
  state.device = same_device ? 0 : local_rank % state.devices;
}

static void open_cuda(int local_rank, bool same_device) {
  void* library = open_library((const char* const[]){"libcuda.so.1", "libcuda.so", NULL});
  find(library, "cuInit", &state.cuInit);
  find(library, "cuDeviceGetCount", &state.cuDeviceGetCount);
  find(library, "cuDeviceGet", &state.cuDeviceGet);
  find(library, "cuDevicePrimaryCtxRetain", &state.cuDevicePrimaryCtxRetain);
  find(library, "cuCtxSetCurrent", &state.cuCtxSetCurrent);
  find(library, "cuCtxGetCurrent", &state.cuCtxGetCurrent);
  find(library, "cuMemAlloc_v2", &state.cuMemAlloc);
  find(library, "cuMemFree_v2", &state.cuMemFree);
  find(library, "cuMemcpyHtoD_v2", &state.cuMemcpyHtoD);
  find(library, "cuStreamSynchronize", &state.cuStreamSynchronize);
  find(library, "cuMemcpyDtoH_v2", &state.cuMemcpyDtoH);
  TRY(state.cuInit(0));
  TRY(state.cuDeviceGetCount(&state.devices));
  choose_device(local_rank, same_device);
  int handle = 0;
  TRY(state.cuDeviceGet(&handle, state.device));
  TRY(state.cuDevicePrimaryCtxRetain(&state.context, handle));
  bind();
}

static void open_hip(int local_rank, bool same_device) {
  void* library = open_library(
      (const char* const[]){"libamdhip64.so.6", "libamdhip64.so.7", "libamdhip64.so", NULL});
  find(library, "hipGetDeviceCount", &state.hipGetDeviceCount);
  find(library, "hipSetDevice", &state.hipSetDevice);
  find(library, "hipGetDevice", &state.hipGetDevice);
  find(library, "hipMalloc", &state.hipMalloc);
  find(library, "hipFree", &state.hipFree);
  find(library, "hipMemcpy", &state.hipMemcpy);
  TRY(state.hipGetDeviceCount(&state.devices));
  choose_device(local_rank, same_device);
  bind();
}

void memory_open(const char* name, int local_rank, bool same_device) {
  if (strcmp(name, "host") == 0) {
    state.kind = kHost;
  } else if (strcmp(name, "hostdevice") == 0) {
    state.kind = kHostDevice;
    find(RTLD_DEFAULT, "tutti_host_device_alloc", &state.host_device_alloc);
    find(RTLD_DEFAULT, "tutti_host_device_free", &state.host_device_free);
  } else if (strcmp(name, "cuda") == 0) {
    state.kind = kCuda;
    open_cuda(local_rank, same_device);
  } else if (strcmp(name, "hip") == 0) {
    state.kind = kHip;
    open_hip(local_rank, same_device);
  } else {
    fail(name, "unknown kind of memory: host, hostdevice, cuda, hip");
  }
}

bool memory_has_device(void) { return state.kind != kHost; }

void* memory_allocate(bool on_device, size_t bytes) {
  if (bytes == 0) bytes = 1;
  void* pointer = NULL;
  if (!on_device || state.kind == kHost) {
    pointer = malloc(bytes);
  } else if (state.kind == kHostDevice) {
    pointer = state.host_device_alloc(bytes);
  } else if (state.kind == kCuda) {
    bind();
    DevicePointer address = 0;
    TRY(state.cuMemAlloc(&address, bytes));
    pointer = (void*)(size_t)address;
  } else {
    bind();
    TRY(state.hipMalloc(&pointer, bytes));
  }
  if (!pointer) fail("allocate", "out of memory");
  return pointer;
}

void memory_free(bool on_device, void* pointer) {
  if (!on_device || state.kind == kHost) {
    free(pointer);
  } else if (state.kind == kHostDevice) {
    state.host_device_free(pointer);
  } else if (state.kind == kCuda) {
    bind();
    TRY(state.cuMemFree((DevicePointer)(size_t)pointer));
  } else {
    bind();
    TRY(state.hipFree(pointer));
  }
}

static bool cpu_reaches(bool on_device) {
  return !on_device || state.kind == kHost || state.kind == kHostDevice;
}

void memory_write(bool on_device, void* destination, const void* source, size_t bytes) {
  enum { kHostToDevice = 1 };
  if (bytes == 0) return;
  if (cpu_reaches(on_device)) {
    memcpy(destination, source, bytes);
    return;
  }
  bind();
  if (state.kind == kCuda) {
    /* From pageable memory it may return before the data arrives, and MPI wants it there. Not the
     whole context: another thread's collective may be waiting in it for a peer's thread. */
    TRY(state.cuMemcpyHtoD((DevicePointer)(size_t)destination, source, bytes));
    TRY(state.cuStreamSynchronize(NULL));
  } else {
    TRY(state.hipMemcpy(destination, source, bytes, kHostToDevice));
  }
}

void memory_read(bool on_device, void* destination, const void* source, size_t bytes) {
  enum { kDeviceToHost = 2 };
  if (bytes == 0) return;
  if (cpu_reaches(on_device)) {
    memcpy(destination, source, bytes);
    return;
  }
  bind();
  if (state.kind == kCuda) {
    TRY(state.cuMemcpyDtoH(destination, (DevicePointer)(size_t)source, bytes));
  } else {
    TRY(state.hipMemcpy(destination, source, bytes, kDeviceToHost));
  }
}

void memory_before_call(unsigned call) {
  const bool odd = call % 2 != 0;
  if (state.kind == kCuda) {
    state.expected_context = odd ? NULL : state.context;
    TRY(state.cuCtxSetCurrent(state.expected_context));
  } else if (state.kind == kHip) {
    state.expected_device = odd ? (state.device + 1) % state.devices : state.device;
    TRY(state.hipSetDevice(state.expected_device));
  }
}

bool memory_left_alone(void) {
  if (state.kind == kCuda) {
    void* context = NULL;
    TRY(state.cuCtxGetCurrent(&context));
    return context == state.expected_context;
  }
  if (state.kind == kHip) {
    int device = -1;
    TRY(state.hipGetDevice(&device));
    return device == state.expected_device;
  }
  return true;
}
