# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The command: options that all of it has, errors, output files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tutti_hpc import api, bench, measure, mpi, results, sizes
from tutti_hpc.cli import COMMANDS, main
from tutti_hpc.results import Results


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="tutti")


def test_help__lists_every_command() -> None:
    shown = invoke("--help")
    assert shown.exit_code == 0
    for command in COMMANDS:
        assert f"  {command} " in shown.stdout
        assert invoke(command, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("text", "size"), [("4", 4), ("64K", 65536), ("1MiB", 1 << 20), ("2gb", 2 << 30), ("7b", 7)]
)
def test_parse_bytes__accepts(text: str, size: int) -> None:
    assert sizes.parse_bytes(text) == size
    assert sizes.parse_bytes(sizes.format_bytes(size)) == size


@pytest.mark.parametrize("text", ["", "K", "-4", "4X", "1.5K"])
def test_parse_bytes__refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        sizes.parse_bytes(text)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("bench", "allredu"), "'allredu' is no collective"),
        (("bench", "allreduce", "-b", "1x"), "'1x' is not a size"),
        (("bench", "allreduce", "-b", "8", "-e", "4"), "-e is below -b"),
        (("bench", "allreduce", "--plans", "a,;b"), "names with commas between"),
        (("run", "--plan", "allreduce", "--", "true"), "write COLLECTIVE=PLANS"),
    ],
)
def test_usage_errors__one_line(stand_in: Path, words: tuple[str, ...], complaint: str) -> None:
    shown = invoke(*words)
    assert shown.exit_code == 2
    assert complaint in shown.stderr
    assert shown.stdout == ""


def test_missing_library__names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_LIBRARY_DIR", str(tmp_path))
    shown = invoke("run", "--", "true")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("tutti: libtutti-mpi.so not found; remedy:")
    assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "name", "oversubscribed", "plan"),
    [
        (("--mpi", "mpich"), "mpich", False, "direct-gamma"),
        (("--mpi", "openmpi"), "openmpi", False, "direct-gamma"),
        (("--mpi", "other"), "", False, "mpi-gamma"),
        (("--mpi", "mpich", "--oversubscribed"), "mpich", True, "mpi-gamma"),
    ],
)
def test_explain__the_rules_of_an_mpi(
    library: None, words: tuple[str, ...], name: str, oversubscribed: bool, plan: str
) -> None:
    call = ("explain", "allreduce", "--bytes", "64K", "--memory", "host", "--json")
    document = json.loads(invoke(*call, *words).stdout)
    assert document["communicator"]["mpi_name"] == name
    assert document["communicator"]["oversubscribed"] is oversubscribed
    assert document["plan"] == plan


def test_explain__the_mpi_and_the_memory_of_this_machine(
    library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = mpi.Mpi("abi", "libmpi_abi.so", Path("/m/bin/mpirun"), "hydra", Path("/m"), "test")
    monkeypatch.setattr(mpi, "find_all", lambda: (found,))
    facts = mpi.Facts("MPICH Version: 5.0.2", False, "")
    monkeypatch.setattr(mpi, "facts", lambda _: facts)
    call = ("explain", "allreduce", "--bytes", "64K", "--json")
    document = json.loads(invoke(*call).stdout)
    assert document["communicator"]["mpi_name"] == "mpich"
    devices = (api.library().machine()["device"] or {}).get("devices")
    assert document["call"]["memory"] == ("device" if devices else "host")
    monkeypatch.setattr(mpi, "find_all", tuple)
    shown = invoke(*call)
    assert json.loads(shown.stdout)["communicator"]["mpi_name"] == ""
    assert shown.stderr.count("\n") == 1
    assert "no MPI is found here" in shown.stderr
    assert invoke(*call, "--mpi", "abi").exit_code == 2


def test_explain__words(stand_in: Path) -> None:
    shown = invoke("explain", "allreduce", "--bytes", "64K", "--ranks", "8", "--nodes", "2")
    assert shown.exit_code == 0
    assert "plan          ccl-beta\n" in shown.stdout
    assert "from          file.json:12\n" in shown.stdout
    assert "  mpi-gamma  2 nodes\n" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_explain__json(stand_in: Path) -> None:
    shown = invoke("explain", "all_reduce", "--bytes", "64K", "--json")
    assert json.loads(shown.stdout)["rule"]["origin"] == "file.json:12"


def test_explain__error_of_the_library(stand_in: Path) -> None:
    shown = invoke("explain", "allreduce", "--bytes", "13")
    assert (shown.exit_code, shown.stderr) == (2, "tutti: thirteen\n")


def test_config__table_and_problems(stand_in: Path) -> None:
    shown = invoke("config", "--origin")
    assert "TUTTI_STRICT  1" in shown.stdout
    assert "environment" in shown.stdout
    assert shown.stderr == "tutti: TUTTI_STRIKT: did you mean TUTTI_STRICT?\n"
    assert json.loads(invoke("config", "--json").stdout)[0]["value"] is True


def test_tuning__check_import_show_schema(stand_in: Path, tmp_path: Path) -> None:
    assert invoke("tuning", "check", "good.json").stdout == "good.json: 2 rules, correct\n"
    bad = invoke("tuning", "check", "bad.json")
    assert (bad.exit_code, bad.stderr) == (2, "tutti: bad.json:3: bytez: unknown key\n")
    out = tmp_path / "out.json"
    imported = invoke("tuning", "import", "mpich.json", "-o", str(out))
    assert imported.stderr == "tutti: not carried over: line 4: tree\n"
    assert json.loads(out.read_text()) == {"rules": []}
    assert "0  bcast; bytes ..8K  mpi   default: small" in invoke("tuning", "show").stdout
    assert json.loads(invoke("tuning", "schema").stdout) == {"$defs": {}}


def test_info__says_what_is_missing(stand_in: Path) -> None:
    shown = invoke("info", "--json")
    document = json.loads(shown.stdout)
    assert any("no NCCL" in reason for reason in document["unavailable"])
    assert "Unavailable" in invoke("info").stdout


def test_variants__native_of_device_memory_is_staged_by_the_program(stand_in: Path) -> None:
    job = measure.Job("allreduce", 2, memory="device", plans=("native", "hybrid", "nccl"))
    found = [(v.name, v.hint) for v in measure.variants(job)]
    assert found == [("staged", "native"), ("hybrid", None), ("nccl", None)]


def test_variants__pipelines_keep_their_names() -> None:
    plans = bench.parse_plans("ccl-gamma, ccl-streams(4),ccl-comms(2)")
    assert plans == ("ccl-gamma", "ccl-streams(4)", "ccl-comms(2)")
    job = measure.Job("allreduce", 2, memory="device", plans=plans)
    assert [(v.name, v.hint) for v in measure.variants(job)] == [(p, p) for p in plans]


def test_variants__all_are_those_that_explain_calls_possible(stand_in: Path) -> None:
    job = measure.Job("allreduce", 2, plans=("all",))
    assert [v.plan for v in measure.variants(job)] == ["native", "hybrid", "ccl-beta", "mpi-beta"]


@pytest.mark.parametrize(("wrong", "status"), [(0, 0), (5, 1)])
def test_bench__exit_status_follows_the_check(
    document: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: int, status: int
) -> None:
    document.rows[0].wrong = wrong
    monkeypatch.setattr(measure, "run", lambda *_arguments: document)
    monkeypatch.setattr(mpi, "find", lambda _name: None)
    out = tmp_path / "r.json"
    shown = invoke("bench", "allreduce", "--check", "--format", "json", "-o", str(out))
    assert shown.exit_code == status
    assert results.decode(shown.stdout.encode(), "stdout") == [document]
    assert results.load(out) == [document]
