# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the OSU micro-benchmarks with their default flags: Tutti's default against other plans.

  python3 bench/osu.py --osu DIR --mpi PREFIX [--device cuda] [--ranks 2] [-o FILE]

DIR holds the built programs (osu_allreduce, ...; OSU 7.4 configured with --enable-cuda=basic
--with-cuda=PREFIX). Each program runs with no flag of its own but -m (sizes), -c (every element is
checked) and -d (device buffers), so that its datatype is MPI_CHAR. Plans: "default" (no setting),
any other name forced on the measured collective by TUTTI_<COLLECTIVE>, and "native" (no preload).
Runs of the plans take turns; a row has the median of the runs' mean latencies (OSU's "Avg Latency",
microseconds), which is over all ranks.

Exit status 1: a program failed, or an element was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import results_head  # noqa: E402
from tutti_hpc import files, mpi, paths, processes, sizes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402

SCHEMA = "tutti-osu/1"

COLLECTIVES = (
    "allreduce",
    "reduce",
    "reduce_scatter",
    "allgather",
    "alltoall",
    "alltoallv",
    "bcast",
)
NATIVE = "native"
DEFAULT = "default"
# "# Size  Avg Latency(us)", and with -c a last column "Validation": Pass or Fail.
ROW = re.compile(r"^(\d+)[ \t]+([0-9.]+)(?:[ \t].*?)??(?:[ \t](Pass|Fail))?[ \t]*$", re.MULTILINE)


def parse(text: str) -> dict[int, tuple[float, str]]:
    """By size: mean latency in microseconds and the verdict of -c ("" where there is none)."""
    return {int(size): (float(us), verdict) for size, us, verdict in ROW.findall(text)}


def environment(plan: str, collective: str, settings: list[str]) -> dict[str, str]:
    """Variables of a rank."""
    variables = dict(setting.split("=", 1) for setting in settings)
    if plan != NATIVE:
        variables["LD_PRELOAD"] = str(paths.require("libtutti-mpi.so"))
    if plan not in (NATIVE, DEFAULT):
        variables[f"TUTTI_{collective.upper()}"] = plan
    return variables


def command(args: argparse.Namespace, collective: str, plan: str, end: int) -> list[str]:
    """What starts one run."""
    variables = environment(plan, collective, args.set)
    words = [str(args.prefix / "bin" / "mpirun"), "-n", str(args.ranks)]
    words += ["env", *(f"{name}={value}" for name, value in variables.items())]
    words += [str(args.osu / f"osu_{collective}"), "-m", f"{args.begin}:{end}"]
    words += ["-c"] if args.check else []
    words += ["-d", args.device] if args.device != "host" else []
    return words


def run(args: argparse.Namespace, collective: str, plan: str, end: int) -> dict[str, Any]:
    """One run's rows, or why there are none."""
    words = command(args, collective, plan, end)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=args.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"rows": {}, "failure": f"not finished after {args.timeout} s"}
    rows = parse(done.stdout)
    failure = ""
    if done.returncode != 0 or not rows:
        lines = (done.stderr or done.stdout).strip().splitlines()
        failure = f"exit status {done.returncode}: {' / '.join(lines[-3:])[:400]}"
    return {"rows": rows, "failure": failure, "stderr": done.stderr}


def summary(name: str, runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per size: each plan's median and the ratio of the others to the default."""
    found = []
    everything = sorted(
        {size for of_plan in runs.values() for one in of_plan for size in one["rows"]}
    )
    for size in everything:
        row: dict[str, Any] = {"collective": name, "bytes": size}
        wrong = 0
        for plan, of_plan in runs.items():
            values = [one["rows"][size][0] for one in of_plan if size in one["rows"]]
            wrong += sum(one["rows"].get(size, (0, ""))[1] == "Fail" for one in of_plan)
            if values:
                row[f"{plan}_us"] = round(statistics.median(values), 2)
        row["wrong"] = wrong
        for plan in runs:
            if plan != DEFAULT and f"{plan}_us" in row and row.get("default_us"):
                row[f"{plan}_over_default"] = round(row[f"{plan}_us"] / row["default_us"], 3)
        found.append(row)
    return found


def text_of(document: dict[str, Any]) -> str:
    """JSON, one row to a line."""
    head = json.dumps({**document, "rows": []}, indent=2)
    rows = ",\n".join("    " + json.dumps(row) for row in document["rows"])
    return head.replace('"rows": []', f'"rows": [\n{rows}\n  ]') + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--osu", required=True, type=Path, help="directory of osu_allreduce, ...")
    parser.add_argument("--mpi", required=True, help="prefix of the MPI, or mpich")
    parser.add_argument("-o", "--output", type=Path, help="results file")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument(
        "--plans", help="default, native or any plan (default: default and its rival, which is "
        "native for host buffers, else ccl-beta)",
    )  # fmt: skip
    parser.add_argument("--device", default="host", help="host, cuda or rocm: memory of buffers")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--begin", type=sizes.parse_bytes, default=1)
    parser.add_argument("--end", type=sizes.parse_bytes, default=1 << 20)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each plan")
    parser.add_argument("--no-check", dest="check", action="store_false", help="leave -c out")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a run")
    args = parser.parse_args()
    args.plans = args.plans or f"default,{'native' if args.device == 'host' else 'ccl-beta'}"
    args.begin = max(args.begin, 1)
    args.prefix = mpi.find(args.mpi).prefix
    missing = [
        name for name in args.collectives.split(",") if not (args.osu / f"osu_{name}").is_file()
    ]
    if missing:
        raise TuttiError(f"{args.osu}: no osu_{missing[0]}; remedy: --osu DIR of built programs")
    return args


def main() -> int:
    args = arguments()
    start = time.monotonic()
    os.environ["LD_LIBRARY_PATH"] = f"{args.prefix}/lib:" + os.environ.get("LD_LIBRARY_PATH", "")
    document = results_head.head(SCHEMA)
    document |= {"ranks": args.ranks, "memory": args.device, "runs": args.repeats}
    document |= {"checked": args.check, "rows": []}
    failures = []
    for name in args.collectives.split(","):
        runs: dict[str, list[dict[str, Any]]] = {plan: [] for plan in args.plans.split(",")}
        for _ in range(args.repeats):
            for plan, of_plan in runs.items():
                one = run(args, name, plan, args.end)
                of_plan.append(one)
                if one["failure"]:
                    failures.append({"collective": name, "plan": plan, "failure": one["failure"]})
        for row in summary(name, runs):
            document["rows"].append(row)
            print(json.dumps(row), flush=True)
        document["failures"] = failures
        if args.output:
            files.write(args.output, text_of(document))
        print(f"[{time.monotonic() - start:.0f} s] {name}", file=sys.stderr, flush=True)
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    wrong = sum(row["wrong"] for row in document["rows"])
    return 1 if failures or wrong else 0


if __name__ == "__main__":
    try:
        with processes.signals_as_exits():
            sys.exit(main())
    except TuttiError as error:
        print(f"osu: {error}", file=sys.stderr)
        sys.exit(1)
