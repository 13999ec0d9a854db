# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Fully sharded training of a transformer by FSDP2: backend tutti against gloo or NCCL.

    python bench/applications/fsdp.py [--parameters 2M] [-o results.json]
    python bench/applications/fsdp.py --device cuda --ranks 2 --parameters 300M -o results.json

Two ways to use Tutti: as the backend of the mesh (`backend`), and as FSDP2's custom all-gather and
reduce-scatter in a job whose mesh is of the reference backend (`custom`, tutti_hpc.torch.fsdp). The
first steps are compared (training.py), then a step is timed in pairs of turns (bench/torch_job.py).

`comm_share`: of the time of a step under torch.profiler, what the profiler's records of all-gathers
and reduce-scatters cover; gloo reduces and scatters by an all-reduce. On GPUs it is the GPU's time,
which may overlap with computation. `step_peak_bytes`: the most that torch's allocator had in a step
beyond what it had before; `buffer_bytes`: memory that the way `custom` keeps for its calls.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench")]

import torch_job  # noqa: E402
import training  # noqa: E402

SCHEMA = "tutti-fsdp/1"
WAYS = ("backend", "custom")
BATCHES = 4
PROFILED_STEPS = 2
# What the profiler's records of a backend's calls have in their names.
COLLECTIVES = {"all_gather": "gather", "reduce_scatter": "reduce"}


def number(text: str) -> int:
    """300M as a number."""
    found = re.fullmatch(r"([0-9.]+)([kMG]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text}: a number such as 300M")
    return int(float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]])


def shape_of(parameters: int) -> Any:
    """The transformer that comes nearest, of heads 64 wide and up to two layers more than heads."""
    import models

    is_large = parameters >= 50_000_000
    more = {} if is_large else {"vocabulary": 512, "context": 64}
    shapes = [
        models.GptShape(layers=heads + extra, heads=heads, width=64 * heads, **more)
        for heads in range(1, 128)
        for extra in range(3)
    ]
    return min(shapes, key=lambda shape: abs(shape.parameters - parameters))


def sharded(job: torch_job.Job, shape: Any, group: Any, precision: str) -> Any:
    """The model in parts on the ranks of a group; each block is gathered by itself."""
    import models
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.manual_seed(0)
    with job.device:
        model = models.Gpt(shape)
    more: dict[str, Any] = {"mesh": DeviceMesh.from_group(group, job.device.type)}
    if precision == "bfloat16":
        more["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in model.blocks:
        fully_shard(block, **more)
    return fully_shard(model, **more)


def peak_of_trace(profiler: Any) -> int:
    """The most host memory that torch's allocator had under the profiler, bytes."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_bytes())["traceEvents"]
    totals = [
        event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]"
    ]
    return max(totals, default=0)


def profiled(job: torch_job.Job, one: training.Training, backend: str) -> dict[str, Any]:
    """Shares of communication and peak of memory of some steps."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if job.is_cuda else [])]
    peak_bytes = 0
    if job.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        peak_bytes = -torch.cuda.memory_allocated()
    with profile(activities=activities, profile_memory=not job.is_cuda) as profiler:
        took_us = job.seconds(lambda: one.run(PROFILED_STEPS)) * 1e6
    if job.is_cuda:
        peak_bytes += torch.cuda.max_memory_allocated()
    else:
        peak_bytes = peak_of_trace(profiler)
    place = DeviceType.CUDA if job.is_cuda else DeviceType.CPU
    records = [
        event
        for event in profiler.events()
        if event.name.startswith(f"{backend}:") and event.device_type == place
    ]
    shares = {
        name: sum(e.time_range.elapsed_us() for e in records if word in e.name) / took_us
        for name, word in COLLECTIVES.items()
    }
    shares = {name: round(job.largest(share), 4) for name, share in shares.items()}
    return {
        "comm_share": shares if records else {},  # A profiler may lack the GPU's times.
        "records": sorted({event.name for event in records}),
        "step_peak_bytes": int(job.largest(peak_bytes)),
    }


def be_a_rank(arguments: argparse.Namespace) -> None:
    """One rank; a row for each way."""
    import models
    import torch
    from tutti_hpc.torch import fsdp

    job = torch_job.Job(arguments)
    shape = shape_of(arguments.parameters)
    batches: list[Any] = models.sequences(
        shape, arguments.batch, BATCHES, job.rank + 1, "synthetic"
    )
    batches = [tuple(part.to(job.device) for part in batch) for batch in batches]
    optimiser = functools.partial(torch.optim.AdamW, lr=3e-4)
    for way in arguments.ways:
        trainings = {}
        buffers = fsdp.HostBuffers()
        for backend in job.groups:
            is_custom = way == "custom" and backend == "tutti"
            group = job.groups[job.other if is_custom else backend]
            model = sharded(job, shape, group, arguments.precision)
            if is_custom:
                buffers = fsdp.use_tutti(model, job.groups["tutti"])
            trainings[backend] = training.Training(model, optimiser(model.parameters()), batches)
        row = {
            "way": way,
            "layers": shape.layers,
            "width": shape.width,
            "context": shape.context,
            "batch": arguments.batch,
            "ranks": job.ranks,
            "parameters": shape.parameters,
            "precision": arguments.precision,
        }
        row |= training.compare(job, trainings, arguments)
        row |= training.time_pairs(job, trainings, arguments)
        row["profile"] = {name: profiled(job, one, name) for name, one in trainings.items()}
        row["buffer_bytes"] = int(job.largest(buffers.total_bytes))
        job.emit(row)
        del trainings, model
    job.leave()


def shown(row: dict[str, Any]) -> str:
    """A row as lines."""
    lines = [training.shown(row, row["way"])]
    for backend, found in row["profile"].items():
        shares = [f"{name} {share:.0%} of a step" for name, share in found["comm_share"].items()]
        peak = f"{found['step_peak_bytes'] / 2**20:.1f} MiB at its peak"
        lines.append(f"  {backend:6} " + ", ".join([*shares, peak]))
    return "\n".join(lines)


def main() -> int:
    """Trains, compares, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--parameters", type=number, help="such as 300M (2M on cpu, 300M on cuda)")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank (4)")
    training.add_options(parser, steps=10, turn=3)
    torch_job.add_options(parser, ranks=[2], pairs=10)
    arguments = parser.parse_args()
    default = 300_000_000 if arguments.device == "cuda" else 2_000_000
    arguments.parameters = arguments.parameters or default
    if arguments.rank:
        be_a_rank(arguments)
        return 0
    training.check_options(parser, arguments)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # The profiler's lines about its own start.
    return torch_job.run(parser, arguments, SCHEMA, training.TITLE, shown)


if __name__ == "__main__":
    sys.exit(main())
