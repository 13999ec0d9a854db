// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The backends of a communicator: all that it knows of them beside PlanRunner. A new one is a
// member, its place in `all`, and the kind of plan that it carries.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "engine/alpha_backend.hpp"
#include "engine/ccl_backend.hpp"
#include "engine/direct_backend.hpp"
#include "engine/host_backend.hpp"
#include "engine/mpi_backend.hpp"
#include "engine/net_backend.hpp"

namespace tutti::engine {

class Backends {
 public:
  /// `calls`, `doubted`: of the communicator.
  Backends(CommContext& context, std::uint64_t& calls, std::uint64_t& doubted)
      : mpi(context, host),
        ccl(context),
        direct(context, ccl),
        alpha(context, mpi, ccl),
        net(context),
        host(context, calls, doubted) {}

  Backends(const Backends&) = delete;
  Backends& operator=(const Backends&) = delete;

  /// What carries `plan` for calls on `memory`.
  PlanRunner& of(const select::Plan& plan, select::Memory memory) {
    return std::visit([&](const auto& kind) -> PlanRunner& { return carrier(kind, memory); }, plan);
  }

  MpiBackend mpi;
  CclBackend ccl;
  DirectBackend direct;
  AlphaBackend alpha;
  NetBackend net;
  /// The first to go: peers hear of it that this rank has freed the communicator, before the others
  /// wait for theirs.
  HostBackend host;

  /// In the order in which they are told of what concerns all.
  const std::array<PlanRunner*, 6> all{&host, &direct, &ccl, &mpi, &alpha, &net};

 private:
  using Memory = select::Memory;

  PlanRunner& carrier(const select::MpiPlan& /*plan*/, Memory /*memory*/) { return mpi; }
  PlanRunner& carrier(const select::CclPlan& /*plan*/, Memory /*memory*/) { return ccl; }
  PlanRunner& carrier(const select::PipelinePlan& /*plan*/, Memory /*memory*/) { return ccl; }
  PlanRunner& carrier(const select::AlphaPlan& /*plan*/, Memory /*memory*/) { return alpha; }
  PlanRunner& carrier(const select::DirectPlan& /*plan*/, Memory memory) {
    return memory == Memory::kHost ? static_cast<PlanRunner&>(host) : direct;
  }
  PlanRunner& carrier(const select::SchedulePlan& plan, Memory /*memory*/) {
    switch (plan.carrier) {
      case select::Backend::kCcl:
        return ccl;
      case select::Backend::kNet:
        return net;
      default:
        return mpi;
    }
  }
};

}  // namespace tutti::engine
