// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of a driver's run: its options, its report, its plugin and its links to other ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net_plugin.hpp"
#include "rendezvous.hpp"

namespace tutti::driver {

struct Options {
  std::string plugin;
  std::vector<int> versions;
  std::vector<std::string> tests;
  int ranks = 2;
  int device = 0;   ///< The first rank's.
  int devices = 1;  ///< Rank r has device + r % devices.
  int rails = 1;    ///< Above 1: the device is made of so many, the first ones.
  std::uint64_t seed = 1;
  std::size_t bytes_min = 0;
  std::size_t bytes_max = std::size_t{1} << 20;
  bool is_fixed_size = false;  ///< All messages have bytes_max.
  int messages = 40;           ///< Per link.
  int channels = 1;            ///< Links per edge.
  int threads = 2;             ///< Of the test "threads".
  int window = 4;              ///< Unfinished requests per link.
  int bound_s = 20;            ///< Within which a dead peer is noticed.
  int watchdog_s = 120;
  bool is_verbose = false;
  // Of the benchmark.
  std::string bench;
  int repeats = 100;
  bool is_json = false;
  // Of a rank that is started alone.
  int rank = -1;
  std::string rendezvous;
};

/// What was checked. Safe from any thread.
class Report {
 public:
  explicit Report(int rank) : rank_(rank) {}

  /// Counts; prints `what` when it does not hold (the first few times).
  bool check(bool holds, const std::string& what);
  void skip(const std::string& why);
  /// "checks failed skipped", for the others.
  std::string counts() const;

 private:
  int rank_;
  mutable std::mutex mutex_;
  std::size_t checks_ = 0;
  std::size_t failed_ = 0;
  std::size_t skipped_ = 0;
};

/// What a rank is at, for the watchdog. In memory that the processes share.
using Phase = std::atomic<const char*>;

struct Rank {
  const Options& options;
  int rank;
  int ranks;
  int version;
  Rendezvous& rendezvous;
  Report& report;
  Phase& phase;

  void barrier() { rendezvous.all_gather(""); }
  std::string label() const { return "rank " + std::to_string(rank); }
};

/// From one rank to another, one of several.
struct Edge {
  int from = 0;
  int to = 0;
  int channel = 0;
  bool operator==(const Edge&) const = default;
};

/// ring, alltoall or pingpong; `channels` times.
std::vector<Edge> edges_of(const std::string& pattern, int ranks, int channels);

/// The plugin, loaded and initialised as for one communicator.
class Session {
 public:
  /// Throws std::runtime_error.
  explicit Session(Rank& rank);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  Rank& rank;
  std::unique_ptr<NetPlugin> plugin;
  void* context = nullptr;
  int number = 0;  ///< Of the device.
  DeviceProperties device;
  bool is_tutti = false;
  bool is_abandoned = false;  ///< No finalize.
};

/// One end of an edge.
struct Link {
  Session* session = nullptr;
  Edge edge;
  void* comm = nullptr;
  bool sends = false;

  int peer() const { return sends ? edge.to : edge.from; }
  NetPlugin& plugin() const { return *session->plugin; }
  std::string label() const;
  void close();
};

/// This rank's ends of the edges; all ranks call it with the same ones. Throws on errors.
std::vector<Link> connect(Session& session, const std::vector<Edge>& edges);
void close_links(std::vector<Link>& links);

/// Throws std::runtime_error when `result` is no success.
void require(Result result, const std::string& what);

/// 0 to 2^64 - 1, by the seed and the number alone.
std::uint64_t mix(std::uint64_t value);

double seconds_now();

/// Runs the test of this name on this rank; false: there is none.
bool run_test(const std::string& name, Rank& rank);
std::vector<std::string> test_names();

/// Gives this rank's part of the result as JSON.
std::string run_bench(Rank& rank);
/// Of all ranks' parts; JSON or a table.
void print_bench(const Options& options, int version, const std::vector<std::string>& parts);

}  // namespace tutti::driver
