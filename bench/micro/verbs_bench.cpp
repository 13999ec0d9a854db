// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What an engine costs over the verbs wire: the transport and the wire of one host that sends, and
// of the hosts that receive, over a NIC that completes at once and moves no payload. Per chunk, ns
// of the sender (chunks out, acknowledgements and completions in) and of the receivers. What
// a NIC does by itself is done between their turns; its calls, which stand for a driver's, are in
// both. The sender has a core, and the receivers and what NICs do another: else those would clear
// the sender's cache. Memory: of the sender's queue pairs, as the process grows by them.
//
//   verbs_bench [chunks in 1000 [variant [first core]]]
//
// Callgrind counts the instructions of one side: --toggle-collect='*sender_turn*' with one variant,
// and '*NicOf*Sender*' for those of the NIC's calls among them.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include "base/check.hpp"
#include "micro/cpu_clock.hpp"
#include "net/channel_setup.hpp"
#include "transport/endpoint.hpp"
#include "wire/verbs/verbs_wire.hpp"

namespace verbs = tutti::wire::verbs;

struct tutti::wire::verbs::Device {};

namespace {

using namespace tutti::transport;
using tutti::Bytes;

// --- A NIC that completes at once

struct NicCq : verbs::Cq {
  std::vector<verbs::Completion> ring = std::vector<verbs::Completion>(1U << 13);
  std::uint64_t first = 0;
  std::uint64_t next = 0;
  bool is_empty() const { return first == next; }
  verbs::Completion& add() {
    if (is_empty()) {
      first = next = 0;  // From the start, which is in the cache: a NIC writes into it, too.
    }
    verbs::Completion& it = ring[next++ & (ring.size() - 1)];
    it = {};
    return it;
  }
};

struct NicSrq : verbs::Srq {
  struct Buffer {
    std::uint64_t id = 0;
    std::byte* begin = nullptr;
  };
  std::vector<Buffer> free;
};

struct NicQp : verbs::Qp {
  NicQp* remote = nullptr;
  std::uint32_t remote_number = 0;
};

verbs::Device device;
std::vector<NicQp*> queue_pairs(1);  // By number; 0 is none.

NicQp* queue_pair(std::uint32_t number) {
  return number < queue_pairs.size() ? queue_pairs[number] : nullptr;
}

int poll_cq(verbs::Cq* base, int count, verbs::Completion* out) {
  auto& cq = *static_cast<NicCq*>(base);
  int taken = 0;
  for (; taken < count && !cq.is_empty(); ++taken) {
    out[taken] = cq.ring[cq.first++ & (cq.ring.size() - 1)];
  }
  return taken;
}

/// What the NIC is to do: it has a request's segments, and of an inline one the bytes themselves.
struct Posted {
  Posted() {}  // Not emptied: only what belongs to the request is read.
  NicQp* from;
  std::uint64_t id;
  int opcode;
  unsigned flags;
  std::uint32_t immediate;
  std::uint32_t datagram_to;
  int segment_count;
  std::array<verbs::Segment, 2> segments;
  std::array<std::byte, 256> copied;
};
std::vector<Posted> posted;  // In their order.

int post_send(verbs::Qp* qp, verbs::SendRequest* request, verbs::SendRequest** /*bad*/) {
  for (; request != nullptr; request = request->next) {
    Posted& it = posted.emplace_back();
    it.from = static_cast<NicQp*>(qp);
    it.id = request->id;
    it.opcode = request->opcode;
    it.flags = request->flags;
    it.immediate = request->immediate;
    it.datagram_to = request->to.ud.qp_number;
    it.segment_count = request->segment_count;
    std::size_t at = 0;
    CHECK(static_cast<std::size_t>(request->segment_count) <= it.segments.size(), "");
    for (std::size_t i = 0; i < static_cast<std::size_t>(request->segment_count); ++i) {
      it.segments[i] = request->segments[i];
      if ((request->flags & verbs::kInline) != 0) {
        CHECK(at + it.segments[i].bytes <= it.copied.size(), "");
        std::memcpy(it.copied.data() + at, reinterpret_cast<const void*>(it.segments[i].address),
                    it.segments[i].bytes);
        at += it.segments[i].bytes;
      }
    }
  }
  return 0;
}

/// False: the receiver has no buffer for it now.
bool deliver(const Posted& it) {
  const NicQp& qp = *it.from;
  const bool is_datagram = qp.type == verbs::kQpUd;
  NicQp* const to = is_datagram ? queue_pair(it.datagram_to) : qp.remote;
  if (to != nullptr && it.opcode != verbs::kWrite) {
    auto& srq = *static_cast<NicSrq*>(to->srq);
    if (srq.free.empty()) {
      return false;
    }
    const NicSrq::Buffer buffer = srq.free.back();
    srq.free.pop_back();
    verbs::Completion& told = static_cast<NicCq*>(to->receive_cq)->add();
    told.id = buffer.id;
    told.opcode = it.opcode == verbs::kSendWithImmediate ? verbs::kReceived : verbs::kReceivedWrite;
    told.flags = verbs::kWithImmediate;
    told.immediate = it.immediate;
    told.qp_number = to->number;
    const bool is_inline = (it.flags & verbs::kInline) != 0;
    const std::byte* copied = it.copied.data();
    std::size_t at = is_datagram ? verbs::kGrhBytes : 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(it.segment_count); ++i) {
      const verbs::Segment& segment = it.segments[i];
      // Headers and announcements alone: nobody reads the payload.
      if (segment.bytes <= 2100 && it.opcode == verbs::kSendWithImmediate) {
        std::memcpy(buffer.begin + at,
                    is_inline ? copied : reinterpret_cast<const std::byte*>(segment.address),
                    segment.bytes);
      }
      copied += segment.bytes;
      at += segment.bytes;
    }
    told.bytes = static_cast<std::uint32_t>(at);
  }
  if ((it.flags & verbs::kSignaled) != 0) {
    verbs::Completion& told = static_cast<NicCq*>(qp.send_cq)->add();
    told.id = it.id;
    told.qp_number = qp.number;
  }
  return true;
}

/// The NIC does all that it can: of what has to wait the first holds up the others.
void nic_turn() {
  std::size_t done = 0;
  while (done < posted.size() && deliver(posted[done])) {
    ++done;
  }
  posted.erase(posted.begin(), posted.begin() + static_cast<std::ptrdiff_t>(done));
}

int post_srq_receive(verbs::Srq* base, verbs::ReceiveRequest* request, verbs::ReceiveRequest**) {
  auto& srq = *static_cast<NicSrq*>(base);
  for (; request != nullptr; request = request->next) {
    srq.free.push_back({request->id, reinterpret_cast<std::byte*>(request->segments[0].address)});
  }
  return 0;
}

struct Sender;
struct Receivers;

/// The NIC's functions as one side calls them: callgrind collects within those of one.
template <class Side>
struct NicOf {
  __attribute__((noinline)) static int poll(verbs::Cq* cq, int count, verbs::Completion* out) {
    return poll_cq(cq, count, out);
  }
  __attribute__((noinline)) static int send(verbs::Qp* qp, verbs::SendRequest* request,
                                            verbs::SendRequest** bad) {
    return post_send(qp, request, bad);
  }
  __attribute__((noinline)) static int receive(verbs::Srq* srq, verbs::ReceiveRequest* request,
                                               verbs::ReceiveRequest** bad) {
    return post_srq_receive(srq, request, bad);
  }
};

template <class Side>
verbs::Functions functions() {
  verbs::Functions it;
  it.device_list = [](int* count) {
    *count = 1;
    return new verbs::Device* [1] { &device };
  };
  it.free_device_list = [](verbs::Device** list) { delete[] list; };
  it.device_name = [](verbs::Device*) { return "instant"; };
  it.open_device = [](verbs::Device*) {
    auto* const context = new verbs::Context{};
    context->async_descriptor = -1;
    context->ops.poll_cq = NicOf<Side>::poll;
    context->ops.post_send = NicOf<Side>::send;
    context->ops.post_srq_receive = NicOf<Side>::receive;
    context->ops.alloc_mw = [](verbs::Pd* pd, int type) {
      return new verbs::Mw{pd->context, pd, 256, 0, type};
    };
    context->ops.dealloc_mw = [](verbs::Mw* mw) {
      delete mw;
      return 0;
    };
    context->ops.bind_mw = [](verbs::Qp* qp, verbs::Mw* mw, verbs::Bind* bind) {
      ++mw->remote_key;
      static_cast<NicCq*>(qp->send_cq)->add().id = bind->id;
      return 0;
    };
    return context;
  };
  it.close_device = [](verbs::Context* context) {
    delete context;
    return 0;
  };
  it.query_port = [](verbs::Context*, std::uint8_t port, verbs::PortAttributes* attributes) {
    attributes->state = verbs::kPortActive;
    attributes->active_mtu = 5;
    attributes->gid_count = 1;
    attributes->link_layer = 1;
    return port == 1 ? 0 : EINVAL;
  };
  it.query_gid = [](verbs::Context*, std::uint8_t, int, verbs::Gid* gid) {
    gid->fill(1);
    return 0;
  };
  it.alloc_pd = [](verbs::Context* context) { return new verbs::Pd{context, 0}; };
  it.dealloc_pd = [](verbs::Pd* pd) {
    delete pd;
    return 0;
  };
  it.reg_mr = [](verbs::Pd* pd, void* address, std::size_t bytes, int) {
    return new verbs::Mr{pd->context, pd, address, bytes, 0, 1, 1};
  };
  it.dereg_mr = [](verbs::Mr* mr) {
    delete mr;
    return 0;
  };
  it.create_cq = [](verbs::Context* context, int, void*, verbs::CompletionChannel*,
                    int) -> verbs::Cq* {
    auto* const cq = new NicCq{};
    cq->context = context;
    return cq;
  };
  it.destroy_cq = [](verbs::Cq* cq) {
    delete static_cast<NicCq*>(cq);
    return 0;
  };
  it.create_srq = [](verbs::Pd* pd, verbs::SrqAttributes*) -> verbs::Srq* {
    auto* const srq = new NicSrq{};
    srq->pd = pd;
    return srq;
  };
  it.destroy_srq = [](verbs::Srq* srq) {
    delete static_cast<NicSrq*>(srq);
    return 0;
  };
  it.create_qp = [](verbs::Pd* pd, verbs::QpInitial* initial) -> verbs::Qp* {
    auto* const qp = new NicQp{};
    qp->context = pd->context;
    qp->pd = pd;
    qp->send_cq = initial->send_cq;
    qp->receive_cq = initial->receive_cq;
    qp->srq = initial->srq;
    qp->type = initial->type;
    qp->number = static_cast<std::uint32_t>(queue_pairs.size());
    queue_pairs.push_back(qp);
    return qp;
  };
  it.modify_qp = [](verbs::Qp* base, verbs::QpAttributes* attributes, int mask) {
    auto& qp = *static_cast<NicQp*>(base);
    qp.state = attributes->state;
    if ((mask & verbs::kMaskRemoteQp) != 0) {
      qp.remote = queue_pair(attributes->remote_qp);
    }
    return 0;
  };
  it.destroy_qp = [](verbs::Qp* base) {
    queue_pairs[base->number] = nullptr;
    delete static_cast<NicQp*>(base);
    return 0;
  };
  it.create_ah = [](verbs::Pd* pd, verbs::AddressAttributes*) {
    return new verbs::AddressHandle{pd->context, pd, 0};
  };
  it.destroy_ah = [](verbs::AddressHandle* address) {
    delete address;
    return 0;
  };
  it.status_text = [](int) { return "an error"; };
  return it;
}

// --- Hosts

struct Variant {
  const char* name;
  const char* service;
  std::uint32_t paths;
  std::uint32_t peers;
  Bytes window_bytes_min;
  const char* controller = "nscc";
  std::uint32_t sub_connections = 1;  ///< Of the connections; this engine has one of each.
};

TimeNs now = 1'000'000;

class Host : public tutti::wire::Arrivals {
 public:
  Host(const verbs::Functions& nic, const Variant& variant, std::uint32_t connections_max)
      : endpoint({connections_max}) {
    verbs::VerbsOptions options;
    options.device = "instant";
    options.service = variant.service;
    options.paths = variant.paths;
    options.chunk_bytes = 32768;
    options.window_bytes_min = variant.window_bytes_min;
    options.receive_buffers = connections_max > 1 ? 4096 : variant.peers > 1 ? 64 : 1024;
    options.bounce_buffers = 1;
    options.clock = [] { return now; };
    auto opened = verbs::VerbsWire::open(nic, options);
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().message().c_str());
      std::exit(1);
    }
    wire = std::move(*opened);
  }

  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) override {
    return endpoint.place(header, payload_bytes);
  }
  void arrived(const Arrival& arrival) override { endpoint.handle_datagram(now, arrival); }
  void sent(std::uint64_t) override {}

  void turn() {
    wire->receive(*this, 64);
    if (endpoint.next_deadline() <= now) {
      endpoint.handle_timeout(now);
    }
    wire->handle_timeout(now);
    do {
      has_next_ = has_next_ || endpoint.poll_transmit(now, &next_);
      if (!has_next_ || !wire->send(next_)) {
        break;
      }
      has_next_ = false;
    } while (true);
  }

  Endpoint endpoint;
  std::unique_ptr<verbs::VerbsWire> wire;
  std::vector<ConnectionHandle> connections;

 private:
  Transmission next_;
  bool has_next_ = false;
};

// Not inlined: callgrind collects within one of them.
__attribute__((noinline)) void sender_turn(Host& host) { host.turn(); }
__attribute__((noinline)) void receivers_turn(std::vector<std::unique_ptr<Host>>& hosts) {
  for (const auto& host : hosts) {
    host->turn();
  }
}

std::uint64_t wall_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

int first_core = 0;

/// This thread keeps to the n-th core from the first on that the process may use, if there are so
/// many.
void keep_to_core(int n) {
  static const cpu_set_t allowed = [] {
    cpu_set_t it;
    CPU_ZERO(&it);
    sched_getaffinity(0, sizeof it, &it);
    return it;
  }();
  n += first_core;
  if (CPU_COUNT(&allowed) <= n) {
    return;
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && n-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
    }
  }
}

/// A thread on the second core, which works while the caller waits for it.
class Elsewhere {
 public:
  Elsewhere() : thread_([this] { serve(); }) {}
  ~Elsewhere() {
    run({});
    thread_.join();
  }
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

  void run(std::function<void()> work) {
    work_ = std::move(work);
    const bool is_last = !work_;
    is_due_ = true;
    is_due_.notify_one();
    while (!is_last && is_due_) {
      is_due_.wait(true);
    }
  }

 private:
  void serve() {
    keep_to_core(1);
    while (true) {
      is_due_.wait(false);
      if (!work_) {
        return;
      }
      work_();
      is_due_ = false;
      is_due_.notify_one();
    }
  }

  std::function<void()> work_;
  std::atomic<bool> is_due_ = false;
  std::thread thread_;
};

std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

struct Cost {
  double sender_ns = 0;
  double receiver_ns = 0;
  double bytes_per_qp = 0;
  std::uint64_t qps = 0;
  std::uint64_t sent_again = 0;
};

Cost run(const Variant& variant, std::uint64_t chunks) {
  const verbs::Functions receivers_nic = functions<Receivers>();
  Host sender(functions<Sender>(), variant, variant.peers);
  std::vector<std::unique_ptr<Host>> receivers;
  std::vector<std::vector<std::byte>> buffers;
  for (std::uint32_t i = 0; i < variant.peers; ++i) {
    receivers.push_back(std::make_unique<Host>(receivers_nic, variant, 1));
  }
  const std::size_t before_bytes = resident_bytes();
  std::vector<std::uint64_t> names;
  for (std::uint32_t i = 0; i < variant.peers; ++i) {
    names.push_back(*sender.wire->add_peer(receivers[i]->wire->address(), 0));
  }
  Cost cost;
  cost.qps = variant.paths * variant.peers;
  cost.bytes_per_qp =
      static_cast<double>(resident_bytes() - before_bytes) / static_cast<double>(cost.qps);
  // One message after the other, of 64 chunks, between each pair.
  constexpr Bytes kMessageBytes = 64 * 32768;
  buffers.resize(2);
  for (auto& buffer : buffers) {
    buffer.resize(kMessageBytes);
    (void)sender.wire->register_memory(buffer);
  }
  std::vector<std::uint64_t> windows(variant.peers);
  std::vector<std::uint64_t> peers_of;
  for (std::uint32_t i = 0; i < variant.peers; ++i) {
    Host& receiver = *receivers[i];
    (void)receiver.wire->register_memory(buffers[1]);
    peers_of.push_back(*receiver.wire->add_peer(sender.wire->address(), 0));
  }
  const auto turn_all = [&] {
    now += 50'000;
    sender_turn(sender);
    nic_turn();
    receivers_turn(receivers);
    nic_turn();
  };
  const auto are_known = [&] {
    for (std::uint32_t i = 0; i < variant.peers; ++i) {
      if (!sender.wire->reach(names[i]).is_known ||
          !receivers[i]->wire->reach(peers_of[i]).is_known) {
        return false;
      }
    }
    return true;
  };
  while (!are_known()) {
    for (int i = 0; i < 100; ++i) {
      turn_all();
    }
  }
  for (std::uint32_t i = 0; i < variant.peers; ++i) {
    ConnectionOptions options;
    options.local_id = i + 1;
    options.remote_id = 1;
    options.peer = names[i];
    options.wire = sender.wire->capabilities();
    options.controller = variant.controller;
    options.wire.base_rtt_ns = 31'000;  // As the plugin takes it where the network is fast.
    options.receives = false;
    tutti::net::set_windows_and_timers(options, variant.sub_connections);
    sender.connections.push_back(*sender.endpoint.connect(now, options));
    std::swap(options.local_id, options.remote_id);
    std::swap(options.sends, options.receives);
    options.peer = peers_of[i];
    receivers[i]->connections.push_back(*receivers[i]->endpoint.connect(now, options));
  }
  std::vector<bool> wants(variant.peers, true);
  const auto post = [&](std::uint32_t i) {
    Host& receiver = *receivers[i];
    ReceiveRequest receive;
    if (variant.window_bytes_min != 0 && windows[i] == 0) {
      windows[i] = receiver.wire->open_window(buffers[1]);
    }
    if (windows[i] != 0 && !receiver.wire->has_opened(windows[i], &receive.parts[0].remote)) {
      return;
    }
    receive.parts[0].data = buffers[1].data();
    receive.parts[0].capacity_bytes = kMessageBytes;
    if (receiver.endpoint.post_receive(now, receiver.connections[0], receive).ok() &&
        sender.endpoint
            .post_send(now, sender.connections[i], {0, buffers[0].data(), kMessageBytes, i})
            .ok()) {
      wants[i] = false;
    }
  };
  Elsewhere elsewhere;
  std::uint64_t sender_ticks = 0;
  std::uint64_t receiver_ticks = 0;
  const std::uint64_t chunk_bytes = sender.wire->capabilities().chunk_bytes;
  const std::uint64_t messages =
      std::max<std::uint64_t>(chunks * chunk_bytes / kMessageBytes, variant.peers);
  std::uint64_t done = 0;
  const std::uint64_t start_ns = wall_ns();
  const std::uint64_t start_ticks = ticks();
  Event event;
  while (done < messages) {
    for (std::uint32_t i = 0; i < variant.peers; ++i) {
      if (wants[i]) {
        post(i);
      }
    }
    now += 500;
    const std::uint64_t a = ticks();
    sender_turn(sender);
    sender_ticks += ticks() - a;
    elsewhere.run([&] {
      nic_turn();
      const std::uint64_t b = ticks();
      receivers_turn(receivers);
      receiver_ticks += ticks() - b;
      nic_turn();
    });
    while (sender.endpoint.poll_event(&event)) {
      ++done;
    }
    for (std::uint32_t i = 0; i < variant.peers; ++i) {
      while (receivers[i]->endpoint.poll_event(&event)) {
        if (windows[i] != 0) {
          receivers[i]->wire->close_window(windows[i]);
          receivers[i]->turn();
          (void)receivers[i]->wire->has_closed(windows[i]);
          windows[i] = 0;
        }
        wants[i] = true;
      }
    }
  }
  const double ns_per_tick =
      static_cast<double>(wall_ns() - start_ns) / static_cast<double>(ticks() - start_ticks);
  const std::uint64_t sent = messages * kMessageBytes / chunk_bytes;
  const auto count = static_cast<double>(sent);
  cost.sender_ns = static_cast<double>(sender_ticks) * ns_per_tick / count;
  cost.receiver_ns = static_cast<double>(receiver_ticks) * ns_per_tick / count;
  for (const ConnectionHandle handle : sender.connections) {
    cost.sent_again += sender.endpoint.counters(handle)->retransmissions;
  }
  posted.clear();  // What the last answers are.
  return cost;
}

}  // namespace

int main(int argc, char** argv) {
  first_core = argc > 3 ? std::atoi(argv[3]) : 0;
  keep_to_core(0);
  const std::uint64_t chunks = 1000 * (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 400);
  const Variant variants[] = {
      {"RC, written", "rc", 32, 1, 65536},
      {"UC, written", "uc", 32, 1, 65536},
      {"UC, written, 256 paths", "uc", 256, 1, 65536},
      {"UC, written, cubic", "uc", 32, 1, 65536, "cubic"},
      {"UC, written, cubic, half", "uc", 16, 1, 65536, "cubic", 2},
      {"UC, copied", "uc", 32, 1, 0},
      {"UD, copied", "ud", 32, 1, 0},
      {"UC, written, 16 peers", "uc", 256, 16, 65536},
      {"UC, written, 235 peers", "uc", 256, 235, 65536},
  };
  std::printf("%-28s %10s %10s %10s %10s %10s\n", "variant", "sender ns", "receiver", "qps",
              "bytes/qp", "sent again");
  for (const Variant& variant : variants) {
    if (argc > 2 && std::string(argv[2]) != variant.name) {
      continue;
    }
    const Cost cost = run(variant, chunks);
    std::printf("%-28s %10.1f %10.1f %10llu %10.1f %10llu\n", variant.name, cost.sender_ns,
                cost.receiver_ns, static_cast<unsigned long long>(cost.qps), cost.bytes_per_qp,
                static_cast<unsigned long long>(cost.sent_again));
    std::fflush(stdout);
  }
  return 0;
}
