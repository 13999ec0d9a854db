# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Command lines and environments that bring the preload library to every rank.

Tutti starts no ranks itself: it exports variables and runs the launcher that the MPI library has.
Hydra and srun pass their environment on; Open MPI's mpirun passes other names than OMPI_* only when
told (`-x`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tutti.errors import TuttiError
from tutti.mpi import LAUNCHER_NAMES, Mpi, launcher_kind

# Options of srun and Hydra with values that could be taken for a program, and how many.
_OF_SRUN = "--export -J --job-name -D --chdir -i --input -o --output -e --error -p --partition"
_OF_SRUN += " -w --nodelist -x --exclude -A --account"
_OF_HYDRA = "-wdir -f -hostfile -machinefile -host -hosts -configfile"
_VALUES = dict.fromkeys(f"{_OF_SRUN} {_OF_HYDRA}".split(), 1) | {"-genv": 2, "-env": 2}

# Read by this command only.
_OWN_VARIABLES = ("TUTTI_LIBRARY_DIR",)


def append_path(existing: str | None, path: str) -> str:
    """`path` at the end of a colon-separated list, once."""
    parts = [part for part in (existing or "").split(":") if part]
    return ":".join(parts if path in parts else [*parts, path])


def prepend_path(existing: str | None, path: str) -> str:
    """`path` at the front of a colon-separated list, once."""
    parts = [part for part in (existing or "").split(":") if part and part != path]
    return ":".join([path, *parts])


def check_preload(path: Path) -> None:
    """A TuttiError where the dynamic linker would read a path as two and load nothing."""
    if any(character in ": \t\n" for character in str(path)):
        raise TuttiError(
            f"{path}: LD_PRELOAD is split at blanks and colons, so Tutti would not be loaded; "
            "remedy: give it a path without them, by a symbolic link for example, in "
            "TUTTI_LIBRARY_DIR"
        )


def environment(
    base: Mapping[str, str],
    preload: Path | None,
    settings: Mapping[str, str],
    library_directory: Path | None = None,
) -> dict[str, str]:
    """The environment of the launcher, from which the ranks get theirs."""
    env = {name: value for name, value in base.items() if name not in _OWN_VARIABLES}
    env.update(settings)
    if preload is not None:
        check_preload(preload)
        # LD_PRELOAD is split at blanks as well as at colons.
        present = ":".join(env.get("LD_PRELOAD", "").split())
        env["LD_PRELOAD"] = append_path(present, str(preload))
    if library_directory is not None:
        env["LD_LIBRARY_PATH"] = prepend_path(env.get("LD_LIBRARY_PATH"), str(library_directory))
    return env


def export_options(kind: str, env: Mapping[str, str]) -> list[str]:
    """Launcher options that hand Tutti's variables to the ranks."""
    if kind != "openmpi":
        return []
    names = [name for name in ("LD_PRELOAD", "LD_LIBRARY_PATH") if name in env]
    names += sorted(name for name in env if name.startswith("TUTTI_"))
    return [word for name in names for word in ("-x", name)]


def ranks_command(
    mpi: Mpi, ranks: int, program: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """The command line that starts `program` on `ranks` ranks."""
    command = [str(mpi.launcher)]
    if mpi.launcher_kind == "openmpi":
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        if ranks > usable_cores():
            command.append("--oversubscribe")
    command += export_options(mpi.launcher_kind, env)
    return [*command, "-n", str(ranks), *program]


def user_command(words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """A user's own command line, with what its launcher needs to pass the variables on."""
    if Path(words[0]).name not in LAUNCHER_NAMES:
        return list(words)
    return [words[0], *export_options(launcher_kind(words[0]), env), *words[1:]]


def _launcher_words(words: Sequence[str]) -> list[str]:
    """Those between the launcher and the program; all when no word looks like a program."""
    own: list[str] = []
    values = 0
    for word in words[1:]:
        if values:
            values -= 1
        elif word.startswith("-"):
            values = _VALUES.get(word, 0)
        elif os.sep in word or shutil.which(word):
            break
        own.append(word)
    return own


def dropped_environment(words: Sequence[str]) -> str | None:
    """The launcher's own option that keeps the environment from the ranks, if there is one."""
    own = _launcher_words(words)
    if Path(words[0]).name != "srun":
        return next((word for word in own if word in ("-genvnone", "-envnone")), None)
    for index, word in enumerate(own):
        name, equals, value = word.partition("=")
        if name == "--export":
            items = value if equals else " ".join(own[index + 1 : index + 2])
            if "ALL" not in (item.strip().upper() for item in items.split(",")):
                return word
    return None


def usable_cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0))
