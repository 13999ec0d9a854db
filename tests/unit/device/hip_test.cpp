// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What is HIP's own: its failures, and the "last error" that belongs to the application.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/driver_hip.hpp"
#include "support/host_device/host_module.hpp"
#include "tables.hpp"

namespace tutti::device::test {
namespace {

class Hip : public testing::Test {
 protected:
  void SetUp() override {
    table_ = open_table("hip");
    ASSERT_NE(table_.api, nullptr);
    table_.fail("");
    ASSERT_TRUE(api().initialize().ok());
  }
  Api& api() { return *table_.api; }
  int last_error() { return table_.symbol<int()>("hipPeekAtLastError")(); }
  Table table_;
};

constexpr HostFunction kFunctions[] = {{"f", [](const HostBlock&, void**) {}, nullptr, 0}};
const HostModule kModule{.functions = kFunctions, .function_count = 1};

TEST_F(Hip, check__every_failure_is_a_status_and_leaves_no_last_error) {
  Stream stream = *api().create_stream(1);
  Event event = *api().create_event(1);
  void* memory = *api().allocate_device(1, 64);
  void* pinned = *api().allocate_pinned(64, Api::kAnyDevice);
  Module module = *api().load_module(1, &kModule);
  Function function = *api().find_function(module, "f");
  const LaunchShape shape;
  struct Case {
    const char* symbol;
    std::function<Status()> call;
  };
  const std::vector<Case> cases = {
      {"hipInit", [&] { return api().initialize(); }},
      {"hipGetDeviceCount", [&] { return api().device_count().status(); }},
      {"hipGetDevice", [&] { return api().create_stream(1).status(); }},
      {"hipSetDevice", [&] { return api().create_stream(1).status(); }},
      {"hipDeviceGet", [&] { return api().device_name(0).status(); }},
      {"hipDeviceGetName", [&] { return api().device_name(0).status(); }},
      {"hipDeviceGetPCIBusId", [&] { return api().identity(0).status(); }},
      {"hipDeviceGetUuid", [&] { return api().identity(0).status(); }},
      {"hipDeviceGetStreamPriorityRange", [&] { return api().create_stream(1).status(); }},
      {"hipStreamCreateWithPriority", [&] { return api().create_stream(1).status(); }},
      {"hipMemcpy", [&] { return api().copy(memory, pinned, 64); }},
      {"hipStreamSynchronize", [&] { return api().copy(memory, pinned, 64); }},
      {"hipMemcpyAsync", [&] { return api().copy_async(memory, pinned, 64, stream); }},
      {"hipMemsetAsync", [&] { return api().fill_async(memory, 0, 64, stream); }},
      {"hipStreamQuery", [&] { return api().stream_done(stream).status(); }},
      {"hipStreamSynchronize", [&] { return api().wait_stream(stream); }},
      {"hipDeviceSynchronize", [&] { return api().wait_device(1); }},
      {"hipEventCreateWithFlags", [&] { return api().create_event(1).status(); }},
      {"hipEventRecord", [&] { return api().record_event(event, stream); }},
      {"hipEventQuery", [&] { return api().event_done(event).status(); }},
      {"hipStreamWaitEvent", [&] { return api().stream_wait_event(stream, event); }},
      {"hipHostMalloc", [&] { return api().allocate_pinned(64, Api::kAnyDevice).status(); }},
      {"hipMalloc", [&] { return api().allocate_device(1, 64).status(); }},
      {"hipExtMallocWithFlags",
       [&] { return api().allocate_shared(1, 64, Sharing::kIpc).status(); }},
      {"hipIpcGetMemHandle", [&] { return api().export_memory(memory).status(); }},
      {"hipIpcOpenMemHandle", [&] { return api().open_memory(1, IpcHandle{}).status(); }},
      {"hipIpcCloseMemHandle", [&] { return api().close_memory(memory); }},
      {"hipModuleLoadData", [&] { return api().load_module(1, &kModule).status(); }},
      {"hipModuleGetFunction", [&] { return api().find_function(module, "f").status(); }},
      {"hipModuleLaunchKernel", [&] { return api().launch(function, shape, stream, nullptr); }},
  };
  for (const Case& one : cases) {
    table_.fail(one.symbol);
    const Status status = one.call();
    EXPECT_FALSE(status.ok()) << one.symbol;
    EXPECT_GE(table_.calls(one.symbol), 1) << one.symbol;
    EXPECT_NE(status.message().find("hipError"), std::string::npos) << status.message();
    const bool allocates = std::string(one.symbol).find("Malloc") != std::string::npos;
    EXPECT_EQ(status.code(), allocates ? ErrorCode::kOutOfMemory : ErrorCode::kLibraryFailed)
        << status.message();
    table_.fail("");
    EXPECT_EQ(last_error(), 0) << one.symbol;
    EXPECT_EQ(api().current_device(), 0) << one.symbol;
  }
  for (const auto& [name, call] :
       std::vector<Case>{{"hipStreamDestroy", [&] { return api().destroy_stream(stream); }},
                         {"hipEventDestroy", [&] { return api().destroy_event(event); }},
                         {"hipHostFree", [&] { return api().free_pinned(pinned); }},
                         {"hipFree", [&] { return api().free_device(memory); }},
                         {"hipModuleUnload", [&] { return api().unload_module(module); }}}) {
    table_.fail(name);
    EXPECT_EQ(call().code(), ErrorCode::kLibraryFailed) << name;
    EXPECT_EQ(last_error(), 0) << name;
    table_.fail("");
  }
}

TEST_F(Hip, done__not_ready_leaves_no_last_error) {
  Stream stream = *api().create_stream(0);
  Event event = *api().create_event(0);
  Gate gate;
  table_.hold(stream, &gate);
  ASSERT_TRUE(api().record_event(event, stream).ok());
  EXPECT_FALSE(*api().stream_done(stream));
  EXPECT_EQ(last_error(), 0);
  EXPECT_FALSE(*api().event_done(event));
  EXPECT_EQ(last_error(), 0);
  gate.open();
  EXPECT_TRUE(api().destroy_stream(stream).ok());
  EXPECT_TRUE(api().destroy_event(event).ok());
}

TEST_F(Hip, classify__a_host_pointer_leaves_no_last_error) {
  int on_stack = 0;
  EXPECT_EQ(api().classify(&on_stack).kind, MemoryKind::kHost);
  EXPECT_EQ(api().classify(nullptr).kind, MemoryKind::kHost);
  EXPECT_EQ(last_error(), 0);
}

TEST_F(Hip, classify__managed_memory_is_host) {
  void* managed = nullptr;
  ASSERT_EQ(table_.symbol<int(void**, std::size_t, unsigned)>("hipMallocManaged")(&managed, 64, 1),
            0);
  EXPECT_EQ(api().classify(managed).kind, MemoryKind::kHost);
  ASSERT_EQ(table_.symbol<int(void*)>("hipFree")(managed), 0);
}

TEST_F(Hip, free__a_runtime_that_is_gone_is_ignored) {
  Stream stream = *api().create_stream(0);
  void* memory = *api().allocate_device(0, 64);
  table_.fail("hipGetDevice=4,hipSetDevice=4,hipStreamDestroy=4,hipFree=4");
  EXPECT_TRUE(api().destroy_stream(stream).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
  EXPECT_EQ(last_error(), 0);
  table_.fail("");
}

// Kernels of one GPU wait for flags that another's write.
TEST_F(Hip, allocate_shared__is_not_cached) {
  const auto flags_of = table_.symbol<unsigned(const void*)>("tutti_fake_malloc_flags");
  const Result<void*> shared = api().allocate_shared(2, 64, Sharing::kIpc);
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(flags_of(*shared), hip::kDeviceMallocUncached);
  EXPECT_EQ(api().classify(*shared).device, 2);
  EXPECT_EQ(api().current_device(), 0);
  EXPECT_TRUE(api().export_memory(*shared).ok());
  EXPECT_TRUE(api().free_device(*shared).ok());
  void* const own = *api().allocate_device(2, 64);
  EXPECT_EQ(flags_of(own), 0U);
  EXPECT_TRUE(api().free_device(own).ok());
  EXPECT_EQ(api().allocate_shared(0, 0, Sharing::kIpc).status().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(api().allocate_shared(0, 64, Sharing::kFabric).status().code(),
            ErrorCode::kUnsupported);
}

TEST_F(Hip, allocate_shared__a_library_that_cannot_is_reported_once) {
  const std::string file = testing::TempDir() + "tutti-hip-" + std::to_string(getpid()) + ".log";
  configure_log(LogLevel::kWarn, file);
  const auto text = [&] {
    std::ifstream input(file);
    return std::string(std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>());
  };
  for (int i = 0; i < 2; ++i) {
    table_.fail("hipExtMallocWithFlags=801");
    const Result<void*> shared = api().allocate_shared(1, 64, Sharing::kIpc);
    ASSERT_TRUE(shared.ok()) << shared.status().message();
    EXPECT_EQ(table_.calls("hipExtMallocWithFlags"), 2);  // Fine-grained memory would do, too.
    EXPECT_EQ(table_.calls("hipMalloc"), 1);
    EXPECT_EQ(last_error(), 0);
    EXPECT_EQ(api().classify(*shared).device, 1);
    table_.fail("");
    EXPECT_TRUE(api().free_device(*shared).ok());
    const std::string said = text();
    const std::size_t first = said.find("memory that GPUs share is cached: hipExtMallocWithFlags");
    EXPECT_NE(first, std::string::npos) << said;
    EXPECT_EQ(said.find("is cached", first + 30), std::string::npos) << said;
  }
  configure_log(LogLevel::kWarn, "");
  std::remove(file.c_str());
}

TEST_F(Hip, identity__holds_uuid_and_bus) {
  // "fake000000000002" in hexadecimal, then the bus id.
  EXPECT_EQ(*api().identity(2), "GPU-66616b65303030303030303030303032-0000:12:00.0");
}

TEST_F(Hip, library__names_the_version_when_it_is_known) {
  EXPECT_NE(api().library().find("libamdhip64.so.6"), std::string::npos) << api().library();
  EXPECT_NE(api().library().find("HIP 6.2"), std::string::npos) << api().library();
}

}  // namespace
}  // namespace tutti::device::test
