# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti schedule`: the algorithms there are, and the proof that one is right."""

from __future__ import annotations

import sys

import click

from tutti_hpc import api, output
from tutti_hpc.errors import TuttiError


@click.group()
def command() -> None:
    """List our algorithms, or prove one on a layout."""


@command.command("list")
@click.argument("collective", required=False)
@output.form_options
def list_command(collective: str | None, form: str) -> None:
    """Algorithms by collective; their names are plans (schedule:NAME)."""
    found = [
        {"collective": a["collective"], "algorithm": a["name"], "summary": a["summary"]}
        for a in api.library().algorithms()
        if not a["simulated_only"] and collective in (None, a["collective"])
    ]
    if not found:
        raise click.UsageError(f"{collective}: no algorithm of ours; leave it out to see all")
    heading = ["collective", "algorithm", "what it does"]
    output.show(
        form,
        text=lambda: output.columns([heading, *(list(row.values()) for row in found)]),
        document=found,
        records=lambda: found,
    )


def ranks_per_node(text: str) -> list[int]:
    """`5,4,3` or `4x8` (four nodes of eight ranks)."""
    try:
        if "x" in text:
            nodes, ranks = map(int, text.split("x"))
            found = [ranks] * nodes
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.UsageError(f"--layout {text}: write ranks per node, 5,4,3 or 4x8")
    return found


@command.command("check")
@click.argument("collective")
@click.option("--algorithm", "-a", default="all", help="A name of `tutti schedule list`, or all.")
@click.option("--layout", default="2x4", show_default=True, help="5,4,3 or NODESxRANKS.")
@click.option("--sockets", default=1, show_default=True, help="Sockets per node.")
@click.option("--count", default=16, show_default=True, help="Elements of a block.")
@click.option("--root", default=0, show_default=True)
@click.option("--radix", default=0, help="Of k-nomial trees; 0: the algorithm's own.")
@click.option("--segments", default=0, help="Parts of every step; 0: the algorithm's own.")
@click.option("--in-place", is_flag=True, help="Input and output as MPI_IN_PLACE has them.")
@click.option("--rank", type=int, help="Print what this rank does.")
@output.form_options
def check_command(
    collective: str,
    algorithm: str,
    layout: str,
    sockets: int,
    count: int,
    root: int,
    radix: int,
    segments: int,
    in_place: bool,
    rank: int | None,
    form: str,
) -> None:
    """Prove an algorithm: no deadlock, no race, and exactly what the collective means.

    Every rank's program is generated and carried out on symbols. Prints the longest chain of
    messages, what the busiest rank sends and the busiest node sends to others, and the scratch
    that a rank needs, each beside its closed formula (docs/algorithms.md). Exits with 1 when one
    is wrong.
    """
    library = api.library()
    names = [
        a["name"]
        for a in library.algorithms()
        if a["collective"] == collective and not a["simulated_only"]
    ]
    query = {
        "collective": collective,
        "nodes": ranks_per_node(layout),
        "sockets": sockets,
        "count": count,
        "root": root,
        "radix": radix,
        "segments": segments,
        "in_place": in_place,
    }
    if rank is not None:
        query["rank"] = rank
    if algorithm != "all":
        names = [algorithm]
    if not names:
        raise TuttiError(f"{collective}: no algorithm of ours; see `tutti schedule list`")
    answers = {name: library.check_schedule(query | {"algorithm": name}) for name in names}
    output.show(
        form, text=lambda: text(answers), document=answers, records=lambda: records(answers)
    )
    if any(answer.get("ok") is False for answer in answers.values()):
        sys.exit(1)


# Column and key of what is counted and has a formula.
_COSTS = {
    "rounds": "rounds",
    "sent": "sent_max",
    "node-out": "node_out_max",
    "scratch": "scratch_max",
}


def records(answers: dict[str, api.Document]) -> list[dict[str, object]]:
    """One for each algorithm; one for each step where a rank's are asked for."""
    found: list[dict[str, object]] = []
    for name, answer in answers.items():
        whole = {key: value for key, value in answer.items() if key != "steps"}
        whole["errors"] = "; ".join(answer.get("errors", []))
        steps = [{"step": step} for step in answer.get("steps", [])]
        found += [{"algorithm": name} | whole | step for step in steps or [{}]]
    return found


def text(answers: dict[str, api.Document]) -> str:
    """The verdicts for people."""
    rows = [["algorithm", "verdict", *_COSTS, "messages", "why"]]
    for name, answer in answers.items():
        if "refusal" in answer:
            rows.append([name, "refused", *[""] * (len(_COSTS) + 1), answer["refusal"]])
            continue
        formula = answer.get("formula")
        sign = ("=" if formula["exact"] else "<=") if formula else ""
        rows.append(
            [
                name,
                "right" if answer["ok"] else "WRONG",
                *(
                    f"{answer[key]}" + (f" {sign} {formula[key]}" if formula else "")
                    for key in _COSTS.values()
                ),
                str(answer["messages_max"]),
                "; ".join(answer["errors"][:2]),
            ]
        )
    lines = [output.columns(rows)]
    for name, answer in answers.items():
        for step in answer.get("steps", []):
            after = ", ".join(map(str, step["after"]))
            lines.append(f"{name}: {step['text']}" + (f" after {after}" if after else ""))
    return "\n".join(lines)
