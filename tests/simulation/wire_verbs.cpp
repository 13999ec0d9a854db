// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The verbs wire over a fake NIC: loss, duplicates that come late, queue pairs that stop, fail or
// are cut off, short queues, few buffers, no memory windows, time stamps. The fake aborts where a
// payload is written while the NIC reads it.
#include <cstdio>

#include "base/dynamic_library.hpp"
#include "simulation/wire_network.hpp"
#include "support/fake_verbs.hpp"
#include "wire/verbs/verbs_wire.hpp"

namespace tutti::testing {
namespace {

using wire::verbs::VerbsOptions;
using wire::verbs::VerbsWire;

struct Fake {
  wire::verbs::Functions verbs;
  FakeVerbsControl* control = nullptr;
  void (*seed)(std::uint64_t) = nullptr;
};

/// The time that the fake NICs' clock runs by.
const transport::TimeNs* nic_now = nullptr;

/// Null: it cannot be loaded.
const Fake* load() {
  static Fake fake;
  static const bool is_loaded = [] {
    const auto functions = wire::verbs::load_library(TUTTI_FAKE_VERBS);
    const auto library = DynamicLibrary::open(TUTTI_FAKE_VERBS);
    FakeVerbsControl* (*get)() = nullptr;
    if (!functions.ok() || !library.ok() || !library->resolve("fake_verbs_control", &get) ||
        !library->resolve("fake_verbs_seed", &fake.seed)) {
      return false;
    }
    fake.verbs = *functions;
    fake.control = get();
    return true;
  }();
  return is_loaded ? &fake : nullptr;
}

class VerbsNetwork : public WireNetwork {
 public:
  VerbsNetwork(const Fake& fake, std::uint64_t seed);
  const Scenario& scenario() const override { return scenario_; }
  std::string description() const override;
  Result<std::unique_ptr<wire::Wire>> open(int end, const transport::TimeNs* now) override {
    VerbsOptions options = options_[end];
    options.clock = [now] { return *now; };
    nic_now = now;
    fake_.control->clock.host_ns = [] { return *nic_now; };
    TUTTI_ASSIGN_OR_RETURN(std::unique_ptr<wire::Wire> wire, VerbsWire::open(fake_.verbs, options));
    return wire;
  }
  void begin(Phase phase) override;
  void cut(bool is_cut) override { fake_.control->is_cut = is_cut; }

 private:
  const Fake& fake_;
  Scenario scenario_;
  const char* service_ = "uc";
  FakeVerbsControl control_;
  VerbsOptions options_[2];
};

VerbsNetwork::VerbsNetwork(const Fake& fake, std::uint64_t seed) : fake_(fake) {
  Draw random(seed);
  constexpr const char* kServices[] = {"uc", "rc", "ud"};
  service_ = kServices[random.below(3)];
  scenario_.controller = random.controller();
  const std::uint32_t paths = 1 + random.below(8);
  control_.mtu_code = static_cast<int>(3 + random.below(3));
  control_.loss = random.fault(2, 0.001, 100);
  control_.duplicate = random.fault(3, 0.001, 100);
  control_.hold = random.fault(3, 0.01, 90);
  control_.fail = random.fault(4, 0.0001, 50);
  control_.has_windows = !random.one_in(4);
  control_.completes_at_once = random.one_in(3);
  control_.inline_bytes_max = random.one_in(3) ? 0 : 256;
  scenario_.is_cut = random.one_in(6);
  for (VerbsOptions& wire : options_) {
    wire.service = service_;
    wire.paths = paths;
    wire.chunk_bytes = 1024U << random.below(6);
    wire.send_depth = 2 + random.below(30);
    wire.receive_buffers = 32 + random.below(200);
    wire.bounce_buffers = 1 + random.below(16);
    wire.window_bytes_min = random.one_in(5) ? 0 : Bytes{1024} << random.below(6);
  }
  options_[1].chunk_bytes = options_[0].chunk_bytes;
  options_[0].device = "fake_0";
  options_[1].device = "fake_1";
  for (bool& registers : scenario_.registers) {
    registers = !random.one_in(3);
  }
  scenario_.messages = 1 + random.below(24);
  scenario_.bytes_max = Bytes{1} << random.below(19);
  const bool has_stamps = random.one_in(3);
  options_[0].timestamps = options_[1].timestamps = has_stamps;
  control_.clock.mask = UINT64_MAX >> (random.one_in(2) ? 1 : 36);  // 28 bits: 1.7 s
  control_.clock.drift_ppm = random.one_in(2) ? 0 : 100;
  fake_.seed(seed);
  *fake_.control = control_;
}

std::string VerbsNetwork::description() const {
  char text[400];
  std::snprintf(text, sizeof text,
                "%s, %s, %u paths, %u messages of up to %llu bytes, loss %.3f, duplicate %.3f, "
                "hold %.2f, fail %.4f, windows %d from %llu and %llu, depth %u and %u, receive "
                "buffers %u and %u, bounce buffers %u and %u, chunk %u, registered %d and %d, cut "
                "%d, stamps %d",
                service_, scenario_.controller, options_[0].paths, scenario_.messages,
                static_cast<unsigned long long>(scenario_.bytes_max), control_.loss,
                control_.duplicate, control_.hold, control_.fail, control_.has_windows ? 1 : 0,
                static_cast<unsigned long long>(options_[0].window_bytes_min),
                static_cast<unsigned long long>(options_[1].window_bytes_min),
                options_[0].send_depth, options_[1].send_depth, options_[0].receive_buffers,
                options_[1].receive_buffers, options_[0].bounce_buffers, options_[1].bounce_buffers,
                options_[0].chunk_bytes, scenario_.registers[0] ? 1 : 0,
                scenario_.registers[1] ? 1 : 0, scenario_.is_cut ? 1 : 0,
                options_[0].timestamps ? 1 : 0);
  return text;
}

void VerbsNetwork::begin(Phase phase) {
  const bool is_healed = phase == Phase::kHealed;
  fake_.control->loss = is_healed ? 0 : control_.loss;
  fake_.control->duplicate = is_healed ? 0 : control_.duplicate;
  fake_.control->hold = is_healed ? 0 : control_.hold;
  fake_.control->fail = phase == Phase::kFaults ? control_.fail : 0;
}

}  // namespace

std::unique_ptr<WireNetwork> make_verbs_network(std::uint64_t seed) {
  const Fake* const fake = load();
  return fake == nullptr ? nullptr : std::make_unique<VerbsNetwork>(*fake, seed);
}

}  // namespace tutti::testing
