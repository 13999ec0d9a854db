# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The applications in bench/applications, in their smallest form, and the example for PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tutti_hpc import launch, mpi, paths
from tutti_hpc.errors import TuttiError

ROOT = Path(__file__).resolve().parents[2]
APPLICATIONS = ROOT / "bench/applications"
LIMIT_S = 240
SMALL = ("--ranks", "2", "--pairs", "3")
TRAINING = ("--steps", "3", "--turn", "1")
DDP = ("ddp.py", *SMALL, *TRAINING)
FSDP = ("fsdp.py", *SMALL, *TRAINING, "--parameters", "200k")
GEMM = ("gemm.py", *SMALL, "--size", "64", "--panels", "2")
MOE = ("moe.py", *SMALL, "--requests", "4")
HYBRID = ("hybrid_mpi.py", *SMALL, "--steps", "4", "--turn", "2")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
    library = paths.find(paths.LIBRARY)
    assert library is not None
    environment |= {"TUTTI_LIBRARY_DIR": str(library.parent), "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(
        words,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def start(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run(python, str(APPLICATIONS / words[0]), *words[1:])


def rows(python: str, output: Path, *words: str, reference: str = "gloo") -> list[dict[str, Any]]:
    """The rows of a run that ended well; each was compared, and measured in pairs."""
    done = start(python, *words, "-o", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(output.read_text())["rows"]
    assert all(row["is_right"] for row in found)
    for row in found:
        for name in ("tutti_us", f"{reference}_us", "ratio"):
            assert len(row[name]) == 3, row
        assert min(row["tutti_us"]) > 0
    return found


def check_losses(row: dict[str, Any], steps: int, reference: str = "gloo") -> None:
    ours, theirs = row["losses"]["tutti"], row["losses"][reference]
    assert len(ours) == steps
    assert ours == theirs
    assert len(set(ours)) == steps


def test_applications__ddp(torch_python: str, tmp_path: Path) -> None:
    found = rows(torch_python, tmp_path / "ddp.json", *DDP)
    assert [row["model"] for row in found] == ["resnet", "gpt", "gpt-text"]
    for row in found:
        check_losses(row, 3)
        assert row["tensors_that_differ"] == 0


def test_applications__ddp_of_three_ranks_agrees_to_rounding(
    torch_python: str, tmp_path: Path
) -> None:
    words = (*DDP, "--models", "gpt", "--ranks", "3")
    (row,) = rows(torch_python, tmp_path / "ddp.json", *words)
    assert row["losses"]["tutti"] == row["losses"]["gloo"]
    # Some rounding: these are the gradients of two backends.
    assert 0 < row["gradient_difference"] <= 1e-5


def test_applications__fsdp(torch_python: str, tmp_path: Path) -> None:
    found = rows(torch_python, tmp_path / "fsdp.json", *FSDP)
    assert [row["way"] for row in found] == ["backend", "custom"]
    for row in found:
        check_losses(row, 3)
        assert row["tensors_that_differ"] == 0
        for backend, profile in row["profile"].items():
            assert all(name.startswith(f"{backend}:") for name in profile["records"])
            assert all(0 < share < 1 for share in profile["comm_share"].values()), profile
            assert profile["step_peak_bytes"] > row["parameters"]
        assert (row["buffer_bytes"] > 0) == (row["way"] == "custom")


def test_applications__gemm(torch_python: str, tmp_path: Path) -> None:
    found = rows(torch_python, tmp_path / "gemm.json", *GEMM)
    ways = [("strong", "in-turn"), ("strong", "ahead"), ("weak", "in-turn"), ("weak", "ahead")]
    assert [(row["scaling"], row["mode"]) for row in found] == ways
    assert [row["size"] for row in found] == [[64] * 3] * 2 + [[128, 64, 64]] * 2
    assert all(row["elements_that_differ"] == 0 for row in found)


def test_applications__moe(torch_python: str, tmp_path: Path) -> None:
    prefill, decode = rows(torch_python, tmp_path / "moe.json", *MOE)
    assert (prefill["phase"], decode["phase"]) == ("prefill", "decode")
    assert prefill["steps"] == 4
    assert decode["steps"] > 4
    for row in (prefill, decode):
        assert row["requests"] == 8
        assert row["elements_that_differ"] == 0
        assert 1 < row["busiest_rank"] < 2
        for backend in ("tutti", "gloo"):
            assert 0 < row["request_us"][backend]["p50"] <= row["request_us"][backend]["p99"]
            assert row["tokens_per_s"][backend] > 0


def need_mpi(name: str) -> None:
    pytest.importorskip("mpi4py")
    pytest.importorskip("numpy")
    try:
        mpi.find(name)
    except TuttiError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_applications__hybrid_mpi(name: str, tmp_path: Path) -> None:
    need_mpi(name)
    words = (*HYBRID, "--mpi", name)
    (row,) = rows(sys.executable, tmp_path / "hybrid.json", *words, reference="native")
    check_losses(row, 4, "native")
    assert (row["side"], row["mpi"]) == ("preload", name)
    assert row["jobs_with_other_parameters"] == 0
    assert row["gradient_difference"] <= 1e-5
    # Buckets of 256 KiB: 4 in each of 6 steps. Smaller ones are the MPI library's by default.
    if launch.usable_cores() >= 2:
        assert row["plans"]["direct-gamma"] == 24


# The gradients of two ranks are also compared bit by bit, those of more are not.
@pytest.mark.parametrize("ranks", ["2", "3"])
def test_applications__hybrid_mpi_sees_a_wrong_value(ranks: str, tmp_path: Path) -> None:
    need_mpi("mpich")
    words = (*HYBRID, "--mpi", "mpich", "--ranks", ranks, "--plant")
    output = tmp_path / "wrong.json"
    done = start(sys.executable, *words, "-o", str(output))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout
    (row,) = json.loads(output.read_text())["rows"]
    assert row["gradient_difference"] > 1e-5
    assert ("losses_that_differ" in row) == (ranks == "2")


def test_examples__pytorch(torch_python: str) -> None:
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = run(torch_python, *words, str(ROOT / "examples/pytorch/ddp.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "backend tutti, 2 ranks: parameters equal" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((*DDP, "--models", "gpt"), id="ddp"),
        pytest.param((*FSDP, "--ways", "custom"), id="fsdp"),
        pytest.param((*GEMM, "--scaling", "weak"), id="gemm"),
        pytest.param(MOE, id="moe"),
    ],
)
def test_applications__a_wrong_value_is_seen(
    torch_python: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    output = tmp_path / "wrong.json"
    done = start(torch_python, *words, "--plant", "-o", str(output))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout
    assert not any(row["is_right"] for row in json.loads(output.read_text())["rows"])


def test_applications__full_models_have_the_parameters_of_their_names(torch_python: str) -> None:
    code = """
import torch, models
with torch.device("meta"):
    both = models.ResNet(models.ResNetShape()), models.Gpt(models.GptShape())
print(*(sum(p.numel() for p in model.parameters()) for model in both))
print(models.GptShape().parameters)
"""
    environment = {**os.environ, "PYTHONPATH": str(APPLICATIONS)}
    words = [torch_python, "-c", code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["25557032", "124439808", "124439808"], done.stderr
