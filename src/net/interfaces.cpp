// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/interfaces.hpp"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "base/message.hpp"
#include "base/random.hpp"
#include "topology/machine.hpp"

namespace tutti::net {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClassDirectory = "/sys/class/net";
/// A bond below a VLAN below a bridge is three.
constexpr int kStackedMax = 8;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool begins_with(std::string_view name, std::string_view prefix) {
  return name.substr(0, prefix.size()) == prefix;
}

/// How eagerly an interface is taken when nobody named it; only the eagerest that are there are.
enum class Tier : std::uint8_t { kInfiniband, kOrdinary, kContainers, kLoopback };

/// What container engines, their networks and hypervisors make on a host. It leads to containers of
/// this host, or through an overlay.
bool is_of_containers(const Interface& interface) {
  constexpr std::string_view kPrefixes[] = {"docker", "virbr",   "br-",  "veth",   "cni",
                                            "podman", "flannel", "cali", "cilium", "vxlan",
                                            "weave",  "lxc",     "lxd",  "vnet",   "kube-"};
  return !interface.is_hardware &&
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return begins_with(interface.name, prefix); });
}

Tier tier_of(const Interface& interface) {
  if (interface.is_loopback) {
    return Tier::kLoopback;
  }
  if (is_of_containers(interface)) {
    return Tier::kContainers;
  }
  return begins_with(interface.name, "ib") ? Tier::kInfiniband : Tier::kOrdinary;
}

/// The same in each process of the host and after a restart, and another one for each interface.
/// The PCI device alone is not enough, since some have two ports; nor is the name, since containers
/// of one host have names of their own.
std::uint64_t guid_of(const Interface& interface) {
  std::uint64_t guid = 0;
  for (const std::string* part :
       {&interface.name, &interface.hardware_address, &interface.pci_path}) {
    for (const char c : *part) {
      guid = mix64(guid + static_cast<unsigned char>(c) + kGolden64);
    }
    guid = mix64(guid + kGolden64 * 2);
  }
  return guid;
}

/// The first line of a small file as a number. Null: it is none, or cannot be read.
std::optional<long> number_in(const fs::path& path) {
  std::ifstream file(path);
  long value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

std::vector<int> processors_in(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return topology::parse_cpus(line).value_or(std::vector<int>());
}

bool is_hardware(const fs::path& class_directory, const std::string& name, int stacked) {
  std::error_code error;
  const fs::path directory = class_directory / name;
  if (fs::exists(directory / "device", error)) {
    return true;
  }
  if (stacked == kStackedMax) {
    return false;
  }
  constexpr std::string_view kLower = "lower_";
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string entry = it->path().filename();
    if (begins_with(entry, kLower) &&
        is_hardware(class_directory, entry.substr(kLower.size()), stacked + 1)) {
      return true;
    }
  }
  return false;
}

/// Real path of the PCI device; empty: the interface is none (virtual, USB, a hypervisor's bus).
std::string pci_path_of(const fs::path& directory) {
  std::error_code error;
  fs::path device = fs::canonical(directory / "device", error);
  if (error) {
    return {};
  }
  const auto bus = [&error](const fs::path& of) {
    return fs::canonical(of / "subsystem", error).filename();
  };
  // A virtio device stands on a PCI device of its own, which tells where it is.
  if (bus(device) == "virtio") {
    device = device.parent_path();
  }
  return bus(device) == "pci" ? device.string() : std::string();
}

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    std::array<char, 4> pair{};
    std::snprintf(pair.data(), pair.size(), "%02x", bytes[i]);
    text += (i == 0 ? "" : ":") + std::string(pair.data());
  }
  return text;
}

/// Takes what one entry of getifaddrs says about its interface.
void take_entry(const ifaddrs& entry, Interface* interface) {
  interface->is_running = (entry.ifa_flags & IFF_UP) != 0 && (entry.ifa_flags & IFF_RUNNING) != 0;
  interface->is_loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  if (entry.ifa_addr == nullptr) {
    return;
  }
  const int family = entry.ifa_addr->sa_family;
  if (family == AF_INET || family == AF_INET6) {
    wire::udp::SocketAddress address;
    address.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry.ifa_addr, address.bytes);
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    const bool is_link_local = family == AF_INET
                                   ? (ntohl(v4.sin_addr.s_addr) >> 16) == 0xa9fe  // RFC 3927
                                   : IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
    // With its link: a link-local address says nothing without (RFC 4007).
    interface->addresses.push_back({family == AF_INET ? Family::kIpv4 : Family::kIpv6,
                                    wire::udp::host_text(address), is_link_local});
  } else if (family == AF_PACKET) {
    sockaddr_ll address{};
    std::memcpy(&address, entry.ifa_addr, sizeof(address));
    interface->hardware_address = hexadecimal(
        address.sll_addr, std::min<std::size_t>(address.sll_halen, sizeof(address.sll_addr)));
  }
}

int mtu_of(int socket, const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return ioctl(socket, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

/// The interfaces for a message: "eth0 (192.0.2.1), ib0 (down)".
std::string list_of(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    const InterfaceAddress* address = choose_address(interface, Family::kAny);
    text += (text.empty() ? "" : ", ") + interface.name + " (" +
            (!interface.is_running ? "down"
             : address == nullptr  ? "no address"
                                   : address->text) +
            ")";
  }
  return text.empty() ? "none" : text;
}

}  // namespace

bool NameFilter::fits(std::string_view name) const {
  const bool is_listed = std::any_of(names.begin(), names.end(), [&](const std::string& listed) {
    return is_exact ? name == listed : begins_with(name, listed);
  });
  return names.empty() || is_listed != excludes;
}

Result<NameFilter> parse_name_filter(std::string_view text, const std::string& origin) {
  NameFilter filter;
  std::string_view rest = trimmed(text);
  if (rest.empty()) {
    return filter;
  }
  filter.excludes = rest.front() == '^';
  rest.remove_prefix(filter.excludes ? 1 : 0);
  filter.is_exact = !rest.empty() && rest.front() == '=';
  rest.remove_prefix(filter.is_exact ? 1 : 0);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = rest.substr(0, comma);
    // "eth0:1": the port is of InfiniBand's devices, which NCCL lists in the same way.
    const std::string_view name = trimmed(entry.substr(0, entry.find(':')));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (!name.empty()) {
      filter.names.emplace_back(name);
    }
  }
  if (filter.names.empty()) {
    return Status(ErrorCode::kInvalidConfig,
                  origin + ": " + in_quotes(text) +
                      " names no interface; write names with commas between them, as in eth0,eth1");
  }
  return filter;
}

Result<Family> parse_family(std::string_view text, const std::string& origin) {
  const std::string_view family = trimmed(text);
  if (family.empty()) {
    return Family::kAny;
  }
  if (family == "AF_INET") {
    return Family::kIpv4;
  }
  if (family == "AF_INET6") {
    return Family::kIpv6;
  }
  return Status(ErrorCode::kInvalidConfig,
                origin + ": " + in_quotes(family) + " is not allowed; write AF_INET or AF_INET6");
}

const InterfaceAddress* choose_address(const Interface& interface, Family family) {
  const InterfaceAddress* best = nullptr;
  const auto rank = [](const InterfaceAddress& address) {
    return std::tuple(address.is_link_local, address.family);
  };
  for (const InterfaceAddress& address : interface.addresses) {
    if ((family == Family::kAny || family == address.family) &&
        (best == nullptr || rank(address) < rank(*best))) {
      best = &address;
    }
  }
  return best;
}

std::vector<NetDevice> choose_devices(const std::vector<Interface>& interfaces,
                                      const NameFilter& names, Family family,
                                      int default_speed_mbps) {
  const bool is_named = !names.names.empty() && !names.excludes;
  std::vector<std::pair<Tier, NetDevice>> found;
  Tier first = Tier::kLoopback;
  for (const Interface& interface : interfaces) {
    const InterfaceAddress* address = choose_address(interface, family);
    if (!interface.is_running || address == nullptr || !names.fits(interface.name)) {
      continue;
    }
    Tier tier = tier_of(interface);
    if (is_named || (names.excludes && tier == Tier::kInfiniband)) {
      // Who names what to leave out has looked at the list and wants the rest of it.
      tier = Tier::kOrdinary;
    }
    first = std::min(first, tier);
    NetDevice device;
    device.name = interface.name;
    device.address = address->text;
    device.pci_path = interface.pci_path;
    device.near_processors = interface.near_processors;
    device.guid = guid_of(interface);
    // Virtual interfaces make one up: a veth pair says 10 Gb/s whatever it carries.
    device.speed_mbps = interface.is_hardware && interface.speed_mbps > 0 ? interface.speed_mbps
                                                                          : default_speed_mbps;
    device.mtu_bytes = interface.mtu_bytes;
    device.is_loopback = interface.is_loopback;
    found.emplace_back(tier, std::move(device));
  }
  std::vector<NetDevice> devices;
  for (auto& [tier, device] : found) {
    if (tier == first) {
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

void read_device(const std::string& class_directory, Interface* interface) {
  const fs::path directory = fs::path(class_directory) / interface->name;
  interface->is_hardware = is_hardware(class_directory, interface->name, 0);
  const std::optional<long> speed_mbps = number_in(directory / "speed");
  const bool is_known = speed_mbps && *speed_mbps > 0 && *speed_mbps <= INT32_MAX;
  interface->speed_mbps = is_known ? static_cast<int>(*speed_mbps) : 0;
  interface->pci_path = pci_path_of(directory);
  interface->near_processors = processors_in(fs::path(interface->pci_path) / "local_cpulist");
}

Result<std::vector<Interface>> read_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return Status(ErrorCode::kUnavailable,
                  std::string("the network interfaces cannot be listed: ") + std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    // An IPv4 address may have a label ("eth0:1"), which is not a name of an interface.
    const std::string_view label = entry->ifa_name;
    const std::string name(label.substr(0, label.find(':')));
    auto it = std::find_if(interfaces.begin(), interfaces.end(),
                           [&](const Interface& interface) { return interface.name == name; });
    if (it == interfaces.end()) {
      interfaces.push_back({});
      it = interfaces.end() - 1;
      it->name = name;
    }
    take_entry(*entry, &*it);
  }
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (Interface& interface : interfaces) {
    interface.mtu_bytes = mtu_of(socket, interface.name);
    // In a container /sys may show the interfaces of the host, among them one of the same name.
    const fs::path index = fs::path(kClassDirectory) / interface.name / "ifindex";
    if (number_in(index) == static_cast<long>(if_nametoindex(interface.name.c_str()))) {
      read_device(kClassDirectory, &interface);
    }
  }
  if (socket >= 0) {
    close(socket);
  }
  return interfaces;
}

Result<std::vector<NetDevice>> find_devices(const InterfaceFilter& filter) {
  TUTTI_ASSIGN_OR_RETURN(const NameFilter names,
                         parse_name_filter(filter.names, filter.names_origin));
  TUTTI_ASSIGN_OR_RETURN(const Family family, parse_family(filter.family, filter.family_origin));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Interface> interfaces, read_interfaces());
  std::vector<NetDevice> devices =
      choose_devices(interfaces, names, family, filter.default_speed_mbps);
  if (devices.empty()) {
    std::string asked;
    if (!names.names.empty()) {
      asked += " that " + filter.names_origin + "=" + in_quotes(trimmed(filter.names)) + " allows";
    }
    if (family != Family::kAny) {
      asked += std::string(asked.empty() ? "" : ",") + " with an address of " + filter.family;
    }
    return Status(ErrorCode::kUnavailable,
                  "no network interface" + asked + " is up; there are: " + list_of(interfaces));
  }
  return devices;
}

Result<wire::udp::SocketAddress> address_of(const NetDevice& device) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(device.address.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) {
    return Status(ErrorCode::kInvalidArgument,
                  "net: " + device.name + " has the address " + device.address);
  }
  wire::udp::SocketAddress address;
  address.bytes = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

}  // namespace tutti::net
