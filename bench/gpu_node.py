# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Measures one GPU node: plans, a tuning file made from them, and the hybrid that uses it.

  python3 bench/gpu_node.py --mpi PREFIX --out DIR [--ranks 4,2] [--virtual-nodes 2]

Writes into DIR: plans-*.json (each plan forced), tuning.json (`tutti tuning make` of those),
hybrid-*.json (hybrid against the program's own staging and NCCL called directly, in turns in one
job, every element checked), summary.json (what is promised and what was measured).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from tutti import measure, mpi, results, sizes, tuner
from tutti.errors import TuttiError

COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "bcast", "alltoall")


def log(text: str) -> None:
    print(f"[{time.monotonic() - START:6.1f} s] {text}", file=sys.stderr, flush=True)


def plans_of(collective: str, nodes: int) -> tuple[str, ...]:
    """Plans that can carry the collective: a refused one would measure what stands in for it."""
    flat = "gamma" if nodes == 1 else "beta"
    alpha = nodes > 1 and collective in ("allreduce", "allgather", "bcast")
    return (f"mpi-{flat}", f"ccl-{flat}") + (("mpi-alpha", "ccl-alpha") if alpha else ())


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


def compare(documents: list[results.Results]) -> dict:
    """Hybrid over the best rival at every size."""
    rows = []
    for document in documents:
        by_size: dict[int, dict[str, results.Row]] = {}
        for row in document.rows:
            by_size.setdefault(row.bytes, {})["hybrid" if row.hybrid else row.plan] = row
        for size, found in sorted(by_size.items()):
            if "hybrid" not in found:
                continue
            rivals = {
                name: found[name].latency_us.p50 for name in ("native", "nccl") if name in found
            }
            hybrid = found["hybrid"]
            rows.append(
                {
                    "collective": document.collective,
                    "ranks": document.ranks,
                    "nodes": document.nodes,
                    "bytes": size,
                    "plan": hybrid.plan,
                    "hybrid_us": hybrid.latency_us.p50,
                    **{f"{name}_us": value for name, value in rivals.items()},
                    "over_best": hybrid.latency_us.p50 / min(rivals.values()),
                    "speedup_over_native": rivals["native"] / hybrid.latency_us.p50,
                    "wrong": sum(row.wrong or 0 for row in found.values()),
                }
            )
    return {
        "schema": "tutti-gpu-node/1",
        "rows": rows,
        "worst_over_best": max((row["over_best"] for row in rows), default=None),
        "over_1.10": sum(row["over_best"] > 1.10 for row in rows),
        "wrong": sum(row["wrong"] for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpi", required=True, help="prefix of the MPI, or mpich")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--ranks", default="4,2")
    parser.add_argument("--virtual-nodes", type=int, default=2)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--begin", type=sizes.parse_bytes, default=4)
    parser.add_argument("--end", type=sizes.parse_bytes, default=256 << 20)
    parser.add_argument("--time-cap", type=float, default=1.5, help="seconds per size")
    parser.add_argument("--tuning", type=Path, help="use this file, measure no plans")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    library = mpi.find(args.mpi)
    layouts = [(int(ranks), 1) for ranks in args.ranks.split(",")]
    if args.virtual_nodes > 1:
        layouts.append((layouts[0][0], args.virtual_nodes))
    collectives = args.collectives.split(",")

    tuning = args.tuning
    if tuning is None:
        measured = []
        for ranks, nodes in layouts:
            documents = []
            for collective in collectives:
                log(f"plans of {collective}, {ranks} ranks on {nodes} node(s)")
                try:
                    documents.append(
                        measure.run(
                            job(args, collective, ranks, nodes, plans=plans_of(collective, nodes)),
                            library,
                        )
                    )
                except TuttiError as error:
                    log(f"FAILED: {error}")
            results.save(documents, args.out / f"plans-{ranks}r{nodes}n.json")
            measured += documents
        tuning = args.out / "tuning.json"
        tuning.write_text(json.dumps(tuner.make(measured), indent=2) + "\n")

    hybrid = []
    for ranks, nodes in layouts:
        documents = []
        for collective in collectives:
            log(f"hybrid {collective}, {ranks} ranks on {nodes} node(s)")
            try:
                documents.append(
                    measure.run(
                        job(
                            args,
                            collective,
                            ranks,
                            nodes,
                            plans=("native", "nccl", "hybrid"),
                            check=True,
                            settings={"TUTTI_TUNING_FILE": str(tuning.resolve())},
                        ),
                        library,
                    )
                )
            except TuttiError as error:
                log(f"FAILED: {error}")
        results.save(documents, args.out / f"hybrid-{ranks}r{nodes}n.json")
        hybrid += documents
        (args.out / "summary.json").write_text(json.dumps(compare(hybrid), indent=1) + "\n")
    summary = compare(hybrid)
    for row in summary["rows"]:
        print(
            f"{row['collective']:15} {row['ranks']}r{row['nodes']}n {row['bytes']:>10} "
            f"{row['plan']:10} hybrid {row['hybrid_us']:10.1f} "
            f"native {row.get('native_us', 0):10.1f} "
            f"nccl {row.get('nccl_us', 0):10.1f} over best {row['over_best']:.3f}"
        )
    print(
        f"worst over best {summary['worst_over_best']}, over 1.10: {summary['over_1.10']} of "
        f"{len(summary['rows'])}, wrong {summary['wrong']}"
    )


START = time.monotonic()
if __name__ == "__main__":
    main()
