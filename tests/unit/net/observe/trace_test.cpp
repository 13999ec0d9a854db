// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/observe/trace.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "base/random.hpp"

namespace tutti::net {
namespace {

using nlohmann::json;
using transport::Outcome;
using transport::TraceKind;
using transport::TraceRecord;

class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    std::string name = testing::TempDir() + "tutti-trace-XXXXXX";
    directory_ = mkdtemp(name.data()) == nullptr ? "" : name;
    file_name_ = directory_ + "/t.json";
  }
  ~TraceTest() override { std::filesystem::remove_all(directory_); }

  void open(std::uint64_t bytes_max = TraceFile::kBytesMax) {
    auto file = TraceFile::open(file_name_, "a \"program\" 7", 1'000'000, 5, bytes_max);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = std::move(*file);
  }

  /// What the engine has said goes to the file.
  void write(EngineTrace& trace, std::uint32_t engine = 0) {
    std::vector<TraceEvent> events;
    std::vector<std::string> names;
    std::uint64_t left_out = 0;
    trace.take(&events, &names, &left_out);
    file_->write(engine, events, names, left_out);
    EXPECT_TRUE(file_->flush().ok());
  }

  /// Ends the file; its events but for the last, which counts what was left out.
  json finish() {
    file_.reset();
    std::ifstream input(file_name_);
    json document = json::parse(input, nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded()) {
      ADD_FAILURE() << "no JSON";
      return json::array();
    }
    EXPECT_EQ(document["displayTimeUnit"], "ns");
    EXPECT_EQ(document["otherData"]["process"], "a \"program\" 7");
    json events = document["traceEvents"];
    left_out_ = events.back()["args"]["count"].get<std::uint64_t>();
    events.erase(events.size() - 1);
    return events;
  }

  std::string directory_;
  std::string file_name_;
  std::unique_ptr<TraceFile> file_;
  std::uint64_t left_out_ = 0;
};

TraceRecord record_of(TraceKind kind, transport::TimeNs time_ns, std::uint64_t detail = 0) {
  TraceRecord record;
  record.time_ns = time_ns;
  record.connection = 1;
  record.kind = kind;
  record.detail = detail;
  return record;
}

json only(const json& events, const std::string& phase) {
  json found = json::array();
  for (const json& event : events) {
    if (event.value("ph", "") == phase) {
      found.push_back(event);
    }
  }
  return found;
}

TEST_F(TraceTest, file__without_events) {
  open();
  EXPECT_EQ(finish(), json::array());
  EXPECT_EQ(left_out_, 0U);
}

TEST_F(TraceTest, file__names_from_elsewhere) {
  open();
  EngineTrace trace(nullptr);
  trace.open(1, 1, "to \"x\\\n\xff\x1b, process 3");
  write(trace);
  const json events = finish();
  EXPECT_EQ(events.at(0)["args"]["name"], "to \"x\\???, process 3");
}

TEST_F(TraceTest, request__times_and_bytes) {
  open();
  EngineTrace trace(nullptr);
  trace.open(1'000'000, 1, "to somebody");
  trace.request(1'002'003, 1'003'007, 1, true, 77, Outcome::kOk);
  trace.request(1'002'003, 1'003'007, 1, false, 0, Outcome::kUnreachable);
  write(trace);
  const json slices = only(finish(), "X");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0]["name"], "isend");
  EXPECT_DOUBLE_EQ(slices[0]["ts"].get<double>(), 2.003);
  EXPECT_DOUBLE_EQ(slices[0]["dur"].get<double>(), 1.004);
  EXPECT_EQ(slices[0]["args"], (json{{"bytes", 77}, {"outcome", "ok"}}));
  EXPECT_EQ(slices[1]["name"], "irecv");
  EXPECT_EQ(slices[1]["args"]["outcome"], "peer unreachable");
  EXPECT_NE(slices[1]["tid"], slices[0]["tid"]);
}

/// Viewers cannot show slices of one thread that overlap.
TEST_F(TraceTest, request__slices_of_a_row_do_not_overlap) {
  open();
  EngineTrace trace(nullptr);
  trace.open(1'000'000, 1, "to somebody");
  transport::TimeNs end_ns = 1'100'000;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    end_ns += draw(1, 0, i) % 1000;
    trace.request(end_ns - draw(2, 0, i) % 20'000, end_ns, 1, true, 1, Outcome::kOk);
  }
  write(trace);
  std::map<int, std::vector<std::pair<double, double>>> rows;
  for (const json& slice : only(finish(), "X")) {
    const auto begin = slice["ts"].get<double>();
    rows[slice["tid"].get<int>()].emplace_back(begin, begin + slice["dur"].get<double>());
  }
  EXPECT_GT(rows.size(), 1U);
  EXPECT_LT(rows.size(), 100U);
  for (const auto& [row, slices] : rows) {
    for (std::size_t i = 1; i < slices.size(); ++i) {
      ASSERT_LE(slices[i - 1].second, slices[i].first + 1e-6) << "row " << row;
    }
  }
}

TEST_F(TraceTest, record__what_is_told_and_what_not) {
  open();
  EngineTrace trace(nullptr);
  trace.open(1'000'000, 1, "to somebody");
  for (const TraceKind kind :
       {TraceKind::kSent, TraceKind::kReceived, TraceKind::kAcknowledged, TraceKind::kCredit,
        TraceKind::kLost, TraceKind::kTimeout, TraceKind::kTailProbe, TraceKind::kPath,
        TraceKind::kRail, TraceKind::kUndone, TraceKind::kConnectionEnded}) {
    trace.record(record_of(kind, 1'001'000, 2));
  }
  write(trace);
  std::vector<std::string> names;
  for (const json& mark : only(finish(), "i")) {
    EXPECT_EQ(mark["s"], "t");
    EXPECT_EQ(mark["tid"], 0);
    names.push_back(mark["name"]);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"lost: too late", "timeout", "tail probe", "path dead",
                                      "rail down", "decrease taken back", "connection ended"}));
}

TEST_F(TraceTest, record__windows_are_thinned) {
  open();
  EngineTrace trace(nullptr);
  trace.open(1'000'000, 1, "to somebody");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    TraceRecord record = record_of(TraceKind::kWindow, 1'000'000 + i * 1000, 5);
    record.bytes = i;
    trace.record(record);
    record.number = 3;  // Another group of paths.
    trace.record(record);
  }
  write(trace);
  const json counters = only(finish(), "C");
  EXPECT_EQ(counters.size(), 20U);
  EXPECT_EQ(counters.at(0)["name"], "window");
  EXPECT_EQ(counters.at(1)["name"], "window 3");
  EXPECT_EQ(counters.at(2)["args"], (json{{"bytes", 100}, {"in flight", 5}}));
}

TEST_F(TraceTest, memory__is_bounded) {
  open();
  WakeEvent wake_event;
  EngineTrace trace(&wake_event);
  trace.open(1, 1, "to somebody");
  std::thread sleeper([&wake_event] { wake_event.wait(); });
  for (std::size_t i = 0; i < EngineTrace::kEventsMax + 10; ++i) {
    trace.record(record_of(TraceKind::kTimeout, 5));
  }
  sleeper.join();  // It was told to come.
  // A connection that begins now has its name all the same.
  trace.open(6, 2, "to another");
  write(trace);
  trace.record(record_of(TraceKind::kTimeout, 5));
  write(trace);
  const json events = finish();
  EXPECT_EQ(only(events, "i").size(), EngineTrace::kEventsMax);
  EXPECT_EQ(left_out_, 11U);
}

TEST_F(TraceTest, file__is_bounded_and_ends_in_order) {
  for (const std::uint64_t bytes_max : {600U, 1000U, 5000U}) {
    open(bytes_max);
    EngineTrace trace(nullptr);
    trace.open(1, 1, "to somebody");
    for (int i = 0; i < 100; ++i) {
      trace.record(record_of(TraceKind::kTimeout, 5));
    }
    write(trace);
    const json events = finish();
    EXPECT_EQ(events.size() + left_out_, 102U);
    EXPECT_GT(left_out_, 0U);
    EXPECT_LE(std::filesystem::file_size(file_name_), bytes_max);
  }
}

TEST_F(TraceTest, file__of_a_killed_process_can_be_mended) {
  open();
  EngineTrace trace(nullptr);
  trace.open(1, 1, "to somebody");
  trace.record(record_of(TraceKind::kTimeout, 5));
  write(trace);
  std::ifstream input(file_name_);
  std::stringstream text;
  text << input.rdbuf() << "{}]}";
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(document.is_discarded());
  EXPECT_EQ(only(document["traceEvents"], "i").size(), 1U);
}

TEST_F(TraceTest, file__two_engines_have_connections_of_their_own) {
  open();
  EngineTrace first(nullptr);
  EngineTrace second(nullptr);
  first.open(1, 1, "to a");
  second.open(1, 1, "to b");
  first.record(record_of(TraceKind::kTimeout, 5));
  second.record(record_of(TraceKind::kTimeout, 6));
  first.forget(7, 1);
  first.open(8, 2, "to c");
  write(first, 0);
  write(second, 1);
  const json marks = only(finish(), "i");
  ASSERT_EQ(marks.size(), 2U);
  EXPECT_NE(marks[0]["pid"], marks[1]["pid"]);
}

TEST_F(TraceTest, fork__the_end_of_a_child_writes_nothing) {
  open();
  EngineTrace trace(nullptr);
  trace.open(1, 1, "to somebody");
  std::vector<TraceEvent> events;
  std::vector<std::string> names;
  std::uint64_t left_out = 0;
  trace.take(&events, &names, &left_out);
  file_->write(0, events, names, left_out);  // Not on the disk yet.
  const pid_t child = fork();
  if (child == 0) {
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(std::filesystem::file_size(file_name_), 0U);
  EXPECT_EQ(finish().size(), 2U);
}

TEST_F(TraceTest, file__errors_name_it) {
  const auto file = TraceFile::open(directory_ + "/none/t.json", "", 0, 0);
  EXPECT_EQ(file.status().code(), ErrorCode::kUnavailable);
  EXPECT_NE(file.status().message().find("/none/t.json': No such file"), std::string::npos);
  auto full = TraceFile::open("/dev/full", "", 0, 0);
  ASSERT_TRUE(full.ok());
  const Status status = (*full)->flush();
  EXPECT_NE(status.message().find("'/dev/full': No space left"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace tutti::net
