// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/trace.hpp"

#include <iterator>

namespace tutti::transport {
namespace {

constexpr const char* kKindNames[] = {"sent",   "received", "acknowledged", "lost",
                                      "window", "timeout",  "tail_probe",   "path",
                                      "rail",   "undone",   "credit",       "connection_ended"};
static_assert(std::size(kKindNames) == static_cast<std::size_t>(TraceKind::kConnectionEnded) + 1);

constexpr const char* kOutcomeNames[] = {
    "ok", "cancelled", "truncated", "closed", "aborted", "reset by the peer", "peer unreachable"};
static_assert(std::size(kOutcomeNames) == static_cast<std::size_t>(Outcome::kUnreachable) + 1);

void add(std::string& line, const char* name, std::uint64_t value) {
  line += ",\"";
  line += name;
  line += "\":";
  line += std::to_string(value);
}

}  // namespace

const char* to_string(Outcome outcome) { return kOutcomeNames[static_cast<std::size_t>(outcome)]; }

std::string trace_line(const TraceRecord& record) {
  std::string line = "{\"time_ns\":" + std::to_string(record.time_ns);
  add(line, "connection", record.connection);
  line += ",\"event\":\"";
  line += kKindNames[static_cast<std::size_t>(record.kind)];
  line += '"';
  if (record.path != kNoPath) {
    add(line, "path", record.path);
  }
  add(line, "number", record.number);
  add(line, "bytes", record.bytes);
  add(line, "detail", record.detail);
  line += '}';
  return line;
}

}  // namespace tutti::transport
