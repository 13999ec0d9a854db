// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/library.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tutti::wire::verbs {
namespace {

Gid ipv4(std::uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last}; }
Gid ipv6(std::uint8_t first, std::uint8_t second) {
  Gid gid{first, second};
  gid.back() = 1;
  return gid;
}

/// As RoCE devices list them.
Port roce_port() {
  Port port;
  port.device = "mlx5_0";
  port.is_ethernet = true;
  port.gids = {{0, ipv6(0xfe, 0x80), false, "eth0"}, {1, ipv6(0xfe, 0x80), true, "eth0"},
               {2, ipv4(1), false, "eth0"},          {3, ipv4(1), true, "eth0"},
               {4, ipv6(0x20, 0x01), true, "eth0"},  {5, ipv4(9), true, "eth0.7"}};
  return port;
}

int index_of(const GidWish& wish, const Port& port = roce_port()) {
  const auto found = choose_gid(port, wish);
  return found.ok() ? port.gids[*found].index : -1;
}

TEST(verbs_library, choose_gid__takes_roce_v2_and_ipv4) { EXPECT_EQ(3, index_of({})); }

TEST(verbs_library, choose_gid__follows_the_user) {
  EXPECT_EQ(0, index_of({.index = 0}));
  EXPECT_EQ(2, index_of({.roce_version = 1}));
  EXPECT_EQ(4, index_of({.wants_ipv6 = true}));
  EXPECT_EQ(5, index_of({.interface = "eth0.7"}));
}

TEST(verbs_library, choose_gid__says_what_is_missing) {
  EXPECT_NE(std::string::npos,
            choose_gid(roce_port(), {.index = 9}).status().message().find("NCCL_IB_GID_INDEX"));
  Port none = roce_port();
  none.gids.resize(1);
  EXPECT_NE(std::string::npos, choose_gid(none, {}).status().message().find("RoCE v2"));
}

TEST(verbs_library, choose_gid__any_will_do_on_infiniband) {
  Port port = roce_port();
  port.is_ethernet = false;
  EXPECT_EQ(0, index_of({}, port));
}

bool fits(const char* text, const std::string& device, int number) {
  Port port;
  port.device = device;
  port.number = number;
  return PortFilter(text).fits(port);
}

/// The examples of NCCL's documentation.
TEST(verbs_library, port_filter__reads_names_as_nccl_does) {
  EXPECT_TRUE(fits("", "mlx5_0", 1));
  EXPECT_TRUE(fits("mlx5", "mlx5_3", 1));
  EXPECT_FALSE(fits("mlx5", "bnxt_0", 1));
  EXPECT_TRUE(fits("=mlx5_0:1,mlx5_1:1", "mlx5_1", 1));
  EXPECT_FALSE(fits("=mlx5_0:1,mlx5_1:1", "mlx5_1", 2));
  EXPECT_FALSE(fits("=mlx5_1", "mlx5_10", 1));
  EXPECT_TRUE(fits("mlx5_1", "mlx5_10", 1));
  EXPECT_FALSE(fits("^=mlx5_3,mlx5_4", "mlx5_3", 1));
  EXPECT_TRUE(fits("^=mlx5_3,mlx5_4", "mlx5_30", 1));
}

TEST(verbs_library, load_library__names_the_package) {
  const auto functions = load_library("libno-such-verbs.so.1");
  ASSERT_FALSE(functions.ok());
  EXPECT_NE(std::string::npos, functions.status().message().find("libibverbs1"));
}

/// A context grows at its beginning: an older library's is shorter there.
TEST(verbs_library, function_of__knows_what_an_older_library_lacks) {
  ExtendedContext extended{};
  extended.create_cq = [](Context*, ExtendedCqInitial*) -> ExtendedCq* { return nullptr; };
  extended.query_real_time = [](Context*, RealTimeValues*) { return 0; };
  Context* const context = &extended.context;
  const auto has = [&](auto member) { return function_of(context, member) != nullptr; };
  extended.bytes = sizeof extended;
  EXPECT_FALSE(has(&ExtendedContext::create_cq)) << "not an extended one";
  context->abi_compat = reinterpret_cast<void*>(kIsExtended);
  EXPECT_TRUE(has(&ExtendedContext::create_cq));
  EXPECT_TRUE(has(&ExtendedContext::query_real_time));
  EXPECT_FALSE(has(&ExtendedContext::query_device)) << "the driver has none";
  extended.bytes = sizeof extended - offsetof(ExtendedContext, create_cq);
  EXPECT_TRUE(has(&ExtendedContext::create_cq));
  EXPECT_FALSE(has(&ExtendedContext::query_real_time));
}

TEST(verbs_library, list_ports__reads_the_kernels_records) {
  const auto functions = load_library(TUTTI_FAKE_VERBS);
  ASSERT_TRUE(functions.ok()) << functions.status().message();
  std::string directory = ::testing::TempDir() + "verbs-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(directory.data()));
  const std::string kept = directory + "/fake_1/ports/1/gid_attrs/";
  std::filesystem::create_directories(kept + "types");
  std::filesystem::create_directories(kept + "ndevs");
  std::ofstream(kept + "types/0") << "RoCE v2\n";
  std::ofstream(kept + "ndevs/0") << "eth1\n";
  const auto ports = list_ports(*functions, directory);
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(ports.ok());
  ASSERT_EQ(2U, ports->size());
  const Port& port = (*ports)[1];
  EXPECT_EQ("fake_1", port.device);
  EXPECT_TRUE(port.is_active);
  EXPECT_EQ(4096, port.mtu_bytes);
  EXPECT_EQ(100'000, port.speed_mbps);
  ASSERT_EQ(1U, port.gids.size());  // The other one is empty.
  EXPECT_TRUE(port.gids[0].is_roce_v2);
  EXPECT_EQ("eth1", port.gids[0].interface);
}

}  // namespace
}  // namespace tutti::wire::verbs
