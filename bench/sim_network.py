# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the packet simulator and the transport in it come to, each part beside published numbers.

    python bench/sim_network.py [PART] [-o bench/results/sim-table4.json] [--plot table4.png]

  check        128 NICs at 4 KiB: the default configuration against its two bounds (the default)
  table4       the permutation of 64 MB over 1024 NICs in ten configurations, both ACK policies
  speed        events per second, CPU seconds and memory from 128 to 8192 NICs
  incast       15-to-1 beside a permutation on 16 NICs, against what RDMA NICs do
  loss         ring allreduce and all-to-all of 1 GB on 16 NICs, against go-back-N
  collectives  allreduce, allgather and all-to-all on 128 NICs: one path against 256

--seeds, --nics, --bytes and --messages change how much each part does; without them a part is what
its results in bench/results are. A figure comes with -o (beside it) or where --plot says.

Each run is a process of its own (`tutti sim network`), so that its CPU time and its memory are its
own. Times in microseconds are simulated: they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import msgspec  # noqa: E402
import results_head  # noqa: E402
import sim_network_figures  # noqa: E402
from tutti_hpc import files, packet_network, prediction, sizes  # noqa: E402
from tutti_hpc.errors import TuttiError  # noqa: E402

# Ten configurations: (what, chunk, spray, window groups). Published maxima in microseconds of the
# sender- and the receiver-driven column ("An Extensible Software Transport Layer for GPU
# Networking", Table 4); of the public Ultra Ethernet simulator (htsim), one seed, ECN alone. None:
# not known to us.
CELLS = [
    ("4K, ECN", "4K", "mixed", 1, (1450, 1430), (1510.4, 1444.4)),
    ("32K, ECN", "32K", "mixed", 1, (1620, 1470), (1404.7, 1438.1)),
    ("32K, RTT", "32K", "two_choices", 1, (1710, None), (None, None)),
    ("32K, RTT, split", "32K", "two_choices", 4, (None, None), (None, None)),
    ("16K, RTT, split", "16K", "two_choices", 4, (1510, 1420), (None, None)),
]
COLUMNS = ("nscc", "rccc")
FLOW_BYTES = 64_000_000
FLOOR_CLAIM = 1.05


def ask(what: str, *options: str) -> bytes:
    """The document of one `tutti sim` in a process of its own.

    One that is not whole has no figures: ends this program where some operations never ended.
    """
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run.json"
        command = [sys.executable, "-m", "tutti_hpc", "sim", what, *options, "-o", str(out)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not out.is_file():
            said = done.stderr.strip() or f"status {done.returncode}"
            raise SystemExit(f"{shlex.join(command)}: {said}")
        return out.read_bytes()


def run(*options: str) -> packet_network.Document:
    """One `tutti sim network`."""
    return packet_network.decode(ask("network", *options))


def summary(documents: list[packet_network.Document]) -> dict[str, Any]:
    """Of all seeds of one configuration; the first group of flows."""
    floor_us = documents[0].floor_us
    assert floor_us is not None, "of traffic without one"
    rows = [row for document in documents for row in document.rows]
    one = [row.completions[0] for row in rows]
    return {
        "max_us": max(c.max_us for c in one),
        "max_us_by_seed": [c.max_us for c in one],
        "p99_us": statistics.mean(c.p99_us for c in one),
        "mean_us": statistics.mean(c.mean_us for c in one),
        "floor_us": floor_us,
        "over_floor": max(c.max_us for c in one) / floor_us,
        "retransmissions": [row.retransmissions for row in rows],
        "trimmed": [row.trimmed for row in rows],
        "unfinished": sum(row.unfinished for row in rows),
        "events": [row.events for row in rows],
        "cpu_s": [row.cpu_s for row in rows],
        "memory_peak_mb": max(row.memory_peak_mb for row in rows),
        "trace_hashes": [row.trace_hash for row in rows],
    }


def check(args: argparse.Namespace) -> list[dict[str, Any]]:
    size = args.bytes or FLOW_BYTES
    found = summary([run("--topology", f"fat-tree:{args.nics or 128}", "--bytes", str(size))])
    within = found["over_floor"] <= FLOOR_CLAIM and found["cpu_s"][0] <= 3.0
    print(
        f"{args.nics or 128} NICs: {found['over_floor']:.3f} of the floor, "
        f"{found['cpu_s'][0]:.2f} s of CPU"
    )
    if not within:
        raise SystemExit(f"outside its bounds: {FLOOR_CLAIM} of the floor, 3 s")
    return [found]


def table4(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Seed by seed, so that a run that is cut short has the same seeds of all configurations."""
    cases: dict[tuple[str, str, str], tuple[str, ...]] = {}
    known: dict[tuple[str, str, str], tuple[Any, Any]] = {}
    for what, chunk, spray, groups, published, htsim in CELLS:
        # From 16 KiB on each chunk is acknowledged by itself under either policy.
        acks = ("dense", "sparse") if chunk == "4K" else ("either",)
        for column, controller in enumerate(COLUMNS):
            for ack in acks:
                cases[what, controller, ack] = (
                    *("--topology", f"fat-tree:{args.nics or 1024}"),
                    *("--bytes", str(args.bytes or FLOW_BYTES)),
                    *("--congestion", controller, "--spray", spray, "--chunk", chunk),
                    *("--window-groups", str(groups)),
                    *("--ack", "dense" if ack == "either" else ack),
                )
                # Others' figures are of one size alone.
                own_size = not (args.nics or args.bytes)
                known[what, controller, ack] = (
                    (published[column], htsim[column]) if own_size else (None, None)
                )
    documents: dict[tuple[str, str, str], list[packet_network.Document]] = {}
    rows: list[dict[str, Any]] = []
    for seed in range(1, (args.seeds or 5) + 1):
        rows = []
        with ThreadPoolExecutor(args.jobs) as pool:
            found = pool.map(
                lambda case, seed=seed: run(*case, "--seed", str(seed)), cases.values()
            )
            for key, document in zip(cases, found, strict=True):
                documents.setdefault(key, []).append(document)
                what, controller, ack = key
                published_us, htsim_us = known[key]
                row = {
                    "configuration": what,
                    "controller": controller,
                    "ack": ack,
                    "published_us": published_us,
                    "htsim_us": htsim_us,
                    **summary(documents[key]),
                }
                rows.append(row)
                print(
                    f"seed {seed} {what:16} {controller} {ack:6}  max {row['max_us']:7.1f} us  "
                    f"p99 {row['p99_us']:7.1f}  mean {row['mean_us']:7.1f}  of floor "
                    f"{row['over_floor']:.3f}  paper {published_us} htsim {htsim_us}",
                    flush=True,
                )
        save(args, rows)
    return rows


def speed_runs(args: argparse.Namespace) -> list[tuple[int, int, int]]:
    """(NICs, bytes, threads); up to --nics, all of --bytes where given."""
    runs = [
        (128, FLOW_BYTES, 1),
        (1024, FLOW_BYTES, 1),
        *((nics, 8_000_000, 1) for nics in (128, 256, 512, 1024, 2048, 4096)),
        (8192, 4_000_000, 1),
        *((1024, 8_000_000, n) for n in (2, 4, 8, 16) if n <= (os.cpu_count() or 1)),
    ]
    return list(
        dict.fromkeys((n, args.bytes or b, t) for n, b, t in runs if n <= (args.nics or 8192))
    )


def speed(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for nics, size, threads, seed in (
        (*one, seed) for one in speed_runs(args) for seed in range(1, (args.seeds or 1) + 1)
    ):
        document = run(
            *("--topology", f"fat-tree:{nics}", "--bytes", str(size), "--threads", str(threads)),
            *("--seed", str(seed)),
        )
        row = document.rows[0]
        rows.append(
            {
                "nics": nics,
                "bytes": size,
                "threads": threads,
                "seed": seed,
                "events": row.events,
                "cpu_s": row.cpu_s,
                "wall_s": row.wall_s,
                "events_per_cpu_s": round(row.events / row.cpu_s),
                "memory_peak_mb": row.memory_peak_mb,
                "max_us": row.completions[0].max_us,
                "trace_hash": row.trace_hash,
            }
        )
        print(
            f"{nics:5} NICs {size / 1e6:4.0f} MB {threads:2} threads: {row.events / 1e6:6.1f} M "
            f"events, CPU {row.cpu_s:6.2f} s, wall {row.wall_s:6.2f} s, "
            f"{row.events / row.cpu_s / 1e6:4.1f} M/s, {row.memory_peak_mb:6.0f} MB",
            flush=True,
        )
    return rows


INCAST = {
    "transport, rccc": ("--congestion", "rccc"),
    "transport, nscc+rccc": ("--congestion", "nscc+rccc"),
    "transport, nscc": ("--congestion", "nscc"),
    "transport, swift": ("--congestion", "swift"),
    "NIC, lossless, DCQCN": (
        "--protocol",
        "go-back-n",
        "--lossless",
        "--no-trim",
        "--rate-control",
    ),
    "NIC, lossless": ("--protocol", "go-back-n", "--lossless", "--no-trim"),
}


def incast(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per control and seed, with the percentiles of both traffics."""
    nics = args.nics or 16
    rows = []
    for what, options in INCAST.items():
        for seed in range(1, (args.seeds or 5) + 1):
            document = run(
                *("--topology", f"fat-tree:{nics}", "--seed", str(seed)),
                *("--traffic", f"incast+permutation:{nics - 1}"),
                *("--bytes", str(args.bytes or 1 << 20), "--messages", str(args.messages or 100)),
                *("--in-flight", "4", *options),
            )
            row = document.rows[0]
            completions = {c.group: msgspec.to_builtins(c) for c in row.completions}
            pauses = sum(tier.pauses for tier in row.tiers)
            rows.append({"what": what, "seed": seed, "pauses": pauses, **completions})
            inner, beside = row.completions
            print(
                f"{what:22} seed {seed}  incast p99 {inner.p99_us:8.1f} p99.9 "
                f"{inner.p999_us:8.1f} us   permutation p99 {beside.p99_us:8.1f} p99.9 "
                f"{beside.p999_us:8.1f} us",
                flush=True,
            )
    return rows


LOSS = {
    "transport, nscc": ("--congestion", "nscc"),
    "transport, rccc": ("--congestion", "rccc"),
    "go-back-n": ("--protocol", "go-back-n", "--no-trim"),
    "go-back-n, lossless": (
        "--protocol",
        "go-back-n",
        "--lossless",
        "--no-trim",
        "--rate-control",
    ),
}


def loss(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per traffic, control, seed and rate of loss; `retained` is of the same seed's 0 %."""
    nics = args.nics or 16
    size = args.bytes or 1_000_000_000
    rows = []
    for traffic, message in (("allreduce", size), ("alltoall", size // nics)):
        for what, options in LOSS.items():
            for seed in range(1, (args.seeds or 1) + 1):
                base = None
                for percent in (0, 0.01, 0.1, 1):
                    document = run(
                        *("--topology", f"fat-tree:{nics}", "--traffic", traffic),
                        *("--bytes", str(message), "--messages", str(args.messages or 1)),
                        *("--seed", str(seed), "--loss", str(percent), *options),
                    )
                    row = document.rows[0]
                    base = base or row.end_us
                    rows.append(
                        {
                            "traffic": traffic,
                            "what": what,
                            "seed": seed,
                            "loss_percent": percent,
                            "end_us": row.end_us,
                            "retained": base / row.end_us,
                            "packets_sent": row.packets_sent,
                            "retransmissions": row.retransmissions,
                            "lost": row.lost,
                            "unfinished": row.unfinished,
                        }
                    )
                    print(
                        f"{traffic:9} {what:16} seed {seed} {percent:5} %  {row.end_us:9.1f} us, "
                        f"retained {base / row.end_us:6.1%}, sent again {row.retransmissions}",
                        flush=True,
                    )
    return rows


COLLECTIVES = (
    ("allreduce", "ring"),
    ("allreduce", "rings"),
    ("allgather", "rings"),
    ("alltoall", "pairwise"),
    ("alltoall", "rails"),
)
COLLECTIVE_CLUSTER = "dgx-h100"
COLLECTIVE_SIZES = (16 << 20, 64 << 20)
SPRAYS = {"one path": ("1", "oblivious"), "256 paths": ("256", "mixed")}


def collectives(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per algorithm, size, way of choosing paths and seed.

    `ideal_us`: the payload of the most loaded NIC at line rate, as in `tutti sim network`.
    """
    ranks = args.nics or 128
    rows = []
    for collective, algorithm in COLLECTIVES:
        for size in (args.bytes,) if args.bytes else COLLECTIVE_SIZES:
            options = (
                *(collective, "--cluster", COLLECTIVE_CLUSTER, "--ranks", str(ranks)),
                *("--algorithms", algorithm, "-b", str(size), "-e", str(size)),
            )
            ideal_us = most_loaded_us(predicted(*options))
            for what, (paths, spray) in SPRAYS.items():
                for seed in range(1, (args.seeds or 3) + 1):
                    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                    (row,) = predicted(
                        *(*options, "--network", "packet", "--paths", paths, "--spray", spray),
                        *("--seed", str(seed)),
                    ).rows
                    rows.append(
                        {
                            "collective": collective,
                            "algorithm": algorithm,
                            "bytes": size,
                            "ranks": ranks,
                            "cluster": COLLECTIVE_CLUSTER,
                            "what": what,
                            "paths": int(paths),
                            "spray": spray,
                            "seed": seed,
                            "latency_us": row.latency_us,
                            "busbw_gbps": row.busbw_gbps,
                            "ideal_us": ideal_us,
                            "cpu_s": round(
                                resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 2
                            ),
                        }
                    )
                    print(
                        f"{collective:9} {algorithm:8} {sizes.format_bytes(size):>4} {what:9} seed "
                        f"{seed}  {row.latency_us:9.1f} us, bus {row.busbw_gbps:6.1f} GB/s, ideal "
                        f"{ideal_us:9.1f} us",
                        flush=True,
                    )
    return rows


def predicted(*options: str) -> prediction.Prediction:
    """One `tutti sim collective` of one algorithm at one size."""
    document = msgspec.json.decode(ask("collective", *options), type=prediction.Prediction)
    if not document.rows:
        raise SystemExit(f"{shlex.join(options)}: {document.refusals}")
    return document


def most_loaded_us(document: prediction.Prediction) -> float:
    """Bytes over MB/s are microseconds."""
    links = [link for link in document.rows[0].links if link.kind == "network"]
    most = max((link.bytes_max for link in links), default=0)
    return round(most / document.cluster["network"]["mb_per_s"], 3)


def save(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Writes the results file, if one is wanted."""
    if not args.output:
        return
    head = results_head.head(f"tutti-bench-network-{args.part}/1")
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    text = json.dumps(head, indent=2).removesuffix("\n}")
    files.write(args.output, f'{text},\n  "rows": [\n{lines}\n  ]\n}}\n')


PARTS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "check": check,
    "table4": table4,
    "speed": speed,
    "incast": incast,
    "loss": loss,
    "collectives": collectives,
}


def draw(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Writes the figure, where one is wanted: --plot, or beside -o."""
    path = args.plot or (args.output and args.output.with_suffix(".png"))
    if path is None or args.part not in sim_network_figures.FIGURES:
        return
    try:
        sim_network_figures.save(args.part, rows, path)
    except TuttiError as error:
        if args.plot:
            raise SystemExit(str(error)) from None
        print(f"no figure: {error}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="check", choices=PARTS)
    parser.add_argument("-o", "--output", type=Path, help="write the results")
    parser.add_argument("--plot", type=Path, help="write the figure; unset: beside -o")
    parser.add_argument("--seeds", type=int, help="table4, incast: 5; collectives: 3; others: 1")
    parser.add_argument(
        "--jobs", type=int, default=1, help="table4: runs at once; inflates their CPU seconds"
    )
    parser.add_argument("--nics", type=int, help="of the network; speed: at most")
    parser.add_argument("--bytes", type=sizes.parse_bytes, help="of a message or vector")
    parser.add_argument("--messages", type=int, help="of each sender; incast: 100, loss: 1")
    args = parser.parse_args()
    rows = PARTS[args.part](args)
    save(args, rows)
    draw(args, rows)


if __name__ == "__main__":
    main()
