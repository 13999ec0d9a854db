# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Predicted times of collectives on a cluster: asks the library's simulator, keeps its answers.

The document, schema `tutti-prediction/1`, has the head of a results document (results.py) and rows
of its own. `bytes` counts as there; `block_bytes` is one rank's block, the size in OSU's sense.
"""

from __future__ import annotations

import datetime
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import msgspec

from tutti_hpc import __version__, api, files, machine, paths, terms
from tutti_hpc.errors import TuttiError
from tutti_hpc.measure import command_line
from tutti_hpc.results import Machine, Versions
from tutti_hpc.sizes import format_bytes

SCHEMA = "tutti-prediction/1"
# Blocks are equal here, so these are the same as their regular forms.
_REGULAR = {
    "allgatherv": "allgather",
    "gatherv": "gather",
    "scatterv": "scatter",
    "reduce_scatter": "reduce_scatter_block",
}
BLOCKS = ("allgather", "reduce_scatter_block", "alltoall", "gather", "scatter", *_REGULAR)


class Link(msgspec.Struct, omit_defaults=True):
    """All ends of one kind of link in one direction. Shares are of the predicted time."""

    kind: str
    direction: str
    ends: int
    bytes: int
    bytes_max: int  # Of one end.
    utilisation_mean: float  # Bytes over what the link could have moved.
    utilisation_max: float
    busy_max: Optional[float] = None  # The busiest end held a message.
    incast_max: Optional[float] = None  # The end with most of it had two or more coming in.


class Row(msgspec.Struct):
    """One algorithm at one size. Bandwidths as in results.py."""

    bytes: int
    block_bytes: int
    algorithm: str
    latency_us: float  # Of the last rank.
    latency_us_min: float  # Of the first rank to finish.
    algbw_gbps: float
    busbw_gbps: float
    links: list[Link]


class Head(msgspec.Struct, kw_only=True):
    """What a document says of where its rows come from."""

    schema: str
    command: str
    date: str  # ISO 8601 with the offset from UTC.
    machine: Machine  # Where the simulator ran: of no influence on the rows.
    versions: Versions
    collective: str
    ranks: int
    nodes: int
    memory: str = "device"
    type: str = "byte"
    op: str = "none"


class Prediction(Head, kw_only=True):
    """The whole document."""

    cluster: dict[str, Any]  # The cluster file.
    refusals: dict[str, str]  # By algorithm: why it cannot.
    rows: list[Row]


def head(collective: str, ranks: int, nodes: int) -> dict[str, Any]:
    """The fields of `Head` but its schema."""
    reduction = collective in terms.REDUCTIONS
    return {
        "command": shlex.join(command_line(sys.argv)),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "versions": Versions(tutti=__version__),
        "collective": collective,
        "ranks": ranks,
        "nodes": nodes,
        "type": "float32" if reduction else "byte",
        "op": "sum" if reduction else "none",
    }


def cluster_directories() -> list[Path]:
    """Where cluster files are shipped; the directories need not exist."""
    root = paths.source_tree()
    found = [root / "tuning" / "clusters"] if root else []
    prefixes = {directory.parent: None for directory in paths.library_directories()}
    return found + [prefix / "share" / "tutti" / "tuning" / "clusters" for prefix in prefixes]


def find_cluster(name: str) -> Path:
    """A cluster file: a path, or the name of a shipped one with or without `.json`."""
    if Path(name).is_file():
        return Path(name)
    shipped: dict[str, Path] = {}
    for directory in cluster_directories():
        for path in sorted(directory.glob("*.json")):
            shipped.setdefault(path.stem, path)
    stem = name.removesuffix(".json")
    if stem not in shipped:
        raise TuttiError(f"cluster '{name}': no such file; shipped are {', '.join(shipped)}")
    return shipped[stem]


def algorithm_names(collective: str, simulated: bool = True) -> list[str]:
    """Names in the library's order; with `simulated` also those that only the simulator has."""
    regular = _REGULAR.get(collective, collective)
    return [
        a["name"]
        for a in api.library().algorithms()
        if a["collective"] == regular and (simulated or not a["simulated_only"])
    ]


class Simulator:
    """Asks about one collective on one cluster."""

    def __init__(
        self,
        cluster: Path,
        collective: str,
        ranks: int,
        radix: int = 0,
        segments: int = 0,
        network: str = "fluid",
        packets: api.Document | None = None,
    ) -> None:
        """`radix`, `segments`: 0 is the algorithm's own choice. `network`: fluid or packet.

        `packets`: of a packet network, topology, paths and spray where they are not the usual.
        """
        self.collective = collective
        self.ranks = ranks
        self._query = {
            "cluster": str(cluster),
            "collective": collective,
            "ranks": ranks,
            "element_bytes": terms.TYPES["float32"] if collective in terms.REDUCTIONS else 1,
            "radix": radix,
            "segments": segments,
            "network": network,
            **(packets or {}),
        }

    def ask(self, algorithm: str, sizes: Sequence[int], steps: bool = False) -> api.Document:
        """The library's document."""
        query = {**self._query, "algorithm": algorithm, "bytes": list(sizes), "steps": steps}
        return api.library().simulate(query)

    def rows(self, algorithm: str, sizes: Sequence[int]) -> tuple[list[Row], str | None, int]:
        """Rows, why there are none, and the number of nodes."""
        answer = self.ask(algorithm, sizes)
        found = [self._row(algorithm, row) for row in answer["rows"]]
        return found, answer["refusal"], answer["nodes"]

    def latency_us(self, algorithm: str, size: int) -> float:
        """Of one algorithm at one size."""
        rows, refusal, _ = self.rows(algorithm, [size])
        if refusal is not None:
            raise TuttiError(f"{algorithm}: {refusal}")
        return rows[0].latency_us

    def _row(self, algorithm: str, row: api.Document) -> Row:
        latency_us = row["time_ps"] / 1e6
        algorithm_gbps, bus_gbps = terms.bandwidths_gbps(
            self.collective, self.ranks, row["bytes"], latency_us
        )
        return Row(
            bytes=row["bytes"],
            block_bytes=row["block_bytes"],
            algorithm=algorithm,
            latency_us=latency_us,
            latency_us_min=row["time_ps_min"] / 1e6,
            algbw_gbps=algorithm_gbps,
            busbw_gbps=bus_gbps,
            links=msgspec.convert(row["links"], list[Link]),
        )


def predict(
    simulator: Simulator, cluster: Path, algorithms: Sequence[str], sizes: Sequence[int]
) -> Prediction:
    """All algorithms at all sizes, size by size and the fastest first."""
    rows: list[Row] = []
    refusals: dict[str, str] = {}
    nodes = 1
    for algorithm in algorithms:
        found, refusal, nodes = simulator.rows(algorithm, sizes)
        rows += found
        if refusal is not None:
            refusals[algorithm] = refusal
    return Prediction(
        schema=SCHEMA,
        **head(simulator.collective, simulator.ranks, nodes),
        cluster=json.loads(cluster.read_text()),
        refusals=refusals,
        rows=sorted(rows, key=lambda row: (row.bytes, row.latency_us)),
    )


def chrome_trace(answer: api.Document, gpus_per_node: int) -> dict[str, Any]:
    """The steps of an answer as Chrome's trace format, which Perfetto reads too.

    A process per node, a thread per rank and link: there a rank sends one message at a time.
    """
    events: list[dict[str, Any]] = []
    threads: dict[tuple[int, str], int] = {}
    for step in answer["rows"][0]["steps"]:
        rank, link = step["from"], step["link"]
        node = rank // gpus_per_node
        if (rank, link) not in threads:
            thread = threads[rank, link] = len(threads)
            name = {"name": f"rank {rank} {link}"}
            events.append(
                {"ph": "M", "name": "thread_name", "pid": node, "tid": thread, "args": name}
            )
        events.append(
            {
                "ph": "X",
                "name": f"to {step['to']}",
                "cat": link,
                "pid": node,
                "tid": threads[rank, link],
                "ts": step["start_ps"] / 1e6,
                "dur": (step["end_ps"] - step["start_ps"]) / 1e6,
                "args": {
                    "bytes": step["bytes"],
                    "step": step["send_step"],
                    "step of receiver": step["recv_step"],
                    "ready_us": step["ready_ps"] / 1e6,
                },
            }
        )
    nodes = sorted({event["pid"] for event in events})
    events += [
        {"ph": "M", "name": "process_name", "pid": node, "args": {"name": f"node {node}"}}
        for node in nodes
    ]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def text(document: Prediction) -> str:
    """A table, one line for each size and algorithm."""
    plural = "" if document.nodes == 1 else "s"
    lines = [
        f"# {document.collective}: {document.ranks} ranks on {document.nodes} node{plural} of "
        f"{document.cluster['name']}, predicted",
    ]
    table = [("size", "block", "algorithm", "latency us", "busbw GB/s", "fullest link")]
    for row in document.rows:
        full = max(row.links, key=lambda link: link.utilisation_max, default=None)
        table.append(
            (
                format_bytes(row.bytes),
                format_bytes(row.block_bytes),
                row.algorithm,
                f"{row.latency_us:.2f}",
                f"{row.busbw_gbps:.2f}",
                f"{full.kind} {full.direction} {full.utilisation_max:.0%}" if full else "-",
            )
        )
    lines.append(aligned(table, left=(2, 5)))
    lines += [f"# {name}: {reason}" for name, reason in document.refusals.items()]
    return "\n".join(lines) + "\n"


def aligned(table: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """Columns two blanks apart; those of `left` to the left, the others to the right."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in table
    )


def save(document: Head, path: Path) -> None:
    """Writes a document, one row to a line."""
    files.write(path, encode(document))


def encode(document: Head) -> bytes:
    """The JSON text, indented, one row to a line, with a newline at its end."""
    parts = msgspec.to_builtins(document)
    rows = parts.pop("rows")
    start = json.dumps(parts, indent=2, ensure_ascii=False)
    start = re.sub(r"\n}$", "", start)
    lines = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{start},\n  "rows": [\n{lines}\n  ]\n}}\n'.encode()
