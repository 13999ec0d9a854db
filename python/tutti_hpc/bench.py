# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti bench`: times a collective, its plans in turns within one job."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from tutti_hpc import (
    figure,
    files,
    formats,
    linkage,
    measure,
    mpi,
    output,
    plan_names,
    processes,
    results,
    sizes,
)
from tutti_hpc.call_options import collective_argument, op_option, type_option
from tutti_hpc.lab import state
from tutti_hpc.lab.job import refusal


def parse_plans(text: str) -> tuple[str, ...]:
    """`native,hybrid` -> its names, each once."""
    plans = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    bad = [plan for plan in plans if not re.fullmatch(r"[\w:+-]+(\(\w*\))?", plan)]
    if not plans or bad:
        raise click.UsageError(f"--plans {text}: names with commas between, as in native,hybrid")
    return plans


def check_names(job: measure.Job) -> None:
    """An error for a plan that does not exist, before anything is measured."""
    plan_names.check_variables(os.environ)
    for plan in job.net_plans:
        plan_names.check_net(job.collective, plan)
    for plan in job.mpi_plans:
        if plan not in plan_names.NOT_PLANS:
            plan_names.check(job.collective, plan, f"--plans {plan}")


def parse_lab(text: str) -> state.Place:
    """A lab's name, or the directory of a lab that is kept elsewhere."""
    if "/" not in text:
        return state.Place(state.default_base(), state.check_name(text))
    directory = Path(text).absolute()
    return state.Place(directory.parent, state.check_name(directory.name))


@click.command()
@collective_argument
@click.option("-n", "--ranks", type=click.IntRange(1), default=2, show_default=True)
@click.option("-b", "--begin", type=sizes.size, default="4", show_default=True)
@click.option("-e", "--end", type=sizes.size, default="1M", show_default=True)
@click.option(
    "-f",
    "--factor",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    help="From one size to the next.",
)
@click.option("-w", "--warmup", type=click.IntRange(0), help="Untimed calls before each size.")
@click.option(
    "-i", "--iterations", type=click.IntRange(1), help="Timed calls; default: 1000 to 5 by size."
)
@click.option("--time-cap", type=float, metavar="SECONDS", help="Per size; default 10.")
@click.option("-c", "--check", is_flag=True, help="Compare every element.")
@click.option("--mpi", "mpi_name", metavar="MPI", help="mpich, openmpi, abi, or a path.")
@click.option(
    "--memory",
    type=click.Choice(["host", "device", "hostdevice"]),
    default="host",
    show_default=True,
    help="Where the buffers are; hostdevice: a stand-in for tests, not in the wheel.",
)
@type_option
@op_option
@click.option(
    "--plans",
    default="native,hybrid",
    show_default=True,
    help="native, hybrid (Tutti's choice), nccl (called directly), any plan, all; "
    "net:NAME, a schedule over Tutti's transport, without MPI.",
)
@click.option(
    "--virtual-nodes",
    type=click.IntRange(0),
    default=0,
    metavar="K",
    help="Treat this machine as K nodes.",
)
@click.option("--lab", "lab_name", metavar="LAB", help="In this lab (see tutti lab).")
@click.option("--ppn", type=click.IntRange(1), default=1, help="With --lab: ranks per node.")
@click.option(
    "--format",
    "fmt",
    type=click.Choice(formats.FORMATS),
    default="text",
    show_default=True,
    help="--json and --csv are two of them.",
)
@click.option(
    "-o",
    "--output",
    "out",
    type=files.OutputFile(),
    help="Write the results document.",
)
@click.option("--plot", type=files.OutputFile(files.IMAGES), help="Write the figure.")
@output.form_options
def command(
    collective: str,
    ranks: int,
    begin: int,
    end: int,
    factor: int,
    warmup: int | None,
    iterations: int | None,
    time_cap: float | None,
    check: bool,
    mpi_name: str | None,
    memory: str,
    data_type: str,
    op: str,
    plans: str,
    virtual_nodes: int,
    lab_name: str | None,
    ppn: int,
    fmt: str,
    form: str,
    out: Path | None,
    plot: Path | None,
) -> None:
    """Time COLLECTIVE on this machine, plans in turns in one job.

    Example: tutti bench allreduce -n 4 -b 4 -e 1M --plans native,hybrid --check

    Plans net:NAME and net:NAME(SEGMENTS) carry schedules over Tutti's own transport, in a job of
    their own without MPI.
    """
    if end < begin:
        raise click.UsageError("-e is below -b")
    if form != output.TEXT:
        if fmt not in ("text", form):
            raise click.UsageError(f"--format {fmt} and --{form}: give one of them")
        fmt = form
    job = measure.Job(
        collective=collective,
        ranks=ranks,
        begin=begin,
        end=end,
        factor=factor,
        iterations=iterations,
        warmup=warmup,
        time_cap_s=time_cap,
        memory=memory,
        type=data_type,
        op=op,
        plans=parse_plans(plans),
        check=check,
        virtual_nodes=virtual_nodes,
    )
    lab = measure.LabJob(parse_lab(lab_name), ppn) if lab_name else None
    if lab and virtual_nodes:
        raise click.UsageError("--virtual-nodes is for one machine; a lab has nodes of its own")
    check_names(job)
    if lab:
        lab.place.require()
    parts = []
    shown = output.progress(f"{collective}, {ranks} ranks")
    with processes.signals_as_exits(), shown as on_progress:
        if job.mpi_plans:
            library = linkage.find(mpi_name, refusal) if lab else mpi.find(mpi_name)
            parts.append(measure.run(job, library, on_progress, lab))
        if job.net_plans:
            parts.append(measure.run_net(job, lab, on_progress))
    document = measure.side_by_side(job, parts)
    if out:
        results.save(document, out)
    if plot:
        figure.save([document], plot)
    output.echo(formats.render(document, fmt, output.paint_row))
    if document.wrong():
        output.note(f"{document.wrong()} wrong elements")
        sys.exit(1)
