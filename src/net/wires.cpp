// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/wires.hpp"

#include <net/if.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "net/interfaces.hpp"
#include "net/rdma.hpp"
#include "wire/udp/udp_wire.hpp"
#include "wire/xdp/xdp_helper.hpp"
#include "wire/xdp/xdp_wire.hpp"

namespace tutti::net {
namespace {

using wire::udp::UdpOptions;
using wire::udp::UdpWire;

Result<Rail> open_udp(const RailOptions& rail) {
  UdpOptions options;
  TUTTI_ASSIGN_OR_RETURN(options.local, address_of(rail.device));
  options.interface = static_cast<int>(if_nametoindex(rail.device.name.c_str()));
  options.mtu_bytes = rail.device.mtu_bytes;
  options.paths = rail.paths;
  options.chunk_bytes = static_cast<std::uint32_t>(rail.config.net_chunk_bytes);
  options.ps_per_byte = rail.ps_per_byte;
  options.buffer_bytes = rail.config.net_buffer_bytes;
  options.segmentation = rail.config.net_offload;
  options.coalescing = rail.config.net_offload;
  options.timestamps = rail.has_timestamps;
  options.on_fallback = [fallbacks = rail.fallbacks, name = rail.device.name](
                            const std::string& what, const std::string& remedy) {
    fallbacks->add(name, what, remedy);
  };
  TUTTI_ASSIGN_OR_RETURN(auto wire, UdpWire::open(options));
  Rail opened;
  opened.buffer_bytes = wire->buffer_bytes();
  opened.buffer_bytes_wanted = wire->buffer_bytes_wanted();
  opened.wire = std::move(wire);
  return opened;
}

Result<Rail> open_xdp(const RailOptions& rail) {
  wire::xdp::XdpOptions options;
  TUTTI_ASSIGN_OR_RETURN(options.local, address_of(rail.device));
  options.interface = rail.device.name;
  options.mtu_bytes = rail.device.mtu_bytes;
  options.paths = rail.paths;
  options.chunk_bytes = static_cast<std::uint32_t>(rail.config.net_chunk_bytes);
  options.ps_per_byte = rail.ps_per_byte;
  options.buffer_bytes = rail.config.net_buffer_bytes;
  options.helper = wire::xdp::kHelperPath;
  options.on_fallback = [fallbacks = rail.fallbacks, name = rail.device.name](
                            const std::string& what, const std::string& remedy) {
    fallbacks->add(name, what, remedy);
  };
  if (rail.has_timestamps) {
    rail.fallbacks->add(rail.device.name, "no time stamps of the kernel: AF_XDP has none",
                        "TUTTI_NET_TIMESTAMPS=off");
  }
  TUTTI_ASSIGN_OR_RETURN(auto wire, wire::xdp::XdpWire::open(options));
  Rail opened;
  opened.buffer_bytes = wire->buffer_bytes();
  opened.buffer_bytes_wanted = opened.buffer_bytes;
  opened.wire = std::move(wire);
  return opened;
}

struct WireKind {
  const char* name;
  Result<Rail> (*open)(const RailOptions&);
};

constexpr WireKind kWires[] = {{"udp", open_udp}, {"verbs", open_verbs}, {"xdp", open_xdp}};

}  // namespace

Result<Rail> open_rail(const RailOptions& options) {
  const auto* const found =
      std::find_if(std::begin(kWires), std::end(kWires),
                   [&](const WireKind& kind) { return options.config.net_wire == kind.name; });
  if (found == std::end(kWires)) {
    std::string names;
    for (const WireKind& kind : kWires) {
      names += (names.empty() ? "" : ", ") + std::string(kind.name);
    }
    return Status(ErrorCode::kInvalidConfig, "TUTTI_NET_WIRE: there is no wire '" +
                                                 options.config.net_wire + "'; there is " + names);
  }
  return found->open(options);
}

}  // namespace tutti::net
