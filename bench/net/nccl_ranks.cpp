// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of a job that calls NCCL as a user would: one blocking call at a time, every element of
// its result checked. bench/nccl_network.py starts the ranks. Nothing of CUDA or NCCL is linked.
//
//   nccl_ranks --rank R --ranks N --device D --id PATH --collectives allreduce,alltoall
//     --sizes 4,64K,64M
//
// PATH is a file that does not exist yet, in a directory that all ranks see. Rank 0 puts NCCL's id
// there.
//
// Sizes are those of nccl-tests: the larger of the send and the receive buffer of one rank, in
// bytes; of a collective in blocks the whole of all blocks, and at least one float32 for each rank.
// A size of no whole number of elements is rounded down.
//
// Prints a line of JSON for each event (start, ready, begin of a size, failed before an abort,
// error) and for each result. The exit status is 0, 1 (a wrong element), 2 (usage), 3 (CUDA or NCCL
// returned an error) or 4 (the watchdog ended it).
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "ccl/ccl.hpp"
#include "device/device.hpp"

namespace {

using tutti::Bytes;
using tutti::ErrorCode;
using tutti::Result;
using tutti::Status;

constexpr int kExitWrong = 1;
constexpr int kExitUsage = 2;
constexpr int kExitFailed = 3;
constexpr int kExitStuck = 4;
constexpr Bytes kSmallBytes = 64 * 1024;  // Up to here a few calls say nothing.
constexpr double kErrorPollS = 0.05;

struct Options {
  int rank = -1;
  int ranks = 0;
  int device = 0;
  std::string id_path;
  std::string library;  ///< Of NCCL; empty: it is searched.
  std::vector<std::string> collectives;
  std::vector<Bytes> sizes;
  double time_cap_s = 0.5;
  std::uint64_t iterations_min = 5;
  std::uint64_t iterations_max = 1000;
  bool checks_every_call = false;
  double watchdog_s = 60;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + '"';
}

/// One line of JSON, at once: the one who started us may be waiting for it.
void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

std::string event(int rank, const char* name) {
  char head[128];
  std::snprintf(head, sizeof head, R"({"rank": %d, "event": "%s", "at_s": %.6f)", rank, name,
                seconds_now());
  return head;
}

/// Ends the process when a step takes too long, with words that say which.
class Watchdog {
 public:
  Watchdog(int rank, double limit_s)
      : rank_(rank), limit_s_(limit_s), thread_([this] { watch(); }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    stop_ = true;
    thread_.join();
  }

  /// Begins a step; `what` must live for ever.
  void step(const char* what) {
    what_ = what;
    begin_s_ = seconds_now();
  }

 private:
  void watch() {
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const double taken_s = seconds_now() - begin_s_;
      if (taken_s > limit_s_ && !stop_) {
        char text[160];
        std::snprintf(text, sizeof text, R"(, "text": "watchdog: %s takes longer than %g s"})",
                      what_.load(), limit_s_);
        say(event(rank_, "error") + text);
        _exit(kExitStuck);  // Whatever hangs would hang a regular end as well.
      }
    }
  }

  const int rank_;
  const double limit_s_;
  std::atomic<const char*> what_{"starting"};
  std::atomic<double> begin_s_{seconds_now()};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

enum class Collective : std::uint8_t { kAllreduce, kAllgather, kReduceScatter, kAlltoall };

constexpr std::pair<const char*, Collective> kCollectives[] = {
    {"allreduce", Collective::kAllreduce},
    {"allgather", Collective::kAllgather},
    {"reduce_scatter", Collective::kReduceScatter},
    {"alltoall", Collective::kAlltoall},
};

/// A collective of one size; counts are of float32.
struct Call {
  Collective collective = Collective::kAllreduce;
  const char* name = "";
  Bytes bytes = 0;  ///< As asked for.
  std::size_t block = 0;
  std::size_t send = 0;
  std::size_t recv = 0;
};

Call make_call(const std::pair<const char*, Collective>& what, Bytes bytes, std::size_t ranks) {
  const std::size_t elements = std::max<std::size_t>(bytes / sizeof(float), 1);
  const std::size_t block = std::max<std::size_t>(elements / ranks, 1);
  Call call{.collective = what.second, .name = what.first, .bytes = bytes, .block = block};
  switch (what.second) {
    case Collective::kAllreduce:
      call.send = call.recv = elements;
      break;
    case Collective::kAllgather:
      call.send = block;
      call.recv = block * ranks;
      break;
    case Collective::kReduceScatter:
      call.send = block * ranks;
      call.recv = block;
      break;
    case Collective::kAlltoall:
      call.send = call.recv = block * ranks;
      break;
  }
  return call;
}

/// What rank `rank` sends as element `i`: 0 to 255, so that sums of them are exact.
float sent(std::size_t rank, std::size_t i) {
  const auto mixed = static_cast<std::uint32_t>(i * 2654435761U + rank * 40503U * 65537U);
  return static_cast<float>(mixed >> 24);
}

float sum_of_all(std::size_t ranks, std::size_t i) {
  float sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    sum += sent(r, i);
  }
  return sum;
}

float expected(const Call& call, std::size_t ranks, std::size_t rank, std::size_t i) {
  switch (call.collective) {
    case Collective::kAllreduce:
      return sum_of_all(ranks, i);
    case Collective::kAllgather:
      return sent(i / call.block, i % call.block);
    case Collective::kReduceScatter:
      return sum_of_all(ranks, rank * call.block + i);
    case Collective::kAlltoall:
      break;
  }
  return sent(i / call.block, rank * call.block + i % call.block);
}

double quantile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

class Rank {
 public:
  Rank(const Options& options, tutti::device::Api& api, tutti::ccl::CclLibrary& nccl,
       Watchdog& watchdog)
      : options_(options),
        ranks_(static_cast<std::size_t>(options.ranks)),
        rank_(static_cast<std::size_t>(options.rank)),
        api_(api),
        nccl_(nccl),
        watchdog_(watchdog) {}

  /// Everything; communicator and buffers are given back in any case.
  Status run() {
    Status status = measure_all();
    if (!status.ok()) {
      say(event(options_.rank, "failed") + R"(, "text": )" + quoted(status.message()) + "}");
    }
    if (comm_ != nullptr) {
      watchdog_.step(status.ok() ? "ncclCommDestroy" : "ncclCommAbort");
      const double begin_s = seconds_now();
      const Status ended = status.ok() ? nccl_.destroy(comm_) : nccl_.abort(comm_);
      char text[64];
      std::snprintf(text, sizeof text, R"(, "seconds": %.3f, "text": )", seconds_now() - begin_s);
      say(event(options_.rank, "end") + text + quoted(ended.message()) + "}");
    }
    return status;
  }

  std::uint64_t wrong() const { return wrong_; }

 private:
  Result<tutti::ccl::UniqueId> exchange_id() {
    if (options_.rank == 0) {
      TUTTI_ASSIGN_OR_RETURN(const tutti::ccl::UniqueId mine, nccl_.unique_id());
      const std::string part = options_.id_path + ".part";
      std::ofstream(part, std::ios::binary).write(mine.bytes, sizeof mine.bytes).flush();
      if (std::rename(part.c_str(), options_.id_path.c_str()) != 0) {
        return Status(ErrorCode::kUnavailable, "cannot write " + options_.id_path);
      }
      return mine;
    }
    tutti::ccl::UniqueId id{};
    while (!std::ifstream(options_.id_path, std::ios::binary).read(id.bytes, sizeof id.bytes)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return id;
  }

  Status measure_all() {
    watchdog_.step("exchanging the id");
    TUTTI_ASSIGN_OR_RETURN(const tutti::ccl::UniqueId id, exchange_id());
    watchdog_.step("ncclCommInitRank");
    const double begin_s = seconds_now();
    TUTTI_ASSIGN_OR_RETURN(
        comm_, nccl_.init_rank(options_.ranks, id, options_.rank, 0, &api_, options_.device));
    TUTTI_ASSIGN_OR_RETURN(stream_, api_.create_stream(options_.device));
    char text[64];
    std::snprintf(text, sizeof text, R"(, "init_s": %.3f})", seconds_now() - begin_s);
    say(event(options_.rank, "ready") + text);
    std::vector<Call> calls;
    std::size_t most = 1;
    for (const std::string& wanted : options_.collectives) {
      for (const auto& one : kCollectives) {
        for (const Bytes bytes : options_.sizes) {
          if (wanted == one.first) {
            calls.push_back(make_call(one, bytes, ranks_));
            most = std::max({most, calls.back().send, calls.back().recv});
          }
        }
      }
    }
    watchdog_.step("allocating");
    TUTTI_ASSIGN_OR_RETURN(void* const send,
                           api_.allocate_device(options_.device, most * sizeof(float)));
    TUTTI_ASSIGN_OR_RETURN(void* const recv,
                           api_.allocate_device(options_.device, most * sizeof(float)));
    send_ = static_cast<float*>(send);
    recv_ = static_cast<float*>(recv);
    host_.resize(most);
    for (std::size_t i = 0; i < most; ++i) {
      host_[i] = sent(rank_, i);
    }
    TUTTI_RETURN_IF_ERROR(api_.copy(send_, host_.data(), most * sizeof(float)));
    for (const Call& call : calls) {
      TUTTI_RETURN_IF_ERROR(measure(call));
    }
    return {};
  }

  /// Warm-up, calls whose results are checked before and after, and the timed calls in between.
  Status measure(const Call& call) {
    char text[512];
    std::snprintf(text, sizeof text, R"(, "collective": "%s", "bytes": %)" PRIu64 "}", call.name,
                  call.bytes);
    say(event(options_.rank, "begin") + text);
    right_.resize(call.recv);
    for (std::size_t i = 0; i < call.recv; ++i) {
      right_[i] = expected(call, ranks_, rank_, i);
    }
    const std::uint64_t wrong_before = wrong_;
    TUTTI_RETURN_IF_ERROR(checked(call));
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t iterations, agree_on_iterations(call));
    std::vector<double> times_us;
    const double cpu_before_s = cpu_seconds();
    const double begin_s = seconds_now();
    for (std::uint64_t i = 0; i < iterations; ++i) {
      if (options_.checks_every_call) {
        TUTTI_RETURN_IF_ERROR(fill());
      }
      const double call_s = seconds_now();
      TUTTI_RETURN_IF_ERROR(blocking(call));
      times_us.push_back((seconds_now() - call_s) * 1e6);
      if (options_.checks_every_call) {
        TUTTI_RETURN_IF_ERROR(compare(call));
      }
    }
    const double seconds = seconds_now() - begin_s;
    const double cpu_s = cpu_seconds() - cpu_before_s;
    TUTTI_RETURN_IF_ERROR(checked(call));
    std::sort(times_us.begin(), times_us.end());
    std::snprintf(
        text, sizeof text,
        R"({"rank": %d, "collective": "%s", "bytes": %)" PRIu64 R"(, "iterations": %)" PRIu64
        R"(, "us_min": %.2f, "us_p50": %.2f, "us_p90": %.2f, "us_max": %.2f, "cpus": %.3f, )"
        R"("wrong": %)" PRIu64 "}",
        options_.rank, call.name, call.bytes, iterations, times_us.front(), quantile(times_us, 0.5),
        quantile(times_us, 0.9), times_us.back(), cpu_s / seconds, wrong_ - wrong_before);
    say(text);
    return {};
  }

  /// As many as the time cap allows at the slowest rank's pace.
  Result<std::uint64_t> agree_on_iterations(const Call& call) {
    const int warm_ups = call.bytes <= kSmallBytes ? 10 : 2;
    const double begin_s = seconds_now();
    for (int i = 0; i < warm_ups; ++i) {
      TUTTI_RETURN_IF_ERROR(options_.checks_every_call ? checked(call) : blocking(call));
    }
    auto agreed_us = static_cast<float>((seconds_now() - begin_s) * 1e6 / warm_ups);
    TUTTI_RETURN_IF_ERROR(api_.copy(recv_, &agreed_us, sizeof agreed_us));
    TUTTI_RETURN_IF_ERROR(nccl_.all_reduce(recv_, recv_, 1, tutti::ccl::NcclType::kFloat32,
                                           tutti::ccl::NcclOp::kMax, comm_, stream_));
    TUTTI_RETURN_IF_ERROR(wait());
    TUTTI_RETURN_IF_ERROR(api_.copy(&agreed_us, recv_, sizeof agreed_us));
    const double wanted = options_.time_cap_s * 1e6 / std::max(static_cast<double>(agreed_us), 1.0);
    return std::clamp(static_cast<std::uint64_t>(wanted), options_.iterations_min,
                      options_.iterations_max);
  }

  Status checked(const Call& call) {
    TUTTI_RETURN_IF_ERROR(fill());
    TUTTI_RETURN_IF_ERROR(blocking(call));
    return compare(call);
  }

  /// Nothing of an earlier result is left: bytes of ones are no number.
  Status fill() {
    TUTTI_RETURN_IF_ERROR(api_.fill_async(recv_, 0xff, host_.size() * sizeof(float), stream_));
    return wait();
  }

  Status compare(const Call& call) {
    TUTTI_RETURN_IF_ERROR(api_.copy(host_.data(), recv_, call.recv * sizeof(float)));
    for (std::size_t i = 0; i < call.recv; ++i) {
      if (host_[i] != right_[i] && wrong_++ < 5) {
        std::fprintf(stderr, "rank %d: %s of %" PRIu64 " bytes: element %zu is %g, not %g\n",
                     options_.rank, call.name, call.bytes, i, static_cast<double>(host_[i]),
                     static_cast<double>(right_[i]));
      }
    }
    return {};
  }

  Status blocking(const Call& call) {
    watchdog_.step(call.name);
    TUTTI_RETURN_IF_ERROR(start(call));
    return wait();
  }

  Status start(const Call& call) {
    constexpr auto kType = tutti::ccl::NcclType::kFloat32;
    constexpr auto kSum = tutti::ccl::NcclOp::kSum;
    switch (call.collective) {
      case Collective::kAllreduce:
        return nccl_.all_reduce(send_, recv_, call.send, kType, kSum, comm_, stream_);
      case Collective::kAllgather:
        return nccl_.all_gather(send_, recv_, call.send, kType, comm_, stream_);
      case Collective::kReduceScatter:
        return nccl_.reduce_scatter(send_, recv_, call.recv, kType, kSum, comm_, stream_);
      case Collective::kAlltoall:
        break;
    }
    TUTTI_RETURN_IF_ERROR(nccl_.group_start());
    for (int peer = 0; peer < options_.ranks; ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * call.block;
      TUTTI_RETURN_IF_ERROR(nccl_.send(send_ + at, call.block, kType, peer, comm_, stream_));
      TUTTI_RETURN_IF_ERROR(nccl_.recv(recv_ + at, call.block, kType, peer, comm_, stream_));
    }
    return nccl_.group_end();
  }

  /// For the stream, or for what NCCL says went wrong behind our back.
  Status wait() {
    double look_s = seconds_now() + kErrorPollS;
    for (;;) {
      TUTTI_ASSIGN_OR_RETURN(const bool is_done, api_.stream_done(stream_));
      if (is_done) {
        return {};
      }
      if (seconds_now() > look_s) {
        TUTTI_RETURN_IF_ERROR(nccl_.async_error(comm_));
        look_s = seconds_now() + kErrorPollS;
      }
      sched_yield();  // As nccl-tests does: NCCL's own threads may need the processor.
    }
  }

  const Options& options_;
  const std::size_t ranks_;
  const std::size_t rank_;
  tutti::device::Api& api_;
  tutti::ccl::CclLibrary& nccl_;
  Watchdog& watchdog_;
  tutti::ccl::CclComm comm_ = nullptr;
  tutti::device::Stream stream_ = nullptr;
  float* send_ = nullptr;
  float* recv_ = nullptr;
  std::vector<float> host_;
  std::vector<float> right_;  ///< The result of the present call.
  std::uint64_t wrong_ = 0;
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

bool is_collective(const std::string& name) {
  return std::any_of(std::begin(kCollectives), std::end(kCollectives),
                     [&](const auto& one) { return name == one.first; });
}

Result<double> number_of(const std::string& option, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(number >= 0 && number <= 1e9)) {
    return Status(ErrorCode::kInvalidArgument, option + " " + value + ": write a number");
  }
  return number;
}

/// One option; true when there is such a one.
Result<bool> take_option(Options& options, const std::string& name, const std::string& value) {
  if (name == "--id") {
    options.id_path = value;
  } else if (name == "--library") {
    options.library = value;
  } else if (name == "--collectives") {
    options.collectives = words_of(value);
    for (const std::string& one : options.collectives) {
      if (!is_collective(one)) {
        return Status(
            ErrorCode::kInvalidArgument,
            "no collective " + one + "; there are allreduce, allgather, reduce_scatter, alltoall");
      }
    }
  } else if (name == "--sizes") {
    for (const std::string& one : words_of(value)) {
      TUTTI_ASSIGN_OR_RETURN(const Bytes bytes, tutti::parse_bytes(one));
      options.sizes.push_back(bytes);
    }
  } else if (name == "--check") {
    if (value != "once" && value != "all") {
      return Status(ErrorCode::kInvalidArgument, "--check " + value + ": once or all");
    }
    options.checks_every_call = value == "all";
  } else {
    TUTTI_ASSIGN_OR_RETURN(const double number, number_of(name, value));
    if (name == "--rank") {
      options.rank = static_cast<int>(number);
    } else if (name == "--ranks") {
      options.ranks = static_cast<int>(number);
    } else if (name == "--device") {
      options.device = static_cast<int>(number);
    } else if (name == "--time-cap") {
      options.time_cap_s = number;
    } else if (name == "--iterations-min") {
      options.iterations_min = static_cast<std::uint64_t>(std::max(number, 1.0));
    } else if (name == "--iterations-max") {
      options.iterations_max = static_cast<std::uint64_t>(std::max(number, 1.0));
    } else if (name == "--watchdog") {
      options.watchdog_s = number;
    } else {
      return false;
    }
  }
  return true;
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) {
      return Status(ErrorCode::kInvalidArgument, name + " needs a value");
    }
    TUTTI_ASSIGN_OR_RETURN(const bool is_known, take_option(options, name, argv[i + 1]));
    if (!is_known) {
      return Status(ErrorCode::kInvalidArgument, "no option " + name);
    }
  }
  if (options.rank < 0 || options.rank >= options.ranks || options.id_path.empty() ||
      options.collectives.empty() || options.sizes.empty()) {
    return Status(ErrorCode::kInvalidArgument,
                  "--rank, --ranks, --id, --collectives and --sizes are needed");
  }
  options.iterations_max = std::max(options.iterations_max, options.iterations_min);
  return options;
}

Result<std::uint64_t> run(const Options& options, Watchdog& watchdog) {
  watchdog.step("loading CUDA and NCCL");
  tutti::device::OpenReport report;
  // Both stay: a rank's memory and streams are the driver's to take back.
  static const std::unique_ptr<tutti::device::Api> api = tutti::device::open_cuda(&report);
  if (api == nullptr) {
    return Status(ErrorCode::kUnavailable, "CUDA: " + report.reason);
  }
  TUTTI_RETURN_IF_ERROR(api->initialize());
  TUTTI_ASSIGN_OR_RETURN(const tutti::device::CurrentDevice current,
                         tutti::device::CurrentDevice::set(*api, options.device));
  TUTTI_ASSIGN_OR_RETURN(const std::string device_name, api->device_name(options.device));
  TUTTI_ASSIGN_OR_RETURN(const std::unique_ptr<tutti::ccl::CclLibrary> nccl,
                         tutti::ccl::CclLibrary::open("nccl", "cuda", options.library));
  say(event(options.rank, "start") + R"(, "gpu": )" + quoted(device_name) + R"(, "cuda": )" +
      quoted(api->library()) + R"(, "nccl": )" +
      quoted(tutti::ccl::format_version(nccl->version())) + R"(, "library": )" +
      quoted(nccl->path()) + "}");
  Rank rank(options, *api, *nccl, watchdog);
  TUTTI_RETURN_IF_ERROR(rank.run());
  return rank.wrong();
}

}  // namespace

int main(int argc, char** argv) {
  const Result<Options> options = parse(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "nccl_ranks: %s\n", options.status().message().c_str());
    return kExitUsage;
  }
  int code = 0;
  {
    Watchdog watchdog(options->rank, options->watchdog_s);
    const Result<std::uint64_t> wrong = run(*options, watchdog);
    if (!wrong.ok()) {
      say(event(options->rank, "error") + R"(, "text": )" + quoted(wrong.status().message()) + "}");
      code = kExitFailed;
    } else if (*wrong > 0) {
      code = kExitWrong;
    }
  }
  return code;
}
