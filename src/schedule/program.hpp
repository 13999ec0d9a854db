// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A collective as data: what one rank does, as steps over regions of three buffers, with the order
// that must hold between them. Everything that no dependency orders may overlap. A program knows no
// pointer, no type and no transport; counts are in elements of the call's type.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::schedule {

/// The caller's send and receive buffer (dense, MPI's block order) and memory of the runner's.
/// With MPI_IN_PLACE the runner lets input and output name the same memory where MPI says they do;
/// a copy of a region onto itself is then nothing.
enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };

struct Region {
  Buffer buffer = Buffer::kInput;
  std::uint64_t offset = 0;  ///< Elements.
  std::uint64_t count = 0;   ///< Elements.

  std::uint64_t end() const { return offset + count; }
  Region part(std::uint64_t from, std::uint64_t elements) const {
    return {buffer, offset + from, elements};
  }
  bool operator==(const Region&) const = default;
};

enum class StepKind : std::uint8_t {
  kSend,    ///< source to `peer`; complete when the peer has received it.
  kRecv,    ///< From `peer` into destination.
  kCopy,    ///< destination = source.
  kReduce,  ///< destination = destination op source. Operations are commutative.
};

struct Step {
  StepKind kind = StepKind::kCopy;
  int peer = -1;            ///< kSend, kRecv: rank.
  std::uint32_t tag = 0;    ///< kSend, kRecv: number of this message among those of the pair and
                            ///< direction; names its partner, whatever order they are posted in.
  Region source = {};       ///< All but kRecv.
  Region destination = {};  ///< All but kSend.
  std::uint32_t first_dependency = 0;  ///< Into Program::dependencies.
  std::uint32_t dependency_count = 0;

  std::uint64_t count() const { return kind == StepKind::kRecv ? destination.count : source.count; }
};

/// Steps in an order in which they may be carried out one by one; a step's dependencies are smaller
/// numbers. Runners start a step when its dependencies are complete, in this order among the ready.
struct Program {
  std::vector<Step> steps;
  std::vector<std::uint32_t> dependencies;
  std::uint64_t scratch_count = 0;  ///< Elements of Buffer::kScratch.

  std::span<const std::uint32_t> dependencies_of(const Step& step) const {
    return std::span(dependencies).subspan(step.first_dependency, step.dependency_count);
  }
};

}  // namespace tutti::schedule
