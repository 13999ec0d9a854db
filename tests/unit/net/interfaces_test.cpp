// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/interfaces.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace tutti::net {
namespace {

namespace fs = std::filesystem;

NameFilter names(const std::string& text) {
  const Result<NameFilter> filter = parse_name_filter(text, "NCCL_SOCKET_IFNAME");
  EXPECT_TRUE(filter.ok()) << filter.status().message();
  return filter.ok() ? *filter : NameFilter{};
}

Interface interface(const std::string& name, std::vector<InterfaceAddress> addresses) {
  Interface it;
  it.name = name;
  it.is_running = true;
  it.is_loopback = name == "lo";
  it.mtu_bytes = 1500;
  it.addresses = std::move(addresses);
  return it;
}

Interface ipv4(const std::string& name, const std::string& address) {
  return interface(name, {{Family::kIpv4, address, false}});
}

/// A host with one of everything.
std::vector<Interface> host() {
  return {ipv4("lo", "127.0.0.1"), ipv4("eth0", "192.0.2.1"), ipv4("eth1", "192.0.2.2"),
          ipv4("eth10", "192.0.2.10"), ipv4("docker0", "172.17.0.1")};
}

std::vector<std::string> chosen(const std::vector<Interface>& interfaces, const std::string& text,
                                Family family = Family::kAny) {
  std::vector<std::string> found;
  for (const NetDevice& device : choose_devices(interfaces, names(text), family, 10'000)) {
    found.push_back(device.name);
  }
  return found;
}

using Names = std::vector<std::string>;

TEST(interfaces, parse_name_filter__prefixes_exclusions_and_whole_names) {
  EXPECT_TRUE(names("").fits("anything"));
  EXPECT_TRUE(names("eth").fits("eth0"));
  EXPECT_FALSE(names("eth").fits("ens1"));
  EXPECT_TRUE(names("ens, eth1").fits("eth10"));
  EXPECT_FALSE(names("=eth1").fits("eth10"));
  EXPECT_TRUE(names("=eth0,eth1").fits("eth1"));
  EXPECT_FALSE(names("^docker,lo").fits("lo"));
  EXPECT_TRUE(names("^docker,lo").fits("eth0"));
  EXPECT_FALSE(names("^=eth1").fits("eth1"));
  EXPECT_TRUE(names("^=eth1").fits("eth10"));
  EXPECT_EQ((Names{"eth0", "eth1"}), names(",eth0,, eth1,").names);
  // What follows a colon is a port, of no meaning here; a second = or ^ is part of a name.
  EXPECT_EQ((Names{"eth0", "eth1"}), names("=eth0:1,eth1:").names);
  EXPECT_EQ((Names{"eth1"}), names(":2,eth1").names);
  EXPECT_FALSE(names("==eth0").fits("eth0"));
  EXPECT_TRUE(names("eth0,=eth1").fits("eth0"));
  EXPECT_FALSE(names("eth0,=eth1").fits("eth1"));
  EXPECT_TRUE(names("^eth0,^eth1").fits("eth1"));
}

TEST(interfaces, parse_name_filter__errors_name_place_and_remedy) {
  for (const char* text : {"^", "=", "^=", ",", "^,"}) {
    const Result<NameFilter> filter = parse_name_filter(text, "X");
    ASSERT_FALSE(filter.ok()) << text;
    EXPECT_EQ(ErrorCode::kInvalidConfig, filter.status().code());
    EXPECT_NE(std::string::npos, filter.status().message().find("names no interface; write"));
  }
}

TEST(interfaces, parse_family__the_names_that_nccl_knows) {
  EXPECT_EQ(Family::kAny, *parse_family("", "X"));
  EXPECT_EQ(Family::kIpv4, *parse_family("AF_INET", "X"));
  EXPECT_EQ(Family::kIpv6, *parse_family(" AF_INET6 ", "X"));
  EXPECT_EQ("X: 'inet' is not allowed; write AF_INET or AF_INET6",
            parse_family("inet", "X").status().message());
}

TEST(interfaces, choose_address__global_before_link_local_then_ipv4_then_the_first) {
  const Interface it = interface("eth0", {{Family::kIpv4, "169.254.0.1", true},
                                          {Family::kIpv6, "fe80::1%eth0", true},
                                          {Family::kIpv6, "2001:db8::1", false},
                                          {Family::kIpv6, "2001:db8::2", false}});
  EXPECT_EQ("2001:db8::1", choose_address(it, Family::kAny)->text);
  EXPECT_EQ("169.254.0.1", choose_address(it, Family::kIpv4)->text);
  EXPECT_EQ("2001:db8::1", choose_address(it, Family::kIpv6)->text);
  Interface both = it;
  both.addresses.push_back({Family::kIpv4, "192.0.2.1", false});
  both.addresses.push_back({Family::kIpv4, "192.0.2.2", false});
  EXPECT_EQ("192.0.2.1", choose_address(both, Family::kAny)->text);
  EXPECT_EQ(nullptr, choose_address(ipv4("eth0", "192.0.2.1"), Family::kIpv6));
}

TEST(interfaces, choose_devices__by_default_loopback_and_bridges_only_if_there_is_nothing_else) {
  EXPECT_EQ((Names{"eth0", "eth1", "eth10"}), chosen(host(), ""));
  const Interface loopback = ipv4("lo", "127.0.0.1");
  const Interface docker = ipv4("docker0", "172.17.0.1");
  EXPECT_EQ((Names{"docker0"}), chosen({loopback, docker}, ""));
  EXPECT_EQ((Names{"lo"}), chosen({loopback}, ""));
  for (const char* name :
       {"br-0a1b2c", "cni0", "flannel.1", "veth12ab", "virbr0", "cali0", "lxdbr0"}) {
    const Interface container = ipv4(name, "172.18.0.1");
    EXPECT_EQ((Names{"eth0"}), chosen({ipv4("eth0", "192.0.2.1"), container, loopback}, ""))
        << name;
    EXPECT_EQ((Names{name}), chosen({container, loopback}, "")) << name;
    EXPECT_EQ((Names{name}), chosen({ipv4("eth0", "192.0.2.1"), container}, name)) << name;
    Interface on_hardware = container;
    on_hardware.is_hardware = true;
    EXPECT_EQ((Names{"eth0", name}), chosen({ipv4("eth0", "192.0.2.1"), on_hardware}, "")) << name;
  }
  EXPECT_EQ(Names{}, chosen({}, ""));
}

TEST(interfaces, choose_devices__by_default_infiniband_alone_where_there_is_one) {
  std::vector<Interface> with = host();
  with.push_back(ipv4("ib0", "198.51.100.1"));
  with.push_back(ipv4("ibs3f1", "198.51.100.2"));
  EXPECT_EQ((Names{"ib0", "ibs3f1"}), chosen(with, ""));
  EXPECT_EQ((Names{"eth0", "eth1", "eth10", "ib0"}), chosen(with, "^ibs"));
  with[5].is_running = with[6].is_running = false;
  EXPECT_EQ((Names{"eth0", "eth1", "eth10"}), chosen(with, ""));
}

TEST(interfaces, choose_devices__names_that_were_asked_for) {
  EXPECT_EQ((Names{"eth1", "eth10"}), chosen(host(), "eth1"));
  EXPECT_EQ((Names{"eth1"}), chosen(host(), "=eth1"));
  EXPECT_EQ((Names{"lo", "docker0"}), chosen(host(), "lo,docker"));
  EXPECT_EQ((Names{"lo", "eth0"}), chosen(host(), "=eth0,lo"));
  EXPECT_EQ(Names{}, chosen(host(), "ens"));
}

TEST(interfaces, choose_devices__what_is_left_over_by_an_exclusion) {
  EXPECT_EQ((Names{"eth0"}), chosen(host(), "^eth1"));
  EXPECT_EQ((Names{"eth0", "eth10"}), chosen(host(), "^=eth1"));
  EXPECT_EQ((Names{"docker0"}), chosen(host(), "^eth"));
  EXPECT_EQ((Names{"lo"}), chosen(host(), "^eth,docker"));
}

TEST(interfaces, choose_devices__only_what_runs_and_has_an_address_of_the_family) {
  std::vector<Interface> all = host();
  all[1].is_running = false;
  all[2].addresses = {{Family::kIpv6, "fe80::1%eth1", true}};
  all[3].addresses = {};
  EXPECT_EQ((Names{"eth1"}), chosen(all, ""));
  EXPECT_EQ((Names{"eth1"}), chosen(all, "", Family::kIpv6));
  EXPECT_EQ((Names{"docker0"}), chosen(all, "", Family::kIpv4));
}

TEST(interfaces, choose_devices__speed_of_hardware_else_the_default) {
  std::vector<Interface> all = {ipv4("eth0", "192.0.2.1"), ipv4("eth1", "192.0.2.2"),
                                ipv4("tun0", "192.0.2.3")};
  all[0].is_hardware = all[1].is_hardware = true;
  all[0].speed_mbps = 25'000;
  all[2].speed_mbps = 10'000;
  const std::vector<NetDevice> devices = choose_devices(all, {}, Family::kAny, 1'000);
  ASSERT_EQ(3U, devices.size());
  EXPECT_EQ(25'000, devices[0].speed_mbps);
  EXPECT_EQ(1'000, devices[1].speed_mbps) << "it does not say";
  EXPECT_EQ(1'000, devices[2].speed_mbps) << "it makes one up";
  EXPECT_EQ(1500, devices[0].mtu_bytes);
  EXPECT_EQ("192.0.2.1", devices[0].address);
}

TEST(interfaces, choose_devices__guids_are_steady_and_differ) {
  // Two ports of one PCI device; the same name in two containers.
  std::vector<Interface> all = {ipv4("eth0", "192.0.2.1"), ipv4("eth1", "192.0.2.2"),
                                ipv4("eth0", "192.0.2.3")};
  all[0].pci_path = all[1].pci_path = "/sys/devices/pci0000:00/0000:00:03.0";
  all[0].hardware_address = "02:00:00:00:00:01";
  all[2].hardware_address = "02:00:00:00:00:02";
  std::set<std::uint64_t> guids;
  for (const NetDevice& device : choose_devices(all, {}, Family::kAny, 1)) {
    guids.insert(device.guid);
  }
  EXPECT_EQ(3U, guids.size());
  // Not the address, which a lease may change.
  std::vector<Interface> later = {all[0]};
  later[0].addresses[0].text = "192.0.2.99";
  EXPECT_EQ(1U, guids.count(choose_devices(later, {}, Family::kAny, 1)[0].guid));
}

/// A copy of /sys in small.
class Sysfs : public ::testing::Test {
 protected:
  Sysfs() : root_(fs::temp_directory_path() / ("interfaces_test." + std::to_string(getpid()))) {
    fs::create_directories(root_ / "class/net");
    for (const char* bus : {"pci", "usb", "virtio"}) {
      fs::create_directories(root_ / "bus" / bus);
    }
  }
  ~Sysfs() override { fs::remove_all(root_); }

  fs::path device(const std::string& path, const std::string& bus) {
    fs::create_directories(root_ / "devices" / path);
    fs::create_directory_symlink(root_ / "bus" / bus, root_ / "devices" / path / "subsystem");
    return root_ / "devices" / path;
  }
  void add(const std::string& name, const std::string& speed, const fs::path& its_device = {}) {
    const fs::path directory = root_ / "class/net" / name;
    fs::create_directories(directory);
    std::ofstream(directory / "speed") << speed;
    if (!its_device.empty()) {
      fs::create_directory_symlink(its_device, directory / "device");
    }
  }
  void stack(const std::string& upper, const std::string& lower) {
    fs::create_directory_symlink(root_ / "class/net" / lower,
                                 root_ / "class/net" / upper / ("lower_" + lower));
  }
  Interface read(const std::string& name) {
    Interface it = ipv4(name, "192.0.2.1");
    read_device(root_ / "class/net", &it);
    return it;
  }

  fs::path root_;
};

TEST_F(Sysfs, read_device__hardware_on_pci) {
  const fs::path nic = device("pci0000:00/0000:00:03.0", "pci");
  add("eth0", "100000\n", nic);
  const Interface it = read("eth0");
  EXPECT_TRUE(it.is_hardware);
  EXPECT_EQ(100'000, it.speed_mbps);
  EXPECT_EQ(fs::canonical(nic), it.pci_path);
  EXPECT_TRUE(it.near_processors.empty()) << "not said";
  std::ofstream(nic / "local_cpulist") << "0-1,4\n";
  EXPECT_EQ((std::vector<int>{0, 1, 4}), read("eth0").near_processors);
}

TEST_F(Sysfs, read_device__virtio_is_where_its_pci_device_is) {
  const fs::path pci = device("pci0000:00/0000:00:04.0", "pci");
  add("eth0", "-1\n", device("pci0000:00/0000:00:04.0/virtio1", "virtio"));
  const Interface it = read("eth0");
  EXPECT_TRUE(it.is_hardware);
  EXPECT_EQ(0, it.speed_mbps);
  EXPECT_EQ(fs::canonical(pci), it.pci_path);
}

TEST_F(Sysfs, read_device__usb_and_virtual_ones_have_no_pci_path) {
  add("usb0", "1000\n", device("pci0000:00/0000:00:14.0/usb1", "usb"));
  add("veth0", "10000\n");
  EXPECT_EQ("", read("usb0").pci_path);
  EXPECT_TRUE(read("usb0").is_hardware);
  EXPECT_EQ("", read("veth0").pci_path);
  EXPECT_FALSE(read("veth0").is_hardware);
}

TEST_F(Sysfs, read_device__a_vlan_on_a_bond_on_hardware_has_the_bonds_speed) {
  add("eth0", "25000\n", device("pci0000:00/0000:00:03.0", "pci"));
  add("bond0", "50000\n");
  add("bond0.7", "50000\n");
  stack("bond0", "eth0");
  stack("bond0.7", "bond0");
  const Interface it = read("bond0.7");
  EXPECT_TRUE(it.is_hardware);
  EXPECT_EQ(50'000, it.speed_mbps);
  EXPECT_EQ("", it.pci_path);
}

TEST_F(Sysfs, read_device__nonsense_and_nothing) {
  add("eth0", "fast\n");
  add("a", "1\n");
  add("b", "1\n");
  stack("a", "b");
  stack("b", "a");
  EXPECT_EQ(0, read("eth0").speed_mbps);
  EXPECT_FALSE(read("a").is_hardware) << "a circle ends";
  EXPECT_EQ(0, read("absent").speed_mbps);
  EXPECT_EQ("", read("absent").pci_path);
}

TEST(interfaces, read_interfaces__this_host) {
  const Result<std::vector<Interface>> all = read_interfaces();
  ASSERT_TRUE(all.ok()) << all.status().message();
  std::set<std::string> seen;
  for (const Interface& it : *all) {
    EXPECT_TRUE(seen.insert(it.name).second) << it.name;
    EXPECT_GT(it.mtu_bytes, 0) << it.name;
    for (const InterfaceAddress& address : it.addresses) {
      EXPECT_FALSE(address.text.empty());
      EXPECT_NE(Family::kAny, address.family);
    }
  }
}

TEST(interfaces, find_devices__errors) {
  InterfaceFilter filter;
  filter.names = "=no-such-name-here";
  Result<std::vector<NetDevice>> found = find_devices(filter);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(ErrorCode::kUnavailable, found.status().code());
  EXPECT_EQ(0U, found.status().message().find("no network interface that NCCL_SOCKET_IFNAME="
                                              "'=no-such-name-here' allows is up; there are: "))
      << found.status().message();
  filter.family = "AF_UNIX";
  EXPECT_EQ(ErrorCode::kInvalidConfig, find_devices(filter).status().code());
  filter.names = "^";
  EXPECT_NE(std::string::npos, find_devices(filter).status().message().find("NCCL_SOCKET_IFNAME"));
}

}  // namespace
}  // namespace tutti::net
