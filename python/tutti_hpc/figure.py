# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The latency-and-speedup figure. matplotlib is imported only when a figure is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tutti_hpc import formats
from tutti_hpc.errors import TuttiError
from tutti_hpc.mpi import short_version
from tutti_hpc.results import Results, Row
from tutti_hpc.sizes import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette and two of Tol's, which colour-blind readers can tell apart; black is the
# hybrid's.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933")
MARKERS = ("s", "^", "D", "v", "P", "X", "*", "h")
SPEEDUP_COLOUR = "#666666"
LEGEND_COLUMNS = 4


def switch_points(rows: list[Row]) -> list[tuple[float, str, str]]:
    """Sizes between which the hybrid changes its plan (geometric mean), with old and new plan."""
    ordered = sorted(rows, key=lambda row: row.bytes)
    return [
        ((max(a.bytes, 1) * b.bytes) ** 0.5, a.plan, b.plan)
        for a, b in zip(ordered, ordered[1:])
        if a.plan != b.plan
    ]


def title(results: Results) -> str:
    """What was measured, in one line; with which libraries in another."""
    where = results.machine.gpus[0] if results.memory == "device" and results.machine.gpus else ""
    nodes = "1 node" if results.nodes == 1 else f"{results.nodes} nodes"
    place = {"hostdevice": "stand-in device memory"}.get(results.memory, f"{results.memory} memory")
    what = f"{results.collective}, {results.ranks} ranks, {nodes}, {place} {where}".strip()
    libraries = (short_version(results.versions.mpi), results.versions.ccl)
    return "\n".join(line for line in (what, ", ".join(filter(None, libraries))) if line)


def _draw_latency(axes: Axes, results: Results) -> None:
    """One line per plan; the hybrid on top."""
    plans = formats.series(results)
    colour = 0
    for name, rows in plans.items():
        ordered = sorted(rows, key=lambda row: row.bytes)
        style: dict[str, Any] = {
            "color": PALETTE[colour % len(PALETTE)],
            "marker": MARKERS[colour % len(MARKERS)],
            "linewidth": 1.6,
            "markersize": 4,
        }
        if name == "hybrid":
            style = {
                "color": "black",
                "marker": "o",
                "linewidth": 2.4,
                "markersize": 4,
                "zorder": 5,
            }
            style |= {"markerfacecolor": "white"}
        else:
            colour += 1
        label = "native (staged by hand)" if name == "native" and results.memory != "host" else name
        axes.plot(
            [row.bytes for row in ordered],
            [row.latency_us.p50 for row in ordered],
            label=label,
            **style,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("message size (bytes)")
    axes.set_ylabel("median latency (µs)")
    sizes = sorted({row.bytes for row in results.rows if row.bytes > 0})
    ticks = sizes[:: max(1, len(sizes) // 9)]
    axes.set_xticks(ticks, [format_bytes(size) for size in ticks])
    axes.minorticks_off()
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    for at, _old, new in switch_points(plans.get("hybrid", [])):
        axes.axvline(at, color="black", linestyle=":", linewidth=1.4)
        axes.annotate(
            new,
            (at, 0.98),
            xytext=(3, 0),
            textcoords="offset points",
            xycoords=("data", "axes fraction"),
            fontsize=9,
            va="top",
            rotation=90,
            ha="left",
        )


def _draw_speedup(axes: Axes, results: Results) -> Axes | None:
    """Speedup of the hybrid over native on a second axis, which it returns."""
    rows = sorted(formats.series(results).get("hybrid", []), key=lambda row: row.bytes)
    points = [(row.bytes, results.speedup(row)) for row in rows]
    known = [(size, speedup) for size, speedup in points if speedup is not None]
    if not known:
        return None
    second = axes.twinx()
    values = [speedup for _, speedup in known]
    second.plot(
        [size for size, _ in known],
        values,
        color=SPEEDUP_COLOUR,
        linestyle="--",
        linewidth=1.4,
        label="speedup of hybrid (right axis)",
    )
    second.axhline(1, color=SPEEDUP_COLOUR, linewidth=0.6)
    second.set_ylabel("speedup of hybrid over native", color=SPEEDUP_COLOUR)
    second.tick_params(axis="y", colors=SPEEDUP_COLOUR)
    if max(values) > 10:
        second.set_yscale("log")
    else:
        second.set_ylim(0, max(2.0, 1.15 * max(values)))
    second.yaxis.set_major_formatter(lambda value, _position: f"{value:g}x")
    return second


def draw(documents: list[Results]) -> Figure:
    """A figure with one panel per document, stacked so that it reads at a README's width."""
    if not documents or not any(document.rows for document in documents):
        raise TuttiError("there are no rows to plot")
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise TuttiError("plots need matplotlib; remedy: `pip install matplotlib`") from None
    with matplotlib.rc_context({"font.size": 11, "axes.titlesize": 12}):
        figure, panels = pyplot.subplots(
            len(documents), 1, figsize=(8.2, 0.5 + 3.8 * len(documents)), squeeze=False
        )
        for axes, results in zip(panels[:, 0], documents):
            _draw_latency(axes, results)
            second = _draw_speedup(axes, results)
            handles, labels = axes.get_legend_handles_labels()
            if second is not None:
                more_handles, more_labels = second.get_legend_handles_labels()
                handles, labels = handles + more_handles, labels + more_labels
            lines = -(-len(labels) // LEGEND_COLUMNS)
            axes.set_title(title(results), pad=8 + 15 * lines)
            axes.legend(
                handles,
                labels,
                fontsize=9,
                loc="lower center",
                bbox_to_anchor=(0.5, 1.0),
                ncols=LEGEND_COLUMNS,
                frameon=False,
            )
        figure.tight_layout()
        pyplot.close(figure)  # Keeps the figure, drops pyplot's reference to it.
    return figure


def save(documents: list[Results], path: Path) -> None:
    """Draws and writes an image; the suffix names its format."""
    try:
        draw(documents).savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise TuttiError(f"{path}: {error}") from None
