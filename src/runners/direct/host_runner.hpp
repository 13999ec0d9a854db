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
//           input. More: each rank reduces its shard of a round and the others collect it. While a
//           round is reduced the next is being staged.
//   pieces  everything else: streams of pieces, to all or to one, with credit from the readers.
//           Each stream's length is known to its two ends alone, as in alltoallv.
//
// Where ranks call with different counts, or different collectives, each rank that sees it gets
// kMismatch for this call; the communicator stays as good as it was (host_layout.hpp).
//
// A reduction combines rank 0's input with rank 1's, the result with rank 2's, and so on, in every
// way and for every cut: a result's bits depend on the inputs and on nothing else.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runners/direct/host_layout.hpp"
#include "runners/direct/host_memory.hpp"
#include "runners/direct/host_reduce.hpp"
#include "runners/direct/host_wait.hpp"
#include "runners/runner.hpp"

namespace tutti::runners {

class DirectHostRunner : public Runner {
 public:
  struct Options {
    double timeout_s = 0;               ///< 0: wait for ever.
    bool waits_for_the_living = false;  ///< HostPeers::waits_for_the_living.
    bool is_crowded = false;            ///< Ranks share cores: waiting gives the core away at once.
    /// All ranks are known to have mapped each other's memory, rings included: create() is then
    /// local, and an error is this rank's alone.
    bool are_mapped = false;
    std::function<void()> progress{};                       ///< HostPeers::progress.
    std::shared_ptr<const std::atomic<bool>> is_aborted{};  ///< HostPeers::is_aborted.
    /// The number of the communicator's last call, the one to run() included, as others tell them
    /// that go another way (HostArea::pass_by); null: all go through run().
    const std::uint64_t* calls = nullptr;
    /// Calls that the others may have made beside those (find_number()).
    std::uint64_t calls_doubted = 0;
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

  /// Where a rank that has introduced itself to a communicator of `ranks` tells of calls that go
  /// another way (HostArea::pass_by), before create() and after it has given a runner; null where
  /// no rank will have one.
  static std::byte* calls_line(const HostMemory& memory, const Introduction& mine, int ranks) {
    HostLayout layout;
    layout.ranks = ranks;
    return mine.part.life == 0
               ? nullptr
               : HostArea(layout, 0, memory.data() + mine.part.block_at, nullptr).calls_line();
  }

  /// Collective over ranks of one machine, which have told each other `all`, by rank; ok on all of
  /// them or kUnavailable on all. Another error: a rank has died or did not come in time.
  static Result<std::unique_ptr<DirectHostRunner>> create(std::shared_ptr<HostMemory> memory,
                                                          int rank,
                                                          const std::vector<Introduction>& all,
                                                          const Options& options);
  struct Posted {
    /// To be retired with the part (HostMemory::retire) where create() does not follow. Null:
    /// nothing has been told.
    std::shared_ptr<HostUse> use;
    bool is_mapped = false;  ///< As the others were told. Else create() will not wait for them.
  };
  /// This rank's part in create(), ahead of it and without waiting: others that are in create() go
  /// on. What they were told stays.
  static Posted post(HostMemory& memory, int rank, const std::vector<Introduction>& all);
  ~DirectHostRunner() override;
  DirectHostRunner(const DirectHostRunner&) = delete;
  DirectHostRunner& operator=(const DirectHostRunner&) = delete;

  /// Scope::kWhole only. After an error other than kMismatch every further call fails at once.
  Status run(Scope scope, const Call& call) override;
  /// Of a call to come, before which the others may have made calls that this rank has not: whether
  /// it has this number with another rank; null: nothing moves between them, which would tell.
  /// Waits as the call itself does, or, where that waits for nobody, until `end`; then it has not.
  std::optional<bool> has_number(const Call& call, std::uint64_t number,
                                 std::chrono::steady_clock::time_point end) const;
  /// Collective over all ranks, also those whose calls have failed, and no call: each tells `own`,
  /// of at most HostLayout::kFactsBytes, and gets what all have told, by rank (null: it wants
  /// nothing). For communicators that are derived from this one: MPI has seen to it that all ranks
  /// come. Error: a rank has died, or has left this communicator.
  Status allgather_facts(const void* own, void* all, Bytes bytes_each);
  /// The last round of this rank: in each later one the others find what it tells here.
  Status post_last_facts(const void* own, Bytes bytes);
  /// The last call that passed by is none on this rank, whose arguments are wrong.
  void tell_refusal() { mine().refused().publish(last_call()); }
  static void tell_refusal(const HostMemory& memory, const Introduction& mine, int ranks,
                           std::uint64_t call) {
    if (mine.part.life != 0) {
      HostLayout layout;
      layout.ranks = ranks;
      HostArea(layout, 0, memory.data() + mine.part.block_at, nullptr).refused().publish(call);
    }
  }
  std::byte* calls_line() const { return mine().calls_line(); }
  /// What keeps a rank from coming to what this rank waits for elsewhere (in MPI, say); ok: all
  /// live and have not given up. kUnavailable: of some rank nothing tells. `in_call`: this rank is
  /// in the last call that passed by, in which nobody waits for one whose arguments were refused.
  Status look_at_peers(bool in_call) const;
  /// The same before create(); `call`: that last call, 0: none.
  static Status look_at_peers(HostMemory& memory, int rank, const std::vector<Introduction>& all,
                              std::uint64_t call);
  /// While a rank's last call passes by: a rank that has made this call in shared memory, so that
  /// their arguments differ; empty: none is known. Of ranks that have introduced themselves, from
  /// any thread, as long as the own part is not given back.
  static std::string find_call_another_way(HostMemory& memory, int own_rank,
                                           const std::vector<Introduction>& all);
  /// This rank cannot take part any more: those that wait for it need not wait on.
  void give_up(const Status& reason);

 private:
  DirectHostRunner(std::shared_ptr<HostMemory> memory, const HostMemory::Part& part,
                   const HostLayout& layout, std::shared_ptr<HostUse> use,
                   const std::uint64_t* calls);

  /// Error: the same on all ranks.
  static Result<HostLayout> layout_of(const std::vector<Introduction>& all);
  /// Into `peers`: the areas of all, and what keeps them mapped. Error: one could not be.
  static Status map(HostMemory& memory, int rank, const std::vector<Introduction>& all,
                    const HostLayout& layout, HostPeers* peers);
  /// `own`: whether this rank has mapped the memory of all others.
  static Status agree_on_mappings(const HostUse& use, std::uint64_t calls, const Status& own);
  /// Of the communicator, whichever way it went.
  std::uint64_t last_call() const { return counted_ != nullptr ? *counted_ : calls_; }
  /// Before this rank writes into its rings: waits until they are this communicator's.
  bool claim_rings();
  /// False: the wait failed and failure_ says why. So all the functions below.
  bool await(const HostCounter& counter, std::uint64_t at_least, int peer, bool announces = true);
  template <class CounterOf>
  Status await_facts(CounterOf counter_of, std::uint64_t number) const;
  bool carry_out(const Call& call);

  /// Before this rank writes its line of this call: those who read the line, or the brief slot,
  /// that it takes the place of must have left their call.
  bool await_place(std::uint64_t places);
  /// A rank whose calls were refused may come so late that others have used their rings since.
  bool had_rings();
  /// Tells the others what this rank calls, if it has not: after a long wait, when one of them may
  /// wait for this rank in another call.
  void announce();
  /// After a look in a wait that found nothing. False: it failed. `announces`: not where this rank
  /// has still to write what its line stands for.
  template <class Awaited>
  bool wait(BoundedWait& bounded_wait, Awaited awaited, bool announces = true);
  bool wait_for(int peer, BoundedWait& bounded_wait, bool announces = true);
  int find_partner(const Call& call) const;
  /// Whether this is rank `peer`'s call of that number; null: it has not shown yet what it calls.
  std::optional<bool> is_call_of(int peer, std::uint64_t number, const HostCallHead& head) const;
  /// Rank `peer` has come to this call, and it is the same one.
  bool meet(int peer);
  bool is_same_call(int peer);
  /// Rank `peer` is in a call that goes another way there, and went through here on this rank.
  bool is_stuck(int peer) const;
  static constexpr const char* kStuck =
      "is in an earlier call, which goes another way for what it passed there";
  /// This call is not what rank `peer` called.
  void mismatch(int peer, const std::string& what);

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
  bool await_round(int peer, std::uint64_t key);
  Bytes start_of(const Rounds& rounds, const Round& round, int peer) const;

  // Streams of pieces (host_exchange.cpp).
  struct Stream;
  bool spread(const Call& call);
  bool exchange(const Call& call);
  bool post_spread_piece(Stream& stream);
  bool take_spread_piece(int writer, Stream& stream);
  bool post_piece(int reader, Stream& stream);
  bool take_piece(int writer, Stream& stream);
  bool find_stream(int writer, Stream& stream);
  Bytes spread_credit_of(int reader, Bytes end);
  bool is_as_long(int writer, const HostStreamHead& head, const Stream& stream);
  void drop_what_never_comes(std::vector<Stream>& in, bool are_spread);
  void drop_what_nobody_takes(std::vector<Stream>& out);

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

  const std::uint64_t* counted_;  ///< Options::calls.
  /// The call under way, or the last one that went through here: its number, and what this rank
  /// tells of it.
  std::uint64_t calls_ = 0;
  HostCallHead head_;
  static constexpr std::uint64_t kWaysKept = 64;
  std::uint64_t fact_rounds_ = 0;
  std::uint64_t ways_ = 0;  ///< Bit i: call number calls_ - i went through here.
  /// All ranks have left this call; they may have left more.
  std::uint64_t calls_left_ = 0;

  // The own rings: where the next byte goes, and by reader (spread: all of them) up to where they
  // may be written again.
  Bytes rounds_end_ = 0;
  Bytes spread_posted_ = 0;
  Bytes spread_credit_ = 0;
  std::vector<Bytes> posted_;
  std::vector<Bytes> credit_;
  /// The call of the last stream for everybody that is whole; where the one under way begins.
  std::uint64_t last_spread_ = 0;
  Bytes spread_start_ = 0;
  /// By reader: the calls of the newest streams to it, the newest first; how many there were;
  /// where the newest begins.
  std::vector<std::array<std::uint64_t, HostLayout::kStreamsAhead>> streams_;
  std::vector<std::uint64_t> streams_begun_;
  std::vector<Bytes> stream_starts_;
  /// Rounds in the staging ring that others may not have reduced yet.
  struct StagedRound {
    Bytes start = 0;
    std::uint64_t key = 0;
  };
  std::deque<StagedRound> staged_rounds_;
  // By writer: where the next piece of its rings is; where its rounds of this call begin.
  std::vector<Bytes> spread_taken_;
  std::vector<Bytes> taken_;
  std::vector<Bytes> round_starts_;
  std::vector<std::uint64_t> left_;  ///< By rank: the last call that it is known to have left.
  std::vector<const void*> inputs_;  ///< Scratch of reductions, by rank.
};

template <class Awaited>
bool DirectHostRunner::wait(BoundedWait& bounded_wait, Awaited awaited, bool announces) {
  const int checks = bounded_wait.checks();
  if (!bounded_wait.wait(awaited)) {
    failure_ = bounded_wait.failure();
    return false;
  }
  if (announces && bounded_wait.checks() != checks) {
    announce();
  }
  return true;
}

}  // namespace tutti::runners
