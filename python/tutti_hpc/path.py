# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti path`: where an installed part of Tutti is, for scripts."""

from __future__ import annotations

import click

from tutti_hpc import output, paths

PARTS = {
    "nccl-net": paths.NCCL_NET,
    "rccl-net": paths.RCCL_NET,
    "mpi": paths.PRELOAD,
    "library": paths.LIBRARY,
}


@click.command()
@click.argument("part", type=click.Choice(list(PARTS)))
def command(part: str) -> None:
    """Print the path of PART.

    nccl-net and rccl-net are the network plugin under the names that NCCL and RCCL look for, mpi is
    what `tutti run` preloads, library has the C API.
    """
    output.echo(str(paths.require(PARTS[part])))
