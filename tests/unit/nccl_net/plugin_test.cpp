// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The plugin's tables, called as NCCL calls them, over a network of sockets within this process.
#include "nccl_net/plugin.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <thread>

#include "nccl_net/table.hpp"
#include "support/scoped_environment.hpp"
#include "support/socket_network.hpp"

namespace tutti::nccl_net {
namespace {

using abi::Result;
using test::socket_network;

const abi::Net<12>& net = tables.v12;
const abi::Calls<12>& calls = net.calls;

struct Logged {
  abi::LogLevel level;
  std::string text;
};

std::vector<Logged>& logged() {
  static std::vector<Logged> lines;
  return lines;
}

void logger(abi::LogLevel level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/,
            const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  logged().push_back({level, text});
}

std::size_t warnings() {
  return static_cast<std::size_t>(
      std::count_if(logged().begin(), logged().end(),
                    [](const Logged& line) { return line.level == abi::LogLevel::kWarn; }));
}

Result profiler(void** /*event*/, int /*type*/, void* /*handle*/, std::int64_t /*plugin_id*/,
                void* /*data*/) {
  return Result::kSuccess;
}

/// Makes one device of both, as NCCL does where there are two interfaces.
int merge_both() {
  abi::VirtualDevice<8> members{};
  members.count = 2;
  members.devices[1] = 1;
  int device = -1;
  EXPECT_EQ(tables.v12.make_virtual_device(&device, &members), Result::kSuccess);
  return device;
}

TEST(NcclNetInitTest, init__no_device_is_an_error_and_may_be_tried_again) {
  // The child has never been initialised; this process does it in the next test.
  const pid_t child = fork();
  if (child == 0) {
    socket_network().open_error = Status(ErrorCode::kUnavailable, "no device; remedy: plug one in");
    int count = -1;
    bool good = tables.v8.calls.init(logger) == Result::kSystemError && warnings() == 1 &&
                logged()[0].text.find("plug one in") != std::string::npos;
    good &= calls.devices(&count) == Result::kSuccess && count == 0;
    socket_network().open_error = Status();
    good &= tables.v8.calls.init(logger) == Result::kSuccess;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(NcclNetInitTest, version_10__a_merge_leaves_the_network_that_init_opened) {
  const pid_t child = fork();
  if (child == 0) {
    offer_rails(true);
    bool good = tables.v10.calls.init(logger, profiler) == Result::kSuccess;
    good &= socket_network().networks == 1 && merge_both() == 2;
    _exit(good && socket_network().networks == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(NcclNetInitTest, init__says_once_what_there_is) {
  logged().clear();
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(calls.init(&first, 1, nullptr, logger, nullptr), Result::kSuccess);
  ASSERT_EQ(calls.init(&second, 2, nullptr, logger, nullptr), Result::kSuccess);
  EXPECT_NE(first, second);
  std::size_t lines = 0;
  for (const Logged& line : logged()) {
    if (line.text.find(
            "lo 127.0.0.1 (8000 Mb/s, told to NCCL as 10000 for fewer channels, MTU 65536), "
            "lo2 127.0.0.2") != std::string::npos) {
      EXPECT_EQ(line.level, abi::LogLevel::kInfo);
      ++lines;
    }
  }
  EXPECT_EQ(lines, 1U);
  EXPECT_EQ(net.finalize(first), Result::kSuccess);
  EXPECT_EQ(socket_network().networks, 1);
  EXPECT_EQ(net.finalize(second), Result::kSuccess);
  EXPECT_EQ(socket_network().networks, 0);
}

/// A peer or a disk that does not answer takes its time when a network ends.
TEST(NcclNetInitTest, finalize__nobody_else_waits_for_the_end) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kEnd = std::chrono::milliseconds(1000);
  void* first = nullptr;
  ASSERT_EQ(calls.init(&first, 1, nullptr, logger, nullptr), Result::kSuccess);
  std::array<char, abi::kHandleBytes> handle;
  void* listener = nullptr;
  ASSERT_EQ(calls.listen(first, 0, handle.data(), &listener), Result::kSuccess);
  ASSERT_EQ(calls.close_listen(listener), Result::kSuccess);
  socket_network().end_ms = static_cast<int>(kEnd.count());
  const auto begun = Clock::now();
  std::atomic<bool> has_begun = false;
  std::thread other([&] {
    has_begun = true;
    EXPECT_EQ(net.finalize(first), Result::kSuccess);
    EXPECT_GE(Clock::now() - begun, kEnd);
  });
  while (!has_begun) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(kEnd / 10);
  void* second = nullptr;
  EXPECT_EQ(calls.init(&second, 2, nullptr, logger, nullptr), Result::kSuccess);
  EXPECT_EQ(calls.listen(second, 0, handle.data(), &listener), Result::kSuccess);
  EXPECT_EQ(calls.close_listen(listener), Result::kSuccess);
  EXPECT_LT(Clock::now() - begun, kEnd);
  other.join();
  socket_network().end_ms = 0;
  EXPECT_EQ(net.finalize(second), Result::kSuccess);
  EXPECT_EQ(socket_network().networks, 0);
}

// Versions 6 to 10 have no finalize: the network ends with the last comm, and begins again.
TEST(NcclNetInitTest, version_8__network_ends_with_the_last_comm) {
  const abi::Calls<8>& old = tables.v8.calls;
  ASSERT_EQ(old.init(logger), Result::kSuccess);
  for (int i = 0; i < 2; ++i) {
    std::array<char, abi::kHandleBytes> handle;
    void* listener = nullptr;
    ASSERT_EQ(old.listen(0, handle.data(), &listener), Result::kSuccess);
    EXPECT_EQ(socket_network().networks, 1);
    void* sender = nullptr;
    void* receiver = nullptr;
    while (sender == nullptr) {
      ASSERT_EQ(old.connect(0, handle.data(), &sender, nullptr), Result::kSuccess);
    }
    while (receiver == nullptr) {
      ASSERT_EQ(old.accept(listener, &receiver, nullptr), Result::kSuccess);
    }
    ASSERT_EQ(old.close_listen(listener), Result::kSuccess);
    char data[4] = "abc";
    char to[8] = {};
    void* request = nullptr;
    ASSERT_EQ(old.isend(sender, data, 4, 0, nullptr, &request), Result::kSuccess);
    void* where = to;
    int bytes = 8;
    int tag = 0;
    void* received = nullptr;
    ASSERT_EQ(old.irecv(receiver, 1, &where, &bytes, &tag, &where, &received), Result::kSuccess);
    int done = 0;
    while (done == 0) {
      ASSERT_EQ(old.test(request, &done, nullptr), Result::kSuccess);
    }
    for (done = 0; done == 0;) {
      ASSERT_EQ(old.test(received, &done, &bytes), Result::kSuccess);
    }
    EXPECT_EQ(bytes, 4);
    EXPECT_STREQ(to, "abc");
    EXPECT_EQ(old.close_send(sender), Result::kSuccess);
    EXPECT_EQ(socket_network().networks, 1);
    EXPECT_EQ(old.close_recv(receiver), Result::kSuccess);
    EXPECT_EQ(socket_network().networks, 0);
  }
}

TEST(NcclNetInitTest, version_8__a_listen_that_fails_leaves_no_network) {
  const abi::Calls<8>& old = tables.v8.calls;
  ASSERT_EQ(old.init(logger), Result::kSuccess);
  socket_network().listen_error = Status(ErrorCode::kUnavailable, "no descriptor");
  std::array<char, abi::kHandleBytes> handle;
  void* listener = nullptr;
  EXPECT_EQ(old.listen(0, handle.data(), &listener), Result::kSystemError);
  EXPECT_EQ(socket_network().networks, 0);
  socket_network().listen_error = {};
}

class NcclNetTest : public testing::Test {
 protected:
  NcclNetTest() {
    logged().clear();
    abi::CommConfig config{3};
    EXPECT_EQ(calls.init(&context_, 77, &config, logger, profiler), Result::kSuccess);
  }
  ~NcclNetTest() override {
    close();
    EXPECT_EQ(net.finalize(context_), Result::kSuccess);
    EXPECT_EQ(socket_network().channels, 0);
    EXPECT_EQ(socket_network().networks, 0);
  }

  void listen() {
    ASSERT_EQ(calls.listen(context_, 0, handle_.data(), &listener_), Result::kSuccess);
    ASSERT_NE(listener_, nullptr);
  }

  /// From this process to itself.
  void connect() {
    listen();
    while (sender_ == nullptr || receiver_ == nullptr) {
      if (sender_ == nullptr) {
        ASSERT_EQ(calls.connect(context_, 0, handle_.data(), &sender_, nullptr), Result::kSuccess);
      }
      if (receiver_ == nullptr) {
        ASSERT_EQ(calls.accept(listener_, &receiver_, nullptr), Result::kSuccess);
      }
    }
  }

  void close() {
    EXPECT_EQ(calls.close_send(std::exchange(sender_, nullptr)), Result::kSuccess);
    EXPECT_EQ(calls.close_recv(std::exchange(receiver_, nullptr)), Result::kSuccess);
    EXPECT_EQ(calls.close_listen(std::exchange(listener_, nullptr)), Result::kSuccess);
  }

  Result isend(std::span<const char> data, int tag, void** request) {
    return calls.isend(sender_, const_cast<char*>(data.data()), data.size(), tag, nullptr, nullptr,
                       request);
  }

  Result irecv(std::span<char> data, int tag, void** request) {
    void* to = data.data();
    std::size_t bytes = data.size();
    void* mhandle = nullptr;
    return calls.irecv(receiver_, 1, &to, &bytes, &tag, &mhandle, nullptr, request);
  }

  static Result wait(void* request, int* bytes) {
    int done = 0;
    Result result = Result::kSuccess;
    while (done == 0 && result == Result::kSuccess) {
      result = calls.test(request, &done, bytes);
    }
    return result;
  }

  void* context_ = nullptr;
  std::array<char, abi::kHandleBytes> handle_{};
  void* listener_ = nullptr;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
};

template <int kVersion>
void expect_table(const abi::Net<kVersion>& table) {
  SCOPED_TRACE(kVersion);
  EXPECT_STREQ(table.calls.name, "Tutti");
  int count = 0;
  EXPECT_EQ(table.calls.devices(&count), Result::kSuccess);
  EXPECT_EQ(count, 2);
  abi::Properties<kVersion> properties;
  std::memset(&properties, 0xff, sizeof properties);
  EXPECT_EQ(table.calls.get_properties(1, &properties), Result::kSuccess);
  EXPECT_STREQ(properties.name, "lo2");
  EXPECT_STREQ(properties.pci_path, "/sys/devices/pci0000:00/0000:00:01.0");
  EXPECT_EQ(properties.guid, 12U);
  EXPECT_EQ(properties.pointer_support, abi::kPointerHost);
  EXPECT_EQ(properties.speed_mbps, 100000);
  EXPECT_EQ(properties.port, 0);
  EXPECT_EQ(properties.latency_us, 5.0F);
  EXPECT_EQ(properties.comms_max, 4096);
  EXPECT_EQ(properties.receives_max, 8);
  if constexpr (kVersion >= 7) {
    EXPECT_EQ(properties.device_type, abi::DeviceType::kHost);
    EXPECT_EQ(properties.device_version, 0);
    EXPECT_EQ(table.get_device_mr, nullptr);
    EXPECT_EQ(table.irecv_consumed, nullptr);
  }
  if constexpr (kVersion >= 8) {
    EXPECT_EQ(properties.reg_is_global, 0);
  }
  if constexpr (kVersion >= 9) {
    EXPECT_EQ(properties.force_flush, 0);
    EXPECT_EQ(properties.virtual_device.count, 1);
    EXPECT_EQ(properties.virtual_device.devices[0], 1);
    EXPECT_EQ(properties.p2p_bytes_max, abi::kMessageBytesMax);
    EXPECT_EQ(properties.collective_bytes_max, abi::kMessageBytesMax);
    EXPECT_EQ(table.make_virtual_device, nullptr);
  }
  if constexpr (kVersion >= 11) {
    EXPECT_EQ(properties.multi_request_max, 1);
    EXPECT_NE(table.finalize, nullptr);
    EXPECT_EQ(table.set_attributes, nullptr);
  }
  if constexpr (kVersion >= 12) {
    EXPECT_EQ(properties.rail_id, -1);
    EXPECT_EQ(properties.plane_id, -1);
  }
  EXPECT_EQ(table.calls.get_properties(0, &properties), Result::kSuccess);
  EXPECT_EQ(properties.speed_mbps, 10'000);  // It has 8000.
  EXPECT_EQ(properties.pci_path, nullptr);
  EXPECT_EQ(table.calls.get_properties(1000, &properties), Result::kInvalidArgument);
  EXPECT_EQ(table.calls.get_properties(-1, &properties), Result::kInvalidArgument);
}

TEST_F(NcclNetTest, properties__of_every_version) {
  expect_table(tables.v6);
  expect_table(tables.v7);
  expect_table(tables.v8);
  expect_table(tables.v9);
  expect_table(tables.v10);
  expect_table(tables.v11);
  expect_table(tables.v12);
}

TEST(NcclNetSpeedTest, what_NCCL_would_cut_into_many_channels_is_told_as_one) {
  EXPECT_EQ(speed_for_channels_mbps(1'000), 1'000);
  EXPECT_EQ(speed_for_channels_mbps(2'500), 2'500);
  EXPECT_EQ(speed_for_channels_mbps(3'839), 3'839);  // One of 1920.
  EXPECT_EQ(speed_for_channels_mbps(3'840), 10'000);
  EXPECT_EQ(speed_for_channels_mbps(8'000), 10'000);
  EXPECT_EQ(speed_for_channels_mbps(9'600), 10'000);
  EXPECT_EQ(speed_for_channels_mbps(10'000), 10'000);
  EXPECT_EQ(speed_for_channels_mbps(400'000), 400'000);
}

template <int kVersion>
void expect_virtual_device(const abi::Net<kVersion>& table) {
  abi::Properties<kVersion> first{};
  ASSERT_EQ(table.calls.get_properties(0, &first), Result::kSuccess);
  auto members = first.virtual_device;
  members.count = 2;
  members.devices[0] = 1;
  members.devices[1] = 0;
  int device = -1;
  ASSERT_EQ(table.make_virtual_device(&device, &members), Result::kSuccess);
  int count = 0;
  EXPECT_EQ(table.calls.devices(&count), Result::kSuccess);
  EXPECT_EQ(device, count - 1);
  abi::Properties<kVersion> properties{};
  ASSERT_EQ(table.calls.get_properties(device, &properties), Result::kSuccess);
  EXPECT_STREQ(properties.name, "lo2");       // Without a PCI device: in its first member's place.
  EXPECT_EQ(properties.speed_mbps, 108'000);  // The sum of its members'.
  EXPECT_EQ(properties.virtual_device.count, 2);
  EXPECT_EQ(properties.virtual_device.devices[0], 1);
  EXPECT_EQ(properties.virtual_device.devices[1], 0);
  // What NCCL has read of the others stays.
  EXPECT_STREQ(first.name, "lo");
  const int most = static_cast<int>(std::size(members.devices));
  for (const int wrong : {0, -1, most + 1}) {
    members.count = wrong;
    EXPECT_EQ(table.make_virtual_device(&device, &members), Result::kInvalidArgument) << wrong;
  }
  members.count = 1;
  members.devices[0] = count;
  EXPECT_EQ(table.make_virtual_device(&device, &members), Result::kInvalidArgument);
  EXPECT_EQ(table.make_virtual_device(nullptr, &members), Result::kInvalidArgument);
  EXPECT_EQ(table.make_virtual_device(&device, nullptr), Result::kInvalidArgument);
}

TEST(NcclNetTable, of_every_version_and_of_no_other) {
  const void* const known[] = {&tables.v6,  &tables.v7,  &tables.v8, &tables.v9,
                               &tables.v10, &tables.v11, &tables.v12};
  for (int version = 6; version <= 12; ++version) {
    EXPECT_EQ(TUTTI_NCCL_NET_TABLE(version), known[version - 6]) << version;
  }
  for (const int version : {INT_MIN, -1, 0, 5, 13, INT_MAX}) {
    EXPECT_EQ(TUTTI_NCCL_NET_TABLE(version), nullptr) << version;
  }
}

TEST(NcclNetTable, offers_to_merge_nics_if_the_user_asks_nccl_for_it) {
  for (const char* const name : {"NCCL_NET_FORCE_MERGE", "NCCL_NET_MERGE_LEVEL"}) {
    const test::ScopedEnvironment asked(name, "eth0,eth1");
    TUTTI_NCCL_NET_TABLE(12);
    EXPECT_NE(tables.v12.make_virtual_device, nullptr) << name;
  }
  TUTTI_NCCL_NET_TABLE(12);
  EXPECT_EQ(tables.v12.make_virtual_device, nullptr);
}

TEST_F(NcclNetTest, make_virtual_device__of_every_version) {
  EXPECT_EQ(tables.v12.make_virtual_device, nullptr);
  offer_rails(true);
  expect_virtual_device(tables.v9);
  expect_virtual_device(tables.v10);
  expect_virtual_device(tables.v11);
  expect_virtual_device(tables.v12);
  offer_rails(false);
}

int count_devices() {
  int count = 0;
  EXPECT_EQ(calls.devices(&count), Result::kSuccess);
  return count;
}

TEST_F(NcclNetTest, make_virtual_device__outlives_the_communicators) {
  offer_rails(true);
  const int device = merge_both();
  abi::Properties<12> properties;
  ASSERT_EQ(calls.get_properties(device, &properties), Result::kSuccess);
  const char* const name = properties.name;
  EXPECT_STREQ(name, "lo");
  // NCCL that keeps the plugin goes on with all devices, and asks nothing.
  ASSERT_EQ(net.finalize(context_), Result::kSuccess);
  ASSERT_EQ(calls.init(&context_, 1, nullptr, logger, nullptr), Result::kSuccess);
  ASSERT_EQ(calls.get_properties(device, &properties), Result::kSuccess);
  EXPECT_EQ(properties.name, name);
  EXPECT_EQ(properties.virtual_device.count, 2);
  EXPECT_EQ(calls.listen(context_, device, handle_.data(), &listener_), Result::kSuccess);
  close();
  // NCCL that loads it anew takes what it counts first for interfaces.
  ASSERT_EQ(net.finalize(context_), Result::kSuccess);
  ASSERT_EQ(calls.init(&context_, 1, nullptr, logger, nullptr), Result::kSuccess);
  EXPECT_EQ(count_devices(), 2);
  EXPECT_EQ(merge_both(), device);
  EXPECT_EQ(count_devices(), device + 1);
  // Another communicator comes between a merge and the question.
  void* other = nullptr;
  ASSERT_EQ(calls.init(&other, 2, nullptr, logger, nullptr), Result::kSuccess);
  EXPECT_EQ(count_devices(), device + 1);
  EXPECT_EQ(net.finalize(other), Result::kSuccess);
  offer_rails(false);
}

TEST_F(NcclNetTest, listen__leaves_the_scratch_empty) {
  handle_.fill(0x55);
  listen();
  constexpr std::size_t kScratch = net::Handle::kBytes;
  EXPECT_TRUE(
      std::all_of(handle_.begin() + kScratch, handle_.end(), [](char c) { return c == 0; }));
}

TEST_F(NcclNetTest, connect__state_is_in_the_handle_and_survives_a_move) {
  listen();
  const auto untouched = handle_;
  void* comm = &handle_;
  ASSERT_EQ(calls.connect(context_, 0, handle_.data(), &comm, nullptr), Result::kSuccess);
  EXPECT_EQ(comm, nullptr);
  EXPECT_NE(handle_, untouched);
  // The same bytes somewhere else go on: the third call is through, as without the move.
  auto elsewhere = handle_;
  handle_.fill(0x77);
  ASSERT_EQ(calls.connect(context_, 0, elsewhere.data(), &comm, nullptr), Result::kSuccess);
  EXPECT_EQ(comm, nullptr);
  ASSERT_EQ(calls.connect(context_, 0, elsewhere.data(), &sender_, nullptr), Result::kSuccess);
  EXPECT_NE(sender_, nullptr);
  EXPECT_EQ(elsewhere, untouched);
}

TEST_F(NcclNetTest, connect__copies_made_before_are_attempts_of_their_own) {
  listen();
  auto copy = handle_;
  void* other = nullptr;
  while (sender_ == nullptr || other == nullptr) {
    if (sender_ == nullptr) {
      ASSERT_EQ(calls.connect(context_, 0, handle_.data(), &sender_, nullptr), Result::kSuccess);
    }
    if (other == nullptr) {
      ASSERT_EQ(calls.connect(context_, 0, copy.data(), &other, nullptr), Result::kSuccess);
    }
  }
  EXPECT_NE(sender_, other);
  EXPECT_EQ(calls.close_send(other), Result::kSuccess);
}

TEST_F(NcclNetTest, connect__a_stale_copy_begins_again) {
  listen();
  void* comm = nullptr;
  ASSERT_EQ(calls.connect(context_, 0, handle_.data(), &comm, nullptr), Result::kSuccess);
  auto copy = handle_;
  while (sender_ == nullptr) {
    ASSERT_EQ(calls.connect(context_, 0, handle_.data(), &sender_, nullptr), Result::kSuccess);
  }
  while (comm == nullptr) {
    ASSERT_EQ(calls.connect(context_, 0, copy.data(), &comm, nullptr), Result::kSuccess);
  }
  EXPECT_EQ(calls.close_send(comm), Result::kSuccess);
}

TEST_F(NcclNetTest, connect__passes_the_traffic_class_on) {
  connect();
  EXPECT_EQ(socket_network().traffic_class, 3) << "of the fixture's init()";
  void* comm = nullptr;
  abi::CommConfig config{7};
  while (comm == nullptr) {
    ASSERT_EQ(tables.v10.calls.connect(0, &config, handle_.data(), &comm, nullptr),
              Result::kSuccess);
  }
  EXPECT_EQ(socket_network().traffic_class, 7);
  EXPECT_EQ(calls.close_send(std::exchange(comm, nullptr)), Result::kSuccess);
  config.traffic_class = INT_MIN;  // NCCL_CONFIG_UNDEF_INT
  while (comm == nullptr) {
    ASSERT_EQ(tables.v10.calls.connect(0, &config, handle_.data(), &comm, nullptr),
              Result::kSuccess);
  }
  EXPECT_EQ(socket_network().traffic_class, net::kDefaultClass);
  EXPECT_EQ(calls.close_send(std::exchange(comm, nullptr)), Result::kSuccess);
  while (comm == nullptr) {
    ASSERT_EQ(tables.v8.calls.connect(0, handle_.data(), &comm, nullptr), Result::kSuccess);
  }
  EXPECT_EQ(socket_network().traffic_class, net::kDefaultClass);
  EXPECT_EQ(calls.close_send(comm), Result::kSuccess);
}

/// A channel within this process from one device to the other, in the words of a version.
template <int kVersion>
void expect_devices(const abi::Net<kVersion>& table, void* context) {
  SCOPED_TRACE(kVersion);
  abi::CommConfig config{abi::kUndefined};
  const auto connect = [&](int device, void* handle, void** comm) {
    if constexpr (kVersion >= 11) {
      return table.calls.connect(context, device, handle, comm, nullptr);
    } else if constexpr (kVersion == 10) {
      return table.calls.connect(device, &config, handle, comm, nullptr);
    } else if constexpr (kVersion >= 7) {
      return table.calls.connect(device, handle, comm, nullptr);
    } else {
      return table.calls.connect(device, handle, comm);
    }
  };
  for (const int to : {0, 1}) {
    const int from = 1 - to;
    std::array<char, abi::kHandleBytes> handle;
    void* listener = nullptr;
    if constexpr (kVersion >= 11) {
      ASSERT_EQ(table.calls.listen(context, to, handle.data(), &listener), Result::kSuccess);
    } else {
      ASSERT_EQ(table.calls.listen(to, handle.data(), &listener), Result::kSuccess);
    }
    EXPECT_EQ(socket_network().listen_device, to);
    void* sender = nullptr;
    const auto hopeless = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (sender == nullptr && std::chrono::steady_clock::now() < hopeless) {
      ASSERT_EQ(connect(from, handle.data(), &sender), Result::kSuccess);
    }
    ASSERT_NE(sender, nullptr);
    EXPECT_EQ(socket_network().connect_device, from);
    EXPECT_EQ(table.calls.close_send(sender), Result::kSuccess);
    EXPECT_EQ(table.calls.close_listen(listener), Result::kSuccess);
  }
}

// NCCL may choose another device for a connection than the one next to its GPU (PXN).
TEST_F(NcclNetTest, connect__and_listen_are_on_the_device_that_was_named) {
  expect_devices(tables.v6, nullptr);
  expect_devices(tables.v7, nullptr);
  expect_devices(tables.v8, nullptr);
  expect_devices(tables.v9, nullptr);
  expect_devices(tables.v10, nullptr);
  expect_devices(tables.v11, context_);
  expect_devices(tables.v12, context_);
}

TEST_F(NcclNetTest, connect__foreign_handle) {
  handle_.fill(0x42);
  void* comm = &handle_;
  EXPECT_EQ(calls.connect(context_, 0, handle_.data(), &comm, nullptr), Result::kSystemError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(warnings(), 1U);
  EXPECT_NE(logged().back().text.find("NCCL_NET=Tutti"), std::string::npos);
}

TEST_F(NcclNetTest, connect__nobody_there) {
  listen();
  EXPECT_EQ(calls.close_listen(std::exchange(listener_, nullptr)), Result::kSuccess);
  Result result = Result::kSuccess;
  void* comm = nullptr;
  for (int i = 0; i < 3; ++i) {
    result = calls.connect(context_, 0, handle_.data(), &comm, nullptr);
  }
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(warnings(), 1U);
}

TEST_F(NcclNetTest, finalize__drops_attempts_that_came_to_nothing) {
  listen();
  void* other = nullptr;
  ASSERT_EQ(calls.init(&other, 1, nullptr, logger, nullptr), Result::kSuccess);
  void* comm = nullptr;
  ASSERT_EQ(calls.connect(other, 0, handle_.data(), &comm, nullptr), Result::kSuccess);
  EXPECT_EQ(net.finalize(other), Result::kSuccess);
  // The destructor finds no network left.
}

TEST_F(NcclNetTest, irecv__groups_by_tag_and_tells_each_size) {
  connect();
  constexpr int kParts = 8;
  std::array<std::array<char, 16>, kParts> to{};
  std::array<void*, kParts> data{};
  std::array<std::size_t, kParts> bytes{};
  std::array<int, kParts> tags{};
  std::array<void*, kParts> mhandles{};
  for (std::size_t i = 0; i < kParts; ++i) {
    data[i] = to[i].data();
    bytes[i] = to[i].size();
    tags[i] = static_cast<int>(100 + i);
  }
  void* received = nullptr;
  ASSERT_EQ(calls.irecv(receiver_, kParts, data.data(), bytes.data(), tags.data(), mhandles.data(),
                        mhandles.data(), &received),
            Result::kSuccess);
  const std::string text = "01234567";
  for (std::size_t i = kParts; i-- > 0;) {
    void* request = nullptr;
    ASSERT_EQ(isend(std::span(text).first(i), static_cast<int>(100 + i), &request),
              Result::kSuccess);
    EXPECT_EQ(wait(request, nullptr), Result::kSuccess);
  }
  std::array<int, kParts + 1> sizes;
  sizes.fill(-1);
  EXPECT_EQ(wait(received, sizes.data()), Result::kSuccess);
  EXPECT_EQ(sizes, (std::array<int, 9>{0, 1, 2, 3, 4, 5, 6, 7, -1}));
  EXPECT_STREQ(to[7].data(), "0123456");
}

TEST_F(NcclNetTest, irecv__too_many_parts) {
  connect();
  void* request = &request;
  EXPECT_EQ(calls.irecv(receiver_, 9, nullptr, nullptr, nullptr, nullptr, nullptr, &request),
            Result::kInvalidArgument);
  EXPECT_EQ(request, nullptr);
}

TEST_F(NcclNetTest, requests__always_written) {
  connect();
  char data[4] = "abc";
  // The hint of an optional completion: a request is wanted all the same.
  void* received = abi::kOptionalCompletion;
  ASSERT_EQ(irecv(data, 0, &received), Result::kSuccess);
  EXPECT_NE(received, abi::kOptionalCompletion);
  EXPECT_NE(received, nullptr);
  socket_network().unfinished_max = 1;
  void* request = abi::kOptionalCompletion;
  EXPECT_EQ(irecv(data, 0, &request), Result::kSuccess);
  EXPECT_EQ(request, nullptr);
  socket_network().unfinished_max = 0;
  request = &request;
  EXPECT_EQ(isend(data, 0, &request), Result::kSuccess);
  EXPECT_EQ(request, nullptr);
  socket_network().unfinished_max = 1000;
  request = &request;
  EXPECT_EQ(calls.iflush(receiver_, 1, nullptr, nullptr, nullptr, &request), Result::kSuccess);
  EXPECT_EQ(request, nullptr);
  int done = 0;
  EXPECT_EQ(calls.test(nullptr, &done, nullptr), Result::kSuccess);
  EXPECT_EQ(done, 1);
}

TEST_F(NcclNetTest, isend__as_many_as_grouped_receives_can_take) {
  connect();
  std::vector<void*> requests;
  while (true) {
    void* request = nullptr;
    ASSERT_EQ(isend({}, 0, &request), Result::kSuccess);
    if (request == nullptr) {
      break;
    }
    requests.push_back(request);
  }
  EXPECT_EQ(requests.size(), 256U);
  // One that has been tested makes room for another.
  EXPECT_EQ(wait(requests[0], nullptr), Result::kSuccess);
  void* request = nullptr;
  ASSERT_EQ(isend({}, 0, &request), Result::kSuccess);
  EXPECT_EQ(request, requests[0]);
}

TEST_F(NcclNetTest, isend__negative_int) {
  connect();
  void* request = &request;
  EXPECT_EQ(tables.v8.calls.isend(sender_, nullptr, -1, 0, nullptr, &request),
            Result::kInvalidArgument);
  EXPECT_EQ(request, nullptr);
}

TEST_F(NcclNetTest, test__too_long_a_message) {
  connect();
  char data[4] = "abc";
  void* received = nullptr;
  ASSERT_EQ(irecv(std::span(data).first(2), 0, &received), Result::kSuccess);
  void* request = nullptr;
  ASSERT_EQ(isend(data, 0, &request), Result::kSuccess);
  EXPECT_EQ(wait(request, nullptr), Result::kSuccess);
  EXPECT_EQ(wait(received, nullptr), Result::kInvalidUsage);
  EXPECT_EQ(wait(received, nullptr), Result::kInvalidUsage) << "for who asks again";
}

TEST_F(NcclNetTest, test__dead_peer_is_a_remote_error_said_once) {
  connect();
  char data[4];
  std::array<void*, 3> requests{};
  for (void*& request : requests) {
    ASSERT_EQ(irecv(data, 0, &request), Result::kSuccess);
  }
  EXPECT_EQ(calls.close_send(std::exchange(sender_, nullptr)), Result::kSuccess);
  for (void* const request : requests) {
    EXPECT_EQ(wait(request, nullptr), Result::kRemoteError);
  }
  void* request = &request;
  EXPECT_EQ(irecv(data, 0, &request), Result::kRemoteError);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(warnings(), 1U);
  EXPECT_NE(logged().back().text.find("test: the peer is gone"), std::string::npos);
}

TEST_F(NcclNetTest, errors__translated) {
  const std::pair<ErrorCode, Result> table[] = {
      {ErrorCode::kInvalidArgument, Result::kInvalidArgument},
      {ErrorCode::kInvalidConfig, Result::kSystemError},
      {ErrorCode::kUnsupported, Result::kSystemError},
      {ErrorCode::kUnavailable, Result::kSystemError},
      {ErrorCode::kOutOfMemory, Result::kSystemError},
      {ErrorCode::kTimeout, Result::kRemoteError},
      {ErrorCode::kLibraryFailed, Result::kSystemError},
      {ErrorCode::kMpiFailed, Result::kInternalError},
  };
  for (const auto& [code, result] : table) {
    connect();
    socket_network().call_error = Status(code, "a reason");
    void* request = &request;
    EXPECT_EQ(isend({}, 0, &request), result);
    EXPECT_EQ(request, nullptr);
    socket_network().call_error = Status();
    close();
  }
  EXPECT_EQ(warnings(), std::size(table));
}

TEST_F(NcclNetTest, exceptions__stay_inside) {
  connect();
  socket_network().throws = true;
  void* request = &request;
  EXPECT_EQ(isend({}, 0, &request), Result::kSystemError);
  EXPECT_EQ(request, nullptr);
  void* listener = &request;
  std::array<char, abi::kHandleBytes> handle;
  EXPECT_EQ(calls.listen(context_, 0, handle.data(), &listener), Result::kSystemError);
  EXPECT_EQ(listener, nullptr);
  socket_network().throws = false;
  EXPECT_EQ(warnings(), 2U);
  // The slot was given back.
  for (int i = 0; i < 256; ++i) {
    ASSERT_EQ(isend({}, 0, &request), Result::kSuccess);
    EXPECT_NE(request, nullptr);
  }
}

TEST_F(NcclNetTest, reg_mr__goes_to_the_channel) {
  connect();
  char data[8];
  void* mhandles[2] = {};
  for (void*& mhandle : mhandles) {
    EXPECT_EQ(calls.reg_mr(sender_, data, 8, abi::kPointerHost, &mhandle), Result::kSuccess);
    EXPECT_NE(mhandle, nullptr);
  }
  EXPECT_EQ(socket_network().registered_bytes, 16U);
  for (void* const mhandle : mhandles) {
    EXPECT_EQ(calls.dereg_mr(sender_, mhandle), Result::kSuccess);
  }
  EXPECT_EQ(calls.dereg_mr(sender_, nullptr), Result::kSuccess);
  EXPECT_EQ(socket_network().registered_bytes, 0U);
  socket_network().call_error = {ErrorCode::kUnavailable, "no more can be pinned"};
  EXPECT_EQ(calls.reg_mr(sender_, data, 8, abi::kPointerHost, &mhandles[0]), Result::kSystemError);
  EXPECT_EQ(mhandles[0], nullptr);
  EXPECT_NE(logged().back().text.find("no more can be pinned"), std::string::npos);
  socket_network().call_error = {};
  EXPECT_EQ(calls.reg_mr(sender_, data, 8, abi::kPointerHost, &mhandles[0]), Result::kSuccess);
  close();  // The handle of a closed comm comes late, as from NCCL's buffers that outlive it.
  EXPECT_EQ(calls.dereg_mr(sender_, mhandles[0]), Result::kSuccess);
}

TEST_F(NcclNetTest, reg_mr__host_memory_only) {
  connect();
  char data[8];
  void* mhandle = nullptr;
  EXPECT_EQ(calls.reg_mr(receiver_, data, 8, abi::kPointerCuda, &mhandle),
            Result::kInvalidArgument);
  EXPECT_EQ(mhandle, nullptr);
  EXPECT_NE(logged().back().text.find("host memory only"), std::string::npos);
  EXPECT_EQ(calls.reg_mr_dma_buf(receiver_, data, 8, abi::kPointerCuda, 0, -1, &mhandle),
            Result::kInvalidArgument);
}

TEST_F(NcclNetTest, close__with_unfinished_requests) {
  connect();
  char data[8];
  void* request = nullptr;
  ASSERT_EQ(irecv(data, 0, &request), Result::kSuccess);
  close();
  EXPECT_EQ(socket_network().channels, 0);
}

TEST_F(NcclNetTest, fork__every_call_is_an_error_in_the_child) {
  connect();
  char data[8] = "1234567";
  void* received = nullptr;
  ASSERT_EQ(irecv(data, 0, &received), Result::kSuccess);
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    abi::Properties<12> properties;
    void* request = &request;
    int done = 1;
    const Result results[] = {calls.init(&request, 1, nullptr, logger, nullptr),
                              calls.devices(&count),
                              calls.get_properties(0, &properties),
                              calls.listen(context_, 0, handle_.data(), &request),
                              calls.connect(context_, 0, handle_.data(), &request, nullptr),
                              calls.accept(listener_, &request, nullptr),
                              calls.reg_mr(sender_, data, 8, abi::kPointerHost, &request),
                              calls.isend(sender_, data, 8, 0, nullptr, nullptr, &request),
                              irecv(data, 0, &request),
                              calls.test(received, &done, nullptr)};
    const bool all = std::all_of(std::begin(results), std::end(results),
                                 [](Result result) { return result == Result::kSystemError; });
    const bool closes = calls.close_send(sender_) == Result::kSuccess &&
                        calls.close_recv(receiver_) == Result::kSuccess &&
                        calls.close_listen(listener_) == Result::kSuccess &&
                        net.finalize(context_) == Result::kSuccess;
    _exit(all && closes && request == nullptr && done == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  void* request = nullptr;
  ASSERT_EQ(isend(data, 0, &request), Result::kSuccess);
  EXPECT_EQ(wait(request, nullptr), Result::kSuccess);
  EXPECT_EQ(wait(received, nullptr), Result::kSuccess);
}

TEST_F(NcclNetTest, threads__several_communicators_at_once) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) {
        void* context = nullptr;
        std::array<char, abi::kHandleBytes> handle;
        void* listener = nullptr;
        void* sender = nullptr;
        void* receiver = nullptr;
        EXPECT_EQ(calls.init(&context, 1, nullptr, nullptr, nullptr), Result::kSuccess);
        EXPECT_EQ(calls.listen(context, 0, handle.data(), &listener), Result::kSuccess);
        while (sender == nullptr || receiver == nullptr) {
          if (sender == nullptr) {
            EXPECT_EQ(calls.connect(context, 0, handle.data(), &sender, nullptr), Result::kSuccess);
          }
          if (receiver == nullptr) {
            EXPECT_EQ(calls.accept(listener, &receiver, nullptr), Result::kSuccess);
          }
        }
        EXPECT_EQ(calls.close_listen(listener), Result::kSuccess);
        EXPECT_EQ(calls.close_send(sender), Result::kSuccess);
        EXPECT_EQ(calls.close_recv(receiver), Result::kSuccess);
        EXPECT_EQ(net.finalize(context), Result::kSuccess);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace tutti::nccl_net
