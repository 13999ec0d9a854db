# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Draws what the torch benches found on two GPUs: NCCL's time by Tutti's, above 1 is faster.

    python bench/applications/figure.py bench/results/h200x2-torch -o docs/figures/torch-h200x2.png

Left: of single collectives, the median over five of them and the range. Right: of programs, medians
and quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

MODES = {
    "replayed": "call of a replayed CUDA graph",
    "queued": "eager call, on the GPU",
    "waited": "eager call that is waited for",
}


def rows_of(directory: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a results document."""
    document = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    return list(document["rows"])


def programs(directory: Path) -> list[tuple[str, list[float]]]:
    """Labels and quartiles of ratios."""
    found = [
        ("DDP, ResNet-50 shape", rows_of(directory, "ddp-resnet")[0]),
        *(("DDP, GPT-2 small", row) for row in rows_of(directory, "ddp") if row["model"] == "gpt"),
        ("FSDP2, 298 M parameters", rows_of(directory, "fsdp")[0]),
    ]
    strong = [row for row in rows_of(directory, "gemm") if row["scaling"] == "strong"]
    found += [(f"matrix product, {row['mode']}", row) for row in strong]
    found += [(f"experts, {row['phase']}", row) for row in rows_of(directory, "moe")]
    return [(label, row["ratio"]) for label, row in found]


def draw(directory: Path, output: Path) -> None:
    """The suffix of `output` names the format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    collectives = rows_of(directory, "collectives")
    sizes = sorted({row["bytes"] for row in collectives})
    for mode, label in MODES.items():
        ratios = [
            [row["ratio"][1] for row in collectives if (row["mode"], row["bytes"]) == (mode, size)]
            for size in sizes
        ]
        middle = [statistics.median(some) for some in ratios]
        left.plot(range(len(sizes)), middle, marker="o", label=label)
        left.fill_between(range(len(sizes)), [*map(min, ratios)], [*map(max, ratios)], alpha=0.15)
    units = {1: "B", 1 << 10: "KiB", 1 << 20: "MiB"}
    unit = [max(one for one in units if one <= size) for size in sizes]
    left.set_xticks(
        range(len(sizes)), [f"{size // one} {units[one]}" for size, one in zip(sizes, unit)]
    )
    left.set_title("Collectives: NCCL's time / Tutti's")
    left.legend(fontsize="small")
    for place, (label, (low, middle, high)) in enumerate(reversed(programs(directory))):
        right.errorbar(middle, place, xerr=[[middle - low], [high - middle]], fmt="o", color="C0")
        right.text(0.62, place, label, va="center", fontsize="small")
    right.set_xlim(0.6, 1.3)
    right.set_yticks([])
    right.set_title("Programs: NCCL's time / Tutti's")
    left.axhline(1, color="gray", linewidth=0.8)
    right.axvline(1, color="gray", linewidth=0.8)
    figure.savefig(output, dpi=110)


def main() -> int:
    """Draws."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, help="the results documents")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    draw(arguments.directory, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
