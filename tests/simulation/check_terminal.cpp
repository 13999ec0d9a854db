// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/check_terminal.hpp"

#include <algorithm>

namespace tutti::transport::simulation::check_terminal {
namespace {

// Requests that end with the connection carry a reason that the connection's own end explains.
bool is_justified(const ConnectionRecord& connection, int end, Outcome outcome,
                  bool was_cancelled) {
  const EndRecord& here = connection.ends[end];
  const EndRecord& there = connection.ends[1 - end];
  switch (outcome) {
    case Outcome::kOk:
      return true;
    case Outcome::kCancelled:
      return was_cancelled;
    case Outcome::kTruncated:
      return true;  // check_delivery knows which are too long.
    case Outcome::kClosed:
      return here.has_closed || there.has_closed;
    case Outcome::kAborted:
      return here.has_aborted;
    case Outcome::kReset:
      return there.has_aborted || (there.is_done && there.outcome != Outcome::kOk);
    case Outcome::kUnreachable:
      // One whose end the other side missed is silent, too.
      return connection.is_hopeless() || there.has_crashed || there.is_done;
  }
  return false;
}

[[noreturn]] void unjustified(const ConnectionRecord& connection, int end, const char* what,
                              Outcome outcome) {
  fail("outcome", name_of(connection, end) + ": a " + what + " ended as '" + to_string(outcome) +
                      "', which nothing justifies");
}

}  // namespace

void on_match_event(const ConnectionRecord& connection, int end, const Event& event) {
  const EndRecord& here = connection.ends[end];
  if (here.is_done || event.context >= here.sends.size() || here.sends[event.context].is_done) {
    fail("one_event", name_of(connection, end) + ": a match of a send that is not there");
  }
  const SendRecord& send = here.sends[event.context];
  if (!send.tells_match || send.slot != kNoSlot || event.slot == kNoSlot) {
    fail("one_event",
         name_of(connection, end) + ": a match that was told before, or not asked for");
  }
  if (std::ranges::any_of(here.sends,
                          [&](const SendRecord& it) { return it.slot == event.slot; })) {
    fail("outcome", name_of(connection, end) + ": two sends are matched with one receive");
  }
}

void on_send_event(const ConnectionRecord& connection, int end, const Event& event) {
  const EndRecord& here = connection.ends[end];
  if (here.is_done || event.context >= here.sends.size() || here.sends[event.context].is_done) {
    fail("one_event", name_of(connection, end) + ": a send ended twice, or after its connection");
  }
  const SendRecord& send = here.sends[event.context];
  const bool is_told = send.slot != kNoSlot;
  if (event.outcome == Outcome::kOk ? is_told != send.tells_match
                                    : is_told && event.outcome == Outcome::kTruncated) {
    fail("one_event", name_of(connection, end) + ": a match was not told, or of no delivery");
  }
  if (!is_justified(connection, end, event.outcome,
                    send.is_cancelled || connection.knobs.has_cancels())) {
    unjustified(connection, end, "send", event.outcome);
  }
  if (event.outcome == Outcome::kOk && event.part_bytes[0] != send.data.size()) {
    fail("outcome", name_of(connection, end) + ": a send of " + std::to_string(send.data.size()) +
                        " bytes reports " + std::to_string(event.part_bytes[0]));
  }
}

void on_receive_event(const ConnectionRecord& connection, int end, const Event& event) {
  const EndRecord& here = connection.ends[end];
  if (here.is_done || event.context >= here.receives.size() ||
      here.receives[event.context].is_done) {
    fail("one_event",
         name_of(connection, end) + ": a receive ended twice, or after its connection");
  }
  if (event.part_count != here.receives[event.context].parts.size()) {
    fail("one_event", name_of(connection, end) + ": a receive reports another number of parts");
  }
  if (!is_justified(connection, end, event.outcome, connection.knobs.has_cancels())) {
    unjustified(connection, end, "receive", event.outcome);
  }
}

void on_connection_event(const ConnectionRecord& connection, int end, const Event& event) {
  const EndRecord& here = connection.ends[end];
  const EndRecord& there = connection.ends[1 - end];
  if (here.is_done) {
    fail("one_event", name_of(connection, end) + ": the connection ended twice");
  }
  if (here.sends_done != here.sends.size() || here.receives_done != here.receives.size()) {
    fail("one_event", name_of(connection, end) + ": a request did not end before its connection");
  }
  const bool is_fine = event.outcome == Outcome::kOk
                           ? here.has_closed || there.has_closed
                           : is_justified(connection, end, event.outcome, false);
  if (!is_fine) {
    unjustified(connection, end, "connection", event.outcome);
  }
}

void at_end(const ConnectionRecord& connection) {
  for (int end = 0; end < 2; ++end) {
    const EndRecord& here = connection.ends[end];
    if (!here.has_crashed && !here.is_done) {
      fail("liveness", name_of(connection, end) + ": never ended");
    }
  }
}

}  // namespace tutti::transport::simulation::check_terminal
