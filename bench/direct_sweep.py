# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The direct kernels by launch shape and form, without MPI: `floor_us`, the defaults' source.

    python bench/direct_sweep.py RANKS -o OUT.json [--program build/dev/bench/micro/direct_sweep]

One process per GPU (see bench/micro/direct_sweep.cpp). `floor_us` is what a blocking call costs
before any work: the launch of an empty kernel and the word in host memory that says that it ran;
`graph_floor_us` the same by a graph of one kernel, `stream_floor_us` with a wait for the stream.
Each is the median over calls, the slowest rank's, in microseconds. Rows with 0 blocks have the
launch shape that a call gets; `--defaults` measures only those.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import results_head  # noqa: E402
from tutti_hpc import files  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=int)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/dev/bench/micro/direct_sweep")
    parser.add_argument("--defaults", action="store_true")
    options = parser.parse_args()
    if not options.program.is_file():
        parser.error(f"{options.program} is not there; remedy: make build, or --program")
    with tempfile.NamedTemporaryFile(suffix=".json") as raw:
        command = [str(options.program), str(options.ranks), raw.name]
        subprocess.run([*command, *(["defaults"] if options.defaults else [])], check=True)
        measured = json.loads(Path(raw.name).read_text())
    document = results_head.head("tutti-direct-sweep/1") | measured
    rows = ",\n".join("    " + json.dumps(row) for row in document.pop("rows"))
    head = json.dumps(document, indent=2)
    files.write(options.output, head[:-2] + ',\n  "rows": [\n' + rows + "\n  ]\n}\n")


if __name__ == "__main__":
    main()
