# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti info`: libraries, GPUs and MPIs of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tutti_hpc import info, machine, mpi
from tutti_hpc.errors import TuttiError

NVIDIA = """\
\x1b[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\t0-95\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t0-95\t0\t\tN/A
NIC0\tPIX\tSYS\t X

Legend:

  X    = Self
"""
ROCM = """\
======================= Link Type between two GPUs =======================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
"""


def test_parse_nvidia_topology() -> None:
    assert machine.parse_nvidia_topology(NVIDIA) == [["X", "NV18"], ["NV18", "X"]]


def test_parse_rocm_topology() -> None:
    assert machine.parse_rocm_topology(ROCM) == [["X", "XGMI"], ["XGMI", "X"]]


def test_link_matrix__has_the_legend() -> None:
    text = info.link_matrix([["X", "NV18"], ["NV18", "X"]])
    assert text.splitlines()[:3] == ["        GPU0  GPU1", "  GPU0  X     NV18", "  GPU1  NV18  X"]
    assert "PIX =   at most one PCIe bridge" in text


def test_describe__this_machine() -> None:
    found = machine.describe()
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 20


def fake_prefix(root: Path, name: str, version: str, libraries: list[str]) -> Path:
    prefix = root / name
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    launcher = prefix / "bin" / "mpirun"
    launcher.write_text(f"#!/bin/sh\necho '{version}'\n")
    launcher.chmod(0o755)
    for library in libraries:
        (prefix / "lib" / library).touch()
    return prefix


@pytest.fixture
def prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_prefix(tmp_path, "hydra", "HYDRA", ["libmpi.so.12", "libmpi_abi.so.1"])
    fake_prefix(tmp_path, "ompi", "mpirun (Open MPI) 5.0.11", ["libmpi.so.40"])
    places = [(tmp_path / "hydra", "one"), (tmp_path / "ompi", "two")]
    monkeypatch.setattr(mpi, "_prefixes", lambda: places)
    mpi.find_all.cache_clear()
    monkeypatch.setattr(mpi, "find_all", mpi.find_all.__wrapped__)
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "abi", "library"),
    [
        (None, "mpich", "hydra/lib/libmpi.so.12"),
        ("mpich", "mpich", "hydra/lib/libmpi.so.12"),
        ("abi", "abi", "hydra/lib/libmpi_abi.so.1"),
        ("openmpi", "openmpi", "ompi/lib/libmpi.so.40"),
    ],
)
def test_find__by_name(prefixes: Path, wanted: str | None, abi: str, library: str) -> None:
    found = mpi.find(wanted)
    assert (found.abi, found.library) == (abi, str(prefixes / library))
    assert found.library_directory == (prefixes / library).parent


def test_find__by_path(prefixes: Path) -> None:
    assert mpi.find(str(prefixes / "ompi")).launcher_kind == "openmpi"
    assert mpi.find(str(prefixes / "hydra/bin/mpirun")).abi == "mpich"


def test_find__library_of_debian(tmp_path: Path) -> None:
    prefix = fake_prefix(tmp_path, "debian", "HYDRA", ["libmpich.so.12"])
    found = mpi.find(str(prefix))
    assert (found.abi, found.library) == ("mpich", str(prefix / "lib/libmpich.so.12"))


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [("lam", "mpich, openmpi, abi"), ("/no/such/place", "no such file"), ("./", "no mpirun")],
)
def test_find__refuses(
    prefixes: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, complaint: str
) -> None:
    monkeypatch.chdir(prefixes)
    with pytest.raises(TuttiError, match=complaint):
        mpi.find(wanted)


def test_find__nothing_there(prefixes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "_prefixes", list)
    with pytest.raises(TuttiError, match="no MPI found; remedy"):
        mpi.find(None)


def test_facts__a_library_that_cannot_be_asked(prefixes: Path) -> None:
    facts = mpi.facts(mpi.find("openmpi"))
    assert facts.gpu_aware is None
    assert facts.how == "the library could not be asked"


def test_short_version() -> None:
    assert mpi.short_version("MPICH Version: 5.0.2 MPICH Release date: x") == "MPICH 5.0.2"
    assert mpi.short_version("Open MPI v5.0.11, package: y") == "Open MPI 5.0.11"
