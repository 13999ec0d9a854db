# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Starts MPI jobs for the tests: finds the MPIs and the build, gives ranks their environment.

Every job has a time limit, so a hang is a failure, and every process of a job that ran out of time
is killed. The preload and the ranks' variables are set by a small shell script that mpirun starts
on each rank; the launcher itself keeps the caller's environment.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tutti_hpc.terms import COLLECTIVES

ROOT = Path(__file__).resolve().parents[2]
FLAVOURS = ("mpich", "openmpi", "abi")

# Set by conftest.py where a -m expression names the deep tests: no case is left to another MPI.
deep = False
present: tuple[str, ...] = ()  # Those of FLAVOURS that this machine has.

# Open MPI's launcher on a busy machine, before it has started any rank: not what is tested here.
LAUNCHER_FAULT = "PMIx server's listener thread failed to start"
LAUNCHES = 3

# Open MPI 5 names its segments by a hash of 16 bits: with thousands of jobs, two of those that run
# side by side now and then share one, and both crash in mca_btl_sm_poll_handle_frag().
OPENMPI_SEGMENTS = "OMPI_MCA_btl_sm_backing_directory"
SHARED_MEMORY = "/dev/shm"

# Ranks spin while they wait, so that with as many of them as cores, those of jobs beside them
# included, a message takes a time slice: these let one of MPICH sleep after 64 looks in vain, and
# jobs of 3 ranks on 2 cores take a tenth.
MPICH_SHARES_CORES = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "64",
}
OPENMPI_SHARES_CORES = {"OMPI_MCA_mpi_yield_when_idle": "1"}
# As users' ranks wait: for tests that run with it in any case.
OWN_PROGRESS = {"MPIR_CVAR_CH4_PROGRESS_THROTTLE": "0", "OMPI_MCA_mpi_yield_when_idle": "0"}


def build_directory() -> Path:
    """The CMake build under test."""
    return Path(os.environ.get("TUTTI_BUILD_DIR", ROOT / "build" / "dev")).resolve()


def preload_library() -> Path:
    """libtutti-mpi.so of the build."""
    return build_directory() / "lib" / "libtutti-mpi.so"


def host_device() -> Path:
    """libtutti-host-device.so: preloaded, programs get memory of it."""
    return build_directory() / "lib" / "libtutti-host-device.so"


def fakes(vendor: str) -> Path:
    """Directory with the fakes of "cuda" (and NCCL) or "hip" (and RCCL)."""
    return build_directory() / "tests" / "support" / "fakes" / vendor


@dataclasses.dataclass(frozen=True)
class Mpi:
    """An MPI library and its launcher."""

    flavour: str
    prefix: Path

    @property
    def libraries(self) -> Path:
        return self.prefix / "lib"

    def program(self, name: str) -> Path:
        return build_directory() / "tests" / "mpi" / self.flavour / name

    def launch(self, ranks: int, *, survivors: bool = False) -> list[str]:
        """`survivors`: the launcher lets the others live when one rank dies."""
        command = [str(self.prefix / "bin" / "mpirun")]
        if self.flavour == "openmpi":
            command += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        if survivors:
            is_prrte = self.flavour == "openmpi"
            command += ["--enable-recovery" if is_prrte else "-disable-auto-cleanup"]
        return [*command, "-n", str(ranks)]


def find_mpi(flavour: str) -> Mpi | str:
    """The MPI, or why it is not there."""
    name = "openmpi" if flavour == "openmpi" else "mpich"
    variable = f"TUTTI_{name.upper()}_ROOT"
    prefix = Path(os.environ.get(variable, ROOT / ".env" / name))
    if not (prefix / "bin" / "mpirun").exists():
        return (
            f"no {name}: {prefix}/bin/mpirun does not exist (run `make build`, or set {variable})"
        )
    return Mpi(flavour, prefix)


@dataclasses.dataclass(frozen=True)
class Finished:
    """A job that has ended. `status` is None when it ran out of time and was killed."""

    command: str
    status: int | None
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return (
            f"$ {self.command}\nstatus {self.status}\n--- stdout ---\n{self.stdout[-4000:]}\n"
            f"--- stderr ---\n{self.stderr[-8000:]}"
        )

    def verdict(self, program: str) -> tuple[int, int] | None:
        """(checks, failed) of the program's last line."""
        found = re.findall(rf"^{program}: (\d+) checks, (\d+) failed$", self.stdout, re.MULTILINE)
        return (int(found[-1][0]), int(found[-1][1])) if found else None

    def assert_passed(self, program: str) -> None:
        """Ended well, checked something, and found nothing wrong."""
        assert self.status == 0, str(self)
        verdict = self.verdict(program)
        assert verdict is not None, str(self)
        checks, failed = verdict
        assert checks > 0, str(self)
        assert failed == 0, str(self)

    def lines(self, pattern: str) -> list[str]:
        """Lines of stderr that match."""
        return [line for line in self.stderr.splitlines() if re.search(pattern, line)]


def execute(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Finished:
    """Runs a command in a session of its own and kills all of it when time is up."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    status: int | None
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        status = None
    return Finished(shlex.join(command), status, stdout, stderr)


def plain_environment() -> dict[str, str]:
    """The caller's environment without variables that change what is tested."""
    ours = ("TUTTI_", "FAKE_", "NCCL_", "LD_PRELOAD")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    # Open MPI's search for libfabric devices sleeps a second in each MPI_Init.
    return {"OMPI_MCA_btl": "^ofi"} | kept


def rank_script(
    directory: Path,
    environment: Mapping[str, str],
    of_rank: Mapping[int, Mapping[str, str]],
) -> Path:
    """A shell script that sets variables, some on one rank only, and becomes its arguments."""

    def exports(variables: Mapping[str, str]) -> str:
        return "".join(f"export {k}={shlex.quote(v)}; " for k, v in variables.items())

    cases = "".join(f"  {rank}) {exports(some)};;\n" for rank, some in of_rank.items())
    script = directory / "rank.sh"
    script.write_text(
        "#!/bin/sh\n"
        "rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-0}}}\n"
        f"{exports(environment)}\n"
        f'case "$rank" in\n{cases}  *) ;;\nesac\n'
        'exec "$@"\n'
    )
    script.chmod(0o755)
    return script


def job(
    mpi: Mpi,
    ranks: int,
    command: Sequence[str | Path],
    directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    of_rank: Mapping[int, Mapping[str, str]] | None = None,
    library_path: Sequence[Path] = (),
    preload: bool = True,
    timeout_s: float = 120,
    survivors: bool = False,
) -> Finished:
    """Runs `command` on `ranks` ranks.

    `environment` is set on every rank, `of_rank` on single ones; `library_path` goes before the
    MPI's own directory.
    """
    paths = [*library_path, mpi.libraries]
    variables = {"LD_LIBRARY_PATH": ":".join(map(str, paths))}
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if ranks * beside >= (os.cpu_count() or 1):
        variables |= OPENMPI_SHARES_CORES if mpi.flavour == "openmpi" else MPICH_SHARES_CORES
    variables.update(environment or {})
    if preload:
        variables["LD_PRELOAD"] = str(preload_library())
        if variables.get("TUTTI_DEVICE") == "host":
            variables["LD_PRELOAD"] += f" {host_device()}"
    script = rank_script(directory, variables, of_rank or {})
    outer = plain_environment()
    outer["LD_LIBRARY_PATH"] = str(mpi.libraries)
    line = [*mpi.launch(ranks, survivors=survivors), str(script), *map(str, command)]
    for _ in range(LAUNCHES):
        where = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(
            prefix="tutti-test-", dir=where, ignore_cleanup_errors=True
        ) as segments:
            result = execute(line, outer | {OPENMPI_SEGMENTS: segments}, timeout_s)
        if LAUNCHER_FAULT not in result.stderr:
            break
        print(f"harness: the launcher did not start: {LAUNCHER_FAULT}", file=sys.stderr)
    return result


def at_once(
    names: Iterable[str], directory: Path, run: Callable[[str, Path], Finished]
) -> dict[str, Finished]:
    """Jobs that mostly sleep, side by side, each in a directory of its own."""
    own = {name: directory / (re.sub("[:, ]+", "-", name) or "default") for name in names}
    for each in own.values():
        each.mkdir()
    with ThreadPoolExecutor() as threads:
        return dict(zip(own, threads.map(run, own, own.values()), strict=True))


def forced(plan: str) -> dict[str, str]:
    """The variables that give every collective one plan."""
    return {f"TUTTI_{name.upper()}": plan for name in COLLECTIVES}


def mpi4py_python(flavour: str) -> str:
    """A Python that has mpi4py and numpy: the wheel's, which serves the MPICH and Open MPI ABIs,
    or one that was built for libmpi_abi."""
    if flavour == "abi":
        built = ROOT / ".env" / "abi" / "bin" / "python"
        return os.environ.get("TUTTI_MPI4PY_ABI_PYTHON", str(built))
    return os.environ.get("TUTTI_MPI4PY_PYTHON", sys.executable)
