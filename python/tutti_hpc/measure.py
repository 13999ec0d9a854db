# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the measured program and turns its lines into a results document."""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from tutti_hpc import __version__, api, launch, machine, mpi, net_ranks, paths, processes, terms
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import lifetime, state
from tutti_hpc.results import Latency, Results, Row, Versions

# Plans of schedules over our own transport: net:NAME, or net:NAME(SEGMENTS).
NET = "net:"

# Info keys of a communicator: what it asks for, what its last call used.
PLAN_KEY = "tutti_plan"
PLAN_USED_KEY = "tutti_plan_used"

VIRTUAL_NODES = "TUTTI_VIRTUAL_NODES"


@dataclass(frozen=True)
class Job:
    """One measurement: a collective over a range of sizes for several plans."""

    collective: str
    ranks: int
    begin: int = 4
    end: int = 1 << 20
    factor: int = 2
    iterations: int | None = None
    warmup: int | None = None
    time_cap_s: float | None = None
    memory: str = "host"
    type: str = "float32"
    op: str = "sum"
    plans: tuple[str, ...] = ("native", "hybrid")
    check: bool = False
    virtual_nodes: int = 0
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def net_plans(self) -> tuple[str, ...]:
        """Those that need no MPI library."""
        return tuple(plan for plan in self.plans if plan.startswith(NET))

    @property
    def mpi_plans(self) -> tuple[str, ...]:
        """The others."""
        return tuple(plan for plan in self.plans if not plan.startswith(NET))

    @property
    def nodes(self) -> int:
        """Nodes as selection sees them on one machine."""
        if self.virtual_nodes:
            return self.virtual_nodes
        text = os.environ.get(VIRTUAL_NODES) or "0"
        sizes = text.split(",")
        if not all(re.fullmatch(r"\s*[0-9]+\s*", size) for size in sizes):
            raise TuttiError(
                f"{VIRTUAL_NODES}={text}: neither a number of nodes nor the ranks of each, as in "
                "2,2; remedy: correct or unset it"
            )
        return max(1, int(sizes[0])) if len(sizes) == 1 else len(sizes)


@dataclass(frozen=True)
class LabJob:
    """A job that runs in a lab instead of on this machine itself.

    `striped`: each rank uses all rails, not only its own.
    """

    place: state.Place
    ranks_per_node: int
    striped: bool = False


@dataclass(frozen=True)
class Variant:
    """A communicator of the measured program: its name there, its hint, what rows call it."""

    name: str
    plan: str
    hint: str | None


def query(job: Job, size_bytes: int | None) -> dict[str, Any]:
    """The question for `explain` that describes a job's call."""
    ccl = api.library().machine().get("ccl") or {}
    reduction = job.collective in terms.REDUCTIONS
    return {
        "collective": job.collective,
        "bytes": size_bytes,
        "ranks": job.ranks,
        "nodes": job.nodes,
        "memory": "host" if job.memory == "host" else "device",
        "op": job.op if reduction else "none",
        "type": job.type if reduction else "byte",
        "ccl": "path" in ccl,
        "ccl_name": ccl.get("name", "ccl"),
        "mpi_device_aware": False,
    }


def expand_plans(job: Job) -> list[str]:
    """`all` becomes native, hybrid and every plan that could carry the call."""
    plans: list[str] = []
    for plan in job.mpi_plans:
        if plan != "all":
            plans.append(plan)
            continue
        asked = query(job, job.begin)
        offered = api.library().explain(asked)["plans"]
        plans += ["native", "hybrid", *(p["plan"] for p in offered if p["possible"])]
        if job.memory == "device" and asked["ccl"]:
            plans.append("nccl")
    return list(dict.fromkeys(plans))


def variants(job: Job) -> list[Variant]:
    """The measured program's variants for the plans of a job."""
    found = []
    for plan in expand_plans(job):
        if plan == "native" and job.memory != "host":
            # What a user has to do today: the program copies through pinned host memory itself.
            found.append(Variant("staged", plan, "native"))
        elif plan in ("nccl", "rccl"):
            found.append(Variant("nccl", plan, None))
        else:
            # The measured program ends a variant's name at a colon.
            name = plan.replace(":", ".")
            found.append(Variant(name, plan, None if plan == "hybrid" else plan))
    return found


def needs_preload(chosen: Sequence[Variant]) -> bool:
    """True when a variant is something that only Tutti offers."""
    return any(v.name not in ("native", "staged", "nccl") for v in chosen)


def asked_for(plan: str, used: str) -> bool:
    """True when the plan that ran is the one that a hint names.

    The names are those of src/select/plan.hpp. On host memory the MPI library's own collective is
    `native`, whichever composition was asked for.
    """
    name = re.sub(r"^[nr]ccl", "ccl", plan.lower())
    name = re.sub(r"^schedule:rings", "rings", name)
    if name in ("direct", "direct-beta"):
        return used == "direct-gamma"
    if re.fullmatch(r"(mpi|native)(-beta|-gamma|-staged)?", name) and used == "native":
        return True
    name = name.replace("native", "mpi")
    # Without a composition it is that of the communicator's nodes.
    fitting = (f"{name}-beta", f"{name}-gamma") if name in ("mpi", "ccl") else ()
    return used in (name, *fitting)


def arguments(job: Job, chosen: Sequence[Variant]) -> list[str]:
    """Options of the measured program."""
    specs = [v.name + (f":{PLAN_KEY}={v.hint}" if v.hint else "") for v in chosen]
    words = [*call_arguments(job), "--memory", job.memory, "--variants", ",".join(specs)]
    return [*words, "--harness", f"{PLAN_KEY}=native", "--report-info", PLAN_USED_KEY]


def call_arguments(job: Job) -> list[str]:
    """Options of all measured programs."""
    words = ["--collective", job.collective, "--begin", str(job.begin), "--end", str(job.end)]
    words += ["--factor", str(job.factor), "--type", job.type, "--op", job.op]
    if job.check:
        words.append("--check")
    if job.iterations is not None:
        words += ["--iterations", str(job.iterations)]
    if job.warmup is not None:
        words += ["--warmup", str(job.warmup)]
    if job.time_cap_s is not None:
        words += ["--time-cap", str(job.time_cap_s)]
    return words


def _ccl_arguments(chosen: Sequence[Variant]) -> list[str]:
    """The raw variant uses the same NCCL or RCCL as Tutti does."""
    if paths.find(paths.LIBRARY) is None or not any(v.name == "nccl" for v in chosen):
        return []
    ccl = api.library().machine().get("ccl") or {}
    return ["--ccl-library", str(ccl["path"])] if "path" in ccl else []


def run_net(
    job: Job,
    lab: LabJob | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Results:
    """Measures the plans that need no MPI library, as run() does the others."""
    if job.memory != "host":
        raise TuttiError(f"{job.net_plans[0]}: for host memory only; remedy: --memory host")
    if lab:
        ranks = net_ranks.of_lab(lab.place, job.ranks, lab.ranks_per_node)
    else:
        ranks = net_ranks.of_machine([rank * job.nodes // job.ranks for rank in range(job.ranks)])
    chosen = [Variant(plan.removeprefix(NET), plan, None) for plan in job.net_plans]
    words = [*call_arguments(job), "--algorithms", ",".join(variant.name for variant in chosen)]
    lines, statuses = net_ranks.run(paths.require_measure("net"), words, ranks, on_progress)
    bad = net_ranks.failure(statuses)
    if bad and not any(line.get("wrong") for line in lines):
        raise TuttiError(f"the measured program failed: {bad}")
    return _results(job, chosen, lines)


def side_by_side(job: Job, parts: Sequence[Results]) -> Results:
    """Rows of several jobs in one document, by size and then in the order of the plans."""
    if len(parts) == 1:
        return parts[0]
    order = {plan: number for number, plan in enumerate(job.plans)}
    rest = order.get("all", -1)

    def place(row: Row) -> tuple[int, int]:
        return row.bytes, order.get("hybrid" if row.hybrid else row.plan, rest)

    rows = sorted((row for part in parts for row in part.rows), key=place)
    return msgspec.structs.replace(parts[0], rows=rows)


def run(
    job: Job,
    library: mpi.Mpi,
    on_progress: Callable[[float], None] | None = None,
    lab: LabJob | None = None,
) -> Results:
    """Measures; raises TuttiError when the program fails. Wrong elements are in the rows.

    A plan has no row at a size where it was refused.
    """
    _ = job.nodes  # A bad TUTTI_VIRTUAL_NODES is an error before anything runs.
    chosen = variants(job)
    preload = paths.require(paths.PRELOAD) if needs_preload(chosen) else None
    if job.memory == "hostdevice" and preload is None:
        preload = paths.require(paths.PRELOAD)
    settings = dict(job.settings)
    if job.virtual_nodes:
        settings[VIRTUAL_NODES] = str(job.virtual_nodes)
    if job.memory == "hostdevice":
        settings.setdefault("TUTTI_DEVICE", "host")
        host_device = paths.require(paths.HOST_DEVICE)
        settings["LD_PRELOAD"] = launch.preload_list(settings.get("LD_PRELOAD"), host_device)
    env = launch.environment(os.environ, preload, settings, library.library_directory)
    program = [str(paths.require_measure(library.abi)), *arguments(job, chosen)]
    program += _ccl_arguments(chosen)
    if lab:
        env = {**lifetime.python_environment(), **settings}
        command = _lab_command(lab, library, job.ranks, program, preload is not None)
    else:
        command = launch.ranks_command(library, job.ranks, program, env)
    lines, status = _execute(command, env, on_progress)
    results = _results(job, chosen, lines)
    if status != 0 and results.wrong() == 0:
        raise TuttiError(f"the measured program failed with status {status}: {shlex.join(command)}")
    return results


def _lab_command(
    lab: LabJob, library: mpi.Mpi, ranks: int, program: Sequence[str], preload: bool
) -> list[str]:
    words = [sys.executable, "-m", "tutti_hpc", "lab"]
    words += ["--directory", str(lab.place.base), "--name", lab.place.name]
    words += ["run", "-n", str(ranks), "--ppn", str(lab.ranks_per_node)]
    # The one that the program is of: of one name there may be several.
    words += ["--mpi", str(library.launcher)]
    words += ["--striped"] if lab.striped else []
    words += [] if preload else ["--no-preload"]
    return [*words, "--", *program]


def _execute(
    command: Sequence[str], env: dict[str, str], on_progress: Callable[[float], None] | None
) -> tuple[list[dict[str, Any]], int]:
    """The program's JSON lines and its exit status; whatever else it prints goes to stderr."""
    lines: list[dict[str, Any]] = []
    try:
        process = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise TuttiError(f"{command[0]}: {error.strerror}") from None
    assert process.stdout is not None
    with processes.ended_with(process):
        for text in process.stdout:
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict):
                click.echo(text.rstrip("\n"), err=True)
            elif "progress" in line:
                if on_progress:
                    on_progress(float(line["progress"]))
            else:
                lines.append(line)
        return lines, process.wait()


def command_line(arguments: Sequence[str]) -> list[str]:
    """The command as a reader would type it: files by name, since where they lay is nobody's."""
    program = Path(arguments[0])
    called = ["tutti"] if program.stem in ("tutti", "__main__") else ["python3", program.name]
    words = [Path(word).name if word.startswith("/") else word for word in arguments[1:]]
    # Documents are UTF-8, names of files need not be.
    return called + [os.fsencode(word).decode(errors="backslashreplace") for word in words]


def _results(job: Job, chosen: Sequence[Variant], lines: Sequence[dict[str, Any]]) -> Results:
    """The document of the lines."""
    header = next((line for line in lines if line.get("header")), None)
    if header is None:
        raise TuttiError("the measured program ended before it measured anything")
    if int(header["ranks"]) != job.ranks:
        raise TuttiError(
            f"the measured program ran as {header['ranks']} rank(s) and not as {job.ranks}: its "
            "MPI library and the launcher do not fit each other; remedy: --mpi with the path of "
            "one prefix that has both"
        )
    for line in lines:
        if "skipped" in line:
            click.echo(f"tutti: {line['skipped']} is left out: {line['reason']}", err=True)
    rows = _rows(job, chosen, lines)
    gpu_driver = machine.gpus().driver
    place = machine.describe()
    place.gpus = place.gpus or header["devices"]
    return Results(
        command=shlex.join(command_line(sys.argv)),
        date=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        machine=place,
        versions=Versions(
            tutti=__version__,
            mpi=mpi.short_version(" ".join(header["mpi"].split())),
            ccl=_ccl_version(header),
            driver=gpu_driver or header["driver"],
        ),
        collective=job.collective,
        ranks=int(header["ranks"]),
        nodes=job.nodes if job.nodes > 1 else int(header["nodes"]),
        memory=job.memory,
        type=job.type,
        op=header["op"],
        floor_us=header.get("floor_us"),
        rows=rows,
    )


def _ccl_version(header: dict[str, Any]) -> str:
    """Of the library the program loaded, else of the one Tutti would load."""
    if header["ccl_version"]:
        name = "RCCL" if "rccl" in header["ccl_library"] else "NCCL"
        return f"{name} {header['ccl_version']}"
    if header["memory"] == "host" or paths.find(paths.LIBRARY) is None:
        return ""
    ccl = api.library().machine().get("ccl") or {}
    return f"{str(ccl['name']).upper()} {ccl['version']}" if "version" in ccl else ""


def _rows(job: Job, chosen: Sequence[Variant], lines: Sequence[dict[str, Any]]) -> list[Row]:
    """The measured lines, without those of plans that were refused: something else ran there."""
    by_name = {variant.name: variant for variant in chosen}
    rows: list[Row] = []
    refused: dict[str, list[str]] = {}
    for line in lines:
        if "variant" not in line:
            continue
        variant = by_name[line["variant"]]
        plan, used = variant.plan, str(line.get("plan_used") or "")
        if not variant.plan.startswith(NET) and needs_preload([variant]):
            if not used:
                raise TuttiError(
                    f"Tutti is not in the ranks: {plan} does not report which plan it used; "
                    f"remedy: let LD_PRELOAD with {paths.PRELOAD} through to the ranks; what the "
                    "dynamic linker cannot load it says above"
                )
            if variant.hint is not None and not asked_for(variant.hint, used):
                refused.setdefault(plan, []).append(f"{line['bytes']} ({used})")
                continue
            plan = plan if variant.hint is not None else used
        rows.append(_row(job, plan, variant.plan == "hybrid", line))
    for plan, sizes in refused.items():
        click.echo(
            f"tutti: {plan} is left out, another plan ran in its place at {', '.join(sizes)} "
            "bytes; remedy: ask `tutti explain` for the plans there are",
            err=True,
        )
    if refused and not rows:
        raise TuttiError(f"{', '.join(refused)}: refused at every size, nothing else was measured")
    return rows


def _row(job: Job, plan: str, hybrid: bool, line: dict[str, Any]) -> Row:
    """One measured line."""
    algorithm, bus = terms.bandwidths_gbps(job.collective, job.ranks, line["bytes"], line["p50_us"])
    return Row(
        bytes=line["bytes"],
        plan=plan,
        hybrid=hybrid,
        latency_us=Latency(
            min=line["min_us"], p50=line["p50_us"], p99=line["p99_us"], max=line["max_us"]
        ),
        algbw_gbps=round(algorithm, 6),
        busbw_gbps=round(bus, 6),
        wrong=line["wrong"] if line["checked"] else None,
    )
