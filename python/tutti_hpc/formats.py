# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Results as text (`tutti bench --format`): our table, and formats that scripts already read.

osu: OSU micro-benchmarks 7; there the size of allgather, alltoall, gather and scatter is one block.
nccl-tests: one line per size, the in-place half empty. csv: RFC 4180. json: the results document.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable

from tutti_hpc import results as results_file
from tutti_hpc import terms
from tutti_hpc.mpi import short_version
from tutti_hpc.results import Results, Row
from tutti_hpc.sizes import format_bytes

_OSU_NAMES = {
    "bcast": "Broadcast",
    "alltoall": "All-to-All Personalized Exchange",
    "alltoallv": "All-to-Allv Personalized Exchange",
    "alltoallw": "All-to-Allw Personalized Exchange",
}
_OSU_BLOCKS = (
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
)
_MPI_TYPES = {
    "int8": "MPI_INT8_T",
    "uint8": "MPI_UINT8_T",
    "int16": "MPI_INT16_T",
    "uint16": "MPI_UINT16_T",
    "int32": "MPI_INT32_T",
    "uint32": "MPI_UINT32_T",
    "int64": "MPI_INT64_T",
    "uint64": "MPI_UINT64_T",
    "float16": "MPIX_C_FLOAT16",
    "bfloat16": "MPIX_BFLOAT16",
    "float32": "MPI_FLOAT",
    "float64": "MPI_DOUBLE",
    "complex64": "MPI_C_FLOAT_COMPLEX",
    "complex128": "MPI_C_DOUBLE_COMPLEX",
}
_NCCL_TYPES = {"float16": "half", "float32": "float", "float64": "double"}
_NCCL_NAMES = {
    "bcast": "broadcast",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter_block": "reduce_scatter",
}
_ROOTED = ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")


def series_name(row: Row) -> str:
    """What a row is called among the others of its size."""
    return "hybrid" if row.hybrid else row.plan


def series(results: Results) -> dict[str, list[Row]]:
    """Rows by plan (the hybrid one series), in the order of their first row."""
    grouped: dict[str, list[Row]] = {}
    for row in results.rows:
        grouped.setdefault(series_name(row), []).append(row)
    return grouped


def text(results: Results, paint: Callable[[str, Row], str] | None = None) -> str:
    """Our table. `paint` may colour a finished line."""
    memory = results.memory + (f", {results.machine.gpus[0]}" if results.machine.gpus else "")
    what = results.type + (f", {results.op}" if results.op != "none" else "")
    own = f"Tutti {results.versions.tutti}"
    versions = (own, short_version(results.versions.mpi), results.versions.ccl)
    plural = "" if results.nodes == 1 else "s"
    lines = [
        f"# {results.collective}: {results.ranks} ranks on {results.nodes} node{plural}, {what}, "
        f"{memory}",
        "# " + "; ".join(version for version in versions if version),
    ]
    header = ["size", "plan", "min", "p50", "p99", "max us", "algbw", "busbw GB/s", "vs native"]
    table: list[list[str]] = [[*header, "wrong"]]
    shown: list[Row | None] = [None]
    for row in results.rows:
        speedup = results.speedup(row)
        latency = row.latency_us
        name = f"hybrid ({row.plan})" if row.hybrid else row.plan
        table.append(
            [
                format_bytes(row.bytes),
                name,
                *(f"{value:.2f}" for value in (latency.min, latency.p50, latency.p99, latency.max)),
                f"{row.algbw_gbps:.3f}",
                f"{row.busbw_gbps:.3f}",
                "-" if speedup is None else f"{speedup:.2f}x",
                "-" if row.wrong is None else str(row.wrong),
            ]
        )
        shown.append(row)
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line, shown_row in zip(table, shown):
        cells = [
            cell.ljust(width) if column == 1 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        finished = "  ".join(cells).rstrip()
        lines.append(paint(finished, shown_row) if paint and shown_row else finished)
    return "\n".join(lines) + "\n"


def osu(results: Results) -> str:
    """One table per plan. The first value column is the median, which its heading says."""
    name = _OSU_NAMES.get(results.collective, results.collective.capitalize())
    driver = ""
    if results.memory != "host":
        driver = "-ROCM" if any("AMD" in gpu for gpu in results.machine.gpus) else "-CUDA"
    lines: list[str] = []
    for plan, rows in series(results).items():
        checked = any(row.wrong is not None for row in rows)
        lines += [
            "",
            f"# OSU MPI{driver} {name} Latency Test v7.5",
            f"# Written by Tutti {results.versions.tutti}; plan: {plan}",
            f"# Datatype: {_MPI_TYPES[results.type]}.",
        ]
        fields = ["P50 Latency(us)", "Min Latency(us)", "Max Latency(us)", "P99 Tail Lat(us)"]
        header = "# Size    " + "".join(f"{field:>18}" for field in fields)
        lines.append(header + (f"{'Validation':>18}" if checked else ""))
        for row in rows:
            size = row.bytes // results.ranks if results.collective in _OSU_BLOCKS else row.bytes
            latency = row.latency_us
            values = (latency.p50, latency.min, latency.max, latency.p99)
            line = f"{size:<10}" + "".join(f"{value:>18.2f}" for value in values)
            lines.append(line + (f"{'Fail' if row.wrong else 'Pass':>18}" if checked else ""))
    return "\n".join(lines[1:]) + "\n"


def _nccl_float(value: float, width: int) -> str:
    """A number that fits `width` characters, with up to two decimals, as nccl-tests prints it."""
    for decimals in (2, 1, 0):
        printed = f"{value:.{decimals}f}"
        if len(printed) <= width:
            return printed
    return f"{value:.1e}"


def nccl_tests(results: Results) -> str:
    """One table per plan, columns as nccl-tests has them."""
    name = _NCCL_NAMES.get(results.collective, results.collective)
    element = terms.TYPES[results.type]
    blocks = terms.bus_factor(results.collective, 2) == 0.5
    reduction = results.collective in terms.REDUCTIONS
    root = "0" if results.collective in _ROOTED else "-1"
    lines: list[str] = []
    for plan, rows in series(results).items():
        wrong = sum(row.wrong or 0 for row in rows)
        average = sum(row.busbw_gbps for row in rows) / len(rows)
        checked = int(rows[0].wrong is not None)
        lines += [
            f"# Collective test starting: {name}_perf",
            f"# Written by Tutti {results.versions.tutti}; plan: {plan}; time: median of the "
            "slowest rank",
            f"# nThread 1 nGpus 1 ranks {results.ranks} minBytes {rows[0].bytes} maxBytes "
            f"{rows[-1].bytes} validation: {checked}",
            "#",
            "# Using devices",
            *(f"#  Rank {rank:2d} device {gpu}" for rank, gpu in enumerate(results.machine.gpus)),
            "#",
            f"#{'':53}{'out-of-place':>30}{'in-place':>31}",
            "#       size         count      type   redop    root     time   algbw   busbw  "
            "#wrong     time   algbw   busbw  #wrong",
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)  "
            "           (us)  (GB/s)  (GB/s)        ",
        ]
        for row in rows:
            count = row.bytes // element // (results.ranks if blocks else 1)
            kind = _NCCL_TYPES.get(results.type, results.type)
            half = (
                f"  {_nccl_float(row.latency_us.p50, 7):>7}  {_nccl_float(row.algbw_gbps, 6):>6}"
                f"  {_nccl_float(row.busbw_gbps, 6):>6}"
                f"  {'N/A' if row.wrong is None else row.wrong:>6}"
            )
            lines.append(
                f"{row.bytes:12d}  {count:12d}  {kind:>8}  {results.op if reduction else 'none':>6}"
                f"  {root:>6}{half}  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
            )
        lines += [
            f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
            f"# Avg bus bandwidth    : {average:g} ",
            "#",
            f"# Collective test concluded: {name}_perf",
        ]
    return "\n".join(lines) + "\n"


CSV_COLUMNS = (
    "collective",
    "ranks",
    "nodes",
    "memory",
    "type",
    "op",
    "bytes",
    "plan",
    "hybrid",
    "min_us",
    "p50_us",
    "p99_us",
    "max_us",
    "algbw_gbps",
    "busbw_gbps",
    "wrong",
)


def to_csv(documents: Iterable[Results]) -> str:
    """RFC 4180: a header, lines that end in CR LF, fields quoted where needed."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for document in documents:
        call = [
            document.collective,
            document.ranks,
            document.nodes,
            document.memory,
            document.type,
            document.op,
        ]
        for row in document.rows:
            latency = row.latency_us
            writer.writerow(
                [
                    *call,
                    row.bytes,
                    row.plan,
                    str(row.hybrid).lower(),
                    latency.min,
                    latency.p50,
                    latency.p99,
                    latency.max,
                    row.algbw_gbps,
                    row.busbw_gbps,
                    "" if row.wrong is None else row.wrong,
                ]
            )
    return out.getvalue()


def render(results: Results, fmt: str, paint: Callable[[str, Row], str] | None = None) -> str:
    """The results in one of `FORMATS`."""
    if fmt == "text":
        return text(results, paint)
    if fmt == "osu":
        return osu(results)
    if fmt == "nccl-tests":
        return nccl_tests(results)
    if fmt == "csv":
        return to_csv([results])
    return results_file.encode(results).decode()


FORMATS = ("text", "osu", "nccl-tests", "json", "csv")
