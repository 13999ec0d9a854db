// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a thread does between two looks at memory that another one is to write.
#pragma once

namespace tutti {

/// Lets the core's other thread run for some tens of nanoseconds.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace tutti
