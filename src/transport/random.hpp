// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The transport's generator, for choices among paths: the one of base.
#pragma once

#include "base/random.hpp"

namespace tutti::transport {

using tutti::Random;

}  // namespace tutti::transport
