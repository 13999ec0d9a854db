// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/call.hpp"

#include <sstream>

namespace tutti::runners {

std::string time_limit(double timeout_s) {
  std::ostringstream text;
  text << timeout_s << " s (TUTTI_TIMEOUT, or the communicator's own limit)";
  return text.str();
}

std::string held_up_by(const std::string& known) {
  return "; " + (known.empty() ? "a peer may be dead or not in the call" : known);
}

using select::Collective;

SideForms forms_of(Collective collective, bool is_root) {
  switch (collective) {
    case Collective::kBarrier:
      return {};
    case Collective::kBcast:
      return {SideForm::kAbsent, SideForm::kOne};
    case Collective::kGather:
      return {SideForm::kOne, is_root ? SideForm::kBlocks : SideForm::kAbsent};
    case Collective::kGatherv:
      return {SideForm::kOne, is_root ? SideForm::kCounts : SideForm::kAbsent};
    case Collective::kScatter:
      return {is_root ? SideForm::kBlocks : SideForm::kAbsent, SideForm::kOne};
    case Collective::kScatterv:
      return {is_root ? SideForm::kCounts : SideForm::kAbsent, SideForm::kOne};
    case Collective::kAllgather:
      return {SideForm::kOne, SideForm::kBlocks};
    case Collective::kAllgatherv:
      return {SideForm::kOne, SideForm::kCounts};
    case Collective::kAlltoall:
      return {SideForm::kBlocks, SideForm::kBlocks};
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
      return {SideForm::kCounts, SideForm::kCounts};
    case Collective::kReduce:
      return {SideForm::kOne, is_root ? SideForm::kOne : SideForm::kAbsent};
    case Collective::kReduceScatter:
      return {SideForm::kCounts, SideForm::kOne};
    case Collective::kReduceScatterBlock:
      return {SideForm::kBlocks, SideForm::kOne};
    case Collective::kAllreduce:
    case Collective::kScan:
    case Collective::kExscan:
      break;
  }
  return {SideForm::kOne, SideForm::kOne};
}

std::uint64_t block_count_max(Collective collective, int ranks) {
  const SideForms forms = forms_of(collective, /*is_root=*/true);
  return forms.send == SideForm::kBlocks || forms.recv == SideForm::kBlocks
             ? static_cast<std::uint64_t>(ranks)
             : 1;
}

bool has_counts(Collective collective) {
  const SideForms forms = forms_of(collective, /*is_root=*/true);
  return forms.send == SideForm::kCounts || forms.recv == SideForm::kCounts;
}

namespace {

bool gathers(Collective collective) {
  return collective == Collective::kGather || collective == Collective::kGatherv ||
         collective == Collective::kAllgather || collective == Collective::kAllgatherv;
}

bool scatters(Collective collective) {
  return collective == Collective::kScatter || collective == Collective::kScatterv;
}

CallSide own_block(const CallSide& side, int rank, Bytes element_bytes) {
  const auto self = static_cast<std::size_t>(rank);
  CallSide own;
  own.memory = side.memory;
  own.count = side.counts.empty() ? side.count : side.counts[self];
  own.buffer =
      at(side.buffer, side.counts.empty() ? self * side.count : side.offsets[self], element_bytes);
  return own;
}

}  // namespace

std::uint64_t own_block_offset(const Call& call, int rank) {
  const auto self = static_cast<std::size_t>(rank);
  const auto offsets = gathers(call.collective) ? call.recv_offsets : call.send_offsets;
  return offsets.empty() ? self * call.count : offsets[self];
}

Aliasing aliasing_of(const Call& call) {
  if (!call.in_place) {
    return Aliasing::kNone;
  }
  if (gathers(call.collective)) {
    return Aliasing::kSendInRecv;
  }
  return scatters(call.collective) ? Aliasing::kRecvInSend : Aliasing::kSame;
}

bool may_be_in_place(Collective collective, bool sends, bool is_root) {
  return sends != scatters(collective) && (is_root || !select::is_rooted(collective));
}

void set_sides(const CallSide& send, const CallSide& recv, int rank, Call* call) {
  call->in_place = send.in_place || recv.in_place;
  const CallSide* from = &send;
  const CallSide* to = &recv;
  CallSide own;
  switch (aliasing_of(*call)) {
    case Aliasing::kNone:
      break;
    case Aliasing::kSame:
      from = to;
      break;
    case Aliasing::kSendInRecv:
      own = own_block(recv, rank, call->element_bytes);
      from = &own;
      break;
    case Aliasing::kRecvInSend:
      own = own_block(send, rank, call->element_bytes);
      to = &own;
      break;
  }
  call->send = from->buffer;
  call->send_memory = from->memory;
  call->recv = const_cast<void*>(to->buffer);
  call->recv_memory = to->memory;
  call->count = (gathers(call->collective) ? from : to)->count;
  call->recv_counts = to->counts;
  call->recv_offsets = to->offsets;
  if (!select::is_reduction(call->collective)) {
    call->send_counts = from->counts;
    call->send_offsets = from->offsets;
  }
}

namespace {

std::vector<Run> runs_of(SideForm form, std::uint64_t count, int ranks,
                         std::span<const std::uint64_t> counts,
                         std::span<const std::uint64_t> offsets) {
  switch (form) {
    case SideForm::kAbsent:
      return {};
    case SideForm::kOne:
      return {{0, count}};
    case SideForm::kBlocks:
      return {{0, count * static_cast<std::uint64_t>(ranks)}};
    case SideForm::kCounts:
      break;
  }
  std::vector<Run> runs;
  runs.reserve(counts.size());
  std::uint64_t dense = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    runs.push_back({offsets.empty() ? dense : offsets[i], counts[i]});
    dense += counts[i];
  }
  return runs;
}

}  // namespace

std::vector<Run> send_runs(const Call& call, int rank, int ranks) {
  const bool is_root = rank == call.root;
  if (call.collective == Collective::kBcast) {
    return is_root ? std::vector<Run>{{0, call.count}} : std::vector<Run>();
  }
  const bool is_reduction = select::is_reduction(call.collective);
  return runs_of(forms_of(call.collective, is_root).send, call.count, ranks,
                 is_reduction ? call.recv_counts : call.send_counts,
                 is_reduction ? std::span<const std::uint64_t>() : call.send_offsets);
}

std::vector<Run> recv_runs(const Call& call, int rank, int ranks) {
  const bool is_root = rank == call.root;
  if ((call.collective == Collective::kBcast && is_root) ||
      (call.collective == Collective::kExscan && rank == 0)) {
    return {};
  }
  const std::uint64_t count = call.collective == Collective::kReduceScatter
                                  ? call.recv_counts[static_cast<std::size_t>(rank)]
                                  : call.count;
  return runs_of(forms_of(call.collective, is_root).recv, count, ranks, call.recv_counts,
                 call.recv_offsets);
}

std::vector<CopyRun> dense_copies(std::span<const Run> runs) {
  std::vector<CopyRun> copies;
  std::uint64_t dense = 0;
  for (const Run& run : runs) {
    if (run.count == 0) {
      continue;
    }
    if (!copies.empty() && copies.back().source + copies.back().count == run.offset) {
      copies.back().count += run.count;
    } else {
      copies.push_back({run.offset, dense, run.count});
    }
    dense += run.count;
  }
  return copies;
}

}  // namespace tutti::runners
