// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The statistics of a Network as Prometheus reads them from a file (its text format, version 0.0.4:
// HELP, TYPE, then the samples of each metric together). Names carry base units: bytes, seconds.
// Of each engine all its counters, of each connection the few that tell how it does; single paths
// are left to `tutti top`.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "net/observe/statistics.hpp"

namespace tutti::net {

std::string metrics_text(const Statistics& statistics);

/// A label's value between its quotes. What is not ASCII becomes a question mark: a peer's name
/// comes from the peer, and one bad byte would make the whole file useless.
std::string escape_label(std::string_view text);

/// A reader of the file sees the old text or the new one. Errors name the file (kUnavailable).
Status write_atomically(const std::string& file, std::string_view text);

}  // namespace tutti::net
