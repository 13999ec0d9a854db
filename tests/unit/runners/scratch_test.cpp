// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What is kept of scratch memory, on the fake of CUDA's driver, which counts what it gave out.
#include "runners/scratch.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace tutti::runners {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

class ScratchTest : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    device::OpenReport report;
    api_ = device::open_cuda(&report);
    ASSERT_NE(api_, nullptr) << report.reason;
    ASSERT_TRUE(api_->initialize().ok());
    set_memory(64 * kMiB);
    before_[0] = used(0);
    before_[1] = used(1);
  }
  Bytes used(int device) const {
    return symbol<Bytes(int)>("tutti_fake_memory")(device) - before_[device];
  }
  void set_memory(Bytes bytes) const { symbol<void(Bytes)>("tutti_fake_memory_max")(bytes); }
  long calls(const char* name) const { return symbol<long(const char*)>("tutti_fake_calls")(name); }

  void* library_ = nullptr;
  std::unique_ptr<device::Api> api_;

 private:
  template <class F>
  F* symbol(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  Bytes before_[2] = {};
};

TEST_F(ScratchTest, device__what_comes_back_is_kept_for_the_next) {
  Scratch scratch(api_.get(), 0);
  ASSERT_TRUE(scratch.device(0, 5 * kMiB).ok());
  EXPECT_EQ(used(0), 8 * kMiB);
  const long before = calls("cuMemAlloc_v2");
  ASSERT_TRUE(scratch.device(0, 6 * kMiB).ok());
  EXPECT_EQ(calls("cuMemAlloc_v2"), before);
  scratch.release();
  EXPECT_EQ(used(0), 0U);
}

TEST_F(ScratchTest, device__what_is_kept_is_not_in_the_way_of_what_is_wanted) {
  Scratch scratch(api_.get(), 0);
  ASSERT_TRUE(scratch.device(1, 16 * kMiB).ok());
  {
    const auto in_use = scratch.device(0, 4 * kMiB);
    ASSERT_TRUE(in_use.ok());
    ASSERT_TRUE(scratch.device(0, 16 * kMiB).ok());
    ASSERT_TRUE(scratch.device(0, 32 * kMiB).ok());
    set_memory(40 * kMiB);
    // Another class of this device's, for which there is room but for what is kept.
    const auto wanted = scratch.device(0, 8 * kMiB);
    ASSERT_TRUE(wanted.ok()) << wanted.status().message();
    EXPECT_EQ(used(0), 12 * kMiB);
    EXPECT_EQ(used(1), 16 * kMiB);
    // And what is never there is still an error.
    EXPECT_EQ(scratch.device(0, 64 * kMiB).status().code(), ErrorCode::kOutOfMemory);
  }
  scratch.release();
  EXPECT_EQ(used(0), 0U);
  EXPECT_EQ(used(1), 0U);
}

}  // namespace
}  // namespace tutti::runners
