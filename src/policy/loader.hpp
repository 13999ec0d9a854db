// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Loads a transport policy (include/tutti/transport_policy.h) from a shared object. Not its use: a
// connection takes the table in its options. Apart from the transport because that opens no file.
#pragma once

#include <string>

#include "base/result.hpp"
#include "tutti/transport_policy.h"

namespace tutti::policy {

/// Of the object at `path`, which stays loaded for good. An empty path: null, no policy. Errors: it
/// cannot be loaded (kUnavailable), it exports no policy or one of another version (kUnsupported).
Result<const tutti_transport_policy*> load_transport_policy(const std::string& path);

}  // namespace tutti::policy
