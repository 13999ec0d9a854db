# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""bench/osu.py on programs that print what OSU 7.4 prints."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

PRINTED = """
# OSU MPI-CUDA Allreduce Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)        Validation
1                       7.55              Pass
1048576                15.80              {verdict}
"""


@pytest.fixture
def osu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("osu", ROOT / "bench" / "osu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_parse__with_and_without_validation(osu: ModuleType) -> None:
    assert osu.parse(PRINTED.format(verdict="Pass")) == {
        1: (7.55, "Pass"),
        1048576: (15.80, "Pass"),
    }
    plain = "# Size  Avg Latency(us)\n4    0.75\n8      0.76\n16    1.00\n"
    assert osu.parse(plain) == {4: (0.75, ""), 8: (0.76, ""), 16: (1.0, "")}


def test_environment__forces_the_measured_collective_alone(
    osu: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(osu.paths, "require", lambda name: Path("/lib") / name)
    preload = {"LD_PRELOAD": "/lib/libtutti-mpi.so"}
    assert osu.environment("native", "bcast", []) == {}
    assert osu.environment("default", "bcast", ["A=b=c"]) == {"A": "b=c"} | preload
    assert osu.environment("ccl-beta", "bcast", []) == preload | {"TUTTI_BCAST": "ccl-beta"}


def test_summary__medians_and_ratios(osu: ModuleType) -> None:
    def runs(*values: float, verdict: str = "Pass") -> list[dict]:
        return [{"rows": {8: (value, verdict)}} for value in values]

    (row,) = osu.summary("bcast", {"default": runs(2, 4, 3), "ccl-beta": runs(9, 6, 7)})
    assert row == {
        "collective": "bcast",
        "bytes": 8,
        "default_us": 3,
        "ccl-beta_us": 7,
        "wrong": 0,
        "ccl-beta_over_default": 2.333,
    }
    assert osu.summary("bcast", {"default": runs(1, verdict="Fail")})[0]["wrong"] == 1


@pytest.mark.parametrize(("verdict", "status"), [("Pass", 0), ("Fail", 1)])
def test_run__a_wrong_element_is_a_failure(tmp_path: Path, verdict: str, status: int) -> None:
    """With a launcher that starts one rank."""
    prefix = tmp_path / "mpi"
    (prefix / "bin").mkdir(parents=True)
    launcher = prefix / "bin" / "mpirun"
    launcher.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    program = tmp_path / "osu_allreduce"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{PRINTED.format(verdict=verdict)}END\n")
    for file in (launcher, program):
        file.chmod(0o755)
    script = (
        "import pathlib, sys, types; sys.path[:0] = ['python', 'bench']; import osu\n"
        f"found = types.SimpleNamespace(prefix=pathlib.Path({str(prefix)!r}))\n"
        "osu.mpi.find = lambda wanted: found\n"
        "sys.exit(osu.main())"
    )
    out = tmp_path / "out.json"
    words = ["--osu", str(tmp_path), "--mpi", "x", "--collectives", "allreduce"]
    words += ["--plans", "native", "--repeats", "2", "-o", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=ROOT,
        env=os.environ | {"BENCH_COMMIT": "0123456789ab"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    document = json.loads(out.read_text())
    assert document["schema"] == "tutti-osu/1"
    assert [row["native_us"] for row in document["rows"]] == [7.55, 15.8]
    assert document["rows"][1]["wrong"] == 2 * status
