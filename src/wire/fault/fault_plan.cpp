// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/fault/fault_plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

#include "base/message.hpp"

namespace tutti::wire::fault {
namespace {

using transport::TimeNs;

constexpr std::size_t kDecimalsMax = 9;

struct TimeUnit {
  std::string_view name;
  TimeNs ns;
};
/// The largest first, as they are tried for printing.
constexpr std::array<TimeUnit, 4> kTimeUnits = {
    {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}}};

Status wrong(std::string problem) { return {ErrorCode::kInvalidConfig, std::move(problem)}; }

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Text up to a separator, and what follows it when it is there.
struct Halves {
  std::string_view left;
  std::optional<std::string_view> right;
};

Halves halves(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) {
    return {text, std::nullopt};
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

/// All of `text` as digits.
std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

Result<ChancePpb> parse_chance(std::string_view text) {
  const auto [whole, decimals] = halves(text, '.');
  const std::optional<std::uint64_t> units = whole_number(whole);
  std::optional<std::uint64_t> parts = 0;
  if (decimals) {
    parts = decimals->size() <= kDecimalsMax ? whole_number(*decimals) : std::nullopt;
    for (std::size_t i = decimals->size(); parts && i < kDecimalsMax; ++i) {
      parts = *parts * 10;
    }
  }
  // What is before the point is looked at first: more than 1 would overflow the product.
  if (!units || !parts || *units > 1 || *units * kAlwaysPpb + *parts > kAlwaysPpb) {
    return wrong(in_quotes(text) +
                 " is not a chance; write a number from 0 to 1 with at most 9 decimals, as in "
                 "0.01");
  }
  return static_cast<ChancePpb>(*units * kAlwaysPpb + *parts);
}

Result<TimeNs> parse_time(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<std::uint64_t> count = whole_number(text.substr(0, digits));
  for (const TimeUnit& unit : kTimeUnits) {
    if (count && text.substr(digits) == unit.name) {
      if (*count > kFaultTimeNsMax / unit.ns) {
        return wrong(in_quotes(text) + " is too long; at most 1000000s");
      }
      return *count * unit.ns;
    }
  }
  return wrong(in_quotes(text) +
               " is not a time; write a whole number with ns, us, ms or s behind it, as in 200us");
}

Status parse_seed(std::string_view text, FaultPlan* plan) {
  const std::optional<std::uint64_t> value = whole_number(text);
  if (!value) {
    return wrong(in_quotes(text) + " is not a seed; write a whole number below 2^64");
  }
  plan->seed = *value;
  return {};
}

/// Of a fault that is a chance and no more.
template <ChancePpb FaultPlan::*chance_ppb>
Status parse_one_chance(std::string_view text, FaultPlan* plan) {
  TUTTI_ASSIGN_OR_RETURN(plan->*chance_ppb, parse_chance(text));
  return {};
}

Status parse_duplicate(std::string_view text, FaultPlan* plan) {
  const auto [chance, time] = halves(text, ':');
  TUTTI_ASSIGN_OR_RETURN(plan->duplicate_ppb, parse_chance(chance));
  if (time) {
    TUTTI_ASSIGN_OR_RETURN(plan->duplicate_ns, parse_time(*time));
  }
  return {};
}

Status parse_delay(std::string_view text, FaultPlan* plan) {
  const auto [chance, time] = halves(text, ':');
  TUTTI_ASSIGN_OR_RETURN(plan->delay_ppb, parse_chance(chance));
  if (!time) {
    return wrong("for how long? Write a time behind it, as in delay=0.02:200us");
  }
  TUTTI_ASSIGN_OR_RETURN(plan->delay_ns, parse_time(*time));
  return {};
}

Status parse_corrupt(std::string_view text, FaultPlan* plan) {
  const auto [chance, part] = halves(text, ':');
  TUTTI_ASSIGN_OR_RETURN(plan->corrupt_ppb, parse_chance(chance));
  if (!part) {
    return {};
  }
  if (*part != "header" && *part != "payload") {
    return wrong(in_quotes(*part) +
                 " is no part of a packet; write header or payload, or neither for either");
  }
  plan->corrupt_part = *part == "header" ? CorruptPart::kHeader : CorruptPart::kPayload;
  return {};
}

Status parse_kill(std::string_view text, bool is_rail, FaultPlan* plan) {
  Kill kill;
  kill.is_rail = is_rail;
  const auto [what, when] = halves(text, '@');
  const std::uint32_t count = is_rail ? transport::kRailsMax : transport::kPathsMax;
  const std::optional<std::uint64_t> number = whole_number(what);
  if (what == "all") {
    kill.number = Kill::kAll;
  } else if (number && *number < count) {
    kill.number = static_cast<std::uint32_t>(*number);
  } else {
    return wrong(in_quotes(what) + " is no " + (is_rail ? "rail" : "path") +
                 "; write a number from 0 to " + std::to_string(count - 1) + ", or all");
  }
  if (!when) {
    return wrong("from when on? Write a time behind it, as in " + std::string(what) + "@1s");
  }
  const auto [begin, length] = halves(*when, ':');
  TUTTI_ASSIGN_OR_RETURN(kill.begin_ns, parse_time(begin));
  if (length) {
    TUTTI_ASSIGN_OR_RETURN(kill.length_ns, parse_time(*length));
  }
  if (plan->kills.size() == kKillsMax) {
    return wrong("there are " + std::to_string(kKillsMax) + " kills before it; leave some out");
  }
  plan->kills.push_back(kill);
  return {};
}

Status parse_kill_path(std::string_view text, FaultPlan* plan) {
  return parse_kill(text, false, plan);
}

Status parse_kill_rail(std::string_view text, FaultPlan* plan) {
  return parse_kill(text, true, plan);
}

struct Key {
  std::string_view name;
  Status (*parse)(std::string_view, FaultPlan*);
  bool repeats = false;
};
constexpr std::array<Key, 8> kKeys = {{{"seed", parse_seed},
                                       {"drop", parse_one_chance<&FaultPlan::drop_ppb>},
                                       {"duplicate", parse_duplicate},
                                       {"reorder", parse_one_chance<&FaultPlan::reorder_ppb>},
                                       {"delay", parse_delay},
                                       {"corrupt", parse_corrupt},
                                       {"kill_path", parse_kill_path, true},
                                       {"kill_rail", parse_kill_rail, true}}};

/// `seen`: the names of the entries before.
Status parse_entry(std::string_view text, std::set<std::string_view>* seen, FaultPlan* plan) {
  const auto [name, value] = halves(text, '=');
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    names.emplace_back(key.name);
    if (trimmed(name) != key.name) {
      continue;
    }
    if (!value) {
      return wrong("what value? Write " + std::string(key.name) + "=VALUE");
    }
    if (!seen->insert(key.name).second && !key.repeats) {
      return wrong(std::string(key.name) + " stands there before; leave one of the two out");
    }
    return key.parse(trimmed(*value), plan);
  }
  return wrong("no such fault" + did_you_mean(trimmed(name), names));
}

std::string format_chance(ChancePpb chance_ppb) {
  std::string decimals = std::to_string(kAlwaysPpb + chance_ppb % kAlwaysPpb).substr(1);
  decimals.erase(decimals.find_last_not_of('0') + 1);
  return std::to_string(chance_ppb / kAlwaysPpb) + (decimals.empty() ? "" : "." + decimals);
}

std::string format_time(TimeNs time_ns) {
  for (const TimeUnit& unit : kTimeUnits) {
    if (time_ns % unit.ns == 0) {
      return std::to_string(time_ns / unit.ns) + std::string(unit.name);
    }
  }
  return {};  // Not reached: every number is one of nanoseconds.
}

std::string format_kill(const Kill& kill) {
  return std::string(kill.is_rail ? "kill_rail=" : "kill_path=") +
         (kill.number == Kill::kAll ? "all" : std::to_string(kill.number)) + "@" +
         format_time(kill.begin_ns) +
         (kill.length_ns == transport::kNever ? "" : ":" + format_time(kill.length_ns));
}

}  // namespace

Result<FaultPlan> parse_fault_plan(std::string_view text, const std::string& origin) {
  FaultPlan plan;
  if (trimmed(text).empty()) {
    return plan;
  }
  std::set<std::string_view> seen;
  std::optional<std::string_view> rest = text;
  for (int position = 1; rest; ++position) {
    const auto [part, after] = halves(*rest, ',');
    const Status status = parse_entry(trimmed(part), &seen, &plan);
    if (!status.ok()) {
      return wrong(origin + ": entry " + std::to_string(position) + " " + in_quotes(trimmed(part)) +
                   ": " + status.message());
    }
    rest = after;
  }
  return plan;
}

Status check_kills(const FaultPlan& plan, std::uint32_t paths, std::uint32_t rails,
                   const std::string& origin) {
  for (const Kill& kill : plan.kills) {
    const std::uint32_t there = kill.is_rail ? rails : paths;
    if (kill.number != Kill::kAll && kill.number >= there) {
      const std::string things = kill.is_rail ? " rail(s)" : " path(s)";
      return wrong(origin + ": " + in_quotes(format_kill(kill)) +
                   " would kill nothing: there are " + std::to_string(there) + things +
                   ", and the first is 0");
    }
  }
  return {};
}

std::string format_fault_plan(const FaultPlan& plan) {
  std::string text = "seed=" + std::to_string(plan.seed);
  // A chance of 0 is printed only with what a user wrote behind it, so that nothing is lost.
  if (plan.drop_ppb != 0) {
    text += ",drop=" + format_chance(plan.drop_ppb);
  }
  if (plan.duplicate_ppb != 0 || plan.duplicate_ns != 0) {
    text +=
        ",duplicate=" + format_chance(plan.duplicate_ppb) + ":" + format_time(plan.duplicate_ns);
  }
  if (plan.reorder_ppb != 0) {
    text += ",reorder=" + format_chance(plan.reorder_ppb);
  }
  if (plan.delay_ppb != 0 || plan.delay_ns != 0) {
    text += ",delay=" + format_chance(plan.delay_ppb) + ":" + format_time(plan.delay_ns);
  }
  if (plan.corrupt_ppb != 0 || plan.corrupt_part != CorruptPart::kEither) {
    text += ",corrupt=" + format_chance(plan.corrupt_ppb);
    if (plan.corrupt_part != CorruptPart::kEither) {
      text += plan.corrupt_part == CorruptPart::kHeader ? ":header" : ":payload";
    }
  }
  for (const Kill& kill : plan.kills) {
    text += "," + format_kill(kill);
  }
  return text;
}

}  // namespace tutti::wire::fault
