# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What an engine costs per chunk over the verbs wire, over a NIC that completes at once.

    python bench/verbs_engine.py [-o bench/results/verbs-engine.json]

Runs build/dev/bench/micro/verbs_bench several times: ns of CPU of one core for the host that sends
(chunks out, acknowledgements and completions in) and for those that receive, and the memory of a
queue pair; instructions of each side by callgrind, as the difference of a long and a short run, and
(nic) how many of them are the NIC's calls, which stand for a driver's.
Exits with 1 when a sending engine with the default service and controller takes more than 650 ns
for a chunk of 32 KiB, its time at 400 Gb/s.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import results_head  # noqa: E402

BOUND_NS = 650.0
DEFAULT = "UC, written, cubic"
COLUMNS = ("sender_ns", "receiver_ns", "qps", "bytes_per_qp", "sent_again")
LINE = re.compile(r"^(.{28})" + r"\s+([0-9.]+)" * len(COLUMNS) + "$")


def measure(program: Path, chunks: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each variant: medians, of the times also the extremes."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(repeats):
        out = subprocess.run(
            [str(program), str(chunks // 1000)], check=True, capture_output=True, text=True
        ).stdout
        for line in out.splitlines()[1:]:
            match = LINE.match(line)
            if match is None:
                sys.exit(f"{program}: not a row: {line}")
            row_values = dict(zip(COLUMNS, map(float, match.groups()[1:]), strict=True))
            found.setdefault(match[1].strip(), []).append(row_values)
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


def main() -> int:
    """Measures, prints, writes."""
    description = (__doc__ or "").partition("\n")[0]
    options = results_head.micro_options(description, "verbs_bench", 300_000)
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
