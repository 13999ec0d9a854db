# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the transport core costs per chunk, without a network, a socket or a copy.

    python bench/transport.py [-o bench/results/transport-core.json]

Runs build/dev/bench/micro/transport_bench several times: ns of CPU of one core for sending a chunk,
receiving it with its acknowledgement, and receiving that; instructions from the kernel's counter,
or from valgrind where a program may not read it. The sum is what an engine pays that sends
and receives at the same rate. Exits with 1 when the median for 32 KiB chunks with the default
controller is above 650 ns, the time of a chunk at 400 Gb/s.
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
COLUMNS = (
    "chunk_bytes",
    "paths",
    "ns",
    "send_ns",
    "receive_ns",
    "acknowledge_ns",
    "instructions",
    "cpu_gbps",
    "goodput_gbps",
    "retransmissions",
    "spurious_retransmissions",
)
LINE = re.compile(r"^(.{28})" + r"\s+([0-9.]+)" * len(COLUMNS) + "$")


def measure(program: Path, chunks: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each variant; of what varies the median, of `ns` also the extremes."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(repeats):
        out = subprocess.run(
            [str(program), str(chunks // 1000)], check=True, capture_output=True, text=True
        ).stdout
        for line in out.splitlines()[1:]:
            match = LINE.match(line)
            if match is None:
                sys.exit(f"{program}: not a row: {line}")
            values = dict(zip(COLUMNS, map(float, match.groups()[1:]), strict=True))
            found.setdefault((match[1].strip(), int(values["chunk_bytes"])), []).append(values)
    rows = []
    for (variant, _), runs in found.items():
        row: dict[str, Any] = {"variant": variant}
        for column in COLUMNS:
            value = statistics.median(run[column] for run in runs)
            row[column] = round(value, 1) if column.endswith(("ns", "gbps")) else int(value)
        row["ns_min"] = min(run["ns"] for run in runs)
        row["ns_max"] = max(run["ns"] for run in runs)
        rows.append(row)
    return rows


def instructions(program: Path, variant: str, chunk_bytes: int) -> int | None:
    """Per chunk, of both ends, as valgrind counts them; None: it is not installed."""
    if shutil.which("valgrind") is None:
        return None
    counts = []
    for thousands in (2, 6):
        words = ["valgrind", "--tool=cachegrind", "--cache-sim=no"]
        words += ["--cachegrind-out-file=/dev/null", str(program), str(thousands), variant]
        words += [str(chunk_bytes)]
        told = subprocess.run(words, check=True, capture_output=True, text=True).stderr
        match = re.search(r"I\s+refs:\s+([0-9,]+)", told)
        if match is None:
            return None
        counts.append(int(match[1].replace(",", "")))
    return (counts[1] - counts[0]) // 4000


def main() -> int:
    """Measures, prints, writes."""
    description = (__doc__ or "").partition("\n")[0]
    options = results_head.micro_options(description, "transport_bench", 500_000)
    rows = measure(options.program, options.chunks, options.repeats)
    for row in rows:
        row["instructions_by"] = "kernel"
        if row["instructions"] == 0:
            row["instructions_by"] = "valgrind"
            row["instructions"] = instructions(options.program, row["variant"], row["chunk_bytes"])
        print(
            f"{row['variant']:28} {row['chunk_bytes']:6} {row['ns']:7.1f} ns "
            f"({row['ns_min']:.1f} to {row['ns_max']:.1f}): send {row['send_ns']}, receive "
            f"{row['receive_ns']}, acknowledge {row['acknowledge_ns']}; "
            f"{row['instructions']} instructions"
        )
    return results_head.end_micro(
        "tutti-transport-core/1", options, rows, "nscc mixed", "ns", BOUND_NS
    )


if __name__ == "__main__":
    sys.exit(main())
