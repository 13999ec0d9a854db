# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of valid and invalid calls, as natively: tools/random_runs.py, in short."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import harness
from test_mpi import once_per_library

SCRIPT = harness.ROOT / "tools" / "random_runs.py"
PROGRAMS = 300


@pytest.fixture(scope="module")
def runs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("random_runs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Data classes look there for their types.
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("ranks", [2, 3])
def test_programs__as_natively(
    mpi: harness.Mpi, ranks: int, preload_library: Path, runs: ModuleType
) -> None:
    once_per_library(mpi)
    first = 0 if ranks == 2 else 1000
    native = runs.run(mpi, ranks, None, first, PROGRAMS)
    assert not native.failure, native.failure
    assert len(native.lines) == PROGRAMS
    words = [word for lines in native.lines.values() for word in lines[0].split()[1:]]
    assert {word[0] for word in words if word != "-"} == set("VAOU")
    alike = runs.run(mpi, ranks, None, first, PROGRAMS, "--alike")
    assert not alike.failure, alike.failure
    for plan in ("default", "direct", "rings", "device-direct") if ranks == 2 else ("direct",):
        shares = plan in runs.SHARING  # There such a call is the last of its job.
        options = ["--alike"] if shares else []
        ours = runs.run(mpi, ranks, plan, first, PROGRAMS, *options)
        assert runs.compare(alike if shares else native, ours) == [], plan
        if shares:
            program = runs.lone(native)[0]
            ours = runs.run(mpi, ranks, plan, program, 1)
            assert runs.compare(runs.Run({program: native.lines[program]}, ""), ours) == [], plan


@pytest.mark.parametrize(
    ("plan", "kind", "collective"),
    [
        ("device-staged", "shorter", "bcast"),  # What the message does not reach stays.
        ("direct", "uncommitted", "scatter"),  # Open MPI lets it pass.
        ("direct", "uncommitted", "allgatherv"),
    ],
)
def test_kind__as_natively(
    mpi: harness.Mpi, preload_library: Path, runs: ModuleType, plan: str, kind: str, collective: str
) -> None:
    """Many calls of one kind, as --kind of random_programs.c makes them."""
    once_per_library(mpi)
    options = ("--kind", kind, "--collective", collective)
    native = runs.run(mpi, 2, None, 0, 30, *options)
    assert not native.failure, native.failure
    assert runs.compare(native, runs.run(mpi, 2, plan, 0, 30, *options)) == []


def one(runs: ModuleType, native: str, ours: str) -> str:
    """What is wrong with the only call of a program."""
    found = runs.differences(
        [f"7 {word}" for word in native.split()], [f"7 {word}" for word in ours.split()]
    )
    assert all((each.program, each.call) == (7, 0) for each in found)
    return ", ".join(each.what.split(":")[0] for each in found)


@pytest.mark.parametrize(
    ("native", "ours", "what"),
    [
        ("V0h0.0000000a V0h0.0000000b", "V0h0.0000000a V0h0.0000000b", ""),
        ("V0h0.0000000a V0h0.0000000b", "V0h0.0000000a V0h0.0000000c", "other outcomes"),
        ("V0h0.0000000a -", "V14h0.00000000 -", "other outcomes"),
        ("V0h0.0000000a -", "V0h0.0000000a V0h0.0000000a", "another program"),
        ("A7h0.00000000 A7h0.00000000", "A7h0.00000000 A8h0.00000000", "other outcomes"),
        ("A7h1.00000000 A7h1.00000000", "A7h1.00000000 A7h2.00000000", "other outcomes"),
        ("A1h0.00000000 A1h0.00000000", "A1h1.00000000 A1h1.00000000", ""),
        ("A1h0.00000000 A1h0.00000000", "A1h2.00000000 A1h1.00000000", "other outcomes"),
        ("V0h0.0000000a V0h0.0000000b", "V0h1.0000000a V0h0.0000000b", "other outcomes"),
        ("O0h0.0000000a O3h0.00000000", "O14h0.00000000 O3h0.00000000", ""),
        ("O0h0.0000000a O3h0.00000000", "O0h0.0000000a O5h0.00000000", "another error class"),
        ("O0h0.0000000a O3h0.00000000", "O0h0.0000000a O0h0.0000000b", "no error on any rank"),
        ("O0h0.0000000a O3h0.00000000", "O0h0.0000000f O3h0.00000000", "other bytes"),
        ("U0h0.0000000a U0h0.0000000b", "U14h0.00000000 U14h0.00000000", ""),
        ("U0h0.0000000a U14h0.00000000", "U14h0.00000000 U0h0.0000000b", ""),
        ("U0h0.0000000a U14h0.00000000", "U0h0.0000000a U0h0.0000000b", "no error on any rank"),
        ("U0h0.0000000a U0h0.0000000b", "U0h0.0000000a U0h0.0000000c", "other bytes"),
    ],
)
def test_judge(runs: ModuleType, native: str, ours: str, what: str) -> None:
    assert one(runs, native, ours) == what


def test_compare__a_job_that_did_not_end_is_a_difference(runs: ModuleType) -> None:
    lines = {number: [f"{number} V0h0.00000000"] for number in range(3)}
    ours = runs.Run({0: lines[0]}, "status 3: a hang")
    found = runs.compare(runs.Run(lines, ""), ours)
    assert [(each.program, each.call) for each in found] == [(1, -1)]
