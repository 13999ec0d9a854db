// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries a call on NCCL or RCCL: one library call where the library has the collective, grouped
// send/recv or grouped broadcasts where it has not. Buffers in host memory (or on another device)
// pass through device scratch, so a rank that differs from the agreed memory mode is still right.
#pragma once

#include <array>
#include <memory>

#include "ccl/ccl.hpp"
#include "runners/runner.hpp"
#include "runners/scratch.hpp"

namespace tutti::runners {

class CclRunner : public Runner {
 public:
  /// `device`: this rank's GPU on this communicator. `timeout_s`: 0 waits for ever.
  CclRunner(ccl::Library& library, device::Api& api, int device, MpiLibrary& mpi, Scratch& scratch,
            double timeout_s)
      : library_(library),
        api_(api),
        device_(device),
        mpi_(mpi),
        scratch_(scratch),
        timeout_s_(timeout_s) {}
  ~CclRunner() override;
  CclRunner(const CclRunner&) = delete;
  CclRunner& operator=(const CclRunner&) = delete;

  /// Collective over the scope: exchanges the unique id through MPI and makes the scope's
  /// communicator. The result is this rank's own; the caller agrees on it.
  Status init_scope(Scope scope, const ccl::UniqueId& id);
  bool has_scope(Scope scope) const { return communicators_[index(scope)] != nullptr; }
  Status run(Scope scope, const Call& call) override;

  /// Element type and count as the library counts them. Data movement goes as bytes.
  struct Element {
    ccl::NcclType type = ccl::NcclType::kUint8;
    std::uint64_t factor = 1;
  };

 private:
  static std::size_t index(Scope scope) { return static_cast<std::size_t>(scope); }
  Status enqueue(const Call& call, const ScopeRank& me, ccl::Communicator communicator);
  Status enqueue_equal_allgatherv(const Call& call, const Element& element,
                                  ccl::Communicator communicator);
  Status enqueue_peers(const Call& call, const ScopeRank& me, ccl::Communicator communicator);
  Status copy_on_stream(void* destination, const void* source, Bytes bytes);
  Status wait(Scope scope, const char* what);
  /// After a failure: aborts every scope's communicator; all further calls are refused.
  void break_off();
  Status failed_before() const;

  ccl::Library& library_;
  device::Api& api_;
  int device_;
  MpiLibrary& mpi_;
  Scratch& scratch_;
  double timeout_s_;
  device::Stream stream_ = nullptr;
  std::array<ccl::Communicator, kScopeCount> communicators_{};
  /// Scratch of the call in flight (in-place forms the library does not have).
  Lease scratch_lease_;
  bool broken_ = false;
};

}  // namespace tutti::runners
