// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/plan.hpp"

#include <algorithm>
#include <cctype>

#include "base/message.hpp"

namespace tutti::select {
namespace {

/// Calls visit() with an object of each kind.
template <std::size_t kIndex = 0, class Visit>
void for_each_kind(const Visit& visit) {
  if constexpr (kIndex < std::variant_size_v<Plan>) {
    visit(std::variant_alternative_t<kIndex, Plan>());
    for_each_kind<kIndex + 1>(visit);
  }
}

/// Names of several kinds have nothing in common: one of them reads it, or none.
template <class... Kinds>
bool read(std::string_view name, std::variant<Kinds...>* plan, std::string* problem) {
  return (plan->template emplace<Kinds>().read(name, problem) || ...);
}

}  // namespace

const char* to_string(Backend backend) {
  return backend == Backend::kMpi ? "mpi" : backend == Backend::kCcl ? "ccl" : "net";
}

std::optional<Backend> parse_backend(std::string_view name) {
  if (name == "mpi" || name == "native") {
    return Backend::kMpi;
  }
  if (name == "ccl" || name == "nccl" || name == "rccl") {
    return Backend::kCcl;
  }
  return std::nullopt;
}

std::string to_string(const Plan& plan) {
  return std::visit([](const auto& kind) { return kind.name(); }, plan);
}

bool backend_has(const Plan& plan, Collective collective) {
  return std::visit([&](const auto& kind) { return kind.has(collective); }, plan);
}

Result<Plan> parse_plan(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  Plan plan;
  std::string problem;
  if (!read(text, &plan, &problem)) {
    problem = " is not a plan; plans are mpi, ccl, direct";
    for (const Plan& listed : all_plans()) {
      problem += ", " + to_string(listed);
    }
    problem += " (native is mpi; nccl and rccl are ccl)";
  }
  if (!problem.empty()) {
    return Status(ErrorCode::kInvalidConfig, in_quotes(name) + problem);
  }
  return plan;
}

Plan fit(Plan plan, const CommFacts& facts) {
  std::visit(
      [&](auto& kind) {
        if constexpr (requires { kind.composition; }) {
          if (kind.composition == Composition::kOpen) {
            kind.composition = facts.nodes == 1 ? Composition::kGamma : Composition::kBeta;
          }
        }
        if constexpr (requires { kind.carrier; }) {
          if (kind.carrier == Backend::kMpi && !facts.has_mpi) {
            kind.carrier = Backend::kNet;
          }
        }
      },
      plan);
  return plan;
}

std::vector<Plan> all_plans() {
  std::vector<Plan> plans;
  for_each_kind([&]<class Kind>(const Kind& /*of*/) {
    for (const char* const name : Kind::kListed) {
      std::string problem;
      Kind listed;
      listed.read(name, &problem);
      plans.emplace_back(std::move(listed));
    }
  });
  return plans;
}

std::string plan_pattern() {
  std::string pattern;
  for_each_kind([&]<class Kind>(const Kind& /*of*/) {
    pattern += (pattern.empty() ? "^(" : "|") + std::string(Kind::kPattern);
  });
  return pattern + ")$";
}

std::string refusal(const Plan& plan, const Shape& shape, const CommFacts& facts) {
  return std::visit(
      [&](const auto& kind) -> std::string {
        if (!facts.has_mpi && kind.needs_mpi()) {
          return "this communicator has no MPI";
        }
        if (shape.order != Order::kBlocking && kind.needs_mpi()) {
          return "MPI waits on the host and takes no stream";
        }
        if (shape.order != Order::kBlocking && shape.memory == Memory::kHost) {
          return "a call on a stream takes memory of the GPU, not of the host";
        }
        return kind.refusal(shape, facts);
      },
      plan);
}

Plan native_plan(const CommFacts& facts) { return fit(MpiPlan(), facts); }

}  // namespace tutti::select
