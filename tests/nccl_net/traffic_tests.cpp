// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Tests in which all goes well: patterns, grouped receives, threads, loading again.
#include "tests.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "flow.hpp"

namespace tutti::driver {
namespace {

int group_max_of(const Session& session) { return std::min(session.device.receives_max, 8); }

/// The names in a directory.
std::vector<std::string> names_in(const char* path) {
  std::vector<std::string> names;
  DIR* const directory = opendir(path);
  while (const dirent* const entry = directory == nullptr ? nullptr : readdir(directory)) {
    if (entry->d_name[0] != '.') {
      names.emplace_back(entry->d_name);
    }
  }
  if (directory != nullptr) {
    closedir(directory);
  }
  return names;
}

/// Which process made a file of shared memory, by its name; "": it is none of a network's.
std::string maker_of(const std::string& name) {
  // tutti-net-USER-PROCESS-N (src/net/observe/statistics.hpp), and what socket_network.cpp leaves.
  static const std::regex of_network(
      "(?:tutti-net-[0-9]+-([0-9]+)-[0-9]+|socket-network-([0-9]+))");
  std::smatch parts;
  return std::regex_match(name, parts, of_network) ? parts.str(1) + parts.str(2) : std::string();
}

/// What a library that is unloaded has to give back.
struct Held {
  std::size_t threads = 0;
  std::size_t descriptors = 0;
  std::size_t shared_files = 0;  ///< That this process made.

  static Held now() {
    const std::string number = std::to_string(getpid());
    const auto is_ours = [&](const std::string& name) { return maker_of(name) == number; };
    const std::vector<std::string> shared = names_in("/dev/shm");
    return {names_in("/proc/self/task").size(), names_in("/proc/self/fd").size(),
            static_cast<std::size_t>(std::count_if(shared.begin(), shared.end(), is_ours))};
  }
  bool operator==(const Held&) const = default;
};

}  // namespace

void run_pattern(Session& session, const std::string& pattern, int channels, int group_max) {
  Rank& rank = session.rank;
  std::vector<Link> links = connect(session, edges_of(pattern, rank.ranks, channels));
  {
    std::vector<std::unique_ptr<Flow>> flows;
    for (const Link& link : links) {
      flows.push_back(make_flow(link, group_max));
    }
    rank.phase = "moving messages";
    run(flows);
  }
  rank.phase = "waiting for the others";
  rank.barrier();
  close_links(links);
}

void test_ring(Rank& rank) {
  Session session(rank);
  run_pattern(session, "ring", rank.options.channels);
}

void test_alltoall(Rank& rank) {
  Session session(rank);
  run_pattern(session, "alltoall", rank.options.channels);
}

void test_pingpong(Rank& rank) {
  Session session(rank);
  std::vector<Link> links = connect(session, edges_of("pingpong", rank.ranks, 1));
  if (links.size() == 2) {
    std::vector<std::unique_ptr<Flow>> flows;
    for (const Link& link : links) {
      flows.push_back(make_flow(link));
    }
    const auto sends = static_cast<std::size_t>(links[1].sends);
    Flow& out = *flows[sends];
    Flow& in = *flows[1 - sends];
    rank.phase = "moving messages";
    // The even rank begins; each waits for the other's message before its next.
    for (int i = 0; i < rank.options.messages && out.error() == Result::kSuccess; ++i) {
      const auto wanted = static_cast<std::size_t>(i) + 1;
      const auto wait_for = [&](Flow& flow) {
        while (flow.finished() < wanted && flow.error() == Result::kSuccess) {
          flow.step();
        }
      };
      wait_for(rank.rank % 2 == 0 ? out : in);
      wait_for(rank.rank % 2 == 0 ? in : out);
    }
  }
  rank.barrier();
  close_links(links);
}

void test_grouped(Rank& rank) {
  Session session(rank);
  const int group_max = group_max_of(session);
  if (group_max < 2) {
    rank.report.skip("grouped receives: the plugin has maxRecvs " +
                     std::to_string(session.device.receives_max));
  }
  run_pattern(session, "alltoall", rank.options.channels, std::max(group_max, 1));
}

void test_threads(Rank& rank) {
  Session session(rank);
  const int threads = rank.options.threads;
  std::vector<Link> links =
      connect(session, edges_of("ring", rank.ranks, threads * rank.options.channels));
  rank.phase = "moving messages in several threads";
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      std::vector<std::unique_ptr<Flow>> flows;
      for (const Link& link : links) {
        if (link.edge.channel % threads == t) {
          flows.push_back(make_flow(link));
        }
      }
      run(flows);
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  rank.barrier();
  close_links(links);
}

void test_reload(Rank& rank) {
  constexpr int kTimes = 3;
  const Held before = Held::now();
  for (int i = 0; i < kTimes; ++i) {
    {
      Session session(rank);
      run_pattern(session, "ring", rank.options.channels);
    }
    // The kernel may still list a thread that has been joined.
    const double deadline = seconds_now() + 2;
    Held after = Held::now();
    while (after != before && seconds_now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      after = Held::now();
    }
    const auto check = [&](std::size_t then, std::size_t now, const char* what) {
      rank.report.check(now == then, "of " + std::to_string(then) + " " + what + ", " +
                                         std::to_string(now) +
                                         " are there when the library is gone");
    };
    check(before.threads, after.threads, "threads");
    check(before.descriptors, after.descriptors, "descriptors");
    check(before.shared_files, after.shared_files, "files of shared memory");
    rank.barrier();
  }
}

}  // namespace tutti::driver
