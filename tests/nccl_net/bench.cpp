// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The driver's benchmark: messages of one size over all links of a pattern, contents not looked at.
// Goodput counts payload received per rank, Gbit/s. Latency: ring and alltoall from isend to its
// completion, pingpong half a round trip. CPU time is the process's, all threads, while messages
// move; like NCCL's progress thread, ranks with nothing to do call test() and yield in turns.
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <sstream>

#include "flow.hpp"
#include "rank.hpp"

namespace tutti::driver {
namespace {

/// One link's messages, in buffers that are used again and again.
class Stream {
 public:
  Stream(const Link& link, std::size_t bytes, int window) : link_(link), bytes_(bytes) {
    for (int i = 0; i < window; ++i) {
      Slot& slot = slots_.emplace_back();
      slot.data.assign(bytes + 1, std::byte{7});
      require(link.plugin().reg_mr(link.comm, slot.data.data(), bytes, nccl_net::abi::kPointerHost,
                                   &slot.mhandle),
              "regMr");
    }
  }

  void begin(std::size_t messages) {
    wanted_ = messages;
    posted_ = finished_ = 0;
  }

  bool is_over() const { return finished_ == wanted_; }
  std::size_t finished() const { return finished_; }
  std::size_t posted() const { return posted_; }
  const Link& link() const { return link_; }
  std::vector<double>& latencies_us() { return latencies_us_; }

  bool step() {
    bool has_moved = false;
    while (posted_ < wanted_ && posted_ - finished_ < slots_.size() && post()) {
      has_moved = true;
    }
    return test() || has_moved;
  }

  bool post() {
    Slot& slot = slots_[posted_ % slots_.size()];
    slot.request = nullptr;
    if (link_.sends) {
      slot.begin_s = seconds_now();
      require(link_.plugin().isend(link_.comm, slot.data.data(), bytes_, 0, slot.mhandle,
                                   &slot.request),
              "isend");
    } else {
      void* data = slot.data.data();
      int tag = 0;
      require(
          link_.plugin().irecv(link_.comm, 1, &data, &bytes_, &tag, &slot.mhandle, &slot.request),
          "irecv");
    }
    posted_ += slot.request != nullptr ? 1 : 0;
    return slot.request != nullptr;
  }

  bool test() {
    if (finished_ == posted_) {
      return false;
    }
    Slot& slot = slots_[finished_ % slots_.size()];
    int done = 0;
    int bytes = 0;
    require(link_.plugin().test(slot.request, &done, &bytes), "test");
    if (done != 0) {
      ++finished_;
      if (link_.sends) {
        latencies_us_.push_back((seconds_now() - slot.begin_s) * 1e6);
      }
    }
    return done != 0;
  }

  void deregister() {
    for (Slot& slot : slots_) {
      link_.plugin().dereg_mr(link_.comm, slot.mhandle);
    }
  }

 private:
  struct Slot {
    std::vector<std::byte> data;
    void* mhandle = nullptr;
    void* request = nullptr;
    double begin_s = 0;
  };
  Link link_;
  std::size_t bytes_;
  std::vector<Slot> slots_;
  std::size_t wanted_ = 0;
  std::size_t posted_ = 0;
  std::size_t finished_ = 0;
  std::vector<double> latencies_us_;
};

void stream(std::vector<Stream>& streams, std::size_t messages) {
  for (Stream& one : streams) {
    one.begin(messages);
  }
  bool is_busy = true;
  while (is_busy) {
    is_busy = false;
    bool has_moved = false;
    for (Stream& one : streams) {
      has_moved |= one.step();
      is_busy |= !one.is_over();
    }
    if (!has_moved) {
      sched_yield();
    }
  }
}

void ping_pong(std::vector<Stream>& streams, bool begins, std::size_t rounds,
               std::vector<double>* latencies_us) {
  Stream& out = streams[0].link().sends ? streams[0] : streams[1];
  Stream& in = streams[0].link().sends ? streams[1] : streams[0];
  out.begin(rounds);
  in.begin(rounds);
  const auto finish = [&](Stream& one, std::size_t count) {
    while (one.finished() < count) {
      // The other one's messages may need a push, too.
      const bool has_moved = one.test();
      const bool has_sent = &one == &in && out.test();
      if (!has_sent && !has_moved) {
        sched_yield();
      }
    }
  };
  const auto post_send = [&](std::size_t count) {
    finish(out, count - std::min<std::size_t>(count, 2));
    while (out.posted() < count) {
      out.post();
    }
  };
  // As NCCL does: receives are posted ahead, and who has the next message to send does not wait for
  // the end of the last one.
  const auto post_ahead = [&](std::size_t count) {
    while (in.posted() < std::min(count, rounds) && in.post()) {
    }
  };
  post_ahead(2);
  for (std::size_t i = 1; i <= rounds; ++i) {
    const double begin = seconds_now();
    if (begins) {
      post_send(i);
    }
    finish(in, i);
    post_ahead(i + 2);
    if (!begins) {
      post_send(i);
    }
    latencies_us->push_back((seconds_now() - begin) * 1e6 / 2);
  }
  finish(out, rounds);
}

double cpu_s(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double quantile(const std::vector<double>& sorted, double part) {
  return sorted.empty()
             ? 0
             : sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

/// "name": value of a flat JSON object.
double field(const std::string& part, const std::string& name) {
  const std::size_t at = part.find("\"" + name + "\": ");
  return at == std::string::npos ? 0 : std::stod(part.substr(at + name.size() + 4));
}

}  // namespace

std::string run_bench(Rank& rank) {
  const Options& options = rank.options;
  Session session(rank);
  const bool is_ping_pong = options.bench == "pingpong";
  std::vector<Link> links =
      connect(session, edges_of(options.bench, rank.ranks, is_ping_pong ? 1 : options.channels));
  std::vector<Stream> streams;
  for (const Link& link : links) {
    streams.emplace_back(link, options.bytes_max, options.window);
  }
  const auto repeats = static_cast<std::size_t>(options.repeats);
  std::vector<double> latencies_us;
  const auto round = [&](std::size_t messages) {
    if (!is_ping_pong) {
      stream(streams, messages);
    } else if (streams.size() == 2) {
      ping_pong(streams, rank.rank % 2 == 0, messages, &latencies_us);
    }
  };
  rank.phase = "warming up";
  round(std::min<std::size_t>(repeats, 10));
  for (Stream& one : streams) {
    one.latencies_us().clear();
  }
  latencies_us.clear();
  rank.barrier();
  rank.phase = "measuring";
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const double begin = seconds_now();
  round(repeats);
  const double seconds = seconds_now() - begin;
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  rank.barrier();
  std::size_t bytes = 0;
  for (Stream& one : streams) {
    bytes += one.link().sends ? 0 : repeats * options.bytes_max;
    if (!is_ping_pong) {
      latencies_us.insert(latencies_us.end(), one.latencies_us().begin(), one.latencies_us().end());
    }
    one.deregister();
  }
  close_links(links);
  std::sort(latencies_us.begin(), latencies_us.end());
  std::ostringstream json;
  json << "{\"rank\": " << rank.rank << ", \"plugin\": \"" << session.plugin->name()
       << "\", \"seconds\": " << seconds << ", \"received_bytes\": " << bytes
       << ", \"goodput_gbps\": " << static_cast<double>(bytes) * 8e-9 / seconds
       << ", \"latency_us_p50\": " << quantile(latencies_us, 0.5)
       << ", \"latency_us_p90\": " << quantile(latencies_us, 0.9)
       << ", \"latency_us_p99\": " << quantile(latencies_us, 0.99)
       << ", \"latency_us_max\": " << quantile(latencies_us, 1)
       << ", \"cpu_user_s\": " << cpu_s(after.ru_utime) - cpu_s(before.ru_utime)
       << ", \"cpu_system_s\": " << cpu_s(after.ru_stime) - cpu_s(before.ru_stime) << "}";
  rank.report.check(bytes > 0 || is_ping_pong, "nothing was received");
  return json.str();
}

void print_bench(const Options& options, int version, const std::vector<std::string>& parts) {
  if (options.is_json) {
    std::printf(
        "{\"pattern\": \"%s\", \"bytes\": %zu, \"repeats\": %d, \"channels\": %d, "
        "\"window\": %d, \"version\": %d, \"ranks\": [\n",
        options.bench.c_str(), options.bytes_max, options.repeats, options.channels, options.window,
        version);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::printf("  %s%s\n", parts[i].c_str(), i + 1 < parts.size() ? "," : "");
    }
    std::printf("]}\n");
  } else {
    std::printf(
        "%s, %zu bytes, version %d\nrank  Gbit/s  us: p50  p90  p99  max  CPU s: user  "
        "system  Gbit per CPU s\n",
        options.bench.c_str(), options.bytes_max, version);
    for (const std::string& part : parts) {
      const double cpu = field(part, "cpu_user_s") + field(part, "cpu_system_s");
      std::printf(
          "%4.0f  %6.2f  %.1f  %.1f  %.1f  %.1f  %.3f  %.3f  %.1f\n", field(part, "rank"),
          field(part, "goodput_gbps"), field(part, "latency_us_p50"), field(part, "latency_us_p90"),
          field(part, "latency_us_p99"), field(part, "latency_us_max"), field(part, "cpu_user_s"),
          field(part, "cpu_system_s"), cpu > 0 ? field(part, "received_bytes") * 8e-9 / cpu : 0);
    }
  }
  std::fflush(stdout);
}

}  // namespace tutti::driver
