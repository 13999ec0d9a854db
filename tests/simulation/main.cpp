// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
//   transport_simulation --seeds N [--first F]   runs seeds F to F + N - 1 (F: 1)
//   transport_simulation --seed S [--verbose]    one run; verbose: each packet and event
//   transport_simulation --replay FILE           the seeds of a file, one a line, # comments
//   transport_simulation --hashes FILE           "seed hash" lines: each run must give its hash
//   transport_simulation ... --print-hashes      prints "seed hash" of each run, as hashes.txt has
//   transport_simulation ... --twice             each seed twice: equal traces are demanded
//   transport_simulation ... --keep-going        prints all that fail, not only the first
//
// A seed that fails is printed as "seed N: invariant: what happened" after its knobs; the exit
// status is 1. An abort of the core's own check, or a run without end, is reported in the same way.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "simulation/world.hpp"

namespace {

using tutti::transport::simulation::describe;
using tutti::transport::simulation::draw;
using tutti::transport::simulation::Knobs;
using tutti::transport::simulation::RunResult;
using tutti::transport::simulation::Violation;
using tutti::transport::simulation::World;

constexpr unsigned kSecondsOfOneSeed = 30;

char current_seed[64];

// The core's CHECK aborts and a hang never returns: say at least which seed it was.
void on_signal(int signal) {
  const char* what =
      signal == SIGALRM ? ": hang: the run takes too long\n" : ": core: a CHECK failed\n";
  static_cast<void>(!write(STDOUT_FILENO, current_seed, std::strlen(current_seed)));
  static_cast<void>(!write(STDOUT_FILENO, what, std::strlen(what)));
  _exit(1);
}

struct Task {
  std::uint64_t seed = 0;
  bool has_hash = false;
  std::uint64_t hash = 0;
};

struct Options {
  std::vector<Task> tasks;
  bool is_verbose = false;
  bool is_twice = false;
  bool keeps_going = false;
  bool prints_hashes = false;
};

bool read_tasks(const char* path, bool with_hashes, std::vector<Task>& tasks) {
  std::ifstream file(path);
  if (!file) {
    return false;
  }
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line.substr(0, line.find('#')));
    Task task;
    if (words >> task.seed) {
      task.has_hash = with_hashes && static_cast<bool>(words >> std::hex >> task.hash);
      tasks.push_back(task);
    }
  }
  return !tasks.empty();
}

bool parse(int argc, char** argv, Options& options) {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--verbose") {
      options.is_verbose = true;
    } else if (name == "--twice") {
      options.is_twice = true;
    } else if (name == "--keep-going") {
      options.keeps_going = true;
    } else if (name == "--print-hashes") {
      options.prints_hashes = true;
    } else if (name == "--seeds" && has_value) {
      count = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--first" && has_value) {
      first = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--seed" && has_value) {
      options.tasks.push_back({std::strtoull(argv[++i], nullptr, 10)});
    } else if ((name == "--replay" || name == "--hashes") && has_value) {
      if (!read_tasks(argv[++i], name == "--hashes", options.tasks)) {
        return false;
      }
    } else {
      return false;
    }
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    options.tasks.push_back({first + i});
  }
  return !options.tasks.empty();
}

/// True: all invariants held.
bool run(const Task& task, const Options& options, RunResult& result) {
  const Knobs knobs = draw(task.seed);
  std::snprintf(current_seed, sizeof(current_seed), "seed %llu",
                static_cast<unsigned long long>(task.seed));
  alarm(kSecondsOfOneSeed);
  if (options.is_verbose) {
    std::printf("%s", describe(knobs).c_str());
  }
  try {
    result = World(knobs, options.is_verbose).run();
    if (options.is_twice && World(knobs, false).run().trace_hash != result.trace_hash) {
      throw Violation("determinism", "two runs differ");
    }
    if (task.has_hash && task.hash != result.trace_hash) {
      throw Violation("determinism", "the trace differs from the stored one");
    }
  } catch (const Violation& violation) {
    std::printf("%s%s: %s: %s\n", describe(knobs).c_str(), current_seed,
                violation.invariant.c_str(), violation.what());
    std::fflush(stdout);
    return false;
  }
  if (options.is_verbose || options.prints_hashes) {
    std::printf("%llu %016llx\n", static_cast<unsigned long long>(task.seed),
                static_cast<unsigned long long>(result.trace_hash));
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: transport_simulation --seeds N [--first F] | --seed S | --replay FILE |\n"
                 "       --hashes FILE, with --verbose, --twice, --keep-going, --print-hashes\n");
    return 2;
  }
  std::signal(SIGABRT, on_signal);
  std::signal(SIGALRM, on_signal);
  std::uint64_t failures = 0;
  std::uint64_t packets = 0;
  for (const Task& task : options.tasks) {
    RunResult result;
    if (!run(task, options, result)) {
      ++failures;
      if (!options.keeps_going) {
        return 1;
      }
    }
    packets += result.packets;
  }
  std::printf("%zu seeds, %llu packets, %llu failed\n", options.tasks.size(),
              static_cast<unsigned long long>(packets), static_cast<unsigned long long>(failures));
  return failures == 0 ? 0 : 1;
}
