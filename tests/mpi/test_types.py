# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Every predefined datatype, operation, collective: the MPI library's own result, bit for bit.

The program `types` makes each call twice, through the preload and past it. What it lists as carried
by the MPI library is what docs/direct.md says of types that fall back, no more and no less.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import ROOT, Finished, Mpi, job
from test_mpi import DIRECT, LONG_S, SCHEDULES, once_per_library, setting

DIRECT_PLANS = {name: plan for name, plan in DIRECT.items() if name != "TUTTI_LOG_LEVEL"}


def types(
    mpi: Mpi, ranks: int, tmp_path: Path, memory: str, extra: dict[str, str], elements: int = 9
) -> Finished:
    environment, path = setting(memory)
    command = [mpi.program("types"), "--memory", memory, "--elements", str(elements)]
    result = job(
        mpi,
        ranks,
        command,
        tmp_path,
        environment=environment | {"TUTTI_LOG_LEVEL": "error"} | extra,
        library_path=path,
        timeout_s=LONG_S,
    )
    result.assert_passed("types")
    return result


def fell_back(result: Finished) -> set[tuple[str, str]]:
    """(type, collective) of calls that had none of our plans; "" as the collective of movement."""
    found = re.findall(r"^mpi (.+) (\S+) (\S+)$", result.stdout, re.MULTILINE)
    return {(kind, name) for kind, op, name in found if "scan" not in name}


def documented() -> set[str]:
    """The types in the first column of the table in docs/direct.md."""
    text = (ROOT / "docs" / "direct.md").read_text()
    table = text[text.index("| type that falls back |") :].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


REDUCTIONS = {"allreduce", "reduce", "reduce_scatter", "reduce_scatter_block"}


@pytest.mark.parametrize(("memory", "ranks"), [("host", 2), ("host", 3), ("hostdevice", 2)])
def test_types__direct_carries_what_the_library_reduces(
    mpi: Mpi, memory: str, ranks: int, preload_library: Path, tmp_path: Path
) -> None:
    """MPI_CHAR, the C++ types, Fortran's by precision; 600 elements are more than one line."""
    once_per_library(mpi)
    result = types(mpi, ranks, tmp_path, memory, DIRECT_PLANS, 600 if ranks == 3 else 9)
    assert {name for _, name in fell_back(result)} <= REDUCTIONS, result.stdout
    kinds = {kind for kind, _ in fell_back(result)}
    assert "MPI_LONG_DOUBLE" in kinds  # The list is not empty by mistake.
    assert kinds <= documented(), kinds - documented()


def test_types__the_documented_list_is_not_longer_than_it_must_be(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    if mpi.flavour != "mpich":
        pytest.skip("MPICH has all of them")
    result = types(mpi, 2, tmp_path, "host", DIRECT_PLANS)
    assert {kind for kind, _ in fell_back(result)} == documented()


@pytest.mark.parametrize("choice", [0, 1, 2])
def test_types__schedules(mpi: Mpi, choice: int, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    plans = {f"TUTTI_{name.upper()}": plan for name, plan in SCHEDULES[choice].items()}
    types(mpi, 3, tmp_path, "host", plans)


@pytest.mark.parametrize("memory", ["host", "cuda"])
def test_types__default_rules(mpi: Mpi, memory: str, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    types(mpi, 2, tmp_path, memory, {})


def test_types__nccl_sums_characters(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """What osu_allreduce does by default: MPI_CHAR, MPI_SUM."""
    once_per_library(mpi)
    plans = dict.fromkeys(DIRECT_PLANS, "ccl-beta")
    native = set(
        re.findall(
            r"^mpi MPI_CHAR (\S+) allreduce$",
            types(mpi, 2, tmp_path, "cuda", plans).stdout,
            re.MULTILINE,
        )
    )
    assert native == {"land", "lor", "lxor", "band", "bor", "bxor"}
