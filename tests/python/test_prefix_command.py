# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The `tutti` command of an installed prefix that was moved, alone and by its module file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tutti_hpc.__main__ import NEEDED

from missing import unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARIES = Path(os.environ.get("TUTTI_LIBRARY_DIR", REPOSITORY / "build/dev/lib"))
VERSION = re.search(
    r"project\(tutti VERSION ([0-9.]+)", (REPOSITORY / "CMakeLists.txt").read_text()
)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("prefix")
    command = ["cmake", "--install", str(LIBRARIES.parent), "--prefix", str(top / "before")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (top / "before").rename(top / "after")
    return top / "after"


def environment(**more: str) -> dict[str, str]:
    """Without what leads to the source tree."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TUTTI_LIBRARY_DIR", "PYTHONPATH")}
    return {**kept, **more}


def run(command: Path | str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(command), *words],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment(**more),
    )


def test_command__is_of_its_prefix(prefix: Path) -> None:
    assert VERSION
    assert os.access(prefix / "bin/tutti", os.X_OK)
    assert run(prefix / "bin/tutti", "--version").stdout == f"tutti, version {VERSION.group(1)}\n"
    shown = run(prefix / "bin/tutti", "run", "--print", "--", "mpirun", "./app").stdout
    assert f"LD_PRELOAD={prefix}/lib/libtutti-mpi.so" in shown
    assert (prefix / "lib/libtutti-mpi.so").is_file()
    config = run(prefix / "bin/tutti", "config")  # Asks the library.
    assert config.returncode == 0, config.stderr
    assert "TUTTI_LOG_LEVEL" in config.stdout


def test_command__through_a_link(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "tutti").symlink_to(prefix / "bin/tutti")
    shown = run(tmp_path / "tutti", "run", "--print", "--", "true")
    assert str(prefix) in shown.stdout, shown.stderr


def test_command__names_the_package_it_lacks(prefix: Path) -> None:
    bare = subprocess.run(
        [sys.executable, "-I", "-S", str(prefix / "bin/tutti")], capture_output=True, text=True
    )
    assert bare.returncode == 1
    assert "has no Python package click; remedy: " in bare.stderr
    assert bare.stderr.rstrip().endswith("-m pip install click msgspec")


def test_needed__is_what_the_distribution_depends_on() -> None:
    (listed,) = re.findall(
        r"^dependencies = \[(.*)\]$", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert " ".join(re.findall(r'"([a-z]+)', listed)) == NEEDED


def test_command__runs_an_mpi_program(prefix: Path) -> None:
    mpirun = REPOSITORY / ".env/mpich/bin/mpirun"
    measure = prefix / "lib/tutti/tutti-measure-mpich"
    if not mpirun.is_file() or not measure.is_file():
        unavailable("no MPICH in .env")
    done = run(
        prefix / "bin/tutti",
        *("run", "--log-level", "info", "--", str(mpirun), "-n", "2"),
        *(
            str(mpirun.with_name("python")),
            "-c",
            "from mpi4py import MPI; MPI.COMM_WORLD.barrier()",
        ),
    )
    assert done.returncode == 0, done.stderr
    assert "tutti" in done.stderr.lower()


def test_module__puts_the_command_first(prefix: Path) -> None:
    modulecmd = shutil.which("modulecmd") or shutil.which(
        "modulecmd.tcl", path="/usr/lib/x86_64-linux-gnu:/usr/share/modules/libexec"
    )
    if modulecmd is None:
        pytest.skip("no environment modules (Debian: environment-modules)")
    done = subprocess.run(
        [modulecmd, "sh", "load", "tutti"],
        capture_output=True,
        text=True,
        env=environment(MODULEPATH=str(prefix / "share/modulefiles")),
    )
    assert done.returncode == 0, done.stderr
    shell = f'{done.stdout}\ncommand -v tutti; echo "$LD_LIBRARY_PATH"'
    said = subprocess.run(
        ["sh", "-c", shell], capture_output=True, text=True, env=environment()
    ).stdout
    assert said.splitlines()[0] == str(prefix / "bin/tutti")
    assert said.splitlines()[1].startswith(str(prefix / "lib"))


def test_examples__are_installed(prefix: Path) -> None:
    assert (prefix / "share/tutti/examples/c_api/allreduce.c").is_file()
    assert (prefix / "share/tutti/examples/transport_policy/CMakeLists.txt").is_file()
    assert not list(prefix.rglob("__pycache__/*.py"))
