// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// An MPI library made of threads, for tests of runners and compositions without an MPI: every
// rank is a thread, a collective meets at a board and each rank computes its result from what the
// others put there, straight from the definition. Slow, obvious, and strict: ranks that disagree
// on the collective, the root or the sizes are reported, as an MPI would hang.
#pragma once

#include <barrier>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runners/runner.hpp"

namespace tutti::testing {

/// What the ranks of one scope share.
struct Board {
  explicit Board(int ranks)
      : barrier(ranks),
        calls(static_cast<std::size_t>(ranks)),
        inputs(static_cast<std::size_t>(ranks)) {}
  std::barrier<> barrier;
  std::vector<runners::Call> calls;
  std::vector<std::vector<std::int64_t>> inputs;  ///< int64 elements or bytes widened.
};

/// Boards of all scopes, found by the world ranks that share them.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks) : ranks_(ranks) {}
  int ranks() const { return ranks_; }
  std::shared_ptr<Board> board(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    auto& board = boards_[members];
    if (board == nullptr) {
      board = std::make_shared<Board>(static_cast<int>(members.size()));
    }
    return board;
  }
  /// Messages under way, by sender, receiver and tag.
  using Envelope = std::tuple<int, int, int>;
  void put(const Envelope& envelope, std::vector<unsigned char> data) {
    const std::lock_guard lock(mutex_);
    mail_[envelope].push_back(std::move(data));
  }
  bool take(const Envelope& envelope, std::vector<unsigned char>* data) {
    const std::lock_guard lock(mutex_);
    auto found = mail_.find(envelope);
    if (found == mail_.end() || found->second.empty()) {
      return false;
    }
    *data = std::move(found->second.front());
    found->second.pop_front();
    return true;
  }

  /// Runs `body(rank)` on a thread per rank.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([=] { body(rank); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

 private:
  int ranks_;
  std::mutex mutex_;
  std::map<std::vector<int>, std::shared_ptr<Board>> boards_;
  std::map<Envelope, std::deque<std::vector<unsigned char>>> mail_;
};

/// One rank's MPI. Reductions are sums of int64; data movement is bytes.
class ThreadMpi : public runners::MpiLibrary {
 public:
  ThreadMpi(ThreadWorld& world, int rank) : world_(world) {
    std::vector<int> all(static_cast<std::size_t>(world.ranks()));
    for (int i = 0; i < world.ranks(); ++i) {
      all[static_cast<std::size_t>(i)] = i;
    }
    scopes_[0] = {all, world.board(all), {rank, world.ranks()}};
  }

  Result<bool> duplicate(bool /*may_share*/) override { return true; }

  Status allgather(const void* send, void* recv, Bytes bytes_each) override {
    Scope& scope = scopes_[0];
    const auto* bytes = static_cast<const unsigned char*>(send);
    auto& mine = scope.board->inputs[static_cast<std::size_t>(scope.place.rank)];
    mine.assign(bytes, bytes + bytes_each);
    scope.board->barrier.arrive_and_wait();
    auto* out = static_cast<unsigned char*>(recv);
    for (const auto& input : scope.board->inputs) {
      for (const std::int64_t byte : input) {
        *out++ = static_cast<unsigned char>(byte);
      }
    }
    scope.board->barrier.arrive_and_wait();
    return {};
  }

  Status max_in_place(std::uint64_t* values, int count) override {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(count * world_.ranks()));
    TUTTI_RETURN_IF_ERROR(
        allgather(values, all.data(), static_cast<Bytes>(count) * sizeof(*values)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      values[i % static_cast<std::size_t>(count)] =
          std::max(values[i % static_cast<std::size_t>(count)], all[i]);
    }
    return {};
  }

  Status make_scopes(int node) override {
    const int rank = scopes_[0].place.rank;
    std::vector<int> nodes(static_cast<std::size_t>(world_.ranks()));
    TUTTI_RETURN_IF_ERROR(allgather(&node, nodes.data(), sizeof(node)));
    std::vector<int> mine;
    std::vector<int> leaders;
    std::map<int, bool> seen;
    for (int other = 0; other < world_.ranks(); ++other) {
      const int its_node = nodes[static_cast<std::size_t>(other)];
      if (its_node == node) {
        mine.push_back(other);
      }
      if (!seen[its_node]) {
        seen[its_node] = true;
        leaders.push_back(other);
      }
    }
    scopes_[1] = scope_of(mine, rank);
    scopes_[2] = scope_of(leaders, rank);
    return {};
  }

  runners::ScopeRank scope_rank(runners::Scope scope) const override {
    return scopes_[static_cast<std::size_t>(scope)].place;
  }

  Status collective(runners::Scope which, const runners::Call& call) override {
    Scope& scope = scopes_[static_cast<std::size_t>(which)];
    Board& board = *scope.board;
    const int rank = scope.place.rank;
    const int ranks = scope.place.ranks;
    const auto self = static_cast<std::size_t>(rank);
    calls.push_back(call);
    // Put the own input on the board, in place or not.
    board.calls[self] = call;
    board.inputs[self].clear();
    const bool is_bcast = call.collective == select::Collective::kBcast;
    for (const runners::Run& run : runners::send_runs(call, rank, ranks)) {
      for (std::uint64_t i = 0; i < run.count; ++i) {
        board.inputs[self].push_back(
            load(is_bcast ? call.recv : call.send, run.offset + i, call.element_bytes));
      }
    }
    board.barrier.arrive_and_wait();
    const Status same = check_agreement(board);
    if (same.ok()) {
      write_result(board, call, rank, ranks);
    }
    board.barrier.arrive_and_wait();
    return same;
  }

  Status isend(const void* data, Bytes bytes, int peer, int tag, int slot) override {
    const auto* first = static_cast<const unsigned char*>(data);
    world_.put({scopes_[0].place.rank, peer, tag}, {first, first + bytes});
    pending_[slot] = {};
    return {};
  }
  Status irecv(void* data, Bytes bytes, int peer, int tag, int slot) override {
    pending_[slot] = {true, data, bytes, {peer, scopes_[0].place.rank, tag}};
    return {};
  }
  Status test_some(int slots, std::vector<int>* completed) override {
    for (auto entry = pending_.begin(); entry != pending_.end() && entry->first < slots;) {
      const Pending& pending = entry->second;
      std::vector<unsigned char> data;
      if (pending.receives && !world_.take(pending.envelope, &data)) {
        ++entry;
        continue;
      }
      if (pending.receives && data.size() != pending.bytes) {
        return Status(ErrorCode::kMpiFailed, "a message of another size");
      }
      if (!data.empty()) {
        std::memcpy(pending.data, data.data(), data.size());
      }
      completed->push_back(entry->first);
      entry = pending_.erase(entry);
    }
    std::this_thread::yield();
    return {};
  }
  Status reduce_local(const void* in, void* inout, std::uint64_t count,
                      const runners::Call& call) override {
    for (std::uint64_t i = 0; i < count; ++i) {
      store(inout, i, call.element_bytes,
            load(in, i, call.element_bytes) + load(inout, i, call.element_bytes));
    }
    return {};
  }

  /// Every collective this rank carried, for tests of what was called.
  std::vector<runners::Call> calls;

 private:
  struct Scope {
    std::vector<int> members;
    std::shared_ptr<Board> board;
    runners::ScopeRank place;
  };

  Scope scope_of(const std::vector<int>& members, int rank) {
    Scope scope{members, world_.board(members), {-1, 0}};
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank) {
        scope.place = {static_cast<int>(i), static_cast<int>(members.size())};
      }
    }
    return scope;
  }

  static std::int64_t load(const void* base, std::uint64_t index, Bytes element_bytes) {
    if (element_bytes == 1) {
      return static_cast<const unsigned char*>(base)[index];
    }
    std::int64_t value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(base) + index * 8, 8);
    return value;
  }
  static void store(void* base, std::uint64_t index, Bytes element_bytes, std::int64_t value) {
    if (element_bytes == 1) {
      static_cast<unsigned char*>(base)[index] = static_cast<unsigned char>(value);
    } else {
      std::memcpy(static_cast<std::byte*>(base) + index * 8, &value, 8);
    }
  }

  static Status check_agreement(const Board& board) {
    for (const runners::Call& call : board.calls) {
      const runners::Call& first = board.calls.front();
      if (call.collective != first.collective || call.root != first.root ||
          (!runners::has_counts(call.collective) && call.count != first.count)) {
        return Status(ErrorCode::kMpiFailed, "the ranks are not in the same collective");
      }
    }
    return {};
  }

  /// Input of `from` that is meant for `to`: where it starts among from's inputs, and how long.
  static runners::Run part(const Board& board, std::size_t from, std::size_t to) {
    const runners::Call& call = board.calls[from];
    if (!call.send_counts.empty()) {
      std::uint64_t start = 0;
      for (std::size_t i = 0; i < to; ++i) {
        start += call.send_counts[i];
      }
      return {start, call.send_counts[to]};
    }
    return {to * call.count, call.count};
  }

  static void write_result(const Board& board, const runners::Call& call, int rank, int ranks) {
    using select::Collective;
    const auto self = static_cast<std::size_t>(rank);
    const auto all = static_cast<std::size_t>(ranks);
    const auto root = static_cast<std::size_t>(call.root);
    std::vector<std::int64_t> result;
    auto take = [&](std::size_t from, runners::Run run) {
      for (std::uint64_t i = 0; i < run.count; ++i) {
        result.push_back(board.inputs[from][run.offset + i]);
      }
    };
    auto sum = [&](std::size_t first, std::uint64_t count, std::size_t ranks_summed) {
      for (std::uint64_t i = 0; i < count; ++i) {
        std::int64_t total = 0;
        for (std::size_t from = 0; from < ranks_summed; ++from) {
          total += board.inputs[from][first + i];
        }
        result.push_back(total);
      }
    };
    switch (call.collective) {
      case Collective::kBcast:
        if (self != root) {
          take(root, {0, call.count});
        }
        break;
      case Collective::kGather:
      case Collective::kGatherv:
        for (std::size_t from = 0; self == root && from < all; ++from) {
          take(from, {0, board.inputs[from].size()});
        }
        break;
      case Collective::kAllgather:
      case Collective::kAllgatherv:
        for (std::size_t from = 0; from < all; ++from) {
          take(from, {0, board.inputs[from].size()});
        }
        break;
      case Collective::kScatter:
      case Collective::kScatterv:
        take(root, part(board, root, self));
        break;
      case Collective::kAlltoall:
      case Collective::kAlltoallv:
      case Collective::kAlltoallw:
        for (std::size_t from = 0; from < all; ++from) {
          take(from, part(board, from, self));
        }
        break;
      case Collective::kReduce:
        if (self == root) {
          sum(0, call.count, all);
        }
        break;
      case Collective::kAllreduce:
        sum(0, call.count, all);
        break;
      case Collective::kScan:
        sum(0, call.count, self + 1);
        break;
      case Collective::kExscan:
        if (self > 0) {
          sum(0, call.count, self);
        }
        break;
      case Collective::kReduceScatterBlock:
        sum(self * call.count, call.count, all);
        break;
      case Collective::kReduceScatter: {
        std::uint64_t first = 0;
        for (std::size_t i = 0; i < self; ++i) {
          first += call.recv_counts[i];
        }
        sum(first, call.recv_counts[self], all);
        break;
      }
      default:
        break;
    }
    std::size_t next = 0;
    for (const runners::Run& run : runners::recv_runs(call, rank, ranks)) {
      for (std::uint64_t i = 0; i < run.count && next < result.size(); ++i) {
        store(call.recv, run.offset + i, call.element_bytes, result[next++]);
      }
    }
  }

  struct Pending {
    bool receives = false;
    void* data = nullptr;
    Bytes bytes = 0;
    ThreadWorld::Envelope envelope;
  };
  std::map<int, Pending> pending_;
  ThreadWorld& world_;
  std::array<Scope, runners::kScopeCount> scopes_;
};

}  // namespace tutti::testing
