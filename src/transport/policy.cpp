// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/policy.hpp"

#include <cstddef>

namespace tutti::transport {

std::string policy_fault(const tutti_transport_policy& table) {
  if (table.version != TUTTI_TRANSPORT_POLICY_VERSION) {
    return "the policy is of version " + std::to_string(table.version) + ", not " +
           std::to_string(TUTTI_TRANSPORT_POLICY_VERSION);
  }
  // The hooks that version 1 began with; those that are added later go to the end.
  constexpr std::size_t kBytesMin =
      offsetof(tutti_transport_policy, on_timeout) + sizeof(tutti_transport_policy::on_timeout);
  if (table.size_bytes < kBytesMin) {
    return "the policy's table has " + std::to_string(table.size_bytes) + " bytes, fewer than " +
           std::to_string(kBytesMin);
  }
  return "";
}

}  // namespace tutti::transport
