# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What every results document begins with."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import pytest
from tutti_hpc.errors import TuttiError

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    """A benchmark by a name of its own: `lab` and others are packages elsewhere."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / f"bench/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Data classes look there for their types.
    spec.loader.exec_module(module)
    return module


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


def test_lab__rows_of_another_commit_are_not_gone_on_with(
    head: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab = load("lab")
    place = SimpleNamespace(plan=lab.plan.make(lab.SPEC))
    out = tmp_path / "lab.json"
    monkeypatch.setenv("BENCH_COMMIT", "0123456789ab")
    document = lab.Bench(place, None, False).document
    assert document.versions["commit"] == "0123456789ab"
    assert document.schema == "tutti-lab/1"
    document.versions["openmpi"] = "Open MPI 5.0.8"
    out.write_bytes(msgspec.json.encode(document))
    assert lab.Bench(place, out, True).document.versions == document.versions
    for other in (out, ROOT / "bench/results/lab-4x4x4.json"):
        monkeypatch.setenv("BENCH_COMMIT", "ba9876543210")
        with pytest.raises(TuttiError, match="this is ba9876543210; remedy: without --resume"):
            lab.Bench(place, other, True)


def test_overhead__says_which_commit(
    head: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests/mpi"))
    overhead = load("overhead")
    monkeypatch.setenv("BENCH_COMMIT", "0123456789ab")
    out = tmp_path / "overhead.json"
    old = json.loads((ROOT / "bench/results/overhead-host-allreduce8.json").read_text())
    out.write_text(json.dumps(old))
    top = head.head(overhead.SCHEMA)
    overhead.write(out, top, {"mpi": "mpich", "versions": {**top["versions"], "mpi": "MPICH 5"}})
    written = json.loads(out.read_text())
    assert set(written) == set(old)
    assert written["schema"] == old["schema"]
    assert written["versions"] == {**top["versions"], "mpi": "MPICH 5"}
    assert written["versions"]["commit"] == "0123456789ab"
    assert [row["mpi"] for row in written["rows"]] == [row["mpi"] for row in old["rows"]]


def test_head__no_directory_of_this_machine(
    head: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bench/x.py", "-o", "/tmp/out.json", "4"])
    assert head.head("s/1")["command"] == "python x.py -o out.json 4"
    assert set(head.head("s/1")["versions"]) == {"tutti", "commit"}


SIMULATED = ROOT / "bench/results/sim-loss.json"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("network", ["plot"]),
        ("nccl_network", ["plot"]),
        ("pipeline", ["--draw"]),
        ("lab", ["--plot"]),
        ("sim_network_figures", []),
        ("overhead", ["--pairs", "2", "-o"]),
    ],
)
def test_scripts__say_what_is_no_document_of_theirs(
    head: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    script: str,
    words: list[str],
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests/mpi"))
    module = load(script)
    other = SIMULATED if script != "sim_network_figures" else ROOT / "bench/results/sim-paper.json"
    if script == "overhead":
        monkeypatch.setattr(module.harness, "find_mpi", lambda _: None)
        monkeypatch.setattr(module.harness, "preload_library", lambda: SIMULATED)
    out = [str(tmp_path / "out.png")] if script == "sim_network_figures" else []
    monkeypatch.setattr(sys, "argv", [script, *words, str(other), *out])
    try:
        status = module.main()
        said = capsys.readouterr().err
    except SystemExit as error:
        status = error.code
        said = f"{error.code}{capsys.readouterr().err}"
    assert status not in (0, None)
    assert f"{other}: schema tutti-" in said
    assert "remedy: a document of tutti-" in said


@pytest.mark.parametrize("script", ["network", "nccl_network"])
def test_plot__without_a_file(
    head: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "plot"])
    assert load(script).main() == 2
    assert "which results? remedy: name a file that -o has written" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["transport", "schedule", "direct_sweep", "scatter_copy"])
def test_scripts__without_a_build(
    head: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    words = {"direct_sweep": ["2", "-o", "/dev/null"], "scatter_copy": ["-o", "/dev/null"]}
    monkeypatch.setattr(
        sys, "argv", [script, *words.get(script, []), "--program", "/nowhere/program"]
    )
    with pytest.raises(SystemExit, match="2"):
        load(script).main()
    assert "/nowhere/program is not there; remedy: make build" in capsys.readouterr().err


def test_load__committed_documents_and_what_is_none(head: ModuleType, tmp_path: Path) -> None:
    for path, schema in (
        ("h200x4-nccl-net/fabric.json", "tutti-bench-nccl-network/1"),
        ("h200x2-nccl-net/lab-fabric.json", "tutti-bench-nccl-net-fabric/1"),
        ("h200x2-mpich/pipeline-2r1n.json", "tutti-pipeline/1"),
        ("lab-4x4x4.json", "tutti-lab/1"),
    ):
        assert head.load(ROOT / "bench/results" / path, "other/1", schema)["rows"]
    bad = tmp_path / "bad.json"
    for text, said in (
        ("{", "not a results document"),
        ("[]", "no schema"),
        (None, "No such file"),
    ):
        bad.unlink(missing_ok=True)
        if text is not None:
            bad.write_text(text)
        with pytest.raises(TuttiError, match=f"{bad}: {said}"):
            head.load(bad, "s/1")
