// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Brings a NetRunner up among ranks that have met before, by any bootstrap: usable on every rank or
// on none. The communicators of a process share its network, which is there while one of them is.
#pragma once

#include <memory>
#include <string>

#include "runners/bootstrap.hpp"
#include "runners/net/net_runner.hpp"

namespace tutti::runners {

/// Collective. `options.layout` is set. Null, on all ranks: `refusal` says why, as this
/// rank knows it. Errors: the caller's bootstrap failed, and nothing was agreed.
Result<std::unique_ptr<NetRunner>> start_net_runner(Bootstrap& bootstrap,
                                                    const NetRunner::Options& options,
                                                    std::string* refusal);

}  // namespace tutti::runners
