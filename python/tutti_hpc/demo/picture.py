# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The picture of the demo: one panel for each part."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from tutti_hpc import prediction_figure
from tutti_hpc.demo.document import Bars, Demo, all_gains, baselines, gains, known
from tutti_hpc.figure import MARKERS, PALETTE
from tutti_hpc.mpi import short_version
from tutti_hpc.results import Results
from tutti_hpc.sizes import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, OTHERS = "black", "#B0B0B0"


def _say_not_run(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_axis_off()
    axes.text(0.5, 0.5, "not run here", ha="center", va="center", transform=axes.transAxes)


def _draw_gains(axes: Axes, documents: list[Results]) -> None:
    """A line for each collective and MPI, without the points where both ran the same plan."""
    libraries = list(dict.fromkeys(document.versions.mpi for document in documents))
    collectives = list(dict.fromkeys(document.collective for document in documents))
    others = baselines(documents[0])
    for document, over in itertools.product(documents, others):
        found = {
            size: gain for size, gain in gains(document, over).items() if isinstance(gain, float)
        }
        if not found:
            continue
        colour = collectives.index(document.collective)
        # The second style is of the second MPI, or of the second baseline where there is one MPI.
        style = libraries.index(document.versions.mpi) or list(others).index(over)
        which = others[over] if len(others) > 1 else short_version(document.versions.mpi)
        axes.plot(
            list(found),
            list(found.values()),
            color=PALETTE[colour % len(PALETTE)],
            marker=MARKERS[style % len(MARKERS)],
            linestyle="-" if style == 0 else "--",
            linewidth=1.5,
            markersize=5,
            label=f"{document.collective}, {which}",
        )
    sizes = sorted({size for document in documents for size in gains(document)})
    axes.axhline(1, color="#666666", linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}x")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [format_bytes(size) for size in sizes])
    axes.set_xlim(min(sizes) / 2, max(sizes) * 2)
    axes.minorticks_off()
    axes.set_xlabel("message size (bytes)")
    # Of several the legend has the names.
    than = f" than {next(iter(others.values()))}" if len(others) == 1 else ""
    axes.set_ylabel(f"times faster{than}")
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    faster = known(all_gains(documents))
    if not faster:
        axes.text(0.5, 0.6, "same plan", ha="center", transform=axes.transAxes)
    middle = f": {statistics.median(faster):.1f} times faster" if faster else ""
    axes.set_title(f"Your MPI{middle}")
    if faster:
        least, most = axes.get_ylim()
        axes.set_ylim(least, most * (most / least) ** 0.3)  # Room for the legend above the lines.
        axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper left")


def _draw_bars(axes: Axes, title: str, panel: Bars) -> None:
    names = [bar.name.replace(", ", ",\n") for bar in panel.bars]
    colours = [OURS if bar.is_ours else OTHERS for bar in panel.bars]
    values = [bar.value for bar in panel.bars]
    drawn = axes.bar(names, values, color=colours, width=0.6)
    axes.bar_label(drawn, fmt="%.0f", fontsize=9)
    if panel.bound is not None:
        axes.axhline(panel.bound, color=PALETTE[0], linestyle="--", linewidth=1.2)
        axes.text(
            0.01,
            panel.bound,
            "links allow",
            color=PALETTE[0],
            fontsize=8,
            ha="left",
            va="bottom",
            transform=axes.get_yaxis_transform(),
        )
    better = "less is better" if panel.is_time else "more is better"
    axes.set_ylabel(f"{panel.unit} ({better})")
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title(f"{title}\n{panel.title}", fontsize=10)


def draw(demo: Demo) -> Figure:
    """Three panels side by side."""
    figure, (mpi, rails, transport) = prediction_figure.panels([6.6, 4.6, 4.6])
    if demo.mpi:
        _draw_gains(mpi, demo.mpi)
    else:
        _say_not_run(mpi, "Your MPI")
    for axes, title, panel in (
        (rails, "All NICs used", demo.rails),
        (transport, "NCCL's Ethernet without flow collisions", demo.transport),
    ):
        if panel:
            _draw_bars(axes, title, panel)
        else:
            _say_not_run(axes, title)
    figure.tight_layout()
    return figure


def save(demo: Demo, path: Path) -> None:
    """Draws and writes."""
    prediction_figure.save(draw(demo), path)
