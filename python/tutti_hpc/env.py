# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti env`: shell lines that switch a part of Tutti on."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tutti_hpc import output, paths

# The name in the plugin's table (src/nccl_net/adapters.cpp): with NCCL_NET a library that did not
# load the plugin ends with an error, where it would else use another network without a word.
NETWORK = "Tutti"


def nccl_net(plugin: Path, full_path: bool) -> list[str]:
    """The lines for NCCL and RCCL.

    A name in NCCL_NET_PLUGIN becomes libnccl-net-NAME.so or librccl-net-NAME.so in all releases,
    which the loader's path then finds. Releases before 2.22 do not understand a path there.
    """
    directory = shlex.quote(str(plugin.parent))
    value = shlex.quote(str(plugin)) if full_path else "tutti"
    return [
        f"export NCCL_NET_PLUGIN={value}",
        f"export NCCL_NET={NETWORK}",
        f'export LD_LIBRARY_PATH={directory}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"',
    ]


@click.command()
@click.argument("part", type=click.Choice(["nccl-net"]))
@click.option(
    "--full-path",
    is_flag=True,
    help="Name the plugin's file, for launchers that drop LD_LIBRARY_PATH; NCCL 2.22 and later.",
)
def command(part: str, full_path: bool) -> None:
    """Print shell lines that switch PART on, to be used as eval "$(tutti env nccl-net)".

    nccl-net makes NCCL and RCCL use Tutti's network plugin, and nothing else in its place.
    """
    plugin = paths.require(paths.NCCL_NET)
    output.echo("\n".join(nccl_net(plugin, full_path)))
