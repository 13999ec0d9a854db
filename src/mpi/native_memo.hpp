// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls of one communicator that are known to go to the MPI library as they are, by their
// arguments: a second call with the same ones costs some nanoseconds, where reading its datatypes
// and asking for its plan costs as much as a small collective. Only for communicators without
// device memory, whose plans follow from the arguments alone.
#pragma once

#include <array>
#include <cstdint>

#include "engine/communicator.hpp"
#include "mpi/types.hpp"
#include "mpi/view.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

class NativeMemo {
 public:
  /// The route of such a call; null: not known. Routes are valid while `generation` is the
  /// engine's.
  const engine::Route* find(const View& view, std::uint64_t generation) const {
    if (generation != generation_) {
      return nullptr;
    }
    const engine::Route* any = any_size_[static_cast<std::size_t>(view.collective)];
    if (any != nullptr) {
      return any;
    }
    const Entry& entry = entries_[slot(view)];
    return entry.matches(view) ? entry.route : nullptr;
  }

  /// `holds_for_any_size`: no call of this collective has another plan on this communicator.
  void add(const View& view, const engine::Route* route, bool holds_for_any_size,
           std::uint64_t generation) {
    if (generation != generation_) {
      *this = {};
      generation_ = generation;
    }
    if (holds_for_any_size) {
      any_size_[static_cast<std::size_t>(view.collective)] = route;
    } else if (!view.send_counts && !view.recv_counts && is_named(view.send_type) &&
               is_named(view.recv_type)) {
      entries_[slot(view)] = Entry{view.collective,
                                   view.send == MPI_IN_PLACE,
                                   view.recv == MPI_IN_PLACE,
                                   view.send_count,
                                   view.recv_count,
                                   view.send_type,
                                   view.recv_type,
                                   view.op,
                                   route};
    }
  }

 private:
  struct Entry {
    select::Collective collective = select::Collective::kBarrier;
    bool send_in_place = false;
    bool recv_in_place = false;
    std::int64_t send_count = 0;
    std::int64_t recv_count = 0;
    MPI_Datatype send_type{};
    MPI_Datatype recv_type{};
    MPI_Op op{};
    const engine::Route* route = nullptr;

    bool matches(const View& view) const {
      return route != nullptr && collective == view.collective && recv_count == view.recv_count &&
             send_count == view.send_count && recv_type == view.recv_type &&
             send_type == view.send_type && op == view.op &&
             send_in_place == (view.send == MPI_IN_PLACE) &&
             recv_in_place == (view.recv == MPI_IN_PLACE);
    }
  };
  static constexpr std::size_t kEntries = 64;

  /// A derived type may be freed and its handle given to another; a predefined one stays.
  static bool is_named(MPI_Datatype type) {
    return type == MPI_Datatype{} || type == MPI_DATATYPE_NULL || is_predefined_type(type);
  }
  static std::size_t slot(const View& view) {
    const auto count = static_cast<std::uint64_t>(view.recv_count + 7 * view.send_count);
    return static_cast<std::size_t>(
        ((count ^ static_cast<std::uint64_t>(view.collective) << 40) * 0x9E3779B97F4A7C15ULL) >>
        58);
  }

  std::uint64_t generation_ = 0;
  std::array<const engine::Route*, kCollectiveCount> any_size_{};
  std::array<Entry, kEntries> entries_{};
};

}  // namespace tutti::mpi::TUTTI_FLAVOUR
