// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The short cuts in front of Api::classify, with an Api that counts the questions and whose answers
// the test decides.
#include "device/pointer_kind.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace tutti::device {
namespace {

Status unused() { return Status(ErrorCode::kUnsupported, "not part of this test"); }

/// Answers by range; everything else is unsupported.
class AskedApi final : public Api {
 public:
  const char* name() const override { return "asked"; }
  std::string library() const override { return "asked"; }
  Result<int> device_count() override { return unused(); }
  Status initialize() override { return unused(); }
  PointerInfo classify(const void* pointer) override {
    ++questions;
    return truth(pointer);
  }
  int current_device() override { return -1; }
  Result<std::string> identity(int) override { return unused(); }
  Result<std::string> device_name(int) override { return unused(); }
  Status copy(void*, const void*, Bytes) override { return unused(); }
  Status copy_async(void*, const void*, Bytes, Stream) override { return unused(); }
  Status fill_async(void*, int, Bytes, Stream) override { return unused(); }
  Result<Stream> create_stream(int) override { return unused(); }
  Status destroy_stream(Stream) override { return unused(); }
  Result<bool> stream_done(Stream) override { return unused(); }
  Status wait_stream(Stream) override { return unused(); }
  Status wait_device(int) override { return unused(); }
  Result<Stream> default_stream(int) override { return unused(); }
  Result<Event> create_event(int) override { return unused(); }
  Status destroy_event(Event) override { return unused(); }
  Status record_event(Event, Stream) override { return unused(); }
  Result<bool> event_done(Event) override { return unused(); }
  Status stream_wait_event(Stream, Event) override { return unused(); }
  Result<void*> allocate_pinned(Bytes, int) override { return unused(); }
  Status free_pinned(void*) override { return unused(); }
  Result<void*> allocate_device(int, Bytes) override { return unused(); }
  Status free_device(void*) override { return unused(); }
  Result<IpcHandle> export_memory(void*) override { return unused(); }
  Result<void*> open_memory(int, const IpcHandle&) override { return unused(); }
  Status close_memory(void*) override { return unused(); }
  Result<Module> load_module(int, const void*) override { return unused(); }
  Status unload_module(Module) override { return unused(); }
  Result<Function> find_function(Module, const char*) override { return unused(); }
  Status launch(Function, const LaunchShape&, Stream, void**) override { return unused(); }
  Result<void*> make_current(int) override { return unused(); }
  void restore_current(void*) override {}

  PointerInfo truth(const void* pointer) const {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) {
      return {};
    }
    const auto& [begin, range] = *std::prev(after);
    if (address - begin >= range.first) {
      return {};
    }
    return {MemoryKind::kDevice, range.second};
  }

  std::map<std::uintptr_t, std::pair<std::size_t, int>> ranges;  // Start -> bytes, device.
  std::atomic<int> questions = 0;
};

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }
constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
constexpr std::uintptr_t kBase = 0x500000000000;  // Neither heap nor stack of any process here.

class PointerKind : public testing::Test {
 protected:
  AskedApi api_;
};

TEST_F(PointerKind, null__is_host_without_a_question) {
  int value = 0;
  EXPECT_EQ(kind_of_pointer(nullptr, &value).kind, MemoryKind::kHost);
  EXPECT_EQ(kind_of_pointer(nullptr, nullptr).device, -1);
  EXPECT_EQ(kind_of_pointer(&api_, nullptr).kind, MemoryKind::kHost);
  EXPECT_EQ(api_.questions, 0);
}

TEST_F(PointerKind, device__ordinal_and_interior_pointers) {
  api_.ranges[kBase] = {4 * kPage, 3};
  for (const std::uintptr_t offset : {std::uintptr_t{0}, kPage - 1, kPage, 4 * kPage - 1}) {
    EXPECT_EQ(kind_of_pointer(&api_, at(kBase + offset)).kind, MemoryKind::kDevice);
    EXPECT_EQ(kind_of_pointer(&api_, at(kBase + offset)).device, 3);
  }
  EXPECT_EQ(kind_of_pointer(&api_, at(kBase + 4 * kPage)).kind, MemoryKind::kHost);
}

// Drivers return the addresses of large allocations to the system, and take addresses from it.
TEST_F(PointerKind, address__changes_its_kind_without_notice) {
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(kind_of_pointer(&api_, at(kBase)).kind, MemoryKind::kHost);
    api_.ranges[kBase] = {64 << 20, round};
    EXPECT_EQ(kind_of_pointer(&api_, at(kBase)).kind, MemoryKind::kDevice);
    EXPECT_EQ(kind_of_pointer(&api_, at(kBase)).device, round);
    api_.ranges.clear();
  }
}

TEST_F(PointerKind, host__stack_and_heap_are_never_asked) {
  int on_stack = 0;
  std::vector<char> bigger(1000);  // On the brk heap, except under a sanitizer's allocator.
  EXPECT_EQ(kind_of_pointer(&api_, &on_stack).kind, MemoryKind::kHost);
  EXPECT_EQ(api_.questions, 0);
  EXPECT_EQ(kind_of_pointer(&api_, bigger.data()).kind, MemoryKind::kHost);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(api_.questions, 0);
#endif
  std::thread other([&] {
    int elsewhere = 0;
    const int before = api_.questions;
    EXPECT_EQ(kind_of_pointer(&api_, &elsewhere).kind, MemoryKind::kHost);
    EXPECT_EQ(api_.questions, before);
  });
  other.join();
}

TEST_F(PointerKind, host__another_threads_stack_is_asked) {
  int here = 0;
  std::thread other([&] {
    const int before = api_.questions;
    EXPECT_EQ(kind_of_pointer(&api_, &here).kind, MemoryKind::kHost);
    EXPECT_EQ(api_.questions, before + 1);
  });
  other.join();
}

TEST_F(PointerKind, api__answers_of_one_are_not_those_of_another) {
  AskedApi other;
  api_.ranges[kBase] = {kPage, 0};
  other.ranges[kBase] = {kPage, 5};
  EXPECT_EQ(kind_of_pointer(&api_, at(kBase)).device, 0);
  EXPECT_EQ(kind_of_pointer(&other, at(kBase)).device, 5);
  EXPECT_EQ(kind_of_pointer(&api_, at(kBase)).device, 0);
}

TEST_F(PointerKind, pages__kinds_may_share_one) {
  std::mt19937 random(20260101);
  for (std::uintptr_t start = 0; start < 300 * kPage; start += kPage / 4) {
    if (random() % 2 == 0) {
      api_.ranges[kBase + start] = {kPage / 4, static_cast<int>(random() % 8)};
    }
  }
  for (int i = 0; i < 20000; ++i) {
    const void* pointer = at(kBase + random() % (300 * kPage));
    const PointerInfo expected = api_.truth(pointer);
    const PointerInfo info = kind_of_pointer(&api_, pointer);
    ASSERT_EQ(info.kind, expected.kind) << pointer;
    ASSERT_EQ(info.device, expected.device) << pointer;
  }
}

TEST_F(PointerKind, host_device__memory_that_comes_and_goes) {
  const auto host = open("host", nullptr);
  for (int round = 0; round < 50; ++round) {
    const int device = round % 3;
    auto* memory = static_cast<char*>(*host->allocate_device(device, 100000));
    EXPECT_EQ(kind_of_pointer(host.get(), memory + 99999).device, device);
    ASSERT_TRUE(host->free_device(memory).ok());
    // Host memory never lands where device memory was.
    void* mapped =
        mmap(nullptr, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(kind_of_pointer(host.get(), mapped).kind, MemoryKind::kHost);
    munmap(mapped, 4 << 20);
  }
}

}  // namespace
}  // namespace tutti::device
