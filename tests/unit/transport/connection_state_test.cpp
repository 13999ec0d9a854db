// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The table of a connection's states: what holds for every row, and the lives that it allows. That
// a connection keeps to it: endpoint_test.cpp, and check_invariants in the property tests.
#include "transport/connection_state.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <set>
#include <utility>

namespace tutti::transport {
namespace {

using State = ConnectionState;
using On = ConnectionEvent;

/// Where these events lead from `state`; those without a row change nothing.
State after(State state, std::initializer_list<On> events) {
  for (const On event : events) {
    const ConnectionTransition* const step = find_transition(state, event);
    state = step == nullptr ? state : step->to;
  }
  return state;
}

TEST(connection_state, find_transition__gives_each_row_and_nothing_else) {
  std::set<std::pair<State, On>> rows;
  for (const ConnectionTransition& row : kConnectionTransitions) {
    EXPECT_TRUE(rows.emplace(row.from, row.event).second) << "two rows of one state and event";
    EXPECT_EQ(&row, find_transition(row.from, row.event));
  }
  std::size_t found = 0;
  for (std::size_t state = 0; state < kConnectionStates; ++state) {
    for (std::size_t event = 0; event < kConnectionEvents; ++event) {
      found += find_transition(static_cast<State>(state), static_cast<On>(event)) != nullptr;
    }
  }
  EXPECT_EQ(kConnectionTransitions.size(), found);
}

TEST(connection_state, transitions__lead_forward_and_end) {
  for (const ConnectionTransition& row : kConnectionTransitions) {
    EXPECT_LT(row.from, row.to);
    EXPECT_NE(State::kForgotten, row.from);
  }
  EXPECT_EQ(static_cast<std::size_t>(State::kForgotten) + 1, kConnectionStates);
  EXPECT_EQ(static_cast<std::size_t>(On::kLingerElapsed) + 1, kConnectionEvents);
}

TEST(connection_state, transitions__any_state_with_open_requests_can_fail) {
  for (const State state : {State::kOpen, State::kDraining, State::kClosing}) {
    for (const auto& [event, outcome, tells] :
         {std::tuple{On::kAbort, Outcome::kAborted, EndPacket::kReset},
          std::tuple{On::kPeerReset, Outcome::kReset, EndPacket::kNone},
          std::tuple{On::kPeerSilent, Outcome::kUnreachable, EndPacket::kNone},
          std::tuple{On::kPeerClose, Outcome::kOk, EndPacket::kCloseAck}}) {
      const ConnectionTransition* const step = find_transition(state, event);
      ASSERT_NE(nullptr, step);
      EXPECT_EQ(State::kEnded, step->to);
      EXPECT_EQ(outcome, step->outcome);
      EXPECT_EQ(tells, step->tells);
    }
  }
}

TEST(connection_state, transitions__only_the_end_has_an_outcome) {
  for (const ConnectionTransition& row : kConnectionTransitions) {
    EXPECT_TRUE(row.to == State::kEnded || row.outcome == Outcome::kOk);
    EXPECT_TRUE(row.to <= State::kEnded || row.tells == EndPacket::kNone);
  }
}

TEST(connection_state, transitions__a_close_in_order) {
  EXPECT_EQ(State::kDraining, after(State::kOpen, {On::kClose}));
  EXPECT_EQ(State::kClosing, after(State::kOpen, {On::kClose, On::kDrained}));
  EXPECT_EQ(EndPacket::kClose, find_transition(State::kDraining, On::kDrained)->tells);
  EXPECT_EQ(State::kEnded, after(State::kClosing, {On::kPeerCloseAck}));
  EXPECT_EQ(State::kForgotten, after(State::kEnded, {On::kEventTaken, On::kLingerElapsed}));
}

TEST(connection_state, transitions__the_end_is_reported_once_however_late) {
  EXPECT_EQ(State::kExpired, after(State::kEnded, {On::kLingerElapsed}));
  EXPECT_EQ(State::kForgotten, after(State::kExpired, {On::kEventTaken}));
  EXPECT_EQ(State::kReported, after(State::kEnded, {On::kEventTaken, On::kEventTaken}));
  for (const State state : {State::kOpen, State::kDraining, State::kClosing}) {
    EXPECT_EQ(nullptr, find_transition(state, On::kEventTaken));
  }
}

TEST(connection_state, transitions__what_does_not_fit_changes_nothing) {
  EXPECT_EQ(State::kOpen,
            after(State::kOpen, {On::kDrained, On::kPeerCloseAck, On::kBothDraining}));
  EXPECT_EQ(State::kDraining, after(State::kDraining, {On::kClose, On::kPeerCloseAck}));
  EXPECT_EQ(State::kClosing, after(State::kClosing, {On::kClose, On::kBothDraining}));
  EXPECT_EQ(State::kEnded, after(State::kEnded, {On::kClose, On::kAbort, On::kPeerReset}));
}

}  // namespace
}  // namespace tutti::transport
