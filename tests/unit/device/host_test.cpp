// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What is the host device's own: one per process, its address ranges, its life over a fork.
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <vector>

#include "tables.hpp"

namespace tutti::device::test {
namespace {

int thread_count() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    count += entry->d_name[0] != '.';
  }
  closedir(tasks);
  return count;
}

TEST(Host, open__shares_one_device) {
  const auto first = open("host", nullptr);
  const auto second = open("host", nullptr);
  void* memory = *first->allocate_device(3, 100);
  EXPECT_EQ(second->classify(memory).device, 3);
  Stream stream = *first->create_stream(3);
  ASSERT_TRUE(second->fill_async(memory, 1, 100, stream).ok());
  ASSERT_TRUE(second->wait_stream(stream).ok());
  EXPECT_EQ(static_cast<unsigned char*>(memory)[99], 1);
  EXPECT_TRUE(second->destroy_stream(stream).ok());
  EXPECT_TRUE(second->free_device(memory).ok());
  EXPECT_EQ(first->classify(memory).kind, MemoryKind::kHost);
}

TEST(Host, tutti_host_device_open__refuses_another_build) {
  EXPECT_EQ(tutti_host_device_open("0.1.0-another"), nullptr);
}

TEST(Host, tutti_host_device_alloc__uses_the_current_ordinal) {
  const auto api = open("host", nullptr);
  void* plain = tutti_host_device_alloc(64);
  EXPECT_EQ(api->classify(plain).device, 0);
  {
    const Result<CurrentDevice> scope = CurrentDevice::set(*api, 5);
    void* other = tutti_host_device_alloc(64);
    EXPECT_EQ(api->classify(other).device, 5);
    tutti_host_device_free(other);
    EXPECT_EQ(api->classify(other).kind, MemoryKind::kHost);
  }
  EXPECT_EQ(tutti_host_device_alloc(0), nullptr);
  tutti_host_device_free(plain);
  tutti_host_device_free(nullptr);
  int on_stack = 1;
  tutti_host_device_free(&on_stack);
  EXPECT_EQ(on_stack, 1);
}

TEST(Host, tutti_host_device_range__names_origin_and_base) {
  const auto api = open("host", nullptr);
  auto* memory = static_cast<char*>(*api->allocate_device(1, 1000));
  auto* pinned = static_cast<char*>(*api->allocate_pinned(1000, Api::kAnyDevice));
  const HostMemoryRange range = tutti_host_device_range(memory + 999);
  EXPECT_EQ(range.origin, HostMemoryOrigin::kAllocated);
  EXPECT_EQ(range.base, memory);
  EXPECT_EQ(range.bytes, 1000u);
  EXPECT_EQ(range.device, 1);
  EXPECT_EQ(tutti_host_device_range(memory + 1000).origin, HostMemoryOrigin::kUnknown);
  EXPECT_EQ(tutti_host_device_range(pinned + 1).origin, HostMemoryOrigin::kPinned);
  EXPECT_EQ(tutti_host_device_range(&range).origin, HostMemoryOrigin::kUnknown);
  EXPECT_TRUE(api->free_device(memory).ok());
  EXPECT_TRUE(api->free_pinned(pinned).ok());
}

TEST(Host, memory__ordinals_never_share_two_mebibytes) {
  const auto api = open("host", nullptr);
  std::set<std::uintptr_t> pages[2];
  std::vector<void*> live;
  for (int i = 0; i < 300; ++i) {
    live.push_back(*api->allocate_device(i % 2, 3000));
    pages[i % 2].insert(reinterpret_cast<std::uintptr_t>(live.back()) >> 21);
  }
  for (const std::uintptr_t page : pages[0]) {
    EXPECT_EQ(pages[1].count(page), 0u);
  }
  // Pinned and ordinary memory is elsewhere too.
  void* pinned = *api->allocate_pinned(4096, Api::kAnyDevice);
  const std::vector<char> ordinary(1 << 20);
  for (const void* pointer :
       {const_cast<const void*>(pinned), static_cast<const void*>(ordinary.data())}) {
    EXPECT_EQ(pages[0].count(reinterpret_cast<std::uintptr_t>(pointer) >> 21), 0u);
    EXPECT_EQ(pages[1].count(reinterpret_cast<std::uintptr_t>(pointer) >> 21), 0u);
  }
  for (void* pointer : live) {
    EXPECT_TRUE(api->free_device(pointer).ok());
  }
  EXPECT_TRUE(api->free_pinned(pinned).ok());
}

TEST(Host, memory__freed_pages_go_back) {
  const auto api = open("host", nullptr);
  constexpr Bytes kBytes = 64 << 20;
  void* memory = *api->allocate_device(6, kBytes);
  std::memset(memory, 1, kBytes);
  ASSERT_TRUE(api->free_device(memory).ok());
  auto* again = static_cast<unsigned char*>(*api->allocate_device(6, kBytes));
  // The same addresses, and the pages are new ones.
  EXPECT_EQ(again, memory);
  EXPECT_EQ(again[0], 0);
  EXPECT_EQ(again[kBytes - 1], 0);
  EXPECT_TRUE(api->free_device(again).ok());
}

TEST(Host, memory__a_neighbour_keeps_its_bytes) {
  const auto api = open("host", nullptr);
  std::vector<unsigned char*> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(static_cast<unsigned char*>(*api->allocate_device(7, 1536)));
    std::memset(blocks.back(), i + 1, 1536);
  }
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    ASSERT_TRUE(api->free_device(blocks[i]).ok());
  }
  for (std::size_t i = 1; i < blocks.size(); i += 2) {
    EXPECT_EQ(blocks[i][0], i + 1);
    EXPECT_EQ(blocks[i][1535], i + 1);
    ASSERT_TRUE(api->free_device(blocks[i]).ok());
  }
}

TEST(Host, destroy_stream__joins_its_thread) {
  const auto api = open("host", nullptr);
  // The first thread of a process may bring others with it (a sanitizer's).
  EXPECT_TRUE(api->destroy_stream(*api->create_stream(0)).ok());
  const int before = thread_count();
  std::vector<Stream> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(*api->create_stream(i));
  }
  EXPECT_EQ(thread_count(), before + 5);
  for (Stream stream : streams) {
    EXPECT_TRUE(api->destroy_stream(stream).ok());
  }
  // The kernel lists a joined thread for a moment longer.
  for (int i = 0; i < 1000 && thread_count() != before; ++i) {
    usleep(1000);
  }
  EXPECT_EQ(thread_count(), before);
}

TEST(Host, destroy_stream__runs_what_is_queued) {
  const auto api = open("host", nullptr);
  Stream stream = *api->create_stream(0);
  int count = 0;
  for (int i = 0; i < 100; ++i) {
    tutti_host_device_enqueue(
        stream, [](void* value) { ++*static_cast<int*>(value); }, &count);
  }
  EXPECT_TRUE(api->destroy_stream(stream).ok());
  EXPECT_EQ(count, 100);
}

TEST(Host, wait_stream__from_its_own_thread_fails) {
  const auto api = open("host", nullptr);
  struct Context {
    Api* api;
    Stream stream;
    bool was_refused = false;
  } context{api.get(), *api->create_stream(0)};
  tutti_host_device_enqueue(
      context.stream,
      [](void* pointer) {
        auto* own = static_cast<Context*>(pointer);
        own->was_refused = !own->api->wait_stream(own->stream).ok() &&
                           !own->api->destroy_stream(own->stream).ok() &&
                           !own->api->wait_device(0).ok();
      },
      &context);
  ASSERT_TRUE(api->wait_stream(context.stream).ok());
  EXPECT_TRUE(context.was_refused);
  EXPECT_TRUE(api->destroy_stream(context.stream).ok());
}

TEST(Host, open_memory__works_in_the_same_process_too) {
  const auto api = open("host", nullptr);
  auto* memory = static_cast<unsigned char*>(*api->allocate_device(0, 5000));
  memory[4999] = 77;
  const IpcHandle handle = *api->export_memory(memory);
  auto* first = static_cast<unsigned char*>(*api->open_memory(1, handle));
  EXPECT_NE(first, memory);
  EXPECT_EQ(first[4999], 77);
  EXPECT_EQ(api->classify(first).device, 1);
  EXPECT_FALSE(api->free_device(first).ok());
  ASSERT_TRUE(api->close_memory(first).ok());
  // The addresses serve the next import of that device.
  EXPECT_EQ(*api->open_memory(1, handle), first);
  ASSERT_TRUE(api->close_memory(first).ok());
  EXPECT_TRUE(api->free_device(memory).ok());
}

TEST(Host, open_memory__a_process_that_has_ended_is_an_error) {
  const auto api = open("host", nullptr);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Result<void*> memory = api->allocate_device(0, 100);
    const Result<IpcHandle> handle = api->export_memory(*memory);
    const bool sent =
        write(pipe_ends[1], &*handle, sizeof *handle) == static_cast<ssize_t>(sizeof *handle);
    _exit(sent ? 0 : 1);
  }
  IpcHandle handle{};
  ASSERT_EQ(read(pipe_ends[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_EQ(state, 0);
  EXPECT_EQ(api->open_memory(0, handle).status().code(), ErrorCode::kUnavailable);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(Host, fork__the_child_has_a_device_of_its_own) {
  const auto api = open("host", nullptr);
  auto* memory = static_cast<unsigned char*>(*api->allocate_device(0, 4096));
  memory[0] = 1;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // What was inherited is host memory; a new allocation does not touch the parent's.
    if (api->classify(memory).kind != MemoryKind::kHost || api->free_device(memory).ok()) {
      _exit(10);
    }
    const Result<void*> own = api->allocate_device(0, 4096);
    if (!own.ok() || api->classify(*own).device != 0) {
      _exit(11);
    }
    std::memset(*own, 9, 4096);
    _exit(0);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
  EXPECT_EQ(memory[0], 1);
  EXPECT_TRUE(api->free_device(memory).ok());
}

TEST(Host, identity__equal_in_another_process) {
  const auto api = open("host", nullptr);
  const std::string here = *api->identity(2);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    _exit(*api->identity(2) == here ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
  EXPECT_EQ(here.rfind("HOST-", 0), 0u);
}

}  // namespace
}  // namespace tutti::device::test
