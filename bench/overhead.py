# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the preload costs on host buffers: MPI_Allreduce of 8 bytes on 2 ranks, and MPI_Init.

    python bench/overhead.py --mpi mpich [-o bench/results/overhead-host-allreduce8.json]

Many short runs of the same program with and without the preload, in the order with, without,
without, with, so that a drift of the machine's speed falls on both. Each pair of neighbours gives
one ratio; the claim is on the median of the ratios. Ranks are pinned to cores of their own, since
where two processes land moves the latency more than any library does. Latencies are nanoseconds
per call: the fastest of a run's batches, which is what the machine does when nobody disturbs it.
In MPI_Init, ranks tell each other in the launcher's store that they have the preload.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench", "tests/mpi")]

import msgspec  # noqa: E402
import results_head  # noqa: E402
from tutti_hpc import __version__, files, mpi, results  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402

import harness  # noqa: E402

SCHEMA = "tutti-overhead/1"
CLAIM = 1.03
CLAIM_INIT_MORE_MS = 15.0


class Run(NamedTuple):
    """One run of the program."""

    call_ns: float
    init_ms: float


def cores(wanted: int) -> list[int]:
    """CPUs this process may use, one per rank, each of a core of its own as far as there are."""
    allowed = sorted(os.sched_getaffinity(0))
    first_of_core: dict[str, int] = {}
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = siblings.read_text() if siblings.is_file() else str(cpu)
        first_of_core.setdefault(core, cpu)
    apart = list(first_of_core.values())
    return (apart if len(apart) >= wanted else allowed)[:wanted]


def run_once(library: harness.Mpi, preload: bool, iterations: int, directory: Path) -> Run:
    """One run, pinned."""
    variables = {"LD_LIBRARY_PATH": str(library.libraries)}
    if preload:
        variables["LD_PRELOAD"] = str(harness.preload_library())
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
    environment["LD_LIBRARY_PATH"] = str(library.libraries)
    command = [*library.launch(2), str(script), str(library.program("overhead")), str(iterations)]
    result = harness.execute(command, environment, 300)
    found = re.search(r"^overhead: ([\d.]+) [\d.]+ \d+ ([\d.]+)$", result.stdout, re.MULTILINE)
    # The dynamic linker goes on without what it cannot load.
    if result.status != 0 or found is None or "cannot be preloaded" in result.stderr:
        raise SystemExit(str(result))
    return Run(float(found[1]), float(found[2]))


def pairs(library: harness.Mpi, count: int, iterations: int) -> Iterator[tuple[Run, Run]]:
    """(with, without) of each pair, in ABBA order."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for index in range(count):
            order = (True, False) if index % 2 == 0 else (False, True)
            measured = {p: run_once(library, p, iterations, directory) for p in order}
            yield measured[True], measured[False]


def quantiles(values: list[float]) -> dict[str, float]:
    """Minimum, quartiles and maximum."""
    low, middle, high = statistics.quantiles(values, n=4)
    found = {"min": min(values), "p25": low, "p50": middle, "p75": high, "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def versions(library: harness.Mpi) -> results.Versions:
    """Tutti's version and the MPI's."""
    found = mpi.find(str(library.prefix))
    return results.Versions(tutti=__version__, mpi=mpi.short_version(mpi.facts(found).version))


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
    library = harness.find_mpi(arguments.mpi)
    if isinstance(library, str):
        parser.error(library)
    if not harness.preload_library().is_file():
        parser.error(
            f"{harness.preload_library()} is not there; remedy: make build, or set TUTTI_BUILD_DIR"
        )
    if arguments.output and arguments.output.is_file():
        try:
            results_head.load(arguments.output, SCHEMA)
        except TuttiError as error:
            parser.error(error.format_message())
    if arguments.pairs < 2:
        parser.error("--pairs: at least 2, for a median and a spread")

    measured: list[tuple[Run, Run]] = []
    for ours, native in pairs(library, arguments.pairs, arguments.iterations):
        measured.append((ours, native))
        print(
            f"{len(measured):3}/{arguments.pairs}  with {ours.call_ns:8.1f} ns  "
            f"without {native.call_ns:8.1f} ns  ratio {ours.call_ns / native.call_ns:.4f}  "
            f"MPI_Init {ours.init_ms:.1f} and {native.init_ms:.1f} ms",
            file=sys.stderr,
            flush=True,
        )
    ratios = [ours.call_ns / native.call_ns for ours, native in measured]
    init_more_ms = [ours.init_ms - native.init_ms for ours, native in measured]
    head = results_head.head(SCHEMA)
    row = {
        "mpi": library.flavour,
        "bytes": 8,
        "pairs": arguments.pairs,
        "iterations": arguments.iterations,
        "ratio": quantiles(ratios),
        "with_ns": quantiles([ours.call_ns for ours, _ in measured]),
        "without_ns": quantiles([native.call_ns for _, native in measured]),
        "claim_max_median_ratio": CLAIM,
        "init_with_ms": quantiles([ours.init_ms for ours, _ in measured]),
        "init_without_ms": quantiles([native.init_ms for _, native in measured]),
        "init_more_ms": quantiles(init_more_ms),
        "claim_max_median_init_more_ms": CLAIM_INIT_MORE_MS,
        "versions": head["versions"] | msgspec.to_builtins(versions(library)),
        "machine": head["machine"],
        "load_average": os.getloadavg()[0],
        "date": head["date"],
    }
    call_holds = row["ratio"]["p50"] <= CLAIM
    init_holds = row["init_more_ms"]["p50"] <= CLAIM_INIT_MORE_MS
    print(
        f"{library.flavour}: median ratio {row['ratio']['p50']:.4f} "
        f"(quartiles {row['ratio']['p25']:.4f} to {row['ratio']['p75']:.4f}), "
        f"{row['without_ns']['p50']:.0f} ns without, {row['with_ns']['p50']:.0f} ns with; "
        f"claim <= {CLAIM}: {'holds' if call_holds else 'DOES NOT HOLD'}; MPI_Init "
        f"{row['init_without_ms']['p50']:.0f} ms without, {row['init_more_ms']['p50']:.1f} ms more "
        f"with; claim <= {CLAIM_INIT_MORE_MS:g}: {'holds' if init_holds else 'DOES NOT HOLD'}"
    )
    if arguments.output:
        write(arguments.output, head, row)
    return 0 if call_holds and init_holds else 1


def write(path: Path, head: dict[str, object], row: dict[str, object]) -> None:
    """Puts the row of this MPI into the results document; each row says where it is from."""
    document: dict[str, object] = {}
    if path.exists():
        document = json.loads(path.read_text())
    rows = [old for old in document.get("rows", []) if old["mpi"] != row["mpi"]]
    document = {
        **head,
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
    files.write(path, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
