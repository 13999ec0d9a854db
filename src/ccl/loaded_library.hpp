// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A library that open.cpp has loaded, as the table that ccl.cpp fills. Private to this room.
#pragma once

#include <memory>
#include <string>

#include "base/dynamic_library.hpp"
#include "ccl/ccl.hpp"
#include "ccl/search.hpp"

namespace tutti::ccl {

/// Errors: a symbol is missing, the version is below kMinimumVersion.
Result<std::unique_ptr<CclLibrary>> make_library(Brand brand, const DynamicLibrary& library,
                                                 const std::string& found_by);

}  // namespace tutti::ccl
