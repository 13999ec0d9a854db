# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`make demo`: native MPI against Tutti's own choice on this machine, in under a minute.

With GPUs: device buffers, native as a user without GPU-aware MPI must write it (through pinned host
memory). Without: host buffers, where Tutti's choice is the MPI itself and the figure shows what the
preload costs; a second section splits the machine into two virtual nodes and adds the plan that
goes through node leaders. Writes demo.png and demo.json in the working directory.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from tutti import api, figure, formats, launch, measure, mpi, output, paths, processes, results
from tutti.errors import TuttiError

ENOUGH_S = 35.0  # No new section is begun after this.
COLLECTIVES = ("allreduce", "allgather", "bcast")


def jobs(gpus: int) -> list[tuple[str, measure.Job]]:
    """What is measured, each with a sentence that says so."""
    if gpus >= 2:
        ranks = min(4, gpus)
        text = f"{ranks} ranks, one per GPU, device buffers: native staged by hand, and Tutti"
        return [
            (text, measure.Job(c, ranks, 4, 64 << 20, 4, memory="device", check=True, time_cap_s=1))
            for c in COLLECTIVES
        ]
    small = {"end": 256 << 10, "factor": 4, "iterations": 60, "warmup": 3, "time_cap_s": 0.3}
    text = "4 ranks, host buffers (no GPUs to share out): native, and Tutti"
    found = [(text, measure.Job(c, 4, check=True, **small)) for c in COLLECTIVES]  # type: ignore[arg-type]
    text = "4 ranks on 2 virtual nodes, host buffers: native, Tutti, and through node leaders"
    plans = ("native", "hybrid", "mpi-alpha")
    last = measure.Job("allreduce", 4, check=True, plans=plans, virtual_nodes=2, **small)  # type: ignore[arg-type]
    return [*found, (text, last)]


def choose_mpi(ranks: int) -> mpi.Mpi:
    """The first MPI; with more ranks than cores one whose idle ranks give up their core."""
    if ranks > launch.usable_cores():
        for found in mpi.find_all():
            if found.abi == "openmpi" and paths.find_measure(found.abi):
                return found
    return mpi.find(None)


def gpu_count() -> int:
    """GPUs Tutti can use."""
    device = api.library().machine().get("device") or {}
    return len(device.get("devices") or []) if device.get("name") in ("cuda", "hip") else 0


def main() -> None:
    """Measures, prints, writes demo.json and demo.png; exit status 1 when an element is wrong."""
    start_s = time.monotonic()
    planned = jobs(gpu_count())
    ranks, cores = planned[0][1].ranks, launch.usable_cores()
    library = choose_mpi(ranks)
    click.echo(f"MPI: {mpi.short_version(mpi.facts(library).version)} ({library.library})")
    if ranks > cores:
        click.echo(f"{ranks} ranks share {cores} cores: these times show that it works, not speed")
    documents: list[results.Results] = []
    for text, job in planned:
        if documents and time.monotonic() - start_s > ENOUGH_S:
            click.echo(f"\n{job.collective}: left out, the machine is busy: {text}")
            continue
        click.echo(f"\n{job.collective}: {text}")
        with output.progress(job.collective) as on_progress:
            document = measure.run(job, library, on_progress)
        output.echo(formats.text(document, output.paint_row))
        documents.append(document)
    results.save(documents, Path("demo.json"))
    figure.save(documents, Path("demo.png"))
    wrong = sum(document.wrong() for document in documents)
    click.echo(
        f"\nEvery element of every plan was compared: {wrong} wrong. Wrote demo.png and demo.json "
        f"in {time.monotonic() - start_s:.0f} s."
    )
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    try:
        with processes.signals_as_exits():
            main()
    except TuttiError as error:
        error.show()
        sys.exit(error.exit_code)
