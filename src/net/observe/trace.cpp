// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/observe/trace.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "transport/loss.hpp"

namespace tutti::net {
namespace {

using transport::kNoPath;
using transport::TimeNs;
using transport::TraceKind;
using transport::TraceRecord;

/// A window changes with every acknowledgement; more than this nobody can see.
constexpr TimeNs kWindowIntervalNs = 100'000;
constexpr std::size_t kRowsMax = 256;
/// Every file ends in order: this much is left for it.
constexpr std::uint64_t kEndBytes = 512;

// By the detail of the event: a transport::LossCause, a transport::PathState.
constexpr const char* kLossMarks[] = {"lost: cut by a switch", "lost: its path went on",
                                      "lost: too late",        "lost: the receiver says so",
                                      "lost: timeout",         "lost: part of it"};
static_assert(std::size(kLossMarks) ==
              static_cast<std::size_t>(transport::LossCause::kPartial) + 1);
constexpr const char* kPathMarks[] = {"path good", "path suspect", "path dead"};
static_assert(std::size(kPathMarks) == static_cast<std::size_t>(transport::PathState::kDead) + 1);

/// Empty: not in this trace.
const char* mark_of(const TraceRecord& record) {
  switch (record.kind) {
    case TraceKind::kLost:
      return kLossMarks[record.detail];
    case TraceKind::kTimeout:
      return "timeout";
    case TraceKind::kTailProbe:
      return "tail probe";
    case TraceKind::kPath:
      return kPathMarks[record.detail];
    case TraceKind::kRail:
      return record.detail == 0 ? "rail up" : "rail down";
    case TraceKind::kUndone:
      return "decrease taken back";
    case TraceKind::kConnectionEnded:
      return "connection ended";
    case TraceKind::kWindow:
    case TraceKind::kSent:
    case TraceKind::kReceived:
    case TraceKind::kAcknowledged:
    case TraceKind::kCredit:
      break;
  }
  return "";
}

std::string argument(const char* name, std::uint64_t value) {
  return "\"" + std::string(name) + "\":" + std::to_string(value);
}

}  // namespace

std::string escape_json(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') {
      escaped += '\\';
    }
    escaped += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return escaped;
}

void EngineTrace::open(TimeNs now, std::uint32_t connection, std::string name) {
  TraceEvent event;
  event.kind = TraceEvent::Kind::kOpened;
  event.record.time_ns = now;
  event.record.connection = connection;
  const std::lock_guard lock(mutex_);
  // Without it nothing of the connection can be told, and there are few of them.
  events_.push_back(event);
  names_.push_back(std::move(name));
}

void EngineTrace::forget(TimeNs now, std::uint32_t connection) {
  TraceEvent event;
  event.kind = TraceEvent::Kind::kForgotten;
  event.record.time_ns = now;
  event.record.connection = connection;
  window_ns_.erase(window_ns_.lower_bound({connection, 0}),
                   window_ns_.upper_bound({connection, UINT64_MAX}));
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void EngineTrace::request(TimeNs begin, TimeNs end, std::uint32_t connection, bool is_send,
                          Bytes bytes, transport::Outcome outcome) {
  TraceEvent event;
  event.kind = TraceEvent::Kind::kRequest;
  event.is_send = is_send;
  event.outcome = outcome;
  event.begin_ns = begin;
  event.record.time_ns = end;
  event.record.connection = connection;
  event.record.bytes = bytes;
  add(event);
}

void EngineTrace::record(const TraceRecord& record) {
  if (record.kind == TraceKind::kWindow) {
    TimeNs& last_ns = window_ns_[{record.connection, record.number}];
    if (record.time_ns - last_ns < kWindowIntervalNs) {
      return;
    }
    last_ns = record.time_ns;
  } else if (*mark_of(record) == '\0') {
    return;
  }
  TraceEvent event;
  event.record = record;
  add(event);
}

void EngineTrace::add(const TraceEvent& event) {
  bool is_half_full = false;
  {
    const std::lock_guard lock(mutex_);
    if (events_.size() >= kEventsMax) {
      ++left_out_;
      return;
    }
    events_.push_back(event);
    is_half_full = events_.size() == kEventsMax / 2;
  }
  if (is_half_full && wake_event_ != nullptr) {
    wake_event_->signal();
  }
}

void EngineTrace::take(std::vector<TraceEvent>* events, std::vector<std::string>* names,
                       std::uint64_t* left_out) {
  events->clear();
  events->reserve(kEventsMax);
  names->clear();
  const std::lock_guard lock(mutex_);
  events_.swap(*events);
  names_.swap(*names);
  *left_out = std::exchange(left_out_, 0);
}

Result<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& file,
                                                   const std::string& process, TimeNs start_ns,
                                                   std::uint64_t start_unix_ns,
                                                   std::uint64_t bytes_max) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return Status(ErrorCode::kUnavailable,
                  "cannot write '" + file + "': " + std::string(std::strerror(errno)));
  }
  std::unique_ptr<TraceFile> it(new TraceFile(descriptor, file, start_ns, bytes_max));
  it->buffer_ = "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"process\":\"" + escape_json(process) +
                "\"," + argument("start_unix_ns", start_unix_ns) + "},\"traceEvents\":[\n";
  it->bytes_ = it->buffer_.size();
  return it;
}

TraceFile::TraceFile(int descriptor, std::string name, TimeNs start_ns, std::uint64_t bytes_max)
    : descriptor_(descriptor), name_(std::move(name)), start_ns_(start_ns), bytes_max_(bytes_max) {}

TraceFile::~TraceFile() {
  if (bytes_max_ == 0) {
    close(descriptor_);  // After a gap nothing more is written.
    return;
  }
  // The last event has no comma behind it.
  buffer_ += "{\"ph\":\"M\",\"name\":\"events left out\",\"pid\":0,\"args\":{" +
             argument("count", left_out_) + "}}\n]}\n";
  (void)flush();
  close(descriptor_);
}

void TraceFile::write(std::uint32_t engine, const std::vector<TraceEvent>& events,
                      const std::vector<std::string>& names, std::uint64_t left_out) {
  left_out_ += left_out;
  std::size_t next_name = 0;
  for (const TraceEvent& event : events) {
    const auto key = std::pair(engine, event.record.connection);
    switch (event.kind) {
      case TraceEvent::Kind::kOpened:
        connections_[key].number = next_number_++;
        name(connections_[key].number, 0, "process_name", names[next_name++]);
        name(connections_[key].number, 0, "thread_name", "transport");
        break;
      case TraceEvent::Kind::kForgotten:
        connections_.erase(key);
        break;
      case TraceEvent::Kind::kRequest:
        write_request(event, connections_[key]);
        break;
      case TraceEvent::Kind::kTransport:
        write_transport(event.record, connections_[key]);
        break;
    }
  }
}

Status TraceFile::flush() {
  std::string_view left = buffer_;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      const std::string why = std::strerror(errno);
      // What is behind a gap would be worth nothing.
      bytes_max_ = 0;
      buffer_.clear();
      return Status(ErrorCode::kUnavailable, "cannot write '" + name_ + "': " + why);
    }
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
  return {};
}

void TraceFile::add(const std::string& event) {
  if (bytes_ + event.size() + kEndBytes > bytes_max_) {
    ++left_out_;
    return;
  }
  bytes_ += event.size() + 2;
  buffer_ += event + ",\n";
}

void TraceFile::name(std::uint32_t number, std::uint32_t thread, const char* what,
                     std::string_view name) {
  add("{\"ph\":\"M\",\"name\":\"" + std::string(what) + "\"," + argument("pid", number) + "," +
      argument("tid", thread) + ",\"args\":{\"name\":\"" + escape_json(name) + "\"}}");
}

/// Requests of a connection overlap, slices of a thread must not: each takes the first thread whose
/// last one ended before it began.
void TraceFile::write_request(const TraceEvent& event, Connection& connection) {
  std::vector<TimeNs>& rows_ns = connection.rows_ns;
  std::size_t row = 0;
  while (row < rows_ns.size() && rows_ns[row] > event.begin_ns) {
    ++row;
  }
  row = std::min(row, kRowsMax - 1);
  if (row == rows_ns.size()) {
    rows_ns.push_back(0);
    name(connection.number, static_cast<std::uint32_t>(row) + 1, "thread_name",
         "requests " + std::to_string(row + 1));
  }
  rows_ns[row] = event.record.time_ns;
  add(head('X', event.is_send ? "isend" : "irecv", connection.number,
           static_cast<std::uint32_t>(row) + 1, event.begin_ns) +
      ",\"dur\":" + time_us(start_ns_ + event.record.time_ns - event.begin_ns) + ",\"args\":{" +
      argument("bytes", event.record.bytes) + ",\"outcome\":\"" + to_string(event.outcome) +
      "\"}}");
}

void TraceFile::write_transport(const TraceRecord& record, const Connection& connection) {
  if (record.kind == TraceKind::kWindow) {
    const std::string group = record.number == 0 ? "" : " " + std::to_string(record.number);
    add(head('C', "window" + group, connection.number, 0, record.time_ns) + ",\"args\":{" +
        argument("bytes", record.bytes) + "," + argument("in flight", record.detail) + "}}");
    return;
  }
  std::string arguments;
  const auto add_argument = [&](const char* name, std::uint64_t value) {
    arguments += (arguments.empty() ? "" : ",") + argument(name, value);
  };
  if (record.kind == TraceKind::kLost || record.kind == TraceKind::kTailProbe) {
    add_argument("chunk", record.number);
  }
  if (record.bytes != 0) {
    add_argument("bytes", record.bytes);
  }
  if (record.path != kNoPath) {
    add_argument("path", record.path);
  }
  if (record.kind == TraceKind::kRail) {
    add_argument("rail", record.number);
  }
  if (record.kind == TraceKind::kTimeout) {
    add_argument("backoff", record.detail);
  }
  if (record.kind == TraceKind::kConnectionEnded) {
    arguments = std::string("\"outcome\":\"") +
                to_string(static_cast<transport::Outcome>(record.detail)) + "\"";
  }
  add(head('i', mark_of(record), connection.number, 0, record.time_ns) + ",\"s\":\"t\",\"args\":{" +
      arguments + "}}");
}

std::string TraceFile::head(char phase, std::string_view name, std::uint32_t number,
                            std::uint32_t thread, TimeNs time_ns) const {
  return std::string("{\"ph\":\"") + phase + "\",\"name\":\"" + std::string(name) +
         "\",\"cat\":\"" + (thread == 0 ? "transport" : "request") + "\"," +
         argument("pid", number) + "," + argument("tid", thread) + ",\"ts\":" + time_us(time_ns);
}

/// Since the start, in us with the ns behind the point.
std::string TraceFile::time_us(TimeNs time_ns) const {
  const TimeNs since_ns = time_ns > start_ns_ ? time_ns - start_ns_ : 0;
  const std::string fraction = std::to_string(1000 + since_ns % 1000);
  return std::to_string(since_ns / 1000) + "." + fraction.substr(1);
}

}  // namespace tutti::net
