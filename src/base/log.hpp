// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Log lines on stderr (or TUTTI_LOG_FILE), never on stdout: the library lives in other people's
// processes. Each line: "tutti host:pid rank LEVEL text". Safe from any thread; one write a line.
#pragma once

#include <string>

namespace tutti {

enum class LogLevel { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

/// True when a line of this level would be written (TUTTI_LOG_LEVEL, default warn).
bool log_enabled(LogLevel level);

/// Writes one line. The caller checks log_enabled() first where building the text costs something.
void log(LogLevel level, const std::string& text);

/// Writes a text of whole lines as it is, where log lines go, whatever their level.
void log_text(const std::string& text);

/// The rank shown in each line; -1 (the default) shows "-".
void set_log_rank(int world_rank);

/// Level and file ("" = stderr; %h and %p stand for host and pid). Called once by the engine's
/// start; before that errors and warnings go to stderr.
void configure_log(LogLevel level, const std::string& file);

}  // namespace tutti
