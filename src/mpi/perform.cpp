// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/perform.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/on_failure.hpp"
#include "device/pointer_cache.hpp"
#include "mpi/types.hpp"
#include "runners/copies.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using device::MemoryKind;
using device::PointerInfo;
using runners::Call;
using runners::Lease;
using select::Collective;

namespace {

/// How one side of a call is described.
enum class Form : std::uint8_t {
  kAbsent,  ///< Not significant at this rank (or there is no such buffer).
  kOne,     ///< count elements.
  kBlocks,  ///< count elements for each rank.
  kCounts,  ///< counts and displacements, one type.
  kTypes,   ///< alltoallw: counts, displacements in bytes, types.
};

struct Forms {
  Form send = Form::kAbsent;
  Form recv = Form::kAbsent;
};

Forms forms_of(Collective collective, bool is_root) {
  switch (collective) {
    case Collective::kBcast:
      return {Form::kAbsent, Form::kOne};
    case Collective::kGather:
      return {Form::kOne, is_root ? Form::kBlocks : Form::kAbsent};
    case Collective::kGatherv:
      return {Form::kOne, is_root ? Form::kCounts : Form::kAbsent};
    case Collective::kScatter:
      return {is_root ? Form::kBlocks : Form::kAbsent, Form::kOne};
    case Collective::kScatterv:
      return {is_root ? Form::kCounts : Form::kAbsent, Form::kOne};
    case Collective::kAllgather:
      return {Form::kOne, Form::kBlocks};
    case Collective::kAllgatherv:
      return {Form::kOne, Form::kCounts};
    case Collective::kAlltoall:
      return {Form::kBlocks, Form::kBlocks};
    case Collective::kAlltoallv:
      return {Form::kCounts, Form::kCounts};
    case Collective::kAlltoallw:
      return {Form::kTypes, Form::kTypes};
    default:
      return {};
  }
}

/// One side of a data movement call: the application's arguments and what they mean in bytes.
struct Side {
  Form form = Form::kAbsent;
  const void* buffer = nullptr;
  std::int64_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  Numbers<MPI_Count, int> counts;
  Numbers<MPI_Aint, int> displs;
  const MPI_Datatype* types = nullptr;
  bool in_place = false;
  TypeLayout layout;
  PointerInfo memory;
  bool is_read = false;  ///< What it says of its size can be read.

  bool present() const { return form != Form::kAbsent && !in_place; }
};

/// A run of elements of one type in a side's buffer.
struct Piece {
  std::int64_t offset = 0;  ///< Bytes from the buffer's start to the first element's origin.
  std::int64_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  TypeLayout layout;

  Bytes bytes() const { return static_cast<Bytes>(count) * layout.size; }
};

/// Carries one call. Lives on the stack of perform().
class Performance {
 public:
  Performance(Session& session, const View& view, const NativeCall& native)
      : session_(session),
        engine_(*session.engine),
        api_(engine_.process().device()),
        view_(view),
        native_(native),
        rank_(session.library->rank()),
        ranks_(session.library->ranks()) {}

  /// Empty: the code to return is in `code`.
  Status run(int* code);
  /// Of a native call that was refused, and has its number.
  Status note_refused_native() {
    if (read_arguments()) {
      bytes_ = total_bytes();
      if (is_refused_at_root_alone()) {
        session_.refused = std::make_unique<RefusedAtRoot>(RefusedAtRoot{
            view_.collective, view_.root, bytes_, type_, op_, view_.send, view_.recv,
            /*may_be_apart=*/false, /*has_number=*/true, !engine_.is_asserted_host()});
        engine_.forget_routes();
      }
    }
    return {};
  }

 private:
  /// False: not a call of ours. `refused_` is then the error, or MPI_SUCCESS where MPI is to judge.
  bool read_arguments();
  Status turn_away(int* code, const engine::Route* route);
  int call_native(const void* send, void* recv) const {
    const engine::WatchedCall watched = engine_.watch();
    return native_(send, recv);
  }
  bool has_readable_size() const;
  bool is_refused_by_mpi();
  bool is_refused_at_root_alone();
  Status refuse_at_root_alone(int* code, const engine::Route& route);
  bool is_like_refused() const;
  bool is_refused_again() const;
  void settle_refused();
  bool has_null() const;
  bool is_aliased() const;
  int found_aliasing() const;
  bool has_uncommitted();
  bool may_be_uncommitted(const Side& side) const;
  bool is_known(MPI_Datatype type);
  template <class Ask>
  int ask_quietly(Ask ask) const;
  bool read_data_movement();
  bool read_reduction();
  bool read_layout(Side& side);
  /// Not every MPI looks at each entry of an array or for a misplaced MPI_IN_PLACE: some end the
  /// process, others wait for ever for a rank that was refused.
  bool refuse(int error_class) {
    refused_ = error_class;
    return false;
  }
  /// MPI_IN_PLACE where it is no buffer: MPICH ends the process in some collectives and reports
  /// MPI_ERR_BUFFER in the others, Open MPI reports it in its own words in all but exscan.
  bool refuse_in_place() {
    const bool is_found =
        session_.library->name() == "openmpi" && view_.collective != Collective::kExscan;
    return is_found ? false : refuse(MPI_ERR_BUFFER);
  }
  std::optional<Bytes> total_bytes() const;
  const void* first_byte(const Side& side) const;
  void classify();
  bool reads_everything(const engine::Route& route) const;

  Status run_reduction(const engine::Route& route);
  Status run_movement(const engine::Route& route);
  std::optional<Call> plain_movement() const;
  Status check_own_block(Bytes sent, Bytes received) const;
  struct Staged;
  Status run_native_staged(int* code);
  Status stage(const Side& side, std::span<const Piece> parts, Staged* staged);
  Status copy_pieces(const Side& side, std::span<const Piece> parts, const Staged& staged, bool in,
                     runners::Copies* copies);
  Result<std::vector<Piece>> native_pieces(const Side& side, std::uint64_t elements) const;
  bool input_in_recv() const;
  Result<std::vector<Piece>> pieces(const Side& side) const;
  Status to_dense(const Side& side, const void** data, PointerInfo* memory,
                  std::vector<std::uint64_t>* counts, std::vector<std::uint64_t>* offsets,
                  Lease* lease, bool copy_in);
  Status from_dense(const Side& side, const Lease& lease);
  Status pack(const Side& side, const Piece& piece, std::byte* dense);
  Status unpack(const Side& side, const Piece& piece, const std::byte* dense);

  Session& session_;
  engine::Communicator& engine_;
  device::Api* api_;
  const View& view_;
  const NativeCall& native_;
  int rank_;
  int ranks_;

  Side send_;
  Side recv_;
  bool reduction_ = false;
  int refused_ = MPI_SUCCESS;
  select::DataType type_ = select::DataType::kByte;
  select::ReduceOp op_ = select::ReduceOp::kNone;
  std::uint64_t send_elements_ = 0;  ///< Reductions.
  std::uint64_t recv_elements_ = 0;
  std::optional<Bytes> bytes_;
};

bool Performance::read_layout(Side& side) {
  if (!side.present()) {
    return true;
  }
  if (side.form == Form::kCounts || side.form == Form::kTypes) {
    if (!side.counts || !side.displs || (side.form == Form::kTypes && side.types == nullptr)) {
      return refuse(MPI_ERR_ARG);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks_); ++i) {
      if (side.counts[i] < 0) {
        return refuse(MPI_ERR_COUNT);
      }
      // The layouts are asked for where they are needed, which is not in MPI's own calls.
      if (side.form == Form::kTypes && side.counts[i] > 0 && side.types[i] == MPI_DATATYPE_NULL) {
        return refuse(MPI_ERR_TYPE);
      }
    }
  }
  if (side.form == Form::kTypes) {
    return true;
  }
  if (side.form != Form::kCounts && side.count == 0 && side.type != MPI_DATATYPE_NULL) {
    return true;  // Of a type that may be anything.
  }
  return side.count >= 0 && is_known(side.type) && type_layout(side.type, &side.layout);
}

/// What the MPI says of a type, without raising it.
template <class Ask>
int Performance::ask_quietly(Ask ask) const {
  if (const MPI_Comm quiet = quiet_comm(); quiet != MPI_COMM_NULL) {
    return ask(quiet);
  }
  const QuietErrors quiet(session_.comm);
  return ask(session_.comm);
}

/// Whether the MPI knows a type. If not, that is raised where the application waits for it: what
/// asks for a type's layout raises it on MPI_COMM_WORLD. Of reductions, where MPI may find another
/// error first, MPI is to judge.
bool Performance::is_known(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL || is_predefined_type(type)) {
    return type != MPI_DATATYPE_NULL;
  }
  const int code = ask_quietly([&](MPI_Comm comm) {
    int unused = 0;
    return pmpi.Pack_size(0, type, comm, &unused);
  });
  return code == MPI_SUCCESS || (!reduction_ && refuse(code));
}

/// Where MPI allows MPI_IN_PLACE; anywhere else it is no buffer.
bool may_be_in_place(Collective collective, bool sends, bool is_root) {
  switch (collective) {
    case Collective::kGather:
    case Collective::kGatherv:
      return sends && is_root;
    case Collective::kScatter:
    case Collective::kScatterv:
      return !sends && is_root;
    case Collective::kAllgather:
    case Collective::kAllgatherv:
    case Collective::kAlltoall:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
      return sends;
    default:
      return false;
  }
}

bool Performance::read_data_movement() {
  const bool is_root = rank_ == view_.root;
  const Forms forms = forms_of(view_.collective, is_root);
  send_ = {forms.send,
           view_.send,
           view_.send_count,
           view_.send_type,
           view_.send_counts,
           view_.send_displs,
           view_.send_types,
           false,
           {},
           {},
           false};
  recv_ = {forms.recv,
           view_.recv,
           view_.recv_count,
           view_.recv_type,
           view_.recv_counts,
           view_.recv_displs,
           view_.recv_types,
           false,
           {},
           {},
           false};
  send_.in_place = forms.send != Form::kAbsent && view_.send == MPI_IN_PLACE;
  recv_.in_place = forms.recv != Form::kAbsent && view_.recv == MPI_IN_PLACE;
  if ((send_.in_place && !may_be_in_place(view_.collective, true, is_root)) ||
      (recv_.in_place && !may_be_in_place(view_.collective, false, is_root))) {
    return refuse_in_place();
  }
  // The other side may still say how much it is that the other ranks move.
  send_.is_read = read_layout(send_);
  recv_.is_read = refused_ == MPI_SUCCESS && read_layout(recv_);  // One call raises one error.
  return send_.is_read && recv_.is_read;
}

bool Performance::read_reduction() {
  if (view_.op == MPI_OP_NULL || view_.recv_count < 0) {
    return false;
  }
  const auto ranks = static_cast<std::uint64_t>(ranks_);
  send_elements_ = recv_elements_ = static_cast<std::uint64_t>(view_.recv_count);
  if (view_.collective == Collective::kReduceScatterBlock) {
    send_elements_ *= ranks;
  } else if (view_.collective == Collective::kReduceScatter) {
    if (!view_.recv_counts) {
      return refuse(MPI_ERR_ARG);
    }
    send_elements_ = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      if (view_.recv_counts[i] < 0) {
        return refuse(MPI_ERR_COUNT);
      }
      send_elements_ += static_cast<std::uint64_t>(view_.recv_counts[i]);
    }
    recv_elements_ = static_cast<std::uint64_t>(view_.recv_counts[static_cast<std::size_t>(rank_)]);
  }
  Side side;
  side.form = Form::kOne;
  side.type = view_.recv_type;
  side.count = static_cast<std::int64_t>(send_elements_);
  if (!read_layout(side)) {
    return false;
  }
  op_ = reduce_op(view_.op);
  type_ = data_type(view_.recv_type, op_);
  const bool receives = view_.collective != Collective::kReduce || rank_ == view_.root;
  send_ = side;
  send_.buffer = view_.send;
  send_.in_place = view_.send == MPI_IN_PLACE;
  recv_ = side;
  recv_.buffer = view_.recv;
  if (!receives) {
    recv_.form = Form::kAbsent;
    recv_elements_ = 0;
  } else if (recv_.buffer == MPI_IN_PLACE) {
    return refuse_in_place();
  }
  if (send_.in_place && view_.collective == Collective::kReduce && !receives) {
    if (session_.library->name() != "mpich") {
      return false;  // An error that MPI itself should report.
    }
    send_.in_place = false;  // MPICH takes the input from the receive buffer there.
    send_.buffer = view_.recv;
  }
  return true;
}

bool Performance::read_arguments() {
  if (select::is_rooted(view_.collective) && (view_.root < 0 || view_.root >= ranks_)) {
    return false;
  }
  reduction_ = select::is_reduction(view_.collective);
  return reduction_ ? read_reduction() : read_data_movement();
}

/// The number select::Shape::bytes asks for; the same on every rank.
std::optional<Bytes> Performance::total_bytes() const {
  const auto ranks = static_cast<Bytes>(ranks_);
  auto block = [](const Side& side) { return static_cast<Bytes>(side.count) * side.layout.size; };
  switch (view_.collective) {
    case Collective::kBcast:
      return block(recv_);
    case Collective::kGather:
      return ranks * block(send_.present() && send_.is_read ? send_ : recv_);
    case Collective::kScatter:
      return ranks * block(recv_.present() && recv_.is_read ? recv_ : send_);
    case Collective::kAllgather:
    case Collective::kAlltoall:
      return ranks * block(recv_);
    case Collective::kAllgatherv: {
      Bytes total = 0;
      for (std::size_t i = 0; i < ranks; ++i) {
        total += static_cast<Bytes>(view_.recv_counts[i]);
      }
      return total * recv_.layout.size;
    }
    case Collective::kGatherv:
    case Collective::kScatterv:
    case Collective::kAlltoallv:
    case Collective::kAlltoallw:
      return std::nullopt;
    default:
      return send_elements_ * send_.layout.size;
  }
}

/// Where a side's data begins. The buffer's address alone may be anything: MPI_BOTTOM with a type
/// of absolute addresses, or one from which all displacements lead into another allocation.
const void* Performance::first_byte(const Side& side) const {
  std::int64_t offset = side.layout.true_lower;
  if (side.form == Form::kCounts || side.form == Form::kTypes) {
    std::size_t i = 0;
    while (i < static_cast<std::size_t>(ranks_) && side.counts[i] == 0) {
      ++i;
    }
    if (i == static_cast<std::size_t>(ranks_)) {
      return side.buffer;
    }
    TypeLayout layout = side.layout;
    if (side.form == Form::kTypes && !type_layout(side.types[i], &layout)) {
      return side.buffer;  // Who needs the type refuses it: pieces(), or MPI.
    }
    offset = layout.true_lower + side.displs[i] * (side.form == Form::kTypes ? 1 : layout.extent);
  }
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(side.buffer) +
                                       static_cast<std::uintptr_t>(offset));
}

void Performance::classify() {
  if (!engine_.classifies()) {
    return;
  }
  for (Side* side : {&send_, &recv_}) {
    if (side->present()) {
      side->memory = device::classify_cached(api_, first_byte(*side));
    }
  }
}

bool Performance::reads_everything(const engine::Route& route) const {
  const bool on_device =
      send_.memory.kind == MemoryKind::kDevice || recv_.memory.kind == MemoryKind::kDevice;
  return !on_device || engine_.mpi_reads_device(route);
}

bool Performance::has_null() const {
  const bool is_mpich = session_.library->name() == "mpich";
  // From a buffer's address to its first block that has data.
  const auto displacement = [this](const Side& side) -> std::int64_t {
    if (side.form != Form::kCounts && side.form != Form::kTypes) {
      return 0;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks_); ++i) {
      if (side.counts[i] > 0) {
        return side.displs[i] * (side.form == Form::kTypes ? 1 : side.layout.extent);
      }
    }
    return 0;
  };
  const auto is_null = [&](const Side& side, std::uint64_t elements) {
    if (!side.present()) {
      return false;
    }
    bool has_data = elements > 0;
    if (!reduction_ && (side.form == Form::kCounts || side.form == Form::kTypes)) {
      for (int i = 0; i < ranks_ && !has_data; ++i) {
        has_data = side.counts[static_cast<std::size_t>(i)] > 0;
      }
    }
    if (!has_data || (side.form != Form::kTypes && side.layout.size == 0)) {
      return false;
    }
    // MPICH looks at the buffer and at where the type begins, whatever the displacements are.
    const auto first =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(first_byte(side)));
    return first == 0 || (is_mpich && side.buffer == nullptr && first == displacement(side));
  };
  const auto elements = [this](const Side& side, std::uint64_t of_reduction) {
    return reduction_ ? of_reduction : static_cast<std::uint64_t>(side.count);
  };
  return is_null(send_, elements(send_, send_elements_)) ||
         is_null(recv_, elements(recv_, recv_elements_));
}

/// The input where the output will be, without MPI_IN_PLACE, of one count and type: what libraries
/// look for, if they do.
bool Performance::is_aliased() const {
  if (!send_.present() || !recv_.present()) {
    return false;
  }
  if (send_.form != Form::kTypes && send_.layout.size == 0) {
    return false;  // Nothing moves.
  }
  if (reduction_) {
    return send_.buffer == recv_.buffer;
  }
  const auto self = static_cast<std::size_t>(rank_);
  const auto own_block = [self](const Side& side) {
    std::int64_t offset = 0;
    if (side.form == Form::kBlocks) {
      offset = static_cast<std::int64_t>(self) * side.count * side.layout.extent;
    } else if (side.form == Form::kCounts) {
      offset = side.displs[self] * side.layout.extent;
    }
    return static_cast<const std::byte*>(side.buffer) + offset;
  };
  if (send_.form == recv_.form) {  // alltoall(v, w): the whole buffers.
    if (send_.buffer != recv_.buffer) {
      return false;
    }
    switch (send_.form) {
      case Form::kCounts:
        return send_.type == recv_.type && view_.send_counts.is_same_array(view_.recv_counts);
      case Form::kTypes:
        return send_.types == recv_.types && view_.send_counts.is_same_array(view_.recv_counts);
      default:
        return send_.type == recv_.type && send_.count == recv_.count;
    }
  }
  const auto own_count = [self](const Side& side) {
    return side.form == Form::kCounts ? side.counts[self] : side.count;
  };
  return send_.type == recv_.type && own_count(send_) == own_count(recv_) && own_count(send_) > 0 &&
         own_block(send_) == own_block(recv_);
}

/// Open MPI does not ask whether these types are committed. One with gaps we could not pack.
bool Performance::may_be_uncommitted(const Side& side) const {
  if (session_.library->name() != "openmpi" || !side.layout.dense) {
    return false;
  }
  switch (view_.collective) {
    case Collective::kScatter:
      return true;
    case Collective::kScatterv:
    case Collective::kAllgather:
    case Collective::kAllgatherv:
      return &side == &recv_;
    default:
      return false;
  }
}

/// A type that is known and yet not committed: only MPI can tell.
bool Performance::has_uncommitted() {
  const auto check_type = [this](MPI_Datatype type) {
    if (type == MPI_DATATYPE_NULL || is_predefined_type(type)) {
      return type != MPI_DATATYPE_NULL || !refuse(MPI_ERR_TYPE);
    }
    const int code = ask_quietly([&](MPI_Comm comm) {
      std::byte nothing{};
      int position = 0;
      return pmpi.Pack(&nothing, 0, type, &nothing, 0, &position, comm);
    });
    return code == MPI_SUCCESS || refuse(code);
  };
  for (const Side* side : {&send_, &recv_}) {
    if (!side->present() || reduction_) {
      continue;
    }
    if (side->form != Form::kTypes) {
      if (side->layout.size > 0 && !may_be_uncommitted(*side) && !check_type(side->type)) {
        return true;
      }
      continue;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks_); ++i) {
      if (side->counts[i] > 0 && !check_type(side->types[i])) {
        return true;
      }
    }
  }
  return false;
}

/// The error class that MPI has for this call's aliased buffers; MPI_SUCCESS: none.
int Performance::found_aliasing() const {
  if (!is_aliased()) {
    return MPI_SUCCESS;
  }
  std::uint64_t elements = reduction_ ? recv_elements_ : static_cast<std::uint64_t>(send_.count);
  for (int i = 0; i < ranks_ && !reduction_ && send_.form != Form::kOne && send_.counts; ++i) {
    elements += static_cast<std::uint64_t>(send_.counts[static_cast<std::size_t>(i)]);
  }
  return aliasing_error(view_.collective, elements);
}

/// Of a call that MPI does not get as the application made it: what MPI would find in it.
bool Performance::is_refused_by_mpi() {
  if (has_null()) {
    return !refuse(MPI_ERR_BUFFER);
  }
  if (const int found = found_aliasing(); found != MPI_SUCCESS) {
    return !refuse(found);
  }
  return has_uncommitted();
}

/// Of rooted collectives only the root has two buffers, and so only its call can be refused for
/// them. Any other fault may be every rank's, which then is in step with them.
bool Performance::is_refused_at_root_alone() {
  if (!select::is_rooted(view_.collective) || rank_ != view_.root ||
      found_aliasing() == MPI_SUCCESS || has_null()) {
    return false;
  }
  const int refused = refused_;
  const bool is_all = !has_uncommitted();
  refused_ = refused;
  return is_all;
}

Status Performance::refuse_at_root_alone(int* code, const engine::Route& route) {
  const bool may_be_apart = !route.native_flat && !route.is_in_shared_memory();
  const bool is_native = route.native_flat && reads_everything(route);
  *code = found_aliasing();
  {
    const QuietErrors quiet(session_.comm);
    if (is_native && quiet.is_quiet()) {
      *code = call_native(view_.send, view_.recv);  // In MPI's own words.
    }
  }
  if (*code == MPI_SUCCESS) {
    engine_.pass_by();  // It was none that MPI refuses.
    return {};
  }
  engine_.doubt_call();
  if (may_be_apart && session_.library->shares_messages()) {
    engine_.refuse();  // Now: other communicators' agreements must not come in between.
  } else {
    session_.refused = std::make_unique<RefusedAtRoot>(
        RefusedAtRoot{view_.collective, view_.root, bytes_, type_, op_, view_.send, view_.recv,
                      may_be_apart, /*has_number=*/false, !engine_.is_asserted_host()});
  }
  call_errhandler(session_.comm, *code);
  return {};
}

/// This call and the refused one are the same for the others.
bool Performance::is_like_refused() const {
  const RefusedAtRoot& refused = *session_.refused;
  return view_.collective == refused.collective && view_.root == refused.root &&
         bytes_ == refused.bytes && type_ == refused.type && op_ == refused.op;
}

/// The refused call, with one other buffer.
bool Performance::is_refused_again() const {
  const RefusedAtRoot& refused = *session_.refused;
  return is_like_refused() && (view_.send == refused.send) != (view_.recv == refused.recv);
}

/// An earlier call may have been refused at its root alone, this rank.
void Performance::settle_refused() {
  if (is_refused_again()) {
    engine_.make_again(session_.refused->has_number, session_.refused->is_agreed);
  } else if (is_like_refused()) {
    engine_.count_doubted();  // What the others sent for the refused one is not this one's.
  } else if (engine_.has_doubts()) {
    return;
  }
  session_.refused.reset();
}

/// Whether total_bytes() is what it is on the ranks whose arguments are right.
bool Performance::has_readable_size() const {
  const auto is_read = [](const Side& side) { return side.present() && side.is_read; };
  switch (view_.collective) {
    // By the side that all ranks have: where that is wrong on all of them, the root, which could
    // read the other one, is not to do anything else than they.
    case Collective::kGather:
      return send_.present() ? send_.is_read : is_read(recv_);
    case Collective::kScatter:
      return recv_.present() ? recv_.is_read : is_read(send_);
    case Collective::kBcast:
    case Collective::kAllgather:
    case Collective::kAllgatherv:
    case Collective::kAlltoall:
      return is_read(recv_);
    default:
      return !select::has_size(view_.collective);
  }
}

/// A call with wrong arguments, or a legal one that is none of ours. What MPI would refuse goes to
/// MPI, which says so in its own words. Arguments that are wrong on this rank alone keep it out of
/// what the others do: where its size can be read it still comes to what they agree on; in shared
/// memory they hear of it; where they may be in other steps of ours the engine has to find out.
/// `route`: what was agreed on before, or null.
Status Performance::turn_away(int* code, const engine::Route* route) {
  bool may_be_apart = engine_.may_be_apart(view_.collective);
  if (route == nullptr && may_be_apart && has_readable_size()) {
    bytes_ = total_bytes();
    may_be_apart = bytes_ != Bytes{0};
    if (may_be_apart) {
      TUTTI_ASSIGN_OR_RETURN(route, engine_.route(view_.collective, bytes_, type_, op_, -1));
    }
  }
  if (route != nullptr) {
    may_be_apart = !route->native_flat && !route->is_in_shared_memory();
  }
  engine_.turn_away();
  bool is_raised = false;
  *code = refused_;
  if (refused_ == MPI_SUCCESS) {
    std::optional<QuietErrors> quiet;
    if (may_be_apart) {
      quiet.emplace(session_.comm);  // MPICH says MPI_SUCCESS after a handler of the application's.
    }
    *code = call_native(view_.send, view_.recv);
    is_raised = !quiet || !quiet->is_quiet();
  }
  if (*code == MPI_SUCCESS) {
    return {};
  }
  // The application's error handler may free the communicator: it has, or it comes last.
  if (may_be_apart && (!is_raised || has_engine(&session_, &engine_))) {
    engine_.refuse();
  }
  if (!is_raised) {
    call_errhandler(session_.comm, *code);
  }
  return {};
}

Status Performance::run(int* code) {
  if (!engine_.failure().ok()) [[unlikely]] {
    return engine_.failure();
  }
  const bool is_read = read_arguments();
  if (is_read) {
    bytes_ = total_bytes();
  }
  if (session_.refused != nullptr && !(is_read && is_refused_again())) [[unlikely]] {
    TUTTI_RETURN_IF_ERROR(settle_apart(session_));
  }
  if (!is_read) {
    return turn_away(code, nullptr);
  }
  if (bytes_ == Bytes{0}) {
    engine_.pass_by();
    *code = call_native(view_.send, view_.recv);  // Nothing moves; the same on every rank.
    return {};
  }
  const bool is_asserted_host = engine_.is_asserted_host();
  if (is_asserted_host && is_refused_at_root_alone()) [[unlikely]] {
    // What this sets up the others may be waiting for, who have made the call.
    TUTTI_ASSIGN_OR_RETURN(const engine::Route* route,
                           engine_.route(view_.collective, bytes_, type_, op_, /*device=*/-1));
    return refuse_at_root_alone(code, *route);
  }
  if (session_.refused != nullptr) [[unlikely]] {
    settle_refused();
  }
  classify();
  const int device = std::max(send_.memory.device, recv_.memory.device);
  // MPI's rule: what fills a buffer is finished before the call. Asking the default stream whether
  // it is costs 1.5 us a call, as much as all of ours, so it is left to TUTTI_SYNC_DEVICE.
  if (engine_.process().config().sync_device && device >= 0) {
    std::optional<device::RelaxedCapture> relaxed;
    engine_.relax(&relaxed);
    TUTTI_RETURN_IF_ERROR(api_->wait_device(device));
  }
  TUTTI_ASSIGN_OR_RETURN(const engine::Route* route,
                         engine_.route(view_.collective, bytes_, type_, op_, device));
  if (!is_asserted_host && is_refused_at_root_alone()) [[unlikely]] {
    return refuse_at_root_alone(code, *route);
  }
  if ((!route->native_flat || !reads_everything(*route)) && is_refused_by_mpi()) {
    return turn_away(code, route);
  }
  if (route->native_flat) {
    engine_.pass_by();
    if (!reads_everything(*route)) {
      return run_native_staged(code);
    }
    remember_native(session_, view_, *route);
    *code = call_native(view_.send, view_.recv);
    return {};
  }
  *code = MPI_SUCCESS;
  return reduction_ ? run_reduction(*route) : run_movement(*route);
}

// --- Reductions ---------------------------------------------------------------------------------

/// Of basic types with predefined operations: selection gives all others native plans.
Status Performance::run_reduction(const engine::Route& route) {
  Call call;
  call.collective = view_.collective;
  call.type = type_;
  call.op = op_;
  // Of a pair with its padding; kOther stays native and never comes here.
  call.element_bytes = select::size_of(type_);
  call.root = view_.root;
  call.mpi_type = handle_bits(view_.recv_type);
  call.mpi_op = handle_bits(view_.op);
  call.count = static_cast<std::uint64_t>(view_.recv_count);
  call.recv = recv_.present() ? view_.recv : nullptr;
  call.recv_memory = recv_.memory;
  call.send = send_.in_place ? view_.recv : send_.buffer;
  call.send_memory = send_.in_place ? recv_.memory : send_.memory;
  call.in_place = send_.in_place || is_aliased();  // An MPI that lets it pass does as much.
  std::vector<std::uint64_t> counts;
  if (view_.collective == Collective::kReduceScatter) {
    counts.reserve(static_cast<std::size_t>(ranks_));
    for (int i = 0; i < ranks_; ++i) {
      counts.push_back(static_cast<std::uint64_t>(view_.recv_counts[static_cast<std::size_t>(i)]));
    }
    call.recv_counts = counts;
  }
  return engine_.run(route, call);
}

// --- Data movement ------------------------------------------------------------------------------

/// Errors: a type that MPI does not know, before anything of the call is sent.
Result<std::vector<Piece>> Performance::pieces(const Side& side) const {
  std::vector<Piece> result;
  const auto ranks = static_cast<std::size_t>(ranks_);
  switch (side.form) {
    case Form::kAbsent:
      break;
    case Form::kOne:
      result.push_back({0, side.count, side.type, side.layout});
      break;
    case Form::kBlocks:
      for (std::size_t i = 0; i < ranks; ++i) {
        result.push_back({static_cast<std::int64_t>(i) * side.count * side.layout.extent,
                          side.count, side.type, side.layout});
      }
      break;
    case Form::kCounts:
      for (std::size_t i = 0; i < ranks; ++i) {
        result.push_back(
            {side.displs[i] * side.layout.extent, side.counts[i], side.type, side.layout});
      }
      break;
    case Form::kTypes:
      for (std::size_t i = 0; i < ranks; ++i) {
        Piece piece{side.displs[i], side.counts[i], side.types[i], {}};
        if (piece.count > 0 && !type_layout(piece.type, &piece.layout)) {
          return Status::mpi(MPI_ERR_TYPE, std::string(select::to_string(view_.collective)) +
                                               ": no datatype for rank " + std::to_string(i));
        }
        result.push_back(piece);
      }
      break;
  }
  return result;
}

/// Where a piece's bytes lie around its first element: from `lower`, `span` bytes.
struct PieceSpan {
  std::int64_t lower = 0;
  Bytes span = 0;
};

PieceSpan span_of(const Piece& piece) {
  if (piece.count == 0) {
    return {};
  }
  const std::int64_t last = (piece.count - 1) * piece.layout.extent;
  return {std::min<std::int64_t>(0, last) + piece.layout.true_lower,
          static_cast<Bytes>(std::abs(last) + piece.layout.true_extent)};
}

/// A piece whose elements lie far from each other as pieces of one element; else the piece itself.
std::vector<Piece> near_pieces(const Piece& piece) {
  constexpr std::int64_t kFarBytes = std::int64_t{1} << 20;
  const std::int64_t step = std::abs(piece.layout.extent);
  if (piece.count <= 1 || piece.layout.dense || step < kFarBytes ||
      step / 2 < piece.layout.true_extent) {
    return {piece};
  }
  std::vector<Piece> parts;
  for (std::int64_t i = 0; i < piece.count; ++i) {
    parts.push_back({piece.offset + i * piece.layout.extent, 1, piece.type, piece.layout});
  }
  return parts;
}

// --- The MPI's own collective on copies in host memory
// ---------------------------------------------

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
struct Performance::Staged {
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
Result<std::vector<Piece>> Performance::native_pieces(const Side& side,
                                                      std::uint64_t elements) const {
  if (!reduction_) {
    return pieces(side);
  }
  return std::vector<Piece>{{0, static_cast<std::int64_t>(elements), side.type, side.layout}};
}

/// Host memory in which every piece has the distance from the others that it has in the
/// application's buffer.
Status Performance::stage(const Side& side, std::span<const Piece> parts, Staged* staged) {
  std::int64_t low = INT64_MAX;
  std::int64_t high = INT64_MIN;
  Bytes data = 0;
  for (const Piece& piece : parts) {
    if (const PieceSpan span = span_of(piece); span.span > 0) {
      low = std::min(low, piece.offset + span.lower);
      high = std::max(high, piece.offset + span.lower + static_cast<std::int64_t>(span.span));
    }
    data += piece.bytes();
  }
  staged->given = side.buffer;
  if (low >= high) {
    return {};
  }
  staged->lower = low;
  if (SpreadMemory::is_for(static_cast<Bytes>(high - low), data)) {
    TUTTI_RETURN_IF_ERROR(staged->spread.reserve(static_cast<Bytes>(high - low)));
    for (const Piece& piece : parts) {
      for (const Piece& part : near_pieces(piece)) {
        const PieceSpan span = span_of(part);
        if (span.span > 0) {
          TUTTI_RETURN_IF_ERROR(
              staged->spread.use(static_cast<Bytes>(part.offset + span.lower - low), span.span));
        }
      }
    }
    staged->given = staged->at(0);
    return {};
  }
  TUTTI_ASSIGN_OR_RETURN(staged->lease,
                         engine_.process().scratch().pinned(static_cast<Bytes>(high - low)));
  staged->given = staged->at(0);
  return {};
}

/// Copies pieces down (`in`) or back; neighbours go as one.
Status Performance::copy_pieces(const Side& side, std::span<const Piece> parts,
                                const Staged& staged, bool in, runners::Copies* copies) {
  std::int64_t start = 0;
  std::int64_t end = 0;
  auto flush = [&]() -> Status {
    auto* application = static_cast<std::byte*>(const_cast<void*>(side.buffer)) + start;
    const auto bytes = static_cast<Bytes>(end - start);
    return in ? copies->add(staged.at(start), {}, application, side.memory, bytes)
              : copies->add(application, side.memory, staged.at(start), {}, bytes);
  };
  const auto copy = [&](const Piece& piece) -> Status {
    const PieceSpan span = span_of(piece);
    if (span.span == 0) {
      return {};
    }
    const std::int64_t first = piece.offset + span.lower;
    if (first != end || end == start) {
      if (end > start) {
        TUTTI_RETURN_IF_ERROR(flush());
      }
      start = first;
    }
    end = first + static_cast<std::int64_t>(span.span);
    return {};
  };
  for (const Piece& piece : parts) {
    if (staged.spread.data() == nullptr) {
      TUTTI_RETURN_IF_ERROR(copy(piece));
      continue;
    }
    for (const Piece& part : near_pieces(piece)) {
      TUTTI_RETURN_IF_ERROR(copy(part));
    }
  }
  return end > start ? flush() : Status();
}

/// The application's own call, with its counts, types, displacements and MPI_IN_PLACE, on copies of
/// its device buffers: this rank does exactly what the ranks do that stage nothing, so that the
/// MPI's choice of algorithm and of segments is the same on all.
Status Performance::run_native_staged(int* code) {
  std::optional<device::RelaxedCapture> relaxed;
  engine_.relax(&relaxed);
  const auto on_device = [](const Side& side) {
    return side.present() && side.memory.kind == MemoryKind::kDevice;
  };
  const bool is_bcast = view_.collective == Collective::kBcast;
  const bool is_exscan = view_.collective == Collective::kExscan;
  const auto self = static_cast<std::size_t>(rank_);
  Staged send{.lease = {}, .spread = {}, .lower = 0, .given = view_.send};
  Staged recv{.lease = {}, .spread = {}, .lower = 0, .given = view_.recv};
  const int device = std::max(send_.memory.device, recv_.memory.device);
  Bytes total = 0;
  std::vector<Piece> send_parts;
  std::vector<Piece> recv_parts;
  if (on_device(send_)) {
    TUTTI_ASSIGN_OR_RETURN(send_parts, native_pieces(send_, send_elements_));
    TUTTI_RETURN_IF_ERROR(stage(send_, send_parts, &send));
  }
  if (on_device(recv_)) {
    // In place a reduction's input fills the receive buffer.
    TUTTI_ASSIGN_OR_RETURN(recv_parts,
                           native_pieces(recv_, send_.in_place ? send_elements_ : recv_elements_));
    TUTTI_RETURN_IF_ERROR(stage(recv_, recv_parts, &recv));
  }
  for (const auto* parts : {&send_parts, &recv_parts}) {
    for (const Piece& piece : *parts) {
      total += piece.bytes();
    }
  }
  TUTTI_ASSIGN_OR_RETURN(const device::Stream stream, engine_.staging_stream(device, total));
  runners::Copies copies(api_, stream);
  if (on_device(send_)) {
    TUTTI_RETURN_IF_ERROR(copy_pieces(send_, send_parts, send, true, &copies));
  }
  if (on_device(recv_)) {
    const bool has_gaps = std::any_of(recv_parts.begin(), recv_parts.end(), [](const Piece& piece) {
      return piece.bytes() > 0 && !piece.layout.dense;
    });
    // A root may send less than is received here, and what lies behind that is to stay: this copy
    // is made beside the root's own.
    const bool is_from_root = is_bcast || view_.collective == Collective::kScatter ||
                              view_.collective == Collective::kScatterv;
    const bool reads_all = has_gaps || is_exscan || is_from_root ||
                           (send_.in_place && (reduction_ || input_in_recv()));
    std::span<const Piece> down = recv_parts;
    if (!reads_all) {
      // Gathers in place find the own block where it will be received.
      down = send_.in_place ? down.subspan(self, 1) : down.subspan(0, 0);
    }
    TUTTI_RETURN_IF_ERROR(copy_pieces(recv_, down, recv, true, &copies));
  }
  TUTTI_RETURN_IF_ERROR(copies.finish());
  *code = call_native(send.given, const_cast<void*>(recv.given));
  if (*code != MPI_SUCCESS || !on_device(recv_) || (is_bcast && rank_ == view_.root)) {
    return {};
  }
  TUTTI_ASSIGN_OR_RETURN(recv_parts, native_pieces(recv_, recv_elements_));
  TUTTI_RETURN_IF_ERROR(copy_pieces(recv_, recv_parts, recv, false, &copies));
  return copies.finish();
}

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

Status Performance::pack(const Side& side, const Piece& piece, std::byte* dense) {
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
                           static_cast<int>(bytes), &position, session_.library->own()),
                 "MPI_Pack");
  };
  return in_batches(piece, step, [&](std::int64_t at) {
    return session_.library->pack_large(origin + at * piece.layout.extent, piece.type,
                                        dense + static_cast<Bytes>(at) * piece.layout.size,
                                        piece.layout.size);
  });
}

Status Performance::unpack(const Side& side, const Piece& piece, const std::byte* dense) {
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
                    piece.type, session_.library->own()),
        "MPI_Unpack");
  };
  TUTTI_RETURN_IF_ERROR(in_batches(piece, step, [&](std::int64_t at) {
    return session_.library->unpack_large(dense + static_cast<Bytes>(at) * piece.layout.size,
                                          origin + at * piece.layout.extent, piece.type,
                                          piece.layout.size);
  }));
  if (!on_device) {
    return {};
  }
  return runners::copy_any(api_, application + span.lower, side.memory, lease.data(), {},
                           span.span);
}

/// Gives a side's data as dense bytes: where it lies if it is dense, else packed in host memory.
Status Performance::to_dense(const Side& side, const void** data, PointerInfo* memory,
                             std::vector<std::uint64_t>* counts,
                             std::vector<std::uint64_t>* offsets, Lease* lease, bool copy_in) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Piece> parts, pieces(side));
  const bool all_dense = std::all_of(parts.begin(), parts.end(), [](const Piece& piece) {
    return piece.layout.dense || piece.bytes() == 0;
  });
  counts->clear();
  offsets->clear();
  Bytes total = 0;
  for (const Piece& piece : parts) {
    counts->push_back(piece.bytes());
    // Displacements may be negative; they wrap, and wrap back when added to the address.
    offsets->push_back(all_dense ? static_cast<std::uint64_t>(piece.offset) : total);
    total += piece.bytes();
  }
  if (all_dense) {
    *data = side.buffer;
    *memory = side.memory;
    return {};
  }
  std::optional<device::RelaxedCapture> relaxed;
  engine_.relax(&relaxed);
  TUTTI_ASSIGN_OR_RETURN(*lease, engine_.process().scratch().pinned(total));
  *data = lease->data();
  *memory = {};
  if (!copy_in) {
    return {};
  }
  std::byte* dense = static_cast<std::byte*>(lease->data());
  for (const Piece& piece : parts) {
    TUTTI_RETURN_IF_ERROR(pack(side, piece, dense));
    dense += piece.bytes();
  }
  return {};
}

Status Performance::from_dense(const Side& side, const Lease& lease) {
  std::optional<device::RelaxedCapture> relaxed;
  engine_.relax(&relaxed);
  const std::byte* dense = static_cast<const std::byte*>(lease.data());
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Piece> parts, pieces(side));
  for (const Piece& piece : parts) {
    TUTTI_RETURN_IF_ERROR(unpack(side, piece, dense));
    dense += piece.bytes();
  }
  return {};
}

/// MPI_IN_PLACE of alltoall(v,w) puts the input into the receive buffer.
bool Performance::input_in_recv() const {
  return send_.in_place &&
         (recv_.form == Form::kBlocks || recv_.form == Form::kCounts ||
          recv_.form == Form::kTypes) &&
         forms_of(view_.collective, true).send == recv_.form;
}

/// Equal blocks of dense elements, so nearly every call: without the lists of pieces, which cost
/// half a microsecond.
std::optional<Call> Performance::plain_movement() const {
  const auto is_plain = [](const Side& side) {
    return !side.present() || ((side.form == Form::kOne || side.form == Form::kBlocks) &&
                               (side.layout.dense || side.count == 0));
  };
  if (runners::has_counts(view_.collective) || !is_plain(send_) || !is_plain(recv_) ||
      send_.in_place || recv_.in_place) {
    return std::nullopt;
  }
  const bool is_gather = view_.collective == Collective::kGather;
  const Side& counted = is_gather ? send_ : recv_;
  Call call;
  call.collective = view_.collective;
  call.type = select::DataType::kByte;
  call.element_bytes = 1;
  call.root = view_.root;
  call.count =
      counted.present() ? static_cast<std::uint64_t>(counted.count) * counted.layout.size : 0;
  if (recv_.present()) {
    call.recv = const_cast<void*>(recv_.buffer);
    call.recv_memory = recv_.memory;
  }
  if (send_.present()) {
    call.send = send_.buffer;
    call.send_memory = send_.memory;
  }
  return call;
}

/// A rank is its own peer, and of that pair it sees both ends: plans that copy the block rely on
/// it. The others are in the call by now: an error of this communicator, which ends their wait.
Status Performance::check_own_block(Bytes sent, Bytes received) const {
  if (sent == received) {
    return {};
  }
  return Status(ErrorCode::kInvalidArgument,
                std::string(select::to_string(view_.collective)) + ": rank " +
                    std::to_string(rank_) + " has " + std::to_string(sent) +
                    " bytes for itself and takes " + std::to_string(received) + " from itself");
}

Status Performance::run_movement(const engine::Route& route) {
  if (const std::optional<Call> plain = plain_movement()) {
    if (send_.present() && recv_.present()) {
      TUTTI_RETURN_IF_ERROR(check_own_block(static_cast<Bytes>(send_.count) * send_.layout.size,
                                            static_cast<Bytes>(recv_.count) * recv_.layout.size));
    }
    return engine_.run(route, *plain);
  }
  Call call;
  call.collective = view_.collective;
  call.type = select::DataType::kByte;
  call.element_bytes = 1;
  call.root = view_.root;

  call.in_place = send_.in_place || recv_.in_place;

  const bool is_bcast = view_.collective == Collective::kBcast;
  const bool input_in_recv = this->input_in_recv();
  Lease send_lease;
  Lease recv_lease;
  std::vector<std::uint64_t> send_counts;
  std::vector<std::uint64_t> send_offsets;
  std::vector<std::uint64_t> recv_counts;
  std::vector<std::uint64_t> recv_offsets;
  const void* data = nullptr;
  if (recv_.present()) {
    const bool copy_in = (is_bcast && rank_ == view_.root) || input_in_recv;
    TUTTI_RETURN_IF_ERROR(to_dense(recv_, &data, &call.recv_memory, &recv_counts, &recv_offsets,
                                   &recv_lease, copy_in));
    call.recv = const_cast<void*>(data);
  }
  if (send_.present()) {
    TUTTI_RETURN_IF_ERROR(to_dense(send_, &call.send, &call.send_memory, &send_counts,
                                   &send_offsets, &send_lease, true));
  }
  const auto self = static_cast<std::size_t>(rank_);
  if (send_.in_place) {
    call.send_memory = call.recv_memory;
    if (input_in_recv) {
      call.send = call.recv;
      send_counts = recv_counts;
      send_offsets = recv_offsets;
    } else {
      // gather(v) at the root, allgather(v): the own block is where it will be received. Packed
      // copies of it come from the receive buffer too.
      call.send = runners::at(call.recv, recv_offsets[self], 1);
      if (recv_lease.data() != nullptr) {
        std::optional<device::RelaxedCapture> relaxed;
        engine_.relax(&relaxed);
        TUTTI_ASSIGN_OR_RETURN(const std::vector<Piece> parts, pieces(recv_));
        TUTTI_RETURN_IF_ERROR(
            pack(recv_, parts[self], runners::at(recv_lease.data(), recv_offsets[self], 1)));
      }
      send_counts = {recv_counts[self]};
    }
  }
  if (recv_.in_place) {
    // scatter(v) at the root: its own block stays where it is.
    call.recv = const_cast<std::byte*>(runners::at(call.send, send_offsets[self], 1));
    call.recv_memory = call.send_memory;
    recv_counts = {send_counts[self]};
  }

  if (!send_counts.empty() && !recv_counts.empty()) {
    // The side of one block has only the own one.
    const auto own = [self](const std::vector<std::uint64_t>& counts) {
      return counts[counts.size() == 1 ? 0 : self];
    };
    TUTTI_RETURN_IF_ERROR(check_own_block(own(send_counts), own(recv_counts)));
  }

  const auto first = [](const std::vector<std::uint64_t>& counts) {
    return counts.empty() ? 0 : counts.front();
  };
  switch (view_.collective) {
    case Collective::kGather:
    case Collective::kGatherv:
    case Collective::kAllgatherv:
      call.count = first(send_counts);
      break;
    default:
      call.count = first(recv_counts);
      break;
  }
  if (runners::has_counts(view_.collective)) {
    const Forms forms = forms_of(view_.collective, rank_ == view_.root);
    if (forms.send == Form::kCounts || forms.send == Form::kTypes) {
      call.send_counts = send_counts;
      call.send_offsets = send_offsets;
    }
    if (forms.recv == Form::kCounts || forms.recv == Form::kTypes) {
      call.recv_counts = recv_counts;
      call.recv_offsets = recv_offsets;
    }
  }
  // A message that is under way may still be written there, or read: never reused.
  OnFailure abandon([&] {
    send_lease.abandon();
    recv_lease.abandon();
  });
  TUTTI_RETURN_IF_ERROR(engine_.run(route, call));
  abandon.succeed();
  // A packed buffer received into is unpacked; the root of a bcast only sent.
  if (recv_.present() && recv_lease.data() != nullptr && !(is_bcast && rank_ == view_.root)) {
    return from_dense(recv_, recv_lease);
  }
  return {};
}

}  // namespace

void note_refused(Session& session, const engine::Communicator& engine, const View& view) {
  if (!has_engine(&session, &engine)) {
    return;  // The application's error handler has freed the communicator.
  }
  auto none = [](const void* /*send*/, const void* /*recv*/) -> int { return MPI_SUCCESS; };
  // Without memory for it the root is ahead of the others if it makes the call again.
  static_cast<void>(
      guarded([&] { return Performance(session, view, NativeCall(none)).note_refused_native(); }));
}

Status settle_apart(Session& session) {
  if (session.refused != nullptr && (session.refused->may_be_apart || session.refused->is_agreed)) {
    const bool may_be_apart = session.refused->may_be_apart;
    session.refused.reset();
    if (may_be_apart) {
      session.engine->refuse();
    } else {
      session.engine->count_doubted();
    }
  }
  return session.engine->failure();
}

void remember_native(Session& session, const View& view, const engine::Route& route) {
  engine::Communicator& engine = *session.engine;
  // Many communicators have one call.
  if (!std::exchange(route.was_taken, true)) {
    return;
  }
  const bool has_devices = !engine.is_host_only();
  if (route.fallbacks != nullptr ||
      (has_devices && (!engine.is_often_host() || route.memory != select::Memory::kHost))) {
    return;
  }
  try {
    if (session.memo == nullptr) {
      session.memo = std::make_unique<NativeMemo>(session.library->rank(), session.library->ranks(),
                                                  has_devices);
    }
  } catch (const std::bad_alloc&) {
    return;  // Slower, and right.
  }
  if (session.memo->epoch() != engine.routes_epoch()) {
    session.memo->renew(engine.routes_epoch());
  }
  if (t_last.session == &session) {
    t_last.set_memo(session.memo.get());
  }
  session.memo->add(view, &route, !has_devices && !engine.has_own_plans(view.collective));
}

int fail_call(Session& session, engine::Communicator& engine, const Status& status) {
  if (status.raised() && !has_engine(&session, &engine)) {
    return status.mpi_code();  // The application's error handler has freed the communicator.
  }
  if (status.code() != ErrorCode::kFallback && status.code() != ErrorCode::kMismatch) {
    const Status failed = guarded([&]() -> Status {
      // What MPI has raised is raised for this call alone; later ones raise it themselves.
      engine.fail(status.raised() ? Status::mpi(status.mpi_code(), status.message()) : status);
      return {};
    });
    if (!failed.ok()) {
      engine.fail(failed);
    }
  }
  return raise(session.comm, status);
}

int perform(Session& session, const View& view, const NativeCall& native) {
  int code = MPI_SUCCESS;
  engine::Communicator& engine = *session.engine;
  const Status status = guarded([&] { return Performance(session, view, native).run(&code); });
  return status.ok() ? code : fail_call(session, engine, status);
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
