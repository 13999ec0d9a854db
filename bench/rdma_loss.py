# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Retained goodput of RDMA over links that lose packets, on soft-RoCE in a virtual machine.

    python bench/rdma_loss.py -o bench/results/rdma-loss.json
    python bench/rdma_loss.py show bench/results/rdma-loss.json

Needs a built tree (build/dev) and tools/set_up.sh rdma_vm.

Two processes on two rxe devices exchange messages of 1 MiB, while `tc netem` drops a share of all
packets. Retained is goodput at a loss over goodput without loss, both medians. By turns:

    Tutti UC          our transport over UC, chunks of 32 KiB: a lost packet loses a chunk
    Tutti UC, packet  same, chunks of one RDMA packet (TUTTI_NET_CHUNK)
    Tutti RC          our transport over RC, which goes back N packets itself
    ibv_rc_pingpong   one RC queue pair of ibverbs-utils, one message at a time

Ours move messages both ways at once (--bench ring, 4 in flight); goodput is that of one direction.
ibv_rc_pingpong moves one way at a time, and its rate counts both; so only retained shares compare.

Processors are emulated, and they are the only limit of the goodput: without netem's rate, links
have none. rxe of Linux 6.1 takes nothing more on a UC queue pair once the middle or the end of a
long write was lost; the wire notices and replaces the queue pair. Chunks of one packet have no
middle, but many more headers and acknowledgements. Repeats have one run of each way at each loss,
in turn, in one boot for each MTU. Exits with 1 when a claim is missed: at the greatest loss Tutti
UC retains at least three times what ibv_rc_pingpong does.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for directory in ("python", "bench", "tools"):
    sys.path.insert(0, str(ROOT / directory))

import msgspec  # noqa: E402
import rdma_vm  # noqa: E402
import results_head  # noqa: E402
from network_parts import Claim, Row, quartiles  # noqa: E402
from tutti_hpc import files, processes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402

SCHEMA = "tutti-bench-rdma-loss/1"
MESSAGE_BYTES = 1 << 20
WINDOW = 4
LIMIT_S = 90  # Of a run.
HEADERS_BYTES = 104  # Of what rxe adds to an RDMA packet, at most, rounded up.
LINK_MTU = 1500  # At least: IPv6 needs 1280. The RDMA MTU is a power of two below.
VARIABLES = {"TUTTI_NET_WIRE": "verbs", "NCCL_DEBUG": "INFO"}
COUNTERS = (
    "chunks sent", "retransmissions", "needless", "lost in part", "lost by their path", "by time",
    "timeouts", "tail probes", "path deaths", "fragments dropped",
)  # fmt: skip

# What Tutti UC retains at the greatest loss, over what plain RC retains.
OF_RC = 3.0

PINGPONG = """#!/bin/sh
# Both ends: MTU, bytes, messages.
words="-g 1 -m $1 -s $2 -n $3"
ibv_rc_pingpong -d rxe0 $words >/dev/null 2>&1 &
sleep 0.5
timeout $LIMIT_S ibv_rc_pingpong -d rxe1 $words 192.0.2.1
status=$?
kill $! 2>/dev/null
wait
exit $status
"""


@dataclass(frozen=True)
class Way:
    """One way to carry messages. No service: ibv_rc_pingpong."""

    name: str
    service: str = ""
    has_packet_chunks: bool = False


OURS = Way("Tutti UC", "uc")
RIVAL = Way("ibv_rc_pingpong")
WAYS = (OURS, Way("Tutti UC, packet", "uc", has_packet_chunks=True), Way("Tutti RC", "rc"), RIVAL)


def command_of(way: Way, mtu: int, messages: int, build: Path, pingpong: Path) -> list[str]:
    """What runs it once in the machine."""
    if not way.service:
        return [str(pingpong), str(mtu), str(MESSAGE_BYTES), str(messages)]
    chunk = {"TUTTI_NET_CHUNK": str(mtu)} if way.has_packet_chunks else {}
    variables = {"TUTTI_NET_VERBS": way.service, **chunk}
    words = ["env", *(f"{name}={value}" for name, value in variables.items())]
    words += ["timeout", str(LIMIT_S), str(build / "tests/nccl_net/nccl_net_driver"), "--plugin"]
    words += [str(build / "lib/libnccl-net-tutti.so"), "--watchdog", str(LIMIT_S - 10)]
    words += ["--version", "11", "--ranks", "2", "--devices", "2", "--json", "--verbose"]
    words += ["--bench", "ring", "--bytes", str(MESSAGE_BYTES), "--window", str(WINDOW)]
    return [*words, "--repeats", str(messages)]


def read(way: Way, outcome: rdma_vm.Outcome) -> Row:
    """Goodput in Mbit/s, 0 where the run failed; what the plugin counted, of both ends."""
    text = outcome.output
    if way.service:
        found = [float(value) * 1e3 for value in re.findall(r'"goodput_gbps": ([\d.e+-]+)', text)]
        ended = outcome.status == 0 and len(found) == 2
        service = f"RDMA {way.service.upper()} on rxe1"
        if ended and service not in text:
            raise TuttiError(f"{way.name}: the run was not over {service}: {text[-2000:]}")
    else:
        found = [float(value) for value in re.findall(r"= ([\d.]+) Mbit/sec", text)]
        ended = outcome.status == 0 and len(found) == 1
    row: Row = {"goodput_mbps": round(statistics.mean(found), 3) if ended else 0.0}
    if not ended:
        row["failed"] = f"status {outcome.status}: {text[-600:]}"
    if way.service:
        counts = {
            name: sum(int(value) for value in re.findall(rf"[ ,]{name} (\d+)", text))
            for name in COUNTERS
        }
        replaced = sum(int(value) for value in re.findall(r"(\d+) queue pair\(s\) failed", text))
        row["counters"] = {**counts, "queue pairs replaced": replaced}
    return row


def measure(options: argparse.Namespace, mtu: int) -> Iterator[Row]:
    """Rows of one MTU: one boot."""
    losses = sorted(set(options.loss))
    with tempfile.TemporaryDirectory() as scratch:
        pingpong = Path(scratch, "pingpong")
        pingpong.write_text(PINGPONG)
        pingpong.chmod(0o755)
        plan = [
            (repeat, loss, way)
            for repeat in range(options.repeats)
            for loss in losses
            for way in WAYS
        ]
        commands: list[list[str]] = []
        for _, loss, way in plan:
            delay = ["delay", options.delay] if options.delay else []
            netem = ["set_netem", *delay, *(["loss", f"{loss:g}%"] if loss else [])]
            commands += [
                netem,
                command_of(way, mtu, options.messages, options.build, pingpong),
            ]
        machine = rdma_vm.Machine(
            mtu=max(mtu + HEADERS_BYTES, LINK_MTU), timeout_s=60 + LIMIT_S * len(plan),
            put=[pingpong],
            environment={**VARIABLES, "LIMIT_S": str(LIMIT_S)},
        )  # fmt: skip
        outcomes = rdma_vm.run_in_vm(*commands, machine=machine)
    for (repeat, loss, way), outcome in zip(plan, outcomes[1::2], strict=True):
        row = {"mtu_bytes": mtu, "loss_percent": loss, "way": way.name, "repeat": repeat}
        yield {**row, **read(way, outcome)}


def goodputs(rows: Sequence[Row], mtu: int, loss: float, way: str) -> list[float]:
    """Of all repeats, Mbit/s."""
    return [
        row["goodput_mbps"]
        for row in rows
        if (row["mtu_bytes"], row["loss_percent"], row["way"]) == (mtu, loss, way)
    ]


def retained(rows: Sequence[Row], mtu: int, loss: float, way: str) -> float:
    """Median goodput at a loss over that without; 0 where there is none."""
    without = statistics.median(goodputs(rows, mtu, 0, way))
    return statistics.median(goodputs(rows, mtu, loss, way)) / without if without else 0.0


def axis(rows: Sequence[Row], key: str) -> list[Any]:
    """All values of a key, in the order of the first."""
    return list(dict.fromkeys(row[key] for row in rows))


def table(rows: Sequence[Row]) -> list[str]:
    """A line for each way at each MTU and loss: median and quartiles, what is retained."""
    lines = [f"{'MTU':>5} {'loss':>6}  {'way':18} {'Mbit/s':>26}  retained"]
    for mtu in axis(rows, "mtu_bytes"):
        for loss in axis(rows, "loss_percent"):
            for way in axis(rows, "way"):
                low, middle, high = quartiles(goodputs(rows, mtu, loss, way))
                spread = f"{middle:.1f} ({low:.1f} to {high:.1f})"
                share = retained(rows, mtu, loss, way)
                lines.append(f"{mtu:5} {loss:5g}%  {way:18} {spread:>26}  {share:.3f}")
    return lines


def claims(rows: Sequence[Row]) -> list[Claim]:
    """At the greatest loss, UC over plain RC."""
    found = []
    loss = max(axis(rows, "loss_percent"))
    for mtu in axis(rows, "mtu_bytes"):
        theirs = retained(rows, mtu, loss, RIVAL.name)
        ratio = retained(rows, mtu, loss, OURS.name) / theirs if theirs else float("inf")
        name = f"MTU {mtu}, {loss:g} % loss: retained by {OURS.name}, of {RIVAL.name}'s"
        found.append(Claim(name, ratio, OF_RC))
    return found


def main() -> int:
    """Measures, or shows what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "part", nargs="?", choices=["measure", "show"], default="measure",
        help="measure (default), or print the table of a results file",
    )  # fmt: skip
    parser.add_argument("results", nargs="?", type=Path, help="with show: file that -o has written")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build/dev", help="build directory (build/dev)"
    )
    parser.add_argument(
        "--mtu",
        type=int,
        nargs="+",
        default=[1024, 4096],
        help="RDMA MTUs, bytes (default 1024 4096)",
    )
    parser.add_argument(
        "--loss", type=float, nargs="+", default=[0, 0.01, 0.1, 1], help="percent (0 0.01 0.1 1)"
    )
    parser.add_argument("--delay", default="", help="netem delay of each link, as in 1ms")
    parser.add_argument(
        "--messages",
        type=int,
        default=10,
        help="messages of 1 MiB in a run, of each direction (default 10)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs of each row (default 5)")
    parser.add_argument("-o", "--output", type=Path, help="results file to write")
    options = parser.parse_args()
    for name in ("tests/nccl_net/nccl_net_driver", "lib/libnccl-net-tutti.so"):
        if options.part == "measure" and not (options.build / name).is_file():
            parser.error(f"{options.build / name} is not there; remedy: make build")
    try:
        if options.part == "show":
            rows = results_head.load(options.results, SCHEMA)["rows"]
        else:
            if 0 not in options.loss:
                options.loss.append(0)
            document = results_head.head(SCHEMA)
            document["versions"]["vm_kernel"] = rdma_vm.run_in_vm(["uname", "-r"])[0].output.strip()
            document |= {"message_bytes": MESSAGE_BYTES, "window": WINDOW, "delay": options.delay}
            document["rows"] = []
            rows = document["rows"]
            for mtu in options.mtu:
                rows.extend(measure(options, mtu))
                if options.output:
                    text = msgspec.json.format(msgspec.json.encode(document), indent=1)
                    files.write(options.output, text + b"\n")
    except rdma_vm.VmError as error:
        print(error, file=sys.stderr)
        return 2
    except TuttiError as error:
        error.show()
        return error.exit_code
    print("\n".join(table(rows)))
    found = claims(rows)
    print("\n".join(map(str, found)))
    return 0 if all(claim.holds for claim in found) else 1


if __name__ == "__main__":
    with processes.signals_as_exits():
        sys.exit(main())
