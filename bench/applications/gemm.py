# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""A distributed matrix product over all_gather: backend tutti against gloo or NCCL.

    python bench/applications/gemm.py [--ranks 1 2] [--scaling strong weak] [-o results.json]
    python bench/applications/gemm.py --device cuda --ranks 2 -o results.json

C = A B. A rank has some rows of A and as many columns of B as the others, and computes its rows of
C. It needs all of B, which is gathered in panels: an all_gather for each, and a product of the own
rows with the gathered columns. Modes: `in-turn`, one after the other; `ahead`, where the next panel
is gathered during a product. This is the form of the benchmark in the Parallel Rings paper.

Scaling: `strong` shares the product of two square matrices of --size among the ranks; `weak` gives
each rank --size rows of A, and B is the same matrix for any number of ranks. `efficiency` is the
time that one process without communication needs, by that of the job and (strong) by the ranks.

Values are small whole numbers, whose products and sums have no rounding (on GPUs in TF32 as well):
each rank's rows are compared bit by bit with those of a product without collectives.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench")]

import torch_job  # noqa: E402

SCHEMA = "tutti-gemm/1"
SCALINGS = ("strong", "weak")
MODES = ("in-turn", "ahead")
LARGEST = 3  # Of the values; sums of products up to 2**24 are exact.
SIZE_MAX = 2**24 // LARGEST**2
TURN_S = 0.2


def values(rows: int, columns: int, seed: int, device: Any) -> Any:
    """A matrix of whole numbers, the same on each rank."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    size = (rows, columns)
    drawn = torch.randint(-LARGEST, LARGEST + 1, size, generator=generator, dtype=torch.int8)
    return drawn.to(device).float()


class Product:
    """This rank's rows of C by one group.

    Columns of B lie one behind the other, so that a panel of a rank is one block of memory.
    """

    def __init__(self, group: Any, left: Any, columns: Any, ranks: int, panels: int) -> None:
        import torch

        self.group = group
        self.left = left
        self.parts = columns.chunk(panels)
        self.ranks = ranks
        width = len(self.parts[0]) * ranks
        self.gathered = [columns.new_empty(width, columns.shape[1]) for _ in range(2)]
        self.found = left.new_empty(panels, len(left), width)
        self.multiply = functools.partial(torch.mm, left)

    def gather(self, panel: int) -> Any:
        """Begins to gather a panel, into the buffer that the last product does not read."""
        import torch.distributed as dist

        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        output = self.gathered[panel % 2]
        return gather(output, self.parts[panel], group=self.group, async_op=True)

    def run(self, mode: str) -> None:
        """The product."""
        pending = None
        for panel in range(len(self.parts)):
            pending = pending or self.gather(panel)
            pending.wait()
            is_last = panel == len(self.parts) - 1
            pending = self.gather(panel + 1) if mode == "ahead" and not is_last else None
            self.multiply(self.gathered[panel % 2].t(), out=self.found[panel])

    def rows(self) -> Any:
        """The rows of C, columns in their order."""
        panels, rows, _ = self.found.shape
        by_rank = self.found.view(panels, rows, self.ranks, -1)
        return by_rank.permute(1, 2, 0, 3).reshape(rows, -1)


def alone(job: torch_job.Job, left: Any, right: Any, pairs: int) -> float:
    """The time of a product by one rank while the others do nothing, s."""
    import torch
    import torch.distributed as dist

    times = []
    out = left.new_empty(len(left), right.shape[1])
    for _ in range(pairs + 1):
        dist.barrier()
        is_first = job.rank == 0
        times.append(job.seconds(lambda: torch.mm(left, right, out=out)) if is_first else 0.0)
    dist.barrier()
    return job.largest(sorted(times[1:])[pairs // 2])


def measure(job: torch_job.Job, arguments: argparse.Namespace, scaling: str) -> None:
    """The rows of one scaling."""
    import torch

    size, ranks, rank = arguments.size, job.ranks, job.rank
    rows = size if scaling == "weak" else size // ranks
    left = values(rows * ranks, size, 1, job.device)
    right = values(size, size, 2, job.device)
    one_s = alone(job, left if scaling == "strong" else left[:rows], right, arguments.pairs)
    own = left[rank * rows : (rank + 1) * rows].contiguous()
    wanted = torch.mm(own, right)
    columns = right.t().chunk(ranks)[rank].contiguous()
    del left, right
    for mode in MODES:
        products = {
            backend: Product(group, own, columns, ranks, arguments.panels)
            for backend, group in job.groups.items()
        }
        wrong = 0
        once_s = 0.0
        for backend, product in products.items():
            product.run(mode)
            found = product.rows()
            if arguments.plant and backend == "tutti":
                found[0, 0] += 1
            wrong = max(wrong, int((found != wanted).sum()))
            once_s = max(once_s, job.seconds(functools.partial(product.run, mode)))
        wrong = int(job.largest(wrong))
        if wrong and rank == 0:
            said = f"wrong: {wrong} elements differ from the product of one process"
            print(said, file=sys.stderr, flush=True)
        calls = max(1, min(100, int(TURN_S / job.largest(once_s))))

        def take(product: Product, mode: str = mode, calls: int = calls) -> float:
            def turn() -> None:
                for _ in range(calls):
                    product.run(mode)

            return job.seconds(turn) / calls

        turns = {backend: functools.partial(take, one) for backend, one in products.items()}
        timed = job.pairs(turns, arguments.pairs)
        shared_s = one_s / ranks if scaling == "strong" else one_s
        job.emit(
            {
                "scaling": scaling,
                "mode": mode,
                "ranks": ranks,
                "size": [rows * ranks, size, size],
                "panels": arguments.panels,
                "gathered_bytes": size * size * 4,
                "elements_that_differ": wrong,
                "is_right": wrong == 0,
                "calls": calls,
                **timed,
                "one_process_us": round(one_s * 1e6, 4),
                "efficiency": {
                    backend: round(shared_s * 1e6 / timed[f"{backend}_us"][1], 4)
                    for backend in products
                },
            }
        )


def be_a_rank(arguments: argparse.Namespace) -> None:
    """One rank; rows for each scaling and mode."""
    import torch

    job = torch_job.Job(arguments)
    torch.backends.cuda.matmul.allow_tf32 = True
    for scaling in arguments.scaling:
        measure(job, arguments, scaling)
    job.leave()


def shown(row: dict[str, Any]) -> str:
    """A row as a line."""
    low, middle, high = row["ratio"]
    other = "gloo" if "gloo_us" in row else "nccl"
    shares = row["efficiency"]
    return (
        f"{row['scaling']:8}{row['mode']:9}{row['ranks']:3}"
        f"  {'x'.join(map(str, row['size'])):20}{'equal' if row['is_right'] else 'WRONG':7}"
        f"{row['tutti_us'][1] / 1e3:10.2f}{row[f'{other}_us'][1] / 1e3:11.2f}{middle:8.2f}"
        f"  {low:.2f}..{high:.2f}  {shares['tutti']:.2f} {shares[other]:.2f}"
    )


def main() -> int:
    """Multiplies, compares, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scaling", nargs="+", choices=SCALINGS, default=list(SCALINGS))
    parser.add_argument("--size", type=int, help="of the matrices (1024 on cpu, 16384 on cuda)")
    parser.add_argument("--panels", type=int, default=4, help="all_gathers of a product (4)")
    parser.add_argument("--plant", action="store_true", help="one element of ours is made wrong")
    torch_job.add_options(parser, ranks=[1, 2], pairs=10)
    arguments = parser.parse_args()
    arguments.size = arguments.size or (16384 if arguments.device == "cuda" else 1024)
    if arguments.rank:
        be_a_rank(arguments)
        return 0
    for ranks in arguments.ranks:
        if arguments.panels < 1 or arguments.size % (ranks * arguments.panels):
            parser.error(f"--size: not a multiple of {ranks} ranks x {arguments.panels} panels")
    if not 0 < arguments.size <= SIZE_MAX:
        parser.error(f"--size: from 1 to {SIZE_MAX}")
    title = (
        "scaling  mode  ranks  size                result   tutti ms  theirs ms   ratio  quartiles"
        "   efficiency"
    )
    return torch_job.run(parser, arguments, SCHEMA, title, shown)


if __name__ == "__main__":
    sys.exit(main())
