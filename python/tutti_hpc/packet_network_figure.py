# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Figures of runs on a simulated packet network: completion times of flows, and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tutti_hpc.figure import PALETTE
from tutti_hpc.packet_network import Document
from tutti_hpc.prediction_figure import panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _completions(axes: Axes, document: Document) -> None:
    for row in document.rows:
        for index, one in enumerate(row.completions):
            if one.percentiles_us:
                axes.plot(
                    one.percentiles_us,
                    range(len(one.percentiles_us)),
                    color=PALETTE[index],
                    alpha=max(0.3, 1 / len(document.rows)),
                    label=one.group if row is document.rows[0] else None,
                )
    if document.floor_us is not None:
        axes.axvline(document.floor_us, color="black", linestyle="--", linewidth=1, label="floor")
    axes.set_xlabel("completion of a flow, us")
    axes.set_ylabel("% of flows")
    axes.set_ylim(0, 100)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.legend()


def _queues(axes: Axes, document: Document) -> None:
    switched = [tier for tier in document.rows[-1].tiers if not tier.link.startswith("host")]
    for index, tier in enumerate(switched):
        total = max(1, sum(tier.queue))
        shares = [100 * count / total for count in tier.queue]
        axes.step(
            [100 * i / len(shares) for i in range(len(shares))],
            shares,
            where="post",
            color=PALETTE[index % len(PALETTE)],
            label=tier.link,
        )
    axes.set_yscale("log")
    axes.set_xlabel("data waiting behind a packet, % of a queue")
    axes.set_ylabel("% of packets")
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.legend()


def draw(document: Document) -> Figure:
    """Completion times of all seeds beside the queues of the last."""
    figure, (left, right) = panels([6.4, 6.4])
    _completions(left, document)
    _queues(right, document)
    traffic = document.query.get("goal") or document.query.get("traffic", "permutation")
    figure.suptitle(f"{traffic} on {document.query.get('topology')}")
    return figure
