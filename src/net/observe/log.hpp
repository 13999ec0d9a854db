// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Where a Network's messages go: its opener decides. Called by any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tutti::net {

enum class LogKind : std::uint8_t { kWarning, kInfo, kTrace };
using Log = std::function<void(LogKind, const std::string&)>;

}  // namespace tutti::net
