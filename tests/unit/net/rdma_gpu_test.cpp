// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Channels whose messages are in memory of GPUs, on the fake of libibverbs and the host device or,
// with TUTTI_TEST_DEVICE=cuda or hip, a real one, whose memory no CPU can touch.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "net/gpu/gpu_copies.hpp"
#include "support/fake_verbs.hpp"
#include "support/host_device/host_device.hpp"
#include "unit/net/rdma_fixture.hpp"

namespace tutti::net {
namespace {

using rdma_test::connect;
using rdma_test::Directory;
using rdma_test::Ends;
using rdma_test::options_of;
using rdma_test::wait;
using tutti::testing::FakeVerbsControl;
using wire::DeviceMemory;

constexpr int kGpu = 0;

FakeVerbsControl& control() { return tutti::testing::fake_verbs(); }

std::shared_ptr<device::Api> gpus() {
  static const std::shared_ptr<device::Api> api = [] {
    const char* const name = std::getenv("TUTTI_TEST_DEVICE");
    auto opened = device::open(name == nullptr ? "host" : name, nullptr);
    EXPECT_TRUE(opened != nullptr && opened->initialize().ok());
    return opened;
  }();
  return api;
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  const Status status = gpus()->copy(to, from, bytes);
  EXPECT_TRUE(status.ok()) << status.message();
}

bool is_device_memory(const void* memory) {
  return gpus()->classify(memory).kind == device::MemoryKind::kDevice;
}

/// Copies that lag: while they are held, nothing is copied, and none has ended.
class LaggingCopies : public wire::DeviceCopies {
 public:
  static inline std::atomic<bool> are_held = false;
  static inline std::atomic<int> launches = 0;

  int device_of(const void* memory) override { return copies_.device_of(memory); }
  std::span<std::byte> trial_memory() override { return copies_.trial_memory(); }
  Status prepare(const void* memory) override { return copies_.prepare(memory); }
  void add_source(std::span<std::byte> memory) override { copies_.add_source(memory); }
  void remove_source(std::span<std::byte> memory) override { copies_.remove_source(memory); }
  Result<std::uint64_t> start(int device, std::span<const Piece> pieces) override {
    EXPECT_FALSE(pieces.empty());
    EXPECT_LE(pieces.size(), kPiecesMax);
    if (held_.size() == 4) {
      return std::uint64_t{0};
    }
    ++launches;
    held_[++last_] = {device, {pieces.begin(), pieces.end()}, 0};
    return last_;
  }
  State state(std::uint64_t copies) override {
    if (are_held) {
      return State::kUnderWay;
    }
    Held& it = held_.at(copies);
    if (it.started == 0) {
      const auto started = copies_.start(it.device, it.pieces);
      EXPECT_TRUE(started.ok()) << started.status().message();
      it.started = *started;
      return State::kUnderWay;
    }
    const State state = copies_.state(it.started);
    if (state != State::kUnderWay) {
      held_.erase(copies);
    }
    return state;
  }

 private:
  struct Held {
    int device = 0;
    std::vector<Piece> pieces;
    std::uint64_t started = 0;
  };
  GpuCopies copies_{gpus()};
  std::map<std::uint64_t, Held> held_;
  std::uint64_t last_ = 0;
};

/// Memory of a GPU.
class GpuBytes {
 public:
  explicit GpuBytes(std::size_t bytes) : bytes_(bytes) {
    auto made = gpus()->allocate_device(kGpu, std::max<std::size_t>(bytes, 1));
    EXPECT_TRUE(made.ok()) << made.status().message();
    data_ = static_cast<std::byte*>(*made);
    put(std::vector<std::byte>(bytes));
  }
  ~GpuBytes() { EXPECT_TRUE(gpus()->free_device(data_).ok()); }
  GpuBytes(const GpuBytes&) = delete;
  GpuBytes& operator=(const GpuBytes&) = delete;
  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  void put(const std::vector<std::byte>& bytes) const {
    copy_bytes(data_, bytes.data(), bytes.size());
  }
  std::vector<std::byte> get() const {
    std::vector<std::byte> bytes(bytes_);
    copy_bytes(bytes.data(), data_, bytes_);
    return bytes;
  }
  bool is_untouched() const { return get() == std::vector<std::byte>(bytes_); }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

class RdmaGpu : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    control() = FakeVerbsControl();
    control().is_device_memory = is_device_memory;
    control().copy = copy_bytes;
    LaggingCopies::are_held = false;
    LaggingCopies::launches = 0;
    const auto previous = gpus()->make_current(kGpu);
    ASSERT_TRUE(previous.ok());
    previous_ = *previous;
  }
  void TearDown() override {
    gpus()->restore_current(previous_);
    control() = FakeVerbsControl();
  }
  NetworkOptions options(const char* service) const {
    NetworkOptions options = options_of(directory_, service);
    options.device_copies = [] { return std::make_shared<LaggingCopies>(); };
    return options;
  }
  static Request* receive(const Ends& ends, const GpuBytes& to) {
    const transport::ReceivePart part{0, to.data(), to.span().size(), {}, 0};
    auto made = ends.receive->receive({&part, 1});
    EXPECT_TRUE(made.ok());
    return made.ok() ? *made : nullptr;
  }
  static Request* send(const Ends& ends, const GpuBytes& from, std::size_t bytes) {
    auto made = ends.send->send(0, from.data(), bytes);
    EXPECT_TRUE(made.ok());
    return made.ok() ? *made : nullptr;
  }
  /// For some milliseconds: whether it ends.
  static bool ends_soon(Request* request, Completion* completion) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
    while (std::chrono::steady_clock::now() < end) {
      if (net::test(request, completion)) {
        return true;
      }
    }
    return false;
  }
  static void finish(Request* request, Bytes bytes) {
    Completion completion;
    ASSERT_TRUE(wait([&] { return net::test(request, &completion); }));
    EXPECT_TRUE(completion.status.ok()) << completion.status.message();
    EXPECT_EQ(bytes, completion.bytes[0]);
  }
  /// A message into `to`, whose copies are held from their launch on. Returns its receive.
  static Request* hold_copies(const Ends& ends, const GpuBytes& from, const GpuBytes& to) {
    EXPECT_TRUE(ends.send->register_device_memory({.span = from.span()}).ok());
    EXPECT_TRUE(ends.receive->register_device_memory({.span = to.span()}).ok());
    LaggingCopies::are_held = true;
    Request* const received = receive(ends, to);
    (void)send(ends, from, from.span().size());
    Completion completion;
    EXPECT_TRUE(wait([&] {
      EXPECT_FALSE(net::test(received, &completion));
      return LaggingCopies::launches > 0;
    }));
    return received;
  }
  static void pass_messages(const Ends& ends, int descriptor,
                            const std::vector<std::size_t>& sizes = {0, 1, 100, 4096, 33'000,
                                                                     1'000'001});

 private:
  const Directory directory_;
  void* previous_ = nullptr;
};

/// Of all sizes, several at once. `descriptor`: of a dma-buf to register by; -1: by address.
void RdmaGpu::pass_messages(const Ends& ends, int descriptor,
                            const std::vector<std::size_t>& sizes) {
  Random random(7);
  for (const std::size_t bytes : sizes) {
    constexpr std::size_t kMessages = 4;
    std::vector<std::unique_ptr<GpuBytes>> from;
    std::vector<std::unique_ptr<GpuBytes>> to;
    std::vector<std::vector<std::byte>> wanted;
    std::vector<Request*> open;
    for (std::size_t i = 0; i < kMessages; ++i) {
      from.push_back(std::make_unique<GpuBytes>(bytes));
      to.push_back(std::make_unique<GpuBytes>(bytes + 64));
      for (std::byte& byte : wanted.emplace_back(bytes)) {
        byte = static_cast<std::byte>(random.next());
      }
      from[i]->put(wanted[i]);
      wanted[i].resize(bytes + 64);  // What is behind the message stays as it is.
      const auto add = [&](const std::unique_ptr<Channel>& channel, const GpuBytes& memory) {
        const int fd = descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
        const Status status = channel->register_device_memory(
            {.span = memory.span(), .descriptor = fd, .offset = 4096});
        EXPECT_TRUE(status.ok()) << status.message();
        if (fd >= 0) {
          close(fd);
        }
      };
      if (bytes > 0) {
        add(ends.send, *from[i]);
      }
      add(ends.receive, *to[i]);
    }
    const std::uint64_t sent_before = control().device_bytes_sent;
    for (std::size_t i = 0; i < kMessages; ++i) {
      open.push_back(receive(ends, *to[i]));
      open.push_back(send(ends, *from[i], bytes));
    }
    for (Request* const request : open) {
      finish(request, bytes);
    }
    EXPECT_GE(control().device_bytes_sent - sent_before, kMessages * bytes);
    for (std::size_t i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(wanted[i] == to[i]->get()) << bytes;
      ends.send->deregister_memory(from[i]->span());
      ends.receive->deregister_memory(to[i]->span());
    }
  }
}

TEST_P(RdmaGpu, devices__say_what_a_registration_said) {
  const auto opened = Network::open(options(GetParam()), [](LogKind, const std::string&) {});
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE((*opened)->devices()[0].takes_device_memory);
  EXPECT_FALSE((*opened)->devices()[0].takes_dma_buf) << "windows are better";
  const auto device_of = [&](const NetworkOptions& wanted) {
    return (*Network::open(wanted, [](LogKind, const std::string&) {}))->devices()[0];
  };
  control().has_peermem = false;
  EXPECT_FALSE(device_of(options(GetParam())).takes_device_memory);
  EXPECT_TRUE(device_of(options(GetParam())).takes_dma_buf);
  control().has_dma_buf = false;
  EXPECT_FALSE(device_of(options(GetParam())).reaches_gpus());
  control() = FakeVerbsControl();
  NetworkOptions hosts = options(GetParam());
  hosts.device_copies = {};
  EXPECT_FALSE(device_of(hosts).reaches_gpus());
  hosts = options(GetParam());
  hosts.config.fault = "drop=0.01";
  EXPECT_FALSE(device_of(hosts).reaches_gpus());
}

TEST_P(RdmaGpu, carry_messages) {
  pass_messages(connect(options(GetParam())), -1);
  EXPECT_GT(LaggingCopies::launches, 0) << "short receives";
}

TEST_P(RdmaGpu, carry_messages__though_packets_are_lost) {
  const Ends ends = connect(options(GetParam()));
  control().loss = 0.03;
  pass_messages(ends, -1);
  // What is sent again does not come through a window.
  LaggingCopies::launches = 0;
  pass_messages(ends, -1, {1'000'001});
  if (std::string(GetParam()) != "rc") {
    EXPECT_GT(LaggingCopies::launches, 0);
  }
}

TEST_P(RdmaGpu, carry_messages__registered_by_dma_buf) {
  control().has_peermem = false;
  const int file = memfd_create("dma-buf", MFD_CLOEXEC);
  const Ends ends = connect(options(GetParam()));
  pass_messages(ends, file);
  close(file);
}

/// Nothing is told of a message, and its memory is as it was, before the GPU has copied it.
TEST_P(RdmaGpu, receive__ends_after_the_copies) {
  const Ends ends = connect(options(GetParam()));
  const GpuBytes from(20'000);
  const GpuBytes to(20'000);
  from.put(std::vector<std::byte>(20'000, std::byte{7}));
  ASSERT_TRUE(ends.send->register_device_memory({.span = from.span()}).ok());
  ASSERT_TRUE(ends.receive->register_device_memory({.span = to.span()}).ok());
  LaggingCopies::are_held = true;
  Request* const received = receive(ends, to);
  Request* const sent = send(ends, from, 20'000);
  Completion completion;
  EXPECT_FALSE(ends_soon(received, &completion));
  EXPECT_FALSE(ends_soon(sent, &completion)) << "no acknowledgement of what is not there";
  EXPECT_TRUE(to.is_untouched());
  EXPECT_GT(LaggingCopies::launches, 0);
  EXPECT_LE(LaggingCopies::launches, 4);
  LaggingCopies::are_held = false;
  finish(received, 20'000);
  finish(sent, 20'000);
  EXPECT_TRUE(from.get() == to.get());
}

/// A receive that ends while the GPU still copies into it is handed back afterwards.
TEST_P(RdmaGpu, receive__that_fails_waits_for_the_copies) {
  Ends ends = connect(options(GetParam()));
  const GpuBytes from(20'000);
  const GpuBytes to(20'000);
  Request* const received = hold_copies(ends, from, to);
  Completion completion;
  ends.send.reset();  // With an open send: the connection is aborted.
  EXPECT_FALSE(ends_soon(received, &completion));
  LaggingCopies::are_held = false;
  ASSERT_TRUE(wait([&] { return net::test(received, &completion); }));
  EXPECT_EQ(ErrorCode::kTimeout, completion.status.code());
}

TEST_P(RdmaGpu, close__waits_for_the_copies) {
  Ends ends = connect(options(GetParam()));
  const GpuBytes from(20'000);
  const GpuBytes to(20'000);
  (void)hold_copies(ends, from, to);
  ends.receive->deregister_memory(to.span());  // NCCL does that first.
  std::atomic<bool> is_closed = false;
  std::thread closer([&] {
    ends.receive.reset();
    is_closed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_FALSE(is_closed);
  LaggingCopies::are_held = false;
  closer.join();
}

TEST_P(RdmaGpu, requests__in_memory_that_is_not_registered_are_errors) {
  const Ends ends = connect(options(GetParam()));
  const GpuBytes memory(5000);
  for (Request* const request : {send(ends, memory, 100), receive(ends, memory)}) {
    Completion completion;
    ASSERT_TRUE(wait([&] { return net::test(request, &completion); }));
    EXPECT_EQ(ErrorCode::kInvalidArgument, completion.status.code());
    EXPECT_NE(std::string::npos, completion.status.message().find("remedy: register all of it"))
        << completion.status.message();
  }
  // The channel goes on.
  ASSERT_TRUE(ends.send->register_device_memory({.span = memory.span()}).ok());
  std::vector<std::byte> to(5000);
  const transport::ReceivePart part{0, to.data(), to.size(), {}, 0};
  auto received = ends.receive->receive({&part, 1});
  finish(send(ends, memory, 5000), 5000);
  finish(*received, 5000);
}

TEST_P(RdmaGpu, register_device_memory__errors_name_the_remedy) {
  const Ends ends = connect(options(GetParam()));
  const GpuBytes memory(5000);
  control().has_peermem = false;
  Status status = ends.receive->register_device_memory({.span = memory.span()});
  EXPECT_EQ(ErrorCode::kUnavailable, status.code());
  EXPECT_EQ(
      "RDMA: 5000 bytes of a GPU's memory cannot be registered by their address: Bad address; "
      "remedy: the module nvidia-peermem (modprobe nvidia-peermem), or a kernel and a GPU driver "
      "with dma-buf",
      status.message());
  control().has_dma_buf = false;
  status = ends.receive->register_device_memory({.span = memory.span(), .descriptor = 1});
  EXPECT_NE(std::string::npos, status.message().find("NCCL_DMABUF_ENABLE=0")) << status.message();
}

/// RC and UC: a read behind what the NIC has written. UD: the GPU has written all itself.
TEST_P(RdmaGpu, flush__ends_when_the_gpu_sees_all) {
  const bool is_read = std::string(GetParam()) != "ud";
  const Ends ends = connect(options(GetParam()));
  const GpuBytes from(300'000);
  const GpuBytes to(300'000);
  ASSERT_TRUE(ends.send->register_device_memory({.span = from.span()}).ok());
  ASSERT_TRUE(ends.receive->register_device_memory({.span = to.span()}).ok());
  Request* const received = receive(ends, to);
  finish(send(ends, from, 300'000), 300'000);
  finish(received, 300'000);
  control().reads_wait = true;
  auto flush = ends.receive->flush(to.span());
  ASSERT_TRUE(flush.ok() && *flush != nullptr);
  Completion completion;
  EXPECT_EQ(!is_read, ends_soon(*flush, &completion));
  control().reads_wait = false;
  if (is_read) {
    ASSERT_TRUE(wait([&] { return net::test(*flush, &completion); }));
  }
  EXPECT_TRUE(completion.status.ok()) << completion.status.message();
  EXPECT_EQ(is_read ? 1U : 0U, control().reads);
}

INSTANTIATE_TEST_SUITE_P(rdma, RdmaGpu, ::testing::Values("uc", "rc", "ud"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tutti::net
