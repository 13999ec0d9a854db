// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Builds a call of any regular or counted collective at one rank with inputs from a formula, in
// place or not, in host memory or in the host device's, and says what the result must be. The
// expectation comes from the definition alone, never from code under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "device/device.hpp"
#include "runners/call.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::testing {

using select::Collective;

/// Input element i of rank r; small, so that sums are exact in any order.
inline std::int64_t input_value(int rank, std::uint64_t i) {
  return static_cast<std::int64_t>(rank + 1) * 1000 + static_cast<std::int64_t>(i % 251);
}

inline constexpr std::int64_t kUntouched = -7;

/// One rank's buffers and call. 8-byte elements; data movement passes them as bytes.
class CollectiveCase {
 public:
  /// `count`: elements of a block. Counted forms use count + peer elements for a peer.
  CollectiveCase(Collective collective, int rank, int ranks, int root, std::uint64_t count,
                 bool in_place, bool on_device)
      : collective_(collective),
        rank_(rank),
        ranks_(ranks),
        root_(root),
        count_(count),
        on_device_(on_device) {
    const bool reduction = select::is_reduction(collective);
    scale_ = reduction ? 1 : 8;
    call.collective = collective;
    call.root = root;
    call.count = count * scale_;
    if (reduction) {
      call.type = select::DataType::kInt64;
      call.op = select::ReduceOp::kSum;
      call.element_bytes = 8;
    }
    const auto all = static_cast<std::uint64_t>(ranks);
    std::uint64_t send_elements = count;
    std::uint64_t recv_elements = count;
    const bool is_root = rank == root;
    switch (collective) {
      case Collective::kBcast:
        send_elements = 0;
        break;
      case Collective::kGather:
        recv_elements = is_root ? count * all : 0;
        break;
      case Collective::kScatter:
        send_elements = is_root ? count * all : 0;
        break;
      case Collective::kAllgather:
        recv_elements = count * all;
        break;
      case Collective::kAlltoall:
        send_elements = recv_elements = count * all;
        break;
      case Collective::kReduceScatterBlock:
        send_elements = count * all;
        break;
      case Collective::kReduce:
        recv_elements = is_root ? count : 0;
        break;
      default:
        break;
    }
    const bool aliases =
        in_place &&
        (collective == Collective::kAllreduce || collective == Collective::kAlltoall ||
         collective == Collective::kReduceScatterBlock || collective == Collective::kScan ||
         (collective == Collective::kReduce && is_root));
    const bool own_block = in_place && (collective == Collective::kAllgather ||
                                        (collective == Collective::kGather && is_root));
    recv_size_ = aliases ? std::max(send_elements, recv_elements) : recv_elements;
    recv_ = allocate(recv_size_);
    for (std::uint64_t i = 0; i < recv_size_; ++i) {
      recv_[i] = kUntouched;
    }
    std::int64_t* send = nullptr;
    if (aliases) {
      send = recv_;
    } else if (own_block) {
      send = recv_ + static_cast<std::uint64_t>(rank) * count;
    } else if (send_elements > 0) {
      send = allocate(send_elements);
    }
    for (std::uint64_t i = 0; i < send_elements; ++i) {
      send[i] = input_value(rank, i);
    }
    if (collective == Collective::kBcast && is_root) {
      for (std::uint64_t i = 0; i < count; ++i) {
        recv_[i] = input_value(rank, i);
      }
    }
    call.send = send;
    call.recv = recv_size_ > 0 ? recv_ : nullptr;
    call.send_memory = call.recv_memory = memory();
    call.in_place = aliases || own_block;
  }

  ~CollectiveCase() {
    for (void* buffer : owned_) {
      if (on_device_) {
        tutti_host_device_free(buffer);
      } else {
        ::operator delete(buffer);
      }
    }
  }
  CollectiveCase(const CollectiveCase&) = delete;
  CollectiveCase& operator=(const CollectiveCase&) = delete;

  /// Result element i at this rank; only for i < result_size().
  std::int64_t expected(std::uint64_t i) const {
    const auto block = count_ == 0 ? 0 : i / count_;
    const auto within = count_ == 0 ? 0 : i % count_;
    const auto self = static_cast<std::uint64_t>(rank_);
    auto sum = [&](std::uint64_t at, int first_ranks) {
      std::int64_t total = 0;
      for (int from = 0; from < first_ranks; ++from) {
        total += input_value(from, at);
      }
      return total;
    };
    switch (collective_) {
      case Collective::kBcast:
        return input_value(root_, i);
      case Collective::kGather:
      case Collective::kAllgather:
        return input_value(static_cast<int>(block), within);
      case Collective::kScatter:
        return input_value(root_, self * count_ + i);
      case Collective::kAlltoall:
        return input_value(static_cast<int>(block), self * count_ + within);
      case Collective::kReduceScatterBlock:
        return sum(self * count_ + i, ranks_);
      case Collective::kScan:
        return sum(i, rank_ + 1);
      default:
        return sum(i, ranks_);
    }
  }

  std::uint64_t result_size() const {
    const auto all = static_cast<std::uint64_t>(ranks_);
    const bool is_root = rank_ == root_;
    switch (collective_) {
      case Collective::kGather:
        return is_root ? count_ * all : 0;
      case Collective::kAllgather:
      case Collective::kAlltoall:
        return count_ * all;
      case Collective::kReduce:
        return is_root ? count_ : 0;
      default:
        return count_;
    }
  }

  std::uint64_t wrong() const {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < result_size(); ++i) {
      wrong += recv_[i] != expected(i) ? 1U : 0U;
    }
    return wrong;
  }

  runners::Call call;

 private:
  device::PointerInfo memory() const {
    return on_device_ ? device::PointerInfo{device::MemoryKind::kDevice, 0} : device::PointerInfo{};
  }
  std::int64_t* allocate(std::uint64_t elements) {
    const std::size_t bytes = (elements + 1) * 8;
    void* buffer = on_device_ ? tutti_host_device_alloc(bytes) : ::operator new(bytes);
    owned_.push_back(buffer);
    return static_cast<std::int64_t*>(buffer);
  }

  Collective collective_;
  int rank_;
  int ranks_;
  int root_;
  std::uint64_t count_;
  bool on_device_;
  std::uint64_t scale_ = 1;
  std::uint64_t recv_size_ = 0;
  std::int64_t* recv_ = nullptr;
  std::vector<void*> owned_;
};

}  // namespace tutti::testing
