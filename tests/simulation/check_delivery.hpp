// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Invariants 1, 2 and 10: every message is delivered once, whole, in the order of its tag, and only
// where it was posted; nothing is written after the end was reported; a send ends only after the
// receiver holds its bytes; and what was delivered is what a naive reliable model delivers.
#pragma once

#include "simulation/records.hpp"

namespace tutti::transport::simulation::check_delivery {

/// A send ended well: its bytes lie in a receive of the peer (which may have more parts to come).
void on_send_done(const ConnectionRecord& connection, int end, const SendRecord& send);
/// Fills the digests of a receive that ended.
void on_receive_done(const ConnectionRecord& connection, int end, ReceiveRecord& receive);
/// At the end of the run.
void at_end(const ConnectionRecord& connection);

}  // namespace tutti::transport::simulation::check_delivery
