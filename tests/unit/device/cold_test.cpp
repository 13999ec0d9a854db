// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Before anything is initialised. Each case needs a process of its own, as ctest gives it; run by
// hand, name one with --gtest_filter.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "tables.hpp"

namespace tutti::device::test {
namespace {

TEST(Cold, cuda__open_and_classify_initialise_nothing) {
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  int on_stack = 0;
  EXPECT_EQ(table.api->classify(&on_stack).kind, MemoryKind::kHost);
  EXPECT_EQ(*table.api->device_count(), 0);
  EXPECT_EQ(table.api->current_device(), -1);
  EXPECT_EQ(table.calls("cuInit"), 0);
  EXPECT_EQ(table.calls("cuDevicePrimaryCtxRetain"), 0);
  EXPECT_EQ(table.symbol<int()>("tutti_fake_active_contexts")(), 0);
}

TEST(Cold, cuda__initialize_creates_no_context) {
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  ASSERT_TRUE(table.api->initialize().ok());
  int on_stack = 0;
  EXPECT_EQ(table.api->classify(&on_stack).kind, MemoryKind::kHost);
  EXPECT_EQ(*table.api->device_count(), 4);
  EXPECT_EQ(table.api->current_device(), -1);
  EXPECT_TRUE(table.api->identity(3).ok());
  EXPECT_TRUE(table.api->device_name(3).ok());
  EXPECT_EQ(table.symbol<int()>("tutti_fake_active_contexts")(), 0);
}

TEST(Cold, cuda__calls_before_initialize_say_so) {
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  const Result<Stream> stream = table.api->create_stream(0);
  EXPECT_EQ(stream.status().code(), ErrorCode::kUnavailable);
  EXPECT_NE(stream.status().message().find("CUDA_ERROR_NOT_INITIALIZED"), std::string::npos)
      << stream.status().message();
  EXPECT_EQ(table.calls("cuInit"), 0);
}

TEST(Cold, cuda__a_scope_around_initialize_leaves_the_threads_capture_mode) {
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  {
    const RelaxedCapture relaxed(*table.api);
    ASSERT_TRUE(table.api->initialize().ok());
  }
  int mode = 1;
  ASSERT_EQ(table.symbol<int(int*)>("cuThreadExchangeStreamCaptureMode")(&mode), 0);
  EXPECT_EQ(mode, 0);
}

TEST(Cold, cuda__pinned_memory_does_not_wake_a_device) {
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  ASSERT_TRUE(table.api->initialize().ok());
  EXPECT_EQ(table.api->allocate_pinned(64, Api::kAnyDevice).status().code(),
            ErrorCode::kUnavailable);
  EXPECT_EQ(table.symbol<int()>("tutti_fake_active_contexts")(), 0);
  // The application uses device 2: its context serves, and device 0 stays asleep.
  void* context = nullptr;
  ASSERT_EQ(table.symbol<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 2), 0);
  const Result<void*> pinned = table.api->allocate_pinned(64, Api::kAnyDevice);
  ASSERT_TRUE(pinned.ok()) << pinned.status().message();
  EXPECT_TRUE(table.api->free_pinned(*pinned).ok());
  EXPECT_EQ(table.symbol<int()>("tutti_fake_active_contexts")(), 1);
}

TEST(Cold, cuda__copy_uses_the_owner_of_the_memory) {
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  ASSERT_TRUE(table.api->initialize().ok());
  void* memory = *table.api->allocate_device(3, 64);
  unsigned char sent = 5;
  unsigned char seen = 0;
  ASSERT_TRUE(table.api->copy(memory, &sent, 1).ok());
  ASSERT_TRUE(table.api->copy(&seen, memory, 1).ok());
  EXPECT_EQ(seen, 5);
  EXPECT_EQ(table.symbol<int()>("tutti_fake_active_contexts")(), 1);
  EXPECT_TRUE(table.api->free_device(memory).ok());
}

TEST(Cold, cuda__no_gpu_is_an_error_of_initialize) {
  setenv("FAKE_GPUS", "0", 1);
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  EXPECT_EQ(table.api->initialize().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(*table.api->device_count(), 0);
}

TEST(Cold, cuda__environment_chooses_count_and_failures) {
  setenv("FAKE_GPUS", "2", 1);
  setenv("FAKE_GPU_FAIL", "cuMemAlloc_v2:1", 1);
  const Table table = open_table("cuda");
  ASSERT_NE(table.api, nullptr);
  ASSERT_TRUE(table.api->initialize().ok());
  EXPECT_EQ(*table.api->device_count(), 2);
  const Result<void*> first = table.api->allocate_device(0, 64);
  EXPECT_TRUE(first.ok());
  EXPECT_EQ(table.api->allocate_device(0, 64).status().code(), ErrorCode::kOutOfMemory);
  EXPECT_TRUE(table.api->free_device(*first).ok());
}

TEST(Cold, hip__open_calls_nothing) {
  const Table table = open_table("hip");
  ASSERT_NE(table.api, nullptr);
  EXPECT_EQ(table.calls("hipInit"), 0);
  EXPECT_EQ(table.calls("hipRuntimeGetVersion"), 0);
  EXPECT_EQ(table.calls("hipGetDevice"), 0);
  EXPECT_EQ(table.api->library().find("HIP 6"), std::string::npos);
}

TEST(Cold, hip__no_gpu) {
  setenv("FAKE_GPUS", "0", 1);
  const Table table = open_table("hip");
  ASSERT_NE(table.api, nullptr);
  EXPECT_EQ(*table.api->device_count(), 0);
  int on_stack = 0;
  EXPECT_EQ(table.api->classify(&on_stack).kind, MemoryKind::kHost);
  EXPECT_EQ(table.api->current_device(), -1);
  EXPECT_EQ(table.api->initialize().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(table.symbol<int()>("hipPeekAtLastError")(), 0);
}

TEST(Cold, hip__memory_types_of_rocm_5) {
  setenv("FAKE_HIP_VERSION", "5", 1);
  const Table table = open_table("hip");
  ASSERT_NE(table.api, nullptr);
  void* memory = *table.api->allocate_device(1, 64);
  void* pinned = *table.api->allocate_pinned(64, Api::kAnyDevice);
  EXPECT_EQ(table.api->classify(memory).device, 1);
  EXPECT_EQ(table.api->classify(pinned).kind, MemoryKind::kHost);
  EXPECT_EQ(table.api->classify(&memory).kind, MemoryKind::kHost);
  EXPECT_TRUE(table.api->free_device(memory).ok());
  EXPECT_TRUE(table.api->free_pinned(pinned).ok());
}

TEST(Cold, hip__ipc_flag_of_rocm_5) {
  setenv("FAKE_HIP_VERSION", "5", 1);
  const Table table = open_table("hip");
  ASSERT_NE(table.api, nullptr);
  void* memory = *table.api->allocate_device(1, 64);
  const IpcHandle handle = *table.api->export_memory(memory);
  // Both flags are tried; then the fake says, like the real one, that a process does not open
  // its own handle.
  const Result<void*> opened = table.api->open_memory(1, handle);
  EXPECT_NE(opened.status().message().find("hipErrorInvalidContext"), std::string::npos)
      << opened.status().message();
  EXPECT_EQ(table.calls("hipIpcOpenMemHandle"), 2);
  EXPECT_TRUE(table.api->free_device(memory).ok());
}

TEST(Cold, hip__shared_memory_of_rocm_5_is_fine_grained) {
  setenv("FAKE_HIP_VERSION", "5", 1);
  const Table table = open_table("hip");
  ASSERT_NE(table.api, nullptr);
  void* memory = *table.api->allocate_shared(1, 64, Sharing::kIpc);
  EXPECT_EQ(table.symbol<unsigned(const void*)>("tutti_fake_malloc_flags")(memory), 1U);
  EXPECT_EQ(table.symbol<int()>("hipPeekAtLastError")(), 0);
  EXPECT_TRUE(table.api->free_device(memory).ok());
}

/// The fake under the same name in `directory`, without one of its symbols.
std::string double_without(const std::string& directory, const std::string& symbol) {
  std::ifstream input(TUTTI_FAKE_HIP, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  const std::string name = '\0' + symbol + '\0';
  std::size_t found = 0;
  for (std::size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + 1)) {
    bytes[at + symbol.size()] = '?';
    ++found;
  }
  EXPECT_GT(found, 0U);
  std::string file = directory + "/libamdhip64.so.6";
  std::ofstream(file, std::ios::binary) << bytes;
  return file;
}

TEST(Cold, hip__a_library_without_a_call_for_shared_memory_is_reported) {
  std::string directory = testing::TempDir() + "tutti-hip-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string log_file = directory + "/log";
  const std::string file = double_without(directory, "hipExtMallocWithFlags");
  configure_log(LogLevel::kWarn, log_file);
  Table table;
  table.name = "hip";
  table.library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(table.library, nullptr) << dlerror();
  OpenReport report;
  table.api = open("hip", &report);
  ASSERT_NE(table.api, nullptr) << report.reason;
  // The application's own error is left alone.
  EXPECT_NE(table.symbol<int(int)>("hipSetDevice")(99), 0);
  const Result<void*> memory = table.api->allocate_shared(1, 64, Sharing::kIpc);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(table.symbol<int()>("hipPeekAtLastError")(), 101);
  EXPECT_EQ(table.calls("hipMalloc"), 1);
  EXPECT_TRUE(table.api->free_device(*memory).ok());
  std::ifstream log(log_file);
  const std::string said{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  EXPECT_NE(said.find("the library has no hipExtMallocWithFlags"), std::string::npos) << said;
  configure_log(LogLevel::kWarn, "");
  std::filesystem::remove_all(directory);
}

TEST(Cold, open__missing_libraries_are_named) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr ||
      dlopen("libamdhip64.so.6", RTLD_LAZY) != nullptr) {
    GTEST_SKIP() << "this machine has a GPU library";
  }
  OpenReport report;
  EXPECT_EQ(open("cuda", &report), nullptr);
  EXPECT_EQ(report.taken, "none");
  EXPECT_NE(report.reason.find("libcuda.so.1"), std::string::npos) << report.reason;
  EXPECT_EQ(open("hip", &report), nullptr);
  EXPECT_NE(report.reason.find("libamdhip64.so"), std::string::npos) << report.reason;
  EXPECT_EQ(open("auto", &report), nullptr);
  EXPECT_NE(report.reason.find("libcuda.so.1"), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find("libamdhip64.so"), std::string::npos) << report.reason;
}

TEST(Cold, host__exit_ends_streams_that_hold_work) {
  // The process ends with a busy stream, a stream that waits for it, and work that never ran.
  EXPECT_EXIT(
      {
        const auto api = open("host", nullptr);
        Stream busy = *api->create_stream(0);
        Stream waiting = *api->create_stream(1);
        Event event = *api->create_event(0);
        tutti_host_device_enqueue(
            busy, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); },
            nullptr);
        static int never = 0;
        tutti_host_device_enqueue(
            busy, [](void* value) { *static_cast<int*>(value) = 1; }, &never);
        (void)api->record_event(event, busy).ok();
        (void)api->stream_wait_event(waiting, event).ok();
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace tutti::device::test
