// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Names of files that several processes write, as users give them.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

/// %h is the host, %p the process; anything else stays as it is.
std::string expand_file_name(std::string_view pattern);

/// The same, for a file that no two processes may share: without a %p the process's number stands
/// before the ending ("x.json" -> "x.4711.json").
std::string expand_own_file_name(std::string_view pattern);

/// "x.4711.json", "2" -> "x.4711.2.json"
std::string before_ending(std::string_view file, std::string_view word);

}  // namespace tutti
