# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI a program loads, and which launcher is taken for it. The libraries are stand-ins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tutti_hpc import linkage, mpi
from tutti_hpc.errors import TuttiError

from missing import unavailable


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of each ABI's name, and a machine with MPICH and Open MPI."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        unavailable("no C compiler")
    (tmp_path / "empty.c").write_text("")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    for abi, name in mpi.ABI_LIBRARIES.items():
        library = tmp_path / "lib" / name
        library.parent.mkdir(exist_ok=True)
        shared = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(library)]
        subprocess.run([*shared, str(tmp_path / "empty.c")], check=True)
        program = [compiler, "-o", str(tmp_path / abi), str(tmp_path / "main.c")]
        subprocess.run([*program, "-Wl,--no-as-needed", str(library)], check=True)
    (tmp_path / "script").write_text("#!/bin/sh\nexec something\n")
    (tmp_path / "script").chmod(0o755)
    has(monkeypatch, mpich(), mpich("abi"), openmpi())
    return tmp_path


def has(monkeypatch: pytest.MonkeyPatch, *found: mpi.Mpi) -> None:
    monkeypatch.setattr(mpi, "find_all", lambda: found)


def mpich(abi: str = "mpich", origin: str = "") -> mpi.Mpi:
    library = f"/m/lib/{mpi.ABI_LIBRARIES[abi]}"
    return mpi.Mpi(abi, library, Path("/m/bin/mpirun"), "hydra", Path("/m"), origin)


def openmpi(origin: str = "") -> mpi.Mpi:
    launcher = Path("/o/bin/mpirun")
    return mpi.Mpi("openmpi", "/o/lib/libmpi.so.40", launcher, "openmpi", Path("/o"), origin)


def nothing_refused(_: mpi.Mpi) -> str:
    return ""


@pytest.mark.parametrize("abi", mpi.ABI_LIBRARIES)
def test_of__every_abi_also_behind_other_programs(machine: Path, abi: str) -> None:
    program = str(machine / abi)
    for words in ([program, "-x"], ["env", "A=b", program], ["nice", "-n", "5", program]):
        assert linkage.of(words, mpich()) == linkage.Linkage(program, abi)


def test_of__what_uses_no_mpi_or_does_not_show_it(machine: Path) -> None:
    assert linkage.of(["true"], mpich()) is None
    assert linkage.of([str(machine / "script")], mpich()) is None
    assert linkage.of(["no-such-program"], mpich()) is None


def test_of__python_is_asked_what_its_mpi4py_loads(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a script names it."""
    package = machine / "site" / "mpi4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class rc: pass\n")
    library = machine / "lib" / mpi.ABI_LIBRARIES["openmpi"]
    (package / "MPI.py").write_text(f"import ctypes\nctypes.CDLL({str(library)!r})\n")
    script = machine / "script.py"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    assert linkage.of([str(script)], mpich()) is None
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    for words in ([str(script)], ["python3", "program.py"]):
        assert linkage.of(words, mpich()) == linkage.Linkage(words[0], "openmpi")


@pytest.mark.parametrize("abi", mpi.ABI_LIBRARIES)
def test_choose__the_launcher_of_the_programs_mpi(
    machine: Path, abi: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(machine / abi)
    chosen = linkage.choose([program], None, nothing_refused)
    assert chosen.launcher_kind == ("openmpi" if abi == "openmpi" else "hydra")
    said = f"tutti: {program} uses the {mpi.ABI_NAMES[abi]}: started by {chosen.launcher}\n"
    assert capsys.readouterr().err == said


def test_choose__a_launcher_that_does_not_fit_is_an_error(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(machine / "openmpi")
    with pytest.raises(TuttiError, match="ranks would not see each other; remedy: --mpi openmpi"):
        linkage.choose([program], "mpich", nothing_refused)
    assert linkage.choose([program], "openmpi", nothing_refused) == openmpi()
    assert linkage.choose([str(machine / "abi")], "mpich", nothing_refused) == mpich()
    assert capsys.readouterr().err == ""  # Who names one is not told which it is.
    has(monkeypatch, mpich())
    with pytest.raises(TuttiError, match="uses the Open MPI ABI, of which no launcher is found"):
        linkage.choose([program], None, nothing_refused)
    with pytest.raises(TuttiError, match="nowhere: no such program; remedy"):
        linkage.choose([str(machine / "nowhere")], None, nothing_refused)


def test_choose__where_it_cannot_be_seen(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(machine / "script")
    assert linkage.choose([script], None, nothing_refused) == openmpi()
    assert "cannot be seen before it runs: started by /o/bin/mpirun; --mpi" in (
        capsys.readouterr().err
    )
    has(monkeypatch, openmpi(), mpich(origin=mpi.ON_PATH))
    assert linkage.choose([script], None, nothing_refused).launcher_kind == "hydra"


def test_choose__one_that_is_refused_is_the_last_resort(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a distribution's Open MPI 4 on PATH beside a later one, in a lab."""
    old = mpi.Mpi("openmpi", "l", Path("/usr/bin/mpirun"), "openmpi", Path("/usr"), mpi.ON_PATH)
    program = str(machine / "openmpi")

    def refusal(one: mpi.Mpi) -> str:
        return "too old" if one is old else ""

    has(monkeypatch, old, openmpi())
    for wanted in ("openmpi", None):
        assert linkage.choose([program], wanted, refusal) == openmpi()
        assert linkage.choose([program], wanted, nothing_refused) == old
        assert linkage.find(wanted, refusal) == openmpi()
    has(monkeypatch, old)
    assert linkage.choose([program], "openmpi", refusal) == old


def test_abi_of__library_of_debian() -> None:
    assert linkage.abi_of("  libmpich.so.12 => /usr/lib/libmpich.so.12 (0x7f00)") == "mpich"
