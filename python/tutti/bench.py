# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti bench`: times a collective, its plans in turns within one job."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from tutti import figure, formats, measure, mpi, output, results, sizes
from tutti.call_options import collective_argument, op_option, type_option


def parse_plans(text: str) -> tuple[str, ...]:
    """`native,hybrid` -> its names, each once."""
    plans = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    bad = [plan for plan in plans if not re.fullmatch(r"[\w:-]+(\(\w*\))?", plan)]
    if not plans or bad:
        raise click.UsageError(f"--plans {text}: names with commas between, as in native,hybrid")
    return plans


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
    "-i", "--iterations", type=click.IntRange(1), help="Timed calls; default: 200 to 5 by size."
)
@click.option("--time-cap", type=float, metavar="SECONDS", help="Per size; default 10.")
@click.option("-c", "--check", is_flag=True, help="Compare every element.")
@click.option("--mpi", "mpi_name", metavar="MPI", help="mpich, openmpi, abi, or a path.")
@click.option(
    "--memory",
    type=click.Choice(["host", "device", "hostdevice"]),
    default="host",
    show_default=True,
    help="Where the buffers are; hostdevice: a stand-in for tests.",
)
@type_option
@op_option
@click.option(
    "--plans",
    default="native,hybrid",
    show_default=True,
    help="native, hybrid (Tutti's choice), nccl (called directly), any plan, all.",
)
@click.option(
    "--virtual-nodes",
    type=click.IntRange(0),
    default=0,
    metavar="K",
    help="Treat this machine as K nodes.",
)
@click.option(
    "--format", "fmt", type=click.Choice(formats.FORMATS), default="text", show_default=True
)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results document.",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write the figure.")
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
    fmt: str,
    out: Path | None,
    plot: Path | None,
) -> None:
    """Time COLLECTIVE on this machine, plans in turns in one job.

    Example: tutti bench allreduce -n 4 -b 4 -e 1M --plans native,hybrid --check
    """
    if end < begin:
        raise click.UsageError("-e is below -b")
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
    library = mpi.find(mpi_name)
    with output.progress(f"{collective}, {ranks} ranks") as on_progress:
        document = measure.run(job, library, on_progress)
    output.echo(formats.render(document, fmt, output.paint_row))
    if out:
        results.save(document, out)
    if plot:
        figure.save([document], plot)
    if document.wrong():
        output.note(f"{document.wrong()} wrong elements")
        sys.exit(1)
