// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks of a communicator over the NCCL fake, each in a process of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ccl/ccl.hpp"
#include "support/forked_ranks.hpp"

namespace tutti::ccl {

/// What a rank's body works with.
struct Rank {
  CclLibrary& library;
  CclComm communicator;
  int rank;
  int ranks;
  test::Shared& shared;
};

inline constexpr double kTestTimeoutS = 60;

/// A communicator of all ranks; the unique id goes from rank 0 to the others. `device` of `api` is
/// the rank's; null: none.
inline Result<CclComm> join(CclLibrary& library, int rank, test::Shared& shared,
                            double timeout_s = kTestTimeoutS, device::Api* api = nullptr,
                            int device = -1) {
  const auto id = library.unique_id();
  const UniqueId common = shared.from_rank_zero(rank, id.ok() ? *id : UniqueId{});
  return library.init_rank(shared.ranks(), common, rank, timeout_s, api, device);
}

/// Runs `body` on each rank between init and destroy; the answers by rank.
inline std::vector<std::string> on_ranks(int ranks, const std::function<std::string(Rank)>& body) {
  return test::in_ranks(ranks, [&](int rank, test::Shared& shared) -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    const auto communicator = join(**library, rank, shared);
    CHILD_OK(communicator.status());
    const std::string answer = body({**library, *communicator, rank, ranks, shared});
    if (!answer.empty()) {
      return "rank " + std::to_string(rank) + ": " + answer;
    }
    CHILD_OK((*library)->destroy(*communicator));
    return "";
  });
}

}  // namespace tutti::ccl
