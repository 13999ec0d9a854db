// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The rounds of a collective's programs, for a carrier that has no requests of single messages and
// starts whole groups of them: a message's round is one more than the last round of what either of
// its ends waits for, 1 where neither waits. So both ends of a message are in the same round, and
// what a message waits for is in earlier ones.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/program.hpp"

namespace tutti::schedule {

/// By step of one rank's program: of a message its round, from 1; of a copy or a reduction the
/// round after which nothing it waits for is missing, 0: before the first. `programs`: of all
/// ranks, as validate() accepts them. Takes time and memory in proportion to all their steps.
std::vector<std::uint32_t> rounds_of(const std::vector<Program>& programs, int rank);

}  // namespace tutti::schedule
