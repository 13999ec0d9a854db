// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The AF_XDP wire over fake kernels (support/fake_xsk.hpp): loss, duplicates that come late, other
// orders, wrong bytes and ECN marks on the link; kernels that answer errors, stop, or must be
// woken; few frames; MAC addresses that are unknown for a while; datagrams that arrive at the UDP
// socket; processes that get no processor for a while.
#include <algorithm>
#include <bit>
#include <cstdio>

#include "simulation/wire_network.hpp"
#include "support/fake_xsk.hpp"
#include "wire/udp/frame.hpp"
#include "wire/xdp/xdp_wire.hpp"

namespace tutti::testing {
namespace {

using transport::TimeNs;
using wire::xdp::XdpOptions;
using wire::xdp::XdpWire;

constexpr TimeNs kPauseNsMax = 1'000'000;

class XdpNetwork : public WireNetwork {
 public:
  explicit XdpNetwork(std::uint64_t seed);
  const Scenario& scenario() const override { return scenario_; }
  std::string description() const override;
  Result<std::unique_ptr<wire::Wire>> open(int end, const TimeNs* now) override {
    XdpOptions options = wires_[end];
    options.clock = [now] { return *now; };
    TUTTI_ASSIGN_OR_RETURN(std::unique_ptr<wire::Wire> wire,
                           XdpWire::open(options, fake_->kernel(end)));
    return wire;
  }
  void begin(Phase phase) override {
    phase_ = phase;
    fake_->set_faults(phase == Phase::kHealed ? FakeXskFaults{} : faults_);
  }
  void cut(bool is_cut) override { fake_->cut(is_cut); }
  void step(TimeNs now) override;
  bool may_run(int end) const override { return now_ >= paused_ns_[end]; }
  bool is_readable(int end) const override { return fake_->is_readable(end); }
  bool waits(int end) const override { return fake_->waits(end); }
  bool is_settled() override { return fake_->is_settled(); }
  std::string report(int end) const override { return fake_->report(end); }

 private:
  void draw_faults();
  void draw_end(int end);

  Draw random_;
  Scenario scenario_;
  XdpOptions wires_[2];
  FakeXskNetwork::Options options_;
  FakeXskFaults faults_;
  bool pauses_ = false;
  std::unique_ptr<FakeXskNetwork> fake_;
  Phase phase_ = Phase::kConnecting;
  TimeNs now_ = 0;
  TimeNs paused_ns_[2] = {};
};

XdpNetwork::XdpNetwork(std::uint64_t seed) : random_(seed) {
  constexpr int kMtus[] = {576, 1500, 2000, 9000};
  scenario_.controller = random_.controller();
  scenario_.messages = 1 + random_.below(24);
  scenario_.bytes_max = Bytes{1} << random_.below(19);
  scenario_.gap_ns = random_.one_in(2) ? 0 : random_.below(20'000'000 / scenario_.messages);
  scenario_.is_cut = random_.one_in(6);
  scenario_.shares_datagrams = !random_.one_in(3);
  draw_faults();
  options_.latency_ns = 1'000 + random_.below(20'000);
  options_.frame_ns = random_.one_in(3) ? 2'001 : 100 + random_.below(2'000);
  const std::uint32_t paths = 1 + random_.below(8);
  const std::uint32_t chunk_bytes = random_.one_in(4) ? 0 : 1024U << random_.below(6);
  for (int end = 0; end < 2; ++end) {
    XdpOptions& wire = wires_[end];
    wire.local = FakeXskNetwork::address(end);
    wire.interface = "fake" + std::to_string(end);
    wire.paths = paths;
    wire.chunk_bytes = chunk_bytes;
    wire.mtu_bytes = end == 0 || random_.one_in(4) ? kMtus[random_.below(4)] : wires_[0].mtu_bytes;
  }
  for (int end = 0; end < 2; ++end) {
    draw_end(end);
  }
  fake_ = std::make_unique<FakeXskNetwork>(random_.next(), options_);
}

void XdpNetwork::draw_faults() {
  faults_.loss = random_.fault(2, 0.001, 50);
  faults_.duplicate = random_.fault(3, 0.001, 100);
  faults_.hold = random_.fault(3, 0.001, 200);
  faults_.corrupt = random_.fault(3, 0.001, 50);
  faults_.mark = random_.fault(4, 0.01, 50);
  faults_.fail = random_.fault(3, 0.001, 50);
  faults_.stop = random_.fault(3, 0.0001, 50);
  faults_.refuse = random_.fault(3, 0.001, 50);
  faults_.forget = random_.fault(3, 0.01, 90);
  pauses_ = random_.one_in(4);
}

void XdpNetwork::draw_end(int end) {
  FakeXskOptions& it = options_.ends[end];
  it.is_zero_copy = random_.one_in(2);
  it.wants_wakes_always = random_.one_in(3);
  it.budget = 1 + random_.below(40);
  it.completion_ns = random_.one_in(2) ? 0 : random_.below(50'000);
  it.knows_mac = !random_.one_in(3);
  it.arp_ns = random_.one_in(2) ? 0 : random_.below(8'000'000);
  it.mtu_bytes = wires_[end].mtu_bytes;
  it.flows_elsewhere = random_.one_in(2) ? 0 : random_.below(5);
  // A packet has all its frames at once, and the ring of received frames has half of them.
  const auto least_mtu =
      static_cast<std::size_t>(std::min(wires_[0].mtu_bytes, wires_[1].mtu_bytes));
  const std::size_t content = wires_[end].chunk_bytes + transport::kHeaderBytesMax;
  const std::size_t fragments =
      wires_[end].chunk_bytes == 0
          ? wire::udp::kFragmentsMax
          : wire::udp::fragments(
                content, std::min<std::size_t>(least_mtu, 3'800) - 28 - wire::udp::kPrefixBytes);
  const auto least = static_cast<std::uint32_t>(std::bit_ceil(fragments));
  // A host that sends a few frames in a round trip has no time left for data beside its
  // acknowledgements and credit.
  it.send_frames = std::max(least, 8U) << random_.below(3);
  // Of frames that arrive faster than a step takes, the ring must hold those of a step, too.
  const std::uint32_t shift = options_.frame_ns > 2'000 ? 0 : 2;
  it.receive_frames = std::max(least, 4U) << (shift + random_.below(3));
  it.driver_frames = 1 + random_.below(it.receive_frames);
  it.unfinished_max = 8 + random_.below(2 * it.send_frames);
}

std::string XdpNetwork::description() const {
  char text[600];
  int length = std::snprintf(
      text, sizeof text,
      "xdp, %s, %u paths, %u messages of up to %llu bytes every %llu ns, chunk %u, latency %llu "
      "ns, frame %llu "
      "ns, loss %.3f, duplicate %.3f, hold %.3f, corrupt %.3f, mark %.2f, fail %.3f, stop %.4f, "
      "refuse %.3f, forget %.2f, cut %d, pauses %d, together %d",
      scenario_.controller, wires_[0].paths, scenario_.messages,
      static_cast<unsigned long long>(scenario_.bytes_max),
      static_cast<unsigned long long>(scenario_.gap_ns), wires_[0].chunk_bytes,
      static_cast<unsigned long long>(options_.latency_ns),
      static_cast<unsigned long long>(options_.frame_ns), faults_.loss, faults_.duplicate,
      faults_.hold, faults_.corrupt, faults_.mark, faults_.fail, faults_.stop, faults_.refuse,
      faults_.forget, scenario_.is_cut ? 1 : 0, pauses_ ? 1 : 0,
      scenario_.shares_datagrams ? 1 : 0);
  std::string all(text, static_cast<std::size_t>(length));
  for (int end = 0; end < 2; ++end) {
    const FakeXskOptions& it = options_.ends[end];
    length = std::snprintf(
        text, sizeof text,
        "; end %d: %s%s, MTU %d, frames %u and %u, driver %u, budget %u, unfinished %u, completion "
        "%llu ns, MAC known %d, ARP %llu ns, elsewhere %u",
        end, it.is_zero_copy ? "zero copy" : "copy", it.wants_wakes_always ? " (wakes)" : "",
        it.mtu_bytes, it.receive_frames, it.send_frames, it.driver_frames, it.budget,
        it.unfinished_max, static_cast<unsigned long long>(it.completion_ns), it.knows_mac ? 1 : 0,
        static_cast<unsigned long long>(it.arp_ns), it.flows_elsewhere);
    all.append(text, static_cast<std::size_t>(length));
  }
  return all;
}

void XdpNetwork::step(TimeNs now) {
  now_ = now;
  fake_->step(now);
  for (TimeNs& paused_ns : paused_ns_) {
    if (pauses_ && phase_ != Phase::kHealed && random_.below(500) == 0) {
      paused_ns = now + random_.below(kPauseNsMax);
    }
  }
}

}  // namespace

std::unique_ptr<WireNetwork> make_xdp_network(std::uint64_t seed) {
  return std::make_unique<XdpNetwork>(seed);
}

}  // namespace tutti::testing
