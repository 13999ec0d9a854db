# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The three parts of the demo. Each runs the programs that the benchmarks of bench/ run.

A part is a list of steps; a step measures one thing, adds it to the document and says in one line
what came out. A part that cannot run raises TuttiError, whose text is the reason that is printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutti_hpc import api, launch, measure, mpi, packet_network, paths, processes
from tutti_hpc.demo.document import TUTTI, Bar, Bars, Demo
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import lifetime, plan, state
from tutti_hpc.lab.job import refusal
from tutti_hpc.results import Results

COLLECTIVES = ("allreduce", "allgather", "alltoall", "bcast", "reduce_scatter_block")
MPI_NAMES = ("mpich", "openmpi")
OnProgress = Callable[[float], None]

# 4 nodes x 4 ranks x 4 rails: Open MPI's own algorithms need 0.1 to 0.6 s for this block.
LAB = plan.Spec(nodes=4, rails=4, rate_bps=100_000_000)
LAB_RANKS_PER_NODE = 4
LAB_BLOCK_BYTES = 256 << 10
RING = {  # Open MPI's algorithm 4, as bench/lab.py sets it: the fastest when striped, large blocks.
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_allgather_algorithm": "4",
    "OMPI_MCA_coll": "^han",
}
TUNING = "tuning/ethernet-100mbit.json"

FAILING = "5%"
NODES, SPINES = 4, 8
GPU_RANKS_MAX = 4


@dataclass(frozen=True)
class Step:
    """One measurement. `run` gets what to call with the part done, 0 to 1.

    `is_optional`: left out when the machine is so busy that the other parts would have no time.
    """

    name: str
    run: Callable[[Demo, OnProgress], None]
    is_optional: bool = False


def gpu_count() -> int:
    """GPUs that Tutti can use."""
    device = api.library().machine().get("device") or {}
    return len(device.get("devices") or []) if device.get("name") in ("cuda", "hip") else 0


def source_tree() -> Path:
    """Where bench/ and tuning/ are."""
    root = paths.source_tree()
    if root is None:
        raise TuttiError("the demo needs a checkout; remedy: run `make demo` in one")
    return root


# 1. Your MPI.


def mpi_job(collective: str, gpus: int) -> measure.Job:
    """Native against Tutti's default: the preload alone, no plan is asked for."""
    if gpus >= 2:
        return measure.Job(
            collective,
            min(GPU_RANKS_MAX, gpus),
            begin=64,
            end=64 << 20,
            factor=16,
            memory="device",
            plans=("native", "hybrid", "nccl"),
            check=True,
            time_cap_s=0.4,
        )
    return measure.Job(
        collective,
        max(2, min(4, launch.usable_cores())),
        begin=64,
        end=4 << 20,
        factor=16,
        warmup=3,
        time_cap_s=0.25,
        check=True,
    )


def _measure_mpi(collective: str, gpus: int, library: mpi.Mpi) -> Callable[..., None]:
    def run(demo: Demo, on_progress: OnProgress) -> None:
        demo.mpi.append(measure.run(mpi_job(collective, gpus), library, on_progress))

    return run


def your_mpi(gpus: int) -> list[Step]:
    """A step for each collective and MPI; on GPUs for each collective, with the first MPI."""
    libraries = []
    for name in MPI_NAMES:
        found = next((one for one in mpi.find_all() if one.abi == name), None)
        if found and paths.find_measure(name):
            libraries.append(found)
    if not libraries:
        raise TuttiError("no MPI library found; remedy: `make demo` installs MPICH and Open MPI")
    if gpus >= 2:
        libraries = libraries[:1]
    return [
        Step(f"{collective} on {library.abi}", _measure_mpi(collective, gpus, library), True)
        for collective in COLLECTIVES
        for library in libraries
    ]


# 2. All NICs.


@contextmanager
def _lab() -> Iterator[state.Place]:
    place = state.Place(state.default_base(), "demo")
    lifetime.up(place, LAB)
    try:
        yield place
    finally:
        state.take_down(place)


def _milliseconds(results: Results, is_ours: bool) -> float:
    return next(row.latency_us.p50 for row in results.rows if row.hybrid == is_ours) / 1e3


def rail_bars(own: Results, striped: Results, ring: Results) -> Bars:
    """The panel of three jobs: own rails, striped by default, striped with the ring algorithm."""
    wrong = own.wrong() + striped.wrong() + ring.wrong()
    if wrong:
        raise TuttiError(f"allgather over the rails: {wrong} wrong elements")
    if not any(row.hybrid and row.plan == "rings" for row in own.rows):
        raise TuttiError(f"{TUNING} does not choose rings for this allgather")
    entering = (LAB.nodes - 1) * LAB_RANKS_PER_NODE * LAB_BLOCK_BYTES
    bound_ms = entering / LAB.rails / LAB.payload_bytes_per_s * 1e3
    return Bars(
        title=f"allgather on {LAB.nodes} hosts x {LAB.rails} rails",
        unit="ms",
        is_time=True,
        bound=bound_ms,
        bars=[
            Bar(name="Open MPI, own rail", value=_milliseconds(own, False)),
            Bar(name="Open MPI, striped", value=_milliseconds(striped, False)),
            Bar(name="Open MPI, striped ring", value=_milliseconds(ring, False)),
            Bar(name="Tutti, rings", value=_milliseconds(own, True), is_ours=True),
        ],
    )


def _measure_rails(demo: Demo, on_progress: OnProgress) -> None:
    usable = (one for one in mpi.find_all() if one.abi == "openmpi" and not refusal(one))
    library = next(usable, None)
    if library is None:
        raise TuttiError("no Open MPI 5 or later was found; remedy: `make demo` installs it")
    ranks = LAB.nodes * LAB_RANKS_PER_NODE
    size = ranks * LAB_BLOCK_BYTES

    def job(plans: Sequence[str], settings: dict[str, str]) -> measure.Job:
        return measure.Job(
            "allgather",
            ranks,
            begin=size,
            end=size,
            iterations=3,
            warmup=1,
            plans=tuple(plans),
            check=True,
            settings=settings,
        )

    tuning = {"TUTTI_TUNING_FILE": str(source_tree() / TUNING)}
    with _lab() as place:
        found = []
        for number, (striped, one) in enumerate(
            (
                (False, job(("native", "hybrid"), tuning)),
                (True, job(("native",), {})),
                (True, job(("native",), RING)),
            )
        ):
            lab = measure.LabJob(place, LAB_RANKS_PER_NODE, striped)
            found.append(measure.run(one, library, None, lab))
            on_progress((number + 1) / 3)
    demo.rails = rail_bars(*found)


def all_nics(_: int) -> list[Step]:
    """One step, with GPUs or without: three jobs of Open MPI in a lab of network namespaces."""
    return [Step("allgather on 4 hosts x 4 rails", _measure_rails)]


# 3. The transport.


def _bench(words: Sequence[str], runs: int, on_progress: OnProgress) -> dict[str, Any]:
    """The document of a program of bench/, which says on standard error what it has run."""
    root = source_tree()
    with tempfile.TemporaryDirectory(prefix="tutti-demo-") as directory:
        out = Path(directory, "results.json")
        command = [sys.executable, str(root / "bench" / words[0]), *words[1:], "-o", str(out)]
        env = lifetime.python_environment()
        said: list[str] = []
        process = subprocess.Popen(
            command,
            env=env,
            cwd=directory,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        with processes.ended_with(process):
            for line in process.stderr:
                said.append(line.rstrip())
                on_progress(min(1.0, len(said) / runs))
            process.wait()
        # The exit status also tells whether a bound of the benchmark was missed; here the numbers
        # are shown as they are.
        if not out.exists():
            raise TuttiError(said[-1] if said else f"{words[0]}: status {process.returncode}")
        document: dict[str, Any] = json.loads(out.read_bytes())
        return document


def _require_ours(rows: Sequence[dict[str, Any]]) -> None:
    """A run that failed has no row."""
    if not any(row["way"] == TUTTI for row in rows):
        raise TuttiError("the run over Tutti has no result")


def fabric_bars(rows: Sequence[dict[str, Any]]) -> Bars:
    """The panel of a run of bench/network.py."""
    _require_ours(rows)
    bars = [
        Bar(name=row["way"], value=row["goodput_mbps"], is_ours=row["way"] == TUTTI) for row in rows
    ]
    ours = next(row for row in rows if row["way"] == TUTTI)
    return Bars(
        title=f"{NODES} hosts, {SPINES} spines, one loses {FAILING} of its packets",
        unit="Mb/s per host",
        is_time=False,
        bound=round(ours["goodput_mbps"] / ours["of_ideal"], 1),
        bars=bars,
    )


def _measure_fabric(demo: Demo, on_progress: OnProgress) -> None:
    words = ["network.py", "fabric", "--nodes", str(NODES), "--failing", FAILING, "--loss", "0%"]
    words += ["--pattern", "ring", "--repeats", "1", "--seconds", "1.5"]
    words += ["--build", str(paths.require(paths.NCCL_NET).parents[1])]
    demo.transport = fabric_bars(_bench(words, 3, on_progress)["rows"])


def _simulate(demo: Demo, on_progress: OnProgress) -> None:
    """Where there are no namespaces: the shipped transport against what RDMA NICs do."""
    query = {
        "topology": "leaf-spine:32:4:8",
        "traffic": "permutation",
        "bytes": 8_000_000,
        "trim": False,
        "loss_ppb": 10_000_000,
    }
    bars = []
    for number, (name, more) in enumerate(
        (("one path, go-back-N", {"protocol": "go-back-n"}), (TUTTI, {}))
    ):
        row = packet_network.run({**query, **more}, [1]).rows[0]
        rate = query["bytes"] * 8 / row.completions[0].mean_us / 1e3  # type: ignore[operator]
        bars.append(Bar(name=name, value=round(rate, 1), is_ours=name == TUTTI))
        on_progress((number + 1) / 2)
    demo.transport = Bars(
        title="simulated: 32 NICs of 400 Gb/s, 8 spines, 1 % loss",
        unit="Gb/s per NIC",
        is_time=False,
        bound=None,
        bars=bars,
    )


def _measure_transport(demo: Demo, on_progress: OnProgress) -> None:
    try:
        _measure_fabric(demo, on_progress)
    except TuttiError as error:
        demo.not_run.append(
            f"the transport on a fabric of network namespaces: {error.format_message()}; the "
            "simulator ran instead, without TCP"
        )
        _simulate(demo, on_progress)


def plugin_bars(rows: Sequence[dict[str, Any]]) -> Bars:
    """The panel of a run of bench/nccl_network.py."""
    _require_ours(rows)
    wrong = sum(row["wrong"] for row in rows)
    if wrong:
        raise TuttiError(f"NCCL over the fabric: {wrong} wrong elements")
    names = {"NCCL": "NCCL's sockets", "NCCL 2x8": "NCCL's sockets, 2x8"}
    return Bars(
        title=f"NCCL allreduce of 16 MiB, {SPINES} spines of 2 Gb/s",
        unit="ms",
        is_time=True,
        bound=rows[0]["ideal_us"] / 1e3,
        bars=[
            Bar(
                name=names.get(row["way"], row["way"]),
                value=row["us"] / 1e3,
                is_ours=row["way"] == TUTTI,
            )
            for row in rows
        ],
    )


def _measure_plugin(demo: Demo, on_progress: OnProgress) -> None:
    words = ["nccl_network.py", "measure", "--layouts", "fabric", "--repeats", "1"]
    words += ["--ways", "NCCL", "NCCL 2x8", TUTTI, "--collectives", "allreduce"]
    words += ["--sizes", "16M", "--time-cap", "1", "--ranks", str(min(4, gpu_count()))]
    words += ["--build", str(paths.require(paths.NCCL_NET).parents[1])]
    demo.transport = plugin_bars(_bench(words, 4, on_progress)["rows"])


def transport(gpus: int) -> list[Step]:
    """One step; with GPUs NCCL runs over the plugin."""
    if gpus >= 2:
        return [Step("NCCL on 8 spines", _measure_plugin)]
    return [Step("transport on 8 spines, one failing", _measure_transport)]
