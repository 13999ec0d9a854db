# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of torch.distributed that compare backend tutti with a reference in pairs of turns.

The reference is gloo for host tensors and NCCL for CUDA tensors. A command starts its ranks, one
for each processor or GPU of this machine, as copies of itself with `--rank`; with `--lab` on the
nodes of a lab (`tutti lab up`), one each or `--per-node`: Tutti over all rails, gloo over the
first, since a call of gloo's takes one interface. Both backends are groups of one job. They run in
turns, ours, theirs, theirs, ours, ..., so that a drift of the machine's speed falls on both; each
pair of neighbours gives one ratio. Rank 0 prints rows as JSON, which the command shows, collects
and writes. Times are of the slowest rank, in us where a name says so; three numbers are quartiles.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import runpy
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[1]


def quartiles(values: list[float]) -> list[float]:
    """First quartile, median, third."""
    return [round(value, 4) for value in statistics.quantiles(values, n=4)]


# ---- In a rank ----------------------------------------------------------------------------------


class Job:
    """This rank's part of a job. `device` is its GPU or the host; `groups` are by backend."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch
        import torch.distributed as dist
        import tutti_hpc.torch  # noqa: F401

        torch.set_num_threads(1)
        if arguments.pin:
            allowed = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {allowed[int(os.environ["RANK"]) % len(allowed)]})
        dist.init_process_group("gloo")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.is_cuda = arguments.device == "cuda"
        self.device = torch.device("cpu")
        if self.is_cuda:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        self.other = "nccl" if self.is_cuda else "gloo"
        self.groups = {name: dist.new_group(backend=name) for name in ("tutti", self.other)}

    def largest(self, value: float) -> float:
        """The largest of the ranks' values: of times, that of the slowest rank."""
        import torch
        import torch.distributed as dist

        tensor = torch.tensor([value], dtype=torch.float64, device="cpu")
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.item()

    def seconds(self, call: Callable[[], Any]) -> float:
        """How long this rank needs for a call, with what it puts on the GPU."""
        import torch

        if self.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if self.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def pairs(self, turns: dict[str, Callable[[], float]], pairs: int) -> dict[str, Any]:
        """Quartiles of the times and of theirs / ours.

        `turns` has ours and theirs by name: each makes a turn and returns this rank's seconds.
        """
        import torch.distributed as dist

        ours, theirs = turns
        times: dict[str, list[float]] = {ours: [], theirs: []}
        for pair in range(pairs):
            for name in (ours, theirs) if pair % 2 == 0 else (theirs, ours):
                dist.barrier()
                times[name].append(self.largest(turns[name]()) * 1e6)
        ratios = [their / our for our, their in zip(times[ours], times[theirs])]
        found: dict[str, Any] = {f"{name}_us": quartiles(values) for name, values in times.items()}
        return {**found, "ratio": quartiles(ratios)}

    def emit(self, row: dict[str, Any]) -> None:
        """A row for the command, from rank 0."""
        if self.rank == 0:
            print(json.dumps(row), flush=True)

    def leave(self) -> None:
        """Ends the rank's groups."""
        import torch.distributed as dist

        # Gloo's thread takes the interpreter's lock for its last work, and gloo's end waits for the
        # thread with the lock held (torch 2.13).
        time.sleep(0.2)
        dist.destroy_process_group()


# ---- In the command -----------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser, ranks: list[int], pairs: int) -> None:
    """The options that all such commands have."""
    said = " ".join(map(str, ranks))
    parser.add_argument("--ranks", type=int, nargs="+", default=ranks, help=f"({said})")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(cpu)")
    parser.add_argument("--pairs", type=int, default=pairs, help=f"pairs of turns a row ({pairs})")
    parser.add_argument(
        "--pin", action="store_true", help="each rank on one core, which gloo's thread shares"
    )
    parser.add_argument("--lab", metavar="NAME", help="ranks on the nodes of this lab")
    parser.add_argument("--per-node", type=int, default=1, help="ranks on each of them (1)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, help="results document")


def torch_version() -> str:
    """The version of torch, which takes long to import; empty: there is none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return ""
    return str(runpy.run_path(str(Path(found.origin).with_name("version.py")))["__version__"])


def _settings(ranks: int, lab: str | None) -> dict[str, str]:
    """Variables that all ranks of a job have."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    found = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    if lab:
        found |= {"MASTER_ADDR": "10.1.1.2", "OMP_NUM_THREADS": "1"}
        found |= {"GLOO_SOCKET_IFNAME": "rail0"}
    return {**found, "PYTHONPATH": str(ROOT / "python"), "PYTHONWARNINGS": "ignore"}


def _on_nodes(lab: str, per_node: int, settings: list[dict[str, str]]) -> list[list[str]]:
    """What runs the words behind it, by rank, on the nodes of a lab."""
    from tutti_hpc import net_ranks
    from tutti_hpc.lab.state import Place, default_base

    place = net_ranks.of_lab(Place(default_base(), lab), len(settings), per_node)
    return [
        [*rank.prefix, "env", *(f"{k}={v}" for k, v in {**place.variables, **own}.items())]
        for rank, own in zip(place.ranks, settings)
    ]


def _rows(ranks: int, lab: str | None, per_node: int) -> Iterator[dict[str, Any]]:
    """The rows of a job of copies of this command."""
    common = _settings(ranks, lab)
    words = [sys.executable, str(Path(sys.argv[0]).resolve()), *sys.argv[1:], "--rank"]
    of_rank = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    before = _on_nodes(lab, per_node, of_rank) if lab else [[]] * ranks
    started = [
        subprocess.Popen(
            [*before[rank], *words],
            env={**os.environ, **of_rank[rank]},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        assert started[0].stdout is not None
        for line in started[0].stdout:
            yield json.loads(line)
        if any(process.wait() for process in started):
            raise SystemExit("a rank failed")
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()


def run(
    parser: argparse.ArgumentParser,
    arguments: argparse.Namespace,
    schema: str,
    title: str,
    show: Callable[[dict[str, Any]], str],
) -> int:
    """Runs the jobs, prints a line for each row, writes the document. 1: a row is not right."""
    version = torch_version()
    if not version:
        parser.error("torch is not installed; remedy: an environment that has it")
    import results_head
    from tutti_hpc import errors, files

    try:
        if arguments.output:
            files.check_writable(arguments.output)
    except errors.TuttiError as error:
        parser.error(str(error))
    if arguments.pairs < 3:
        parser.error("--pairs: at least 3, for quartiles")
    print(title)
    document = results_head.head(schema)
    document["versions"]["torch"] = version
    document["pairs"] = arguments.pairs
    document["is_pinned"] = arguments.pin
    document["device"] = arguments.device
    if arguments.lab:
        document["lab"] = arguments.lab
        document["ranks_per_node"] = arguments.per_node
    document["rows"] = rows = []
    for ranks in arguments.ranks:
        for row in _rows(ranks, arguments.lab, arguments.per_node):
            rows.append(row)
            print(show(row), flush=True)
            if arguments.output:  # Each time: who ends this early keeps what there is.
                files.write(arguments.output, json.dumps(document, indent=1) + "\n")
    return 0 if all(row.get("is_right", True) for row in rows) else 1
