# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Figures of sim_network.py's parts, each from the rows of its results.

python bench/sim_network_figures.py bench/results/sim-incast.json incast.png
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import results_head  # noqa: E402
from tutti_hpc import prediction_figure  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402
from tutti_hpc.figure import MARKERS, PALETTE  # noqa: E402
from tutti_hpc.sizes import format_bytes  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
PERCENTILES = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}


def _order(values: Iterable[Any]) -> list[Any]:
    """Each once, as first seen."""
    return list(dict.fromkeys(values))


def _grid(axes: Axes) -> None:
    axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _bars(
    axes: Axes, groups: Sequence[str], series: Sequence[str], of: Callable[[str, str], list[float]]
) -> None:
    """Bars of each series at each group: the mean of what `of` has for them, and its range."""
    width = 0.8 / len(series)
    for index, name in enumerate(series):
        found = [(at, of(group, name)) for at, group in enumerate(groups)]
        found = [(at, values) for at, values in found if values]
        means = [statistics.mean(values) for _, values in found]
        low = [mean - min(values) for mean, (_, values) in zip(means, found, strict=True)]
        high = [max(values) - mean for mean, (_, values) in zip(means, found, strict=True)]
        axes.bar(
            [at + (index - (len(series) - 1) / 2) * width for at, _ in found],
            means,
            width,
            yerr=[low, high],
            capsize=2,
            color=PALETTE[index % len(PALETTE)],
            label=name,
        )
    axes.set_xticks(range(len(groups)), groups, rotation=25, ha="right")
    _grid(axes)
    axes.legend()


def incast(rows: Sequence[Row]) -> Figure:
    """Median and tails of both traffics per control, and the whole distribution of each."""
    figure, panels = prediction_figure.panels([6.0, 6.0, 5.0, 5.0])
    controls = _order(row["what"] for row in rows)
    for axes, curve, group, title in (
        (panels[0], panels[2], "measured", "incast"),
        (panels[1], panels[3], "background", "permutation beside it"),
    ):

        def tail(control: str, name: str, group: str = group) -> list[float]:
            key = next(key for key, label in PERCENTILES.items() if label == name)
            return [row[group][key] for row in rows if row["what"] == control]

        _bars(axes, controls, list(PERCENTILES.values()), tail)
        axes.set_ylabel("completion of a message, us")
        axes.set_title(title)
        for index, control in enumerate(controls):
            lists = [row[group]["percentiles_us"] for row in rows if row["what"] == control]
            mean = [statistics.mean(values) for values in zip(*lists, strict=True)]
            curve.plot(mean, range(len(mean)), color=PALETTE[index], label=control)
        curve.set_xscale("log")
        curve.set_xlabel("completion of a message, us")
        curve.set_ylabel("% of messages")
        curve.set_ylim(0, 100)
        curve.set_title(title)
        _grid(curve)
        curve.legend(fontsize="small")
    return figure


def loss(rows: Sequence[Row]) -> Figure:
    """What is left of the speed without loss."""
    traffics = _order(row["traffic"] for row in rows)
    figure, panels = prediction_figure.panels([6.0] * len(traffics))
    for axes, traffic in zip(panels, traffics, strict=True):
        percents = _order(row["loss_percent"] for row in rows)
        for index, what in enumerate(_order(row["what"] for row in rows)):
            found = [
                [
                    100 * row["retained"]
                    for row in rows
                    if (row["traffic"], row["what"], row["loss_percent"])
                    == (traffic, what, percent)
                ]
                for percent in percents
            ]
            axes.errorbar(
                range(len(percents)),
                [statistics.mean(values) for values in found],
                yerr=[
                    [statistics.mean(values) - min(values) for values in found],
                    [max(values) - statistics.mean(values) for values in found],
                ],
                color=PALETTE[index],
                marker=MARKERS[index],
                capsize=2,
                label=what,
            )
        axes.set_xticks(range(len(percents)), [f"{percent} %" for percent in percents])
        axes.set_xlabel("packets lost")
        axes.set_ylabel("% of the speed without loss")
        axes.set_ylim(0, 105)
        axes.set_title(traffic)
        _grid(axes)
        axes.legend()
    return figure


def table4(rows: Sequence[Row]) -> Figure:
    """The slowest flow of each configuration, beside the published one."""
    controllers = _order(row["controller"] for row in rows)
    figure, panels = prediction_figure.panels([7.0] * len(controllers))
    for axes, controller in zip(panels, controllers, strict=True):
        mine = [row for row in rows if row["controller"] == controller]
        acks = _order(row["ack"] for row in mine)

        def bar(what: str, name: str, mine: list[Row] = mine) -> list[float]:
            if name in {"published", "public simulator"}:
                key = "published_us" if name == "published" else "htsim_us"
                return [row[key] for row in mine if row["configuration"] == what and row[key]][:1]
            return [
                value
                for row in mine
                if row["configuration"] == what and f"ours, {row['ack']}" == name
                for value in row["max_us_by_seed"]
            ]

        names = [*(f"ours, {ack}" for ack in acks), "published", "public simulator"]
        _bars(axes, _order(row["configuration"] for row in mine), names, bar)
        for place, what in enumerate(_order(row["configuration"] for row in mine)):
            floor_us = next(row["floor_us"] for row in mine if row["configuration"] == what)
            axes.hlines(floor_us, place - 0.45, place + 0.45, color="black", linestyle="--")
        axes.set_ylabel("slowest flow, us (dashed: floor)")
        axes.set_title(controller)
    return figure


def speed(rows: Sequence[Row]) -> Figure:
    """Events per CPU second and memory over the number of NICs."""
    figure, (left, right) = prediction_figure.panels([6.0, 6.0])
    single = [row for row in rows if row["threads"] == 1]
    for index, size in enumerate(_order(row["bytes"] for row in single)):
        mine = sorted((row for row in single if row["bytes"] == size), key=lambda row: row["nics"])
        for axes, key, scale in ((left, "events_per_cpu_s", 1e6), (right, "memory_peak_mb", 1)):
            axes.plot(
                [row["nics"] for row in mine],
                [row[key] / scale for row in mine],
                color=PALETTE[index],
                marker=MARKERS[index],
                label=f"{size / 1e6:g} MB flows",
            )
    for axes, label in ((left, "million events per CPU second"), (right, "memory, MB")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("NICs")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        _grid(axes)
        axes.legend()
    return figure


def collectives(rows: Sequence[Row]) -> Figure:
    """Times over what the most loaded NIC needs at line rate."""
    every = _order(row["bytes"] for row in rows)
    figure, panels = prediction_figure.panels([7.0] * len(every))
    for axes, size in zip(panels, every, strict=True):
        mine = [row for row in rows if row["bytes"] == size]

        def ratio(name: str, what: str, mine: list[Row] = mine) -> list[float]:
            return [
                row["latency_us"] / row["ideal_us"]
                for row in mine
                if f"{row['collective']} {row['algorithm']}" == name and row["what"] == what
            ]

        names = _order(f"{row['collective']} {row['algorithm']}" for row in mine)
        _bars(axes, names, _order(row["what"] for row in mine), ratio)
        axes.axhline(1, color="black", linestyle="--", linewidth=1)
        axes.set_ylabel("time, of the most loaded NIC at line rate")
        axes.set_title(f"{format_bytes(size)} on {rows[0]['ranks']} NICs")
    return figure


FIGURES: dict[str, Callable[[Sequence[Row]], Figure]] = {
    "collectives": collectives,
    "incast": incast,
    "loss": loss,
    "speed": speed,
    "table4": table4,
}


def save(part: str, rows: Sequence[Row], path: Path) -> None:
    """Draws a part's rows; the suffix names the format. TuttiError: no matplotlib, no place."""
    figure = FIGURES[part](rows)
    figure.tight_layout()
    prediction_figure.save(figure, path)


def main() -> None:
    results, path = Path(sys.argv[1]), Path(sys.argv[2])
    schemas = [f"tutti-bench-network-{part}/1" for part in FIGURES]
    try:
        document = results_head.load(results, *schemas)
    except TuttiError as error:
        raise SystemExit(error.format_message()) from None
    part = document["schema"].removeprefix("tutti-bench-network-").partition("/")[0]
    save(part, document["rows"], path)


if __name__ == "__main__":
    main()
