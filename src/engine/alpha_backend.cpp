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
  if (plan.parameters.node_backend.value_or(plan.backend) == Backend::kCcl) {
    TUTTI_RETURN_IF_ERROR(ccl_.init_scope(runners::Scope::kNode, ccl_refusal));
  }
  if (plan.parameters.leaders_backend.value_or(plan.backend) == Backend::kCcl &&
      ccl_refusal->empty()) {
    TUTTI_RETURN_IF_ERROR(ccl_.init_scope(runners::Scope::kLeaders, ccl_refusal));
  }
  return {};
}

runners::Runner& AlphaBackend::runner(Backend backend, const select::Plan& plan) {
  if (backend == Backend::kCcl) {
    return *ccl_.runner();
  }
  return mpi_.runner_for(plan);
}

Status AlphaBackend::run(const Route& route, const runners::Call& call) {
  std::optional<device::RelaxedCapture> relaxed;
  relax_for(route, call, &relaxed);
  const select::Plan& plan = route.plan;
  const Backend node = plan.parameters.node_backend.value_or(plan.backend);
  const Backend leaders = plan.parameters.leaders_backend.value_or(plan.backend);
  const AlphaContext alpha{.placement = context_.placement,
                           .rank = context_.me.rank,
                           .node = runner(node, plan),
                           .leaders = runner(leaders, plan),
                           .scratch_on_device = node == Backend::kCcl || leaders == Backend::kCcl,
                           .device = context_.device,
                           .api = context_.process.device(),
                           .scratch = context_.process.scratch()};
  return run_alpha(alpha, call);
}

}  // namespace tutti::engine
