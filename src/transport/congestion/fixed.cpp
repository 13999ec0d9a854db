// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A window that never changes: for lossless networks, for tests, and under credits alone (eqds,
// rccc), where the receiver decides.
#include "transport/congestion/kinds.hpp"

namespace tutti::transport {
namespace {

class FixedController final : public Controller {
 public:
  explicit FixedController(const ControllerOptions& options)
      : Controller(options.window_bytes_max) {}

  void on_ack(const Feedback& /*feedback*/) override {}
  void on_loss(const Feedback& /*feedback*/) override {}
  void on_timeout(const Feedback& /*feedback*/) override {}
};

}  // namespace

constexpr ControllerKind kFixed = {"fixed", false, make<FixedController>};

}  // namespace tutti::transport
