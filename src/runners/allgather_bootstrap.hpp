// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A bootstrap of one function, an allgather of bytes: the rest is made of it.
#pragma once

#include <array>
#include <functional>

#include "runners/bootstrap.hpp"

namespace tutti::runners {

class AllgatherBootstrap : public Bootstrap {
 public:
  /// Nonzero: it failed, here and, in time, on all ranks.
  using Allgather = std::function<int(const void* send, void* recv, Bytes bytes_each)>;

  AllgatherBootstrap(int rank, int ranks, Allgather allgather);

  /// Errors: kLibraryFailed with the function's code. After one every call fails: the ranks no
  /// longer count calls alike.
  Status allgather(const void* send, void* recv, Bytes bytes_each) override;
  Status max_in_place(std::uint64_t* values, int count) override;
  Status make_scopes(int node) override;
  ScopeRank scope_rank(Scope scope) const override {
    return places_[static_cast<std::size_t>(scope)];
  }
  Status failure() const override { return failure_; }

 private:
  Allgather allgather_;
  std::array<ScopeRank, kScopeCount> places_{};
  Status failure_;
};

}  // namespace tutti::runners
