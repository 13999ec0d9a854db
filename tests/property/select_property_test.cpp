// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Laws of selection, over random calls, communicators and tables. A failure prints the seed;
// RC_PARAMS="seed=..." replays it.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "select/choose.hpp"

namespace tutti::select {
namespace {

template <class Enum>
rc::Gen<Enum> enumerator(int count) {
  return rc::gen::map(rc::gen::inRange(0, count), [](int i) { return static_cast<Enum>(i); });
}

template <class T>
rc::Gen<std::optional<T>> maybe(const rc::Gen<T>& gen) {
  return rc::gen::exec(
      [gen] { return *rc::gen::arbitrary<bool>() ? std::optional<T>(*gen) : std::nullopt; });
}

/// Sorted and without repetition, as a tuning file is read.
template <class Enum>
rc::Gen<std::vector<Enum>> names(int count) {
  return rc::gen::exec([count] {
    auto list = *rc::gen::container<std::vector<Enum>>(enumerator<Enum>(count));
    if (*rc::gen::inRange(0, 3) != 0) {
      list.clear();
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  });
}

/// Sizes near each other and near the ends, so that bounds are met.
rc::Gen<std::uint64_t> number() {
  return rc::gen::oneOf(
      rc::gen::inRange<std::uint64_t>(0, 5),
      rc::gen::element<std::uint64_t>(8191, 8192, 8193, 1 << 20, UINT64_MAX - 1, UINT64_MAX),
      rc::gen::arbitrary<std::uint64_t>());
}

rc::Gen<Range> range() {
  return rc::gen::map(rc::gen::pair(number(), number()), [](auto ends) {
    return Range{std::min(ends.first, ends.second), std::max(ends.first, ends.second)};
  });
}

/// Near the small numbers that communicators have.
rc::Gen<Range> small_range() {
  return rc::gen::oneOf(range(),
                        rc::gen::map(rc::gen::inRange<std::uint64_t>(0, 5), [](std::uint64_t n) {
                          return Range{n, n};
                        }));
}

rc::Gen<Plan> plan() {
  return rc::gen::exec([] {
    Plan plan = *rc::gen::elementOf(all_plans());
    if (auto* const mpi = std::get_if<MpiPlan>(&plan)) {
      if (!mpi->staged && mpi->composition == Composition::kBeta && *rc::gen::arbitrary<bool>()) {
        mpi->composition = Composition::kOpen;
      }
      mpi->chunk_bytes = *maybe(number());
    } else if (auto* const alpha = std::get_if<AlphaPlan>(&plan)) {
      alpha->node_backend = *maybe(enumerator<Backend>(2));
      alpha->leaders_backend = *maybe(enumerator<Backend>(2));
      if (alpha->uses(Backend::kMpi)) {
        alpha->chunk_bytes = *maybe(number());
      }
    } else if (plan == Plan(CclPlan{Composition::kBeta}) && *rc::gen::arbitrary<bool>()) {
      plan = CclPlan{};
    }
    return plan;
  });
}

bool sized(const std::vector<Collective>& collectives) {
  return collectives.empty() || std::any_of(collectives.begin(), collectives.end(), has_size);
}

rc::Gen<Rule> rule() {
  return rc::gen::exec([] {
    Rule rule;
    rule.collectives = *names<Collective>(kCollectiveCount);
    if (sized(rule.collectives)) {
      rule.bytes = *maybe(range());
    }
    rule.nodes = *maybe(small_range());
    rule.ranks = *maybe(small_range());
    rule.ranks_per_node = *maybe(small_range());
    rule.memory = *maybe(enumerator<Memory>(2));
    rule.ops = *names<ReduceOp>(kReduceOpCount);
    rule.types = *names<DataType>(kDataTypeCount);
    rule.plan = *plan();
    rule.origin = *rc::gen::element<std::string>("a", "b");
    return rule;
  });
}

rc::Gen<Table> table() {
  return rc::gen::map(rc::gen::container<std::vector<Rule>>(rule()),
                      [](std::vector<Rule> rules) { return Table{std::move(rules)}; });
}

rc::Gen<Shape> shape() {
  return rc::gen::exec([] {
    Shape shape;
    shape.collective = *enumerator<Collective>(kCollectiveCount);
    if (has_size(shape.collective)) {
      shape.bytes = *number();
    }
    shape.memory = *enumerator<Memory>(2);
    if (is_reduction(shape.collective)) {
      shape.op = *enumerator<ReduceOp>(kReduceOpCount);
      shape.type = *enumerator<DataType>(kDataTypeCount);
    }
    return shape;
  });
}

rc::Gen<CommFacts> facts() {
  return rc::gen::exec([] {
    CommFacts facts;
    facts.nodes = *rc::gen::inRange(1, 4);
    facts.ranks_per_node_max = *rc::gen::inRange(1, 5);
    facts.ranks = facts.nodes * facts.ranks_per_node_max;
    facts.ccl_usable = *rc::gen::arbitrary<bool>();
    facts.ccl_refusal = facts.ccl_usable ? "" : "none here";
    return facts;
  });
}

/// What "first match" means, written down a second time and without haste.
Decision reference_choice(const Shape& shape, const CommFacts& facts, const Table& table) {
  auto in = [](const auto& list, auto value) {
    return list.empty() || std::count(list.begin(), list.end(), value) > 0;
  };
  auto holds = [](const std::optional<Range>& r, std::uint64_t value) {
    return !r.has_value() || (value >= r->min && value <= r->max);
  };
  Decision decision;
  for (std::size_t i = 0; i < table.rules.size(); ++i) {
    const Rule& r = table.rules[i];
    bool bytes = !r.bytes || (shape.bytes && holds(r.bytes, *shape.bytes));
    bool comm = holds(r.nodes, static_cast<std::uint64_t>(facts.nodes)) &&
                holds(r.ranks, static_cast<std::uint64_t>(facts.ranks)) &&
                holds(r.ranks_per_node, static_cast<std::uint64_t>(facts.ranks_per_node_max));
    bool call = in(r.collectives, shape.collective) && in(r.ops, shape.op) &&
                in(r.types, shape.type) && (!r.memory || *r.memory == shape.memory);
    if (!bytes || !comm || !call) {
      continue;
    }
    Plan plan = r.plan;
    const auto fitting = facts.nodes == 1 ? Composition::kGamma : Composition::kBeta;
    if (to_string(plan) == "mpi") {
      std::get<MpiPlan>(plan).composition = fitting;
    } else if (to_string(plan) == "ccl") {
      plan = CclPlan{fitting};
    }
    if (refusal(plan, shape, facts).empty()) {
      decision.plan = plan;
      decision.rule = static_cast<int>(i);
      return decision;
    }
    decision.refused.push_back({i, plan, refusal(plan, shape, facts)});
  }
  decision.plan = native_plan(facts);
  return decision;
}

bool same(const Decision& a, const Decision& b) {
  return a.plan == b.plan && a.rule == b.rule &&
         std::equal(a.refused.begin(), a.refused.end(), b.refused.begin(), b.refused.end(),
                    [](const Refused& x, const Refused& y) {
                      return x.rule == y.rule && x.plan == y.plan && x.reason == y.reason;
                    });
}

/// All but origin and comment.
bool same(const Rule& a, const Rule& b) {
  return a.collectives == b.collectives && a.bytes == b.bytes && a.nodes == b.nodes &&
         a.ranks == b.ranks && a.ranks_per_node == b.ranks_per_node && a.memory == b.memory &&
         a.ops == b.ops && a.types == b.types && a.plan == b.plan;
}

bool same(const Table& a, const Table& b) {
  return std::equal(a.rules.begin(), a.rules.end(), b.rules.begin(), b.rules.end(),
                    [](const Rule& x, const Rule& y) { return same(x, y); });
}

RC_GTEST_PROP(SelectProperty, parse_bytes__reads_what_format_bytes_wrote, ()) {
  Bytes bytes = *number();
  RC_ASSERT(*parse_bytes(format_bytes(bytes)) == bytes);
}

RC_GTEST_PROP(SelectProperty, parse_plan__reads_what_to_string_wrote, ()) {
  const Plan written = *plan();
  const Plan read = *parse_plan(to_string(written));
  RC_ASSERT(read.index() == written.index());
  RC_ASSERT(to_string(read) == to_string(written));
}

RC_GTEST_PROP(SelectProperty, refusal__native_is_never_refused, ()) {
  CommFacts communicator = *facts();
  RC_ASSERT(refusal(native_plan(communicator), *shape(), communicator).empty());
}

RC_GTEST_PROP(SelectProperty, refusal__gamma_equals_beta_on_one_node, ()) {
  CommFacts communicator = *facts();
  communicator.nodes = 1;
  Shape call = *shape();
  const std::string backend = to_string(*enumerator<Backend>(2));
  RC_ASSERT(refusal(*parse_plan(backend + "-beta"), call, communicator) ==
            refusal(*parse_plan(backend + "-gamma"), call, communicator));
}

RC_GTEST_PROP(SelectProperty, choose__equal_inputs_give_equal_decisions, ()) {
  Shape call = *shape();
  CommFacts communicator = *facts();
  Table rules = *table();
  Table elsewhere = rules;  // Another rank may have read the same rules from another place.
  for (Rule& r : elsewhere.rules) {
    r.origin = "elsewhere";
    r.comment = "other words";
  }
  RC_ASSERT(same(choose(call, communicator, rules), choose(call, communicator, elsewhere)));
}

RC_GTEST_PROP(SelectProperty, choose__its_plan_is_never_refused, ()) {
  Shape call = *shape();
  CommFacts communicator = *facts();
  Decision decision = choose(call, communicator, *table());
  RC_ASSERT(refusal(decision.plan, call, communicator).empty());
}

RC_GTEST_PROP(SelectProperty, choose__is_the_first_match, ()) {
  Shape call = *shape();
  CommFacts communicator = *facts();
  Table rules = *table();
  RC_ASSERT(same(choose(call, communicator, rules), reference_choice(call, communicator, rules)));
}

RC_GTEST_PROP(SelectProperty, default_table__always_has_a_rule, ()) {
  RC_ASSERT(choose(*shape(), *facts(), default_table()).rule >= 0);
}

RC_GTEST_PROP(SelectProperty, parse_plan_list__reads_what_was_written, ()) {
  auto bounds = *rc::gen::container<std::vector<std::uint64_t>>(number());
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  if (!bounds.empty() && bounds.back() == UINT64_MAX) {
    bounds.pop_back();
  }
  std::string list;
  std::vector<Plan> plans;
  for (std::uint64_t bound : bounds) {
    plans.push_back(*rc::gen::elementOf(all_plans()));
    list += format_bytes(bound) + ":" + to_string(plans.back()) + ",";
  }
  plans.push_back(*rc::gen::elementOf(all_plans()));
  list += to_string(plans.back());
  Result<std::vector<Rule>> rules = parse_plan_list(Collective::kAllreduce, list, "X");
  RC_ASSERT(rules.ok());
  RC_ASSERT(rules->size() == plans.size());
  // Each size has exactly one rule, the one whose bound is the first not below it.
  std::uint64_t bytes = *number();
  std::size_t expected = static_cast<std::size_t>(
      std::lower_bound(bounds.begin(), bounds.end(), bytes) - bounds.begin());
  Shape call;
  call.bytes = bytes;
  for (std::size_t i = 0; i < rules->size(); ++i) {
    RC_ASSERT((*rules)[i].plan == plans[i]);
    RC_ASSERT(matches((*rules)[i], call, CommFacts{}) == (i == expected));
  }
}

RC_GTEST_PROP(SelectProperty, parse_table__reads_what_tuning_file_json_wrote, ()) {
  Table written = *table();
  Result<Table> read = parse_table(tuning_file_json(written), "file");
  RC_ASSERT(read.ok());
  RC_ASSERT(same(*read, written));
}

RC_GTEST_PROP(SelectProperty, hash__equal_exactly_when_the_rules_are, ()) {
  Table a = *table();
  Table b = a;
  if (!b.rules.empty() && *rc::gen::arbitrary<bool>()) {
    std::size_t index = *rc::gen::inRange<std::size_t>(0, b.rules.size());
    b.rules[index] = *rc::gen::oneOf(rule(), rc::gen::just(b.rules.back()));
  }
  RC_ASSERT((a.hash() == b.hash()) == same(a, b));
}

}  // namespace
}  // namespace tutti::select
