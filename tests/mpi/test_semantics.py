# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What MPI promises beyond one plain call, with and without the preload: tests/mpi/semantics.c.

    pytest tests/mpi/test_semantics.py -k "exscan and mpich"

A case runs natively too: what an MPI does not do by itself is no promise of MPI. Tests that are
the same under every MPI, or slow, name the MPI that they run under.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from harness import Finished, Mpi, at_once, build_directory, job
from test_mpi import DIRECT, REAL_GPU, ccl_calls, once_per_library, setting

# Several pieces per buffer, so that whatever happens between two of them happens. Not for odd
# types: a message of one piece is too small for the MPI to cut it.
PIECES = {"TUTTI_PIPELINE_CHUNK": "4K"}
# Bounds the calls whose peer failed, and no call of a good run.
TIMEOUT_S = 5

RENAME = 'hostname "host-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" && exec "$@"'
ON_HOSTS = ["unshare", "--uts", "sh", "-c", RENAME, "sh"]
IN_PID_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]

CASES = ["exscan", "regular", "aliased", "negative", "oddtypes", "info", "attributes", "reuse"]
CASES += ["fortran"]
# Plans that cut buffers, beside what the library chooses by itself.
STAGED_PLANS = [("mpi-staged", 0), ("mpi-alpha", 2)]
CCL_PLANS = [("ccl-beta", 0), ("ccl-alpha", 2)]
# Algorithms of Open MPI's broadcast that cut it: chain, pipeline, binary tree, binomial.
CUTTING_BCASTS = [2, 3, 5, 6]


def semantics(
    mpi: Mpi,
    ranks: int,
    tmp_path: Path,
    case: str,
    memory: str = "host",
    *options: str,
    plan: str = "",
    nodes: int = 0,
    extra: dict[str, str] | None = None,
    preload: bool = True,
    on_hosts: bool = False,
) -> Finished:
    """Runs one case; a program without progress ends itself long before the job's limit.

    `on_hosts`: each rank takes itself for one on a host of its own, whose processes it cannot see.
    """
    environment, path = setting(memory, plan, nodes)
    environment.update(PIECES if case != "oddtypes" else {})
    environment["TUTTI_TIMEOUT"] = str(TIMEOUT_S)
    environment.update(extra or {})
    return job(
        mpi,
        ranks,
        [
            *(ON_HOSTS if on_hosts else []),
            mpi.program("semantics"),
            *("--case", case, "--memory", memory),
            *options,
        ],
        tmp_path,
        environment=environment,
        library_path=path,
        preload=preload,
        timeout_s=45,
    )


def assert_passed_or_skip(result: Finished) -> None:
    """Skips what this MPI's headers do not have."""
    if result.status == 0 and "semantics: skipped:" in result.stdout:
        pytest.skip(result.stdout.splitlines()[0])
    result.assert_passed("semantics")


@pytest.mark.parametrize("ranks", [2, 3])
def test_native(mpi: Mpi, ranks: int, tmp_path: Path) -> None:
    semantics(mpi, ranks, tmp_path, "all", preload=False).assert_passed("semantics")


@pytest.mark.parametrize("case", ["largetypes", "sessions"])
def test_native__mpi_4(mpi: Mpi, case: str, tmp_path: Path) -> None:
    assert_passed_or_skip(semantics(mpi, 2, tmp_path, case, preload=False))


def test_host_memory(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    semantics(mpi, 3, tmp_path, "all").assert_passed("semantics")


@pytest.mark.parametrize("memory", ["hostdevice", "cuda"])
@pytest.mark.parametrize("case", CASES)
def test_case(mpi: Mpi, case: str, memory: str, preload_library: Path, tmp_path: Path) -> None:
    ranks = 3 if memory == "hostdevice" else 2
    semantics(mpi, ranks, tmp_path, case, memory).assert_passed("semantics")


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
@pytest.mark.parametrize(("plan", "nodes"), STAGED_PLANS)
@pytest.mark.parametrize("case", ["exscan", "regular", "aliased", "negative"])
def test_staged_plans(
    mpi: Mpi, case: str, plan: str, nodes: int, preload_library: Path, tmp_path: Path
) -> None:
    result = semantics(mpi, 3, tmp_path, case, "hostdevice", plan=plan, nodes=nodes)
    result.assert_passed("semantics")


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
@pytest.mark.parametrize(("plan", "nodes"), CCL_PLANS)
@pytest.mark.parametrize("case", ["regular", "aliased", "negative"])
def test_ccl_plans(
    mpi: Mpi, case: str, plan: str, nodes: int, preload_library: Path, tmp_path: Path
) -> None:
    result = semantics(mpi, 3, tmp_path, case, "cuda", plan=plan, nodes=nodes)
    result.assert_passed("semantics")


@pytest.mark.parametrize("memory", ["host", "hostdevice", "cuda"])
def test_large_types__with_the_default_error_handler(
    mpi: Mpi, memory: str, preload_library: Path, tmp_path: Path
) -> None:
    assert_passed_or_skip(semantics(mpi, 2, tmp_path, "largetypes", memory))


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_large_displacements__that_no_int_holds(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    assert_passed_or_skip(semantics(mpi, 1, tmp_path, "far"))


@pytest.mark.parametrize("memory", ["host", "hostdevice"])
def test_sessions(mpi: Mpi, memory: str, preload_library: Path, tmp_path: Path) -> None:
    assert_passed_or_skip(semantics(mpi, 2, tmp_path, "sessions", memory))


@pytest.mark.skipif(REAL_GPU, reason="the real NCCL writes no log of calls")
def test_sessions__are_carried_by_the_ccl(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """The CPU reads the fakes' memory: a right result does not show who made it."""
    log = tmp_path / "ccl.log"
    extra = {"FAKE_CCL_LOG": str(log)}
    result = semantics(mpi, 2, tmp_path, "sessions", "cuda", plan="ccl-beta", extra=extra)
    assert_passed_or_skip(result)
    assert "ncclAllReduce" in ccl_calls(log), str(result)


@pytest.mark.skipif(REAL_GPU, reason="the real NCCL writes no log of calls")
@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_bottom__is_where_its_type_says(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """Memory is the device's or the host's by where the data lies, not by the buffer's address."""
    log = tmp_path / "ccl.log"
    extra = {"FAKE_CCL_LOG": str(log)}
    result = semantics(mpi, 2, tmp_path, "bottom", "cuda", plan="ccl-beta", extra=extra)
    result.assert_passed("semantics")
    assert "ncclBroadcast" in ccl_calls(log), str(result)


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
@pytest.mark.parametrize("algorithm", CUTTING_BCASTS)
def test_odd_types__in_segments(
    mpi: Mpi, algorithm: int, preload_library: Path, tmp_path: Path
) -> None:
    """Open MPI cuts a message at whole items, so all ranks must give it items of one size."""
    extra = {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_bcast_algorithm": str(algorithm),
        "OMPI_MCA_coll_tuned_bcast_algorithm_segmentsize": "8192",
    }
    semantics(mpi, 3, tmp_path, "oddtypes", extra=extra, preload=False).assert_passed("semantics")
    result = semantics(mpi, 3, tmp_path, "oddtypes", "hostdevice", extra=extra)
    result.assert_passed("semantics")


@pytest.mark.skipif(REAL_GPU, reason="faults are injected into the fakes")
@pytest.mark.parametrize(
    ("mpi", "symbol", "victim"),
    [("mpich", "cuMemAlloc_v2", 1), ("openmpi", "cuMemcpyAsync", 0)],
    indirect=["mpi"],
)
def test_failure__of_one_rank_before_the_ccl(
    mpi: Mpi, symbol: str, victim: int, preload_library: Path, tmp_path: Path
) -> None:
    """Its peers' calls are under way and must not be met by its next one."""
    started = time.monotonic()
    options = ["--fail", symbol, "--victim", str(victim)]
    result = semantics(mpi, 2, tmp_path, "failure", "cuda", *options, plan="ccl-beta")
    result.assert_passed("semantics")
    assert time.monotonic() - started < 3 * TIMEOUT_S


# Algorithms of ours, whose messages are apart from MPI's own.
OURS = {"TUTTI_BCAST": "schedule:knomial", "TUTTI_BARRIER": "schedule:dissemination"}


@pytest.mark.skipif(REAL_GPU, reason="only the fake's streams can be said to be captured")
@pytest.mark.parametrize("plan", ["", "ccl-beta"])
def test_capture__in_another_thread_goes_on(
    mpi: Mpi, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    semantics(mpi, 2, tmp_path, "capture", "cuda", plan=plan).assert_passed("semantics")


@pytest.mark.skipif(REAL_GPU, reason="faults are injected into the fakes")
@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_barrier__after_a_failure_is_an_error(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    options = ["--fail", "cuMemcpyAsync", "--victim", "0"]
    extra = OURS | {"TUTTI_TIMEOUT": "1"}
    result = semantics(mpi, 2, tmp_path, "barrier", "cuda", *options, extra=extra)
    result.assert_passed("semantics")


def test_alpha__a_step_that_fails_breaks_the_communicator(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    result = semantics(mpi, 2, tmp_path, "truncated", plan="mpi-alpha", nodes=2)
    result.assert_passed("semantics")


def test_wrong_arguments__are_errors(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """With plans that would read them; no library refuses all of these by itself."""
    once_per_library(mpi)
    for extra in (DIRECT, {"TUTTI_ALLTOALLV": "schedule:linear"}):
        result = semantics(mpi, 3, tmp_path, "wrong", extra=extra)
        result.assert_passed("semantics")


@pytest.mark.parametrize("victim", [0, 1])
def test_wrong_arguments__of_one_rank_break_the_communicator(
    mpi: Mpi, victim: int, preload_library: Path, tmp_path: Path
) -> None:
    """Where steps of ours carry the call: the rank's next one would meet those of its peers."""
    once_per_library(mpi)
    extra = {"TUTTI_ALLTOALLV": "schedule:linear", "TUTTI_TIMEOUT": "3"}
    options = ["--victim", str(victim)]
    result = semantics(mpi, 3, tmp_path, "alone", "host", *options, extra=extra)
    result.assert_passed("semantics")


@pytest.mark.parametrize("victim", [0, 1])
def test_wrong_arguments__of_one_rank_in_shared_memory_are_that_calls_error(
    mpi: Mpi, victim: int, preload_library: Path, tmp_path: Path
) -> None:
    """Its peers hear of it there."""
    once_per_library(mpi)
    extra = {"TUTTI_ALLTOALLV": "direct-gamma"}
    options = ["--victim", str(victim)]
    result = semantics(mpi, 3, tmp_path, "alike", "host", *options, extra=extra)
    result.assert_passed("semantics")


def test_wrong_arguments__of_all_ranks_where_the_call_is_native(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Rules for device memory are none for calls that the ranks have agreed on as on the host."""
    once_per_library(mpi)
    options = ["--victim", "-1"]
    semantics(mpi, 3, tmp_path, "alike", "hostdevice", *options).assert_passed("semantics")


@pytest.mark.parametrize("summary", ["", "1"])
@pytest.mark.parametrize("plan", ["", "schedule:linear", "direct-gamma"])
def test_wrong_arguments__whose_error_handler_frees_the_communicator(
    mpi: Mpi, preload_library: Path, tmp_path: Path, plan: str, summary: str
) -> None:
    """Freed memory is overwritten: who looks at it again ends by a signal."""
    once_per_library(mpi)
    extra = {"MALLOC_PERTURB_": "165"} | ({"TUTTI_ALLTOALLV": plan} if plan else {})
    extra |= {"TUTTI_SUMMARY": summary} if summary else {}
    semantics(mpi, 2, tmp_path, "freeing", "host", extra=extra).assert_passed("semantics")


def test_wrong_arguments__that_an_error_handler_has_seen_break_the_communicator(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    extra = {"TUTTI_BCAST": "schedule:knomial", "TUTTI_TIMEOUT": "1"}
    options = ["--victim", "1"]
    semantics(mpi, 2, tmp_path, "handled", "host", *options, extra=extra).assert_passed("semantics")


def test_late_rank__does_not_write_where_it_was_given_up(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    if os.geteuid() != 0:
        pytest.skip("not root: the ranks cannot have hosts' names of their own")
    extra = {"TUTTI_BCAST": "schedule:knomial", "TUTTI_TIMEOUT": "4"}
    semantics(mpi, 2, tmp_path, "late", extra=extra, on_hosts=True).assert_passed("semantics")


def test_alpha__set_up_without_a_rank_ends(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    extra = {"TUTTI_BCAST": "mpi-alpha", "TUTTI_ALLGATHERV": "rings", "TUTTI_TIMEOUT": "0.3"}
    result = semantics(mpi, 2, tmp_path, "scopes", "host", "--victim", "1", extra=extra, nodes=2)
    result.assert_passed("semantics")


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_alpha__what_a_failed_rank_was_sent_stays(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """MPICH gives the place of a communicator that was freed to the next one."""
    result = semantics(mpi, 3, tmp_path, "stale", extra={"TUTTI_BCAST": "mpi-alpha"}, nodes=2)
    assert_passed_or_skip(result)


def test_unequal_counts__are_errors(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """A copy of the longer end would write past the shorter one."""
    once_per_library(mpi)
    for extra in (DIRECT, {"TUTTI_ALLTOALLV": "schedule:linear", "TUTTI_ALLGATHER": "rings"}):
        extra = extra | {"TUTTI_ALLGATHERV": "direct-gamma", "TUTTI_BCAST": "schedule:knomial"}
        result = semantics(mpi, 2, tmp_path, "unequal", extra=extra)
        result.assert_passed("semantics")


@pytest.mark.skipif(REAL_GPU, reason="faults are injected into the fakes")
def test_agreement__without_a_rank_that_failed_ends(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """One whose arguments were refused comes to the agreement all the same."""
    once_per_library(mpi)
    options = ["--fail", "cuMemcpyAsync", "--victim", "1"]
    extra = OURS | {"TUTTI_TIMEOUT": "1", "TUTTI_LOG_LEVEL": "error"}
    result = semantics(mpi, 3, tmp_path, "agreement", "cuda", *options, extra=extra)
    result.assert_passed("semantics")
    assert len(result.lines(r"an agreement of the ranks .*rank \d gave up")) == 2, str(result)


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_memory__that_runs_out_is_an_error(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    extra = {"TUTTI_ALLTOALLV": "schedule:linear"}
    assert_passed_or_skip(semantics(mpi, 2, tmp_path, "memory", extra=extra))


STRICT = {"TUTTI_STRICT": "1", "TUTTI_LOG_LEVEL": "error"}


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_strict__a_hint_that_cannot_be_read_is_an_error(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    result = semantics(mpi, 2, tmp_path, "hint", extra=STRICT)
    result.assert_passed("semantics")
    assert result.lines("TUTTI_STRICT: rank 0 has a hint that cannot be read"), str(result)


def test_strict__two_mpi_libraries_are_an_error(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Beside two MPI libraries in one process each call goes to one of them, untouched."""
    once_per_library(mpi)
    second = build_directory() / "tests" / "mpi" / "none" / "libmpi.so.99"
    extra = STRICT | {"LD_PRELOAD": f"{preload_library} {second}"}
    result = semantics(mpi, 2, tmp_path, "refused", extra=extra, preload=False)
    result.assert_passed("semantics")
    assert result.lines("MPI_Allreduce: TUTTI_STRICT: it would go to MPI untouched"), str(result)


def test_disabled__is_no_fall_back(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """Strict or not: with TUTTI_ENABLE=0 every call goes to MPI untouched."""
    once_per_library(mpi)
    second = build_directory() / "tests" / "mpi" / "none" / "libmpi.so.99"
    extra = STRICT | {"LD_PRELOAD": f"{preload_library} {second}", "TUTTI_ENABLE": "0"}
    result = semantics(mpi, 2, tmp_path, "exscan", extra=extra, preload=False)
    result.assert_passed("semantics")


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_untouched__names_what_the_library_does_not_have(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    second = build_directory() / "tests" / "mpi" / "none" / "libmpi.so.99"
    extra = {"LD_PRELOAD": f"{preload_library} {second}", "TUTTI_LOG_LEVEL": "error"}
    result = semantics(mpi, 1, tmp_path, "far", extra=extra, preload=False)
    assert result.lines("MPI_Gatherv_c: the MPI library does not have it"), str(result)


def test_differ__calls_that_differ_leave_the_next_ones_right(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    assert preload_library
    names = "BCAST ALLREDUCE ALLGATHER ALLTOALL REDUCE GATHER SCATTER REDUCE_SCATTER_BLOCK"

    def run(ranks: str, directory: Path) -> Finished:
        return job(
            mpi,
            int(ranks),
            [mpi.program("differ"), "--calls", "200"],
            directory,
            environment={f"TUTTI_{name}": "direct-gamma" for name in names.split()},
            timeout_s=60,
        )

    for ranks, result in at_once(["2", "3"], tmp_path, run).items():
        assert result.status == 0, str(result)
        found = re.search(
            r"differ: (\d+) right calls, 0 wrong, "
            r"(\d+) of (\d+) differing calls failed, (\d+) truncations",
            result.stdout,
        )
        assert found is not None, str(result)
        right, failed, differing, truncations = map(int, found.groups())
        assert right + differing == 200 * int(ranks)
        assert truncations == failed > differing / 4, str(result)
        assert "; all ranks of a communicator must call the same" in result.stderr


@pytest.mark.parametrize("when", ["first", "later"])
def test_differ__a_rank_whose_call_goes_another_way_is_found(
    mpi: Mpi, preload_library: Path, tmp_path: Path, when: str
) -> None:
    assert preload_library
    start = time.monotonic()
    result = job(
        mpi,
        2,
        [mpi.program("differ"), "--across", when],
        tmp_path,
        environment={"TUTTI_BCAST": "8K:mpi,direct-gamma", "TUTTI_ALLREDUCE": "direct-gamma"},
        timeout_s=60,
    )
    assert result.status != 0, str(result)
    assert "passed on" not in result.stdout
    assert time.monotonic() - start < 30
    assert "goes another way for what it passed there" in result.stderr, str(result)


DERIVED_NAMES = ["ALLREDUCE", "BCAST", "ALLGATHER"]
# By default what is as fast natively stays native, on two ranks; direct carries all of it.
DERIVED_PLANS: dict[str, dict[str, str]] = {
    "default": {},
    "direct": {f"TUTTI_{name}": "direct-gamma" for name in DERIVED_NAMES},
    "schedule": {"TUTTI_ALLREDUCE": "schedule:ring"},
}


def derived(mpi: Mpi, ranks: int, case: str, plans: dict[str, str], tmp_path: Path) -> Finished:
    words = [mpi.program("derived"), "--case", case]
    environment = {"TUTTI_DEVICE": "none"} | plans
    return job(mpi, ranks, words, tmp_path, environment=environment, timeout_s=100)


# Where ranks call what differs, only one way of carrying it all is sure to see that: the others are
# of test_derived__ways_that_differ_end.
DERIVED = [
    *itertools.product(["order", "freed"], [1, 2, 3, 5], DERIVED_PLANS),
    *itertools.product(["lone", "unequal", "apart"], [2, 3, 5], ["direct"]),
    *itertools.product(["many"], [1, 2, 3], ["default", "direct"]),
]


@pytest.mark.parametrize(("case", "ranks", "plans"), DERIVED)
def test_derived__calls_are_right(
    mpi: Mpi, preload_library: Path, tmp_path: Path, case: str, ranks: int, plans: str
) -> None:
    assert preload_library
    once_per_library(mpi)
    result = derived(mpi, ranks, case, DERIVED_PLANS[plans], tmp_path)
    assert result.status == 0, str(result)
    found = re.search(r"derived: (\d+) calls, 0 wrong", result.stdout)
    assert found is not None, str(result)
    assert int(found.group(1)) >= 20


def test_derived__ways_that_differ_end(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """One rank has left the call through shared memory, and the other waits in the library's."""
    assert preload_library
    plans = {"TUTTI_BCAST": "60K:mpi,direct-gamma", "TUTTI_TIMEOUT": "1"}
    start = time.monotonic()

    def run(case: str, directory: Path) -> Finished:
        return derived(mpi, 2, case, plans, directory)

    for result in at_once(["unequal", "first"], tmp_path, run).values():
        assert result.status not in (0, None), str(result)
        text = "rank 0 has made this call through shared memory, for what it passed"
        assert text in result.stderr
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(("plans", "lines"), [("direct", 4), ("schedule", 2)])
def test_derived__is_set_up_at_once(
    mpi: Mpi, preload_library: Path, tmp_path: Path, plans: str, lines: int
) -> None:
    """Of a communicator that has been used: two derived from it, beside those that have a call."""
    assert preload_library
    extra = {"TUTTI_LOG_LEVEL": "info"}
    result = derived(mpi, 2, "only", DERIVED_PLANS[plans] | extra, tmp_path)
    assert result.status == 0, str(result)
    assert result.stderr.count("INFO communicator: 2 ranks") == lines, str(result)


LATE_PLANS = {
    "default": {},
    "agreement": {"TUTTI_DEVICE": "host"},
    "direct": {"TUTTI_ALLREDUCE": "direct-gamma", "TUTTI_BCAST": "direct-gamma"},
    "schedule": {"TUTTI_ALLREDUCE": "schedule:ring", "TUTTI_BCAST": "schedule:knomial"},
}


def test_late__a_rank_that_lives_is_waited_for(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)

    def run(plans: str, directory: Path) -> Finished:
        # An agreement, which the first call is, has a limit of two time-outs and 2 s.
        first = "3" if plans == "agreement" else "0.8"
        program = [mpi.program("late"), "--seconds", "0.8", "--first", first]
        environment = LATE_PLANS[plans] | {"TUTTI_TIMEOUT": "0.3"}
        return job(mpi, 2, program, directory, environment=environment, timeout_s=60)

    for plans, result in at_once(LATE_PLANS, tmp_path, run).items():
        assert result.status == 0, plans + str(result)
        assert "late: 4 calls, 0 wrong" in result.stdout, plans + str(result)


def test_late__who_is_ahead_gives_what_it_has_written(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """A root that waits for a place in its rings has not given its next call's data yet."""
    once_per_library(mpi)
    result = job(
        mpi,
        3,
        [mpi.program("late"), "--seconds", "0.8", "--ahead", "yes"],
        tmp_path,
        environment={"TUTTI_DEVICE": "none"} | DIRECT,
        timeout_s=60,
    )
    assert result.status == 0, str(result)
    assert "late: 7 calls, 0 wrong" in result.stdout, str(result)


def test_late__others_may_have_freed_the_communicator(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """A rank that is through with a call may leave while a root still waits for a late one."""
    once_per_library(mpi)

    def run(plan: str, directory: Path) -> Finished:
        program = [mpi.program("late"), "--seconds", "0.6", "--leave", "yes"]
        environment = {"TUTTI_DEVICE": "none"} | ({"TUTTI_BCAST": plan} if plan else {})
        return job(mpi, 3, program, directory, environment=environment, timeout_s=60)

    for plan, result in at_once(["", "schedule:knomial", "direct-gamma"], tmp_path, run).items():
        assert result.status == 0, plan + str(result)
        assert "late: 5 calls, 0 wrong" in result.stdout, plan + str(result)


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)  # Open MPI itself dies of it.
def test_late__processes_that_cannot_be_looked_at_are_no_dead_ones(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Each rank in a PID namespace of its own, as in containers, where it cannot see the others."""
    assert preload_library
    if os.geteuid() != 0 or subprocess.run([*IN_PID_NAMESPACE, "true"], check=False).returncode:
        pytest.skip("PID namespaces are not permitted")
    program = [*IN_PID_NAMESPACE, mpi.program("late"), "--seconds", "1"]

    def run(plans: str, directory: Path) -> Finished:
        return job(mpi, 2, program, directory, environment=LATE_PLANS[plans], timeout_s=60)

    for result in at_once(LATE_PLANS, tmp_path, run).values():
        assert "late: 4 calls, 0 wrong" in result.stdout, str(result)


def test_late__a_wait_in_the_librarys_own_collective_for_a_dead_rank_ends(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    assert preload_library
    death = r"rank 1 \(process \d+\) has died, and this process waits for it in a collective of"
    start = time.monotonic()
    result = job(
        mpi,
        2,
        [mpi.program("late"), "--seconds", "0.3", "--kill", "yes"],
        tmp_path,
        environment={"TUTTI_ALLREDUCE": "mpi", "TUTTI_BCAST": "mpi", "TUTTI_TIMEOUT": "1"},
        timeout_s=60,
        survivors=True,
    )
    assert "late:" not in result.stdout
    assert time.monotonic() - start < 30, str(result)
    assert result.lines(death), str(result)
