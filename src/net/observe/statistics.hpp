// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the engines of one Network do: in memory, which metrics are made of, and in one file of
// /dev/shm, which `tutti top` reads (python/tutti_hpc/net_statistics.py). Writers never wait for
// readers, and need none. The file is written by pwrite() and never mapped: another
// process that shortened a mapped file would kill its writer by a signal.
//
// The file is named tutti-net-UID-PID-N: the writer's user and process, and its how-manieth network
// it is. It has mode 0600 and appears with its header filled in. Its writer holds a POSIX record
// lock on all of it, which no child inherits and the kernel drops when the process ends, however it
// ends and in whatever PID namespace: a file that nobody has locked is stale, and the next writer
// or reader of that user removes it.
//
// Layout, little-endian, each record at a multiple of 8 bytes:
//
//   FileHeader                                   constant
//   EngineRecord[engines_max]                    at engines_offset, engine_bytes apart
//   slot[engines_max][connections_max]           at slots_offset, slot_bytes apart:
//     ConnectionRecord, PathRecord[paths_max]    connection_bytes and path_bytes long
//
// An engine record and a slot begin with a sequence number (a seqlock): odd while it is written,
// and another one afterwards. Who reads it takes the number, the record and the number again, and
// tries once more if it was odd or has changed. Unused records are zero; pages of slots that were
// never used are not allocated, so read them with pread(), too. New fields make a new version: a
// reader refuses versions that it does not know.
//
// Times are of CLOCK_MONOTONIC but where it says otherwise. Texts end with a zero byte.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "transport/types.hpp"
#include "wire/wire.hpp"

namespace tutti::net {

inline constexpr std::array<char, 8> kStatisticsMagic = {'t', 'u', 't', 't', 'i', 'n', 'e', 't'};
inline constexpr std::uint32_t kStatisticsVersion = 3;
/// What is beyond these is counted and not shown. A connection with 64 paths takes 3.5 KiB, so a
/// full engine 450 KiB.
inline constexpr std::uint32_t kEnginesShownMax = 32;       ///< Of a network.
inline constexpr std::uint32_t kConnectionsShownMax = 128;  ///< Of an engine.
inline constexpr std::uint32_t kPathsShownMax = 256;        ///< Of a connection.

struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint32_t engines_max;
  std::uint32_t engine_bytes;
  std::uint32_t connections_max;
  std::uint32_t connection_bytes;
  std::uint32_t paths_max;
  std::uint32_t path_bytes;
  std::uint64_t engines_offset;
  std::uint64_t slots_offset;
  std::uint64_t slot_bytes;
  std::uint32_t process;  ///< As its own PID namespace numbers it.
  std::uint32_t user;
  std::uint64_t start_unix_ns;  ///< When the network was opened; since 1970.
  std::uint64_t start_ns;       ///< The same moment.
  std::uint64_t interval_ns;    ///< Least time between two writes of a record.
  std::array<char, 64> program;
  std::array<char, 64> host;
};

enum class RecordState : std::uint32_t { kUnused, kOpen, kEnded };
enum class Direction : std::uint32_t { kNone, kSends, kReceives };

struct EngineRecord {
  std::uint64_t sequence;
  RecordState state;
  std::uint32_t number;      ///< Among those of its device.
  std::uint64_t updated_ns;  ///< An engine that does nothing writes nothing.
  std::uint32_t connections;
  std::uint32_t connections_left_out;  ///< Of those: beyond the file's limits.
  std::uint32_t speed_mbps;            ///< Of the device.
  std::uint32_t is_busy;               ///< 1: its thread spins.
  std::uint64_t fallbacks;             ///< Of the device (net/fallbacks.hpp).
  std::array<char, 32> device;
  std::array<char, 64> address;
  std::array<char, 32> controller;
  std::array<char, 256> description;         ///< Of its wire.
  transport::ConnectionCounters counters;    ///< Sums, with connections that are no more.
  transport::EndpointCounters of_strangers;  ///< Packets that belong to no connection.
  wire::WireCounters wire;
};

struct ConnectionRecord {
  std::uint64_t sequence;
  RecordState state;
  Direction direction;
  std::uint64_t number;  ///< From 1; each connection of the network has another one.
  std::uint64_t opened_ns;
  std::uint64_t updated_ns;
  std::array<char, 128> peer;
  transport::ConnectionCounters counters;
  std::uint64_t window_bytes;
  std::uint64_t inflight_bytes;
  std::uint64_t backlog_bytes;
  std::uint64_t srtt_ns;        ///< Round trip with the time that hosts take; 0: no sample.
  std::uint64_t rtt_ns_min;     ///< Same.
  std::uint64_t fabric_ns;      ///< Round trip without it, smoothed; 0: no sample.
  std::uint64_t fabric_ns_min;  ///< Same.
  std::uint64_t rto_ns;
  std::uint32_t paths_alive;
  std::uint32_t paths;
  std::uint32_t paths_shown;  ///< The first ones; as many PathRecords count.
  std::uint32_t open_requests;
  std::uint32_t is_in_recovery;
  transport::Outcome outcome;  ///< Of one that has ended. One byte.
  std::array<std::uint8_t, 3> reserved;
};

struct PathRecord {
  std::uint64_t chunks_sent;
  std::uint64_t losses;
  std::uint64_t marks;
  std::uint64_t rtt_ns;  ///< Of the fabric alone; 0: no sample.
  std::uint64_t inflight_bytes;
  std::uint32_t state;  ///< transport::PathState
  std::uint32_t reserved;
};

// The layout that readers rely on. Who changes one of these makes a new kStatisticsVersion, also in
// python/tutti_hpc/net_statistics.py, whose formats follow, and names the counter in metrics.cpp.
static_assert(sizeof(FileHeader) == 232 && sizeof(EngineRecord) == 704 &&
              sizeof(ConnectionRecord) == 440 && sizeof(PathRecord) == 48);
static_assert(sizeof(transport::ConnectionCounters) == 23 * 8 &&
              sizeof(transport::EndpointCounters) == 2 * 8 && sizeof(wire::WireCounters) == 9 * 8);

/// Cuts the text to what fits, with its zero byte.
template <std::size_t kSize>
void set_text(std::array<char, kSize>& field, std::string_view text) {
  field = {};
  text.copy(field.data(), kSize - 1);
}

class Statistics;

/// One engine's records. Its calls are one thread's at a time (the engine's lock).
class EngineStatistics {
 public:
  static constexpr std::uint32_t kNoSlot = UINT32_MAX;

  /// A slot for a connection; kNoSlot: there is none left, and no memory for one.
  std::uint32_t take();
  void give_back(std::uint32_t slot);
  /// The record's sequence is not looked at; paths beyond paths_max() are left out.
  void write(std::uint32_t slot, const ConnectionRecord& connection,
             std::span<const PathRecord> paths);
  void write(const EngineRecord& engine);
  /// What stands in a slot.
  const ConnectionRecord& last(std::uint32_t slot) const;
  std::uint32_t paths_max() const;
  std::uint64_t interval_ns() const;
  /// Of the next connection.
  std::uint64_t next_number();

 private:
  friend class Statistics;

  Statistics* of_ = nullptr;
  std::uint32_t engine_ = 0;
  std::vector<std::uint32_t> free_;         ///< Slots whose memory is there.
  std::atomic<std::uint32_t> touched_ = 0;  ///< Slots from here on have never been used.
};

class Statistics {
 public:
  /// In a file of `directory`, or if that is empty in memory of this process alone. Removes stale
  /// files of this user from there. `paths`: of a connection. Errors: there is no place for it
  /// (kUnavailable).
  static Result<std::unique_ptr<Statistics>> open(const std::string& directory,
                                                  std::uint32_t paths);
  ~Statistics();
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;

  /// Lives as long as this. Null: there are kEnginesShownMax.
  EngineStatistics* add_engine();

  /// The memory stays. A forked child's copy leaves the file alone.
  void remove_file();

  /// False in a forked child, which does not own the file.
  bool is_mine() const;

  // For readers in this process; any thread.
  const FileHeader& header() const { return header_; }
  /// Below kEnginesShownMax; nothing: there is none.
  std::optional<EngineRecord> engine(std::uint32_t engine) const;
  /// Those in use. `paths`, if not null: those of each.
  std::vector<ConnectionRecord> connections(std::uint32_t engine,
                                            std::vector<std::vector<PathRecord>>* paths) const;
  const std::string& file() const { return file_; }  ///< Empty: there is none.

 private:
  friend class EngineStatistics;
  Statistics() = default;

  Status make_file(const std::string& directory);
  /// What was just written to memory, to the file. That it cannot be is no harm.
  void publish(std::uint64_t offset, std::uint64_t bytes) const;
  /// The descriptor is still the file's, and a write to it no signal.
  bool is_own_descriptor() const;
  bool can_publish() const;
  /// Room for what will be written: one that is shown at all is shown for good.
  bool allocate(std::uint64_t offset, std::uint64_t bytes) const;
  std::uint64_t engine_offset(std::uint32_t engine) const;
  std::uint64_t slot_offset(std::uint32_t engine, std::uint32_t slot) const;

  FileHeader header_{};  ///< Not the one in the file, which others may write: places come from it.
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  int descriptor_ = -1;
  std::uint64_t device_ = 0;  ///< Of the file.
  std::uint64_t inode_ = 0;   ///< Same.
  int process_ = 0;
  std::string file_;
  std::array<EngineStatistics, kEnginesShownMax> engines_;
  std::uint32_t engines_added_ = 0;
  std::atomic<std::uint64_t> next_number_ = 1;  ///< Of a connection.
};

/// Removes what processes of this user that are no more have left there. How many files.
int remove_stale_statistics(const std::string& directory);

}  // namespace tutti::net
