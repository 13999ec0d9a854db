// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI library's own collective, as it is or on staged buffers.
#include "select/refusals.hpp"

namespace tutti::select {

bool MpiPlan::read(std::string_view name, std::string* /*problem*/) {
  staged = take_ending(&name, "-staged");
  composition = take_composition(&name);
  if (staged && composition == Composition::kOpen) {
    composition = Composition::kBeta;  // Staged is flat unless it says otherwise.
  }
  return parse_backend(name) == Backend::kMpi;
}

std::string MpiPlan::name() const {
  const bool is_plain = staged && composition == Composition::kBeta;
  return std::string("mpi") + (is_plain ? "" : ending(composition)) + (staged ? "-staged" : "");
}

std::string MpiPlan::refusal(const Shape& /*shape*/, const CommFacts& facts) const {
  return gamma_refusal(composition, facts);
}

}  // namespace tutti::select
