# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""From measurements to a tuning file: per collective, size and layout the plan that was fastest."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tutti_hpc import api, sizes
from tutti_hpc.errors import TuttiError
from tutti_hpc.results import Results

SCHEMA = "tutti-tuning/1"

# What one more switch must gain, as a factor over all sizes together: less is noise, and every
# switch is one more thing that can differ on another day.
WORTH_SWITCHING = 1.03

# Rows that are not plans: the program's own staging, and the library called directly.
RIVALS = ("native", "nccl", "rccl")
# Nor are schedules over our own transport, without MPI.
NET = "net:"


def candidates(documents: Sequence[Results]) -> dict[int, dict[str, float]]:
    """Microseconds of forced plans, by size and plan: the median of the documents' medians.

    Hybrid rows, rivals and schedules over our own transport are left out.
    """
    found: dict[int, dict[str, list[float]]] = {}
    for document in documents:
        for row in document.rows:
            if not row.hybrid and row.plan not in RIVALS and not row.plan.startswith(NET):
                plans = found.setdefault(row.bytes, {})
                plans.setdefault(row.plan, []).append(row.latency_us.p50)
    return {
        size: {plan: statistics.median(values) for plan, values in plans.items()}
        for size, plans in found.items()
    }


def choices(documents: Sequence[Results]) -> list[tuple[int, str]]:
    """(size, plan) in ascending order of size: least product of latencies and of switches.

    The shortest path through sizes x plans, where a step's length is the logarithm of the plan's
    median latency, plus that of WORTH_SWITCHING when the plan before was another one.
    """
    # Plan at the last size -> (length of the best path that ends in it, the path).
    paths: dict[str, tuple[float, list[tuple[int, str]]]] = {}
    for size, plans in sorted(candidates(documents).items()):
        longer = {}
        for plan, latency_us in plans.items():
            before = [
                (length + (0 if last == plan else math.log(WORTH_SWITCHING)), path)
                for last, (length, path) in paths.items()
            ]
            length, path = min(before, default=(0.0, []), key=lambda item: item[0])
            step = math.log(max(latency_us, 1e-9))
            longer[plan] = (length + step, [*path, (size, plan)])
        paths = longer
    return min(paths.values(), default=(0.0, []), key=lambda item: item[0])[1]


def rules(documents: Sequence[Results]) -> list[dict[str, Any]]:
    """Rules for the collective and layout that the documents share.

    A plan holds from the smallest size it won at (the first from zero) up to just below the next
    switch (the last without end).
    """
    found: list[dict[str, Any]] = []
    shared = documents[0]
    for size, plan in choices(documents):
        if found and found[-1]["plan"] == plan:
            continue
        if found:
            found[-1].setdefault("bytes", {})["max"] = size - 1
        rule: dict[str, Any] = {
            "collective": shared.collective,
            "nodes": shared.nodes,
            "ranks": shared.ranks,
            "memory": shared.memory,
        }
        if found:
            rule["bytes"] = {"min": sizes.format_bytes(size)}
        rule["plan"] = plan
        found.append(rule)
    return found


def unchecked(documents: Sequence[Results]) -> int:
    """Rows of plans whose elements were not compared."""
    plans = (row for document in documents for row in document.rows if row.plan not in RIVALS)
    return sum(row.wrong is None for row in plans)


def _refuse(documents: Sequence[Results]) -> None:
    """A TuttiError where the documents are no ground for rules, or not for the same ones."""
    for one in documents:
        where = f"{one.collective}, {one.ranks} ranks on {one.nodes} nodes, {one.memory} memory"
        for row in one.rows:
            if row.wrong:
                raise TuttiError(
                    f"{where}: {row.plan} at {row.bytes} bytes has {row.wrong} wrong elements; "
                    "remedy: leave this document out, and report the fault"
                )
        if one.memory not in ("host", "device"):
            raise TuttiError(
                f"{where}: a stand-in for tests has no rules; remedy: measure with --memory host "
                "or device"
            )
        shape = (one.collective, one.nodes, one.ranks, one.memory)
        for other in documents:
            if shape != (other.collective, other.nodes, other.ranks, other.memory):
                continue
            if (one.type, one.op) != (other.type, other.op):
                raise TuttiError(
                    f"{where}: measured with {one.type} {one.op} and with {other.type} {other.op}; "
                    "remedy: make one tuning file of each"
                )
    for what, names in (
        ("MPI libraries", {one.versions.mpi for one in documents}),
        ("CCL libraries", {one.versions.ccl for one in documents}),
        ("GPUs", {", ".join(sorted(set(one.machine.gpus))) for one in documents}),
    ):
        if len(names - {""}) > 1:
            raise TuttiError(
                f"measured with several {what}: {'; '.join(sorted(names - {''}))}; remedy: make "
                "one tuning file of each"
            )


def check(document: dict[str, Any]) -> None:
    """A TuttiError where the library would refuse the tuning document."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "tuning.json"
        path.write_text(json.dumps(document, indent=2) + "\n")
        try:
            api.library().tuning_check(str(path))
        except TuttiError as error:
            said = error.format_message().replace(str(path), "the file that was made")
            raise TuttiError(f"{said}; remedy: leave such rows out of the results") from None


def make(documents: Sequence[Results]) -> dict[str, Any]:
    """The tuning document; several measurements of one collective and layout are one.

    Raises TuttiError when no document has plans to choose from, an element was wrong, or the
    documents are of different things.
    """
    _refuse(documents)
    groups: dict[tuple[str, int, int, str], list[Results]] = {}
    for document in documents:
        key = (document.collective, document.nodes, document.ranks, document.memory)
        groups.setdefault(key, []).append(document)
    found = [rule for group in groups.values() for rule in rules(group)]
    if not found:
        raise TuttiError("no measured plans: run `tutti bench ... --plans mpi,ccl -o FILE` first")
    first = documents[0]
    return {
        "schema": SCHEMA,
        "comment": "Made by `tutti tuning make` from measurements on the machine below.",
        "machine": {
            "gpus": ", ".join(sorted(set(first.machine.gpus))) or "none",
            "mpi": first.versions.mpi.splitlines()[0] if first.versions.mpi else "",
            "ccl": first.versions.ccl,
            "driver": first.versions.driver,
            "date": first.date,
        },
        "rules": found,
    }
