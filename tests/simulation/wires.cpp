// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The transport over the code of a wire and a fake of what is below it, in virtual time: two hosts,
// messages both ways, settings and faults drawn from a seed (wire_verbs.cpp, wire_xdp.cpp). A run
// has a phase with faults and one without, in which everything must end.
//
//   wire_simulation [--wire verbs|xdp] --seeds N [--first F] | --seed S [--verbose],
//                   with --twice, --keep-going
//
// Invariants: each message arrives whole, once and nowhere else; memory that the program has back
// is not written any more; payloads stay untouched while a NIC reads them; memory is deregistered
// without a use of it left; what the fake checks; all ends in time; a run is a function of its
// seed. The exit status is 1 if one does not hold.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/random.hpp"
#include "simulation/wire_network.hpp"
#include "transport/endpoint.hpp"
#include "transport/packet.hpp"

namespace {

using namespace tutti::transport;
using tutti::Bytes;
using tutti::Random;
using tutti::testing::Phase;
using tutti::testing::require;
using tutti::testing::Scenario;
using tutti::testing::Violation;
using tutti::testing::WireNetwork;

constexpr unsigned kSecondsOfOneSeed = 60;
constexpr TimeNs kStepNs = 2'000;
constexpr TimeNs kFaultsNs = 20'000'000;
constexpr TimeNs kLivenessNs = 20'000'000'000;
constexpr TimeNs kBlockedNs = 100'000;        ///< Until a wire without room is tried again.
constexpr TimeNs kPendingNsMax = 10'000'000;  ///< A wire's own deadline, if it has something to do.
constexpr std::size_t kPacketsOfTurn = 8;
constexpr std::size_t kSmallBytes = 1'400;  ///< Shorter packets may leave together.
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};
constexpr std::byte kGivenBack{0x5a};

char current_seed[64];
bool is_verbose = false;

struct Message {
  std::vector<std::byte> sent;
  std::vector<std::byte> memory;  ///< Of the receive, with guards around it.
  Bytes bytes = 0;
  bool send_done = false;
  bool send_ended = false;  ///< And its buffer is the program's again.
  bool receive_done = false;
  bool receive_ended = false;  ///< Same.
  std::uint64_t window = 0;
  bool is_posted = false;

  std::span<std::byte> place() { return std::span(memory).subspan(kGuardBytes, bytes + 17); }
  std::byte expected(std::size_t i) const { return i < bytes ? sent[i] : std::byte{0}; }
};

/// What net::Engine does with an endpoint and a wire.
class Host : public tutti::wire::Arrivals {
 public:
  Host(std::unique_ptr<tutti::wire::Wire> opened, bool shares_datagrams, const TimeNs* now)
      : wire(std::move(opened)),
        now_(now),
        endpoint_({4}),
        completes_late_(wire->capabilities().sends_complete_late),
        batch_max_(shares_datagrams ? tutti::wire::kTogetherMax : 1) {}

  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) override {
    return endpoint_.place(header, payload_bytes);
  }
  void arrived(const Arrival& arrival) override {
    ++packets;
    endpoint_.handle_datagram(*now_, arrival);
  }
  void sent(std::uint64_t cookie) override {
    require(cookie - first_unsent_ < unsent_.size(), "a cookie that nobody gave");
    require(unsent_[cookie - first_unsent_] != nullptr, "a packet was told as sent twice");
    unsent_[cookie - first_unsent_] = nullptr;
    while (!unsent_.empty() && unsent_.front() == nullptr) {
      unsent_.pop_front();
      ++first_unsent_;
    }
  }

  bool reads(const std::vector<std::byte>& buffer) const {
    return std::any_of(unsent_.begin(), unsent_.end(), [&](const std::byte* payload) {
      return payload != nullptr && payload >= buffer.data() &&
             payload < buffer.data() + buffer.size();
    });
  }

  void connect(const ConnectionOptions& options) {
    auto made = endpoint_.connect(*now_, options);
    require(made.ok(), "connect: " + made.status().message());
    connection = *made;
  }

  /// Something was posted.
  void wake() { has_more_ = true; }

  /// Whether its thread runs: something was posted, or a deadline is over.
  bool is_awake() const {
    return has_more_ ||
           *now_ >= std::min({blocked_ns_, endpoint_.next_deadline(), wire->next_deadline()});
  }

  void turn() {
    const bool has_received = wire->receive(*this, kPacketsOfTurn) > 0;
    if (endpoint_.next_deadline() <= *now_) {
      endpoint_.handle_timeout(*now_);
    }
    wire->handle_timeout(*now_);
    std::size_t sent = 0;
    while (sent < kPacketsOfTurn && fill_batch()) {
      const std::size_t taken = send_batch();
      sent += taken;
      if (taken == 0) {
        break;
      }
    }
    has_more_ = has_received || (sent > 0 && batch_.empty());
    blocked_ns_ = batch_.empty() ? kNever : *now_ + kBlockedNs;
  }

  /// Packets that there was no room for: their buffer is given back.
  void drop_blocked(const std::vector<std::byte>& buffer) {
    std::erase_if(batch_, [&](const Transmission& it) {
      return it.payload != nullptr && it.payload >= buffer.data() &&
             it.payload < buffer.data() + buffer.size();
    });
  }

  Endpoint& endpoint() { return endpoint_; }

  std::unique_ptr<tutti::wire::Wire> wire;
  ConnectionHandle connection;
  std::uint64_t peer = 0;
  std::uint64_t packets = 0;

 private:
  /// Packets that may share a datagram: at most the last one has a path of its own, or is long.
  bool fill_batch() {
    const auto is_last = [](const Transmission& it) {
      return !it.is_control || is_path_probe(it) ||
             it.header_bytes + it.payload_bytes > kSmallBytes;
    };
    Transmission next;
    while (batch_.size() < batch_max_ && (batch_.empty() || !is_last(batch_.back())) &&
           endpoint_.poll_transmit(*now_, &next)) {
      batch_.push_back(next);
    }
    return !batch_.empty();
  }

  /// How many of them the wire has taken.
  std::size_t send_batch() {
    std::uint64_t cookie = first_unsent_ + unsent_.size();
    for (Transmission& it : batch_) {
      it.cookie = it.payload == nullptr ? 0 : cookie++;
    }
    const std::size_t taken = wire->send_together(batch_);
    for (std::size_t i = 0; completes_late_ && i < taken; ++i) {
      if (batch_[i].payload != nullptr) {
        unsent_.push_back(batch_[i].payload);
      }
    }
    batch_.erase(batch_.begin(), batch_.begin() + static_cast<std::ptrdiff_t>(taken));
    return taken;
  }

  const TimeNs* now_;
  Endpoint endpoint_;
  bool completes_late_;
  std::size_t batch_max_;
  std::vector<Transmission> batch_;
  bool has_more_ = true;
  TimeNs blocked_ns_ = kNever;
  std::deque<const std::byte*> unsent_;
  std::uint64_t first_unsent_ = 0;
};

class World {
 public:
  World(WireNetwork* network, std::uint64_t seed)
      : network_(*network), scenario_(network->scenario()), random_(seed ^ 0x5eed) {
    for (int i = 0; i < 2; ++i) {
      auto opened = network_.open(i, &now_);
      require(opened.ok(), "open: " + opened.status().message());
      hosts_[i] = std::make_unique<Host>(std::move(*opened), scenario_.shares_datagrams, &now_);
    }
    network_.begin(Phase::kConnecting);
    for (int i = 0; i < 2; ++i) {
      const auto peer = hosts_[i]->wire->add_peer(hosts_[1 - i]->wire->address(), 0);
      require(peer.ok(), "add_peer: " + peer.status().message());
      hosts_[i]->peer = *peer;
    }
    wait("connecting", [&] {
      return hosts_[0]->wire->reach(hosts_[0]->peer).is_known &&
             hosts_[1]->wire->reach(hosts_[1]->peer).is_known;
    });
    network_.begin(Phase::kFaults);
    for (std::uint32_t i = 0; i < 2; ++i) {
      ConnectionOptions options;
      options.local_id = options.remote_id = 1;
      options.local_incarnation = 1 + i;
      options.remote_incarnation = 2 - i;
      options.peer = hosts_[i]->peer;
      options.wire = hosts_[i]->wire->capabilities();
      options.wire.chunk_bytes =
          std::min(options.wire.chunk_bytes, hosts_[1 - i]->wire->capabilities().chunk_bytes);
      options.controller = scenario_.controller;
      options.loss.give_up_ns = 60'000'000'000;
      hosts_[i]->connect(options);
    }
  }

  std::uint64_t run() {
    post();
    const TimeNs faults_end_ns = now_ + kFaultsNs;
    const TimeNs cut_ns = now_ + kFaultsNs / 4;
    while (now_ < faults_end_ns && !is_done()) {
      network_.cut(scenario_.is_cut && now_ > cut_ns && now_ < 2 * cut_ns);
      step();
    }
    network_.begin(Phase::kHealed);
    network_.cut(false);
    const TimeNs end_ns = now_ + kLivenessNs;
    while (!is_done()) {
      if (now_ >= end_ns) {
        throw Violation("liveness: " + open());
      }
      step();
    }
    // What is still on its way may touch nothing any more.
    for (int i = 0; i < 1500; ++i) {
      step();
    }
    check_memory();
    check_counters();
    wait("frames that come back", [&] { return network_.is_settled(); });
    end();
    return hash_;
  }

  std::uint64_t packets() const { return hosts_[0]->packets + hosts_[1]->packets; }

 private:
  template <class Done>
  void wait(const char* what, Done done) {
    const TimeNs end_ns = now_ + kLivenessNs;
    while (!done()) {
      if (now_ >= end_ns) {
        throw Violation(std::string("liveness: ") + what);
      }
      step();
    }
  }

  void post() {
    begin_ns_ = now_;
    for (int i = 0; i < 2; ++i) {
      messages_[i].resize(scenario_.messages);
      for (std::size_t n = 0; n < messages_[i].size(); ++n) {
        Message& it = messages_[i][n];
        it.bytes = random_.below(static_cast<std::uint32_t>(scenario_.bytes_max) + 1);
        it.sent.resize(it.bytes + 1);
        for (std::byte& byte : it.sent) {
          byte = static_cast<std::byte>(random_.next());
        }
        it.memory.assign(it.bytes + 17 + 2 * kGuardBytes, kGuard);
        if (scenario_.registers[i]) {
          require(hosts_[i]->wire->register_memory(it.sent).ok(), "register_memory");
        }
        if (scenario_.registers[1 - i]) {
          require(hosts_[1 - i]->wire->register_memory(it.memory).ok(), "register_memory");
        }
      }
      post_sends(i);
    }
  }

  /// Those whose time has come.
  void post_sends(int i) {
    for (; posted_[i] < messages_[i].size() && now_ >= begin_ns_ + posted_[i] * scenario_.gap_ns;
         ++posted_[i]) {
      SendRequest send;
      send.data = messages_[i][posted_[i]].sent.data();
      send.bytes = messages_[i][posted_[i]].bytes;
      send.context = posted_[i];
      require(hosts_[i]->endpoint().post_send(now_, hosts_[i]->connection, send).ok(), "post_send");
      hosts_[i]->wake();
    }
  }

  /// Receives are posted in their order, each once its window has opened.
  void post_receives(int i) {
    Host& host = *hosts_[1 - i];
    for (std::size_t n = 0; n < messages_[i].size(); ++n) {
      Message& it = messages_[i][n];
      if (it.is_posted) {
        continue;
      }
      const Bytes least = host.wire->capabilities().window_bytes_min;
      if (it.window == 0 && least != 0 && it.place().size() >= least) {
        it.window = host.wire->open_window(it.place());
      }
      ReceiveRequest receive;
      if (it.window != 0 && !host.wire->has_opened(it.window, &receive.parts[0].remote)) {
        return;
      }
      receive.parts[0].data = it.place().data();
      receive.parts[0].capacity_bytes = it.place().size();
      receive.context = n;
      if (!host.endpoint().post_receive(now_, host.connection, receive).ok()) {
        return;
      }
      it.is_posted = true;
      host.wake();
    }
  }

  void take_events(int i) {
    Event event;
    while (hosts_[i]->endpoint().poll_event(&event)) {
      require(event.kind != EventKind::kConnectionDone, "the connection has ended");
      require(event.outcome == Outcome::kOk, to_string(event.outcome));
      hash_ =
          tutti::mix64(hash_ ^ (now_ << 8) ^ static_cast<std::uint64_t>(i) ^ event.context << 1);
      const bool is_send = event.kind == EventKind::kSendDone;
      Message& it = messages_[is_send ? i : 1 - i].at(event.context);
      require(!(is_send ? it.send_done : it.receive_done), "a request has ended twice");
      (is_send ? it.send_done : it.receive_done) = true;
      if (!is_send) {
        require(event.part_bytes[0] == it.bytes, "another length");
        if (it.window != 0) {
          hosts_[i]->wire->close_window(it.window);
        }
      }
    }
  }

  void give_back(int i) {
    for (Message& it : messages_[i]) {
      if (it.send_done && !it.send_ended) {
        hosts_[i]->drop_blocked(it.sent);
        if (!hosts_[i]->reads(it.sent)) {
          it.send_ended = true;
          if (scenario_.registers[i]) {
            hosts_[i]->wire->deregister_memory(it.sent);
          }
        }
      }
      if (it.receive_done && !it.receive_ended &&
          (it.window == 0 || hosts_[1 - i]->wire->has_closed(it.window))) {
        it.receive_ended = true;
        const auto wrong = std::mismatch(it.sent.begin(), it.sent.end() - 1, it.place().begin());
        if (wrong.first != it.sent.end() - 1) {
          throw Violation("delivery: byte " + std::to_string(wrong.first - it.sent.begin()) +
                          " of " + std::to_string(it.bytes) + " is wrong");
        }
        check_guards(it);
        std::fill(it.memory.begin(), it.memory.end(), kGivenBack);
      }
    }
  }

  static void check_guards(const Message& it) {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    require(std::all_of(it.memory.begin(), it.memory.begin() + kGuardBytes, is_guard) &&
                std::all_of(it.memory.begin() + static_cast<std::ptrdiff_t>(kGuardBytes + it.bytes),
                            it.memory.end(), is_guard),
            "delivery: something was written beside a message");
  }

  void check_memory() {
    for (const auto& messages : messages_) {
      for (const Message& it : messages) {
        require(std::all_of(it.memory.begin(), it.memory.end(),
                            [](std::byte byte) { return byte == kGivenBack; }),
                "memory was written after it was given back");
      }
    }
  }

  /// A wire hands on what was sent, or nothing.
  void check_counters() {
    for (const auto& host : hosts_) {
      const EndpointCounters& all = host->endpoint().counters();
      const ConnectionCounters& its = *host->endpoint().counters(host->connection);
      require(all.malformed_dropped == 0 && all.strays_dropped == 0 && its.malformed_dropped == 0 &&
                  its.forgeries_dropped == 0,
              "delivery: a packet had a wrong header");
    }
  }

  void step() {
    now_ += kStepNs;
    network_.step(now_);
    for (int i = 0; i < 2; ++i) {
      post_sends(i);
      post_receives(1 - i);
      const bool is_awake = hosts_[i]->is_awake() || network_.is_readable(i);
      require(is_awake || !network_.waits(i) ||
                  hosts_[i]->wire->next_deadline() <= now_ + kPendingNsMax,
              "a wire sleeps though it has something to do");
      if (is_awake && network_.may_run(i)) {
        hosts_[i]->turn();
      }
      take_events(i);
    }
    for (int i = 0; i < 2; ++i) {
      give_back(i);
    }
  }

  bool is_done() const {
    return std::all_of(std::begin(messages_), std::end(messages_), [](const auto& messages) {
      return std::all_of(messages.begin(), messages.end(),
                         [](const Message& it) { return it.send_ended && it.receive_ended; });
    });
  }

  std::string open() const {
    std::string text;
    for (int i = 0; i < 2; ++i) {
      for (std::size_t n = 0; n < messages_[i].size(); ++n) {
        const Message& it = messages_[i][n];
        if (!it.send_ended || !it.receive_ended) {
          text += "message " + std::to_string(n) + " of end " + std::to_string(i) + " (" +
                  std::to_string(it.bytes) + " bytes): send done " + std::to_string(it.send_done) +
                  " ended " + std::to_string(it.send_ended) + ", receive posted " +
                  std::to_string(it.is_posted) + " done " + std::to_string(it.receive_done) +
                  " ended " + std::to_string(it.receive_ended) + "; ";
        }
      }
    }
    return text;
  }

  void end() {
    for (int i = 0; i < 2; ++i) {
      for (Message& it : messages_[i]) {
        if (scenario_.registers[1 - i]) {
          hosts_[1 - i]->wire->deregister_memory(it.memory);
        }
      }
      if (is_verbose) {
        std::printf("end %d: %llu packets%s%s\n", i,
                    static_cast<unsigned long long>(hosts_[i]->packets),
                    hosts_[i]->wire->report().c_str(), network_.report(i).c_str());
      }
    }
  }

  WireNetwork& network_;
  const Scenario& scenario_;
  Random random_;
  TimeNs now_ = 1'000'000;
  TimeNs begin_ns_ = 0;
  std::vector<Message> messages_[2];  ///< By sender.
  std::size_t posted_[2] = {};        ///< Sends of them.
  std::unique_ptr<Host> hosts_[2];
  std::uint64_t hash_ = 0;
};

using MakeNetwork = std::unique_ptr<WireNetwork> (*)(std::uint64_t seed);

std::uint64_t run_once(WireNetwork* network, std::uint64_t seed, std::uint64_t* packets) {
  World world(network, seed);
  const std::uint64_t hash = world.run();
  *packets += world.packets();
  return hash;
}

bool run(MakeNetwork make, std::uint64_t seed, bool is_twice, std::uint64_t* packets) {
  std::snprintf(current_seed, sizeof current_seed, "seed %llu",
                static_cast<unsigned long long>(seed));
  alarm(kSecondsOfOneSeed);
  std::string description;
  try {
    std::uint64_t hashes[2] = {};
    for (int i = 0; i < (is_twice ? 2 : 1); ++i) {
      const std::unique_ptr<WireNetwork> network = make(seed);
      description = network->description();
      if (is_verbose) {
        std::printf("%s\n", description.c_str());
      }
      hashes[i] = run_once(network.get(), seed, packets);
    }
    require(!is_twice || hashes[0] == hashes[1], "determinism: two runs differ");
  } catch (const std::exception& violation) {
    std::printf("%s\n%s: %s\n", description.c_str(), current_seed, violation.what());
    std::fflush(stdout);
    return false;
  }
  return true;
}

// A CHECK aborts, as the fake does, and a hang never returns: say at least which seed it was.
void on_signal(int signal) {
  const char* const what =
      signal == SIGALRM ? ": hang: the run takes too long\n" : ": a CHECK failed\n";
  static_cast<void>(!write(STDOUT_FILENO, current_seed, std::strlen(current_seed)));
  static_cast<void>(!write(STDOUT_FILENO, what, std::strlen(what)));
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
  bool is_twice = false;
  bool keeps_going = false;
  bool is_valid = true;
  MakeNetwork make = tutti::testing::make_verbs_network;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--seeds" && has_value) {
      count = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--first" && has_value) {
      first = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--seed" && has_value) {
      first = std::strtoull(argv[++i], nullptr, 10);
      count = 1;
    } else if (name == "--wire" && has_value) {
      const std::string wire = argv[++i];
      is_valid = is_valid && (wire == "verbs" || wire == "xdp");
      make = wire == "xdp" ? tutti::testing::make_xdp_network : tutti::testing::make_verbs_network;
    } else if (name == "--twice") {
      is_twice = true;
    } else if (name == "--keep-going") {
      keeps_going = true;
    } else if (name == "--verbose") {
      is_verbose = true;
    } else {
      is_valid = false;
    }
  }
  if (!is_valid || count == 0) {
    std::fprintf(stderr,
                 "usage: wire_simulation [--wire verbs|xdp] --seeds N [--first F] | --seed S "
                 "[--verbose], with --twice, --keep-going\n");
    return 2;
  }
  if (make(first) == nullptr) {
    std::fprintf(stderr, "wire_simulation: %s cannot be loaded\n", TUTTI_FAKE_VERBS);
    return 2;
  }
  std::signal(SIGABRT, on_signal);
  std::signal(SIGALRM, on_signal);
  std::uint64_t failures = 0;
  std::uint64_t packets = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    if (!run(make, seed, is_twice, &packets)) {
      ++failures;
      if (!keeps_going) {
        return 1;
      }
    }
  }
  std::printf("%llu seeds, %llu packets, %llu failed\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(packets), static_cast<unsigned long long>(failures));
  return failures == 0 ? 0 : 1;
}
