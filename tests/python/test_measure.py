# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The measured program with every MPI of this machine: right, and able to see what is wrong."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tutti_hpc import launch, measure, mpi, paths, terms
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import state
from tutti_hpc.results import Results

from missing import unavailable

# Adds one to the first element of every allreduce's result: what --check must find.
FAULT = """
#include <mpi.h>
int MPI_Allreduce(const void* s, void* r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c) {
  int code = PMPI_Allreduce(s, r, n, t, o, c);
  if (t == MPI_FLOAT && n > 0) ((float*)r)[0] += 1;
  return code;
}
"""


@cache
def library(abi: str) -> mpi.Mpi | str:
    """The MPI, or why there is none."""
    if paths.find_measure(abi) is None:
        return f"tutti-measure-{abi} is not built"
    try:
        return mpi.find(abi)
    except TuttiError as error:
        return error.format_message()


def require(abi: str) -> mpi.Mpi:
    found = library(abi)
    if isinstance(found, str):
        unavailable(found)
    return found


def check(abi: str, job: measure.Job, extra: tuple[str, ...] = ()) -> str:
    """Runs the program itself; its standard output."""
    found = require(abi)
    env = launch.environment(os.environ, None, {}, found.library_directory)
    program = [str(paths.require_measure(abi)), *measure.arguments(job, measure.variants(job))]
    command = launch.ranks_command(found, job.ranks, [*program, *extra], env)
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def small_job(collective: str, ranks: int) -> measure.Job:
    return measure.Job(
        collective, ranks, 1, 40000, 31, 2, 1, plans=("native",), check=True, time_cap_s=2
    )


@pytest.mark.parametrize("abi", ["mpich", "openmpi", "abi"])
@pytest.mark.parametrize("collective", terms.COLLECTIVES)
def test_measure__every_element(abi: str, collective: str) -> None:
    for ranks in {"mpich": (1, 4), "openmpi": (3,), "abi": (2,)}[abi]:
        out = check(abi, small_job(collective, ranks), ("--root", str(ranks - 1)))
        assert out.count('"wrong": 0}') == (1 if collective == "barrier" else 4)


@pytest.mark.parametrize(
    "collective", [c for c in terms.COLLECTIVES if c not in ("barrier", "bcast")]
)
def test_measure__in_place(collective: str) -> None:
    out = check("mpich", small_job(collective, 3), ("--in-place", "--root", "1"))
    assert out.count('"wrong": 0}') == 4


@pytest.mark.parametrize(
    "collective",
    ["gatherv", "scatterv", "allgatherv", "alltoallv", "alltoallw", "reduce_scatter"],
)
def test_measure__unequal_blocks_with_holes(collective: str) -> None:
    out = check("mpich", small_job(collective, 3), ("--uneven", "--root", "2"))
    assert out.count('"wrong": 0}') == 4


@pytest.mark.parametrize("data_type", [*terms.TYPES])
def test_measure__types(data_type: str) -> None:
    ops = ["sum"]
    if data_type != "bfloat16":  # MPICH 5.0 only adds these.
        ops.append("prod")
        ops += [] if data_type.startswith("complex") else ["min", "max"]
    for op in ops:
        job = measure.Job(
            "allreduce", 2, 16, 8192, 8, 1, 0, type=data_type, op=op, plans=("native",), check=True
        )
        assert check("mpich", job).count('"wrong": 0}') == 4


def test_measure__finds_a_wrong_element(tmp_path: Path) -> None:
    found = require("mpich")
    header = found.prefix / "include" / "mpi.h"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not header.exists() or compiler is None:
        unavailable("no mpi.h beside this MPI, or no C compiler")
    source, fault = tmp_path / "fault.c", tmp_path / "fault.so"
    source.write_text(FAULT)
    options = ["-shared", "-fPIC", f"-I{header.parent}", "-o", str(fault), str(source)]
    subprocess.run([compiler, *options], check=True)
    job = measure.Job(
        "allreduce",
        2,
        1024,
        1024,
        2,
        1,
        0,
        plans=("native",),
        check=True,
        settings={"LD_PRELOAD": str(fault)},
    )
    # One element on each of two ranks, before and after the timed calls.
    assert measure.run(job, found).wrong() == 4


def test_run__results_document() -> None:
    job = measure.Job("allgather", 2, 4, 64, 4, 3, 1, plans=("native",), check=True)
    progress: list[float] = []
    document: Results = measure.run(job, require("mpich"), progress.append)
    assert [row.bytes for row in document.rows] == [8, 16, 64]
    assert (document.op, document.ranks, document.nodes, document.wrong()) == ("none", 2, 1, 0)
    assert document.versions.mpi.startswith("MPICH")
    assert document.rows[0].latency_us.p50 > 0
    assert progress[-1] == 1.0
    assert progress == sorted(progress)


def test_run__failure_of_the_program_is_one_error() -> None:
    job = measure.Job("allreduce", 1, 4, 4, memory="device", plans=("native",))
    found = require("mpich")
    if Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists():
        pytest.skip("this machine has a GPU")
    with pytest.raises(TuttiError, match="the measured program ended before it measured"):
        measure.run(job, found)


def test_run__hybrid_and_stand_in_device_memory() -> None:
    require_preload()
    job = measure.Job(
        "allreduce",
        2,
        64,
        16384,
        16,
        2,
        1,
        memory="hostdevice",
        plans=("native", "hybrid"),
        check=True,
    )
    document = measure.run(job, require("mpich"))
    assert document.wrong() == 0
    assert [row.hybrid for row in document.rows] == [False, True] * 3
    assert {row.plan for row in document.rows if row.hybrid} == {"direct-gamma"}


def require_preload() -> Path:
    preload = paths.find(paths.PRELOAD)
    if preload is None:
        unavailable("libtutti-mpi.so is not built")
    return preload


def test_run__a_refused_plan_has_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    require_preload()
    plans = ("native", "mpi-gamma", "ccl-gamma", "rings", "bogus-plan")
    job = measure.Job("allreduce", 2, 64, 256, 4, 2, 1, plans=plans, check=True)
    document = measure.run(job, require("mpich"))
    assert [row.plan for row in document.rows] == ["native", "mpi-gamma", "rings"] * 2
    assert document.wrong() == 0
    said = capsys.readouterr().err
    # A hint that cannot be read is ignored, and so few bytes are native by the shipped rules.
    for plan, used in (("ccl-gamma", "mpi-gamma"), ("bogus-plan", "mpi-gamma")):
        assert f"{plan} is left out, another plan ran in its place at 64 ({used}), 256 (" in said


def test_lab_command__striped_and_without_preload_when_asked(tmp_path: Path) -> None:
    place = state.Place(tmp_path, "one")
    library = mpi.Mpi("openmpi", "l", Path("/o/bin/mpirun"), "openmpi", Path("/o"), "")
    own = measure._lab_command(measure.LabJob(place, 4), library, 16, ["program"], True)
    striped = measure.LabJob(place, 4, striped=True)
    both = measure._lab_command(striped, library, 16, ["program"], False)
    assert own[own.index("--mpi") + 1] == "/o/bin/mpirun"  # Others may have the same ABI.
    assert set(both) - set(own) == {"--striped", "--no-preload"}
    assert both[-2:] == ["--", "program"]


def test_run__plans_that_are_all_refused_are_an_error() -> None:
    require_preload()
    job = measure.Job("allreduce", 2, 64, 64, 4, 2, 1, plans=("ccl-gamma",))
    with pytest.raises(TuttiError, match="ccl-gamma: refused at every size"):
        measure.run(job, require("mpich"))


@pytest.mark.parametrize(
    ("plan", "used", "same"),
    [
        ("mpi", "native", True),
        ("native", "mpi-gamma", True),
        ("mpi-staged", "native", True),
        ("mpi-beta", "mpi-gamma", False),
        ("mpi-alpha", "native", False),
        ("nccl", "ccl-beta", True),
        ("rccl-alpha", "ccl-alpha", True),
        ("ccl-gamma", "mpi-gamma", False),
        ("NCCL-streams(4)", "ccl-streams(4)", True),
        ("direct", "direct-gamma", True),
        ("direct-copy", "direct-gamma", False),
        ("schedule:rings-xor", "rings-xor", True),
        ("nccl:ring", "ccl:ring", True),
        ("schedule:ring", "ccl:ring", False),
    ],
)
def test_asked_for__by_any_of_a_plans_names(plan: str, used: str, same: bool) -> None:
    assert measure.asked_for(plan, used) is same


def test_run__a_preload_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "with a blank"
    directory.symlink_to(require_preload().parent)
    found, program = require("mpich"), paths.require_measure("mpich")
    monkeypatch.setattr(paths, "require_measure", lambda _: program)
    monkeypatch.setenv("TUTTI_LIBRARY_DIR", str(directory))
    job = measure.Job("allreduce", 2, 64, 64, 4, 2, 1, plans=("native", "hybrid", "rings"))
    with pytest.raises(TuttiError, match="LD_PRELOAD is split at blanks and colons"):
        measure.run(job, found)
    # Whatever else keeps it out of the ranks.
    monkeypatch.setattr(launch, "check_preload", lambda _: None)
    with pytest.raises(TuttiError, match="Tutti is not in the ranks: hybrid does not report"):
        measure.run(job, found)


@pytest.mark.parametrize("text", ["abc", "2,x", "-1", "2,,2"])
def test_run__virtual_nodes_that_are_no_numbers(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_VIRTUAL_NODES", text)
    monkeypatch.setattr(measure, "_execute", lambda *_: pytest.fail("the job has run"))
    with pytest.raises(TuttiError, match=f"TUTTI_VIRTUAL_NODES={text}: neither a number"):
        measure.run(measure.Job("allreduce", 2, plans=("native",)), require("mpich"))


@pytest.mark.parametrize("runtime", ["cuda", "hip"])
@pytest.mark.parametrize("collective", ["allreduce", "alltoall", "bcast", "reduce_scatter_block"])
def test_run__device_memory_with_fakes(
    runtime: str, collective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = [d.parent / "tests/support/fakes" / runtime for d in paths.library_directories()]
    ccl = {"cuda": "libnccl.so.2", "hip": "librccl.so.1"}[runtime]
    found = next((place for place in fakes if (place / ccl).exists()), None)
    if found is None or paths.find(paths.PRELOAD) is None:
        unavailable("the fakes of the GPU libraries are not built")
    old = os.environ.get("LD_LIBRARY_PATH")
    monkeypatch.setenv("LD_LIBRARY_PATH", launch.prepend_path(old, str(found)))
    plans = ("native", "hybrid", "nccl", "ccl-gamma")
    job = measure.Job(
        collective,
        2,
        1024,
        65536,
        64,
        3,
        1,
        memory="device",
        plans=plans,
        check=True,
        settings={"TUTTI_DEVICE": runtime, "TUTTI_CCL_LIBRARY": str(found / ccl)},
    )
    document = measure.run(job, require("openmpi"))
    assert document.wrong() == 0
    assert [row.plan for row in document.rows if row.hybrid] == ["mpi-gamma", "ccl-gamma"]
    assert len(document.rows) == 2 * len(plans)
    assert document.machine.gpus


def test_overhead__not_without_what_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).resolve().parents[2]
    for place in ("bench", "tests/mpi"):
        monkeypatch.syspath_prepend(str(root / place))
    monkeypatch.setenv("TUTTI_BUILD_DIR", str(require_preload().parents[1]))
    overhead = importlib.import_module("overhead")
    library = overhead.harness.find_mpi("mpich")
    if isinstance(library, str) or not library.program("overhead").exists():
        unavailable("MPICH or the program is missing")
    assert min(overhead.run_once(library, True, 10, tmp_path)) > 0
    preload_library = tmp_path / "preload.so"
    monkeypatch.setattr(overhead.harness, "preload_library", lambda: preload_library)
    monkeypatch.setattr(sys, "argv", ["overhead.py", "--pairs", "2"])
    with pytest.raises(SystemExit, match="2"):
        overhead.main()
    assert "preload.so is not there; remedy: make build" in capsys.readouterr().err
    preload_library.write_text("no library")
    with pytest.raises(SystemExit, match="cannot be preloaded"):
        overhead.run_once(library, True, 10, tmp_path)
