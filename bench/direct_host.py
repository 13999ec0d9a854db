# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""MPI_Allreduce of 2 ranks on one node: our direct backend against MPICH's and Open MPI's own.

    python bench/direct_host.py -o bench/results/direct-host.json

One job measures one MPI's own allreduce and ours on a communicator of the same job, block by block
in turns (tests/mpi/paired.c). Jobs of the two MPIs take turns too, so a slow minute of the machine
falls on all. Each pair of neighbouring blocks gives one ratio, own time over ours; the claim is on
the medians of the ratios, of the MPI over which we gain less. Times are nanoseconds per call.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "mpi"), str(ROOT / "bench")]

import results_head  # noqa: E402
from tutti import files, mpi  # noqa: E402

import harness  # noqa: E402

LIBRARIES = ("mpich", "openmpi")
# What is to be shown: faster by this factor within the range, and never slower than this.
FASTER = 1.3
FASTER_FROM, FASTER_TO = 64 << 10, 16 << 20
SLOWER_MAX = 1.05

Pairs = dict[int, list[tuple[float, float]]]


def run_once(library: harness.Mpi, arguments: argparse.Namespace) -> Pairs:
    """(own, ours) of each pair of blocks by size, of one job."""
    environment = harness.plain_environment()
    environment["LD_LIBRARY_PATH"] = str(library.libraries)
    command = library.launch(arguments.ranks)
    program = [library.program("paired"), arguments.plan, arguments.begin, arguments.end]
    # The preload goes to the ranks alone, not to the launcher.
    preload = ["env", f"LD_PRELOAD={harness.door()}", f"TUTTI_STRICT={arguments.strict}"]
    command += [*preload, *map(str, program), str(arguments.rounds)]
    result = harness.execute(command, environment, 600)
    end = re.search(r"^paired: wrong (\d+) plan (\S+)$", result.stdout, re.MULTILINE)
    if result.status != 0 or end is None:
        raise SystemExit(str(result))
    if end.group(2) != arguments.plan:
        raise SystemExit(f"{library.flavour}: the plan was {end.group(2)}, not {arguments.plan}")
    found: Pairs = collections.defaultdict(list)
    for size, own, ours in re.findall(
        r"^paired: (\d+) ([\d.]+) ([\d.]+)$", result.stdout, re.MULTILINE
    ):
        found[int(size)].append((float(own), float(ours)))
    return found


def quantiles(values: list[float]) -> dict[str, float]:
    """Minimum, quartiles and maximum."""
    low, middle, high = statistics.quantiles(values, n=4)
    found = {"min": min(values), "p25": low, "p50": middle, "p75": high, "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def row_of(size: int, measured: dict[str, Pairs]) -> dict[str, Any]:
    """One size's ratios and times of each MPI."""
    row: dict[str, Any] = {"bytes": size}
    for name, pairs in measured.items():
        row[name] = {
            "pairs": len(pairs[size]),
            "ratio": quantiles([own / ours for own, ours in pairs[size]]),
            "own_ns": quantiles([own for own, _ in pairs[size]]),
            "ours_ns": quantiles([ours for _, ours in pairs[size]]),
        }
    row["ratio_over_better"] = min(row[name]["ratio"]["p50"] for name in measured)
    return row


def misses(rows: list[dict[str, Any]]) -> list[str]:
    """The sizes at which what is to be shown is not."""
    found = []
    for row in rows:
        size, ratio = row["bytes"], row["ratio_over_better"]
        wanted = FASTER if FASTER_FROM <= size <= FASTER_TO else 1 / SLOWER_MAX
        if ratio < wanted:
            found.append(f"{size} bytes: {ratio:.3f}, wanted {wanted:.3f}")
    return found


def versions(libraries: list[harness.Mpi]) -> dict[str, str]:
    """The MPIs' versions."""
    known = {m.abi: mpi.short_version(mpi.facts(m).version) for m in mpi.find_all()}
    return {library.flavour: known[library.flavour] for library in libraries}


def main() -> int:
    """Measures, prints, writes; 1 when the claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", default="direct-gamma", help="ours (direct-gamma)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks (2)")
    parser.add_argument("--begin", type=int, default=8, help="smallest size in bytes (8)")
    parser.add_argument("--end", type=int, default=16 << 20, help="largest size in bytes (16 MB)")
    parser.add_argument("--jobs", type=int, default=6, help="jobs of each MPI (6)")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of blocks a job (10)")
    parser.add_argument("-o", "--output", type=Path, help="results file")
    arguments = parser.parse_args()
    arguments.strict = 1
    libraries = []
    for name in LIBRARIES:
        library = harness.find_mpi(name)
        if isinstance(library, str):
            parser.error(library)
        libraries.append(library)

    measured: dict[str, Pairs] = {name: collections.defaultdict(list) for name in LIBRARIES}
    load_before = os.getloadavg()[0]
    for job in range(arguments.jobs):
        order = libraries if job % 2 == 0 else libraries[::-1]
        for library in order:
            for size, pairs in run_once(library, arguments).items():
                measured[library.flavour][size] += pairs
        print(f"job {job + 1}/{arguments.jobs}", file=sys.stderr, flush=True)

    rows = [row_of(size, measured) for size in sorted(measured[LIBRARIES[0]])]
    for row in rows:
        texts = []
        for name in LIBRARIES:
            own, ours, ratio = (row[name][key] for key in ("own_ns", "ours_ns", "ratio"))
            texts.append(
                f"{name} {own['p50']:11.0f} ns, ours {ours['p50']:11.0f} ns, "
                f"ratio {ratio['p50']:6.2f} ({ratio['p25']:.2f} to {ratio['p75']:.2f})"
            )
        print(f"{row['bytes']:9}  " + "   ".join(texts))
    missed = misses(rows)
    print("claim holds" if not missed else "CLAIM DOES NOT HOLD: " + "; ".join(missed))
    if arguments.output:
        document = results_head.head("tutti-direct-host/1") | {
            "collective": "allreduce",
            "ranks": arguments.ranks,
            "memory": "host",
            "type": "float32",
            "op": "sum",
            "plan": arguments.plan,
            "claim": {
                "ratio_min": FASTER,
                "from_bytes": FASTER_FROM,
                "to_bytes": FASTER_TO,
                "elsewhere_min": round(1 / SLOWER_MAX, 4),
            },
            "load_average": [load_before, os.getloadavg()[0]],
            "rows": rows,
        }
        document["versions"] |= versions(libraries)
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        files.write(arguments.output, json.dumps(document, indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
