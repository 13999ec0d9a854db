// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Unpacks raw LZMA1 streams with the usual parameters (lc=3, lp=0, pb=2), as Python's lzma module
// writes them with FORMAT_RAW. Format: Igor Pavlov's LZMA specification (2015). No container: the
// size comes from the caller.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace tutti {

/// The `bytes` bytes of which `packed` was made. Error: the stream is damaged.
Result<std::vector<unsigned char>> unpack_lzma(std::span<const unsigned char> packed,
                                               std::size_t bytes);

}  // namespace tutti
