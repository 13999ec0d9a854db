# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The subcommands of `tutti lab`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from tutti_hpc import launch, linkage, mpi, output, paths, plan_names
from tutti_hpc.lab import job, lifetime, network, plan, state
from tutti_hpc.run import settings


def _parsed(parse: Callable[[str], int]) -> Callable[[click.Context, click.Parameter, str], int]:
    """A callback that turns an option's text into a number."""

    def callback(_: click.Context, __: click.Parameter, value: str | None) -> int:
        if value is None:
            return 0
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def rank_settings(library: mpi.Mpi, preload: bool, chosen: dict[str, str]) -> dict[str, str]:
    """Variables that a rank needs: where its MPI library is, and Tutti."""
    preload_library = paths.require(paths.PRELOAD) if preload else None
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in ("LD_PRELOAD", "LD_LIBRARY_PATH") or name.startswith("TUTTI_")
    }
    env = launch.environment(inherited, preload_library, chosen, library.library_directory)
    plan_names.check_variables(env)
    return env


@click.group()
@click.option(
    "--name",
    default=state.DEFAULT_NAME,
    show_default=True,
    help="Of the lab: there may be several.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where labs are kept; default /run/tutti-lab, or under XDG_RUNTIME_DIR.",
)
@click.pass_context
def command(context: click.Context, name: str, directory: Path | None) -> None:
    """Several hosts on one machine, with several shaped links each, for tests of MPI jobs."""
    base = directory.absolute() if directory else state.default_base()
    context.obj = state.Place(base, state.check_name(name))


@command.command()
@click.option("--nodes", type=click.IntRange(1, plan.NODES_MAX), default=2, show_default=True)
@click.option("--rails", type=click.IntRange(1, plan.RAILS_MAX), default=1, show_default=True)
@click.option(
    "--rate",
    default="100mbit",
    show_default=True,
    callback=_parsed(plan.parse_rate),
    help="Of each link in each direction.",
)
@click.option(
    "--fabric",
    default="flat",
    show_default=True,
    callback=_parsed(plan.parse_fabric),
    metavar="flat|leaf-spine:SPINES",
    help="One switch that never blocks, or a leaf for each node and so many spines.",
)
@click.option(
    "--spine-rate",
    callback=_parsed(plan.parse_rate),
    metavar="RATE",
    help="Of each link between a leaf and a spine; default: --rate.",
)
@click.option(
    "--loss",
    default="0%",
    show_default=True,
    callback=_parsed(plan.parse_loss),
    metavar="PERCENT",
    help="Of the packets on each link between a leaf and a spine, in each direction.",
)
@click.option(
    "--queue",
    default="80ms",
    show_default=True,
    callback=_parsed(plan.parse_queue),
    metavar="TIME",
    help="Longest wait in the queue of a link.",
)
@click.pass_obj
def up(
    place: state.Place,
    nodes: int,
    rails: int,
    rate: int,
    fabric: int,
    spine_rate: int,
    loss: int,
    queue: int,
) -> None:
    """Start a lab."""
    spec = plan.Spec(nodes, rails, rate, fabric, spine_rate, loss, queue)
    lifetime.up(place, spec)
    output.note(
        f"lab of {nodes} nodes with {rails} rails is up; end it with `{place.command('down')}`"
    )


@command.command()
@click.pass_obj
def down(place: state.Place) -> None:
    """End the lab and everything that runs in it."""
    output.note("the lab is down" if state.take_down(place) else "no lab is up")


@command.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("node")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_obj
def execute(place: state.Place, node: str, words: tuple[str, ...]) -> None:
    """Run CMD on NODE: n0, n1, ..., or head, which has the management network only.

    Example: tutti lab exec n0 -- python3 -m http.server
    """
    sys.exit(lifetime.run_in_box(place.require(), node, words, os.environ))


@command.command("shell", hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def shell(place: state.Place, words: tuple[str, ...]) -> None:
    """What a launcher calls in place of ssh: options, a host, words for its shell."""
    found = list(words)
    while found and found[0].startswith("-"):
        found.pop(0)
    if len(found) < 2:
        raise click.UsageError("HOST COMMAND...")
    line = " ".join(found[1:])
    # Nodes share the files of the machine, but number their processes alike, and launchers name
    # their temporary files by such numbers.
    temporary = place.directory / "tmp" / found[0]
    temporary.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "TMPDIR": str(temporary)}
    sys.exit(lifetime.run_in_box(place.require(), found[0], ["/bin/sh", "-c", line], env))


@command.command("run", context_settings={"ignore_unknown_options": True})
@click.option("-n", "--ranks", type=click.IntRange(1), required=True)
@click.option("--ppn", type=click.IntRange(1), default=1, show_default=True, help="Ranks per node.")
@click.option(
    "--mpi",
    "mpi_name",
    metavar="MPI",
    help="mpich, openmpi, abi, or a path; default: the MPI that CMD uses.",
)
@click.option("--striped", is_flag=True, help="Each rank uses all rails, not only its own.")
@click.option("--no-preload", is_flag=True, help="The MPI library alone, without Tutti.")
@click.option("--strict", is_flag=True, help="A fall-back is an error.")
@click.option("--log-level", type=click.Choice(["error", "warn", "info", "debug"]))
@click.option("--plan", "plans", multiple=True, metavar="COLL=PLANS", help="As in allgather=rings.")
@click.option("--print", "only_print", is_flag=True, help="Print what would run; run nothing.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_obj
def run(
    place: state.Place,
    ranks: int,
    ppn: int,
    mpi_name: str | None,
    striped: bool,
    no_preload: bool,
    strict: bool,
    log_level: str | None,
    plans: tuple[str, ...],
    only_print: bool,
    words: tuple[str, ...],
) -> None:
    """Run CMD as an MPI job across the nodes, local rank i on rail i, with Tutti in its processes.

    Example: tutti lab run -n 16 --ppn 4 --plan allgather=rings -- ./app
    """
    found = place.require()
    library = linkage.choose(words, mpi_name, job.refusal)
    chosen = rank_settings(library, not no_preload, settings(strict, log_level, None, plans))
    agent = place.directory / "agent"
    wanted = job.Job(ranks, ppn, words, striped, chosen)
    line = job.command(library, wanted, found.spec, agent)
    if only_print:
        output.echo(shlex.join(line))
        return
    env = job.environment(os.environ, library, agent)
    env = launch.environment(env, None, {}, library.library_directory)
    sys.exit(lifetime.run_in_box(found, plan.HEAD, line, env))


@command.command()
@click.pass_obj
@output.form_options
def links(place: state.Place, form: str) -> None:
    """Bytes sent over each link since the lab is up."""
    found = place.require()
    counted = network.counters(
        plan.make(found.spec), {name: box.pid for name, box in found.boxes.items()}
    )
    rows = [["from", "to", "bytes", "back", "dropped", "lost"]]
    for one in counted:
        numbers = (one.a_to_b_bytes, one.b_to_a_bytes, one.dropped_packets, one.lost_packets)
        rows.append([one.a, one.b, *map(str, numbers)])
    document = [asdict(one) for one in counted]
    output.show(
        form, text=lambda: output.columns(rows), document=document, records=lambda: document
    )


@command.command()
@click.argument("end", metavar="BOX:DEVICE")
@click.argument("wanted", type=click.Choice(["down", "up"]), metavar="down|up")
@click.pass_obj
def link(place: state.Place, end: str, wanted: str) -> None:
    """Pull a link or plug it in again, also while a job runs. `tutti lab links` lists the ends.

    Example: tutti lab link leaf0:up3 down
    """
    found = place.require()
    pids = {name: box.pid for name, box in found.boxes.items()}
    network.set_link(plan.make(found.spec), pids, end, wanted == "up")
