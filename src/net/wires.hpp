// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The wires that can carry a device's packets (TUTTI_NET_WIRE), in one table: a new one is its file
// in src/wire, a row in wires.cpp, and its name in the knob's range.
#pragma once

#include <memory>

#include "base/config.hpp"
#include "base/result.hpp"
#include "net/fallbacks.hpp"
#include "net/network.hpp"
#include "wire/wire.hpp"

namespace tutti::net {

/// Over one interface.
struct RailOptions {
  const NetDevice& device;
  const Config& config;
  std::uint32_t paths;
  std::uint32_t ps_per_byte;
  bool has_timestamps;  ///< Of what arrives.
  std::shared_ptr<Fallbacks> fallbacks;
  const RdmaOptions& rdma;
  std::shared_ptr<wire::DeviceCopies> device_copies;
};

struct Rail {
  std::unique_ptr<wire::Wire> wire;
  /// What its socket has; UINT64_MAX: it has no bound.
  Bytes buffer_bytes = UINT64_MAX;
  Bytes buffer_bytes_wanted = 0;
};

/// By the wire that the configuration names.
Result<Rail> open_rail(const RailOptions& options);

}  // namespace tutti::net
