# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Formats of `tutti bench`: those that other benchmarks' readers read."""

from __future__ import annotations

import csv
import io
import re

import pytest
from tutti_hpc import formats, terms
from tutti_hpc.results import Results

OSU = """\
# OSU MPI-CUDA Allreduce Latency Test v7.5
# Written by Tutti 0.1.0; plan: native
# Datatype: MPI_FLOAT.
# Size       P50 Latency(us)   Min Latency(us)   Max Latency(us)  P99 Tail Lat(us)        Validation
1024                   20.00             10.00             80.00             40.00              Pass
1048576              1000.00            500.00           4000.00           2000.00              Pass

# OSU MPI-CUDA Allreduce Latency Test v7.5
# Written by Tutti 0.1.0; plan: hybrid
# Datatype: MPI_FLOAT.
# Size       P50 Latency(us)   Min Latency(us)   Max Latency(us)  P99 Tail Lat(us)        Validation
1024                   20.00             10.00             80.00             40.00              Pass
1048576                25.00             12.50            100.00             50.00              Pass
"""
NCCL_TESTS_ROWS = """\
        1024           256     float     sum      -1    20.00    0.05    0.08       0      N/A     N/A     N/A     N/A
     1048576        262144     float     sum      -1  1000.00    1.05    1.57       0      N/A     N/A     N/A     N/A
"""  # noqa: E501
TEXT = """\
# allreduce: 4 ranks on 1 node, float32, sum, device, NVIDIA H200
# Tutti 0.1.0; MPICH 5.0.2; NCCL 2.30.7
size  plan                   min      p50      p99   max us   algbw  busbw GB/s  vs native  wrong
  1K  native               10.00    20.00    40.00    80.00   0.051       0.077      1.00x      0
  1K  hybrid (mpi-gamma)   10.00    20.00    40.00    80.00   0.051       0.077      1.00x      0
  1M  native              500.00  1000.00  2000.00  4000.00   1.049       1.573      1.00x      0
  1M  hybrid (ccl-gamma)   12.50    25.00    50.00   100.00  41.943      62.915     40.00x      0
"""


def test_text__golden(document: Results) -> None:
    assert formats.text(document) == TEXT


def test_osu__golden(document: Results) -> None:
    assert formats.osu(document) == OSU


def test_osu__size_of_allgather_is_one_block(document: Results) -> None:
    document.collective = "allgather"
    sizes = re.findall(r"^(\d+)\s+\S+", formats.osu(document), re.MULTILINE)
    assert sizes == ["256", "262144", "256", "262144"]


def test_nccl_tests__golden(document: Results) -> None:
    text = formats.nccl_tests(document)
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert "\n".join(rows[:2]) + "\n" == NCCL_TESTS_ROWS
    assert all(len(row.split()) == 13 for row in rows)
    assert text.count("# Out of bounds values : 0 OK\n") == 2
    assert "# Avg bus bandwidth    : 0.824832 \n" in text
    assert text.startswith("# Collective test starting: all_reduce_perf\n")
    assert text.endswith("# Collective test concluded: all_reduce_perf\n")


def test_nccl_tests__wrong_elements_fail(document: Results) -> None:
    document.rows[0].wrong = 3
    assert "# Out of bounds values : 3 FAILED\n" in formats.nccl_tests(document)


def test_nccl_tests__count_of_allgather_is_one_block(document: Results) -> None:
    document.collective, document.op = "allgather", "none"
    rows = [line for line in formats.nccl_tests(document).splitlines() if line[0] != "#"]
    assert rows[0].split()[:5] == ["1024", "64", "float", "none", "-1"]


def test_csv__rfc_4180(document: Results) -> None:
    document.rows[0].plan = 'odd "name", with a comma'
    text = formats.render(document, "csv")
    assert text.count("\r\n") == len(document.rows) + 1
    assert text.replace("\r\n", "").count("\n") == 0
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert read[0]["plan"] == 'odd "name", with a comma'
    assert read[3]["hybrid"] == "true"
    assert read[3]["p50_us"] == "25.0"


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("allreduce", 1.5),
        ("allgather", 0.75),
        ("reduce_scatter", 0.75),
        ("alltoall", 0.75),
        ("bcast", 1.0),
        ("reduce", 1.0),
    ],
)
def test_bandwidths__factors_of_nccl_tests(collective: str, factor: float) -> None:
    algorithm, bus = terms.bandwidths_gbps(collective, 4, 10**9, 1e6)
    assert algorithm == pytest.approx(1.0)
    assert bus == pytest.approx(factor)
