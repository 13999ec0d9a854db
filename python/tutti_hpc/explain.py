# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti explain`: which plan a call gets, by which rule, and what else could carry it."""

from __future__ import annotations

from typing import Any

import click

from tutti_hpc import api, mpi, output, sizes, terms
from tutti_hpc.call_options import collective_argument, op_option, type_option
from tutti_hpc.errors import TuttiError
from tutti_hpc.sizes import format_bytes

RULE_NAMES = ("mpich", "openmpi")


def mpi_name(wanted: str | None) -> str:
    """The library of --mpi as rules name it; without one, of the MPI that is found first."""
    if wanted == "other":
        return ""
    if wanted in RULE_NAMES:
        return wanted
    try:
        found = mpi.find(wanted)
    except TuttiError:
        if wanted is not None:
            raise
        output.note("no MPI is found here: as with an MPI that was not measured; --mpi names one")
        return ""
    return mpi.rule_name(mpi.facts(found).version)


def usual_memory() -> str:
    """Device memory where there is a GPU."""
    devices = (api.library().machine().get("device") or {}).get("devices")
    return "device" if devices else "host"


def text(document: dict[str, Any]) -> str:
    """The explanation in words."""
    call, comm = document["call"], document["communicator"]
    size = "a size that ranks cannot know" if call["bytes"] is None else format_bytes(call["bytes"])
    what = f"{call['collective']}, {size}, {call['memory']} memory"
    if call["op"] != "none":
        what += f", {call['op']} of {call['type']}"
    rule = document["rule"]
    ccl = comm.get("ccl_name") if comm["ccl"] else f"none ({comm.get('ccl_refusal', '')})"
    rows = [
        ("call", what),
        (
            "communicator",
            f"{comm['ranks']} ranks on {comm['nodes']} nodes, "
            f"{'more' if comm['oversubscribed'] else 'not more'} than cores; "
            f"MPI: {comm['mpi_name'] or 'other'}; CCL: {ccl}",
        ),
        ("plan", click.style(document["plan"], bold=True)),
        *((f"  {name}", str(value)) for name, value in (document["parameters"] or {}).items()),
    ]
    if rule is None:
        rows.append(("rule", "none matches: the MPI library's own collective"))
    else:
        rows.append(("rule", rule["text"]))
        rows.append(("from", rule["origin"]))
    lines = [output.columns(rows)]
    for refused in document["refused"]:
        lines.append(
            f"fall-back: {refused['plan']} ({refused['rule']['origin']}): {refused['reason']}"
        )
    others = [plan for plan in document["plans"] if plan["plan"] != document["plan"]]
    lines += ["", "alternatives"]
    alternatives = [
        (plan["plan"], "possible" if plan["possible"] else plan["reason"]) for plan in others
    ]
    lines.append(output.columns(alternatives, "  "))
    return "\n".join(lines)


def records(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every plan, the chosen one first, with why the others are not possible."""
    call = {key: document["call"][key] for key in ("collective", "bytes", "memory", "op", "type")}
    comm = {key: document["communicator"][key] for key in ("ranks", "nodes")}
    plans = sorted(document["plans"], key=lambda plan: plan["plan"] != document["plan"])
    return [
        call
        | comm
        | {
            "plan": plan["plan"],
            "chosen": plan["plan"] == document["plan"],
            "possible": plan["possible"],
            "reason": plan.get("reason"),
        }
        for plan in plans
    ]


@click.command()
@collective_argument
@click.option("-b", "--bytes", "size", type=sizes.size, help="Size; absent: no rank can know it.")
@click.option("-n", "--ranks", type=click.IntRange(1), default=2, show_default=True)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--memory",
    type=click.Choice(["host", "device"]),
    show_default="device with a GPU, else host",
)
@click.option(
    "--mpi",
    "mpi_wanted",
    metavar="NAME",
    show_default="the first that is found",
    help="MPI library: mpich, openmpi, other, abi, or the path of a prefix or mpirun.",
)
@click.option("--oversubscribed", is_flag=True, help="As if a node had more ranks than cores.")
@op_option
@type_option
@click.option("--no-ccl", is_flag=True, help="As if no NCCL or RCCL were there.")
@click.option("--gpu-aware", is_flag=True, help="As if the MPI took device pointers.")
@output.form_options
def command(
    collective: str,
    size: int | None,
    ranks: int,
    nodes: int,
    memory: str | None,
    mpi_wanted: str | None,
    oversubscribed: bool,
    op: str,
    data_type: str,
    no_ccl: bool,
    gpu_aware: bool,
    form: str,
) -> None:
    """Say which plan COLLECTIVE gets and why.

    Example: tutti explain allreduce --bytes 64K --ranks 8 --nodes 2
    """
    reduction = collective in terms.REDUCTIONS
    document = api.library().explain(
        {
            "collective": collective,
            "bytes": size,
            "ranks": ranks,
            "nodes": nodes,
            "memory": memory or usual_memory(),
            "mpi_name": mpi_name(mpi_wanted),
            "oversubscribed": oversubscribed,
            "op": op if reduction else "none",
            "type": data_type if reduction else "byte",
            "ccl": not no_ccl,
            "ccl_name": "assumed",
            "mpi_device_aware": gpu_aware,
        }
    )
    output.show(
        form, text=lambda: text(document), document=document, records=lambda: records(document)
    )
