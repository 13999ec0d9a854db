// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What wire_simulation runs over: the code of a kind of wire and a fake of what is below it, with
// settings and faults drawn from a seed. A run is a function of its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/random.hpp"
#include "base/result.hpp"
#include "transport/types.hpp"
#include "wire/wire.hpp"

namespace tutti::testing {

/// What does not depend on the kind of wire.
struct Scenario {
  std::uint32_t messages = 1;
  Bytes bytes_max = 0;
  transport::TimeNs gap_ns = 0;  ///< From one send to the next.
  bool registers[2] = {};
  const char* controller = "cubic";
  bool is_cut = false;            ///< For a while.
  bool shares_datagrams = false;  ///< Small packets leave together, as net::Engine sends them.
};

/// Draws settings and faults.
class Draw : public Random {
 public:
  using Random::Random;
  bool one_in(std::uint32_t n) { return below(n) == 0; }
  /// In one of n cases less than `most` times the unit, else 0.
  double fault(std::uint32_t n, double unit, std::uint32_t most) {
    return one_in(n) ? unit * below(most) : 0;
  }
  const char* controller() {
    constexpr const char* kControllers[] = {"cubic", "nscc", "swift", "rccc"};
    return kControllers[below(4)];
  }
};

enum class Phase : std::uint8_t {
  kConnecting,  ///< No faults that a set-up would wait for.
  kFaults,
  kHealed,
};

/// An invariant that does not hold.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool is_so, const char* what) {
  if (!is_so) {
    throw Violation(what);
  }
}
inline void require(bool is_so, const std::string& what) {
  if (!is_so) {
    throw Violation(what);
  }
}

/// Two ends, 0 and 1. Lives longer than the wires.
class WireNetwork {
 public:
  virtual ~WireNetwork() = default;
  virtual const Scenario& scenario() const = 0;
  /// All settings, in a line.
  virtual std::string description() const = 0;
  virtual Result<std::unique_ptr<wire::Wire>> open(int end, const transport::TimeNs* now) = 0;
  virtual void begin(Phase phase) = 0;
  virtual void cut(bool is_cut) = 0;
  /// What happens outside of both processes until `now`.
  virtual void step(transport::TimeNs now) { (void)now; }
  /// Whether the process has a processor now.
  virtual bool may_run(int end) const {
    (void)end;
    return true;
  }
  /// Whether the wire's descriptor is readable. A wire without one is polled.
  virtual bool is_readable(int end) const {
    (void)end;
    return true;
  }
  /// Whether what is below waits for the wire, which then has a deadline.
  virtual bool waits(int end) const {
    (void)end;
    return false;
  }
  /// Nothing is on its way, and what was lent to either side is back.
  virtual bool is_settled() { return true; }
  virtual std::string report(int end) const {
    (void)end;
    return {};
  }
};

/// Null: the fake cannot be loaded.
std::unique_ptr<WireNetwork> make_verbs_network(std::uint64_t seed);
std::unique_ptr<WireNetwork> make_xdp_network(std::uint64_t seed);

}  // namespace tutti::testing
