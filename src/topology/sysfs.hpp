// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A machine from what the Linux kernel tells in sysfs (Documentation/ABI in its source) and what a
// vendor's management library adds: which GPUs this process may see, and the links between them
// that PCI does not know. Pure: the tree and the vendor's facts are passed in.
#pragma once

#include <vector>

#include "topology/machine.hpp"
#include "topology/tree.hpp"

namespace tutti::topology {

/// What NVML or ROCm SMI says. Links are by index into `gpus`.
struct VendorFacts {
  bool is_known =
      false;  ///< false: no library answered, and sysfs alone says which GPUs there are.
  std::vector<Gpu> gpus;  ///< Sockets are filled in by the reader.
  std::vector<Link> links;
};

/// Never fails: what the tree does not have is unknown in the machine.
Machine machine_from_sysfs(const Tree& tree, const VendorFacts& vendor);

/// One way, of PCIe as sysfs writes it ("32.0 GT/s PCIe", "16"), after its line code; 0: unknown.
std::uint64_t pcie_rate_mbit_s(const std::string& speed, const std::string& width);

/// The way between two PCI devices by their sysfs paths,
/// "/sys/devices/pci0000:15/0000:15:01.0/...", and whether they are of one NUMA node.
LinkKind pci_link_kind(const std::string& a, const std::string& b, bool is_same_numa);

}  // namespace tutti::topology
