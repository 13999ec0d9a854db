// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors that a forked child closes: connections whose end tells a peer that this process has
// ended. A child (a data loader's worker) would hold them open for as long as it lives.
#pragma once

#include "base/result.hpp"

namespace tutti::net {

/// From now until remove_fork_closed_fd(), a forked child gets /dev/null under this number, which
/// the child's copies of our objects may close. Errors: no memory.
Status add_fork_closed_fd(int descriptor);
/// To be called before the descriptor is closed.
void remove_fork_closed_fd(int descriptor);

}  // namespace tutti::net
