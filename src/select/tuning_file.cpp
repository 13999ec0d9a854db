// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reads the tuning file, format tutti-tuning/1 (docs/tuning.md). Texts of
// errors and the check of `schema`: JsonReader (base/json_document.hpp).
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

/// Whether a part of the plan may be staged in chunks by the MPI library's runner.
bool takes_chunks(const Plan& plan) {
  const auto* const alpha = std::get_if<AlphaPlan>(&plan);
  return is<MpiPlan>(plan) ||
         (alpha != nullptr && (alpha->backend == Backend::kMpi || alpha->uses(Backend::kMpi)));
}

/// Each function reads one kind of value.
class TuningReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  Result<Table> table(const JsonValue& root) {
    Table result;
    TUTTI_RETURN_IF_ERROR(read_object(
        root, "",
        {schema(kTuningSchema),
         comment(),
         {"machine", [&](const JsonValue& value, const auto&) { return machine(value); }},
         {"rules", [&](const JsonValue& value, const auto&) { return rules(value, &result); }}}));
    TUTTI_RETURN_IF_ERROR(
        require(root, "", "schema", std::string("add \"schema\": \"") + kTuningSchema + "\""));
    TUTTI_RETURN_IF_ERROR(require(root, "", "rules", "add \"rules\": [...]"));
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
    std::vector<std::string> keys;
    std::optional<Status> status;
    for_each_predicate(*rule, [&](const char* key, auto& field, auto fact, auto...) {
      keys.emplace_back(key);
      if (member.key == key) {
        status = read(value, path, kIsBytes<decltype(fact)>, &field);
      }
    });
    if (status) {
      return *status;
    }
    if (member.key == "plan") {
      return read(value, path, false, &rule->plan);
    }
    if (member.key == "optional") {
      return read(value, path, false, &rule->optional);
    }
    if (member.key == "comment") {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
      rule->comment = value.text;
      return {};
    }
    keys.insert(keys.end(), {"plan", "parameters", "optional", "comment"});
    return unknown_key(member, parent, keys);
  }

  template <class Field>
  Status read(const JsonValue& value, const std::string& path, bool is_bytes, Field* field) const {
    if constexpr (std::is_same_v<Field, std::optional<Range>>) {
      return range(value, path, is_bytes, field);
    } else if constexpr (std::is_same_v<Field, std::vector<Collective>>) {
      const bool is_any = value.kind == Kind::kString && value.text == "any";
      return is_any ? Status() : names(value, path, parse_collective, field);
    } else if constexpr (std::is_same_v<Field, std::vector<ReduceOp>>) {
      return names(value, path, parse_reduce_op, field);
    } else if constexpr (std::is_same_v<Field, std::vector<DataType>>) {
      return names(value, path, parse_data_type, field);
    } else if constexpr (std::is_same_v<Field, std::optional<Memory>>) {
      return name(value, path, parse_memory, {"host", "device"}, field);
    } else if constexpr (std::is_same_v<Field, bool> ||
                         std::is_same_v<Field, std::optional<bool>>) {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kBool, path));
      *field = value.boolean;
      return {};
    } else if constexpr (std::is_same_v<Field, Plan>) {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
      Result<Plan> plan = parse_plan(value.text);
      if (!plan.ok()) {
        return fail(value.line, path, plan.status().message());
      }
      *field = std::move(*plan);
      return {};
    } else {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
      const std::vector<std::string> known = mpi_names();
      if (std::find(known.begin(), known.end(), value.text) == known.end()) {
        return fail(value.line, path, "\"" + value.text + "\" is no MPI; use mpich or openmpi");
      }
      *field = value.text;
      return {};
    }
  }

  Status read_parameters(const JsonValue& value, const std::string& parent, Plan* plan) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, parent));
    bool has_chunks = false;
    for (const JsonMember& member : value.members) {
      std::vector<std::string> keys;
      std::optional<Status> status;
      const auto visit = [&](const char* key, auto* field, const ParameterForm& form) {
        keys.emplace_back(key);
        if (member.key == key) {
          status = read_parameter(member, parent + "." + member.key, form, field);
        }
      };
      for_each_parameter(*plan, visit);
      if (!status) {
        return unknown_key(member, parent, keys);
      }
      TUTTI_RETURN_IF_ERROR(*status);
      has_chunks = has_chunks || member.key == "chunk_bytes";
    }
    if (has_chunks && !takes_chunks(*plan)) {
      return fail(value.line, parent + ".chunk_bytes",
                  "is for what goes through the MPI library; this plan has no such part, leave it "
                  "out");
    }
    return {};
  }

  Status misplaced(int line, const std::string& path, const ParameterForm& form) const {
    return fail(line, path, std::string("is for ") + form.plans + " only; leave it out");
  }
  // `field` is null if the plan is of a kind without the parameter.
  Status read_parameter(const JsonMember& member, const std::string& path,
                        const ParameterForm& /*form*/, std::optional<Bytes>* field) const {
    Bytes bytes = 0;
    TUTTI_RETURN_IF_ERROR(number(member.value, path, true, &bytes));
    if (field != nullptr) {  // Else read_parameters() says so: others may still make it right.
      *field = bytes;
    }
    return {};
  }
  Status read_parameter(const JsonMember& member, const std::string& path,
                        const ParameterForm& form, std::optional<Backend>* field) const {
    std::optional<Backend> backend;
    TUTTI_RETURN_IF_ERROR(name(member.value, path, parse_backend, {"mpi", "ccl"}, &backend));
    if (field == nullptr) {
      return misplaced(member.line, path, form);
    }
    *field = backend;
    return {};
  }
  Status read_parameter(const JsonMember& member, const std::string& path,
                        const ParameterForm& form, std::optional<int>* field) const {
    const int line = member.value.line;
    if (field == nullptr) {
      return misplaced(line, path, form);
    }
    std::uint64_t read = 0;
    TUTTI_RETURN_IF_ERROR(number(member.value, path, false, &read));
    if (read < form.least || read > form.most) {
      return fail(line, path,
                  "must be " + std::to_string(form.least) + " to " + std::to_string(form.most));
    }
    *field = static_cast<int>(read);
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
    const auto bound = [&](std::uint64_t* out) {
      return [=, this](const JsonValue& one, const std::string& at) {
        return number(one, at, is_bytes, out);
      };
    };
    TUTTI_RETURN_IF_ERROR(
        read_object(value, path, {{"min", bound(&range.min)}, {"max", bound(&range.max)}}));
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
               std::vector<T>* result) const {
    std::vector<std::string> known = enumerators<T>();
    if constexpr (std::is_same_v<T, Collective>) {
      known.emplace_back("any");
    }
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
