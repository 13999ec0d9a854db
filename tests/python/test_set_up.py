# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""tools/set_up.sh, without a network, in a directory of its own; what other tools refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_tools__an_outdated_environment_is_made_anew_though_it_is_first_in_the_path(
    tmp_path: Path,
) -> None:
    """As `make` calls it after requirements-dev.txt has changed."""
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools" / "set_up.sh", tmp_path / "tools")
    requirements = tmp_path / "requirements-dev.txt"
    programs = tmp_path / ".env" / "tools" / "bin"
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TUTTI_WHEELS": str(tmp_path)}
    for content in ("# Nothing.\n", "# Nothing, again.\n"):
        requirements.write_text(content)
        done = subprocess.run(
            [tmp_path / "tools" / "set_up.sh", "tools"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "setting up .env/tools" in done.stdout
        assert done.stderr == ""
        subprocess.run([programs / "python3", "-c", "import sys"], check=True)


@pytest.mark.parametrize("script", ["gpu_check.sh", "gpu_net_check.sh"])
def test_gpu_check__a_part_that_is_none(tmp_path: Path, script: str) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        ["bash", REPOSITORY / "tools" / script, tmp_path, tmp_path, out, "mesure"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "'mesure' is no part; remedy: " in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pytset"], "unknown: --pytset"),
        (["--total", "tests/python"], "unknown: tests/python"),
        (["--name", "x"], "nothing to run; remedy: --ctest BUILD, --pytest or --total"),
    ],
)
def test_run_tests__refuses_what_would_run_nothing(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "run_tests.py", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr


def test_simulate_transport__goes_on_with_the_same_program_alone(tmp_path: Path) -> None:
    program, state = tmp_path / "program", tmp_path / "state.json"

    def run() -> subprocess.CompletedProcess[str]:
        tool = REPOSITORY / "tools" / "simulate_transport.py"
        words = [sys.executable, tool, program, "--seeds", "1000", "--state", state, "--jobs", "1"]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    program.write_text('#!/bin/sh\necho run >> "$0.log"\necho "1000 seeds, 0 failed"\n')
    program.chmod(0o755)
    assert [run().returncode, run().returncode] == [0, 0]
    assert (tmp_path / "program.log").read_text() == "run\n"
    with program.open("a") as file:
        file.write("# Another build.\n")
    refused = run()
    assert refused.returncode == 2
    assert f"{state} is of another program than {program}; remedy: remove it" in refused.stderr
    old = json.loads(state.read_text())
    del old["program_sha256"]
    state.write_text(json.dumps(old))
    assert run().returncode == 2
