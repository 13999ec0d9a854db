// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The messages of one link, checked byte for byte. Both ends know sizes, tags and contents by the
// seed. As in NCCL, only the oldest unfinished request is ever tested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rank.hpp"

namespace tutti::driver {

/// What goes over a link.
struct Script {
  struct Message {
    std::size_t bytes = 0;
    int tag = 0;
    std::uint64_t seed = 0;
  };
  std::vector<Message> messages;         ///< In the order of the receives' parts.
  std::vector<std::size_t> group_begin;  ///< Of each receive; one more at the end.
  std::vector<std::size_t> send_order;

  /// `group_max`: parts of a receive.
  Script(const Options& options, const Edge& edge, int group_max);
};

/// Any bytes that a plugin may not touch, or has not touched yet.
inline constexpr std::byte kUntouched{0xa5};

void fill(std::span<std::byte> data, std::uint64_t seed);
/// The first offset that is not as fill() made it; data.size(): none.
std::size_t first_difference(std::span<const std::byte> data, std::uint64_t seed);

class Flow {
 public:
  Flow(const Link& link, Script script, int window)
      : link_(link), script_(std::move(script)), window_(static_cast<std::size_t>(window)) {}
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  virtual ~Flow() = default;

  /// Posts what fits and tests the oldest. True: something has happened.
  bool step();

  bool is_over() const { return error_ != Result::kSuccess || finished_ == count(); }
  Result error() const { return error_; }
  std::size_t finished() const { return finished_; }
  const Link& link() const { return link_; }
  /// Errors are for the caller to judge.
  void expect_errors() { expects_errors_ = true; }
  /// Begins again when all messages are through.
  void run_for_ever() { runs_for_ever_ = true; }
  std::size_t unfinished() const { return pending_; }

 protected:
  /// Requests of the whole script.
  virtual std::size_t count() const = 0;
  /// Posts request `index`; null: not now.
  virtual Result post(std::size_t index, void** request) = 0;
  /// Of the oldest; checks it when it is done.
  virtual Result test(std::size_t index, void* request, int* done) = 0;

  Report& report() const { return link_.session->rank.report; }
  NetPlugin& plugin() const { return link_.plugin(); }
  void fail(Result result, const char* call);

  Link link_;
  Script script_;
  std::size_t window_;

 private:
  std::deque<void*> requests_;
  std::size_t pending_ = 0;
  std::size_t posted_ = 0;
  std::size_t finished_ = 0;
  bool expects_errors_ = false;
  bool runs_for_ever_ = false;
  Result error_ = Result::kSuccess;
};

/// `group_max` 0: no grouped receives.
std::unique_ptr<Flow> make_flow(const Link& link, int group_max = 1);

/// Steps until all are over.
void run(std::span<const std::unique_ptr<Flow>> flows);

}  // namespace tutti::driver
