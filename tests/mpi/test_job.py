# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What a whole job is told: the summary at its end, and that its ranks do not see each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tutti_hpc.terms import COLLECTIVES

from harness import Finished, Mpi, execute, find_mpi, job, plain_environment
from missing import unavailable

TITLE = "tutti summary: blocking collectives of rank 0 of {}; bytes as plan lists count them"
# What counted.c calls: collective, size class, calls.
CALLS = {
    ("allreduce", "<= 64"): 3,
    ("allreduce", "<= 256K"): 2,
    ("bcast", "0"): 1,
    ("alltoallv", "unknown"): 1,
    ("barrier", "0"): 4,
}
SUMMARY = {"TUTTI_SUMMARY": "1"}


def rows(result: Finished) -> dict[tuple[str, str], tuple[str, int, float]]:
    """(plan, calls, seconds) by collective and size class; the sum is of `all`."""
    found = {}
    for line in result.stderr.splitlines():
        words = re.split(r"\s{2,}", line.strip())
        if line.startswith("  ") and words[0] == "all":
            found["all", ""] = ("", int(words[1]), float(words[2]))
        elif line.startswith("  ") and len(words) == 6 and words[0] != "collective":
            found[words[0], words[1]] = (words[2], int(words[3]), float(words[4]))
    return found


def counted(mpi: Mpi, ranks: int, directory: Path, **variables: str) -> Finished:
    result = job(
        mpi, ranks, [mpi.program("counted")], directory, environment=SUMMARY | dict(variables)
    )
    assert result.status == 0, str(result)
    seen = sorted(line for line in result.stdout.splitlines() if line.startswith("counted"))
    assert seen == [f"counted: {rank} of {ranks} ranks" for rank in range(ranks)], str(result)
    return result


@pytest.mark.parametrize("ranks", [1, 3])
def test_summary__counts_every_call_of_rank_0(
    mpi: Mpi, ranks: int, preload_library: Path, tmp_path: Path
) -> None:
    result = counted(mpi, ranks, tmp_path)
    assert result.lines("^tutti summary") == [TITLE.format(ranks)], str(result)
    found = rows(result)
    total = found.pop(("all", ""))
    assert {key: calls for key, (_, calls, _) in found.items()} == CALLS, str(result)
    assert total[1] == sum(CALLS.values())
    seconds = [row[2] for row in found.values()]
    assert seconds == sorted(seconds, reverse=True)
    assert 0 < sum(seconds) == pytest.approx(total[2], abs=1e-5)


def test_summary__names_the_plan_that_ran(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    result = counted(mpi, 2, tmp_path, TUTTI_ALLREDUCE="64:direct,schedule:ring")
    found = rows(result)
    assert found["allreduce", "<= 64"][0] == "direct-gamma", str(result)
    assert found["allreduce", "<= 256K"][0] == "schedule:ring", str(result)
    assert found["bcast", "0"][0] == "native", str(result)


@pytest.mark.parametrize(
    ("memory", "plan"), [("host", "direct-gamma"), ("hostdevice", "mpi-staged")]
)
def test_summary__every_collective_has_the_forced_plan(
    mpi: Mpi, memory: str, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    """A size that is read as 0 would make the call the MPI's, and right, on any memory but a
    GPU's, which the MPI cannot read."""
    wanted = [name for name in COLLECTIVES if name != "barrier"]
    if memory == "host":
        wanted = [name for name in wanted if "scan" not in name]
    variables = {f"TUTTI_{name.upper()}": plan for name in wanted}
    if memory == "hostdevice":
        variables["TUTTI_DEVICE"] = "host"
    program = [mpi.program("collectives"), "--memory", memory, "--only", "counts"]
    result = job(mpi, 2, program, tmp_path, environment=SUMMARY | variables)
    assert result.status == 0, str(result)
    carried: dict[str, set[str]] = {name: set() for name in wanted}
    for (collective, size), row in rows(result).items():
        if collective in carried and size != "0":
            carried[collective].add(row[0])
    assert carried == {name: {plan} for name in wanted}, str(result)


def test_summary__not_unless_wanted(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    result = counted(mpi, 2, tmp_path, TUTTI_SUMMARY="0")
    assert result.stderr.strip() == "", str(result)


def test_summary__wanted_on_one_rank_is_no_disagreement(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """A communicator is inert on all ranks or on none, whoever wants to count its calls."""
    program = [mpi.program("counted")]
    result = job(mpi, 3, program, tmp_path, of_rank={0: SUMMARY})
    assert result.status == 0, str(result)
    assert {key: row[1] for key, row in rows(result).items() if key[1]} == CALLS, str(result)


def under_the_other_launcher(directory: Path, preload_library: Path, **variables: str) -> Finished:
    """An Open MPI program under Hydra."""
    mpich, openmpi = find_mpi("mpich"), find_mpi("openmpi")
    if isinstance(mpich, str) or isinstance(openmpi, str):
        unavailable(f"{mpich} {openmpi}")
        raise AssertionError
    environment = plain_environment() | {
        "LD_LIBRARY_PATH": str(openmpi.libraries),
        "LD_PRELOAD": str(preload_library),
        **variables,
    }
    return execute([*mpich.launch(2), str(openmpi.program("counted"))], environment, 120)


def test_launcher__of_another_mpi_is_an_error_in_the_log(
    preload_library: Path, tmp_path: Path
) -> None:
    result = under_the_other_launcher(tmp_path, preload_library)
    assert result.status == 0, str(result)
    assert result.stdout.splitlines() == ["counted: 0 of 1 ranks"] * 2, str(result)
    said = result.lines("ERROR MPI_COMM_WORLD has 1 rank, though MPICH's mpirun .* started 2")
    assert len(said) == 2, str(result)
    assert all("remedy: start it with Open MPI's mpirun" in line for line in said)


def test_launcher__of_another_mpi_ends_a_strict_job(preload_library: Path, tmp_path: Path) -> None:
    result = under_the_other_launcher(tmp_path, preload_library, TUTTI_STRICT="1")
    assert result.status not in (0, None), str(result)
    assert "counted" not in result.stdout, str(result)


def test_launcher__srun_without_the_librarys_support(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Each process is started by nothing that its library knows."""
    environment = plain_environment() | {
        "LD_LIBRARY_PATH": str(mpi.libraries),
        "LD_PRELOAD": str(preload_library),
        "SLURM_STEP_NUM_TASKS": "4",
    }
    result = execute([str(mpi.program("counted"))], environment, 120)
    assert result.status == 0, str(result)
    assert result.lines("ERROR MPI_COMM_WORLD has 1 rank, though srun started 4"), str(result)
    assert result.lines("or with the --mpi of srun that the library was built for"), str(result)


def test_launcher__of_its_own_may_start_one_rank(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    result = counted(
        mpi, 1, tmp_path, TUTTI_SUMMARY="0", TUTTI_STRICT="1", SLURM_STEP_NUM_TASKS="4"
    )
    assert result.stderr.strip() == "", str(result)
