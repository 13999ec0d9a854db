// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Invariant 2 and 7: each request and each connection ends once, the connection last, and with an
// error only if something that justifies it was done.
#pragma once

#include "simulation/records.hpp"

namespace tutti::transport::simulation::check_terminal {

/// Before the record takes the event.
void on_match_event(const ConnectionRecord& connection, int end, const Event& event);
void on_send_event(const ConnectionRecord& connection, int end, const Event& event);
void on_receive_event(const ConnectionRecord& connection, int end, const Event& event);
void on_connection_event(const ConnectionRecord& connection, int end, const Event& event);
/// At the end of the run.
void at_end(const ConnectionRecord& connection);

}  // namespace tutti::transport::simulation::check_terminal
