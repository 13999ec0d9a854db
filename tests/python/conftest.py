# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in C API for tests of the command line, results to print, a Python that has torch."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from result_rows import row
from tutti_hpc import api, paths
from tutti_hpc.results import Machine, Results, Versions

from missing import unavailable

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Open MPI's search for libfabric devices sleeps a second in each MPI_Init.
os.environ.setdefault("OMPI_MCA_btl", "^ofi")
os.environ.setdefault("OMPI_MCA_mtl", "^ofi")


@pytest.fixture(scope="session")
def stand_in_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library directory with a stand-in libtutti.so and an empty libtutti-mpi.so."""
    directory = tmp_path_factory.mktemp("lib")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        unavailable("no C compiler")
    source = HERE / "stand_in_api.c"
    for name in ("libtutti.so", "libtutti-mpi.so"):
        command = [compiler, "-shared", "-fPIC", "-o", str(directory / name), str(source)]
        subprocess.run(command, check=True)
    return directory


@pytest.fixture
def stand_in(stand_in_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The commands use the stand-in library."""
    monkeypatch.setenv("TUTTI_LIBRARY_DIR", str(stand_in_directory))
    api.library.cache_clear()
    yield stand_in_directory
    api.library.cache_clear()


@pytest.fixture
def default_signals() -> Iterator[None]:
    """What ends a process from outside does so here and in children, whatever the parent ignores.

    `nohup make test &` leaves SIGHUP and SIGINT ignored, and programs rightly keep that.
    """
    numbers = (signal.SIGHUP, signal.SIGINT)
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def library() -> Iterator[None]:
    """The real library, whatever stand-in a test before used."""
    if paths.find(paths.LIBRARY) is None:
        unavailable("libtutti.so is not built")
    api.library.cache_clear()
    yield
    api.library.cache_clear()


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter that has torch, which is no part of the tools' environment.

    TORCH_PYTHON names it. Unset: that of .env/torch (`make test` makes it), else this one.
    """
    made = ROOT / ".env/torch/bin/python"
    found = os.environ.get("TORCH_PYTHON", str(made) if made.exists() else sys.executable)
    if paths.find(paths.LIBRARY) is None:
        unavailable("libtutti.so is not built")
    words = [found, "-c", "import torch"]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if subprocess.run(words, env=environment, capture_output=True, check=False).returncode:
        unavailable(f"{found} has no torch; remedy: TORCH_PYTHON names an interpreter that has it")
    return found


@pytest.fixture
def document() -> Results:
    return Results(
        command="tutti bench allreduce -n 4",
        date="2026-11-21T10:00:00+00:00",
        machine=Machine(gpus=["NVIDIA H200"] * 2, links=[["X", "NV18"], ["NV18", "X"]]),
        versions=Versions(tutti="0.1.0", mpi="MPICH Version: 5.0.2", ccl="NCCL 2.30.7"),
        collective="allreduce",
        ranks=4,
        nodes=1,
        memory="device",
        type="float32",
        op="sum",
        rows=[
            row(1024, "native", 20.0),
            row(1024, "mpi-gamma", 20.0, hybrid=True),
            row(1 << 20, "native", 1000.0),
            row(1 << 20, "ccl-gamma", 25.0, hybrid=True),
        ],
    )
