// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/table.hpp"

namespace tutti::select {
namespace {

// The switch points of the MPI4AI paper: up to these sizes native MPI was the faster one on MI100,
// MI250 and MI300X, on one node and on two over TCP.
constexpr Bytes kNativeUpToOneNode = 8 << 10;
constexpr Bytes kNativeUpToSeveralNodes = 32 << 10;
// Our own kernels against NCCL on 2 x H200 (bench/results/h200x2-mpich): faster up to here.
constexpr Bytes kDirectReductionsUpTo = 16 << 20;
constexpr Bytes kDirectMovementsUpTo = 4 << 20;

Rule rule(Backend backend, const std::string& why) {
  Rule result;
  result.plan.backend = backend;
  result.composition_fits = true;
  result.is_shipped = true;
  result.origin = "default: " + why;
  return result;
}

Rule device_rule(Backend backend, const std::string& why) {
  Rule result = rule(backend, why);
  result.memory = Memory::kDevice;
  return result;
}

}  // namespace

Table without_mpi(Table table) {
  for (Rule& rule : table.rules) {
    rule.optional |= rule.is_shipped;
  }
  Rule ccl = device_rule(Backend::kCcl, "device memory without an MPI");
  ccl.optional = true;
  Rule direct = rule(Backend::kDirect, "what is left without an MPI");
  direct.plan.composition = Composition::kGamma;
  direct.composition_fits = false;
  direct.optional = true;
  table.rules.insert(table.rules.end(), {ccl, direct});
  return table;
}

Table default_table() {
  Rule host = rule(Backend::kMpi, "host memory is the MPI library's own field");
  host.memory = Memory::kHost;

  // Not left to the refusal of the last rule but one: these are no fall-backs to report.
  Rule without_ccl = rule(Backend::kMpi, "no CCL has barrier, scan or exscan");
  without_ccl.collectives = {Collective::kBarrier, Collective::kScan, Collective::kExscan};

  Rule direct = device_rule(Backend::kDirect, "own kernels on GPUs that map each other's memory");
  direct.plan.composition = Composition::kGamma;
  direct.composition_fits = false;
  direct.optional = true;
  direct.nodes = Range{1, 1};
  direct.ranks = Range{2, 4};  // Two and four have been measured.
  Rule direct_reductions = direct;
  direct_reductions.collectives = {Collective::kReduce, Collective::kAllreduce,
                                   Collective::kReduceScatter, Collective::kReduceScatterBlock};
  direct_reductions.bytes = Range{0, kDirectReductionsUpTo};
  Rule direct_movements = direct;
  direct_movements.collectives = {Collective::kBcast,      Collective::kGather,
                                  Collective::kScatter,    Collective::kAllgather,
                                  Collective::kAllgatherv, Collective::kAlltoall};
  direct_movements.bytes = Range{0, kDirectMovementsUpTo};

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
  Rule direct_rest = direct;
  direct_rest.origin = "default: what the CCL cannot carry, on GPUs that map each other's memory";
  Rule rest = device_rule(Backend::kMpi, "what the CCL cannot carry");
  return Table{{host, without_ccl, direct_reductions, direct_movements, small, small_far, large,
                direct_rest, rest}};
}

}  // namespace tutti::select
