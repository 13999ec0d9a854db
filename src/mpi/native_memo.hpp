// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls of one communicator that are known to go to the MPI library as they are, by their
// arguments: a second call with the same ones costs some nanoseconds, where reading its datatypes
// and asking for its plan costs as much as a small collective. On communicators without device
// memory plans follow from the arguments alone. On others (`has_devices`) so do those of calls that
// are on host memory by what the ranks have agreed on, and by a look at the buffers of each.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "engine/communicator.hpp"
#include "mpi/types.hpp"
#include "mpi/view.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

class NativeMemo {
 public:
  /// `rank`, `ranks`: of the communicator. `device`: this process's GPU library, or null; used
  /// where `has_devices`.
  NativeMemo(int rank, int ranks, bool has_devices, device::Api* device)
      : rank_(rank),
        has_devices_(has_devices),
        ranks_(static_cast<std::size_t>(ranks)),
        device_(device) {}

  /// One that knows no call.
  static const NativeMemo& none() {
    static const NativeMemo memo(0, 0, false, nullptr);
    return memo;
  }

  device::Api* device() const { return device_; }
  /// Calls of this collective may be kept where devices may be: none with displacements on some
  /// ranks, and no counts on others, which may lead anywhere.
  static constexpr bool may_know_on_host(select::Collective collective) {
    return collective != select::Collective::kGatherv &&
           collective != select::Collective::kScatterv;
  }
  int rank() const { return rank_; }
  std::size_t ranks() const { return ranks_; }
  /// engine::Communicator::routes_epoch() that the routes here are of.
  std::uint64_t epoch() const { return epoch_; }
  /// The same where no memory is a device's; else none, so that one comparison tells both.
  std::uint64_t surely_epoch() const { return surely_epoch_; }
  void renew(std::uint64_t epoch) {
    epoch_ = epoch;
    surely_epoch_ = has_devices_ ? kNoEpoch : epoch;
    any_size_ = {};
    entries_ = {};
  }

  /// The route of such a call of kOf; null: not known. Inlined, since the view is then never in
  /// memory: that would cost as much as all the rest.
  template <select::Collective kOf>
  [[gnu::always_inline]] const engine::KnownRoute* find(const View& view) const {
    if constexpr (select::is_rooted(kOf)) {
      // A root that is none is every rank's error, which no rank may take for a call that is right.
      if (static_cast<std::size_t>(view.root) >= ranks_) [[unlikely]] {
        return nullptr;
      }
    }
    const std::int64_t recv_count = count_of(view);
    const Entry& entry = entries_[slot(view, recv_count)];
    if (entry.matches<kOf>(view, recv_count)) [[likely]] {
      return &entry.known;
    }
    const engine::KnownRoute& any = any_size_[static_cast<std::size_t>(kOf)];
    return any.route != nullptr ? &any : nullptr;
  }
  /// `holds_for_any_size`: no call of this collective has another plan on this communicator.
  void add(const View& view, const engine::Route* route, bool holds_for_any_size) {
    const engine::KnownRoute known{route, route->calls};
    if (holds_for_any_size && !has_devices_) {
      any_size_[static_cast<std::size_t>(view.collective)] = known;
    } else if ((!has_devices_ || may_know_on_host(view.collective)) && !view.send_counts &&
               (!view.recv_counts || has_sum(view)) && is_named(view.send_type) &&
               is_named(view.recv_type)) {
      const std::int64_t recv_count = count_of(view);
      entries_[slot(view, recv_count)] = Entry{form_of(view.collective, view),
                                               view.send_count,
                                               recv_count,
                                               view.send_type,
                                               view.recv_type,
                                               view.op,
                                               known};
    }
  }

 private:
  /// The collective, and which of its buffers are MPI_IN_PLACE: one number to compare.
  static std::uint32_t form_of(select::Collective collective, const View& view) {
    constexpr unsigned kSendBit = 8;
    constexpr unsigned kRecvBit = 9;
    return static_cast<std::uint32_t>(collective) |
           static_cast<std::uint32_t>(view.send == MPI_IN_PLACE) << kSendBit |
           static_cast<std::uint32_t>(view.recv == MPI_IN_PLACE) << kRecvBit;
  }

  /// A power of two in size: its place is found by a shift.
  struct alignas(64) Entry {
    std::uint32_t form = kNone;
    std::int64_t send_count = 0;
    std::int64_t recv_count = 0;
    MPI_Datatype send_type{};
    MPI_Datatype recv_type{};
    MPI_Op op{};
    engine::KnownRoute known;

    /// Compares what calls of this collective have.
    template <select::Collective kOf>
    [[gnu::always_inline]] bool matches(const View& view, std::int64_t wanted_recv_count) const {
      if constexpr (kOf == select::Collective::kBcast) {
        // Its one buffer is in place by its nature, and MPI_IN_PLACE is refused.
        if (form != static_cast<std::uint32_t>(kOf) || view.recv == MPI_IN_PLACE) [[unlikely]] {
          return false;
        }
      } else if (form != form_of(kOf, view)) [[unlikely]] {
        return false;
      }
      if constexpr (kOf != select::Collective::kBarrier) {
        if (recv_count != wanted_recv_count || recv_type != view.recv_type) [[unlikely]] {
          return false;
        }
      }
      if constexpr (select::is_reduction(kOf)) {
        return op == view.op;
      } else if constexpr (kOf != select::Collective::kBarrier &&
                           kOf != select::Collective::kBcast) {
        return send_count == view.send_count && send_type == view.send_type;
      }
      return true;
    }
  };
  static constexpr std::uint32_t kNone = kCollectiveCount;
  static constexpr std::uint64_t kNoEpoch = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t kEntries = 64;
  static_assert(sizeof(Entry) == 64 && kCollectiveCount <= kEntries);

  /// A derived type may be freed and its handle given to another; a predefined one stays.
  static bool is_named(MPI_Datatype type) {
    return type == MPI_Datatype{} || type == MPI_DATATYPE_NULL || is_predefined_type(type);
  }
  static bool has_sum(const View& view) {
    return view.collective == select::Collective::kReduceScatter && view.recv_counts;
  }
  /// Of MPI_Reduce_scatter the sum of its counts, which is its size.
  std::int64_t count_of(const View& view) const {
    if (!has_sum(view)) {
      return view.recv_count;
    }
    std::int64_t sum = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (view.recv_counts[rank] < 0) {
        return std::numeric_limits<std::int64_t>::min();  // No MPI looks at each of them.
      }
      sum += view.recv_counts[rank];
    }
    return sum;
  }
  static std::size_t slot(const View& view, std::int64_t recv_count) {
    const auto count =
        static_cast<std::uint32_t>(recv_count) + 7 * static_cast<std::uint32_t>(view.send_count);
    return static_cast<std::size_t>(count * 0x9E3779B1U >> 26) ^
           static_cast<std::size_t>(view.collective);
  }

  int rank_;
  bool has_devices_;
  std::size_t ranks_;
  device::Api* device_;
  std::uint64_t epoch_ = kNoEpoch;
  std::uint64_t surely_epoch_ = kNoEpoch;
  std::array<engine::KnownRoute, kCollectiveCount> any_size_{};
  std::array<Entry, kEntries> entries_{};
};

}  // namespace tutti::mpi::TUTTI_FLAVOUR
