/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Buffers: host, CUDA, HIP (both by dlopen, so one binary runs everywhere), or host memory that a
 * preloaded library declares to be device memory ("hostdevice", for machines without a GPU).
 * Source of the prototypes: CUDA driver API (cuda.h), HIP runtime API (hip_runtime_api.h).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

static enum { kPlain, kCuda, kHip, kNamed } g_api = kPlain;

static struct {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*device)(int*, int);
  int (*name)(char*, int, int);
  int (*driver_version)(int*);
  int (*context_retain)(void**, int);
  int (*context_set)(void*);
  int (*alloc)(uint64_t*, size_t);
  int (*host_alloc)(void**, size_t, unsigned);
  int (*to_device)(uint64_t, const void*, size_t);
  int (*to_host)(void*, uint64_t, size_t);
  int (*stream_create)(void**, unsigned);
  int (*stream_wait)(void*);
  int (*stream_query)(void*);
  int (*module_load)(void**, const void*);
  int (*module_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
} cuda;

static struct {
  int (*device_count)(int*);
  int (*set_device)(int);
  int (*name)(char*, int, int);
  int (*driver_version)(int*);
  int (*alloc)(void**, size_t);
  int (*host_alloc)(void**, size_t, unsigned);
  int (*copy)(void*, const void*, size_t, int);
  int (*stream_create)(void**);
  int (*stream_wait)(void*);
} hip;

static void* (*g_named_alloc)(size_t);

static void check(int code, const char* what) {
  if (code != 0) fail("%s failed with code %d", what, code);
}

void* open_first(const char* const* names) {
  for (; *names; ++names) {
    void* library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
  }
  return NULL;
}

/* ISO C has no conversion from void* to a function pointer; POSIX does. */
static void load(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  if (!symbol) fail("the GPU library has no %s", name);
  memcpy(function, &symbol, sizeof symbol);
}

static bool init_cuda(int local_rank, struct memory_info* info) {
  void* library = open_first((const char* const[]){"libcuda.so.1", NULL});
  if (!library) return false;
  load(library, "cuInit", &cuda.init);
  load(library, "cuDeviceGetCount", &cuda.device_count);
  load(library, "cuDeviceGet", &cuda.device);
  load(library, "cuDeviceGetName", &cuda.name);
  load(library, "cuDriverGetVersion", &cuda.driver_version);
  load(library, "cuDevicePrimaryCtxRetain", &cuda.context_retain);
  load(library, "cuCtxSetCurrent", &cuda.context_set);
  load(library, "cuMemAlloc_v2", &cuda.alloc);
  load(library, "cuMemHostAlloc", &cuda.host_alloc);
  load(library, "cuMemcpyHtoD_v2", &cuda.to_device);
  load(library, "cuMemcpyDtoH_v2", &cuda.to_host);
  load(library, "cuStreamCreate", &cuda.stream_create);
  load(library, "cuStreamSynchronize", &cuda.stream_wait);
  load(library, "cuStreamQuery", &cuda.stream_query);
  load(library, "cuModuleLoadData", &cuda.module_load);
  load(library, "cuModuleGetFunction", &cuda.module_function);
  load(library, "cuLaunchKernel", &cuda.launch);
  if (cuda.init(0) != 0 || cuda.device_count(&info->device_count) != 0) return false;
  if (info->device_count == 0) return false;
  int device = 0, version = 0;
  void* context = NULL;
  info->ordinal = local_rank % info->device_count;
  check(cuda.device(&device, info->ordinal), "cuDeviceGet");
  check(cuda.name(info->name, sizeof info->name, device), "cuDeviceGetName");
  if (cuda.driver_version(&version) == 0)
    snprintf(info->driver, sizeof info->driver, "%d.%d", version / 1000, version % 1000 / 10);
  check(cuda.context_retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuda.context_set(context), "cuCtxSetCurrent");
  info->api = "cuda";
  g_api = kCuda;
  return true;
}

static bool init_hip(int local_rank, struct memory_info* info) {
  void* library =
      open_first((const char* const[]){"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6",
                                       "libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so", NULL});
  if (!library) return false;
  load(library, "hipGetDeviceCount", &hip.device_count);
  load(library, "hipSetDevice", &hip.set_device);
  load(library, "hipDeviceGetName", &hip.name);
  load(library, "hipDriverGetVersion", &hip.driver_version);
  load(library, "hipMalloc", &hip.alloc);
  load(library, "hipHostMalloc", &hip.host_alloc);
  load(library, "hipMemcpy", &hip.copy);
  load(library, "hipStreamCreate", &hip.stream_create);
  load(library, "hipStreamSynchronize", &hip.stream_wait);
  if (hip.device_count(&info->device_count) != 0 || info->device_count == 0) return false;
  int version = 0;
  info->ordinal = local_rank % info->device_count;
  check(hip.set_device(info->ordinal), "hipSetDevice");
  check(hip.name(info->name, sizeof info->name, info->ordinal), "hipDeviceGetName");
  if (hip.driver_version(&version) == 0)
    snprintf(info->driver, sizeof info->driver, "%d.%d", version / 10000000,
             version / 100000 % 100);
  info->api = "hip";
  g_api = kHip;
  return true;
}

void memory_init(enum memory memory, int local_rank, struct memory_info* info) {
  *info = (struct memory_info){.api = "host", .ordinal = -1};
  if (memory == kHost) return;
  if (memory == kHostDevice) {
    void* symbol = dlsym(RTLD_DEFAULT, "tutti_host_device_alloc");
    if (!symbol)
      fail(
          "--memory hostdevice: libtutti-host-device.so is not preloaded; remedy: run it by `tutti "
          "bench --memory hostdevice`");
    memcpy(&g_named_alloc, &symbol, sizeof symbol);
    info->api = "host-device";
    g_api = kNamed;
    return;
  }
  if (!init_cuda(local_rank, info) && !init_hip(local_rank, info))
    fail(
        "--memory device: no GPU: neither libcuda.so.1 nor libamdhip64.so gives a device; remedy: "
        "--memory host");
}

void* memory_alloc(size_t bytes) {
  void* pointer = NULL;
  uint64_t address = 0;
  bytes = bytes ? bytes : 1;
  switch (g_api) {
    case kPlain:
      if (posix_memalign(&pointer, 4096, bytes) != 0) pointer = NULL;
      if (pointer) memset(pointer, 0, bytes); /* Page faults now, not in the first timed call. */
      break;
    case kCuda:
      check(cuda.alloc(&address, bytes), "cuMemAlloc");
      pointer = (void*)(uintptr_t)address;
      break;
    case kHip:
      check(hip.alloc(&pointer, bytes), "hipMalloc");
      break;
    case kNamed:
      pointer = g_named_alloc(bytes);
      break;
  }
  if (!pointer) fail("out of memory: %zu bytes", bytes);
  return pointer;
}

void* memory_alloc_pinned(size_t bytes) {
  void* pointer = NULL;
  bytes = bytes ? bytes : 1;
  if (g_api == kCuda) {
    check(cuda.host_alloc(&pointer, bytes, 1 /* CU_MEMHOSTALLOC_PORTABLE */), "cuMemHostAlloc");
  } else if (g_api == kHip) {
    check(hip.host_alloc(&pointer, bytes, 1 /* hipHostMallocPortable */), "hipHostMalloc");
  } else if (posix_memalign(&pointer, 4096, bytes) != 0) {
    pointer = NULL;
  }
  if (!pointer) fail("out of memory: %zu bytes", bytes);
  memset(pointer, 0, bytes);
  return pointer;
}

void memory_to_device(void* device, const void* host, size_t bytes) {
  if (bytes == 0) return;
  if (g_api == kCuda) {
    check(cuda.to_device((uint64_t)(uintptr_t)device, host, bytes), "cuMemcpyHtoD");
  } else if (g_api == kHip) {
    check(hip.copy(device, host, bytes, 1 /* hipMemcpyHostToDevice */), "hipMemcpy");
  } else {
    memcpy(device, host, bytes);
  }
}

void memory_to_host(void* host, const void* device, size_t bytes) {
  if (bytes == 0) return;
  if (g_api == kCuda) {
    check(cuda.to_host(host, (uint64_t)(uintptr_t)device, bytes), "cuMemcpyDtoH");
  } else if (g_api == kHip) {
    check(hip.copy(host, device, bytes, 2 /* hipMemcpyDeviceToHost */), "hipMemcpy");
  } else {
    memcpy(host, device, bytes);
  }
}

void* memory_stream(void) {
  void* stream = NULL;
  if (g_api == kCuda) check(cuda.stream_create(&stream, 1 /* non-blocking */), "cuStreamCreate");
  if (g_api == kHip) check(hip.stream_create(&stream), "hipStreamCreate");
  return stream;
}

void memory_stream_wait(void* stream) {
  if (g_api == kCuda) check(cuda.stream_wait(stream), "cuStreamSynchronize");
  if (g_api == kHip) check(hip.stream_wait(stream), "hipStreamSynchronize");
}

/* The driver compiles it: no other compiler is needed. Its one store is what a host sees of any
 * kernel; system scope needs sm_70. */
static const char kFloorPtx[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry store_word(.param .u64 word, .param .u64 value) {\n"
    "  .reg .b64 %word, %value;\n"
    "  ld.param.u64 %word, [word];\n"
    "  ld.param.u64 %value, [value];\n"
    "  st.relaxed.sys.global.u64 [%word], %value;\n"
    "  ret;\n"
    "}\n";

/* CUDA_ERROR_NOT_READY, and looks at the word before the stream is asked. */
enum { kCudaNotReady = 600, kFloorLooks = 1 << 16 };

static struct {
  void* kernel;
  void* stream;
  uint64_t* word; /* In host memory, at the same address on the device. */
  uint64_t value;
} g_floor;

bool memory_floor_init(void) {
  void* module = NULL;
  if (g_api != kCuda || cuda.module_load(&module, kFloorPtx) != 0 ||
      cuda.module_function(&g_floor.kernel, module, "store_word") != 0)
    return false;
  g_floor.stream = memory_stream();
  g_floor.word = memory_alloc_pinned(sizeof *g_floor.word);
  return true;
}

void memory_floor_call(void) {
  uint64_t address = (uint64_t)(uintptr_t)g_floor.word;
  uint64_t value = ++g_floor.value;
  void* arguments[] = {&address, &value};
  check(cuda.launch(g_floor.kernel, 1, 1, 1, 1, 1, 1, 0, g_floor.stream, arguments, NULL),
        "cuLaunchKernel");
  for (long looks = 1; __atomic_load_n(g_floor.word, __ATOMIC_ACQUIRE) != value; ++looks) {
    if (looks % kFloorLooks == 0) { /* A kernel that failed never stores. */
      const int code = cuda.stream_query(g_floor.stream);
      if (code != kCudaNotReady) check(code, "the floor's kernel");
      sched_yield();
    }
  }
}
