#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Does any program see a difference? Random programs of valid and invalid calls, with and without.

    tools/random_runs.py [--mpi mpich,openmpi] [--plan all] [--ranks 2,3] [--first 0]
                         [--count 1000] [-o FILE]
    tools/random_runs.py --mpi mpich --plan direct --ranks 3 --only 4711

Each program of tests/mpi/random_programs.c runs without the preload and then with it under each
plan. What each call returned and left in the buffers is compared (`differences`). Prints each
difference with the command that repeats it, writes a summary to FILE (JSON), and exits with 1 if
there was one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for part in ("python", "bench", "tests/mpi"):
    sys.path.insert(0, str(ROOT / part))

import results_head  # noqa: E402
from tutti_hpc.terms import COLLECTIVES  # noqa: E402

import harness  # noqa: E402

SCHEMA = "tutti-random-runs/1"
BATCH = 5000  # Programs of one job. Each leaves some communicators behind, and an MPI has 2046.
DIRECT = {f"TUTTI_{name.upper()}": "direct-gamma" for name in COLLECTIVES if "scan" not in name}
RINGS = {
    "TUTTI_ALLREDUCE": "rings",
    "TUTTI_ALLGATHER": "rings",
    "TUTTI_ALLGATHERV": "rings",
    "TUTTI_REDUCE_SCATTER": "rings",
    "TUTTI_REDUCE_SCATTER_BLOCK": "rings",
    "TUTTI_ALLTOALL": "schedule:linear",
    "TUTTI_ALLTOALLV": "schedule:linear",
    "TUTTI_BCAST": "schedule:knomial",
    "TUTTI_REDUCE": "schedule:binomial",
    "TUTTI_GATHER": "schedule:binomial",
    "TUTTI_SCATTER": "schedule:binomial",
    "TUTTI_BARRIER": "schedule:dissemination",
}
DOUBLING = {
    "TUTTI_ALLREDUCE": "schedule:recursive-doubling",
    "TUTTI_ALLGATHER": "schedule:bruck",
    "TUTTI_ALLGATHERV": "schedule:neighbor-exchange",
    "TUTTI_REDUCE_SCATTER": "schedule:recursive-halving",
    "TUTTI_REDUCE_SCATTER_BLOCK": "schedule:pairwise",
    "TUTTI_ALLTOALL": "schedule:bruck",
    "TUTTI_ALLTOALLV": "schedule:pairwise",
    "TUTTI_BCAST": "schedule:scatter-allgather",
}
ALPHA = harness.forced("mpi-alpha") | {"TUTTI_VIRTUAL_NODES": "2"}
# Name: memory and variables.
PLANS: dict[str, tuple[str, dict[str, str]]] = {
    "default": ("host", {}),
    "direct": ("host", DIRECT),
    "rings": ("host", RINGS),
    "doubling": ("host", DOUBLING),
    "alpha": ("host", ALPHA),
    "device": ("hostdevice", {}),
    "device-direct": ("hostdevice", DIRECT),
    "device-staged": ("hostdevice", harness.forced("mpi-staged")),
    "device-rings": ("hostdevice", RINGS),
    # On GPUs, one for each rank: not of "all".
    "cuda": ("cuda", {}),
    "cuda-direct": ("cuda", DIRECT),
}
# Plans with communicators of ours. More than eight of the application's share them, so that a call
# that fails on one breaks the others (docs/architecture.md, Limits): calls that are wrong on one
# rank are the last of a job of their own there, `LONE` of each batch.
SHARING = tuple(name for name in PLANS if name not in ("default", "direct"))
LONE = 25
COMMON = {"TUTTI_TIMEOUT": "5", "TUTTI_LOG_LEVEL": "error"}
WORD = re.compile(r"([VAOU])(\d+)h(\d+)\.([0-9a-f]{8})$")


@dataclasses.dataclass(frozen=True)
class Difference:
    """A call of a program whose outcome is none that is allowed."""

    program: int
    call: int  # -1: the program did not end.
    what: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a call on a rank."""

    kind: str
    error: int  # Class; 0: success.
    handled: int
    hash: str

    @staticmethod
    def of(word: str) -> Outcome | None:
        """None: the rank is not in the call's communicator."""
        if word == "-":
            return None
        found = WORD.match(word)
        if found is None:
            raise ValueError(f"not an outcome: {word!r}")
        return Outcome(found[1], int(found[2]), int(found[3]), found[4])


def is_alike(native: Outcome, ours: Outcome) -> bool:
    """Of a valid call, or one that is wrong on all ranks."""
    is_raised_elsewhere = native.error != 0 and native.handled == 0 and ours.handled == 1
    return native == (dataclasses.replace(ours, handled=0) if is_raised_elsewhere else ours)


def judge(native: Sequence[Outcome | None], ours: Sequence[Outcome | None]) -> str:
    """What is wrong with a call's outcomes, one for each rank; empty: nothing.

    V, A: the same on each rank, to the error class, the calls of the error handler and the bytes.
    What the MPI raises on no communicator (Open MPI: aliased buffers) may be raised on the call's.
    O, U: where the MPI itself is wrong on no rank, an error of ours is right as well. Where it
    reports an error, so do we, on one rank at least. The rank whose arguments are wrong (O) gets
    the MPI's own class. A rank that succeeds both times has the same bytes.
    """
    pairs = [(a, b) for a, b in zip(native, ours, strict=True) if a is not None or b is not None]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(both) != len(pairs) or any(a.kind != b.kind for a, b in both):
        return "another program"
    if not both:
        return ""
    kind = both[0][0].kind
    if kind in "VA":
        return "" if all(is_alike(a, b) for a, b in both) else "other outcomes"
    if any(a.error for a, _ in both) and not any(b.error for _, b in both):
        return "no error on any rank"
    if kind == "O" and any(a.error and a.error != b.error for a, b in both):
        return "another error class"
    if any(not a.error and not b.error and a.hash != b.hash for a, b in both):
        return "other bytes"
    return ""


def differences(native: Sequence[str], ours: Sequence[str]) -> list[Difference]:
    """Of one program, a line of each rank."""
    if list(native) == list(ours):
        return []
    program = int(native[0].split()[0])
    a = [line.split()[1:] for line in native]
    b = [line.split()[1:] for line in ours]
    if len({len(words) for words in a + b}) != 1:
        return [Difference(program, -1, "another number of calls")]
    found = []
    for call in range(len(a[0])):
        natively = [words[call] for words in a]
        here = [words[call] for words in b]
        what = judge([Outcome.of(w) for w in natively], [Outcome.of(w) for w in here])
        if what:
            said = f"{what}: natively {' '.join(natively)}, here {' '.join(here)}"
            found.append(Difference(program, call, said))
    return found


@dataclasses.dataclass(frozen=True)
class Run:
    """The programs of one job: a line of each rank for each program that ended on all of them."""

    lines: dict[int, list[str]]
    failure: str  # Empty: all ended.


def run(
    mpi: harness.Mpi,
    ranks: int,
    plan: str | None,
    first: int,
    count: int,
    *options: str,
    timeout_s: float = 600,
) -> Run:
    """One job. Plan None: without the preload."""
    memory, variables = PLANS[plan] if plan else ("host", {})
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        command = [mpi.program("random_programs"), "--out", directory, "--memory", memory]
        command += ["--first", str(first), "--count", str(count), *options]
        device = {"TUTTI_DEVICE": "host"} if memory == "hostdevice" else {}
        result = harness.job(
            mpi,
            ranks,
            command,
            directory,
            environment=COMMON | device | variables,
            preload=plan is not None,
            timeout_s=timeout_s,
        )
        files = [directory / f"rank{rank}.txt" for rank in range(ranks)]
        texts = [file.read_text() if file.exists() else "" for file in files]
    if "--verbose" in options:
        print(result.stderr)
    # A line without an end is of a program that did not.
    of_ranks = [text[: text.rfind("\n") + 1].splitlines() for text in texts]
    lines = {int(line[0].split()[0]): list(line) for line in zip(*of_ranks, strict=False)}
    well = result.status == 0 and len(lines) == count
    end = result.stderr[-1500:].strip()
    return Run(lines, "" if well else f"status {result.status}: {end}")


def compare(native: Run, ours: Run) -> list[Difference]:
    """Of all programs that ended both times, and one for a job that did not end well."""
    found = []
    for program, lines in native.lines.items():
        if program in ours.lines:
            found += differences(lines, ours.lines[program])
    if ours.failure:
        last = max(ours.lines, default=min(native.lines, default=0) - 1)
        found.append(Difference(last + 1, -1, ours.failure))
    return found


def lone(native: Run) -> list[int]:
    """Programs whose last calls but one are not the same on all ranks."""
    return [
        program
        for program, lines in native.lines.items()
        if any(word[0] in "OU" for word in lines[0].split()[1:])
    ]


def main() -> int:
    """Runs and compares all that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpi", default="mpich,openmpi")
    parser.add_argument("--plan", default="all")
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--valid", action="store_true", help="no invalid calls")
    parser.add_argument("--watchdog", default="20", help="seconds of a program")
    parser.add_argument("--only", type=int, help="one program, with all calls printed")
    parser.add_argument("--most", type=int, default=20, help="differences to print of each row")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    without_gpus = [name for name, (memory, _) in PLANS.items() if memory != "cuda"]
    plans = without_gpus if options.plan == "all" else options.plan.split(",")
    if unknown := set(plans) - set(PLANS):
        parser.error(f"--plan {', '.join(sorted(unknown))}: use all, or some of {', '.join(PLANS)}")
    extra = ["--watchdog", options.watchdog, *(["--valid"] if options.valid else [])]
    if options.only is not None:
        options.first, options.count, extra = options.only, 1, [*extra, "--verbose"]
    rows: list[dict[str, Any]] = []
    keys = [(f, int(r)) for f in options.mpi.split(",") for r in options.ranks.split(",")]
    for flavour, ranks in keys:
        mpi = harness.find_mpi(flavour)
        if isinstance(mpi, str):
            parser.error(mpi)
        found: dict[str, list[Difference]] = {plan: [] for plan in plans}
        seconds = dict.fromkeys(plans, 0.0)
        kinds: dict[str, Counter[str]] = {plan: Counter() for plan in plans}
        left_out: list[int] = []
        end = options.first + options.count
        first = options.first
        while first < end:
            native = run(mpi, ranks, None, first, min(BATCH, end - first), *extra)
            count = len(native.lines)
            if native.failure:  # The MPI itself does not survive this one.
                left_out.append(first + count)
                print(f"{flavour}, {ranks} ranks, natively: {native.failure}", file=sys.stderr)
            alike = native
            if set(plans) & set(SHARING) and options.only is None:
                alike = run(mpi, ranks, None, first, count, "--alike", *extra)
                if alike.failure:
                    parser.error(f"{flavour}, {ranks} ranks, natively: {alike.failure}")
            for plan in plans:
                begun_s = time.monotonic()
                shares = plan in SHARING and options.only is None
                more = ["--alike", *extra] if shares else extra
                mine = compare(
                    alike if shares else native, run(mpi, ranks, plan, first, count, *more)
                )
                for lines in (alike if shares else native).lines.values():
                    kinds[plan].update(word[0] for word in lines[0].split()[1:])
                for program in lone(native)[: LONE if shares else 0]:
                    lines = {program: native.lines[program]}
                    mine += compare(Run(lines, ""), run(mpi, ranks, plan, program, 1, *extra))
                    kinds[plan].update(word[0] for word in lines[program][0].split()[-2:-1])
                seconds[plan] += time.monotonic() - begun_s
                for difference in mine:
                    found[plan].append(difference)
                    if len(found[plan]) <= options.most:
                        again = f"--mpi {flavour} --plan {plan} --ranks {ranks}"
                        print(
                            f"program {difference.program}, call {difference.call}: "
                            f"{difference.what}\n  tools/random_runs.py {again} "
                            f"--only {difference.program}",
                            flush=True,
                        )
            first += count + (1 if native.failure else 0)
        for plan in plans:
            rows.append(
                {
                    "mpi": flavour,
                    "ranks": ranks,
                    "plan": plan,
                    "programs": options.count - len(left_out),
                    "natively_left_out": left_out,
                    "calls": {kind: kinds[plan][kind] for kind in "VAOU"},
                    "differences": len(found[plan]),
                    "differing": sorted({each.program for each in found[plan]}),
                    "seconds": round(seconds[plan], 1),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    total = sum(row["differences"] for row in rows)
    print(f"{len(rows)} rows of {options.count} programs, {total} differences")
    if options.output is not None:
        document = {**results_head.head(SCHEMA), "first": options.first, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
