// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/observe/metrics.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

namespace tutti::net {
namespace {

namespace fs = std::filesystem;

/// Two engines; the first with a connection each way.
std::unique_ptr<Statistics> statistics() {
  auto made = Statistics::open("", 8);
  EXPECT_TRUE(made.ok());
  std::unique_ptr<Statistics> it = std::move(*made);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EngineStatistics* const engine = it->add_engine();
    EngineRecord record{};
    record.state = RecordState::kOpen;
    record.number = i;
    set_text(record.device, "eth\"0\\");
    set_text(record.controller, "cubic");
    set_text(record.description, "udp,\nwith \xff");
    record.counters.bytes_received = 1000 + i;
    record.wire.refused = 3;
    engine->write(record);
    if (i == 0) {
      for (const Direction direction : {Direction::kSends, Direction::kReceives}) {
        ConnectionRecord connection{};
        connection.state = RecordState::kOpen;
        connection.direction = direction;
        connection.number = engine->next_number();
        set_text(connection.peer, "node \"2\", process 7");
        connection.counters.bytes_sent = UINT64_MAX;
        connection.window_bytes = 65536;
        connection.srtt_ns = direction == Direction::kSends ? 25'000 : 0;
        connection.fabric_ns = direction == Direction::kSends ? 15'000 : 0;
        engine->write(engine->take(), connection, {});
      }
    }
  }
  return it;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream input(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(input, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(Metrics, escape_label__what_prometheus_reads_back) {
  EXPECT_EQ(escape_label("eth0"), "eth0");
  EXPECT_EQ(escape_label("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
  EXPECT_EQ(escape_label("\x1b[1m\x7f\xff\xc3\xa4"), "?[1m????");
}

/// By the grammar of the text format: each metric's HELP and TYPE once, then its samples, and no
/// two samples of the same labels.
TEST(Metrics, metrics_text__is_well_formed) {
  const std::string text = metrics_text(*statistics());
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
  const std::regex sample(
      R"re(([a-z_]+)\{([a-z]+="([^"\\\n]|\\[\\"n])*"(,[a-z]+="([^"\\\n]|\\[\\"n])*")*)\} ([0-9.e-]+))re");
  std::set<std::string> families;
  std::set<std::string> samples;
  std::string family;
  bool has_type = false;
  for (const std::string& line : lines_of(text)) {
    std::smatch match;
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << line;
      EXPECT_GT(line.size(), 8 + family.size()) << line;
      has_type = false;
    } else if (line.starts_with("# TYPE ")) {
      const bool is_counter = family.ends_with("_total");
      EXPECT_EQ(line, "# TYPE " + family + (is_counter ? " counter" : " gauge"));
      has_type = true;
    } else {
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      EXPECT_TRUE(has_type);
      EXPECT_EQ(match[1], family);
      EXPECT_TRUE(samples.insert(match[1].str() + match[2].str()).second) << line;
    }
  }
  EXPECT_EQ(families.count("tutti_engine_bytes_received_total"), 1U);
  EXPECT_EQ(families.count("tutti_wire_refused_total"), 1U);
}

TEST(Metrics, metrics_text__values) {
  const std::string text = metrics_text(*statistics());
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  const std::string process =
      "{host=\"" + std::string(host) + "\",process=\"" + std::to_string(getpid()) + "\",";
  const std::string engine = process + R"(device="eth\"0\\",engine=)";
  for (const std::string& line : {
           "tutti_engine_bytes_received_total" + engine + "\"0\"} 1000\n",
           "tutti_engine_bytes_received_total" + engine + "\"1\"} 1001\n",
           "tutti_wire_refused_total" + engine + "\"1\"} 3\n",
           "tutti_engine_info" + engine +
               R"("0",address="",controller="cubic",polling="shared",wire="udp,\nwith ?"} 1)"
               "\n",
           "tutti_connection_bytes_sent_total" + engine +
               R"("0",connection="1",direction="sends",peer="node \"2\", process 7"} )" +
               std::to_string(UINT64_MAX) + "\n",
           "tutti_connection_fabric_rtt_seconds" + engine +
               R"("0",connection="1",direction="sends",peer="node \"2\", process 7"} 1.5e-05)"
               "\n",
           "tutti_connection_rtt_seconds" + engine +
               R"("0",connection="1",direction="sends",peer="node \"2\", process 7"} 2.5e-05)"
               "\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
  }
  // What has not been measured is not told.
  EXPECT_EQ(text.find("tutti_connection_rtt_seconds{", text.find("rtt_seconds" + engine) + 1),
            std::string::npos);
}

std::string content_of(const std::string& file) {
  std::ifstream input(file);
  return {std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
}

class MetricsFile : public testing::Test {
 protected:
  MetricsFile() {
    std::string name = testing::TempDir() + "tutti-metrics-XXXXXX";
    directory_ = mkdtemp(name.data()) == nullptr ? "" : name;
  }
  ~MetricsFile() override { fs::remove_all(directory_); }
  std::string directory_;
};

TEST_F(MetricsFile, write_atomically__readers_see_one_text_or_the_other) {
  const std::string file = directory_ + "/x.prom";
  const std::string texts[] = {std::string(200'000, 'a'), std::string(100'000, 'b')};
  ASSERT_TRUE(write_atomically(file, texts[0]).ok());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (std::size_t i = 1; !stop; ++i) {
      EXPECT_TRUE(write_atomically(file, texts[i % 2]).ok());
    }
  });
  std::map<std::string, int> seen;
  for (int i = 0; i < 100 || (seen.size() < 2 && i < 1'000'000); ++i) {
    ++seen[content_of(file)];
  }
  stop = true;
  writer.join();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen.count(texts[0]) + seen.count(texts[1]), 2U);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(MetricsFile, write_atomically__errors_name_the_file) {
  const Status status = write_atomically(directory_ + "/none/x.prom", "x");
  EXPECT_EQ(status.code(), ErrorCode::kUnavailable);
  EXPECT_NE(status.message().find(directory_ + "/none/x.prom': No such file"), std::string::npos)
      << status.message();
  // A directory in its place: the text is written, and cannot get its name.
  fs::create_directory(directory_ + "/y.prom");
  EXPECT_FALSE(write_atomically(directory_ + "/y.prom", "x").ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

// As of processes in containers that have equal numbers.
TEST_F(MetricsFile, write_atomically__two_writers_of_one_file) {
  const std::string file = directory_ + "/x.prom";
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b'}) {
    writers.emplace_back([&file, text = std::string(100'000, letter)] {
      for (int i = 0; i < 100; ++i) {
        const Status status = write_atomically(file, text);
        EXPECT_TRUE(status.ok()) << status.message();
        const std::string found = content_of(file);
        EXPECT_EQ(found, std::string(100'000, found.empty() ? '?' : found[0]));
      }
    });
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
}

}  // namespace
}  // namespace tutti::net
