// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Plans by ranges of sizes, as TUTTI_ALLREDUCE and its like have them.
#include "base/message.hpp"
#include "select/table.hpp"

namespace tutti::select {
namespace {

std::string_view trimmed(std::string_view text) {
  std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// One entry of the list: "8K:mpi-gamma", or "mpi" without a bound.
struct Entry {
  std::optional<Bytes> up_to;
  Plan plan;
};

Result<Entry> parse_entry(std::string_view text) {
  Entry entry;
  std::size_t colon = text.find(':');
  // "schedule:ring", "ccl:ring" and "net:ring" are plans' names, not sizes.
  std::string problem;
  if (colon != std::string_view::npos && !SchedulePlan().read(text, &problem)) {
    std::string_view size = trimmed(text.substr(0, colon));
    Result<Bytes> up_to = parse_bytes(size);
    if (!up_to.ok()) {
      return Status(ErrorCode::kInvalidConfig,
                    in_quotes(size) +
                        " is not a size; write a whole number with K, M, G or T behind it, or inf");
    }
    entry.up_to = *up_to;
    text = trimmed(text.substr(colon + 1));
  }
  TUTTI_ASSIGN_OR_RETURN(entry.plan, parse_plan(text));
  return entry;
}

/// What is wrong with an entry's bound, empty when nothing is. `below`: the bound before it.
std::string bound_problem(const Entry& entry, bool last, const std::optional<Bytes>& below) {
  if (!last && !entry.up_to) {
    return "only the last entry stands without a size; write it as SIZE:PLAN";
  }
  if (!last && *entry.up_to == kBytesMax) {
    return "nothing is larger than inf; leave out what follows";
  }
  if (last && entry.up_to && *entry.up_to != kBytesMax) {
    return "the last entry stands without a size, it holds for all larger ones; add ',PLAN'";
  }
  if (entry.up_to && below && *entry.up_to <= *below) {
    return "sizes must ascend; the one before is " + format_bytes(*below);
  }
  return "";
}

}  // namespace

Result<std::vector<Rule>> parse_plan_list(Collective collective, std::string_view text,
                                          const std::string& origin) {
  std::vector<Rule> rules;
  std::optional<Bytes> below;
  for (int position = 1;; ++position) {
    std::size_t comma = text.find(',');
    std::string_view part = trimmed(text.substr(0, comma));
    bool last = comma == std::string_view::npos;
    Result<Entry> entry = parse_entry(part);
    std::string problem =
        entry.ok() ? bound_problem(*entry, last, below) : entry.status().message();
    if (!problem.empty()) {
      return Status(ErrorCode::kInvalidConfig, origin + ": entry " + std::to_string(position) +
                                                   " " + in_quotes(part) + ": " + problem);
    }
    // Where no rank knows a size to compare with, the last entry holds alone.
    if (last || has_size(collective)) {
      Rule rule;
      rule.collectives = {collective};
      rule.plan = entry->plan;
      rule.origin = origin;
      if (has_size(collective) && (entry->up_to || below)) {
        rule.bytes = Range{below ? *below + 1 : 0, entry->up_to.value_or(kBytesMax)};
      }
      rules.push_back(std::move(rule));
    }
    if (last) {
      return rules;
    }
    below = entry->up_to;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace tutti::select
