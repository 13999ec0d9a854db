#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the simulation of the transport over very many seeds.

    tools/simulate_transport.py PROGRAM --seeds 1000000 [--first 1] [--jobs N] [--state FILE]

PROGRAM is transport_simulation (build/<preset>/tests/simulation). Batches of seeds run in parallel
processes. FILE (JSON) keeps which batches are done and which seeds failed, so that a run that was
stopped goes on where it was; without it nothing is kept. It is of one PROGRAM: another build of it
wants another FILE. Prints each failing seed at once and exits with 1 if there is one.
Replay one with: PROGRAM --seed S --verbose
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

BATCH = 1000


def run_batch(program: str, first: int, count: int) -> dict[int, str]:
    """Failing seeds of a batch, with what they violate."""
    failures: dict[int, str] = {}
    end = first + count
    while first < end:
        run = subprocess.run(
            [program, "--first", str(first), "--seeds", str(end - first), "--keep-going"],
            capture_output=True,
            text=True,
        )
        found = re.findall(r"^seed (\d+): (.*)$", run.stdout, re.MULTILINE)
        failures |= {int(seed): text for seed, text in found}
        if run.returncode == 0 or "seeds, " in run.stdout:
            break
        # A check of the core or a hang ended the process at the last seed it named.
        if not found:
            raise SystemExit(f"{program} ended with {run.returncode}:\n{run.stderr[-2000:]}")
        first = int(found[-1][0]) + 1
    return failures


def main() -> int:
    """Runs all batches that the state does not have yet; see the head of the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the transport_simulation to run")
    parser.add_argument("--seeds", type=int, required=True, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--state", type=Path, help="JSON file that a later run goes on from")
    arguments = parser.parse_args()
    if not Path(arguments.program).is_file():
        parser.error(f"{arguments.program} is not there; remedy: make build")
    done: set[int] = set()
    failures: dict[int, str] = {}
    digest = hashlib.sha256(Path(arguments.program).read_bytes()).hexdigest()
    if arguments.state and arguments.state.exists():
        state = json.loads(arguments.state.read_text())
        if state.get("program_sha256") != digest:
            parser.error(
                f"{arguments.state} is of another program than {arguments.program}; remedy: remove "
                "it, or name another"
            )
        done = set(state["batches"])
        failures = {int(seed): text for seed, text in state["failures"].items()}
    end = arguments.first + arguments.seeds
    batches = [first for first in range(arguments.first, end, BATCH) if first not in done]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        running: dict[Future[dict[int, str]], int] = {}
        while batches or running:
            while batches and len(running) < arguments.jobs:
                first = batches.pop(0)
                count = min(BATCH, end - first)
                running[pool.submit(run_batch, arguments.program, first, count)] = first
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                first = running.pop(future)
                done |= {first} if first + BATCH <= end else set()  # A short one is run again.
                for seed, text in future.result().items():
                    failures[seed] = text
                    print(f"seed {seed}: {text}", flush=True)
                if arguments.state:
                    state = {
                        "program_sha256": digest,
                        "batches": sorted(done),
                        "failures": failures,
                    }
                    temporary = arguments.state.with_suffix(".new")
                    temporary.write_text(json.dumps(state, indent=1) + "\n")
                    temporary.replace(arguments.state)
    print(f"{arguments.seeds} seeds, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
