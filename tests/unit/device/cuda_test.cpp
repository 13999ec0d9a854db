// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What is CUDA's own: contexts, its failures, streams of the application.
#include <functional>
#include <vector>

#include "device/driver_cuda.hpp"
#include "support/host_device/host_module.hpp"
#include "tables.hpp"

namespace tutti::device::test {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (wants_real_cuda()) {
      GTEST_SKIP() << "needs the fake";
    }
    table_ = open_table("cuda");
    ASSERT_NE(table_.api, nullptr);
    table_.fail("");
    ASSERT_TRUE(api().initialize().ok());
  }
  Api& api() { return *table_.api; }
  template <class F>
  F* symbol(const char* name) {
    return table_.symbol<F>(name);
  }
  Table table_;
};

constexpr HostFunction kFunctions[] = {{"f", [](const HostBlock&, void**) {}, nullptr, 0}};
const HostModule kModule{.functions = kFunctions, .function_count = 1};

TEST_F(Cuda, is_in_use__from_when_the_driver_is_initialised) {
  table_.fail("cuCtxGetCurrent=3");  // CUDA_ERROR_NOT_INITIALIZED
  EXPECT_FALSE(api().is_in_use());
  table_.fail("");
  EXPECT_TRUE(api().is_in_use());
  table_.fail("cuCtxGetCurrent=4");  // CUDA_ERROR_DEINITIALIZED
  EXPECT_TRUE(api().is_in_use());
  table_.fail("");
}

TEST_F(Cuda, check__every_failure_is_a_status_with_the_library_words) {
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
      {"cuInit", [&] { return api().initialize(); }},
      {"cuDeviceGetCount", [&] { return api().device_count().status(); }},
      {"cuDeviceGet", [&] { return api().device_name(0).status(); }},
      {"cuDeviceGetName", [&] { return api().device_name(0).status(); }},
      {"cuDeviceGetUuid_v2", [&] { return api().identity(0).status(); }},
      {"cuCtxPushCurrent_v2", [&] { return api().create_stream(1).status(); }},
      {"cuCtxGetStreamPriorityRange", [&] { return api().create_stream(1).status(); }},
      {"cuStreamCreateWithPriority", [&] { return api().create_stream(1).status(); }},
      {"cuCtxGetCurrent", [&] { return api().copy(memory, pinned, 64); }},
      {"cuMemcpy", [&] { return api().copy(memory, pinned, 64); }},
      {"cuStreamSynchronize", [&] { return api().copy(memory, pinned, 64); }},
      {"cuMemcpyAsync", [&] { return api().copy_async(memory, pinned, 64, stream); }},
      {"cuMemsetD8Async", [&] { return api().fill_async(memory, 0, 64, stream); }},
      {"cuStreamQuery", [&] { return api().stream_done(stream).status(); }},
      {"cuStreamSynchronize", [&] { return api().wait_stream(stream); }},
      {"cuCtxSynchronize", [&] { return api().wait_device(1); }},
      {"cuEventCreate", [&] { return api().create_event(1).status(); }},
      {"cuEventRecord", [&] { return api().record_event(event, stream); }},
      {"cuEventQuery", [&] { return api().event_done(event).status(); }},
      {"cuStreamWaitEvent", [&] { return api().stream_wait_event(stream, event); }},
      {"cuMemHostAlloc", [&] { return api().allocate_pinned(64, Api::kAnyDevice).status(); }},
      {"cuMemAlloc_v2", [&] { return api().allocate_device(1, 64).status(); }},
      {"cuIpcGetMemHandle", [&] { return api().export_memory(memory).status(); }},
      {"cuIpcOpenMemHandle_v2", [&] { return api().open_memory(1, IpcHandle{}).status(); }},
      {"cuIpcCloseMemHandle", [&] { return api().close_memory(memory); }},
      {"cuModuleLoadData", [&] { return api().load_module(1, &kModule).status(); }},
      {"cuModuleGetFunction", [&] { return api().find_function(module, "f").status(); }},
      {"cuLaunchKernel", [&] { return api().launch(function, shape, stream, nullptr); }},
  };
  for (const Case& one : cases) {
    table_.fail(one.symbol);
    const Status status = one.call();
    EXPECT_FALSE(status.ok()) << one.symbol;
    EXPECT_GE(table_.calls(one.symbol), 1) << one.symbol;
    EXPECT_NE(status.message().find("CUDA_ERROR_"), std::string::npos) << status.message();
    const bool allocates = std::string(one.symbol).find("Alloc") != std::string::npos;
    EXPECT_EQ(status.code(), allocates ? ErrorCode::kOutOfMemory : ErrorCode::kLibraryFailed)
        << status.message();
    table_.fail("");
    EXPECT_EQ(api().current_device(), -1) << one.symbol;
    EXPECT_EQ(api().classify(memory).device, 1) << one.symbol;
  }
  // A failing free is an error, and the object stays with the library.
  for (const auto& [name, call] :
       std::vector<Case>{{"cuStreamDestroy_v2", [&] { return api().destroy_stream(stream); }},
                         {"cuEventDestroy_v2", [&] { return api().destroy_event(event); }},
                         {"cuMemFreeHost", [&] { return api().free_pinned(pinned); }},
                         {"cuMemFree_v2", [&] { return api().free_device(memory); }},
                         {"cuModuleUnload", [&] { return api().unload_module(module); }}}) {
    table_.fail(name);
    EXPECT_EQ(call().code(), ErrorCode::kLibraryFailed) << name;
    table_.fail("");
  }
}

TEST_F(Cuda, check__codes_say_what_kind_of_failure) {
  table_.fail("cuInit=100");
  EXPECT_EQ(api().initialize().code(), ErrorCode::kUnavailable);
  table_.fail("cuMemAlloc_v2=2");
  EXPECT_EQ(api().allocate_device(0, 64).status().code(), ErrorCode::kOutOfMemory);
  table_.fail("cuMemAlloc_v2=801");
  EXPECT_EQ(api().allocate_device(0, 64).status().code(), ErrorCode::kUnsupported);
  table_.fail("");
}

TEST_F(Cuda, free__a_driver_that_is_gone_is_ignored) {
  Stream stream = *api().create_stream(0);
  Event event = *api().create_event(0);
  void* memory = *api().allocate_device(0, 64);
  void* pinned = *api().allocate_pinned(64, Api::kAnyDevice);
  Module module = *api().load_module(0, &kModule);
  table_.fail(
      "cuCtxGetCurrent=4,cuCtxPushCurrent_v2=4,cuStreamDestroy_v2=4,cuEventDestroy_v2=4,"
      "cuMemFree_v2=4,cuMemFreeHost=4,cuModuleUnload=4");
  EXPECT_TRUE(api().destroy_stream(stream).ok());
  EXPECT_TRUE(api().destroy_event(event).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
  EXPECT_TRUE(api().free_pinned(pinned).ok());
  EXPECT_TRUE(api().unload_module(module).ok());
  EXPECT_FALSE(api().create_stream(0).ok());
  table_.fail("");
}

TEST_F(Cuda, concurrent_processors__are_those_of_the_multi_process_service) {
  const auto mps = symbol<void(int)>("tutti_fake_mps");
  EXPECT_EQ(*api().concurrent_processors(0), 0);
  mps(33);  // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25
  EXPECT_EQ(*api().concurrent_processors(0), 33);
  table_.fail("cuDeviceGetAttribute=1");  // A driver that does not know the attribute.
  EXPECT_EQ(*api().concurrent_processors(0), 0);
  table_.fail("");
  mps(0);
  EXPECT_FALSE(api().concurrent_processors(-1).ok());
}

TEST_F(Cuda, classify__any_error_is_host) {
  void* memory = *api().allocate_device(2, 64);
  for (const char* code : {"1", "3", "4", "201", "999"}) {
    table_.fail(std::string("cuPointerGetAttributes=") + code);
    EXPECT_EQ(api().classify(memory).kind, MemoryKind::kHost) << code;
    EXPECT_EQ(table_.calls("cuPointerGetAttributes"), 1);
  }
  table_.fail("");
  EXPECT_EQ(api().classify(memory).device, 2);
  EXPECT_TRUE(api().free_device(memory).ok());
}

TEST_F(Cuda, classify__managed_memory_is_host) {
  const Result<CurrentDevice> scope = CurrentDevice::set(api(), 0);
  cuda::DevicePointer managed = 0;
  ASSERT_EQ(symbol<int(cuda::DevicePointer*, std::size_t, unsigned)>("cuMemAllocManaged")(&managed,
                                                                                          4096, 1),
            0);
  EXPECT_EQ(api().classify(reinterpret_cast<void*>(managed + 100)).kind, MemoryKind::kHost);
  ASSERT_EQ(symbol<int(cuda::DevicePointer)>("cuMemFree_v2")(managed), 0);
}

TEST_F(Cuda, classify__memory_of_another_context_is_foreign) {
  const auto push = symbol<int(cuda::Context)>("cuCtxPushCurrent_v2");
  const auto pop = symbol<int(cuda::Context*)>("cuCtxPopCurrent_v2");
  const auto allocate = symbol<int(cuda::DevicePointer*, std::size_t)>("cuMemAlloc_v2");
  cuda::Context popped = nullptr;
  const auto memory_of = [&](cuda::Context context) {
    cuda::DevicePointer memory = 0;
    EXPECT_EQ(push(context), 0);
    EXPECT_EQ(allocate(&memory, 64), 0);
    EXPECT_EQ(pop(&popped), 0);
    return reinterpret_cast<void*>(memory);
  };
  void* const foreign = memory_of(symbol<cuda::Context(int)>("tutti_fake_new_context")(2));
  const Table fresh = open_table("cuda");
  const int active = symbol<int()>("tutti_fake_active_contexts")();
  EXPECT_TRUE(fresh.api->classify(foreign).is_foreign);
  EXPECT_EQ(fresh.api->classify(foreign).device, 2);
  EXPECT_FALSE(fresh.api->classify(foreign).is_usable_on(2));
  EXPECT_EQ(symbol<int()>("tutti_fake_active_contexts")(), active);  // None is made for asking.

  // The application's primary context, before the table has it, and after a reset of the device.
  cuda::Context primary = nullptr;
  const auto retain = symbol<int(cuda::Context*, int)>("cuDevicePrimaryCtxRetain");
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_EQ(retain(&primary, 2), 0);
    void* const own = memory_of(primary);
    EXPECT_TRUE(fresh.api->classify(own).is_usable_on(2));
    EXPECT_TRUE(fresh.api->classify(foreign).is_foreign);
    table_.fail("");
    EXPECT_TRUE(fresh.api->classify(own).is_usable_on(2));
    EXPECT_EQ(table_.calls("cuPointerGetAttributes"), 1);
    EXPECT_EQ(table_.calls("cuDevicePrimaryCtxGetState"), 0);  // Asked once.
    symbol<void(int)>("tutti_fake_reset_device")(2);
  }
  // Mapped memory is of no context.
  const Result<void*> mapped = api().allocate_shared(2, 64, Sharing::kDescriptor);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_TRUE(fresh.api->classify(*mapped).is_usable_on(2));
  EXPECT_TRUE(api().free_device(*mapped).ok());
}

TEST_F(Cuda, allocate_pinned__is_of_a_primary_context) {
  const auto context_of = symbol<cuda::Context(void*)>("tutti_fake_context");
  cuda::Context primary = nullptr;
  ASSERT_EQ(symbol<int(cuda::Context*, int)>("cuDevicePrimaryCtxRetain")(&primary, 2), 0);
  const cuda::Context other = symbol<cuda::Context(int)>("tutti_fake_new_context")(2);
  ASSERT_EQ(symbol<int(cuda::Context)>("cuCtxPushCurrent_v2")(other), 0);
  void* const named = *api().allocate_pinned(64, 2);
  EXPECT_EQ(context_of(named), primary);
  void* const any = *api().allocate_pinned(64, Api::kAnyDevice);
  EXPECT_NE(context_of(any), other);
  EXPECT_TRUE(api().free_pinned(named).ok());
  EXPECT_TRUE(api().free_pinned(any).ok());
  cuda::Context popped = nullptr;
  ASSERT_EQ(symbol<int(cuda::Context*)>("cuCtxPopCurrent_v2")(&popped), 0);
  EXPECT_EQ(popped, other);
}

TEST_F(Cuda, stream_device__is_the_streams_or_the_current_one) {
  void* stream = nullptr;
  {
    const Result<CurrentDevice> scope = CurrentDevice::set(api(), 3);
    ASSERT_EQ(symbol<int(void**, unsigned)>("cuStreamCreate")(&stream, 0), 0);
  }
  EXPECT_EQ(api().stream_device(stream), 3);
  EXPECT_EQ(api().stream_device(nullptr), -1);
  const Result<CurrentDevice> scope = CurrentDevice::set(api(), 1);
  EXPECT_EQ(api().stream_device(stream), 3);
  for (const std::uintptr_t handle : {0, 1, 2}) {
    EXPECT_EQ(api().stream_device(reinterpret_cast<Stream>(handle)), 1);
    EXPECT_TRUE(api().check_stream(reinterpret_cast<Stream>(handle), 1).ok());
  }
  EXPECT_TRUE(api().destroy_stream(stream).ok());
}

TEST_F(Cuda, primary__retained_once_and_released) {
  const auto active = symbol<int()>("tutti_fake_active_contexts");
  const int before = active();
  {
    const Table other = open_table("cuda");
    table_.fail("");
    for (int i = 0; i < 3; ++i) {
      Stream stream = *other.api->create_stream(3);
      EXPECT_TRUE(other.api->destroy_stream(stream).ok());
    }
    EXPECT_EQ(table_.calls("cuDevicePrimaryCtxRetain"), 1);
    EXPECT_EQ(active(), before + 1);
  }
  EXPECT_EQ(active(), before);
}

TEST_F(Cuda, scope__no_push_when_the_context_is_current) {
  Stream stream = *api().create_stream(1);
  const Result<CurrentDevice> scope = CurrentDevice::set(api(), 1);
  table_.fail("");
  ASSERT_TRUE(api().wait_stream(stream).ok());
  EXPECT_EQ(table_.calls("cuCtxPushCurrent_v2"), 0);
  Stream other = *api().create_stream(2);
  EXPECT_EQ(table_.calls("cuCtxPushCurrent_v2"), 1);
  EXPECT_EQ(table_.calls("cuCtxPopCurrent_v2"), 1);
  EXPECT_TRUE(api().destroy_stream(stream).ok());
  EXPECT_TRUE(api().destroy_stream(other).ok());
}

TEST_F(Cuda, push__a_reset_device_is_retained_again) {
  Stream before = *api().create_stream(2);
  EXPECT_TRUE(api().destroy_stream(before).ok());
  symbol<void(int)>("tutti_fake_reset_device")(2);
  const Result<Stream> after = api().create_stream(2);
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_TRUE(api().wait_stream(*after).ok());
  EXPECT_TRUE(api().destroy_stream(*after).ok());
  EXPECT_EQ(api().current_device(), -1);
}

TEST_F(Cuda, enter_stream__takes_a_stream_of_the_application) {
  void* stream = nullptr;
  {
    const Result<CurrentDevice> scope = CurrentDevice::set(api(), 3);
    ASSERT_EQ(symbol<int(void**, unsigned)>("cuStreamCreate")(&stream, 0), 0);
  }
  unsigned char* memory = static_cast<unsigned char*>(*api().allocate_device(3, 64));
  ASSERT_TRUE(api().fill_async(memory, 7, 64, stream).ok());
  ASSERT_TRUE(api().wait_stream(stream).ok());
  unsigned char seen = 0;
  ASSERT_TRUE(api().copy(&seen, memory + 63, 1).ok());
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(api().current_device(), -1);
  EXPECT_TRUE(api().destroy_stream(stream).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
  int not_a_stream = 0;
  EXPECT_FALSE(api().wait_stream(&not_a_stream).ok());
}

TEST_F(Cuda, check_stream__of_another_context_is_refused) {
  const auto push = symbol<int(cuda::Context)>("cuCtxPushCurrent_v2");
  const auto pop = symbol<int(cuda::Context*)>("cuCtxPopCurrent_v2");
  const cuda::Context other = symbol<cuda::Context(int)>("tutti_fake_new_context")(2);
  EXPECT_TRUE(api().check_stream(nullptr, 2).ok());
  void* stream = nullptr;
  ASSERT_EQ(push(other), 0);
  ASSERT_EQ(symbol<int(void**, unsigned)>("cuStreamCreate")(&stream, 0), 0);
  // What the driver would say, too late.
  const Event event = *api().create_event(2);
  EXPECT_FALSE(api().record_event(event, stream).ok());
  for (void* const one : {stream, static_cast<void*>(nullptr)}) {
    const Status status = api().check_stream(one, 2);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(status.message().find("other than its primary one"), std::string::npos)
        << status.message();
  }
  // With no stream said, another device's context says nothing about this one's.
  EXPECT_TRUE(api().check_stream(nullptr, 1).ok());
  EXPECT_EQ(api().check_stream(stream, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(api().current_device(), 2);
  cuda::Context popped = nullptr;
  ASSERT_EQ(pop(&popped), 0);
  EXPECT_EQ(popped, other);
  EXPECT_EQ(api().check_stream(stream, 2).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(api().destroy_event(event).ok());
  EXPECT_TRUE(api().destroy_stream(stream).ok());
}

TEST_F(Cuda, check_stream__after_a_reset_of_the_device) {
  Stream before = *api().create_stream(2);
  EXPECT_TRUE(api().destroy_stream(before).ok());
  symbol<void(int)>("tutti_fake_reset_device")(2);
  void* stream = nullptr;
  cuda::Context fresh = nullptr;
  ASSERT_EQ(symbol<int(cuda::Context*, int)>("cuDevicePrimaryCtxRetain")(&fresh, 2), 0);
  ASSERT_EQ(symbol<int(cuda::Context)>("cuCtxPushCurrent_v2")(fresh), 0);
  ASSERT_EQ(symbol<int(void**, unsigned)>("cuStreamCreate")(&stream, 0), 0);
  const Status status = api().check_stream(stream, 2);
  EXPECT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(symbol<int(cuda::Context*)>("cuCtxPopCurrent_v2")(&fresh), 0);
  EXPECT_TRUE(api().destroy_stream(stream).ok());
}

TEST_F(Cuda, make_current__survives_a_callee_that_sets_another_context) {
  const auto set_current = symbol<int(cuda::Context)>("cuCtxSetCurrent");
  const auto get_current = symbol<int(cuda::Context*)>("cuCtxGetCurrent");
  cuda::Context other = nullptr;
  {
    const Result<CurrentDevice> scope = CurrentDevice::set(api(), 2);
    get_current(&other);
  }
  {
    const Result<CurrentDevice> scope = CurrentDevice::set(api(), 1);
    ASSERT_EQ(set_current(other), 0);
    EXPECT_EQ(api().current_device(), 2);
  }
  EXPECT_EQ(api().current_device(), -1);
}

TEST_F(Cuda, identity__is_the_uuid) {
  EXPECT_EQ(*api().identity(2), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-f0f1f2f3f402");
  table_.fail("cuDeviceGetUuid_v2");
  EXPECT_FALSE(api().identity(2).ok());
  table_.fail("");
}

}  // namespace
}  // namespace tutti::device::test
