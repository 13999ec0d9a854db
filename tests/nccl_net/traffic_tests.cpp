// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Tests in which all goes well: patterns, grouped receives, threads, loading again.
#include "tests.hpp"

#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "flow.hpp"

namespace tutti::driver {
namespace {

int group_max_of(const Session& session) { return std::min(session.device.receives_max, 8); }

/// The threads of this process.
std::size_t thread_count() {
  std::size_t count = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* const entry = tasks == nullptr ? nullptr : readdir(tasks)) {
    count += entry->d_name[0] != '.';
  }
  if (tasks != nullptr) {
    closedir(tasks);
  }
  return count;
}

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
  const std::size_t before = thread_count();
  for (int i = 0; i < kTimes; ++i) {
    {
      Session session(rank);
      run_pattern(session, "ring", rank.options.channels);
    }
    // The kernel may still list a thread that has been joined.
    const double deadline = seconds_now() + 2;
    while (thread_count() > before && seconds_now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    rank.report.check(thread_count() == before,
                      std::to_string(thread_count() - before) + " threads outlive the library");
    rank.barrier();
  }
}

}  // namespace tutti::driver
