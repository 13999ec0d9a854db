// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries the collectives of ranks on one node through memory they share, with reductions by the
// CPU. All buffers must be readable and writable by the CPU. Three ways, chosen by what is equal on
// all ranks alone (collective, bytes, ranks):
//
//   brief   up to 4 KB: each rank that gives puts its part into one slot, the others take it from
//           there; a few bytes travel with the sequence number on one cache line
//   rounds  reductions, cut so that a round stays in the cache. Two ranks: each reads the other's
//   input.
//           More: each rank reduces its shard of a round and the others collect it. While a round
//           is reduced the next is being staged.
//   pieces  everything else: streams of pieces, to all or to one, with credit from the readers.
//           Each stream's length is known to its two ends alone, as in alltoallv.
//
// A reduction combines rank 0's input with rank 1's, the result with rank 2's, and so on, in every
// way and for every cut: a result's bits depend on the inputs and on nothing else.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runners/direct/host_layout.hpp"
#include "runners/direct/host_memory.hpp"
#include "runners/direct/host_patience.hpp"
#include "runners/direct/host_reduce.hpp"
#include "runners/runner.hpp"

namespace tutti::runners {

class DirectHostRunner : public Runner {
 public:
  struct Options {
    double timeout_s = 0;              ///< 0: wait for ever.
    bool is_crowded = false;           ///< Ranks share cores: waiting gives the core away at once.
    std::function<void()> progress{};  ///< HostPeers::progress.
  };
  /// What a rank tells the others of its communicator; fixed size, to be sent as bytes.
  struct Introduction {
    HostMemory::Part part;  ///< life 0: none, and the reason says why.
    HostProcess process;
    char reason[96] = {};
  };
  /// Of this rank, for a communicator of `ranks`. `memory`: of this process; an error when it could
  /// not be made. Local; takes memory that create() uses or gives back.
  static Introduction introduce(const Result<std::shared_ptr<HostMemory>>& memory, int ranks);
  /// Where create() is never to come.
  static void give_back(const std::shared_ptr<HostMemory>& memory, const Introduction& mine);

  /// Collective over ranks of one machine, which have told each other `all`, by rank; ok on all of
  /// them or kUnavailable on all. Another error: a rank has died or did not come in time.
  static Result<std::unique_ptr<DirectHostRunner>> create(std::shared_ptr<HostMemory> memory,
                                                          int rank,
                                                          const std::vector<Introduction>& all,
                                                          const Options& options);
  ~DirectHostRunner() override;
  DirectHostRunner(const DirectHostRunner&) = delete;
  DirectHostRunner& operator=(const DirectHostRunner&) = delete;

  /// Scope::kWhole only. After an error every further call fails at once.
  Status run(Scope scope, const Call& call) override;
  /// This rank cannot take part any more: those that wait for it need not wait on.
  void give_up(const Status& reason);

 private:
  DirectHostRunner(std::shared_ptr<HostMemory> memory, const HostMemory::Part& part,
                   const HostLayout& layout, std::shared_ptr<HostUse> use);

  /// `own`: whether this rank has mapped the memory of all others.
  static Status agree_on_mappings(const HostUse& use, const Status& own);
  /// Before this rank writes into its rings: waits until they are this communicator's.
  bool claim_rings();
  /// False: the wait failed and failure_ says why. So all the functions below.
  bool await(const HostCounter& counter, std::uint64_t at_least, int peer);
  bool carry_out(const Call& call);

  // Brief collectives (host_runner.cpp).
  bool run_brief(const Call& call, Bytes contribution_bytes);
  bool post_brief(const Call& call, Bytes contribution_bytes);
  bool take_brief(const Call& call, Bytes contribution_bytes);
  bool reduce_brief(const Call& call, Bytes contribution_bytes);
  /// Rank `peer`'s contribution to the brief collective under way; null after a failure.
  const std::byte* await_brief(int peer, Bytes contribution_bytes);

  // Reductions in rounds (host_reduction.cpp).
  struct Rounds;
  bool reduce_in_rounds(const Call& call);
  struct Round;
  bool stage(const Rounds& rounds, Round* round);
  bool reduce(const Rounds& rounds, const Round& round);
  bool collect(const Rounds& rounds, const Round& round);

  // Streams of pieces (host_exchange.cpp).
  struct Stream;
  bool spread(const Call& call);
  bool exchange(const Call& call);
  bool post_spread_piece(Stream& stream);
  bool take_spread_piece(int writer, Stream& stream);
  bool post_piece(int reader, Stream& stream);
  bool take_piece(int writer, Stream& stream);

  bool is_mine(int rank) const { return rank == rank_; }
  const HostArea& mine() const { return areas()[static_cast<std::size_t>(rank_)]; }
  const HostArea& area(int rank) const { return areas()[static_cast<std::size_t>(rank)]; }
  const std::vector<HostArea>& areas() const { return peers_.areas; }

  std::shared_ptr<HostMemory> memory_;
  HostMemory::Part part_;
  HostLayout layout_;
  std::shared_ptr<HostUse> use_;  ///< What this rank has written into its rings.
  HostPeers& peers_;              ///< Of use_.
  int rank_;
  Isa isa_ = best_isa();
  Status failure_;

  // Where the ranks are, the same on all of them.
  std::uint64_t briefs_ = 0;
  /// All ranks have left this brief collective; they may have left more.
  std::uint64_t briefs_left_ = 0;
  // Positions in the rings of pieces, by the stream's other end: known to be read by all who have
  // to, and read.
  Bytes spread_credit_ = 0;
  std::vector<Bytes> spread_taken_;
  std::vector<Bytes> credit_;
  std::vector<Bytes> taken_;
  std::vector<const void*> inputs_;  ///< Scratch of reductions, by rank.
};

}  // namespace tutti::runners
