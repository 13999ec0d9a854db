// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// runners::MpiLibrary on this flavour's PMPI. Calls of the whole communicator run on the
// application's own, as those of ranks that need no staging do; what is ours (agreements, steps on
// nodes and among leaders) runs on a private duplicate and its splits, where nothing can meet a
// message of the application.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mpi/pmpi.hpp"
#include "runners/runner.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

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

  /// Before it, calls run on the application's own communicator.
  Status duplicate() override;
  /// Communicator for steps of ours over all ranks.
  MPI_Comm own() const { return own_; }

  bool has_large_counts() const override { return pmpi.large.Allreduce != nullptr; }
  std::string name() const override;
  void set_look(const std::function<Status()>& look) override { look_ = look; }
  void leave() override { has_left_ = true; }
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
  Status collective_on(runners::Scope scope, const runners::Call& call);
  template <class C>
  Status collective_as(MPI_Comm comm, const runners::ScopeRank& me, const runners::Call& call,
                       MPI_Datatype type, std::uint64_t unit_bytes);

  MPI_Comm application_;
  MPI_Comm own_;  ///< The duplicate; the application's own before duplicate().
  double timeout_s_;
  std::function<Status()> look_;
  /// Messages on what is ours may never be met. An MPI may refuse to free such a communicator
  /// (MPICH does), or give its place to a new one, which they would then meet: all of them stay.
  bool has_left_ = false;
  Status failure_;
  int rank_ = 0;
  int ranks_ = 1;
  std::array<MPI_Comm, runners::kScopeCount> comms_;
  std::array<runners::ScopeRank, runners::kScopeCount> places_{};
  static constexpr Bytes kSent = ~Bytes{0};
  std::vector<MPI_Request> requests_;  ///< By slot.
  std::vector<Bytes> expected_;        ///< By slot: what a receive must get; kSent: of a send.
  std::vector<int> indices_;           ///< What MPI_Testsome writes, with the statuses.
  std::vector<MPI_Status> statuses_;
  MPI_Request* request(int slot, Bytes expected);
  Status test_together(int slots, std::vector<int>* completed);
  Status test_each(int slots, std::vector<int>* completed);
  Status check_length(const MPI_Status& status, Bytes expected) const;
  /// An agreement's end, with its result in `data`; given up, `data` is left to MPI.
  Status await(MPI_Request request, std::unique_ptr<std::byte[]>* data, const char* what);
};

/// MPI_SUCCESS -> ok; else a Status that carries the code and MPI's words for it.
Status check(int code, const char* what);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
