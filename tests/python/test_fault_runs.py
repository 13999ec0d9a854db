# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""tools/fault_runs.py: what it draws can happen, a few of its runs, what it says of a bad one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tutti_hpc import paths

from missing import unavailable

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/fault_runs.py"
TIMEOUT_S = 300


@pytest.fixture
def fault_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import fault_runs as module

    yield module
    sys.modules.pop("fault_runs")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_draw__paths_that_are_killed_exist(fault_runs: ModuleType) -> None:
    killed = 0
    for seed in range(1, 301):
        _, variables = fault_runs.run_of(seed, Path("build"))
        for path in re.findall(r"kill_path=(\d+)@", variables["TUTTI_FAULT"]):
            assert int(path) < int(variables["TUTTI_NET_PATHS"]), seed
            killed += 1
    assert killed > 100


def test_runs__every_byte_arrives_over_ten_networks() -> None:
    plugin = paths.find(paths.NCCL_NET)
    build = plugin.parents[1] if plugin else ROOT
    if plugin is None or not (build / "tests/nccl_net/nccl_net_driver").is_file():
        unavailable("nccl_net_driver or the network plugin is not built")
    done = run("--first", "1", "--count", "10", "--build", str(build))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("10 runs, 0 failed, "), done.stdout


def test_runs__a_bad_one_is_shown_with_its_command(tmp_path: Path) -> None:
    driver = tmp_path / "tests/nccl_net/nccl_net_driver"
    driver.parent.mkdir(parents=True)
    driver.write_text("#!/bin/sh\necho '7 checks, 1 failed'\nexit 1\n")
    driver.chmod(0o755)
    done = run("--first", "5", "--count", "1", "--build", str(tmp_path))
    assert done.returncode == 1
    assert "seed 5: status 1: 7 checks, 1 failed" in done.stdout
    assert re.search(rf"TUTTI_FAULT=seed=5\S* .*{driver} .*--seed 5 ", done.stdout)
