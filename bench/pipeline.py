# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Does a call in chunks pay? Allreduce whole, on several streams, on several communicators.

    python bench/pipeline.py --ranks 2 --out DIR [--mpi mpich] [--end 512M]
    python bench/pipeline.py --draw DIR/pipeline-2r1n.json

The experiment of the MPI4AI paper's figure 7: floats, 4 B to 512 MB, the CCL's flat plan against
`ccl-streams(K)` and `ccl-comms(K)` for K = 2 and 4, in turns in one job, every element checked.
Writes DIR/pipeline-<ranks>r<nodes>n.json and the figure beside it; --draw makes the figure of
results from a machine without matplotlib. Latencies are medians in microseconds, over the jobs the
median again; `over_default` is a plan's latency over that of the call that is not cut, so a
pipeline wins where it is below 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import msgspec  # noqa: E402
import results_head  # noqa: E402
from tutti_hpc import files, measure, mpi, prediction_figure, processes, results, sizes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402
from tutti_hpc.figure import MARKERS, PALETTE  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = "tutti-pipeline/1"
# Less is what two runs of one plan differ by.
WIN = 0.95

Row = dict[str, Any]


def plans(nodes: int, chunks: list[int]) -> list[str]:
    """The plan that is not cut first."""
    whole = "ccl-gamma" if nodes == 1 else "ccl-beta"
    return [whole, *(f"{kind}({k})" for kind in ("ccl-streams", "ccl-comms") for k in chunks)]


def measured(arguments: argparse.Namespace) -> results.Results:
    """Of all jobs, as one document of medians."""
    job = measure.Job(
        collective="allreduce",
        ranks=arguments.ranks,
        begin=arguments.begin,
        end=arguments.end,
        factor=arguments.factor,
        time_cap_s=arguments.time_cap,
        memory="device",
        plans=tuple(plans(arguments.nodes, arguments.chunks)),
        check=arguments.check,
        virtual_nodes=arguments.nodes if arguments.nodes > 1 else 0,
        # A plan that is refused must not be measured as what stands in for it.
        settings={"TUTTI_STRICT": "1"},
    )
    library = mpi.find(arguments.mpi)
    documents = []
    for repeat in range(arguments.repeats):
        print(f"job {repeat + 1} of {arguments.repeats}", file=sys.stderr, flush=True)
        documents.append(measure.run(job, library))
    return results.merge(documents)[0]


def compare(document: results.Results, names: list[str]) -> list[Row]:
    """One row for each size: the plans' latencies, and their ratios to the first plan's."""
    by_size: dict[int, dict[str, results.Row]] = {}
    for row in document.rows:
        by_size.setdefault(row.bytes, {})[row.plan] = row
    compared = []
    for size, found in sorted(by_size.items()):
        whole_us = found[names[0]].latency_us.p50
        compared.append(
            {
                "bytes": size,
                "p50_us": {name: round(found[name].latency_us.p50, 3) for name in names},
                "over_default": {
                    name: round(found[name].latency_us.p50 / whole_us, 3) for name in names[1:]
                },
                "wrong": None
                if any(row.wrong is None for row in found.values())
                else sum(row.wrong or 0 for row in found.values()),
            }
        )
    return compared


def wins(rows: list[Row], names: list[str]) -> dict[str, list[int]]:
    """Sizes at which each pipeline is faster by more than noise."""
    return {
        name: [row["bytes"] for row in rows if row["over_default"][name] < WIN]
        for name in names[1:]
    }


def draw(document: dict[str, Any]) -> Figure:
    """Latencies, and beside them the ratios to the call that is not cut."""
    rows: list[Row] = document["rows"]
    names = list(rows[0]["p50_us"])
    gpus = document["machine"]["gpus"] or ["no GPU"]
    title = f"allreduce, {document['ranks']} ranks on {document['nodes']} node(s), {gpus[0]}"
    drawn, (latency, ratio) = prediction_figure.panels([6.0, 6.0])
    at = [row["bytes"] for row in rows]
    for index, name in enumerate(names):
        style: dict[str, Any] = {"color": PALETTE[index], "marker": MARKERS[index]}
        style |= {"linewidth": 1.4, "markersize": 4, "label": name}
        latency.plot(at, [row["p50_us"][name] for row in rows], **style)
        if index > 0:
            ratio.plot(at, [row["over_default"][name] for row in rows], **style)
    ratio.axhline(1, color=PALETTE[0], linewidth=1.4, label=names[0])
    latency.set_yscale("log")
    latency.set_ylabel("median latency (µs)")
    latency.set_title(title)
    ratio.set_ylabel(f"latency over {names[0]}'s")
    ratio.set_ylim(bottom=0)
    ticks = at[:: max(1, len(at) // 9)]
    for axes in (latency, ratio):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("message size (bytes)")
        axes.set_xticks(ticks, [sizes.format_bytes(size) for size in ticks])
        axes.minorticks_off()
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        axes.legend(fontsize=9)
    drawn.tight_layout()
    return drawn


def save_figure(path: Path) -> None:
    """The figure of a results file, beside it."""
    draw(results_head.load(path, SCHEMA)).savefig(path.with_suffix(".png"), dpi=150)


def chunk_counts(text: str) -> list[int]:
    """`2,4` -> its numbers."""
    return [int(part) for part in text.split(",")]


def main() -> int:
    """Measures, prints, writes; 1 when an element was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="one GPU each (2)")
    parser.add_argument("--nodes", type=int, default=1, help="virtual ones on this machine (1)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="directory of the results")
    what.add_argument("--draw", type=Path, help="results to draw; nothing is measured")
    parser.add_argument("--mpi", help="mpich, openmpi, abi, or a prefix")
    parser.add_argument("--chunks", type=chunk_counts, default=[2, 4], help="K of each (2,4)")
    parser.add_argument("--begin", type=sizes.parse_bytes, default=4)
    parser.add_argument("--end", type=sizes.parse_bytes, default=512 << 20)
    parser.add_argument("--factor", type=int, default=2, help="from one size to the next (2)")
    parser.add_argument("--time-cap", type=float, default=0.4, help="seconds per size and job")
    parser.add_argument("--repeats", type=int, default=3, help="jobs (3)")
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()

    if arguments.draw:
        try:
            save_figure(arguments.draw)
        except TuttiError as error:
            error.show()
            return error.exit_code
        return 0
    names = plans(arguments.nodes, arguments.chunks)
    document = measured(arguments)
    rows = compare(document, names)
    head = results_head.head(SCHEMA)
    head["versions"] |= msgspec.to_builtins(document.versions)
    head["machine"] = msgspec.to_builtins(document.machine)
    won = wins(rows, names)
    found = {
        "ranks": document.ranks,
        "nodes": document.nodes,
        "type": document.type,
        "op": document.op,
        "jobs": arguments.repeats,
        "win_below": WIN,
        "wins_bytes": won,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"pipeline-{document.ranks}r{document.nodes}n.json"
    text = json.dumps(head | found | {"rows": []}, indent=2)
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    files.write(path, text.replace('"rows": []', f'"rows": [\n{lines}\n  ]') + "\n")
    try:
        save_figure(path)
    except TuttiError as error:
        print(f"no figure: {error.format_message()}", file=sys.stderr)

    for row in rows:
        ratios = "  ".join(f"{name} {row['over_default'][name]:6.3f}" for name in names[1:])
        whole = f"{names[0]} {row['p50_us'][names[0]]:10.1f} us"
        print(f"{sizes.format_bytes(row['bytes']):>6}  {whole}  {ratios}")
    for name in names[1:]:
        where = ", ".join(map(sizes.format_bytes, won[name])) or "nowhere"
        print(f"{name} wins by more than {100 - 100 * WIN:.0f} %: {where}")
    wrong = document.wrong()
    print(f"wrong elements: {wrong if arguments.check else 'not checked'}; {path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    with processes.signals_as_exits():
        sys.exit(main())
