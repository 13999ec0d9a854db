# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`make demo`: Tutti on this machine, within two minutes.

Three parts: host buffers, native MPI against Tutti's default (with GPUs: device buffers, against
staging by hand and NCCL); an allgather over 4 NICs of each of 4 hosts, in network namespaces; the
transport on 8 spines of which one fails, against TCP (with GPUs: NCCL over the network plugin).
Writes demo.png and demo.json in the working directory. Exit status 1 when an element was wrong.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec

from tutti_hpc import files, formats, launch, output, processes
from tutti_hpc.demo import document, parts, picture
from tutti_hpc.demo.document import Demo
from tutti_hpc.errors import TuttiError

MPI_S = 60.0  # After this no further collective is begun: the other parts need their time.
BAR_WIDTH = 24
REWRITE = "\r\x1b[K"  # To the first column, and the rest of the line is cleared.


def plan_steps(demo: Demo, gpus: int) -> list[parts.Step]:
    """All steps; the reason of a part that cannot run is noted."""
    steps: list[parts.Step] = []
    found: list[tuple[str, Callable[[int], list[parts.Step]]]] = [
        ("your MPI", parts.your_mpi),
        ("all NICs", parts.all_nics),
        ("the transport", parts.transport),
    ]
    for name, part in found:
        try:
            steps += part(gpus)
        except TuttiError as error:
            demo.not_run.append(f"{name}: {error.format_message()}")
    return steps


@contextlib.contextmanager
def progress_of(steps: int) -> Iterator[Callable[[int, str, float], None]]:
    """Call with (steps done, name of the next, part of it that is done).

    One line that is rewritten on a terminal, else a line for each step.
    """
    shown = -1

    def a_line(done: int, name: str, _: float) -> None:
        nonlocal shown
        if done != shown:
            shown = done
            click.echo(f"[{done + 1}/{steps}] {name}", err=True)

    def a_bar(done: int, name: str, part: float) -> None:
        share = (done + part) / steps
        bar = "#" * round(share * BAR_WIDTH)
        click.echo(f"{REWRITE}[{bar:.<{BAR_WIDTH}}] {share:4.0%} {name}", nl=False, err=True)

    if not sys.stderr.isatty():
        yield a_line
        return
    try:
        yield a_bar
    finally:
        click.echo(REWRITE, nl=False, err=True)


def run(demo: Demo, steps: list[parts.Step]) -> None:
    """All steps; one that fails is noted, and the others run."""
    begin_s = time.monotonic()
    with progress_of(len(steps)) as show:
        for number, step in enumerate(steps):
            if step.is_optional and time.monotonic() - begin_s > MPI_S:
                demo.not_run.append(f"{step.name}: no time left, the machine is busy")
                continue
            show(number, step.name, 0)
            try:
                step.run(demo, lambda part, at=number, name=step.name: show(at, name, part))  # type: ignore[misc]
            except TuttiError as error:
                demo.not_run.append(f"{step.name}: {error.format_message()}")


def report(demo: Demo) -> None:
    """Tables, sentences, and what did not run."""
    if demo.mpi:
        first = demo.mpi[0]
        click.echo(
            f"\n1. {first.ranks} ranks, {first.memory} buffers: how many times faster Tutti is "
            f"than {' and '.join(document.baselines(first).values())}"
        )
        if first.memory == "host":
            click.echo(document.mpi_table(demo.mpi))
        else:
            for one in demo.mpi:
                output.echo(formats.text(one, output.paint_row))
    for number, panel in ((2, demo.rails), (3, demo.transport)):
        if panel:
            click.echo(f"\n{number}. {panel.title}")
            click.echo(document.bars_table(panel))
    click.echo("")
    for sentence in demo.sentences:
        click.echo(sentence)
    for reason in demo.not_run:
        click.echo(f"Not run: {reason}")


def main() -> None:
    """Measures, prints, writes demo.json and demo.png."""
    begin_s = time.monotonic()
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    demo = Demo(command="make demo", date=now)
    gpus = parts.gpu_count()
    cores = launch.usable_cores()
    where = f"{gpus} GPUs" if gpus >= 2 else "no two GPUs, so host buffers"
    click.echo(f"{cores} cores, {where}", err=True)
    run(demo, plan_steps(demo, gpus))
    demo.sentences = document.sentences(demo)
    demo.seconds = round(time.monotonic() - begin_s, 1)
    files.write(Path("demo.json"), msgspec.json.format(msgspec.json.encode(demo), indent=1) + b"\n")
    report(demo)
    wrong = sum(one.wrong() for one in demo.mpi)
    try:
        picture.save(demo, Path("demo.png"))
        wrote = "demo.png and demo.json"
    except TuttiError as error:
        wrote = f"demo.json (no picture: {error.format_message()})"
    click.echo(f"\nEvery element was compared: {wrong} wrong. Wrote {wrote} in {demo.seconds} s.")
    if wrong:
        sys.exit(1)
    if not demo.sentences:
        raise TuttiError("no part of the demo could run")


if __name__ == "__main__":
    try:
        with processes.signals_as_exits():
            main()
    except TuttiError as error:
        error.show()
        sys.exit(error.exit_code)
