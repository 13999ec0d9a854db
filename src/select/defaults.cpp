// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The shipped rules: which plan carries what, where no tuning file says otherwise.
#include "select/table.hpp"

namespace tutti::select {
namespace {

// The switch points of the MPI4AI paper: up to these sizes native MPI was the faster one on MI100,
// MI250 and MI300X, on one node and on two over TCP.
constexpr Bytes kNativeUpToOneNode = 8 << 10;
constexpr Bytes kNativeUpToSeveralNodes = 32 << 10;
// Our own kernels against NCCL on 2 x H200 (bench/results/h200x2-mpich): faster up to here.
constexpr Bytes kDirectReductionsUpTo = 16 << 20;

Rule rule(const Plan& plan, const std::string& why) {
  Rule result;
  result.plan = plan;
  result.is_shipped = true;
  result.origin = "default: " + why;
  return result;
}

Rule device_rule(const Plan& plan, const std::string& why) {
  Rule result = rule(plan, why);
  result.memory = Memory::kDevice;
  return result;
}

/// Where our shared-memory kernels took less time than the MPI library's own collective, on 2 and
/// on 32 cores (bench/host_memory.py). Outside of these ranges host memory stays with the MPI: a
/// range is here only if each of its sizes was faster on both machines.
struct HostRange {
  const char* mpi;
  std::vector<Collective> collectives;
  Range ranks;
  Range bytes;  ///< Shape::bytes.
};

constexpr Bytes operator""_K(unsigned long long value) { return value << 10; }
constexpr Bytes operator""_M(unsigned long long value) { return value << 20; }

std::vector<HostRange> host_ranges() {
  using enum Collective;
  return {
      {"mpich", {kReduce, kAllreduce}, {2, 8}, {4_K, 64_M}},
      {"mpich", {kReduce, kAllreduce}, {9, 32}, {16_K, 64_M}},
      {"mpich", {kReduce}, {2, 8}, {0, 4_K}},
      {"mpich", {kReduceScatter, kReduceScatterBlock}, {2, 8}, {0, 1_M}},
      {"mpich", {kReduceScatter, kReduceScatterBlock}, {9, 32}, {0, 256_K}},
      {"mpich", {kAllgather}, {2, 2}, {0, 128_K}},
      {"mpich", {kAllgatherv}, {2, 2}, {0, 512_K}},
      {"mpich", {kAllgather, kAllgatherv}, {3, 4}, {0, 2_M}},
      {"mpich", {kAllgather, kAllgatherv}, {5, 8}, {0, 8_M}},
      {"mpich", {kAllgather, kAllgatherv}, {9, 32}, {0, 32_M}},
      {"mpich", {kAlltoall}, {2, 32}, {0, 32_K}},
      {"mpich", {kBcast}, {2, 2}, {64_K, 8_M}},  // From 16 MiB on some jobs take 1.8 times as long.
      {"mpich", {kBcast}, {3, 32}, {64_K, 64_M}},
      {"mpich", {kGather}, {3, 8}, {0, 8_M}},
      {"openmpi", {kAllreduce, kReduceScatter, kReduceScatterBlock}, {2, 2}, {4_K, 1_M}},
      {"openmpi", {kAllreduce, kReduceScatter, kReduceScatterBlock}, {3, 8}, {0, 1_M}},
      {"openmpi", {kReduceScatter, kReduceScatterBlock}, {9, 32}, {0, 64_K}},
      {"openmpi", {kAllreduce}, {9, 32}, {16_K, 64_K}},
      {"openmpi", {kReduce}, {2, 8}, {4_K, 16_K}},
      {"openmpi", {kAllgather, kAllgatherv}, {3, 4}, {0, 2_M}},
      {"openmpi", {kAllgather, kAllgatherv}, {5, 8}, {0, 8_M}},
      {"openmpi", {kAllgather, kAllgatherv}, {9, 32}, {0, 32_M}},
      {"openmpi", {kAlltoall}, {3, 32}, {0, 32_K}},
      {"openmpi", {kBcast}, {2, 2}, {1_K, 4_K}},
      {"openmpi", {kBcast}, {3, 32}, {1_K, 1_M}},
      {"openmpi", {kGather}, {3, 8}, {8_K, 2_M}},
      {"openmpi", {kScatter}, {3, 8}, {2_K, 32_K}},
  };
}

Rule host_rule(const HostRange& range) {
  Rule result = rule(DirectPlan(), "shared memory of one node, faster here than the MPI's own");
  result.optional = true;
  result.memory = Memory::kHost;
  result.nodes = Range{1, 1};
  result.oversubscribed = false;
  result.mpi = range.mpi;
  result.collectives = range.collectives;
  result.ranks = range.ranks;
  result.bytes = range.bytes;
  return result;
}

/// Host memory of several nodes without an MPI, over our transport: an algorithm of few rounds for
/// short messages, one that sends least for long ones. Sizes were measured on 4 nodes of one rank
/// with links of 1 Gb/s (tutti lab).
struct NetRange {
  std::vector<Collective> collectives;
  const char* algorithm;
  Bytes up_to;  ///< Shape::bytes; kBytesMax also where no rank knows the size.
  std::optional<Range> ranks = {};
};

std::vector<NetRange> net_ranges() {
  using enum Collective;
  return {
      {{kBarrier}, "dissemination", kBytesMax},
      {{kAllreduce}, "recursive-doubling", 16_K},
      {{kAllreduce}, "rings", kBytesMax},
      {{kReduceScatter, kReduceScatterBlock}, "recursive-halving", 16_K},
      {{kReduceScatter, kReduceScatterBlock}, "rings", kBytesMax},
      {{kAllgather, kAllgatherv}, "bruck", 16_K},
      {{kAllgather, kAllgatherv}, "rings", kBytesMax},
      {{kBcast}, "knomial", 16_K},
      {{kBcast}, "chain", kBytesMax, Range{2, 8}},
      {{kBcast}, "scatter-allgather", 4_M},
      {{kBcast}, "chain", kBytesMax},
      {{kReduce}, "binomial", 64_K},
      {{kReduce}, "chain", kBytesMax},
      {{kGather, kScatter}, "binomial", 256_K},
      {{kGather, kScatter}, "linear", kBytesMax, Range{2, 32}},
      {{kGather, kScatter}, "binomial", kBytesMax},
      {{kAlltoall}, "bruck", 4_K},
      // All NICs of a node; on one, pairwise takes 0.8 times as long, of many ranks less.
      {{kAlltoall}, "linear", 16_M, Range{2, 8}},
      {{kAlltoall}, "linear", 1_M},
      {{kAlltoall}, "pairwise", kBytesMax},
      {{kAlltoallv, kGatherv, kScatterv}, "linear", kBytesMax},
  };
}

Rule net_rule(const NetRange& range) {
  Rule result = rule(SchedulePlan{.algorithm = range.algorithm, .carrier = Backend::kNet},
                     "host memory of several nodes without an MPI");
  result.optional = true;
  result.memory = Memory::kHost;
  result.nodes = Range{2, UINT64_MAX};
  result.collectives = range.collectives;
  result.ranks = range.ranks;
  if (range.up_to != kBytesMax) {
    result.bytes = Range{0, range.up_to};
  }
  return result;
}

}  // namespace

Table without_mpi(Table table) {
  for (Rule& rule : table.rules) {
    rule.optional |= rule.is_shipped;
  }
  Rule ccl = device_rule(CclPlan(), "device memory without an MPI");
  ccl.optional = true;
  Rule direct = rule(DirectPlan(), "what is left without an MPI");
  direct.optional = true;
  table.rules.insert(table.rules.end(), {ccl, direct});
  for (const NetRange& range : net_ranges()) {
    table.rules.push_back(net_rule(range));
  }
  return table;
}

Table default_table() {
  Table table;
  for (const HostRange& range : host_ranges()) {
    table.rules.push_back(host_rule(range));
  }
  Rule host = rule(MpiPlan(), "host memory, where the MPI's own is as fast");
  host.memory = Memory::kHost;

  // Not left to the refusal of the last rule but one: these are no fall-backs to report.
  Rule without_ccl = rule(MpiPlan(), "no CCL has barrier, scan or exscan");
  without_ccl.collectives = {Collective::kBarrier, Collective::kScan, Collective::kExscan};

  Rule direct = device_rule(DirectPlan(), "own kernels on GPUs that map each other's memory");
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
  // No rank knows their size: each pair of ranks knows its own (engine/direct_backend.hpp).
  Rule direct_pairs = direct;
  direct_pairs.collectives = {Collective::kGatherv, Collective::kScatterv, Collective::kAlltoallv,
                              Collective::kAlltoallw};
  direct_pairs.origin += "; large pieces by the CCL";

  Rule small = device_rule(MpiPlan(), "small messages on one node are faster through the MPI");
  small.nodes = Range{1, 1};
  small.bytes = Range{0, kNativeUpToOneNode};

  Rule small_far = device_rule(MpiPlan(), "small messages across nodes are faster through the MPI");
  small_far.nodes = Range{2, UINT64_MAX};
  small_far.bytes = Range{0, kNativeUpToSeveralNodes};

  // Without predicates on operation and type: what the CCL refuses is reported with its reason
  // and goes on to the last rule.
  Rule large = device_rule(CclPlan(), "device memory");
  Rule direct_rest = direct;
  direct_rest.origin = "default: what the CCL cannot carry, on GPUs that map each other's memory";
  Rule rest = device_rule(MpiPlan(), "what the CCL cannot carry");
  table.rules.insert(table.rules.end(), {host, without_ccl, direct_reductions, direct_movements,
                                         direct_pairs, small, small_far, large, direct_rest, rest});
  return table;
}

}  // namespace tutti::select
