# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tutti_hpc` is the `tutti` command."""

from tutti_hpc.cli import main

main()
