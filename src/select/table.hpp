// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The tuning table: an ordered list of rules, from which choose.cpp takes the first that matches.
// Sources by precedence: TUTTI_<COLLECTIVE>, the tuning file (TUTTI_TUNING_FILE, else the user's,
// else the system's), the shipped defaults. Format: docs/tuning.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"
#include "select/plan.hpp"
#include "select/shape.hpp"

namespace tutti::select {

/// Closed interval.
struct Range {
  std::uint64_t min = 0;
  std::uint64_t max = UINT64_MAX;
  bool contains(std::uint64_t value) const { return min <= value && value <= max; }
  bool operator==(const Range&) const = default;
};

/// Absent predicates match everything; a `bytes` predicate does not match a shape without bytes.
/// Each predicate has a row in tuning_format.hpp.
struct Rule {
  std::vector<Collective> collectives;  ///< Empty: all.
  std::optional<Range> bytes;
  std::optional<Range> nodes;
  std::optional<Range> ranks;
  std::optional<Range> ranks_per_node;
  std::optional<bool> oversubscribed;
  std::string mpi;  ///< CommFacts::mpi; empty: any.
  std::optional<Memory> memory;
  std::vector<ReduceOp> ops;    ///< Empty: all.
  std::vector<DataType> types;  ///< Empty: all.
  Plan plan;
  /// Passed over without a word where its plan cannot carry the call: no fall-back.
  bool optional = false;
  bool is_shipped = false;  ///< Of default_table(); nobody asked for it.
  std::string comment;      ///< Free text of the tuning file; never compared.
  std::string origin;       ///< "TUTTI_ALLREDUCE", "/path/file.json:12", "default: <why>".
};

struct Table {
  std::vector<Rule> rules;
  /// Equal on two ranks exactly when their rules are (origins do not count).
  std::uint64_t hash() const;
};

/// "allreduce, device, 1 node, bytes <= 8K -> mpi-gamma"
std::string rule_to_text(const Rule& rule);
/// The rules in order as a JSON array, each as in a tuning file plus its "origin".
std::string table_json(const Table& table);
/// The rules as a tuning file: parse_table reads it back, origins apart.
std::string tuning_file_json(const Table& table, const std::string& comment = "");
/// A JSON schema of tuning files, for editors.
std::string tuning_schema_json();

/// Of all ranks' blocks together: our own kernels against NCCL on 2 x H200
/// (bench/results/h200x2-mpich), faster up to here.
inline constexpr Bytes kDirectMovementsUpTo = 4 << 20;
/// Of a call in a graph, whose launches have fewer blocks.
inline constexpr Bytes kDirectCapturedUpTo = 2 << 20;

/// The shipped rules: host memory on one node by our shared-memory kernels where they were measured
/// faster than the MPI library and each rank has a core, else native; device memory on one node of
/// 2 to 4 GPUs by our own kernels up to some MiB, where they can be had; else native staged up to 8
/// KiB on one node and 32 KiB on several (MPI4AI's switch points), the CCL above; what no rank
/// knows the size of: each pair of ranks by its own.
Table default_table();

/// For ranks that have no MPI: shipped rules whose plan cannot carry a call are passed over without
/// a word, and after all others the CCL (device memory), then our own kernels and copies are tried,
/// then, for host memory of several nodes, schedules over our transport.
Table without_mpi(Table table);

/// "8K:mpi-gamma,64K:ccl-beta,mpi" -> up to 8K (inclusive) the first, up to 64K the second, above
/// the last. A single name holds for all sizes; of a list for a collective without a size that all
/// ranks know (has_size) the last plan holds. `origin` is put in each rule and in errors.
Result<std::vector<Rule>> parse_plan_list(Collective collective, std::string_view text,
                                          const std::string& origin);

/// Parses a tuning file's text. Errors: "<file>:<line>: <key>: what is wrong; remedy".
Result<Table> parse_table(const std::string& text, const std::string& file);
Result<Table> load_table(const std::string& file);

/// Environment over file over defaults. A problem of any source is an error that names it.
Result<Table> effective_table(const Config& config);
/// The tuning file effective_table would read, empty when none.
std::string tuning_file_path(const Config& config);

/// MPICH's selection JSON -> our format. `not_carried` lists what could not be, with line numbers.
struct ImportedTable {
  std::string json;
  std::vector<std::string> not_carried;
};
Result<ImportedTable> import_mpich(const std::string& text, const std::string& file);

}  // namespace tutti::select
