# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""From measured plans to rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tutti_hpc import tuner
from tutti_hpc.cli import main
from tutti_hpc.errors import TuttiError
from tutti_hpc.results import Latency, Machine, Results, Row, Versions

ROOT = Path(__file__).resolve().parents[2]


def measured(latencies_us: dict[int, dict[str, float]], hybrid: str = "") -> Results:
    rows = [
        Row(
            bytes=size,
            plan=plan,
            hybrid=plan == hybrid,
            latency_us=Latency(min=p50, p50=p50, p99=p50, max=p50),
            algbw_gbps=0,
            busbw_gbps=0,
        )
        for size, plans in latencies_us.items()
        for plan, p50 in plans.items()
    ]
    return Results(
        command="",
        date="2026-01-01T00:00:00+00:00",
        machine=Machine(gpus=["B", "A", "A"]),
        versions=Versions(mpi="MPICH 5.0.2"),
        collective="allreduce",
        ranks=4,
        nodes=1,
        memory="device",
        type="float32",
        op="sum",
        rows=rows,
    )


def test_choices__fastest_plan_of_each_size() -> None:
    found = tuner.choices([measured({4: {"mpi": 10, "ccl": 16}, 8192: {"mpi": 30, "ccl": 17}})])
    assert found == [(4, "mpi"), (8192, "ccl")]


def test_choices__a_switch_stands_where_it_gains_most() -> None:
    """Three small gains in a row are one switch, at the first of them."""
    latencies = {s: {"mpi": m, "ccl": 16.0} for s, m in ((4, 14), (16, 16.2), (64, 16.3))}
    found = tuner.choices([measured({**latencies, 256: {"mpi": 20, "ccl": 16}})])
    assert found == [(4, "mpi"), (16, "ccl"), (64, "ccl"), (256, "ccl")]


def test_choices__noise_makes_no_switches() -> None:
    wobble = {size: {"mpi": 10 + 0.2 * (size % 3), "ccl": 10.1} for size in range(1, 9)}
    assert len({plan for _, plan in tuner.choices([measured(wobble)])}) == 1


def test_choices__a_plan_that_is_missing_at_a_size_is_left_there() -> None:
    found = tuner.choices([measured({4: {"ccl": 1, "mpi": 2}, 8: {"mpi": 2}, 16: {"ccl": 1}})])
    assert found == [(4, "ccl"), (8, "mpi"), (16, "ccl")]


def test_make__rules_cover_every_size_once() -> None:
    document = tuner.make([measured({4: {"mpi": 1, "ccl": 9}, 64: {"mpi": 9, "ccl": 1}})])
    shape = {"collective": "allreduce", "nodes": 1, "ranks": 4, "memory": "device"}
    assert document["rules"] == [
        {**shape, "plan": "mpi", "bytes": {"max": 63}},
        {**shape, "plan": "ccl", "bytes": {"min": "64"}},
    ]
    assert document["machine"]["gpus"] == "A, B"


def test_make__rivals_and_the_hybrid_are_no_plans() -> None:
    with pytest.raises(TuttiError, match="no measured plans"):
        tuner.make([measured({4: {"native": 1, "nccl": 1, "mpi": 1}}, hybrid="mpi")])


def test_make__repeated_measurements_are_one() -> None:
    """Two of three say ccl; one job that was unlucky changes nothing."""
    repeats = [measured({4: {"mpi": mpi, "ccl": 10}}) for mpi in (11, 5, 12)]
    assert [rule["plan"] for rule in tuner.make(repeats)["rules"]] == ["ccl"]


def test_make__no_rules_from_a_wrong_element() -> None:
    document = measured({4: {"mpi": 9, "ccl": 1}})
    document.rows[1].wrong = 64
    with pytest.raises(TuttiError, match="ccl at 4 bytes has 64 wrong elements"):
        tuner.make([document])


def test_make__schedules_over_our_transport_are_no_plans() -> None:
    made = tuner.make([measured({4: {"net:ring": 1, "mpi": 9}})])
    assert [rule["plan"] for rule in made["rules"]] == ["mpi"]
    with pytest.raises(TuttiError, match="no measured plans"):
        tuner.make([measured({4: {"net:ring": 1}})])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"memory": "hostdevice"}, "hostdevice memory: a stand-in for tests has no rules"),
        ({"type": "float64"}, "measured with float32 sum and with float64 sum"),
        ({"op": "max"}, "measured with float32 sum and with float32 max"),
        ({"versions": Versions(mpi="Open MPI 5.0.8")}, "several MPI libraries: MPICH 5.0.2; Open"),
        ({"versions": Versions(mpi="MPICH 5.0.2", ccl="NCCL 2.0")}, ""),
        ({"machine": Machine(gpus=["C"])}, "several GPUs: A, B; C"),
        ({"machine": Machine(gpus=["A", "B"])}, ""),
        ({"collective": "allgather", "op": "none"}, ""),
    ],
)
def test_make__documents_of_different_things(change: dict[str, Any], complaint: str) -> None:
    one = measured({4: {"mpi": 9, "ccl": 1}})
    documents = [one, msgspec.structs.replace(one, **change)]
    if not complaint:
        tuner.make(documents)
        return
    with pytest.raises(TuttiError, match=complaint):
        tuner.make(documents)


@pytest.mark.usefixtures("library")
def test_command__what_it_writes_is_correct(tmp_path: Path) -> None:
    source, out = tmp_path / "results.json", tmp_path / "tuning.json"
    words = ["tuning", "make", str(source), "-o", str(out)]
    source.write_bytes(msgspec.json.encode(measured({4: {"no-such-plan": 1, "mpi": 9}})))
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert "the file that was made:" in refused.stderr
    assert "'no-such-plan' is not a plan" in refused.stderr
    assert not out.exists()
    source.write_bytes(msgspec.json.encode(measured({4: {"ccl": 1, "mpi": 9}})))
    made = CliRunner().invoke(main, words)
    assert made.exit_code == 0, made.output
    assert "the elements of 2 measurements were not compared" in made.stderr
    assert [rule["plan"] for rule in json.loads(out.read_text())["rules"]] == ["ccl"]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("h200x2-mpich", ["h200x2-mpich/plans-2r1n"]),
        (
            "h200x4-mpich",
            ["h200x4-mpich/plans-4r1n", "h200x4-mpich/plans-4r2n", "h200x2-mpich/plans-2r1n"],
        ),
    ],
)
def test_command__makes_the_files_that_there_are(name: str, files: list[str]) -> None:
    results = [str(ROOT / "bench" / "results" / f"{file}.json") for file in files]
    made = CliRunner().invoke(main, ["tuning", "make", *results])
    assert made.stdout == (ROOT / "tuning" / f"{name}.json").read_text()
