// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The plugin's tables, called as NCCL calls them with memory of GPUs: over src/net, the fake of
// libibverbs and the host device, within this process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "nccl_net/plugin.hpp"
#include "net/gpu/gpu_copies.hpp"
#include "support/fake_verbs.hpp"
#include "support/host_device/host_device.hpp"
#include "unit/net/rdma_fixture.hpp"

namespace tutti {
namespace {

std::shared_ptr<device::Api> gpus() {
  static const std::shared_ptr<device::Api> api = device::open("host", nullptr);
  return api;
}

const char*& service() {
  static const char* name = "uc";
  return name;
}

}  // namespace

namespace net {

/// In place of what reads the environment: the fake's directories are no part of that.
Result<std::unique_ptr<Network>> open_gpu_network(Log log, std::vector<NetDevice> devices) {
  static const rdma_test::Directory directory;
  NetworkOptions options = rdma_test::options_of(directory, service());
  options.device_copies = [] { return std::make_shared<GpuCopies>(gpus()); };
  return Network::open(options, std::move(log), std::move(devices));
}

}  // namespace net

namespace nccl_net {
namespace {

using abi::Result;
using tutti::testing::FakeVerbsControl;

const abi::Calls<12>& calls = tables.v12.calls;

FakeVerbsControl& control() { return tutti::testing::fake_verbs(); }

std::string& logged() {
  static std::string text;
  return text;
}

void logger(abi::LogLevel /*level*/, unsigned long /*subsystems*/, const char* /*file*/,
            int /*line*/, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  logged() += std::string(text) + "\n";
}

class NcclNetGpu : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr std::size_t kBytes = 300'000;

  void SetUp() override {
    service() = GetParam();
    control() = FakeVerbsControl();
    control().is_device_memory = [](const void* memory) {
      return gpus()->classify(memory).kind == device::MemoryKind::kDevice;
    };
    const auto previous = gpus()->make_current(2);
    ASSERT_TRUE(previous.ok());
    previous_ = *previous;
    from_ = static_cast<std::byte*>(*gpus()->allocate_device(2, kBytes));
    to_ = static_cast<std::byte*>(*gpus()->allocate_device(2, kBytes));
    std::memset(from_, 7, kBytes);
    std::memset(to_, 0, kBytes);
  }
  void TearDown() override {
    EXPECT_EQ(calls.close_send(sender_), Result::kSuccess);
    EXPECT_EQ(calls.close_recv(receiver_), Result::kSuccess);
    EXPECT_EQ(calls.close_listen(listener_), Result::kSuccess);
    EXPECT_EQ(tables.v12.finalize(context_), Result::kSuccess);
    EXPECT_EQ(0U, control().qps);
    EXPECT_TRUE(gpus()->free_device(from_).ok() && gpus()->free_device(to_).ok());
    gpus()->restore_current(previous_);
    control() = FakeVerbsControl();
  }

  void connect() {
    ASSERT_EQ(calls.listen(context_, 0, handle_.data(), &listener_), Result::kSuccess);
    while (sender_ == nullptr || receiver_ == nullptr) {
      if (sender_ == nullptr) {
        ASSERT_EQ(calls.connect(context_, 0, handle_.data(), &sender_, nullptr), Result::kSuccess)
            << logged();
      }
      if (receiver_ == nullptr) {
        ASSERT_EQ(calls.accept(listener_, &receiver_, nullptr), Result::kSuccess) << logged();
      }
    }
  }
  void init() {
    abi::CommConfig config{abi::kUndefined};
    ASSERT_EQ(calls.init(&context_, 1, &config, logger, nullptr), Result::kSuccess) << logged();
  }
  static bool is_done(void* request, int* bytes) {
    int done = 0;
    EXPECT_EQ(calls.test(request, &done, bytes), Result::kSuccess) << logged();
    return done != 0;
  }
  static void wait(void* request, int bytes_wanted) {
    int bytes = -1;
    ASSERT_TRUE(net::rdma_test::wait(
        [&] { return is_done(request, bytes_wanted < 0 ? nullptr : &bytes); }));
    EXPECT_EQ(bytes_wanted, bytes);
  }
  /// A message, and its flush where one is needed.
  void pass(void* of_sender, void* of_receiver) {
    void* to = to_;
    std::size_t capacity = kBytes;
    int tag = 0;
    void* received = nullptr;
    void* sent = nullptr;
    ASSERT_EQ(calls.irecv(receiver_, 1, &to, &capacity, &tag, &of_receiver, nullptr, &received),
              Result::kSuccess);
    ASSERT_EQ(calls.isend(sender_, from_, kBytes, tag, of_sender, nullptr, &sent),
              Result::kSuccess);
    wait(received, kBytes);
    wait(sent, kBytes);
    int bytes = kBytes;
    void* flush = nullptr;
    ASSERT_EQ(calls.iflush(receiver_, 1, &to, &bytes, &of_receiver, &flush), Result::kSuccess)
        << logged();
    ASSERT_NE(nullptr, flush);
    wait(flush, -1);
    EXPECT_EQ(0, std::memcmp(from_, to_, kBytes));
  }

  std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  void* context_ = nullptr;
  std::array<char, abi::kHandleBytes> handle_{};
  void* listener_ = nullptr;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;

 private:
  void* previous_ = nullptr;
};

/// Everything with one network: a plugin keeps the devices that it has found once.
TEST_P(NcclNetGpu, messages_in_memory_of_gpus) {
  init();
  abi::Properties<12> properties;
  ASSERT_EQ(calls.get_properties(0, &properties), Result::kSuccess);
  EXPECT_EQ(abi::kPointerHost | abi::kPointerCuda, properties.pointer_support) << logged();
  EXPECT_EQ(0, properties.force_flush);
  connect();
  void* of_sender = nullptr;
  void* of_receiver = nullptr;
  ASSERT_EQ(calls.reg_mr(sender_, from_, kBytes, abi::kPointerCuda, &of_sender), Result::kSuccess)
      << logged();
  ASSERT_EQ(calls.reg_mr(receiver_, to_, kBytes, abi::kPointerCuda, &of_receiver),
            Result::kSuccess);
  pass(of_sender, of_receiver);
  EXPECT_GE(control().device_bytes_sent, kBytes);
  EXPECT_EQ(std::string(GetParam()) == "ud" ? 0U : 1U, control().reads);
  ASSERT_EQ(calls.dereg_mr(sender_, of_sender), Result::kSuccess);
  ASSERT_EQ(calls.dereg_mr(receiver_, of_receiver), Result::kSuccess);

  // By dma-buf; NCCL closes the descriptor at once.
  std::memset(to_, 0, kBytes);
  const int file = memfd_create("dma-buf", MFD_CLOEXEC);
  ASSERT_EQ(calls.reg_mr_dma_buf(sender_, from_, kBytes, abi::kPointerCuda, 4096, file, &of_sender),
            Result::kSuccess)
      << logged();
  ASSERT_EQ(calls.reg_mr_dma_buf(receiver_, to_, kBytes, abi::kPointerCuda, 0, file, &of_receiver),
            Result::kSuccess);
  close(file);
  pass(of_sender, of_receiver);
  ASSERT_EQ(calls.dereg_mr(sender_, of_sender), Result::kSuccess);
  ASSERT_EQ(calls.dereg_mr(receiver_, of_receiver), Result::kSuccess);

  // Host memory as ever, and it needs no flush.
  std::vector<char> host(100);
  void* of_host = nullptr;
  ASSERT_EQ(calls.reg_mr(receiver_, host.data(), 100, abi::kPointerHost, &of_host),
            Result::kSuccess);
  void* data = host.data();
  int bytes = 100;
  void* flush = this;
  EXPECT_EQ(calls.iflush(receiver_, 1, &data, &bytes, &of_host, &flush), Result::kSuccess);
  EXPECT_EQ(nullptr, flush);
  ASSERT_EQ(calls.dereg_mr(receiver_, of_host), Result::kSuccess);

  // What the NIC refuses.
  control().has_peermem = false;
  EXPECT_EQ(calls.reg_mr(receiver_, to_, kBytes, abi::kPointerCuda, &of_receiver),
            Result::kSystemError);
  EXPECT_EQ(nullptr, of_receiver);
  EXPECT_NE(std::string::npos, logged().find("regMr: RDMA: 300000 bytes of a GPU's memory"));
  EXPECT_NE(std::string::npos, logged().find("modprobe nvidia-peermem"));
  // A message in memory that is not registered is an error, and no fault.
  void* request = nullptr;
  ASSERT_EQ(calls.isend(sender_, from_, 100, 0, nullptr, nullptr, &request), Result::kSuccess);
  int done = 0;
  Result result = Result::kSuccess;
  EXPECT_TRUE(net::rdma_test::wait([&] {
    result = calls.test(request, &done, &bytes);
    return result != Result::kSuccess || done != 0;
  }));
  EXPECT_EQ(Result::kInvalidUsage, result);
  EXPECT_NE(std::string::npos, logged().find("remedy: register all of it"));
}

INSTANTIATE_TEST_SUITE_P(rdma, NcclNetGpu, ::testing::Values("uc", "rc", "ud"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace nccl_net
}  // namespace tutti
