# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The results document, schema `tutti-results/1`: one JSON document for one measured collective.

Units are in the names. `bytes` counts as nccl-tests does: the vector, or for allgather,
reduce_scatter, alltoall, gather and scatter one rank's block times the ranks.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import msgspec

from tutti_hpc import files
from tutti_hpc.errors import TuttiError
from tutti_hpc.terms import COLLECTIVES

SCHEMA = "tutti-results/1"


class Latency(msgspec.Struct):
    """Of the timed calls; a call's latency is that of its slowest rank."""

    min: float
    p50: float
    p99: float
    max: float


class Row(msgspec.Struct):
    """One plan at one size. Bandwidths are at the median latency, in GB/s (10^9 bytes)."""

    bytes: int
    plan: str
    hybrid: bool  # The row that selection itself gave; `plan` is the plan it used.
    latency_us: Latency
    algbw_gbps: float
    busbw_gbps: float
    wrong: Optional[int] = None  # Wrong elements; null: not checked.


class Machine(msgspec.Struct):
    """Where it was measured. `links` is the matrix of `nvidia-smi topo -m`, one row per GPU."""

    gpus: list[str] = []
    links: list[list[str]] = []
    cpus: str = ""
    cores: int = 0
    memory_bytes: int = 0


class Versions(msgspec.Struct):
    """Empty: not used or not known."""

    tutti: str = ""
    mpi: str = ""
    ccl: str = ""
    driver: str = ""


class Results(msgspec.Struct, kw_only=True):
    """The whole document."""

    schema: str = SCHEMA
    command: str
    date: str  # ISO 8601 with the offset from UTC.
    machine: Machine
    versions: Versions
    collective: str
    ranks: int
    nodes: int
    memory: str
    type: str
    op: str
    # Of the same job, timed as its calls: a plain launch of an empty kernel and the way of its word
    # to the host. Null: not on a CUDA device.
    floor_us: Optional[float] = None
    rows: list[Row] = []

    def native(self, size_bytes: int) -> Row | None:
        """The row of the MPI library's own collective at a size."""
        for row in self.rows:
            if row.bytes == size_bytes and row.plan == "native" and not row.hybrid:
                return row
        return None

    def speedup(self, row: Row) -> float | None:
        """Median latency of native over the row's."""
        native = self.native(row.bytes)
        if native is None or row.latency_us.p50 <= 0:
            return None
        return native.latency_us.p50 / row.latency_us.p50

    def wrong(self) -> int:
        """Wrong elements of all rows."""
        return sum(row.wrong or 0 for row in self.rows)


def validate(results: Results, where: str) -> Results:
    """The document itself, or a TuttiError that names the field."""
    if results.schema != SCHEMA:
        raise TuttiError(f"{where}: schema: '{results.schema}' is not {SCHEMA}")
    if results.collective not in COLLECTIVES:
        raise TuttiError(f"{where}: collective: '{results.collective}' is no collective")
    for index, row in enumerate(results.rows):
        latency = row.latency_us
        if not 0 <= latency.min <= latency.p50 <= latency.p99 <= latency.max:
            raise TuttiError(
                f"{where}: rows[{index}].latency_us: min <= p50 <= p99 <= max is false"
            )
    return results


def decode(data: bytes, where: str) -> list[Results]:
    """The documents of a text: one, or an array of them."""
    try:
        if data.lstrip()[:1] == b"[":
            documents = msgspec.json.decode(data, type=list[Results])
        else:
            documents = [msgspec.json.decode(data, type=Results)]
    except msgspec.DecodeError as error:
        raise TuttiError(f"{where}: not a results document: {error}") from None
    return [validate(document, where) for document in documents]


def load(path: Path) -> list[Results]:
    """Reads a results file."""
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise TuttiError(f"{path}: {error.strerror}") from None


def merge(documents: Sequence[Results]) -> list[Results]:
    """One document for each collective, layout, memory, type, operation, machine and library.

    Repeated measurements become medians, plans of different files stand side by side.
    """
    groups: list[list[Results]] = []
    for one in documents:
        group = next((g for g in groups if all(_comparable(one, other) for other in g)), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    merged = []
    for group in groups:
        rows: dict[tuple[int, str], list[Row]] = {}
        for row in (row for one in group for row in one.rows):
            rows.setdefault((row.bytes, "hybrid" if row.hybrid else row.plan), []).append(row)
        floors = [one.floor_us for one in group if one.floor_us is not None]
        merged.append(
            msgspec.structs.replace(
                group[0],
                versions=msgspec.structs.replace(
                    group[0].versions,
                    mpi=next((one.versions.mpi for one in group if one.versions.mpi), ""),
                    ccl=next((one.versions.ccl for one in group if one.versions.ccl), ""),
                ),
                floor_us=statistics.median(floors) if floors else None,
                rows=[_median(r) for r in rows.values()],
            )
        )
    return merged


def _comparable(one: Results, other: Results) -> bool:
    """Of the same calls on the same machine. A job that used no such library goes with any."""
    calls = [(d.collective, d.ranks, d.nodes, d.memory, d.type, d.op) for d in (one, other)]
    places = [(d.machine.gpus, d.machine.cpus) for d in (one, other)]
    libraries = zip(*((d.versions.mpi, d.versions.ccl) for d in (one, other)))
    return (
        calls[0] == calls[1]
        and places[0] == places[1]
        and all(not mine or not others or mine == others for mine, others in libraries)
    )


def _median(rows: Sequence[Row]) -> Row:
    """Field by field, of one plan at one size; wrong elements add up."""
    if len(rows) == 1:
        return rows[0]
    latency = {
        name: statistics.median(getattr(row.latency_us, name) for row in rows)
        for name in Latency.__struct_fields__
    }
    checked = [row.wrong for row in rows if row.wrong is not None]
    return msgspec.structs.replace(
        rows[0],
        latency_us=Latency(**latency),
        algbw_gbps=statistics.median(row.algbw_gbps for row in rows),
        busbw_gbps=statistics.median(row.busbw_gbps for row in rows),
        wrong=sum(checked) if checked else None,
    )


def encode(results: Results | list[Results]) -> bytes:
    """The JSON text, indented, one row to a line, with a newline at its end."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=2)
    # A row is an object that holds one object: the only such thing in a document.
    rows = re.compile(rb'\{\s*"bytes":[^{}]*\{[^{}]*\}[^{}]*\}')
    return rows.sub(lambda row: re.sub(rb"\s*\n\s*", b" ", row[0]), text) + b"\n"


def save(results: Results | list[Results], path: Path) -> None:
    """Writes a results file."""
    files.write(path, encode(results))


def json_schema() -> dict[str, Any]:
    """JSON Schema of the document."""
    return msgspec.json.schema(Results)
