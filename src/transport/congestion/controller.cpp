// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/congestion/controller.hpp"

#include "transport/congestion/cubic.hpp"
#include "transport/congestion/dctcp.hpp"
#include "transport/congestion/fixed.hpp"
#include "transport/congestion/nscc.hpp"
#include "transport/congestion/swift.hpp"
#include "transport/congestion/timely.hpp"

namespace tutti::transport {

bool uses_credit(std::string_view name) {
  return name == "rccc" || name == "eqds" || name.ends_with("+rccc");
}

namespace {

/// The controller of the window in names like "swift+rccc".
std::string_view window_of(std::string_view name) {
  return name.ends_with("+rccc") ? name.substr(0, name.size() - 5) : name;
}

}  // namespace

bool uses_delay(std::string_view name) {
  const std::string_view window = window_of(name);
  return window.empty() || window == "nscc" || window == "swift" || window == "timely";
}

Result<std::unique_ptr<Controller>> make_controller(std::string_view name,
                                                    const ControllerOptions& options) {
  const std::string_view window = window_of(name);
  std::unique_ptr<Controller> made;
  if (window.empty() || window == "nscc") {
    made = std::make_unique<NsccController>(options);
  } else if (window == "fixed" || window == "rccc" || window == "eqds") {
    made = std::make_unique<FixedController>(options);
  } else if (window == "swift") {
    made = std::make_unique<SwiftController>(options);
  } else if (window == "cubic") {
    made = std::make_unique<CubicController>(options);
  } else if (window == "dctcp") {
    made = std::make_unique<DctcpController>(options);
  } else if (window == "timely") {
    made = std::make_unique<TimelyController>(options);
  }
  if (made) {
    return made;
  }
  return Status(ErrorCode::kInvalidArgument,
                "congestion controller '" + std::string(name) +
                    "' is not one of nscc, swift, cubic, dctcp, timely, fixed, each of "
                    "them with +rccc, or rccc, eqds");
}

}  // namespace tutti::transport
