// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The transport over the verbs wire and a fake NIC, in virtual time: two hosts, messages both ways,
// faults drawn from a seed (loss, duplicates that come late, queue pairs that stop, fail or are cut
// off, short queues, few buffers, no memory windows). A run has a phase with faults and one
// without, in which everything must end.
//
//   wire_simulation --seeds N [--first F] | --seed S [--verbose], with --twice, --keep-going
//
// Invariants: each message arrives whole, once and nowhere else; memory that the program has back
// is not written any more; payloads stay untouched while the NIC reads them (the fake aborts);
// memory is deregistered without a use of it left; all ends in time; a run is a function of its
// seed. The exit status is 1 if one does not hold.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/dynamic_library.hpp"
#include "base/random.hpp"
#include "support/fake_verbs.hpp"
#include "transport/endpoint.hpp"
#include "wire/verbs/verbs_wire.hpp"

namespace {

using namespace tutti::transport;
using tutti::Bytes;
using tutti::Random;
using tutti::testing::FakeVerbsControl;
using tutti::wire::verbs::Functions;
using tutti::wire::verbs::VerbsOptions;
using tutti::wire::verbs::VerbsWire;

constexpr unsigned kSecondsOfOneSeed = 60;
constexpr TimeNs kStepNs = 2'000;
constexpr TimeNs kFaultsNs = 20'000'000;
constexpr TimeNs kLivenessNs = 20'000'000'000;
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};
constexpr std::byte kGivenBack{0x5a};

char current_seed[64];
bool is_verbose = false;

struct Violation {
  std::string what;
};

void require(bool is_so, const std::string& what) {
  if (!is_so) {
    throw Violation{what};
  }
}

struct Knobs {
  const char* service = "uc";
  std::uint32_t paths = 1;
  FakeVerbsControl control;
  VerbsOptions wires[2];
  std::uint32_t messages = 1;
  Bytes bytes_max = 0;
  bool registers[2] = {};
  const char* controller = "cubic";
  bool is_cut = false;  ///< For a while.
};

Knobs draw(std::uint64_t seed) {
  Random random(seed);
  const auto one_in = [&](std::uint32_t n) { return random.below(n) == 0; };
  Knobs knobs;
  constexpr const char* kServices[] = {"uc", "rc", "ud"};
  constexpr const char* kControllers[] = {"cubic", "nscc", "swift", "rccc"};
  knobs.service = kServices[random.below(3)];
  knobs.controller = kControllers[random.below(4)];
  knobs.paths = 1 + random.below(8);
  knobs.control.mtu_code = static_cast<int>(3 + random.below(3));
  if (one_in(2)) {
    knobs.control.loss = 0.001 * random.below(100);
  }
  if (one_in(3)) {
    knobs.control.duplicate = 0.001 * random.below(100);
  }
  if (one_in(3)) {
    knobs.control.hold = 0.01 * random.below(90);
  }
  if (one_in(4)) {
    knobs.control.fail = 0.0001 * random.below(50);
  }
  knobs.control.has_windows = !one_in(4);
  knobs.control.completes_at_once = one_in(3);
  knobs.control.inline_bytes_max = one_in(3) ? 0 : 256;
  knobs.is_cut = one_in(6);
  for (VerbsOptions& wire : knobs.wires) {
    wire.service = knobs.service;
    wire.paths = knobs.paths;
    wire.chunk_bytes = 1024U << random.below(6);
    wire.send_depth = 2 + random.below(30);
    wire.receive_buffers = 32 + random.below(200);
    wire.bounce_buffers = 1 + random.below(16);
    wire.window_bytes_min = one_in(5) ? 0 : Bytes{1024} << random.below(6);
  }
  knobs.wires[1].chunk_bytes = knobs.wires[0].chunk_bytes;
  knobs.wires[0].device = "fake_0";
  knobs.wires[1].device = "fake_1";
  for (bool& registers : knobs.registers) {
    registers = !one_in(3);
  }
  knobs.messages = 1 + random.below(24);
  knobs.bytes_max = Bytes{1} << random.below(19);
  return knobs;
}

std::string describe(const Knobs& knobs) {
  char text[400];
  std::snprintf(
      text, sizeof text,
      "%s, %s, %u paths, %u messages of up to %llu bytes, loss %.3f, duplicate %.3f, "
      "hold %.2f, fail %.4f, windows %d from %llu and %llu, depth %u and %u, receive "
      "buffers %u and %u, bounce buffers %u and %u, chunk %u, registered %d and %d, cut %d\n",
      knobs.service, knobs.controller, knobs.paths, knobs.messages,
      static_cast<unsigned long long>(knobs.bytes_max), knobs.control.loss, knobs.control.duplicate,
      knobs.control.hold, knobs.control.fail, knobs.control.has_windows ? 1 : 0,
      static_cast<unsigned long long>(knobs.wires[0].window_bytes_min),
      static_cast<unsigned long long>(knobs.wires[1].window_bytes_min), knobs.wires[0].send_depth,
      knobs.wires[1].send_depth, knobs.wires[0].receive_buffers, knobs.wires[1].receive_buffers,
      knobs.wires[0].bounce_buffers, knobs.wires[1].bounce_buffers, knobs.wires[0].chunk_bytes,
      knobs.registers[0] ? 1 : 0, knobs.registers[1] ? 1 : 0, knobs.is_cut ? 1 : 0);
  return text;
}

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

/// What net::Engine does with an endpoint and a wire that completes sends late and has windows.
class Host : public tutti::wire::Arrivals {
 public:
  Host(const Functions& verbs, const VerbsOptions& options, const TimeNs* now)
      : now_(now), endpoint_({4}) {
    auto opened = VerbsWire::open(verbs, options);
    require(opened.ok(), "open: " + opened.status().message());
    wire = std::move(*opened);
  }

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

  void turn() {
    wire->receive(*this, 8);
    if (endpoint_.next_deadline() <= *now_) {
      endpoint_.handle_timeout(*now_);
    }
    wire->handle_timeout(*now_);
    for (int i = 0; i < 8; ++i) {
      if (!has_next_ && !(has_next_ = endpoint_.poll_transmit(*now_, &next_))) {
        break;
      }
      next_.cookie = first_unsent_ + unsent_.size();
      if (!wire->send(next_)) {
        break;
      }
      if (next_.payload != nullptr) {
        unsent_.push_back(next_.payload);
      }
      has_next_ = false;
    }
  }

  /// Packets that there was no room for: their buffer is given back.
  void drop_blocked(const std::vector<std::byte>& buffer) {
    has_next_ = has_next_ && !(next_.payload != nullptr && next_.payload >= buffer.data() &&
                               next_.payload < buffer.data() + buffer.size());
  }

  Endpoint& endpoint() { return endpoint_; }

  std::unique_ptr<VerbsWire> wire;
  ConnectionHandle connection;
  std::uint64_t peer = 0;
  std::uint64_t packets = 0;

 private:
  const TimeNs* now_;
  Endpoint endpoint_;
  Transmission next_;
  bool has_next_ = false;
  std::deque<const std::byte*> unsent_;
  std::uint64_t first_unsent_ = 0;
};

class World {
 public:
  World(const Functions& verbs, FakeVerbsControl* control, std::uint64_t seed, Knobs knobs)
      : control_(control), knobs_(std::move(knobs)), random_(seed ^ 0x5eed) {
    *control_ = knobs_.control;
    for (int i = 0; i < 2; ++i) {
      knobs_.wires[i].clock = [this] { return now_; };
      hosts_[i] = std::make_unique<Host>(verbs, knobs_.wires[i], &now_);
    }
    // What a set-up would wait for is not what this is about.
    const double losses[] = {control_->loss, control_->fail};
    control_->fail = 0;
    for (int i = 0; i < 2; ++i) {
      const auto peer = hosts_[i]->wire->add_peer(hosts_[1 - i]->wire->address(), 0);
      require(peer.ok(), "add_peer: " + peer.status().message());
      hosts_[i]->peer = *peer;
    }
    wait("connecting", [&] {
      return hosts_[0]->wire->reach(hosts_[0]->peer).is_known &&
             hosts_[1]->wire->reach(hosts_[1]->peer).is_known;
    });
    control_->loss = losses[0];
    control_->fail = losses[1];
    for (std::uint32_t i = 0; i < 2; ++i) {
      ConnectionOptions options;
      options.local_id = options.remote_id = 1;
      options.local_incarnation = 1 + i;
      options.remote_incarnation = 2 - i;
      options.peer = hosts_[i]->peer;
      options.wire = hosts_[i]->wire->capabilities();
      options.wire.chunk_bytes =
          std::min(options.wire.chunk_bytes, hosts_[1 - i]->wire->capabilities().chunk_bytes);
      options.controller = knobs_.controller;
      options.loss.give_up_ns = 60'000'000'000;
      hosts_[i]->connect(options);
    }
  }

  std::uint64_t run() {
    post();
    const TimeNs faults_end_ns = now_ + kFaultsNs;
    const TimeNs cut_ns = now_ + kFaultsNs / 4;
    while (now_ < faults_end_ns && !is_done()) {
      control_->is_cut = knobs_.is_cut && now_ > cut_ns && now_ < 2 * cut_ns;
      step();
    }
    control_->loss = control_->duplicate = control_->hold = control_->fail = 0;
    control_->is_cut = false;
    const TimeNs end_ns = now_ + kLivenessNs;
    while (!is_done()) {
      require(now_ < end_ns, "liveness: " + open());
      step();
    }
    // What is still on its way may touch nothing any more.
    for (int i = 0; i < 1500; ++i) {
      step();
    }
    check_memory();
    end();
    return hash_;
  }

  std::uint64_t packets() const { return hosts_[0]->packets + hosts_[1]->packets; }

 private:
  template <class Done>
  void wait(const char* what, Done done) {
    const TimeNs end_ns = now_ + kLivenessNs;
    while (!done()) {
      require(now_ < end_ns, std::string("liveness: ") + what);
      step();
    }
  }

  void post() {
    for (int i = 0; i < 2; ++i) {
      messages_[i].resize(knobs_.messages);
      for (std::size_t n = 0; n < messages_[i].size(); ++n) {
        Message& it = messages_[i][n];
        it.bytes = random_.below(static_cast<std::uint32_t>(knobs_.bytes_max) + 1);
        it.sent.resize(it.bytes + 1);
        for (std::byte& byte : it.sent) {
          byte = static_cast<std::byte>(random_.next());
        }
        it.memory.assign(it.bytes + 17 + 2 * kGuardBytes, kGuard);
        if (knobs_.registers[i]) {
          require(hosts_[i]->wire->register_memory(it.sent).ok(), "register_memory");
        }
        if (knobs_.registers[1 - i]) {
          require(hosts_[1 - i]->wire->register_memory(it.memory).ok(), "register_memory");
        }
        SendRequest send;
        send.data = it.sent.data();
        send.bytes = it.bytes;
        send.context = n;
        require(hosts_[i]->endpoint().post_send(now_, hosts_[i]->connection, send).ok(),
                "post_send");
      }
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
          if (knobs_.registers[i]) {
            hosts_[i]->wire->deregister_memory(it.sent);
          }
        }
      }
      if (it.receive_done && !it.receive_ended &&
          (it.window == 0 || hosts_[1 - i]->wire->has_closed(it.window))) {
        it.receive_ended = true;
        for (std::size_t at = 0; at < it.bytes; ++at) {
          require(it.place()[at] == it.sent[at], "delivery: byte " + std::to_string(at) + " of " +
                                                     std::to_string(it.bytes) + " is wrong");
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

  void step() {
    now_ += kStepNs;
    for (int i = 0; i < 2; ++i) {
      post_receives(1 - i);
      hosts_[i]->turn();
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
        if (knobs_.registers[1 - i]) {
          hosts_[1 - i]->wire->deregister_memory(it.memory);
        }
      }
      if (is_verbose) {
        std::printf("end %d: %llu packets%s\n", i,
                    static_cast<unsigned long long>(hosts_[i]->packets),
                    hosts_[i]->wire->report().c_str());
      }
    }
  }

  FakeVerbsControl* control_;
  Knobs knobs_;
  Random random_;
  TimeNs now_ = 1'000'000;
  std::vector<Message> messages_[2];  ///< By sender.
  std::unique_ptr<Host> hosts_[2];
  std::uint64_t hash_ = 0;
};

struct Fake {
  Functions verbs;
  FakeVerbsControl* control = nullptr;
  void (*seed)(std::uint64_t) = nullptr;
};

bool load(Fake* fake) {
  const auto functions = tutti::wire::verbs::load_library(TUTTI_FAKE_VERBS);
  const auto library = tutti::DynamicLibrary::open(TUTTI_FAKE_VERBS);
  FakeVerbsControl* (*get)() = nullptr;
  if (!functions.ok() || !library.ok() || !library->resolve("fake_verbs_control", &get) ||
      !library->resolve("fake_verbs_seed", &fake->seed)) {
    return false;
  }
  fake->verbs = *functions;
  fake->control = get();
  return true;
}

std::uint64_t run_once(const Fake& fake, std::uint64_t seed, std::uint64_t* packets) {
  fake.seed(seed);
  World world(fake.verbs, fake.control, seed, draw(seed));
  const std::uint64_t hash = world.run();
  *packets += world.packets();
  return hash;
}

bool run(const Fake& fake, std::uint64_t seed, bool is_twice, std::uint64_t* packets) {
  std::snprintf(current_seed, sizeof current_seed, "seed %llu",
                static_cast<unsigned long long>(seed));
  alarm(kSecondsOfOneSeed);
  if (is_verbose) {
    std::printf("%s", describe(draw(seed)).c_str());
  }
  try {
    const std::uint64_t hash = run_once(fake, seed, packets);
    require(!is_twice || run_once(fake, seed, packets) == hash, "determinism: two runs differ");
  } catch (const Violation& violation) {
    std::printf("%s%s: %s\n", describe(draw(seed)).c_str(), current_seed, violation.what.c_str());
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
                 "usage: wire_simulation --seeds N [--first F] | --seed S [--verbose], with "
                 "--twice, --keep-going\n");
    return 2;
  }
  Fake fake;
  if (!load(&fake)) {
    std::fprintf(stderr, "wire_simulation: %s cannot be loaded\n", TUTTI_FAKE_VERBS);
    return 2;
  }
  std::signal(SIGABRT, on_signal);
  std::signal(SIGALRM, on_signal);
  std::uint64_t failures = 0;
  std::uint64_t packets = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    if (!run(fake, seed, is_twice, &packets)) {
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
