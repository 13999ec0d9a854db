# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti sim`: what the simulator says of clusters that are not at hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tutti import output, parallel_rings, prediction, prediction_figure, sizes
from tutti.call_options import collective as collective_name
from tutti.errors import TuttiError

_OUT = click.Path(dir_okay=False, path_type=Path)


@click.group()
def command() -> None:
    """Predict times on a cluster that is described by a file."""


def chosen(collective: str, wanted: str) -> list[str]:
    """`all`, or names with commas between."""
    names = prediction.algorithm_names(collective)
    if not names:
        raise click.UsageError(f"{collective}: no algorithm of ours to simulate")
    if wanted == "all":
        return names
    found = list(dict.fromkeys(part.strip() for part in wanted.split(",") if part.strip()))
    unknown = [name for name in found if name not in names]
    if unknown or not found:
        raise click.UsageError(
            f"--algorithms {wanted}: {collective} has {', '.join(names)}; or write all"
        )
    return found


def message_sizes(begin: int, end: int, factor: int) -> list[int]:
    """From `begin` to `end`."""
    if end < begin:
        raise click.UsageError("-e is below -b")
    found = [begin]
    while begin > 0 and found[-1] * factor <= end:
        found.append(found[-1] * factor)
    return found


def _write_trace(
    simulator: prediction.Simulator,
    cluster: Path,
    algorithms: Sequence[str],
    vectors: Sequence[int],
    out: Path,
) -> None:
    if len(algorithms) != 1 or len(vectors) != 1:
        raise click.UsageError(
            "--trace is of one run: name one algorithm and one size (-e equal to -b)"
        )
    answer = simulator.ask(algorithms[0], vectors, steps=True)
    if answer["refusal"] is not None:
        raise TuttiError(f"{algorithms[0]}: {answer['refusal']}")
    gpus = json.loads(cluster.read_text())["gpus_per_node"]
    try:
        out.write_text(json.dumps(prediction.chrome_trace(answer, gpus)) + "\n")
    except OSError as error:
        raise TuttiError(f"{out}: {error.strerror}") from None


def _paper(as_json: bool, out: Path | None, plot: Path | None) -> None:
    """Ends with status 1 when a figure is outside its bound."""
    document = parallel_rings.compare()
    shown = prediction.encode(document).decode() if as_json else parallel_rings.text(document)
    output.echo(shown)
    if out:
        prediction.save(document, out)
    if plot:
        prediction_figure.save(prediction_figure.draw_paper(document), plot)
    if not all(row.holds() for row in document.rows):
        output.note("a published figure is outside its bound")
        sys.exit(1)


@command.command()
@click.argument("collective", type=collective_name, default="allgather")
@click.option("--cluster", metavar="FILE", help="Cluster file, or the name of a shipped one.")
@click.option("-n", "--ranks", type=click.IntRange(1), default=8, show_default=True)
@click.option("-b", "--begin", type=sizes.size, default="2M", show_default=True)
@click.option("-e", "--end", type=sizes.size, default="256M", show_default=True)
@click.option("-f", "--factor", type=click.IntRange(2), default=2, show_default=True)
@click.option(
    "--per-rank", is_flag=True, help="Sizes are one rank's block (OSU, the paper), not all ranks'."
)
@click.option(
    "--algorithms", default="all", show_default=True, help="Names with commas between, or all."
)
@click.option("--radix", type=click.IntRange(0), default=0, help="0: the algorithm's own.")
@click.option("--segments", type=click.IntRange(0), default=0, help="0: the algorithm's own.")
@click.option("--paper", is_flag=True, help="Parallel Rings: published figures beside ours.")
@click.option("--json", "as_json", is_flag=True, help="Print the document.")
@click.option("-o", "--output", "out", type=_OUT, help="Write the document.")
@click.option("--plot", type=_OUT, help="Write the figure.")
@click.option("--trace", type=_OUT, help="Write each step of one run for Perfetto or Chrome.")
def collective(
    collective: str,
    cluster: str | None,
    ranks: int,
    begin: int,
    end: int,
    factor: int,
    per_rank: bool,
    algorithms: str,
    radix: int,
    segments: int,
    paper: bool,
    as_json: bool,
    out: Path | None,
    plot: Path | None,
    trace: Path | None,
) -> None:
    """Predict how long COLLECTIVE takes with each algorithm on a cluster.

    Example: tutti sim collective allgather --cluster cluster-b --ranks 64 -b 2M -e 256M
    """
    if paper:
        _paper(as_json, out, plot)
        return
    if cluster is None:
        raise click.UsageError("--cluster is missing: a file, or for example cluster-b")
    file = prediction.find_cluster(cluster)
    names = chosen(collective, algorithms)
    vectors = message_sizes(begin, end, factor)
    if per_rank and collective in prediction.BLOCKS:
        vectors = [size * ranks for size in vectors]
    simulator = prediction.Simulator(file, collective, ranks, radix, segments)
    if trace:
        _write_trace(simulator, file, names, vectors, trace)
    document = prediction.predict(simulator, file, names, vectors)
    output.echo(prediction.encode(document).decode() if as_json else prediction.text(document))
    if out:
        prediction.save(document, out)
    if plot:
        prediction_figure.save(prediction_figure.draw_latency(document), plot)
