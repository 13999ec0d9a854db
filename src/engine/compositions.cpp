// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/compositions.hpp"

#include "runners/staged_call.hpp"

namespace tutti::engine {

using runners::Call;
using runners::Lease;
using runners::Scope;
using select::Collective;

namespace {

/// One call's walk through the three steps.
class Alpha {
 public:
  Alpha(const AlphaContext& context, const Call& call)
      : context_(context),
        call_(call),
        node_(context.placement.node_of[at(context.rank)]),
        local_(context.placement.local_of[at(context.rank)]),
        node_ranks_(context.placement.ranks_of[at(node_)].size()),
        memory_(context.scratch_on_device
                    ? device::PointerInfo{device::MemoryKind::kDevice, context.device}
                    : device::PointerInfo{}) {}

  Status allreduce();
  Status reduce();
  Status bcast();
  Status allgather();
  Status reduce_scatter_block();

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  bool is_leader() const { return local_ == 0; }
  Result<Lease> lease(std::uint64_t elements) {
    const Bytes bytes = elements * call_.element_bytes;
    return context_.scratch_on_device ? context_.scratch.device(context_.device, bytes)
                                      : context_.scratch.pinned(bytes);
  }
  /// A step: same type and operation, other collective and buffers.
  Call step(Collective collective, std::uint64_t count, int root) const {
    Call step;
    step.collective = collective;
    step.type = call_.type;
    step.element_bytes = call_.element_bytes;
    if (select::is_reduction(collective)) {
      step.op = call_.op;
      step.mpi_type = call_.mpi_type;
      step.mpi_op = call_.mpi_op;
    } else {
      // Data movement goes as bytes, as everywhere.
      step.type = select::DataType::kByte;
      step.element_bytes = 1;
      count *= call_.element_bytes;
    }
    step.count = count;
    step.root = root;
    return step;
  }
  /// A step of the node whose result its leader alone gets, in scratch of so many elements.
  Status to_leader(Call call, std::uint64_t elements, Lease* result) {
    call.send = call_.send;
    call.send_memory = call_.send_memory;
    if (is_leader()) {
      TUTTI_ASSIGN_OR_RETURN(*result, lease(elements));
      call.recv = result->data();
      call.recv_memory = memory_;
    }
    return context_.node.run(Scope::kNode, call);
  }
  Status node_bcast(void* buffer, const device::PointerInfo& memory, std::uint64_t count,
                    int root) {
    Call bcast = step(Collective::kBcast, count, root);
    bcast.recv = buffer;
    bcast.recv_memory = memory;
    return context_.node.run(Scope::kNode, bcast);
  }

  const AlphaContext& context_;
  const Call& call_;
  int node_;
  int local_;
  std::uint64_t node_ranks_;
  device::PointerInfo memory_;
};

Status Alpha::allreduce() {
  Call node_reduce = step(Collective::kReduce, call_.count, 0);
  node_reduce.send = call_.send;
  node_reduce.send_memory = call_.send_memory;
  if (is_leader()) {
    node_reduce.recv = call_.recv;
    node_reduce.recv_memory = call_.recv_memory;
    node_reduce.in_place = call_.in_place;
  }
  TUTTI_RETURN_IF_ERROR(context_.node.run(Scope::kNode, node_reduce));
  if (is_leader()) {
    Call leaders = step(Collective::kAllreduce, call_.count, 0);
    leaders.send = leaders.recv = call_.recv;
    leaders.in_place = true;
    leaders.send_memory = leaders.recv_memory = call_.recv_memory;
    TUTTI_RETURN_IF_ERROR(context_.leaders.run(Scope::kLeaders, leaders));
  }
  return node_bcast(call_.recv, call_.recv_memory, call_.count, 0);
}

Status Alpha::reduce() {
  const int root_node = context_.placement.node_of[at(call_.root)];
  const int root_local = context_.placement.local_of[at(call_.root)];
  const bool is_root = context_.rank == call_.root;
  Lease partial;
  TUTTI_RETURN_IF_ERROR(
      to_leader(step(Collective::kReduce, call_.count, 0), call_.count, &partial));
  const bool forward = root_local != 0;  // The root is not its node's leader.
  Lease result;
  if (is_leader()) {
    Call leaders = step(Collective::kReduce, call_.count, root_node);
    leaders.send = partial.data();
    leaders.send_memory = memory_;
    if (node_ == root_node) {
      if (forward) {
        TUTTI_ASSIGN_OR_RETURN(result, lease(call_.count));
      }
      leaders.recv = forward ? result.data() : call_.recv;
      leaders.recv_memory = forward ? memory_ : call_.recv_memory;
    }
    TUTTI_RETURN_IF_ERROR(context_.leaders.run(Scope::kLeaders, leaders));
  }
  if (!forward || node_ != root_node) {
    return {};
  }
  // Leader to root as a gatherv in which only the leader has something to give.
  Call hop = step(Collective::kGatherv, is_leader() ? call_.count : 0, root_local);
  hop.send = is_leader() ? result.data() : nullptr;
  hop.send_memory = is_leader() ? memory_ : device::PointerInfo{};
  std::vector<std::uint64_t> counts(node_ranks_, 0);
  counts[0] = call_.count * call_.element_bytes;
  const std::vector<std::uint64_t> offsets(node_ranks_, 0);
  if (is_root) {
    hop.recv = call_.recv;
    hop.recv_memory = call_.recv_memory;
    hop.recv_counts = counts;
    hop.recv_offsets = offsets;
  }
  return context_.node.run(Scope::kNode, hop);
}

Status Alpha::bcast() {
  const int root_node = context_.placement.node_of[at(call_.root)];
  if (node_ == root_node) {
    TUTTI_RETURN_IF_ERROR(node_bcast(call_.recv, call_.recv_memory, call_.count,
                                     context_.placement.local_of[at(call_.root)]));
  }
  if (is_leader()) {
    Call leaders = step(Collective::kBcast, call_.count, root_node);
    leaders.recv = call_.recv;
    leaders.recv_memory = call_.recv_memory;
    TUTTI_RETURN_IF_ERROR(context_.leaders.run(Scope::kLeaders, leaders));
  }
  return node_ == root_node ? Status() : node_bcast(call_.recv, call_.recv_memory, call_.count, 0);
}

Status Alpha::allgather() {
  const auto& placement = context_.placement;
  const bool consecutive = placement.is_consecutive();
  const std::uint64_t ranks = placement.node_of.size();
  Lease node_blocks;
  Lease all_blocks;
  TUTTI_RETURN_IF_ERROR(to_leader(step(Collective::kGather, call_.count, 0),
                                  node_ranks_ * call_.count, &node_blocks));
  if (is_leader()) {
    std::vector<std::uint64_t> counts;
    std::vector<std::uint64_t> offsets;
    std::uint64_t next = 0;
    for (const auto& node : placement.ranks_of) {
      counts.push_back(node.size() * call_.count * call_.element_bytes);
      offsets.push_back(next);
      next += counts.back();
    }
    Call leaders = step(Collective::kAllgatherv, node_ranks_ * call_.count, 0);
    leaders.send = node_blocks.data();
    leaders.send_memory = memory_;
    leaders.recv_counts = counts;
    leaders.recv_offsets = offsets;
    if (consecutive) {
      leaders.recv = call_.recv;
      leaders.recv_memory = call_.recv_memory;
    } else {
      TUTTI_ASSIGN_OR_RETURN(all_blocks, lease(ranks * call_.count));
      leaders.recv = all_blocks.data();
      leaders.recv_memory = memory_;
    }
    TUTTI_RETURN_IF_ERROR(context_.leaders.run(Scope::kLeaders, leaders));
    if (!consecutive) {
      std::uint64_t source = 0;
      for (const auto& node : placement.ranks_of) {
        for (const int rank : node) {
          TUTTI_RETURN_IF_ERROR(runners::copy_any(
              context_.api, runners::at(call_.recv, at(rank) * call_.count, call_.element_bytes),
              call_.recv_memory, runners::at(all_blocks.data(), source, call_.element_bytes),
              memory_, call_.count * call_.element_bytes));
          source += call_.count;
        }
      }
    }
  }
  return node_bcast(call_.recv, call_.recv_memory, ranks * call_.count, 0);
}

Status Alpha::reduce_scatter_block() {
  const auto& placement = context_.placement;
  const std::uint64_t ranks = placement.node_of.size();
  Lease sums;
  Lease ordered;
  Lease node_blocks;
  TUTTI_RETURN_IF_ERROR(
      to_leader(step(Collective::kReduce, ranks * call_.count, 0), ranks * call_.count, &sums));
  if (is_leader()) {
    const void* input = sums.data();
    if (!placement.is_consecutive()) {
      TUTTI_ASSIGN_OR_RETURN(ordered, lease(ranks * call_.count));
      std::uint64_t destination = 0;
      for (const auto& node : placement.ranks_of) {
        for (const int rank : node) {
          TUTTI_RETURN_IF_ERROR(runners::copy_any(
              context_.api, runners::at(ordered.data(), destination, call_.element_bytes), memory_,
              runners::at(sums.data(), at(rank) * call_.count, call_.element_bytes), memory_,
              call_.count * call_.element_bytes));
          destination += call_.count;
        }
      }
      input = ordered.data();
    }
    std::vector<std::uint64_t> counts;
    for (const auto& node : placement.ranks_of) {
      counts.push_back(node.size() * call_.count);
    }
    TUTTI_ASSIGN_OR_RETURN(node_blocks, lease(node_ranks_ * call_.count));
    Call leaders = step(Collective::kReduceScatter, 0, 0);
    leaders.send = input;
    leaders.send_memory = memory_;
    leaders.recv = node_blocks.data();
    leaders.recv_memory = memory_;
    leaders.recv_counts = counts;
    TUTTI_RETURN_IF_ERROR(context_.leaders.run(Scope::kLeaders, leaders));
  }
  Call scatter = step(Collective::kScatter, call_.count, 0);
  if (is_leader()) {
    scatter.send = node_blocks.data();
    scatter.send_memory = memory_;
  }
  scatter.recv = call_.recv;
  scatter.recv_memory = call_.recv_memory;
  return context_.node.run(Scope::kNode, scatter);
}

}  // namespace

Status run_alpha(const AlphaContext& context, const Call& call) {
  Alpha alpha(context, call);
  switch (call.collective) {
    case Collective::kAllreduce:
      return alpha.allreduce();
    case Collective::kReduce:
      return alpha.reduce();
    case Collective::kBcast:
      return alpha.bcast();
    case Collective::kAllgather:
      return alpha.allgather();
    case Collective::kReduceScatterBlock:
      return alpha.reduce_scatter_block();
    default:
      return Status(ErrorCode::kUnsupported,
                    std::string("alpha has no ") + select::to_string(call.collective));
  }
}

}  // namespace tutti::engine
