// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reads the tuning file, format tutti-tuning/1 (docs/tuning.md, tuning/schema.json).
#include <algorithm>

#include "base/json_document.hpp"
#include "base/message.hpp"
#include "select/table.hpp"
#include "select/tuning_format.hpp"

namespace tutti::select {
namespace {

using Kind = JsonValue::Kind;

template <class T>
using ParseName = std::optional<T> (*)(std::string_view);

/// Each function reads one kind of value.
class TuningReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  Result<Table> table(const JsonValue& root) {
    TUTTI_RETURN_IF_ERROR(expect(root, Kind::kObject, "document"));
    Table result;
    bool has_schema = false;
    bool has_rules = false;
    for (const JsonMember& member : root.members) {
      if (member.key == "schema") {
        TUTTI_RETURN_IF_ERROR(expect_schema(member.value, kTuningSchema));
        has_schema = true;
      } else if (member.key == "comment") {
        TUTTI_RETURN_IF_ERROR(expect(member.value, Kind::kString, "comment"));
      } else if (member.key == "machine") {
        TUTTI_RETURN_IF_ERROR(machine(member.value));
      } else if (member.key == "rules") {
        TUTTI_RETURN_IF_ERROR(rules(member.value, &result));
        has_rules = true;
      } else {
        return unknown_key(member, "", {"schema", "comment", "machine", "rules"});
      }
    }
    if (!has_schema) {
      return fail(root.line, "schema",
                  std::string("missing; add \"schema\": \"") + kTuningSchema + "\"");
    }
    if (!has_rules) {
      return fail(root.line, "rules", "missing; add \"rules\": [...]");
    }
    return result;
  }

 private:
  /// Free strings about where the file was made; kept for people, not read.
  Status machine(const JsonValue& value) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, "machine"));
    for (const JsonMember& member : value.members) {
      TUTTI_RETURN_IF_ERROR(expect(member.value, Kind::kString, "machine." + member.key));
    }
    return {};
  }

  Status rules(const JsonValue& value, Table* table) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kArray, "rules"));
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      Rule result;
      TUTTI_RETURN_IF_ERROR(rule(value.items[i], "rules[" + std::to_string(i) + "]", &result));
      table->rules.push_back(std::move(result));
    }
    return {};
  }

  Status rule(const JsonValue& value, const std::string& path, Rule* rule) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    rule->origin = file_ + ":" + std::to_string(value.line);
    bool has_plan = false;
    const JsonValue* parameters = nullptr;
    for (const JsonMember& member : value.members) {
      if (member.key == "parameters") {
        parameters = &member.value;  // Read last: what is allowed depends on the plan.
        continue;
      }
      has_plan = has_plan || member.key == "plan";
      TUTTI_RETURN_IF_ERROR(rule_member(member, path, rule));
    }
    if (!has_plan) {
      return fail(value.line, path, "has no plan; add \"plan\": \"mpi\" or another");
    }
    if (parameters != nullptr) {
      TUTTI_RETURN_IF_ERROR(read_parameters(*parameters, path + ".parameters", &rule->plan));
    }
    bool sized = rule->collectives.empty() ||
                 std::any_of(rule->collectives.begin(), rule->collectives.end(), has_size);
    if (rule->bytes && !sized) {
      return fail(value.line, path + ".bytes",
                  std::string(to_string(rule->collectives.front())) +
                      " has no size that every rank knows, the rule would never match; leave "
                      "bytes out");
    }
    return {};
  }

  Status rule_member(const JsonMember& member, const std::string& parent, Rule* rule) const {
    const JsonValue& value = member.value;
    std::string path = parent + "." + member.key;
    if (member.key == "collective") {
      if (value.kind == Kind::kString && value.text == "any") {
        return {};
      }
      return names<Collective>(value, path, parse_collective, collective_names(),
                               &rule->collectives);
    }
    if (member.key == "bytes") {
      return range(value, path, true, &rule->bytes);
    }
    if (member.key == "nodes") {
      return range(value, path, false, &rule->nodes);
    }
    if (member.key == "ranks") {
      return range(value, path, false, &rule->ranks);
    }
    if (member.key == "ranks_per_node") {
      return range(value, path, false, &rule->ranks_per_node);
    }
    if (member.key == "oversubscribed") {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kBool, path));
      rule->oversubscribed = value.boolean;
      return {};
    }
    if (member.key == "mpi") {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
      if (value.text != "mpich" && value.text != "openmpi") {
        return fail(value.line, path, "\"" + value.text + "\" is no MPI; use mpich or openmpi");
      }
      rule->mpi = value.text;
      return {};
    }
    if (member.key == "memory") {
      return name<Memory>(value, path, parse_memory, {"host", "device"}, &rule->memory);
    }
    if (member.key == "op") {
      return names<ReduceOp>(value, path, parse_reduce_op, op_names(), &rule->ops);
    }
    if (member.key == "type") {
      return names<DataType>(value, path, parse_data_type, type_names(), &rule->types);
    }
    if (member.key == "plan") {
      return plan(value, path, rule);
    }
    if (member.key == "comment") {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
      rule->comment = value.text;
      return {};
    }
    if (member.key == "optional") {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kBool, path));
      rule->optional = value.boolean;
      return {};
    }
    return unknown_key(
        member, parent,
        {"collective", "bytes", "nodes", "ranks", "ranks_per_node", "oversubscribed", "mpi",
         "memory", "op", "type", "plan", "parameters", "optional", "comment"});
  }

  Status plan(const JsonValue& value, const std::string& path, Rule* rule) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
    Result<PlanName> parsed = parse_plan_name(value.text);
    if (!parsed.ok()) {
      return fail(value.line, path, parsed.status().message());
    }
    rule->plan = parsed->plan;
    rule->composition_fits = parsed->composition_fits;
    return {};
  }

  Status read_parameters(const JsonValue& value, const std::string& parent, Plan* plan) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, parent));
    PlanParameters& parameters = plan->parameters;
    static const std::vector<std::string> kBackends = {"mpi", "ccl"};
    for (const JsonMember& member : value.members) {
      std::string path = parent + "." + member.key;
      if (member.key == "chunk_bytes") {
        Bytes bytes = 0;
        TUTTI_RETURN_IF_ERROR(number(member.value, path, true, &bytes));
        parameters.chunk_bytes = bytes;
      } else if (member.key == "node_backend") {
        TUTTI_RETURN_IF_ERROR(
            name<Backend>(member.value, path, parse_backend, kBackends, &parameters.node_backend));
      } else if (member.key == "leaders_backend") {
        TUTTI_RETURN_IF_ERROR(name<Backend>(member.value, path, parse_backend, kBackends,
                                            &parameters.leaders_backend));
      } else if (member.key == "radix" || member.key == "segments") {
        const bool is_radix = member.key == "radix";
        TUTTI_RETURN_IF_ERROR(schedule_number(member.value, path, plan->backend, is_radix ? 2 : 1,
                                              is_radix ? 1024 : 256,
                                              is_radix ? &parameters.radix : &parameters.segments));
        continue;
      } else {
        return unknown_key(member, parent,
                           {"chunk_bytes", "node_backend", "leaders_backend", "radix", "segments"});
      }
      if (member.key != "chunk_bytes" && plan->composition != Composition::kAlpha) {
        return fail(member.line, path, "is for alpha plans only; leave it out");
      }
    }
    bool has_mpi = plan->backend == Backend::kMpi || parameters.node_backend == Backend::kMpi ||
                   parameters.leaders_backend == Backend::kMpi;
    if (parameters.chunk_bytes && !has_mpi) {
      return fail(value.line, parent + ".chunk_bytes",
                  "is for what goes through the MPI library; this plan has no such part, leave it "
                  "out");
    }
    return {};
  }

  Status schedule_number(const JsonValue& value, const std::string& path, Backend backend,
                         int least, int most, std::optional<int>* result) const {
    if (backend != Backend::kSchedule) {
      return fail(value.line, path, "is for schedules (rings, schedule:NAME) only; leave it out");
    }
    std::uint64_t number_read = 0;
    TUTTI_RETURN_IF_ERROR(number(value, path, false, &number_read));
    if (number_read < static_cast<std::uint64_t>(least) ||
        number_read > static_cast<std::uint64_t>(most)) {
      return fail(value.line, path,
                  "must be " + std::to_string(least) + " to " + std::to_string(most));
    }
    *result = static_cast<int>(number_read);
    return {};
  }

  /// 8192 or, where it is a size in bytes, "8K".
  Status number(const JsonValue& value, const std::string& path, bool is_bytes,
                std::uint64_t* result) const {
    if (value.kind == Kind::kUnsigned) {
      *result = value.number;
      return {};
    }
    if (value.kind == Kind::kString && (is_bytes || value.text == "inf")) {
      Result<Bytes> parsed = parse_bytes(value.text);
      if (!parsed.ok()) {
        return fail(value.line, path,
                    in_quotes(value.text) +
                        " is not a size; write a whole number, with K, M, G or T "
                        "behind it in quotes, or \"inf\"");
      }
      *result = *parsed;
      return {};
    }
    return fail(value.line, path,
                is_bytes ? "a size is expected: a whole number, \"8K\" or \"inf\""
                         : "a whole number that is not negative is expected");
  }

  /// {"min": 1, "max": "8K"}, both inclusive, at least one given; a bare number where it is no
  /// size in bytes.
  Status range(const JsonValue& value, const std::string& path, bool is_bytes,
               std::optional<Range>* result) const {
    Range range;
    if (value.kind == Kind::kUnsigned && !is_bytes) {
      *result = Range{value.number, value.number};
      return {};
    }
    if (value.kind != Kind::kObject || value.members.empty()) {
      return fail(value.line, path,
                  is_bytes ? "an object is expected, such as {\"min\": 0, \"max\": \"8K\"}"
                           : "a number or an object is expected, such as 1 or {\"min\": 2}");
    }
    for (const JsonMember& member : value.members) {
      std::string key_path = path + "." + member.key;
      if (member.key == "min") {
        TUTTI_RETURN_IF_ERROR(number(member.value, key_path, is_bytes, &range.min));
      } else if (member.key == "max") {
        TUTTI_RETURN_IF_ERROR(number(member.value, key_path, is_bytes, &range.max));
      } else {
        return unknown_key(member, path, {"min", "max"});
      }
    }
    if (range.min > range.max) {
      return fail(value.line, path, "min is over max; swap them");
    }
    *result = range;
    return {};
  }

  template <class T>
  Status name(const JsonValue& value, const std::string& path, ParseName<T> parse,
              const std::vector<std::string>& known, std::optional<T>* result) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
    *result = parse(value.text);
    if (!*result) {
      return fail(value.line, path,
                  "unknown name " + in_quotes(value.text) + did_you_mean(value.text, known));
    }
    return {};
  }

  /// One name or a list of different ones; the result is sorted, for the table's hash.
  template <class T>
  Status names(const JsonValue& value, const std::string& path, ParseName<T> parse,
               const std::vector<std::string>& known, std::vector<T>* result) const {
    std::optional<T> one;
    if (value.kind == Kind::kString) {
      TUTTI_RETURN_IF_ERROR(name<T>(value, path, parse, known, &one));
      result->push_back(*one);
      return {};
    }
    if (value.kind != Kind::kArray || value.items.empty()) {
      return fail(value.line, path, "a name or a list of names is expected");
    }
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      std::string item_path = path + "[" + std::to_string(i) + "]";
      TUTTI_RETURN_IF_ERROR(name<T>(value.items[i], item_path, parse, known, &one));
      if (std::find(result->begin(), result->end(), *one) != result->end()) {
        return fail(value.items[i].line, item_path,
                    std::string("'") + to_string(*one) + "' stands twice; remove one of them");
      }
      result->push_back(*one);
    }
    std::sort(result->begin(), result->end());
    return {};
  }

  static std::vector<std::string> collective_names() {
    std::vector<std::string> result(kCollectiveNames.begin(), kCollectiveNames.end());
    result.emplace_back("any");
    return result;
  }
  static std::vector<std::string> op_names() {
    std::vector<std::string> result;
    for (int i = 0; i < kReduceOpCount; ++i) {
      result.emplace_back(to_string(static_cast<ReduceOp>(i)));
    }
    return result;
  }
  static std::vector<std::string> type_names() {
    std::vector<std::string> result;
    for (int i = 0; i < kDataTypeCount; ++i) {
      result.emplace_back(to_string(static_cast<DataType>(i)));
    }
    return result;
  }
};

}  // namespace

Result<Table> parse_table(const std::string& text, const std::string& file) {
  TUTTI_ASSIGN_OR_RETURN(JsonValue root, parse_json(text, file));
  return TuningReader(file).table(root);
}

Result<Table> load_table(const std::string& file) {
  TUTTI_ASSIGN_OR_RETURN(std::string text, read_json_file(file));
  return parse_table(text, file);
}

}  // namespace tutti::select
