// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The arguments of a call, read: how each side is described, how much all ranks move, where the
// buffers lie, and what the MPI library would refuse in them. Sends nothing; asks the MPI of
// datatypes alone. Sizes in bytes.
#pragma once

#include <algorithm>
#include <optional>

#include "device/device.hpp"
#include "mpi/library.hpp"
#include "mpi/types.hpp"
#include "mpi/view.hpp"
#include "runners/call.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using Form = runners::SideForm;

/// One side of a call: the application's arguments and what they mean in bytes.
struct Side {
  Form form = Form::kAbsent;
  const void* buffer = nullptr;
  std::int64_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  Numbers<MPI_Count, int> counts;
  Numbers<MPI_Aint, int> displs;
  const MPI_Datatype* types = nullptr;
  bool has_types = false;  ///< alltoallw: a type for each block, displacements in bytes.
  bool in_place = false;
  TypeLayout layout;
  device::PointerInfo memory;
  bool is_read = false;  ///< What it says of its size can be read.

  bool present() const { return form != Form::kAbsent && !in_place; }
  bool is_on_device() const { return present() && memory.kind == device::MemoryKind::kDevice; }
  std::int64_t count_of(std::size_t block) const {
    return form == Form::kCounts ? counts[block] : count;
  }
  /// Bytes from the buffer's address.
  std::int64_t offset_of(std::size_t block) const {
    if (form == Form::kCounts) {
      return displs[block] * (has_types ? 1 : layout.extent);
    }
    return form == Form::kBlocks ? static_cast<std::int64_t>(block) * count * layout.extent : 0;
  }
};

class Arguments {
 public:
  /// `view` lives as long as this.
  Arguments(MPI_Comm comm, const Library& library, const View& view)
      : comm_(comm),
        library_(library),
        view_(view),
        rank_(library.rank()),
        ranks_(library.ranks()) {}

  /// False: not a call of ours. refused() is then the error, or MPI_SUCCESS where MPI is to judge.
  bool read();
  /// Asks of which memory the buffers are.
  void classify(device::Api* api);

  const View& view() const { return view_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool is_root() const { return rank_ == view_.root; }
  const Side& send() const { return send_; }
  const Side& recv() const { return recv_; }
  bool is_reduction() const { return is_reduction_; }
  /// Of a reduction: basic type and operation, elements of each buffer.
  select::DataType type() const { return type_; }
  select::ReduceOp op() const { return op_; }
  std::uint64_t send_elements() const { return send_elements_; }
  std::uint64_t recv_elements() const { return recv_elements_; }
  /// The number select::Shape::bytes asks for; the same on every rank. After read(), or where
  /// has_readable_size().
  std::optional<Bytes> total_bytes() const;
  /// Of the buffers; -1: host memory.
  int device() const { return std::max(send_.memory.device, recv_.memory.device); }
  bool is_on_device() const { return send_.is_on_device() || recv_.is_on_device(); }
  /// MPI_IN_PLACE of alltoall(v,w) puts the input into the receive buffer.
  bool is_input_in_recv() const;

  int refused() const { return refused_; }
  /// Whether total_bytes() is what it is on the ranks whose arguments are right.
  bool has_readable_size() const;
  /// Of a call that MPI does not get as the application made it: what MPI would find in it is
  /// refused() then.
  bool is_refused_by_mpi();
  /// Of rooted collectives only the root has two buffers, and so only its call can be refused for
  /// them. Any other fault may be every rank's, which then is in step with them.
  bool is_refused_at_root_alone();
  /// The error class that MPI has for this call's aliased buffers; MPI_SUCCESS: none.
  int found_aliasing() const;
  /// The input where the output will be, without MPI_IN_PLACE, of one count and type: what
  /// libraries look for, if they do.
  bool is_aliased() const;

 private:
  bool read_data_movement();
  bool read_reduction();
  bool read_layout(Side& side);
  bool is_known(MPI_Datatype type);
  bool has_null() const;
  bool has_uncommitted();
  bool may_be_uncommitted(const Side& side) const;
  const Side& sized_side() const;
  std::size_t first_block(const Side& side) const;
  const void* first_byte(const Side& side) const;
  template <class Ask>
  int ask_quietly(Ask ask) const;
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
        library_.name() == "openmpi" && view_.collective != select::Collective::kExscan;
    return is_found ? false : refuse(MPI_ERR_BUFFER);
  }

  MPI_Comm comm_;
  const Library& library_;
  const View& view_;
  int rank_;
  int ranks_;
  Side send_;
  Side recv_;
  bool is_reduction_ = false;
  int refused_ = MPI_SUCCESS;
  select::DataType type_ = select::DataType::kByte;
  select::ReduceOp op_ = select::ReduceOp::kNone;
  std::uint64_t send_elements_ = 0;
  std::uint64_t recv_elements_ = 0;
};

}  // namespace tutti::mpi::TUTTI_FLAVOUR
