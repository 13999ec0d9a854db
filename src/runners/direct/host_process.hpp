// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a process of this machine still runs, also when its number has gone to another since or
// when its parent has not asked for its end yet.
#pragma once

#include <cstdint>

namespace tutti::runners {

/// Fixed size, to be sent as bytes.
struct HostProcess {
  std::int32_t number = 0;
  std::uint64_t start_ticks = 0;  ///< Since the machine's start; 0: unknown.

  static HostProcess self();
  /// True in doubt, where /proc cannot be read.
  bool runs() const;
  /// Another process than this one, of which runs() is no doubt.
  bool is_another_known() const { return start_ticks != 0 && !(*this == self()); }
  friend bool operator==(const HostProcess&, const HostProcess&) = default;
};

}  // namespace tutti::runners
