# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""bench/host_memory.py: its document, its arithmetic, and that wrong results are counted."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import harness
from missing import unavailable

SCRIPT = harness.ROOT / "bench" / "host_memory.py"
# One pair of short blocks for each collective, at one size.
TINY = ["--ranks", "2", "--binding", "none", "--begin", "256", "--end", "256", "--minutes", "1.5"]
TINY += ["--collectives", "all", "--row-seconds", "0.01", "--pairs-min", "1", "--bound", "1e9"]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_host_memory", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Data classes look there for their types.
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def mpich(preload_library: Path) -> None:
    """MPICH with its program."""
    assert preload_library
    found = harness.find_mpi("mpich")
    if isinstance(found, str) or not found.program("paired").exists():
        unavailable("no MPICH, or tests/mpi/mpich/paired is not built")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def row(size: int, p50: float, **changes: Any) -> dict[str, Any]:
    ratio = {"p25": p50 - 0.02, "p50": p50, "p75": p50 + 0.02}
    return {
        "mpi": "mpich", "collective": "bcast", "ranks": 2, "mode": "osu", "binding": "core",
        "size": size, "bytes": size, "plan": "direct-gamma", "ratio": ratio, "ratio_max": ratio,
        "wrong": 0,
    } | changes  # fmt: skip


def test_run__a_row_for_each_collective(
    mpi: harness.Mpi, preload_library: Path, tmp_path: Path
) -> None:
    assert preload_library
    output = tmp_path / "results.json"
    plan = ["--plan", "direct-gamma", "--mode", "osu"]
    done = run(*TINY, *plan, "--mpi", mpi.flavour, "-o", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(output.read_text())
    assert document["schema"] == "tutti-host-memory/1"
    assert set(document["versions"]) == {"tutti", "commit", mpi.flavour}
    assert document["left_out"] == []
    rows = {row["collective"]: row for row in document["rows"]}
    assert len(rows) == len(document["rows"]) == 12
    for name, found in rows.items():
        assert (found["mpi"], found["ranks"], found["plan"]) == (mpi.flavour, 2, "direct-gamma")
        assert found["pairs"] >= 1, name
        assert found["native_us"] > 0, name
        assert found["native_max_us"] >= found["native_us"], name
        assert found["ours_max_us"] >= found["ours_us"] > 0, name
        assert found["ratio"]["p25"] <= found["ratio"]["p50"] <= found["ratio"]["p75"], name
        assert found["wrong"] == 0, name
    assert (rows["bcast"]["bytes"], rows["bcast"]["block_bytes"]) == (256, 256)
    assert (rows["alltoall"]["bytes"], rows["alltoall"]["block_bytes"]) == (256, 128)
    assert rows["barrier"]["bytes"] == 0
    summary = document["summary"]
    assert (summary["rows"], summary["rows_with_our_plan"], summary["wrong"]) == (12, 12, 0)


def test_run__every_mode(mpich: None, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    modes = ["--mode", "all", "--collectives", "bcast,allreduce", "--type", "char", "--floor"]
    done = run(*TINY, "--mpi", "mpich", *modes, "-o", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(output.read_text())["rows"]
    assert [row["mode"] for row in rows] == ["calls"] * 2 + ["osu"] * 2 + ["compute"] * 2 + [
        "late"
    ] * 2
    # Each call of the mode `compute` has 100 us of work in front of it.
    assert all(row["native_us"] > 90 for row in rows if row["mode"] == "compute")
    assert all(row["floor"]["p50"] > 0 for row in rows)


def test_run__wrong_results_are_counted(mpich: None, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = run(*TINY, "--mpi", "mpich", "--plant-wrong", "-o", str(output))
    assert done.returncode == 1, done.stdout + done.stderr
    wrong = {row["collective"]: row["wrong"] for row in json.loads(output.read_text())["rows"]}
    # Two checked calls, with root 0 and root 1: one element on each rank that gets something.
    assert wrong.pop("barrier") == 0
    assert wrong.pop("bcast") == 2
    assert [wrong.pop(name) for name in ("reduce", "gather")] == [2, 2]
    assert set(wrong.values()) == {4}


def test_run__what_communicators_cost(mpich: None, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    words = ["--setup", "--mpi", "mpich", "--binding", "none", "--ranks", "2", "--comms", "3"]
    done = run(*words, "--minutes", "0.5", "-o", str(output))
    assert "bench/host_memory.py" not in done.stderr, done.stderr
    document = json.loads(output.read_text())
    assert document["schema"] == "tutti-host-set-up/1"
    assert done.returncode == (1 if document["missed"] else 0)
    (found,) = document["rows"]
    assert found["memory"]["ours"]["comms"] == found["comms"]["ours"] >= 1
    assert found["dup_us"]["ours"] > found["call_us"]["ours"] > 0
    assert found["first_us"]["native"] > 0


def test_quartiles__of_our_time_over_the_native_time(bench: ModuleType) -> None:
    found = bench.quartiles([(100.0, 50.0), (100.0, 100.0), (100.0, 200.0)])
    assert found == {"p25": 0.75, "p50": 1.0, "p75": 1.5}
    assert bench.quartiles([(0.0, 0.0)])["p50"] == 1


def test_summarise__only_plans_of_ours_gain(bench: ModuleType) -> None:
    rows = [row(1, 0.5), row(4, 0.25), row(16, 1.04), row(64, 1.1), row(256, 3, plan="native")]
    found = bench.summarise(rows, 1.03)
    assert (found["rows"], found["rows_with_our_plan"]) == (5, 4)
    assert found["worst"] == {"ratio": 1.1, "where": "mpich bcast 2 osu core 64 direct-gamma"}
    assert found["worst_where_native"]["ratio"] == 3
    assert found["median_gain"] == {"bcast": 1.48}  # Of 2, 4, 1 / 1.04 and 1 / 1.1.
    assert len(found["above_bound"]) == 3
    assert len(found["above_bound_surely"]) == 2


def test_summarise__a_native_row_is_above_what_any_preload_costs(bench: ModuleType) -> None:
    floor = {"floor": {"p25": 1.02, "p50": 1.05, "p75": 1.06}}
    rows = [row(1, 1.07, plan="native", **floor), row(4, 1.09, plan="native", **floor)]
    found = bench.summarise([*rows, row(16, 1.04, **floor)], 1.03)
    assert found["above_bound"] == [
        "mpich bcast 2 osu core 4 native",
        "mpich bcast 2 osu core 16 direct-gamma",
    ]
    assert found["worst_floor"]["ratio"] == 1.05


def test_winning__sizes_where_no_measurement_loses(bench: ModuleType) -> None:
    rows = [row(size, 0.9) for size in (1, 4, 16, 64)] + [row(4, 1.01, mpi="openmpi")]
    assert list(bench.winning(rows)) == [("bcast", 2, "1..1, 16..64")]
    assert list(bench.winning([row(1, 1.5)])) == [("bcast", 2, "")]


def test_print_table__of_a_document(bench: ModuleType, tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "results.json"
    rows = [row(1, 0.5), row(4096, 1.5), row(4096, 1.0, collective="allreduce", plan="mpi-gamma")]
    output.write_text(json.dumps({"schema": "tutti-host-memory/1", "rows": rows}))
    assert bench.main(["--print-table", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["collective", "ranks", "1", "4K"]
    assert lines[3].split() == ["allreduce", "2", "1.00."]
    assert lines[4].split() == ["bcast", "2", "0.50", "1.50*"]


def test_launch__bindings(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.os, "sched_getaffinity", lambda _: set(range(8)))

    def words(flavour: str, ranks: int, binding: str) -> list[str]:
        cell = bench.Cell(harness.Mpi(flavour, Path("/mpi")), ranks, "osu", binding)
        return list(bench.launch(cell))

    assert words("mpich", 4, "core") == ["/mpi/bin/mpirun", "-bind-to", "core", "-n", "4"]
    assert words("openmpi", 4, "none")[-4:] == ["--bind-to", "none", "-n", "4"]
    assert words("openmpi", 4, "core")[-4:-2] == ["--bind-to", "core:overload-allowed"]
    assert words("mpich", 4, "over")[:3] == ["taskset", "-c", "0,1"]
    assert words("mpich", 32, "over")[:3] == ["taskset", "-c", "0,1,2,3"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--collectives", "allredoce"], "'allredoce'"),
        (["--begin", "4Q"], "'4Q' is not a size"),
        (["--ranks", "2,x"], "'2,x'"),
        (["-o", "/nowhere/at/all.json"], "no such directory"),
    ],
)
def test_arguments__errors_before_anything_is_measured(
    mpich: None, words: list[str], said: str
) -> None:
    done = run("--mpi", "mpich", *words)
    assert done.returncode == 2
    assert said in done.stderr
