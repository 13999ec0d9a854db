# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The `tutti` command; each subcommand is a module of its name, and a name in COMMANDS."""

from __future__ import annotations

import importlib
from typing import Any

import click

from tutti_hpc import __version__, output

COMMANDS = (
    "run",
    "bench",
    "explain",
    "info",
    "topo",
    "config",
    "top",
    "tuning",
    "plot",
    "schedule",
    "sim",
    "lab",
    "path",
    "env",
)


class _Commands(click.Group):
    """Loads a subcommand's file when it is asked for."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Also what click prints by itself (--help) may meet a full disk."""
        output.pass_names_through()
        with output.broken_streams_in_one_line():
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with output.broken_streams_in_one_line():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"{__package__}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tutti")
def main() -> None:
    """Fast collective communication without changing the programs that call it.

    Commands that print data take --json and --csv. Data goes to stdout, all else to stderr.
    """
