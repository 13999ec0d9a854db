// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/trace.hpp"

namespace tutti::transport {
namespace {

const char* name_of(TraceKind kind) {
  switch (kind) {
    case TraceKind::kSent:
      return "sent";
    case TraceKind::kReceived:
      return "received";
    case TraceKind::kAcknowledged:
      return "acknowledged";
    case TraceKind::kLost:
      return "lost";
    case TraceKind::kWindow:
      return "window";
    case TraceKind::kTimeout:
      return "timeout";
    case TraceKind::kTailProbe:
      return "tail_probe";
    case TraceKind::kPath:
      return "path";
    case TraceKind::kRail:
      return "rail";
    case TraceKind::kUndone:
      return "undone";
    case TraceKind::kCredit:
      return "credit";
    case TraceKind::kConnectionEnded:
      return "connection_ended";
  }
  return "unknown";
}

void add(std::string& line, const char* name, std::uint64_t value) {
  line += ",\"";
  line += name;
  line += "\":";
  line += std::to_string(value);
}

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kTruncated:
      return "truncated";
    case Outcome::kClosed:
      return "closed";
    case Outcome::kAborted:
      return "aborted";
    case Outcome::kReset:
      return "reset by the peer";
    case Outcome::kUnreachable:
      return "peer unreachable";
  }
  return "unknown";
}

std::string trace_line(const TraceRecord& record) {
  std::string line = "{\"time_ns\":" + std::to_string(record.time_ns);
  add(line, "connection", record.connection);
  line += ",\"event\":\"";
  line += name_of(record.kind);
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
