// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that a process gives to the other processes of its node: one memory file for all of
// its communicators, made at the first one that needs it. It holds a pool of blocks, one for each
// live communicator, and sets of rings (host_layout.hpp). Its size does not grow with the number of
// communicators: where no block is left, a communicator does without.
//
// A set of rings has one user at a time. A process without threads in MPI has one set, which its
// communicators use in turns: the next user waits until the ranks of the last one have taken what
// is in the rings (HostUse::is_taken). That wait cannot block a correct program: MPI 4.1 section
// 6.14 demands that it runs also where collectives synchronise. Under MPI_THREAD_MULTIPLE two
// threads may be in collectives at the same time, so each communicator has a set of its own.
//
// A block is reused after all ranks of its communicator have freed the communicator: each tells the
// others by its block's life counter, which is odd while the block is in use and grows for ever.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "runners/direct/host_wait.hpp"
#include "runners/direct/shared_segment.hpp"

namespace tutti::runners {

/// One communicator of this rank: its peers, and what it has written into the rings so far.
struct HostUse {
  int rank = 0;
  HostPeers peers;
  std::uint64_t last_call = 0;  ///< The last one with data in the rings.

  /// Whether `peer` does not read the rings any more for what was written so far.
  bool is_taken(int peer) const;
};

class HostMemory {
 public:
  struct Options {
    Bytes ring_bytes = 0;  ///< Of each ring of a set (HostLayout).
    int ring_sets = 1;
    bool shares_rings = true;  ///< Communicators take turns in the one set; else each has its own.
    Bytes blocks_bytes = 0;    ///< For the blocks of all communicators.
  };
  /// What a process of a node of `node_ranks` ranks gives: all together stay below 64 MiB.
  static Options default_options(int node_ranks, bool has_threads);

  /// Local. Errors: the machine has no memory for it, or forbids memory files.
  static Result<std::shared_ptr<HostMemory>> make(const Options& options);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// What the other ranks need to find a communicator's part; fixed size, to be sent as bytes.
  struct Part {
    SegmentTicket ticket;
    Bytes ring_bytes = 0;
    Bytes block_at = 0;
    Bytes rings_at = 0;
    std::uint64_t life = 0;  ///< Of the block; 0: there is none.
    std::int32_t set = 0;
  };
  /// A part with a block for `ranks` ranks, all of its counters 0. Error: none is left.
  Result<Part> take(int ranks);
  /// Whether little is left for communicators that are sure to need a block.
  bool is_half_taken();
  /// Takes the pages of a part's rings, once: no signal later when the machine has no more.
  Status reserve_rings(const Part& part);
  /// Where no rank is going to use the communicator's parts.
  void give_back(const Part& part);
  /// Ends a part for good: peers may look at it at any time, so it is never used again.
  void abandon(const Part& part);
  /// Peers that wait for this rank's part need not wait on.
  void tell_failure(const Part& part);
  bool shares_rings() const { return options_.shares_rings; }
  /// After its use: reused once all peers have ended theirs.
  void retire(const Part& part, std::shared_ptr<HostUse> use);

  /// What the two below take: a communicator calls them once for each rank.
  using Hold = std::unique_lock<std::mutex>;
  Hold hold() { return Hold(mutex_); }
  /// Another rank's memory, mapped; kept for later communicators as long as its process runs.
  Result<std::shared_ptr<SharedSegment>> map(const Hold& hold, const Part& part,
                                             const HostProcess& process);
  /// Maps the pages of another rank's rings, which that rank has reserved; once for each set.
  void touch_rings(const Hold& hold, const Part& part, SharedSegment& segment);
  std::byte* data() const { return segment_->data(); }

  /// The communicator that wrote into a set last; null: none yet.
  const std::shared_ptr<HostUse>& user(int set) const {
    return users_[static_cast<std::size_t>(set)];
  }
  void set_user(int set, std::shared_ptr<HostUse> use) {
    users_[static_cast<std::size_t>(set)] = std::move(use);
  }

 private:
  HostMemory(std::shared_ptr<SharedSegment> segment, const Options& options);
  Bytes set_at(int set) const;
  Status reserve_blocks(Bytes end);
  void put_back(const Part& part);
  void reuse_retired();

  struct Retired {
    Part part;
    std::shared_ptr<HostUse> use;
  };
  struct Peer {
    HostProcess process;
    std::shared_ptr<SharedSegment> segment;
    std::vector<Bytes> touched;  ///< Sets, by where they begin.
  };
  /// Null: never mapped. Each communicator asks for its ranks in one order, most in the same one.
  Peer* peer_of(const SegmentTicket& ticket);

  std::shared_ptr<SharedSegment> segment_;
  Options options_;
  std::mutex mutex_;  ///< Guards what is below, but for users_: a set's user alone changes that.
  Bytes blocks_end_ = 0;
  Bytes blocks_taken_ = 0;
  Bytes blocks_reserved_ = 0;
  std::map<Bytes, std::vector<Bytes>> free_blocks_;  ///< By size: where they begin.
  std::vector<int> free_sets_;                       ///< Only where each communicator has its own.
  std::vector<bool> has_pages_;                      ///< By set.
  std::map<Bytes, Bytes> sizes_;                     ///< Of blocks in use, by where they begin.
  std::deque<Retired> retired_;
  std::vector<Peer> peers_;
  std::size_t next_peer_ = 0;  ///< Where peer_of() begins: behind the one that it found last.
  std::vector<std::shared_ptr<HostUse>> users_;  ///< By set.
};

}  // namespace tutti::runners
