# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Calls that the MPI refuses, under every plan as natively: tests/mpi/refused.c.

pytest tests/mpi/test_refused.py -k "alike and mpich"
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import Finished, Mpi, at_once, job
from test_mpi import DIRECT, once_per_library, setting

SCHEDULES = {
    "TUTTI_ALLREDUCE": "rings",
    "TUTTI_ALLGATHER": "rings",
    "TUTTI_ALLGATHERV": "rings",
    "TUTTI_ALLTOALL": "schedule:linear",
    "TUTTI_ALLTOALLV": "schedule:linear",
    "TUTTI_BCAST": "schedule:knomial",
    "TUTTI_GATHER": "schedule:binomial",
    "TUTTI_SCATTER": "schedule:binomial",
    "TUTTI_REDUCE": "schedule:binomial",
}
# Name: memory, plan for all collectives, virtual nodes, more variables.
PLANS: dict[str, tuple[str, str, int, dict[str, str]]] = {
    "default": ("host", "", 0, {}),
    "direct": ("host", "", 0, DIRECT),
    "schedules": ("host", "", 0, SCHEDULES),
    "alpha": ("host", "mpi-alpha", 2, {}),
    "default-device": ("hostdevice", "", 0, {}),
    "staged": ("hostdevice", "mpi-staged", 0, {}),
    "direct-device": ("hostdevice", "", 0, DIRECT),
}
# Where a peer waits for the rank that was refused, and no MPI would have let it go on.
TIMEOUT = {"TUTTI_TIMEOUT": "2", "TUTTI_LOG_LEVEL": "error"}


def refused(
    mpi: Mpi,
    tmp_path: Path,
    plan: str,
    *options: str,
    preload: bool = True,
    extra: dict[str, str] | None = None,
    ranks: int = 2,
) -> Finished:
    """One run of the program."""
    memory, forced_plan, nodes, more = PLANS[plan]
    environment, path = setting(memory, forced_plan, nodes)
    return job(
        mpi,
        ranks,
        [mpi.program("refused"), "--memory", memory, *options],
        tmp_path,
        environment=environment | more | (extra or {}),
        library_path=path,
        preload=preload,
        timeout_s=90,
    )


def skip_where_aliases_pass(mpi: Mpi) -> None:
    """For calls that a root makes alone: one that MPI accepts waits for the others."""
    if mpi.flavour == "openmpi":
        pytest.skip("Open MPI refuses no aliased buffers of gather and scatter")


def classes(result: Finished) -> list[str]:
    """What each call returned on each rank."""
    return [line for line in result.stdout.splitlines() if not line.startswith("refused:")]


@pytest.mark.parametrize("apart", [False, True], ids=["one", "apart"])
@pytest.mark.parametrize("plan", PLANS)
def test_alike__as_natively_and_the_next_calls_are_right(
    mpi: Mpi, plan: str, apart: bool, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    options = ["--apart"] if apart else []
    natively = refused(mpi, tmp_path, "default", *options, preload=False)
    natively.assert_passed("refused")
    result = refused(mpi, tmp_path, plan, *options)
    result.assert_passed("refused")
    assert len(classes(natively)) > 30, str(natively)
    assert classes(result) == classes(natively), str(result)


@pytest.mark.parametrize("plan", ["default", "default-device"])
def test_alike__under_thread_multiple(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    """On Open MPI ranks agree on the application's communicator then."""
    once_per_library(mpi)
    refused(mpi, tmp_path, plan, "--threads").assert_passed("refused")


# At the root or on one rank alone. MPICH lets the peers of a gather go on and leaves those of the
# others waiting; Open MPI too. In shared memory the peers hear of it.
@pytest.mark.parametrize("number", [0, 1, 4, 5, 6, 9, 14, 15, 18, 21, 22, 23])
def test_one__in_shared_memory_the_next_calls_are_right(
    mpi: Mpi, number: int, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    result = refused(
        mpi, tmp_path, "direct", "--calls", "one", "--only", str(number), extra=TIMEOUT
    )
    result.assert_passed("refused")


@pytest.mark.parametrize("number", [10, 13, 14, 18, 19, 21])
@pytest.mark.parametrize("plan", ["schedules", "default-device"])
def test_one__ends_and_no_result_is_wrong(
    mpi: Mpi, plan: str, number: int, preload_library: Path, tmp_path: Path
) -> None:
    """A rank that waits for the refused one is told, or ends with an error."""
    once_per_library(mpi)
    result = refused(mpi, tmp_path, plan, "--calls", "one", "--only", str(number), extra=TIMEOUT)
    assert result.status is not None, str(result)
    assert not result.lines(r"FAILED.* is wrong$"), str(result)


@pytest.mark.parametrize("plan", ["default", "direct", "schedules", "alpha", "default-device"])
def test_churn__a_refused_call_costs_nothing_for_ever(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    """More communicators than an MPI has, one after the other."""
    once_per_library(mpi)
    refused(mpi, tmp_path, plan, "--churn", "3000").assert_passed("refused")


def live(result: Finished) -> tuple[int, int]:
    """How many communicators there were at once, and bytes of the heap for each on rank 0."""
    result.assert_passed("refused")
    found = re.search(r"^live: (\d+) communicators, (\d+) bytes each$", result.stdout, re.MULTILINE)
    assert found is not None, str(result)
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("plan", ["default", "direct", "schedules", "alpha", "default-device"])
def test_live__the_mpi_has_its_communicators_for_the_application(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    most = ["--live", "2100" if mpi.flavour == "mpich" else "300"]
    natively, _ = live(refused(mpi, tmp_path, "default", *most, preload=False))
    ours, _ = live(refused(mpi, tmp_path, plan, *most))
    # Duplicates share what is ours, but for the first few; with nothing of ours there is none.
    least = natively if plan in ("default", "direct") else natively - 12
    assert ours >= least, f"{ours} live communicators, {natively} natively"


def test_live__threads_share_none_and_do_without(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Threads may not share: what is over our share of the MPI's communicators does without."""
    once_per_library(mpi)
    options = ["--threads", "--live", "300"]
    info = {"TUTTI_LOG_LEVEL": "info"}
    result = refused(mpi, tmp_path, "schedules", *options, extra=info)
    assert live(result)[0] == 300
    assert result.lines(r"no communicator of ours is to be had"), str(result)
    strict = {"TUTTI_STRICT": "1", "TUTTI_LOG_LEVEL": "error"}
    result = refused(mpi, tmp_path, "schedules", *options, extra=strict)
    assert result.status not in (0, None), str(result)
    assert result.lines(r"TUTTI_STRICT: allreduce: .* no communicator of ours"), str(result)


def test_live__an_inert_communicator_costs_little(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    most = ["--live", "300"]
    _, natively = live(refused(mpi, tmp_path, "default", *most, preload=False))
    _, ours = live(refused(mpi, tmp_path, "default", *most, extra={"TUTTI_ENABLE": "0"}))
    assert ours - natively < 1024


@pytest.mark.parametrize("is_mixed", [False, True], ids=["alike", "mixed"])
@pytest.mark.parametrize(
    "plan",
    ["default", "direct", "schedules", "alpha", "default-device", "staged", "direct-device"],
)
def test_again__a_root_that_was_refused_for_aliased_buffers_makes_its_call_again(
    mpi: Mpi, plan: str, is_mixed: bool, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    refused(mpi, tmp_path, "default", "--again", preload=False).assert_passed("refused")
    # Some of the calls native, the others in shared memory: one order of numbers for both.
    mixed = {f"TUTTI_{name}": "native" for name in ("GATHER", "SCATTERV", "REDUCE")}
    extra = TIMEOUT | (mixed if is_mixed else {})
    refused(mpi, tmp_path, plan, "--again", extra=extra).assert_passed("refused")


@pytest.mark.parametrize("plan", ["default-device", "staged", "direct-device"])
def test_again__on_host_memory_in_a_job_with_gpus(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    """Calls that are remembered have their number and their memory before MPI refuses them."""
    once_per_library(mpi)
    # What is known for host memory at a look, and what the GPU library is asked about.
    for threshold_bytes in (1 << 26, 4096):
        extra = TIMEOUT | {"MALLOC_MMAP_THRESHOLD_": str(threshold_bytes)}
        result = refused(mpi, tmp_path, plan, "--again", "--memory", "host", extra=extra)
        result.assert_passed("refused")


def test_lost__a_call_made_again_too_late_is_an_error_or_right(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    refused(mpi, tmp_path, "direct", "--lost", extra=TIMEOUT).assert_passed("refused")


@pytest.mark.parametrize("is_mixed", [False, True], ids=["alike", "mixed"])
@pytest.mark.parametrize("plan", ["default", "direct", "schedules", "alpha"])
def test_alone__calls_that_a_root_makes_alone_and_that_are_refused_did_not_happen(
    mpi: Mpi, plan: str, is_mixed: bool, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    skip_where_aliases_pass(mpi)
    refused(mpi, tmp_path, "default", "--alone", preload=False).assert_passed("refused")
    mixed = {f"TUTTI_{name}": "native" for name in ("GATHER", "SCATTERV", "REDUCE")}
    extra = TIMEOUT | (mixed if is_mixed else {})
    refused(mpi, tmp_path, plan, "--alone", extra=extra).assert_passed("refused")


@pytest.mark.parametrize("plan", ["default", "direct"])
def test_uneven__an_own_block_is_an_error_of_that_call_alone(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    if mpi.flavour == "openmpi" and plan == "default":
        pytest.skip("Open MPI takes what was sent in the wrong gather for the next one's")
    if mpi.flavour == "mpich":
        refused(mpi, tmp_path, "default", "--uneven", preload=False).assert_passed("refused")
    refused(mpi, tmp_path, plan, "--uneven", extra=TIMEOUT).assert_passed("refused")


def test_first__did_not_happen_where_the_ranks_agree_on_memory(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """The MPI lets a root alone with a refused call go on, and does not wait for the others."""
    once_per_library(mpi)
    skip_where_aliases_pass(mpi)
    refused(mpi, tmp_path, "default", "--first", preload=False).assert_passed("refused")

    def first(name: str, directory: Path) -> Finished:
        plan, _, memory = name.partition(":")
        options = ["--first", "--memory", memory]
        return refused(mpi, directory, plan, *options, extra=TIMEOUT, ranks=3)

    plans = ("default-device", "staged", "direct-device")
    names = [f"{plan}:{memory}" for plan in plans for memory in ("host", "hostdevice")]
    for result in at_once(names, tmp_path, first).values():
        result.assert_passed("refused")


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("plan", ["default", "direct"])
def test_first__did_not_happen_on_host_memory(
    mpi: Mpi, plan: str, ranks: int, preload_library: Path, tmp_path: Path
) -> None:
    """The root does its part in the set-up of shared memory and does not wait there."""
    once_per_library(mpi)
    skip_where_aliases_pass(mpi)
    native = {"TUTTI_ALLREDUCE": "native", "TUTTI_BARRIER": "native"}  # They set nothing up.
    extra = TIMEOUT | native
    refused(mpi, tmp_path, plan, "--first", extra=extra, ranks=ranks).assert_passed("refused")


@pytest.mark.parametrize("plan", ["default-device", "staged", "direct-device"])
def test_far__displacements_take_no_memory(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    refused(mpi, tmp_path, plan, "--far").assert_passed("refused")


@pytest.mark.parametrize("plan", ["default", "schedules", "alpha", "default-device", "staged"])
def test_known__a_root_that_is_none_is_alike_on_all_ranks(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    refused(mpi, tmp_path, plan, "--known", extra=TIMEOUT).assert_passed("refused")
