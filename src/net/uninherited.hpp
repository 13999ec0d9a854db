// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Connections whose end tells a peer that this process has ended. A child of it (a data loader's
// worker) would hold them open for as long as it lives, so it gives up its copies at once.
#pragma once

#include "base/result.hpp"

namespace tutti::net {

/// From now until remove(), a forked child has /dev/null in its place: a number that the child's
/// copies of our objects may close. Errors: no memory.
Status add_uninherited(int descriptor);
/// Before it is closed.
void remove_uninherited(int descriptor);

}  // namespace tutti::net
