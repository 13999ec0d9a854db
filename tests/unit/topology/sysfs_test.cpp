// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The reader on listings of four kinds of machine (trees/).
#include "topology/sysfs.hpp"

#include <gtest/gtest.h>

#include "base/json_document.hpp"

namespace tutti::topology {
namespace {

RecordedTree tree_of(const std::string& name) {
  const std::string path = std::string(TREES_DIRECTORY) + "/" + name + ".tree";
  const auto text = read_json_file(path);
  EXPECT_TRUE(text.ok());
  auto tree = RecordedTree::parse(*text, path);
  EXPECT_TRUE(tree.ok()) << tree.status().message();
  return *tree;
}

std::string row(const Machine& machine, int device) {
  std::string words;
  const auto matrix = link_matrix(machine);
  for (const std::string& word : matrix[static_cast<std::size_t>(device)]) {
    words += (words.empty() ? "" : " ") + word;
  }
  return words;
}

TEST(sysfs, eight_gpus__each_has_the_nic_behind_its_switch) {
  const Machine machine = machine_from_sysfs(tree_of("eight_gpus"), {});
  ASSERT_EQ(2U, machine.sockets.size());
  EXPECT_EQ("56-111", format_cpus(machine.sockets[1].cpus));
  ASSERT_EQ(2U, machine.numa_nodes.size());
  EXPECT_EQ(1, machine.numa_nodes[1].socket);
  ASSERT_EQ(8U, machine.gpus.size()) << "the management controller's graphics are no GPU";
  EXPECT_EQ("0000:1b:00.0", machine.gpus[0].pci);
  EXPECT_EQ(0, machine.gpus[3].socket);
  EXPECT_EQ(1, machine.gpus[4].socket);
  ASSERT_EQ(13U, machine.nics.size()) << "the loopback interface is no NIC";
  EXPECT_EQ("eno3", machine.nics[0].name);
  EXPECT_EQ("mlx5_0", machine.nics[1].name);
  EXPECT_EQ("ibp24s0", machine.nics[1].net);
  EXPECT_EQ(400'000U, machine.nics[1].rate_mbit_s);
  EXPECT_EQ(
      "X NODE NODE NODE SYS SYS SYS SYS NODE PIX NODE NODE NODE NODE NODE SYS SYS SYS SYS SYS SYS",
      row(machine, 0));
  // Storage has slower ports, management none with RDMA: neither is a rail.
  EXPECT_EQ((std::vector<int>{1, 4, 5, 6, 7, 10, 11, 12}), rail_nics(machine));
  EXPECT_EQ((std::vector<std::vector<int>>{{1}, {4}, {5}, {6}, {7}, {10}, {11}, {12}}),
            nics_of_gpus(machine));
  EXPECT_EQ(504'112U, link_between(machine, 0, 9).rate_mbit_s) << "PCIe 5, 16 lanes";
}

TEST(sysfs, four_gpus__two_share_a_nic) {
  const Machine machine = machine_from_sysfs(tree_of("four_gpus"), {});
  ASSERT_EQ(4U, machine.gpus.size());
  ASSERT_EQ(3U, machine.nics.size()) << "a virtual function is not a NIC of its own";
  EXPECT_FALSE(machine.nics[2].is_up);
  EXPECT_EQ("X PHB SYS SYS PHB SYS SYS", row(machine, 0));
  EXPECT_EQ("SYS SYS PHB PHB SYS X PIX", row(machine, 5)) << "two functions of one card";
  EXPECT_EQ((std::vector<std::vector<int>>{{0}, {0}, {1}, {1}}), nics_of_gpus(machine));
  EXPECT_EQ(2, rail_count(machine));
}

TEST(sysfs, laptop__no_gpu_and_no_rail) {
  const Machine machine = machine_from_sysfs(tree_of("laptop"), {});
  EXPECT_EQ(1U, machine.sockets.size());
  EXPECT_TRUE(machine.gpus.empty());
  ASSERT_EQ(1U, machine.nics.size()) << "Wi-Fi is no NIC for us";
  EXPECT_EQ("enp0s31f6", machine.nics[0].name);
  EXPECT_EQ(0, machine.nics[0].numa) << "-1 means the only one";
  EXPECT_EQ(0, rail_count(machine));
}

TEST(sysfs, cloud_vm__flat_bus) {
  const Machine machine = machine_from_sysfs(tree_of("cloud_vm"), {});
  ASSERT_EQ(1U, machine.nics.size());
  EXPECT_EQ("0000:00:03.0", machine.nics[0].pci) << "the PCI device behind virtio0";
  EXPECT_TRUE(machine.nics[0].is_up);
  EXPECT_EQ(0U, machine.nics[0].rate_mbit_s) << "unknown, not -1";
  EXPECT_EQ("X PHB", row(machine, 0));
  EXPECT_EQ(1, rail_count(machine));
}

TEST(sysfs, empty_tree__nothing_is_known) {
  const Machine machine = machine_from_sysfs(*RecordedTree::parse("", "f"), {});
  EXPECT_EQ(Machine{}, machine);
  EXPECT_EQ(0, rail_count(machine));
}

TEST(sysfs, vendor__says_which_gpus_there_are_and_adds_its_links) {
  VendorFacts vendor;
  vendor.is_known = true;
  vendor.gpus.resize(3);
  vendor.gpus[0].pci = "0000:02:00.0";  // Not all that sysfs shows: a container's share.
  vendor.gpus[0].name = "A";
  vendor.gpus[1].pci = "0000:81:00.0";
  vendor.gpus[2].name = "no address";
  Link nvlink;
  nvlink.b = 1;
  nvlink.kind = LinkKind::kNvlink;
  nvlink.nvlinks = 4;
  nvlink.rate_mbit_s = 800'000;
  Link by_vendor;  // Taken: sysfs has no path for GPU 2.
  by_vendor.a = 1;
  by_vendor.b = 2;
  by_vendor.kind = LinkKind::kPxb;
  vendor.links = {nvlink, by_vendor};
  const Machine machine = machine_from_sysfs(tree_of("four_gpus"), vendor);
  ASSERT_EQ(3U, machine.gpus.size());
  EXPECT_EQ("A", machine.gpus[0].name);
  EXPECT_EQ(1, machine.gpus[1].socket);
  EXPECT_EQ("X NV4 SYS PHB SYS SYS", row(machine, 0));
  EXPECT_EQ("NV4 X PXB SYS PHB PHB", row(machine, 1));
  EXPECT_EQ(800'000U, link_between(machine, 0, 1).rate_mbit_s);
  vendor.gpus.clear();
  vendor.links.clear();
  EXPECT_TRUE(machine_from_sysfs(tree_of("four_gpus"), vendor).gpus.empty());
}

TEST(sysfs, pcie_rate_mbit_s__generations) {
  EXPECT_EQ(2'000U * 16, pcie_rate_mbit_s("2.5 GT/s PCIe", "16"));
  EXPECT_EQ(4'000U * 8, pcie_rate_mbit_s("5.0 GT/s PCIe", "8"));
  EXPECT_EQ(7'876U * 16, pcie_rate_mbit_s("8 GT/s", "16"));
  EXPECT_EQ(31'507U * 16, pcie_rate_mbit_s("32.0 GT/s PCIe", "16"));
  for (const char* wrong : {"", "Unknown", "-1", "99999 GT/s"}) {
    EXPECT_EQ(0U, pcie_rate_mbit_s(wrong, "16")) << wrong;
  }
  EXPECT_EQ(0U, pcie_rate_mbit_s("8.0 GT/s", "255"));  // How a bridge says "none".
}

TEST(sysfs, pci_link_kind__by_what_two_paths_share) {
  const std::string root = "/sys/devices/pci0000:15/";
  const std::string up = root + "0000:15:01.0/0000:16:00.0/";
  EXPECT_EQ(LinkKind::kPix, pci_link_kind(up + "0000:17:00.0/0000:18:00.0",
                                          up + "0000:17:01.0/0000:19:00.0", true));
  EXPECT_EQ(LinkKind::kPxb,
            pci_link_kind(up + "0000:17:00.0/0000:18:00.0",
                          up + "0000:17:01.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0", true));
  EXPECT_EQ(LinkKind::kPhb, pci_link_kind(root + "0000:15:01.0/0000:16:00.0",
                                          root + "0000:15:02.0/0000:17:00.0", true));
  const std::string other = "/sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0";
  EXPECT_EQ(LinkKind::kNode, pci_link_kind(up + "0000:17:00.0", other, true));
  EXPECT_EQ(LinkKind::kSys, pci_link_kind(up + "0000:17:00.0", other, false));
}

}  // namespace
}  // namespace tutti::topology
