// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "policy/loader.hpp"

#include "base/dynamic_library.hpp"
#include "transport/policy.hpp"

namespace tutti::policy {

Result<const tutti_transport_policy*> load_transport_policy(const std::string& path) {
  if (path.empty()) {
    return static_cast<const tutti_transport_policy*>(nullptr);
  }
  const auto library = DynamicLibrary::open(path);
  if (!library.ok()) {
    return Status(ErrorCode::kUnavailable,
                  "TUTTI_TRANSPORT_POLICY=" + path + ": " + library.status().message());
  }
  const tutti_transport_policy* (*get)() = nullptr;
  if (!library->resolve("tutti_transport_policy", &get)) {
    return Status(ErrorCode::kUnsupported, "TUTTI_TRANSPORT_POLICY=" + path +
                                               ": exports no function tutti_transport_policy");
  }
  const tutti_transport_policy* table = get();
  const std::string fault =
      table == nullptr ? "its function gives no table" : transport::policy_fault(*table);
  if (!fault.empty()) {
    return Status(ErrorCode::kUnsupported, "TUTTI_TRANSPORT_POLICY=" + path + ": " + fault);
  }
  return table;
}

}  // namespace tutti::policy
