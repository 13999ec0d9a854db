// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a process of this machine still runs, also when its number has gone to another since or
// when its parent has not asked for its end yet.
#pragma once

#include <compare>
#include <cstdint>

namespace tutti::runners {

/// Fixed size, to be sent as bytes.
struct HostProcess {
  std::int32_t number = 0;
  std::uint32_t number_space = 0;  ///< Its PID namespace: there the number is its own. 0: unknown.
  std::uint64_t start_ticks = 0;   ///< Since the machine's start; 0: unknown.

  static const HostProcess& self();
  /// True in doubt, where /proc cannot be read or has not the process's number.
  bool runs() const;
  /// Whether runs() is no doubt.
  bool can_be_looked_at() const { return can_be_looked_at_by(self()); }
  /// The same of another process than this one. `own`: self(), which costs more than the rest.
  bool is_another_known(const HostProcess& own = self()) const {
    return can_be_looked_at_by(own) && !(*this == own);
  }
  friend auto operator<=>(const HostProcess&, const HostProcess&) = default;

 private:
  bool can_be_looked_at_by(const HostProcess& own) const {
    return start_ticks != 0 && number_space != 0 && number_space == own.number_space;
  }
};

}  // namespace tutti::runners
