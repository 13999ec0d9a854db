# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Beside other tools: profilers that are preloaded too, programs that open MPI by themselves."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import harness
from harness import Finished, Mpi, execute, job, plain_environment
from test_job import CALLS, rows
from test_mpi import once_per_library

ALLREDUCES = 5  # What counted.c calls.
OURS = {"TUTTI_ALLREDUCE": "direct", "TUTTI_SUMMARY": "1"}
TOOLS = ("profiler", "profiler_next")
UNSEEN = "WARN .*none of its calls passed Tutti"


def tool(mpi: Mpi, name: str) -> Path:
    return mpi.program(f"{name}.so")


def assert_both_saw_all(result: Finished, ranks: int = 2) -> None:
    """The tool has counted every allreduce once, and our plan has carried each."""
    assert result.status == 0, str(result)
    counted = [line for line in result.stdout.splitlines() if line.startswith("profiler")]
    assert counted == [f"profiler: {ALLREDUCES} allreduces"] * ranks, str(result)
    found = rows(result)
    for key in (key for key in CALLS if key[0] == "allreduce"):
        assert found[key][:2] == ("direct-gamma", CALLS[key]), str(result)
    assert not result.lines("WARN|ERROR"), str(result)


# The order in LD_PRELOAD.


@pytest.mark.parametrize("name", TOOLS)
def test_profiler__before_us(mpi: Mpi, name: str, preload_library: Path, tmp_path: Path) -> None:
    preload = OURS | {"LD_PRELOAD": f"{tool(mpi, name)}:{preload_library}"}
    program = [mpi.program("counted")]
    result = job(mpi, 2, program, tmp_path, environment=preload, preload=False)
    assert_both_saw_all(result)


def test_profiler__behind_us(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """So stands one that the program is linked to."""
    preload = OURS | {"LD_PRELOAD": f"{preload_library}:{tool(mpi, 'profiler')}"}
    program = [mpi.program("counted")]
    result = job(mpi, 2, program, tmp_path, environment=preload, preload=False)
    assert_both_saw_all(result)


def test_profiler__behind_us_that_looks_past_us(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """It finds the library's own function: one line says that Tutti carries nothing."""
    preload = OURS | {"LD_PRELOAD": f"{preload_library}:{tool(mpi, 'profiler_next')}"}
    program = [mpi.program("counted")]
    result = job(mpi, 2, program, tmp_path, environment=preload, preload=False)
    assert result.status == 0, str(result)
    assert f"profiler: {ALLREDUCES} allreduces" in result.stdout, str(result)
    said = result.lines("WARN .*profiler_next.so calls MPI past Tutti.*remedy: name it before")
    assert len(said) == 2, str(result)


def test_library__its_own_collectives_are_not_ours(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """It calls PMPI functions of itself, which we have, too."""
    path = tmp_path / "written"
    result = job(mpi, 2, [mpi.program("file"), path], tmp_path, environment=OURS)
    assert result.status == 0, str(result)
    assert "file: done" in result.stdout, str(result)
    assert path.read_text() == "a" * 1000 + "b" * 1000
    found = rows(result)
    assert found["all", ""][1] == found["barrier", "0"][1] == 1, str(result)


# The forms of the command line.


def tutti_run(
    mpi: Mpi, words: list[str], directory: Path, before: dict[str, str] | None = None
) -> Finished:
    environment = plain_environment() | OURS | {"LD_LIBRARY_PATH": str(mpi.libraries)}
    environment["TUTTI_LIBRARY_DIR"] = str(harness.preload_library().parent)
    environment["PYTHONPATH"] = str(harness.ROOT / "python")
    command = [sys.executable, "-m", "tutti_hpc", "run", "--", *words]
    return execute(command, environment | (before or {}), 120)


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("form", ["launcher", "outside", "env before", "env behind"])
def test_tutti_run__profiler(
    mpi: Mpi, form: str, name: str, preload_library: Path, tmp_path: Path
) -> None:
    preload = f"LD_PRELOAD={tool(mpi, name)}"
    launcher, *options = mpi.launch(2)
    program = str(mpi.program("counted"))
    before = {}
    if form == "launcher":
        own = ["-x", preload] if mpi.flavour == "openmpi" else ["-genv", *preload.split("=")]
        words = [launcher, *own, *options, program]
    elif form == "outside":
        before = {"LD_PRELOAD": str(tool(mpi, name))}
        words = [launcher, *options, program]
    elif form == "env before":
        words = ["env", preload, launcher, *options, program]
    else:
        words = [launcher, *options, "env", preload, program]
    assert_both_saw_all(tutti_run(mpi, words, tmp_path, before))


def test_tutti_run__profiler_of_one_program(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Two programs in one job, each with variables of its own."""
    name, value = "LD_PRELOAD", str(tool(mpi, "profiler"))
    own = ["-x", f"{name}={value}"] if mpi.flavour == "openmpi" else ["-env", name, value]
    launcher, *options = mpi.launch(1)
    program = str(mpi.program("counted"))
    words = [launcher, *own, *options, program, ":", *options[-2:], *own, program]
    assert_both_saw_all(tutti_run(mpi, words, tmp_path))


# MPI opened at run time.


def opened(mpi: Mpi, way: str, directory: Path, **variables: str) -> Finished:
    libraries = {"mpich": "libmpi.so.12", "abi": "libmpi_abi.so.1", "openmpi": "libmpi.so.40"}
    file = (
        mpi.libraries / libraries[mpi.flavour]
        if way in ("handle", "idle")
        else mpi.program("module.so")
    )
    result = job(mpi, 2, [mpi.program("opened"), way, file], directory, environment=variables)
    assert result.status == 0, str(result)
    assert result.stdout.count("opened: done") == 2, str(result)
    return result


@pytest.mark.parametrize("way", ["handle", "deepbind"])
def test_opened__past_us_is_said_at_the_end(
    mpi: Mpi, way: str, preload_library: Path, tmp_path: Path
) -> None:
    result = opened(mpi, way, tmp_path)
    said = result.lines(UNSEEN)
    assert len(said) == 2, str(result)
    assert all("RTLD_DEEPBIND" in line and "remedy:" in line for line in said), str(result)


@pytest.mark.parametrize("way", ["idle", "local", "silent"])
def test_opened__not_past_us_says_nothing(
    mpi: Mpi, way: str, preload_library: Path, tmp_path: Path
) -> None:
    result = opened(mpi, way, tmp_path)
    assert not result.lines("WARN|ERROR"), str(result)


def test_opened__past_us_when_we_are_off(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    result = opened(mpi, "handle", tmp_path, TUTTI_ENABLE="0")
    assert not result.lines("WARN|ERROR"), str(result)


def test_opened__by_ctypes(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """A child that the process forks and that ends like it says nothing again."""
    libraries = {"mpich": "libmpi.so.12", "abi": "libmpi_abi.so.1", "openmpi": "libmpi.so.40"}
    source = (
        "import ctypes, os, sys\n"
        "mpi = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
        "mpi.MPI_Init(None, None)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "mpi.MPI_Finalize()\n"
        "print('opened: done')\n"
    )
    library = mpi.libraries / libraries[mpi.flavour]
    result = job(mpi, 1, [sys.executable, "-c", source, library], tmp_path)
    assert result.status == 0, str(result)
    assert "opened: done" in result.stdout, str(result)
    assert len(result.lines(UNSEEN)) == 1, str(result)


@pytest.mark.parametrize("is_on_device", [True, False])
def test_device_malloc__buffers_of_a_program_that_knows_no_gpu(
    mpi: Mpi, is_on_device: bool, preload_library: Path, tmp_path: Path
) -> None:
    """tools/suites.py runs foreign programs on the emulated GPU that way."""
    once_per_library(mpi)
    library = harness.build_directory() / "tests" / "mpi" / "none" / "device_malloc.so"
    preload = f"{preload_library} {harness.host_device()}"
    preload += f" {library}" if is_on_device else ""
    environment = {"LD_PRELOAD": preload, "TUTTI_DEVICE": "host", "TUTTI_LOG_LEVEL": "info"}
    result = job(mpi, 2, [mpi.program("refused")], tmp_path, environment=environment, preload=False)
    result.assert_passed("refused")
    assert bool(result.lines("kernels of this communicator are ready")) == is_on_device, str(result)


def test_host_device__missing(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """The job runs on host memory, and one rank says what to do."""
    once_per_library(mpi)
    for name in ("libtutti-mpi.so", "libtutti.so.0"):
        shutil.copy(preload_library.with_name(name), tmp_path)
    environment = {"LD_PRELOAD": str(tmp_path / "libtutti-mpi.so"), "TUTTI_DEVICE": "host"}
    result = job(mpi, 2, [mpi.program("refused")], tmp_path, environment=environment, preload=False)
    result.assert_passed("refused")
    file = tmp_path / "libtutti-host-device.so"
    said = result.lines(f"ERROR .*TUTTI_DEVICE=host: host: {file}: cannot open.*; remedy: ")
    assert len(said) == 1, str(result)
