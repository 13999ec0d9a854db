// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Compositions by node leaders (compositions.hpp), whose parts other backends carry.
#pragma once

#include <string>

#include "engine/ccl_backend.hpp"
#include "engine/mpi_backend.hpp"

namespace tutti::engine {

class AlphaBackend : public PlanRunner {
 public:
  AlphaBackend(CommContext& context, MpiBackend& mpi, CclBackend& ccl)
      : PlanRunner(context), mpi_(mpi), ccl_(ccl) {}

  Status prepare(const select::Plan& plan, int device, std::string* ccl_refusal) override;
  Status run(const Route& route, const runners::Call& call) override;

 private:
  runners::Runner& runner(select::Backend backend, const Route& route,
                          select::Collective collective);

  MpiBackend& mpi_;
  CclBackend& ccl_;
  bool has_scopes_ = false;
};

}  // namespace tutti::engine
