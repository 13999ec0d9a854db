// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Two steps, the cheap one first:
//  1. The calling thread's stack and the program's brk heap are host memory and cannot become
//     anything else while the caller holds a pointer into them: two comparisons. Small buffers
//     live there; large ones are mapped, and there the question is small beside the copy.
//  2. Ask the library, every time. An answer by address does not keep, in either direction: of
//     allocations of 64 MiB and more the driver gives the addresses back when they are freed, and
//     the next large mapping of the program lands exactly there; a new device allocation lands on
//     host memory that was unmapped. Both were seen at the first try (H200, driver of CUDA 13.0),
//     and nobody tells us of the application's frees. The question costs 40 to 160 ns there, and
//     5 where nobody has initialised the driver: in programs that use no GPU.
#include "device/pointer_kind.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

extern "C" {
[[gnu::weak]] extern void* __curbrk;  // NOLINT: glibc's name.
}

namespace tutti::device {
namespace {

struct StackRange {
  std::uintptr_t low = 1;  // Empty when unknown.
  std::uintptr_t top = 0;
};

/// The calling thread's stack. At most 8 MiB of it: with `ulimit -s unlimited` the main thread's
/// lower end means nothing.
StackRange find_stack() {
  constexpr std::uintptr_t kBytesMax = std::uintptr_t{8} << 20;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return {};
  }
  void* low = nullptr;
  std::size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  if (!known) {
    return {};
  }
  const std::uintptr_t top = reinterpret_cast<std::uintptr_t>(low) + bytes;
  return {bytes > kBytesMax ? top - kBytesMax : top - bytes, top};
}

/// Where the brk heap ends now. The C library's own variable where it has one: UCX, which MPI
/// libraries load, takes sbrk() over and asks the kernel each time, 0.5 us.
std::uintptr_t heap_end() {
  return reinterpret_cast<std::uintptr_t>(&__curbrk != nullptr ? __curbrk : sbrk(0));
}

/// Where the brk heap starts; UINTPTR_MAX (no heap) when unknown. Field 47 of proc(5)'s stat;
/// counted behind the last ')', because the second field is the program's name. None either where
/// the kernel's end is another one: after a restart from a checkpoint it may be any mapping.
std::uintptr_t find_heap_start() {
  if (heap_end() != static_cast<std::uintptr_t>(syscall(SYS_brk, 0))) {
    return UINTPTR_MAX;
  }
  std::FILE* file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) {
    return UINTPTR_MAX;
  }
  char text[2048];
  const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* field = std::strrchr(text, ')');
  for (int number = 2; field != nullptr && number < 47; ++number) {
    field = std::strchr(field + 1, ' ');
  }
  unsigned long long start = 0;
  if (field == nullptr || std::sscanf(field, " %llu", &start) != 1 || start == 0) {
    return UINTPTR_MAX;
  }
  return start;
}

/// Initial-exec: as mpi/comm_state.hpp's.
thread_local constinit StackRange t_stack __attribute__((tls_model("initial-exec")));
thread_local constinit bool t_has_stack __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

bool is_surely_host(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (!t_has_stack) [[unlikely]] {
    t_stack = find_stack();
    t_has_stack = true;
  }
  // Only what lies above this frame, and only if this frame lies on the stack we know: a
  // coroutine's stack is memory like any other.
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (frame >= t_stack.low && address >= frame && address < t_stack.top) {
    return true;
  }
  static const std::uintptr_t heap_start = find_heap_start();
  return address == 0 || (address >= heap_start && address < heap_end());
}

PointerInfo kind_of_pointer(Api* api, const void* pointer) {
  const bool is_known = api == nullptr || is_surely_host(pointer) || !api->is_in_use();
  return is_known ? PointerInfo() : api->classify(pointer);
}

bool is_host(Api* api, const void* pointer) {
  return api == nullptr || is_surely_host(pointer) || !api->is_in_use() ||
         api->classify(pointer).kind == MemoryKind::kHost;
}

}  // namespace tutti::device
