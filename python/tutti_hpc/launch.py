# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Command lines and environments that bring the preload library to every rank.

Tutti starts no ranks itself: it exports variables and runs the launcher that the MPI library has.
Hydra and srun pass their environment on; Open MPI's mpirun passes other names than OMPI_* only when
told (`-x`). A command line that sets LD_PRELOAD itself, for a profiler, gets Tutti behind it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tutti_hpc.errors import TuttiError
from tutti_hpc.mpi import LAUNCHER_NAMES, Mpi, launcher_kind

# Options of srun and Hydra with values that could be taken for a program, and how many.
_OF_SRUN = "--export -J --job-name -D --chdir -i --input -o --output -e --error -p --partition"
_OF_SRUN += " -w --nodelist -x --exclude -A --account"
_OF_HYDRA = "-wdir -f -hostfile -machinefile -host -hosts -configfile"
_VALUES = dict.fromkeys(f"{_OF_SRUN} {_OF_HYDRA}".split(), 1) | {"-genv": 2, "-env": 2}

# Read by this command only.
_OWN_VARIABLES = ("TUTTI_LIBRARY_DIR",)

# Commands that start the one that follows them, with options between.
_OF_DEBUGGING = "catchsegv gdb ltrace ncu nsys perf strace valgrind"
_OF_RUNNING = "chrt env ionice nice nohup numactl setsid stdbuf taskset time timeout"
_WRAPPERS = f"{_OF_DEBUGGING} {_OF_RUNNING}".split()

# Options of launchers before `NAME=VALUE`, or before `NAME VALUE`.
_SETS = ("-x", "-env", "--env", "-genv", "--genv")


def preload_list(existing: str | None, preload: Path) -> str:
    """An LD_PRELOAD with `preload` at its end, once.

    A profiler before Tutti calls Tutti's PMPI functions, whichever way it finds them.
    """
    # The linker splits it at blanks as well as at colons.
    parts = (existing or "").replace(":", " ").split()
    return ":".join([*(part for part in parts if Path(part).name != preload.name), str(preload)])


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
        env["LD_PRELOAD"] = preload_list(env.get("LD_PRELOAD"), preload)
        if "SLURM_EXPORT_ENV" in env:
            env["SLURM_EXPORT_ENV"] = _srun_export(env["SLURM_EXPORT_ENV"], env, preload)
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


def launcher_index(words: Sequence[str]) -> int | None:
    """Where the launcher stands: first, or behind `env`, `nsys` and the like."""
    for index, word in enumerate(words):
        if Path(word).name in LAUNCHER_NAMES:
            return index
        if Path(words[0]).name not in _WRAPPERS:
            return None
    return None


def user_command(words: Sequence[str], env: Mapping[str, str], preload: Path) -> list[str]:
    """A user's own command line, with what its launcher needs to pass the variables on.

    Where it sets LD_PRELOAD, Tutti is put behind what it names.
    """
    index = launcher_index(words)
    final = _with_preload(words, env, preload)
    if index is None:
        return final
    options = export_options(launcher_kind(words[index]), env)
    if not options:
        return final
    # Each of the programs that `:` separates has its own.
    sections: list[list[str]] = [[]]
    for word in final[index + 1 :]:
        if word == ":":
            sections.append([])
        else:
            sections[-1].append(word)
    command = final[: index + 1]
    for number, section in enumerate(sections):
        own = {name.partition("=")[0] for flag, name in zip(section, section[1:]) if flag == "-x"}
        missing = [name for name in options[1::2] if name not in own]
        command += [":"] if number else []
        command += [word for name in missing for word in ("-x", name)]
        command += section
    return command


def _srun_export(value: str, env: Mapping[str, str], preload: Path) -> str:
    """A list of srun's --export that lets LD_PRELOAD and TUTTI_* through; NONE stays."""
    items = [item.strip() for item in value.split(",") if item.strip()]
    if any(item.upper() in ("NONE", "NIL") for item in items):
        return value
    for index, item in enumerate(items):
        name, equals, old = item.partition("=")
        if name == "LD_PRELOAD" and equals:
            items[index] = f"{name}={preload_list(old, preload)}"
    if not any(item.upper() == "ALL" for item in items):
        present = {item.partition("=")[0] for item in items}
        names = ["LD_PRELOAD", *sorted(name for name in env if name.startswith("TUTTI_"))]
        items += [name for name in names if name not in present]
    return ",".join(items)


def _with_preload(words: Sequence[str], env: Mapping[str, str], preload: Path) -> list[str]:
    """The words, with `preload` in every LD_PRELOAD that they set for a program."""
    index = launcher_index(words)
    is_srun = index is not None and Path(words[index]).name == "srun"
    final: list[str] = []
    before = ["", ""]  # The two words before this one.
    for word in words:
        setting = re.fullmatch(r"(--?[\w-]+=)?LD_PRELOAD=(\S*)", word)
        if is_srun and word.startswith("--export="):
            word = "--export=" + _srun_export(word[len("--export=") :], env, preload)
        elif is_srun and before[1] == "--export":
            word = _srun_export(word, env, preload)
        elif setting:
            prefix = setting[1] or ""
            word = f"{prefix}LD_PRELOAD={preload_list(setting[2], preload)}"
        elif before[0] in _SETS and before[1] == "LD_PRELOAD" and before[0] != "-x":
            word = preload_list(word, preload)
        elif before[1] in ("-genvlist", "-envlist"):
            names = ["LD_PRELOAD", *sorted(name for name in env if name.startswith("TUTTI_"))]
            present = word.split(",")
            word = ",".join([*present, *(name for name in names if name not in present)])
        final.append(word)
        before = [before[1], word]
    return final


def lost_preload(words: Sequence[str], preload: Path) -> str | None:
    """The word of a final command line that keeps Tutti out of LD_PRELOAD, if there is one."""
    for index, word in enumerate(words):
        values = re.findall(r"\bLD_PRELOAD=(.*)", word, re.DOTALL)
        if any(preload.name not in value for value in values):
            return word
        if Path(word).name != "env":
            continue
        for option, value in zip(words[index + 1 :], [*words[index + 2 :], ""]):
            if option in ("-i", "-", "--ignore-environment"):
                kept = any(later.startswith("LD_PRELOAD=") for later in words[index:])
                if not kept:
                    return f"{word} {option}"
            elif option == "--unset=LD_PRELOAD" or (option, value) == ("-u", "LD_PRELOAD"):
                return f"{word} {option}"
            elif not option.startswith("-") and "=" not in option:
                break
    return None


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


def dropped_environment(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The launcher's option or variable that keeps the environment from the ranks, if any."""
    index = launcher_index(words)
    if index is None:
        return None
    words = words[index:]
    own = _launcher_words(words)
    if Path(words[0]).name != "srun":
        return next((word for word in own if word in ("-genvnone", "-envnone")), None)
    for index, word in enumerate(own):
        name, equals, value = word.partition("=")
        if name == "--export":
            items = value if equals else " ".join(own[index + 1 : index + 2])
            names = [item.partition("=")[0].strip() for item in items.split(",")]
            if "LD_PRELOAD" not in names and "ALL" not in (name.upper() for name in names):
                return word
            return None
    variable = env.get("SLURM_EXPORT_ENV", "ALL")  # sbatch --export sets it.
    return f"SLURM_EXPORT_ENV={variable}" if variable.upper() in ("NONE", "NIL") else None


def usable_cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0))
