# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What schedules cost before anything moves: one rank's program of 10,000, a simulation of 1024.

    python bench/schedule.py [-o bench/results/schedule-scale.json]

Generation is CPU time of one call on one core, the median of ten repetitions; the simulation is
the CPU time of `tutti sim collective allgather --algorithms rings` on 1024 ranks. Exits with 1
when a claim does not hold: 10 ms for each algorithm, 5 s for the simulation.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import results_head  # noqa: E402
from tutti_hpc import files  # noqa: E402

REPETITIONS = 10
GENERATION_MS = 10.0
SIMULATION_S = 5.0


def generation(program: Path) -> list[dict[str, Any]]:
    """A row for each algorithm."""
    words = [str(program), "--benchmark_format=json", "--benchmark_min_time=0.02"]
    words += [f"--benchmark_repetitions={REPETITIONS}"]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    times: dict[str, list[float]] = {}
    steps: dict[str, int] = {}
    for one in found["benchmarks"]:
        if one["run_type"] == "iteration":
            name = one["run_name"].split("/")[0]
            times.setdefault(name, []).append(one["cpu_time"])
            steps[name] = int(one["steps"])
    return [
        {
            "collective": name.partition(":")[0],
            "algorithm": name.partition(":")[2],
            "ranks": 10_000,
            "steps": steps[name],
            "cpu_ms": {
                "min": round(min(t), 3),
                "p50": round(statistics.median(t), 3),
                "max": round(max(t), 3),
            },
        }
        for name, t in times.items()
    ]


def simulation() -> dict[str, Any]:
    """Parallel Rings on 1024 ranks."""
    words = ["sim", "collective", "allgather", "--cluster", "cluster-b", "--ranks", "1024"]
    words += ["-b", "2M", "-e", "2M", "--algorithms", "rings", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "tutti_hpc", *words], check=True, env=env, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": "tutti " + " ".join(words), "cpu_s": round(cpu_s, 2)}


def main() -> int:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--program", type=Path, default=ROOT / "build/dev/bench/micro/schedule_bench"
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if not options.program.is_file():
        parser.error(f"{options.program} is not there; remedy: make build, or --program")
    rows = generation(options.program)
    simulated = simulation()
    for row in sorted(rows, key=lambda row: -row["cpu_ms"]["p50"]):
        print(
            f"{row['collective']:22} {row['algorithm']:30} {row['cpu_ms']['p50']:8.3f} ms "
            f"({row['cpu_ms']['min']:.3f} to {row['cpu_ms']['max']:.3f})  {row['steps']} steps"
        )
    print(f"simulation of 1024 ranks: {simulated['cpu_s']} s of CPU")
    slowest = max(row["cpu_ms"]["p50"] for row in rows)
    holds = slowest <= GENERATION_MS and simulated["cpu_s"] <= SIMULATION_S
    print(f"at most {GENERATION_MS} ms and {SIMULATION_S} s: {'holds' if holds else 'MISSED'}")
    if options.output:
        written = {**results_head.head("tutti-schedule-scale/1"), "rows": rows}
        written["simulation"] = simulated
        files.write(options.output, json.dumps(written, indent=1) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
