// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What this process's blocking collectives were carried by: calls and seconds of each collective,
// size class and plan, for the table of TUTTI_SUMMARY. Thread-safe; a cell's address stays valid
// for the life of the process, so a route keeps a pointer and a call looks nothing up.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "select/shape.hpp"

namespace tutti::engine {

class Summary {
 public:
  struct Cell {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> elapsed_ns{0};
  };

  /// Where this thread's call under way is counted, which its route sets; null: not known yet. Of
  /// the thread, not of the communicator: an error handler may free that in the call.
  static Cell*& current() {
    thread_local Cell* cell = nullptr;
    return cell;
  }

  /// `bytes`: as selection counts them (select::Shape::bytes).
  Cell* cell(select::Collective collective, std::optional<Bytes> bytes, const std::string& plan);

  /// The rows in the order of their seconds, with a heading and a sum. Ends with a line feed.
  std::string table(int rank, int ranks) const;

 private:
  using Key = std::tuple<select::Collective, std::size_t, std::string>;

  mutable std::mutex mutex_;
  std::map<Key, Cell> cells_;
};

/// Times one call for the summary; costs a branch where there is none. A call of which nothing
/// moves has no route and is counted as `native`, which is where it goes.
class TimedCall {
 public:
  TimedCall(Summary* summary, select::Collective collective)
      : summary_(summary), collective_(collective) {
    if (summary_ != nullptr) [[unlikely]] {
      Summary::current() = nullptr;
      start_ns_ = monotonic_ns();
    }
  }
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;
  ~TimedCall() {
    if (summary_ != nullptr) [[unlikely]] {
      finish();
    }
  }

 private:
  void finish() noexcept;

  Summary* summary_;
  select::Collective collective_;
  std::uint64_t start_ns_ = 0;
};

}  // namespace tutti::engine
