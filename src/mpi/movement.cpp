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

using runners::Call;
using runners::CallSide;
using runners::Lease;
using select::Collective;

namespace {

/// MPI_Pack counts its buffer in int: no more of it at once.
constexpr std::uint64_t kBatchBytes = 1U << 30;

/// Equal blocks of dense elements, so nearly every call: without the lists of pieces, which cost
/// half a microsecond.
bool is_plain(const Side& side) {
  return !side.present() || (side.form != Form::kCounts && (side.layout.dense || side.count == 0));
}

CallSide plain_side(const Side& side) {
  CallSide plain;
  plain.in_place = side.in_place;
  if (side.present()) {
    plain.buffer = side.buffer;
    plain.memory = side.memory;
    plain.count = static_cast<std::uint64_t>(side.count) * side.layout.size;
  }
  return plain;
}

Status run_sides(CommState& state, const Arguments& arguments, const engine::Route& route,
                 const CallSide& send, const CallSide& recv) {
  Call call;
  call.collective = arguments.view().collective;
  call.root = arguments.view().root;
  runners::set_sides(send, recv, arguments.rank(), &call);
  return state.engine->run(route, call);
}

/// A side's data as dense bytes, one block for each piece.
struct DenseSide {
  void* data = nullptr;
  device::PointerInfo memory;
  std::vector<Piece> pieces;
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> offsets;  ///< They wrap where displacements are negative.
  Lease lease;                         ///< Where the data is packed, else nothing.

  CallSide of(const Side& side) const {
    CallSide dense;
    dense.buffer = data;
    dense.memory = memory;
    dense.in_place = side.in_place;
    dense.count = counts.empty() ? 0 : counts.front();
    if (side.form == Form::kCounts) {
      dense.counts = counts;
      dense.offsets = offsets;
    }
    return dense;
  }
};

/// What is packed before the call.
enum class Input : std::uint8_t { kNone, kOwn, kAll };

class Movement {
 public:
  Movement(CommState& state, const Arguments& arguments)
      : state_(state),
        engine_(*state.engine),
        arguments_(arguments),
        send_(arguments.send()),
        recv_(arguments.recv()) {}

  Status run(const engine::Route& route);

 private:
  Status to_dense(const Side& side, Input input, DenseSide* dense);
  Status pack(bool in, const Side& side, const Piece& piece, std::byte* dense);

  CommState& state_;
  engine::Communicator& engine_;
  const Arguments& arguments_;
  const Side& send_;
  const Side& recv_;
  DenseSide dense_send_;
  DenseSide dense_recv_;
};

/// Packs a piece (`in`), or unpacks it.
Status Movement::pack(bool in, const Side& side, const Piece& piece, std::byte* dense) {
  if (piece.bytes() == 0) {
    return {};
  }
  std::byte* origin = static_cast<std::byte*>(const_cast<void*>(side.buffer)) + piece.offset;
  const PieceSpan span = span_of(piece);
  std::byte* const application = origin + span.lower;
  device::Api* const api = engine_.process().device();
  const bool is_on_device = side.memory.kind == device::MemoryKind::kDevice;
  Lease lease;
  if (is_on_device) {
    if (const std::vector<Piece> parts = near_pieces(piece); parts.size() > 1) {
      for (const Piece& part : parts) {
        TUTTI_RETURN_IF_ERROR(pack(in, side, part, dense));
        dense += part.bytes();
      }
      return {};
    }
    // What lies between the elements goes down and comes back unchanged.
    TUTTI_ASSIGN_OR_RETURN(lease, engine_.process().scratch().pinned(span.span));
    TUTTI_RETURN_IF_ERROR(
        runners::copy_any(api, lease.data(), {}, application, side.memory, span.span));
    origin = static_cast<std::byte*>(lease.data()) - span.lower;
  }
  const Bytes size = piece.layout.size;
  const auto batch = static_cast<std::int64_t>(std::max<Bytes>(kBatchBytes / size, 1));
  for (std::int64_t first = 0; first < piece.count; first += batch) {
    std::byte* const elements = origin + first * piece.layout.extent;
    std::byte* const packed = dense + static_cast<Bytes>(first) * size;
    const auto count = static_cast<int>(std::min(batch, piece.count - first));
    const auto bytes = static_cast<int>(static_cast<Bytes>(count) * size);
    int position = 0;
    Library& library = *state_.library;
    if (size > kBatchBytes) {
      TUTTI_RETURN_IF_ERROR(in ? library.pack_large(elements, piece.type, packed, size)
                               : library.unpack_large(packed, elements, piece.type, size));
    } else if (in) {
      TUTTI_RETURN_IF_ERROR(
          check(pmpi.Pack(elements, count, piece.type, packed, bytes, &position, library.own()),
                "MPI_Pack"));
    } else {
      TUTTI_RETURN_IF_ERROR(
          check(pmpi.Unpack(packed, bytes, &position, elements, count, piece.type, library.own()),
                "MPI_Unpack"));
    }
  }
  return in || !is_on_device
             ? Status()
             : runners::copy_any(api, application, side.memory, lease.data(), {}, span.span);
}

/// Where a side's data lies if it is dense, else packed in host memory.
Status Movement::to_dense(const Side& side, Input input, DenseSide* dense) {
  if (!side.present()) {
    return {};
  }
  TUTTI_ASSIGN_OR_RETURN(dense->pieces, pieces_of(arguments_, side));
  const std::vector<Piece>& pieces = dense->pieces;
  const bool all_dense = std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.layout.dense || piece.bytes() == 0;
  });
  Bytes total = 0;
  for (const Piece& piece : pieces) {
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
  const auto self = static_cast<std::size_t>(arguments_.rank());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (input == Input::kAll || (input == Input::kOwn && i == self)) {
      TUTTI_RETURN_IF_ERROR(
          pack(/*in=*/true, side, pieces[i], runners::at(dense->data, dense->offsets[i], 1)));
    }
  }
  return {};
}

Status Movement::run(const engine::Route& route) {
  const bool is_source = arguments_.view().collective == Collective::kBcast && arguments_.is_root();
  // gather(v) in place at the root, allgather(v): the own block comes from the receive buffer.
  const Input recv_input = is_source || arguments_.is_input_in_recv() ? Input::kAll
                           : send_.in_place                           ? Input::kOwn
                                                                      : Input::kNone;
  TUTTI_RETURN_IF_ERROR(to_dense(recv_, recv_input, &dense_recv_));
  TUTTI_RETURN_IF_ERROR(to_dense(send_, Input::kAll, &dense_send_));
  const CallSide send = dense_send_.of(send_);
  const CallSide recv = dense_recv_.of(recv_);
  // A message that is under way may still be written there, or read: never reused.
  OnFailure abandon([&] {
    dense_send_.lease.abandon();
    dense_recv_.lease.abandon();
  });
  TUTTI_RETURN_IF_ERROR(run_sides(state_, arguments_, route, send, recv));
  abandon.succeed();
  if (dense_recv_.lease.data() == nullptr || is_source) {
    return {};
  }
  std::optional<device::RelaxedCapture> relaxed;
  engine_.relax(&relaxed);
  for (std::size_t i = 0; i < dense_recv_.pieces.size(); ++i) {
    TUTTI_RETURN_IF_ERROR(pack(/*in=*/false, recv_, dense_recv_.pieces[i],
                               runners::at(dense_recv_.data, dense_recv_.offsets[i], 1)));
  }
  return {};
}

}  // namespace

Status check_own_block(const Arguments& arguments) {
  const auto self = static_cast<std::size_t>(arguments.rank());
  // Empty: of a type that MPI does not know, which comes to light where the pieces are listed.
  const auto own_bytes = [self](const Side& side) -> std::optional<Bytes> {
    const std::size_t block = side.form == Form::kOne ? 0 : self;
    const auto count = static_cast<Bytes>(side.count_of(block));
    TypeLayout layout = side.layout;
    if (side.has_types && count > 0 && !type_layout(side.types[block], &layout)) {
      return {};
    }
    return count == 0 ? 0 : count * layout.size;
  };
  if (!arguments.send().present() || !arguments.recv().present()) {
    return {};
  }
  const std::optional<Bytes> gives = own_bytes(arguments.send());
  const std::optional<Bytes> takes = own_bytes(arguments.recv());
  if (!gives || !takes || *gives == *takes) {
    return {};
  }
  return Status(ErrorCode::kMismatch, std::string(select::to_string(arguments.view().collective)) +
                                          ": rank " + std::to_string(arguments.rank()) + " has " +
                                          std::to_string(*gives) + " bytes for itself and takes " +
                                          std::to_string(*takes) + " from itself");
}

Status run_movement(CommState& state, const Arguments& arguments, const engine::Route& route) {
  if (!is_plain(arguments.send()) || !is_plain(arguments.recv())) {
    return Movement(state, arguments).run(route);
  }
  const CallSide send = plain_side(arguments.send());
  const CallSide recv = plain_side(arguments.recv());
  return run_sides(state, arguments, route, send, recv);
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
