# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What an engine costs per chunk over the verbs wire, over a NIC that completes at once.

    python bench/verbs_engine.py [-o bench/results/verbs-engine.json]
    python bench/verbs_engine.py --two-engines [-o bench/results/verbs-two-engines.json]

Runs build/dev/bench/micro/verbs_bench several times: ns of CPU of one core for the host that sends
(chunks out, acknowledgements and completions in) and for those that receive, and the memory of a
queue pair; instructions of each side by callgrind, as the difference of a long and a short run, and
(nic) how many of them are the NIC's calls, which stand for a driver's.
`--two-engines`, on 4 cores and more: two processes at once, each as one of the engines that a
connection is split over (half of the queue pairs and of the window; without the splitting itself),
in turns with one engine that has all. `ratio`: what both send together by what one does.

Exits with 1 when a sending engine with the default service and controller takes more than 650 ns
for a chunk of 32 KiB, its time at 400 Gb/s.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import results_head  # noqa: E402

BOUND_NS = 650.0
DEFAULT = "UC, written, cubic"
HALF = "UC, written, cubic, half"
CHUNK_BITS = 8 * 32768
COLUMNS = ("sender_ns", "receiver_ns", "qps", "bytes_per_qp", "sent_again")
LINE = re.compile(r"^(.{28})" + r"\s+([0-9.]+)" * len(COLUMNS) + "$")


def lines_of(program: Path, out: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Variants and their values, as the program prints them."""
    for line in out.splitlines()[1:]:
        match = LINE.match(line)
        if match is None:
            sys.exit(f"{program}: not a row: {line}")
        yield match[1].strip(), dict(zip(COLUMNS, map(float, match.groups()[1:]), strict=True))


def measure(program: Path, chunks: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each variant: medians, of the times also the extremes."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(repeats):
        out = subprocess.run(
            [str(program), str(chunks // 1000)], check=True, capture_output=True, text=True
        ).stdout
        for variant, values in lines_of(program, out):
            found.setdefault(variant, []).append(values)
    rows = []
    for variant, runs in found.items():
        row: dict[str, Any] = {"variant": variant, "qps": int(runs[0]["qps"])}
        for column in ("sender_ns", "receiver_ns"):
            times = [run[column] for run in runs]
            row[column] = round(statistics.median(times), 1)
            row[f"{column}_min"], row[f"{column}_max"] = min(times), max(times)
        # Of few queue pairs the process does not grow by whole pages.
        row["bytes_per_qp"] = (
            round(statistics.median(run["bytes_per_qp"] for run in runs))
            if row["qps"] >= 4096
            else None
        )
        rows.append(row)
    return rows


def instructions(program: Path, variant: str, functions: str) -> int | None:
    """Per chunk, within functions of such a name; None: valgrind is not installed."""
    if shutil.which("valgrind") is None:
        return None
    counts = []
    for thousands in (2, 6):
        words = ["valgrind", "--tool=callgrind", f"--toggle-collect={functions}"]
        words += ["--callgrind-out-file=/dev/null", str(program), str(thousands), variant]
        told = subprocess.run(words, check=True, capture_output=True, text=True).stderr
        match = re.search(r"Collected : ([0-9]+)", told)
        if match is None:
            return None
        counts.append(int(match[1]))
    return (counts[1] - counts[0]) // 4000


def beside(program: Path, chunks: int, variant: str, engines: int) -> list[float]:
    """ns of each of so many engines that run at once, each with two processors of its own."""
    jobs = [
        subprocess.Popen(
            [str(program), str(chunks // 1000), variant, str(2 * engine)],
            stdout=subprocess.PIPE, text=True,
        )
        for engine in range(engines)
    ]  # fmt: skip
    outs = [job.communicate()[0] for job in jobs]
    for job in jobs:
        if job.returncode != 0:
            sys.exit(f"{program}: exit status {job.returncode}")
    return [values["sender_ns"] for out in outs for _, values in lines_of(program, out)]


def two_engines(options: argparse.Namespace) -> int:
    """One engine and two in turns: ns per chunk, and what two send by what one does."""
    if len(os.sched_getaffinity(0)) < 4:
        print("two engines: left out, 4 cores are needed", file=sys.stderr)
        return 2
    if options.repeats < 2:
        print("--repeats: at least 2, for quartiles", file=sys.stderr)
        return 2
    ones, twos, ratios = [], [], []
    for _ in range(options.repeats):
        (one,) = beside(options.program, options.chunks, DEFAULT, 1)
        two = beside(options.program, options.chunks, HALF, 2)
        ones.append(one)
        twos += two
        ratios.append(one * sum(1 / ns for ns in two))
    row = {
        "variant": HALF,
        "sender_ns": statistics.median(twos),
        "one_engine_ns": statistics.median(ones),
        "gbit_per_s": round(2 * CHUNK_BITS / statistics.median(twos), 1),
        "one_engine_gbit_per_s": round(CHUNK_BITS / statistics.median(ones), 1),
        "ratio": [round(value, 3) for value in statistics.quantiles(ratios, n=4)],
    }
    print(row)
    return results_head.end_micro(
        "tutti-verbs-two-engines/1", options, [row], HALF, "sender_ns", BOUND_NS
    )


def main() -> int:
    """Measures, prints, writes."""
    description = (__doc__ or "").partition("\n")[0]
    options = results_head.micro_options(
        description, "verbs_bench", 300_000, lambda it: it.add_argument(
            "--two-engines", action="store_true", help="connections split over two engines"
        ),
    )  # fmt: skip
    if options.two_engines:
        return two_engines(options)
    rows = measure(options.program, options.chunks, options.repeats)
    for row in rows:
        few = row["qps"] <= 256
        for side in ("sender", "receivers"):
            for part, functions in (
                ("instructions", f"*{side}_turn*"),
                ("nic_instructions", f"*NicOf*{side.capitalize()}*"),
            ):
                row[f"{side}_{part}"] = (
                    instructions(options.program, row["variant"], functions) if few else None
                )
        memory = f", {row['bytes_per_qp']} bytes each" if row["bytes_per_qp"] else ""
        extremes = f"{row['sender_ns_min']:.1f} to {row['sender_ns_max']:.1f}"
        print(
            f"{row['variant']:26} {row['qps']:6} queue pairs{memory}: sender "
            f"{row['sender_ns']:7.1f} ns ({extremes}), {row['sender_instructions']} instructions "
            f"({row['sender_nic_instructions']} of the NIC's); "
            f"receiver {row['receiver_ns']:7.1f} ns, {row['receivers_instructions']} instructions"
        )
    return results_head.end_micro(
        "tutti-verbs-engine/1", options, rows, DEFAULT, "sender_ns", BOUND_NS
    )


if __name__ == "__main__":
    sys.exit(main())
