# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of ranks that meet by TCP, without an MPI library: schedules over Tutti's own transport.

Starts one process for each rank, on this machine or on the nodes of a lab, and reads what rank 0
prints.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tutti_hpc import processes
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import lifetime
from tutti_hpc.lab.plan import chunk_bytes, management_address, node_name
from tutti_hpc.lab.state import Place

ANYWHERE = 0  # A port that is free.
LOOPBACK = "127.0.0.1"
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 1024, 65536  # Of the transport over UDP.
INTERFACES = "NCCL_SOCKET_IFNAME"
# Of ranks for the last to come; on a lab's node a process takes half a second to start.
PATIENCE_S = 120
# What ranks have to end in after one has failed: longer than a peer may be silent
# (TUTTI_NET_TIMEOUT), so that they say themselves what went wrong; while they meet, less.
END_TIMEOUT_S = 60.0
BOOTSTRAP_END_S = 3.0
_LOOK_S = 0.25


@dataclass(frozen=True)
class Rank:
    """Where a rank runs: words before its program, and what its node is called."""

    prefix: tuple[str, ...]
    node: str


@dataclass(frozen=True)
class Ranks:
    """All ranks, the host at which they meet, and variables that are theirs unless set."""

    ranks: tuple[Rank, ...]
    bootstrap_host: str
    variables: Mapping[str, str]


def of_machine(nodes: Sequence[int]) -> Ranks:
    """On this machine, over its loopback; `nodes`: of each rank, as if there were several."""
    return Ranks(tuple(Rank((), f"node{node}") for node in nodes), LOOPBACK, {INTERFACES: "lo"})


def of_lab(place: Place, ranks: int, ranks_per_node: int) -> Ranks:
    """On the nodes of a lab, filled one after the other, over its rails."""
    spec = place.require().spec
    if ranks > spec.nodes * ranks_per_node:
        raise TuttiError(
            f"{ranks} ranks at {ranks_per_node} per node need {-(-ranks // ranks_per_node)} nodes; "
            f"the lab has {spec.nodes}"
        )
    lab = ["--directory", str(place.base), "--name", place.name]
    start = (sys.executable, "-m", "tutti_hpc", "lab", *lab, "exec")
    nodes = [node_name(rank // ranks_per_node) for rank in range(ranks)]
    found = [Rank((*start, node, "--"), node) for node in nodes]
    variables = {INTERFACES: "rail", "TUTTI_NET_SPEED": str(spec.rate_bps // 1_000_000)}
    chunk = chunk_bytes(spec.rate_bps, spec.queue_us)
    if chunk < CHUNK_BYTES_MAX:
        variables["TUTTI_NET_CHUNK"] = str(max(chunk, CHUNK_BYTES_MIN))
    return Ranks(tuple(found), management_address(0), variables)


class _Job:
    """The processes of a job."""

    def __init__(self, program: Path, words: Sequence[str], ranks: Ranks) -> None:
        self._program, self._words, self._ranks = program, words, ranks
        self._key = secrets.token_hex(16)
        self._env = {**ranks.variables, **lifetime.python_environment()}
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, address: str) -> subprocess.Popen[str]:
        """The next rank; `address` is that of the TCP bootstrap."""
        number = len(self._processes)
        rank = self._ranks.ranks[number]
        words = ["--rank", str(number), "--ranks", str(len(self._ranks.ranks))]
        words += ["--address", address, "--key", self._key, "--node", rank.node]
        words += ["--patience", str(PATIENCE_S), *self._words]
        try:
            process = subprocess.Popen(
                [*rank.prefix, str(self._program), *words],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            raise TuttiError(f"{self._program}: {error.strerror}") from None
        self._processes.append(process)
        return process

    def start_others(self, address: str) -> None:
        """All ranks but rank 0."""
        while len(self._processes) < len(self._ranks.ranks):
            self.start(address)

    def has_failed(self) -> bool:
        """Some rank has ended, not well."""
        return any(process.poll() not in (None, 0) for process in self._processes)

    def wait(self, timeout_s: float) -> list[int]:
        """The exit statuses; who has not ended by then is made to."""
        deadline = time.monotonic() + timeout_s
        try:
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            statuses = processes.end(self._processes)
        return statuses


def run(
    program: Path,
    words: Sequence[str],
    ranks: Ranks,
    on_progress: Callable[[float], None] | None = None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Rank 0's JSON lines, and every rank's exit status; negative: of a signal."""
    job = _Job(program, words, ranks)
    lines: list[dict[str, Any]] = []
    texts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    end_s = 0.0
    try:
        first = job.start(f"{ranks.bootstrap_host}:{ANYWHERE}")
        threading.Thread(target=_read, args=(first, texts), daemon=True).start()
        left_s = math.inf
        while left_s > 0:
            try:
                text = texts.get(timeout=_LOOK_S)
            except queue.Empty:
                # Ranks that have met hear of each other's end; those that wait for one do not.
                if job.has_failed():
                    left_s = min(left_s - _LOOK_S, END_TIMEOUT_S if lines else BOOTSTRAP_END_S)
                continue
            if text is None:
                end_s = END_TIMEOUT_S
                break
            line = _parsed(text)
            if line is None:
                click.echo(text.rstrip("\n"), err=True)
            elif "bootstrap" in line:
                job.start_others(line["bootstrap"])
            elif "progress" in line:
                if on_progress:
                    on_progress(float(line["progress"]))
            else:
                lines.append(line)
    finally:
        statuses = job.wait(end_s)
    return lines, statuses


def _read(process: subprocess.Popen[str], texts: queue.SimpleQueue[str | None]) -> None:
    """Lines of a process, then None."""
    assert process.stdout is not None
    for text in process.stdout:
        texts.put(text)
    texts.put(None)


def _parsed(text: str) -> dict[str, Any] | None:
    """A line as JSON; None when it is something else."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def failure(statuses: Sequence[int]) -> str:
    """`rank 2 of signal 9, rank 3 with status 2`; empty when no rank has failed.

    Of ranks that were killed only those: what the others ended with followed from it.
    """
    # In a lab what enters the node hands a signal on as 128 + N.
    signals = {r: s & 0x7F if s > 0 else -s for r, s in enumerate(statuses) if s < 0 or s > 128}
    if signals:
        return ", ".join(f"rank {rank} of signal {number}" for rank, number in signals.items())
    bad = [(rank, status) for rank, status in enumerate(statuses) if status != 0]
    if len(bad) == len(statuses) and len(set(statuses)) == 1:
        return f"every rank with status {statuses[0]}"
    return ", ".join(f"rank {rank} with status {status}" for rank, status in bad)
