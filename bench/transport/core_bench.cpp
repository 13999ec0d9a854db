// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the transport core costs: two endpoints in one thread, nothing but a delay between them, no
// payload is touched. Per chunk: sent, received, acknowledged, and its acknowledgement received,
// which is the share of one engine that sends and receives at the same rate. Time in ns of CPU;
// instructions where the kernel lets them be counted.
//
// Also the goodput over a link of 400 Gb/s in virtual time, at 12 us, with random loss of packets.
//
//   transport_core_bench [chunks in 1000]
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "transport/endpoint.hpp"

namespace {

using namespace tutti::transport;
using tutti::Bytes;

struct Variant {
  const char* name;
  std::uint32_t chunk_bytes;
  std::uint32_t paths;
  bool authenticates;
  const char* controller = "nscc";
  const char* spray = "mixed";
  std::uint32_t loss_in_1000 = 0;
};

/// Instructions of this thread in user space.
class InstructionCounter {
 public:
  InstructionCounter() {
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.size = sizeof(attributes);
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
    file_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  }
  ~InstructionCounter() {
    if (file_ >= 0) {
      close(file_);
    }
  }
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  /// 0: the kernel does not let us count.
  std::uint64_t read_now() const {
    std::uint64_t value = 0;
    return file_ >= 0 && read(file_, &value, sizeof(value)) == sizeof(value) ? value : 0;
  }

 private:
  int file_;
};

std::uint64_t cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

/// One direction: packets in the order of their sending, each after the same delay.
struct Link {
  struct InAir {
    TimeNs arrival_ns = 0;
    Transmission packet;
  };
  std::vector<InAir> ring = std::vector<InAir>(1U << 12);
  std::uint64_t first = 0;
  std::uint64_t next = 0;
  bool is_empty() const { return first == next; }
  InAir& front() { return ring[first & (ring.size() - 1)]; }
  InAir& back() { return ring[next & (ring.size() - 1)]; }
};

void run(const Variant& variant, std::uint64_t chunks) {
  ConnectionOptions options;
  options.local_id = 1;
  options.remote_id = 2;
  options.wire.chunk_bytes = variant.chunk_bytes;
  options.wire.paths = variant.paths;
  options.authenticates = variant.authenticates;
  options.controller = variant.controller;
  options.spray = variant.spray;
  options.receives = false;
  ConnectionOptions mirrored = options;
  std::swap(mirrored.local_id, mirrored.remote_id);
  std::swap(mirrored.sends, mirrored.receives);
  Endpoint ends[2] = {Endpoint({1}), Endpoint({1})};
  TimeNs now = 1000;
  auto sender = ends[0].connect(now, options);
  auto receiver = ends[1].connect(now, mirrored);
  if (!sender.ok() || !receiver.ok()) {
    std::fprintf(stderr, "%s\n", sender.status().message().c_str());
    std::exit(1);
  }
  const Bytes bytes = chunks * variant.chunk_bytes;
  ReceiveRequest receive;
  receive.parts[0].capacity_bytes = bytes;
  if (!ends[1].post_receive(now, *receiver, receive).ok() ||
      !ends[0].post_send(now, *sender, {0, nullptr, bytes, 0}).ok()) {
    std::exit(1);
  }
  Link links[2];                            // By destination.
  std::uint64_t link_free_ps = now * 1000;  // A chunk's time is no whole number of ns.
  std::uint64_t draws = 1;
  const InstructionCounter instructions;
  const std::uint64_t start_instructions = instructions.read_now();
  const std::uint64_t start_ns = cpu_ns();
  Event event;
  while (true) {
    for (int i = 0; i < 2; ++i) {
      Link& link = links[1 - i];
      // The sender's NIC takes one packet at a time; control passes at once.
      while ((i == 1 || link_free_ps <= now * 1000) &&
             ends[i].poll_transmit(now, &link.back().packet)) {
        const Transmission& packet = link.back().packet;
        if (i == 0) {
          // Less than a ns late is the rounding of `now`.
          const bool is_idle = now * 1000 - link_free_ps >= 1000;
          link_free_ps = (is_idle ? now * 1000 : link_free_ps) +
                         std::uint64_t{packet.payload_bytes} * options.wire.ps_per_byte;
        }
        draws = draws * 6364136223846793005ULL + 1442695040888963407ULL;
        if ((draws >> 33) % 1000 < variant.loss_in_1000) {
          continue;
        }
        link.back().arrival_ns = now + options.wire.base_rtt_ns / 2;
        ++link.next;
      }
    }
    if (ends[0].poll_event(&event)) {
      break;
    }
    TimeNs next = link_free_ps > now * 1000 ? (link_free_ps + 999) / 1000 : kNever;
    for (int i = 0; i < 2; ++i) {
      next = std::min(next, ends[i].next_deadline());
      next = links[i].is_empty() ? next : std::min(next, links[i].front().arrival_ns);
    }
    now = std::max(now, next);
    for (int i = 0; i < 2; ++i) {
      while (!links[i].is_empty() && links[i].front().arrival_ns <= now) {
        const Transmission& packet = links[i].front().packet;
        Arrival arrival;
        arrival.header = {packet.header.data(), packet.header_bytes};
        arrival.payload_bytes = packet.payload_bytes;
        ends[i].handle_datagram(now, arrival);
        ++links[i].first;
      }
      if (ends[i].next_deadline() <= now) {
        ends[i].handle_timeout(now);
      }
    }
  }
  const std::uint64_t took_ns = cpu_ns() - start_ns;
  const std::uint64_t took_instructions = instructions.read_now() - start_instructions;
  const ConnectionCounters& counters = *ends[0].counters(*sender);
  std::printf("%-28s %7u %5u %8.1f %8.1f %8.1f %8.1f %10llu %8llu\n", variant.name,
              variant.chunk_bytes, variant.paths,
              static_cast<double>(took_ns) / static_cast<double>(chunks),
              static_cast<double>(took_instructions) / static_cast<double>(chunks),
              static_cast<double>(bytes) / static_cast<double>(took_ns) * 8,
              static_cast<double>(bytes) / static_cast<double>(now - 1000) * 8,
              static_cast<unsigned long long>(counters.retransmissions),
              static_cast<unsigned long long>(counters.spurious_retransmissions));
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t chunks = 1000 * (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000);
  std::printf("%-28s %7s %5s %8s %8s %8s %8s %10s %8s\n", "variant", "chunk", "paths", "ns",
              "instr", "CPU Gb/s", "net Gb/s", "sent again", "needless");
  const Variant variants[] = {
      {"nscc mixed", 32768, 256, true},
      {"nscc mixed", 4096, 256, true},
      {"nscc mixed, no tags", 32768, 256, false},
      {"nscc mixed, no tags", 4096, 256, false},
      {"swift two_choices", 32768, 64, true, "swift", "two_choices"},
      {"cubic oblivious", 32768, 256, true, "cubic", "oblivious"},
      {"nscc+rccc mixed", 32768, 256, true, "nscc+rccc"},
      {"nscc mixed, 0.1 % loss", 32768, 256, true, "nscc", "mixed", 1},
      {"nscc mixed, 1 % loss", 4096, 256, true, "nscc", "mixed", 10},
      {"nscc mixed, 1 % loss", 32768, 256, true, "nscc", "mixed", 10},
      {"swift two_choices, 1 % loss", 4096, 64, true, "swift", "two_choices", 10},
      {"cubic oblivious, 0.1 % loss", 4096, 256, true, "cubic", "oblivious", 1},
      {"cubic oblivious, 1 % loss", 4096, 256, true, "cubic", "oblivious", 10},
      {"rccc mixed, 1 % loss", 4096, 256, true, "rccc", "mixed", 10},
      {"fixed mixed, 1 % loss", 4096, 256, true, "fixed", "mixed", 10},
  };
  for (const Variant& variant : variants) {
    run(variant, chunks);
  }
  return 0;
}
