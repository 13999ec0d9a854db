# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""tools/suites.py: what a suite consists of, what an outcome is, what counts as a difference."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tutti_hpc import mpi as mpi_search
from tutti_hpc import paths
from tutti_hpc.errors import TuttiError

from missing import unavailable

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "suites.py"


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import suites as module

    yield module
    sys.modules.pop("suites")


# --- What the suites consist of

TESTLIST = """# a comment
allred 4 arg=-count=10
allred 4 arg=-count=10
bcast 16 env=MPIR_CVAR_X=tree mem=20.1 timeLimit=300
exitst1 2 resultTest=TestStatus
odd 2 resultTest=TestNothingKnown
datatype
"""


def test_mpich_cases__lines_of_a_testlist(suites: ModuleType) -> None:
    first, second, third, fourth = suites.mpich_cases("coll", TESTLIST, "/there")
    assert (first.suite, first.name) == ("mpich/coll", "allred 4 -count=10")
    assert first.command == ("./allred", "-count=10")
    assert (first.ranks, first.directory, first.judge) == (4, "/there", "mpich")
    assert second.name == "bcast 16 MPIR_CVAR_X=tree"
    assert second.environment == {"MPIR_CVAR_X": "tree"}
    assert (second.gib, second.seconds) == (20.1, 300)
    assert third.judge == "TestStatus"
    assert fourth.judge == "mpich"


def test_mpich__what_is_not_built_is_no_case(suites: ModuleType, tmp_path: Path) -> None:
    part = tmp_path / "errors" / "coll"
    part.mkdir(parents=True)
    (part / "testlist").write_text("here 2\nmissing 2\n")
    (part / "here").write_text("")
    assert [(c.suite, c.name) for c in suites.mpich(tmp_path)] == [("mpich/errors/coll", "here 2")]


def test_cases_of__errors_name_the_remedy(suites: ModuleType, tmp_path: Path) -> None:
    def cases(word: str) -> object:
        return suites.cases_of(argparse.Namespace(suites=[word], only="", python="python"))

    with pytest.raises(TuttiError, match="SUITE=DIRECTORY, with SUITE one of mpich, omb, imb"):
        cases("mpich")
    with pytest.raises(TuttiError, match=r"no program of omb there; see"):
        cases(f"omb={tmp_path}")


# --- What an outcome is


def outcome(
    suites: ModuleType, judge: str, stdout: str, status: int | None = 0, stderr: str = ""
) -> object:
    case = suites.Case("suite", "name", 2, ("./name",), judge)
    return suites.outcome(case, suites.Ended(status, stdout, stderr))


def test_mpich_outcome__no_errors_and_nothing_else(suites: ModuleType) -> None:
    assert outcome(suites, "mpich", " No Errors\n") == ("passed",)
    assert outcome(suites, "mpich", "") == ("failed",)
    assert outcome(suites, "mpich", " No Errors\n", status=1) == ("failed", "No Errors")
    said = "wrong at 0x7f3c: 17\nwrong at 0x7f00: 4\n No Errors\n"
    assert outcome(suites, "mpich", said) == ("failed", "No Errors", "wrong at #: #")
    padded = " wrong at      -1 :  0.5E-03\n"  # As Fortran writes numbers.
    assert outcome(suites, "mpich", padded) == ("failed", "wrong at # : #")
    assert outcome(suites, "mpich", " No Errors\n", status=None) == ("timed out",)
    assert outcome(suites, "TestStatus", "", status=1) == ("passed",)
    assert outcome(suites, "TestStatus", "", status=0)[0] == "failed"


HYDRA_CRASH = """
=   KILLED BY SIGNAL: 9 (Killed)
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)
"""
OPEN_MPI_CRASH = "prterun noticed that process rank 1 with PID 7 exited on signal 6 (Aborted)."


def test_outcome__crashes_by_the_words_of_both_launchers(suites: ModuleType) -> None:
    assert outcome(suites, "mpich", HYDRA_CRASH, 139) == ("crashed", "signal 11")
    assert outcome(suites, "mpich", "", 134, OPEN_MPI_CRASH) == ("crashed", "signal 6")
    assert outcome(suites, "mpich", "=  KILLED BY SIGNAL: 9 (Killed)", 1) == ("failed",)
    assert outcome(suites, "TestStatus", HYDRA_CRASH, 139) == ("passed",)


OMB = "# Datatype: MPI_CHAR.\n# Size Avg\n1   0.9   Pass\n# Datatype: MPI_INT.\n4   0.9   {}\n"


def test_omb_outcome__each_type_is_looked_at(suites: ModuleType) -> None:
    assert outcome(suites, "omb", OMB.format("Pass")) == ("passed", "2 rows of 2 types")
    assert outcome(suites, "omb", OMB.format("Fail")) == ("failed", "MPI_INT.")
    assert outcome(suites, "omb", "# OSU MPI Barrier Latency Test\n       8.69\n")[0] == "passed"
    assert outcome(suites, "omb", "# Datatype: MPI_CHAR.\n")[0] == "failed"


IMB = """       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]      defects
            0            4         1.73         4.59         2.90         0.00
            4            4     21325.93     26194.89     23133.12         {}
"""
IMB_BARRIER = """ #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            4     20971.35     25130.31     22532.73
"""


def test_imb_outcome__a_defect_is_a_failure(suites: ModuleType) -> None:
    assert outcome(suites, "imb", IMB.format("0.00")) == ("passed", "2 rows")
    assert outcome(suites, "imb", IMB.format("1.00")) == ("failed", "4 bytes")
    assert outcome(suites, "imb", IMB_BARRIER) == ("passed", "1 rows")
    assert outcome(suites, "imb", "# nothing\n")[0] == "failed"


def test_unittest_outcome__names_what_failed(suites: ModuleType) -> None:
    good = "Ran 72 tests in 3.1s\n\nOK (skipped=3)\n"
    assert outcome(suites, "unittest", "", stderr=good + good) == ("passed", "72 tests")
    bad = "FAIL: testSum (test_op.TestOp.testSum)\nERROR: testX (m.C)\nRan 2 tests in 1s\nFAILED\n"
    assert outcome(suites, "unittest", "", 1, bad) == (
        "failed",
        "ERROR: testX (m.C)",
        "FAIL: testSum (test_op.TestOp.testSum)",
    )
    assert outcome(suites, "unittest", "", stderr="Ran 0 tests in 0.0s\n\nOK\n")[0] == "failed"


# --- What differs

PASSED, FAILED, SLOW = ("passed",), ("failed", "sum is wrong"), ("timed out",)


def test_verdict__alike_never_alike_and_sometimes(suites: ModuleType) -> None:
    assert suites.verdict([PASSED], [PASSED]) == "same"
    assert suites.verdict([FAILED], [FAILED]) == "same"
    assert suites.verdict([PASSED] * 4, [FAILED] * 4) == "differs"
    assert suites.verdict([FAILED], [("failed", "max is wrong")]) == "differs"
    assert suites.verdict([PASSED] * 4, [PASSED, FAILED, PASSED, PASSED]) == "unsteady"
    assert suites.verdict([PASSED, FAILED], [PASSED]) == "same"


def test_settled__a_difference_is_repeated_both_ways(suites: ModuleType) -> None:
    assert suites.settled([PASSED], [PASSED], 3)
    assert not suites.settled([PASSED], [FAILED], 3)
    assert not suites.settled([PASSED] * 4, [FAILED] * 3, 3)
    assert suites.settled([PASSED] * 4, [FAILED] * 4, 3)
    assert not suites.settled([], [PASSED], 3)


def test_table__counts_and_names(suites: ModuleType) -> None:
    cases = [suites.Case("s", name, 2, (name,)) for name in ("a", "b", "c", "never", "slow")]
    runs = {
        ("s", "never", "native"): [PASSED] * 4,
        ("s", "never", "rings"): [FAILED] * 3,
        ("s", "a", "native"): [PASSED],
        ("s", "a", "rings"): [PASSED],
        ("s", "b", "native"): [PASSED] * 4,
        ("s", "b", "rings"): [FAILED] * 4,
        ("s", "c", "native"): [PASSED] * 4,
        ("s", "c", "rings"): [PASSED, FAILED, PASSED, PASSED],
        ("s", "slow", "native"): [SLOW],
    }
    row = suites.row_of("s", "rings", cases, runs, 3)
    assert (row["programs"], row["same"], row["passed_natively"]) == (3, 1, 3)
    assert [one["program"] for one in row["differs"]] == ["b"]
    assert row["differs"][0]["tutti"] == "4 x failed (sum is wrong)"
    assert [one["program"] for one in row["unsteady"]] == ["c"]
    assert row["timed_out_natively"] == ["slow"]
    assert suites.row_of("s", "direct", cases[:4], runs, 3) is None
    parts = [{"mpi": "mpich"} | row | {"suite": f"s/{part}"} for part in ("x", "errors/y")]
    text = suites.table(parts)
    assert "| mpich | s | rings | 6 | 6 | 2 | 2 | 2 | 2 |" in text
    assert "differs: mpich s errors/y b, rings: natively 4 x passed; Tutti 4 x failed" in text
    text = suites.table([*parts, {**parts[0], "library": "MPICH 4.0.2"}])
    assert "| mpich | s | rings | 6 |" in text
    assert "| mpich (MPICH 4.0.2) | s | rings | 3 |" in text
    text = suites.table([{**parts[0], "plan": f"schedules:{number}"} for number in (0, 1)])
    assert "| mpich | s | schedules (sum of 2) | 6 | 6 | 2 | 2 | 2 | 2 |" in text
    assert "differs: mpich s x b, schedules:1: natively" in text


def test_joined__other_plans_of_an_earlier_file_stay(suites: ModuleType) -> None:
    def row(plan: str, same: int) -> dict[str, object]:
        return {"mpi": "mpich", "suite": "omb", "plan": plan, "same": same}

    rows = suites.joined([row("default", 2)], [row("default", 1), row("rings", 1)])
    assert rows == [row("rings", 1), row("default", 2)]


# --- Plans

ALGORITHMS = {"bcast": ["knomial", "chain"], "allgather": ["linear", "ring", "rings"]}


def test_setting__of_each_kind_of_plan(suites: ModuleType) -> None:
    assert suites.setting("default", ALGORITHMS) == {}
    everything = suites.setting("mpi-alpha@2", ALGORITHMS)
    assert everything["TUTTI_VIRTUAL_NODES"] == "2"
    assert everything["TUTTI_SCAN"] == everything["TUTTI_ALLREDUCE"] == "mpi-alpha"
    assert suites.setting("rings", ALGORITHMS) == {"TUTTI_ALLGATHER": "schedule:rings"}
    assert suites.setting("schedule:chain", ALGORITHMS) == {"TUTTI_BCAST": "schedule:chain"}
    on_device = suites.setting("rings+hostdevice", ALGORITHMS)
    assert on_device == {"TUTTI_ALLGATHER": "schedule:rings", "TUTTI_DEVICE": "host"}
    assert suites.setting("default+hostdevice", ALGORITHMS) == {"TUTTI_DEVICE": "host"}
    assert suites.setting("schedules:2", ALGORITHMS) == {
        "TUTTI_BCAST": "schedule:knomial",
        "TUTTI_ALLGATHER": "schedule:rings",
    }


def test_plans_of__schedules_are_as_many_as_the_longest_list(suites: ModuleType) -> None:
    plans = suites.plans_of("default,schedules", ALGORITHMS)
    assert plans == ["default", "schedules:0", "schedules:1", "schedules:2"]
    assert suites.plans_of("schedules+hostdevice", ALGORITHMS)[2] == "schedules:2+hostdevice"
    with pytest.raises(TuttiError, match=r"memory is \+hostdevice or none"):
        suites.plans_of("default+cuda", ALGORITHMS)


# --- Running


def test_execute__leaves_no_process(suites: ModuleType, tmp_path: Path) -> None:
    """Not even one that is in a session of its own."""
    number = tmp_path / "number"
    script = f"setsid sh -c 'echo $$ > {number}; exec sleep 600' & sleep 600"
    ended = suites.execute(["/bin/sh", "-c", script], str(tmp_path), dict(os.environ), 1.0)
    assert ended.status is None
    deadline = time.monotonic() + 20
    while True:
        try:
            state = Path(f"/proc/{number.read_text().strip()}/stat").read_text().split()[2]
        except (FileNotFoundError, ProcessLookupError):
            break
        if state == "Z":
            break
        assert time.monotonic() < deadline


def test_state__another_build_counts_natively_alone(suites: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    case = suites.Case("s", "a", 2, ("a",))
    state = suites.State(path, "mpich", "one", "4 GiB")
    for plan in ("native", "default"):
        state.add(case, plan, PASSED, 0.1)
    with path.open("a") as stream:
        stream.write('{"mpi": "mpi')  # It was killed while it wrote.
    again = suites.State(path, "mpich", "one", "4 GiB")
    assert again.of_case(case, "native") == again.of_case(case, "default") == [PASSED]
    again.add(case, "default", FAILED, 0.1)
    assert suites.State(path, "mpich", "one", "4 GiB").of_case(case, "default") == [PASSED, FAILED]
    other = suites.State(path, "mpich", "two", "4 GiB")
    assert other.of_case(case, "native") == [PASSED]
    assert other.of_case(case, "default") == []
    assert suites.State(path, "openmpi", "one", "4 GiB").of_case(case, "native") == []
    assert suites.State(path, "mpich", "one", "8 GiB").of_case(case, "native") == []


PROGRAM = """#!/bin/sh
case "$LD_PRELOAD$TUTTI_BCAST" in
  *libtutti-mpi.so{plan}) echo "{with_tutti}" ;;
  *) echo " No Errors" ;;
esac
"""


def test_program__finds_a_difference_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Programs that are no MPI programs, and look at what they were started with."""
    if paths.find("libtutti-mpi.so") is None:
        unavailable("libtutti-mpi.so is not built (cmake --build build/dev)")
    try:
        mpi_search.find("mpich")
    except TuttiError as error:
        unavailable(f"no MPICH: {error}")
    part = tmp_path / "coll"
    part.mkdir()
    (part / "testlist").write_text("good 1\nbad 1\n")
    for name, said in (("good", " No Errors"), ("bad", "Found 1 errors")):
        (part / name).write_text(PROGRAM.format(plan="mpi-beta", with_tutti=said))
        (part / name).chmod(0o755)
    state, output = tmp_path / "state.jsonl", tmp_path / "out.json"
    command = [sys.executable, str(TOOL), "--mpi", "mpich", "--state", str(state)]
    command += ["--plans", "default,mpi-beta", "--repeats", "1", "-o", str(output)]
    command += [f"mpich={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "differs: mpich/coll bad 1, mpi-beta: natively 2 x passed" in done.stdout, done.stdout
    rows = {row["plan"]: row for row in json.loads(output.read_text())["rows"]}
    assert (rows["default"]["programs"], rows["default"]["same"]) == (2, 2)
    assert [one["program"] for one in rows["mpi-beta"]["differs"]] == ["bad 1"]
    listed = [sys.executable, str(TOOL), "--table", str(output)]
    printed = subprocess.run(listed, capture_output=True, text=True, timeout=60).stdout
    name = f"mpich ({rows['default']['library']})"
    assert f"| {name} | mpich | mpi-beta | 2 | 2 | 1 | 1 | 0 | 0 |" in printed, printed
    size = state.stat().st_size
    subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert state.stat().st_size == size
