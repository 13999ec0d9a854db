// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/table.hpp"

namespace tutti::select {
namespace {

// The switch points of the MPI4AI paper: up to these sizes native MPI was the faster one on MI100,
// MI250 and MI300X, on one node and on two over TCP.
constexpr Bytes kNativeUpToOneNode = 8 << 10;
constexpr Bytes kNativeUpToSeveralNodes = 32 << 10;

Rule rule(Backend backend, const std::string& why) {
  Rule result;
  result.plan.backend = backend;
  result.composition_fits = true;
  result.origin = "default: " + why;
  return result;
}

Rule device_rule(Backend backend, const std::string& why) {
  Rule result = rule(backend, why);
  result.memory = Memory::kDevice;
  return result;
}

}  // namespace

Table default_table() {
  Rule host = rule(Backend::kMpi, "host memory is the MPI library's own field");
  host.memory = Memory::kHost;

  // Not left to the refusal of the last rule but one: these are no fall-backs to report.
  Rule without_ccl = rule(Backend::kMpi, "no CCL has barrier, scan or exscan");
  without_ccl.collectives = {Collective::kBarrier, Collective::kScan, Collective::kExscan};

  Rule small = device_rule(Backend::kMpi, "small messages on one node are faster through the MPI");
  small.nodes = Range{1, 1};
  small.bytes = Range{0, kNativeUpToOneNode};

  Rule small_far =
      device_rule(Backend::kMpi, "small messages across nodes are faster through the MPI");
  small_far.nodes = Range{2, UINT64_MAX};
  small_far.bytes = Range{0, kNativeUpToSeveralNodes};

  // Without predicates on operation and type: what the CCL refuses is reported with its reason
  // and goes on to the last rule.
  Rule large = device_rule(Backend::kCcl, "device memory");
  Rule rest = device_rule(Backend::kMpi, "what the CCL cannot carry");
  return Table{{host, without_ccl, small, small_far, large, rest}};
}

}  // namespace tutti::select
