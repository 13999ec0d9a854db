# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks of the network plugin share: the lab, claims with bounds, paired repeats."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tutti_hpc.lab import lifetime, namespaces, network, packet_loss, plan, state

Row = dict[str, Any]

TCP_KNOB = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def ideal_bps(spec: plan.Spec) -> float:
    """Payload that can enter a node."""
    to_spines = spec.spines * (spec.spine_rate_bps or spec.rate_bps) if spec.spines else 0
    rate_bps = min(spec.rate_bps, to_spines) if to_spines else spec.rate_bps
    return rate_bps * plan.PAYLOAD_BYTES / plan.FRAME_BYTES


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Of two or more values; one value stands for all three."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    first, middle, last = statistics.quantiles(values, n=4, method="inclusive")
    return first, middle, last


def paired(rows: Sequence[Row], key: str, way: str, other: str) -> list[float]:
    """Ratios of a value of two ways, one for each repeat that has both."""
    of = {(row["way"], row["repeat"]): row[key] for row in rows}
    repeats = sorted({row["repeat"] for row in rows})
    return [of[way, i] / of[other, i] for i in repeats if (way, i) in of and (other, i) in of]


@dataclass(frozen=True)
class Claim:
    """A measured number and its bound."""

    what: str
    measured: float
    bound: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        """It is on the right side of its bound."""
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def __str__(self) -> str:
        sense = "at least" if self.at_least else "at most"
        verdict = "holds" if self.holds else "MISSED"
        return f"{self.what}: {self.measured:.3g}, {sense} {self.bound:.3g}: {verdict}"


class Lab:
    """A lab of a benchmark, up while in the scope."""

    def __init__(self, spec: plan.Spec, name: str = "bench-network") -> None:
        self.place = state.Place(state.default_base(), name)
        self.spec = spec
        self.plan = plan.make(spec)
        self.pids: dict[str, int] = {}

    def __enter__(self) -> Lab:
        up = lifetime.up(self.place, self.spec)
        self.pids = {name: box.pid for name, box in up.boxes.items()}
        return self

    def __exit__(self, *_: object) -> None:
        state.take_down(self.place)

    def fail_spine(self, spine: int, loss_ppm: int) -> None:
        """From now on a spine loses so many packets of a million that arrive at it."""
        name = f"spine{spine}"
        to_spine = [link for link in self.plan.links if link.b.box == name]

        def cut_segments(device: str) -> None:
            # What is lost must be a packet, so the kernel has to cut segments before the link.
            with network._netlink() as route:
                index = route.link_lookup(ifname=device)[0]
                route.link("set", index=index, gso_max_segs=1)

        for link in to_spine:
            network.inside(self.pids[link.a.box], partial(cut_segments, link.a.device))
        losses_ppm = {link.b.device: loss_ppm for link in to_spine}
        network.inside(self.pids[name], partial(packet_loss.start, losses_ppm))
        links = tuple(
            replace(link, loss_ppm=loss_ppm) if link in to_spine else link
            for link in self.plan.links
        )
        self.plan = replace(self.plan, links=links)  # So that count() reads what is lost.

    def count(self) -> tuple[int, int]:
        """(packets that queues dropped, packets that links lost) so far."""
        found = network.counters(self.plan, self.pids)
        return sum(one.dropped_packets for one in found), sum(one.lost_packets for one in found)

    def tcp(self) -> str:
        """The congestion control of TCP on the nodes; a lab begins with Reno."""
        return network.inside(self.pids[plan.node_name(0)], _tcp)

    def use_tcp(self, name: str) -> None:
        """Another one, where the kernel allows that in a namespace; else it stays what it is."""

        def choose() -> None:
            with contextlib.suppress(OSError):
                TCP_KNOB.write_text(name)

        for node in range(self.spec.nodes):
            network.inside(self.pids[plan.node_name(node)], choose)


def _tcp() -> str:
    return TCP_KNOB.read_text().strip()


def tcp_of(lab: Lab | None) -> str:
    """The congestion control of TCP on the nodes of a lab, or on the machine."""
    return lab.tcp() if lab else _tcp()


def busy_s() -> float:
    """Time that the machine's processors have not been idle."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _, _, *others = (int(value) for value in first[1:9])
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")


def raise_priority() -> None:
    """Before what else the machine may be doing."""
    with contextlib.suppress(PermissionError):
        os.nice(-20)


def enter(pid: int) -> None:
    """The network of a box; with priority."""
    namespaces.enter(pid, namespaces.NEW_NET)
    raise_priority()


def settings(text: str) -> tuple[str, str]:
    """`NAME=VALUE` of the environment."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=VALUE")
    return name, value
