# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The network plugin under a real NCCL on GPUs: correctness and speed against NCCL's own sockets.

    python bench/nccl_network.py check
    python bench/nccl_network.py measure -o bench/results/nccl-network.json
    python bench/nccl_network.py ddp
    python bench/nccl_network.py trouble
    python bench/nccl_network.py plot bench/results/nccl-network.json -o nccl-network.png

Four ranks, each a host of its own for NCCL, rank r on GPU r modulo their number (under NVIDIA's
multi-process service where ranks share a GPU and the service works). Layouts
(nccl_jobs.layouts):

loopback   all on `lo`
fabric     a lab (tutti_hpc.lab) with a leaf for each rank and 8 spines; a host has 16 Gb/s, a link
           to a spine 2 Gb/s: what one flow gets
bisection  the same with 16 Gb/s to each spine, where paths cannot be the limit
lossy      fabric, and each link to a spine loses 0.1 % of its packets at random
rails      no spines: a host has two links of 8 Gb/s

Ways: NCCL's sockets as by default, with 2 threads of 8 streams, on loopback also 4 of 4; and the
plugin, on rails also with both links in one device. Every run is checked to have used the network
it was told to, and every element of a result is checked before and after it is timed. Latency is
that of one blocking call: the median over calls, the slowest rank's. Sizes are those of nccl-
tests.

`check` makes every call of the plugin's own runs, with odd sizes and several settings of NCCL, and
looks at every element of every result. `ddp` does the same with PyTorch's calls, and times a step
of training (bench/nccl_ddp.py). `trouble` kills ranks, pulls links and makes faults
(bench/nccl_trouble.py).

Repeats are paired: each has one run of every way, in turn. Exits with 1 when a claim is missed, a
run failed or an element was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "bench"))

import msgspec  # noqa: E402
import nccl_ddp  # noqa: E402
import nccl_jobs  # noqa: E402
import nccl_trouble  # noqa: E402
import results_head  # noqa: E402
from nccl_jobs import LAYOUTS, TUTTI, WAYS, Job, Layout, Outcome, Rendezvous, Setup, Way  # noqa: E402
from network_parts import Claim, Lab, Row, paired, settings, tcp_of  # noqa: E402
from tutti_hpc import files, prediction_figure, processes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402
from tutti_hpc.figure import MARKERS, PALETTE  # noqa: E402
from tutti_hpc.lab import plan  # noqa: E402
from tutti_hpc.sizes import format_bytes, parse_bytes  # noqa: E402

SCHEMA = "tutti-bench-nccl-{}/1"
COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "alltoall")
SIZES = ("4", "1K", "16K", "64K", "256K", "1M", "4M", "16M", "64M")
CHECK_SIZES = ("4", "60", "4100", "64K", "1000004", "16M", "64M")
KILO, MEGA = 1 << 10, 1 << 20
LARGE = 64 * MEGA
RUN_LIMIT_S = 150
NOMINAL_RATE = "16gbit"

# The plain claims. Speed-ups are over a socket way at the same size, paired.
LOOPBACK_LARGE_MS = 8.4
LOOPBACK_SPEEDUP = 2.0  # From 1 MB.
SMALL_LATENCY_RATIO = 1.0  # Up to 64 KB.
FABRIC_LARGE_MS = 58.0
FABRIC_OF_DEFAULT = 7.0
FABRIC_OF_BEST = 1.6
BISECTION_RATIO = 1.10  # Never slower, but for noise.
LOSSY_OF_BEST = 3.0

# (what, settings, collectives): the plugin is checked with each.
VARIANTS: tuple[tuple[str, Mapping[str, str], Sequence[str]], ...] = (
    ("as by default", {}, COLLECTIVES),
    ("simple protocol", {"NCCL_PROTO": "Simple"}, COLLECTIVES),
    ("trees", {"NCCL_ALGO": "Tree"}, ("allreduce",)),
    ("eight channels", {"NCCL_MIN_NCHANNELS": "8"}, COLLECTIVES),
    ("shared polling", {"TUTTI_NET_POLLING": "shared"}, ("allreduce", "alltoall")),
    ("no offload", {"TUTTI_NET_OFFLOAD": "0"}, ("allreduce", "alltoall")),
)


def ideal_us(layout: Layout, collective: str, size: int, ranks: int) -> float | None:
    """What a host's links need for the payload alone; None: no link is shaped."""
    if layout.spec is None:
        return None
    passes = 2 if collective == "allreduce" else 1
    rate_bps = layout.spec.rails * layout.spec.rate_bps
    if layout.spec.spines:
        rate_bps = min(rate_bps, layout.spec.spines * layout.spec.spine_rate_bps)
    return passes * (ranks - 1) / ranks * size * 8 / rate_bps * 1e6


def rows_of(outcome: Outcome, layout: Layout, way: Way, repeat: int) -> list[Row]:
    """One row for each collective and size: the slowest rank's times, all ranks' wrong elements."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for lines in outcome.results():
        for line in lines:
            found.setdefault((line["collective"], line["bytes"]), []).append(line)
    return [
        {
            "layout": layout.name,
            "way": way.name,
            "repeat": repeat,
            "collective": collective,
            "bytes": size,
            "ideal_us": ideal_us(layout, collective, size, len(lines)),
            "us": max(line["us_p50"] for line in lines),
            "us_min": max(line["us_min"] for line in lines),
            "us_p90": max(line["us_p90"] for line in lines),
            "iterations": lines[0]["iterations"],
            "cpus": round(sum(line["cpus"] for line in lines), 2),
            "wrong": sum(line["wrong"] for line in lines),
        }
        for (collective, size), lines in found.items()
    ]


def groups(rows: Sequence[Row]) -> dict[tuple[str, str, int], list[Row]]:
    """Rows of one layout, collective and size, in the order of the first."""
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["layout"], row["collective"], row["bytes"]), []).append(row)
    return found


def middle_us(rows: Sequence[Row], way: str) -> float | None:
    """Median over the repeats; None: the way has none."""
    values = [row["us"] for row in rows if row["way"] == way]
    return statistics.median(values) if values else None


def best_sockets(rows: Sequence[Row], ours: str = TUTTI.name) -> str | None:
    """The fastest way that is not ours, with whatever settings, at one size."""
    ways = dict.fromkeys(row["way"] for row in rows if not row["way"].startswith(ours))
    return min(ways, key=lambda way: middle_us(rows, way) or 0, default=None)


def ratio(rows: Sequence[Row], way: str | None, other: str | None) -> float | None:
    """Median of the paired ratios of the times at one size; None: no repeat has both ways."""
    ratios = paired(rows, "us", way, other) if way and other else []
    return statistics.median(ratios) if ratios else None


def worst(
    what: str, found: Sequence[tuple[float | None, int]], bound: float, at_least: bool
) -> list[Claim]:
    """A claim about the worst of (ratio, size); none when nothing was measured."""
    known = [(value, size) for value, size in found if value is not None]
    if not known:
        return []
    value, size = min(known) if at_least else max(known)
    return [Claim(f"{what}; worst at {format_bytes(size)}", value, bound, at_least)]


def claims(rows: Sequence[Row], ours: str = TUTTI.name, *, is_nominal: bool = True) -> list[Claim]:
    """Every bound that the measured rows can tell about; nominal: four ranks and 16 Gb/s."""
    found: list[Claim] = []
    default = nccl_jobs.DEFAULT.name
    by_curve: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for (layout, collective, size), mine in groups(rows).items():
        by_curve.setdefault((layout, collective), {})[size] = mine
    for (layout, collective), curve in by_curve.items():
        name = f"{layout}, {collective}"
        large = curve.get(LARGE, [])
        large_us = middle_us(large, ours)
        limit_ms = {"loopback": LOOPBACK_LARGE_MS, "fabric": FABRIC_LARGE_MS}.get(layout)
        if is_nominal and collective == "allreduce" and limit_ms and large_us is not None:
            found.append(Claim(f"{name}, 64M, ms", large_us / 1e3, limit_ms, at_least=False))
        of_default = [(ratio(mine, default, ours), size) for size, mine in curve.items()]
        of_best = [
            (ratio(mine, best_sockets(mine, ours), ours), size) for size, mine in curve.items()
        ]
        if layout == "loopback":
            from_mega = [one for one in of_default if one[1] >= MEGA]
            found += worst(
                f"{name} from 1M, over default sockets", from_mega, LOOPBACK_SPEEDUP, True
            )
            small = [
                (1 / value if value else None, size)
                for value, size in of_default
                if size <= 64 * KILO
            ]
            what = f"{name} up to 64K, latency of default sockets'"
            found += worst(what, small, SMALL_LATENCY_RATIO, False)
        at_large_default = [one for one in of_default if one[1] == LARGE]
        at_large_best = [one for one in of_best if one[1] == LARGE]
        if layout == "fabric":
            what = f"{name}, over default sockets"
            found += worst(what, at_large_default, FABRIC_OF_DEFAULT, True)
            found += worst(f"{name}, over best sockets", at_large_best, FABRIC_OF_BEST, True)
        if layout == "bisection":
            slower = [(1 / value if value else None, size) for value, size in of_best]
            found += worst(f"{name}, time of best sockets'", slower, BISECTION_RATIO, False)
        if layout == "lossy":
            found += worst(f"{name}, over best sockets", at_large_best, LOSSY_OF_BEST, True)
    return found


def table(rows: Sequence[Row], ours: str = TUTTI.name) -> list[str]:
    """A line for each layout, collective and size: milliseconds of each way, our speed-ups."""
    lines = []
    ways = list(dict.fromkeys(row["way"] for row in rows))
    head = None
    for (layout, collective, size), mine in groups(rows).items():
        if head != (layout, collective):
            head = (layout, collective)
            widths = [max(12, len(way) + 2) for way in ways]
            names = "".join(f"{way:>{width}}" for way, width in zip(ways, widths, strict=True))
            lines.append(f"{layout}, {collective}: ms{names}{'ideal':>9}  over default, best")
        cells = "".join(
            f"{'-':>{width}}" if us is None else f"{us / 1e3:{width}.3f}"
            for us, width in zip((middle_us(mine, way) for way in ways), widths, strict=True)
        )
        ideal = mine[0]["ideal_us"]
        ratios = (
            ratio(mine, nccl_jobs.DEFAULT.name, ours),
            ratio(mine, best_sockets(mine, ours), ours),
        )
        speedups = ", ".join("-" if value is None else f"{value:.2f}" for value in ratios)
        wrong = sum(row["wrong"] for row in mine)
        lines.append(
            f"{format_bytes(size):>{len(layout) + len(collective) + 6}}{cells}"
            f"{'-' if ideal is None else f'{ideal / 1e3:.3f}':>9}  {speedups}"
            + (f"  WRONG {wrong}" if wrong else "")
        )
    return lines


def without_paths(words: Sequence[str]) -> list[str]:
    """A command line without the options that name places on this machine."""
    places = ("--build", "--logs", "--nccl", "-o", "--output")
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if word not in places and before not in places]


def document_head(part: str, setup: Setup, more: Mapping[str, Any]) -> dict[str, Any]:
    """Of results; a place on the machine is nobody's business."""
    head = results_head.head(SCHEMA.format(part))
    words = ["python", "bench/nccl_network.py", *without_paths(sys.argv[1:])]
    head["command"] = shlex.join(words)
    head["machine"] |= {"kernel": os.uname().release}
    return {**head, "ranks": setup.ranks, "gpus": setup.gpus, **more}


def versions_of(outcome: Outcome | None) -> dict[str, str]:
    """What a rank says it runs with; without a path."""
    for line in outcome.events(0, "start") if outcome else []:
        found = {name: line[name] for name in ("nccl", "torch") if name in line}
        return {**found, "cuda": line["cuda"].rpartition("(CUDA ")[2].rstrip(")")}
    return {}


def save(out: Path | None, document: Mapping[str, Any]) -> None:
    """Where it was asked for."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write(out, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


class Report:
    """Rows and failures so far, in a file at every moment."""

    def __init__(self, part: str, setup: Setup, out: Path | None, more: Mapping[str, Any]) -> None:
        self.part, self.setup, self.out, self.more = part, setup, out, more
        self.rows: list[Row] = []
        self.failures: list[str] = []
        self.left_out = 0  # Runs for which there was no time.
        self.counters: list[dict[str, Any]] = []
        self.versions: dict[str, str] = {}
        self.tcp: dict[str, str] = {}  # Congestion control of each layout.

    def add(self, name: str, outcome: Outcome, rows: Sequence[Row]) -> None:
        """One run, in words too."""
        self.rows += rows
        self.versions |= versions_of(outcome)
        wrong = sum(row["wrong"] for row in rows)
        said = [line for log in outcome.logs[:1] for line in nccl_jobs.plugin_lines(log)]
        if said:
            self.counters.append({"run": name, "rank 0": said})
        if outcome.failure:
            self.failures.append(f"{name}: {outcome.failure}")
        verdict = f"FAILED: {outcome.failure}" if outcome.failure else f"{wrong} wrong"
        print(f"{name}: {outcome.seconds:.1f} s, {verdict}", file=sys.stderr, flush=True)
        self.save()

    def save(self) -> None:
        """The document."""
        document = document_head(self.part, self.setup, self.more)
        document["versions"] |= self.versions
        document |= {
            "tcp": self.tcp,
            "failures": self.failures,
            "counters": self.counters,
            "claims": [
                {
                    "what": one.what,
                    "measured": round(one.measured, 4),
                    "bound": one.bound,
                    "at_least": one.at_least,
                    "holds": one.holds,
                }
                for one in self.claims()
            ],
            "rows": self.rows,
        }
        save(self.out, document)

    def claims(self) -> list[Claim]:
        """Of the rows so far; a check makes none."""
        if self.part == "check":
            return []
        is_nominal = (self.setup.ranks, self.more["rate"]) == (nccl_jobs.RANKS, NOMINAL_RATE)
        return claims(self.rows, is_nominal=is_nominal)

    def wrong(self) -> int:
        """Elements."""
        return sum(row["wrong"] for row in self.rows)


def run_once(
    setup: Setup, layout: Layout, lab: Lab | None, way: Way, name: str, words: Sequence[str]
) -> Outcome:
    """One job of nccl_ranks to its end."""
    with Rendezvous() as rendezvous:
        command = nccl_jobs.ranks_command(setup, rendezvous.next(), words)
        with Job(setup, layout, lab, way, name, command) as job:
            return job.finish(RUN_LIMIT_S)


def jobs_of(
    options: argparse.Namespace, layout: Layout, chosen: Mapping[str, str]
) -> Iterator[tuple[int, Way]]:
    """(repeat, way): every way once in each repeat."""
    ways = [WAYS[name] for name in options.ways]
    for variant in options.variants:
        short = ",".join(f"{name.removeprefix('TUTTI_NET_')}={value}" for name, value in variant)
        ways.append(replace(TUTTI, name=f"{TUTTI.name} {short}", env=dict(variant)))
    for repeat in range(options.repeats):
        for way in ways:
            if layout.name in way.layouts:
                is_ours = way.network == TUTTI.network
                yield repeat, replace(way, env={**chosen, **way.env}) if is_ours else way


def network_of(options: argparse.Namespace) -> dict[str, Any]:
    """What results say about the network."""
    return {
        "settings": dict(options.set),
        "rate": options.rate,
        "queue": options.queue,
        "loss": options.loss,
    }


def known_layouts(options: argparse.Namespace) -> dict[str, Layout]:
    """With the rates that were asked for."""
    return nccl_jobs.layouts(
        plan.parse_rate(options.rate),
        plan.parse_queue(options.queue),
        plan.parse_loss(options.loss),
        options.ranks,
        options.tcp,
    )


def measure(options: argparse.Namespace, setup: Setup, mps: str) -> int:
    """Every way in every layout, in turn."""
    chosen = dict(options.set)
    report = Report("network", setup, options.output, {**network_of(options), "mps": mps})
    words = ["--collectives", ",".join(options.collectives), "--sizes", ",".join(options.sizes)]
    words += ["--time-cap", str(options.time_cap), "--watchdog", "60"]
    end_s = time.monotonic() + options.budget
    for layout in (known_layouts(options)[name] for name in options.layouts):
        if time.monotonic() > end_s:
            print(f"{layout.name}: left out, the time is over", flush=True)
            report.left_out += 1
            continue
        with nccl_jobs.lab_of(layout) as lab:
            report.tcp[layout.name] = tcp_of(lab)
            for repeat, way in jobs_of(options, layout, chosen):
                if time.monotonic() > end_s:
                    print(f"{layout.name}, {way.name}, {repeat}: left out, the time is over")
                    report.left_out += 1
                    break
                name = f"{layout.name}, {way.name}, {repeat}"
                outcome = run_once(setup, layout, lab, way, name, words)
                rows = rows_of(outcome, layout, way, repeat)
                report.add(name, outcome, [] if outcome.failure else rows)
            if lab is not None:
                dropped, lost = lab.count()
                print(f"{layout.name}: {dropped} packets dropped by queues, {lost} lost on links")
    print("\n".join(table(report.rows)))
    return verdict(report)


def verdict(report: Report) -> int:
    """What holds, what failed; the exit status."""
    found = report.claims()
    for line in report.failures:
        print(f"FAILED: {line}")
    for claim in found:
        print(claim)
    wrong = report.wrong()
    print(
        f"{len(report.rows)} rows, {wrong} wrong elements, {len(report.failures)} failed runs, "
        f"{sum(not claim.holds for claim in found)} of {len(found)} claims missed"
    )
    return int(bool(report.failures or wrong or not report.rows or report.left_out
                    or not all(claim.holds for claim in found)))  # fmt: skip


def check(options: argparse.Namespace, setup: Setup, mps: str) -> int:
    """The plugin alone: every collective, odd sizes, several of NCCL's ways to use a network."""
    chosen = dict(options.set)
    report = Report("check", setup, options.output, {**network_of(options), "mps": mps})
    words = ["--check", "all", "--iterations-max", "10", "--iterations-min", "2", "--time-cap"]
    words += [str(options.time_cap), "--watchdog", "60", "--sizes", ",".join(options.sizes)]
    end_s = time.monotonic() + options.budget
    for layout in (known_layouts(options)[name] for name in options.layouts):
        with nccl_jobs.lab_of(layout) as lab:
            # Settings are NCCL's business more than the fabric's.
            for what, env, collectives in VARIANTS if layout.spec is None else VARIANTS[:2]:
                if time.monotonic() > end_s:
                    print(f"{layout.name}, {what}: left out, the time is over")
                    report.left_out += 1
                    continue
                way = replace(TUTTI, env={**TUTTI.env, **env, **chosen})
                name = f"{layout.name}, {what}"
                mine = ["--collectives", ",".join(collectives)]
                outcome = run_once(setup, layout, lab, way, name, [*words, *mine])
                report.add(name, outcome, rows_of(outcome, layout, way, 0))
                checked = len(rows_of(outcome, layout, way, 0))
                print(f"{name}: {checked} of {len(collectives) * len(options.sizes)} checked")
                for line in nccl_jobs.plugin_lines(outcome.logs[0])[-1:]:
                    print(f"  rank 0: {line}")
    return verdict(report)


def ddp(options: argparse.Namespace, setup: Setup, mps: str) -> int:
    """PyTorch's calls and steps."""
    rows, failures, outcome = nccl_ddp.run(options, setup, known_layouts(options))
    more = {**network_of(options), "mps": mps, "batch": options.batch, "pixels": options.pixels}
    document = document_head("ddp", setup, more)
    document["versions"] |= versions_of(outcome)
    save(options.output, {**document, "failures": failures, "rows": rows})
    print("\n".join(nccl_ddp.summary(rows)))
    wrong = [row for row in rows if not nccl_ddp.is_right(row)]
    print(f"{len(rows)} runs, {len(wrong)} of them wrong, {len(failures)} failed")
    return int(bool(wrong or failures or not rows))


def trouble(options: argparse.Namespace, setup: Setup, mps: str) -> int:
    """Dead ranks, dead links, faults."""
    done = nccl_trouble.run(options, setup, known_layouts(options))
    document = document_head("trouble", setup, {**network_of(options), "mps": mps})
    save(options.output, {**document, "cases": done})
    return int(not done or not all(one["holds"] for one in done))


PARTS = {"check": check, "measure": measure, "ddp": ddp, "trouble": trouble}
# Where an option is not given.
PART_LAYOUTS = {
    "check": ["loopback", "fabric"],
    "measure": list(LAYOUTS),
    "ddp": ["fabric"],
    "trouble": ["fabric", "loopback"],
}


def draw(rows: Sequence[Row], out: Path) -> None:
    """Latency over size: a row of panels for each collective, in it one for each layout."""
    layouts = list(dict.fromkeys(row["layout"] for row in rows))
    collectives = list(dict.fromkeys(row["collective"] for row in rows))
    figure, panels = prediction_figure.panels([5.0] * len(layouts), rows=len(collectives))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    by_size = groups(rows)
    places = {size: i for i, size in enumerate(sorted({row["bytes"] for row in rows}))}  # Evenly.
    curves = itertools.product(collectives, layouts)
    for axes, (collective, layout) in zip(panels, curves, strict=True):
        sizes = sorted(
            {size for one, other, size in by_size if (one, other) == (layout, collective)}
        )
        axes.set_title(f"{layout}, {collective}")
        if not sizes:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
            continue
        for index, way in enumerate(ways):
            points = [
                (places[size], us / 1e3)
                for size in sizes
                if (us := middle_us(by_size[layout, collective, size], way)) is not None
            ]
            if points:
                axes.plot(
                    [i for i, _ in points],
                    [ms for _, ms in points],
                    label=way,
                    color=PALETTE[index % len(PALETTE)],
                    marker=MARKERS[index % len(MARKERS)],
                    linewidth=1.6,
                    markersize=4,
                )
        axes.set_yscale("log")
        limits = axes.get_ylim()  # What links alone need for a few bytes is far below.
        ideals = [
            (places[size], us / 1e3)
            for size in sizes
            if (us := by_size[layout, collective, size][0]["ideal_us"])
        ]
        if ideals:
            axes.plot(*zip(*ideals, strict=True), "k:", linewidth=1, label="links alone")
        axes.set_ylim(limits)
        axes.set_xlim(-0.4, len(places) - 0.6)
        axes.set_xticks(list(places.values()), list(map(format_bytes, places)), fontsize=8)
        axes.minorticks_off()
        axes.set_xlabel("size")
        axes.set_ylabel("one call, ms: median")
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend()
    figure.tight_layout()
    prediction_figure.save(figure, out)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    found.add_argument("part", choices=[*PARTS, "plot"])
    found.add_argument("results", nargs="?", type=Path, help="of plot: what to draw")
    found.add_argument("--build", type=Path, default=ROOT / "build/dev")
    found.add_argument("--nccl", help="path of libnccl.so.2; default: the one beside PyTorch")
    found.add_argument("--ranks", type=int, default=nccl_jobs.RANKS)
    found.add_argument("--gpus", type=int, default=nccl_jobs.count_gpus())
    found.add_argument("--mps", choices=["auto", "on", "off"], default="auto")
    found.add_argument("--layouts", nargs="+", choices=LAYOUTS)
    found.add_argument(
        "--rate", default=NOMINAL_RATE, help="of a host; bounds in ms are for 16gbit"
    )
    found.add_argument("--tcp", default="", help="congestion control; default: the machine's")
    found.add_argument("--queue", default="8ms", help="of each link")
    found.add_argument("--loss", default="0.1%", help="of `lossy`")
    found.add_argument("--ways", nargs="+", choices=WAYS)
    found.add_argument("--collectives", nargs="+", choices=COLLECTIVES)
    found.add_argument("--sizes", nargs="+")
    found.add_argument("--repeats", type=int, default=3)
    found.add_argument("--time-cap", type=float, default=0.4, help="seconds of one size's calls")
    found.add_argument("--budget", type=float, default=1e9, help="seconds, then runs are left out")
    found.add_argument("--seeds", type=int, default=4, help="of trouble: runs with faults")
    found.add_argument("--only", default="", help="of trouble: cases with this in their name")
    found.add_argument("--steps", type=int, default=20, help="of ddp; after 5 that do not count")
    found.add_argument("--batch", type=int, default=32, help="of ddp, on each rank")
    found.add_argument("--pixels", type=int, default=224, help="of ddp: images are squares")
    found.add_argument("--backend", default="nccl", help="of ddp; gloo: a test without GPUs")
    found.add_argument("--set", nargs="+", type=settings, default=[], help="NAME=VALUE for Tutti")
    found.add_argument(
        "--variants",
        nargs="+",
        type=lambda text: [settings(one) for one in text.split(",")],
        default=[],
        help="of measure, further ways: NAME=VALUE,NAME=VALUE of each for Tutti",
    )
    found.add_argument("--logs", type=Path, default=Path("nccl-network-logs"))
    found.add_argument("--without-log", action="store_true", help="a fake of NCCL writes none")
    found.add_argument("-o", "--output", type=Path)
    return found


def main() -> int:
    """Measures, checks or draws."""
    options = parser().parse_args()
    options.layouts = options.layouts or PART_LAYOUTS.get(options.part, list(LAYOUTS))
    ways = ["NCCL 2x8", TUTTI.name] if options.part == "ddp" else list(WAYS)
    options.ways = options.ways or ways
    options.collectives = options.collectives or ["allreduce", "alltoall"]
    options.sizes = options.sizes or (CHECK_SIZES if options.part == "check" else SIZES)
    # One that is killed under the service can take the others with it.
    options.mps = "off" if options.part == "trouble" else options.mps
    try:
        if options.part == "plot":
            document = results_head.load(options.results, SCHEMA.format("network"))
            rows = [
                row
                for row in document["rows"]
                if row["layout"] in options.layouts and row["collective"] in options.collectives
            ]
            if not rows:
                raise TuttiError(f"{options.results} has no such rows")
            draw(rows, options.output or Path("nccl-network.png"))
            return 0
        for text in options.sizes:
            parse_bytes(text)
        setup = Setup(
            build=options.build.resolve(),
            logs=options.logs.resolve(),
            nccl=nccl_jobs.find_nccl(options.nccl),
            gpus=options.gpus,
            ranks=options.ranks,
            asserts_network=not options.without_log,
        )
        setup.require()
        mps = nccl_jobs.Mps(setup, options.mps)
        with mps as setup:
            print(f"{setup.ranks} ranks, {setup.gpus} GPUs, multi-process service: {mps.says}")
            return PARTS[options.part](options, setup, mps.says)
    except (TuttiError, ValueError) as error:
        print(f"nccl_network: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    with processes.signals_as_exits():  # So that labs and ranks end with it.
        sys.exit(main())
