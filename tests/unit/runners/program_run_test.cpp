// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Programs of all ranks run in one thread over messages in memory that complete in any order.
#include "runners/program_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.hpp"
#include "schedule/algorithm.hpp"
#include "support/collective_cases.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {
namespace {

using schedule::Algorithm;
using schedule::Parameters;
using testing::CollectiveCase;

/// What is under way between all ranks: of each sender, receiver and tag one message, which comes
/// together with its receive at a time that the seed says.
class Mail {
 public:
  explicit Mail(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t draw_below(std::uint64_t limit) { return draw(seed_, 0, ++drawn_) % limit; }

  struct Half {
    std::byte* data = nullptr;
    Bytes bytes = 0;
    int slot = -1;
    bool is_done = false;
  };
  struct Letter {
    Half send;
    Half receive;
  };
  std::map<std::tuple<int, int, int>, Letter> letters;  ///< By sender, receiver, tag.
  int dead_rank = -1;

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

class MemoryCarrier : public Carrier {
 public:
  MemoryCarrier(Mail& mail, int rank) : mail_(mail), rank_(rank) {}

  Status isend(const void* data, Bytes bytes, int peer, int tag, int slot) override {
    auto* const first = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    return post(mail_.letters[{rank_, peer, tag}].send, {first, bytes, slot, false}, peer);
  }
  Status irecv(void* data, Bytes bytes, int peer, int tag, int slot) override {
    return post(mail_.letters[{peer, rank_, tag}].receive,
                {static_cast<std::byte*>(data), bytes, slot, false}, peer);
  }
  /// Delivers some of what can be delivered, each end at a time of its own.
  Status test_some(int slots, std::vector<int>* completed) override {
    for (auto& [route, letter] : mail_.letters) {
      const bool is_sender = std::get<0>(route) == rank_;
      Mail::Half& mine = is_sender ? letter.send : letter.receive;
      const Mail::Half& other = is_sender ? letter.receive : letter.send;
      if ((!is_sender && std::get<1>(route) != rank_) || mine.slot < 0 || mine.is_done) {
        continue;
      }
      if (other.slot < 0) {
        const int peer = is_sender ? std::get<1>(route) : std::get<0>(route);
        if (peer == mail_.dead_rank) {
          return Status(ErrorCode::kTimeout, "rank " + std::to_string(peer) + " is gone");
        }
        continue;
      }
      if (other.bytes != mine.bytes) {
        return Status(ErrorCode::kInvalidArgument, "the ends of a message differ");
      }
      if (mail_.draw_below(3) == 0) {
        continue;
      }
      if (!is_sender && mine.bytes > 0) {
        std::memcpy(mine.data, other.data, mine.bytes);
      }
      // A send ends when the peer has received it.
      if (is_sender && !other.is_done) {
        continue;
      }
      EXPECT_LT(mine.slot, slots);
      completed->push_back(mine.slot);
      mine.is_done = true;
    }
    // In any order.
    for (std::size_t i = completed->size(); i > 1; --i) {
      std::swap((*completed)[i - 1], (*completed)[mail_.draw_below(i)]);
    }
    return {};
  }
  Status reduce_local(const void* in, void* inout, std::uint64_t count, const Call&) override {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::int64_t a = 0;
      std::int64_t b = 0;
      std::memcpy(&a, static_cast<const std::byte*>(in) + i * 8, 8);
      std::memcpy(&b, static_cast<std::byte*>(inout) + i * 8, 8);
      b += a;
      std::memcpy(static_cast<std::byte*>(inout) + i * 8, &b, 8);
    }
    return {};
  }

 private:
  static Status post(Mail::Half& half, const Mail::Half& with, int peer) {
    if (half.slot >= 0) {
      return Status(ErrorCode::kInvalidArgument,
                    "a message to or from rank " + std::to_string(peer) + " is there twice");
    }
    half = with;
    return {};
  }

  Mail& mail_;
  int rank_;
};

/// One rank with its buffers.
struct Rank {
  Rank(const Algorithm& algorithm, const topology::Layout& layout, int rank, int root,
       std::uint64_t count, const Parameters& parameters, Mail& mail)
      : test(algorithm.collective, rank, layout.ranks(), root, count, false, false),
        prepared(schedule::generate(
            algorithm, {layout, problem_of(test.call, layout.ranks()), rank, parameters})),
        scratch(prepared.program.scratch_count * test.call.element_bytes + 1),
        carrier(mail, rank),
        running(carrier) {
    const bool is_bcast = test.call.collective == select::Collective::kBcast;
    ProgramBuffers bases;
    bases.element_bytes = test.call.element_bytes;
    bases.base[0] =
        static_cast<std::byte*>(const_cast<void*>(is_bcast ? test.call.recv : test.call.send));
    bases.base[1] = static_cast<std::byte*>(test.call.recv);
    bases.base[2] = scratch.data();
    running.start(prepared, test.call, bases);
  }

  CollectiveCase test;
  PreparedProgram prepared;
  std::vector<std::byte> scratch;
  MemoryCarrier carrier;
  ProgramRun running;
};

using Ranks = std::deque<std::unique_ptr<Rank>>;

/// Lets the ranks run in turns, in any order; empty: all are done and right.
std::string run_all(Ranks& ranks, Mail& mail) {
  constexpr int kTurnsMax = 200'000;
  std::vector<std::size_t> running(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    running[i] = i;
  }
  for (int turn = 0; !running.empty(); ++turn) {
    if (turn > kTurnsMax) {
      return "rank " + std::to_string(running.front()) + " waits for " +
             ranks[running.front()]->running.waits_for();
    }
    const std::size_t at = mail.draw_below(running.size());
    const Status status = ranks[running[at]]->running.advance();
    if (!status.ok()) {
      return status.message();
    }
    if (ranks[running[at]]->running.is_done()) {
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (const std::uint64_t wrong = ranks[i]->test.wrong(); wrong > 0) {
      return "rank " + std::to_string(i) + ": " + std::to_string(wrong) + " wrong elements";
    }
  }
  return "";
}

topology::Layout layout_of(int ranks, int nodes) {
  std::vector<std::uint64_t> identities;
  for (int rank = 0; rank < ranks; ++rank) {
    identities.push_back(static_cast<std::uint64_t>(rank * rank % nodes));
  }
  return topology::make_layout(identities);
}

class ProgramOf : public ::testing::TestWithParam<int> {};

TEST_P(ProgramOf, GivesWhatTheDefinitionSaysInWhateverOrderMessagesCome) {
  const Algorithm& algorithm = schedule::algorithms()[static_cast<std::size_t>(GetParam())];
  std::uint64_t seed = 0;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const topology::Layout layout = layout_of(ranks, 3);
    for (const std::uint64_t count : {0U, 1U, 67U, 5000U}) {
      for (const int root : {0, ranks - 1}) {
        for (const Parameters parameters : {Parameters{}, Parameters{3, 3}}) {
          if (algorithm.collective == select::Collective::kBarrier && count > 0) {
            continue;
          }
          Mail mail(++seed);
          Ranks all;
          const CollectiveCase probe(algorithm.collective, 0, ranks, root, count, false, false);
          const schedule::Problem problem = problem_of(probe.call, ranks);
          if (algorithm.refusal != nullptr &&
              !algorithm.refusal({layout, problem, 0, parameters}).empty()) {
            continue;
          }
          for (int rank = 0; rank < ranks; ++rank) {
            all.push_back(
                std::make_unique<Rank>(algorithm, layout, rank, root, count, parameters, mail));
          }
          ASSERT_EQ(run_all(all, mail), "")
              << ranks << " ranks, root " << root << ", count " << count << ", segments "
              << parameters.segments << ", seed " << seed;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ProgramOf,
                         ::testing::Range(0, static_cast<int>(schedule::algorithms().size())));

TEST(ProgramRun, CanBeStartedAgain) {
  const Algorithm& ring = *schedule::find_algorithm(select::Collective::kAllgather, "ring");
  const topology::Layout layout = topology::regular_layout(1, 3);
  Mail mail(1);
  Ranks all;
  for (int rank = 0; rank < 3; ++rank) {
    all.push_back(std::make_unique<Rank>(ring, layout, rank, 0, 10, Parameters{}, mail));
  }
  ASSERT_EQ(run_all(all, mail), "");
  mail.letters.clear();
  for (auto& rank : all) {
    ProgramBuffers bases;
    bases.element_bytes = rank->test.call.element_bytes;
    bases.base[0] = static_cast<std::byte*>(const_cast<void*>(rank->test.call.send));
    bases.base[1] = static_cast<std::byte*>(rank->test.call.recv);
    bases.base[2] = rank->scratch.data();
    std::memset(rank->test.call.recv, 0xa5, 3 * 10 * 8);
    rank->running.start(rank->prepared, rank->test.call, bases);
    ASSERT_FALSE(rank->running.is_done());
  }
  ASSERT_EQ(run_all(all, mail), "");
}

TEST(ProgramRun, ADeadRankIsAnErrorOfWhoWaitsForIt) {
  const Algorithm& ring = *schedule::find_algorithm(select::Collective::kAllgather, "ring");
  const topology::Layout layout = topology::regular_layout(1, 3);
  Mail mail(2);
  mail.dead_rank = 2;
  Ranks all;
  for (int rank = 0; rank < 2; ++rank) {
    all.push_back(std::make_unique<Rank>(ring, layout, rank, 0, 10, Parameters{}, mail));
  }
  EXPECT_EQ(run_all(all, mail), "rank 2 is gone");
}

TEST(ProgramRun, SaysForWhomItWaits) {
  const Algorithm& linear = *schedule::find_algorithm(select::Collective::kAllgather, "linear");
  const topology::Layout layout = topology::regular_layout(1, 12);
  for (const auto& [ranks, waits_for] :
       {std::pair{2, "rank 1"}, std::pair{4, "ranks 1, 2, 3"},
        std::pair{12, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 others"}}) {
    Mail mail(3);
    Rank alone(linear, topology::regular_layout(1, ranks), 0, 0, 10, Parameters{}, mail);
    ASSERT_TRUE(alone.running.advance().ok());
    EXPECT_EQ(alone.running.waits_for(), waits_for);
  }
}

TEST(ProgramRun, RanksThatMakeAnotherCallAreAnError) {
  const Algorithm& ring = *schedule::find_algorithm(select::Collective::kAllgather, "ring");
  const topology::Layout layout = topology::regular_layout(1, 2);
  Mail mail(4);
  Ranks all;
  all.push_back(std::make_unique<Rank>(ring, layout, 0, 0, 10, Parameters{}, mail));
  all.push_back(std::make_unique<Rank>(ring, layout, 1, 0, 11, Parameters{}, mail));
  EXPECT_EQ(run_all(all, mail), "the ends of a message differ");
}

}  // namespace
}  // namespace tutti::runners
