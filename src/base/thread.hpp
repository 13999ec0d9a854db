// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Threads in somebody's process.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/result.hpp"

namespace tutti {

/// A thread that takes none of the program's signals. `name`: its first 15 letters are shown.
/// Errors: the system gives none (kUnavailable).
Result<std::thread> start_thread(const std::string& name, std::function<void()> body);

}  // namespace tutti
