# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Figures of predictions: latency per algorithm, and the paper's numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tutti_hpc.errors import TuttiError
from tutti_hpc.figure import MARKERS, PALETTE
from tutti_hpc.parallel_rings import BEYOND, Paper, Row
from tutti_hpc.prediction import Prediction
from tutti_hpc.sizes import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_STYLES = ("-", "--", ":")


def panels(widths: list[float], rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Panels side by side with these relative widths, row after row of them."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise TuttiError("plots need matplotlib; remedy: `pip install matplotlib`") from None
    figure, axes = pyplot.subplots(
        rows,
        len(widths),
        figsize=(sum(widths), 5.2 * rows),
        squeeze=False,
        width_ratios=widths,
    )
    pyplot.close(figure)  # Keeps the figure, drops pyplot's reference to it.
    return figure, list(axes.flat)


def _style(index: int) -> dict[str, Any]:
    """A line that differs from the others in colour and marker, and in dashes when colours end."""
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINE_STYLES[index // len(PALETTE) % len(LINE_STYLES)],
        "linewidth": 1.6,
        "markersize": 4,
    }


def _size_axis(axes: Axes, sizes: list[int], label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlabel(label)
    ticks = sizes[:: max(1, len(sizes) // 9)]
    axes.set_xticks(ticks, [format_bytes(size) for size in ticks])
    axes.minorticks_off()
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)


def _curves(document: Prediction) -> dict[tuple[tuple[int, float], ...], list[str]]:
    """(size, latency) points, and the algorithms that have them: equal ones would hide each other.

    In the order of the last point, slowest first.
    """
    curves: dict[tuple[tuple[int, float], ...], list[str]] = {}
    for name in sorted({row.algorithm for row in document.rows}):
        rows = [row for row in document.rows if row.algorithm == name]
        curves.setdefault(tuple((row.bytes, row.latency_us) for row in rows), []).append(name)
    return dict(sorted(curves.items(), key=lambda curve: -curve[0][-1][1]))


def draw_latency(document: Prediction) -> Figure:
    """One line per algorithm."""
    if not document.rows:
        raise TuttiError("there are no rows to plot")
    figure, (axes,) = panels([9.0])
    for index, (points, names) in enumerate(_curves(document).items()):
        label = "\n".join(names)
        axes.plot(
            [size for size, _ in points], [us for _, us in points], label=label, **_style(index)
        )
    axes.set_yscale("log")
    axes.set_ylabel("predicted latency (µs)")
    _size_axis(axes, sorted({row.bytes for row in document.rows}), "message size (bytes)")
    axes.set_title(
        f"{document.collective}, {document.ranks} GPUs of {document.cluster['name']}, predicted"
    )
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.tight_layout()
    return figure


def _draw_bars(axes: Axes, rows: list[Row]) -> None:
    """Each published figure: the paper's bar, the model's, and marks for ours beyond the paper."""
    places = list(range(len(rows)))
    published = [row.published_percent or 0.0 for row in rows]
    predicted = [row.predicted_percent for row in rows]
    axes.bar([p - 0.2 for p in places], published, 0.4, label="published", color="#BBBBBB")
    axes.bar([p + 0.2 for p in places], predicted, 0.4, label="predicted", color=PALETTE[1])
    for index, name in enumerate(BEYOND):
        values = [row.beyond_percent[name] for row in rows]
        axes.plot(
            [p + 0.2 for p in places],
            values,
            linestyle="none",
            marker=MARKERS[index],
            color=PALETTE[index * 2],
            markeredgecolor="black",
            label=f"predicted, {name}",
        )
    for place, row in zip(places, rows):
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "none", "pad": 0.2}
        text = f"{row.distance():+.1f}"
        axes.annotate(text, (place, 2), fontsize=8, ha="center", va="bottom", bbox=box)
    names = [f"{row.theirs}\n{row.ranks} {row.cluster[-1].upper()}" for row in rows]
    axes.set_xticks(places, names, fontsize=8)
    axes.set_ylim(0, 100)
    axes.set_ylabel("less time than (%)")
    axes.set_title("Parallel Rings, published figures (difference in points)", fontsize=11)
    axes.legend(fontsize=8, ncols=2, loc="upper center", frameon=False)


def _draw_sweep(axes: Axes, rows: list[Row]) -> None:
    """Improvement over NCCL's rings by size."""
    for index, ranks in enumerate(sorted({row.ranks for row in rows})):
        line = sorted((row for row in rows if row.ranks == ranks), key=lambda row: row.block_bytes)
        sizes = [row.block_bytes for row in line]
        style = _style(index)
        axes.plot(
            sizes, [row.predicted_percent for row in line], label=f"predicted, {ranks}", **style
        )
        axes.plot(
            sizes,
            [row.apart_percent or 0.0 for row in line],
            label=f"predicted, {ranks}, first exchange apart",
            **{**style, "linestyle": ":", "marker": ""},
        )
        known = [
            (row.block_bytes, row.published_percent)
            for row in line
            if row.published_percent is not None
        ]
        axes.plot(
            [size for size, _ in known],
            [percent for _, percent in known],
            linestyle="none",
            marker=style["marker"],
            markersize=9,
            markerfacecolor="none",
            color=style["color"],
            label=f"published, {ranks}",
        )
    axes.axhline(0, color="black", linewidth=0.6)
    _size_axis(axes, sorted({row.block_bytes for row in rows}), "block of one rank (bytes)")
    axes.set_ylabel("less time than NCCL's rings (%)")
    axes.set_title("over NCCL by size", fontsize=11)
    axes.legend(fontsize=8, frameon=False)


def draw_paper(document: Paper) -> Figure:
    """The published figures and the sweep against NCCL."""
    figure, (bars, sweep) = panels([10.5, 5.0])
    _draw_bars(bars, [row for row in document.rows if row.published_percent is not None])
    _draw_sweep(sweep, [row for row in document.rows if row.theirs == "NCCL"])
    figure.tight_layout()
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes an image; the suffix names its format."""
    try:
        figure.savefig(path, dpi=120, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise TuttiError(f"{path}: {error}") from None
