# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti path` and `tutti env`: how scripts and shells find the network plugin."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tutti_hpc.cli import main
from tutti_hpc.errors import TuttiError

PLUGIN = "libnccl-net-tutti.so"


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="tutti")


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a plugin whose path needs quoting."""
    directory = tmp_path / "it's a $HOME"
    directory.mkdir()
    for name in (PLUGIN, "librccl-net-tutti.so"):
        (directory / name).touch()
    monkeypatch.setenv("TUTTI_LIBRARY_DIR", str(directory))
    return directory


def evaluated(lines: str, before: str | None) -> dict[str, str]:
    """The variables after a shell has evaluated the lines."""
    environment = {"PATH": "/usr/bin:/bin", "LINES_TO_EVALUATE": lines}
    if before is not None:
        environment["LD_LIBRARY_PATH"] = before
    script = 'eval "$LINES_TO_EVALUATE"; for name in NCCL_NET NCCL_NET_PLUGIN LD_LIBRARY_PATH; do '
    script += 'eval "echo \\"\\$$name\\""; done'
    shell = subprocess.run(
        ["sh", "-euc", script], check=True, capture_output=True, text=True, env=environment
    )
    names = ["NCCL_NET", "NCCL_NET_PLUGIN", "LD_LIBRARY_PATH"]
    return dict(zip(names, shell.stdout.splitlines(), strict=True))


@pytest.mark.parametrize(("part", "prefix"), [("nccl-net", "nccl"), ("rccl-net", "rccl")])
def test_path__one_line(libraries: Path, part: str, prefix: str) -> None:
    shown = invoke("path", part)
    assert shown.exit_code == 0
    assert shown.stdout == f"{libraries}/lib{prefix}-net-tutti.so\n"


@pytest.mark.parametrize("before", [None, "", "/opt/a:/opt/b"])
def test_env__evaluated_by_a_shell(libraries: Path, before: str | None) -> None:
    shown = invoke("env", "nccl-net")
    assert shown.exit_code == 0
    path = f"{libraries}:{before}" if before else str(libraries)
    assert evaluated(shown.stdout, before) == {
        "NCCL_NET": "Tutti",
        "NCCL_NET_PLUGIN": "tutti",
        "LD_LIBRARY_PATH": path,
    }


def test_env__full_path(libraries: Path) -> None:
    shown = invoke("env", "nccl-net", "--full-path")
    assert evaluated(shown.stdout, None)["NCCL_NET_PLUGIN"] == str(libraries / PLUGIN)


def test_env__network_is_named_as_in_the_table() -> None:
    source = Path(__file__).resolve().parents[2] / "src/nccl_net/adapters.cpp"
    assert 'kName[] = "Tutti"' in source.read_text()


@pytest.mark.parametrize("command", ["path", "env"])
def test_missing_plugin__names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("TUTTI_LIBRARY_DIR", str(tmp_path))
    shown = invoke(command, "nccl-net")
    assert shown.exit_code == TuttiError.exit_code
    assert shown.stdout == ""
    assert "make build" in shown.stderr
