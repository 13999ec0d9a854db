// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/native_staged.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mpi/pieces.hpp"
#include "runners/copies.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using runners::Lease;
using runners::Run;
using select::Collective;

namespace {

/// Addresses for pieces that are far apart, with memory for the pieces alone.
class SpreadMemory {
 public:
  SpreadMemory() = default;
  SpreadMemory(SpreadMemory&& other) noexcept { *this = std::move(other); }
  SpreadMemory& operator=(SpreadMemory&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  SpreadMemory(const SpreadMemory&) = delete;
  SpreadMemory& operator=(const SpreadMemory&) = delete;
  ~SpreadMemory() {
    if (start_ != nullptr) {
      munmap(start_, bytes_);
    }
  }
  /// Far more than there is data.
  static bool is_for(Bytes span, Bytes data) {
    constexpr Bytes kSmallBytes = Bytes{64} << 20;
    return span > kSmallBytes && span / 2 > data;
  }
  Status reserve(Bytes bytes) {
    void* const made = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            /*fd=*/-1, /*offset=*/0);
    if (made == MAP_FAILED) {
      return Status(ErrorCode::kOutOfMemory, "no addresses for " + std::to_string(bytes) +
                                                 " bytes, over which a buffer's blocks are spread");
    }
    start_ = static_cast<std::byte*>(made);
    bytes_ = bytes;
    return {};
  }
  Status use(Bytes from, Bytes bytes) {
    const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
    const Bytes first = from / page * page;
    if (mprotect(start_ + first, from + bytes - first, PROT_READ | PROT_WRITE) != 0) {
      return Status(ErrorCode::kOutOfMemory,
                    "no host memory for a staging buffer of " + std::to_string(bytes) + " bytes");
    }
    return {};
  }
  std::byte* data() const { return start_; }

 private:
  std::byte* start_ = nullptr;
  Bytes bytes_ = 0;
};

/// Where a buffer of the application lies while MPI works on it.
struct Staged {
  Lease lease;
  SpreadMemory spread;          ///< In place of the lease.
  std::int64_t lower = 0;       ///< Bytes from the application's address to the first byte here.
  const void* given = nullptr;  ///< What MPI gets in place of the application's address.

  std::byte* at(std::int64_t offset) const {
    std::byte* const first =
        spread.data() != nullptr ? spread.data() : static_cast<std::byte*>(lease.data());
    return first + (offset - lower);
  }
};

/// `side` as the native call sees it; reductions are one run of `elements`.
Result<std::vector<Piece>> native_pieces(const Arguments& arguments, const Side& side,
                                         std::uint64_t elements) {
  if (!arguments.is_reduction()) {
    return pieces_of(arguments, side);
  }
  return std::vector<Piece>{{0, static_cast<std::int64_t>(elements), side.type, side.layout}};
}

/// Where the pieces' bytes lie, from the buffer's address; `is_spread`: not what lies far between
/// the elements of one.
std::vector<Run> runs_of(std::span<const Piece> pieces, bool is_spread) {
  std::vector<Run> runs;
  for (const Piece& piece : pieces) {
    for (const Piece& part : is_spread ? near_pieces(piece) : std::vector<Piece>{piece}) {
      if (const PieceSpan span = span_of(part); span.span > 0) {
        runs.push_back({static_cast<std::uint64_t>(part.offset + span.lower), span.span});
      }
    }
  }
  return runs;
}

/// Host memory in which every piece has the distance from the others that it has in the
/// application's buffer.
Status stage(runners::Scratch& scratch, const Side& side, std::span<const Piece> parts,
             Staged* staged) {
  std::int64_t low = INT64_MAX;
  std::int64_t high = INT64_MIN;
  for (const Run& run : runs_of(parts, /*is_spread=*/false)) {
    const auto first = static_cast<std::int64_t>(run.offset);
    low = std::min(low, first);
    high = std::max(high, first + static_cast<std::int64_t>(run.count));
  }
  staged->given = side.buffer;
  if (low >= high) {
    return {};
  }
  Bytes data = 0;
  for (const Piece& piece : parts) {
    data += piece.bytes();
  }
  const auto bytes = static_cast<Bytes>(high - low);
  staged->lower = low;
  if (SpreadMemory::is_for(bytes, data)) {
    TUTTI_RETURN_IF_ERROR(staged->spread.reserve(bytes));
    for (const Run& run : runs_of(parts, /*is_spread=*/true)) {
      TUTTI_RETURN_IF_ERROR(
          staged->spread.use(run.offset - static_cast<std::uint64_t>(low), run.count));
    }
  } else {
    TUTTI_ASSIGN_OR_RETURN(staged->lease, scratch.pinned(bytes));
  }
  staged->given = staged->at(0);
  return {};
}

/// Copies pieces down (`in`) or back; neighbours go as one.
Status copy_pieces(const Side& side, std::span<const Piece> parts, const Staged& staged, bool in,
                   runners::Copies* copies) {
  for (const runners::CopyRun& run :
       runners::dense_copies(runs_of(parts, staged.spread.data() != nullptr))) {
    const auto offset = static_cast<std::int64_t>(run.source);
    auto* application = static_cast<std::byte*>(const_cast<void*>(side.buffer)) + offset;
    TUTTI_RETURN_IF_ERROR(
        in ? copies->add(staged.at(offset), {}, application, side.memory, run.count)
           : copies->add(application, side.memory, staged.at(offset), {}, run.count));
  }
  return {};
}

/// Whether all of the receive buffer goes down before the call: what the call does not write there
/// is to stay as it is.
bool reads_recv(const Arguments& arguments, std::span<const Piece> recv_parts) {
  const Collective collective = arguments.view().collective;
  const bool has_gaps = std::any_of(recv_parts.begin(), recv_parts.end(), [](const Piece& piece) {
    return piece.bytes() > 0 && !piece.layout.dense;
  });
  // A root may send less than is received here, and what lies behind that is to stay: this copy is
  // made beside the root's own.
  const bool is_from_root = collective == Collective::kBcast ||
                            collective == Collective::kScatter ||
                            collective == Collective::kScatterv;
  return has_gaps || collective == Collective::kExscan || is_from_root ||
         (arguments.send().in_place && (arguments.is_reduction() || arguments.is_input_in_recv()));
}

}  // namespace

Status run_native_staged(CommState& state, const Arguments& arguments, const NativeCall& native,
                         int* code) {
  engine::Communicator& engine = *state.engine;
  std::optional<device::RelaxedCapture> relaxed;
  engine.relax(&relaxed);
  runners::Scratch& scratch = engine.process().scratch();
  const View& view = arguments.view();
  const Side& send = arguments.send();
  const Side& recv = arguments.recv();
  Staged staged_send{.lease = {}, .spread = {}, .lower = 0, .given = view.send};
  Staged staged_recv{.lease = {}, .spread = {}, .lower = 0, .given = view.recv};
  std::vector<Piece> send_parts;
  std::vector<Piece> recv_parts;
  if (send.is_on_device()) {
    TUTTI_ASSIGN_OR_RETURN(send_parts, native_pieces(arguments, send, arguments.send_elements()));
    TUTTI_RETURN_IF_ERROR(stage(scratch, send, send_parts, &staged_send));
  }
  if (recv.is_on_device()) {
    // In place a reduction's input fills the receive buffer.
    TUTTI_ASSIGN_OR_RETURN(recv_parts, native_pieces(arguments, recv,
                                                     send.in_place ? arguments.send_elements()
                                                                   : arguments.recv_elements()));
    TUTTI_RETURN_IF_ERROR(stage(scratch, recv, recv_parts, &staged_recv));
  }
  Bytes total = 0;
  for (const auto* parts : {&send_parts, &recv_parts}) {
    for (const Piece& piece : *parts) {
      total += piece.bytes();
    }
  }
  TUTTI_ASSIGN_OR_RETURN(const device::Stream stream,
                         engine.staging_stream(arguments.device(), total));
  runners::Copies copies(engine.process().device(), stream);
  if (send.is_on_device()) {
    TUTTI_RETURN_IF_ERROR(copy_pieces(send, send_parts, staged_send, true, &copies));
  }
  if (recv.is_on_device()) {
    std::span<const Piece> down = recv_parts;
    if (!reads_recv(arguments, recv_parts)) {
      // Gathers in place find the own block where it will be received.
      down = send.in_place ? down.subspan(static_cast<std::size_t>(arguments.rank()), 1)
                           : down.subspan(0, 0);
    }
    TUTTI_RETURN_IF_ERROR(copy_pieces(recv, down, staged_recv, true, &copies));
  }
  TUTTI_RETURN_IF_ERROR(copies.finish());
  {
    const engine::WatchedCall watched = engine.watch();
    *code = native(staged_send.given, const_cast<void*>(staged_recv.given));
  }
  const bool is_source = view.collective == Collective::kBcast && arguments.is_root();
  if (*code != MPI_SUCCESS || !recv.is_on_device() || is_source) {
    return {};
  }
  TUTTI_ASSIGN_OR_RETURN(recv_parts, native_pieces(arguments, recv, arguments.recv_elements()));
  TUTTI_RETURN_IF_ERROR(copy_pieces(recv, recv_parts, staged_recv, false, &copies));
  return copies.finish();
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
