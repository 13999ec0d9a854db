// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/congestion/controller.hpp"

#include "transport/congestion/fixed.hpp"
#include "transport/congestion/nscc.hpp"

namespace tutti::transport {

bool uses_credit(std::string_view name) {
  return name == "rccc" || name == "eqds" || name.ends_with("+rccc");
}

Result<std::unique_ptr<Controller>> make_controller(std::string_view name,
                                                    const ControllerOptions& options) {
  std::string_view window = name;
  if (window.ends_with("+rccc")) {
    window.remove_suffix(5);
  }
  if (window.empty() || window == "nscc") {
    return std::unique_ptr<Controller>(std::make_unique<NsccController>(options));
  }
  if (window == "fixed" || window == "rccc" || window == "eqds") {
    return std::unique_ptr<Controller>(std::make_unique<FixedController>(options));
  }
  return Status(ErrorCode::kInvalidArgument,
                "congestion controller '" + std::string(name) +
                    "' is not one of fixed, cubic, swift, nscc, rccc, eqds, nscc+rccc, "
                    "swift+rccc, dctcp, timely");
}

}  // namespace tutti::transport
