// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What every table does alike: device/device.hpp, case by case.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "support/host_device/host_module.hpp"
#include "tables.hpp"

namespace tutti::device::test {
namespace {

class Contract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_ = open_table(GetParam());
    ASSERT_NE(table_.api, nullptr);
    if (table_.library != nullptr) {
      table_.fail("");
    }
    ASSERT_TRUE(api().initialize().ok());
    const Result<int> count = api().device_count();
    ASSERT_TRUE(count.ok());
    ASSERT_GE(*count, 1);
    last_ = std::min(*count, 4) - 1;
  }

  Api& api() { return *table_.api; }
  bool is_real() const { return table_.is_real(); }

  Stream stream(int device = 0) {
    Result<Stream> created = api().create_stream(device);
    EXPECT_TRUE(created.ok()) << created.status().message();
    return created.ok() ? *created : nullptr;
  }
  unsigned char* device_memory(int device, Bytes bytes) {
    Result<void*> memory = api().allocate_device(device, bytes);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? static_cast<unsigned char*>(*memory) : nullptr;
  }
  unsigned char* pinned_memory(Bytes bytes) {
    Result<void*> memory = api().allocate_pinned(bytes, Api::kAnyDevice);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? static_cast<unsigned char*>(*memory) : nullptr;
  }
  static std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
    std::vector<unsigned char> values(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      values[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
    }
    return values;
  }

  Table table_;
  int last_ = 0;  // The highest ordinal that the tests use; 0 on a machine with one GPU.
};

TEST_P(Contract, name__matches_choice) {
  EXPECT_STREQ(api().name(), GetParam());
  EXPECT_FALSE(api().library().empty());
}

TEST_P(Contract, identity__differs_by_device_and_stays) {
  std::set<std::string> seen;
  for (int device = 0; device <= last_; ++device) {
    const Result<std::string> identity = api().identity(device);
    ASSERT_TRUE(identity.ok()) << identity.status().message();
    EXPECT_EQ(*identity, *api().identity(device));
    EXPECT_GE(identity->size(), 16u);
    seen.insert(*identity);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(last_ + 1));
}

TEST_P(Contract, device_name__not_empty_and_bad_ordinal_fails) {
  EXPECT_FALSE(api().device_name(0)->empty());
  EXPECT_FALSE(api().device_name(99).ok());
  EXPECT_FALSE(api().identity(-1).ok());
  // Threads are on no bus; the drivers' devices are each on one of their own.
  const auto first = api().pci_address(0);
  const auto second = api().pci_address(1);
  EXPECT_EQ(first.ok(), std::string(api().name()) != "host");
  if (first.ok()) {
    EXPECT_NE(*first, *second);
    EXPECT_NE(std::string::npos, first->find(':'));
  }
  EXPECT_FALSE(api().create_stream(99).ok());
  EXPECT_FALSE(api().create_event(-1).ok());
  EXPECT_FALSE(api().allocate_device(99, 64).ok());
  EXPECT_FALSE(api().wait_device(99).ok());
  EXPECT_FALSE(api().make_current(99).ok());
}

TEST_P(Contract, classify__interior_pointers_and_ordinal) {
  constexpr Bytes kBytes = 3 << 20;
  for (int device = 0; device <= last_; ++device) {
    unsigned char* memory = device_memory(device, kBytes);
    for (const Bytes offset : {Bytes{0}, Bytes{1}, Bytes{4097}, kBytes / 2, kBytes - 1}) {
      const PointerInfo info = api().classify(memory + offset);
      EXPECT_EQ(info.kind, MemoryKind::kDevice) << offset;
      EXPECT_EQ(info.device, device) << offset;
    }
    EXPECT_TRUE(api().free_device(memory).ok());
  }
}

TEST_P(Contract, warp_threads__of_the_kernels) {
  const bool is_host = api().computes_on_cpu();
  EXPECT_EQ(is_host, table_.name == "host");
  EXPECT_EQ(api().warp_threads(), is_host ? 1 : table_.name == "hip" ? 64 : 32);
  EXPECT_EQ(api().kernel_image() != nullptr, is_host);
}

TEST_P(Contract, classify__host_memory) {
  ASSERT_NE(device_memory(0, 64), nullptr);
  int on_stack = 0;
  static int is_static = 0;
  const auto on_heap = std::make_unique<int>(0);
  unsigned char* pinned = pinned_memory(4096);
  for (const void* pointer :
       {static_cast<const void*>(&on_stack), static_cast<const void*>(&is_static),
        static_cast<const void*>(on_heap.get()), static_cast<const void*>(pinned),
        static_cast<const void*>(pinned + 4095), static_cast<const void*>(nullptr),
        reinterpret_cast<const void*>(1), reinterpret_cast<const void*>(-1)}) {
    EXPECT_EQ(api().classify(pointer).kind, MemoryKind::kHost) << pointer;
    EXPECT_EQ(api().classify(pointer).device, -1) << pointer;
  }
  EXPECT_TRUE(api().free_pinned(pinned).ok());
}

TEST_P(Contract, classify__host_after_free) {
  unsigned char* memory = device_memory(0, 1 << 20);
  ASSERT_EQ(api().classify(memory).kind, MemoryKind::kDevice);
  ASSERT_TRUE(api().free_device(memory).ok());
  EXPECT_EQ(api().classify(memory).kind, MemoryKind::kHost);
}

TEST_P(Contract, copy__round_trip_over_two_devices) {
  for (const Bytes bytes : {Bytes{1}, Bytes{511}, Bytes{4096}, (Bytes{1} << 20) + 3}) {
    const auto sent = pattern(bytes, static_cast<unsigned>(bytes));
    std::vector<unsigned char> received(bytes, 0);
    unsigned char* first = device_memory(0, bytes);
    unsigned char* second = device_memory(last_, bytes);
    ASSERT_TRUE(api().copy(first, sent.data(), bytes).ok());
    ASSERT_TRUE(api().copy(second, first, bytes).ok());
    ASSERT_TRUE(api().copy(received.data(), second, bytes).ok());
    EXPECT_EQ(received, sent) << bytes;
    EXPECT_TRUE(api().free_device(first).ok());
    EXPECT_TRUE(api().free_device(second).ok());
  }
}

TEST_P(Contract, copy__host_to_host_and_zero_bytes) {
  const auto sent = pattern(100, 3);
  std::vector<unsigned char> received(100, 0);
  EXPECT_TRUE(api().copy(received.data(), sent.data(), 100).ok());
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(api().copy(nullptr, nullptr, 0).ok());
}

TEST_P(Contract, copy__device_to_device_is_complete_on_return) {
  constexpr Bytes kBytes = 8 << 20;
  unsigned char* from = device_memory(0, kBytes);
  unsigned char* to = device_memory(0, kBytes);
  unsigned char* result = pinned_memory(kBytes);
  Stream reader = stream(0);
  for (unsigned round = 0; round < 5; ++round) {
    const auto sent = pattern(kBytes, round);
    ASSERT_TRUE(api().copy(from, sent.data(), kBytes).ok());
    ASSERT_TRUE(api().copy(to, from, kBytes).ok());
    // A non-blocking stream has no order to the copy but its completion.
    ASSERT_TRUE(api().copy_async(result, to, kBytes, reader).ok());
    ASSERT_TRUE(api().wait_stream(reader).ok());
    EXPECT_EQ(std::memcmp(result, sent.data(), kBytes), 0) << round;
  }
  EXPECT_TRUE(api().destroy_stream(reader).ok());
  EXPECT_TRUE(api().free_device(from).ok());
  EXPECT_TRUE(api().free_device(to).ok());
  EXPECT_TRUE(api().free_pinned(result).ok());
}

TEST_P(Contract, copy_async__does_not_wait_for_its_stream) {
  if (is_real()) {
    GTEST_SKIP() << "needs a stream that a test can hold: only the host device and the fakes";
  }
  unsigned char* memory = device_memory(0, 64);
  unsigned char* pinned = pinned_memory(64);
  Stream queue = stream(0);
  std::memset(pinned, 1, 64);
  ASSERT_TRUE(api().copy(memory, pinned, 64).ok());
  std::memset(pinned, 2, 64);
  Gate gate;
  table_.hold(queue, &gate);
  ASSERT_TRUE(api().copy_async(memory, pinned, 64, queue).ok());
  EXPECT_FALSE(*api().stream_done(queue));
  gate.open();
  ASSERT_TRUE(api().wait_stream(queue).ok());
  EXPECT_TRUE(*api().stream_done(queue));
  unsigned char seen[64];
  ASSERT_TRUE(api().copy(seen, memory, 64).ok());
  EXPECT_EQ(seen[0], 2);
  EXPECT_EQ(seen[63], 2);
  EXPECT_TRUE(api().destroy_stream(queue).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
  EXPECT_TRUE(api().free_pinned(pinned).ok());
}

TEST_P(Contract, stream__keeps_order) {
  constexpr int kRounds = 50;
  constexpr Bytes kBytes = 1024;
  unsigned char* memory = device_memory(last_, kBytes);
  unsigned char* results = pinned_memory(kRounds * kBytes);
  Stream queue = stream(last_);
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(api().fill_async(memory, round, kBytes, queue).ok());
    ASSERT_TRUE(api().copy_async(results + round * kBytes, memory, kBytes, queue).ok());
  }
  ASSERT_TRUE(api().wait_stream(queue).ok());
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_EQ(results[round * kBytes], round);
    EXPECT_EQ(results[round * kBytes + kBytes - 1], round);
  }
  EXPECT_TRUE(api().destroy_stream(queue).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
  EXPECT_TRUE(api().free_pinned(results).ok());
}

TEST_P(Contract, fill_async__last_byte_and_zero_bytes) {
  unsigned char* memory = device_memory(0, 1000);
  Stream queue = stream(0);
  ASSERT_TRUE(api().fill_async(memory, 0x11, 1000, queue).ok());
  ASSERT_TRUE(api().fill_async(memory, 0xab, 999, queue).ok());
  ASSERT_TRUE(api().fill_async(memory, 0x33, 0, queue).ok());
  ASSERT_TRUE(api().wait_stream(queue).ok());
  unsigned char seen[1000];
  ASSERT_TRUE(api().copy(seen, memory, 1000).ok());
  EXPECT_EQ(seen[0], 0xab);
  EXPECT_EQ(seen[998], 0xab);
  EXPECT_EQ(seen[999], 0x11);
  EXPECT_TRUE(api().destroy_stream(queue).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
}

TEST_P(Contract, stream__null_is_refused) {
  unsigned char buffer[8] = {};
  EXPECT_FALSE(api().copy_async(buffer, buffer + 4, 4, nullptr).ok());
  EXPECT_FALSE(api().fill_async(buffer, 0, 4, nullptr).ok());
  EXPECT_FALSE(api().stream_done(nullptr).ok());
  EXPECT_FALSE(api().wait_stream(nullptr).ok());
  EXPECT_FALSE(api().destroy_stream(nullptr).ok());
}

TEST_P(Contract, check_stream__is_of_the_device_of_its_making_where_that_is_known) {
  const Stream stream = *api().create_stream(1);
  EXPECT_TRUE(api().check_stream(stream, 1).ok());
  const Status other = api().check_stream(stream, 0);
  EXPECT_EQ(other.ok(), std::string(api().name()) != "cuda") << other.message();
  EXPECT_TRUE(other.ok() || other.code() == ErrorCode::kInvalidArgument) << other.message();
  EXPECT_TRUE(api().destroy_stream(stream).ok());
}

TEST_P(Contract, default_stream__takes_work_in_order) {
  const auto current = CurrentDevice::set(api(), 0);
  ASSERT_TRUE(current.ok());
  const auto queue = api().default_stream(0);
  ASSERT_TRUE(queue.ok()) << queue.status().message();
  ASSERT_NE(*queue, nullptr);
  EXPECT_EQ(*api().default_stream(0), *queue);
  // HIP itself, and RCCL on it, know it as null.
  EXPECT_EQ(api().native_stream(*queue), std::string(api().name()) == "hip" ? nullptr : *queue);
  unsigned char* memory = device_memory(0, 64);
  Event event = *api().create_event(0);
  EXPECT_TRUE(api().fill_async(memory, 0x33, 64, *queue).ok());
  EXPECT_TRUE(api().fill_async(memory, 0x44, 32, *queue).ok());
  EXPECT_TRUE(api().record_event(event, *queue).ok());
  EXPECT_TRUE(api().stream_wait_event(*queue, event).ok());
  EXPECT_TRUE(api().wait_stream(*queue).ok());
  EXPECT_TRUE(*api().event_done(event));
  unsigned char seen[64] = {};
  ASSERT_TRUE(api().copy(seen, memory, 64).ok());
  EXPECT_EQ(seen[31], 0x44);
  EXPECT_EQ(seen[32], 0x33);
  EXPECT_TRUE(api().destroy_event(event).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
}

TEST_P(Contract, is_capturing__as_the_application_began_and_ended_it) {
  Stream queue = stream(0);
  const auto idle = api().is_capturing(queue);
  ASSERT_TRUE(idle.ok()) << idle.status().message();
  EXPECT_FALSE(*idle);
  if (table_.library == nullptr) {
    return;  // The host device captures nothing; a real driver is the business of tests/c_api.
  }
  const auto capture = table_.symbol<void(void*, int)>("tutti_fake_capture");
  capture(queue, 1);
  EXPECT_TRUE(*api().is_capturing(queue));
  if (table_.name == "cuda") {
    // What would end the capture of a program does not when it is asked for in a relaxed scope.
    EXPECT_FALSE(api().allocate_device(0, 64).ok());
    const RelaxedCapture relaxed(api());
    const auto memory = api().allocate_device(0, 64);
    ASSERT_TRUE(memory.ok()) << memory.status().message();
    EXPECT_TRUE(api().free_device(*memory).ok());
  }
  capture(queue, 0);
  EXPECT_FALSE(*api().is_capturing(queue));
  EXPECT_TRUE(api().destroy_stream(queue).ok());
}

TEST_P(Contract, stream__destroyed_twice_fails) {
  if (is_real()) {
    GTEST_SKIP() << "a real driver may crash on a stale handle";
  }
  Stream queue = stream(0);
  EXPECT_TRUE(api().destroy_stream(queue).ok());
  EXPECT_FALSE(api().destroy_stream(queue).ok());
}

TEST_P(Contract, wait_device__waits_for_every_stream_of_it) {
  if (is_real()) {
    GTEST_SKIP() << "needs a stream that a test can hold: only the host device and the fakes";
  }
  Stream first = stream(last_);
  Stream second = stream(last_);
  Gate gate;
  std::atomic<int> done = 0;
  const auto add_one = [](void* counter) { static_cast<std::atomic<int>*>(counter)->fetch_add(1); };
  table_.hold(first, &gate);
  table_.hold(second, &gate);
  table_.enqueue(first, add_one, &done);
  table_.enqueue(second, add_one, &done);
  EXPECT_EQ(done.load(), 0);
  std::thread opener([&] { gate.open(); });
  ASSERT_TRUE(api().wait_device(last_).ok());
  EXPECT_EQ(done.load(), 2);
  opener.join();
  EXPECT_TRUE(api().destroy_stream(first).ok());
  EXPECT_TRUE(api().destroy_stream(second).ok());
}

TEST_P(Contract, event__done_before_first_record) {
  Event event = *api().create_event(0);
  ASSERT_TRUE(api().event_done(event).ok());
  EXPECT_TRUE(*api().event_done(event));
  EXPECT_TRUE(api().destroy_event(event).ok());
}

TEST_P(Contract, event__follows_its_stream) {
  Event event = *api().create_event(0);
  Stream queue = stream(0);
  if (is_real()) {
    ASSERT_TRUE(api().record_event(event, queue).ok());
    ASSERT_TRUE(api().wait_stream(queue).ok());
    EXPECT_TRUE(*api().event_done(event));
  } else {
    Gate gate;
    table_.hold(queue, &gate);
    ASSERT_TRUE(api().record_event(event, queue).ok());
    EXPECT_FALSE(*api().event_done(event));
    gate.open();
    ASSERT_TRUE(api().wait_stream(queue).ok());
    EXPECT_TRUE(*api().event_done(event));
    // A second recording starts over.
    Gate again;
    table_.hold(queue, &again);
    ASSERT_TRUE(api().record_event(event, queue).ok());
    EXPECT_FALSE(*api().event_done(event));
    again.open();
    ASSERT_TRUE(api().wait_stream(queue).ok());
    EXPECT_TRUE(*api().event_done(event));
  }
  EXPECT_TRUE(api().destroy_event(event).ok());
  EXPECT_TRUE(api().destroy_stream(queue).ok());
}

TEST_P(Contract, stream_wait_event__orders_two_streams_and_devices) {
  constexpr Bytes kBytes = 4 << 20;
  unsigned char* source = device_memory(0, kBytes);
  unsigned char* target = device_memory(last_, kBytes);
  Stream writer = stream(0);
  Stream reader = stream(last_);
  Event written = *api().create_event(0);
  Gate gate;
  if (!is_real()) {
    table_.hold(writer, &gate);
  }
  ASSERT_TRUE(api().fill_async(source, 0x5a, kBytes, writer).ok());
  ASSERT_TRUE(api().record_event(written, writer).ok());
  ASSERT_TRUE(api().stream_wait_event(reader, written).ok());
  ASSERT_TRUE(api().copy_async(target, source, kBytes, reader).ok());
  if (!is_real()) {
    EXPECT_FALSE(*api().stream_done(reader));
    gate.open();
  }
  ASSERT_TRUE(api().wait_stream(reader).ok());
  std::vector<unsigned char> seen(kBytes);
  ASSERT_TRUE(api().copy(seen.data(), target, kBytes).ok());
  EXPECT_EQ(seen, std::vector<unsigned char>(kBytes, 0x5a));
  EXPECT_TRUE(api().destroy_event(written).ok());
  EXPECT_TRUE(api().destroy_stream(writer).ok());
  EXPECT_TRUE(api().destroy_stream(reader).ok());
  EXPECT_TRUE(api().free_device(source).ok());
  EXPECT_TRUE(api().free_device(target).ok());
}

TEST_P(Contract, stream_wait_event__waits_for_the_record_before_it) {
  if (is_real()) {
    GTEST_SKIP() << "needs a stream that a test can hold: only the host device and the fakes";
  }
  Stream slow = stream(0);
  Stream fast = stream(0);
  Stream waiter = stream(0);
  Event event = *api().create_event(0);
  Gate gate;
  table_.hold(slow, &gate);
  ASSERT_TRUE(api().record_event(event, slow).ok());
  ASSERT_TRUE(api().stream_wait_event(waiter, event).ok());
  // The later recording completes at once and must not release the waiter.
  ASSERT_TRUE(api().record_event(event, fast).ok());
  ASSERT_TRUE(api().wait_stream(fast).ok());
  EXPECT_TRUE(*api().event_done(event));
  EXPECT_FALSE(*api().stream_done(waiter));
  gate.open();
  ASSERT_TRUE(api().wait_stream(waiter).ok());
  EXPECT_TRUE(*api().stream_done(waiter));
  EXPECT_TRUE(api().destroy_event(event).ok());
  for (Stream queue : {slow, fast, waiter}) {
    EXPECT_TRUE(api().destroy_stream(queue).ok());
  }
}

TEST_P(Contract, allocate__bad_sizes_and_pointers) {
  EXPECT_EQ(api().allocate_device(0, 0).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(api().allocate_pinned(0, Api::kAnyDevice).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(api().allocate_device(0, Bytes{1} << 46).status().code(), ErrorCode::kOutOfMemory);
  unsigned char* memory = device_memory(0, 4096);
  if (!is_real()) {
    EXPECT_FALSE(api().free_device(memory + 512).ok());
    EXPECT_FALSE(api().free_pinned(memory).ok());
    int on_stack = 0;
    EXPECT_FALSE(api().free_device(&on_stack).ok());
  }
  EXPECT_TRUE(api().free_device(memory).ok());
}

TEST_P(Contract, allocate__ranges_do_not_overlap_and_are_reused) {
  constexpr int kCount = 200;
  std::vector<std::pair<unsigned char*, Bytes>> live;
  std::set<unsigned char*> seen;
  for (int i = 0; i < kCount; ++i) {
    const Bytes bytes = static_cast<Bytes>(1 + i * 137 % 9000);
    live.emplace_back(device_memory(0, bytes), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(live.back().first) % 256, 0u);
    seen.insert(live.back().first);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kCount));
  std::sort(live.begin(), live.end());
  for (std::size_t i = 1; i < live.size(); ++i) {
    EXPECT_LE(live[i - 1].first + live[i - 1].second, live[i].first);
  }
  for (std::size_t i = 0; i < live.size(); i += 2) {
    EXPECT_TRUE(api().free_device(live[i].first).ok());
  }
  for (std::size_t i = 1; i < live.size(); i += 2) {
    EXPECT_EQ(api().classify(live[i].first + live[i].second - 1).kind, MemoryKind::kDevice);
    EXPECT_TRUE(api().free_device(live[i].first).ok());
  }
}

TEST_P(Contract, copy__beyond_the_allocation_fails) {
  if (is_real()) {
    GTEST_SKIP() << "a real driver checks its mapping, which is larger";
  }
  unsigned char* memory = device_memory(0, 512);
  std::vector<unsigned char> host(1024);
  EXPECT_FALSE(api().copy(memory, host.data(), 513).ok());
  if (table_.name == "host") {
    // A GPU's library knows nothing of the address, so for the GPU tables it is host memory.
    EXPECT_FALSE(api().copy(memory + 512, host.data(), 1).ok());
  }
  EXPECT_TRUE(api().copy(memory, host.data(), 512).ok());
  EXPECT_TRUE(api().free_device(memory).ok());
}

// A kernel that adds its block's number, times a factor, to one cell per block.
void add_block_index(const HostBlock& block, void** arguments) {
  auto* cells = *static_cast<int**>(arguments[0]);
  const int factor = *static_cast<int*>(arguments[1]);
  const unsigned flat =
      block.index[0] + block.grid[0] * (block.index[1] + block.grid[1] * block.index[2]);
  cells[flat] += static_cast<int>(flat) * factor;
}
constexpr std::size_t kAddArguments[] = {sizeof(int*), sizeof(int)};
constexpr HostFunction kFunctions[] = {{"add_block_index", &add_block_index, kAddArguments, 2}};
const HostModule kModule{.functions = kFunctions, .function_count = 1};

TEST_P(Contract, launch__every_block_once_with_copied_arguments) {
  if (is_real()) {
    GTEST_SKIP() << "the image is a table of host functions";
  }
  Module module = *api().load_module(0, &kModule);
  Function function = *api().find_function(module, "add_block_index");
  EXPECT_FALSE(api().find_function(module, "no_such_function").ok());
  auto* cells = reinterpret_cast<int*>(device_memory(0, 24 * sizeof(int)));
  Stream queue = stream(0);
  ASSERT_TRUE(api().fill_async(cells, 0, 24 * sizeof(int), queue).ok());
  Gate gate;
  table_.hold(queue, &gate);
  int factor = 3;
  void* arguments[] = {&cells, &factor};
  const LaunchShape shape{.grid = {2, 3, 4}};
  ASSERT_TRUE(api().launch(function, shape, queue, arguments).ok());
  factor = 1000;  // Too late: the value was copied.
  EXPECT_FALSE(*api().stream_done(queue));
  gate.open();
  ASSERT_TRUE(api().wait_stream(queue).ok());
  std::vector<int> seen(24);
  ASSERT_TRUE(api().copy(seen.data(), cells, 24 * sizeof(int)).ok());
  for (int i = 0; i < 24; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], i * 3);
  }
  EXPECT_FALSE(api().launch(function, LaunchShape{.grid = {0, 1, 1}}, queue, arguments).ok());
  EXPECT_FALSE(api().launch(function, shape, nullptr, arguments).ok());
  EXPECT_TRUE(api().unload_module(module).ok());
  EXPECT_FALSE(api().launch(function, shape, queue, arguments).ok());
  EXPECT_TRUE(api().destroy_stream(queue).ok());
  EXPECT_TRUE(api().free_device(cells).ok());
}

TEST_P(Contract, load_module__bad_image_fails) {
  const std::vector<unsigned char> zeros(4096);
  EXPECT_FALSE(api().load_module(0, zeros.data()).ok());
}

TEST_P(Contract, current_device__restored_by_scope) {
  const int before = api().current_device();
  {
    const Result<CurrentDevice> outer = CurrentDevice::set(api(), last_);
    ASSERT_TRUE(outer.ok());
    EXPECT_EQ(api().current_device(), last_);
    {
      const Result<CurrentDevice> inner = CurrentDevice::set(api(), 0);
      ASSERT_TRUE(inner.ok());
      EXPECT_EQ(api().current_device(), 0);
    }
    EXPECT_EQ(api().current_device(), last_);
  }
  EXPECT_EQ(api().current_device(), before);
  EXPECT_FALSE(CurrentDevice::set(api(), 99).ok());
  EXPECT_EQ(api().current_device(), before);
}

TEST_P(Contract, current_device__untouched_by_every_call) {
  // Device 0 and no device at all are the application's possible choices.
  for (const bool has_choice : {false, true}) {
    void* previous = nullptr;
    if (has_choice) {
      previous = *api().make_current(0);
    }
    const int choice = api().current_device();
    const auto unchanged = [&](const char* call) {
      EXPECT_EQ(api().current_device(), choice) << call;
    };
    Stream queue = stream(last_);
    unchanged("create_stream");
    Event event = *api().create_event(last_);
    unchanged("create_event");
    unsigned char* memory = device_memory(last_, 256);
    unchanged("allocate_device");
    unsigned char* pinned = pinned_memory(256);
    unchanged("allocate_pinned");
    ASSERT_TRUE(api().copy(memory, pinned, 256).ok());
    unchanged("copy");
    ASSERT_TRUE(api().copy_async(memory, pinned, 256, queue).ok());
    unchanged("copy_async");
    ASSERT_TRUE(api().fill_async(memory, 1, 256, queue).ok());
    unchanged("fill_async");
    ASSERT_TRUE(api().record_event(event, queue).ok());
    unchanged("record_event");
    ASSERT_TRUE(api().stream_wait_event(queue, event).ok());
    unchanged("stream_wait_event");
    ASSERT_TRUE(api().event_done(event).ok());
    unchanged("event_done");
    ASSERT_TRUE(api().stream_done(queue).ok());
    unchanged("stream_done");
    ASSERT_TRUE(api().wait_stream(queue).ok());
    unchanged("wait_stream");
    ASSERT_TRUE(api().wait_device(last_).ok());
    unchanged("wait_device");
    ASSERT_TRUE(api().export_memory(memory).ok());
    unchanged("export_memory");
    ASSERT_TRUE(api().destroy_event(event).ok());
    unchanged("destroy_event");
    ASSERT_TRUE(api().destroy_stream(queue).ok());
    unchanged("destroy_stream");
    ASSERT_TRUE(api().free_device(memory).ok());
    unchanged("free_device");
    ASSERT_TRUE(api().free_pinned(pinned).ok());
    unchanged("free_pinned");
    if (has_choice) {
      api().restore_current(previous);
    }
  }
}

TEST_P(Contract, open_memory__another_process_reads_and_writes) {
  if (is_real()) {
    GTEST_SKIP() << "a forked child cannot use the driver";
  }
  constexpr Bytes kBytes = 10000;
  for (const Sharing sharing : {Sharing::kIpc, Sharing::kDescriptor, Sharing::kFabric}) {
    const std::string name = std::string(api().name()) + std::to_string(static_cast<int>(sharing));
    // The neighbour makes the allocation start inside a page.
    unsigned char* neighbour = device_memory(0, 512);
    const Result<void*> made = api().allocate_shared(0, kBytes, sharing);
    if (sharing == Sharing::kFabric || name == "hip1") {
      EXPECT_FALSE(made.ok()) << name;
      EXPECT_FALSE(made.status().message().empty());
      EXPECT_TRUE(api().free_device(neighbour).ok());
      continue;
    }
    ASSERT_TRUE(made.ok()) << name << made.status().message();
    auto* const memory = static_cast<unsigned char*>(*made);
    EXPECT_EQ(api().classify(memory + kBytes - 1).kind, MemoryKind::kDevice);
    const auto sent = pattern(kBytes, 9);
    ASSERT_TRUE(api().copy(memory, sent.data(), kBytes).ok());
    Result<IpcHandle> handle = api().export_memory(memory);
    ASSERT_TRUE(handle.ok()) << handle.status().message();
    EXPECT_FALSE(api().export_memory(memory + 512).ok());
    if (sharing == Sharing::kDescriptor) {
      EXPECT_GE(handle->descriptor, 0) << name;
      EXPECT_GE(handle->size_bytes, kBytes) << name;
      handle->sharing = sharing;  // The host device has one kind of memory for both ways.
    }

    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Only exit codes from here: the parent judges.
      const Result<void*> opened = api().open_memory(last_, *handle);
      if (!opened.ok()) {
        _exit(10);
      }
      auto* mapped = static_cast<unsigned char*>(*opened);
      if (api().classify(mapped + kBytes - 1).kind != MemoryKind::kDevice ||
          api().classify(mapped).device != last_) {
        _exit(11);
      }
      if (std::memcmp(mapped, sent.data(), kBytes) != 0) {
        _exit(12);
      }
      mapped[0] = 0xee;
      mapped[kBytes - 1] = 0xdd;
      if (!api().close_memory(mapped).ok() || api().close_memory(mapped).ok()) {
        _exit(13);
      }
      if (api().classify(mapped).kind != MemoryKind::kHost) {
        _exit(14);
      }
      _exit(0);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFEXITED(state));
    EXPECT_EQ(WEXITSTATUS(state), 0) << name;
    std::vector<unsigned char> seen(kBytes);
    ASSERT_TRUE(api().copy(seen.data(), memory, kBytes).ok());
    EXPECT_EQ(seen[0], 0xee);
    EXPECT_EQ(seen[1], sent[1]);
    EXPECT_EQ(seen[kBytes - 1], 0xdd);
    EXPECT_TRUE(api().free_device(memory).ok());
    EXPECT_TRUE(api().free_device(neighbour).ok());
    EXPECT_EQ(api().classify(memory).kind, MemoryKind::kHost) << name;
  }
}

TEST_P(Contract, open_memory__garbage_fails) {
  IpcHandle handle{};
  EXPECT_FALSE(api().open_memory(0, handle).ok());
}

TEST_P(Contract, threads__use_the_table_together) {
  constexpr int kThreads = 4;
  constexpr Bytes kBytes = 4096;
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &right] {
      const int device = t % (last_ + 1);
      const auto sent = pattern(kBytes, static_cast<unsigned>(t));
      for (int round = 0; round < 20; ++round) {
        std::vector<unsigned char> seen(kBytes);
        Result<Stream> queue = api().create_stream(device);
        Result<void*> memory = api().allocate_device(device, kBytes);
        const bool is_right = queue.ok() && memory.ok() &&
                              api().classify(*memory).device == device &&
                              api().copy(*memory, sent.data(), kBytes).ok() &&
                              api().copy_async(seen.data(), *memory, kBytes, *queue).ok() &&
                              api().wait_stream(*queue).ok() && seen == sent &&
                              api().destroy_stream(*queue).ok() && api().free_device(*memory).ok();
        right += is_right;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(right.load(), kThreads * 20);
}

INSTANTIATE_TEST_SUITE_P(device, Contract, testing::Values("host", "cuda", "hip"),
                         [](const auto& table) { return std::string(table.param); });

}  // namespace
}  // namespace tutti::device::test
