// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/machine.hpp"

#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

/// GPUs and NICs that are up, with one kind for each pair of GPU and NIC.
Machine machine_of(const std::vector<std::vector<LinkKind>>& kinds) {
  Machine machine;
  machine.gpus.resize(kinds.size());
  machine.nics.resize(kinds[0].size());
  for (Nic& nic : machine.nics) {
    nic.is_up = true;
  }
  const auto gpus = static_cast<int>(kinds.size());
  for (int gpu = 0; gpu < gpus; ++gpu) {
    for (int nic = 0; nic < static_cast<int>(kinds[0].size()); ++nic) {
      Link link;
      link.a = gpu;
      link.b = gpus + nic;
      link.kind = kinds[static_cast<std::size_t>(gpu)][static_cast<std::size_t>(nic)];
      machine.links.push_back(link);
    }
  }
  return machine;
}

using Serves = std::vector<std::vector<int>>;
constexpr LinkKind kPix = LinkKind::kPix;
constexpr LinkKind kSys = LinkKind::kSys;

TEST(machine, device_label__both_ways) {
  const Machine machine = machine_of({{kPix, kSys}, {kSys, kPix}});
  EXPECT_EQ("GPU1", device_label(machine, 1));
  EXPECT_EQ("NIC0", device_label(machine, 2));
  for (int device = 0; device < machine.devices(); ++device) {
    EXPECT_EQ(device, parse_device_label(machine, device_label(machine, device)));
  }
  for (const char* wrong :
       {"GPU2", "NIC2", "GPU", "GPU-1", "CPU0", "", "GPU0x", "GPU99999999999"}) {
    EXPECT_EQ(std::nullopt, parse_device_label(machine, wrong)) << wrong;
  }
}

TEST(machine, link_word__both_ways) {
  for (const char* word : {"NV1", "NV18", "XGMI", "PIX", "PXB", "PHB", "NODE", "SYS"}) {
    const auto link = parse_link_word(word);
    ASSERT_TRUE(link.has_value()) << word;
    EXPECT_EQ(word, link_word(*link));
  }
  for (const char* wrong : {"X", "NV", "NV0", "NV-1", "nv1", "PIXX", "", "NV1025"}) {
    EXPECT_FALSE(parse_link_word(wrong).has_value()) << wrong;
  }
}

TEST(machine, link_between__follows_from_numa_nodes_without_a_link) {
  Machine machine = machine_of({{kPix}, {kSys}, {kSys}});
  machine.links.clear();
  machine.numa_nodes = {{.number = 0, .socket = 0, .cpus = {}},
                        {.number = 1, .socket = 1, .cpus = {}}};
  machine.gpus[0].numa = machine.gpus[1].numa = 0;
  machine.gpus[2].numa = 1;
  EXPECT_EQ(LinkKind::kNode, link_between(machine, 1, 0).kind);
  EXPECT_EQ(kSys, link_between(machine, 2, 0).kind);
  EXPECT_EQ(kSys, link_between(machine, 0, 3).kind) << "unknown is far";
  EXPECT_EQ(LinkKind::kSelf, link_between(machine, 3, 3).kind);
}

TEST(machine, rail_nics__the_fastest_that_are_up_rdma_first) {
  Machine machine;
  const auto add = [&](std::uint64_t rate, bool is_rdma, bool is_up) {
    Nic nic;
    nic.rate_mbit_s = rate;
    nic.is_rdma = is_rdma;
    nic.is_up = is_up;
    machine.nics.push_back(nic);
  };
  EXPECT_TRUE(rail_nics(machine).empty());
  EXPECT_EQ(0, rail_count(machine));
  add(400000, false, false);
  EXPECT_TRUE(rail_nics(machine).empty());
  add(100000, false, true);
  add(1000, false, true);
  EXPECT_EQ((std::vector<int>{1}), rail_nics(machine));
  add(50000, true, true);
  add(50000, true, true);
  add(25000, true, true);
  EXPECT_EQ((std::vector<int>{3, 4}), rail_nics(machine));
  machine.rails = 7;
  EXPECT_EQ(7, rail_count(machine));
}

TEST(machine, nics_of_gpus__each_its_nearest) {
  EXPECT_EQ((Serves{{1}, {0}}), nics_of_gpus(machine_of({{kSys, kPix}, {kPix, kSys}})));
}

TEST(machine, nics_of_gpus__equally_near_ones_are_shared_out) {
  EXPECT_EQ((Serves{{0}, {1}}), nics_of_gpus(machine_of({{kPix, kPix}, {kPix, kPix}})));
  // GPU 0 leaves NIC 0 to GPU 1, which has no other.
  EXPECT_EQ((Serves{{1}, {0}}), nics_of_gpus(machine_of({{kPix, kPix}, {kPix, kSys}})));
}

TEST(machine, nics_of_gpus__fewer_nics_than_gpus_are_shared) {
  EXPECT_EQ((Serves{{0}, {0}, {1}, {1}}),
            nics_of_gpus(machine_of({{kPix, kSys}, {kPix, kSys}, {kSys, kPix}, {kSys, kPix}})));
  EXPECT_EQ((Serves{{0}, {0}, {0}}), nics_of_gpus(machine_of({{kSys}, {kSys}, {kPix}})));
}

TEST(machine, nics_of_gpus__more_nics_than_gpus_give_a_gpu_several) {
  EXPECT_EQ((Serves{{0, 1}, {2, 3}}),
            nics_of_gpus(machine_of({{kPix, kPix, kSys, kSys}, {kSys, kSys, kPix, kPix}})));
  EXPECT_EQ((Serves{{0, 2}, {1}}),
            nics_of_gpus(machine_of({{kPix, kPix, kPix}, {kPix, kPix, kPix}})));
}

TEST(machine, nics_of_gpus__without_nics_or_gpus) {
  Machine machine = machine_of({{kPix}});
  machine.nics[0].is_up = false;
  EXPECT_EQ((Serves{{}}), nics_of_gpus(machine));
  machine.gpus.clear();
  EXPECT_TRUE(nics_of_gpus(machine).empty());
}

TEST(machine, socket_of_cpus__all_on_one) {
  Machine machine;
  machine.sockets = {{.number = 0, .cpus = {0, 1, 2}}, {.number = 1, .cpus = {3, 4}}};
  EXPECT_EQ(0, socket_of_cpus(machine, {1}));
  EXPECT_EQ(1, socket_of_cpus(machine, {3, 4}));
  EXPECT_EQ(-1, socket_of_cpus(machine, {2, 3}));
  EXPECT_EQ(-1, socket_of_cpus(machine, {9}));
  EXPECT_EQ(-1, socket_of_cpus(machine, {}));
}

TEST(machine, socket_of_gpu__by_any_form_of_the_address) {
  Machine machine;
  machine.gpus.resize(1);
  machine.gpus[0].pci = "0000:1b:00.0";
  machine.gpus[0].socket = 1;
  EXPECT_EQ(1, socket_of_gpu(machine, "00000000:1B:00.0"));
  EXPECT_EQ(-1, socket_of_gpu(machine, "0000:1c:00.0"));
  EXPECT_EQ(-1, socket_of_gpu(machine, ""));
}

TEST(machine, normal_pci__forms) {
  EXPECT_EQ("0000:1b:00.0", normal_pci("00000000:1B:00.0"));
  EXPECT_EQ("0000:1b:00.1", normal_pci("1b:00.1"));
  EXPECT_EQ("10000:e1:1f.7", normal_pci("10000:e1:1f.7"));
  for (const char* wrong : {"", ".", ":.", "1b:00", "1b.0", "0000:1b:20.0", "0000:1b:00.8",
                            "0000:1bb:00.0", "0:0:0:0:0.0", "g:00.0", ":00.0"}) {
    EXPECT_EQ(std::nullopt, normal_pci(wrong)) << wrong;
  }
}

TEST(machine, parse_cpus__both_ways) {
  EXPECT_EQ((std::vector<int>{0, 1, 2, 8}), parse_cpus("8,0-2"));
  EXPECT_EQ("0-2,8", format_cpus({0, 1, 2, 8}));
  EXPECT_EQ(std::vector<int>(), parse_cpus(""));
  EXPECT_EQ("", format_cpus({}));
  EXPECT_EQ(65536U, parse_cpus("0-65535")->size());
  for (const char* wrong : {"a", "1-", "-1", "3-1", "1,,2", "1,", "0-65536", " 1"}) {
    EXPECT_EQ(std::nullopt, parse_cpus(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace tutti::topology
