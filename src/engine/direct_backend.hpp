// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our own kernels for one communicator: brought up at the first call that a rule gives to them, so
// that they are usable on every rank or on none.
#pragma once

#include <memory>
#include <string>

#include "engine/ccl_backend.hpp"
#include "runners/direct/direct_runner.hpp"

namespace tutti::engine {

class DirectBackend : public PlanRunner {
 public:
  /// Both outlive it. `ccl`: for the large parts of calls whose sizes no rank knows of all others.
  DirectBackend(CommContext& context, CclBackend& ccl) : PlanRunner(context), ccl_(ccl) {}
  ~DirectBackend() override;

  /// The answers are in the facts: direct_device_refusal; for copies, which need staging memory of
  /// their own, copies_refusal. What failed once is not tried again.
  Status prepare(const select::Plan& plan, int device, std::string* ccl_refusal) override;
  bool was_tried() const { return was_tried_; }
  bool is_up() const override { return runner_ != nullptr; }
  Status run(const Route& route, const runners::Call& call) override;
  Status start(const Route& route, const runners::Call& call, device::Stream stream) override;
  void begin_end() override {
    if (runner_ != nullptr) {
      runner_->begin_end();
    }
  }

 private:
  Status set_up(int device);
  Status agree(int device, std::string* refusal);
  Status prepare_copies();
  /// `own` gets what our kernels carry of a call, `rest` what the CCL does.
  template <class Own, class Rest>
  Status carry(const runners::Call& call, const Own& own, const Rest& rest);
  Status make(const runners::DirectRunner::Options& options, bool* is_final, std::string* refusal);
  void lose();

  CclBackend& ccl_;
  std::unique_ptr<runners::DirectRunner> runner_;
  /// Of calls whose sizes no rank knows of all others, what two ranks exchange beyond this goes by
  /// the CCL.
  Bytes pair_bytes_max_ = UINT64_MAX;
  bool was_tried_ = false;
  bool copies_tried_ = false;
};

}  // namespace tutti::engine
