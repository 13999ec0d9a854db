// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The congestion controllers: each is one source file here, which defines its kind, and two names
// below.
#pragma once

#include <memory>
#include <string_view>

#include "transport/congestion/controller.hpp"

namespace tutti::transport {

struct ControllerKind {
  std::string_view name;
  bool uses_delay;  ///< Looks at Feedback::fabric_ns.
  std::unique_ptr<Controller> (*make)(const ControllerOptions& options);
};

template <class Made>
std::unique_ptr<Controller> make(const ControllerOptions& options) {
  return std::make_unique<Made>(options);
}

extern const ControllerKind kNscc, kSwift, kCubic, kDctcp, kTimely, kFixed;

/// An empty name is the first's.
inline constexpr const ControllerKind* kControllerKinds[] = {&kNscc,  &kSwift,  &kCubic,
                                                             &kDctcp, &kTimely, &kFixed};

}  // namespace tutti::transport
