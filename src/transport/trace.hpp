// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the core tells about itself while it runs: one record for each thing that happened, in the
// manner of qlog. Not counters: those are always there (types.hpp). Records are values; a sink
// keeps, hashes or writes them (trace_line gives one line of JSON).
#pragma once

#include "transport/types.hpp"

namespace tutti::transport {

enum class TraceKind : std::uint8_t {
  kSent,             ///< number: chunk; bytes; path; detail: transmissions so far
  kReceived,         ///< number: chunk; bytes; path; detail: 1 duplicate, 2 trimmed
  kAcknowledged,     ///< number: chunk; bytes; path; detail: round trip of the
                     ///< fabric alone in ns, 0 unknown
  kLost,             ///< number: chunk; bytes; path; detail: LossCause
  kWindow,           ///< number: group; bytes: new window; detail: in flight
  kTimeout,          ///< detail: backoff so far
  kTailProbe,        ///< number: chunk
  kPath,             ///< path; detail: new PathState
  kRail,             ///< number: rail; detail: 1 down, 0 up
  kUndone,           ///< bytes: window
  kCredit,           ///< bytes: granted in total (sender's view)
  kConnectionEnded,  ///< detail: Outcome
};

struct TraceRecord {
  TimeNs time_ns = 0;
  std::uint32_t connection = 0;  ///< ConnectionOptions::local_id
  TraceKind kind = TraceKind::kSent;
  PathId path = kNoPath;
  std::uint64_t number = 0;
  Bytes bytes = 0;
  std::uint64_t detail = 0;
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void record(const TraceRecord& record) = 0;
};

/// {"time_ns":1,"connection":2,"event":"sent",...} without a line end.
std::string trace_line(const TraceRecord& record);

}  // namespace tutti::transport
