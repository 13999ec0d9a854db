// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/choose.hpp"

#include <algorithm>

namespace tutti::select {
namespace {

template <class T>
bool listed(const std::vector<T>& list, T value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

bool within(const std::optional<Range>& range, int value) {
  return !range || range->contains(static_cast<std::uint64_t>(value));
}

}  // namespace

bool may_match(const Rule& rule, const CommFacts& facts) {
  return within(rule.nodes, facts.nodes) && within(rule.ranks, facts.ranks) &&
         within(rule.ranks_per_node, facts.ranks_per_node_max) &&
         rule.oversubscribed.value_or(facts.oversubscribed) == facts.oversubscribed &&
         (rule.mpi.empty() || rule.mpi == facts.mpi);
}

bool matches(const Rule& rule, const Shape& shape, const CommFacts& facts) {
  if (rule.bytes && !(shape.bytes && rule.bytes->contains(*shape.bytes))) {
    return false;
  }
  return listed(rule.collectives, shape.collective) && may_match(rule, facts) &&
         (!rule.memory || *rule.memory == shape.memory) && listed(rule.ops, shape.op) &&
         listed(rule.types, shape.type);
}

Plan plan_for(const Rule& rule, const CommFacts& facts) {
  return rule.composition_fits ? fit(rule.plan, facts) : rule.plan;
}

Decision choose(const Shape& shape, const CommFacts& facts, const Table& table) {
  Decision decision;
  for (std::size_t i = 0; i < table.rules.size(); ++i) {
    const Rule& rule = table.rules[i];
    if (!matches(rule, shape, facts)) {
      continue;
    }
    Plan plan = plan_for(rule, facts);
    std::string reason = refusal(plan, shape, facts);
    if (reason.empty()) {
      decision.plan = std::move(plan);
      decision.rule = static_cast<int>(i);
      return decision;
    }
    (rule.optional ? decision.passed_over : decision.refused)
        .push_back({i, plan, std::move(reason)});
  }
  decision.plan = native_plan(facts);
  decision.is_carried = facts.has_mpi;
  return decision;
}

bool may_stage(const Shape& shape, const CommFacts& facts) {
  return !facts.has_mpi && shape.memory == Memory::kDevice && shape.order == Order::kBlocking;
}

}  // namespace tutti::select
