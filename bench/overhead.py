# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the preload costs a program on host buffers: MPI_Allreduce of 8 bytes on 2 ranks.

    python bench/overhead.py --mpi mpich [-o bench/results/overhead-host-allreduce8.json]

Many short runs of the same program with and without the preload, in the order with, without,
without, with, so that a drift of the machine's speed falls on both. Each pair of neighbours gives
one ratio; the claim is on the median of the ratios. Ranks are pinned to cores of their own, since
where two processes land moves the latency more than any library does. Latencies are nanoseconds
per call: the fastest of a run's batches, which is what the machine does when nobody disturbs it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "mpi"))

import harness  # noqa: E402

CLAIM = 1.05


def cores(wanted: int) -> list[int]:
    """Cores this process may use, one per rank; fewer when there are fewer."""
    return sorted(os.sched_getaffinity(0))[:wanted]


def run_once(mpi: harness.Mpi, preload: bool, iterations: int, directory: Path) -> float:
    """Nanoseconds per call of one run."""
    variables = {"LD_LIBRARY_PATH": str(mpi.libraries)}
    if preload:
        variables["LD_PRELOAD"] = str(harness.door())
    pinned = cores(2)
    script = directory / ("with.sh" if preload else "without.sh")
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in variables.items())
    script.write_text(
        "#!/bin/sh\n"
        "rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-0}}}\n"
        f"set -- taskset -c $(echo {' '.join(map(str, pinned))} | cut -d' ' -f$((rank + 1))) "
        '"$@"\n'
        f'{exports}exec "$@"\n'
    )
    script.chmod(0o755)
    environment = harness.plain_environment()
    environment["LD_LIBRARY_PATH"] = str(mpi.libraries)
    command = [*mpi.launch(2), str(script), str(mpi.program("overhead")), str(iterations)]
    result = harness.execute(command, environment, 300)
    found = re.search(r"^overhead: ([\d.]+) ([\d.]+) \d+$", result.stdout, re.MULTILINE)
    if result.status != 0 or found is None:
        raise SystemExit(str(result))
    return float(found.group(1))


def pairs(mpi: harness.Mpi, count: int, iterations: int) -> Iterator[tuple[float, float]]:
    """(with, without) of each pair, in ABBA order."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for index in range(count):
            order = (True, False) if index % 2 == 0 else (False, True)
            measured = {p: run_once(mpi, p, iterations, directory) for p in order}
            yield measured[True], measured[False]


def quantiles(values: list[float]) -> dict[str, float]:
    """Minimum, quartiles and maximum."""
    low, middle, high = statistics.quantiles(values, n=4)
    found = {"min": min(values), "p25": low, "p50": middle, "p75": high, "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def machine() -> dict[str, object]:
    """What was measured on."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    total = re.search(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": int(total.group(1)) * 1024 if total else None,
        "kernel": platform.release(),
        "gpus": [],
        "load_average": os.getloadavg()[0],
    }


def versions(mpi: harness.Mpi) -> dict[str, str]:
    """Tutti's version and commit, and the MPI's."""
    project = (ROOT / "CMakeLists.txt").read_text()
    tutti = re.search(r"project\(tutti VERSION ([\d.]+)", project)
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    header = (mpi.prefix / "include" / "mpi.h").read_text()
    if mpi.flavour == "openmpi":
        numbers = [
            re.search(rf"define OMPI_{part}_VERSION (\d+)", header)
            for part in ("MAJOR", "MINOR", "RELEASE")
        ]
        library = "Open MPI " + ".".join(n.group(1) if n else "?" for n in numbers)
    else:
        found = re.search(r'define MPICH_VERSION\s+"([^"]+)"', header)
        library = f"MPICH {found.group(1) if found else '?'}"
        if mpi.flavour == "abi":
            library += " (libmpi_abi)"
    return {
        "tutti": f"{tutti.group(1) if tutti else '?'} ({commit.stdout.strip()})",
        "mpi": library,
    }


def main() -> int:
    """Measures, prints, writes; 1 when the claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=harness.FLAVOURS, default="mpich")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of runs (60)")
    parser.add_argument("--iterations", type=int, default=60000, help="calls per run (60000)")
    parser.add_argument(
        "-o", "--output", type=Path, help="results file; holds one row per MPI, others are kept"
    )
    arguments = parser.parse_args()
    mpi = harness.find_mpi(arguments.mpi)
    if isinstance(mpi, str):
        parser.error(mpi)
    if arguments.pairs < 2:
        parser.error("--pairs: at least 2, for a median and a spread")

    measured: list[tuple[float, float]] = []
    for with_ns, without_ns in pairs(mpi, arguments.pairs, arguments.iterations):
        measured.append((with_ns, without_ns))
        print(
            f"{len(measured):3}/{arguments.pairs}  with {with_ns:8.1f} ns  "
            f"without {without_ns:8.1f} ns  ratio {with_ns / without_ns:.4f}",
            file=sys.stderr,
            flush=True,
        )
    ratios = [with_ns / without_ns for with_ns, without_ns in measured]
    row = {
        "mpi": mpi.flavour,
        "bytes": 8,
        "pairs": arguments.pairs,
        "iterations": arguments.iterations,
        "ratio": quantiles(ratios),
        "with_ns": quantiles([with_ns for with_ns, _ in measured]),
        "without_ns": quantiles([without_ns for _, without_ns in measured]),
        "claim_max_median_ratio": CLAIM,
        "versions": versions(mpi),
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    holds = row["ratio"]["p50"] <= CLAIM
    print(
        f"{mpi.flavour}: median ratio {row['ratio']['p50']:.4f} "
        f"(quartiles {row['ratio']['p25']:.4f} to {row['ratio']['p75']:.4f}), "
        f"{row['without_ns']['p50']:.0f} ns without, {row['with_ns']['p50']:.0f} ns with; "
        f"claim <= {CLAIM}: {'holds' if holds else 'DOES NOT HOLD'}"
    )
    if arguments.output:
        write(arguments.output, row)
    return 0 if holds else 1


def write(path: Path, row: dict[str, object]) -> None:
    """Puts the row of this MPI into the results document."""
    document: dict[str, object] = {}
    if path.exists():
        document = json.loads(path.read_text())
    rows = [old for old in document.get("rows", []) if old["mpi"] != row["mpi"]]
    document = {
        "schema": "tutti-overhead/1",
        "command": "python bench/overhead.py --mpi " + "|".join(harness.FLAVOURS),
        "date": row["date"],
        "machine": row["machine"],
        "versions": row["versions"],
        "collective": "allreduce",
        "ranks": 2,
        "nodes": 1,
        "memory": "host",
        "type": "float64",
        "op": "sum",
        "rows": sorted([*rows, row], key=lambda r: harness.FLAVOURS.index(r["mpi"])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
