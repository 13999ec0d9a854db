// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A sanitizer makes code several times slower and looks at memory or threads, not at results: of
// long lists of inputs, which the build without one goes through as a whole, it gets a part.
#pragma once

namespace tutti {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace tutti
