#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Is a network with faults ever seen through the plugin? Random faults, checked data, many runs.

    tools/fault_runs.py [--first 1] [--count 100] [--build build/dev] [-o FILE]

Each seed is a run of tests/nccl_net's driver on loopback: 2 to 4 ranks, one table version, one kind
of traffic, sizes up to a limit, and a network that loses, repeats, reorders, delays and corrupts
packets and kills paths for a while (TUTTI_FAULT; what may be corrupted is a header, since payload
is the network's own checksums' to guard). Every byte is compared. Prints each seed that failed with
the command that repeats it, writes a summary to FILE (JSON), and exits with 1 if a run failed, or
if nothing was ever sent again: then there were no faults.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "bench"))

import results_head  # noqa: E402

SECONDS = 60  # The driver's own watchdog; after twice as long it counts as a hang.
SCHEMA = "tutti-fault-runs/1"


def faults(draw: random.Random, seed: int, paths: int) -> str:
    """A network of so many paths: each kind of fault is there or not."""
    parts = [f"seed={seed}"]
    if draw.random() < 0.8:
        parts.append(f"drop={draw.choice([0.0001, 0.001, 0.01, 0.04])}")
    if draw.random() < 0.4:
        parts.append(f"duplicate={draw.choice([0.001, 0.02])}:{draw.choice([0, 100, 3000])}us")
    if draw.random() < 0.4:
        parts.append(f"reorder={draw.choice([0.001, 0.02, 0.1])}")
    if draw.random() < 0.4:
        parts.append(f"delay={draw.choice([0.001, 0.02])}:{draw.choice([50, 500, 5000])}us")
    if draw.random() < 0.4:
        parts.append(f"corrupt={draw.choice([0.0001, 0.005])}:header")
    for path in draw.sample(range(paths), min(paths, draw.choice([0, 0, 1, 2]))):
        begin_ms, length_ms = draw.randrange(0, 200), draw.choice([5, 50, 300])
        parts.append(f"kill_path={path}@{begin_ms}ms:{length_ms}ms")
    return ",".join(parts)


def run_of(seed: int, build: Path) -> tuple[list[str], dict[str, str]]:
    """Command and variables of a seed."""
    draw = random.Random(seed)
    ranks = draw.choice([2, 2, 3, 4])
    kind = draw.choice(["ring", "alltoall", "grouped", "pingpong"])
    version = draw.choice([8, 9, 10, 11, 12] if kind == "grouped" else range(6, 13))
    most = draw.choice(["2000", "64K", "1M", "4M"])
    messages = 8 if most == "4M" else draw.choice([20, 60])
    command = [str(build / "tests/nccl_net/nccl_net_driver"), "--plugin"]
    command += [str(build / "lib/libnccl-net-tutti.so"), "--ranks", str(ranks), "--test", kind]
    command += ["--version", str(version), "--messages", str(messages), "--max", most]
    command += ["--window", str(draw.choice([1, 4, 16])), "--seed", str(seed)]
    command += ["--channels", str(draw.choice([1, 2])), "--watchdog", str(SECONDS), "--verbose"]
    paths = draw.choice([1, 8, 64])
    variables = {
        "NCCL_SOCKET_IFNAME": "lo",
        "TUTTI_FAULT": faults(draw, seed, paths),
        "TUTTI_NET_PATHS": str(paths),
        "TUTTI_NET_CHUNK": str(draw.choice([1400, 9000, 65000])),
        "TUTTI_NET_POLLING": draw.choice(["shared", "shared", "busy"]),
        "TUTTI_NET_ENGINES": str(draw.choice([1, 2, 4])),
        "TUTTI_NET_SUB_CONNECTIONS": str(draw.choice([1, 2, 4])),
        "TUTTI_NET_CONTROLLER": draw.choice(["cubic", "cubic", "swift", "nscc"]),
        "TUTTI_NET_TIMESTAMPS": draw.choice(["auto", "on"]),
    }
    return command, variables


def main() -> int:
    """Runs the seeds in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--build", type=Path, default=ROOT / "build/dev")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    begun_s = time.monotonic()
    checks, again, failed, slowest_s = 0, 0, [], 0.0
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")
    }
    for seed in range(options.first, options.first + options.count):
        command, variables = run_of(seed, options.build)
        start_s = time.monotonic()
        try:
            done = subprocess.run(
                command,
                env={**environment, **variables},
                capture_output=True,
                text=True,
                timeout=2 * SECONDS,
            )
            status, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            status, said = -1, "a hang"
        slowest_s = max(slowest_s, time.monotonic() - start_s)
        found = re.search(r"(\d+) checks, 0 failed", said)
        if status == 0 and found and int(found[1]) > 0:
            checks += int(found[1])
            again += sum(map(int, re.findall(r"retransmissions (\d+)", said)))
            continue
        failed.append(seed)
        words = [f"{name}={value}" for name, value in variables.items()] + command
        print(f"seed {seed}: status {status}: {said[-400:].strip()}\n  " + " ".join(words))
        sys.stdout.flush()
    seconds = time.monotonic() - begun_s
    print(
        f"{options.count} runs, {len(failed)} failed, {checks} checks, {again} chunks sent "
        f"again, {seconds:.0f} s, the slowest {slowest_s:.1f} s"
    )
    if options.output is not None:
        document: dict[str, Any] = {
            **results_head.head(SCHEMA),
            "command": f"tools/fault_runs.py --first {options.first} --count {options.count}",
            "first": options.first,
            "runs": options.count,
            "failed": failed,
            "checks": checks,
            "chunks_sent_again": again,
            "seconds": round(seconds),
            "slowest_s": round(slowest_s, 1),
        }
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if failed or again == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
