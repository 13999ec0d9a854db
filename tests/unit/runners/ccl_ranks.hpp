// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks with a CCL runner over the fakes of CUDA and NCCL, each in a process of its own with a
// device of its own. No MPI: the unique id goes through shared memory.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dynamic_library.hpp"
#include "runners/ccl/ccl_runner.hpp"
#include "support/collective_cases.hpp"
#include "support/forked_ranks.hpp"

namespace tutti::runners {

/// Knows its rank and nothing else.
class PlacedMpi : public MpiLibrary {
 public:
  PlacedMpi(int rank, int ranks) : place_{rank, ranks} {}
  ScopeRank scope_rank(Scope scope) const override {
    return scope == Scope::kWhole ? place_ : ScopeRank{};
  }
  Result<bool> duplicate(bool) override { return none(); }
  Status allgather(const void*, void*, Bytes) override { return none(); }
  Status max_in_place(std::uint64_t*, int) override { return none(); }
  Status make_scopes(int) override { return none(); }
  Status collective(Scope, const Call&) override { return none(); }
  Status isend(const void*, Bytes, int, int, int) override { return none(); }
  Status irecv(void*, Bytes, int, int, int) override { return none(); }
  Status test_some(int, std::vector<int>*) override { return none(); }
  Status reduce_local(const void*, void*, std::uint64_t, const Call&) override { return none(); }

 private:
  static Status none() { return {ErrorCode::kUnsupported, "no MPI here"}; }
  ScopeRank place_;
};

/// One rank and what its runner works with.
class CclRank {
 public:
  CclRank(int own_rank, test::Shared& board, double timeout)
      : rank(own_rank),
        ranks(board.ranks()),
        timeout_s(timeout),
        shared(board),
        mpi(own_rank, board.ranks()) {}

  /// Loads the fakes and makes the whole scope; empty, or what failed.
  std::string start() {
    const auto cuda = DynamicLibrary::open(FAKE_CUDA);
    CHILD_OK(cuda.status());
    device::OpenReport report;
    api = device::open_cuda(&report);
    CHILD_EXPECT(api != nullptr, report.reason);
    CHILD_OK(api->initialize());
    auto opened = ccl::CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(opened.status());
    library = std::move(*opened);
    scratch.emplace(api.get(), Bytes{1} << 20);
    runner.emplace(*library, *api, rank, mpi, *scratch, timeout_s);
    CHILD_OK(runner->init_scope(Scope::kWhole, next_id()));
    return "";
  }
  /// Collective, as all that takes a unique id.
  ccl::UniqueId next_id() {
    const auto id = library->unique_id();
    return shared.from_rank_zero(rank, id.ok() ? *id : ccl::UniqueId{});
  }
  std::string add_streams(int streams) {
    CHILD_OK(runner->make_streams(streams));
    for (int i = 1; i < streams; ++i) {
      CHILD_OK(runner->add_communicator(next_id()));
    }
    other.emplace(*library, *api, rank, mpi, *scratch, timeout_s);
    CHILD_OK(other->init_scope(Scope::kWhole, next_id()));
    return "";
  }
  /// The case's buffers as memory of this rank's device, or of the host.
  Call placed(const testing::CollectiveCase& test, bool on_device) const {
    Call call = test.call;
    const auto kind = on_device ? device::MemoryKind::kDevice : device::MemoryKind::kHost;
    call.send_memory = call.recv_memory = {kind, on_device ? rank : -1};
    return call;
  }

  const int rank;
  const int ranks;
  const double timeout_s;
  test::Shared& shared;
  PlacedMpi mpi;
  std::unique_ptr<device::Api> api;
  std::unique_ptr<ccl::CclLibrary> library;
  std::optional<Scratch> scratch;
  std::optional<CclRunner> runner;  ///< After what it refers to.
  std::optional<CclRunner> other;   ///< Of another communicator; after add_streams().
};

/// Runs `body` on ranks that have started; the answers by rank.
inline std::vector<std::string> on_ccl_ranks(int ranks,
                                             const std::function<std::string(CclRank&)>& body,
                                             double timeout_s = 60) {
  setenv("FAKE_GPUS", "8", 1);
  return test::in_ranks(ranks, [&](int rank, test::Shared& shared) -> std::string {
    CclRank self(rank, shared, timeout_s);
    const std::string started = self.start();
    CHILD_EXPECT(started.empty(), started);
    std::string answer = body(self);
    return answer.empty() ? answer : "rank " + std::to_string(rank) + ": " + answer;
  });
}

}  // namespace tutti::runners
