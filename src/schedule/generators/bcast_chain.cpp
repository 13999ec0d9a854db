// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Broadcast, pipelined chain: each rank passes on S segments one after the other.
// Segments have 4096 elements or more, at most 64 of them.
// Rounds P - 1 for the last rank to get a segment; each rank sends n.
// Source: Watts and van de Geijn, "A Pipelined Broadcast for Multidimensional Meshes", 1995.
#include <algorithm>

#include "schedule/builder.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {
namespace {

/// Of 4096 elements or more, and not so many that the last rank's wait is all latency.
int segments_of(const Task& task) {
  return task.segments_or(
      static_cast<int>(std::clamp<std::uint64_t>(task.problem.counts[0] / 4096, 1, 64)));
}

}  // namespace

Program bcast_chain(const Task& task) {
  const int me = task.after(-task.root());
  const Blocks segments = Blocks::even(task.problem.counts[0], segments_of(task));
  Builder builder;
  for (int segment = 0; segment < segments.size(); ++segment) {
    const Region output = segments.in(Buffer::kOutput, segment);
    if (me == 0) {
      builder.copy(segments.in(Buffer::kInput, segment), output);
    } else {
      builder.recv(task.after(-1), output);
    }
    if (me + 1 < task.ranks()) {
      builder.send(task.after(1), output);
    }
  }
  return std::move(builder).finish();
}

Cost bcast_chain_cost(const Task& task) {
  return {task.ranks() - 1, task.ranks() > 1 ? task.problem.counts[0] : 0};
}

}  // namespace tutti::schedule
