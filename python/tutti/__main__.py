# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tutti` is the `tutti` command."""

from tutti.cli import main

main()
