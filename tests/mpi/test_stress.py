# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Many random collectives after each other, each compared with its definition: tests/mpi/stress.c.

A failure names seed and number K of its call; this performs the calls before it and compares it:

    stress --memory hostdevice --seed S --calls K+1 --first K
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import Finished, Mpi, job
from test_mpi import setting

CALLS = 1500


def stress(
    mpi: Mpi,
    ranks: int,
    tmp_path: Path,
    memory: str,
    *options: str,
    plan: str = "",
    preload: bool = True,
    extra: dict[str, str] | None = None,
) -> Finished:
    environment, path = setting(memory, plan)
    environment |= {"TUTTI_LOG_LEVEL": "info"} | (extra or {})
    common = ["--memory", memory, "--calls", str(CALLS), "--watchdog", "60"]
    return job(
        mpi,
        ranks,
        [str(mpi.program("stress")), *common, *options],
        tmp_path,
        environment=environment,
        library_path=path,
        preload=preload,
    )


def assert_right(result: Finished) -> None:
    """Made all calls, compared their outputs, and found nothing wrong."""
    assert result.status == 0, str(result)
    pattern = r"^stress: (\d+) calls, (\d+) elements compared, 0 failed$"
    found = re.search(pattern, result.stdout, re.MULTILINE)
    assert found is not None, str(result)
    assert int(found[1]) == CALLS, str(result)
    assert int(found[2]) > CALLS, str(result)


def test_native(mpi: Mpi, tmp_path: Path) -> None:
    assert_right(stress(mpi, 3, tmp_path, "host", preload=False))


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
@pytest.mark.parametrize("ranks", [2, 3])
def test_direct(mpi: Mpi, ranks: int, preload_library: Path, tmp_path: Path) -> None:
    result = stress(mpi, ranks, tmp_path, "hostdevice", "--seed", str(ranks), plan="direct")
    assert_right(result)
    assert result.lines("direct: kernels of this communicator are ready"), str(result)
    # The barrier and the program's final count.
    others = [line for line in result.lines("fall-back") if "host memory" not in line]
    assert not others, str(result)


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_copies(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """Among calls of our kernels, which share the words that say that copies are there."""
    extra = {"TUTTI_ALLGATHER": "direct-copy", "TUTTI_ALLTOALL": "direct-copy"}
    result = stress(mpi, 3, tmp_path, "hostdevice", "--seed", "9", plan="direct", extra=extra)
    assert_right(result)
    others = [line for line in result.lines("fall-back") if "host memory" not in line]
    assert not others, str(result)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
def test_default_plans(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    assert_right(stress(mpi, 3, tmp_path, "hostdevice", "--seed", "7", "--renew", "50"))


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_failure__is_named_and_replayed(mpi: Mpi, tmp_path: Path) -> None:
    """A corrupted result, and the same one again when no call before it is compared."""
    for first in (0, 40):
        options = ("--sabotage", "1", "--seed", "5", "--first", str(first))
        result = stress(mpi, 3, tmp_path, "host", *options, preload=False)
        assert result.status == 1, str(result)
        named = result.lines(r"^FAILED seed 5, call \d+: .*\(world 1\): byte \d+ of the output")
        assert named, str(result)
        numbers = [int(found[1]) for line in named if (found := re.search(r"call (\d+)", line))]
        assert min(numbers) >= first, str(result)
