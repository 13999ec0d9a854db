// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// runners::MpiLibrary on this flavour's PMPI. Calls of the whole communicator run on the
// application's own, as those of ranks that need no staging do; what is ours (agreements, steps on
// nodes and among leaders) runs on a private duplicate and its splits, where nothing can meet a
// message of the application. An MPI has some two thousand communicators, which are the
// application's: the first few get a duplicate of their own, more share the one of their ranks, and
// beyond a number they do without.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mpi/pmpi.hpp"
#include "mpi/private_comm.hpp"
#include "runners/runner.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// Raises an error of the application's on its communicator, as the MPI itself would.
void call_errhandler(MPI_Comm comm, int code);

/// MPI_COMM_WORLD and MPI_COMM_SELF exist: MPI_Init was called, not only MPI_Session_init.
bool has_world();

/// A communicator of this rank alone, on which an error is neither raised nor lost: MPICH returns
/// MPI_SUCCESS where a handler of the application's has run. Null: none is to be had.
MPI_Comm quiet_comm();
void free_quiet_comm();
/// Calls `ask` with such a communicator that is freed after it; not at all where none is to be had.
void ask_alone(const std::function<void(MPI_Comm)>& ask);

/// For a scope: errors on an application's communicator are returned and not raised.
class QuietErrors {
 public:
  explicit QuietErrors(MPI_Comm comm);
  ~QuietErrors();
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;
  /// False where the communicator's errors are another one's to raise (MPICH).
  bool is_quiet() const { return is_quiet_; }

 private:
  MPI_Comm comm_;
  MPI_Errhandler handler_ = MPI_ERRHANDLER_NULL;
  bool is_quiet_;
};

class Library : public runners::MpiLibrary {
 public:
  /// `timeout_s`: how long an agreement waits for a rank, 0: for ever. The first one, before
  /// duplicate(), waits as the application's own collectives do.
  Library(MPI_Comm application, double timeout_s);
  ~Library() override;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Before it, and where there is none, agreements run on the application's own communicator.
  Result<bool> duplicate(bool may_share) override;
  /// Whether another communicator has its agreements on the same communicator of ours.
  bool shares_messages() const { return private_.use_count() > 1; }
  /// Communicator for steps of ours over all ranks.
  MPI_Comm own() const { return private_ != nullptr ? private_->comms[0] : application_; }

  bool has_large_counts() const override { return pmpi.large.Allreduce != nullptr; }
  std::string name() const override;
  void set_look(const std::function<Status()>& look) override { look_ = look; }
  void leave() override {
    if (private_ != nullptr) {
      private_->has_left = true;
    }
  }
  /// This rank is not in a call in which others may be, and goes on.
  void miss() {
    if (private_ != nullptr) {
      private_->has_missed = true;
    }
  }
  Result<bool> agree_on_call(std::uint64_t call, std::uint64_t kind, bool on_device) override;
  bool refuse(std::uint64_t call) override;
  /// Not where other communicators' agreements may come in between.
  bool doubt(std::uint64_t kind, bool on_device) override;
  Result<runners::DoubtedCall> settle_doubt(double wait_s) override;
  Status settle() override;
  /// The first agreement that failed: the ranks may not have come to the same, and what is left of
  /// it would meet the next one. None follows.
  Status failure() const override { return failure_; }
  void progress() override;
  Status allgather(const void* send, void* recv, Bytes bytes_each) override;
  Status max_in_place(std::uint64_t* values, int count) override;
  Status make_scopes(int node) override;
  runners::ScopeRank scope_rank(runners::Scope scope) const override {
    return places_[static_cast<std::size_t>(scope)];
  }
  Status collective(runners::Scope scope, const runners::Call& call) override;
  void start(select::Collective collective) override { collective_ = collective; }
  Status isend(const void* data, Bytes bytes, int peer, int tag, int slot) override;
  Status irecv(void* data, Bytes bytes, int peer, int tag, int slot) override;
  Status test_some(int slots, std::vector<int>* completed) override;
  Status reduce_local(const void* in, void* inout, std::uint64_t count,
                      const runners::Call& call) override;
  bool abandon() override;

  /// One element of a type with gaps to `bytes` bytes in order and back, where they are more than
  /// MPI_Pack can count.
  Status pack_large(const void* element, MPI_Datatype type, void* dense, Bytes bytes);
  Status unpack_large(const void* dense, void* element, MPI_Datatype type, Bytes bytes);

 private:
  /// check() for a step of ours: on the application's communicator MPI has raised the error.
  Status own_check(int code, const char* what) const;
  /// Runs an agreement, unless one has failed.
  template <class Body>
  Status agree(Body body);
  Status split_scopes(int node);
  MPI_Comm comm_of(runners::Scope scope) const {
    const auto index = static_cast<std::size_t>(scope);
    return scope == runners::Scope::kWhole              ? application_
           : collective_ == select::Collective::kReduce ? private_->for_reduce[index]
                                                        : private_->comms[index];
  }
  Status take_places();
  /// An error where messages that nobody may meet are under way on what is ours.
  Status usable() const;
  /// Every agreement on the private communicator has one form: ranks that are in different ones, or
  /// whose call was refused, meet there and see it.
  struct Agreement;
  Agreement agreement(int kind, std::uint64_t call, std::uint64_t call_kind) const;
  Status exchange(Agreement* agreement);
  /// Whether all ranks have made what they tried to make.
  Result<bool> all_made(bool is_made);
  Status collective_on(runners::Scope scope, const runners::Call& call);
  template <class C>
  Status collective_as(MPI_Comm comm, const runners::ScopeRank& me, const runners::Call& call,
                       MPI_Datatype type, std::uint64_t unit_bytes);

  MPI_Comm application_;
  std::shared_ptr<PrivateComm> private_;
  std::uint64_t number_ = 0;  ///< Of this communicator; others may share the private one.
  double timeout_s_;
  std::function<Status()> look_;
  Status failure_;
  /// One under way.
  struct PendingAgreement {
    MPI_Request request = MPI_REQUEST_NULL;
    std::unique_ptr<std::byte[]> values;
    std::uint64_t call = 0;  ///< As refuse() has it.
  };
  Result<PendingAgreement> begin(const Agreement& agreement) const;
  /// What became of one, in `met`.
  Status end(PendingAgreement* pending, Agreement* met);
  Status end_within(double limit_s, bool waits_for_the_living, PendingAgreement* pending,
                    Agreement* met);
  /// In their order.
  std::vector<PendingAgreement> refusals_;
  std::vector<PendingAgreement> doubts_;
  std::size_t late_doubts_ = 0;  ///< The first of them, on which nobody waits any more.
  int rank_ = 0;
  int ranks_ = 1;
  std::array<runners::ScopeRank, runners::kScopeCount> places_{};
  static constexpr Bytes kSent = ~Bytes{0};
  int tag_of(int tag) const;
  select::Collective collective_ = {};  ///< Of the messages and steps to come.
  std::vector<MPI_Request> requests_;   ///< By slot.
  std::vector<Bytes> expected_;         ///< By slot: what a receive must get; kSent: of a send.
  std::vector<int> indices_;            ///< What MPI_Testsome writes, with the statuses.
  std::vector<MPI_Status> statuses_;
  MPI_Request* request(int slot, Bytes expected);
  Status test_together(int slots, std::vector<int>* completed);
  Status test_each(int slots, std::vector<int>* completed);
  Status check_length(const MPI_Status& status, Bytes expected) const;
  /// How long an agreement waits for ranks of which it is not known whether they live.
  double limit_s() const;
  /// An agreement's end, with its result in `data`; given up, `data` is left to MPI.
  /// `waits_for_the_living`: beyond the limit while set_look()'s function is ok.
  Status await(MPI_Request request, std::unique_ptr<std::byte[]>* data, const char* what,
               double limit_s, bool waits_for_the_living);
  Status settle_within(double limit_s);
  Status settle_refusal(PendingAgreement* refusal, double limit_s);
};

/// MPI_SUCCESS -> ok; else a Status that carries the code and MPI's words for it.
Status check(int code, const char* what);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
