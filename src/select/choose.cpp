// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The rules in order: the first that matches and whose plan can carry the call.
#include "select/choose.hpp"

#include <algorithm>

#include "select/tuning_format.hpp"

namespace tutti::select {
namespace {

bool holds(const std::optional<Range>& wanted, int value) {
  return !wanted || wanted->contains(static_cast<std::uint64_t>(value));
}
bool holds(const std::optional<Range>& wanted, const std::optional<Bytes>& value) {
  return !wanted || (value && wanted->contains(*value));
}
template <class T>
bool holds(const std::optional<T>& wanted, T value) {
  return wanted.value_or(value) == value;
}
/// A list of names, of which one has to be the value, or a text.
template <class List, class T>
bool holds(const List& wanted, const T& value) {
  if constexpr (std::is_same_v<List, T>) {
    return wanted.empty() || wanted == value;
  } else {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
  }
}

/// All predicates on the call, or on the communicator.
template <class Facts>
bool all_hold(const Rule& rule, const Facts& facts) {
  bool result = true;
  for_each_predicate(rule, [&](const char*, const auto& wanted, auto fact, auto...) {
    if constexpr (requires { facts.*fact; }) {
      result = result && holds(wanted, facts.*fact);
    }
  });
  return result;
}

}  // namespace

bool may_match(const Rule& rule, const CommFacts& facts) { return all_hold(rule, facts); }

bool matches(const Rule& rule, const Shape& shape, const CommFacts& facts) {
  return all_hold(rule, shape) && all_hold(rule, facts);
}

Decision choose(const Shape& shape, const CommFacts& facts, const Table& table) {
  Decision decision;
  for (std::size_t i = 0; i < table.rules.size(); ++i) {
    const Rule& rule = table.rules[i];
    if (!matches(rule, shape, facts)) {
      continue;
    }
    Plan plan = fit(rule.plan, facts);
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
  decision.is_carried = facts.has_mpi && shape.op != ReduceOp::kAvg;  // Which MPI does not have.
  return decision;
}

bool may_stage(const Shape& shape, const CommFacts& facts) {
  return !facts.has_mpi && shape.memory == Memory::kDevice && shape.order != Order::kCaptured &&
         shape.collective != Collective::kBarrier;
}

}  // namespace tutti::select
