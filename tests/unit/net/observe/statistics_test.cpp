// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/observe/statistics.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/descriptors.hpp"
#include "support/forked_ranks.hpp"

namespace tutti::net {
namespace {

namespace fs = std::filesystem;
using test::in_child;

/// A directory of the same kind as the real one.
class StatisticsTest : public testing::Test {
 protected:
  StatisticsTest() {
    char name[] = "/dev/shm/tutti-test-XXXXXX";
    directory_ = mkdtemp(name) == nullptr ? "" : name;
  }
  ~StatisticsTest() override { fs::remove_all(directory_); }

  std::unique_ptr<Statistics> open(std::uint32_t paths = 4) const {
    auto statistics = Statistics::open(directory_, paths);
    EXPECT_TRUE(statistics.ok()) << statistics.status().message();
    return statistics.ok() ? std::move(*statistics) : nullptr;
  }

  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  std::string directory_;
};

/// All of whose numbers are `number`.
ConnectionRecord connection_of(std::uint64_t number) {
  ConnectionRecord record{};
  record.state = RecordState::kOpen;
  record.number = number;
  record.counters.bytes_sent = number;
  record.counters.malformed_dropped = number;
  record.rto_ns = number;
  return record;
}

PathRecord path_of(std::uint64_t number) {
  PathRecord record{};
  record.chunks_sent = number;
  record.inflight_bytes = number;
  return record;
}

bool is_whole(const ConnectionRecord& record, std::span<const PathRecord> paths) {
  bool whole = record.counters.bytes_sent == record.number &&
               record.counters.malformed_dropped == record.number && record.rto_ns == record.number;
  for (const PathRecord& path : paths) {
    whole = whole && path.chunks_sent == record.number && path.inflight_bytes == record.number;
  }
  return whole;
}

TEST_F(StatisticsTest, open__a_private_file_until_the_end) {
  auto statistics = open(64);
  ASSERT_NE(statistics, nullptr);
  struct stat about {};
  ASSERT_EQ(stat(statistics->file().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600U);
  EXPECT_EQ(static_cast<std::uint64_t>(about.st_size), statistics->header().file_bytes);
  EXPECT_EQ(fs::path(statistics->file()).filename().string(),
            "tutti-net-" + std::to_string(geteuid()) + "-" + std::to_string(getpid()) + "-1");
  // Slots that nobody uses take no memory.
  EXPECT_LT(about.st_blocks * 512, 64 << 10);
  statistics.reset();
  EXPECT_EQ(files(), 0U);
}

TEST_F(StatisticsTest, open__several_of_one_process) {
  const auto first = open();
  auto second = open();
  EXPECT_NE(first->file(), second->file());
  EXPECT_EQ(files(), 2U);
  second.reset();
  EXPECT_EQ(files(), 1U);
}

TEST_F(StatisticsTest, open__no_such_directory) {
  const auto statistics = Statistics::open(directory_ + "/none", 4);
  ASSERT_EQ(statistics.status().code(), ErrorCode::kUnavailable);
  EXPECT_NE(statistics.status().message().find("/none: No such file"), std::string::npos)
      << statistics.status().message();
}

TEST_F(StatisticsTest, open__without_a_file) {
  const auto statistics = Statistics::open("", 4);
  ASSERT_TRUE(statistics.ok());
  EngineStatistics* const engine = (*statistics)->add_engine();
  const std::uint32_t slot = engine->take();
  engine->write(slot, connection_of(7), {});
  const auto connections = (*statistics)->connections(0, nullptr);
  ASSERT_EQ(connections.size(), 1U);
  EXPECT_EQ(connections[0].number, 7U);
  EXPECT_EQ((*statistics)->file(), "");
}

TEST_F(StatisticsTest, take__as_many_as_there_are) {
  const auto statistics = open();
  EngineStatistics* const engine = statistics->add_engine();
  for (std::uint32_t i = 0; i < kConnectionsShownMax; ++i) {
    EXPECT_EQ(engine->take(), i);
  }
  EXPECT_EQ(engine->take(), EngineStatistics::kNoSlot);
  engine->write(3, connection_of(1), {});
  EXPECT_EQ(statistics->connections(0, nullptr).size(), 1U);
  engine->give_back(3);
  EXPECT_EQ(statistics->connections(0, nullptr).size(), 0U);
  EXPECT_EQ(engine->take(), 3U);
  EXPECT_EQ(engine->take(), EngineStatistics::kNoSlot);
}

TEST_F(StatisticsTest, add_engine__as_many_as_there_are) {
  const auto statistics = open();
  for (std::uint32_t i = 0; i < kEnginesShownMax; ++i) {
    EngineStatistics* const engine = statistics->add_engine();
    ASSERT_NE(engine, nullptr);
    EngineRecord record{};
    record.state = RecordState::kOpen;
    record.number = i;
    engine->write(record);
  }
  EXPECT_EQ(statistics->add_engine(), nullptr);
  const auto last = statistics->engine(kEnginesShownMax - 1);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->number, kEnginesShownMax - 1);
}

TEST_F(StatisticsTest, write__paths_that_do_not_fit_are_left_out) {
  const auto statistics = open(2);
  EngineStatistics* const engine = statistics->add_engine();
  const std::vector<PathRecord> many(5, path_of(1));
  const std::uint32_t first = engine->take();
  const std::uint32_t second = engine->take();
  engine->write(second, connection_of(2), many);
  engine->write(first, connection_of(1), many);
  std::vector<std::vector<PathRecord>> paths;
  const auto connections = statistics->connections(0, &paths);
  ASSERT_EQ(connections.size(), 2U);
  EXPECT_EQ(connections[0].number, 1U);
  EXPECT_EQ(connections[1].number, 2U);
  EXPECT_EQ(paths[0].size(), 2U);
  EXPECT_EQ(open(100'000)->header().paths_max, kPathsShownMax);
}

/// One writes as fast as it can and loses its processor in the middle of it now and then; it is
/// read in this process and from the file.
TEST_F(StatisticsTest, write__readers_see_whole_records) {
  constexpr auto kTime = std::chrono::milliseconds(500);
  constexpr std::uint32_t kPaths = 64;
  const auto statistics = open(kPaths);
  EngineStatistics* const engine = statistics->add_engine();
  const std::uint32_t slot = engine->take();
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> written = 0;
  std::thread writer([&] {
    std::vector<PathRecord> paths(kPaths);
    for (std::uint64_t i = 1; !stop; ++i) {
      for (PathRecord& path : paths) {
        path = path_of(i);
      }
      engine->write(slot, connection_of(i), paths);
      written = i;
    }
  });
  std::vector<std::thread> crowd;
  for (unsigned i = 0; i < std::min(8U, std::thread::hardware_concurrency()); ++i) {
    crowd.emplace_back([&] {
      while (!stop) {
      }
    });
  }
  while (written == 0) {
    std::this_thread::yield();
  }
  const FileHeader& header = statistics->header();
  const int file = ::open(statistics->file().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  std::vector<std::byte> bytes(header.slot_bytes);
  std::uint64_t from_file = 0;
  std::uint64_t from_memory = 0;
  std::uint64_t torn = 0;
  std::uint64_t newest = 0;
  for (const auto end = std::chrono::steady_clock::now() + kTime;
       std::chrono::steady_clock::now() < end;) {
    std::vector<std::vector<PathRecord>> paths;
    for (const ConnectionRecord& record : statistics->connections(0, &paths)) {
      ++from_memory;
      torn += is_whole(record, paths[0]) && record.number >= newest ? 0 : 1;
      newest = record.number;
    }
    const auto offset = static_cast<off_t>(header.slots_offset);
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    ASSERT_EQ(pread(file, &before, 8, offset), 8);
    ASSERT_EQ(pread(file, bytes.data(), bytes.size(), offset), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(pread(file, &after, 8, offset), 8);
    if (before % 2 == 0 && before == after) {
      ConnectionRecord record{};
      std::memcpy(&record, bytes.data(), sizeof record);
      std::vector<PathRecord> of_it(kPaths);
      std::memcpy(of_it.data(), bytes.data() + sizeof record, kPaths * sizeof(PathRecord));
      ++from_file;
      torn += is_whole(record, of_it) ? 0 : 1;
    }
  }
  stop = true;
  writer.join();
  for (std::thread& one : crowd) {
    one.join();
  }
  close(file);
  EXPECT_EQ(torn, 0U);
  EXPECT_GT(from_memory, 100U);
  EXPECT_GT(from_file, 0U);
  EXPECT_GT(newest, 100U);
}

TEST_F(StatisticsTest, write__a_file_that_somebody_shortens_is_no_harm) {
  EXPECT_EQ(in_child([this] {
              const auto statistics = open();
              EngineStatistics* const engine = statistics->add_engine();
              const std::uint32_t slot = engine->take();
              engine->write(slot, connection_of(1), {});
              CHILD_EXPECT(truncate(statistics->file().c_str(), 0) == 0, "");
              CHILD_EXPECT(statistics->connections(0, nullptr).at(0).number == 1, "");
              CHILD_EXPECT(engine->last(slot).number == 1, "");
              engine->write(slot, connection_of(2), {});
              EngineRecord record{};
              record.state = RecordState::kOpen;
              engine->write(record);
              CHILD_EXPECT(engine->take() == 1, "");
              CHILD_EXPECT(statistics->connections(0, nullptr).at(0).number == 2, "");
              return std::string();
            }),
            "");
}

TEST_F(StatisticsTest, write__a_limit_of_files_is_no_harm) {
  EXPECT_EQ(in_child([this] {
              const auto statistics = open();
              EngineStatistics* const engine = statistics->add_engine();
              const std::uint32_t slot = engine->take();
              const rlimit limit{100, 100};
              CHILD_EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0, "");
              engine->write(slot, connection_of(2), {});
              CHILD_EXPECT(engine->take() == 1, "");
              CHILD_EXPECT(statistics->connections(0, nullptr).at(0).number == 2, "");
              const int left = descriptors_left();
              CHILD_EXPECT(!Statistics::open(directory_, 4).ok(), "");
              CHILD_EXPECT(descriptors_left() == left, "");
              return std::string();
            }),
            "");
}

/// As programs do that become daemons.
TEST_F(StatisticsTest, write__a_descriptor_that_is_another_files_by_now_is_left_alone) {
  EXPECT_EQ(in_child([this] {
              auto statistics = open();
              EngineStatistics* const engine = statistics->add_engine();
              const std::uint32_t slot = engine->take();
              const std::string other = directory_ + "/other";
              const int descriptor = creat(other.c_str(), 0600);
              struct stat of_file {};
              CHILD_EXPECT(stat(statistics->file().c_str(), &of_file) == 0, "");
              int replaced = 0;
              int at = -1;
              for (int i = 3; i < 64; ++i) {
                struct stat about {};
                if (fstat(i, &about) == 0 && about.st_dev == of_file.st_dev &&
                    about.st_ino == of_file.st_ino) {
                  replaced += dup2(descriptor, i) == i ? 1 : 0;
                  at = i;
                }
              }
              CHILD_EXPECT(replaced == 1, "");
              engine->write(slot, connection_of(2), {});
              CHILD_EXPECT(engine->take() == 1, "");
              CHILD_EXPECT(fs::file_size(other) == 0, "");
              statistics.reset();
              struct stat about {};
              CHILD_EXPECT(fstat(at, &about) == 0, "closed");
              return std::string();
            }),
            "");
}

TEST_F(StatisticsTest, remove_stale__what_the_dead_left) {
  EXPECT_EQ(in_child([this] {
              static const Statistics* const left = open().release();
              return std::string(left == nullptr ? "none" : "");
            }),
            "");
  EXPECT_EQ(files(), 1U);
  const auto mine = open();  // The next writer cleans up.
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(remove_stale_statistics(directory_), 0);
  EXPECT_TRUE(fs::exists(mine->file()));
}

TEST_F(StatisticsTest, remove_stale__not_what_another_uses) {
  const auto mine = open();
  EXPECT_EQ(in_child([this] { return std::to_string(remove_stale_statistics(directory_)); }), "0");
  EXPECT_TRUE(fs::exists(mine->file()));
}

TEST_F(StatisticsTest, remove_stale__nothing_but_our_own_kind) {
  const std::string user = std::to_string(geteuid());
  ASSERT_EQ(mkfifo((directory_ + "/tutti-net-" + user + "-1-1").c_str(), 0600), 0);
  ASSERT_EQ(symlink("/etc/passwd", (directory_ + "/tutti-net-" + user + "-1-2").c_str()), 0);
  fs::create_directory(directory_ + "/tutti-net-" + user + "-1-3");
  const int other = creat((directory_ + "/tutti-net-" + user + "0-1-1").c_str(), 0600);
  close(other);
  EXPECT_EQ(remove_stale_statistics(directory_), 0);
  EXPECT_EQ(files(), 4U);
}

TEST_F(StatisticsTest, fork__a_child_neither_writes_nor_removes) {
  auto mine = open();
  EngineStatistics* const engine = mine->add_engine();
  const std::uint32_t slot = engine->take();
  engine->write(slot, connection_of(5), {});
  EXPECT_EQ(in_child([&] {
              CHILD_EXPECT(!mine->is_mine(), "");
              engine->write(slot, connection_of(6), {});
              EngineRecord record{};
              record.state = RecordState::kOpen;
              engine->write(record);
              CHILD_EXPECT(engine->take() == EngineStatistics::kNoSlot, "");
              mine.reset();
              return std::string();
            }),
            "");
  EXPECT_TRUE(fs::exists(mine->file()));
  EXPECT_EQ(mine->connections(0, nullptr).at(0).number, 5U);
  EXPECT_FALSE(mine->engine(0).has_value());
  // The child that closed it has not taken the parent's lock along.
  EXPECT_EQ(in_child([this] { return std::to_string(remove_stale_statistics(directory_)); }), "0");
  EXPECT_TRUE(fs::exists(mine->file()));
}

}  // namespace
}  // namespace tutti::net
