// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Sizes in bytes as people write them. K, M, G, T are binary (1024), as in NCCL's and UCX's
// options; "KiB", "KB" and "K" mean the same; case does not matter; "inf" is kBytesMax.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti {

using Bytes = std::uint64_t;
inline constexpr Bytes kBytesMax = UINT64_MAX;

/// "64K" -> 65536. Errors: not a number, unknown suffix, over 64 bits.
Result<Bytes> parse_bytes(std::string_view text);

/// 65536 -> "64K", 100 -> "100", kBytesMax -> "inf"; exact: parse_bytes(format_bytes(x)) == x.
std::string format_bytes(Bytes bytes);

/// Edit distance (Levenshtein), for "did you mean" in messages.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace tutti
