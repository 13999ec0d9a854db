# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti run`: a user's own command with Tutti preloaded into its MPI processes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from tutti_hpc import launch, output, paths, plan_names, terms
from tutti_hpc.errors import TuttiError


def plan_setting(text: str) -> tuple[str, str]:
    """`allreduce=8K:mpi,ccl` -> (`TUTTI_ALLREDUCE`, `8K:mpi,ccl`)."""
    name, equals, plans = text.partition("=")
    if not equals or not plans:
        raise click.UsageError(f"--plan {text}: write COLLECTIVE=PLANS, as in allreduce=8K:mpi,ccl")
    try:
        collective = terms.canonical_collective(name)
    except ValueError as error:
        raise click.UsageError(f"--plan {text}: {error}") from None
    plan_names.check(collective, plans, f"--plan {text}")
    return f"TUTTI_{collective.upper()}", plans


def settings(
    strict: bool, log_level: str | None, tuning_file: Path | None, plans: tuple[str, ...]
) -> dict[str, str]:
    """The TUTTI_* variables of the options."""
    found = dict(plan_setting(plan) for plan in plans)
    if strict:
        found["TUTTI_STRICT"] = "1"
    if log_level:
        found["TUTTI_LOG_LEVEL"] = log_level
    if tuning_file:
        found["TUTTI_TUNING_FILE"] = str(tuning_file.absolute())
    return found


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--strict", is_flag=True, help="A fall-back is an error.")
@click.option("--log-level", type=click.Choice(["error", "warn", "info", "debug"]))
@click.option(
    "--tuning-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tuning file in place of the user's and the system's.",
)
@click.option(
    "--plan",
    "plans",
    multiple=True,
    metavar="COLL=PLANS",
    help="Plans of a collective, as in allreduce=8K:mpi,ccl. May be repeated.",
)
@click.option("--print", "only_print", is_flag=True, help="Print what would run; run nothing.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    strict: bool,
    log_level: str | None,
    tuning_file: Path | None,
    plans: tuple[str, ...],
    only_print: bool,
    words: tuple[str, ...],
) -> None:
    """Run CMD, usually an MPI launcher, with Tutti in its processes.

    Example: tutti run -- mpirun -n 4 ./app
    """
    preload = paths.require(paths.PRELOAD)
    chosen = settings(strict, log_level, tuning_file, plans)
    env = launch.environment(os.environ, preload, chosen)
    plan_names.check_variables(env)
    final = launch.user_command(words, env, preload)
    dropped = launch.dropped_environment(final, env)
    if dropped:
        output.note(
            f"'{dropped}' keeps the environment from the ranks, so Tutti may not be loaded; "
            "remedy: let LD_PRELOAD and TUTTI_* through"
        )
    lost = launch.lost_preload(final, preload)
    if lost:
        output.note(
            f"'{lost}' sets LD_PRELOAD, so Tutti may not be loaded; remedy: name {preload} at the "
            "end of its value"
        )
    if only_print:
        changed = {name: value for name, value in env.items() if os.environ.get(name) != value}
        shown = [f"{name}={shlex.quote(value)}" for name, value in sorted(changed.items())]
        output.echo(" ".join([*shown, shlex.join(final)]))
        return
    try:
        os.execvpe(final[0], final, env)
    except OSError as error:
        raise TuttiError(f"{final[0]}: {error.strerror}") from None
