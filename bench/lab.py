# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives over several rails, for real: 4 nodes x 4 ranks x 4 rails of 100 Mb/s in a lab.

    python bench/lab.py                                  one size, each algorithm, about 20 minutes
    python bench/lab.py --sweep -o bench/results/lab-4x4x4.json      and the sizes, 40 minutes
    python bench/lab.py --plot bench/results/lab-4x4x4.json -o docs/figures/lab-allgather.png

Compared are Open MPI with each rank on its own rail (as each GPU has its NIC), Open MPI with every
message striped over all rails, both by default and with each algorithm of its tuned component, and
Tutti's `rings` on own rails, in as many parts as `tuning/ethernet-100mbit.json` says, and the same
over Tutti's own transport without MPI. All have the same links, those over TCP the same TCP
settings, and ranks that give their core away while they wait. Every element of a result is
compared; every link's bytes are counted, so that a result which did not cross the links does not
count as fast.

Times are milliseconds, of the slowest rank; sizes are bytes of one rank's block (allreduce: of the
vector over the number of ranks, so that the same number of bytes is in a node). A call's link bound
is the time that the bytes which must enter a node, or of a reduction an average node, need on all
its rails.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import msgspec  # noqa: E402
import results_head  # noqa: E402
from tutti_hpc import files, measure, mpi, net_ranks, paths, processes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402
from tutti_hpc.lab import lifetime, network, plan, state  # noqa: E402

SCHEMA = "tutti-lab/1"
RANKS_PER_NODE = 4
SPEC = plan.Spec(nodes=4, rails=4, rate_bps=100_000_000)
RANKS = SPEC.nodes * RANKS_PER_NODE
NET = "net"
LOOK_BYTES = 1 << 20
SWEEP_BYTES = [1 << shift for shift in range(18, 24)]
PATIENCE_S = 900

# The plain claims: allgather of LOOK_BYTES against time and rivals, the others against their bound.
ALLGATHER_MS = 330
OF_BEST_OWN_RAIL = 0.25
OF_BEST_STRIPED = 0.60  # The links themselves need 0.54 of it.
OF_LINK_BOUND = 1.35

# Algorithms of Open MPI's tuned component by number; 0 is its own choice of component and
# algorithm. Allgather has a sixth, for two ranks.
ALGORITHMS: dict[str, dict[int, str]] = {
    "allgather": {
        0: "default",
        1: "linear",
        2: "bruck",
        3: "recursive doubling",
        4: "ring",
        5: "neighbor",
        7: "sparbit",
    },
    "reduce_scatter_block": {
        0: "default",
        1: "linear",
        2: "recursive doubling",
        3: "recursive halving",
        4: "butterfly",
    },
    "allreduce": {
        0: "default",
        2: "nonoverlapping",
        3: "recursive doubling",
        4: "ring",
        5: "segmented ring",
        6: "rabenseifner",
    },
}
# What a user of such links would set; it chooses `rings`, in so many parts.
TUNING = ROOT / "tuning" / "ethernet-100mbit.json"


@dataclass(frozen=True)
class Setting:
    """One way to carry a collective."""

    library: str  # openmpi | mpich | net: Tutti's transport alone.
    name: str
    striped: bool = False
    plan: str | None = None  # Of Tutti; None: the MPI library alone.
    algorithm: int = 0

    def variables(self, collective: str) -> dict[str, str]:
        """The MPI library's settings."""
        if self.library == "mpich":
            return {"FI_PROVIDER": "tcp", "MPIR_CVAR_CH4_NETMOD": "ofi"}
        if not self.algorithm:
            return {}
        return {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            f"OMPI_MCA_coll_tuned_{collective}_algorithm": str(self.algorithm),
            # Another component has a higher priority than the one that was told what to do.
            "OMPI_MCA_coll": "^han",
        }


class Row(msgspec.Struct, kw_only=True):
    """One setting at one size. `link_bytes` has [out of, into] each rail of each node per call."""

    collective: str
    block_bytes: int
    library: str
    setting: str
    rails: str  # own | striped
    calls: int  # Timed; 2 more were checked, and some warmed up.
    ms_min: float
    ms_p50: float
    ms_max: float
    bound_ms: float
    wrong: int
    link_bytes: dict[str, tuple[int, int]]
    management_bytes: int

    @property
    def is_ours(self) -> bool:
        """Tutti's own."""
        return self.setting == "rings"


class Document(msgspec.Struct, kw_only=True):
    """The results file."""

    schema: str = SCHEMA
    command: str
    date: str
    machine: dict[str, Any]
    versions: dict[str, str]
    lab: dict[str, Any]
    rows: list[Row]


def bound_ms(collective: str, block_bytes: int) -> float:
    """Time the bytes that must enter a node need on all its rails."""
    entering = (RANKS - RANKS_PER_NODE) * block_bytes * (2 if collective == "allreduce" else 1)
    return entering / SPEC.rails / SPEC.payload_bytes_per_s * 1e3


class Lab:
    """The lab of this benchmark, and its counters."""

    def __init__(self) -> None:
        self.place = state.Place(state.default_base(), "bench")
        self.plan = plan.make(SPEC)

    def __enter__(self) -> Lab:
        lifetime.up(self.place, SPEC)
        return self

    def __exit__(self, *_: object) -> None:
        state.take_down(self.place)

    def count(self) -> dict[str, tuple[int, int]]:
        """Bytes [out of, into] each device of a box."""
        boxes = {name: box.pid for name, box in self.place.require().boxes.items()}
        found = network.counters(self.plan, boxes)
        return {one.a: (one.a_to_b_bytes, one.b_to_a_bytes) for one in found}


def words_of(setting: Setting, collective: str, block_bytes: int, calls: int) -> list[str]:
    """The command of one job."""
    words = ["--name", "bench", "run", "--mpi", setting.library, "-n", str(RANKS)]
    words += ["--ppn", str(RANKS_PER_NODE)]
    words += ["--striped"] if setting.striped else []
    words += ["--strict"] if setting.plan else ["--no-preload"]
    size = str(block_bytes * RANKS)
    words += ["--", str(paths.require_measure(setting.library)), "--collective", collective]
    words += ["--begin", size, "--end", size, "--check", "--time-cap", str(PATIENCE_S)]
    words += ["--iterations", str(calls), "--warmup", str(warm_up(setting, block_bytes))]
    if setting.plan:
        words += ["--variants", setting.plan]
        words += ["--harness", f"{measure.PLAN_KEY}=native", "--report-info", measure.PLAN_USED_KEY]
    return words


def warm_up(setting: Setting, block_bytes: int) -> int:
    """Calls before the first timed one: so many that the measured program adds none of its own.

    It goes on until 0.2 s have passed, and what it adds would not be counted.
    """
    takes_long = block_bytes > LOOK_BYTES or (block_bytes == LOOK_BYTES and setting.plan is None)
    return 1 if takes_long else 3


def moved_by(
    lab: Lab, before: dict[str, tuple[int, int]], calls: int
) -> dict[str, tuple[int, int]]:
    """Bytes of each call since the counters were `before`."""
    return {
        device: ((o - before[device][0]) // calls, (i - before[device][1]) // calls)
        for device, (o, i) in lab.count().items()
    }


def row_of(
    setting: Setting,
    collective: str,
    block_bytes: int,
    line: dict[str, Any],
    moved: dict[str, tuple[int, int]],
) -> Row:
    """The row of a measured program's line."""
    return Row(
        collective=collective,
        block_bytes=block_bytes,
        library=setting.library,
        setting=setting.name,
        rails="striped" if setting.striped else "own",
        calls=line["iterations"],
        ms_min=round(line["min_us"] / 1e3, 2),
        ms_p50=round(line["p50_us"] / 1e3, 2),
        ms_max=round(line["max_us"] / 1e3, 2),
        bound_ms=round(bound_ms(collective, block_bytes), 2),
        wrong=line["wrong"],
        link_bytes={k: v for k, v in moved.items() if not k.endswith(":mgmt")},
        management_bytes=sum(o + i for k, (o, i) in moved.items() if k.endswith(":mgmt")),
    )


def job(
    lab: Lab, setting: Setting, collective: str, block_bytes: int, calls: int
) -> Iterator[tuple[Row, str]]:
    """(row, version of the MPI library); the counters are read before and after."""
    words = words_of(setting, collective, block_bytes, calls)
    command = [sys.executable, "-m", "tutti_hpc", "lab", *words]
    search = ":".join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, **setting.variables(collective), "PYTHONPATH": search}
    env["TUTTI_TUNING_FILE"] = str(TUNING)
    version = ""
    with (
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process,
        processes.ended_with(process),
    ):
        assert process.stdout is not None
        before = lab.count()
        for text in process.stdout:
            try:
                line = json.loads(text)
            except ValueError:
                print(text.rstrip(), file=sys.stderr)
                continue
            if "header" in line:
                version = mpi.short_version(" ".join(line["mpi"].split()))
                if line["nodes"] != SPEC.nodes:
                    raise TuttiError(f"the ranks see {line['nodes']} nodes, not {SPEC.nodes}")
                before = lab.count()
            if "variant" not in line:
                continue
            if setting.plan and line["plan_used"] != setting.plan:
                raise TuttiError(f"{setting.plan} was asked for, {line['plan_used']} was used")
            made = warm_up(setting, block_bytes) + calls + 2
            moved = moved_by(lab, before, made)
            yield row_of(setting, collective, block_bytes, line, moved), version
    if process.returncode != 0:
        raise TuttiError(f"status {process.returncode}: {shlex.join(words)}")


def net_job(
    lab: Lab, setting: Setting, collective: str, block_bytes: int, calls: int
) -> Iterator[tuple[Row, str]]:
    """The same of a schedule over Tutti's transport, without an MPI library."""
    size = str(block_bytes * RANKS)
    words = ["--collective", collective, "--algorithms", str(setting.plan), "--check"]
    words += ["--begin", size, "--end", size, "--time-cap", str(PATIENCE_S)]
    words += ["--iterations", str(calls), "--warmup", str(warm_up(setting, block_bytes))]
    ranks = net_ranks.of_lab(lab.place, RANKS, RANKS_PER_NODE)
    before = lab.count()
    lines, statuses = net_ranks.run(paths.require_measure("net"), words, ranks)
    if bad := net_ranks.failure(statuses):
        raise TuttiError(f"{setting.plan} over the transport: {bad}")
    (line,) = (line for line in lines if "variant" in line)
    made = warm_up(setting, block_bytes) + calls + 2
    yield row_of(setting, collective, block_bytes, line, moved_by(lab, before, made)), ""


def entering_bytes(row: Row) -> list[int]:
    """What entered each node."""
    return [
        sum(i for device, (_, i) in row.link_bytes.items() if device.startswith(f"n{node}:"))
        for node in range(SPEC.nodes)
    ]


def check(row: Row) -> None:
    """A row's result is right, and crossed the links."""
    if row.wrong:
        raise TuttiError(f"{row.setting}, {row.block_bytes} bytes: {row.wrong} wrong elements")
    must = bound_ms(row.collective, row.block_bytes) / 1e3 * SPEC.rails * SPEC.payload_bytes_per_s
    # In an allgather each node gets what the others have. Sums may be made at one node, so of a
    # reduction only the total is known.
    entered = entering_bytes(row)
    least = min(entered) if row.collective == "allgather" else sum(entered) / SPEC.nodes
    if least < must:
        raise TuttiError(
            f"{row.setting}, {row.block_bytes} bytes: {least:.0f} bytes entered a node and "
            f"{must:.0f} must: something went another way"
        )


def show(row: Row) -> None:
    """One line of the table."""
    print(
        f"{row.collective:21} {row.block_bytes >> 10:6} KiB  {row.library:8} {row.rails:8} "
        f"{row.setting:19} {row.ms_p50:9.1f} ms ({row.ms_min:.1f} to {row.ms_max:.1f}) "
        f"{row.ms_p50 / row.bound_ms:6.2f} x bound",
        flush=True,
    )


class Bench:
    """Runs jobs and keeps their rows, after each job also in the file."""

    def __init__(self, lab: Lab, out: Path | None, resume: bool) -> None:
        self.lab = lab
        self.out = out
        head = results_head.head(SCHEMA)
        self.document = Document(
            command=head["command"],
            date=head["date"],
            machine={k: head["machine"][k] for k in ("cpus", "cores", "memory_bytes")}
            | {"kernel": os.uname().release},
            versions=head["versions"],
            lab={
                "nodes": SPEC.nodes,
                "ranks_per_node": RANKS_PER_NODE,
                "rails": SPEC.rails,
                "fabric": SPEC.fabric,
                "rate_bps": SPEC.rate_bps,
                "burst_bytes": plan.burst_bytes(SPEC.rate_bps),
                "segment_bytes": plan.segment_bytes(SPEC.rate_bps),
                "sysctls": dict(self.lab.plan.box("n0").sysctls),
            },
            rows=[],
        )
        if resume and out and out.exists():
            before = msgspec.convert(results_head.load(out, SCHEMA), Document)
            ours, theirs = (one.versions.get("commit", "") for one in (self.document, before))
            if ours != theirs:
                raise TuttiError(
                    f"{out}: its rows are of commit {theirs or 'unknown'}, this is "
                    f"{ours or 'unknown'}; remedy: without --resume, or another -o"
                )
            self.document.rows, self.document.versions = before.rows, before.versions

    def run(self, setting: Setting, collective: str, sizes: Sequence[int], calls: int) -> None:
        """One job; sizes that are there already are left out."""
        done = {
            row.block_bytes
            for row in self.document.rows
            if (row.collective, row.library, row.setting, row.rails)
            == (collective, setting.library, setting.name, "striped" if setting.striped else "own")
        }
        left = [size for size in sizes if size not in done]
        # A job for each size: between sizes of one job the counters would be read too late.
        for size in left:
            measured = net_job if setting.library == NET else job
            for row, version in measured(self.lab, setting, collective, size, calls):
                check(row)
                show(row)
                self.document.rows.append(row)
                if version:
                    self.document.versions[setting.library] = version
            if self.out:
                text = msgspec.json.format(msgspec.json.encode(self.document), indent=1)
                files.write(self.out, compact(text) + b"\n")

    def best(self, collective: str, striped: bool) -> Row:
        """Open MPI's fastest at LOOK_BYTES."""
        rails = "striped" if striped else "own"
        return min(
            (
                row
                for row in self.document.rows
                if row.collective == collective
                and row.block_bytes == LOOK_BYTES
                and row.rails == rails
                and row.library == "openmpi"
                and not row.is_ours
            ),
            key=lambda row: row.ms_p50,
        )


def compact(text: bytes) -> bytes:
    """The counters of a link on one line."""
    import re

    return re.sub(rb"\[\s*(\d+),\s*(\d+)\s*\]", rb"[\1, \2]", text)


def settings_of(collective: str) -> list[Setting]:
    """All that are compared at LOOK_BYTES."""
    found = [Setting("openmpi", "rings", plan="rings")]
    for striped in (False, True):
        for number, name in ALGORITHMS[collective].items():
            found.append(Setting("openmpi", name, striped, algorithm=number))
    # MPICH 5.0.2's own allreduce of this size does not end over libfabric's TCP provider here.
    if collective != "allreduce":
        found.append(Setting("mpich", "default"))
    # Five parts are the best here; MPI's are chosen by TUNING.
    return [*found, Setting("mpich", "rings", plan="rings"), Setting(NET, "rings", plan="rings(5)")]


def measure_all(bench: Bench, collectives: Sequence[str], sweep: bool, calls: int) -> None:
    """Each collective at LOOK_BYTES, then over the sizes: allgather with its rivals."""
    for collective in collectives:
        for setting in settings_of(collective):
            ours = setting.plan is not None or collective == "allgather"
            bench.run(setting, collective, [LOOK_BYTES], calls if ours else max(3, calls // 2))
        if not sweep:
            continue
        chosen = [Setting("openmpi", "rings", plan="rings")]
        numbers = {name: number for number, name in ALGORITHMS[collective].items()}
        for striped in (False, True) if collective == "allgather" else ():
            names = dict.fromkeys(["default", bench.best(collective, striped).setting])
            chosen += [Setting("openmpi", n, striped, algorithm=numbers[n]) for n in names]
        for setting in chosen:
            small = [size for size in SWEEP_BYTES if size < LOOK_BYTES]
            large = [size for size in SWEEP_BYTES if size > LOOK_BYTES]
            bench.run(setting, collective, small, calls)
            bench.run(setting, collective, large, max(3, calls // 2))


def claims(bench: Bench) -> list[tuple[str, float, float]]:
    """(what, measured, at most)."""
    found = []
    for row in bench.document.rows:
        if row.setting != "rings" or row.library != "openmpi" or row.block_bytes != LOOK_BYTES:
            continue
        if row.collective == "allgather":
            own = bench.best("allgather", False).ms_p50
            striped = bench.best("allgather", True).ms_p50
            found.append(("allgather, ms", row.ms_p50, ALLGATHER_MS))
            found.append(("allgather, of the best own-rail", row.ms_p50 / own, OF_BEST_OWN_RAIL))
            found.append(("allgather, of the best striped", row.ms_p50 / striped, OF_BEST_STRIPED))
        else:
            ratio = row.ms_p50 / row.bound_ms
            found.append((f"{row.collective}, of the link bound", ratio, OF_LINK_BOUND))
    return found


def draw(path: Path, out: Path) -> None:
    """Allgather: time over size, the best and the default of each kind, and the link bound."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    document = msgspec.convert(results_head.load(path, SCHEMA), Document)
    rows = [r for r in document.rows if r.collective == "allgather" and r.library == "openmpi"]
    sizes = sorted({row.block_bytes for row in rows})
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.block_bytes):
        lines.setdefault((row.rails, row.setting), []).append(row)
    figure, axes = pyplot.subplots(figsize=(8.2, 5))
    styles = {"own": "-", "striped": "--"}
    for (rails, name), line in lines.items():
        if len(line) < len(sizes):
            continue
        ours = line[0].is_ours
        x = [row.block_bytes for row in line]
        y = [row.ms_p50 for row in line]
        spread = [[r.ms_p50 - r.ms_min for r in line], [r.ms_max - r.ms_p50 for r in line]]
        kind = "Tutti" if ours else "Open MPI, own rail" if rails == "own" else "Open MPI, striped"
        axes.errorbar(
            x,
            y,
            yerr=spread,
            label=f"{kind}: {name}",
            linestyle=styles[rails],
            linewidth=2.2 if ours else 1.4,
            marker="o" if ours else "s",
            markersize=5 if ours else 4,
            capsize=2,
            zorder=5 if ours else 3,
        )
    axes.plot(
        sizes, [bound_ms("allgather", s) for s in sizes], color="black", lw=1, label="link bound"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{s >> 10} KiB" if s < 1 << 20 else f"{s >> 20} MiB" for s in sizes])
    axes.minorticks_off()
    axes.set_xlabel("block of one rank")
    axes.set_ylabel("time of the call (ms): median, least, most")
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_title(
        f"Allgather, {SPEC.nodes} nodes x {RANKS_PER_NODE} ranks x {SPEC.rails} rails of 100 Mb/s, "
        f"{document.versions['openmpi']}",
        fontsize=11,
    )
    axes.legend(fontsize=9, frameon=False)
    figure.tight_layout()
    figure.savefig(out, dpi=150)


def main() -> int:
    """Measures, or draws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sweep", action="store_true", help="256 KiB to 8 MiB, not 1 MiB alone")
    parser.add_argument("--collective", action="append", choices=list(ALGORITHMS))
    parser.add_argument("--calls", type=int, default=5, help="timed calls of each size")
    parser.add_argument("--plot", type=Path, metavar="RESULTS", help="draw only; -o is the figure")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--resume", action="store_true", help="keep the rows that -o has")
    options = parser.parse_args()
    try:
        if options.plot:
            draw(options.plot, options.output or Path("lab-allgather.png"))
            return 0
        with Lab() as lab:
            bench = Bench(lab, options.output, options.resume)
            measure_all(bench, options.collective or list(ALGORITHMS), options.sweep, options.calls)
            found = claims(bench)
    except TuttiError as error:
        error.show()
        return error.exit_code
    for what, measured, at_most in found:
        verdict = "holds" if measured <= at_most else "MISSED"
        print(f"{what}: {measured:.3g}, at most {at_most:.3g}: {verdict}")
    return 0 if all(measured <= at_most for _, measured, at_most in found) else 1


if __name__ == "__main__":
    with processes.signals_as_exits():  # So that the lab ends with it.
        sys.exit(main())
