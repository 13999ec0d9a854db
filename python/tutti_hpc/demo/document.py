# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the demo measured: the document demo.json, its tables and its three sentences. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Optional

import msgspec

from tutti_hpc.mpi import short_version
from tutti_hpc.output import columns
from tutti_hpc.results import Results, Row
from tutti_hpc.sizes import format_bytes

SCHEMA = "tutti-demo/1"
TUTTI = "Tutti"
SAME_PLAN = "same plan"
NOT_MEASURED = "-"
# A median so many times above the least latency of this or a larger size tells of other programs
# on the machine.
NOISY, NOISE = "noise", 8.0


class Bar(msgspec.Struct, kw_only=True):
    """One way to carry the same traffic, and what came out. More is better, if not `is_time`."""

    name: str
    value: float
    is_ours: bool = False


class Bars(msgspec.Struct, kw_only=True):
    """One panel of bars. `bound`: what the links allow."""

    title: str
    unit: str
    is_time: bool
    bound: Optional[float]
    bars: list[Bar]

    def ours(self) -> Bar:
        """Tutti's bar."""
        return next(bar for bar in self.bars if bar.is_ours)

    def gain(self, name: str) -> float:
        """How many times better Tutti is than the bar of that name."""
        other = next(bar for bar in self.bars if bar.name == name).value
        ours = self.ours().value
        return other / ours if self.is_time else ours / other

    def best_other(self) -> Bar:
        """The best bar that is not Tutti's."""
        others = [bar for bar in self.bars if not bar.is_ours]
        best = min if self.is_time else max
        return best(others, key=lambda bar: bar.value)


class Demo(msgspec.Struct, kw_only=True):
    """The whole document. A part that did not run is null or empty, and `not_run` says why."""

    schema: str = SCHEMA
    command: str
    date: str
    mpi: list[Results] = []
    rails: Optional[Bars] = None
    transport: Optional[Bars] = None
    not_run: list[str] = []
    sentences: list[str] = []
    seconds: float = 0


def baselines(results: Results) -> dict[str, str]:
    """Plans that Tutti's choice is compared with, and what they are called."""
    if results.memory == "host":
        return {"native": "native MPI"}
    return {"native": "native MPI, staged by hand", "nccl": "NCCL called directly"}


def is_same_plan(row: Row, over: str) -> bool:
    """Tutti handed the call to the same library as the baseline does."""
    return row.plan.startswith(("native", "mpi-") if over == "native" else ("ccl-", "ccl:"))


def gain(results: Results, row: Row, over: str) -> float | str:
    """Median latency of a baseline over that of Tutti's choice, or why there is no such number."""
    if is_same_plan(row, over):
        return SAME_PLAN
    other = next(
        (o for o in results.rows if o.bytes == row.bytes and o.plan == over and not o.hybrid), None
    )
    if other is None or row.latency_us.p50 <= 0:
        return NOT_MEASURED
    if any(one.latency_us.p50 > NOISE * _least_us(results, one) for one in (row, other)):
        return NOISY
    return other.latency_us.p50 / row.latency_us.p50


def _least_us(results: Results, row: Row) -> float:
    """Of the same side, at this and at larger sizes."""
    return min(
        one.latency_us.min
        for one in results.rows
        if one.bytes >= row.bytes
        and one.hybrid == row.hybrid
        and (row.hybrid or one.plan == row.plan)
    )


def gains(results: Results, over: str = "native") -> dict[int, float | str]:
    """Bytes -> gain, of every size."""
    return {row.bytes: gain(results, row, over) for row in results.rows if row.hybrid}


def known(values: Iterable[float | str]) -> list[float]:
    """Those that are numbers."""
    return [value for value in values if isinstance(value, float)]


def all_gains(documents: Sequence[Results], over: str = "native") -> list[float | str]:
    """Of every size of every document."""
    return [value for document in documents for value in gains(document, over).values()]


def cell(value: float | str) -> str:
    """`1.72x`, or why there is nothing to compare."""
    return value if isinstance(value, str) else f"{value:.2f}x"


def mpi_table(documents: Sequence[Results]) -> str:
    """A row for each MPI and collective, a column for each size."""
    sizes = sorted({size for document in documents for size in gains(document)})
    rows = [["MPI", "collective", *map(format_bytes, sizes)]]
    for document in documents:
        found = gains(document)
        cells = [cell(found[size]) if size in found else "-" for size in sizes]
        rows.append([short_version(document.versions.mpi), document.collective, *cells])
    return columns(rows, "  ")


def bars_table(panel: Bars) -> str:
    """A row for each bar."""
    rows = [[bar.name, f"{bar.value:.1f} {panel.unit}"] for bar in panel.bars]
    if panel.bound is not None:
        rows.append(["link bound", f"{panel.bound:.1f} {panel.unit}"])
    return columns(rows, "  ")


def _faster(documents: Sequence[Results], over: str) -> str:
    """The gain where Tutti took over, and at how many of the points that is."""
    found = all_gains(documents, over)
    faster, noisy = known(found), found.count(NOISY)
    name = baselines(documents[0])[over]
    left_out = f" ({noisy} points left out, the machine is busy)" if noisy else ""
    if not faster:
        return f"no gain to show over {name}: both sides ran the same plan{left_out}"
    return (
        f"{statistics.median(faster):.1f} times faster than {name}, median of the {len(faster)} of "
        f"{len(found)} points where both sides ran different plans{left_out}"
    )


def mpi_sentence(documents: Sequence[Results]) -> str:
    """The gain over native MPI, then over each other baseline."""
    faster = known(all_gains(documents))
    head = "Your MPI"
    if faster:
        head += f", {statistics.median(faster):.1f} times faster on this machine"
    text = "; ".join(_faster(documents, over) for over in baselines(documents[0]))
    return f"{head}: {text}."


def rails_sentence(panel: Bars) -> str:
    """Against Open MPI's default and its striped best."""
    first, best = panel.bars[0].name, panel.best_other()
    share = ""
    if panel.bound is not None:
        part = panel.bound / panel.ours().value
        share = f", {part:.0%} of what the links allow"
        # After a pause a link lets the first bytes pass at once.
        share += " in the long run" if part > 1 else ""
    return (
        f"All NICs used: {panel.title} in {panel.ours().value:.0f} {panel.unit}"
        f"{share}; {panel.gain(first):.1f} times faster than {first}, "
        f"{panel.gain(best.name):.1f} times faster than {best.name}."
    )


def transport_sentence(panel: Bars) -> str:
    """Against each of the others."""
    others = [bar.name for bar in panel.bars if not bar.is_ours]
    times = " and ".join(f"{panel.gain(name):.1f} times {name}" for name in others)
    return f"NCCL's Ethernet without flow collisions: {panel.title}, Tutti carries {times}."


def sentences(demo: Demo) -> list[str]:
    """One for each part that ran."""
    found = []
    if demo.mpi:
        found.append(mpi_sentence(demo.mpi))
    if demo.rails:
        found.append(rails_sentence(demo.rails))
    if demo.transport:
        found.append(transport_sentence(demo.transport))
    return found
