# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of README and of docs/ are those of the files in bench/results/ that they name.

In a quote, `#` is a number of the page and `...` any words of the same paragraph or table row. The
values of the files are rounded to the digits that the page gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any, Callable

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
NUMBER = r"(?<![\d.])(\d+(?:\.\d+)?)"
MIB = 2**20
UNITS = {"B": 1, "MiB": MIB, "GiB": 1024 * MIB}
MPIS = ("mpich", "openmpi")
VETH = "h200x1-nccl-net/lab-pair-xdp.json"

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="a source archive has no results")


def only(values: list[Any]) -> Any:
    assert len(set(values)) == 1, f"several values: {values}"
    return values[0]


class Rows:
    """The rows of some files. A row has the fields of its document, too."""

    def __init__(self, files: str):
        self.rows: list[dict[str, Any]] = []
        for file in files.split():
            read = json.loads((RESULTS / file).read_text(encoding="utf-8"))
            for document in read if isinstance(read, list) else [read]:
                self.rows += [{**document, **row} for row in document["rows"]]

    def __call__(self, field: str, take: Callable[[list[Any]], Any] = only, **where: Any) -> Any:
        """`take` of a field (`a.b`: b of the object a) over the rows whose fields are `where`."""
        found: list[Any] = [r for r in self.rows if all(r.get(k) == v for k, v in where.items())]
        for name in field.split("."):
            found = [item[name] for item in found if item.get(name) is not None]
        assert found, f"no row has {field} where {where}"
        return take(found)


def gpu(v: Rows, collective: str, size: int, *plans: str) -> list[float]:
    where: dict[str, Any] = {"collective": collective, "bytes": size}
    plan: dict[str, dict[str, Any]] = {"tutti": {"hybrid": True}}
    return [v("latency_us.p50", **where, **plan.get(p, {"plan": p})) for p in plans]


def veth(v: Rows, field: str) -> list[float]:
    """Medians of the ways."""
    return [v(field, median, way=way) for way in ("TCP, 1 stream", "Tutti", "Tutti, xdp")]


def torch_ratios(v: Rows, mode: str, size_max: int) -> list[float]:
    """Least and largest ratio up to that size; of more than 1 MiB, at that size."""
    found = [
        row["ratio"][1]
        for row in v.rows
        if row["mode"] == mode and (row["bytes"] > MIB) == (size_max > MIB)
    ]
    return [min(found), max(found)]


def lab(v: Rows, collective: str) -> list[float]:
    """Tutti's rings, in times of the bound; Open MPI's default and best, own rails and striped."""
    where: dict[str, Any] = {"collective": collective, "library": "openmpi", "block_bytes": MIB}
    rings = v("ms_p50", setting="rings", **where)
    numbers = [rings, rings / v("bound_ms", **where)]
    for rails in ("own", "striped"):
        settings = v("setting", set, rails=rails, **where) - {"rings"}
        times = {s: v("ms_p50", setting=s, rails=rails, **where) for s in settings}
        numbers += [times["default"], min(times.values())]
    return numbers


def nccl(v: Rows, layout: str, collective: str, size: int, *ways: str) -> list[float]:
    """Medians over the jobs in ms; `best` is the least of those of NCCL's sockets."""
    where: dict[str, Any] = {"layout": layout, "collective": collective, "bytes": size}
    names = v("way", set, **where)
    times = {name: v("us", median, way=name, **where) / 1000 for name in names}
    times["best"] = min((times[name] for name in names if name.startswith("NCCL")), default=0)
    return [v("ideal_us", **where) / 1000 if way == "bound" else times[way] for way in ways]


def slower(v: Rows, layout: str, collective: str, size: int) -> float:
    tutti, best = nccl(v, layout, collective, size, "Tutti", "best")
    return tutti / best


def worst_job(v: Rows, **where: Any) -> float:
    ways = [v("us", list, way=way, **where) for way in ("Tutti", "NCCL", "NCCL 2x8")]
    return float(max(tutti / min(sockets) for tutti, *sockets in zip(*ways)))


def default_sockets(v: Rows) -> list[float]:
    where: dict[str, Any] = {"layout": "fabric", "collective": "allreduce", "bytes": 64 * MIB}
    return [v("us", take, way="NCCL", **where) / 1000 for take in (min, max)]


HYBRID, LAB, HOST = "h200x4-mpich/hybrid-4r1n.json", "lab-4x4x4.json", "h200x2-host/main.json"
NCCL = "h100x2-nccl-net/network.json h100x2-nccl-net/network-again.json"
LOSSY = "h100x2-nccl-net/lossy.json"
HOST_POINT: dict[str, Any] = {"collective": "allreduce", "ranks": 8, "bytes": MIB // 4}
FABRIC = ("fabric", "allreduce", 64 * MIB)
SIMULATED = ("transport, rccc", "transport, nscc", "NIC, lossless, DCQCN")
LINKS = ("Tutti", "TCP, 1 stream", "TCP, 16 streams")

CHUNK: dict[str, Any] = {"variant": "UC, written, cubic"}
CHUNK_NSCC: dict[str, Any] = {"variant": "UC, written"}
MANY_PAIRS: dict[str, Any] = {"variant": "UC, written, 235 peers"}

# Of each page: a quote, the files, the quote's numbers.
QUOTES: dict[str, list[tuple[str, str, Callable[[Rows], list[float]]]]] = {
    "docs/rdma.md": [
        (
            "takes # instructions for a chunk of 32 KiB with cubic, # with nscc: # and # ns of",
            "verbs-engine.json",
            lambda v: [
                v(field, **chunk)
                for field in ("sender_instructions", "sender_ns")
                for chunk in (CHUNK, CHUNK_NSCC)
            ],
        ),
        (
            "# and # of the instructions are the NIC's calls",
            "verbs-engine.json",
            lambda v: [v("sender_nic_instructions", **chunk) for chunk in (CHUNK, CHUNK_NSCC)],
        ),
        (
            "With # queue pairs, of # bytes each, nscc took # ns",
            "verbs-engine.json",
            lambda v: [v(f, **MANY_PAIRS) for f in ("qps", "bytes_per_qp", "sender_ns")],
        ),
        (
            "(without the splitting), sent # times as much as one",
            "verbs-two-engines.json",
            lambda v: [row["ratio"][1] for row in v.rows],
        ),
    ],
    "docs/decisions/0010-udp-wire-and-engines.md": [
        (
            "64 KiB allgather at full bisection: # ms, with NCCL's own numbers #.",
            "h200x1-nccl-net/latency.json",
            lambda v: nccl(v, "bisection", "allgather", 2**16, "Tutti LATENCY=15", "Tutti"),
        ),
    ],
    "docs/decisions/0024-af-xdp-without-libraries.md": [
        ("| latency of 8 bytes, us | # | # | # |", VETH, lambda v: veth(v, "latency_us")),
        ("| goodput, Gb/s | # | # | # |", VETH, lambda v: veth(v, "goodput_gbps")),
        ("| CPU time of a GB, s | # | # | # |", VETH, lambda v: veth(v, "cpu_s_per_gb")),
    ],
    "docs/network.md": [
        (
            "costs # times the CPU time of UDP on a veth pair",
            VETH,
            lambda v: [veth(v, "cpu_s_per_gb")[2] / veth(v, "cpu_s_per_gb")[1]],
        ),
    ],
    "README.md": [
        (
            "| allreduce, 1 MiB in GPU memory, 4 x H200 | # us | # us NCCL; # us MPI",
            HYBRID,
            lambda v: gpu(v, "allreduce", MIB, "tutti", "nccl", "native"),
        ),
        (
            "| allreduce, 256 KiB in host memory, 8 ranks ... | # us with MPICH, # us with Open MPI"
            " | # us MPICH ...; # us Open MPI",
            HOST,
            lambda v: [v(f, mpi=m, **HOST_POINT) for f in ("ours_us", "native_us") for m in MPIS],
        ),
        (
            "| allgather, 1 MiB from each rank, 4 nodes ... | # ms with `rings`"
            " | # ms Open MPI's best, each rank over all NICs; # ms each rank over one NIC",
            LAB,
            lambda v: [lab(v, "allgather")[i] for i in (0, 5, 3)],
        ),
        (
            "| NCCL allreduce, 64 MiB, Ethernet ... | # ms"
            " | # ms NCCL's sockets at their best; # to # ms by default",
            NCCL,
            lambda v: nccl(v, *FABRIC, "Tutti", "best") + default_sockets(v),
        ),
        (
            "| the same with 0.1 % ... | # ms | # ms NCCL's sockets at their best",
            LOSSY,
            lambda v: nccl(v, "lossy", *FABRIC[1:], "Tutti", "best"),
        ),
        (
            "| 1 MB messages of 15 senders ... | # ms; ... `nscc` # ms | # ms DCQCN",
            "sim-incast.json",
            lambda v: [v("measured.p99_us", mean, what=what) / 1000 for what in SIMULATED],
        ),
        ("the links allow # ms", LAB, lambda v: [v("bound_ms", min, block_bytes=MIB)]),
        (
            "Tutti's threads spin, # to # of 32 cores",
            NCCL,
            lambda v: [v("cpus", take, way="Tutti", bytes=64 * MIB) for take in (min, max)],
        ),
    ],
    "docs/direct.md": [
        (
            "copies # us, kernels # us, NCCL # us",
            "h200x2-mpich/plans-2r1n.json",
            lambda v: gpu(v, "allgather", 256 * MIB, "direct-copy", "direct-gamma", "ccl-gamma"),
        ),
        (
            "takes # times as long as the default or more, # times in the median",
            "h200x2-mpich/osu.json",
            lambda v: [v("ccl-beta_over_default", take) for take in (min, median)],
        ),
    ],
    "docs/guide-torch.md": [
        (
            "gloo's time by Tutti's was # or more up to 256 KiB and # or more beyond",
            "torch-host-2-cores.json",
            lambda v: [
                min(row["ratio"][1] for row in v.rows if (row["bytes"] > MIB) == is_large)
                for is_large in (False, True)
            ],
        ),
        (
            "it was # or more up to 64 KiB and # or more beyond. With",
            "torch-lab-4-hosts.json",
            lambda v: [
                min(row["ratio"][1] for row in v.rows if (row["bytes"] >= MIB) == is_large)
                for is_large in (False, True)
            ],
        ),
        (
            "it was # or more at all sizes",
            "torch-lab-4x4.json",
            lambda v: [min(row["ratio"][1] for row in v.rows)],
        ),
        (
            "0.1 % of the packets on each link # or more from 1 MiB on, and below that, where one"
            " loss more or less decides, # or more, # in the median",
            "torch-lab-8-spines.json",
            lambda v: [
                min(row["ratio"][1] for row in v.rows if row["bytes"] >= MIB),
                min(small := [row["ratio"][1] for row in v.rows if row["bytes"] < MIB]),
                median(small),
            ],
        ),
    ],
    "docs/applications.md": [
        (
            "up to 1 MiB NCCL's time by Tutti's was # to # for a call of a replayed CUDA graph, #"
            " or more on the GPU for eager calls, and # or more for calls that are each waited for;"
            " at 16 MiB # or more, and # or more where each is waited for. An eager call took # to"
            " # us of the processor, one of NCCL's # to # us",
            "h200x2-torch/collectives.json",
            lambda v: [
                *torch_ratios(v, "replayed", MIB),
                torch_ratios(v, "queued", MIB)[0],
                torch_ratios(v, "waited", MIB)[0],
                min(torch_ratios(v, mode, 16 * MIB)[0] for mode in ("replayed", "queued")),
                torch_ratios(v, "waited", 16 * MIB)[0],
                *(
                    take(row["cpu_us"][backend][1] for row in v.rows if "cpu_us" in row)
                    for backend in ("tutti", "nccl")
                    for take in (min, max)
                ),
            ],
        ),
        (
            "ResNet-50 shape, `ddp-resnet.json` | #:",
            "h200x2-torch/ddp-resnet.json",
            lambda v: [row["ratio"][1] for row in v.rows],
        ),
        (
            "GPT-2 small shape, `ddp.json` | # |",
            "h200x2-torch/ddp.json",
            lambda v: [row["ratio"][1] for row in v.rows if row["model"] == "gpt"],
        ),
        (
            "FSDP2, # M parameters, `fsdp.json` | # |",
            "h200x2-torch/fsdp.json",
            lambda v: [v.rows[0]["parameters"] / 1e6, v.rows[0]["ratio"][1]],
        ),
        (
            "strong scaling, `gemm.json` | # or # |",
            "h200x2-torch/gemm.json",
            lambda v: [row["ratio"][1] for row in v.rows if row["scaling"] == "strong"],
        ),
        (
            "prefill and decode, `moe.json` | # and #, quartiles of decode # and # |",
            "h200x2-torch/moe.json",
            lambda v: [*(row["ratio"][1] for row in v.rows), *v.rows[1]["ratio"][::2]],
        ),
        (
            "is # times as fast as the program that copies to the host on MPICH, # times",
            "h200x2-torch/hybrid-mpi.json h200x2-torch/hybrid-mpi-openmpi.json",
            lambda v: [row["ratio"][1] for row in v.rows if row["side"] == "preload"],
        ),
    ],
    "docs/network-measured.md": [
        (
            "an allreduce of 4 B (# times the time on loopback and on the fabric, # at full"
            " bisection, in single jobs up to #) and an alltoall ... of 4, 16 and 64 MiB (#, #, #)",
            NCCL,
            lambda v: [
                *(slower(v, layout, "allreduce", 4) for layout in ("loopback", "bisection")),
                worst_job(v, layout="bisection", collective="allreduce", bytes=4),
                *(slower(v, "loopback", "alltoall", size * MIB) for size in (4, 16, 64)),
            ],
        ),
        (
            "Tutti #, TCP with 1 stream #, with 16 streams #; all to all #, #, #."
            " With 0.1 % loss Tutti carries # and #, with 1 % # and #:",
            "network-fabric.json",
            lambda v: [
                v("of_ideal", median, pattern=pattern, loss_percent=loss, way=way)
                for loss, ways in ((0, LINKS), (0.1, LINKS[:1]), (1, LINKS[:1]))
                for pattern in ("ring", "alltoall")
                for way in ways
            ],
        ),
    ],
}


def gpu_cell(v: Rows, labels: list[str], column: int) -> list[float]:
    collectives = ("allreduce", "allgather", "reduce_scatter", "bcast", "alltoall")
    return gpu(v, collectives[column // 2], size(labels[0]), ("tutti", "nccl")[column % 2])


def host_cell(v: Rows, labels: list[str], column: int) -> list[float]:
    where: dict[str, Any] = {
        "mpi": MPIS[column // 3],
        "ranks": (2, 8, 32)[column % 3],
        "plan": "direct-gamma",
    }
    ratios = v("ratio.p50", list, collective=labels[0], **where)
    return [median(1 / ratio for ratio in ratios)]


def nccl_cell(v: Rows, labels: list[str], column: int) -> list[float]:
    layout, collective = labels[0].replace("full ", "").split(", ")
    way = ("NCCL", "NCCL 2x8", "NCCL 4x4", "Tutti", "bound")[column]
    if way == "NCCL" and (layout, collective, size(labels[1])) == FABRIC:
        return default_sockets(v)
    return nccl(v, layout, collective, size(labels[1]), way)


def lab_cell(v: Rows, labels: list[str], column: int) -> list[float]:
    return lab(v, labels[0])[2 * column : 2 * column + 2]


# A page, the header of a table, how many columns are labels, the files, the numbers of a cell.
TABLES: list[tuple[str, str, int, str, Callable[[Rows, list[str], int], list[float]]]] = [
    ("docs/direct.md", "| bytes | allreduce | NCCL |", 1, HYBRID, gpu_cell),
    ("docs/direct.md", "| | MPICH, 2 ranks | 8 | 32 |", 1, HOST, host_cell),
    ("docs/network-measured.md", "| | bytes | sockets |", 2, f"{NCCL} {LOSSY}", nccl_cell),
    ("docs/lab.md", "| | `rings` | Open MPI, own rails:", 1, LAB, lab_cell),
]


def size(text: str) -> int:
    number, unit = text.split()
    return int(number) * UNITS[unit]


def read(page: str) -> str:
    """A page with each paragraph and each row of a table on one line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(" +", " ", re.sub(r"\n(?=[^\n|])", " ", text))


def compare(where: str, files: str, written: list[str], values: list[float]) -> None:
    assert len(written) == len(values), f"{where}: {written} there, {values} in {files}"
    for text, value in zip(written, values):
        digits = len(text.partition(".")[2])
        assert text == f"{value:.{digits}f}", f"{where}: {text} there, {value:.6g} in {files}"


def cells(page: str, head: str, label_columns: int) -> Iterator[tuple[list[str], int, list[str]]]:
    """Labels, column and numbers of each cell. An empty label is that of the row before."""
    _, found, table = read(page).partition(f"\n{head}")
    assert found, f"{page} has no table {head!r}"
    labels = [""] * label_columns
    for row in table.partition("\n\n")[0].splitlines()[2:]:
        texts = [text.strip() for text in row.strip("|").split("|")]
        labels = [text or above for text, above in zip(texts, labels)]
        for column, text in enumerate(texts[label_columns:]):
            if numbers := re.findall(NUMBER, text):
                yield labels, column, numbers


@pytest.mark.parametrize(
    ("page", "quote", "files", "numbers"),
    [(page, *quote) for page, quotes in QUOTES.items() for quote in quotes],
)
def test_numbers__in_a_quote(
    page: str, quote: str, files: str, numbers: Callable[[Rows], list[float]]
) -> None:
    pattern = re.escape(quote).replace(r"\#", NUMBER).replace(r"\.\.\.", r"[^\n]*?")
    found = list(re.finditer(pattern, read(page)))
    assert len(found) == 1, f"{page} has this {len(found)} times: {quote!r}"
    compare(f"{page}: {found[0][0]!r}", files, list(found[0].groups()), numbers(Rows(files)))


@pytest.mark.parametrize(("page", "head", "label_columns", "files", "numbers"), TABLES)
def test_numbers__in_a_table(
    page: str, head: str, label_columns: int, files: str, numbers: Callable[..., list[float]]
) -> None:
    rows = Rows(files)
    found = list(cells(page, head, label_columns))
    assert found, f"{page} has no number below {head!r}"
    for labels, column, written in found:
        where = f"{page}: {', '.join(labels)}, column {column + 1}"
        compare(where, files, written, numbers(rows, labels, column))
