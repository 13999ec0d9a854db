// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/arguments.hpp"

#include "device/pointer_cache.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using select::Collective;

namespace {

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

}  // namespace

bool Arguments::read_layout(Side& side) {
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

bool Arguments::read_data_movement() {
  const bool is_root = rank_ == view_.root;
  const Forms forms = forms_of(view_.collective, is_root);
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

std::optional<Bytes> Arguments::total_bytes() const {
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
const void* Arguments::first_byte(const Side& side) const {
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

void Arguments::classify(device::Api* api) {
  for (Side* side : {&send_, &recv_}) {
    if (side->present()) {
      side->memory = device::classify_cached(api, first_byte(*side));
    }
  }
}

bool Arguments::has_null() const {
  const bool is_mpich = library_.name() == "mpich";
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
    if (!is_reduction_ && (side.form == Form::kCounts || side.form == Form::kTypes)) {
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
    return is_reduction_ ? of_reduction : static_cast<std::uint64_t>(side.count);
  };
  return is_null(send_, elements(send_, send_elements_)) ||
         is_null(recv_, elements(recv_, recv_elements_));
}

bool Arguments::is_aliased() const {
  if (!send_.present() || !recv_.present()) {
    return false;
  }
  if (send_.form != Form::kTypes && send_.layout.size == 0) {
    return false;  // Nothing moves.
  }
  if (is_reduction_) {
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

bool Arguments::is_input_in_recv() const {
  return send_.in_place &&
         (recv_.form == Form::kBlocks || recv_.form == Form::kCounts ||
          recv_.form == Form::kTypes) &&
         forms_of(view_.collective, true).send == recv_.form;
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
