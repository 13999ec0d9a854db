# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What every results document begins with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.delenv("BENCH_COMMIT", raising=False)
    import results_head

    return results_head


def test_commit__of_a_checkout_with_its_changes(
    head: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(head, "ROOT", tmp_path)
    assert head.commit() == ""  # Of a copy nobody knows,
    monkeypatch.setenv("BENCH_COMMIT", "0123456789ab")
    assert head.commit() == "0123456789ab"  # but who made it.
    monkeypatch.delenv("BENCH_COMMIT")

    def git(*words: str) -> str:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *names, "-C", str(tmp_path), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "one")
    full = git("rev-parse", "HEAD")
    assert head.commit() == full[:12]
    (tmp_path / "file").write_text("2")
    assert head.commit() == full[:12] + "-dirty"


def test_head__no_directory_of_this_machine(
    head: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bench/x.py", "-o", "/tmp/out.json", "4"])
    assert head.head("s/1")["command"] == "python x.py -o out.json 4"
    assert set(head.head("s/1")["versions"]) == {"tutti", "commit"}
