// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that the ranks of one machine share: what this rank has introduced itself with, and,
// from the first call that a rule gives to it, the runner of collectives on host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan_runner.hpp"
#include "runners/direct/host_runner.hpp"

namespace tutti::engine {

class HostBackend : public PlanRunner {
 public:
  using Introductions = std::vector<runners::DirectHostRunner::Introduction>;

  /// `calls`, `calls_doubted`: Communicator's, read while it lives.
  HostBackend(CommContext& context, const std::uint64_t& calls, const std::uint64_t& calls_doubted)
      : PlanRunner(context), calls_(calls), calls_doubted_(calls_doubted) {}

  /// This rank's part in memory that the others may come to share; kept here until they have.
  runners::DirectHostRunner::Introduction introduce(
      Result<std::shared_ptr<runners::HostMemory>> memory);
  /// What the ranks have told each other, by rank; empty: they share no machine.
  void set_introductions(Introductions all) {
    introductions_ = std::make_shared<const Introductions>(std::move(all));
  }
  const Introductions& introductions() const;
  /// DirectHostRunner::Options::are_mapped.
  void set_mapped() { are_mapped_ = true; }
  /// Null: none, or it is the runner's.
  const std::shared_ptr<runners::HostMemory>& memory() const { return memory_; }
  /// Looks into it from another thread, for as long as it likes: how a rank is in another call.
  std::function<std::string()> other_way_finder() const;
  /// `is_known`: others may have heard of it and still count on it, or, after a failure of this
  /// rank, be in a call and look at it.
  void give_back(bool is_known);

  Status prepare(const select::Plan& plan, int device, std::string* ccl_refusal) override;
  /// prepare(), at a communicator's making.
  Status set_up();
  /// This rank's part in set_up() alone: others that are in it go on. False: set_up() would not
  /// wait for them here.
  bool post_set_up();
  bool has_posted() const { return posted_.use != nullptr; }
  bool was_tried() const { return was_tried_; }
  /// Device buffers of a rank that differs from the agreed mode pass through pinned memory.
  Status run(const Route& route, const runners::Call& call) override;
  /// Peers that wait for this rank hear of it.
  void fail(const Status& status) override;

  /// What keeps a rank from coming to this communicator's calls; kUnavailable: nothing tells.
  Status look_at_peers(bool in_call) const;
  /// Where this rank tells the others of its calls; null: no other rank reads it.
  std::byte* calls_line() const;
  /// A call of this rank was refused, in which others may be.
  void tell_refusal() const;
  /// Null: not up.
  runners::DirectHostRunner* runner() const { return runner_.get(); }

 private:
  Status agree(std::string* refusal);
  const runners::DirectHostRunner::Introduction& own() const {
    return introductions()[static_cast<std::size_t>(context_.me.rank)];
  }

  const std::uint64_t& calls_;
  const std::uint64_t& calls_doubted_;
  bool was_tried_ = false;
  bool are_mapped_ = false;
  std::shared_ptr<const Introductions> introductions_;
  std::shared_ptr<runners::HostMemory> memory_;
  runners::DirectHostRunner::Posted posted_;  ///< By post_set_up(), until set_up().
  std::unique_ptr<runners::DirectHostRunner> runner_;
};

}  // namespace tutti::engine
