// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The words in host memory by which DirectRunner and its kernels tell each other of an end.
#pragma once

#include <array>

#include "runners/direct/direct_runner.hpp"

namespace tutti::runners {

namespace kernels = device::kernels;

struct DirectRunner::Control {
  alignas(64) std::array<kernels::Wide, kDirectBlocksMax> done;  ///< By block.
  alignas(64) kernels::Word abort;
  alignas(64) kernels::Word failed;
  /// A launch of a graph has waited for longer than it may, and waits on.
  alignas(64) kernels::Word overdue;
  /// Set before anything is ended: what stands behind another runner's call must not begin.
  alignas(64) kernels::Word closed;
};

}  // namespace tutti::runners
