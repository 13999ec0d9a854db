// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Drives any NCCL network plugin as NCCL does, without NCCL and without a GPU: several ranks, each
// a process, that load the shared object, connect, and move messages whose every byte is checked.
//
//   nccl_net_driver --plugin libnccl-net-x.so --version all --test all --ranks 4
//   nccl_net_driver --plugin libnccl-net-x.so --bench ring --bytes 1M --repeats 500 --json
//   nccl_net_driver ... --ranks 2 --rank 0 --rendezvous 10.0.0.1:5000   (and the same with --rank
//   1)
//
// The last line is "N checks, M failed"; the exit status is 0, 1 (a check failed), 2 (usage) or 3
// (the watchdog ended it).
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "rank.hpp"

namespace tutti::driver {
namespace {

constexpr int kRanksMax = 64;

struct Counts {
  std::size_t checks = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;

  void add(const std::string& text) {
    std::istringstream input(text);
    std::size_t values[3] = {};
    input >> values[0] >> values[1] >> values[2];
    checks += values[0];
    failed += values[1];
    skipped += values[2];
  }
};

/// Ends the process when time is up.
class Watchdog {
 public:
  Watchdog(int seconds, std::function<void()> on_end)
      : thread_([this, seconds, on_end = std::move(on_end)] {
          const double deadline = seconds_now() + seconds;
          while (!stop_) {
            if (seconds_now() > deadline) {
              on_end();
              return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// One test, or the benchmark, on one rank: the last text it gives is its counts.
void run_rank(Rank& rank, const std::string& test) {
  if (rank.options.is_verbose) {
    show_log();
  }
  std::string part;
  try {
    if (rank.options.bench.empty()) {
      run_test(test, rank);
    } else {
      part = run_bench(rank);
    }
  } catch (const std::exception& error) {
    rank.report.check(false,
                      test + ", version " + std::to_string(rank.version) + ": " + error.what());
  }
  rank.phase = "done";
  const std::vector<std::string> parts = rank.rendezvous.all_gather(part);
  if (rank.rank == 0 && !rank.options.bench.empty()) {
    print_bench(rank.options, rank.version, parts);
  }
}

/// Forks the ranks, before any plugin is in the process, and serves them.
Counts run_forked(const Options& options, int version, const std::string& test) {
  const auto ranks = static_cast<std::size_t>(options.ranks);
  void* const shared = mmap(nullptr, sizeof(Phase) * ranks, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    throw std::bad_alloc();
  }
  auto* const phases = static_cast<Phase*>(shared);
  std::vector<int> here;
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (std::size_t r = 0; r < ranks; ++r) {
    new (&phases[r]) Phase("starting");
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      throw std::runtime_error("socketpair");
    }
    const pid_t child = fork();
    if (child == 0) {
      for (const int fd : here) {
        close(fd);
      }
      close(pair[0]);
      {
        const int number = static_cast<int>(r);
        // As a launcher does: the plugin's faults of a seed are those of the next run, too.
        setenv("RANK", std::to_string(number).c_str(), 1);
        Report report(number);
        Rendezvous rendezvous(pair[1]);
        Rank rank{options, number, options.ranks, version, rendezvous, report, phases[r]};
        run_rank(rank, test);
        try {
          rendezvous.all_gather(report.counts());
        } catch (const std::exception&) {
          std::exit(1);
        }
      }
      std::exit(0);
    }
    close(pair[1]);
    here.push_back(pair[0]);
    children.push_back(child);
  }
  Counts counts;
  {
    std::atomic<bool> stop{false};
    const Watchdog watchdog(options.watchdog_s, [&] {
      std::fprintf(stderr, "watchdog: test %s, version %d, has not ended after %d s\n",
                   test.c_str(), version, options.watchdog_s);
      for (std::size_t r = 0; r < ranks; ++r) {
        std::fprintf(stderr, "  rank %zu: %s\n", r, phases[r].load());
        kill(children[r], SIGKILL);
      }
      std::_Exit(3);
    });
    const std::vector<std::string> texts = serve(here, stop);
    for (std::size_t r = 0; r < ranks; ++r) {
      int status = 0;
      waitpid(children[r], &status, 0);
      const bool is_victim = test == "kill" && r + 1 == ranks;
      const bool is_as_planned = is_victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                           : WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (!is_victim) {
        counts.add(texts[r]);
      }
      if (!is_as_planned) {
        ++counts.checks;
        ++counts.failed;
        std::fprintf(stderr, "rank %zu: FAILED: ended with %s %d, last seen %s\n", r,
                     WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                     phases[r].load());
      }
    }
  }
  munmap(shared, sizeof(Phase) * ranks);
  return counts;
}

/// This process is one rank; the others run elsewhere.
Counts run_alone(const Options& options) {
  Phase phase{"starting"};
  const Watchdog watchdog(options.watchdog_s, [&] {
    std::fprintf(stderr, "watchdog: rank %d has not ended after %d s: %s\n", options.rank,
                 options.watchdog_s, phase.load());
    std::_Exit(3);
  });
  std::thread server;
  std::atomic<bool> stop{false};
  if (options.rank == 0) {
    const int listener = listen_at(options.rendezvous);
    server = std::thread(
        [listener, &options, &stop] { serve(accept_ranks(listener, options.ranks), stop); });
  }
  Counts counts;
  {
    Rendezvous rendezvous(dial(options.rendezvous, options.rank, options.watchdog_s));
    for (const int version : options.versions) {
      for (const std::string& test : options.tests) {
        Report report(options.rank);
        Rank rank{options, options.rank, options.ranks, version, rendezvous, report, phase};
        run_rank(rank, test);
        // All tell the sum.
        for (const std::string& text : rendezvous.all_gather(report.counts())) {
          counts.add(text);
        }
      }
    }
  }
  if (server.joinable()) {
    server.join();
  }
  return counts;
}

/// Which versions the plugin has, found in a child: the parent loads no plugin.
std::vector<int> find_versions(const std::string& plugin) {
  int ends[2];
  if (pipe(ends) != 0) {
    throw std::runtime_error("pipe");
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    bool has_one = false;
    for (int version = nccl_net::abi::kVersionMin; version <= nccl_net::abi::kVersionMax;
         ++version) {
      const char number = static_cast<char>(version);
      if (NetPlugin::load(plugin, version, &why) == nullptr) {
        continue;
      }
      has_one = true;
      if (write(ends[1], &number, 1) != 1) {
        std::_Exit(1);
      }
    }
    if (!has_one) {
      std::fprintf(stderr, "%s\n", why.c_str());
    }
    std::_Exit(0);
  }
  close(ends[1]);
  std::vector<int> versions;
  for (char number = 0; read(ends[0], &number, 1) == 1;) {
    versions.push_back(number);
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return versions;
}

std::size_t parse_bytes(const std::string& text) {
  std::size_t used = 0;
  const unsigned long long number = std::stoull(text, &used);
  const std::string unit = text.substr(used);
  const std::map<std::string, int> shifts = {{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}};
  return static_cast<std::size_t>(number) << shifts.at(unit);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream input(text);
  for (std::string word; std::getline(input, word, ',');) {
    words.push_back(word);
  }
  return words;
}

const char* const kUsage =
    "nccl_net_driver --plugin PATH [options]\n"
    "  --version N,N|all    of the interface, 6 to 12 (all that the plugin has)\n"
    "  --test NAME,..|all   (all): ring alltoall pingpong grouped threads calls cancel kill "
    "reload\n"
    "                       fork leave; silence, which is none of all: you cut the last rank off\n"
    "  --ranks N            processes (2)      --channels N   links per pair (1)\n"
    "  --messages N         per link (40)      --window N     unfinished requests (4)\n"
    "  --min BYTES          (0)                --max BYTES    (1M); --bytes N: all of that size\n"
    "  --threads N          of the test threads (2)\n"
    "  --device N           (0)                --seed N       (1)\n"
    "  --devices N          rank r has the one of --device and r modulo N behind it (1)\n"
    "  --rails N            the device is made of the first N, from version 9 on (1)\n"
    "  --bound SECONDS      within which a dead peer is noticed (20)\n"
    "  --watchdog SECONDS   of each test, with --rank of all (120)\n"
    "  --verbose            the plugin's log\n"
    "  --bench PATTERN      ring, alltoall or pingpong, with --bytes, --repeats N (100), --json\n"
    "  --rank R --rendezvous HOST:PORT   this process is one rank; rank 0 listens there. All "
    "tests\n"
    "                       are then without kill\n";

Options parse(int argc, char** argv) {
  Options options;
  std::string versions = "all";
  std::string tests = "all";
  const auto number = [](int* to) { return [to](const char* text) { *to = std::stoi(text); }; };
  const auto word = [](std::string* to) { return [to](const char* text) { *to = text; }; };
  const auto bytes = [](std::size_t* to) {
    return [to](const char* text) { *to = parse_bytes(text); };
  };
  const std::map<std::string, std::function<void(const char*)>> taking = {
      {"--plugin", word(&options.plugin)},
      {"--version", word(&versions)},
      {"--test", word(&tests)},
      {"--ranks", number(&options.ranks)},
      {"--channels", number(&options.channels)},
      {"--messages", number(&options.messages)},
      {"--window", number(&options.window)},
      {"--min", bytes(&options.bytes_min)},
      {"--max", bytes(&options.bytes_max)},
      {"--bytes",
       [&](const char* text) {
         options.bytes_max = parse_bytes(text);
         options.is_fixed_size = true;
       }},
      {"--threads", number(&options.threads)},
      {"--device", number(&options.device)},
      {"--devices", number(&options.devices)},
      {"--rails", number(&options.rails)},
      {"--seed", [&](const char* text) { options.seed = std::stoull(text); }},
      {"--bound", number(&options.bound_s)},
      {"--watchdog", number(&options.watchdog_s)},
      {"--bench", word(&options.bench)},
      {"--repeats", number(&options.repeats)},
      {"--rank", number(&options.rank)},
      {"--rendezvous", word(&options.rendezvous)},
  };
  const std::map<std::string, bool*> flags = {{"--json", &options.is_json},
                                              {"--verbose", &options.is_verbose}};
  for (int i = 1; i < argc; ++i) {
    if (const auto flag = flags.find(argv[i]); flag != flags.end()) {
      *flag->second = true;
    } else if (const auto option = taking.find(argv[i]); option != taking.end() && i + 1 < argc) {
      option->second(argv[++i]);
    } else {
      throw std::invalid_argument(argv[i]);
    }
  }
  const bool is_alone = options.rank >= 0;
  if (options.plugin.empty() || options.ranks < 2 || options.ranks > kRanksMax ||
      options.rank >= options.ranks || is_alone == options.rendezvous.empty() ||
      options.window < 1 || options.messages < 1 || options.bytes_min > options.bytes_max ||
      options.devices < 1) {
    throw std::invalid_argument("a value is missing or out of range");
  }
  const std::vector<int> found = find_versions(options.plugin);
  for (const std::string& version : split(versions)) {
    if (version == "all") {
      options.versions = found;
    } else if (std::find(found.begin(), found.end(), std::stoi(version)) != found.end()) {
      options.versions.push_back(std::stoi(version));
    } else {
      throw std::invalid_argument("the plugin has no version " + version);
    }
  }
  if (options.versions.empty()) {
    throw std::invalid_argument(options.plugin + " cannot be loaded, or has no version 6 to 12");
  }
  if (!options.bench.empty()) {
    options.versions = {options.versions.back()};
    tests = "bench";
  }
  options.tests = tests == "all" ? test_names() : split(tests);
  if (tests == "all") {
    std::erase(options.tests, "silence");
  }
  if (is_alone && tests == "all") {
    std::erase(options.tests, "kill");
  }
  if (const auto found_kill = std::find(options.tests.begin(), options.tests.end(), "kill");
      is_alone && found_kill != options.tests.end() &&
      (found_kill + 1 != options.tests.end() || options.versions.size() > 1)) {
    throw std::invalid_argument(
        "with --rank, kill is the last test, for there is one process less");
  }
  for (const std::string& test : options.tests) {
    const std::vector<std::string> names = test_names();
    if (test != "bench" && std::find(names.begin(), names.end(), test) == names.end()) {
      throw std::invalid_argument("no test " + test);
    }
  }
  return options;
}

int run(const Options& options) {
  Counts total;
  if (options.rank >= 0) {
    total = run_alone(options);
  } else {
    for (const int version : options.versions) {
      for (const std::string& test : options.tests) {
        const double begin = seconds_now();
        const Counts counts = run_forked(options, version, test);
        if (options.bench.empty()) {
          std::printf("version %-2d %-9s %zu checks, %zu failed, %zu skipped, %.2f s\n", version,
                      test.c_str(), counts.checks, counts.failed, counts.skipped,
                      seconds_now() - begin);
        }
        total.checks += counts.checks;
        total.failed += counts.failed;
      }
    }
  }
  std::fprintf(options.is_json ? stderr : stdout, "%zu checks, %zu failed\n", total.checks,
               total.failed);
  return total.failed == 0 && total.checks > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::driver

int main(int argc, char** argv) {
  tutti::driver::Options options;
  try {
    options = tutti::driver::parse(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n%s\n", tutti::driver::kUsage, error.what());
    return 2;
  }
  try {
    return tutti::driver::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
