// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reductions in rounds. Each round of a rank goes through stage (own input into the staging slot),
// reduce (of all ranks' staged inputs, after all have staged it) and, where shards are reduced by
// different ranks, collect (the others' results). The order stage(i + 1), reduce(i), collect(i - 1)
// gives the other ranks the time of one step before this one waits for them.
//
// Why memory is free when it is written again, one lap of the ring later:
//  - staging: stage() waits until every rank has reduced what lay there, or left that call;
//  - result: reduce() has waited until every rank has staged this round; a rank stages it after it
//    collected the round three before it, or after it left the collective of that round;
//  - both, for another communicator: HostUse::is_taken.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "runners/direct/host_runner.hpp"

namespace tutti::runners {

using select::Collective;

namespace {

/// Rounds a collective is cut into when a slot would hold it in fewer, as long as they stay large
/// enough to be worth their synchronisation.
constexpr std::uint64_t kRoundsWanted = 4;
constexpr Bytes kRoundBytesMin = 8192;
/// Up to so many ranks each one reads all inputs; from there on each reduces its shard.
constexpr int kWholeRanksMax = 2;

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

/// How one call is cut. Elements, not bytes.
struct DirectHostRunner::Rounds {
  enum class Way : std::uint8_t {
    kWhole,    ///< Each rank that gets the result reduces all of a round.
    kShards,   ///< Each rank reduces its shard of a round; who gets the result collects them.
    kScatter,  ///< Each rank reduces its own block and keeps it.
  };

  Rounds(const Call& of, const HostLayout& layout, ReduceFunction reduce_with)
      : call(of), function(reduce_with), ranks(static_cast<std::uint64_t>(layout.ranks)) {
    const bool is_scatter = call.collective == Collective::kReduceScatter ||
                            call.collective == Collective::kReduceScatterBlock;
    way = is_scatter ? Way::kScatter : layout.ranks <= kWholeRanksMax ? Way::kWhole : Way::kShards;
    std::uint64_t total = call.count;
    if (call.collective == Collective::kReduceScatter) {
      total = *std::max_element(call.recv_counts.begin(), call.recv_counts.end());
      starts.resize(ranks);
      std::exclusive_scan(call.recv_counts.begin(), call.recv_counts.end(), starts.begin(),
                          std::uint64_t{0});
    }
    const std::uint64_t shards = way == Way::kWhole ? 1 : ranks;
    const std::uint64_t shards_cut = way == Way::kShards ? ranks : 1;
    // Shards start on cache lines, if their elements allow it.
    const std::uint64_t line = std::max<std::uint64_t>(1, 64 / call.element_bytes);
    const std::uint64_t shard_max =
        layout.part_bytes_max() / shards / call.element_bytes / line * line;
    const std::uint64_t shard_min =
        std::clamp(kRoundBytesMin / shards / call.element_bytes, line, shard_max);
    const std::uint64_t shard_wanted =
        std::clamp(divide_up(total, shards_cut * kRoundsWanted), shard_min, shard_max);
    count = divide_up(total, shards_cut * shard_wanted);
    // All rounds alike, so that no rank has a short one while the others wait.
    shard = divide_up(divide_up(total, shards_cut * count), line) * line;
    bytes = HostLayout::round_up(shards * shard * call.element_bytes, 64);
  }

  bool gets_result(int rank) const {
    return call.collective != Collective::kReduce || rank == call.root;
  }
  /// What `owner` reduces in a round, in the inputs.
  Run part(std::uint64_t round, int owner) const {
    const auto i = static_cast<std::uint64_t>(owner);
    switch (way) {
      case Way::kWhole:
        return clipped(0, call.count, round * shard);
      case Way::kShards:
        return clipped(0, call.count, (round * ranks + i) * shard);
      case Way::kScatter:
        break;
    }
    if (call.collective == Collective::kReduceScatterBlock) {
      return clipped(i * call.count, call.count, round * shard);
    }
    return clipped(starts[i], call.recv_counts[i], round * shard);
  }
  /// Where `owner`'s part lies in a staging slot.
  Bytes staged_at(int owner) const {
    return way == Way::kWhole ? 0 : static_cast<Bytes>(owner) * shard * call.element_bytes;
  }
  Run clipped(std::uint64_t base, std::uint64_t total, std::uint64_t from) const {
    return from >= total ? Run{base + total, 0} : Run{base + from, std::min(shard, total - from)};
  }

  const Call& call;
  ReduceFunction function;
  std::uint64_t ranks;
  Way way = Way::kWhole;
  std::uint64_t shard = 1;            ///< Elements of a part, where there are enough.
  std::uint64_t count = 0;            ///< Rounds.
  Bytes bytes = 0;                    ///< In the staging ring, of each round.
  std::vector<std::uint64_t> starts;  ///< Of the blocks, where they are not alike.
};

/// One of them, and where it is staged.
struct DirectHostRunner::Round {
  std::uint64_t index = 0;
  Bytes start = 0;
  Bytes end = 0;
};

bool DirectHostRunner::reduce_in_rounds(const Call& call) {
  const Rounds rounds(call, layout_, reduce_function(isa_, call.type, call.op));
  const bool collects = rounds.way == Rounds::Way::kShards;
  Round next;
  if (!await_place(HostLayout::kInlineSlots) || !claim_rings()) {
    return false;
  }
  round_starts_[static_cast<std::size_t>(rank_)] = rounds_end_;
  *mine().call_stream(calls_) = {rounds_end_, rounds.bytes};
  *mine().call_head(calls_) = head_;
  mine().call_number(calls_).publish(calls_);
  if (!stage(rounds, &next)) {
    return false;
  }
  Round last;
  for (std::uint64_t i = 0; i < rounds.count; ++i) {
    const Round round = next;
    next.index = i + 1;
    if (next.index < rounds.count && !stage(rounds, &next)) {
      return false;
    }
    if (!reduce(rounds, round)) {
      return false;
    }
    if (collects && i > 0 && !collect(rounds, last)) {
      return false;
    }
    last = round;
  }
  return !collects || collect(rounds, last);
}

bool DirectHostRunner::await_round(int peer, std::uint64_t key) {
  const HostCounter reduced = area(peer).reduced();
  if (HostLayout::reaches(reduced.read(), key)) {
    return true;
  }
  const bool is_of_this_call = HostLayout::is_of_call(key, calls_);
  const HostCounter left = area(peer).calls_done();
  BoundedWait bounded_wait(peers_, calls_);
  while (!HostLayout::reaches(reduced.read(), key)) {
    if (!is_of_this_call && left.read() >= calls_ - 1) {
      return true;
    }
    if (!wait_for(peer, bounded_wait)) {
      return false;
    }
  }
  return true;
}

bool DirectHostRunner::stage(const Rounds& rounds, Round* round) {
  round->start = HostLayout::next_start(rounds_end_, rounds.bytes, layout_.ring_bytes);
  round->end = rounds_end_ = round->start + rounds.bytes;
  // Of what lies there, the newest round.
  std::uint64_t written_over = 0;
  while (!staged_rounds_.empty() &&
         staged_rounds_.front().start + layout_.ring_bytes < round->end) {
    written_over = staged_rounds_.front().key;
    staged_rounds_.pop_front();
  }
  for (int peer = 0; peer < layout_.ranks && written_over != 0; ++peer) {
    if (!is_mine(peer) && !await_round(peer, written_over)) {
      return false;
    }
  }
  staged_rounds_.push_back({round->start, HostLayout::round_key(calls_, round->index + 1)});
  const Call& call = rounds.call;
  std::byte* slot = mine().staging(round->start);
  const bool is_whole = rounds.way == Rounds::Way::kWhole;
  for (int owner = 0; owner < layout_.ranks; ++owner) {
    // A whole round is staged once, for whoever else reduces it.
    const bool is_read = is_whole
                             ? owner == 0 && layout_.ranks > 1 &&
                                   (call.collective != Collective::kReduce || !is_mine(call.root))
                             : !is_mine(owner);
    const Run part = rounds.part(round->index, owner);
    if (is_read && part.count > 0) {
      std::memcpy(slot + rounds.staged_at(owner), at(call.send, part.offset, call.element_bytes),
                  part.count * call.element_bytes);
    }
  }
  mine().staged().publish(round->end);
  return true;
}

bool DirectHostRunner::reduce(const Rounds& rounds, const Round& round) {
  const Call& call = rounds.call;
  const Run part = rounds.part(round.index, rank_);
  const bool is_whole = rounds.way == Rounds::Way::kWhole;
  if (!is_whole || rounds.gets_result(rank_)) {
    for (int peer = 0; peer < layout_.ranks; ++peer) {
      if (is_mine(peer)) {
        inputs_[static_cast<std::size_t>(peer)] = at(call.send, part.offset, call.element_bytes);
        continue;
      }
      if (round.index == 0) {
        if (!meet(peer)) {
          return false;
        }
        round_starts_[static_cast<std::size_t>(peer)] = area(peer).call_stream(calls_)->start;
      }
      const Bytes start = start_of(rounds, round, peer);
      if (!await(area(peer).staged(), start + rounds.bytes, peer)) {
        return false;
      }
      inputs_[static_cast<std::size_t>(peer)] = area(peer).staging(start) + rounds.staged_at(rank_);
    }
    calls_left_ = calls_ - 1;  // Everybody has come to this one.
    const bool is_shared = rounds.way == Rounds::Way::kShards;
    if (part.count > 0) {
      const bool is_block = rounds.way == Rounds::Way::kScatter;
      std::byte* out = is_shared
                           ? mine().result(round.start)
                           : at(call.recv, is_block ? round.index * rounds.shard : part.offset,
                                call.element_bytes);
      rounds.function(out, inputs_.data(), layout_.ranks, part.count);
      if (is_shared && rounds.gets_result(rank_)) {
        std::memcpy(at(call.recv, part.offset, call.element_bytes), out,
                    part.count * call.element_bytes);
      }
    }
  }
  mine().reduced().publish(HostLayout::round_key(calls_, round.index + 1));
  return true;
}

/// Where `peer` has staged a round. The ranks' rings stand alike, except after calls that differed.
Bytes DirectHostRunner::start_of(const Rounds& rounds, const Round& round, int peer) const {
  const Bytes first = round_starts_[static_cast<std::size_t>(peer)];
  return first == round_starts_[static_cast<std::size_t>(rank_)]
             ? round.start
             : HostLayout::nth_start(first, round.index, rounds.bytes, layout_.ring_bytes);
}

bool DirectHostRunner::collect(const Rounds& rounds, const Round& round) {
  const Call& call = rounds.call;
  if (!rounds.gets_result(rank_)) {
    return true;
  }
  for (int step = 1; step < layout_.ranks; ++step) {
    // Each rank begins with another, so that they do not all read the same memory.
    const int owner = (rank_ + step) % layout_.ranks;
    const Run part = rounds.part(round.index, owner);
    if (part.count == 0) {
      continue;
    }
    if (!await_round(owner, HostLayout::round_key(calls_, round.index + 1))) {
      return false;
    }
    std::memcpy(at(call.recv, part.offset, call.element_bytes),
                area(owner).result(start_of(rounds, round, owner)),
                part.count * call.element_bytes);
  }
  return true;
}

}  // namespace tutti::runners
