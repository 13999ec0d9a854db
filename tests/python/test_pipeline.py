# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""bench/pipeline.py and bench/gpu_node.py, on the fakes of CUDA and NCCL in place of GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tutti_hpc import mpi, paths, results
from tutti_hpc.errors import TuttiError

from missing import unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
PLANS = ["ccl-gamma", "ccl-streams(2)", "ccl-streams(4)", "ccl-comms(2)", "ccl-comms(4)"]


def fakes() -> Path:
    """The directory of the fakes, beside the library under test."""
    preload = paths.find(paths.PRELOAD)
    if preload is None or paths.find_measure("mpich") is None:
        unavailable("libtutti-mpi.so and tutti-measure-mpich are not built")
    directory = preload.parent.parent / "tests" / "support" / "fakes" / "cuda"
    if not directory.is_dir():
        unavailable(f"{directory} is not built")
    try:
        mpi.find("mpich")
    except TuttiError as error:
        unavailable(error.format_message())
    return directory


def test_pipeline__every_plan_at_every_size_and_a_figure(tmp_path: Path) -> None:
    environment = os.environ | {"LD_LIBRARY_PATH": str(fakes()), "FAKE_GPUS": "4"}
    command = [sys.executable, str(REPOSITORY / "bench" / "pipeline.py"), "--mpi", "mpich"]
    command += ["--ranks", "2", "--out", str(tmp_path), "--end", "64K", "--factor", "128"]
    done = subprocess.run(
        [*command, "--repeats", "1", "--time-cap", "0.05"],
        env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert "wrong elements: 0" in done.stdout
    document = json.loads((tmp_path / "pipeline-2r1n.json").read_text())
    assert (document["schema"], document["ranks"]) == ("tutti-pipeline/1", 2)
    assert [row["bytes"] for row in document["rows"]] == [4, 512, 65536]
    assert set(document["versions"]) == {"tutti", "commit", "mpi", "ccl", "driver"}
    for row in document["rows"]:
        assert list(row["p50_us"]) == PLANS
        assert list(row["over_default"]) == PLANS[1:]
        assert row["wrong"] == 0
    drawn = tmp_path / "pipeline-2r1n.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")
    drawn.unlink()
    subprocess.run(
        [*command[:2], "--draw", str(drawn.with_suffix(".json"))], timeout=100, check=True
    )
    assert drawn.exists()


def test_floor__is_measured_in_the_job_of_the_calls(tmp_path: Path) -> None:
    environment = os.environ | {"LD_LIBRARY_PATH": str(fakes()), "FAKE_GPUS": "2"}
    words = ["allreduce", "-n", "2", "--mpi", "mpich", "-b", "64", "-e", "64", "-i", "20"]
    for memory in ("device", "host"):
        out = tmp_path / f"{memory}.json"
        subprocess.run(
            [sys.executable, "-m", "tutti_hpc", "bench", *words, f"--memory={memory}", f"-o{out}"],
            env=environment, capture_output=True, timeout=100, check=True,
        )  # fmt: skip
        (document,) = results.load(out)
        if memory == "device":
            assert document.floor_us is not None
            assert document.floor_us > 0
        else:
            assert document.floor_us is None


def gpu_node(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(fakes()), "FAKE_GPUS": "4"}
    command = [sys.executable, str(REPOSITORY / "bench" / "gpu_node.py"), "--mpi", "mpich"]
    command += ["--out", str(out), "--collectives", "allreduce", "--begin", "64", "--end", "64"]
    return subprocess.run(
        [*command, "--repeats", "1", "--time-cap", "0.02", *words],
        env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def test_gpu_node__plans_rules_and_a_summary_that_says_where_it_is_from(tmp_path: Path) -> None:
    done = gpu_node(tmp_path, "--layouts", "2x1")
    assert done.returncode == 0, done.stderr + done.stdout
    (plans,) = results.load(tmp_path / "plans-2r1n.json")
    assert {row.wrong for row in plans.rows} == {0}
    # The fakes have no NVLink, without which our kernels refuse: no row says otherwise.
    assert {row.plan for row in plans.rows} == {"mpi-gamma", "ccl-gamma", "ccl-comms(4)"}
    assert "direct-gamma is left out" in done.stderr
    assert json.loads((tmp_path / "tuning.json").read_text())["rules"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["schema"] == "tutti-gpu-node/2"
    assert set(summary) >= {"date", "machine", "versions", "command", "rows", "wrong"}
    assert len(summary["rows"]) == 1


def test_gpu_node__a_job_that_fails_is_no_success(tmp_path: Path) -> None:
    rules = tmp_path / "tuning.json"
    rules.write_text('{"schema": "tutti-tuning/1", "rules": []}')
    done = gpu_node(tmp_path, "--layouts", "2x1,9x1", "--tuning", str(rules))
    assert done.returncode == 1
    assert "FAILED: " in done.stderr
    assert "failed jobs: 1" in done.stdout
