// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Every operation of the table over the fake, against values computed here: all types and
// operations, 1 to 5 ranks, every root, in place and not, empty and odd counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ranks.hpp"
#include "support/sanitized.hpp"

namespace tutti::ccl {
namespace {

constexpr NcclType kTypes[] = {NcclType::kInt8,    NcclType::kUint8,   NcclType::kInt32,
                               NcclType::kUint32,  NcclType::kInt64,   NcclType::kUint64,
                               NcclType::kFloat16, NcclType::kFloat32, NcclType::kFloat64,
                               NcclType::kBfloat16};
constexpr NcclOp kOps[] = {NcclOp::kSum, NcclOp::kProd, NcclOp::kMax, NcclOp::kMin};
/// Empty, one, odd, fewer and more elements than ranks, more than the fake's queues hold.
constexpr std::size_t kCounts[] = {0, 1, 3, 7, 1000, kIsSanitized ? 10'007 : 100'003};

std::size_t size_of(NcclType type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<int>(type)];
}

/// Bits of a whole number below 2048 in binary16, written from the format's definition.
std::uint16_t half_bits(int value) {
  if (value == 0) {
    return 0;
  }
  int exponent = 0;
  while ((value >> exponent) > 1) {
    ++exponent;
  }
  const int fraction = (value << (10 - exponent)) & 0x3ff;
  return static_cast<std::uint16_t>(((exponent + 15) << 10) | fraction);
}

std::uint16_t bfloat_bits(int value) {
  const auto wide = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &wide, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

template <class T>
void put_as(std::vector<char>& buffer, std::size_t index, T value) {
  std::memcpy(buffer.data() + index * sizeof value, &value, sizeof value);
}

void put(std::vector<char>& buffer, NcclType type, std::size_t index, int value) {
  switch (type) {
    case NcclType::kInt8:
      return put_as(buffer, index, static_cast<std::int8_t>(value));
    case NcclType::kUint8:
      return put_as(buffer, index, static_cast<std::uint8_t>(value));
    case NcclType::kInt32:
      return put_as(buffer, index, static_cast<std::int32_t>(value));
    case NcclType::kUint32:
      return put_as(buffer, index, static_cast<std::uint32_t>(value));
    case NcclType::kInt64:
      return put_as(buffer, index, static_cast<std::int64_t>(value));
    case NcclType::kUint64:
      return put_as(buffer, index, static_cast<std::uint64_t>(value));
    case NcclType::kFloat16:
      return put_as(buffer, index, half_bits(value));
    case NcclType::kFloat32:
      return put_as(buffer, index, static_cast<float>(value));
    case NcclType::kFloat64:
      return put_as(buffer, index, static_cast<double>(value));
    case NcclType::kBfloat16:
      return put_as(buffer, index, bfloat_bits(value));
  }
}

/// Small enough that five of them multiply to a value that every type holds exactly.
int value_at(int rank, std::size_t index) {
  return 1 + static_cast<int>((index + rank * 3) % 5 % 2);
}

int reduced_at(int ranks, std::size_t index, NcclOp op) {
  int result = value_at(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const int next = value_at(rank, index);
    switch (op) {
      case NcclOp::kSum:
      case NcclOp::kAvg:
        result += next;
        break;
      case NcclOp::kProd:
        result *= next;
        break;
      case NcclOp::kMax:
        result = std::max(result, next);
        break;
      case NcclOp::kMin:
        result = std::min(result, next);
        break;
    }
  }
  return op == NcclOp::kAvg ? result / ranks : result;  // As the libraries do with integers.
}

std::vector<char> filled(NcclType type, std::size_t count, int rank) {
  std::vector<char> buffer(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    put(buffer, type, i, value_at(rank, i));
  }
  return buffer;
}

std::vector<char> expected_reduction(NcclType type, std::size_t count, int ranks, NcclOp op) {
  std::vector<char> buffer(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    put(buffer, type, i, reduced_at(ranks, i, op));
  }
  return buffer;
}

/// All elements are 0x5a bytes: a receive buffer that must change, or must not.
std::vector<char> untouched(std::size_t bytes) { return std::vector<char>(bytes, 0x5a); }

std::string what(NcclType type, std::size_t count) {
  return "type " + std::to_string(static_cast<int>(type)) + " count " + std::to_string(count);
}

class CclEachRankCount : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(ranks, CclEachRankCount, testing::Range(1, 6));

TEST_P(CclEachRankCount, all_reduce__types_ops_counts) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    for (const NcclType type : kTypes) {
      for (const NcclOp op : kOps) {
        for (const std::size_t count : kCounts) {
          const std::vector<char> send = filled(type, count, me.rank);
          std::vector<char> recv = untouched(send.size());
          CHILD_OK(me.library.all_reduce(send.data(), recv.data(), count, type, op, me.communicator,
                                         nullptr));
          CHILD_EXPECT(recv == expected_reduction(type, count, me.ranks, op), what(type, count));
          CHILD_EXPECT(send == filled(type, count, me.rank), "input changed");
        }
      }
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST_P(CclEachRankCount, all_reduce__in_place) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    for (const NcclType type : kTypes) {
      for (const std::size_t count : kCounts) {
        std::vector<char> both = filled(type, count, me.rank);
        CHILD_OK(me.library.all_reduce(both.data(), both.data(), count, type, NcclOp::kSum,
                                       me.communicator, nullptr));
        CHILD_EXPECT(both == expected_reduction(type, count, me.ranks, NcclOp::kSum),
                     what(type, count));
      }
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST_P(CclEachRankCount, broadcast__every_root) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    for (int root = 0; root < me.ranks; ++root) {
      for (const std::size_t count : kCounts) {
        for (const bool in_place : {false, true}) {
          std::vector<char> send = filled(NcclType::kInt32, count, me.rank);
          std::vector<char> recv = in_place ? send : untouched(send.size());
          // Only the root's send buffer is read.
          const void* from = in_place ? recv.data() : me.rank == root ? send.data() : nullptr;
          CHILD_OK(me.library.broadcast(from, recv.data(), count, NcclType::kInt32, root,
                                        me.communicator, nullptr));
          CHILD_EXPECT(recv == filled(NcclType::kInt32, count, root),
                       what(NcclType::kInt32, count));
        }
      }
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST_P(CclEachRankCount, reduce__every_root) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    for (int root = 0; root < me.ranks; ++root) {
      for (const NcclOp op : kOps) {
        for (const std::size_t count : kCounts) {
          const std::vector<char> send = filled(NcclType::kBfloat16, count, me.rank);
          std::vector<char> recv = untouched(send.size());
          CHILD_OK(me.library.reduce(send.data(), recv.data(), count, NcclType::kBfloat16, op, root,
                                     me.communicator, nullptr));
          CHILD_EXPECT(recv == (me.rank == root
                                    ? expected_reduction(NcclType::kBfloat16, count, me.ranks, op)
                                    : untouched(send.size())),
                       what(NcclType::kBfloat16, count));
        }
      }
      std::vector<char> both = filled(NcclType::kInt64, 17, me.rank);
      CHILD_OK(me.library.reduce(both.data(), both.data(), 17, NcclType::kInt64, NcclOp::kAvg, root,
                                 me.communicator, nullptr));
      CHILD_EXPECT(both == (me.rank == root
                                ? expected_reduction(NcclType::kInt64, 17, me.ranks, NcclOp::kAvg)
                                : filled(NcclType::kInt64, 17, me.rank)),
                   "in place");
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST_P(CclEachRankCount, all_gather__counts_and_in_place) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    for (const std::size_t count : kCounts) {
      std::vector<char> expected;
      for (int rank = 0; rank < me.ranks; ++rank) {
        const auto block = filled(NcclType::kUint32, count, rank);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      const auto send = filled(NcclType::kUint32, count, me.rank);
      std::vector<char> recv = untouched(expected.size());
      CHILD_OK(me.library.all_gather(send.data(), recv.data(), count, NcclType::kUint32,
                                     me.communicator, nullptr));
      CHILD_EXPECT(recv == expected, what(NcclType::kUint32, count));

      recv = untouched(expected.size());
      char* const own = recv.data() + me.rank * send.size();
      std::copy(send.begin(), send.end(), own);
      CHILD_OK(me.library.all_gather(own, recv.data(), count, NcclType::kUint32, me.communicator,
                                     nullptr));
      CHILD_EXPECT(recv == expected, "in place");
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST_P(CclEachRankCount, reduce_scatter__counts_and_in_place) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    for (const std::size_t count : kCounts) {
      const std::size_t total = count * static_cast<std::size_t>(me.ranks);
      const std::size_t bytes = count * size_of(NcclType::kFloat16);
      const auto all = expected_reduction(NcclType::kFloat16, total, me.ranks, NcclOp::kMax);
      const std::vector<char> expected(all.begin() + me.rank * bytes,
                                       all.begin() + (me.rank + 1) * bytes);
      std::vector<char> send = filled(NcclType::kFloat16, total, me.rank);
      std::vector<char> recv = untouched(bytes);
      CHILD_OK(me.library.reduce_scatter(send.data(), recv.data(), count, NcclType::kFloat16,
                                         NcclOp::kMax, me.communicator, nullptr));
      CHILD_EXPECT(recv == expected, what(NcclType::kFloat16, count));

      char* const own = send.data() + me.rank * bytes;
      CHILD_OK(me.library.reduce_scatter(send.data(), own, count, NcclType::kFloat16, NcclOp::kMax,
                                         me.communicator, nullptr));
      CHILD_EXPECT(std::equal(own, own + bytes, expected.begin()), "in place");
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST_P(CclEachRankCount, group__alltoall_in_any_order) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    // Larger than the fake's queues: a send that waited alone would hang.
    const std::size_t count = 70'001;
    std::vector<std::vector<char>> send;
    std::vector<std::vector<char>> recv;
    for (int peer = 0; peer < me.ranks; ++peer) {
      send.push_back(filled(NcclType::kInt64, count + peer, me.rank * 7 + peer));
      recv.push_back(untouched((count + me.rank) * 8));
    }
    CHILD_OK(me.library.group_start());
    // Sends go up, receives go down, and odd ranks receive first.
    const auto send_all = [&]() -> std::string {
      for (int peer = 0; peer < me.ranks; ++peer) {
        CHILD_OK(me.library.send(send[peer].data(), count + peer, NcclType::kInt64, peer,
                                 me.communicator, nullptr));
      }
      return "";
    };
    const auto recv_all = [&]() -> std::string {
      for (int peer = me.ranks - 1; peer >= 0; --peer) {
        CHILD_OK(me.library.recv(recv[peer].data(), count + me.rank, NcclType::kInt64, peer,
                                 me.communicator, nullptr));
      }
      return "";
    };
    const std::string first = me.rank % 2 == 0 ? send_all() : recv_all();
    const std::string second = me.rank % 2 == 0 ? recv_all() : send_all();
    CHILD_EXPECT((first + second).empty(), first + second);
    CHILD_OK(me.library.group_end());
    for (int peer = 0; peer < me.ranks; ++peer) {
      CHILD_EXPECT(recv[peer] == filled(NcclType::kInt64, count + me.rank, peer * 7 + me.rank),
                   "from " + std::to_string(peer));
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST_P(CclEachRankCount, group__nested_with_collectives_and_messages) {
  const auto answers = on_ranks(GetParam(), [](Rank me) -> std::string {
    const auto send = filled(NcclType::kInt32, 100, me.rank);
    std::vector<char> sum = untouched(send.size());
    std::vector<char> max = untouched(send.size());
    std::vector<char> ring = untouched(send.size());
    const int right = (me.rank + 1) % me.ranks;
    const int left = (me.rank + me.ranks - 1) % me.ranks;
    CHILD_OK(me.library.group_start());
    CHILD_OK(me.library.all_reduce(send.data(), sum.data(), 100, NcclType::kInt32, NcclOp::kSum,
                                   me.communicator, nullptr));
    CHILD_OK(me.library.group_start());
    CHILD_OK(me.library.send(send.data(), 100, NcclType::kInt32, right, me.communicator, nullptr));
    CHILD_OK(me.library.recv(ring.data(), 100, NcclType::kInt32, left, me.communicator, nullptr));
    CHILD_OK(me.library.group_end());
    CHILD_EXPECT(ring == untouched(send.size()), "ran before the outer end");
    CHILD_OK(me.library.all_reduce(send.data(), max.data(), 100, NcclType::kInt32, NcclOp::kMax,
                                   me.communicator, nullptr));
    CHILD_OK(me.library.group_end());
    CHILD_EXPECT(sum == expected_reduction(NcclType::kInt32, 100, me.ranks, NcclOp::kSum), "sum");
    CHILD_EXPECT(max == expected_reduction(NcclType::kInt32, 100, me.ranks, NcclOp::kMax), "max");
    CHILD_EXPECT(ring == filled(NcclType::kInt32, 100, left), "ring");
    return "";
  });
  EXPECT_EQ(answers, test::all_well(GetParam()));
}

TEST(CclCollectives, group__two_communicators_in_opposite_order) {
  const auto answers = on_ranks(3, [](Rank me) -> std::string {
    const auto second = join(me.library, me.rank, me.shared);
    CHILD_OK(second.status());
    CclComm order[] = {me.communicator, *second};
    if (me.rank == 1) {
      std::swap(order[0], order[1]);
    }
    const auto send = filled(NcclType::kFloat32, 50'000, me.rank);
    std::vector<char> recv[2] = {untouched(send.size()), untouched(send.size())};
    CHILD_OK(me.library.group_start());
    for (int i = 0; i < 2; ++i) {
      CHILD_OK(me.library.all_reduce(send.data(), recv[i].data(), 50'000, NcclType::kFloat32,
                                     NcclOp::kProd, order[i], nullptr));
    }
    CHILD_OK(me.library.group_end());
    for (const auto& result : recv) {
      CHILD_EXPECT(result == expected_reduction(NcclType::kFloat32, 50'000, 3, NcclOp::kProd),
                   "result");
    }
    CHILD_OK(me.library.destroy(*second));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(CclCollectives, threads__two_communicators_side_by_side) {
  const auto answers = on_ranks(3, [](Rank me) -> std::string {
    const auto second = join(me.library, me.rank, me.shared);
    CHILD_OK(second.status());
    std::string wrong[2];
    const auto work = [&](CclComm communicator, int seed) -> std::string {
      for (int round = 0; round < 50; ++round) {
        const auto count = static_cast<std::size_t>(round * 97 + seed);
        const auto send = filled(NcclType::kInt32, count, me.rank);
        std::vector<char> recv = untouched(send.size());
        CHILD_OK(me.library.all_reduce(send.data(), recv.data(), count, NcclType::kInt32,
                                       NcclOp::kSum, communicator, nullptr));
        CHILD_EXPECT(recv == expected_reduction(NcclType::kInt32, count, 3, NcclOp::kSum),
                     std::to_string(round));
      }
      return "";
    };
    std::thread other([&] { wrong[1] = work(*second, 5); });
    wrong[0] = work(me.communicator, 11);
    other.join();
    CHILD_OK(me.library.destroy(*second));
    return wrong[0] + wrong[1];
  });
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(CclCollectives, reductions__of_half_precision_round_once) {
  const auto answers = on_ranks(3, [](Rank me) -> std::string {
    // 2048 + 1 + 1: with rounding after each step the ones would be lost.
    const std::uint16_t mine = me.rank == 0 ? 0x6800 : 0x3c00;
    std::uint16_t sum = 0;
    CHILD_OK(me.library.all_reduce(&mine, &sum, 1, NcclType::kFloat16, NcclOp::kSum,
                                   me.communicator, nullptr));
    CHILD_EXPECT(sum == 0x6801, std::to_string(sum));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(CclCollectives, unique_id__differs_each_time) {
  const auto answers = on_ranks(1, [](Rank me) -> std::string {
    const auto first = me.library.unique_id();
    const auto second = me.library.unique_id();
    CHILD_OK(first.status());
    CHILD_OK(second.status());
    CHILD_EXPECT(std::memcmp(first->bytes, second->bytes, 128) != 0, "same");
    return "";
  });
  EXPECT_EQ(answers, test::all_well(1));
}

}  // namespace
}  // namespace tutti::ccl
