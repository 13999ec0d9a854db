# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch over the network plugin: its calls checked, and a step of data-parallel training timed.

`nccl_network.py ddp` runs the ranks (bench/net/ddp_step.py) by each way in turn: our calls checked
in a job of their own, a job that does not count, and then the ways forwards and backwards by turns,
so that neither a first job nor a drift of the machine's speed falls on one of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nccl_jobs
from nccl_jobs import TUTTI, WAYS, Job, Layout, Outcome, Rendezvous, Setup, Way
from network_parts import Row, paired

PROGRAM = Path(__file__).resolve().parent / "net/ddp_step.py"
RUN_LIMIT_S = 200


def command_of(
    setup: Setup, options: argparse.Namespace, store: str, is_check: bool
) -> Callable[[int], Sequence[str]]:
    """The step's program, rank r on GPU r modulo their number; a check times no steps."""
    common = [sys.executable, str(PROGRAM), "--ranks", str(setup.ranks), "--store", store]
    common += ["--backend", options.backend, "--steps", str(0 if is_check else options.steps)]
    common += ["--batch", str(options.batch), "--pixels", str(options.pixels)]
    common += ["--check"] if is_check else []
    return lambda rank: [*common, "--rank", str(rank), "--device", str(rank % setup.gpus)]


def row_of(outcome: Outcome, layout: str, way: str, repeat: int) -> Row:
    """The slowest rank's step; what was checked on all ranks."""
    lines = [line for lines in outcome.results() for line in lines]
    steps = [line for line in lines if "step_ms_p50" in line]
    calls = [line for line in lines if "checked" in line]
    row: Row = {"layout": layout, "way": way, "repeat": repeat}
    if steps:
        row["step_ms"] = max(line["step_ms_p50"] for line in steps)
        row["gradients_equal"] = all(line["gradients_equal"] for line in steps)
        row["weights_equal"] = all(line["weights_equal"] for line in steps)
    if calls:
        row["checked"] = sum(line["checked"] for line in calls)
        row["wrong"] = sum(line["wrong"] for line in calls)
        row["wrong_calls"] = [text for line in calls for text in line["texts"]][:5]
    return row


def words_of(row: Mapping[str, Any]) -> str:
    """One line."""
    found = []
    if "step_ms" in row:
        found.append(f"a step {row['step_ms']:.1f} ms")
        for name in ("gradients", "weights"):
            found.append(f"{name} {'equal' if row[f'{name}_equal'] else 'DIFFER'}")
    if "checked" in row:
        found.append(f"{row['wrong']} of {row['checked']} calls wrong")
        found += row["wrong_calls"]
    return ", ".join(found) or "nothing"


def summary(rows: Sequence[Row], ours: str = TUTTI.name) -> list[str]:
    """Medians of each layout, and of the paired ratios of a step's time to ours."""
    lines = []
    for layout in dict.fromkeys(row["layout"] for row in rows):
        mine = [row for row in rows if row["layout"] == layout and "step_ms" in row]
        for way in dict.fromkeys(row["way"] for row in mine):
            times_ms = [row["step_ms"] for row in mine if row["way"] == way]
            ratios = paired(mine, "step_ms", way, ours) if way != ours else []
            over = f", {statistics.median(ratios):.2f} of {ours}'s" if ratios else ""
            middle_ms = statistics.median(times_ms)
            lines.append(
                f"{layout}, {way}: a step {middle_ms:.1f} ms "
                f"({min(times_ms):.1f} to {max(times_ms):.1f}){over}"
            )
    return lines


def is_right(row: Mapping[str, Any]) -> bool:
    """Everything that was checked."""
    return bool(
        row.get("gradients_equal", True)
        and row.get("weights_equal", True)
        and row.get("wrong", 0) == 0
        and ("step_ms" in row or "checked" in row)
    )


@dataclass(frozen=True)
class Turn:
    """One job: timed, unless it is the check or does not count."""

    way: Way
    repeat: int
    kind: str = "timed"  # Or check, or discarded.


def turns(options: argparse.Namespace) -> Iterator[Turn]:
    """All jobs of a layout, in their order."""
    ways = [WAYS[one] for one in options.ways]
    ours = {**TUTTI.env, **dict(options.set)}
    ways = [replace(way, env=ours) if way.name == TUTTI.name else way for way in ways]
    yield from (Turn(way, 0, "check") for way in ways if way.name == TUTTI.name)
    yield Turn(ways[0], 0, "discarded")
    for repeat in range(options.repeats):
        for way in ways if repeat % 2 == 0 else reversed(ways):
            yield Turn(way, repeat)


def run(
    options: argparse.Namespace, setup: Setup, layouts: Mapping[str, Layout]
) -> tuple[list[Row], list[str], Outcome | None]:
    """(rows, failures, the last outcome): each repeat has a run of every way."""
    rows: list[Row] = []
    failures: list[str] = []
    outcome = None
    for name in options.layouts:
        with nccl_jobs.lab_of(layouts[name]) as lab, Rendezvous() as rendezvous:
            for turn in turns(options):
                way = turn.way
                command = command_of(setup, options, rendezvous.next(), turn.kind == "check")
                label = f"{name}, {way.name}, {turn.repeat}"
                label += "" if turn.kind == "timed" else f", {turn.kind}"
                with Job(setup, layouts[name], lab, way, f"ddp {label}", command) as job:
                    outcome = job.finish(RUN_LIMIT_S)
                row = row_of(outcome, name, way.name, turn.repeat)
                if outcome.failure:
                    failures.append(f"{label}: {outcome.failure}")
                    print(f"{label}: FAILED: {outcome.failure}", flush=True)
                elif turn.kind != "discarded":
                    rows.append(row)
                print(f"{label}: {words_of(row)} [{outcome.seconds:.1f} s]", flush=True)
    return rows, failures, outcome
