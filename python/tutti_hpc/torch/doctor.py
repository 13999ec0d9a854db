# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What a PyTorch job would use of Tutti here, and a check of some seconds.

    python -m tutti_hpc.torch.doctor [--ranks 2]
    torchrun --nproc-per-node 4 -m tutti_hpc.torch.doctor

Alone it starts its ranks itself; under a launcher that sets RANK and WORLD_SIZE it is one of them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import socket
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import tutti_hpc
from tutti_hpc import paths
from tutti_hpc.torch import engine, registration

LIMIT_S = 10
SIZES = (8, 65536, 16777216)
COLLECTIVES = ("allreduce", "allgather", "reduce_scatter_block", "alltoall", "bcast")


def entry_points() -> list[str]:
    """The entry points of this package that torch will find."""
    found = []
    for group in ("torch.backends", "torch.distributed.backends"):
        points: Any = importlib.metadata.entry_points()
        # Python 3.9 gives a dictionary.
        chosen = points.select(group=group) if hasattr(points, "select") else points.get(group, ())
        found += [group for point in chosen if point.value.startswith("tutti_hpc.")]
    return found


def describe() -> list[str]:
    """Lines about this process's installation."""
    library = paths.find(paths.LIBRARY)
    kind = "Backend" if registration.has_python_backends() else "ProcessGroup"
    found = entry_points()
    switch = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    is_found = "torch.backends" in found and switch == "1"
    if registration.has_python_backends():
        is_found = is_found or "torch.distributed.backends" in found
    need = "needs no import" if is_found else "needs `import tutti_hpc.torch`"
    replaced = registration.replaced()
    return [
        f"tutti {tutti_hpc.__version__}: {library or 'libtutti.so not found'}",
        f"torch {torch.__version__}: backend tutti as a {kind} subclass",
        f'init_process_group("tutti") {need}; entry points: {", ".join(found) or "none"}',
        f"{registration.REPLACE}: {', '.join(replaced) or 'not set'}",
        f"CUDA devices: {torch.cuda.device_count() if torch.cuda.is_available() else 0}",
    ]


def carriers(found: engine.Engine, memory: str) -> list[str]:
    """Which plan carries tensors in `memory` (host; device, after a call), by collective, size."""
    lines = []
    is_host = memory == "host"
    comm, order = (found.host, "blocking") if is_host else (found.device, "stream")
    other = "gloo" if is_host and found.host_refusal else "none (an error)"
    for collective in COLLECTIVES:
        plans = []
        for size in SIZES:
            query = {"collective": collective, "bytes": size, "memory": memory, "type": "float32"}
            query.update(op="sum", order=order)
            plan = found.functions.plan(comm, query)
            through = " through host memory" if "through" in plan else ""
            plans.append(f"{size} B {plan.get('plan') or other}{through}")
        lines.append(f"  {collective}: {', '.join(plans)}")
    lines.append(f"  send, recv: {'gloo' if is_host else 'NCCL'}")
    return lines


def check(rank: int, ranks: int, device: str) -> list[str]:
    """Runs each collective once on values that are known; what was wrong."""
    wrong = []

    def expect(what: str, found: torch.Tensor, wanted: list[float]) -> None:
        if found.cpu().tolist() != wanted:
            wrong.append(f"{what} on {device}: {found.tolist()} instead of {wanted}")

    own = torch.full((2,), float(rank), device=device)
    total = ranks * (ranks - 1) / 2
    everyone = [float(r) for r in range(ranks) for _ in range(2)]
    tensor = own.clone()
    dist.all_reduce(tensor)
    expect("all_reduce", tensor, [total] * 2)
    tensor = own.clone()
    dist.broadcast(tensor, ranks - 1)
    expect("broadcast", tensor, [ranks - 1.0] * 2)
    wide = torch.empty(2 * ranks, device=device)
    dist.all_gather(list(wide.split(2)), own)
    expect("all_gather", wide, everyone)
    dist.reduce_scatter(tensor, [own + r for r in range(ranks)])
    expect("reduce_scatter", tensor, [total + ranks * rank] * 2)
    dist.all_to_all_single(wide, torch.full_like(wide, float(rank)))
    expect("all_to_all_single", wide, everyone)
    objects: list[Any] = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    if objects != [{"rank": r} for r in range(ranks)]:
        wrong.append(f"all_gather_object: {objects}")
    dist.barrier()
    return wrong


def be_a_rank() -> int:
    """One rank of the check; rank 0 prints."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    began = time.monotonic()
    registration.register()
    dist.init_process_group(registration.NAME, timeout=timedelta(seconds=LIMIT_S))
    group = dist.group.WORLD
    inner = group if hasattr(group, "_engine") else group._get_backend(torch.device("cpu"))
    if rank == 0:
        print("\n".join(describe()))
        print(f"{ranks} ranks; host tensors:")
        print("\n".join(carriers(inner._engine, "host")), flush=True)
    devices = ["cpu"]
    if torch.cuda.is_available():
        local = int(os.environ.get("LOCAL_RANK", rank))
        devices.append(f"cuda:{local % torch.cuda.device_count()}")
    wrong = [line for device in devices for line in check(rank, ranks, device)]
    if rank == 0 and len(devices) > 1:
        inner = group if hasattr(group, "_engine") else group._get_backend(torch.device("cuda"))
        print("CUDA tensors:")
        print("\n".join(carriers(inner._engine, "device")), flush=True)
    for line in wrong:
        print(f"rank {rank}: wrong: {line}", flush=True)
    failed = torch.tensor([len(wrong)])
    dist.all_reduce(failed)
    dist.destroy_process_group()
    if rank == 0:
        verdict = f"{int(failed)} wrong results" if failed else "all results right"
        print(f"check on {', '.join(devices)}: {verdict}, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(ranks: int) -> int:
    """Starts the ranks of the check and waits for them."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    started = []
    for rank in range(ranks):
        environment = {**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        environment["WORLD_SIZE"] = str(ranks)
        command = [sys.executable, "-m", "tutti_hpc.torch.doctor"]
        started.append(subprocess.Popen(command, env=environment))
    end = time.monotonic() + LIMIT_S * 3
    status = 0
    for process in started:
        try:
            status |= process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            print(f"process {process.pid} does not end; killed", file=sys.stderr)
            process.kill()
            status = 1
    return 1 if status else 0


def main() -> int:
    """0: all results were right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="ranks without a launcher (2)")
    arguments = parser.parse_args()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return be_a_rank()
    return start(arguments.ranks)


if __name__ == "__main__":
    sys.exit(main())
