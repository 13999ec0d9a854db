# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Where Tutti's shared objects and the measured programs are.

Order: TUTTI_LIBRARY_DIR; `lib` in the package (wheel); the `lib` of the prefix that the package is
installed in; the build directories of a source tree, newest first.
"""

from __future__ import annotations

import os
from pathlib import Path

from tutti_hpc.errors import TuttiError

PRELOAD = "libtutti-mpi.so"
LIBRARY = "libtutti.so"
HOST_DEVICE = "libtutti-host-device.so"
NCCL_NET = "libnccl-net-tutti.so"
RCCL_NET = "librccl-net-tutti.so"
PACKAGE = Path(__file__).parent


def source_tree() -> Path | None:
    """The repository's root when the package runs from a checkout."""
    root = PACKAGE.parents[1]
    return root if (root / "include" / "tutti" / "tutti.h").is_file() else None


def library_directories() -> list[Path]:
    """Directories to search, in order; they need not exist."""
    override = os.environ.get("TUTTI_LIBRARY_DIR")
    if override:
        return [Path(override).absolute()]
    directories = [PACKAGE / "lib"]
    for parent in list(PACKAGE.parents)[:5]:  # Python 3.9 cannot slice parents.
        if parent.name in ("lib", "lib64"):
            directories.append(parent)
        directories += [parent / "lib", parent / "lib64"]
    root = source_tree()
    if root:
        builds = [path for path in (root / "build").glob("*/lib") if path.is_dir()]
        directories += sorted(builds, key=lambda path: path.stat().st_mtime, reverse=True)
    return directories


def find(name: str) -> Path | None:
    """The shared object `name`, or None."""
    for directory in library_directories():
        if (directory / name).is_file():
            return directory / name
    return None


def require(name: str) -> Path:
    """The shared object `name`; an error that names the remedy when there is none."""
    path = find(name)
    if path is None:
        raise TuttiError(
            f"{name} not found; remedy: `pip install .` or `make build`, or set TUTTI_LIBRARY_DIR"
        )
    return path


def find_measure(abi: str) -> Path | None:
    """The measured program for an MPI ABI (`mpich`, `openmpi` or `abi`), or None."""
    for directory in library_directories():
        for place in (directory, directory / "tutti", directory.parent / "bench" / "measure"):
            program = place / f"tutti-measure-{abi}"
            if program.is_file() and os.access(program, os.X_OK):
                return program
    return None


def require_measure(abi: str) -> Path:
    """The measured program for an MPI ABI; an error that names the remedy when there is none."""
    program = find_measure(abi)
    if program is None:
        raise TuttiError(
            f"tutti-measure-{abi} not found: Tutti was built without that MPI's headers; remedy: "
            "`make build`, or set TUTTI_LIBRARY_DIR"
        )
    return program
