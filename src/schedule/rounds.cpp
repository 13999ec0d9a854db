// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/rounds.hpp"

#include <algorithm>
#include <tuple>

#include "base/check.hpp"

namespace tutti::schedule {
namespace {

bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
}

/// The programs of all ranks, step behind step: a step's number is its rank's first plus its own.
class Rounds {
 public:
  explicit Rounds(const std::vector<Program>& programs) : programs_(programs) {
    for (const Program& program : programs) {
      first_.push_back(static_cast<std::uint32_t>(waits_for_.size()));
      for (const Step& step : program.steps) {
        waits_for_.push_back(step.dependency_count);
      }
    }
    const std::size_t steps = waits_for_.size();
    round_.assign(steps, 0);
    begun_.assign(steps, false);
    find_followers(steps);
    find_partners(steps);
    carry_out();
  }

  std::vector<std::uint32_t> of(int rank) const {
    const auto begin = round_.begin() + first_[static_cast<std::size_t>(rank)];
    return {begin, begin + static_cast<std::ptrdiff_t>(
                               programs_[static_cast<std::size_t>(rank)].steps.size())};
  }

 private:
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      for (std::uint32_t i = 0; i < programs_[rank].steps.size(); ++i) {
        visit(rank, first_[rank] + i, programs_[rank].steps[i]);
      }
    }
  }

  void find_followers(std::size_t steps) {
    first_follower_.assign(steps + 1, 0);
    const auto each = [&](auto visit) {
      for_each([&](std::size_t rank, std::uint32_t number, const Step& step) {
        for (const std::uint32_t before : programs_[rank].dependencies_of(step)) {
          visit(first_[rank] + before, number);
        }
      });
    };
    each([&](std::uint32_t before, std::uint32_t) { ++first_follower_[before + 1]; });
    for (std::size_t i = 0; i < steps; ++i) {
      first_follower_[i + 1] += first_follower_[i];
    }
    followers_.resize(first_follower_.back());
    std::vector<std::uint32_t> next = first_follower_;
    each([&](std::uint32_t before, std::uint32_t number) { followers_[next[before]++] = number; });
  }

  void find_partners(std::size_t steps) {
    using End = std::tuple<std::size_t, std::size_t, std::uint32_t, std::uint32_t>;
    std::vector<End> sends;  // From, to, tag, number.
    std::vector<End> recvs;
    for_each([&](std::size_t rank, std::uint32_t number, const Step& step) {
      const auto peer = static_cast<std::size_t>(step.peer);
      if (step.kind == StepKind::kSend) {
        sends.emplace_back(rank, peer, step.tag, number);
      } else if (step.kind == StepKind::kRecv) {
        recvs.emplace_back(peer, rank, step.tag, number);
      }
    });
    std::sort(sends.begin(), sends.end());
    std::sort(recvs.begin(), recvs.end());
    CHECK(sends.size() == recvs.size(), std::to_string(sends.size()) + " sends");
    partner_.resize(steps);
    for (std::size_t i = 0; i < sends.size(); ++i) {
      partner_[std::get<3>(sends[i])] = std::get<3>(recvs[i]);
      partner_[std::get<3>(recvs[i])] = std::get<3>(sends[i]);
    }
  }

  void carry_out() {
    for_each([&](std::size_t, std::uint32_t number, const Step& step) {
      message_.push_back(is_message(step));
      if (step.dependency_count == 0) {
        ready_.push_back(number);
      }
    });
    std::size_t done = 0;
    while (!ready_.empty()) {
      const std::uint32_t number = ready_.back();
      ready_.pop_back();
      begun_[number] = true;
      if (!message_[number]) {
        finish(number);
        ++done;
      } else if (const std::uint32_t other = partner_[number]; begun_[other]) {
        round_[number] = round_[other] = std::max(round_[number], round_[other]) + 1;
        finish(number);
        finish(other);
        done += 2;
      }
    }
    CHECK(done == round_.size(), std::to_string(round_.size() - done) + " steps wait for ever");
  }

  void finish(std::uint32_t number) {
    for (std::uint32_t i = first_follower_[number]; i < first_follower_[number + 1]; ++i) {
      const std::uint32_t follower = followers_[i];
      round_[follower] = std::max(round_[follower], round_[number]);
      if (--waits_for_[follower] == 0) {
        ready_.push_back(follower);
      }
    }
  }

  const std::vector<Program>& programs_;
  std::vector<std::uint32_t> first_;  ///< By rank: its first step's number.
  std::vector<std::uint32_t> waits_for_;
  std::vector<std::uint32_t> round_;  ///< Of a step that has not begun: of what it waited for.
  std::vector<bool> begun_;
  std::vector<bool> message_;
  std::vector<std::uint32_t> first_follower_;
  std::vector<std::uint32_t> followers_;
  std::vector<std::uint32_t> partner_;  ///< Of messages.
  std::vector<std::uint32_t> ready_;
};

}  // namespace

std::vector<std::uint32_t> rounds_of(const std::vector<Program>& programs, int rank) {
  return Rounds(programs).of(rank);
}

}  // namespace tutti::schedule
