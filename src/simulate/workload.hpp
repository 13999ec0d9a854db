// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the hosts have to do: sends, receives and pauses, each after others of the same host. One
// form for traffic patterns (traffic.hpp), GOAL traces (goal.hpp) and schedules; any protocol
// carries it out.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "simulate/time.hpp"

namespace tutti::simulate {

enum class OperationKind : std::uint8_t { kSend, kReceive, kWait };

struct Operation {
  OperationKind kind = OperationKind::kWait;
  std::uint32_t peer = 0;  ///< Host; of a send or receive.
  std::uint32_t tag = 0;   ///< Sends and receives of equal (source, tag) match in their order.
  std::uint64_t bytes = 0;
  TimePs wait_ps = 0;  ///< Of a wait and of a local send: how long.
  /// Between two hosts of one node, past the network: a sender carries out one after the other.
  bool is_local = false;
  std::uint32_t partner = 0;  ///< Of a local send: the operation of `peer` that receives it.
  std::uint8_t group = 0;  ///< Whose figures it counts among: 0 the measured traffic, 1 beside it.
};

/// The operations of one host. Pairs are (earlier, later) by index.
struct HostWork {
  std::vector<Operation> ops;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> after;   ///< Earlier is complete.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> begins;  ///< Earlier has begun.

  std::uint32_t add(const Operation& op) {
    ops.push_back(op);
    return static_cast<std::uint32_t>(ops.size() - 1);
  }
};

struct Workload {
  std::vector<HostWork> hosts;
};

/// How far one host has come. Not who carries the operations out.
class Progress {
 public:
  explicit Progress(HostWork work);

  const Operation& op(std::uint32_t index) const { return work_.ops[index]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(work_.ops.size()); }

  /// The next send or receive that may begin; false: none now. Each is given once.
  bool next(TimePs now_ps, std::uint32_t* index);
  /// A send or receive that next() gave is complete.
  void complete(TimePs now_ps, std::uint32_t index);
  /// Local sends that began, in their order; the caller empties it and says when they end.
  struct LocalSend {
    TimePs start_ps;
    std::uint32_t index;
  };
  std::vector<LocalSend>& local_sends() { return local_sends_; }
  /// A local send or receive ends then, a receive not before it began.
  void complete_at(TimePs at_ps, std::uint32_t index);
  /// Ends the waits that are over.
  void on_time(TimePs now_ps);
  /// When the next wait is over.
  TimePs next_time_ps() const { return waits_.empty() ? kNever : waits_.top().first; }

  bool done() const { return left_ == 0; }
  std::uint32_t ended() const { return size() - left_; }
  TimePs start_ps(std::uint32_t index) const { return start_ps_[index]; }  ///< kNever: not yet.
  TimePs end_ps(std::uint32_t index) const { return end_ps_[index]; }      ///< kNever: not yet.

 private:
  using Wait = std::pair<TimePs, std::uint32_t>;

  /// Dependencies between operations: operation i's are [first[i], first[i + 1]) of `later`.
  /// Without pairs both are empty.
  struct Successors {
    std::vector<std::uint32_t> first;
    std::vector<std::uint32_t> later;

    Successors(std::size_t ops, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs);
    std::span<const std::uint32_t> of(std::uint32_t index) const {
      return first.empty()
                 ? std::span<const std::uint32_t>()
                 : std::span(later).subspan(first[index], first[index + 1] - first[index]);
    }
  };

  void make_ready(TimePs now_ps, std::uint32_t index);
  void begin(TimePs now_ps, std::uint32_t index);

  HostWork work_;
  std::vector<std::uint32_t> missing_;  ///< Earlier operations whose end or begin is waited for.
  Successors after_;
  Successors begins_;
  std::vector<std::uint32_t> beginning_;  ///< Of make_ready; empty outside.
  std::vector<TimePs> start_ps_;
  std::vector<TimePs> end_ps_;
  std::vector<std::uint32_t> ready_;  ///< Taken from next_ready_ on.
  std::size_t next_ready_ = 0;
  std::priority_queue<Wait, std::vector<Wait>, std::greater<>> waits_;
  std::vector<LocalSend> local_sends_;
  std::vector<TimePs> arrived_ps_;  ///< Of local receives that have not begun; may be empty.
  std::uint32_t left_ = 0;
};

}  // namespace tutti::simulate
