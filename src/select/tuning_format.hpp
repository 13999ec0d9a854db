// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The predicates of a rule and the parameters of a plan, each with its key in tuning files. How a
// field is read, written, explained, hashed and compared follows from its type.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "select/table.hpp"

namespace tutti::select {

/// Name and version of the format; a new number when old readers would misread a file.
inline constexpr const char* kTuningSchema = "tutti-tuning/1";

/// MPI libraries that a rule can name (CommFacts::mpi).
inline std::vector<std::string> mpi_names() { return {"mpich", "openmpi"}; }

inline constexpr int count_of(Collective /*of*/) { return kCollectiveCount; }
inline constexpr int count_of(ReduceOp /*of*/) { return kReduceOpCount; }
inline constexpr int count_of(DataType /*of*/) { return kDataTypeCount; }
/// The names of an enumeration's values.
template <class Enum>
std::vector<std::string> enumerators() {
  std::vector<std::string> names;
  for (int i = 0; i < count_of(Enum()); ++i) {
    names.emplace_back(to_string(static_cast<Enum>(i)));
  }
  return names;
}

/// What a predicate is compared with, of a Shape or of CommFacts, is a size in bytes.
template <class Fact>
inline constexpr bool kIsBytes = std::is_same_v<Fact, decltype(&Shape::bytes)>;

/// Calls visit(key, field, fact) for each. `is_written`: in the order of files and explanations,
/// else in that of the hash and of messages. Further arguments are for explanations: a range's name
/// and what it is called if it is 1; what true and false mean.
template <class AnyRule, class Visit>
void for_each_predicate(AnyRule& rule, const Visit& visit, bool is_written = false) {
  const auto bytes = [&] { visit("bytes", rule.bytes, &Shape::bytes, "bytes"); };
  const auto memory = [&] { visit("memory", rule.memory, &Shape::memory); };
  visit("collective", rule.collectives, &Shape::collective);
  is_written ? memory() : bytes();
  visit("nodes", rule.nodes, &CommFacts::nodes, "nodes", "1 node");
  visit("ranks", rule.ranks, &CommFacts::ranks, "ranks");
  visit("ranks_per_node", rule.ranks_per_node, &CommFacts::ranks_per_node_max, "ranks per node");
  visit("oversubscribed", rule.oversubscribed, &CommFacts::oversubscribed, "more ranks than cores",
        "a core for each rank");
  visit("mpi", rule.mpi, &CommFacts::mpi);
  is_written ? bytes() : memory();
  visit("op", rule.ops, &Shape::op);
  visit("type", rule.types, &Shape::type);
}

/// The field that `of` gives of kinds of plans that it takes; null: the plan is of another kind.
template <class Value, class Of>
std::optional<Value>* parameter(Plan& plan, const Of& of) {
  return std::visit(
      [&](auto& kind) -> std::optional<Value>* {
        if constexpr (std::is_invocable_v<Of, decltype(kind)>) {
          return &of(kind);
        } else {
          return nullptr;
        }
      },
      plan);
}

struct ParameterForm {
  const char* plans;        ///< That have it.
  const char* before = "";  ///< The value, in explanations.
  const char* behind = "";
  std::uint64_t least = 0;  ///< Of a number.
  std::uint64_t most = 0;
};

/// Calls visit(key, pointer to field, ParameterForm) for all.
template <class Visit>
void for_each_parameter(Plan& plan, const Visit& visit) {
#define TUTTI_PARAMETER(type, name) \
#name, parameter < type>(plan, [](auto& kind) -> decltype((kind.name)) { return kind.name; })
  constexpr const char* kSchedules = "schedules (rings, schedule:NAME)";
  visit(TUTTI_PARAMETER(Bytes, chunk_bytes), {"plans with an MPI part", "chunks of "});
  visit(TUTTI_PARAMETER(Backend, node_backend), {"alpha plans", "within nodes "});
  visit(TUTTI_PARAMETER(Backend, leaders_backend), {"alpha plans", "among leaders "});
  visit(TUTTI_PARAMETER(int, radix), {kSchedules, "radix ", "", 2, 1024});
  visit(TUTTI_PARAMETER(int, segments), {kSchedules, "", " segments", 1, 256});
#undef TUTTI_PARAMETER
}

/// The value of "parameters": only what is set.
nlohmann::ordered_json parameters_json(Plan plan);

}  // namespace tutti::select
