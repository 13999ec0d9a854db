# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of torch.distributed: backend tutti against gloo on host tensors, NCCL on CUDA ones.

    python bench/torch_collectives.py [--ranks 2 4] [--sizes 8 65536] [-o results.json]
    python bench/torch_collectives.py --device cuda --ranks 2 -o results.json

Both backends are groups of one job. For each size they run in turns, ours, theirs, theirs, ours,
..., so that a drift of the machine's speed falls on both; each pair of neighbours gives one ratio,
and a row has the quartiles of the ratios. A turn is a number of calls; its time is per call, us, of
the slowest rank. Modes: `waited`, where each call is waited for (on GPUs by a wait of the host for
the stream); `queued`, on GPUs, where calls follow each other on the stream: the time is the GPU's,
and `cpu_us` that of the host for making a call while the GPU is busy; `replayed`, on GPUs: the
GPU's time for a call of a graph of such calls. `bytes` is what a rank puts
in (all_gather, broadcast: its tensor; reduce_scatter, all_to_all, all_reduce: the whole input).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench")]

SCHEMA = "tutti-torch/1"
SIZES = (*(8 << shift for shift in range(0, 24, 3)), 64 << 20)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
TURN_S = 0.05
GRAPH_CALLS = 20
AHEAD_CYCLES = 30_000_000  # Of the GPU: some 15 ms.


def quartiles(values: list[float]) -> list[float]:
    """First quartile, median, third."""
    return [round(value, 4) for value in statistics.quantiles(values, n=4)]


def operation(name: str, size: int, ranks: int, group: Any) -> Callable[[], Any]:
    """A call of one collective on `size` bytes of float32 of the default device."""
    import torch
    import torch.distributed as dist

    count = max(size // 4, 1)
    tensor = torch.zeros(count)  # Whose sums stay what they are.
    if name == "all_reduce":
        return lambda: dist.all_reduce(tensor, group=group)
    if name == "broadcast":
        return lambda: dist.broadcast(tensor, 0, group=group)
    if name == "all_gather":
        output = torch.empty(count * ranks)
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(output, tensor, group=group)
    count = max(count // ranks, 1) * ranks
    tensor = torch.zeros(count)
    if name == "reduce_scatter":
        output = torch.empty(count // ranks)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return lambda: scatter(output, tensor, group=group)
    output = torch.empty(count)
    return lambda: dist.all_to_all_single(output, tensor, group=group)


def measure(call: Callable[[], Any], calls: int, mode: str = "waited") -> float:
    """Seconds per call on host tensors; on CUDA tensors see `mode`."""
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def measure_cuda(call: Callable[[], Any], calls: int, mode: str) -> float:
    """Seconds per call: of the host, or of the GPU with mode `queued`; `cpu`: of making a call."""
    import torch

    torch.cuda.synchronize()
    stream = torch.cuda.current_stream()
    if mode == "waited":
        began = time.perf_counter()
        for _ in range(calls):
            call()
            stream.synchronize()
        return (time.perf_counter() - began) / calls
    per_call = GRAPH_CALLS if mode == "replayed" else 1
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if mode != "cpu":
        torch.cuda._sleep(AHEAD_CYCLES)  # So that the GPU does not wait for the host.
    first.record()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    took = (time.perf_counter() - began) / calls
    last.record()
    torch.cuda.synchronize()
    return took if mode == "cpu" else first.elapsed_time(last) / 1e3 / calls / per_call


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """Launches a graph of GRAPH_CALLS calls."""
    import torch

    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(GRAPH_CALLS):
            call()
    launch: Callable[[], Any] = graph.replay
    return launch


def be_a_rank(arguments: argparse.Namespace) -> None:
    """One rank; rank 0 prints a row as JSON for each collective and size."""
    import torch
    import torch.distributed as dist
    import tutti_hpc.torch  # noqa: F401

    torch.set_num_threads(1)
    if arguments.pin:
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[int(os.environ["RANK"]) % len(allowed)]})
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    is_cuda = arguments.device == "cuda"
    other = "nccl" if is_cuda else "gloo"
    take = measure_cuda if is_cuda else measure
    if is_cuda:
        torch.cuda.set_device(rank)
    groups = {"tutti": dist.new_group(backend="tutti"), other: dist.new_group(backend=other)}

    def agreed(value: float) -> float:
        """That of the slowest rank."""
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.item()

    def pairs_of(calls: dict[str, Callable[[], Any]], turn: int, mode: str) -> dict[str, Any]:
        times: dict[str, list[float]] = {backend: [] for backend in calls}
        for pair in range(arguments.pairs):
            for backend in ("tutti", other) if pair % 2 == 0 else (other, "tutti"):
                dist.barrier()
                times[backend].append(agreed(take(calls[backend], turn, mode)) * 1e6)
        ratios = [theirs / ours for ours, theirs in zip(times["tutti"], times[other])]
        found: dict[str, Any] = {f"{b}_us": quartiles(values) for b, values in times.items()}
        return {**found, "ratio": quartiles(ratios)}

    for name in arguments.collectives:
        for size in arguments.sizes:
            with torch.device(f"cuda:{rank}" if is_cuda else "cpu"):
                calls = {b: operation(name, size, ranks, group) for b, group in groups.items()}
            for call in calls.values():
                take(call, 3, "waited")
            once = max(agreed(take(call, 3, "waited")) for call in calls.values())
            turn = int(min(max(TURN_S / once, 2), 200 if is_cuda else 2000))
            for mode in ("waited", "queued", "replayed") if is_cuda else ("waited",):
                of_mode = calls
                if mode == "replayed":
                    of_mode = {b: captured(call) for b, call in calls.items()}
                row = {"collective": name, "ranks": ranks, "bytes": size, "mode": mode}
                row |= {"calls": turn, **pairs_of(of_mode, turn, mode)}
                if mode == "queued":
                    made = pairs_of(calls, turn, "cpu")
                    row["cpu_us"] = {b: made[f"{b}_us"] for b in calls}
                if rank == 0:
                    print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def run_job(ranks: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a job."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common.update(WORLD_SIZE=str(ranks), PYTHONPATH=str(ROOT / "python"), PYTHONWARNINGS="ignore")
    words = [sys.executable, str(Path(__file__).resolve()), "--rank"]
    words += ["--pairs", str(arguments.pairs), "--sizes", *map(str, arguments.sizes)]
    words += ["--collectives", *arguments.collectives, "--device", arguments.device]
    words += ["--pin"] if arguments.pin else []
    started = [
        subprocess.Popen(
            words,
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(ranks)
    ]
    rows = []
    try:
        assert started[0].stdout is not None
        for line in started[0].stdout:
            row = json.loads(line)
            rows.append(row)
            low, middle, high = row["ratio"]
            theirs = row.get("gloo_us") or row["nccl_us"]
            print(
                f"{row['collective']:15}{row['mode']:7}{ranks:3}{row['bytes']:10}"
                f"{row['tutti_us'][1]:12.1f}{theirs[1]:12.1f}{middle:9.2f}  {low:.2f}..{high:.2f}",
                *(f"{b} {us[1]:.1f}" for b, us in row.get("cpu_us", {}).items()),
                flush=True,
            )
        if any(process.wait() for process in started):
            raise SystemExit("a rank failed")
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
    return rows


def main() -> int:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="(2 4)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=list(COLLECTIVES))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(cpu)")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of turns for a row (20)")
    parser.add_argument(
        "--pin", action="store_true", help="each rank on one core, which gloo's thread shares"
    )
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, help="results document")
    arguments = parser.parse_args()
    if arguments.rank:
        be_a_rank(arguments)
        return 0
    try:
        import torch
    except ImportError:
        parser.error("torch is not installed; remedy: an environment that has it")
    import results_head
    from tutti_hpc import errors, files

    try:
        if arguments.output:
            files.check_writable(arguments.output)
    except errors.TuttiError as error:
        parser.error(str(error))
    print("collective     mode ranks     bytes    tutti us   theirs us    ratio  quartiles")
    document = results_head.head(SCHEMA)
    document["versions"]["torch"] = torch.__version__
    document["pairs"] = arguments.pairs
    document["is_pinned"] = arguments.pin
    document["device"] = arguments.device
    document["rows"] = []
    for ranks in arguments.ranks:
        document["rows"] += run_job(ranks, arguments)
    if arguments.output:
        files.write(arguments.output, json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
