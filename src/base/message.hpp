// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Words that several parsers put into their messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// 'text' as it may stand in a message: short, printable ASCII.
std::string in_quotes(std::string_view text);

/// The nearest of `names`, as "; did you mean 'x'?", or ", one of a, b, c" when none is near.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& names);

}  // namespace tutti
