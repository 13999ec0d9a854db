// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// This host's name.
#pragma once

#include <string>

namespace tutti {

/// Of this host, for people and file names; "unknown" where it has none.
std::string host_name();

}  // namespace tutti
