// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Every collective of the host's direct runner, bit for bit. Ranks are threads that share one
// mapping (so that a thread sanitizer sees the protocol) or, for what ends a process, processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "runners/direct/host_layout.hpp"
#include "runners/direct/host_reduce.hpp"
#include "runners/direct/host_runner.hpp"
#include "support/forked_ranks.hpp"
#include "support/sanitized.hpp"
#include "support/thread_mpi.hpp"

namespace tutti::runners {
namespace {

using select::Collective;
using select::DataType;
using select::ReduceOp;
using testing::ThreadMpi;
using testing::ThreadWorld;

constexpr Collective kCarried[] = {
    Collective::kBarrier,   Collective::kBcast,         Collective::kGather,
    Collective::kGatherv,   Collective::kScatter,       Collective::kScatterv,
    Collective::kAllgather, Collective::kAllgatherv,    Collective::kAlltoall,
    Collective::kAlltoallv, Collective::kAlltoallw,     Collective::kReduce,
    Collective::kAllreduce, Collective::kReduceScatter, Collective::kReduceScatterBlock};

/// What all ranks know of a call under test.
struct Given {
  Collective collective = Collective::kAllreduce;
  DataType type = DataType::kByte;  ///< Reductions only.
  ReduceOp op = ReduceOp::kNone;
  int ranks = 1;
  int root = 0;
  std::uint64_t count = 0;  ///< Elements of a block; counted forms vary around it.
  bool in_place = false;
  std::uint64_t seed = 0;

  std::string text() const {
    return std::string(select::to_string(collective)) + " " + select::to_string(type) + " " +
           select::to_string(op) + " ranks " + std::to_string(ranks) + " root " +
           std::to_string(root) + " count " + std::to_string(count) +
           (in_place ? " in place" : "") + " seed " + std::to_string(seed);
  }
};

using Buffer = std::vector<unsigned char>;

/// An element of rank `rank`'s input: any bits, but for numbers whose sums and products are finite.
void put_element(const Given& given, int rank, std::uint64_t i, unsigned char* out) {
  const std::uint64_t bits = draw(given.seed, static_cast<std::uint64_t>(rank), i);
  const auto number = static_cast<double>(static_cast<int>(bits % 97) - 48) / 16;
  const auto put = [out](auto value) { std::memcpy(out, &value, sizeof(value)); };
  switch (given.type) {
    case DataType::kFloat16:
      // Sign, an exponent around 0, a fraction.
      return put(static_cast<std::uint16_t>((bits & 0x8000) | (14 + bits % 3) << 10 |
                                            ((bits >> 20) & 0x3ff)));
    case DataType::kBfloat16:
      return put(static_cast<std::uint16_t>((bits & 0x8000) | (126 + bits % 3) << 7 |
                                            ((bits >> 20) & 0x7f)));
    case DataType::kFloat32:
      return put(static_cast<float>(number * 1.1));
    case DataType::kFloat64:
      return put(number * 1.1);
    case DataType::kComplex64: {
      const float parts[] = {static_cast<float>(number * 1.1),
                             static_cast<float>(bits >> 32) / 3e9F};
      std::memcpy(out, parts, sizeof(parts));
      return;
    }
    case DataType::kComplex128: {
      const double parts[] = {number * 1.1, static_cast<double>(bits >> 32) / 3e9};
      std::memcpy(out, parts, sizeof(parts));
      return;
    }
    case DataType::kFloat64Pair: {
      const double parts[] = {number, number};
      std::memcpy(out, parts, sizeof(parts));
      return;
    }
    case DataType::kInt64Int:
    case DataType::kFloat64Int:
      std::memcpy(out + 8, &bits, 8);
      return put(number);
    default:
      std::memcpy(out, &bits, std::min<std::size_t>(8, select::size_of(given.type)));
  }
}

Buffer input(const Given& given, int rank, std::uint64_t elements) {
  const Bytes size = select::size_of(given.type);
  Buffer bytes(elements * size);
  for (std::uint64_t i = 0; i < elements; ++i) {
    put_element(given, rank, i, bytes.data() + i * size);
  }
  return bytes;
}

/// Elements from one rank to another in counted forms, some none. Symmetric, as alltoallv in place
/// needs it.
std::uint64_t pair_count(const Given& given, int from, int to) {
  const auto low = static_cast<std::uint64_t>(std::min(from, to));
  const auto high = static_cast<std::uint64_t>(std::max(from, to));
  const std::uint64_t bits = draw(given.seed + 1, low * 64 + high, 0);
  return bits % 4 == 0 ? 0 : given.count * (bits % 3) / 2 + bits % 5;
}

/// One rank's buffers, call and expected result.
class Case {
 public:
  Case(const Given& given, int rank) : given_(given), rank_(rank) {
    element_ = select::size_of(given.type);
    call.collective = given.collective;
    call.type = given.type;
    call.op = given.op;
    call.element_bytes = element_;
    call.root = given.root;
    call.count = given.count;
    call.in_place = given.in_place;
    build();
  }

  /// Empty when the result is right and nothing else was touched.
  std::string wrong() const {
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      if (recv_[i] != expected_[i]) {
        return given_.text() + ": rank " + std::to_string(rank_) + " byte " + std::to_string(i) +
               " of " + std::to_string(expected_.size());
      }
    }
    return "";
  }

  Call call;

 private:
  static constexpr unsigned char kUntouched = 0xa5;
  static constexpr std::size_t kGuard = 64;

  std::uint64_t all() const { return static_cast<std::uint64_t>(given_.ranks); }
  std::uint64_t self() const { return static_cast<std::uint64_t>(rank_); }
  bool is_root() const { return rank_ == given_.root; }

  /// Counts of the blocks, and offsets with holes between them.
  static std::vector<std::uint64_t> offsets_of(const std::vector<std::uint64_t>& counts,
                                               std::uint64_t hole) {
    std::vector<std::uint64_t> offsets(counts.size());
    std::uint64_t next = hole;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      offsets[i] = next;
      next += counts[i] + hole;
    }
    return offsets;
  }
  static std::uint64_t end_of(const std::vector<std::uint64_t>& counts,
                              const std::vector<std::uint64_t>& offsets) {
    return counts.empty() ? 0 : counts.back() + offsets.back();
  }

  /// The receive buffer with `elements` and a guard.
  void make_recv(std::uint64_t elements) {
    recv_.assign(elements * element_ + kGuard, kUntouched);
    call.recv = recv_.data();
  }
  void make_send(const Buffer& bytes) {
    send_ = bytes;
    send_.resize(send_.size() + 1);  // Never null.
    call.send = send_.data();
  }
  void expect(std::uint64_t offset, const Buffer& bytes) {
    expect(offset, bytes.data(), bytes.size());
  }
  void expect(std::uint64_t offset, const unsigned char* bytes, std::size_t size) {
    std::copy_n(bytes, size, expected_.begin() + static_cast<std::ptrdiff_t>(offset * element_));
  }
  void write_recv(std::uint64_t offset, const Buffer& bytes) {
    std::copy(bytes.begin(), bytes.end(),
              recv_.begin() + static_cast<std::ptrdiff_t>(offset * element_));
    call.send = recv_.data() + offset * element_;
  }

  void build() {
    switch (given_.collective) {
      case Collective::kBarrier:
        call.count = 0;
        break;
      case Collective::kBcast:
        make_recv(given_.count);
        if (is_root()) {
          write_recv(0, input(given_, rank_, given_.count));
        }
        expected_ = recv_;
        expect(0, input(given_, given_.root, given_.count));
        break;
      case Collective::kGather:
      case Collective::kGatherv:
      case Collective::kAllgather:
      case Collective::kAllgatherv:
        build_gather();
        break;
      case Collective::kScatter:
      case Collective::kScatterv:
        build_scatter();
        break;
      case Collective::kAlltoall:
      case Collective::kAlltoallv:
      case Collective::kAlltoallw:
        build_alltoall();
        break;
      default:
        build_reduction();
    }
  }

  void build_gather() {
    const bool to_all =
        given_.collective == Collective::kAllgather || given_.collective == Collective::kAllgatherv;
    const bool counted = has_counts(given_.collective);
    std::vector<std::uint64_t> counts;
    for (int from = 0; from < given_.ranks; ++from) {
      counts.push_back(counted ? pair_count(given_, from, 0) : given_.count);
    }
    const auto offsets = offsets_of(counts, counted ? 3 : 0);
    call.count = counts[self()];
    const Buffer own = input(given_, rank_, call.count);
    if (!to_all && !is_root()) {
      call.in_place = false;
      make_send(own);
      return;
    }
    make_recv(end_of(counts, offsets));
    call.in_place ? write_recv(offsets[self()], own) : make_send(own);
    expected_ = recv_;
    for (int from = 0; from < given_.ranks; ++from) {
      const auto i = static_cast<std::size_t>(from);
      expect(offsets[i], input(given_, from, counts[i]));
    }
    if (counted) {
      keep(call.recv_counts, counts, 0);
      keep(call.recv_offsets, offsets, 1);
    }
  }

  void build_scatter() {
    const bool counted = has_counts(given_.collective);
    std::vector<std::uint64_t> counts;
    for (int to = 0; to < given_.ranks; ++to) {
      counts.push_back(counted ? pair_count(given_, to, 0) : given_.count);
    }
    const auto offsets = offsets_of(counts, counted ? 3 : 0);
    const Buffer sent = input(given_, given_.root, end_of(counts, offsets));
    call.count = counts[self()];
    call.in_place = given_.in_place && is_root();
    if (is_root()) {
      make_send(sent);
      if (counted) {
        keep(call.send_counts, counts, 0);
        keep(call.send_offsets, offsets, 1);
      }
    }
    if (call.in_place) {
      call.recv = send_.data() + offsets[self()] * element_;
      return;
    }
    make_recv(call.count);
    expected_ = recv_;
    expect(0, sent.data() + offsets[self()] * element_, call.count * element_);
  }

  void build_alltoall() {
    const bool counted = has_counts(given_.collective);
    const auto counts_with = [&](int rank) {
      std::vector<std::uint64_t> counts;
      for (int peer = 0; peer < given_.ranks; ++peer) {
        counts.push_back(counted ? pair_count(given_, rank, peer) : given_.count);
      }
      return counts;
    };
    const std::uint64_t hole = counted ? 2 : 0;
    const auto counts = counts_with(rank_);
    const auto offsets = offsets_of(counts, hole);
    const Buffer sent = input(given_, rank_, end_of(counts, offsets));
    make_recv(end_of(counts, offsets));
    call.in_place ? write_recv(0, sent) : make_send(sent);
    expected_ = recv_;
    for (int from = 0; from < given_.ranks; ++from) {
      const auto its_counts = counts_with(from);
      const auto its_offsets = offsets_of(its_counts, hole);
      const Buffer its = input(given_, from, end_of(its_counts, its_offsets));
      expect(offsets[static_cast<std::size_t>(from)], its.data() + its_offsets[self()] * element_,
             its_counts[self()] * element_);
    }
    if (counted) {
      keep(call.recv_counts, counts, 0);
      keep(call.recv_offsets, offsets, 1);
      keep(call.send_counts, counts, 2);
      keep(call.send_offsets, offsets, 3);
    }
  }

  void build_reduction() {
    std::vector<std::uint64_t> counts;
    if (given_.collective == Collective::kReduceScatter) {
      for (int to = 0; to < given_.ranks; ++to) {
        counts.push_back(pair_count(given_, to, 0));
      }
    } else if (given_.collective == Collective::kReduceScatterBlock) {
      counts.assign(all(), given_.count);
    }
    const bool scatters = !counts.empty();
    const std::uint64_t total =
        scatters ? std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) : given_.count;
    const std::uint64_t first =
        scatters ? std::accumulate(counts.begin(), counts.begin() + rank_, std::uint64_t{0}) : 0;
    const std::uint64_t result = scatters ? counts[self()] : total;
    const bool gets = given_.collective != Collective::kReduce || is_root();
    call.in_place = given_.in_place && gets;
    const Buffer own = input(given_, rank_, total);
    if (call.in_place) {
      make_recv(total);
      write_recv(0, own);
    } else {
      make_send(own);
      if (gets) {
        make_recv(result);
      }
    }
    if (given_.collective == Collective::kReduceScatter) {
      keep(call.recv_counts, counts, 0);
    }
    if (!gets) {
      return;
    }
    expected_ = recv_;
    if (scatters && call.in_place) {
      expected_.resize(result * element_);  // The rest of the input is lost.
    }
    std::vector<Buffer> inputs;
    std::vector<const void*> pointers;
    for (int from = 0; from < given_.ranks; ++from) {
      inputs.push_back(input(given_, from, total));
      inputs.back().push_back(0);
      pointers.push_back(inputs.back().data() + first * element_);
    }
    reduce_function(Isa::kBaseline, given_.type, given_.op)(expected_.data(), pointers.data(),
                                                            given_.ranks, result);
  }

  void keep(std::span<const std::uint64_t>& field, const std::vector<std::uint64_t>& values,
            std::size_t place) {
    kept_[place] = values;
    field = kept_[place];
  }

  Given given_;
  int rank_;
  Bytes element_ = 1;
  Buffer send_;
  Buffer recv_;
  Buffer expected_;
  std::array<std::vector<std::uint64_t>, 4> kept_;
};

DirectHostRunner::Options options_for(int ranks, double timeout_s,
                                      const std::uint64_t* calls = nullptr) {
  return {.timeout_s = timeout_s,
          .waits_for_the_living = true,
          .is_crowded = ranks > static_cast<int>(std::thread::hardware_concurrency()),
          .calls = calls};
}

/// What the ranks tell each other; empty where one has failed.
std::vector<DirectHostRunner::Introduction> exchange(Bootstrap& bootstrap,
                                                     const DirectHostRunner::Introduction& mine) {
  std::vector<DirectHostRunner::Introduction> all(
      static_cast<std::size_t>(bootstrap.scope_rank(Scope::kWhole).ranks));
  if (!bootstrap.allgather(&mine, all.data(), sizeof(mine)).ok()) {
    all.clear();
  }
  return all;
}

/// As an engine makes it: the ranks tell each other what they have, then create.
Result<std::unique_ptr<DirectHostRunner>> create_runner(
    Bootstrap& bootstrap, const Result<std::shared_ptr<HostMemory>>& memory, double timeout_s,
    const std::uint64_t* calls = nullptr) {
  const ScopeRank me = bootstrap.scope_rank(Scope::kWhole);
  const auto mine = DirectHostRunner::introduce(memory, me.ranks);
  const auto all = exchange(bootstrap, mine);
  if (all.empty()) {
    return Status(ErrorCode::kLibraryFailed, "the ranks could not introduce themselves");
  }
  return DirectHostRunner::create(memory.ok() ? *memory : nullptr, me.rank, all,
                                  options_for(me.ranks, timeout_s, calls));
}

/// A communicator of its own memory, as a process has it that makes its first.
Result<std::unique_ptr<DirectHostRunner>> create_runner(Bootstrap& bootstrap, double timeout_s,
                                                        Bytes ring_bytes,
                                                        const std::uint64_t* calls = nullptr) {
  const int ranks = bootstrap.scope_rank(Scope::kWhole).ranks;
  const Bytes bytes = std::max(ring_bytes, HostLayout::ring_bytes_min(ranks));
  return create_runner(bootstrap, HostMemory::make({.ring_bytes = bytes, .blocks_bytes = 64 << 10}),
                       timeout_s, calls);
}

/// Runs the calls on all ranks of one communicator; the first complaint of any rank.
std::string run_all(const std::vector<Given>& calls, int ranks, Bytes ring_bytes) {
  ThreadWorld world(ranks);
  std::vector<std::string> complaints(static_cast<std::size_t>(ranks));
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    std::string& complaint = complaints[static_cast<std::size_t>(rank)];
    auto runner = create_runner(mpi, 60, ring_bytes);
    if (!runner.ok()) {
      complaint = runner.status().message();
      return;
    }
    for (const Given& given : calls) {
      Case one(given, rank);
      const Status status = (*runner)->run(Scope::kWhole, one.call);
      if (!status.ok()) {
        complaint = given.text() + ": " + status.message();
        return;
      }
      // The others go on: a wrong result is not a reason to leave them waiting.
      if (complaint.empty()) {
        complaint = one.wrong();
      }
    }
  });
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) {
      return complaint;
    }
  }
  return "";
}

/// The smallest ring that the runner takes for so many ranks: all its limits come early.
Bytes smallest_ring(int ranks) { return static_cast<Bytes>(ranks) * HostLayout::kRingUnit; }

void set_kind(Given* given) {
  if (select::is_reduction(given->collective)) {
    given->type = DataType::kInt32;
    given->op = ReduceOp::kSum;
  } else {
    given->type = DataType::kByte;
    given->op = ReduceOp::kNone;
  }
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kDifferingCalls = 100;
#else
constexpr int kDifferingCalls = 200;
#endif

class DirectHostRanks : public ::testing::TestWithParam<int> {};

/// Counts around each of the runner's limits: a cache line with its sequence number, both kinds of
/// brief slots, the shortest piece and laps of the smallest ring.
std::vector<std::uint64_t> counts_around_limits(const Given& given) {
  const auto ranks = static_cast<Bytes>(given.ranks);
  std::vector<std::uint64_t> counts = {0, 1, 2, 3};
  for (const Bytes limit :
       {HostLayout::kInlineBytes, HostLayout::kShortBytes, HostLayout::kBriefBytes,
        HostLayout::kBriefBytes / ranks, Bytes{8192}, 2 * smallest_ring(given.ranks)}) {
    const std::uint64_t elements = limit / select::size_of(given.type);
    counts.insert(counts.end(), {elements - 1, elements, elements + 1});
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

bool has_root(Collective collective) {
  return collective == Collective::kBcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kGatherv ||
         collective == Collective::kScatter || collective == Collective::kScatterv;
}

TEST_P(DirectHostRanks, run__every_collective_at_every_limit_for_every_root) {
  const int ranks = GetParam();
  for (const Collective collective : kCarried) {
    Given given{.collective = collective, .ranks = ranks};
    set_kind(&given);
    std::vector<Given> calls;
    for (const std::uint64_t count : counts_around_limits(given)) {
      // Long vectors: the last root stands for all.
      const bool is_long = count * select::size_of(given.type) > HostLayout::kShortBytes + 1;
      const int first = is_long ? ranks - 1 : 0;
      const int last = has_root(collective) ? ranks - 1 : first;
      for (given.root = first; given.root <= last; ++given.root) {
        for (const bool in_place : {false, true}) {
          given.count = count;
          given.in_place = in_place;
          given.seed = calls.size();
          calls.push_back(given);
        }
      }
    }
    EXPECT_EQ(run_all(calls, ranks, smallest_ring(ranks)), "");
  }
}

TEST_P(DirectHostRanks, run__several_megabytes_in_the_default_ring) {
  const int ranks = GetParam();
  std::vector<Given> calls;
  for (const Collective collective : kCarried) {
    Given given{.collective = collective,
                .ranks = ranks,
                .root = ranks - 1,
                .count = (3 << 20) / static_cast<std::uint64_t>(ranks) + 13,
                .in_place = ranks % 2 == 0,
                .seed = 5};
    set_kind(&given);
    if (select::is_reduction(collective)) {
      given.count /= 3;
    }
    calls.push_back(given);
  }
  EXPECT_EQ(run_all(calls, ranks, HostMemory::default_options(ranks, false).ring_bytes), "");
}

// To the thread sanitizer one type is as good as another.
#if defined(__SANITIZE_THREAD__)
constexpr int kEveryReduction = 7;
constexpr int kTurnsInProcesses = 4;
#else
constexpr int kEveryReduction = 1;
constexpr int kTurnsInProcesses = 20;
#endif

TEST_P(DirectHostRanks, run__every_type_and_operation) {
  const int ranks = GetParam();
  std::vector<Given> calls;
  int reductions = 0;
  for (int type = 0; type < select::kDataTypeCount; ++type) {
    for (int op = 0; op < select::kReduceOpCount; ++op) {
      Given given{.type = static_cast<DataType>(type), .op = static_cast<ReduceOp>(op)};
      if (reduce_function(Isa::kBaseline, given.type, given.op) == nullptr ||
          reductions++ % kEveryReduction != 0) {
        continue;
      }
      given.ranks = ranks;
      given.seed = calls.size();
      for (const std::uint64_t count : {1, 5, 37, 1031, 9001}) {
        for (const Collective collective :
             {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
          given.collective = collective;
          given.count = count;
          given.in_place = !given.in_place;
          given.root = static_cast<int>(count) % ranks;
          calls.push_back(given);
        }
      }
    }
  }
  EXPECT_EQ(run_all(calls, ranks, smallest_ring(ranks)), "");
}

TEST_P(DirectHostRanks, run__random_sequences) {
  const int ranks = GetParam();
  constexpr std::uint64_t kSeed = 20260;
  Random random(kSeed + static_cast<std::uint64_t>(ranks));
  std::vector<Given> calls;
  for (int i = 0; i < 3000; ++i) {
    Given given;
    given.collective = kCarried[random.below(std::size(kCarried))];
    set_kind(&given);
    if (select::is_reduction(given.collective)) {
      do {
        given.type = static_cast<DataType>(random.below(select::kDataTypeCount));
        given.op = static_cast<ReduceOp>(random.below(select::kReduceOpCount));
      } while (reduce_function(Isa::kBaseline, given.type, given.op) == nullptr);
    }
    given.ranks = ranks;
    given.root = static_cast<int>(random.below(static_cast<std::uint32_t>(ranks)));
    // As many small ones as large ones, in orders of magnitude.
    given.count = random.below(1U << random.below(13));
    given.in_place = random.below(2) == 0;
    given.seed = random.next();
    calls.push_back(given);
  }
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  EXPECT_EQ(run_all(calls, ranks, smallest_ring(ranks)), "");
}

/// What rank `rank` calls where the ranks' calls differ: some ranks call as given, others something
/// else.
Given differing(const Given& given, int rank) {
  const auto draw_of = [&](std::uint64_t what) {
    return draw(given.seed + 2, static_cast<std::uint64_t>(rank), what);
  };
  Given other = given;
  switch (draw_of(0) % 8) {
    case 0:
      other.count = given.count / 2;
      return other;
    case 1:
      other.count = 2 * given.count + 1;
      return other;
    case 2:
      other.root = static_cast<int>(draw_of(1) % static_cast<std::uint64_t>(given.ranks));
      return other;
    case 3:
      other.collective = kCarried[draw_of(1) % std::size(kCarried)];
      set_kind(&other);
      return other;
    default:
      return given;
  }
}

// Right calls after wrong ones are right, and what differs is an error or goes unnoticed, in which
// case the ranks that noticed nothing did nothing wrong. No rank waits for ever.
TEST_P(DirectHostRanks, run__calls_that_differ_leave_the_next_ones_right) {
  const int ranks = GetParam();
  if (ranks == 1) {
    return;
  }
  constexpr std::uint64_t kSeed = 20261;
  Random random(kSeed + static_cast<std::uint64_t>(ranks));
  std::vector<Given> calls;
  for (int i = 0; i < kDifferingCalls; ++i) {
    Given given;
    given.collective = kCarried[random.below(std::size(kCarried))];
    set_kind(&given);
    given.ranks = ranks;
    given.root = static_cast<int>(random.below(static_cast<std::uint32_t>(ranks)));
    given.count = random.below(1U << random.below(13));
    given.in_place = random.below(2) == 0;
    given.seed = random.next();
    calls.push_back(given);
  }
  ThreadWorld world(ranks);
  std::vector<std::string> complaints(static_cast<std::size_t>(ranks));
  std::atomic<int> mismatches{0};
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    std::string& complaint = complaints[static_cast<std::size_t>(rank)];
    auto runner = create_runner(mpi, 60, smallest_ring(ranks));
    ASSERT_TRUE(runner.ok());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const bool is_wrong = draw(calls[i].seed + 3, 0, 0) % 4 == 0;
      Case one(is_wrong ? differing(calls[i], rank) : calls[i], rank);
      const Status status = (*runner)->run(Scope::kWhole, one.call);
      mismatches += status.ok() ? 0 : 1;
      if (!status.ok() && !(is_wrong && status.code() == ErrorCode::kMismatch)) {
        complaint = "call " + std::to_string(i) + ", " + calls[i].text() + ": " + status.message();
        return;
      }
      if (!is_wrong && complaint.empty()) {
        complaint = one.wrong();
      }
    }
  });
  EXPECT_EQ(complaints, std::vector<std::string>(static_cast<std::size_t>(ranks)));
  EXPECT_GT(mismatches.load(), kDifferingCalls / 16);
}

TEST(DirectHost, run__a_difference_names_both_calls) {
  ThreadWorld world(2);
  std::vector<Status> statuses(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto runner = create_runner(mpi, 60, smallest_ring(2));
    ASSERT_TRUE(runner.ok());
    for (const std::uint64_t count : {5000U, 3000U}) {
      Given given;
      given.collective = Collective::kBcast;
      given.ranks = 2;
      given.count = rank == 0 ? count : 2 * count;
      Case one(given, rank);
      statuses[static_cast<std::size_t>(rank)] = (*runner)->run(Scope::kWhole, one.call);
    }
  });
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_EQ(statuses[1].code(), ErrorCode::kMismatch);
  EXPECT_EQ(
      statuses[1].message(),
      "direct: rank 0 calls bcast of 3000 bytes with root 0, rank 1 calls bcast of 6000 bytes "
      "with root 0; all ranks of a communicator must call the same");
}

/// Rank 0's error where rank 1 stays in call 1, which goes another way there. Rank 0 takes it
/// through here, or passes by, too; after it `between` calls pass by; then it waits for rank 1.
Status waits_for_one_elsewhere(bool is_through, int between) {
  ThreadWorld world(2);
  std::array<std::uint64_t, 2> counts{};
  std::vector<std::unique_ptr<DirectHostRunner>> kept(2);  // Who frees it has left for good.
  Status status;
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    std::uint64_t& calls = counts[static_cast<std::size_t>(rank)];
    auto made = create_runner(mpi, 0.5, smallest_ring(2), &calls);
    ASSERT_TRUE(made.ok()) << made.status().message();
    DirectHostRunner& runner = *(kept[static_cast<std::size_t>(rank)] = std::move(*made));
    const auto pass_by = [&] { HostArea::pass_by(runner.calls_line(), ++calls); };
    if (rank == 1) {
      pass_by();
      return;
    }
    if (is_through) {
      Case one({.collective = Collective::kBcast, .ranks = 2, .count = 5}, rank);
      ++calls;
      EXPECT_TRUE(runner.run(Scope::kWhole, one.call).ok()) << "a root waits for nobody";
    } else {
      pass_by();
    }
    for (int i = 0; i < between; ++i) {
      pass_by();
    }
    Case last({.collective = Collective::kBarrier, .ranks = 2}, rank);
    ++calls;
    status = runner.run(Scope::kWhole, last.call);
  });
  return status;
}

TEST(DirectHost, run__a_rank_that_stays_in_another_call_than_this_one_made_is_a_mismatch) {
  for (const int between : {0, 1, 62}) {
    const Status status = waits_for_one_elsewhere(/*is_through=*/true, between);
    EXPECT_EQ(status.code(), ErrorCode::kMismatch) << between << ": " << status.message();
    EXPECT_NE(status.message().find("rank 1 is in an earlier call"), std::string::npos)
        << status.message();
  }
  // In a call that both ranks passed by it may stay as long as it likes.
  EXPECT_EQ(waits_for_one_elsewhere(/*is_through=*/false, 0).code(), ErrorCode::kTimeout);
  EXPECT_EQ(waits_for_one_elsewhere(/*is_through=*/false, 2).code(), ErrorCode::kTimeout);
}

// The sanitizers slow waiting ranks down most where there are more of them than cores.
#if defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(Ranks, DirectHostRanks, ::testing::Values(2, 3));
#elif defined(__SANITIZE_ADDRESS__)
INSTANTIATE_TEST_SUITE_P(Ranks, DirectHostRanks, ::testing::Values(1, 2, 3, 5));
#else
INSTANTIATE_TEST_SUITE_P(Ranks, DirectHostRanks, ::testing::Values(1, 2, 3, 4, 5, 6, 8));
#endif

TEST(DirectHost, run__two_communicators_at_once) {
  ThreadWorld first(3);
  ThreadWorld second(3);
  std::vector<std::string> complaints(6);
  const auto play = [&](ThreadWorld& world, int rank, int begin, std::string* complaint) {
    ThreadMpi mpi(world, rank);
    auto runner = create_runner(mpi, 60, smallest_ring(3));
    if (!runner.ok()) {
      *complaint = runner.status().message();
      return;
    }
    for (int i = 0; i < (kIsSanitized ? 150 : 500); ++i) {
      Given given{.collective = kCarried[static_cast<std::size_t>(begin + i) % std::size(kCarried)],
                  .ranks = 3,
                  .root = i % 3,
                  .count = static_cast<std::uint64_t>(i * 13),
                  .seed = static_cast<std::uint64_t>(begin + i)};
      set_kind(&given);
      Case one(given, rank);
      const Status status = (*runner)->run(Scope::kWhole, one.call);
      const std::string wrong = status.ok() ? one.wrong() : status.message();
      if (complaint->empty()) {
        *complaint = wrong;
      }
    }
  };
  std::thread other([&] {
    second.run(
        [&](int rank) { play(second, rank, 7, &complaints[static_cast<std::size_t>(3 + rank)]); });
  });
  first.run([&](int rank) { play(first, rank, 0, &complaints[static_cast<std::size_t>(rank)]); });
  other.join();
  EXPECT_EQ(complaints, std::vector<std::string>(6));
}

/// Communicators of one process share its rings: what one wrote must be taken before the next
/// writes. Each rank plays the same random order of calls on several communicators.
TEST(DirectHost, run__communicators_of_one_process_take_turns_in_its_rings) {
  constexpr int kRanks = 3;
  constexpr int kCommunicators = 4;
  ThreadWorld world(kRanks);
  std::vector<std::string> complaints(kRanks);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    std::string& complaint = complaints[static_cast<std::size_t>(rank)];
    const auto memory =
        HostMemory::make({.ring_bytes = smallest_ring(kRanks), .blocks_bytes = 64 << 10});
    std::vector<std::unique_ptr<DirectHostRunner>> runners(kCommunicators);
    for (int i = 0; i < (kIsSanitized ? 500 : 2000); ++i) {
      auto& runner = runners[draw(5, 1, static_cast<std::uint64_t>(i)) % kCommunicators];
      if (i % 50 == 0) {
        runner.reset();  // Freed while others may still read.
      }
      if (runner == nullptr) {
        auto made = create_runner(mpi, memory, 60);
        ASSERT_TRUE(made.ok()) << made.status().message();
        runner = std::move(*made);
      }
      Given given{
          .collective = kCarried[draw(5, 2, static_cast<std::uint64_t>(i)) % std::size(kCarried)],
          .ranks = kRanks,
          .root = i % kRanks,
          .count = draw(5, 3, static_cast<std::uint64_t>(i)) % 3000,
          .seed = static_cast<std::uint64_t>(i)};
      set_kind(&given);
      Case one(given, rank);
      const Status status = runner->run(Scope::kWhole, one.call);
      const std::string wrong = status.ok() ? one.wrong() : status.message();
      if (complaint.empty() && !wrong.empty()) {
        complaint = "call " + std::to_string(i) + ", " + given.text() + ": " + wrong;
      }
    }
  });
  EXPECT_EQ(complaints, std::vector<std::string>(kRanks));
}

/// Facts exchanged beside calls, with ranks that are late, that want nothing, or whose calls have
/// failed.
TEST(DirectHost, allgather_facts__all_hear_from_all) {
  constexpr int kRanks = 3;
  struct Facts {
    std::uint64_t rank;
    std::array<std::uint64_t, HostLayout::kFactsBytes / 8 - 1> numbers;
  };
  ThreadWorld world(kRanks);
  std::vector<std::string> complaints(kRanks);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto made = create_runner(mpi, 60, smallest_ring(kRanks));
    ASSERT_TRUE(made.ok()) << made.status().message();
    DirectHostRunner& runner = **made;
    const auto self = static_cast<std::uint64_t>(rank);
    for (std::uint64_t i = 0; i < 1000; ++i) {
      if (i == 700 && rank == 1) {
        runner.give_up(Status(ErrorCode::kTimeout, "a call failed"));
      }
      if (draw(6, i, self) % 64 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (i < 700 && i % 3 == 0) {
        Case one({.collective = Collective::kAllgather, .ranks = kRanks, .count = i}, rank);
        ASSERT_TRUE(runner.run(Scope::kWhole, one.call).ok());
      }
      Facts mine{self, {}};
      mine.numbers.fill(draw(6, i, self));
      std::array<Facts, kRanks> all{};
      const bool wants_it = draw(7, i, self) % 4 != 0;
      const Status told =
          runner.allgather_facts(&mine, wants_it ? all.data() : nullptr, sizeof(mine));
      ASSERT_TRUE(told.ok()) << told.message();
      for (std::uint64_t peer = 0; wants_it && peer < kRanks; ++peer) {
        Facts expected{peer, {}};
        expected.numbers.fill(draw(6, i, peer));
        if (std::memcmp(&all[peer], &expected, sizeof(expected)) != 0) {
          complaints[self] = "round " + std::to_string(i) + ", rank " + std::to_string(peer);
        }
      }
    }
  });
  EXPECT_EQ(complaints, std::vector<std::string>(kRanks));
}

/// A rank for which MPI has derived no communicator takes part no more: the others do not wait for
/// it, and hear so.
TEST(DirectHost, post_last_facts__is_heard_in_every_later_round) {
  constexpr int kRanks = 3;
  ThreadWorld world(kRanks);
  std::vector<std::unique_ptr<DirectHostRunner>> kept(kRanks);  // Who frees it has left for good.
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto made = create_runner(mpi, 60, smallest_ring(kRanks));
    ASSERT_TRUE(made.ok()) << made.status().message();
    DirectHostRunner& runner = *(kept[static_cast<std::size_t>(rank)] = std::move(*made));
    std::array<int, kRanks> all{};
    for (int i = 0; i < 100; ++i) {
      const int mine = 1000 * rank + i;
      if (rank == 1 && i == 50) {
        const int last = -1;
        ASSERT_TRUE(runner.post_last_facts(&last, sizeof(last)).ok());
        return;
      }
      ASSERT_TRUE(runner.allgather_facts(&mine, all.data(), sizeof(mine)).ok());
      EXPECT_EQ(all, (std::array<int, kRanks>{i, i < 50 ? 1000 + i : -1, 2000 + i}));
    }
  });
}

/// Of a process with few communicators of two ranks.
Result<std::shared_ptr<HostMemory>> small_memory() {
  return HostMemory::make({.ring_bytes = smallest_ring(2), .blocks_bytes = 64 << 10});
}

TEST(DirectHost, post__a_rank_does_its_part_of_create_and_the_others_go_on) {
  ThreadWorld world(2);
  std::atomic<bool> is_through = false;
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto memory = small_memory();
    ASSERT_TRUE(memory.ok());
    const auto mine = DirectHostRunner::introduce(memory, 2);
    const auto all = exchange(mpi, mine);
    ASSERT_EQ(all.size(), 2U);
    if (rank == 0) {
      EXPECT_TRUE(DirectHostRunner::post(**memory, rank, all).is_mapped);
      is_through.wait(false);
    }
    auto made = DirectHostRunner::create(*memory, rank, all, options_for(2, 60, nullptr));
    ASSERT_TRUE(made.ok()) << made.status().message();
    is_through = true;
    is_through.notify_all();
    Case one({.collective = Collective::kBcast, .ranks = 2, .count = 5}, rank);
    EXPECT_TRUE((*made)->run(Scope::kWhole, one.call).ok());
    EXPECT_EQ(exchange(mpi, mine).size(), 2U);  // Both have left the call.
  });
}

TEST(DirectHost, post__a_part_that_no_create_follows_serves_again) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto memory = small_memory();
    ASSERT_TRUE(memory.ok());
    for (int i = 0; i < 500; ++i) {  // Far more than there are blocks.
      const auto mine = DirectHostRunner::introduce(memory, 2);
      ASSERT_NE(mine.part.life, 0U) << i << ": " << mine.reason;
      const auto all = exchange(mpi, mine);
      ASSERT_EQ(all.size(), 2U);
      if (rank == 0) {
        (*memory)->retire(mine.part, DirectHostRunner::post(**memory, rank, all).use);
      } else {
        DirectHostRunner::give_back(*memory, mine);
      }
    }
  });
}

TEST(DirectHost, post__what_the_others_were_told_stays) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto memory = small_memory();
    ASSERT_TRUE(memory.ok());
    const auto mine = DirectHostRunner::introduce(memory, 2);
    const auto all = exchange(mpi, mine);
    ASSERT_EQ(all.size(), 2U);
    if (rank == 0) {
      auto unmapped = all;
      ++unmapped[1].part.ticket.key[0];  // There is no such memory, as after a lack of descriptors.
      const auto posted = DirectHostRunner::post(**memory, rank, unmapped);
      EXPECT_NE(posted.use, nullptr);
      EXPECT_FALSE(posted.is_mapped);
    }
    const auto made = DirectHostRunner::create(*memory, rank, all, options_for(2, 60, nullptr));
    EXPECT_EQ(made.status().code(), ErrorCode::kUnavailable) << "on all ranks or on none";
  });
}

TEST(DirectHost, post__waits_for_nobody_where_a_rank_has_no_memory) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto memory = small_memory();
    ASSERT_TRUE(memory.ok());
    const auto mine = DirectHostRunner::introduce(
        rank == 0 ? memory
                  : Result<std::shared_ptr<HostMemory>>(Status(ErrorCode::kUnavailable, "full")),
        2);
    const auto all = exchange(mpi, mine);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(DirectHostRunner::post(**memory, rank, all).use, nullptr);
    DirectHostRunner::give_back(*memory, mine);
  });
}

TEST(DirectHost, find_call_another_way__of_calls_that_all_have_made) {
  ThreadWorld world(2);
  std::array<std::uint64_t, 2> counts{};
  std::array<std::shared_ptr<HostMemory>, 2> memory;
  std::array<DirectHostRunner::Introduction, 2> met;
  std::vector<std::unique_ptr<DirectHostRunner>> kept(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    const auto i = static_cast<std::size_t>(rank);
    auto own = small_memory();
    ASSERT_TRUE(own.ok());
    memory[i] = *own;
    met[i] = DirectHostRunner::introduce(own, 2);
    const auto all = exchange(mpi, met[i]);
    ASSERT_EQ(all.size(), 2U);
    auto made = DirectHostRunner::create(*own, rank, all, options_for(2, 60, &counts[i]));
    ASSERT_TRUE(made.ok()) << made.status().message();
    kept[i] = std::move(*made);
  });
  const std::vector<DirectHostRunner::Introduction> all(met.begin(), met.end());
  const auto found = [&] { return DirectHostRunner::find_call_another_way(*memory[1], 1, all); };
  const auto pass_by = [&](std::size_t rank) {
    HostArea::pass_by(kept[rank]->calls_line(), ++counts[rank]);
  };
  const auto root = [&] {
    Case one({.collective = Collective::kBcast, .ranks = 2, .count = 5}, 0);
    ++counts[0];
    EXPECT_TRUE(kept[0]->run(Scope::kWhole, one.call).ok()) << "a root waits for nobody";
  };
  EXPECT_EQ(found(), "");
  pass_by(0);
  pass_by(1);
  EXPECT_EQ(found(), "");
  pass_by(1);
  EXPECT_EQ(found(), "") << "the other one is late";
  root();
  EXPECT_NE(found().find("rank 0 has made this call"), std::string::npos);
  HostArea::turned_away(kept[0]->calls_line()).publish(1);
  EXPECT_EQ(found(), "") << "its numbers may be others";
  HostArea::turned_away(kept[0]->calls_line()).publish(0);
  kept[0].reset();
  EXPECT_NE(found(), "") << "who is through may have freed the communicator";
  HostLayout layout;
  layout.ranks = 2;
  const HostArea area(layout, 0, memory[0]->data() + all[0].part.block_at, nullptr);
  area.life().publish(all[0].part.life + 2);
  EXPECT_EQ(found(), "") << "its block is another communicator's";
}

/// Rank 1 makes `before` calls that rank 0 does not make, each another way or through here, and
/// then `given`, which rank 0 makes with the number that it finds.
void finds_number(const Given& given, std::uint64_t before, bool are_through) {
  ThreadWorld world(2);
  std::array<std::uint64_t, 2> counts{};
  std::array<Status, 2> statuses;
  std::vector<std::unique_ptr<DirectHostRunner>> kept(2);  // Who frees it has left for good.
  std::uint64_t found = 0;
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    const auto i = static_cast<std::size_t>(rank);
    auto made = create_runner(mpi, 60, smallest_ring(2), &counts[i]);
    ASSERT_TRUE(made.ok()) << made.status().message();
    DirectHostRunner& runner = *(kept[i] = std::move(*made));
    Case last(given, rank);
    if (rank == 0) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!runner.has_number(last.call, counts[i] + 1, end).value_or(true)) {
        HostArea::turned_away(runner.calls_line()).publish(++counts[i]);
        HostArea::pass_by(runner.calls_line(), counts[i]);
      }
      found = counts[i] + 1;
    }
    for (std::uint64_t call = 0; rank == 1 && call < before; ++call) {
      ++counts[i];
      if (are_through) {
        Case gather({.collective = Collective::kGather, .ranks = 2, .count = 5}, rank);
        EXPECT_TRUE(runner.run(Scope::kWhole, gather.call).ok()) << "it waits for nobody";
      } else {
        HostArea::pass_by(runner.calls_line(), counts[i]);
      }
    }
    ++counts[i];
    statuses[i] = runner.run(Scope::kWhole, last.call);
  });
  EXPECT_EQ(found, 1 + before) << select::to_string(given.collective);
  EXPECT_TRUE(statuses[0].ok()) << statuses[0].message();
  EXPECT_TRUE(statuses[1].ok()) << statuses[1].message();
}

TEST(DirectHost, has_number__that_of_another_ranks_call) {
  const std::uint64_t large = 5000;
  for (const std::uint64_t before : {0U, 2U}) {
    for (const bool are_through : {false, true}) {
      for (const Collective collective :
           {Collective::kBarrier, Collective::kAllreduce, Collective::kBcast, Collective::kScatter,
            Collective::kGatherv, Collective::kAlltoall, Collective::kReduce}) {
        for (const std::uint64_t count : {std::uint64_t{3}, large}) {
          Given given{.collective = collective, .ranks = 2, .count = count};
          set_kind(&given);
          while (pair_count(given, 0, 1) == 0) {
            ++given.seed;
          }
          finds_number(given, before, are_through);
        }
      }
    }
  }
}

TEST(HostMemory, is_half_taken__until_enough_is_given_back) {
  HostLayout layout;
  layout.ranks = 2;
  const Bytes block = HostLayout::round_up(layout.block_bytes(), 128);
  const auto memory = HostMemory::make({.ring_bytes = smallest_ring(2), .blocks_bytes = 4 * block});
  ASSERT_TRUE(memory.ok());
  std::vector<HostMemory::Part> parts;
  for (const bool expected : {false, false, true, true}) {
    const auto part = (*memory)->take(2);
    ASSERT_TRUE(part.ok());
    parts.push_back(*part);
    EXPECT_EQ((*memory)->is_half_taken(), expected) << parts.size();
  }
  EXPECT_FALSE((*memory)->take(2).ok());
  (*memory)->give_back(parts[0]);
  EXPECT_TRUE((*memory)->is_half_taken());
  (*memory)->give_back(parts[1]);
  EXPECT_FALSE((*memory)->is_half_taken());
}

TEST(DirectHost, create__a_freed_communicator_gives_its_block_to_the_next) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    HostLayout layout;
    layout.ranks = 2;
    // Two blocks: the one in use, and one whose peers may not have freed it yet.
    const auto memory = HostMemory::make(
        {.ring_bytes = smallest_ring(2), .blocks_bytes = 2 * (layout.block_bytes() + 128)});
    const auto make = [&] { return create_runner(mpi, memory, 60); };
    for (int i = 0; i < (kIsSanitized ? 500 : 3000); ++i) {
      auto made = make();
      ASSERT_TRUE(made.ok()) << i << ": " << made.status().message();
      Case one({.type = DataType::kInt32,
                .op = ReduceOp::kSum,
                .ranks = 2,
                .count = static_cast<std::uint64_t>(i % 40),
                .seed = static_cast<std::uint64_t>(i)},
               rank);
      ASSERT_TRUE((*made)->run(Scope::kWhole, one.call).ok());
      ASSERT_EQ(one.wrong(), "");
    }
  });
}

TEST(DirectHost, create__without_a_block_left_on_one_rank_no_rank_has_it) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    HostLayout layout;
    layout.ranks = 2;
    const Bytes blocks = rank == 0 ? 64 << 10 : layout.block_bytes() + 128;
    const auto memory = HostMemory::make({.ring_bytes = smallest_ring(2), .blocks_bytes = blocks});
    auto first = create_runner(mpi, memory, 60);
    ASSERT_TRUE(first.ok()) << first.status().message();
    auto second = create_runner(mpi, memory, 60);
    ASSERT_EQ(second.status().code(), ErrorCode::kUnavailable);
    EXPECT_NE(second.status().message().find("rank 1: "), std::string::npos)
        << second.status().message();
    Case one({.type = DataType::kInt32, .op = ReduceOp::kSum, .ranks = 2, .count = 9}, rank);
    EXPECT_TRUE((*first)->run(Scope::kWhole, one.call).ok());
    EXPECT_EQ(one.wrong(), "");
  });
}

TEST(HostMemory, default_options__a_node_stays_below_64_MiB) {
  for (const bool has_threads : {false, true}) {
    for (const int ranks : {1, 2, 3, 8, 32, 64}) {
      const HostMemory::Options options = HostMemory::default_options(ranks, has_threads);
      const Bytes own = options.blocks_bytes + static_cast<Bytes>(options.ring_sets) *
                                                   HostLayout::set_bytes(options.ring_bytes);
      EXPECT_LE(own * static_cast<Bytes>(ranks), Bytes{64} << 20) << ranks << " " << has_threads;
      EXPECT_GE(options.ring_bytes, HostLayout::ring_bytes_min(ranks)) << ranks;
    }
  }
}

/// Brief, in rounds, to everybody, to one.
std::vector<Given> one_of_each_way(int ranks) {
  return {{.collective = Collective::kBarrier, .ranks = ranks},
          {.collective = Collective::kAllreduce,
           .type = DataType::kFloat32,
           .op = ReduceOp::kSum,
           .ranks = ranks,
           .count = 100000},
          {.collective = Collective::kAllgather, .ranks = ranks, .count = 100000},
          {.collective = Collective::kAlltoall, .ranks = ranks, .count = 100000}};
}

TEST(DirectHost, run__a_rank_that_never_comes_is_an_error_and_later_calls_fail_at_once) {
  constexpr double kTimeout_s = 0.5;
  for (const Given& given : one_of_each_way(3)) {
    ThreadWorld world(3);
    std::vector<std::unique_ptr<DirectHostRunner>> kept(3);  // Who frees it has left for good.
    world.run([&](int rank) {
      ThreadMpi mpi(world, rank);
      auto made = create_runner(mpi, kTimeout_s, smallest_ring(3));
      ASSERT_TRUE(made.ok()) << made.status().message();
      std::unique_ptr<DirectHostRunner>& runner = kept[static_cast<std::size_t>(rank)];
      runner = std::move(*made);
      world.board({0, 1, 2})->barrier.arrive_and_wait();
      if (rank == 2) {
        return;
      }
      Case one(given, rank);
      const auto start = std::chrono::steady_clock::now();
      const Status status = runner->run(Scope::kWhole, one.call);
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      ASSERT_FALSE(status.ok());
      // The other rank may have given up first.
      const bool names_the_limit =
          status.message().find("0.5 s (TUTTI_TIMEOUT") != std::string::npos;
      EXPECT_TRUE(names_the_limit || status.message().find("gave up") != std::string::npos)
          << status.message();
      EXPECT_LT(waited.count(), 20);
      Case again({.collective = Collective::kBarrier, .ranks = 3}, rank);
      const auto before = std::chrono::steady_clock::now();
      const Status later = runner->run(Scope::kWhole, again.call);
      EXPECT_NE(later.message().find("failed before"), std::string::npos) << later.message();
      EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(100));
    });
  }
}

TEST(DirectHost, run__what_it_does_not_carry_is_an_error_and_breaks_nothing) {
  ThreadWorld world(1);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto runner = create_runner(mpi, 1, 0);
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    Case one({.type = DataType::kInt32, .op = ReduceOp::kSum, .count = 3}, rank);
    Call call = one.call;
    call.collective = Collective::kScan;
    EXPECT_EQ((*runner)->run(Scope::kWhole, call).code(), ErrorCode::kUnsupported);
    call = one.call;
    call.op = ReduceOp::kUser;
    EXPECT_EQ((*runner)->run(Scope::kWhole, call).code(), ErrorCode::kUnsupported);
    EXPECT_EQ((*runner)->run(Scope::kNode, one.call).code(), ErrorCode::kUnsupported);
    EXPECT_TRUE((*runner)->run(Scope::kWhole, one.call).ok());
    EXPECT_EQ(one.wrong(), "");
  });
}

/// The bootstrap of ranks that are processes.
class ForkedMpi : public ThreadMpi {
 public:
  ForkedMpi(ThreadWorld& world, int rank, int ranks, test::Shared& shared)
      : ThreadMpi(world, 0), place_{rank, ranks}, shared_(shared) {}
  Status allgather(const void* send, void* recv, Bytes bytes_each) override {
    // One part of one rank after another through what the processes share.
    struct Part {
      unsigned char bytes[64];
    };
    for (int rank = 0; rank < place_.ranks; ++rank) {
      for (Bytes at = 0; at < bytes_each; at += sizeof(Part)) {
        Part part{};
        const Bytes bytes = std::min<Bytes>(sizeof(Part), bytes_each - at);
        std::memcpy(part.bytes, static_cast<const char*>(send) + at, bytes);
        part = shared_.from_rank_zero(rank == place_.rank ? 0 : 1, part);
        std::memcpy(static_cast<char*>(recv) + static_cast<Bytes>(rank) * bytes_each + at,
                    part.bytes, bytes);
      }
    }
    return {};
  }
  ScopeRank scope_rank(runners::Scope) const override { return place_; }

 private:
  ScopeRank place_;
  test::Shared& shared_;
};

std::string run_in_processes(int rank, test::Shared& shared,
                             const std::function<std::string(DirectHostRunner&)>& body,
                             double timeout_s) {
  ThreadWorld alone(1);
  ForkedMpi mpi(alone, rank, shared.ranks(), shared);
  auto runner = create_runner(mpi, timeout_s, smallest_ring(shared.ranks()));
  CHILD_OK(runner.status());
  shared.barrier();
  return body(**runner);
}

TEST(DirectHost, run__ranks_in_processes_of_their_own) {
  constexpr int kRanks = 3;
  EXPECT_EQ(test::in_ranks(kRanks,
                           [](int rank, test::Shared& shared) {
                             return run_in_processes(
                                 rank, shared,
                                 [rank](DirectHostRunner& runner) -> std::string {
                                   for (Given given : one_of_each_way(kRanks)) {
                                     for (int i = 0; i < kTurnsInProcesses; ++i) {
                                       given.seed += 1;
                                       Case one(given, rank);
                                       CHILD_OK(runner.run(Scope::kWhole, one.call));
                                       CHILD_EXPECT(one.wrong().empty(), one.wrong());
                                     }
                                   }
                                   return "";
                                 },
                                 60);
                           }),
            test::all_well(kRanks));
}

TEST(DirectHost, run__a_killed_rank_is_noticed_long_before_the_timeout) {
  constexpr int kRanks = 3;
  for (const Given& given : one_of_each_way(kRanks)) {
    const auto answers = test::in_ranks(kRanks, [&given](int rank, test::Shared& shared) {
      return run_in_processes(
          rank, shared,
          [&](DirectHostRunner& runner) -> std::string {
            if (rank == 1) {
              raise(SIGKILL);
            }
            Case one(given, rank);
            const auto start = std::chrono::steady_clock::now();
            const Status status = runner.run(Scope::kWhole, one.call);
            const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
            CHILD_EXPECT(!status.ok(), "a dead rank took part");
            const bool says_it = status.message().find("rank 1 has died") != std::string::npos ||
                                 status.message().find("gave up") != std::string::npos;
            CHILD_EXPECT(says_it, status.message());
            CHILD_EXPECT(waited.count() < 10, std::to_string(waited.count()) + " s");
            CHILD_EXPECT(!runner.run(Scope::kWhole, one.call).ok(), "it went on");
            return "";
          },
          1800);
    });
    EXPECT_EQ(answers, (std::vector<std::string>{"", "died of signal 9", ""})) << given.text();
  }
}

/// Nobody waits for ever for a rank that does not come, nor for one that waits for that.
TEST(DirectHost, meet__without_a_rank_that_has_freed_the_communicator_or_died) {
  constexpr int kRanks = 3;
  for (const bool dies : {false, true}) {
    const auto answers = test::in_ranks(kRanks, [dies](int rank, test::Shared& shared) {
      return run_in_processes(
          rank, shared,
          [&](DirectHostRunner& runner) -> std::string {
            if (rank == 2 && dies) {
              raise(SIGKILL);
            }
            if (rank == 1) {
              std::this_thread::sleep_for(std::chrono::seconds(dies ? 3 : 0));
            }
            if (rank == 2) {
              return "";  // Frees it.
            }
            std::array<int, kRanks> all{};
            const auto start = std::chrono::steady_clock::now();
            const Status told = runner.allgather_facts(&rank, all.data(), sizeof(rank));
            const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
            CHILD_EXPECT(!told.ok(), "a rank that is gone has told its facts");
            CHILD_EXPECT(waited.count() < 2.5, std::to_string(waited.count()) + " s");
            return "";
          },
          1800);
    });
    EXPECT_EQ(answers, (std::vector<std::string>{"", "", dies ? "died of signal 9" : ""}));
  }
}

// Late is not dead.
TEST(DirectHost, run__a_late_rank_whose_process_runs_is_waited_for_beyond_the_timeout) {
  constexpr int kRanks = 2;
  const auto answers = test::in_ranks(kRanks, [](int rank, test::Shared& shared) {
    return run_in_processes(
        rank, shared,
        [&](DirectHostRunner& runner) -> std::string {
          for (const Given& given : one_of_each_way(kRanks)) {
            if (rank == 1) {
              std::this_thread::sleep_for(std::chrono::milliseconds(700));
            }
            Case one(given, rank);
            CHILD_OK(runner.run(Scope::kWhole, one.call));
            CHILD_EXPECT(one.wrong().empty(), one.wrong());
          }
          return "";
        },
        /*timeout_s=*/0.1);
  });
  EXPECT_EQ(answers, test::all_well(kRanks));
}

TEST(DirectHost, run__a_rank_that_has_freed_the_communicator_is_not_waited_for) {
  constexpr int kRanks = 2;
  const auto answers = test::in_ranks(kRanks, [](int rank, test::Shared& shared) -> std::string {
    ThreadWorld alone(1);
    ForkedMpi mpi(alone, rank, kRanks, shared);
    auto runner = create_runner(mpi, /*timeout_s=*/1800, smallest_ring(kRanks));
    CHILD_OK(runner.status());
    shared.barrier();
    if (rank == 1) {
      runner->reset();
    } else {
      Given given;
      given.collective = Collective::kBarrier;
      given.ranks = kRanks;
      Case one(given, rank);
      const Status status = (*runner)->run(Scope::kWhole, one.call);
      CHILD_EXPECT(status.message().find("rank 1 has freed") != std::string::npos,
                   status.message());
    }
    shared.barrier();
    return "";
  });
  EXPECT_EQ(answers, test::all_well(kRanks));
}

/// Messages of a rank that made the call come, though it has freed the communicator since.
TEST(DirectHost, look_at_peers__a_rank_that_has_freed_the_communicator_after_the_call) {
  constexpr int kRanks = 2;
  const auto answers = test::in_ranks(kRanks, [](int rank, test::Shared& shared) -> std::string {
    ThreadWorld alone(1);
    ForkedMpi mpi(alone, rank, kRanks, shared);
    std::uint64_t calls = 0;
    auto runner = create_runner(mpi, /*timeout_s=*/1800, smallest_ring(kRanks), &calls);
    CHILD_OK(runner.status());
    calls = 1;
    HostArea::pass_by((*runner)->calls_line(), calls);
    shared.barrier();
    if (rank == 1) {
      runner->reset();
    }
    shared.barrier();
    if (rank == 0) {
      CHILD_OK((*runner)->look_at_peers(/*in_call=*/true));
      const Status in_none = (*runner)->look_at_peers(/*in_call=*/false);
      CHILD_EXPECT(in_none.code() == ErrorCode::kUnavailable, in_none.message());
      calls = 2;
      const Status in_next = (*runner)->look_at_peers(/*in_call=*/true);
      CHILD_EXPECT(in_next.message().find("without this call") != std::string::npos,
                   in_next.message());
    }
    shared.barrier();
    return "";
  });
  EXPECT_EQ(answers, test::all_well(kRanks));
}

TEST(DirectHost, create__without_memory_is_an_error_on_all_ranks) {
  ThreadWorld world(2);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto runner = create_runner(mpi, 1, Bytes{1} << 60);
    ASSERT_FALSE(runner.ok());
    EXPECT_NE(runner.status().message().find("rank 0: "), std::string::npos)
        << runner.status().message();
  });
}

TEST(HostProcess, runs__a_process_that_ended_or_whose_number_another_has_does_not) {
  HostProcess self = HostProcess::self();
  EXPECT_TRUE(self.runs());
  self.start_ticks += 1;
  EXPECT_FALSE(self.runs());
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  HostProcess ended = HostProcess::self();
  ended.number = child;
  ended.start_ticks = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (ended.runs() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(ended.runs());  // Nobody has asked for its end yet.
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(ended.runs());
  ended.number_space += 1;
  EXPECT_TRUE(ended.runs());  // There the number may be of one that runs.
  EXPECT_FALSE(ended.can_be_looked_at());
}

}  // namespace
}  // namespace tutti::runners
