// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Runs of more bytes than a count can say, as types of the MPI library.
#pragma once

#include <climits>

#include "mpi/library.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// A run of bytes as one element, freed at the end of the call: a type that is freed lives on until
/// its messages are complete.
class UnitType {
 public:
  ~UnitType() {
    if (type_ != MPI_DATATYPE_NULL) {
      pmpi.Type_free(&type_);
    }
  }
  UnitType() : type_(MPI_DATATYPE_NULL) {}
  UnitType(const UnitType&) = delete;
  UnitType& operator=(const UnitType&) = delete;
  Status make(Bytes bytes) {
    if (bytes <= INT_MAX) {
      TUTTI_RETURN_IF_ERROR(check(pmpi.Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type_),
                                  "MPI_Type_contiguous"));
    } else {
      constexpr Bytes kPart = Bytes{1} << 30;
      UnitType part;
      TUTTI_RETURN_IF_ERROR(part.make(kPart));
      const int counts[] = {static_cast<int>(bytes / kPart), static_cast<int>(bytes % kPart)};
      const MPI_Aint offsets[] = {0, static_cast<MPI_Aint>(bytes / kPart * kPart)};
      const MPI_Datatype types[] = {part.get(), MPI_BYTE};
      TUTTI_RETURN_IF_ERROR(check(pmpi.Type_create_struct(2, counts, offsets, types, &type_),
                                  "MPI_Type_create_struct"));
    }
    return check(pmpi.Type_commit(&type_), "MPI_Type_commit");
  }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_;
};

/// `bytes` bytes as a count of a type: MPI_BYTE, or one element of a type of that many bytes.
template <class Begin>
Status with_bytes(Bytes bytes, Begin begin) {
  if (bytes <= INT_MAX) {
    return begin(static_cast<int>(bytes), MPI_BYTE);
  }
  UnitType whole;
  TUTTI_RETURN_IF_ERROR(whole.make(bytes));
  return begin(1, whole.get());
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
