// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one end of a communicator's calls on a GPU, whichever runner carries them.
//
// Calls of our own kernels and of NCCL or RCCL stand behind each other on streams. When one of them
// is ended its stream goes on, and what is behind it would send what the ended one left in the
// buffers: a live peer would take that for data. So a runner that sees a failure ends nothing by
// itself. Here all are ended, once, in an order in which nothing becomes free before everything
// that may be behind it is kept back:
//  1. All runners close. Our kernels that have not begun will not send; what runs goes on.
//  2. The library's communicators are aborted, which keeps back what has not begun and ends what
//     runs. What is behind it is ours, and closed.
//  3. Our kernels that wait are told to give up. What is behind them is ours, or aborted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.hpp"

namespace tutti::runners {

class CommonEnd {
 public:
  /// Who takes part; ended in this order.
  enum class Turn : std::uint8_t { kLibrary, kKernels };
  struct Member {
    /// Refuses calls and keeps back what has not begun; must not wait and must not free anything.
    std::function<void()> close;
    /// Ends what runs. Returns in bounded time, also when a kernel of another member's holds the
    /// stream, and calls nothing of this class.
    std::function<void()> end;
  };

  /// A member that comes after the end is ended at once.
  void join(Turn turn, Member member);
  /// Its functions are not called any more. Waits for an end that is under way.
  void leave(Turn turn);

  /// Ends all members, at the first call; returns when that is done, whoever did it.
  void end(const Status& reason);
  /// Of the first end; ok while there was none. Does not wait.
  Status reason() const;

  /// Told when a call is about to be queued on a stream, by one thread at a time. True: the call
  /// before it was the other member's.
  bool is_behind_other(Turn turn) { return std::exchange(last_, turn).value_or(turn) != turn; }

 private:
  static constexpr std::size_t kTurns = 2;

  std::mutex members_mutex_;  ///< Held while members are ended.
  std::array<Member, kTurns> members_;
  mutable std::mutex reason_mutex_;
  Status reason_;
  std::optional<Turn> last_;
};

}  // namespace tutti::runners
