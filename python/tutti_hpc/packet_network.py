# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs of traffic on a simulated packet network: asks the library, keeps its answers.

The document, schema `tutti-network/1`, has one row per seed. A flow's completion is the time from
when its send could begin until its sender knew that all had arrived.
"""

from __future__ import annotations

import datetime
import re
import resource
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import msgspec

from tutti_hpc import __version__, api, files, machine
from tutti_hpc.errors import TuttiError
from tutti_hpc.measure import command_line
from tutti_hpc.prediction import aligned
from tutti_hpc.results import Machine, Versions
from tutti_hpc.sizes import format_bytes

SCHEMA = "tutti-network/1"
GROUPS = ("measured", "background")
PERCENTILES = 101  # 0 to 100 %.


class Completion(msgspec.Struct):
    """Of the flows of one group, in microseconds."""

    group: str
    flows: int
    unfinished: int
    min_us: float
    mean_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    percentiles_us: list[float]  # 0 %, 1 %, ... 100 %.


class Tier(msgspec.Struct):
    """All links from one kind of node to another."""

    link: str
    links: int
    packets: int
    bytes: int
    bytes_min: int  # Of one link.
    bytes_max: int
    marked: int
    trimmed: int
    dropped: int
    lost: int
    pauses: int
    queue_bytes_max: int
    queue: list[int]  # Data packets sent, by what they left waiting, in sixteenths of a queue.


class Row(msgspec.Struct):
    """One seed: of the traffic, the switches' hashes and the protocol's choices."""

    seed: int
    end_us: float
    completions: list[Completion]
    packets_sent: int
    retransmissions: int
    spurious: int
    timeouts: int
    acks_sent: int
    marked: int
    trimmed: int
    dropped: int
    lost: int
    unfinished: int
    failed: int
    events: int
    trace_hash: str
    cpu_s: float  # Of the run, all threads.
    wall_s: float
    memory_peak_mb: float  # Of this process so far.
    tiers: list[Tier]


class Document(msgspec.Struct, kw_only=True):
    """The whole document."""

    schema: str = SCHEMA
    command: str
    date: str  # ISO 8601 with the offset from UTC.
    machine: Machine  # Where the simulator ran: of influence on its speed alone.
    versions: Versions
    query: dict[str, Any]  # What the library was asked, but for the seeds.
    hosts: int
    ideal_us: Optional[float]  # Payload through the most loaded link of a host at line rate.
    floor_us: Optional[float]  # With headers and a round trip.
    base_rtt_us: float
    bdp_bytes: int
    queue_bytes: int
    floor_reason: Optional[str] = None  # Why there is no ideal and no floor.
    rows: list[Row]


def rate(text: str) -> int:
    """`400G` -> 400000 Mbit/s. ValueError names what is wrong."""
    match = re.fullmatch(r"(\d+)\s*([MGT])(?:b(?:it)?(?:/s|ps))?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"'{text}' is not a rate; write for example 400G")
    return int(match[1]) * {"M": 1, "G": 1000, "T": 1_000_000}[match[2].upper()]


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all does not exceed."""
    return ordered[max(0, min(len(ordered) - 1, -int(-part * len(ordered) // 1) - 1))]


def completion(group: int, flows: Sequence[Sequence[int | None]]) -> Completion:
    """Of the flows [src, dst, bytes, group, start_ps, end_ps]; those without an end count apart."""
    done = sorted((end - start) / 1e6 for *_, start, end in flows if start is not None and end)
    unfinished = len(flows) - len(done)
    if not done:
        return Completion(GROUPS[group], len(flows), unfinished, 0, 0, 0, 0, 0, 0, [])
    return Completion(
        group=GROUPS[group],
        flows=len(flows),
        unfinished=unfinished,
        min_us=done[0],
        mean_us=round(sum(done) / len(done), 3),
        p50_us=quantile(done, 0.5),
        p99_us=quantile(done, 0.99),
        p999_us=quantile(done, 0.999),
        max_us=done[-1],
        percentiles_us=[quantile(done, i / (PERCENTILES - 1)) for i in range(PERCENTILES)],
    )


def _row(seed: int, answer: api.Document, cpu_s: float, wall_s: float) -> Row:
    flows: dict[int, list[Any]] = {}
    for flow in answer["flows"]:
        flows.setdefault(flow[3], []).append(flow)
    tiers = [
        Tier(link=f"{tier.pop('from')}-{tier.pop('to')}", **tier)
        for tier in map(dict, answer["tiers"])
    ]
    same: tuple[str, ...] = ("packets_sent", "retransmissions", "spurious", "timeouts", "acks_sent")
    same += ("unfinished", "failed", "events")
    sums = {
        key: sum(getattr(tier, key) for tier in tiers)
        for key in ("marked", "trimmed", "dropped", "lost")
    }
    return Row(
        seed=seed,
        end_us=answer["end_ps"] / 1e6,
        completions=[completion(group, flows[group]) for group in sorted(flows)],
        trace_hash=f"{answer['trace_hash']:016x}",
        cpu_s=round(cpu_s, 3),
        wall_s=round(wall_s, 3),
        memory_peak_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        tiers=tiers,
        **{key: answer[key] for key in same},
        **sums,
    )


def _us(time_ps: int | None) -> float | None:
    return None if time_ps is None else time_ps / 1e6


def run(
    query: api.Document, seeds: Sequence[int], progress: Callable[[Row], None] | None = None
) -> Document:
    """Asks once per seed."""
    rows: list[Row] = []
    answer: api.Document = {}
    for seed in seeds:
        wall, cpu = time.perf_counter(), time.process_time()
        answer = api.library().simulate_network({**query, "seed": seed, "traffic_seed": seed})
        rows.append(_row(seed, answer, time.process_time() - cpu, time.perf_counter() - wall))
        if progress:
            progress(rows[-1])
    return Document(
        command=shlex.join(command_line(sys.argv)),
        date=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        machine=machine.describe(),
        versions=Versions(tutti=__version__),
        query=query,
        hosts=answer["hosts"],
        ideal_us=_us(answer["ideal_ps"]),
        floor_us=_us(answer["floor_ps"]),
        floor_reason=answer["floor_reason"],
        base_rtt_us=answer["base_rtt_ps"] / 1e6,
        bdp_bytes=answer["bdp_bytes"],
        queue_bytes=answer["queue_bytes"],
        rows=rows,
    )


def text(document: Document) -> str:
    """Tables for people: completions, then the links of the last seed."""
    query = document.query
    what = query.get("goal") or query.get("traffic", "permutation")
    size = "" if query.get("goal") else f" of {format_bytes(query.get('bytes', 0))}"
    if document.ideal_us is None or document.floor_us is None:
        least = f"ideal -, floor - ({document.floor_reason})"
    else:
        least = f"ideal {document.ideal_us:.1f} us, floor {document.floor_us:.1f} us"
    lines = [
        f"# {what}{size} on {query.get('topology')}: {least}, round trip "
        f"{document.base_rtt_us:.2f} us"
    ]
    table: list[tuple[str, ...]] = [
        (
            "seed",
            "flows",
            "max us",
            "p99 us",
            "mean us",
            "end/floor",
            "rtx",
            "trims",
            "drops",
            "unfinished",
            "events",
            "CPU s",
            "M events/s",
        )
    ]
    for row in document.rows:
        for one in row.completions:
            table.append(
                (
                    str(row.seed),
                    f"{one.flows} {one.group}",
                    f"{one.max_us:.1f}",
                    f"{one.p99_us:.1f}",
                    f"{one.mean_us:.1f}",
                    f"{row.end_us / document.floor_us:.3f}" if document.floor_us else "-",
                    str(row.retransmissions),
                    str(row.trimmed),
                    str(row.dropped + row.lost),
                    str(one.unfinished),
                    str(row.events),
                    f"{row.cpu_s:.2f}",
                    f"{row.events / max(row.cpu_s, 1e-9) / 1e6:.1f}",
                )
            )
    lines += [aligned(table, left=(1,)), "# links of the last seed"]
    links = [("links", "count", "MB min", "MB mean", "MB max", "marked", "trimmed", "queue max")]
    for tier in document.rows[-1].tiers:
        links.append(
            (
                tier.link,
                str(tier.links),
                f"{tier.bytes_min / 1e6:.2f}",
                f"{tier.bytes / tier.links / 1e6:.2f}",
                f"{tier.bytes_max / 1e6:.2f}",
                f"{tier.marked / max(tier.packets, 1):.1%}",
                str(tier.trimmed),
                f"{tier.queue_bytes_max / document.queue_bytes:.0%}",
            )
        )
    return "\n".join([*lines, aligned(links, left=(0,))]) + "\n"


def encode(document: Document) -> bytes:
    """The JSON text, indented, lists of numbers on one line."""
    raw = msgspec.json.format(msgspec.json.encode(document), indent=2)
    numbers = re.compile(rb"\[[\s\d.,eE+-]*\]")
    return numbers.sub(lambda found: re.sub(rb"\s+", b"", found[0]), raw) + b"\n"


def save(document: Document, path: Path) -> None:
    """Writes the document."""
    files.write(path, encode(document))


def decode(raw: bytes, path: Path | str = "document") -> Document:
    """Reads a document's text; `path` is for errors."""
    try:
        document = msgspec.json.decode(raw, type=Document)
    except msgspec.DecodeError as error:
        raise TuttiError(f"{path}: not a network document: {error}") from None
    if document.schema != SCHEMA:
        raise TuttiError(f"{path}: schema: '{document.schema}' is not {SCHEMA}")
    return document


def load(path: Path) -> Document:
    """Reads a document."""
    try:
        return decode(path.read_bytes(), path)
    except OSError as error:
        raise TuttiError(f"{path}: {error.strerror}") from None
