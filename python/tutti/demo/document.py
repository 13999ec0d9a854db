# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the demo measured: the document demo.json, its tables and its three sentences. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from tutti.mpi import short_version
from tutti.output import columns
from tutti.results import Results, Row
from tutti.sizes import format_bytes

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
    bound: float | None
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
    rails: Bars | None = None
    transport: Bars | None = None
    not_run: list[str] = []
    sentences: list[str] = []
    seconds: float = 0


def baseline(results: Results) -> str:
    """What Tutti's choice is compared with."""
    return "native MPI" if results.memory == "host" else "native MPI, staged by hand"


def is_same_plan(row: Row) -> bool:
    """Tutti handed the call to the MPI library, as the baseline does."""
    return row.plan == "native" or row.plan.startswith("mpi-")


def gain(results: Results, row: Row) -> float | str:
    """Median latency of native over that of Tutti's choice, or why there is no such number."""
    if is_same_plan(row):
        return SAME_PLAN
    speedup, native = results.speedup(row), results.native(row.bytes)
    if speedup is None or native is None:
        return NOT_MEASURED
    if any(one.latency_us.p50 > NOISE * _least_us(results, one) for one in (row, native)):
        return NOISY
    return speedup


def _least_us(results: Results, row: Row) -> float:
    """Of the same side, at this and at larger sizes."""
    return min(
        one.latency_us.min
        for one in results.rows
        if one.bytes >= row.bytes
        and one.hybrid == row.hybrid
        and (row.hybrid or one.plan == row.plan)
    )


def gains(results: Results) -> dict[int, float | str]:
    """Bytes -> gain, of every size."""
    return {row.bytes: gain(results, row) for row in results.rows if row.hybrid}


def known(values: Iterable[float | str]) -> list[float]:
    """Those that are numbers."""
    return [value for value in values if isinstance(value, float)]


def all_gains(documents: Sequence[Results]) -> list[float | str]:
    """Of every size of every document."""
    return [value for document in documents for value in gains(document).values()]


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


def mpi_sentence(documents: Sequence[Results]) -> str:
    """The gain where Tutti took over, and at how many of the points that is."""
    found = all_gains(documents)
    faster = known(found)
    noisy = found.count(NOISY)
    left_out = f"; {noisy} points left out, the machine is busy" if noisy else ""
    if not faster:
        return f"Your MPI: both sides ran the same plan, so there is no gain to show{left_out}."
    return (
        f"Your MPI, {statistics.median(faster):.1f} times faster on this machine: median over "
        f"{baseline(documents[0])} at the {len(faster)} of {len(found)} points where Tutti does "
        f"not hand the call to MPI{left_out}."
    )


def rails_sentence(panel: Bars) -> str:
    """Against Open MPI's default and its striped best."""
    first, best = panel.bars[0].name, panel.best_other()
    share = ""
    if panel.bound is not None:
        share = f", {panel.bound / panel.ours().value:.0%} of what the links allow"
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
