// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/allgather_bootstrap.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tutti::runners {

AllgatherBootstrap::AllgatherBootstrap(int rank, int ranks, Allgather allgather)
    : allgather_(std::move(allgather)) {
  places_[0] = {rank, ranks};
}

Status AllgatherBootstrap::allgather(const void* send, void* recv, Bytes bytes_each) {
  TUTTI_RETURN_IF_ERROR(failure_);
  if (const int code = allgather_(send, recv, bytes_each); code != 0) {
    failure_ = Status(ErrorCode::kLibraryFailed,
                      "bootstrap: the allgather callback returned " + std::to_string(code) +
                          " for " + std::to_string(bytes_each) + " bytes from each rank");
  }
  return failure_;
}

Status AllgatherBootstrap::max_in_place(std::uint64_t* values, int count) {
  const auto each = static_cast<std::size_t>(count);
  const auto ranks = static_cast<std::size_t>(places_[0].ranks);
  std::vector<std::uint64_t> all(each * ranks);
  TUTTI_RETURN_IF_ERROR(allgather(values, all.data(), each * sizeof(*values)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    values[i % each] = std::max(values[i % each], all[i]);
  }
  return {};
}

Status AllgatherBootstrap::make_scopes(int node) {
  const ScopeRank whole = places_[0];
  std::vector<int> nodes(static_cast<std::size_t>(whole.ranks));
  TUTTI_RETURN_IF_ERROR(allgather(&node, nodes.data(), sizeof(node)));
  ScopeRank of_node{-1, 0};
  ScopeRank of_leaders{-1, 0};
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto self = static_cast<int>(rank) == whole.rank;
    const auto here = nodes.begin() + static_cast<std::ptrdiff_t>(rank);
    if (nodes[rank] == node) {
      of_node.rank = self ? of_node.ranks : of_node.rank;
      ++of_node.ranks;
    }
    if (std::find(nodes.begin(), here, nodes[rank]) == here) {
      of_leaders.rank = self ? of_leaders.ranks : of_leaders.rank;
      ++of_leaders.ranks;
    }
  }
  places_[static_cast<std::size_t>(Scope::kNode)] = of_node;
  places_[static_cast<std::size_t>(Scope::kLeaders)] =
      of_leaders.rank < 0 ? ScopeRank{} : of_leaders;
  return {};
}

}  // namespace tutti::runners
