# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Serving of a mixture of experts over all_to_all_single: backend tutti against gloo or NCCL.

    python bench/applications/moe.py [--phases prefill decode] [--skew 1.0] [-o results.json]
    python bench/applications/moe.py --device cuda --ranks 2 -o results.json

Each rank has some of the experts, and serves requests of its own. A layer sends each token to the
ranks of its --top experts (dispatch), which apply them, and adds what comes back (combine). Both
are all_to_all_single with unequal splits, whose sizes the ranks exchange first. Popularity of the
experts follows Zipf's law with exponent --skew: a few are hot, and so are their ranks. Layers have
no attention, and share one set of weights. This is the workload of section 6.2 of the UCCL paper.

A seeded trace says which tokens a rank has in a step. In phase `prefill` a step has one request of
a rank, with all tokens of its prompt. In phase `decode` each request that a rank serves has one
token in a step, and the next request begins where one ends. A request's latency is the time of its
steps. `busiest_rank`: the most rows that a rank receives, by the average. The scale `full` has
layers of DeepSeek-V3's shape, with as many experts as few GPUs have in a large deployment.

Exchanges move bits, and sums have a fixed order: the outputs of all steps are compared bit by bit,
then the trace is timed in pairs of turns (bench/torch_job.py); times are of a step.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import itertools
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench")]

import torch_job  # noqa: E402

SCHEMA = "tutti-moe/1"
PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class Shape:
    """`width`: of an expert; `prompt`, `answer`: tokens of a request, median and largest."""

    hidden: int = 256
    width: int = 128
    layers: int = 2
    prompt: tuple[int, int] = (96, 512)
    answer: tuple[int, int] = (8, 32)
    running: int = 8  # Requests that a rank decodes at a time.


SHAPES = {
    "small": Shape(),
    "full": Shape(7168, 2048, 4, prompt=(1024, 4096), answer=(32, 128), running=64),
}
# Defaults by scale.
EXPERTS = {"small": 16, "full": 32}
TOP = {"small": 4, "full": 8}
REQUESTS = {"small": 16, "full": 64}


# ---- The trace ----------------------------------------------------------------------------------


def trace(
    phase: str, shape: Shape, ranks: int, requests: int, seed: int
) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Tokens of each rank in each step, and each request's first step and the one after its last.

    A rank starts its next request in the first step that has room for it.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    median, largest = shape.prompt if phase == "prefill" else shape.answer
    drawn = torch.randn(ranks, requests, generator=generator).mul(0.7).exp().mul(median)
    spans = []
    loads: list[dict[int, int]] = [{} for _ in range(ranks)]
    for load, lengths in zip(loads, drawn.int().clamp(1, largest).tolist()):
        free = [0] * (1 if phase == "prefill" else shape.running)
        for length in lengths:
            steps, tokens = (1, length) if phase == "prefill" else (length, 1)
            first = heapq.heappop(free)
            heapq.heappush(free, first + steps)
            spans.append((first, first + steps))
            for step in range(first, first + steps):
                load[step] = load.get(step, 0) + tokens
    steps = max(end for _, end in spans)
    return [[load.get(step, 0) for load in loads] for step in range(steps)], spans


class Router:
    """Draws the experts of tokens, the hot ones of each layer more often."""

    def __init__(self, job: torch_job.Job, arguments: argparse.Namespace) -> None:
        import torch

        generator = torch.Generator().manual_seed(arguments.seed)
        places = torch.arange(1, arguments.experts + 1)
        self.popularity = [
            -arguments.skew * places[torch.randperm(len(places), generator=generator)].log()
            for _ in range(SHAPES[arguments.scale].layers)
        ]
        self.generator = torch.Generator().manual_seed(arguments.seed + 1 + job.rank)
        self.job = job
        self.top = arguments.top

    def draw(self, tokens: int) -> list[tuple[Any, Any]]:
        """For each layer the experts of each token and their weights."""
        import torch

        found = []
        for popularity in self.popularity:
            noise = torch.empty(tokens, len(popularity)).exponential_(generator=self.generator)
            # Gumbel's trick: the largest of these are draws without replacement.
            scores, experts = (popularity - noise.log()).topk(self.top)
            weights = scores.softmax(1).unsqueeze(2)
            found.append((experts.to(self.job.device), weights.to(self.job.device)))
        return found


# ---- The model ----------------------------------------------------------------------------------


class Experts:
    """Those of this rank: two products with a gate between."""

    def __init__(self, job: torch_job.Job, shape: Shape, experts: int, dtype: Any) -> None:
        import torch

        self.experts = experts
        self.own = experts // job.ranks
        generator = torch.Generator(job.device).manual_seed(job.rank)
        normal = functools.partial(torch.randn, generator=generator, device=job.device, dtype=dtype)
        self.up = normal(self.own, shape.hidden, 2 * shape.width) * shape.hidden**-0.5
        self.down = normal(self.own, shape.width, shape.hidden) * shape.width**-0.5

    def apply(self, rows: Any, loads: list[int]) -> Any:
        """Rows are in the order of their experts; `loads`: rows of each."""
        import torch

        results = torch.empty_like(rows)
        parts = zip(rows.split(loads), results.split(loads), self.up, self.down)
        for part, result, up, down in parts:
            if len(part):
                gate, value = (part @ up).chunk(2, 1)
                torch.mm(torch.nn.functional.silu(gate) * value, down, out=result)
        return results


class Server:
    """This rank's part of the model by one group."""

    def __init__(self, group: Any, experts: Experts) -> None:
        self.group = group
        self.experts = experts
        self.received_rows = 0
        self.is_planted = False  # The next row that arrives is made wrong.

    def exchange(self, rows: Any, sent: list[int], received: list[int]) -> Any:
        """Rows to and from each rank."""
        import torch.distributed as dist

        output = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(output, rows, received, sent, group=self.group)
        return output

    def layer(self, tokens: Any, chosen: Any, weights: Any) -> Any:
        """What the experts make of tokens."""
        import torch
        import torch.distributed as dist

        own = self.experts.own
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.experts.experts)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        both = torch.stack([counts, arriving]).view(2, -1, own).tolist()
        sent, received = ([sum(of_rank) for of_rank in side] for side in both)
        loads = [sum(of_expert) for of_expert in zip(*both[1])]

        rows = self.exchange(tokens[order // chosen.shape[1]], sent, received)
        if self.is_planted and len(rows):
            rows[0] += 1
            self.is_planted = False
        self.received_rows += len(rows)
        # Rows arrive by rank, and from each by expert.
        places = torch.arange(own, device=tokens.device).repeat(len(sent))
        by_expert = places.repeat_interleave(arriving, output_size=len(rows)).argsort(stable=True)
        results = torch.empty_like(rows)
        results[by_expert] = self.experts.apply(rows[by_expert], loads)
        back = self.exchange(results, received, sent)
        of_tokens = torch.empty_like(back)
        of_tokens[order] = back
        of_tokens = of_tokens.view(*chosen.shape, tokens.shape[1])
        return (of_tokens * weights.to(back.dtype)).sum(1)

    def step(self, tokens: Any, routes: list[tuple[Any, Any]]) -> Any:
        """The tokens after all layers."""
        import torch

        for chosen, weights in routes:
            tokens = tokens + self.layer(tokens, chosen, weights)
            tokens = torch.nn.functional.rms_norm(tokens, tokens.shape[1:])
        return tokens


# ---- In a rank ----------------------------------------------------------------------------------


def elements_that_differ(ours: Any, theirs: Any) -> int:
    """By their bits; what is no number is wrong, too."""
    import torch

    whole = torch.int32 if ours.element_size() == 4 else torch.int16
    return int(((ours.view(whole) != theirs.view(whole)) | ~ours.isfinite()).sum())


def latencies(times: list[list[float]], spans: list[tuple[int, int]]) -> dict[str, float]:
    """Of the requests of some turns, us; `times`: of the steps of each turn by the slowest rank."""
    import torch
    import torch.distributed as dist

    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    found = []
    for steps in (slowest * 1e6).tolist():
        until = [0.0, *itertools.accumulate(steps)]
        found += [until[end] - until[first] for first, end in spans]
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1)}


def measure(
    job: torch_job.Job, arguments: argparse.Namespace, experts: Experts, phase: str
) -> dict[str, Any]:
    """The row of a phase."""
    import torch

    shape = SHAPES[arguments.scale]
    loads, spans = trace(phase, shape, job.ranks, arguments.requests, arguments.seed)
    router = Router(job, arguments)
    own = [load[job.rank] for load in loads]
    routes = [router.draw(tokens) for tokens in own]
    generator = torch.Generator(job.device).manual_seed(job.rank)
    states = torch.randn(max(own), shape.hidden, generator=generator, device=job.device)
    states = states.to(experts.up.dtype)
    servers = {backend: Server(group, experts) for backend, group in job.groups.items()}

    servers["tutti"].is_planted = arguments.plant
    wrong = 0
    for tokens, of_step in zip(own, routes):
        outputs = (server.step(states[:tokens], of_step) for server in servers.values())
        wrong += elements_that_differ(*outputs)
    wrong = int(job.largest(wrong))
    if wrong and job.rank == 0:
        print(f"wrong: {phase}: {wrong} elements differ", file=sys.stderr, flush=True)
    busiest = job.largest(servers["tutti"].received_rows)

    times: dict[str, list[list[float]]] = {backend: [] for backend in servers}

    def turn(backend: str) -> float:
        step = servers[backend].step
        times[backend].append(
            [
                job.seconds(functools.partial(step, states[:tokens], of_step))
                for tokens, of_step in zip(own, routes)
            ]
        )
        return sum(times[backend][-1]) / len(own)

    timed = job.pairs({name: functools.partial(turn, name) for name in servers}, arguments.pairs)
    total = sum(map(sum, loads))
    rows = total * arguments.top * shape.layers
    return {
        "phase": phase,
        "scale": arguments.scale,
        "ranks": job.ranks,
        "experts": experts.experts,
        "top": arguments.top,
        "skew": arguments.skew,
        "hidden": shape.hidden,
        "layers": shape.layers,
        "requests": len(spans),
        "steps": len(loads),
        "tokens": total,
        "dispatched_bytes": rows * shape.hidden * states.element_size(),
        "busiest_rank": round(busiest * job.ranks / rows, 3),
        "elements_that_differ": wrong,
        "is_right": wrong == 0,
        **timed,
        "request_us": {backend: latencies(times[backend], spans) for backend in servers},
        "tokens_per_s": {
            backend: round(total / len(loads) / timed[f"{backend}_us"][1] * 1e6)
            for backend in servers
        },
    }


def be_a_rank(arguments: argparse.Namespace) -> None:
    """One rank; a row for each phase."""
    import torch

    job = torch_job.Job(arguments)
    dtype = torch.bfloat16 if job.is_cuda else torch.float32
    experts = Experts(job, SHAPES[arguments.scale], arguments.experts, dtype)
    with torch.no_grad():
        for phase in arguments.phases:
            job.emit(measure(job, arguments, experts, phase))
    job.leave()


# ---- The command --------------------------------------------------------------------------------


def shown(row: dict[str, Any]) -> str:
    """A row as lines."""
    low, middle, high = row["ratio"]
    lines = [
        f"{row['phase']:9}{row['ranks']:3}{row['requests']:9}{row['tokens']:8}"
        f"{row['busiest_rank']:9.2f}  {'equal' if row['is_right'] else 'WRONG'}"
        f"  theirs / ours {middle:.2f}  {low:.2f}..{high:.2f}"
    ]
    for backend, of_requests in row["request_us"].items():
        lines.append(
            f"  {backend:6} request p50 {of_requests['p50'] / 1e3:.2f} ms"
            f"  p99 {of_requests['p99'] / 1e3:.2f} ms, {row['tokens_per_s'][backend]} tokens/s"
        )
    return "\n".join(lines)


def main() -> int:
    """Serves, compares, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    add("--scale", choices=tuple(SHAPES), help="(small on cpu, full on cuda)")
    add("--experts", type=int, help="of all ranks (small 16, full 32)")
    add("--top", type=int, help="experts of a token (small 4, full 8)")
    add("--skew", type=float, default=1.0, help="0: no expert is hot (1.0)")
    add("--requests", type=int, help="of each rank (small 16, full 64)")
    add("--seed", type=int, default=1, help="of the trace (1)")
    add("--plant", action="store_true", help="one row that arrives at ours is made wrong")
    torch_job.add_options(parser, ranks=[2], pairs=10)
    arguments = parser.parse_args()
    arguments.scale = arguments.scale or ("full" if arguments.device == "cuda" else "small")
    arguments.experts = arguments.experts or EXPERTS[arguments.scale]
    arguments.top = arguments.top or TOP[arguments.scale]
    arguments.requests = arguments.requests or REQUESTS[arguments.scale]
    if arguments.rank:
        be_a_rank(arguments)
        return 0
    if any(arguments.experts % ranks for ranks in arguments.ranks):
        parser.error("--experts: a multiple of each of --ranks")
    if not 1 <= arguments.top <= arguments.experts:
        parser.error("--top: from 1 to --experts")
    if arguments.requests < 2:
        parser.error("--requests: at least 2")
    title = "phase  ranks requests  tokens  busiest  result"
    return torch_job.run(parser, arguments, SCHEMA, title, shown)


if __name__ == "__main__":
    sys.exit(main())
