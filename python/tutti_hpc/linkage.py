# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI library a program of `tutti lab` or `tutti bench` loads, and which launcher fits.

A program under the launcher of another MPI does not see its peers: each of its processes is an MPI
job of one rank (a singleton), or MPI_Init fails.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tutti_hpc import mpi, output, processes
from tutti_hpc.errors import TuttiError

_ABIS = {library: abi for abi, library in mpi.ABI_LIBRARIES.items()}
_ABIS[mpi.DEBIAN_MPICH] = "mpich"

# Runs in the program's own Python: names the MPI libraries that its mpi4py loads.
_PYTHON_PROBE = """
import importlib.util
if importlib.util.find_spec("mpi4py"):
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    print(open("/proc/self/maps").read())
"""
_TIMEOUT_S = 60

Refusal = Callable[[mpi.Mpi], str]  # Why a launcher is of no use for this; empty: it is.


@dataclass(frozen=True)
class Linkage:
    """A program and the ABI of the MPI library that it loads."""

    program: str
    abi: str  # mpich | openmpi | abi


def abi_of(text: str) -> str | None:
    """The ABI of the first MPI library that `text` (of ldd, of a process's maps) names."""
    for name in re.findall(r"\blibmpi(?:_abi|ch)?\.so\.\d+", text):
        if name in _ABIS:
            return _ABIS[name]
    return None


def _executable(word: str) -> str | None:
    """The file that a word of a command line names, when it can be executed."""
    if word.startswith("-") or "=" in word.partition(os.sep)[0]:
        return None
    return shutil.which(word)


def _interpreter(program: str) -> str | None:
    """The interpreter that a script's first line names."""
    try:
        with open(program, "rb") as file:
            line = file.readline(256)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return shutil.which(words[0]) if words else None


def _output(command: Sequence[str], env: Mapping[str, str]) -> str:
    """What a command prints; nothing where it cannot be run."""
    done = processes.ask(command, _TIMEOUT_S, env)
    return done.stdout if done else ""


def of(words: Sequence[str], library: mpi.Mpi) -> Linkage | None:
    """What a command line loads when `library` is found first, as ranks of its launcher find it.

    Looks at every word that names a program, so `env` and the like may stand before it. None: no
    MPI library is seen, as behind a shell script.
    """
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if library.library_directory:
        old = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = str(library.library_directory) + (f":{old}" if old else "")
    for word in words:
        program = _executable(word)
        if program is None:
            continue
        runs = _interpreter(program) or program
        if re.fullmatch(r"python[\d.]*", Path(runs).name):
            found = abi_of(_output([runs, "-c", _PYTHON_PROBE], env))
        else:
            found = abi_of(_output(["ldd", runs], env))
        if found:
            return Linkage(word, found)
    return None


def preferred(refusal: Refusal) -> list[mpi.Mpi]:
    """The MPIs of this machine: that of PATH, then Open MPI, then the others; refused ones last.

    Waiting ranks of Open MPI give their core away, which a lab is short of.
    """
    return sorted(
        mpi.find_all(),
        key=lambda one: (
            refusal(one) != "",
            one.origin != mpi.ON_PATH,
            one.launcher_kind != "openmpi",
        ),
    )


def find(wanted: str | None, refusal: Refusal) -> mpi.Mpi:
    """As mpi.find, but the preferred one of those that a name means."""
    if wanted is None or wanted in mpi.ABI_LIBRARIES:
        for candidate in preferred(refusal):
            if wanted in (None, candidate.abi):
                return candidate
    return mpi.find(wanted)


def choose(words: Sequence[str], wanted: str | None, refusal: Refusal) -> mpi.Mpi:
    """The MPI whose launcher starts `words`: the wanted one, which must fit, or one that fits."""
    if _executable(words[0]) is None:
        raise TuttiError(f"{words[0]}: no such program; remedy: the path of an executable file")
    if wanted is not None:
        named = find(wanted, refusal)
        linkage = of(words, named)
        if linkage and not _fits(named, linkage):
            raise TuttiError(
                f"{linkage.program} uses the {mpi.ABI_NAMES[linkage.abi]}, --mpi {wanted} has the "
                f"launcher of the {mpi.ABI_NAMES[named.abi]}: its ranks would not see each other; "
                f"remedy: --mpi {linkage.abi}"
            )
        return named
    linkage = None
    for candidate in preferred(refusal):
        seen = of(words, candidate)
        if seen and _fits(candidate, seen):
            output.note(
                f"{seen.program} uses the {mpi.ABI_NAMES[seen.abi]}: started by "
                f"{candidate.launcher}"
            )
            return candidate
        linkage = linkage or seen
    if linkage:
        raise TuttiError(
            f"{linkage.program} uses the {mpi.ABI_NAMES[linkage.abi]}, of which no launcher is "
            "found; remedy: --mpi with the path of its prefix or mpirun"
        )
    chosen = find(None, refusal)
    output.note(
        f"which MPI {words[0]} uses cannot be seen before it runs: started by {chosen.launcher}; "
        "--mpi names another"
    )
    return chosen


def _fits(library: mpi.Mpi, linkage: Linkage) -> bool:
    """Hydra starts programs of both ABIs that MPICH has."""
    is_hydra = library.launcher_kind == "hydra" and linkage.abi in ("mpich", "abi")
    return is_hydra or linkage.abi == library.abi
