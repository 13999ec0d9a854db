#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs third-party MPI test suites natively and with Tutti and prints what differs.

    tools/suites.py --mpi mpich --state FILE [--plans default,direct-gamma] mpich=DIR omb=DIR

Each argument is SUITE=DIRECTORY. Nothing is built here: a directory has what the suite's own build
has left, for the MPI that --mpi names.

  mpich    test/mpi of MPICH: a directory for each part (coll, errors/coll, ...) with its testlist
           and the programs that it names. Fortran, which the PyPI wheels lack: unpack libmpich-dev
           or libopenmpi-dev (dpkg -x) and give --mpi a directory with bin/mpirun and lib/
  omb      osu_allreduce, ... of the OSU micro-benchmarks 7: run with -c and every type
  imb      IMB-MPI1 of the Intel MPI Benchmarks, compiled with CHECK
  mpi4py   test/ of mpi4py's source, of the version that --python has

A plan is "default" (no setting), a plan of docs/tuning.md for every collective (mpi-alpha@2: with
two virtual nodes), an algorithm of `tutti schedule list` for the collectives that have it, or
schedules:N: the N-th algorithm of each collective, which of the shorter lists begin again.
"schedules" is all of these. With +hostdevice behind it, what a program allocates is memory of the
emulated GPU (tests/support/device_malloc.c, in the build that TUTTI_BUILD_DIR names or build/dev).

One job runs at a time. It has a limit of time, twice the native one with Tutti, and each process
one of memory; what a job leaves behind is killed. A program that natively does not end in its time
is not compared. FILE (JSON lines) has a line for each run, so that a run that was stopped goes on
where it was; runs of another build of Tutti do not count. A program whose outcome with Tutti is
not the native one runs --repeats times more both ways. It "differs" if no outcome was seen both
ways, and is "unsteady" if some were. Exit status 1: something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import results_head  # noqa: E402
from tutti_hpc import api, files, mpi, paths, processes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402
from tutti_hpc.terms import COLLECTIVES  # noqa: E402

SCHEMA = "tutti-suites/1"
COUNTS = ("programs", "passed_natively", "same")
NATIVE = "native"
DEFAULT = "default"
ON_DEVICE = "+hostdevice"
MARK = "SUITES_RUN"  # Every process of a run has it in its environment, so that none is left.

Outcome = tuple[str, ...]  # "passed", "failed", "crashed" or "timed out", and what tells two apart.
PASSED: Outcome = ("passed",)
TIMED_OUT: Outcome = ("timed out",)

# Ranks that share cores sleep while they wait (tests/mpi/harness.py), natively and with Tutti.
SHARES_CORES = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "64",
}


@dataclass(frozen=True)
class Case:
    """One program of a suite with its arguments."""

    suite: str
    name: str
    ranks: int
    command: tuple[str, ...]
    judge: str = "mpich"  # A key of JUDGES.
    directory: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0  # Its own limit; 0: it has none.
    gib: float = 0  # Memory it says it needs; 0: it says nothing.


@dataclass(frozen=True)
class Ended:
    """A run that is over. `status` is None when it ran out of time."""

    status: int | None
    stdout: str
    stderr: str


# --- What the suites consist of


def mpich_cases(part: str, text: str, directory: str) -> list[Case]:
    """The cases of a testlist: `program ranks key=value...`, one to a line."""
    cases = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) < 2 or not words[1].isdigit():
            continue  # A subdirectory, or a comment.
        arguments, environment, settings = [], {}, {}
        for word in words[2:]:
            key, equals, value = word.partition("=")
            if key == "arg":
                arguments.append(value)
            elif key == "env":
                name, _, setting = value.partition("=")
                environment[name] = setting
            elif equals:
                settings[key] = value
        judge = settings.get("resultTest", "mpich")
        cases.append(
            Case(
                suite=f"mpich/{part}",
                name=" ".join([*words[:2], *arguments, *map("=".join, environment.items())]),
                ranks=int(words[1]),
                command=(f"./{words[0]}", *arguments),
                judge=judge if judge in JUDGES else "mpich",
                directory=directory,
                environment=environment,
                seconds=float(settings.get("timeLimit", 0)),
                gib=float(settings.get("mem", 0)),
            )
        )
    return unique(cases)


def unique(cases: Iterable[Case]) -> list[Case]:
    """The first case of each name."""
    return list({(case.suite, case.name): case for case in reversed(list(cases))}.values())[::-1]


def mpich(tree: Path) -> list[Case]:
    """All parts of MPICH's test/mpi that are there."""
    lists = sorted(tree.rglob("testlist"))
    found = []
    for path in lists:
        part = str(path.parent.relative_to(tree))
        found += mpich_cases(part, path.read_text(), str(path.parent))
    return [case for case in found if (Path(case.directory) / case.command[0]).is_file()]


def omb(tree: Path) -> list[Case]:
    """Each blocking collective with every type, on 2 and on 3 ranks."""
    flags = ("-c", "-T", "all", "-m", "1:65536", "-i", "4", "-x", "1")
    found = []
    for path in sorted(tree.glob("osu_*")):
        options = () if path.name == "osu_barrier" else flags
        for ranks in (2, 3):
            command = (str(path), *options)
            found.append(Case("omb", f"{path.name} {ranks}", ranks, command, "omb", str(tree)))
    return found


IMB_BENCHMARKS = (
    *("Bcast", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block"),
    *("Allgather", "Allgatherv", "Gather", "Gatherv", "Scatter", "Scatterv"),
    *("Alltoall", "Alltoallv", "Barrier"),
)


def imb(tree: Path) -> list[Case]:
    """Each collective of IMB-MPI1, its results checked."""
    flags = ("-iter", "8", "-msglog", "0:18", "-npmin", "3")
    return [
        Case("imb", f"{name} 3", 3, ("./IMB-MPI1", *flags, name), "imb", str(tree))
        for name in IMB_BENCHMARKS
    ]


def mpi4py(tree: Path, python: str) -> list[Case]:
    """Each module of mpi4py's tests, on 1 and on 3 ranks."""
    found = []
    for path in sorted(tree.glob("test_*.py")):
        for ranks in (1, 3):
            command = (python, "main.py", "-i", rf"^{path.stem}\.py$")
            name = f"{path.stem} {ranks}"
            found.append(Case("mpi4py", name, ranks, command, "unittest", str(tree)))
    return found


# --- What an outcome is


def crash_of(text: str) -> int:
    """The signal that a launcher says it has seen, or 0; killing the other ranks is none."""
    pattern = r"(?:EXIT STRING: \w[\w ]*\(signal |KILLED BY SIGNAL: |exited on signal )(\d+)"
    numbers = {int(number) for number in re.findall(pattern, text)}
    fatal = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
    return next((int(number) for number in fatal if int(number) in numbers), 0)


def plain(lines: Iterable[str]) -> list[str]:
    """What lines say, without numbers, padding and the launcher's box, at most 20 in one order."""
    said = (
        line.strip() for line in lines if not re.match(r"=|YOUR APPLICATION|This typically", line)
    )
    number = r"0x[0-9a-f]+|-?\d+(?:\.\d*)?(?:E[+-]?\d+)?"
    found = {re.sub(r"\s+", " ", re.sub(number, "#", line)) for line in said}
    return sorted(found - {""})[:20]


def judge_mpich(ended: Ended) -> Outcome:
    """MPICH's own rule: "No Errors" and nothing else on stdout, and status 0."""
    said = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    good = [line for line in said if re.fullmatch(r"No [Ee]rrors|Test [Pp]assed", line)]
    if ended.status == 0 and good and len(good) == len(said):
        return PASSED
    return ("failed", *plain(said))


def judge_status(ended: Ended) -> Outcome:
    """A program that ends with an error on purpose."""
    return PASSED if ended.status != 0 else ("failed", "status 0")


def judge_omb(ended: Ended) -> Outcome:
    """Each type's rows must be there and right; a barrier has one row, without a verdict."""
    types = re.split(r"^# Datatype: ", ended.stdout, flags=re.MULTILINE)
    wrong = [part.split()[0] for part in types[1:] if re.search(r"\bFail\b", part)]
    right = len(re.findall(r"^\d.*\bPass$", ended.stdout, re.MULTILINE))
    barrier = "Barrier" in ended.stdout and re.search(r"^ +[\d.]+$", ended.stdout, re.MULTILINE)
    if ended.status == 0 and not wrong and (right or barrier):
        return ("passed", f"{right} rows of {len(types) - 1} types")
    return ("failed", *wrong)


def judge_imb(ended: Ended) -> Outcome:
    """No row with defects, which are the last of six columns; a barrier's row has four."""
    rows = re.findall(r"^ +\d+(?: +[\d.]+){3,5} *$", ended.stdout, re.MULTILINE)
    defects = [row.split() for row in rows if len(row.split()) == 6]
    wrong = [f"{row[0]} bytes" for row in defects if float(row[5]) != 0]
    if ended.status == 0 and rows and not wrong:
        return ("passed", f"{len(rows)} rows")
    return ("failed", *wrong)


def judge_unittest(ended: Ended) -> Outcome:
    """The tests that failed, and how many ran."""
    text = ended.stdout + ended.stderr
    bad = set(re.findall(r"^(?:.*\] )?((?:FAIL|ERROR): .*?)\s*$", text, re.MULTILINE))
    ran = set(re.findall(r"\bRan (\d+) tests?\b", text))
    if ended.status == 0 and not bad and ran - {"0"}:
        return ("passed", *(f"{number} tests" for number in sorted(ran)))
    return ("failed", *sorted(bad)[:40])


JUDGES = {
    "mpich": judge_mpich,
    "TestStatus": judge_status,
    "TestErrFatal": judge_status,
    "omb": judge_omb,
    "imb": judge_imb,
    "unittest": judge_unittest,
}


def outcome(case: Case, ended: Ended) -> Outcome:
    """What a run came to."""
    if ended.status is None:
        return TIMED_OUT
    found = JUDGES[case.judge](ended)
    number = crash_of(ended.stdout + ended.stderr)
    if found[0] != "passed" and number:
        return ("crashed", f"signal {number}")
    return found


# --- What differs


def verdict(native: Sequence[Outcome], ours: Sequence[Outcome]) -> str:
    """Whether they are the "same", it "differs" (none was seen both ways) or is "unsteady"."""
    if set(ours) <= set(native):
        return "same"
    return "unsteady" if set(ours) & set(native) else "differs"


def settled(native: Sequence[Outcome], ours: Sequence[Outcome], repeats: int) -> bool:
    """Whether no further run is needed: the first is a native one, too, or enough were repeated."""
    if not native or not ours:
        return False
    least = 1 + repeats
    return ours[0] in native or (len(native) >= least and len(ours) >= least)


def row_of(
    suite: str,
    plan: str,
    cases: Sequence[Case],
    runs: Mapping[tuple[str, str, str], list[Outcome]],
    repeats: int,
) -> dict[str, Any] | None:
    """A suite under a plan; None where nothing has run. What is not settled is not in it yet."""
    row: dict[str, Any] = {"suite": suite, "plan": plan, "programs": 0, "same": 0}
    row |= {"passed_natively": 0, "differs": [], "unsteady": [], "timed_out_natively": []}
    for case in cases:
        if case.suite != suite:
            continue
        native = runs.get((suite, case.name, NATIVE), [])
        ours = runs.get((suite, case.name, plan), [])
        if native and native[0] == TIMED_OUT:
            row["timed_out_natively"].append(case.name)
            continue
        if not settled(native, ours, repeats):
            continue
        row["programs"] += 1
        row["passed_natively"] += native[0][0] == "passed"
        found = verdict(native, ours)
        if found == "same":
            row["same"] += 1
        else:
            one = {"program": case.name, "native": most(native), "tutti": most(ours)}
            one |= {"runs": [len(native), len(ours)]}
            row[found].append(one)
    return row if row["programs"] else None


def most(outcomes: Sequence[Outcome]) -> str:
    """The outcomes there were, each with how often, in words."""
    counts = {one: outcomes.count(one) for one in dict.fromkeys(outcomes)}
    texts = []
    for one, count in counts.items():
        detail = f" ({'; '.join(one[1:])[:300]})" if len(one) > 1 else ""
        texts.append(f"{count} x {one[0]}{detail}")
    return ", ".join(texts)


def merged(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a suite's parts, and of all schedules, as one; of each outcome its programs."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    numbers: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        suite, _, part = row["suite"].partition("/")
        library = f" ({row['library']})" if "library" in row else ""
        plan = re.sub(r"^schedules:\d+", "schedules", row["plan"])
        key = (row["mpi"] + library, suite, plan)
        numbers.setdefault(key, set()).add(row["plan"])
        one = found.setdefault(key, dict(zip(("mpi", "suite"), key)))
        several = f" (sum of {len(numbers[key])})" if len(numbers[key]) > 1 else ""
        one["plan"] = plan + several if several else row["plan"]
        for name in COUNTS:
            one[name] = one.get(name, 0) + row[name]
        for name in ("differs", "unsteady"):
            place = f"{key[0]} {suite} {part}".strip()
            named = [{**d, "place": f"{place} {d['program']}, {row['plan']}"} for d in row[name]]
            one[name] = one.get(name, []) + named
        one["too slow"] = one.get("too slow", 0) + len(row["timed_out_natively"])
    return list(found.values())


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table, a row for each suite, and each difference by name."""
    lines = [
        "| MPI | suite | plan | programs | pass natively | same | differ | unsteady | too slow |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    suites = merged(rows)
    for row in suites:
        numbers = [row[name] for name in COUNTS]
        numbers += [len(row["differs"]), len(row["unsteady"]), row["too slow"]]
        lines.append("| " + " | ".join([row["mpi"], row["suite"], row["plan"], *map(str, numbers)]))
        lines[-1] += " |"
    for kind in ("differs", "unsteady"):
        for row in suites:
            for one in row[kind]:
                text = f"natively {one['native']}; Tutti {one['tutti']}"
                lines.append(f"\n{kind}: {one['place']}: {text}")
    return "\n".join(lines)


# --- Plans


def plans_of(text: str, algorithms: Mapping[str, Sequence[str]]) -> list[str]:
    """The plans of a list; `schedules` stands for as many as the longest list of algorithms has."""
    longest = max(map(len, algorithms.values()), default=0)
    found = []
    for plan in text.split(","):
        name, plus, memory = plan.partition("+")
        if f"{plus}{memory}" not in ("", ON_DEVICE):
            raise TuttiError(f"--plans {plan}: memory is {ON_DEVICE} or none")
        every = [f"schedules:{number}" for number in range(longest)]
        found += [one + plus + memory for one in (every if name == "schedules" else [name])]
    return found


def setting(plan: str, algorithms: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The variables of a plan."""
    plan, _, memory = plan.partition("+")
    if memory:
        return {"TUTTI_DEVICE": "host"} | setting(plan, algorithms)
    if plan in (NATIVE, DEFAULT):
        return {}
    name, _, nodes = plan.partition("@")
    variables = {"TUTTI_VIRTUAL_NODES": nodes} if nodes else {}
    kind, _, number = name.partition(":")
    if kind == "schedules":
        chosen = {c: names[int(number) % len(names)] for c, names in algorithms.items()}
    else:
        short = number if kind == "schedule" else name
        chosen = {c: short for c, names in algorithms.items() if short in names}
    plans = {collective: f"schedule:{one}" for collective, one in chosen.items()}
    if not plans:
        plans = dict.fromkeys(COLLECTIVES, name)
    return variables | {f"TUTTI_{c.upper()}": one for c, one in plans.items()}


def device_malloc() -> Path:
    """What makes memory of the emulated GPU of a program's own."""
    build = Path(os.environ.get("TUTTI_BUILD_DIR", ROOT / "build" / "dev"))
    path = build.resolve() / "tests" / "mpi" / "none" / "device_malloc.so"
    if not path.is_file():
        raise TuttiError(f"{path} is not built; remedy: cmake --build {build}")
    return path


def known_algorithms() -> dict[str, list[str]]:
    """Names of our algorithms by collective."""
    found: dict[str, list[str]] = {}
    for one in api.library().algorithms():
        if not one["simulated_only"]:
            found.setdefault(one["collective"], []).append(one["name"])
    return found


# --- Running


def kill_marked(mark: str) -> None:
    """Kills every process that has the mark in its environment."""
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            number = int(path.name)
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                os.kill(number, signal.SIGKILL)


def command_of(
    found: mpi.Mpi, case: Case, variables: Mapping[str, str], gib: float
) -> tuple[str, ...]:
    """The launcher's line: each rank limits its memory and takes its variables."""
    words = [str(found.launcher)]
    if found.abi == "openmpi":
        words += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    limit = f'ulimit -c 0; ulimit -v {int(gib * (1 << 20))}; exec "$@"'
    words += ["-n", str(case.ranks), "/bin/sh", "-c", limit, "rank"]
    words += ["env", *(f"{name}={value}" for name, value in variables.items()), *case.command]
    return tuple(words)


def execute(
    words: Sequence[str], directory: str, environment: Mapping[str, str], seconds: float
) -> Ended:
    """One run in a session of its own; nothing of it is left afterwards."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            words,
            cwd=directory,
            env=dict(environment) | {MARK: mark},
            stdout=stdout,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            kill_marked(mark)
            process.wait()
        texts = []
        for stream in (stdout, stderr):
            stream.seek(0)
            texts.append(stream.read(4 << 20).decode(errors="replace"))
    return Ended(status, *texts)


class State:
    """The runs so far, one to a line of a file."""

    def __init__(self, path: Path, mpi_name: str, build: str, limits: str) -> None:
        self.path = path
        self.of = {"mpi": mpi_name, "build": build, "limits": limits}
        self.runs: dict[tuple[str, str, str], list[Outcome]] = {}
        text = path.read_text() if path.exists() else ""
        if text and not text.endswith("\n"):
            with path.open("a") as stream:
                stream.write("\n")  # Behind a line that was cut off.
        for line in text.splitlines():
            try:
                self.take(json.loads(line))
            except ValueError:
                print(f"{path}: a line that was cut off is left out", file=sys.stderr)

    def take(self, record: Mapping[str, Any]) -> None:
        """Counts a run, if it is of this MPI, under these limits and, with Tutti, of this build."""
        alike = ["mpi", "limits"] if record["plan"] == NATIVE else list(self.of)
        if all(record.get(name) == self.of[name] for name in alike):
            key = (record["suite"], record["case"], record["plan"])
            self.runs.setdefault(key, []).append(tuple(record["outcome"]))

    def add(self, case: Case, plan: str, found: Outcome, seconds: float) -> None:
        """Counts a run and writes it down."""
        record: dict[str, Any] = {**self.of, "suite": case.suite, "case": case.name, "plan": plan}
        record |= {"outcome": list(found), "seconds": round(seconds, 2)}
        with self.path.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
        self.take(record)

    def of_case(self, case: Case, plan: str) -> list[Outcome]:
        """The outcomes of a case under a plan."""
        return self.runs.get((case.suite, case.name, plan), [])


class Runner:
    """Runs cases of one MPI."""

    def __init__(self, args: argparse.Namespace, found: mpi.Mpi, state: State) -> None:
        self.args = args
        self.mpi = found
        self.state = state
        self.algorithms = known_algorithms()
        self.preload_library = str(paths.require("libtutti-mpi.so"))

    def variables(self, case: Case, plan: str) -> dict[str, str]:
        """The variables of each rank."""
        chosen = dict(SHARES_CORES) if self.mpi.abi != "openmpi" else {}
        chosen |= case.environment
        directory = self.mpi.library_directory
        if directory:
            chosen["LD_LIBRARY_PATH"] = str(directory)
        if plan != NATIVE:
            chosen |= {"LD_PRELOAD": self.preload_library, "TUTTI_LOG_LEVEL": "error"}
            chosen |= setting(plan, self.algorithms)
            if plan.endswith(ON_DEVICE):
                chosen["LD_PRELOAD"] += f" {paths.require(paths.HOST_DEVICE)} {device_malloc()}"
            chosen |= dict(one.split("=", 1) for one in self.args.set)
        return chosen

    def run(self, case: Case, plan: str) -> None:
        """One run, written down."""
        ours = ("TUTTI_", "LD_PRELOAD", "PYTHONPATH")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        if self.mpi.library_directory:
            environment["LD_LIBRARY_PATH"] = str(self.mpi.library_directory)
        words = command_of(self.mpi, case, self.variables(case, plan), self.args.gib)
        start = time.monotonic()
        seconds = max(self.args.timeout, min(case.seconds, 2 * self.args.timeout))
        seconds *= 1 if plan == NATIVE else 2  # A busy machine is no difference.
        ended = execute(words, case.directory, environment, seconds)
        found = outcome(case, ended)
        self.state.add(case, plan, found, time.monotonic() - start)
        if self.args.verbose:
            print(f"{case.suite} {case.name}, {plan}: {': '.join(found)[:200]}", flush=True)
            if found[0] != "passed":
                print(f"$ {shlex.join(words)}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")

    def compare(self, case: Case, plan: str) -> None:
        """Runs a case natively and under a plan until it is known whether they differ."""
        for repeat in range(1 + self.args.repeats):
            for one in (NATIVE, plan):
                if len(self.state.of_case(case, one)) <= repeat:
                    self.run(case, one)
                if self.state.of_case(case, NATIVE)[0] == TIMED_OUT:
                    return  # Nothing to compare with.
            native, ours = self.state.of_case(case, NATIVE), self.state.of_case(case, plan)
            if settled(native, ours, self.args.repeats):
                break
        found = verdict(native, ours)
        if found != "same":
            text = f"natively {most(native)}; Tutti {most(ours)}"
            print(f"{found}: {case.suite} {case.name}, {plan}: {text}", flush=True)


def why_not(case: Case, args: argparse.Namespace) -> str:
    """Why a case is left out; empty where it is not."""
    if case.ranks > args.ranks:
        return f"{case.ranks} ranks are more than --ranks {args.ranks}"
    if case.gib > args.gib:
        return f"it needs {case.gib:g} GiB, more than --gib {args.gib:g}"
    return ""


def build_of() -> str:
    """Which build of Tutti this is."""
    digest = hashlib.sha256()
    for name in ("libtutti.so", "libtutti-mpi.so"):
        digest.update(Path(paths.require(name)).read_bytes())
    return digest.hexdigest()[:12]


def cases_of(args: argparse.Namespace) -> list[Case]:
    """All cases of the command line's suites that --only names."""
    readers = {
        "mpich": mpich,
        "omb": omb,
        "imb": imb,
        "mpi4py": lambda tree: mpi4py(tree, args.python),
    }
    found: list[Case] = []
    for word in args.suites:
        name, _, directory = word.partition("=")
        if name not in readers or not directory:
            raise TuttiError(f"{word}: SUITE=DIRECTORY, with SUITE one of {', '.join(readers)}")
        cases = readers[name](Path(directory).resolve())
        if not cases:
            raise TuttiError(f"{directory}: no program of {name} there; see the head of this file")
        found += cases
    pattern = re.compile(args.only)
    return [case for case in found if pattern.search(f"{case.suite} {case.name}")]


def document_of(
    found: mpi.Mpi, cases: list[Case], plans: list[str], state: State, repeats: int
) -> dict[str, Any]:
    """The results document."""
    suites = dict.fromkeys(case.suite for case in cases)
    library = mpi.short_version(mpi.facts(found).version)
    rows = []
    for plan in plans:
        for suite in suites:
            row = row_of(suite, plan, cases, state.runs, repeats)
            if row:
                rows.append({"mpi": found.abi, "library": library} | row)
    document: dict[str, Any] = results_head.head(SCHEMA) | {"rows": rows}
    # Where they lie is nobody's.
    document["command"] = re.sub(r"([= ])/\S*/", r"\1", document["command"])
    return document


def joined(rows: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and the earlier ones of another MPI library, suite or plan."""

    def key(row: Mapping[str, Any]) -> tuple[str, ...]:
        return (row["mpi"], row.get("library", ""), row["suite"], row["plan"])

    known = {key(row) for row in rows}
    return [row for row in earlier if key(row) not in known] + rows


def text_of(document: Mapping[str, Any]) -> str:
    """JSON, one row to a line."""
    head = json.dumps({**document, "rows": []}, indent=2)
    rows = ",\n".join("    " + json.dumps(row) for row in document["rows"])
    return head.replace('"rows": []', f'"rows": [\n{rows}\n  ]') + "\n"


class Table(argparse.Action):
    """--table FILE: prints the table of a results file and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *words: Any) -> None:
        """`words`: the namespace, the file and the option."""
        print(table(results_head.load(Path(words[1]), SCHEMA)["rows"]))
        parser.exit()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("suites", nargs="+", metavar="SUITE=DIRECTORY")
    parser.add_argument("--mpi", required=True, help="mpich, openmpi, abi, or a prefix")
    parser.add_argument("--state", type=Path, required=True, help="runs so far (JSON lines)")
    parser.add_argument("--plans", default=DEFAULT, help="default, or any others")
    parser.add_argument("--only", default="", help="regular expression on `suite program`")
    parser.add_argument("--python", default=sys.executable, help="a Python that has mpi4py")
    parser.add_argument("--repeats", type=int, default=3, help="further runs of a difference")
    parser.add_argument("--ranks", type=int, default=10, help="largest job")
    parser.add_argument("--gib", type=float, default=4, help="address space of a process")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a run")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--report", action="store_true", help="run nothing: what the state has")
    parser.add_argument("-o", "--output", type=Path, help="results file (JSON), or one to add to")
    parser.add_argument("--table", action=Table, metavar="FILE", help="of -o: print it and end")
    parser.add_argument("-v", "--verbose", action="store_true", help="say every run")
    return parser.parse_args()


def main() -> int:
    """Runs what is not in the state yet and prints the table; see the head of the file."""
    args = arguments()
    found = mpi.find(args.mpi)
    limits = f"{found.library}, {args.gib:g} GiB, {args.timeout:g} s, {' '.join(args.set)}"
    state = State(args.state, found.abi, build_of(), limits)
    runner = Runner(args, found, state)
    plans = plans_of(args.plans, runner.algorithms)
    cases = cases_of(args)
    start = time.monotonic()
    for case in [] if args.report else cases:
        reason = why_not(case, args)
        if reason:
            print(f"left out: {case.suite} {case.name}: {reason}", flush=True)
            continue
        for plan in plans:
            runner.compare(case, plan)
    document = document_of(found, cases, plans, state, args.repeats)
    print(table(document["rows"]))
    print(f"[{time.monotonic() - start:.0f} s]", file=sys.stderr)
    if args.output:
        earlier = results_head.load(args.output, SCHEMA)["rows"] if args.output.exists() else []
        files.write(args.output, text_of(document | {"rows": joined(document["rows"], earlier)}))
    return 1 if any(row["differs"] for row in document["rows"]) else 0


if __name__ == "__main__":
    try:
        with processes.signals_as_exits():
            sys.exit(main())
    except TuttiError as error:
        print(f"suites: {error}", file=sys.stderr)
        sys.exit(1)
