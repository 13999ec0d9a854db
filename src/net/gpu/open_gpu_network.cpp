// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Opens the network with the GPU library behind it, which is loaded only for a wire that asks.
#include <utility>

#include "net/gpu/gpu_copies.hpp"
#include "net/network.hpp"

namespace tutti::net {

Result<std::unique_ptr<Network>> open_gpu_network(Log log, std::vector<NetDevice> devices) {
  TUTTI_ASSIGN_OR_RETURN(NetworkOptions options, options_of_environment(log));
  options.device_copies =
      [wanted = options.config.device,
       api = std::shared_ptr<device::Api>()]() mutable -> std::shared_ptr<wire::DeviceCopies> {
    if (api == nullptr) {
      api = device::open(wanted, nullptr);
    }
    return api == nullptr ? nullptr : std::make_shared<GpuCopies>(api);
  };
  return Network::open(options, std::move(log), std::move(devices));
}

}  // namespace tutti::net
