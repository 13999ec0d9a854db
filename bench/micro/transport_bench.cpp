// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the transport core costs: two endpoints in one thread, nothing but a delay between them, no
// payload is touched. Per chunk: sent, received (with the acknowledgement that it causes), and its
// acknowledgement received; their sum is the share of one engine that sends and receives at the
// same rate. Time in ns of CPU, the three shares from a second run that looks at the time between
// them; instructions where the kernel lets them be counted (0: it does not).
//
// Also the goodput over a link of 400 Gb/s in virtual time, at 12 us, with random loss of packets.
//
//   transport_bench [chunks in 1000 [variant chunk]]
//
// One variant alone runs once, without the shares: for a tool that counts instructions.
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "micro/cpu_clock.hpp"
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

/// What the network adds to a packet, as in the simulator.
constexpr std::uint64_t kHeaderOnWireBytes = 64;

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

struct Cost {
  std::uint64_t ns = 0;
  std::uint64_t instructions = 0;
  std::uint64_t virtual_ns = 0;
  std::uint64_t part_ticks[3] = {};  ///< Sent, received, acknowledged.
  ConnectionCounters counters;
};

Cost run(const Variant& variant, std::uint64_t chunks, bool has_parts) {
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
  Cost cost;
  std::uint64_t since = 0;
  const auto part_ends = [&](int part) {
    if (has_parts) {
      const std::uint64_t at = ticks();
      cost.part_ticks[part] += at - since;
      since = at;
    }
  };
  while (true) {
    since = has_parts ? ticks() : 0;
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
                         (packet.payload_bytes + kHeaderOnWireBytes) * options.wire.ps_per_byte;
        }
        draws = draws * 6364136223846793005ULL + 1442695040888963407ULL;
        if ((draws >> 33) % 1000 < variant.loss_in_1000) {
          continue;
        }
        link.back().arrival_ns = now + options.wire.base_rtt_ns / 2;
        ++link.next;
      }
      part_ends(i);
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
    since = has_parts ? ticks() : 0;
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
      part_ends(i == 0 ? 2 : 1);
    }
  }
  cost.ns = cpu_ns() - start_ns;
  cost.instructions = instructions.read_now() - start_instructions;
  cost.virtual_ns = now - 1000;
  cost.counters = *ends[0].counters(*sender);
  return cost;
}

void print(const Variant& variant, std::uint64_t chunks) {
  const Cost cost = run(variant, chunks, false);
  const Cost parts = run(variant, chunks / 4, true);
  const auto per_chunk = [&](std::uint64_t value) {
    return static_cast<double>(value) / static_cast<double>(chunks);
  };
  const double ns = per_chunk(cost.ns);
  const auto all =
      static_cast<double>(parts.part_ticks[0] + parts.part_ticks[1] + parts.part_ticks[2]);
  const auto share = [&](int part) {
    return ns * static_cast<double>(parts.part_ticks[part]) / all;
  };
  const double bits = static_cast<double>(variant.chunk_bytes) * 8;
  std::printf("%-28s %7u %5u %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %10llu %8llu\n",
              variant.name, variant.chunk_bytes, variant.paths, ns, share(0), share(1), share(2),
              per_chunk(cost.instructions), bits / ns, bits / per_chunk(cost.virtual_ns),
              static_cast<unsigned long long>(cost.counters.retransmissions),
              static_cast<unsigned long long>(cost.counters.spurious_retransmissions));
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t chunks = 1000 * (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000);
  std::printf("%-28s %7s %5s %8s %8s %8s %8s %8s %8s %8s %10s %8s\n", "variant", "chunk", "paths",
              "ns", "send", "receive", "ack", "instr", "CPU Gb/s", "net Gb/s", "sent again",
              "needless");
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
    if (argc <= 3) {
      print(variant, chunks);
    } else if (std::strcmp(argv[2], variant.name) == 0 &&
               std::strtoull(argv[3], nullptr, 10) == variant.chunk_bytes) {
      run(variant, chunks, false);
      return 0;
    }
  }
  return argc > 3 ? 1 : 0;
}
