// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/congestion/controller.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "transport/congestion/kinds.hpp"

namespace tutti::transport {

bool uses_credit(std::string_view name) {
  return name == "rccc" || name == "eqds" || name.ends_with("+rccc");
}

namespace {

/// In names like "swift+rccc"; null: there is none.
const ControllerKind* find_kind(std::string_view name) {
  if (name == "rccc" || name == "eqds") {
    name = "fixed";  // Credit alone.
  } else if (name.ends_with("+rccc")) {
    name.remove_suffix(5);
  }
  const auto* const found = std::find_if(
      std::begin(kControllerKinds), std::end(kControllerKinds),
      [name](const ControllerKind* kind) { return name.empty() || kind->name == name; });
  return found == std::end(kControllerKinds) ? nullptr : *found;
}

}  // namespace

bool uses_delay(std::string_view name) {
  const ControllerKind* const kind = find_kind(name);
  return kind != nullptr && kind->uses_delay;
}

std::string controller_names() {
  std::string names;
  for (const ControllerKind* kind : kControllerKinds) {
    names += std::string(kind->name) + ", ";
  }
  return names + "each of them with +rccc, or rccc, eqds";
}

Result<std::unique_ptr<Controller>> make_controller(std::string_view name,
                                                    const ControllerOptions& options) {
  if (const ControllerKind* const kind = find_kind(name); kind != nullptr) {
    return kind->make(options);
  }
  return Status(ErrorCode::kInvalidArgument, "congestion controller '" + std::string(name) +
                                                 "' is not one of " + controller_names());
}

}  // namespace tutti::transport
