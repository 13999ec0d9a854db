// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How a collective becomes calls of NCCL or RCCL: one, a packed one, or sends and receives.
#include "runners/ccl/ccl_runner.hpp"

#include <algorithm>

#include "runners/ccl/group.hpp"
#include "runners/ccl/types.hpp"
#include "runners/scheduled_call.hpp"

namespace tutti::runners {

using select::Collective;

namespace {

using Element = CclRunner::Element;

Result<Element> element_of(const Call& call) {
  if (!select::is_reduction(call.collective)) {
    return Element{ccl::NcclType::kUint8, call.element_bytes};
  }
  const auto translated = translate(call.type);
  if (!translated) {
    return Status(ErrorCode::kUnsupported,
                  std::string("type ") + select::to_string(call.type) + " is not the CCL's");
  }
  return Element{translated->type, translated->count_factor};
}

bool all_equal(std::span<const std::uint64_t> values) {
  return std::all_of(values.begin(), values.end(),
                     [&](std::uint64_t value) { return value == values.front(); });
}

}  // namespace

Status CclRunner::enqueue(const Call& call, const ScopeRank& me, Target& target) {
  TUTTI_ASSIGN_OR_RETURN(const Element element, element_of(call));
  const std::uint64_t count = call.count * element.factor;
  ccl::NcclOp op = ccl::NcclOp::kSum;
  if (select::is_reduction(call.collective)) {
    const auto translated = translate_op(call.op);
    if (!translated) {
      return Status(ErrorCode::kUnsupported,
                    std::string("operation ") + select::to_string(call.op) + " is not the CCL's");
    }
    // An average over one rank is a copy, of which NCCL up to 2.29.2 leaves the last elements out
    // (oneRankReduce() of onerank.cu: the remainder of the division among its blocks).
    op = *translated == ccl::NcclOp::kAvg && me.ranks == 1 ? ccl::NcclOp::kSum : *translated;
  }
  switch (call.collective) {
    case Collective::kAllreduce:
      return library_.all_reduce(call.send, call.recv, count, element.type, op, target.communicator,
                                 native(target));
    case Collective::kReduce:
      return library_.reduce(call.send, call.recv, count, element.type, op, call.root,
                             target.communicator, native(target));
    case Collective::kBcast:
      return library_.broadcast(call.recv, call.recv, count, element.type, call.root,
                                target.communicator, native(target));
    case Collective::kAllgather:
      return library_.all_gather(call.send, call.recv, count, element.type, target.communicator,
                                 native(target));
    case Collective::kReduceScatterBlock:
      return enqueue_reduce_scatter_block(call, element, op, target);
    case Collective::kReduceScatter:
      if (all_equal(call.recv_counts)) {
        Call regular = call;
        regular.collective = Collective::kReduceScatterBlock;
        regular.count = call.recv_counts.front();
        return enqueue_reduce_scatter_block(regular, element, op, target);
      }
      return enqueue_reduce_scatter(call, me, element, op, target);
    case Collective::kAllgatherv: {
      // Counts are equal on all ranks, displacements are each rank's own: only counts may choose.
      if (all_equal(call.recv_counts)) {
        return enqueue_equal_allgatherv(call, element, target);
      }
      TUTTI_ASSIGN_OR_RETURN(auto group, Group::open(library_));
      for (int peer = 0; peer < me.ranks; ++peer) {
        const auto i = static_cast<std::size_t>(peer);
        if (call.recv_counts[i] == 0) {
          continue;
        }
        void* block = at(call.recv, call.recv_offsets[i], call.element_bytes);
        TUTTI_RETURN_IF_ERROR(library_.broadcast(peer == me.rank ? call.send : block, block,
                                                 call.recv_counts[i] * element.factor, element.type,
                                                 peer, target.communicator, native(target)));
      }
      return group.close();
    }
    case Collective::kGather:
    case Collective::kGatherv:
    case Collective::kScatter:
    case Collective::kScatterv:
    case Collective::kAlltoall:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
      return enqueue_peers(call, me, target);
    default:
      return Status(ErrorCode::kUnsupported,
                    std::string(select::to_string(call.collective)) + " is not the CCL's");
  }
}

Status CclRunner::enqueue_reduce_scatter_block(const Call& call, const Element& element,
                                               ccl::NcclOp op, Target& target) {
  if (!call.send_offsets.empty()) {
    return enqueue_packed_reduce_scatter(call, element, op, target);
  }
  void* result = call.recv;
  const bool aliased = aliasing_of(call) == Aliasing::kSame;
  if (aliased) {
    // MPI puts the result into block 0 of the input, NCCL wants it in the rank's own block:
    // neither may be written while others still read, so the result takes its own buffer.
    TUTTI_RETURN_IF_ERROR(lease(target, call.count * call.element_bytes));
    result = target.scratch.data();
  }
  TUTTI_RETURN_IF_ERROR(library_.reduce_scatter(call.send, result, call.count * element.factor,
                                                element.type, op, target.communicator,
                                                native(target)));
  return aliased ? copy_on_stream(call.recv, result, call.count * call.element_bytes, target.stream)
                 : Status();
}

/// Blocks of their own lengths: a reduction for each, in one group.
Status CclRunner::enqueue_reduce_scatter(const Call& call, const ScopeRank& me,
                                         const Element& element, ccl::NcclOp op, Target& target) {
  const std::uint64_t mine = call.recv_counts[static_cast<std::size_t>(me.rank)];
  void* result = call.recv;
  const bool aliased = aliasing_of(call) == Aliasing::kSame;
  if (aliased && mine > 0) {
    TUTTI_RETURN_IF_ERROR(lease(target, mine * call.element_bytes));
    result = target.scratch.data();
  }
  {
    TUTTI_ASSIGN_OR_RETURN(auto group, Group::open(library_));
    std::uint64_t offset = 0;
    for (int peer = 0; peer < me.ranks; ++peer) {
      const std::uint64_t block = call.recv_counts[static_cast<std::size_t>(peer)];
      if (block > 0) {
        TUTTI_RETURN_IF_ERROR(library_.reduce(
            at(call.send, offset, call.element_bytes), peer == me.rank ? result : nullptr,
            block * element.factor, element.type, op, peer, target.communicator, native(target)));
      }
      offset += block;
    }
    TUTTI_RETURN_IF_ERROR(group.close());
  }
  return aliased ? copy_on_stream(call.recv, result, mine * call.element_bytes, target.stream)
                 : Status();
}

Status CclRunner::enqueue_packed_reduce_scatter(const Call& call, const Element& element,
                                                ccl::NcclOp op, Target& target) {
  const Bytes block_bytes = call.count * call.element_bytes;
  TUTTI_RETURN_IF_ERROR(lease(target, call.send_offsets.size() * block_bytes));
  for (std::size_t i = 0; i < call.send_offsets.size(); ++i) {
    TUTTI_RETURN_IF_ERROR(copy_on_stream(
        at(target.scratch.data(), i * call.count, call.element_bytes),
        at(call.send, call.send_offsets[i], call.element_bytes), block_bytes, target.stream));
  }
  // In place the result lies on this chunk of block 0, which only this stream reads.
  return library_.reduce_scatter(target.scratch.data(), call.recv, call.count * element.factor,
                                 element.type, op, target.communicator, native(target));
}

Status CclRunner::enqueue_equal_allgatherv(const Call& call, const Element& element,
                                           Target& target) {
  const std::uint64_t count = call.recv_counts.front();
  if (is_dense(call.recv_counts, call.recv_offsets)) {
    return library_.all_gather(call.send, call.recv, count * element.factor, element.type,
                               target.communicator, native(target));
  }
  const Bytes block_bytes = count * call.element_bytes;
  TUTTI_RETURN_IF_ERROR(lease(target, call.recv_counts.size() * block_bytes));
  TUTTI_RETURN_IF_ERROR(library_.all_gather(call.send, target.scratch.data(),
                                            count * element.factor, element.type,
                                            target.communicator, native(target)));
  for (std::size_t i = 0; i < call.recv_counts.size(); ++i) {
    TUTTI_RETURN_IF_ERROR(copy_on_stream(at(call.recv, call.recv_offsets[i], call.element_bytes),
                                         at(target.scratch.data(), i * count, call.element_bytes),
                                         block_bytes, target.stream));
  }
  return {};
}

/// Of pieces between two ranks each.
Status CclRunner::enqueue_peers(const Call& call, const ScopeRank& me, Target& target) {
  // Everything here is data movement: elements are bytes times element_bytes.
  const auto ranks = static_cast<std::uint64_t>(me.ranks);
  std::vector<Run> sends(ranks);
  std::vector<Run> recvs(ranks);
  visit_pieces(
      call, me.rank, me.ranks,
      [&](int to, const Run& run) { sends[static_cast<std::size_t>(to)] = run; },
      [&](int from, const Run& run) { recvs[static_cast<std::size_t>(from)] = run; });
  const void* source = call.send;
  if (aliasing_of(call) == Aliasing::kSame) {
    // alltoall with MPI_IN_PLACE: what is sent must not be overwritten by what arrives.
    std::uint64_t dense = 0;
    for (const Run& run : sends) {
      dense += run.count;
    }
    TUTTI_RETURN_IF_ERROR(lease(target, dense * call.element_bytes));
    dense = 0;
    for (Run& run : sends) {
      TUTTI_RETURN_IF_ERROR(copy_on_stream(at(target.scratch.data(), dense, call.element_bytes),
                                           at(call.send, run.offset, call.element_bytes),
                                           run.count * call.element_bytes, target.stream));
      run.offset = dense;
      dense += run.count;
    }
    source = target.scratch.data();
  }
  TUTTI_ASSIGN_OR_RETURN(auto group, Group::open(library_));
  for (int peer = 0; peer < me.ranks; ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    // The own part goes to oneself within the group, which beats a copy of its own; a root's part
    // that is where it belongs (in place) does not move.
    if (peer == me.rank && at(source, sends[i].offset, call.element_bytes) ==
                               at(call.recv, recvs[i].offset, call.element_bytes)) {
      continue;
    }
    if (sends[i].count > 0) {
      TUTTI_RETURN_IF_ERROR(library_.send(
          at(source, sends[i].offset, call.element_bytes), sends[i].count * call.element_bytes,
          ccl::NcclType::kUint8, peer, target.communicator, native(target)));
    }
    if (recvs[i].count > 0) {
      TUTTI_RETURN_IF_ERROR(library_.recv(
          at(call.recv, recvs[i].offset, call.element_bytes), recvs[i].count * call.element_bytes,
          ccl::NcclType::kUint8, peer, target.communicator, native(target)));
    }
  }
  return group.close();
}

}  // namespace tutti::runners
