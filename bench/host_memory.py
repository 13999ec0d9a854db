# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives on host buffers of one node: the MPI library's own against Tutti's.

    python bench/host_memory.py --ranks 2 --minutes 8 -o bench/results/host-memory-2-cores.json
    python bench/host_memory.py --plan direct-gamma --collectives alltoall,bcast --ranks 2,8,32
    python bench/host_memory.py --setup -o bench/results/host-set-up-2-cores.json
    python bench/host_memory.py --print-table bench/results/host-memory-2-cores.json

One job measures one MPI's own functions and ours on one communicator, block by block in turns
(tests/mpi/paired.c; before 9b0854d each side had a communicator of its own). Jobs of the MPIs take
turns too, so a slow minute of the machine falls on all. Each pair of neighbouring blocks gives one
ratio, our time over the native time: below 1 is faster. A row of the results has the quartiles of
these ratios, of the times as the average over the ranks (what the OSU benchmarks print) and as the
maximum. Claim: no median above --bound.

`size` is the column of the table; `bytes` is that size in whole elements and blocks, and what rules
compare with: the vector of allreduce, reduce and bcast, and block x ranks of all the others. The
OSU benchmarks print the vector for reductions and bcast and the block for the others; a row has the
block as `block_bytes`.

Modes: `calls` (back to back, the root of a rooted collective rotates), `osu` (a barrier after each
timed call, root 0, as in the OSU benchmarks), `compute` (each rank computes before each call; the
whole loop is timed), `late` (another rank comes late each time; timed from its arrival).
Bindings: `core` (each rank bound to a core by the launcher), `none` (unbound), `over` (the job is
restricted to half as many cores as it has ranks, or to half of the machine's).

--floor measures in turns a preload that only hands each call on (tests/mpi/forward.c): what no
preload can be below. A row then has its quartiles as `floor`, and where the plan is
native the claim is on ours over it.

--setup measures what communicators cost: the first collective of a process, MPI_Comm_dup with an
allreduce of 8 bytes and MPI_Comm_free against the native functions, and memory with --comms live
communicators. Claims: SETUP_BARS below.

Needs the programs of tests/mpi and the library in TUTTI_BUILD_DIR, and the MPIs in .env or in
TUTTI_MPICH_ROOT and TUTTI_OPENMPI_ROOT. On a machine without a compiler: tools/host_check.sh.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench", "tests/mpi")]

import results_head  # noqa: E402
from tutti_hpc import files, mpi, sizes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402

import harness  # noqa: E402

SCHEMA = "tutti-host-memory/1"
SETUP_SCHEMA = "tutti-host-set-up/1"
MAIN = ("allreduce", "allgather", "alltoall", "bcast", "reduce_scatter_block")
OTHERS = ("reduce", "gather", "scatter", "barrier", "allgatherv", "alltoallv", "reduce_scatter")
MODES = ("calls", "osu", "compute", "late")
BINDINGS = ("core", "none", "over")
# Plans that leave a call on one node to the MPI library, or that nobody chose.
NATIVE_PLANS = ("native", "mpi-gamma", "mpi-beta", "none")
BOUND = 1.03
# First call on a communicator after the process's first, us; MPI_Comm_dup + call + free as times of
# native; memory that a process shares with others; growth of a process per live communicator above
# the native growth.
SETUP_BARS = {"call_us": 1000.0, "dup_ratio": 2.0, "shared_kib": 64 << 10, "growth_kib": 64.0}
# What a job takes beside its measurement: launcher, MPI_Init, the last size's overrun.
START_S = 3.0
OVERRUN_S = 30.0

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One job: everything but collectives and sizes."""

    library: harness.Mpi
    ranks: int
    mode: str
    binding: str
    is_floor: bool = False  # With the preload that only hands calls on.

    def __str__(self) -> str:
        floor = " floor" if self.is_floor else ""
        return f"{self.library.flavour} {self.ranks} ranks {self.mode} {self.binding}{floor}"

    @property
    def preload(self) -> Path:
        return self.library.program("forward.so") if self.is_floor else harness.preload_library()


@dataclasses.dataclass
class Found:
    """The pairs of one collective and size, of all jobs: (native, ours), microseconds."""

    row: Row
    average: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    slowest: list[tuple[float, float]] = dataclasses.field(default_factory=list)


# By flavour, as the library itself says: what a launcher in PATH says may be another's.
found_versions: dict[str, str] = {}


def launch(cell: Cell) -> list[str]:
    """The launcher's command line up to the program."""
    cores = sorted(os.sched_getaffinity(0))
    bind = "core" if cell.binding == "core" else "none"
    command = [str(cell.library.prefix / "bin" / "mpirun")]
    if cell.library.flavour == "openmpi":
        # A core may have two of the machine's processors.
        bind += ":overload-allowed" if bind == "core" else ""
        command += ["--allow-run-as-root", "--oversubscribe", "--bind-to", bind]
    else:
        command += ["-bind-to", bind]
    if cell.binding == "over":
        some = cores[: max(1, min(len(cores), cell.ranks) // 2)]
        command = ["taskset", "-c", ",".join(map(str, some)), *command]
    return [*command, "-n", str(cell.ranks)]


def run_job(cell: Cell, options: Sequence[str], settings: Sequence[str], limit_s: float) -> str:
    """What the program printed; a TuttiError when the job failed."""
    environment = harness.plain_environment()
    environment["LD_LIBRARY_PATH"] = str(cell.library.libraries)
    # The preload goes to the ranks alone, not to the launcher.
    command = [*launch(cell), "env", f"LD_PRELOAD={cell.preload}", *settings]
    command += [str(cell.library.program("paired")), *options]
    result = harness.execute(command, environment, limit_s)
    # The dynamic linker goes on without what it cannot load.
    if "cannot be preloaded" in result.stderr:
        raise TuttiError(f"{cell.preload} cannot be preloaded: {result.stderr[:300]}")
    # Status 1 with its last line: wrong results, which the rows count.
    ended = re.search(r"^paired: wrong \d+$", result.stdout, re.MULTILINE)
    # Out of time: what it has printed counts, the rest is left out.
    if ended is None and not (result.status is None and "paired: row" in result.stdout):
        raise TuttiError(f"{cell}: the job failed\n{result}")
    version = re.search(r"^paired: library (.*)$", result.stdout, re.MULTILINE)
    if version is not None:
        found_versions[cell.library.flavour] = mpi.short_version(" ".join(version.group(1).split()))
    return result.stdout


def cores_of(text: str) -> int:
    """On how many cores a rank of the job could run, at most."""
    found = re.search(r"^paired: cores \d+ (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def parse(text: str) -> Iterator[Found]:
    """The rows that a job printed."""
    found: Found | None = None
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["paired:", "row"]:
            if found is not None:
                yield found
            collective, *numbers, plan = words[2:]
            keys = ("size", "bytes", "block_bytes", "calls", "wrong")
            counted = dict(zip(keys, map(int, numbers), strict=True))
            found = Found({"collective": collective, **counted, "plan": plan})
        elif words[:2] == ["paired:", "pair"] and found is not None:
            native, ours, native_max, ours_max = map(float, words[2:])
            found.average.append((native, ours))
            found.slowest.append((native_max, ours_max))
    if found is not None:
        yield found


def quartiles(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of our time over the native time. Times of 0 occur where no rank waits for a late one."""
    ratios = [(ours + 1e-3) / (native + 1e-3) for native, ours in pairs]
    if len(ratios) == 1:
        ratios *= 2
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"p25": round(low, 4), "p50": round(middle, 4), "p75": round(high, 4)}


def row_of(cell: Cell, found: Found) -> Row:
    """The row of the document."""

    def median(pairs: Sequence[tuple[float, float]], side: int) -> float:
        return round(statistics.median(pair[side] for pair in pairs), 3)

    return {
        "mpi": cell.library.flavour,
        "collective": found.row["collective"],
        "ranks": cell.ranks,
        "mode": cell.mode,
        "binding": cell.binding,
        "size": found.row["size"],
        "bytes": found.row["bytes"],
        "block_bytes": found.row["block_bytes"],
        "plan": found.row["plan"],
        "native_us": median(found.average, 0),
        "ours_us": median(found.average, 1),
        "native_max_us": median(found.slowest, 0),
        "ours_max_us": median(found.slowest, 1),
        "ratio": quartiles(found.average),
        "ratio_max": quartiles(found.slowest),
        "pairs": len(found.average),
        "calls": found.row["calls"],
        "cores_of_rank": found.row["cores_of_rank"],
        "wrong": found.row["wrong"],
    }


def is_native(row: Row) -> bool:
    """Whether both sides ran the MPI library's own."""
    return row["plan"] in NATIVE_PLANS


def summarise(rows: Sequence[Row], bound: float) -> dict[str, Any]:
    """Worst ratios where the plan is ours and where it is not; gains; what misses the bound."""

    def name(row: Row) -> str:
        keys = ("mpi", "collective", "ranks", "mode", "binding", "bytes", "plan")
        return " ".join(str(row[key]) for key in keys)

    def worst(some: Sequence[Row], key: str) -> dict[str, Any] | None:
        if not some:
            return None
        row = max(some, key=lambda row: row[key]["p50"])
        return {"ratio": row[key]["p50"], "where": name(row)}

    def is_above(row: Row, quartile: str = "p50") -> bool:
        floor = row["floor"]["p50"] if is_native(row) and "floor" in row else 1.0
        return row["ratio"][quartile] > bound * max(1.0, floor)

    ours = [row for row in rows if not is_native(row)]
    native = [row for row in rows if is_native(row)]
    gains = {}
    for collective in dict.fromkeys(row["collective"] for row in ours):
        ratios = [1 / row["ratio"]["p50"] for row in ours if row["collective"] == collective]
        gains[collective] = round(statistics.median(ratios), 2)
    return {
        "rows": len(rows),
        "rows_with_our_plan": len(ours),
        "wrong": sum(row["wrong"] for row in rows),
        "bound": bound,
        "worst": worst(ours, "ratio"),
        "worst_of_slowest_rank": worst(ours, "ratio_max"),
        "worst_where_native": worst(native, "ratio"),
        "median_gain": gains,
        "worst_floor": worst([row for row in rows if "floor" in row], "floor"),
        "above_bound": [name(row) for row in rows if is_above(row)],
        # Where even the best quarter of the pairs is above: not noise.
        "above_bound_surely": [name(row) for row in rows if is_above(row, "p25")],
    }


def print_table(rows: Sequence[Row], bound: float) -> None:
    """Median ratios: one row per collective and rank count, one column per size; a table for each
    MPI, mode and binding. A * marks ratios above the bound, a "." those of the native plan."""
    for mpi_name, mode, binding in dict.fromkeys(
        (row["mpi"], row["mode"], row["binding"]) for row in rows
    ):
        some = [
            row
            for row in rows
            if (row["mpi"], row["mode"], row["binding"]) == (mpi_name, mode, binding)
        ]
        columns = sorted({row["size"] for row in some})
        print(f"\n{mpi_name}, mode {mode}, binding {binding}: our time / native time")
        print(
            f"{'collective':20} {'ranks':>5}",
            *(f"{sizes.format_bytes(size):>6}" for size in columns),
        )
        order = [*MAIN, *OTHERS]
        for ranks in sorted({row["ranks"] for row in some}):
            of_ranks = [row for row in some if row["ranks"] == ranks]
            names = sorted({row["collective"] for row in of_ranks}, key=order.index)
            for collective in names:
                by_size = {r["size"]: r for r in of_ranks if r["collective"] == collective}
                texts = []
                for size in columns:
                    if size not in by_size:
                        texts.append(f"{'':6}")
                        continue
                    row = by_size[size]
                    ratio = row["ratio"]["p50"]
                    mark = "*" if ratio > bound else "." if is_native(row) else " "
                    texts.append(f"{ratio:5.2f}{mark}")
                print(f"{collective:20} {ranks:5}", *texts)


def winning(rows: Sequence[Row]) -> Iterator[tuple[str, int, str]]:
    """(collective, ranks, sizes) where our side is no slower than native on every MPI, in every
    mode and binding that was measured: what a rule may give to it. Sizes as "16..4K, 64K..1M"."""
    for collective, ranks in dict.fromkeys((row["collective"], row["ranks"]) for row in rows):
        worst: dict[int, float] = {}
        for row in rows:
            if (row["collective"], row["ranks"]) == (collective, ranks):
                worst[row["size"]] = max(worst.get(row["size"], 0), row["ratio"]["p50"])
        runs: list[list[int]] = []
        is_open = False
        for size in sorted(worst):
            if worst[size] <= 1:
                if not is_open:
                    runs.append([])
                runs[-1].append(size)
            is_open = worst[size] <= 1
        text = sizes.format_bytes
        yield collective, ranks, ", ".join(f"{text(run[0])}..{text(run[-1])}" for run in runs)


def print_summary(summary: dict[str, Any]) -> None:
    """A few lines for the eye."""
    print(
        f"\n{summary['rows']} rows, {summary['rows_with_our_plan']} with a plan of ours, ", end=""
    )
    print(f"{summary['wrong']} wrong elements")
    for key in ("worst", "worst_of_slowest_rank", "worst_where_native", "worst_floor"):
        if summary.get(key):
            print(f"{key.replace('_', ' ')}: {summary[key]['ratio']:.3f} ({summary[key]['where']})")
    gains = (f"{name} {gain:.2f}" for name, gain in summary["median_gain"].items())
    print("median of native time / our time:", ", ".join(gains) or "no plan of ours")
    above, surely = summary["above_bound"], summary["above_bound_surely"]
    print(f"above {summary['bound']}: {len(above)} rows, {len(surely)} of them by the best quarter")
    for name in above:
        print(f"  {name}" + (" (surely)" if name in surely else ""))


def listed(allowed: Sequence[str]) -> Any:
    """An argument type: names with commas between them, or `all`."""

    def convert(text: str) -> list[str]:
        names = list(allowed) if text == "all" else text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"'{name}'; one or more of {', '.join(allowed)}")
        return names

    return convert


def size_type(text: str) -> int:
    """An argument type."""
    try:
        return sizes.parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--mpi", type=listed(harness.FLAVOURS), default=["mpich", "openmpi"], help="MPIs")
    add("--ranks", default="2", help="rank counts with commas between them (2)")
    add("--collectives", type=listed([*MAIN, *OTHERS]), default=list(MAIN),
        help="names with commas between them, or all (the five of the main table)")  # fmt: skip
    add("--mode", type=listed(MODES), default=["osu"], help="modes, or all (osu)")
    add("--binding", type=listed(BINDINGS), default=["core"], help="bindings, or all (core)")
    add("--begin", type=size_type, default=1, help="smallest size (1)")
    add("--end", type=size_type, default=64 << 20, help="largest size (64M)")
    add("--factor", type=int, default=4, help="from one size to the next (4)")
    add("--plan", default="", help="a plan for our side by info key (default: what rules choose)")
    add("--type", choices=("float", "char"), default="float", help="of reductions (float)")
    add("--root", choices=("mode", "0", "rotate"), default="mode",
        help="of rooted collectives (mode: 0 in the mode osu, rotating elsewhere)")  # fmt: skip
    add("--compute-us", type=float, default=100, help="work between calls, mode compute (100)")
    add("--late-us", type=float, default=200, help="how late a rank comes, mode late (200)")
    add("--minutes", type=float, default=8, help="for everything, starts included (8)")
    add("--rounds", type=int, default=1, help="jobs of each cell, which share its time (1)")
    add("--row-seconds", type=float, default=0.3, help="for one size of one job at most (0.3)")
    add("--pairs-min", type=int, default=3, help="pairs of blocks at least (3)")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help="an environment variable of the ranks")  # fmt: skip
    add("--bound", type=float, default=BOUND, help=f"largest median ratio ({BOUND})")
    add("--floor", action="store_true", help="measure what any preload costs, too")
    add("--setup", action="store_true", help="measure what communicators cost instead")
    add("--comms", type=int, default=1000, help="live communicators, --setup (1000)")
    add("--plant-wrong", action="store_true", help="damage a result: must be counted")
    add("--print-table", type=Path, metavar="FILE", help="print the table of results; no run")
    add("-o", "--output", type=Path, help="results file")
    arguments = parser.parse_args(words)
    try:
        arguments.ranks = list(dict.fromkeys(int(word) for word in arguments.ranks.split(",")))
    except ValueError:
        parser.error(f"--ranks '{arguments.ranks}': numbers with commas between them")
    if arguments.print_table is None:
        arguments.libraries = []
        for name in arguments.mpi:
            library = harness.find_mpi(name)
            if isinstance(library, str):
                parser.error(library)
            for needed in ["paired", *(["forward.so"] if arguments.floor else [])]:
                if not library.program(needed).is_file():
                    parser.error(f"{library.program(needed)} is not there; remedy: make build")
            arguments.libraries.append(library)
        if not harness.preload_library().is_file():
            parser.error(f"{harness.preload_library()} is not there; remedy: make build")
        if arguments.output and not arguments.output.resolve().parent.is_dir():
            parser.error(f"-o {arguments.output}: no such directory")
    return arguments


def cells_of(arguments: argparse.Namespace) -> list[Cell]:
    """The jobs of one round; those of the MPIs side by side."""
    cores = len(os.sched_getaffinity(0))
    return [
        Cell(library, ranks, mode, binding, is_floor)
        for ranks in arguments.ranks
        for mode in arguments.mode
        for binding in arguments.binding
        if binding != "core" or ranks <= cores  # A launcher does not bind two ranks to one core.
        for library in arguments.libraries
        for is_floor in ([False, True] if arguments.floor else [False])
    ]


def options_of(cell: Cell, arguments: argparse.Namespace, seconds: float) -> list[str]:
    """The program's options."""
    rotates = arguments.root == "rotate" or (arguments.root == "mode" and cell.mode != "osu")
    given: dict[str, Any] = {
        "collectives": ",".join(arguments.collectives),
        "mode": cell.mode,
        "begin": arguments.begin,
        "end": arguments.end,
        "factor": arguments.factor,
        "type": arguments.type,
        "root": "rotate" if rotates else "0",
        "seconds": round(seconds, 2),
        "row-seconds": arguments.row_seconds,
        "pairs-min": arguments.pairs_min,
        "compute-us": arguments.compute_us,
        "late-us": arguments.late_us,
        "plan": arguments.plan,
        "plant-wrong": int(arguments.plant_wrong),
    }
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def measure(arguments: argparse.Namespace) -> tuple[list[Row], list[str]]:
    """The rows, and what was left out or failed."""
    deadline = time.monotonic() + arguments.minutes * 60
    cells = cells_of(arguments)
    jobs = []
    for index in range(arguments.rounds):
        jobs += cells if index % 2 == 0 else cells[::-1]
    all_found: dict[Cell, dict[tuple[str, int], Found]] = {cell: {} for cell in cells}
    left_out = []
    for done, cell in enumerate(jobs):
        left_s = deadline - time.monotonic()
        seconds = left_s / (len(jobs) - done) - START_S
        if seconds < 1:
            left_out.append(f"{cell}: no time left")
            continue
        limit_s = min(left_s, seconds + START_S + OVERRUN_S)
        try:
            text = run_job(cell, options_of(cell, arguments, seconds), arguments.set, limit_s)
        except TuttiError as error:
            left_out.append(error.format_message())
            print(left_out[-1], file=sys.stderr)
            continue
        if not re.search(r"^paired: wrong \d+$", text, re.MULTILINE):
            left_out.append(f"{cell}: the job ran out of time")
        skipped = re.findall(r"^paired: skipped (\S+) (\d+)$", text, re.MULTILINE)
        if skipped:
            first = " ".join(skipped[0])
            left_out.append(f"{cell}: {len(skipped)} rows from {first} on: no time left")
        for found in parse(text):
            found.row["cores_of_rank"] = cores_of(text)
            key = (found.row["collective"], found.row["size"])
            old = all_found[cell].setdefault(key, found)
            if old is not found:
                old.average += found.average
                old.slowest += found.slowest
                old.row["wrong"] += found.row["wrong"]
                if old.row["plan"] != found.row["plan"]:
                    old.row["plan"] += f"|{found.row['plan']}"
        print(f"{done + 1}/{len(jobs)} {cell}", file=sys.stderr, flush=True)
    rows = []
    for cell, of_cell in all_found.items():
        if cell.is_floor:
            continue
        floor = all_found.get(dataclasses.replace(cell, is_floor=True), {})
        for key, found in sorted(of_cell.items()):
            rows.append(row_of(cell, found))
            if key in floor:
                rows[-1]["floor"] = quartiles(floor[key].average)
    return rows, left_out


def setup_row(cell: Cell, text: str) -> Row:
    """What communicators of one job cost."""

    def numbers(key: str) -> list[list[float]]:
        lines = re.findall(rf"^paired: {key} ([\d. ]+)$", text, re.MULTILINE)
        return [[float(word) for word in line.split()] for line in lines]

    first = numbers("first")[0]
    dups = numbers("dup")[1:] or numbers("dup")  # The first pays for what the process pays once.
    medians = [round(statistics.median(values), 1) for values in zip(*dups, strict=True)]
    memory = {}
    for when, *words in re.findall(
        r"^paired: memory (\w+) (\d+) (\d+) (\d+) (\d+) (\d+)$", text, re.MULTILINE
    ):
        keys = ("comms", "rss_kib", "shared_kib", "pss_kib", "shm_files_kib")
        memory[when] = dict(zip(keys, map(int, words), strict=True))

    def growth(side: str) -> float:
        first, last = memory[f"{side}_first"], memory[side]
        comms = max(1, last["comms"] - first["comms"])
        return round((last["rss_kib"] - first["rss_kib"]) / comms, 2)

    return {
        "mpi": cell.library.flavour,
        "ranks": cell.ranks,
        "binding": cell.binding,
        "pairs": len(dups),
        "first_us": {"native": first[0], "ours": first[1]},
        "dup_us": {"native": medians[0], "ours": medians[1]},
        "dup_ratio": quartiles([(native, ours) for native, ours, _, _ in dups]),
        "call_us": {"native": medians[2], "ours": medians[3]},
        "comms": {side: memory[side]["comms"] for side in ("native", "ours")},
        "growth_kib": {side: growth(side) for side in ("native", "ours")},
        "memory": memory,
    }


def setup_text(row: Row) -> str:
    """A row of --setup for the eye: native / ours."""

    def both(key: str) -> str:
        return f"{row[key]['native']:g} / {row[key]['ours']:g}"

    shared = " / ".join(str(row["memory"][side]["shared_kib"]) for side in ("native", "ours"))
    return (
        f"{row['mpi']} {row['ranks']} ranks, native / ours: first call {both('first_us')} us; "
        f"dup + call + free {both('dup_us')} us, the call {both('call_us')} us; with "
        f"{both('comms')} communicators {both('growth_kib')} KiB each, shared {shared} KiB"
    )


def setup_misses(row: Row) -> list[str]:
    """The bars that a row of --setup misses."""
    excess_kib = row["growth_kib"]["ours"] - max(0.0, row["growth_kib"]["native"])
    measured = {
        "call_us": row["call_us"]["ours"],
        "dup_ratio": row["dup_ratio"]["p50"],
        "shared_kib": row["memory"]["ours"]["shared_kib"] - row["memory"]["freed"]["shared_kib"],
        "growth_kib": excess_kib,
    }
    where = f"{row['mpi']} {row['ranks']} ranks"
    return [
        f"{where}: {name} {value:.6g}, at most {SETUP_BARS[name]:g}"
        for name, value in measured.items()
        if value > SETUP_BARS[name]
    ]


def measure_setup(arguments: argparse.Namespace) -> int:
    """--setup: measures, prints, writes; 1 when a bar is missed."""
    deadline = time.monotonic() + arguments.minutes * 60
    arguments.mode = ["setup"]
    cells = cells_of(arguments)
    rows, left_out, missed = [], [], []
    for done, cell in enumerate(cells):
        left_s = deadline - time.monotonic()
        seconds = left_s / (len(cells) - done) - START_S
        options = ["--mode", "setup", "--comms", str(arguments.comms)]
        options += ["--seconds", f"{max(1.0, seconds):.1f}"]
        try:
            limit_s = max(1.0, min(left_s, seconds + START_S + OVERRUN_S))
            row = setup_row(cell, run_job(cell, options, arguments.set, limit_s))
        except TuttiError as error:
            left_out.append(error.format_message())
            print(left_out[-1], file=sys.stderr)
            continue
        rows.append(row)
        missed += setup_misses(row)
        print(setup_text(row), flush=True)
    for line in missed:
        print(f"missed: {line}")
    if arguments.output:
        document = results_head.head(SETUP_SCHEMA) | {
            "nodes": 1, "memory": "host", "bars": SETUP_BARS, "missed": missed,
            "left_out": left_out, "rows": rows,
        }  # fmt: skip
        write(arguments, document)
    return 1 if missed or left_out or not rows else 0


def write(arguments: argparse.Namespace, document: dict[str, Any]) -> None:
    document["versions"] |= found_versions
    files.write(arguments.output, json.dumps(document, indent=1) + "\n")


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints, writes; 1 when the claim does not hold."""
    arguments = arguments_of(words)
    if arguments.print_table:
        document = results_head.load(arguments.print_table, SCHEMA)
        print_table(document["rows"], arguments.bound)
        print_summary(summarise(document["rows"], arguments.bound))
        print("\nour side is no slower than native, everywhere that was measured:")
        for collective, ranks, text in winning(document["rows"]):
            print(f"{collective:20} {ranks:5}  {text or 'nowhere'}")
        return 0
    if arguments.setup:
        return measure_setup(arguments)
    load_before = os.getloadavg()[0]
    rows, left_out = measure(arguments)
    summary = summarise(rows, arguments.bound)
    if arguments.output:
        document = results_head.head(SCHEMA) | {
            "nodes": 1,
            "memory": "host",
            "type": arguments.type,
            "op": "sum",
            "cores": len(os.sched_getaffinity(0)),
            "load_average": [load_before, os.getloadavg()[0]],
            "summary": summary,
            "left_out": left_out,
            "rows": rows,
        }
        write(arguments, document)
    print_table(rows, arguments.bound)
    print_summary(summary)
    for line in left_out:
        print(f"left out: {line.splitlines()[0]}")
    failed = not rows or any("failed" in line for line in left_out)
    return 1 if failed or summary["wrong"] or summary["above_bound"] else 0


if __name__ == "__main__":
    sys.exit(main())
