# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Measures one GPU node: plans, a tuning file made from them, and the hybrid that uses it.

  python3 bench/gpu_node.py --mpi PREFIX --out DIR [--layouts 4x1,2x1,4x2]

Writes into DIR: plans-*.json (each plan forced, every element checked; no row where it is refused),
tuning.json (`tutti tuning make` of those), hybrid-*.json (hybrid against the program's own staging
and NCCL called directly, in turns in one job, every element checked), summary.json (per size the
hybrid over the best of the two: the median of the jobs, since ranks and NCCL's threads land
differently in each). Exit status 1: a job failed, or an element was wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import results_head  # noqa: E402
from tutti_hpc import files, measure, mpi, processes, results, sizes, tuner  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402

SCHEMA = "tutti-gpu-node/2"

COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "bcast", "alltoall")


def log(text: str) -> None:
    print(f"[{time.monotonic() - START:6.1f} s] {text}", file=sys.stderr, flush=True)


def plans_of(collective: str, nodes: int) -> tuple[str, ...]:
    """Plans that can carry the collective; one that this machine refuses has no rows."""
    flat = "gamma" if nodes == 1 else "beta"
    alpha = nodes > 1 and collective in ("allreduce", "allgather", "bcast")
    # Of what one node has besides; a collective with counts is not cut into chunks.
    chunks = ("ccl-comms(4)",) if collective != "reduce_scatter" else ()
    copies = ("direct-copy",) if collective in ("allgather", "alltoall") else ()
    direct = ("direct-gamma", *copies, *chunks) if nodes == 1 else ()
    return (f"mpi-{flat}", f"ccl-{flat}", *direct) + (("mpi-alpha", "ccl-alpha") if alpha else ())


def job(args: argparse.Namespace, collective: str, ranks: int, nodes: int, **more) -> measure.Job:
    return measure.Job(
        collective=collective,
        ranks=ranks,
        begin=args.begin,
        end=args.end,
        factor=4,
        memory="device",
        time_cap_s=args.time_cap,
        virtual_nodes=nodes if nodes > 1 else 0,
        **more,
    )


def ratios(document: results.Results) -> dict[int, dict]:
    """Of one job: at each size the hybrid's plan and the latencies, p50 in microseconds."""
    by_size: dict[int, dict[str, results.Row]] = {}
    for row in document.rows:
        by_size.setdefault(row.bytes, {})["hybrid" if row.hybrid else row.plan] = row
    found = {}
    for size, rows in sorted(by_size.items()):
        if "hybrid" not in rows:
            continue
        rivals = {n: rows[n].latency_us.p50 for n in ("native", "nccl") if n in rows}
        hybrid_us = rows["hybrid"].latency_us.p50
        found[size] = {
            "plan": rows["hybrid"].plan,
            "hybrid_us": hybrid_us,
            **{f"{name}_us": value for name, value in rivals.items()},
            "over_best": hybrid_us / min(rivals.values()),
            "speedup_over_native": rivals["native"] / hybrid_us,
            "wrong": sum(row.wrong or 0 for row in rows.values()),
        }
    return found


def compare(documents: list[results.Results]) -> dict:
    """Hybrid over the best rival at every size: per job, then the median of the jobs."""
    groups: dict[tuple, list[dict]] = {}
    for document in documents:
        for size, found in ratios(document).items():
            key = (document.collective, document.ranks, document.nodes, size)
            groups.setdefault(key, []).append(found)
    rows = []
    for (collective, ranks, nodes, size), jobs in groups.items():
        row = {"collective": collective, "ranks": ranks, "nodes": nodes, "bytes": size}
        row["plan"] = jobs[0]["plan"]
        for name in ("hybrid_us", "native_us", "nccl_us", "over_best", "speedup_over_native"):
            if name in jobs[0]:
                row[name] = round(statistics.median(found[name] for found in jobs), 3)
        row["over_best_min"] = round(min(found["over_best"] for found in jobs), 3)
        row["over_best_max"] = round(max(found["over_best"] for found in jobs), 3)
        row["wrong"] = sum(found["wrong"] for found in jobs)
        rows.append(row)
    return {
        "worst_over_best": max((row["over_best"] for row in rows), default=None),
        "over_1.10": sum(row["over_best"] > 1.10 for row in rows),
        "wrong": sum(row["wrong"] for row in rows),
        "rows": rows,
    }


def summary_text(summary: dict) -> str:
    """JSON, one row to a line."""
    head = json.dumps({**summary, "rows": []}, indent=2)
    rows = ",\n".join("    " + json.dumps(row) for row in summary["rows"])
    return head.replace('"rows": []', f'"rows": [\n{rows}\n  ]') + "\n"


def measured(
    args: argparse.Namespace,
    library: mpi.Mpi,
    what: str,
    repeats: int,
    layouts: list,
    plans_for,
    **more,
) -> tuple[list[results.Results], int]:
    """Every collective and layout, `repeats` jobs each, and how many jobs failed.

    Saved as WHAT-<ranks>r<nodes>n.json.
    """
    found, failed = [], 0
    for ranks, nodes in layouts:
        documents = []
        for repeat in range(repeats):
            for collective in args.collectives.split(","):
                log(f"{what} {collective}, {ranks} ranks on {nodes} node(s), job {repeat + 1}")
                plans = plans_for(collective, nodes)
                try:
                    one = job(args, collective, ranks, nodes, plans=plans, **more)
                    documents.append(measure.run(one, library))
                except TuttiError as error:
                    log(f"FAILED: {error}")
                    failed += 1
        out = args.out / f"{what}-{ranks}r{nodes}n.json"
        earlier = results.load(out) if args.add and out.exists() else []
        results.save([*earlier, *documents], out)
        found += documents
    return found, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpi", required=True, help="prefix of the MPI, or mpich")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument(
        "--layouts", default="4x1,2x1,4x2", help="RANKSxNODES,...; several nodes are virtual ones"
    )
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--begin", type=sizes.parse_bytes, default=4)
    parser.add_argument("--end", type=sizes.parse_bytes, default=256 << 20)
    parser.add_argument("--time-cap", type=float, default=0.4, help="seconds per size and job")
    parser.add_argument("--repeats", type=int, default=3, help="jobs of each measurement")
    parser.add_argument("--plan-repeats", type=int, help="same, of each plan alone")
    parser.add_argument("--add", action="store_true", help="to the jobs that are in DIR already")
    parser.add_argument("--tuning", type=Path, help="use this file, measure no plans")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    library = mpi.find(args.mpi)
    layouts = [tuple(map(int, layout.split("x"))) for layout in args.layouts.split(",") if layout]
    tuning, failed = args.tuning, 0
    if tuning is None:
        tuning = args.out / "tuning.json"
        repeats = args.plan_repeats or args.repeats
        documents, failed = measured(args, library, "plans", repeats, layouts, plans_of, check=True)
        made = tuner.make(documents)
        tuner.check(made)
        files.write(tuning, json.dumps(made, indent=2) + "\n")
    failed += measured(
        args,
        library,
        "hybrid",
        args.repeats,
        layouts,
        lambda *_: ("native", "nccl", "hybrid"),
        check=True,
        settings={"TUTTI_TUNING_FILE": str(tuning.resolve())},
    )[1]
    # Of all layouts there are, also those of earlier runs.
    jobs = sorted(args.out.glob("hybrid-*.json"))
    summary = results_head.head(SCHEMA)
    summary |= compare([document for file in jobs for document in results.load(file)])
    files.write(args.out / "summary.json", summary_text(summary))
    for row in summary["rows"]:
        print(
            f"{row['collective']:15} {row['ranks']}r{row['nodes']}n {row['bytes']:>10} "
            f"{row['plan']:10} hybrid {row['hybrid_us']:10.1f} "
            f"native {row.get('native_us', 0):10.1f} "
            f"nccl {row.get('nccl_us', 0):10.1f} over best {row['over_best']:.3f} "
            f"({row['over_best_min']:.3f} to {row['over_best_max']:.3f})"
        )
    print(
        f"worst over best {summary['worst_over_best']}, over 1.10: {summary['over_1.10']} of "
        f"{len(summary['rows'])}, wrong {summary['wrong']}, "
        f"failed jobs: {failed}"
    )
    return 1 if failed or summary["wrong"] else 0


START = time.monotonic()
if __name__ == "__main__":
    try:
        with processes.signals_as_exits():
            sys.exit(main())
    except TuttiError as error:
        log(f"FAILED: {error}")
        sys.exit(1)
