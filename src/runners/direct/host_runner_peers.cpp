// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which ranks share memory: set-up, facts that ranks exchange there, and looks at the peers.
#include "runners/direct/host_runner.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/on_failure.hpp"

namespace tutti::runners {

namespace {

/// HostArea::state(): whether the rank has mapped all others' memory.
enum State : std::uint64_t { kUndecided, kMapped, kNotMapped };

template <std::size_t N>
void put(char (&field)[N], const std::string& text) {
  std::strncpy(field, text.c_str(), N - 1);
}

/// The same on all ranks: the first in rank order that has no memory to give.
Status refusal_of(const std::vector<DirectHostRunner::Introduction>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].part.life == 0) {
      return Status(ErrorCode::kUnavailable,
                    "rank " + std::to_string(rank) + ": " + all[rank].reason);
    }
  }
  return {};
}

void tell_state(const HostArea& mine, const Status& own) {
  if (!own.ok()) {
    std::strncpy(mine.reason(), own.message().c_str(), HostLayout::kReasonBytes - 1);
  }
  mine.state().publish(own.ok() ? kMapped : kNotMapped);
}

}  // namespace

Result<HostLayout> DirectHostRunner::layout_of(const std::vector<Introduction>& all) {
  TUTTI_RETURN_IF_ERROR(refusal_of(all));
  HostLayout layout;
  layout.ranks = static_cast<int>(all.size());
  layout.ring_bytes = ~Bytes{0};
  for (const Introduction& rank : all) {
    layout.ring_bytes = std::min(layout.ring_bytes, rank.part.ring_bytes);
  }
  layout.ring_bytes = layout.ring_bytes / HostLayout::kRingUnit * HostLayout::kRingUnit;
  if (layout.ring_bytes < HostLayout::ring_bytes_min(layout.ranks)) {
    return Status(ErrorCode::kUnavailable, "a node's shared memory is too small for " +
                                               std::to_string(layout.ranks) + " ranks");
  }
  return layout;
}

Status DirectHostRunner::map(HostMemory& memory, int rank, const std::vector<Introduction>& all,
                             const HostLayout& layout, HostPeers* peers) {
  Status status = memory.reserve_rings(all[static_cast<std::size_t>(rank)].part);
  peers->processes.reserve(all.size());
  peers->lives.reserve(all.size());
  peers->segments.reserve(all.size());
  peers->areas.reserve(all.size());
  const auto hold = memory.hold();
  for (int peer = 0; peer < layout.ranks; ++peer) {
    const Introduction& other = all[static_cast<std::size_t>(peer)];
    auto segment = memory.map(hold, other.part, other.process);
    if (!segment.ok() && status.ok()) {
      status = segment.status();
    }
    std::byte* const data = segment.ok() ? (*segment)->data() : nullptr;
    peers->processes.push_back(other.process);
    peers->lives.push_back(other.part.life);
    peers->segments.push_back(segment.ok() ? std::move(*segment) : nullptr);
    peers->areas.emplace_back(layout, peer, data == nullptr ? nullptr : data + other.part.block_at,
                              data == nullptr ? nullptr : data + other.part.rings_at);
  }
  return status.ok() ? status : Status(ErrorCode::kUnavailable, status.message());
}

DirectHostRunner::Posted DirectHostRunner::post(HostMemory& memory, int rank,
                                                const std::vector<Introduction>& all) {
  const Result<HostLayout> layout = layout_of(all);
  if (!layout.ok()) {
    return {};
  }
  auto use = std::make_shared<HostUse>();
  use->rank = rank;
  const Status own = map(memory, rank, all, *layout, &use->peers);
  tell_state(use->peers.areas[static_cast<std::size_t>(rank)], own);
  return {.use = std::move(use), .is_mapped = own.ok()};
}

/// All ranks come to the same answer without a message: each writes into its own block whether it
/// has mapped all others. A rank whose block another cannot read makes that other say no.
Status DirectHostRunner::agree_on_mappings(const HostUse& use, std::uint64_t calls,
                                           const Status& own) {
  const HostArea& mine = use.peers.areas[static_cast<std::size_t>(use.rank)];
  // What post() has told the others stays.
  switch (mine.state().read()) {
    case kNotMapped:
      return Status(ErrorCode::kUnavailable, mine.reason());
    case kMapped:
      if (!own.ok()) {
        return Status(ErrorCode::kLibraryFailed, own.message());
      }
      break;
    default:
      tell_state(mine, own);
  }
  for (int rank = 0; own.ok() && rank < static_cast<int>(use.peers.areas.size()); ++rank) {
    const HostArea& peer = use.peers.areas[static_cast<std::size_t>(rank)];
    BoundedWait bounded_wait(use.peers);
    // A rank that is through may have freed the communicator since; its answer stays.
    while (peer.state().read() == kUndecided) {
      if (use.peers.has_ended(rank) && peer.state().read() == kUndecided) {
        return Status(ErrorCode::kLibraryFailed,
                      "rank " + std::to_string(rank) + " has left the communicator");
      }
      // A rank that is through may be in later calls, too.
      if (peer.passed_by().read() > calls && peer.state().read() == kUndecided) {
        return Status(ErrorCode::kLibraryFailed,
                      "rank " + std::to_string(rank) +
                          " is in a call that goes another way for what it passed there; all ranks "
                          "of a communicator must call the same");
      }
      if (!bounded_wait.wait([rank](int other) { return other == rank; })) {
        return bounded_wait.failure();
      }
    }
    if (peer.state().read() == kNotMapped) {
      return Status(ErrorCode::kUnavailable, "rank " + std::to_string(rank) + ": " + peer.reason());
    }
  }
  return own;
}

DirectHostRunner::Introduction DirectHostRunner::introduce(
    const Result<std::shared_ptr<HostMemory>>& memory, int ranks) {
  Introduction mine;
  mine.process = HostProcess::self();
  const auto part = memory.ok() ? (*memory)->take(ranks) : memory.status();
  if (part.ok()) {
    mine.part = *part;
  } else {
    put(mine.reason, part.status().message());
  }
  return mine;
}

void DirectHostRunner::give_back(const std::shared_ptr<HostMemory>& memory,
                                 const Introduction& mine) {
  if (mine.part.life != 0) {
    memory->give_back(mine.part);
  }
}

Result<std::unique_ptr<DirectHostRunner>> DirectHostRunner::create(
    std::shared_ptr<HostMemory> memory, int own_rank, const std::vector<Introduction>& all,
    const Options& options) {
  const Introduction& mine = all[static_cast<std::size_t>(own_rank)];
  OnFailure tell([&] { memory->abandon(mine.part); });  // Where there was no memory for all this.
  const Result<HostLayout> layout = layout_of(all);
  if (!layout.ok()) {
    tell.succeed();
    give_back(memory, mine);
    return layout.status();
  }
  auto use = std::make_shared<HostUse>();
  use->rank = own_rank;
  HostPeers& peers = use->peers;
  peers.timeout_s = options.timeout_s;
  peers.waits_for_the_living = options.waits_for_the_living;
  peers.spins = HostPeers::spins_of(options.is_crowded);
  peers.progress = options.progress;
  peers.is_aborted = options.is_aborted;
  Status status = map(*memory, own_rank, all, *layout, &peers);
  if (!options.are_mapped) {
    const std::uint64_t calls = options.calls == nullptr ? 0 : *options.calls;
    status = agree_on_mappings(*use, calls + options.calls_doubted, status);
  } else if (!status.ok()) {
    memory->tell_failure(mine.part);  // The others do not expect it.
    status = Status(ErrorCode::kLibraryFailed, status.message());
  }
  if (!status.ok()) {
    tell.succeed();
    peers.progress = nullptr;
    memory->retire(mine.part, use);  // Others may still look at it.
    return status;
  }
  auto hold = memory->hold();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    memory->touch_rings(hold, all[rank].part, *peers.segments[rank]);
  }
  hold.unlock();
  std::unique_ptr<DirectHostRunner> made(
      new DirectHostRunner(memory, mine.part, *layout, std::move(use), options.calls));
  tell.succeed();
  return made;
}

bool DirectHostRunner::claim_rings() {
  const std::shared_ptr<HostUse>& last = memory_->user(part_.set);
  if (last == use_) [[likely]] {
    use_->last_call = calls_;
    return true;
  }
  for (int peer = 0; last != nullptr && peer < static_cast<int>(last->peers.areas.size()); ++peer) {
    if (last->is_taken(peer)) {
      continue;
    }
    HostPeers peers = last->peers;
    peers.progress = peers_.progress;
    BoundedWait bounded_wait(peers);
    const auto i = static_cast<std::size_t>(peer);
    const HostCounter doubt = HostArea::in_doubt(last->peers.areas[i].calls_line());
    bool is_in_doubt = false;
    while (!last->is_taken(peer) && !(is_in_doubt = doubt.read() != 0) &&
           bounded_wait.wait([peer](int rank) { return rank == peer; })) {
    }
    if (is_in_doubt) {
      const auto own = static_cast<std::size_t>(last->rank);
      last->peers.areas[own].rings_lost().publish_first(last->last_call);
    }
    // A rank that has died reads nothing any more.
    if (!bounded_wait.failure().ok() && bounded_wait.failure().code() == ErrorCode::kTimeout) {
      failure_ = Status(ErrorCode::kTimeout,
                        "another communicator's data: " + bounded_wait.failure().message());
      return false;
    }
  }
  use_->last_call = calls_;
  memory_->set_user(part_.set, use_);
  return true;
}

template <class CounterOf>
Status DirectHostRunner::await_facts(CounterOf counter_of, std::uint64_t number) const {
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    BoundedWait bounded_wait(peers_, BoundedWait::kFacts);
    while (!is_mine(peer) && counter_of(area(peer)).read() < number) {
      // Each that is still to come: one of them may wait for another that has died.
      if (!bounded_wait.wait(
              [&](int rank) { return !is_mine(rank) && counter_of(area(rank)).read() < number; })) {
        return bounded_wait.failure();
      }
    }
  }
  return {};
}

Status DirectHostRunner::allgather_facts(const void* own, void* all, Bytes bytes_each) {
  CHECK(bytes_each <= HostLayout::kFactsBytes, "there is room for it");
  const std::uint64_t number = ++fact_rounds_;
  const auto posted_of = [](const HostArea& rank) { return rank.facts_posted(); };
  const auto read_of = [](const HostArea& rank) { return rank.facts_read(); };
  Status status = await_facts(read_of, number - 1);
  if (status.ok()) {
    std::memcpy(mine().facts(), own, bytes_each);
    mine().facts_posted().publish(number);
  }
  if (status.ok() && all != nullptr) {
    status = await_facts(posted_of, number);
  }
  for (int rank = 0; status.ok() && all != nullptr && rank < layout_.ranks; ++rank) {
    std::memcpy(static_cast<std::byte*>(all) + static_cast<Bytes>(rank) * bytes_each,
                area(rank).facts(), bytes_each);
  }
  mine().facts_read().publish(number);
  return status;
}

Status DirectHostRunner::post_last_facts(const void* own, Bytes bytes) {
  constexpr std::uint64_t kEach = ~std::uint64_t{0};
  TUTTI_RETURN_IF_ERROR(allgather_facts(own, /*all=*/nullptr, bytes));
  mine().facts_read().publish(kEach);
  mine().facts_posted().publish(kEach);
  return {};
}

Status DirectHostRunner::look_at_peers(bool in_call) const {
  return peers_.look_for_messages(rank_, in_call ? last_call() : 0);
}

Status DirectHostRunner::look_at_peers(HostMemory& memory, int own_rank,
                                       const std::vector<Introduction>& all, std::uint64_t call) {
  HostPeers peers;
  HostLayout layout;
  layout.ranks = static_cast<int>(all.size());
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const Introduction& other = all[static_cast<std::size_t>(rank)];
    auto segment = other.part.life == 0 || !other.process.is_another_known()
                       ? Result<std::shared_ptr<SharedSegment>>(
                             Status(ErrorCode::kUnavailable, "nothing tells whether a rank lives"))
                       : memory.map(memory.hold(), other.part, other.process);
    if (!segment.ok() && rank != own_rank) {
      return other.process.runs()
                 ? Status(ErrorCode::kUnavailable, segment.status().message())
                 : Status(ErrorCode::kLibraryFailed, "rank " + std::to_string(rank) + " has died");
    }
    std::byte* const data = segment.ok() ? (*segment)->data() : nullptr;
    peers.processes.push_back(other.process);
    peers.lives.push_back(other.part.life);
    peers.segments.push_back(segment.ok() ? std::move(*segment) : nullptr);
    peers.areas.emplace_back(layout, rank, data == nullptr ? nullptr : data + other.part.block_at,
                             nullptr);
  }
  return peers.look_for_messages(own_rank, call);
}

std::string DirectHostRunner::find_call_another_way(HostMemory& memory, int own_rank,
                                                    const std::vector<Introduction>& all) try {
  HostLayout layout;
  layout.ranks = static_cast<int>(all.size());
  const auto area_of = [&](int rank, std::byte* data) {
    return HostArea(layout, rank, data + all[static_cast<std::size_t>(rank)].part.block_at,
                    nullptr);
  };
  if (!refusal_of(all).ok()) {
    return "";  // Nothing goes through shared memory.
  }
  const HostArea own = area_of(own_rank, memory.data());
  const std::uint64_t call = own.passed_by().read();
  if (own.life().read() != all[static_cast<std::size_t>(own_rank)].part.life) {
    return "";
  }
  std::string found;
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const Introduction& other = all[static_cast<std::size_t>(rank)];
    const auto segment = memory.map(memory.hold(), other.part, other.process);
    if (!segment.ok()) {
      continue;
    }
    const HostArea area = area_of(rank, (*segment)->data());
    const bool has_made_it = call != 0 && area.call_number(call).read() == call;
    if (HostArea::turned_away(area.calls_line()).read() != 0 || area.failed().read() != 0) {
      return "";  // Its calls may have other numbers than this rank's.
    }
    // Last: the block may have gone to another communicator. One after its life it has not.
    if (found.empty() && has_made_it && area.life().read() - other.part.life <= 1) {
      found = "rank " + std::to_string(rank) +
              " has made this call through shared memory, for what it passed there (all ranks of a "
              "communicator must call the same with the same counts)";
    }
  }
  return found;
} catch (const std::bad_alloc&) {
  return "";  // Another look comes.
}

}  // namespace tutti::runners
