// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/rdma.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "wire/verbs/verbs_wire.hpp"

namespace tutti::net {
namespace {

using wire::verbs::Functions;
using wire::verbs::GidWish;
using wire::verbs::Port;
using wire::verbs::VerbsWire;

/// Loaded at its first use and kept.
Result<const Functions*> library() {
  static const Result<Functions> loaded = wire::verbs::load_library();
  if (!loaded.ok()) {
    return loaded.status();
  }
  return &*loaded;
}

Result<int> number_of(const std::string& text, const char* variable, int otherwise) {
  if (text.empty()) {
    return otherwise;
  }
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Status(ErrorCode::kInvalidConfig,
                  std::string(variable) + ": '" + text + "' is no number");
  }
  return value;
}

Result<GidWish> wish_of(const RdmaOptions& options) {
  GidWish wish;
  TUTTI_ASSIGN_OR_RETURN(wish.index, number_of(options.gid_index, "NCCL_IB_GID_INDEX", -1));
  TUTTI_ASSIGN_OR_RETURN(wish.roce_version,
                         number_of(options.roce_version, "NCCL_IB_ROCE_VERSION_NUM", 2));
  wish.wants_ipv6 = options.family == "AF_INET6";
  return wish;
}

bool stands_on(const std::string& interface, const Port& port, const std::string& net_directory) {
  const bool has_gid = std::any_of(port.gids.begin(), port.gids.end(),
                                   [&](const auto& gid) { return gid.interface == interface; });
  std::error_code error;
  return has_gid ||
         std::filesystem::exists(
             net_directory + "/" + interface + "/device/infiniband/" + port.device, error);
}

std::string list_of(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) {
    text += (text.empty() ? "" : ", ") + port.device + ":" + std::to_string(port.number) +
            (port.is_active ? "" : " (not active)");
    const auto named = std::find_if(port.gids.begin(), port.gids.end(),
                                    [](const auto& gid) { return !gid.interface.empty(); });
    text += named == port.gids.end() ? "" : " of " + named->interface;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<NetDevice> match_ports(const std::vector<NetDevice>& devices,
                                   const std::vector<Port>& ports, const std::string& hca,
                                   const std::string& net_directory,
                                   std::vector<std::string>* left_out) {
  const wire::verbs::PortFilter filter(hca);
  std::vector<NetDevice> matched;
  for (const NetDevice& device : devices) {
    std::string why;
    const auto found = std::find_if(ports.begin(), ports.end(), [&](const Port& port) {
      if (!filter.fits(port) || !stands_on(device.name, port, net_directory)) {
        return false;
      }
      if (!port.is_active) {
        why += (why.empty() ? "" : ", ") + port.device + ":" + std::to_string(port.number) +
               " is not active";
      }
      return port.is_active;
    });
    if (found == ports.end() && !why.empty()) {
      left_out->push_back(device.name + " (" + why + ")");
    }
    if (found != ports.end()) {
      NetDevice& it = matched.emplace_back(device);
      it.rdma_device = found->device;
      it.rdma_port = found->number;
    }
  }
  return matched;
}

Result<std::vector<NetDevice>> rdma_devices(const std::vector<NetDevice>& devices,
                                            const RdmaOptions& options, const Log& log) {
  TUTTI_RETURN_IF_ERROR(wish_of(options).status());
  TUTTI_ASSIGN_OR_RETURN(const Functions* const verbs, library());
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Port> ports,
                         wire::verbs::list_ports(*verbs, options.class_directory));
  std::vector<std::string> left_out;
  std::vector<NetDevice> matched =
      match_ports(devices, ports, options.hca, options.net_directory, &left_out);
  if (!matched.empty()) {
    if (!left_out.empty()) {
      std::string text;
      for (const std::string& interface : left_out) {
        text += (text.empty() ? "" : ", ") + interface;
      }
      log(LogKind::kWarning, "net: network interfaces that RDMA does not use: " + text +
                                 "; remedy: the ports' links, or NCCL_SOCKET_IFNAME without "
                                 "these interfaces");
    }
    return matched;
  }
  std::string names;
  for (const NetDevice& device : devices) {
    names += (names.empty() ? "" : ", ") + device.name;
  }
  return Status(
      ErrorCode::kUnavailable,
      "net: no network interface among " + names + " has an active RDMA port" +
          (options.hca.empty() ? "" : " of NCCL_IB_HCA=" + options.hca) +
          "; RDMA ports: " + list_of(ports) +
          "; remedy: NCCL_SOCKET_IFNAME with the interfaces of RDMA NICs, each with an IP "
          "address, or TUTTI_NET_WIRE=udp");
}

void try_device_memory(const std::shared_ptr<wire::DeviceCopies>& copies, const Log& log,
                       std::vector<NetDevice>* devices) {
  const std::span<std::byte> memory =
      copies == nullptr ? std::span<std::byte>() : copies->trial_memory();
  const auto verbs = library();
  if (memory.empty() || !verbs.ok()) {
    return;
  }
  const Status prepared = copies->prepare(memory.data());
  if (!prepared.ok()) {
    log(LogKind::kInfo, "net: memory of GPUs is not used: " + prepared.message());
    return;
  }
  for (NetDevice& device : *devices) {
    const auto support = wire::verbs::try_device_memory(**verbs, device.rdma_device, memory);
    device.takes_device_memory = support.by_address.ok();
    // Memory windows, by which NICs write into receives, are there for the other way alone.
    device.takes_dma_buf = support.by_dma_buf.ok() && !device.takes_device_memory;
    log(LogKind::kInfo,
        "net: " + device.rdma_device +
            (device.takes_device_memory ? " reaches memory of GPUs by its address (nvidia-peermem)"
             : device.takes_dma_buf
                 ? " reaches memory of GPUs by dma-buf, where what arrives is copied: " +
                       support.by_address.message()
                 : " does not reach memory of GPUs: " + support.by_address.message() + "; " +
                       support.by_dma_buf.message()));
  }
}

Result<Rail> open_verbs(const RailOptions& rail) {
  TUTTI_ASSIGN_OR_RETURN(const Functions* const verbs, library());
  wire::verbs::VerbsOptions options;
  options.device = rail.device.rdma_device;
  options.port = rail.device.rdma_port;
  TUTTI_ASSIGN_OR_RETURN(options.gid, wish_of(rail.rdma));
  options.gid.interface = rail.device.name;
  options.class_directory = rail.rdma.class_directory;
  options.service = rail.config.net_verbs;
  options.paths = rail.paths;
  options.chunk_bytes = static_cast<std::uint32_t>(rail.config.net_chunk_bytes);
  options.ps_per_byte = rail.ps_per_byte;
  options.timestamps = rail.has_timestamps;
  // Many NICs have none: who asked for a controller alone gets no warning.
  options.needs_timestamps = rail.config.net_timestamps == "on";
  options.copies = rail.device_copies;
  options.on_fallback = [fallbacks = rail.fallbacks, name = rail.device.name](
                            const std::string& what, const std::string& remedy) {
    fallbacks->add(name, what, remedy);
  };
  TUTTI_ASSIGN_OR_RETURN(auto wire, VerbsWire::open(*verbs, options));
  Rail opened;
  opened.wire = std::move(wire);
  return opened;
}

}  // namespace tutti::net
