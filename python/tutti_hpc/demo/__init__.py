# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`make demo`: three comparisons on this machine, one picture. `__main__` runs them."""
