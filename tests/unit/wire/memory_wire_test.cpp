// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The contract of a wire: on the simplest one, when it completes sends at once and when it does so
// late, and on the fault wire when it makes no faults.
#include "support/memory_wire.hpp"

#include "support/wire_contract.hpp"
#include "wire/fault/fault_wire.hpp"

namespace tutti::wire {
namespace {

using testing::MemoryNetwork;
using testing::MemoryWire;
using testing::WirePair;

WirePair memory_pair() {
  auto network = std::make_shared<MemoryNetwork>();
  return {network, std::make_unique<MemoryWire>(network.get()),
          std::make_unique<MemoryWire>(network.get())};
}

/// Like NICs that are polled.
WirePair late_pair() {
  transport::WireCapabilities capabilities = MemoryNetwork::default_capabilities();
  capabilities.sends_complete_late = true;
  auto network = std::make_shared<MemoryNetwork>(capabilities);
  return {network, std::make_unique<MemoryWire>(network.get()),
          std::make_unique<MemoryWire>(network.get())};
}

/// Behind a fault wire that leaves everything as it is.
WirePair faultless_pair() {
  WirePair pair = memory_pair();
  const auto clock = [] { return transport::TimeNs{1}; };
  pair.a = std::make_unique<fault::FaultWire>(std::move(pair.a), fault::FaultPlan{}, clock);
  pair.b = std::make_unique<fault::FaultWire>(std::move(pair.b), fault::FaultPlan{}, clock);
  return pair;
}

class MemoryContract : public ::testing::TestWithParam<testing::WireCheck> {};
TEST_P(MemoryContract, holds) { GetParam().run(memory_pair); }
INSTANTIATE_TEST_SUITE_P(wire, MemoryContract, ::testing::ValuesIn(testing::wire_checks()),
                         testing::wire_check_name);

class LateContract : public ::testing::TestWithParam<testing::WireCheck> {};
TEST_P(LateContract, holds) { GetParam().run(late_pair); }
INSTANTIATE_TEST_SUITE_P(wire, LateContract, ::testing::ValuesIn(testing::wire_checks()),
                         testing::wire_check_name);

class FaultContract : public ::testing::TestWithParam<testing::WireCheck> {};
TEST_P(FaultContract, holds) { GetParam().run(faultless_pair); }
INSTANTIATE_TEST_SUITE_P(wire, FaultContract, ::testing::ValuesIn(testing::wire_checks()),
                         testing::wire_check_name);

TEST(memory_wire, send__a_full_queue_has_no_room) {
  MemoryNetwork network(MemoryNetwork::default_capabilities(), 2);
  MemoryWire a(&network);
  MemoryWire b(&network);
  const std::uint64_t peer = *a.add_peer(b.address(), 0);
  const testing::TestPacket packet(1, peer, 24, 0);
  EXPECT_TRUE(a.send(packet.transmission));
  EXPECT_TRUE(a.send(packet.transmission));
  EXPECT_FALSE(a.send(packet.transmission));
  testing::Collector collector;
  EXPECT_EQ(1U, b.receive(collector, 1));
  EXPECT_TRUE(a.send(packet.transmission));
}

}  // namespace
}  // namespace tutti::wire
