// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which RDMA ports stand behind interfaces, and channels over them on the fake of libibverbs.
#include "net/rdma.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace tutti::net {
namespace {

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

/// Directories like the kernel's, for a test.
class Directory {
 public:
  Directory() { EXPECT_NE(nullptr, mkdtemp(path_.data())); }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path whole = path_ + "/" + file;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

 private:
  std::string path_ = ::testing::TempDir() + "rdma-XXXXXX";
};

TEST(rdma, match_ports__by_the_interfaces_of_gids) {
  std::vector<Port> ports = {port_of("mlx5_0", 1, "eth0"), port_of("mlx5_1", 1, "eth2"),
                             port_of("mlx5_2", 1, "eth3")};
  ports[2].is_active = false;
  const std::vector<NetDevice> devices = {interface("eth0"), interface("eth1"), interface("eth2"),
                                          interface("eth3")};
  const auto all = match_ports(devices, ports, "", "/nowhere");
  ASSERT_EQ(2U, all.size());
  EXPECT_EQ("mlx5_0", all[0].rdma_device);
  EXPECT_EQ("mlx5_1", all[1].rdma_device);
  const auto some = match_ports(devices, ports, "^mlx5_0", "/nowhere");
  ASSERT_EQ(1U, some.size());
  EXPECT_EQ("eth2", some[0].name);
}

TEST(rdma, match_ports__by_the_device_of_an_ipoib_interface) {
  const Directory net;
  net.write("ib0/device/infiniband/mlx5_4/name", "");
  const auto found = match_ports({interface("ib0")}, {port_of("mlx5_4", 1, "")}, "", net.path());
  ASSERT_EQ(1U, found.size());
  EXPECT_EQ("mlx5_4", found[0].rdma_device);
}

/// The loopback interface with the fake's first device behind it.
NetworkOptions options_of(const Directory& directory, const std::string& service) {
  directory.write("class/fake_0/ports/1/gid_attrs/ndevs/0", "lo\n");
  NetworkOptions options;
  options.interfaces = "lo";
  options.family = "AF_INET";
  options.config.net_wire = "verbs";
  options.config.net_verbs = service;
  options.config.net_paths = 8;
  options.config.net_statistics = false;
  options.config.net_timeout_s = 5;
  options.rdma.class_directory = directory.path() + "/class";
  options.rdma.net_directory = directory.path() + "/net";
  return options;
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

/// Both ends of one channel, over two networks.
struct Ends {
  std::unique_ptr<Network> a;
  std::unique_ptr<Network> b;
  std::unique_ptr<Channel> send;
  std::unique_ptr<Channel> receive;
};

template <class Done>
bool wait(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
  }
  return true;
}

Ends connect(const NetworkOptions& options) {
  Ends ends;
  for (auto* const network : {&ends.a, &ends.b}) {
    auto opened = Network::open(options, [](LogKind, const std::string&) {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    *network = std::move(*opened);
  }
  auto listener = ends.b->listen(0);
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  auto connector = ends.a->connect(0, (*listener)->handle(), kDefaultClass);
  EXPECT_TRUE(connector.ok()) << connector.status().message();
  EXPECT_TRUE(wait([&] {
    const auto ask = [](auto& channel, auto made) {
      EXPECT_TRUE(made.ok()) << made.status().message();
      if (made.ok() && *made) {
        channel = std::move(*made);
      }
    };
    if (!ends.send) {
      ask(ends.send, (*connector)->poll());
    }
    if (!ends.receive) {
      ask(ends.receive, (*listener)->accept());
    }
    return ends.send && ends.receive;
  }));
  return ends;
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

INSTANTIATE_TEST_SUITE_P(rdma, Channels, ::testing::Values("uc", "rc", "ud"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tutti::net
