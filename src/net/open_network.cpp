// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one place of this room that asks base/config for variables.
#include "net/network.hpp"

#include <utility>

namespace tutti::net {

Result<NetworkOptions> options_of_environment(const Log& log) {
  ParsedConfig parsed = config_from_environment();
  for (const ConfigProblem& problem : parsed.problems) {
    if (problem.is_error) {
      return Status(ErrorCode::kInvalidConfig, problem.text);
    }
    log(LogKind::kWarning, problem.text);
  }
  NetworkOptions options;
  options.config = std::move(parsed.config);
  options.wants_buffer = !environment_value("TUTTI_NET_BUFFER").empty();
  options.interfaces = environment_value("NCCL_SOCKET_IFNAME");
  options.family = environment_value("NCCL_SOCKET_FAMILY");
  options.rdma.hca = environment_value("NCCL_IB_HCA");
  options.rdma.gid_index = environment_value("NCCL_IB_GID_INDEX");
  options.rdma.roce_version = environment_value("NCCL_IB_ROCE_VERSION_NUM");
  options.rdma.family = environment_value("NCCL_IB_ADDR_FAMILY");
  return options;
}

Result<std::unique_ptr<Network>> open_network(Log log, std::vector<NetDevice> devices) {
  TUTTI_ASSIGN_OR_RETURN(const NetworkOptions options, options_of_environment(log));
  return Network::open(options, std::move(log), std::move(devices));
}

}  // namespace tutti::net
