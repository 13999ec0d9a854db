// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// From the arguments of a collective of the C API to a runners::Call. Pure: it looks at pointers
// but not behind those of buffers, and knows no communicator.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runners/call.hpp"
#include "tutti/tutti.h"

namespace tutti::engine {

/// As the C function got them; what it has not is zero. A collective with one count has it in
/// `count`; in a v-form it is the count of the rank's own block (send_count, recv_count).
struct CArguments {
  select::Collective collective = select::Collective::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  std::int64_t count = 0;
  const std::int64_t* send_counts = nullptr;
  const std::int64_t* send_displs = nullptr;
  const std::int64_t* recv_counts = nullptr;
  const std::int64_t* recv_displs = nullptr;
  tutti_type_t type = TUTTI_BYTE;
  tutti_op_t op = TUTTI_SUM;
  int root = 0;
};

/// A call and the arrays that its spans are of; not to be copied or moved.
struct CCall {
  runners::Call call;
  /// The size by which plans are chosen, equal on all ranks; absent where no rank can know it.
  std::optional<Bytes> bytes;
  std::vector<std::uint64_t> send_counts;
  std::vector<std::uint64_t> send_offsets;
  std::vector<std::uint64_t> recv_counts;
  std::vector<std::uint64_t> recv_offsets;
  /// Nothing is read or written there, so any address may stand; not of a call in place.
  bool is_send_empty = false;
  bool is_recv_empty = false;

  CCall() = default;
  CCall(const CCall&) = delete;
  CCall& operator=(const CCall&) = delete;
};

/// Fills all of `call` but the kinds of memory. Errors: kInvalidArgument, which names the argument.
Status make_call(const CArguments& arguments, int rank, int ranks, CCall* call);

}  // namespace tutti::engine
