// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/sysfs.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace tutti::topology {
namespace {

constexpr const char* kPciDevices = "/sys/bus/pci/devices/";

std::size_t nth(int number) { return static_cast<std::size_t>(number); }

/// The integer at the beginning of a text, in decimal or, after 0x, in hexadecimal.
std::optional<long> leading_number(const std::optional<std::string>& text) {
  if (!text) {
    return std::nullopt;
  }
  const bool is_hex = text->starts_with("0x");
  const char* begin = text->data() + (is_hex ? 2 : 0);
  long value = 0;
  const auto [end, error] =
      std::from_chars(begin, text->data() + text->size(), value, is_hex ? 16 : 10);
  if (error != std::errc() || end == begin) {
    return std::nullopt;
  }
  return value;
}

/// "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/net/eth0" as {"pci0000:15", "0000:15:01.0",
/// "0000:16:00.0"}; empty for what is not behind PCI.
std::vector<std::string> pci_chain(const std::string& path) {
  std::vector<std::string> chain;
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t slash = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, slash - begin);
    const bool is_root = part.starts_with("pci") && part.find(':') != std::string::npos;
    if (is_root) {
      chain = {part};
    } else if (!chain.empty() && normal_pci(part)) {
      chain.push_back(part);
    }
    begin = slash + 1;
  }
  return chain;
}

class TreeReader {
 public:
  TreeReader(const Tree& tree, const VendorFacts& vendor) : tree_(tree), vendor_(vendor) {}

  Machine machine() {
    read_cpus();
    read_numa_nodes();
    read_gpus();
    read_nics();
    join();
    return std::move(machine_);
  }

 private:
  void read_cpus() {
    std::map<long, std::vector<int>> packages;
    const std::string root = "/sys/devices/system/cpu/";
    const auto online = parse_cpus(tree_.read(root + "online").value_or(""));
    for (const int cpu : online.value_or(std::vector<int>())) {
      const auto package = leading_number(
          tree_.read(root + "cpu" + std::to_string(cpu) + "/topology/physical_package_id"));
      if (package && *package >= 0) {
        packages[*package].push_back(cpu);
      }
    }
    for (const auto& [number, cpus] : packages) {
      machine_.sockets.push_back({.number = static_cast<int>(number), .cpus = cpus});
    }
  }

  void read_numa_nodes() {
    const std::string root = "/sys/devices/system/node/";
    const auto online = parse_cpus(tree_.read(root + "online").value_or(""));
    for (const int number : online.value_or(std::vector<int>())) {
      const auto cpus =
          parse_cpus(tree_.read(root + "node" + std::to_string(number) + "/cpulist").value_or(""));
      NumaNode node{.number = number, .cpus = cpus.value_or(std::vector<int>())};
      node.socket = socket_of_cpus(machine_, node.cpus);
      machine_.numa_nodes.push_back(std::move(node));
    }
  }

  /// NUMA node and socket of a device by its directory in sysfs.
  template <class Device>
  void place(const std::string& directory, Device* device) const {
    const auto numa = leading_number(tree_.read(directory + "/numa_node"));
    if (numa && *numa >= 0) {
      device->numa = static_cast<int>(*numa);
    } else if (device->numa < 0 && machine_.numa_nodes.size() == 1) {
      device->numa =
          machine_.numa_nodes[0].number;  // The kernel writes -1 where there is no choice.
    }
    for (const NumaNode& node : machine_.numa_nodes) {
      device->socket = node.number == device->numa ? node.socket : device->socket;
    }
    if (device->socket < 0) {
      const auto cpus = parse_cpus(tree_.read(directory + "/local_cpulist").value_or(""));
      device->socket = socket_of_cpus(machine_, cpus.value_or(std::vector<int>()));
    }
    if (device->socket < 0 && machine_.sockets.size() == 1) {
      device->socket = 0;
    }
  }

  void read_gpus() {
    if (vendor_.is_known) {
      machine_.gpus = vendor_.gpus;
    } else {
      for (const std::string& address : tree_.list(kPciDevices)) {
        const std::string directory = kPciDevices + address;
        const long device_class = leading_number(tree_.read(directory + "/class")).value_or(0) >> 8;
        const long vendor = leading_number(tree_.read(directory + "/vendor")).value_or(0);
        // PCI code and ID assignment: 0300 VGA, 0302 3D, 0380 other display, 1200 accelerator.
        const bool is_gpu = device_class == 0x0300 || device_class == 0x0302 ||
                            device_class == 0x0380 || device_class == 0x1200;
        constexpr long kNvidia = 0x10de;
        constexpr long kAmd = 0x1002;
        if (is_gpu && (vendor == kNvidia || vendor == kAmd)) {
          machine_.gpus.emplace_back().pci = normal_pci(address).value_or("");
        }
      }
    }
    for (Gpu& gpu : machine_.gpus) {
      place(kPciDevices + gpu.pci, &gpu);
      paths_.push_back(gpu.pci.empty() ? "" : tree_.real_path(kPciDevices + gpu.pci));
    }
  }

  void read_nics() {
    std::map<std::string, Nic> by_path;  // A PCI function's directory; one NIC each.
    for (const std::string& name : tree_.list("/sys/class/infiniband")) {
      const std::string entry = "/sys/class/infiniband/" + name;
      const std::string path = tree_.real_path(entry + "/device");
      if (path.empty() || is_virtual_function(path)) {
        continue;
      }
      Nic nic;
      nic.name = name;
      nic.is_rdma = true;
      for (const std::string& port : tree_.list(entry + "/ports")) {
        const std::string directory = entry + "/ports/" + port;
        // "4: ACTIVE", "400 Gb/sec (4X NDR)".
        if (leading_number(tree_.read(directory + "/state")) == 4) {
          nic.is_up = true;
          const long gbit = leading_number(tree_.read(directory + "/rate")).value_or(0);
          nic.rate_mbit_s += static_cast<std::uint64_t>(std::max(gbit, 0L)) * 1000;
        }
      }
      by_path.try_emplace(path, nic);
    }
    for (const std::string& name : tree_.list("/sys/class/net")) {
      const std::string entry = "/sys/class/net/" + name;
      const std::string path = tree_.real_path(entry + "/device");
      const bool is_wireless = !tree_.real_path(entry + "/phy80211").empty();
      if (path.empty() || is_wireless || pci_chain(path).empty() || is_virtual_function(path)) {
        continue;
      }
      Nic& nic = by_path.try_emplace(path).first->second;
      if (nic.net.empty()) {
        nic.net = name;
      }
      if (!nic.is_rdma && nic.net == name) {
        const std::string state = tree_.read(entry + "/operstate").value_or("");
        nic.name = name;
        nic.is_up = state == "up" || state == "unknown";  // Drivers of virtual NICs say "unknown".
        // Megabits a second, -1 where the driver does not know.
        const long rate = leading_number(tree_.read(entry + "/speed")).value_or(0);
        nic.rate_mbit_s = static_cast<std::uint64_t>(std::max(rate, 0L));
      }
    }
    for (auto& [path, nic] : by_path) {
      place(path, &nic);
      const std::vector<std::string> chain = pci_chain(path);
      nic.pci = chain.size() < 2 ? "" : normal_pci(chain.back()).value_or("");
    }
    // In the order of their addresses, as the vendors' tools number them.
    std::vector<std::pair<std::string, Nic>> sorted(by_path.begin(), by_path.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) {
      return left.second.pci < right.second.pci;
    });
    for (auto& [path, nic] : sorted) {
      paths_.push_back(path);
      machine_.nics.push_back(std::move(nic));
    }
  }

  /// True for a virtual function whose physical one is here too: one port counts once.
  bool is_virtual_function(const std::string& path) const {
    return !tree_.real_path(path + "/physfn").empty();
  }

  std::uint64_t pcie_rate(int device) const {
    const std::string& path = paths_[nth(device)];
    return path.empty() ? 0
                        : pcie_rate_mbit_s(tree_.read(path + "/max_link_speed").value_or(""),
                                           tree_.read(path + "/max_link_width").value_or(""));
  }

  void join() {
    const int devices = machine_.devices();
    std::vector<std::uint64_t> rates;
    for (int device = 0; device < devices; ++device) {
      rates.push_back(pcie_rate(device));
    }
    for (int a = 0; a < devices; ++a) {
      for (int b = a + 1; b < devices; ++b) {
        Link link = implied_link(machine_, a, b);
        const bool is_same_numa = link.kind == LinkKind::kNode;
        const bool has_paths =
            !pci_chain(paths_[nth(a)]).empty() && !pci_chain(paths_[nth(b)]).empty();
        if (has_paths) {
          link.kind = pci_link_kind(paths_[nth(a)], paths_[nth(b)], is_same_numa);
        }
        link.rate_mbit_s = std::min(rates[nth(a)], rates[nth(b)]);
        // A vendor's own link is taken; what it says of PCI only where sysfs shows no path.
        for (const Link& told : vendor_.links) {
          if (told.a == a && told.b == b && (told.kind < LinkKind::kPix || !has_paths)) {
            link.kind = told.kind;
            link.nvlinks = told.nvlinks;
            link.rate_mbit_s = told.rate_mbit_s != 0 ? told.rate_mbit_s : link.rate_mbit_s;
          }
        }
        machine_.links.push_back(link);
      }
    }
  }

  const Tree& tree_;
  const VendorFacts& vendor_;
  Machine machine_;
  std::vector<std::string> paths_;  ///< By device: its directory in sysfs, links resolved.
};

}  // namespace

std::uint64_t pcie_rate_mbit_s(const std::string& speed, const std::string& width) {
  // "2.5", "5.0", "8.0", "16.0", "32.0", "64.0" GT/s: tenths of them, to stay with integers.
  const std::size_t dot = speed.find('.');
  const long whole = leading_number(speed).value_or(0);
  const bool has_tenths = dot != std::string::npos && dot + 1 < speed.size();
  const long tenths =
      has_tenths && speed[dot + 1] >= '0' && speed[dot + 1] <= '9' ? speed[dot + 1] - '0' : 0;
  const long lanes = leading_number(width).value_or(0);
  if (whole <= 0 || whole > 1024 || lanes <= 0 || lanes > 64) {
    return 0;
  }
  const auto mega_transfers = static_cast<std::uint64_t>(whole * 1000 + tenths * 100);
  // 8b/10b up to generation 2, 128b/130b from 3 on (generation 6 differs by less than 2 %).
  const std::uint64_t mbit_s = whole <= 5 ? mega_transfers * 8 / 10 : mega_transfers * 128 / 130;
  return mbit_s * static_cast<std::uint64_t>(lanes);
}

LinkKind pci_link_kind(const std::string& a, const std::string& b, bool is_same_numa) {
  const std::vector<std::string> from = pci_chain(a);
  const std::vector<std::string> to = pci_chain(b);
  const auto split = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
  const auto common = split.first - from.begin();
  if (common == 0) {
    return is_same_numa ? LinkKind::kNode : LinkKind::kSys;
  }
  if (common == 1) {
    return LinkKind::kPhb;  // The host bridge alone.
  }
  // Behind what they share: the port of a switch and the device, or the device's function alone.
  const bool is_one_bridge = from.end() - split.first <= 2 && to.end() - split.second <= 2;
  return is_one_bridge ? LinkKind::kPix : LinkKind::kPxb;
}

Machine machine_from_sysfs(const Tree& tree, const VendorFacts& vendor) {
  return TreeReader(tree, vendor).machine();
}

}  // namespace tutti::topology
