// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which RDMA ports stand behind interfaces, and channels over them on the fake of libibverbs.
#include "net/rdma.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "support/fake_verbs.hpp"
#include "unit/net/rdma_fixture.hpp"

namespace tutti::net {
namespace {

using rdma_test::connect;
using rdma_test::Directory;
using rdma_test::Ends;
using rdma_test::options_of;
using rdma_test::wait;
using transport::ReceivePart;
using wire::verbs::Port;

NetDevice interface(const std::string& name) {
  NetDevice device;
  device.name = name;
  return device;
}

Port port_of(const std::string& device, int number, const std::string& interface) {
  Port port;
  port.device = device;
  port.number = number;
  port.is_active = true;
  port.gids = {{3, {}, true, interface}};
  return port;
}

TEST(rdma, match_ports__by_the_interfaces_of_gids) {
  std::vector<Port> ports = {port_of("mlx5_0", 1, "eth0"), port_of("mlx5_1", 1, "eth2"),
                             port_of("mlx5_2", 1, "eth3")};
  ports[2].is_active = false;
  const std::vector<NetDevice> devices = {interface("eth0"), interface("eth1"), interface("eth2"),
                                          interface("eth3")};
  using Texts = std::vector<std::string>;
  Texts left_out;
  const auto all = match_ports(devices, ports, "", "/nowhere", &left_out);
  EXPECT_EQ((Texts{"eth3 (mlx5_2:1 is not active)"}), left_out);
  ASSERT_EQ(2U, all.size());
  EXPECT_EQ("mlx5_0", all[0].rdma_device);
  EXPECT_EQ("mlx5_1", all[1].rdma_device);
  left_out.clear();
  const auto some = match_ports(devices, ports, "^mlx5_0", "/nowhere", &left_out);
  EXPECT_EQ((Texts{"eth3 (mlx5_2:1 is not active)"}), left_out) << "eth0: as it was asked for";
  ASSERT_EQ(1U, some.size());
  EXPECT_EQ("eth2", some[0].name);
}

TEST(rdma, match_ports__by_the_device_of_an_ipoib_interface) {
  const Directory net;
  net.write("ib0/device/infiniband/mlx5_4/name", "");
  std::vector<std::string> left_out;
  const auto found =
      match_ports({interface("ib0")}, {port_of("mlx5_4", 1, "")}, "", net.path(), &left_out);
  EXPECT_TRUE(left_out.empty());
  ASSERT_EQ(1U, found.size());
  EXPECT_EQ("mlx5_4", found[0].rdma_device);
}

std::string error_of(const NetworkOptions& options) {
  const auto network = Network::open(options, [](LogKind, const std::string&) {});
  return network.ok() ? "" : network.status().message();
}

TEST(rdma, open__says_which_ports_there_are) {
  const Directory directory;
  NetworkOptions options = options_of(directory, "uc");
  options.rdma.hca = "mlx5";
  EXPECT_EQ(
      "net: no network interface among lo has an active RDMA port of NCCL_IB_HCA=mlx5; RDMA ports: "
      "fake_0:1 of lo, fake_1:1; remedy: NCCL_SOCKET_IFNAME with the interfaces of RDMA NICs, each "
      "with an IP address, or TUTTI_NET_WIRE=udp",
      error_of(options));
  options = options_of(directory, "uc");
  options.rdma.gid_index = "three";
  EXPECT_EQ("NCCL_IB_GID_INDEX: 'three' is no number", error_of(options));
  options.config.net_wire = "auto";
  EXPECT_EQ("NCCL_IB_GID_INDEX: 'three' is no number", error_of(options)) << "and not udp";
}

TEST(rdma, rdma_devices__warn_of_what_they_leave_out) {
  const Directory directory;
  const NetworkOptions options = options_of(directory, "uc");
  directory.write("class/fake_1/ports/1/gid_attrs/ndevs/0", "eth9\n");
  RdmaOptions rdma = options.rdma;
  std::vector<std::string> told;
  const auto devices_of = [&](const std::string& hca) {
    rdma.hca = hca;
    told.clear();
    const auto found = rdma_devices({interface("lo"), interface("eth9"), interface("eth10")}, rdma,
                                    [&](LogKind kind, const std::string& text) {
                                      EXPECT_EQ(LogKind::kWarning, kind);
                                      told.push_back(text);
                                    });
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? found->size() : 0;
  };
  EXPECT_EQ(2U, devices_of(""));
  EXPECT_TRUE(told.empty()) << "eth10 has no RDMA port";
  EXPECT_EQ(1U, devices_of("fake_0"));
  EXPECT_TRUE(told.empty()) << "as it was asked for";
  tutti::testing::fake_verbs().inactive = 0b10;
  EXPECT_EQ(1U, devices_of(""));
  tutti::testing::fake_verbs().inactive = 0;
  ASSERT_EQ(1U, told.size());
  EXPECT_EQ(
      "net: network interfaces that RDMA does not use: eth9 (fake_1:1 is not active); "
      "remedy: the ports' links, or NCCL_SOCKET_IFNAME without these interfaces",
      told[0]);
}

TEST(rdma, open__auto_says_what_it_took) {
  const Directory directory;
  NetworkOptions options = options_of(directory, "uc");
  options.config.net_wire = "auto";
  for (const std::string hca : {"", "mlx5"}) {
    options.rdma.hca = hca;
    std::string told;
    const auto network =
        Network::open(options, [&](LogKind, const std::string& text) { told += text + "\n"; });
    ASSERT_TRUE(network.ok());
    EXPECT_EQ(hca.empty() ? "fake_0" : "", (*network)->devices()[0].rdma_device);
    EXPECT_EQ(0U, told.find(hca.empty() ? "net: TUTTI_NET_WIRE=auto is verbs\n"
                                        : "net: TUTTI_NET_WIRE=auto is udp: net: no network"))
        << told;
  }
}

/// As over UDP: a fall-back with a remedy, and an error under TUTTI_STRICT.
TEST(rdma, listen__without_stamps_of_the_nic) {
  const Directory directory;
  auto& clock = tutti::testing::fake_verbs().clock;
  NetworkOptions options = options_of(directory, "uc");
  const auto outcome_of = [&](const char* timestamps, bool is_strict, std::string* told) {
    options.config.net_timestamps = timestamps;
    options.config.net_controller = "nscc";  // Which `auto` asks for stamps for.
    options.config.strict = is_strict;
    auto network = Network::open(options, [told](LogKind kind, const std::string& text) {
      *told += (kind == LogKind::kWarning ? "warning: " : "") + text + "\n";
    });
    EXPECT_TRUE(network.ok()) << network.status().message();
    return (*network)->listen(0).status();
  };
  const std::string lack =
      "net: lo has no time stamps of the NIC: the NIC does not stamp completions; remedy: "
      "TUTTI_NET_TIMESTAMPS=off";
  for (const bool has_stamps : {true, false}) {
    clock.mask = has_stamps ? UINT64_MAX >> 1 : 0;
    std::string told;
    EXPECT_TRUE(outcome_of("on", false, &told).ok());
    EXPECT_EQ(has_stamps, told.find("warning: " + lack) == std::string::npos) << told;
    EXPECT_EQ(has_stamps, told.find("no time stamps") == std::string::npos) << told;
    const Status strict = outcome_of("on", true, &told);
    EXPECT_EQ(has_stamps ? "" : "TUTTI_STRICT: " + lack, strict.message());
    EXPECT_TRUE(outcome_of("off", true, &told).ok());
    told.clear();
    EXPECT_TRUE(outcome_of("auto", true, &told).ok());
    EXPECT_EQ(std::string::npos, told.find("warning")) << told;
    EXPECT_EQ(has_stamps, told.find("no time stamps of the NIC") == std::string::npos) << told;
  }
  clock = {};
}

class Channels : public ::testing::TestWithParam<const char*> {};

/// Messages of all sizes, registered and not, several at once.
TEST_P(Channels, carry_messages) {
  const Directory directory;
  const Ends ends = connect(options_of(directory, GetParam()));
  Random random(5);
  for (const std::size_t bytes : {0, 1, 100, 1024, 4096, 33'000, 262'144, 1'000'001}) {
    constexpr std::size_t kMessages = 4;
    std::vector<std::vector<std::byte>> from(kMessages);
    std::vector<std::vector<std::byte>> to(kMessages);
    std::vector<Request*> open;
    for (std::size_t i = 0; i < kMessages; ++i) {
      from[i].resize(bytes);
      to[i].resize(bytes + 64);
      for (std::byte& byte : from[i]) {
        byte = static_cast<std::byte>(random.next());
      }
      if (i % 2 == 0) {
        ASSERT_TRUE(ends.send->register_memory(from[i]).ok());
        ASSERT_TRUE(ends.receive->register_memory(to[i]).ok());
      }
    }
    for (std::size_t i = 0; i < kMessages; ++i) {
      const ReceivePart part{0, to[i].data(), to[i].size(), {}, 0};
      auto receive = ends.receive->receive({&part, 1});
      auto send = ends.send->send(0, from[i].data(), bytes);
      ASSERT_TRUE(receive.ok() && send.ok());
      open.push_back(*receive);
      open.push_back(*send);
    }
    EXPECT_TRUE(wait([&] {
      for (Request*& request : open) {
        Completion completion;
        if (request != nullptr && test(request, &completion)) {
          EXPECT_TRUE(completion.status.ok()) << completion.status.message();
          EXPECT_EQ(bytes, completion.bytes[0]);
          request = nullptr;
        }
      }
      return std::all_of(open.begin(), open.end(), [](Request* it) { return it == nullptr; });
    })) << bytes;
    for (std::size_t i = 0; i < kMessages; ++i) {
      to[i].resize(bytes);
      EXPECT_TRUE(from[i] == to[i]) << bytes;
      to[i].resize(bytes + 64);
      if (i % 2 == 0) {
        ends.send->deregister_memory(from[i]);
        ends.receive->deregister_memory(to[i]);
      }
    }
  }
}

/// A window that the NIC does not close any more does not hold up the end of a channel for ever.
TEST_P(Channels, close__though_the_nic_has_stopped) {
  using Clock = std::chrono::steady_clock;
  const Directory directory;
  Ends ends = connect(options_of(directory, GetParam()));
  std::vector<std::byte> to(300'000);
  ASSERT_TRUE(ends.receive->register_memory(to).ok());
  const ReceivePart part{0, to.data(), to.size(), {}, 0};
  auto receive = ends.receive->receive({&part, 1});
  ASSERT_TRUE(receive.ok());
  const auto opened = Clock::now() + std::chrono::milliseconds(50);
  Completion completion;
  while (Clock::now() < opened) {
    EXPECT_FALSE(test(*receive, &completion));
  }
  tutti::testing::fake_verbs().is_stopped = true;
  const auto begin = Clock::now();
  ends.receive.reset();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  tutti::testing::fake_verbs().is_stopped = false;
}

INSTANTIATE_TEST_SUITE_P(rdma, Channels, ::testing::Values("uc", "rc", "ud"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tutti::net
