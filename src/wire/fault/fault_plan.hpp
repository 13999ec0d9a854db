// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which faults a FaultWire makes, and how people write them (TUTTI_FAULT): entries with commas
// between them, each at most once but for the kills.
//
//   seed=7                    of all draws; the same seed, stream, packets and times: the same
//                             faults. Each engine of each rank has a stream
//   drop=0.01                 chance of each packet to vanish; 0 to 1, at most 9 decimals
//   duplicate=0.001[:1ms]     ... to come twice, the second time so much later
//   reorder=0.01              ... to be overtaken by the next 1 to 8 packets
//   delay=0.02:200us          ... to be held back for so long
//   corrupt=0.001[:header]    ... to have a bit flipped; of the header, the payload, or either
//   kill_path=3@1s[:500ms]    nothing passes on path 3, from 1 s on, for ever or for so long
//   kill_rail=all@2s:500ms    ... on any rail
//
// Times are whole numbers of ns, us, ms or s; those behind @ count from the wire's beginning.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "transport/types.hpp"

namespace tutti::wire::fault {

/// In parts per billion: a decimal fraction that a user wrote is held exactly.
using ChancePpb = std::uint32_t;
inline constexpr ChancePpb kAlwaysPpb = 1'000'000'000;

inline constexpr std::size_t kKillsMax = 64;
/// About eleven days. Times are sums of these, so they stay far from the largest TimeNs.
inline constexpr transport::TimeNs kFaultTimeNsMax = 1'000'000'000'000'000;

enum class CorruptPart : std::uint8_t { kEither, kHeader, kPayload };

/// What is dead, and when.
struct Kill {
  static constexpr std::uint32_t kAll = 0xffff'ffff;

  bool is_rail = false;      ///< Else a path; of each peer the one with this number.
  std::uint32_t number = 0;  ///< kAll: all of them.
  transport::TimeNs begin_ns = 0;
  transport::TimeNs length_ns = transport::kNever;  ///< kNever: for ever.

  bool operator==(const Kill&) const = default;
};

struct FaultPlan {
  std::uint64_t seed = 1;
  ChancePpb drop_ppb = 0;
  ChancePpb duplicate_ppb = 0;
  transport::TimeNs duplicate_ns = 0;  ///< How long after the first.
  ChancePpb reorder_ppb = 0;
  ChancePpb delay_ppb = 0;
  transport::TimeNs delay_ns = 0;
  ChancePpb corrupt_ppb = 0;
  CorruptPart corrupt_part = CorruptPart::kEither;
  std::vector<Kill> kills;

  bool operator==(const FaultPlan&) const = default;
};

/// Blank text: no faults. Errors: begin with `origin` and the entry's number (kInvalidConfig).
Result<FaultPlan> parse_fault_plan(std::string_view text,
                                   const std::string& origin = "TUTTI_FAULT");

/// A fault that can never happen is not a test: paths and rails that are killed must be there.
/// Errors: begin with `origin` and name the one that is not (kInvalidConfig).
Status check_kills(const FaultPlan& plan, std::uint32_t paths, std::uint32_t rails,
                   const std::string& origin = "TUTTI_FAULT");

/// parse_fault_plan(format_fault_plan(x)) == x.
std::string format_fault_plan(const FaultPlan& plan);

}  // namespace tutti::wire::fault
