// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How many files, sockets and the like this process may have open (ulimit -n).
#pragma once

#include <string>

namespace tutti {

/// Most that it may have; raising that is its user's business.
int descriptors_max();

/// How many more it may open now. Others open some meanwhile.
int descriptors_left();

/// What errno says about a call that should have given one, with a remedy where the limit is why.
std::string why_no_descriptor();

}  // namespace tutti
