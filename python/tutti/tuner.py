# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""From measurements to a tuning file: per collective, size and layout the plan that was fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tutti import sizes
from tutti.errors import TuttiError
from tutti.results import Results, Row

SCHEMA = "tutti-tuning/1"

# A plan must be this much faster to take over from the plan of the next smaller size: below it the
# difference is noise, and every switch is one more thing that can differ on another day.
WORTH_SWITCHING = 1.03

# Rows that are not plans: the program's own staging, and the library called directly.
RIVALS = ("native", "nccl", "rccl")


def candidates(results: Results) -> dict[int, dict[str, Row]]:
    """Rows of forced plans, by size and plan; hybrid rows and rivals are left out."""
    found: dict[int, dict[str, Row]] = {}
    for row in results.rows:
        if not row.hybrid and row.plan not in RIVALS:
            found.setdefault(row.bytes, {})[row.plan] = row
    return found


def choices(results: Results) -> list[tuple[int, str]]:
    """(size, best plan) in ascending order of size, with few switches."""
    chosen: list[tuple[int, str]] = []
    for size, plans in sorted(candidates(results).items()):
        best = min(plans, key=lambda name: plans[name].latency_us.p50)
        if chosen and (before := plans.get(chosen[-1][1])):
            gain = before.latency_us.p50 / max(plans[best].latency_us.p50, 1e-9)
            if gain < WORTH_SWITCHING:
                best = chosen[-1][1]
        chosen.append((size, best))
    return chosen


def rules(results: Results) -> list[dict[str, Any]]:
    """Rules for one document's collective and layout.

    A plan holds from the smallest size it won at (the first from zero) up to just below the next
    switch (the last without end).
    """
    found: list[dict[str, Any]] = []
    for size, plan in choices(results):
        if found and found[-1]["plan"] == plan:
            continue
        if found:
            found[-1].setdefault("bytes", {})["max"] = size - 1
        rule: dict[str, Any] = {
            "collective": results.collective,
            "nodes": results.nodes,
            "ranks": results.ranks,
            "memory": results.memory,
        }
        if found:
            rule["bytes"] = {"min": sizes.format_bytes(size)}
        rule["plan"] = plan
        found.append(rule)
    return found


def make(documents: Sequence[Results]) -> dict[str, Any]:
    """The tuning document. Raises TuttiError when no document has plans to choose from."""
    found = [rule for document in documents for rule in rules(document)]
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
