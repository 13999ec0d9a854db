// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/movement.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/on_failure.hpp"
#include "mpi/pieces.hpp"
#include "runners/copies.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using device::MemoryKind;
using runners::Call;
using runners::Lease;
using select::Collective;

namespace {

/// MPI_Pack counts its buffer in int: no more of it at once.
constexpr std::uint64_t kBatchBytes = 1U << 30;

/// Packs or unpacks in batches that fit, `large` an element that alone does not.
template <class Step, class Large>
Status in_batches(const Piece& piece, Step step, Large large) {
  const bool is_large = piece.layout.size > kBatchBytes;
  const auto batch = static_cast<std::int64_t>(
      is_large ? 1 : kBatchBytes / std::max<std::uint64_t>(piece.layout.size, 1));
  for (std::int64_t first = 0; first < piece.count; first += batch) {
    TUTTI_RETURN_IF_ERROR(is_large ? large(first)
                                   : step(first, std::min(batch, piece.count - first)));
  }
  return {};
}

/// Equal blocks of dense elements, so nearly every call: without the lists of pieces, which cost
/// half a microsecond.
std::optional<Call> plain_call(const Arguments& arguments) {
  const Side& send = arguments.send();
  const Side& recv = arguments.recv();
  const auto is_plain = [](const Side& side) {
    return !side.present() || ((side.form == Form::kOne || side.form == Form::kBlocks) &&
                               (side.layout.dense || side.count == 0));
  };
  if (runners::has_counts(arguments.view().collective) || !is_plain(send) || !is_plain(recv) ||
      send.in_place || recv.in_place) {
    return std::nullopt;
  }
  const bool is_gather = arguments.view().collective == Collective::kGather;
  const Side& counted = is_gather ? send : recv;
  Call call;
  call.collective = arguments.view().collective;
  call.type = select::DataType::kByte;
  call.element_bytes = 1;
  call.root = arguments.view().root;
  call.count =
      counted.present() ? static_cast<std::uint64_t>(counted.count) * counted.layout.size : 0;
  if (recv.present()) {
    call.recv = const_cast<void*>(recv.buffer);
    call.recv_memory = recv.memory;
  }
  if (send.present()) {
    call.send = send.buffer;
    call.send_memory = send.memory;
  }
  return call;
}

/// A rank is its own peer, and of that pair it sees both ends: plans that copy the block rely on
/// it. The others are in the call by now: an error of this communicator, which ends their wait.
Status check_own_block(const Arguments& arguments, Bytes sent, Bytes received) {
  if (sent == received) {
    return {};
  }
  return Status(ErrorCode::kInvalidArgument,
                std::string(select::to_string(arguments.view().collective)) + ": rank " +
                    std::to_string(arguments.rank()) + " has " + std::to_string(sent) +
                    " bytes for itself and takes " + std::to_string(received) + " from itself");
}

/// A side's data as dense bytes, one block for each piece.
struct DenseSide {
  void* data = nullptr;
  device::PointerInfo memory;
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> offsets;  ///< They wrap where displacements are negative.
  Lease lease;                         ///< Where the data is packed, else nothing.

  bool is_packed() const { return lease.data() != nullptr; }
  /// The side of one block has only the own one.
  std::uint64_t own_count(std::size_t rank) const { return counts[counts.size() == 1 ? 0 : rank]; }
};

class Movement {
 public:
  Movement(CommState& state, const Arguments& arguments)
      : engine_(*state.engine),
        library_(*state.library),
        api_(engine_.process().device()),
        arguments_(arguments),
        send_(arguments.send()),
        recv_(arguments.recv()),
        self_(static_cast<std::size_t>(arguments.rank())) {}

  Status run(const engine::Route& route);

 private:
  Status read_sides();
  Status share_in_place();
  Call dense_call() const;
  Status to_dense(const Side& side, bool copy_in, DenseSide* dense);
  Status from_dense(const Side& side, const DenseSide& dense);
  Status pack(const Side& side, const Piece& piece, std::byte* dense);
  Status unpack(const Side& side, const Piece& piece, const std::byte* dense);
  bool is_source() const {
    return arguments_.view().collective == Collective::kBcast && arguments_.is_root();
  }

  engine::Communicator& engine_;
  Library& library_;
  device::Api* api_;
  const Arguments& arguments_;
  const Side& send_;
  const Side& recv_;
  std::size_t self_;
  DenseSide dense_send_;
  DenseSide dense_recv_;
};

Status Movement::pack(const Side& side, const Piece& piece, std::byte* dense) {
  if (piece.bytes() == 0) {
    return {};
  }
  const std::byte* origin = static_cast<const std::byte*>(side.buffer) + piece.offset;
  Lease lease;
  if (side.memory.kind == MemoryKind::kDevice) {
    if (const std::vector<Piece> parts = near_pieces(piece); parts.size() > 1) {
      for (const Piece& part : parts) {
        TUTTI_RETURN_IF_ERROR(pack(side, part, dense));
        dense += part.bytes();
      }
      return {};
    }
    const PieceSpan span = span_of(piece);
    TUTTI_ASSIGN_OR_RETURN(lease, engine_.process().scratch().pinned(span.span));
    TUTTI_RETURN_IF_ERROR(
        runners::copy_any(api_, lease.data(), {}, origin + span.lower, side.memory, span.span));
    origin = static_cast<std::byte*>(lease.data()) - span.lower;
  }
  const auto step = [&](std::int64_t first, std::int64_t count) {
    int position = 0;
    const Bytes bytes = static_cast<Bytes>(count) * piece.layout.size;
    return check(pmpi.Pack(origin + first * piece.layout.extent, static_cast<int>(count),
                           piece.type, dense + static_cast<Bytes>(first) * piece.layout.size,
                           static_cast<int>(bytes), &position, library_.own()),
                 "MPI_Pack");
  };
  return in_batches(piece, step, [&](std::int64_t at) {
    return library_.pack_large(origin + at * piece.layout.extent, piece.type,
                               dense + static_cast<Bytes>(at) * piece.layout.size,
                               piece.layout.size);
  });
}

Status Movement::unpack(const Side& side, const Piece& piece, const std::byte* dense) {
  if (piece.bytes() == 0) {
    return {};
  }
  std::byte* origin = static_cast<std::byte*>(const_cast<void*>(side.buffer)) + piece.offset;
  std::byte* const application = origin;
  const PieceSpan span = span_of(piece);
  Lease lease;
  const bool on_device = side.memory.kind == MemoryKind::kDevice;
  if (on_device) {
    if (const std::vector<Piece> parts = near_pieces(piece); parts.size() > 1) {
      for (const Piece& part : parts) {
        TUTTI_RETURN_IF_ERROR(unpack(side, part, dense));
        dense += part.bytes();
      }
      return {};
    }
    // What lies between the elements goes down and comes back unchanged.
    TUTTI_ASSIGN_OR_RETURN(lease, engine_.process().scratch().pinned(span.span));
    TUTTI_RETURN_IF_ERROR(runners::copy_any(api_, lease.data(), {}, application + span.lower,
                                            side.memory, span.span));
    origin = static_cast<std::byte*>(lease.data()) - span.lower;
  }
  const auto step = [&](std::int64_t first, std::int64_t count) {
    int position = 0;
    const Bytes bytes = static_cast<Bytes>(count) * piece.layout.size;
    return check(
        pmpi.Unpack(dense + static_cast<Bytes>(first) * piece.layout.size, static_cast<int>(bytes),
                    &position, origin + first * piece.layout.extent, static_cast<int>(count),
                    piece.type, library_.own()),
        "MPI_Unpack");
  };
  TUTTI_RETURN_IF_ERROR(in_batches(piece, step, [&](std::int64_t at) {
    return library_.unpack_large(dense + static_cast<Bytes>(at) * piece.layout.size,
                                 origin + at * piece.layout.extent, piece.type, piece.layout.size);
  }));
  if (!on_device) {
    return {};
  }
  return runners::copy_any(api_, application + span.lower, side.memory, lease.data(), {},
                           span.span);
}

/// Where a side's data lies if it is dense, else packed in host memory.
Status Movement::to_dense(const Side& side, bool copy_in, DenseSide* dense) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Piece> parts, pieces_of(arguments_, side));
  const bool all_dense = std::all_of(parts.begin(), parts.end(), [](const Piece& piece) {
    return piece.layout.dense || piece.bytes() == 0;
  });
  Bytes total = 0;
  for (const Piece& piece : parts) {
    dense->counts.push_back(piece.bytes());
    dense->offsets.push_back(all_dense ? static_cast<std::uint64_t>(piece.offset) : total);
    total += piece.bytes();
  }
  if (all_dense) {
    dense->data = const_cast<void*>(side.buffer);
    dense->memory = side.memory;
    return {};
  }
  std::optional<device::RelaxedCapture> relaxed;
  engine_.relax(&relaxed);
  TUTTI_ASSIGN_OR_RETURN(dense->lease, engine_.process().scratch().pinned(total));
  dense->data = dense->lease.data();
  if (!copy_in) {
    return {};
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TUTTI_RETURN_IF_ERROR(pack(side, parts[i], runners::at(dense->data, dense->offsets[i], 1)));
  }
  return {};
}

Status Movement::from_dense(const Side& side, const DenseSide& dense) {
  std::optional<device::RelaxedCapture> relaxed;
  engine_.relax(&relaxed);
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Piece> parts, pieces_of(arguments_, side));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TUTTI_RETURN_IF_ERROR(unpack(side, parts[i], runners::at(dense.data, dense.offsets[i], 1)));
  }
  return {};
}

Status Movement::read_sides() {
  if (recv_.present()) {
    TUTTI_RETURN_IF_ERROR(
        to_dense(recv_, is_source() || arguments_.is_input_in_recv(), &dense_recv_));
  }
  if (send_.present()) {
    TUTTI_RETURN_IF_ERROR(to_dense(send_, true, &dense_send_));
  }
  return {};
}

/// MPI_IN_PLACE: the side without a buffer of its own lies in the other one's.
Status Movement::share_in_place() {
  if (send_.in_place && arguments_.is_input_in_recv()) {
    dense_send_.data = dense_recv_.data;
    dense_send_.memory = dense_recv_.memory;
    dense_send_.counts = dense_recv_.counts;
    dense_send_.offsets = dense_recv_.offsets;
  } else if (send_.in_place) {
    // gather(v) at the root, allgather(v): the own block is where it will be received. Packed
    // copies of it come from the receive buffer too.
    std::byte* const own = runners::at(dense_recv_.data, dense_recv_.offsets[self_], 1);
    if (dense_recv_.is_packed()) {
      std::optional<device::RelaxedCapture> relaxed;
      engine_.relax(&relaxed);
      TUTTI_ASSIGN_OR_RETURN(const std::vector<Piece> parts, pieces_of(arguments_, recv_));
      TUTTI_RETURN_IF_ERROR(pack(recv_, parts[self_], own));
    }
    dense_send_.data = own;
    dense_send_.memory = dense_recv_.memory;
    dense_send_.counts = {dense_recv_.counts[self_]};
  }
  if (recv_.in_place) {
    // scatter(v) at the root: its own block stays where it is.
    dense_recv_.data = runners::at(dense_send_.data, dense_send_.offsets[self_], 1);
    dense_recv_.memory = dense_send_.memory;
    dense_recv_.counts = {dense_send_.counts[self_]};
  }
  return {};
}

Call Movement::dense_call() const {
  Call call;
  call.collective = arguments_.view().collective;
  call.type = select::DataType::kByte;
  call.element_bytes = 1;
  call.root = arguments_.view().root;
  call.in_place = send_.in_place || recv_.in_place;
  call.send = dense_send_.data;
  call.send_memory = dense_send_.memory;
  call.recv = dense_recv_.data;
  call.recv_memory = dense_recv_.memory;
  const bool is_counted_by_send = call.collective == Collective::kGather ||
                                  call.collective == Collective::kGatherv ||
                                  call.collective == Collective::kAllgatherv;
  const DenseSide& counted = is_counted_by_send ? dense_send_ : dense_recv_;
  call.count = counted.counts.empty() ? 0 : counted.counts.front();
  if (runners::has_counts(call.collective)) {
    // In place the side keeps its form.
    const auto has_counts = [](const Side& side) {
      return side.form == Form::kCounts || side.form == Form::kTypes;
    };
    if (has_counts(send_)) {
      call.send_counts = dense_send_.counts;
      call.send_offsets = dense_send_.offsets;
    }
    if (has_counts(recv_)) {
      call.recv_counts = dense_recv_.counts;
      call.recv_offsets = dense_recv_.offsets;
    }
  }
  return call;
}

Status Movement::run(const engine::Route& route) {
  TUTTI_RETURN_IF_ERROR(read_sides());
  TUTTI_RETURN_IF_ERROR(share_in_place());
  if (!dense_send_.counts.empty() && !dense_recv_.counts.empty()) {
    TUTTI_RETURN_IF_ERROR(
        check_own_block(arguments_, dense_send_.own_count(self_), dense_recv_.own_count(self_)));
  }
  // A message that is under way may still be written there, or read: never reused.
  OnFailure abandon([&] {
    dense_send_.lease.abandon();
    dense_recv_.lease.abandon();
  });
  TUTTI_RETURN_IF_ERROR(engine_.run(route, dense_call()));
  abandon.succeed();
  // A packed buffer received into is unpacked; the root of a bcast only sent.
  if (recv_.present() && dense_recv_.is_packed() && !is_source()) {
    return from_dense(recv_, dense_recv_);
  }
  return {};
}

}  // namespace

Status run_movement(CommState& state, const Arguments& arguments, const engine::Route& route) {
  const std::optional<Call> plain = plain_call(arguments);
  if (!plain) {
    return Movement(state, arguments).run(route);
  }
  const Side& send = arguments.send();
  const Side& recv = arguments.recv();
  if (send.present() && recv.present()) {
    TUTTI_RETURN_IF_ERROR(check_own_block(arguments,
                                          static_cast<Bytes>(send.count) * send.layout.size,
                                          static_cast<Bytes>(recv.count) * recv.layout.size));
  }
  return state.engine->run(route, *plain);
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
