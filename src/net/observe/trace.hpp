// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What happened when, for Perfetto or Chrome (the trace event format, as `tutti sim collective
// --trace` writes it): each connection is a process of the trace, its requests are slices from post
// to end, losses, timeouts and paths that come and go are marks, its window is a counter. Chunks
// one by one are not in it.
//
// Engines put events into memory of fixed size; a thread of another's takes them out and writes
// them. What has no room is left out and counted.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "net/observe/wake_event.hpp"
#include "transport/trace.hpp"

namespace tutti::net {

struct TraceEvent {
  enum class Kind : std::uint8_t {
    kOpened,     ///< A connection; `names` has its name.
    kForgotten,  ///< Nothing more of it comes.
    kRequest,
    kTransport,  ///< `record` holds.
  };
  Kind kind = Kind::kTransport;
  bool is_send = false;
  transport::Outcome outcome = transport::Outcome::kOk;
  transport::TimeNs begin_ns = 0;  ///< Of a request.
  transport::TraceRecord record;   ///< Of the others its time, connection and bytes.
};

/// One engine's events. Its calls are one thread's at a time (the engine's lock), but take().
class EngineTrace : public transport::TraceSink {
 public:
  /// About 1.5 MiB; a busy engine fills it in some 100 ms.
  static constexpr std::size_t kEventsMax = 16'384;

  /// `wake_event` is signaled when the buffer is half full.
  explicit EngineTrace(WakeEvent* wake_event) : wake_event_(wake_event) {
    events_.reserve(kEventsMax);
  }

  void open(transport::TimeNs now, std::uint32_t connection, std::string name);
  void forget(transport::TimeNs now, std::uint32_t connection);
  void request(transport::TimeNs begin, transport::TimeNs end, std::uint32_t connection,
               bool is_send, Bytes bytes, transport::Outcome outcome);
  void record(const transport::TraceRecord& record) override;

  /// All there is, in their order; `names`: of the connections that were opened.
  void take(std::vector<TraceEvent>* events, std::vector<std::string>* names,
            std::uint64_t* left_out);

 private:
  void add(const TraceEvent& event);

  WakeEvent* wake_event_;
  /// When a window was told last, by connection and group.
  std::map<std::pair<std::uint32_t, std::uint64_t>, transport::TimeNs> window_ns_;
  std::mutex mutex_;  ///< Of the rest.
  std::vector<TraceEvent> events_;
  std::vector<std::string> names_;
  std::uint64_t left_out_ = 0;
};

/// The file, and what is to be written to it. One thread.
class TraceFile {
 public:
  /// Larger ones are of no use in a browser.
  static constexpr std::uint64_t kBytesMax = 256 << 20;

  /// `process`: a name for people; times are told from `start_ns` on. Errors name the file
  /// (kUnavailable).
  static Result<std::unique_ptr<TraceFile>> open(const std::string& file,
                                                 const std::string& process,
                                                 transport::TimeNs start_ns,
                                                 std::uint64_t start_unix_ns,
                                                 std::uint64_t bytes_max = kBytesMax);
  /// Ends the document.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// What `engine` (a number) did since the last call.
  void write(std::uint32_t engine, const std::vector<TraceEvent>& events,
             const std::vector<std::string>& names, std::uint64_t left_out);
  /// To the disk. Errors: it is full, or gone; then nothing more is written.
  Status flush();
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Connection {
    std::uint32_t number = 0;                ///< The trace's process.
    std::vector<transport::TimeNs> rows_ns;  ///< Ends of the last slices of each row.
  };

  TraceFile(int descriptor, std::string name, transport::TimeNs start_ns, std::uint64_t bytes_max);

  void add(const std::string& event);
  void name(std::uint32_t number, std::uint32_t thread, const char* what, std::string_view name);
  void write_request(const TraceEvent& event, Connection& connection);
  void write_transport(const transport::TraceRecord& record, const Connection& connection);
  std::string head(char phase, std::string_view name, std::uint32_t number, std::uint32_t thread,
                   transport::TimeNs time_ns) const;
  std::string time_us(transport::TimeNs time_ns) const;

  int descriptor_;
  std::string name_;
  transport::TimeNs start_ns_;
  std::uint64_t bytes_max_;
  std::string buffer_;  ///< Not stdio's: a forked child's exit would write that once more.
  std::uint64_t bytes_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint32_t next_number_ = 1;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Connection> connections_;
};

/// Within the quotes of a JSON string; what is not ASCII becomes a question mark.
std::string escape_json(std::string_view text);

}  // namespace tutti::net
