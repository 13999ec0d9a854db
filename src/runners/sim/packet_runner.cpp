// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/packet_runner.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti::runners::sim {
namespace {

using schedule::Program;
using schedule::Step;
using schedule::StepKind;
using simulate::Operation;
using simulate::OperationKind;

constexpr std::uint64_t kBitsPerByte = 8;
/// MB/s times picoseconds per byte.
constexpr std::uint64_t kPsMegabytes = 1'000'000;

/// A receive: (receiver, sender, tag), and its step.
using Receive = std::pair<std::tuple<int, int, std::uint32_t>, std::uint32_t>;

std::vector<Receive> receives_of(std::span<const Program> programs) {
  std::vector<Receive> found;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const auto& steps = programs[rank].steps;
    for (std::uint32_t index = 0; index < steps.size(); ++index) {
      if (steps[index].kind == StepKind::kRecv) {
        found.push_back({{static_cast<int>(rank), steps[index].peer, steps[index].tag}, index});
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

const LinkModel& link_between(const topology::Layout& layout, const Cluster& cluster, int a,
                              int b) {
  const bool same_socket =
      layout.socket_of[topology::Layout::index(a)] == layout.socket_of[topology::Layout::index(b)];
  return cluster.link(same_socket ? LinkClass::kNvlink : LinkClass::kInterSocket);
}

}  // namespace

Result<simulate::Workload> packet_workload(std::span<const Program> programs,
                                           const topology::Layout& layout, const Cluster& cluster,
                                           Bytes element_bytes) {
  const std::vector<Receive> receives = receives_of(programs);
  simulate::Workload workload;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = programs[rank];
    const int self = static_cast<int>(rank);
    simulate::HostWork& work = workload.hosts.emplace_back();
    for (std::uint32_t index = 0; index < program.steps.size(); ++index) {
      const Step& step = program.steps[index];
      Operation op;
      if (step.kind == StepKind::kSend || step.kind == StepKind::kRecv) {
        op.kind = step.kind == StepKind::kSend ? OperationKind::kSend : OperationKind::kReceive;
        op.peer = static_cast<std::uint32_t>(step.peer);
        op.tag = step.tag;
        op.bytes = step.count() * element_bytes;
        op.is_local = layout.node_of[rank] == layout.node_of[topology::Layout::index(step.peer)];
      }
      if (op.is_local && op.kind == OperationKind::kSend) {
        const std::tuple<int, int, std::uint32_t> wanted{step.peer, self, step.tag};
        const auto found = std::lower_bound(receives.begin(), receives.end(), Receive{wanted, 0});
        const LinkModel& link = link_between(layout, cluster, self, step.peer);
        if (found == receives.end() || found->first != wanted || link.mb_per_s == 0) {
          return Status(ErrorCode::kInvalidArgument,
                        "step " + std::to_string(index) + " of rank " + std::to_string(self) +
                            ": no receive or no link for a message within its node");
        }
        op.partner = found->second;
        op.wait_ps = link.message_ns * simulate::kPsPerNs + op.bytes * kPsMegabytes / link.mb_per_s;
      }
      for (const std::uint32_t earlier : program.dependencies_of(step)) {
        work.after.emplace_back(earlier, index);
      }
      work.add(op);
    }
  }
  return workload;
}

Result<SimOutcome> run_packets(std::span<const Program> programs, const topology::Layout& layout,
                               const Cluster& cluster, Bytes element_bytes,
                               wire::sim::RunOptions options) {
  if (cluster.nics_per_node < cluster.gpus_per_node) {
    return Status(ErrorCode::kInvalidArgument,
                  "cluster " + cluster.name + ": a packet network needs a NIC for each GPU");
  }
  constexpr std::uint64_t kMbPerSMin = 125;  // 1 Gb/s: a byte's time fits simulate::PsPerByteQ16.
  if (cluster.link(LinkClass::kNetwork).mb_per_s < kMbPerSMin) {
    return Status(ErrorCode::kInvalidArgument,
                  "cluster " + cluster.name + ": a packet network has links of 125 MB/s or more");
  }
  TUTTI_ASSIGN_OR_RETURN(const simulate::Workload workload,
                         packet_workload(programs, layout, cluster, element_bytes));
  options.network.mbit_per_s = cluster.link(LinkClass::kNetwork).mb_per_s * kBitsPerByte;
  TUTTI_ASSIGN_OR_RETURN(const wire::sim::RunResult result,
                         wire::sim::run_network(options, workload));
  if (result.unfinished > 0) {
    return Status(ErrorCode::kTimeout,
                  std::to_string(result.unfinished) + " steps never ended on the packet network");
  }
  SimOutcome outcome;
  outcome.end_ps = result.end_ps;
  outcome.finish_ps.assign(result.finish_ps.begin(),
                           result.finish_ps.begin() + static_cast<std::ptrdiff_t>(programs.size()));
  return outcome;
}

}  // namespace tutti::runners::sim
