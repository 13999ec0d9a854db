# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The NCCL network plugin against TCP: goodput on a fabric of many paths, latency, CPU time.

    python bench/network.py fabric -o bench/results/network-fabric.json
    python bench/network.py pair -o bench/results/network-pair.json
    python bench/network.py rails -o bench/results/network-rails.json
    python bench/network.py plot bench/results/network-fabric.json -o network-fabric.png

Needs a built tree (build/dev), root or user namespaces, and two idle processors.

`fabric` is a lab of 8 nodes, each on a leaf of its own, and 8 spines. A link to a spine is an
eighth of a host's link, so one flow gets at most an eighth of its host, and flows that share a
spine less. Ring and all-to-all traffic, each without and with packets lost at random, are carried
by turns over TCP with one stream per channel (NCCL's default), TCP with 16 streams, and Tutti. The
ideal is what TCP's full frames carry on a host's link, or on its links to the spines where they are
slower. With `--failing 5%` the first spine loses that share of its packets, as a spine with a bad
optical module does.

All waiting is polling, as NCCL's, so CPU time does not tell whether the processors are the limit.
`--headroom` therefore repeats the first pattern at half of all rates: where the links are the
limit, the share of the ideal is the same.

`pair` is two processes on an unshaped pair of virtual Ethernet devices: half the round trip of 8
bytes, and the CPU time of both processes, all threads, for a GB in both directions at once and for
a million messages of 8 bytes with 8 on their way. In these two the processors are saturated, so
little of the CPU time is waiting; while 8 bytes go to and fro all of it is polling, on both sides.

`rails` is two nodes with two links each, and one connection each way: over one link, and over both
(the plugin's device is made of two).

Repeats are paired: each has one run of every way, in turn. Exits with 1 when a claim is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "bench"))

import msgspec  # noqa: E402
import results_head  # noqa: E402
from network_parts import (  # noqa: E402
    Claim,
    Lab,
    Row,
    busy_s,
    enter,
    ideal_bps,
    paired,
    quartiles,
    settings,
)
from tutti_hpc import files, machine, prediction_figure, processes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402
from tutti_hpc.figure import PALETTE  # noqa: E402
from tutti_hpc.lab import network, plan  # noqa: E402

SCHEMA = "tutti-bench-nccl-net-{}/1"
NODES = SPINES = 8
MESSAGE_BYTES = 512 * 1024  # What NCCL hands to a plugin at most, by default.
WINDOW = 8  # As many has it on their way.
PATIENCE_S = 60
PORT = 5000
RAILS = ("Tutti, 2 rails", "Tutti, 1 rail")
PAIR_DEVICE = "pair0"
CARRIER_S = 2  # The kernel tells of a link that is up within a second.
PAIR_ADDRESSES = ("10.99.0.1", "10.99.0.2")

# The plain claims: goodput over that of TCP with one stream, with 16 and of the ideal; with loss
# over TCP with 16 streams; latency and CPU time over TCP's with one stream.
OF_ONE_STREAM = 5.0
OF_MANY_STREAMS = 1.5
OF_IDEAL = 0.85
OF_MANY_STREAMS_LOSSY = 3.0
OF_ONE_RAIL = 1.7
LATENCY_OF_TCP = 1.10
CPU_OF_TCP = 0.70


@dataclass(frozen=True)
class Way:
    """One way to carry messages."""

    name: str
    library: str
    env: Mapping[str, str] = field(default_factory=dict)


TCP = "libnccl-net-tcpbaseline.so"
TUTTI = "libnccl-net-tutti.so"
ONE_STREAM = Way("TCP, 1 stream", TCP)
MANY_STREAMS = Way("TCP, 16 streams", TCP, {"TCP_NET_THREADS": "1", "TCP_NET_STREAMS": "16"})
LIBRARIES = {
    TUTTI: "lib",
    "libtutti.so.0": "lib",  # Where its code is.
    TCP: "bench/net",
    "nccl_net_driver": "tests/nccl_net",
}


def messages_for(spec: plan.Spec, pattern: str, seconds: float, share: float) -> int:
    """On each link of a pattern, to take about so long at a share of the ideal."""
    links = 1 if pattern == "ring" else spec.nodes - 1
    return max(2 * WINDOW, round(ideal_bps(spec) / 8 * share * seconds / links / MESSAGE_BYTES))


def groups(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows of one pattern at one loss at one rate, in the order of the first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row["pattern"], row["loss_percent"], row["rate_mbps"]), []).append(row)
    return found


def fabric_claims(rows: Sequence[Row], ours: str = "Tutti") -> list[Claim]:
    """Medians of the paired ratios, and of the share of the ideal."""
    found = []
    main_rate = max((row["rate_mbps"] for row in rows), default=0)
    for (pattern, loss, rate), mine in groups(rows).items():
        if rate != main_rate or not any(row["way"] == ours for row in mine):
            continue
        name = f"{pattern}, {loss:g} % loss"
        many = paired(mine, "goodput_mbps", ours, MANY_STREAMS.name)
        bound = OF_MANY_STREAMS_LOSSY if loss else OF_MANY_STREAMS
        if many:
            found.append(Claim(f"{name}, of TCP's 16 streams", statistics.median(many), bound))
        if loss:
            continue
        one = paired(mine, "goodput_mbps", ours, ONE_STREAM.name)
        if one:
            measured = statistics.median(one)
            found.append(Claim(f"{name}, of TCP's one stream", measured, OF_ONE_STREAM))
        share = statistics.median(row["of_ideal"] for row in mine if row["way"] == ours)
        found.append(Claim(f"{name}, of the ideal", share, OF_IDEAL))
    return found


def pair_claims(rows: Sequence[Row], ours: str = "Tutti") -> list[Claim]:
    """Medians of the paired ratios."""
    found = []
    for key, bound in (
        ("latency_us", LATENCY_OF_TCP),
        ("cpu_s_per_gb", CPU_OF_TCP),
        ("cpu_us_per_message", None),
    ):
        mine = [row for row in rows if key in row]
        ratios = paired(mine, key, ours, ONE_STREAM.name)
        if ratios and bound is not None:
            found.append(Claim(f"{key} of TCP's", statistics.median(ratios), bound, at_least=False))
    return found


def rails_claims(rows: Sequence[Row]) -> list[Claim]:
    """The median of the paired ratios."""
    ratios = paired(rows, "goodput_mbps", *RAILS)
    measured = statistics.median(ratios) if ratios else 0
    return [Claim(f"{RAILS[0]}, of {RAILS[1]}", measured, OF_ONE_RAIL)]


def rails_table(rows: Sequence[Row]) -> list[str]:
    """A line for each way: median and quartiles of the goodput, median share of its links."""
    lines = []
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        low, middle, high = quartiles([row["goodput_mbps"] for row in mine])
        share = statistics.median(row["of_ideal"] for row in mine)
        lines.append(
            f"{way:16} {middle:8.1f} Mb/s ({low:.1f} to {high:.1f}), {share:.3f} of the links"
        )
    return lines


def fabric_table(rows: Sequence[Row]) -> list[str]:
    """A line for each way at each pattern, loss and rate: median and extremes of the goodput."""
    lines = [
        f"{'pattern':9} {'loss':>6} {'host':>9}  {'way':24} {'Mb/s per node':>24} "
        f"{'of ideal':>8} {'CPUs':>5} {'busy':>5}  dropped, lost"
    ]
    for (pattern, loss, rate), mine in groups(rows).items():
        for way in dict.fromkeys(row["way"] for row in mine):
            of_way = [row for row in mine if row["way"] == way]
            values = [row["goodput_mbps"] for row in of_way]

            def middle(key: str, of_way: list[Row] = of_way) -> float:
                return float(statistics.median(row[key] for row in of_way))

            spread = f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
            lines.append(
                f"{pattern:9} {loss:5g}% {rate:4g} Mb/s  {way:24} {spread:>24} "
                f"{middle('of_ideal'):8.3f} {middle('cpus'):5.2f} {middle('busy'):5.2f}  "
                f"{middle('dropped'):.0f}, {middle('lost'):.0f}"
            )
    return lines


def pair_table(rows: Sequence[Row]) -> list[str]:
    """A line for each value of each way, and for the ratio: median and quartiles."""
    lines = []
    for key in ("latency_us", "cpu_s_per_gb", "cpu_us_per_message", "goodput_gbps"):
        mine = [row for row in rows if key in row]
        ways = list(dict.fromkeys(row["way"] for row in mine))
        for way in ways:
            low, middle, high = quartiles([row[key] for row in mine if row["way"] == way])
            lines.append(f"{key:20} {way:24} {middle:9.3f} ({low:.3f} to {high:.3f})")
        for way in ways:
            ratios = paired(mine, key, way, ONE_STREAM.name)
            if way != ONE_STREAM.name and ratios:
                low, middle, high = quartiles(ratios)
                name = f"{way} / TCP"
                lines.append(f"{key:20} {name:24} {middle:9.3f} ({low:.3f} to {high:.3f})")
    return lines


class Runner:
    """Starts a process of the driver for each node and reads what it prints."""

    def __init__(self, programs: Path, lab: Lab, interface: str, rendezvous: str) -> None:
        self.programs = programs
        self.lab = lab
        self.interface = interface
        self.rendezvous = rendezvous
        self.logs: list[str] = []  # What the plugins said, of the last run.

    def run(self, way: Way, words: Sequence[str]) -> dict[str, Any]:
        """The driver's document; `busy` is the share of all processors that was not idle."""
        env = {**os.environ, "NCCL_SOCKET_IFNAME": f"={self.interface}", **way.env}
        command = [str(self.programs / "nccl_net_driver"), "--json", "--verbose"]
        command += ["--plugin", str(self.programs / way.library), "--watchdog", str(PATIENCE_S)]
        command += ["--ranks", str(self.lab.spec.nodes), "--rendezvous", self.rendezvous, *words]
        with contextlib.ExitStack() as stack:
            files = [
                (
                    stack.enter_context(tempfile.TemporaryFile("w+")),
                    stack.enter_context(tempfile.TemporaryFile("w+")),
                )
                for _ in range(self.lab.spec.nodes)
            ]
            before_s = busy_s()
            started: list[subprocess.Popen[str]] = []
            try:
                for rank, (out, err) in enumerate(files):
                    started.append(
                        subprocess.Popen(
                            [*command, "--rank", str(rank)],
                            env=env,
                            stdout=out,
                            stderr=err,
                            preexec_fn=partial(enter, self.lab.pids[plan.node_name(rank)]),
                        )
                    )
                codes = processes.wait(started, PATIENCE_S)
            finally:
                processes.end(started)
            after_s = busy_s()
            texts = []
            for both in files:
                for file in both:
                    file.seek(0)
                texts.append((both[0].read(), both[1].read()))
        self.logs = [err for _, err in texts]
        if any(codes):
            told = " | ".join(log[-300:] for log in self.logs if log)
            raise TuttiError(f"{way.name}: statuses {codes}: {told}")
        document: dict[str, Any] = json.loads(texts[0][0])
        longest_s = max(rank["seconds"] for rank in document["ranks"])
        cpus = len(os.sched_getaffinity(0))
        # The beginning and the end of the processes are in it, too: at most all of the time.
        document["busy"] = min(1.0, (after_s - before_s) / longest_s / cpus)
        return document


def cpu_s(document: Mapping[str, Any]) -> float:
    """Of all ranks."""
    return float(sum(rank["cpu_user_s"] + rank["cpu_system_s"] for rank in document["ranks"]))


def fabric_rows(
    runner: Runner, ways: Sequence[Way], pattern: str, repeats: int, seconds: float
) -> Iterator[Row]:
    """Rows of one pattern in one lab: each repeat has a run of every way."""
    spec = runner.lab.spec
    for repeat in range(repeats):
        for way in ways:
            share = 0.3 if way is ONE_STREAM else 0.6
            words = ["--bench", pattern, "--bytes", str(MESSAGE_BYTES), "--window", str(WINDOW)]
            words += ["--repeats", str(messages_for(spec, pattern, seconds, share))]
            dropped, lost = runner.lab.count()
            document = runner.run(way, words)
            dropped_after, lost_after = runner.lab.count()
            ranks = document["ranks"]
            goodputs = [rank["goodput_gbps"] * 1e3 for rank in ranks]
            mean = statistics.mean(goodputs)
            yield {
                "pattern": pattern,
                "loss_percent": spec.loss_ppm / 1e4,
                "rate_mbps": spec.rate_bps / 1e6,
                "spine_rate_mbps": spec.spine_rate_bps / 1e6,
                "way": way.name,
                "repeat": repeat,
                "goodput_mbps": round(mean, 2),
                "goodput_mbps_min": round(min(goodputs), 2),
                "goodput_mbps_max": round(max(goodputs), 2),
                "of_ideal": round(mean * 1e6 / ideal_bps(spec), 4),
                "seconds": round(max(rank["seconds"] for rank in ranks), 3),
                "cpus": round(cpu_s(document) / max(rank["seconds"] for rank in ranks), 2),
                "busy": round(document["busy"], 3),
                "dropped": dropped_after - dropped,
                "lost": lost_after - lost,
            }


def plug_pair(lab: Lab) -> None:
    """An unshaped link between n0 and n1, in place of their rails."""

    def make() -> None:
        with network._netlink() as route:
            route.link(
                "add",
                ifname=PAIR_DEVICE,
                kind="veth",
                peer={"ifname": PAIR_DEVICE, "net_ns_fd": other},
            )

    def start(address: str) -> None:
        with network._netlink() as route:
            index = route.link_lookup(ifname=PAIR_DEVICE)[0]
            route.addr("add", index=index, address=address, prefixlen=24)
            route.link("set", index=index, state="up")

    other = os.open(f"/proc/{lab.pids['n1']}/ns/net", os.O_RDONLY)
    try:
        network.inside(lab.pids["n0"], make)
    finally:
        os.close(other)
    for node, address in enumerate(PAIR_ADDRESSES):
        network.inside(lab.pids[plan.node_name(node)], partial(start, address))
    time.sleep(CARRIER_S)


def pair_rows(runner: Runner, ways: Sequence[Way], repeats: int) -> Iterator[Row]:
    """Rows of latency and of CPU time."""
    for repeat in range(repeats):
        for way in ways:
            words = ["--bench", "pingpong", "--bytes", "8", "--repeats", "20000"]
            ranks = runner.run(way, words)["ranks"]
            yield {
                "way": way.name,
                "repeat": repeat,
                "latency_us": statistics.mean(rank["latency_us_p50"] for rank in ranks),
                "latency_us_p99": statistics.mean(rank["latency_us_p99"] for rank in ranks),
            }
        for way in ways:
            words = ["--bench", "ring", "--bytes", "1M", "--window", str(WINDOW)]
            document = runner.run(way, [*words, "--repeats", "3000"])
            received = sum(rank["received_bytes"] for rank in document["ranks"])
            yield {
                "way": way.name,
                "repeat": repeat,
                "cpu_s_per_gb": cpu_s(document) / received * 1e9,
                "goodput_gbps": sum(rank["goodput_gbps"] for rank in document["ranks"]),
            }
        for way in ways:
            words = ["--bench", "ring", "--bytes", "8", "--window", str(WINDOW)]
            document = runner.run(way, [*words, "--repeats", "200000"])
            yield {
                "way": way.name,
                "repeat": repeat,
                "cpu_us_per_message": cpu_s(document) / (2 * 200_000) * 1e6,
                "messages_per_s": 200_000 / max(rank["seconds"] for rank in document["ranks"]),
            }


def rails_rows(runner: Runner, tutti: Way, repeats: int, seconds: float) -> Iterator[Row]:
    """Rows of one connection each way, over all links and over one."""
    spec = runner.lab.spec
    for repeat in range(repeats):
        for name, rails in zip(RAILS, (spec.rails, 1), strict=True):
            words = ["--bench", "ring", "--bytes", str(MESSAGE_BYTES), "--window", str(WINDOW)]
            words += ["--version", "11", "--rails", str(rails), "--repeats"]
            words += [str(rails * messages_for(spec, "ring", seconds, 0.9))]
            document = runner.run(tutti, words)
            mean = statistics.mean(rank["goodput_gbps"] * 1e3 for rank in document["ranks"])
            yield {
                "way": name,
                "repeat": repeat,
                "rate_mbps": spec.rate_bps / 1e6,
                "goodput_mbps": round(mean, 2),
                "of_ideal": round(mean * 1e6 / ideal_bps(spec) / rails, 4),
                "seconds": round(max(rank["seconds"] for rank in document["ranks"]), 3),
                "busy": round(document["busy"], 3),
            }


@contextlib.contextmanager
def copied_programs(build: Path) -> Iterator[Path]:
    """The built files in a place where no build replaces them meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tutti-network-") as place:
        for name, directory in LIBRARIES.items():
            path = build / directory / name
            if not path.exists():
                raise TuttiError(f"{path} is missing; remedy: make build")
            shutil.copy2(path, place)
        yield Path(place)


def draw(rows: Sequence[Row], out: Path) -> None:
    """Share of the ideal of each way: a panel for each pattern, groups of bars over the loss."""
    main_rate = max(row["rate_mbps"] for row in rows)
    mine = [row for row in rows if row["rate_mbps"] == main_rate]
    patterns = list(dict.fromkeys(row["pattern"] for row in mine))
    losses = sorted({row["loss_percent"] for row in mine})
    ways = list(dict.fromkeys(row["way"] for row in mine))
    figure, panels = prediction_figure.panels([6.0] * len(patterns))
    width = 0.8 / len(ways)
    for axes, pattern in zip(panels, patterns, strict=True):
        for index, way in enumerate(ways):
            for at, loss in enumerate(losses):
                values = [
                    100 * row["of_ideal"]
                    for row in mine
                    if (row["pattern"], row["loss_percent"], row["way"]) == (pattern, loss, way)
                ]
                if not values:
                    continue
                middle = statistics.median(values)
                axes.bar(
                    at + (index - (len(ways) - 1) / 2) * width,
                    middle,
                    width,
                    yerr=[[middle - min(values)], [max(values) - middle]],
                    capsize=2,
                    color=PALETTE[index % len(PALETTE)],
                    label=way if at == 0 else None,
                )
        axes.set_xticks(range(len(losses)), [f"{loss:g} %" for loss in losses])
        axes.set_xlabel("packets lost on each link to a spine")
        axes.set_ylabel("goodput of a node, % of the ideal: median, least, most")
        axes.set_ylim(0, 100)
        axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_title(f"{pattern}, {NODES} nodes of {main_rate:g} Mb/s, {SPINES} spines")
        axes.legend()
    figure.tight_layout()
    prediction_figure.save(figure, out)


def save(out: Path | None, part: str, rows: Sequence[Row], more: Mapping[str, Any]) -> None:
    """The results so far."""
    if out is None:
        return
    head = results_head.head(SCHEMA.format(part))
    head["machine"] |= {"kernel": os.uname().release, "cpus": machine.describe().cpus}
    document = {**head, **more, "rows": list(rows)}
    files.write(out, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def say(rows: Sequence[Row], table: Callable[[Sequence[Row]], list[str]]) -> None:
    """The table of what was measured."""
    print("\n".join(table(rows)), flush=True)


def measure_fabric(options: argparse.Namespace, programs: Path, tutti: Way) -> list[Claim]:
    """Every lab in turn: no loss, then each loss; then half the rates."""
    rows: list[Row] = []
    rate, spine_rate = plan.parse_rate(options.rate), plan.parse_rate(options.spine_rate)
    labs = [(plan.parse_loss(loss), 1, options.pattern) for loss in options.loss]
    if options.headroom:
        labs.append((0, 2, options.pattern[:1]))
    for loss_ppm, divisor, patterns in labs:
        spec = plan.Spec(
            nodes=options.nodes,
            rails=1,
            rate_bps=rate // divisor,
            spines=SPINES,
            spine_rate_bps=spine_rate // divisor,
            loss_ppm=loss_ppm,
            queue_us=plan.parse_queue(options.queue) * divisor,  # The same number of bytes.
        )
        env = {"TUTTI_NET_SPEED": str(spec.rate_bps // 1_000_000), **tutti.env}
        ways = [ONE_STREAM, MANY_STREAMS, Way(tutti.name, tutti.library, env)]
        ways = [way for way in ways if not options.way or way.name in options.way]
        with Lab(spec) as lab:
            if options.failing:
                lab.fail_spine(0, plan.parse_loss(options.failing))
            runner = Runner(programs, lab, "rail0", f"{plan.management_address(0)}:{PORT}")
            for pattern in patterns:
                for row in fabric_rows(runner, ways, pattern, options.repeats, options.seconds):
                    rows.append(row)
                    print(
                        f"{row['pattern']}, {row['loss_percent']:g} %, {row['way']}: "
                        f"{row['goodput_mbps']} Mb/s, {row['of_ideal']:.3f} of the ideal",
                        file=sys.stderr,
                        flush=True,
                    )
                    if options.verbose:
                        print("\n".join(runner.logs), file=sys.stderr)
                    save(
                        options.output,
                        "fabric",
                        rows,
                        {
                            "settings": dict(tutti.env),
                            "tcp": lab.tcp(),
                            "message_bytes": MESSAGE_BYTES,
                            "window": WINDOW,
                            "queue": options.queue,
                            "failing": options.failing,
                        },
                    )
    say(rows, fabric_table)
    return fabric_claims(rows)


def measure_pair(options: argparse.Namespace, programs: Path, tutti: Way) -> list[Claim]:
    """Two nodes."""
    rows: list[Row] = []
    with Lab(plan.Spec(nodes=2, rails=1, rate_bps=10**9)) as lab:
        plug_pair(lab)
        runner = Runner(programs, lab, PAIR_DEVICE, f"{PAIR_ADDRESSES[0]}:{PORT}")
        others = [
            Way(f"Tutti, {wire}", TUTTI, {**tutti.env, "TUTTI_NET_WIRE": wire})
            for wire in options.wire
        ]
        for row in pair_rows(runner, [ONE_STREAM, tutti, *others], options.repeats):
            rows.append(row)
            if options.verbose:
                print("\n".join(runner.logs), file=sys.stderr)
        save(options.output, "pair", rows, {"settings": dict(tutti.env), "tcp": lab.tcp()})
    say(rows, pair_table)
    return pair_claims(rows)


def measure_rails(options: argparse.Namespace, programs: Path, tutti: Way) -> list[Claim]:
    """Two nodes with two links each."""
    rows: list[Row] = []
    spec = plan.Spec(nodes=2, rails=2, rate_bps=plan.parse_rate(options.rate))
    env = {"TUTTI_NET_SPEED": str(spec.rate_bps // 1_000_000), **tutti.env}
    with Lab(spec) as lab:
        runner = Runner(programs, lab, "rail0,rail1", f"{plan.management_address(0)}:{PORT}")
        way = Way(tutti.name, tutti.library, env)
        for row in rails_rows(runner, way, options.repeats, options.seconds):
            rows.append(row)
            if options.verbose:
                print("\n".join(runner.logs), file=sys.stderr)
        more = {"settings": dict(tutti.env), "tcp": lab.tcp(), "window": WINDOW}
        save(options.output, "rails", rows, more)
    say(rows, rails_table)
    return rails_claims(rows)


def main() -> int:
    """Measures, or draws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["fabric", "pair", "rails", "plot"])
    parser.add_argument("results", nargs="?", type=Path, help="of plot: what to draw")
    parser.add_argument("--build", type=Path, default=ROOT / "build/dev")
    parser.add_argument("--rate", default="100mbit", help="of a host's link")
    parser.add_argument("--spine-rate", default="12.5mbit")
    parser.add_argument("--queue", default="80ms", help="of each link")
    parser.add_argument("--loss", nargs="+", default=["0%", "0.1%", "1%"])
    parser.add_argument("--failing", help="loss of the first spine, as in 5%%")
    parser.add_argument("--nodes", type=int, default=NODES, help="of fabric")
    parser.add_argument("--pattern", nargs="+", default=["ring", "alltoall"])
    parser.add_argument("--way", nargs="+", help="only these, by name")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of a run at 60 %% of the ideal")
    parser.add_argument("--headroom", action="store_true", help="the same at half the rates")
    parser.add_argument("--set", nargs="+", type=settings, default=[], help="NAME=VALUE for Tutti")
    parser.add_argument(
        "--wire", nargs="+", default=[], metavar="WIRE",
        help="with pair: measures Tutti with these TUTTI_NET_WIRE, too (xdp)",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="what the plugins say")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    try:
        if options.part == "plot":
            rows = results_head.load(options.results, SCHEMA.format("fabric"))["rows"]
            draw(rows, options.output or Path("network-fabric.png"))
            return 0
        tutti = Way("Tutti", TUTTI, dict(options.set))
        with copied_programs(options.build) as programs:
            part = {"fabric": measure_fabric, "pair": measure_pair, "rails": measure_rails}
            claims = part[options.part](options, programs, tutti)
    except TuttiError as error:
        error.show()
        return error.exit_code
    print("\n".join(map(str, claims)))
    return 0 if all(claim.holds for claim in claims) else 1


if __name__ == "__main__":
    with processes.signals_as_exits():  # So that the lab ends with it.
        sys.exit(main())
