# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti lab`: several hosts with several rails each on one machine, as a test bench for MPI jobs.

`plan` says what a lab is, `network` builds it through netlink, `packet_loss` makes its links lossy,
`holder` keeps it alive, `lifetime` starts it and enters it, `state` finds and ends it, `job` starts
MPI jobs in it.
"""

from tutti_hpc.lab.commands import command

__all__ = ["command"]
