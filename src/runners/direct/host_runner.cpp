// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/host_runner.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "base/fnv1a.hpp"

namespace tutti::runners {

using select::Collective;

namespace {

Bytes sum_of(std::span<const std::uint64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

/// The largest contribution of a rank, where all ranks know it.
std::optional<Bytes> contribution_bytes(const Call& call, int ranks) {
  const auto all = static_cast<std::uint64_t>(ranks);
  switch (call.collective) {
    case Collective::kBarrier:
      return 0;
    case Collective::kBcast:
    case Collective::kGather:
    case Collective::kAllgather:
    case Collective::kReduce:
    case Collective::kAllreduce:
      return call.count * call.element_bytes;
    case Collective::kAllgatherv:
      return *std::max_element(call.recv_counts.begin(), call.recv_counts.end()) *
             call.element_bytes;
    case Collective::kScatter:
    case Collective::kAlltoall:
    case Collective::kReduceScatterBlock:
      return all * call.count * call.element_bytes;
    case Collective::kReduceScatter:
      return sum_of(call.recv_counts) * call.element_bytes;
    default:
      return std::nullopt;
  }
}

/// 16 bits of the counts that all ranks pass alike.
std::uint16_t hash_of(std::span<const std::uint64_t> counts, Bytes element_bytes) {
  Fnv1a hash;
  for (const std::uint64_t count : counts) {
    hash.add_word(count * element_bytes);
  }
  return static_cast<std::uint16_t>(hash.value() >> 48);
}

HostCallHead head_of(const Call& call, std::optional<Bytes> bytes) {
  HostCallHead head;
  head.bytes = bytes.value_or(0);
  head.collective = static_cast<std::uint8_t>(call.collective);
  if (select::is_reduction(call.collective)) {
    head.type = static_cast<std::uint8_t>(call.type);
    head.op = static_cast<std::uint8_t>(call.op);
  }
  if (select::is_rooted(call.collective)) {
    head.root = static_cast<std::uint16_t>(call.root);
  }
  if (call.collective == Collective::kAllgatherv || call.collective == Collective::kReduceScatter) {
    head.counts = hash_of(call.recv_counts, call.element_bytes);
  }
  return head;
}

std::string describe(const HostCallHead& head) {
  const auto collective = static_cast<Collective>(head.collective);
  std::string text = select::to_string(collective);
  if (select::is_reduction(collective)) {
    text += std::string(" (") + select::to_string(static_cast<select::DataType>(head.type)) + ", " +
            select::to_string(static_cast<select::ReduceOp>(head.op)) + ")";
  }
  if (head.bytes > 0) {
    text += " of " + std::to_string(head.bytes) + " bytes";
  }
  if (select::is_rooted(collective)) {
    text += " with root " + std::to_string(head.root);
  }
  return text;
}

/// Only the root gives.
bool from_root(Collective collective) {
  return collective == Collective::kBcast || collective == Collective::kScatter;
}
/// Only the root takes.
bool to_root(Collective collective) {
  return collective == Collective::kGather || collective == Collective::kReduce;
}

void copy(void* to, const void* from, Bytes bytes) {
  if (bytes > 0 && to != from) {
    std::memcpy(to, from, bytes);
  }
}

bool is_carried(Collective collective) {
  return collective != Collective::kScan && collective != Collective::kExscan;
}

}  // namespace

DirectHostRunner::DirectHostRunner(std::shared_ptr<HostMemory> memory, const HostMemory::Part& part,
                                   const HostLayout& layout, std::shared_ptr<HostUse> use,
                                   const std::uint64_t* calls)
    : memory_(std::move(memory)),
      part_(part),
      layout_(layout),
      use_(std::move(use)),
      peers_(use_->peers),
      rank_(use_->rank),
      counted_(calls),
      calls_(calls == nullptr ? 0 : *calls) {
  const auto all = static_cast<std::size_t>(layout_.ranks);
  posted_.resize(all);
  credit_.resize(all);
  streams_.resize(all);
  streams_begun_.resize(all);
  stream_starts_.resize(all);
  spread_taken_.resize(all);
  taken_.resize(all);
  round_starts_.resize(all);
  left_.resize(all);
  inputs_.resize(all);
}

DirectHostRunner::~DirectHostRunner() {
  peers_.progress = nullptr;  // Of what ends with the communicator; use_ stays longer.
  memory_->retire(part_, use_);
}

Status DirectHostRunner::run(Scope scope, const Call& call) {
  if (!failure_.ok()) {
    return Status(failure_.code(),
                  "direct: this communicator failed before: " + failure_.message());
  }
  if (scope != Scope::kWhole || !is_carried(call.collective)) {
    return Status(ErrorCode::kUnsupported,
                  std::string("direct does not carry ") + select::to_string(call.collective) +
                      (scope == Scope::kWhole ? "" : " on part of a communicator"));
  }
  if (select::is_reduction(call.collective) &&
      reduce_function(isa_, call.type, call.op) == nullptr) {
    return Status(ErrorCode::kUnsupported, std::string("direct does not reduce ") +
                                               select::to_string(call.type) + " with " +
                                               select::to_string(call.op));
  }
  // Calls that went another way count here only now: they are as short as MPI's shortest.
  const std::uint64_t before = std::exchange(calls_, counted_ != nullptr ? *counted_ : calls_ + 1);
  const std::uint64_t since = calls_ - before;
  ways_ = (since < kWaysKept ? ways_ << since : 0) | 1;
  const bool has_refusals = HostArea::turned_away(mine().calls_line()).read() != 0;
  const bool done = carry_out(call) && (!has_refusals || had_rings());
  // In every case this rank reads nothing of this call any more.
  mine().calls_done().publish(calls_);
  if (!done && failure_.code() == ErrorCode::kMismatch) {
    return std::exchange(failure_, Status());
  }
  if (!done) {
    give_up(Status(failure_.code(), std::string("direct ") + select::to_string(call.collective) +
                                        ": " + failure_.message()));
    return failure_;
  }
  return {};
}

/// A rank that shows this one that it makes a call, since data move between them; -1: none.
int DirectHostRunner::find_partner(const Call& call) const {
  if (select::is_rooted(call.collective) && !is_mine(call.root)) {
    return call.count > 0 ? call.root : -1;
  }
  const bool counts_all = call.collective == Collective::kAllgatherv ||
                          select::is_reduction(call.collective);  // Of everybody.
  int any = -1;
  for (int rank = 0; rank < layout_.ranks; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const auto moves = [i](std::span<const std::uint64_t> counts) {
      return !counts.empty() && counts[i] > 0;
    };
    if (is_mine(rank)) {
      continue;
    }
    if (!has_counts(call.collective) || moves(call.recv_counts) || moves(call.send_counts)) {
      return rank;
    }
    any = counts_all ? rank : any;  // It waits for what this rank gives, and says so.
  }
  return any;
}

std::optional<bool> DirectHostRunner::has_number(const Call& call, std::uint64_t number,
                                                 std::chrono::steady_clock::time_point end) const {
  const int peer = find_partner(call);
  if (peer < 0) {
    return std::nullopt;
  }
  const HostCallHead head = head_of(call, contribution_bytes(call, layout_.ranks));
  const bool goes_to_root = to_root(call.collective) || call.collective == Collective::kGatherv;
  const bool waits = !select::is_rooted(call.collective) || is_mine(call.root) == goes_to_root;
  BoundedWait bounded_wait(peers_);
  while (true) {
    // Read first: in doubt of a call after this one, it has shown this one.
    const bool is_in_doubt = HostArea::in_doubt(area(peer).calls_line()).read() != 0;
    if (const std::optional<bool> is_it = is_call_of(peer, number, head)) {
      return is_it;
    }
    if (is_in_doubt && rank_ < peer) {
      return true;  // Of two that wait here for each other one has to begin.
    }
    if (!bounded_wait.wait([peer](int rank) { return rank == peer; }) ||
        (!waits && std::chrono::steady_clock::now() > end)) {
      return false;
    }
  }
}

void DirectHostRunner::give_up(const Status& reason) {
  mine().failed().publish(1);
  failure_ = reason;
}

bool DirectHostRunner::await(const HostCounter& counter, std::uint64_t at_least, int peer,
                             bool announces) {
  if (counter.read() >= at_least) {
    return true;
  }
  BoundedWait bounded_wait(peers_, calls_);
  while (counter.read() < at_least) {
    if (!wait_for(peer, bounded_wait, announces)) {
      return false;
    }
  }
  return true;
}

bool DirectHostRunner::had_rings() {
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    if (!is_mine(peer) && area(peer).rings_lost().read_last() >= calls_) {
      mismatch(peer, "no longer has the data of this call, which this rank makes too late");
      return false;
    }
  }
  return true;
}

bool DirectHostRunner::carry_out(const Call& call) {
  const std::optional<Bytes> bytes = contribution_bytes(call, layout_.ranks);
  head_ = head_of(call, bytes);
  if (bytes && *bytes <= HostLayout::kBriefBytes) {
    return run_brief(call, *bytes);
  }
  if (select::is_reduction(call.collective)) {
    return reduce_in_rounds(call);
  }
  switch (call.collective) {
    case Collective::kBcast:
    case Collective::kAllgather:
    case Collective::kAllgatherv:
      return spread(call);
    default:
      return exchange(call);
  }
}

// ---- the same call on all ranks
// ------------------------------------------------------------------

bool DirectHostRunner::await_place(std::uint64_t places) {
  if (calls_left_ + places >= calls_) [[likely]] {
    return true;
  }
  std::uint64_t left = calls_ - 1;
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    if (is_mine(peer)) {
      continue;
    }
    const HostCounter done = area(peer).calls_done();
    if (!await(done, calls_ - places, peer, /*announces=*/false)) {
      return false;
    }
    left = std::min(left, done.read());
  }
  calls_left_ = left;
  return true;
}

void DirectHostRunner::announce() {
  if (mine().call_number(calls_).read() == calls_) {
    return;
  }
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    if (area(peer).calls_done().read() + HostLayout::kInlineSlots < calls_) {
      return;  // It may still look at what is there.
    }
  }
  *mine().call_stream(calls_) = {};
  *mine().call_head(calls_) = head_;
  mine().call_number(calls_).publish(calls_);
}

bool DirectHostRunner::is_stuck(int peer) const {
  const std::uint64_t passed = area(peer).passed_by().read();
  return passed == area(peer).calls_done().read() && passed != 0 && passed < calls_ &&
         calls_ - passed < kWaysKept && (ways_ >> (calls_ - passed) & 1) != 0 &&
         HostArea::turned_away(area(peer).calls_line()).read() != passed;
}

bool DirectHostRunner::wait_for(int peer, BoundedWait& bounded_wait, bool announces) {
  const int checks = bounded_wait.checks();
  if (!wait(
          bounded_wait, [peer](int rank) { return rank == peer; }, announces)) {
    return false;
  }
  if (bounded_wait.checks() != checks && is_stuck(peer)) {
    mismatch(peer, kStuck);
    return false;
  }
  return true;
}

bool DirectHostRunner::meet(int peer) {
  return await(area(peer).call_number(calls_), calls_, peer) && is_same_call(peer);
}

bool DirectHostRunner::is_same_call(int peer) {
  const HostCallHead& theirs = *area(peer).call_head(calls_);
  if (theirs == head_) [[likely]] {
    return true;
  }
  mismatch(peer, "calls " + describe(theirs));
  return false;
}

void DirectHostRunner::mismatch(int peer, const std::string& what) {
  if (failure_.ok()) {
    failure_ = Status(ErrorCode::kMismatch, "direct: rank " + std::to_string(peer) + " " + what +
                                                ", rank " + std::to_string(rank_) + " calls " +
                                                describe(head_) +
                                                "; all ranks of a communicator must call the same");
  }
}

// ---- brief collectives -------------------------------------------------------------------------

bool DirectHostRunner::run_brief(const Call& call, Bytes contribution_bytes) {
  const bool gives = from_root(call.collective) ? is_mine(call.root)
                                                : !to_root(call.collective) || !is_mine(call.root);
  const bool takes = to_root(call.collective) ? is_mine(call.root)
                                              : !from_root(call.collective) || !is_mine(call.root);
  if (gives && !post_brief(call, contribution_bytes)) {
    return false;
  }
  if (takes) {
    const bool taken = select::is_reduction(call.collective)
                           ? reduce_brief(call, contribution_bytes)
                           : take_brief(call, contribution_bytes);
    if (!taken) {
      return false;
    }
  } else if (call.collective == Collective::kScatter && !call.in_place) {
    copy(call.recv, at(call.send, own_block_offset(call, rank_), call.element_bytes),
         call.count * call.element_bytes);
  }
  if (gives && takes) {
    // Everybody has come to this one, so everybody has left the one before.
    calls_left_ = calls_ - 1;
  }
  return true;
}

bool DirectHostRunner::post_brief(const Call& call, Bytes contribution_bytes) {
  if (!await_place(HostLayout::slots(contribution_bytes)) ||
      (contribution_bytes > HostLayout::kInlineBytes && !claim_rings())) {
    return false;
  }
  const bool is_bcast = call.collective == Collective::kBcast;
  const bool counts_differ = call.collective == Collective::kAllgatherv;
  const Bytes bytes = counts_differ ? call.count * call.element_bytes : contribution_bytes;
  copy(mine().brief_data(calls_, contribution_bytes), is_bcast ? call.recv : call.send, bytes);
  *mine().call_head(calls_) = head_;
  mine().call_number(calls_).publish(calls_);
  return true;
}

const std::byte* DirectHostRunner::await_brief(int peer, Bytes contribution_bytes) {
  return meet(peer) ? area(peer).brief_data(calls_, contribution_bytes) : nullptr;
}

bool DirectHostRunner::take_brief(const Call& call, Bytes contribution_bytes) {
  const Bytes block_bytes = call.count * call.element_bytes;
  const auto self = static_cast<std::uint64_t>(rank_);
  if (from_root(call.collective)) {
    const std::byte* from = await_brief(call.root, contribution_bytes);
    if (from == nullptr) {
      return false;
    }
    copy(call.recv, from + (call.collective == Collective::kScatter ? self * block_bytes : 0),
         block_bytes);
    return true;
  }
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    const auto i = static_cast<std::uint64_t>(peer);
    // The own contribution lies in the own slot, except a root's: that one gives nothing.
    const bool is_own = is_mine(peer);
    const std::byte* from =
        is_own ? static_cast<const std::byte*>(call.send) : await_brief(peer, contribution_bytes);
    if (from == nullptr && !is_own) {
      return false;
    }
    switch (call.collective) {
      case Collective::kGather:
      case Collective::kAllgather:
        copy(at(call.recv, i * call.count, call.element_bytes), from, block_bytes);
        break;
      case Collective::kAllgatherv:
        copy(at(call.recv, call.recv_offsets[i], call.element_bytes), from,
             call.recv_counts[i] * call.element_bytes);
        break;
      case Collective::kAlltoall:
        copy(at(call.recv, i * call.count, call.element_bytes), from + self * block_bytes,
             block_bytes);
        break;
      default:
        break;  // A barrier has nothing to take.
    }
  }
  return true;
}

bool DirectHostRunner::reduce_brief(const Call& call, Bytes contribution_bytes) {
  std::uint64_t first = 0;
  std::uint64_t count = call.count;
  if (call.collective == Collective::kReduceScatterBlock) {
    first = static_cast<std::uint64_t>(rank_) * count;
  } else if (call.collective == Collective::kReduceScatter) {
    first = sum_of(call.recv_counts.first(static_cast<std::size_t>(rank_)));
    count = call.recv_counts[static_cast<std::size_t>(rank_)];
  }
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    const void* from = is_mine(peer) ? call.send : await_brief(peer, contribution_bytes);
    if (from == nullptr && !is_mine(peer)) {
      return false;
    }
    inputs_[static_cast<std::size_t>(peer)] = at(from, first, call.element_bytes);
  }
  if (count > 0) {
    reduce_function(isa_, call.type, call.op)(call.recv, inputs_.data(), layout_.ranks, count);
  }
  return true;
}

}  // namespace tutti::runners
