# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The scattered copy on one GPU: throughput by length of the pieces, cost of a small batch.

    python bench/scatter_copy.py -o OUT.json [--program build/dev/bench/micro/scatter_copy]

Sources are slots of a bounce buffer, destinations pieces of one buffer in a random order (see
bench/micro/scatter_copy.cpp). `rows`: batches one after the other in a stream, microseconds each,
beside the GPU library's own copy of as many bytes (`memcpy_us`), which has one source and one
destination. GB/s count what device memory reads and writes; with a source in pinned host memory
what crosses the bus. `of_memcpy` is the share of the library's copy, `of_limit` that of
`memory_limit_gbps`, which the memory's clock and width allow. `latency`: from the call until the
stream's end is seen, the median; `added_us` is beside an empty kernel, launched the plain way.
`--sweep` adds other numbers of pieces and blocks than a batch gets.
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

TABLES = ("latency", "sweep", "rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=ROOT / "build/dev/bench/micro/scatter_copy")
    parser.add_argument("--most", type=int, default=256 << 20, help="bytes of the largest batch")
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    if not options.program.is_file():
        parser.error(f"{options.program} is not there; remedy: make build, or --program")
    with tempfile.NamedTemporaryFile(suffix=".json") as raw:
        command = [str(options.program), raw.name, str(options.most)]
        subprocess.run([*command, *(["sweep"] if options.sweep else [])], check=True)
        measured = json.loads(Path(raw.name).read_text())
    tables = {name: measured.pop(name) for name in TABLES if name in measured}
    text = json.dumps(results_head.head("tutti-scatter-copy/1") | measured, indent=2)[:-2]
    for name, rows in tables.items():
        text += (
            f',\n  "{name}": [\n' + ",\n".join("    " + json.dumps(row) for row in rows) + "\n  ]"
        )
    files.write(options.output, text + "\n}\n")


if __name__ == "__main__":
    main()
