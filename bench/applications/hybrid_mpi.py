# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training over MPI_Allreduce by mpi4py: a plain MPI against the same with Tutti.

    python bench/applications/hybrid_mpi.py [--mpi mpich openmpi] [--ranks 2] [-o results.json]
    python bench/applications/hybrid_mpi.py --device cuda --mpi mpich --ranks 2 -o results.json

Each rank computes gradients on batches of its own, and sums them with the other ranks' by a
blocking MPI_Allreduce in place for each --bucket. On cpu the model is a perceptron in numpy (torch
with --framework torch), on cuda a transformer in torch, whose tensors mpi4py takes as they are.

Sides: `native`, the MPI library alone; `preload`, the same program under the preload of `tutti
run`. On cuda: `staged`, the MPI library alone and copies to pinned host memory by the program;
`preload`; and `preload-ccl`, with TUTTI_ALLREDUCE=ccl-beta (NCCL). A preload cannot be switched
while a program runs, so each side is a job of its own. Jobs take turns: a round has one of each
side, in an order that is reversed in the next, and gives one ratio: the time of the reference
(`native` or `staged`) by ours. The time of a job is the median of its steps, or of the reductions
of its steps, by the slowest rank.

The first --steps are compared, the others timed. Two ranks add two numbers, and there is one order
for that: all jobs have the same losses and, after the compared steps, the same parameters, bit by
bit. More ranks may add in different orders: there losses agree to rounding (LIMITS). On any number
of ranks the first step's gradient agrees to rounding with a sum that rank 0 makes by itself.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench")]

if TYPE_CHECKING:
    from tutti_hpc.mpi import Mpi

SCHEMA = "tutti-hybrid-mpi/1"
# By device: the sides, the reference first, and the variables of those with the preload.
SIDES: dict[str, dict[str, dict[str, str] | None]] = {
    "cpu": {"native": None, "preload": {}},
    "cuda": {"staged": None, "preload": {}, "preload-ccl": {"TUTTI_ALLREDUCE": "ccl-beta"}},
}
# Of what compare() finds: losses by the reference's, gradients by the largest element.
LIMITS = {
    "losses_that_differ": 0,
    "jobs_with_other_parameters": 0,
    "loss_difference": 1e-5,
    "gradient_difference": 1e-5,
}
BATCHES = 4
BUCKETS = {"small": 256 << 10, "full": 25 << 20}  # Bytes.
JOB_S = 600


# ---- In a rank ----------------------------------------------------------------------------------


class Perceptron:
    """Layers of one width in numpy, trained on seeded noise; `seed`: of its batches."""

    def __init__(self, arguments: argparse.Namespace, seed: int, rank: int) -> None:
        import numpy

        self.numpy = numpy
        layers, width = (8, 2048) if arguments.scale == "full" else (4, 256)
        generator = numpy.random.default_rng(0)
        weights = generator.standard_normal((layers, width, width)) * 1.5 * width**-0.5
        self.weights = weights.astype(numpy.float32)
        self.gradients = numpy.zeros_like(self.weights)
        self.parameters, self.gradient = self.weights.reshape(-1), self.gradients.reshape(-1)
        own = numpy.random.default_rng(seed)
        shape = (BATCHES, 2, 32, width)
        self.batches = own.uniform(-1, 1, shape).astype(numpy.float32)
        self.deterministic = contextlib.nullcontext
        self.version = {"numpy": numpy.__version__}

    def loss(self, step: int) -> float:
        """The loss; `gradient` is that of this rank's batch."""
        inputs, targets = self.batches[step % BATCHES]
        values = [inputs]
        for weight in self.weights:
            values.append(self.numpy.tanh(values[-1] @ weight))
        error = values[-1] - targets
        slope = error * (2 / len(error))
        for layer in reversed(range(len(self.weights))):
            slope = slope * (1 - values[layer + 1] ** 2)
            self.gradients[layer] = values[layer].T @ slope
            slope = slope @ self.weights[layer].T
        return float((error**2).mean())

    def update(self, ranks: int) -> None:
        """A step against the sum of the ranks' gradients."""
        self.parameters -= self.gradient * (1e-3 / ranks)

    def bits(self) -> bytes:
        return bytes(self.parameters.tobytes())


class Transformer:
    """The transformer of ddp.py, with its parameters in one tensor and its gradients in another.

    `seed`: of its batches; `rank` has a GPU of its own.
    """

    def __init__(self, arguments: argparse.Namespace, seed: int, rank: int) -> None:
        import ddp
        import torch
        import training

        torch.set_num_threads(1)
        self.torch = torch
        self.is_cuda = arguments.device == "cuda"
        device = torch.device("cpu")
        if self.is_cuda:
            device = torch.device("cuda", rank % torch.cuda.device_count())
            torch.cuda.set_device(device)
        model, _, batches = ddp.make("gpt", arguments.scale, seed)
        self.model = model.to(device)
        self.batches = [tuple(part.to(device) for part in batch) for batch in batches]
        own = list(self.model.parameters())
        self.parameters = torch.cat([parameter.detach().flatten() for parameter in own])
        self.gradient = torch.zeros_like(self.parameters)
        first = 0
        for parameter in own:
            part = slice(first, first + parameter.numel())
            parameter.data = self.parameters[part].view_as(parameter)
            parameter.grad = self.gradient[part].view_as(parameter)
            first = part.stop
        self.deterministic = training.deterministic
        self.version = {"torch": torch.__version__}

    def loss(self, step: int) -> float:
        """The loss; `gradient` is that of this rank's batch."""
        self.gradient.zero_()
        loss = self.model(*self.batches[step % BATCHES])
        loss.backward()
        if self.is_cuda:
            self.torch.cuda.synchronize()  # MPI knows nothing of streams.
        return float(loss)

    def update(self, ranks: int) -> None:
        """A step against the sum of the ranks' gradients."""
        self.parameters.sub_(self.gradient, alpha=0.1 / ranks)
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def bits(self) -> bytes:
        return bytes(self.parameters.cpu().numpy().tobytes())


def gradient_difference(summed: Any, models: Iterator[Any]) -> float:
    """Largest difference of a sum of gradients from that of models, by the largest element."""
    total: Any = 0
    for model in models:
        model.loss(0)
        total = total + model.gradient
    return float(abs(summed - total).max() / abs(total).max())


def be_a_rank(arguments: argparse.Namespace) -> None:
    """One rank of one job; rank 0 prints what came of it."""
    import mpi4py
    from mpi4py import MPI

    side, comm = arguments.rank, MPI.COMM_WORLD
    make = Transformer if arguments.framework == "torch" else Perceptron
    model: Any = make(arguments, comm.rank + 1, comm.rank)
    size = max(1, arguments.bucket // 4)
    buckets = [model.gradient[at : at + size] for at in range(0, len(model.gradient), size)]
    pinned = model.torch.empty(size).pin_memory() if side == "staged" else None
    is_planted = arguments.plant and side.startswith("preload")
    loss = array.array("d", [0.0])

    def reduce(bucket: Any) -> None:
        if pinned is None:
            comm.Allreduce(MPI.IN_PLACE, bucket)
            return
        host = pinned[: len(bucket)]
        host.copy_(bucket)
        comm.Allreduce(MPI.IN_PLACE, host.numpy())
        bucket.copy_(host)

    def step(number: int) -> tuple[float, float]:
        """Seconds of the step and of its reductions; `loss` becomes the mean of the ranks'."""
        began = time.perf_counter()
        loss[0] = model.loss(number) / comm.size
        computed = time.perf_counter()
        for bucket in buckets:
            reduce(bucket)
        comm.Allreduce(MPI.IN_PLACE, loss)
        reduced = time.perf_counter()
        if is_planted and number == 0:
            model.gradient[0] += 1
        model.update(comm.size)
        return time.perf_counter() - began, reduced - computed

    losses = []
    with model.deterministic():
        for number in range(arguments.steps):
            step(number)
            losses.append(loss[0])
            if number == 0 and comm.rank == 0:
                alone = (make(arguments, rank + 1, comm.rank) for rank in range(comm.size))
                difference = gradient_difference(model.gradient, alone)
    digest = hashlib.sha256(model.bits()).hexdigest()
    comm.Barrier()
    took = array.array("d")
    for number in range(arguments.turn):
        took.extend(step(arguments.steps + number))
    comm.Allreduce(MPI.IN_PLACE, took, MPI.MAX)
    if comm.rank == 0:
        library = " ".join(MPI.Get_library_version().rstrip("\0").split())
        found = {
            "losses": losses,
            "digest": digest,
            "gradient_difference": difference,
            "step_us": statistics.median(took[0::2]) * 1e6,
            "reduce_us": statistics.median(took[1::2]) * 1e6,
            "parameters": len(model.gradient),
            "calls": len(buckets) + 1,
            "library": library,
            "versions": {"mpi4py": mpi4py.__version__, **model.version},
        }
        print(json.dumps(found), flush=True)


# ---- In the command -----------------------------------------------------------------------------


def plans_of(summary: str) -> dict[str, int]:
    """Calls of allreduce by plan, from the table of TUTTI_SUMMARY."""
    found: dict[str, int] = {}
    for line in summary.splitlines():
        words = re.split(r"\s{2,}", line.strip())
        if words[0] == "allreduce" and len(words) == 6:
            found[words[2]] = found.get(words[2], 0) + int(words[3])
    return found


def run_job(library: Mpi, ranks: int, side: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What a job of one side found."""
    from tutti_hpc import launch, paths, processes
    from tutti_hpc.errors import TuttiError

    own = SIDES[arguments.device][side]
    settings = {
        "MPI4PY_MPIABI": library.abi,
        "MPI4PY_LIBMPI": library.library,
        "OPENBLAS_NUM_THREADS": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # For deterministic products.
    }
    if own is not None:
        settings |= {"TUTTI_SUMMARY": "1", **own}
    base = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    preload = None if own is None else paths.require(paths.PRELOAD)
    environment = launch.environment(base, preload, settings, library.library_directory)
    program = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--rank", side]
    command = launch.ranks_command(library, ranks, program, environment)
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    where = f"{library.abi}, {ranks} ranks, {side}"
    try:
        with processes.ended_with(process):
            output, errors = process.communicate(timeout=JOB_S)
    except subprocess.TimeoutExpired:
        raise TuttiError(f"{where}: the job has not ended in {JOB_S} s") from None
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        raise TuttiError(f"{where}: the job failed\n{output}{errors}")
    found: dict[str, Any] = json.loads(lines[-1])
    found["plans"] = plans_of(errors)
    if own is not None and not found["plans"]:
        raise TuttiError(f"{where}: no call went through Tutti\n{errors}")
    return found


def compare(ranks: int, theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether all jobs agree with the reference's first one."""
    first = theirs[0]
    jobs = theirs[1:] + ours
    pairs = [pair for job in jobs for pair in zip(job["losses"], first["losses"], strict=True)]
    values: dict[str, list[float]] = {
        "gradient_difference": [job["gradient_difference"] for job in theirs + ours]
    }
    if ranks <= 2:
        values["losses_that_differ"] = [sum(one != other for one, other in pairs)]
        values["jobs_with_other_parameters"] = [sum(j["digest"] != first["digest"] for j in jobs)]
    else:
        values["loss_difference"] = [abs(one - other) / abs(other) for one, other in pairs]
    # What is no number is not within a limit, and no JSON.
    found = {
        name: max(value if math.isfinite(value) else sys.float_info.max for value in some)
        for name, some in values.items()
    }
    return {
        "losses": {"native": first["losses"], "tutti": ours[0]["losses"]},
        **found,
        "is_right": all(value <= LIMITS[name] for name, value in found.items()),
    }


def rows_of(library: Mpi, ranks: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs the jobs; a row for each side with the preload."""
    import torch_job
    from tutti_hpc import mpi

    sides = list(SIDES[arguments.device])
    jobs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for number in range(arguments.pairs):
        for side in sides if number % 2 == 0 else sides[::-1]:
            jobs[side].append(run_job(library, ranks, side, arguments))
    reference = sides[0]
    theirs = jobs[reference]
    rows = []
    for side in sides[1:]:
        ours = jobs[side]
        steps_us = {
            name: [job["step_us"] for job in of_side]
            for name, of_side in (("native", theirs), ("tutti", ours))
        }
        ratios = [their / our for their, our in zip(steps_us["native"], steps_us["tutti"])]
        rows.append(
            {
                "side": side,
                "reference": reference,
                "mpi": library.abi,
                "library": mpi.short_version(theirs[0]["library"]),
                "versions": theirs[0]["versions"],
                "ranks": ranks,
                "framework": arguments.framework,
                "scale": arguments.scale,
                "parameters": theirs[0]["parameters"],
                "bucket_bytes": arguments.bucket,
                "calls_of_a_step": theirs[0]["calls"],
                "steps_of_a_turn": arguments.turn,
                **compare(ranks, theirs, ours),
                **{f"{name}_us": torch_job.quartiles(times) for name, times in steps_us.items()},
                "ratio": torch_job.quartiles(ratios),
                "reduce_us": {
                    "native": torch_job.quartiles([job["reduce_us"] for job in theirs]),
                    "tutti": torch_job.quartiles([job["reduce_us"] for job in ours]),
                },
                "plans": ours[0]["plans"],
            }
        )
    return rows


TITLE = "side        mpi   ranks parameters  result   tutti ms  theirs ms   ratio  quartiles  plans"


def shown(row: dict[str, Any]) -> str:
    """A row as a line."""
    low, middle, high = row["ratio"]
    verdict = f"{row['loss_difference']:.0e}" if row.get("loss_difference") else "equal"
    plans = " ".join(f"{plan}:{calls}" for plan, calls in row["plans"].items())
    return (
        f"{row['side']:12}{row['mpi']:8}{row['ranks']:3}{row['parameters'] / 1e6:9.2f}M"
        f"  {verdict if row['is_right'] else 'WRONG':7}"
        f"{row['tutti_us'][1] / 1e3:11.2f}{row['native_us'][1] / 1e3:11.2f}{middle:8.2f}"
        f"  {low:.2f}..{high:.2f}  {plans}"
    )


def arguments_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--mpi", nargs="+", default=[""], help="mpich, openmpi or a path (the first that is found)")
    add("--ranks", type=int, nargs="+", default=[2], help="(2)")
    add("--device", choices=tuple(SIDES), default="cpu", help="(cpu)")
    add("--framework", choices=("numpy", "torch"), help="(numpy on cpu, torch on cuda)")
    add("--scale", choices=tuple(BUCKETS), help="(small on cpu, full on cuda)")
    add("--bucket", type=int, help="bytes of a reduction (small 256 KiB, full 25 MiB)")
    add("--steps", type=int, default=10, help="steps to compare (10)")
    add("--turn", type=int, default=20, help="timed steps of a job (20)")
    add("--pairs", type=int, default=6, help="jobs of each side (6)")
    add("--plant", action="store_true", help="one gradient of ours is made wrong")
    add("--rank", help=argparse.SUPPRESS)
    add("-o", "--output", type=Path, help="results document")
    arguments = parser.parse_args()
    is_cuda = arguments.device == "cuda"
    arguments.framework = arguments.framework or ("torch" if is_cuda else "numpy")
    arguments.scale = arguments.scale or ("full" if is_cuda else "small")
    arguments.bucket = arguments.bucket or BUCKETS[arguments.scale]
    if is_cuda and arguments.framework == "numpy":
        parser.error("--framework numpy: its arrays are in host memory; remedy: --device cpu")
    if min(arguments.steps, arguments.turn, arguments.bucket, *arguments.ranks) < 1:
        parser.error("--steps, --turn, --bucket, --ranks: at least 1")
    if arguments.pairs < 3:
        parser.error("--pairs: at least 3, for quartiles")
    for name in ("mpi4py", arguments.framework):
        if importlib.util.find_spec(name) is None:
            parser.error(f"{name} is not installed; remedy: an environment that has it")
    return arguments


def main() -> int:
    """Trains, compares, prints, writes. 1: a row is not right."""
    arguments = arguments_of()
    if arguments.rank:
        be_a_rank(arguments)
        return 0
    import results_head
    from tutti_hpc import files, mpi, processes
    from tutti_hpc.errors import TuttiError

    document = results_head.head(SCHEMA)
    document |= {"pairs": arguments.pairs, "device": arguments.device, "rows": []}
    print(
        "side        mpi   ranks parameters  result   tutti ms  theirs ms   ratio  quartiles  plans"
    )
    try:
        if arguments.output:
            files.check_writable(arguments.output)
        with processes.signals_as_exits():
            for name in arguments.mpi:
                library = mpi.find(name or None)
                for ranks in arguments.ranks:
                    rows = rows_of(library, ranks, arguments)
                    document["rows"] += rows
                    print(*map(shown, rows), sep="\n", flush=True)
    except TuttiError as error:
        sys.exit(f"error: {error}")
    if arguments.output:
        files.write(arguments.output, json.dumps(document, indent=1) + "\n")
    return 0 if all(row["is_right"] for row in document["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
