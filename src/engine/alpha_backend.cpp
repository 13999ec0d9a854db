// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/alpha_backend.hpp"

#include <optional>

#include "engine/compositions.hpp"

namespace tutti::engine {

using select::Backend;

Status AlphaBackend::prepare(const select::Plan& plan, int /*device*/, std::string* ccl_refusal) {
  if (!has_scopes_) {
    const Status made = context_.bootstrap.make_scopes(
        context_.placement.node_of[static_cast<std::size_t>(context_.me.rank)]);
    if (made.code() == ErrorCode::kUnavailable && context_.bootstrap.failure().ok()) {
      context_.lose_messages();  // Agreed by all ranks.
      *ccl_refusal = context_.facts.messages_refusal;
      return {};
    }
    TUTTI_RETURN_IF_ERROR(made);
    has_scopes_ = true;
  }
  const auto& alpha = std::get<select::AlphaPlan>(plan);
  if (alpha.node() == Backend::kCcl) {
    TUTTI_RETURN_IF_ERROR(ccl_.init_scope(runners::Scope::kNode, ccl_refusal));
  }
  if (alpha.leaders() == Backend::kCcl && ccl_refusal->empty()) {
    TUTTI_RETURN_IF_ERROR(ccl_.init_scope(runners::Scope::kLeaders, ccl_refusal));
  }
  return {};
}

runners::Runner& AlphaBackend::runner(Backend backend, const Route& route,
                                      select::Collective collective) {
  if (backend == Backend::kCcl) {
    return *ccl_.runner();
  }
  return mpi_.runner_for(route, collective);
}

Status AlphaBackend::run(const Route& route, const runners::Call& call) {
  std::optional<device::RelaxedCapture> relaxed;
  relax_for(route, call, &relaxed);
  const auto& plan = std::get<select::AlphaPlan>(route.plan);
  const AlphaContext alpha{.placement = context_.placement,
                           .rank = context_.me.rank,
                           .node = runner(plan.node(), route, call.collective),
                           .leaders = runner(plan.leaders(), route, call.collective),
                           .scratch_on_device = plan.uses(Backend::kCcl),
                           .device = context_.device,
                           .api = context_.process.device(),
                           .scratch = context_.process.scratch()};
  return run_alpha(alpha, call);
}

}  // namespace tutti::engine
