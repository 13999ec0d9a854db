# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of torch.distributed: backend tutti against gloo on host tensors, NCCL on CUDA ones.

    python bench/torch_collectives.py [--ranks 2 4] [--sizes 8 65536] [-o results.json]
    python bench/torch_collectives.py --device cuda --ranks 2 -o results.json

The job and its pairs of turns are those of bench/torch_job.py. A turn is a number of calls; its
time is per call, us, of the slowest rank. Modes: `waited`, where each call is waited for (on GPUs
by a wait of the host for the stream); `queued`, on GPUs, where calls follow each other on the
stream: the time is the GPU's, and `cpu_us` that of the host for making a call while the GPU is
busy; `replayed`, on GPUs: the GPU's time for a call of a graph of such calls. `bytes` is what a
rank puts in (all_gather, broadcast: its tensor; reduce_scatter, all_to_all, all_reduce: the whole
input). `python_us`, of all_reduce at the first size: the part of Python, torch's and ours, in a
call, measured with a function in the C API's place that returns at once.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench")]

import torch_job  # noqa: E402

SCHEMA = "tutti-torch/1"
SIZES = (*(8 << shift for shift in range(0, 24, 3)), 64 << 20)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
TURN_S = 0.05
GRAPH_CALLS = 20
AHEAD_CYCLES = 30_000_000  # Of the GPU: some 15 ms.


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
    per_turn = calls * (GRAPH_CALLS if mode == "replayed" else 1)
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
    return took if mode == "cpu" else first.elapsed_time(last) / 1e3 / per_turn


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


def python_us(call: Callable[[], Any]) -> list[float]:
    """Quartiles of all_reduce by ours while the C API's function does nothing."""
    from tutti_hpc.torch import bindings

    functions = bindings.functions()
    ours = functions.allreduce
    functions.allreduce = lambda *_: bindings.OK
    try:
        return torch_job.quartiles([measure(call, 2000) * 1e6 for _ in range(20)])
    finally:
        functions.allreduce = ours


def be_a_rank(arguments: argparse.Namespace) -> None:
    """One rank; rank 0 prints a row as JSON for each collective and size."""
    job = torch_job.Job(arguments)
    take = measure_cuda if job.is_cuda else measure

    def pairs_of(calls: dict[str, Callable[[], Any]], turn: int, mode: str) -> dict[str, Any]:
        turns = {b: functools.partial(take, call, turn, mode) for b, call in calls.items()}
        for one in turns.values():
            one()  # Not counted: an interpreter's first thousand calls are slower.
        return job.pairs(turns, arguments.pairs)

    for name in arguments.collectives:
        for size in arguments.sizes:
            with job.device:
                calls = {b: operation(name, size, job.ranks, g) for b, g in job.groups.items()}
            for call in calls.values():
                take(call, 3, "waited")
            once = max(job.largest(take(call, 3, "waited")) for call in calls.values())
            turn = int(min(max(TURN_S / once, 2), 200 if job.is_cuda else 2000))
            for mode in ("waited", "queued", "replayed") if job.is_cuda else ("waited",):
                of_mode = calls
                if mode == "replayed":
                    of_mode = {b: captured(call) for b, call in calls.items()}
                row = {"collective": name, "ranks": job.ranks, "bytes": size, "mode": mode}
                row |= {"calls": turn, **pairs_of(of_mode, turn, mode)}
                if mode == "queued":
                    made = pairs_of(calls, turn, "cpu")
                    row["cpu_us"] = {b: made[f"{b}_us"] for b in calls}
                if name == "all_reduce" and size == arguments.sizes[0] and mode == "waited":
                    row["python_us"] = python_us(calls["tutti"])
                job.emit(row)
                of_mode = {}  # NCCL's end of a communicator waits for the end of its graphs.
    job.leave()


def shown(row: dict[str, Any]) -> str:
    """A row as a line."""
    low, middle, high = row["ratio"]
    theirs = row.get("gloo_us") or row["nccl_us"]
    made = [f" {backend} {us[1]:.1f}" for backend, us in row.get("cpu_us", {}).items()]
    made += [f" Python {row['python_us'][1]:.1f}"] if "python_us" in row else []
    return (
        f"{row['collective']:15}{row['mode']:7}{row['ranks']:3}{row['bytes']:10}"
        f"{row['tutti_us'][1]:12.1f}{theirs[1]:12.1f}{middle:9.2f}  {low:.2f}..{high:.2f}"
        + "".join(made)
    )


def main() -> int:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=list(COLLECTIVES))
    torch_job.add_options(parser, ranks=[2, 4], pairs=20)
    arguments = parser.parse_args()
    if arguments.rank:
        be_a_rank(arguments)
        return 0
    title = "collective     mode ranks     bytes    tutti us   theirs us    ratio  quartiles"
    return torch_job.run(parser, arguments, SCHEMA, title, shown)


if __name__ == "__main__":
    sys.exit(main())
