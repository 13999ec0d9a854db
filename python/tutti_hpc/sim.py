# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti sim`: what the simulator says of clusters that are not at hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from tutti_hpc import (
    files,
    output,
    packet_network,
    packet_network_figure,
    parallel_rings,
    prediction,
    prediction_figure,
    sizes,
)
from tutti_hpc.call_options import collective as collective_name
from tutti_hpc.errors import TuttiError

_OUT = files.OutputFile()
_IMAGE = files.OutputFile(files.IMAGES)


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
    files.write(out, json.dumps(prediction.chrome_trace(answer, gpus)) + "\n")


def _paper(form: str, out: Path | None, plot: Path | None) -> None:
    """Ends with status 1 when a figure is outside its bound."""
    document = parallel_rings.compare()
    if out:
        prediction.save(document, out)
    if plot:
        prediction_figure.save(prediction_figure.draw_paper(document), plot)
    output.show(
        form,
        text=lambda: parallel_rings.text(document),
        document=prediction.encode(document),
        records=lambda: msgspec.to_builtins(document.rows),
    )
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
@click.option(
    "--network",
    "network_model",
    type=click.Choice(["fluid", "packet"]),
    default="fluid",
    show_default=True,
    help="packet: the shipped transport on simulated switches.",
)
@click.option("--topology", help="Of a packet network. Unset: a fat-tree of the ranks.")
@click.option("--paths", type=click.IntRange(1), help="Of a packet network. Unset: 64.")
@click.option("--spray", help="Of a packet network, as in `tutti sim network`.")
@click.option("--seed", type=click.IntRange(0), help="Of a packet network's hashes. Unset: 1.")
@click.option("--paper", is_flag=True, help="Parallel Rings: published figures beside ours.")
@click.option("-o", "--output", "out", type=_OUT, help="Write the document.")
@click.option("--plot", type=_IMAGE, help="Write the figure.")
@click.option("--trace", type=_OUT, help="Write each step of one run for Perfetto or Chrome.")
@output.form_options
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
    network_model: str,
    topology: str | None,
    paths: int | None,
    spray: str | None,
    seed: int | None,
    paper: bool,
    form: str,
    out: Path | None,
    plot: Path | None,
    trace: Path | None,
) -> None:
    """Predict how long COLLECTIVE takes with each algorithm on a cluster.

    Example: tutti sim collective allgather --cluster cluster-b --ranks 64 -b 2M -e 256M
    """
    if paper:
        _paper(form, out, plot)
        return
    if cluster is None:
        raise click.UsageError("--cluster is missing: a file, or for example cluster-b")
    file = prediction.find_cluster(cluster)
    names = chosen(collective, algorithms)
    vectors = message_sizes(begin, end, factor)
    if per_rank and collective in prediction.BLOCKS:
        vectors = [size * ranks for size in vectors]
    packets = {"topology": topology, "paths": paths, "spray": spray, "seed": seed}
    given = {key: value for key, value in packets.items() if value is not None}
    simulator = prediction.Simulator(file, collective, ranks, radix, segments, network_model, given)
    if trace:
        _write_trace(simulator, file, names, vectors, trace)
    document = prediction.predict(simulator, file, names, vectors)
    if out:
        prediction.save(document, out)
    if plot:
        prediction_figure.save(prediction_figure.draw_latency(document), plot)
    output.show(
        form,
        text=lambda: prediction.text(document),
        document=prediction.encode(document),
        records=lambda: msgspec.to_builtins(document.rows),
    )


def rate(value: str | int) -> int:
    """Mbit/s of a rate on the command line."""
    try:
        return value if isinstance(value, int) else packet_network.rate(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def network_query(**options: Any) -> dict[str, Any]:
    """What the library is asked, from the command's options."""
    traffic = options.pop("traffic")
    query = {key: value for key, value in options.items() if value is not None}
    for name in ("loss", "burst_loss", "burst_begins", "burst_ends"):
        percent = query.pop(name, 0.0)
        if percent:
            query[f"{name}_ppb"] = round(percent * 1e7)
    # A file is a trace; everything else the library knows or refuses by name.
    if Path(traffic).is_file():
        return {**query, "goal": traffic, "bytes": 0}
    return {**query, "traffic": traffic}


_PERCENT = click.FloatRange(0, 100)


@command.command()
@click.option("--topology", default="fat-tree:128", show_default=True)
@click.option("--rate", "mbit_per_s", type=rate, default="400G", show_default=True)
@click.option("--latency-ns", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--traffic", default="permutation", show_default=True, help="Or a GOAL trace's file.")
@click.option("--bytes", type=sizes.size, default="64M", show_default=True, help="Of a message.")
@click.option("--messages", type=click.IntRange(1), default=1, help="From each to each.")
@click.option("--in-flight", type=click.IntRange(0), default=0, help="Per sender; 0: all.")
@click.option("--protocol", default="transport", show_default=True, help="Or go-back-n.")
@click.option("--congestion", help="Of the transport: nscc, rccc, swift, cubic, ...")
@click.option("--spray", help="oblivious, two_choices, bitmap, reps, mixed.")
@click.option("--paths", type=click.IntRange(1), default=256, show_default=True)
@click.option(
    "--policy",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    envvar="TUTTI_TRANSPORT_POLICY",
    help="Shared object of a transport policy (docs/transport-policy.md).",
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, resolve_path=True),
    help="Write what the transport of one host does, a line of JSON for each event.",
)
@click.option("--trace-host", type=click.IntRange(0), help="Which one.  [default: 0]")
@click.option(
    "--window-groups", type=click.IntRange(1), help="Path groups with a congestion window each."
)
@click.option("--ack", type=click.Choice(["dense", "sparse"]), default="dense", show_default=True)
@click.option("--chunk", "chunk_bytes", type=sizes.size, default="4K", show_default=True)
@click.option("--mtu", "mtu_bytes", type=sizes.size, default="4K", show_default=True)
@click.option(
    "--forwarding",
    type=click.Choice(["chunk", "mtu"]),
    default="chunk",
    show_default=True,
    help="Whether switches see chunks or the packets they are cut into.",
)
@click.option("--trim/--no-trim", default=True, show_default=True)
@click.option("--lossless", is_flag=True, help="Pause frames in place of loss.")
@click.option("--rate-control", is_flag=True, help="go-back-n: DCQCN.")
@click.option("--queue", "queue_bytes", type=sizes.size, help="Of a port; a round trip's bytes.")
@click.option("--loss", type=_PERCENT, default=0.0, help="Percent of packets, end to end.")
@click.option("--burst-loss", type=_PERCENT, default=0.0, help="Percent within a burst.")
@click.option("--burst-begins", type=_PERCENT, default=0.0, help="Percent of packets.")
@click.option("--burst-ends", type=_PERCENT, default=0.0, help="Percent of packets.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The first.")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option("-o", "--output", "out", type=_OUT, help="Write the document.")
@click.option("--plot", type=_IMAGE, help="Write the figure.")
@output.form_options
def network(
    seeds: int, seed: int, form: str, out: Path | None, plot: Path | None, **options: Any
) -> None:
    """Run traffic over a simulated packet network with the shipped transport.

    Example: tutti sim network --topology fat-tree:1024 --traffic permutation --bytes 64000000
    """
    if options["trace"] and seeds > 1:
        raise click.UsageError("--trace is of one seed")
    document = packet_network.run(network_query(**options), range(seed, seed + seeds))
    if out:
        packet_network.save(document, out)
    if plot:
        prediction_figure.save(packet_network_figure.draw(document), plot)
    output.show(
        form,
        text=lambda: packet_network.text(document),
        document=packet_network.encode(document),
        records=lambda: msgspec.to_builtins(document.rows),
    )
    if any(row.unfinished for row in document.rows):
        output.note("some operations never ended")
        sys.exit(1)
