// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/arguments.hpp"

#include "device/pointer_kind.hpp"
#include "mpi/probes.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using select::Collective;

bool Arguments::read_layout(Side& side) {
  if (!side.present()) {
    return true;
  }
  if (side.form == Form::kCounts) {
    if (!side.counts || !side.displs || (side.has_types && side.types == nullptr)) {
      return refuse(MPI_ERR_ARG);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks_); ++i) {
      if (side.counts[i] < 0) {
        return refuse(MPI_ERR_COUNT);
      }
      // The layouts are asked for where they are needed, which is not in MPI's own calls.
      if (side.has_types && side.counts[i] > 0 && side.types[i] == MPI_DATATYPE_NULL) {
        return refuse(MPI_ERR_TYPE);
      }
    }
  }
  if (side.has_types) {
    return true;
  }
  if (side.form != Form::kCounts && side.count == 0 && side.type != MPI_DATATYPE_NULL) {
    return true;  // Of a type that may be anything.
  }
  return side.count >= 0 && is_known(side.type) && type_layout(side.type, &side.layout);
}

/// What the MPI says of a type, without raising it.
template <class Ask>
int Arguments::ask_quietly(Ask ask) const {
  if (const MPI_Comm quiet = quiet_comm(); quiet != MPI_COMM_NULL) {
    return ask(quiet);
  }
  const QuietErrors quiet(comm_);
  return ask(comm_);
}

/// Whether the MPI knows a type. If not, that is raised where the application waits for it: what
/// asks for a type's layout raises it on MPI_COMM_WORLD. Of reductions, where MPI may find another
/// error first, MPI is to judge.
bool Arguments::is_known(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL || is_predefined_type(type)) {
    return type != MPI_DATATYPE_NULL;
  }
  const int code = ask_quietly([&](MPI_Comm comm) {
    int unused = 0;
    return pmpi.Pack_size(0, type, comm, &unused);
  });
  return code == MPI_SUCCESS || (!is_reduction_ && refuse(code));
}

bool Arguments::read_data_movement() {
  const bool is_root = rank_ == view_.root;
  const runners::SideForms forms = runners::forms_of(view_.collective, is_root);
  send_.form = forms.send;
  send_.buffer = view_.send;
  send_.count = view_.send_count;
  send_.type = view_.send_type;
  send_.counts = view_.send_counts;
  send_.displs = view_.send_displs;
  send_.types = view_.send_types;
  recv_.form = forms.recv;
  recv_.buffer = view_.recv;
  recv_.count = view_.recv_count;
  recv_.type = view_.recv_type;
  recv_.counts = view_.recv_counts;
  recv_.displs = view_.recv_displs;
  recv_.types = view_.recv_types;
  send_.has_types = recv_.has_types = view_.collective == Collective::kAlltoallw;
  send_.in_place = forms.send != Form::kAbsent && view_.send == MPI_IN_PLACE;
  recv_.in_place = forms.recv != Form::kAbsent && view_.recv == MPI_IN_PLACE;
  if ((send_.in_place && !runners::may_be_in_place(view_.collective, true, is_root)) ||
      (recv_.in_place && !runners::may_be_in_place(view_.collective, false, is_root))) {
    return refuse_in_place();
  }
  // The other side may still say how much it is that the other ranks move.
  send_.is_read = read_layout(send_);
  recv_.is_read = refused_ == MPI_SUCCESS && read_layout(recv_);  // One call raises one error.
  return send_.is_read && recv_.is_read;
}

bool Arguments::read_reduction() {
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
  send_.form = Form::kOne;
  send_.type = view_.recv_type;
  send_.count = static_cast<std::int64_t>(send_elements_);
  if (!read_layout(send_)) {
    return false;
  }
  op_ = reduce_op(view_.op);
  type_ = data_type(view_.recv_type, op_);
  const bool receives = view_.collective != Collective::kReduce || rank_ == view_.root;
  recv_ = send_;
  recv_.buffer = view_.recv;
  send_.buffer = view_.send;
  send_.in_place = view_.send == MPI_IN_PLACE;
  if (!receives) {
    recv_.form = Form::kAbsent;
    recv_elements_ = 0;
  } else if (recv_.buffer == MPI_IN_PLACE) {
    return refuse_in_place();
  }
  if (send_.in_place && view_.collective == Collective::kReduce && !receives) {
    if (library_.name() != "mpich") {
      return false;  // An error that MPI itself should report.
    }
    send_.in_place = false;  // MPICH takes the input from the receive buffer there.
    send_.buffer = view_.recv;
  }
  return true;
}

bool Arguments::read() {
  if (select::is_rooted(view_.collective) && (view_.root < 0 || view_.root >= ranks_)) {
    return false;
  }
  is_reduction_ = select::is_reduction(view_.collective);
  return is_reduction_ ? read_reduction() : read_data_movement();
}

/// By it the ranks know the size: the one that all of them have. Where that is wrong on all of
/// them, the root, which could read the other one, is not to do anything else than they.
const Side& Arguments::sized_side() const {
  switch (view_.collective) {
    case Collective::kGather:
      return send_.present() ? send_ : recv_;
    case Collective::kScatter:
      return recv_.present() ? recv_ : send_;
    default:
      return recv_;
  }
}

std::optional<Bytes> Arguments::total_bytes() const {
  if (!select::has_size(view_.collective)) {
    return std::nullopt;
  }
  if (is_reduction_) {
    return send_elements_ * send_.layout.size;
  }
  const Side& side = sized_side();
  Bytes elements = 0;
  if (side.form == Form::kCounts) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks_); ++i) {
      elements += static_cast<Bytes>(side.counts[i]);
    }
  } else {
    elements = runners::block_count_max(view_.collective, ranks_) * static_cast<Bytes>(side.count);
  }
  return elements * side.layout.size;
}

/// The first block that has data; ranks(): none has.
std::size_t Arguments::first_block(const Side& side) const {
  std::size_t i = 0;
  while (side.form == Form::kCounts && i < static_cast<std::size_t>(ranks_) &&
         side.counts[i] == 0) {
    ++i;
  }
  return i;
}

/// Where a side's data begins. The buffer's address alone may be anything: MPI_BOTTOM with a type
/// of absolute addresses, or one from which all displacements lead into another allocation.
const void* Arguments::first_byte(const Side& side) const {
  const std::size_t first = first_block(side);
  TypeLayout layout = side.layout;
  if (first == static_cast<std::size_t>(ranks_) ||
      (side.has_types && !type_layout(side.types[first], &layout))) {
    return side.buffer;  // Who needs the type refuses it: pieces(), or MPI.
  }
  return reinterpret_cast<const void*>(
      reinterpret_cast<std::uintptr_t>(side.buffer) +
      static_cast<std::uintptr_t>(layout.true_lower + side.offset_of(first)));
}

void Arguments::classify(device::Api* api) {
  for (Side* side : {&send_, &recv_}) {
    if (side->present()) {
      side->memory = device::kind_of_pointer(api, first_byte(*side));
    }
  }
}

bool Arguments::has_null() const {
  const bool is_mpich = library_.name() == "mpich";
  const auto is_null = [&](const Side& side, std::uint64_t elements_of_reduction) {
    if (!side.present()) {
      return false;
    }
    const std::size_t first = first_block(side);
    const bool has_data =
        is_reduction_ ? elements_of_reduction > 0
                      : first < static_cast<std::size_t>(ranks_) && side.count_of(first) > 0;
    if (!has_data || (!side.has_types && side.layout.size == 0)) {
      return false;
    }
    // MPICH looks at the buffer and at where the type begins, whatever the displacements are.
    const auto at = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(first_byte(side)));
    return at == 0 || (is_mpich && side.buffer == nullptr && at == side.offset_of(first));
  };
  return is_null(send_, send_elements_) || is_null(recv_, recv_elements_);
}

bool Arguments::is_aliased() const {
  if (!send_.present() || !recv_.present()) {
    return false;
  }
  if (!send_.has_types && send_.layout.size == 0) {
    return false;  // Nothing moves.
  }
  if (is_reduction_) {
    return send_.buffer == recv_.buffer;
  }
  if (send_.form == recv_.form) {  // alltoall(v, w): the whole buffers.
    if (send_.buffer != recv_.buffer) {
      return false;
    }
    if (send_.form != Form::kCounts) {
      return send_.type == recv_.type && send_.count == recv_.count;
    }
    return (send_.has_types ? send_.types == recv_.types : send_.type == recv_.type) &&
           view_.send_counts.is_same_array(view_.recv_counts);
  }
  const auto self = static_cast<std::size_t>(rank_);
  const auto own_block = [self](const Side& side) {
    return static_cast<const std::byte*>(side.buffer) + side.offset_of(self);
  };
  return send_.type == recv_.type && send_.count_of(self) == recv_.count_of(self) &&
         send_.count_of(self) > 0 && own_block(send_) == own_block(recv_);
}

/// Open MPI does not ask whether these types are committed. One with gaps we could not pack.
bool Arguments::may_be_uncommitted(const Side& side) const {
  if (library_.name() != "openmpi" || !side.layout.dense) {
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
bool Arguments::has_uncommitted() {
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
    if (!side->present() || is_reduction_) {
      continue;
    }
    if (!side->has_types) {
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

int Arguments::found_aliasing() const {
  if (!is_aliased()) {
    return MPI_SUCCESS;
  }
  std::uint64_t elements = is_reduction_ ? recv_elements_ : static_cast<std::uint64_t>(send_.count);
  for (int i = 0; i < ranks_ && !is_reduction_ && send_.form != Form::kOne && send_.counts; ++i) {
    elements += static_cast<std::uint64_t>(send_.counts[static_cast<std::size_t>(i)]);
  }
  return aliasing_error(view_.collective, elements);
}

bool Arguments::is_refused_by_mpi() {
  if (has_null()) {
    return !refuse(MPI_ERR_BUFFER);
  }
  if (const int found = found_aliasing(); found != MPI_SUCCESS) {
    return !refuse(found);
  }
  return has_uncommitted();
}

bool Arguments::is_refused_at_root_alone() {
  if (!select::is_rooted(view_.collective) || rank_ != view_.root ||
      found_aliasing() == MPI_SUCCESS || has_null()) {
    return false;
  }
  const int refused = refused_;
  const bool is_all = !has_uncommitted();
  refused_ = refused;
  return is_all;
}

bool Arguments::has_readable_size() const {
  const Side& side = sized_side();
  return !select::has_size(view_.collective) || (side.present() && side.is_read);
}

bool Arguments::is_input_in_recv() const {
  return send_.in_place && send_.form == recv_.form && send_.form != Form::kOne;
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
