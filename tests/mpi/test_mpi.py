# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The MPI preload library, seen from outside: unmodified programs, with and without the preload.

    pytest tests/mpi                         about five minutes on two cores
    pytest tests/mpi -m deep                 every plan, memory, mix and 1-9 ranks with all parts
    pytest tests/mpi -m 'deep or not deep'   that, and every case under every MPI
    TUTTI_BUILD_DIR=build/asan-ubsan pytest tests/mpi

"cuda" and "hip" are the fakes of tests/support, not real GPUs: the CUDA, HIP, NCCL and RCCL
tables are exercised end to end, the vendors' libraries are not. TUTTI_TEST_REAL_GPU=1 uses the real
CUDA and NCCL in place of their fakes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from tutti_hpc import api
from tutti_hpc.terms import COLLECTIVES

import harness
from harness import (
    Finished,
    Mpi,
    build_directory,
    execute,
    fakes,
    forced,
    job,
    mpi4py_python,
    plain_environment,
)
from missing import unavailable

# Parts of the programme that meet every collective, root, v-form, layout and user operation.
QUICK = "roots,vectors,user,mixed,errors"
# Small enough for more ranks than cores.
TINY = "barrier,roots,mixed"

REAL_GPU = os.environ.get("TUTTI_TEST_REAL_GPU") == "1"

HOST_PLANS = [("mpi-gamma", 0), ("mpi-beta", 0), ("mpi-alpha", 2), ("mpi-alpha", 3)]
STAGED_PLANS = [("", 0), ("mpi-staged", 0), ("mpi-alpha", 2)]
CCL_PLANS = [("", 0), ("ccl-beta", 0), ("ccl-gamma", 0), ("ccl-alpha", 2), ("ccl-alpha", 3)]
CCL_PLANS += [("mpi-staged", 0), ("mpi-alpha", 2)]
CCL_PLANS += [("ccl-streams(3)", 0), ("ccl-comms(2)", 0)]
TREES = dict.fromkeys(("reduce", "gather", "scatter"), "schedule:binomial")
SCHEDULES = [
    TREES
    | dict.fromkeys(("allgather", "reduce_scatter", "reduce_scatter_block"), "rings")
    | {"allreduce": "schedule:ring", "bcast": "schedule:knomial", "alltoall": "schedule:linear"}
    | {"allgatherv": "schedule:neighbor-exchange"},
    {
        "allgather": "schedule:bruck",
        "allgatherv": "schedule:linear",
        "reduce_scatter": "schedule:recursive-halving",
        "reduce_scatter_block": "schedule:pairwise",
        "allreduce": "schedule:rabenseifner",
        "bcast": "schedule:scatter-allgather",
        "alltoall": "schedule:bruck",
    },
    {
        "allgather": "schedule:recursive-doubling",
        "reduce": "schedule:chain",
        "allgatherv": "schedule:ring",
        "reduce_scatter_block": "schedule:ring",
        "allreduce": "schedule:recursive-doubling",
        "bcast": "schedule:chain",
        "alltoall": "schedule:pairwise",
    },
    {
        "allgather": "rings-xor",
        "allgatherv": "rings",
        "reduce": "schedule:alpha",
        "reduce_scatter": "schedule:ring",
        "allreduce": "rings",
        "bcast": "schedule:double-tree",
        "alltoall": "schedule:rails",
        "alltoallv": "schedule:pairwise",
        "barrier": "schedule:dissemination",
    },
    {
        "allgather": "rings-inter-socket",
        "allgatherv": "rings-inter-socket-pipelined",
        "allreduce": "schedule:double-tree",
        "bcast": "schedule:alpha",
        "alltoallv": "schedule:linear",
    },
    {
        "allgather": "rings-knomial",
        "allgatherv": "rings-recursive-doubling",
        "allreduce": "schedule:delta",
    },
    {
        "allgather": "schedule:alpha",
        "allgatherv": "rings-binomial-halving",
        "allreduce": "schedule:alpha",
    },
    {"allgather": "rings-binomial-doubling", "allgatherv": "schedule:bruck"},
]
MIXES = ["even", "odd", "alternate", "random:7", "every", "rootonly", "sendonly", "recvonly"]

LONG_S = 280


def setting(memory: str, plan: str = "", nodes: int | str = 0) -> tuple[dict[str, str], list[Path]]:
    """Variables and library path for a kind of memory and a plan forced on every collective."""
    environment = {"TUTTI_TIMEOUT": "60", "FAKE_GPUS": "9"}
    path: list[Path] = []
    if memory == "hostdevice":
        environment["TUTTI_DEVICE"] = "host"
    elif memory in ("cuda", "hip"):
        environment["TUTTI_DEVICE"] = memory
        if not (REAL_GPU and memory == "cuda"):
            path = [fakes(memory)]
            if not path[0].is_dir():
                unavailable(f"{path[0]} is not built")
    if plan:
        environment.update(forced(plan))
    if nodes:
        environment["TUTTI_VIRTUAL_NODES"] = str(nodes)
    return environment, path


def once_per_library(mpi: Mpi) -> None:
    """Skips what the standard ABI would repeat: behind it is the same library as MPICH's own."""
    if mpi.flavour == "abi" and "mpich" in harness.present and not harness.deep:
        pytest.skip("libmpi_abi is MPICH's library: once is enough (deep: all)")


def take_turns(mpi: Mpi, turn: int) -> None:
    """Runs a case of many under one of the two libraries, each of which has half of them."""
    once_per_library(mpi)
    libraries = [flavour for flavour in ("mpich", "openmpi") if flavour in harness.present]
    if not libraries or harness.deep:
        return
    if mpi.flavour != libraries[turn % len(libraries)]:
        pytest.skip("the libraries take turns: each has half of these cases (deep: all)")


def collectives(
    mpi: Mpi,
    ranks: int,
    tmp_path: Path,
    memory: str = "host",
    *options: str,
    plan: str = "",
    nodes: int | str = 0,
    extra: dict[str, str] | None = None,
    of_rank: dict[int, dict[str, str]] | None = None,
    preload: bool = True,
    timeout_s: float = 120,
) -> Finished:
    """Runs the collectives program."""
    environment, path = setting(memory, plan, nodes)
    environment.update(extra or {})
    command = [mpi.program("collectives"), "--memory", memory, "--watchdog", "60", *options]
    return job(
        mpi,
        ranks,
        command,
        tmp_path,
        environment=environment,
        of_rank=of_rank,
        library_path=path,
        preload=preload,
        timeout_s=timeout_s,
    )


def small_allreduces(
    mpi: Mpi,
    ranks: int,
    tmp_path: Path,
    *options: str,
    extra: dict[str, str] | None = None,
    of_rank: dict[int, dict[str, str]] | None = None,
) -> Finished:
    """Device allreduces under ccl-beta, for tests of what is said when the CCL cannot be had."""
    variables = {"TUTTI_ALLREDUCE": "ccl-beta", "TUTTI_LOG_LEVEL": "warn"}
    return collectives(
        mpi,
        ranks,
        tmp_path,
        "cuda",
        "--only",
        "matrix",
        *options,
        extra=variables | (extra or {}),
        of_rank=of_rank,
    )


# The harness itself.


@pytest.mark.parametrize("rank", [0, 1])
def test_harness__failure_on_one_rank_fails_the_run(mpi: Mpi, rank: int, tmp_path: Path) -> None:
    result = collectives(
        mpi, 2, tmp_path, "host", "--only", "counts", "--sabotage", str(rank), preload=False
    )
    assert result.status not in (0, None), str(result)
    assert len(result.lines(rf"^FAILED .*rank {rank} ")) == 1, str(result)


def test_harness__hang_fails_the_run() -> None:
    started = time.monotonic()
    assert execute(["sh", "-c", "sleep 60 & sleep 60"], plain_environment(), 1).status is None
    assert time.monotonic() - started < 20


def test_harness__nothing_checked_is_no_success(mpi: Mpi, tmp_path: Path) -> None:
    result = collectives(mpi, 1, tmp_path, "host", "--only", "huge", preload=False)
    assert result.status != 0, str(result)


# Everything, natively and through the preload library.


@pytest.mark.parametrize("ranks", [1, 2])
def test_native(mpi: Mpi, ranks: int, tmp_path: Path) -> None:
    collectives(mpi, ranks, tmp_path, preload=False).assert_passed("collectives")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("memory", ["host", "hostdevice", "cuda"])
def test_all_parts(
    mpi: Mpi, ranks: int, memory: str, preload_library: Path, tmp_path: Path
) -> None:
    extra = harness.OWN_PROGRESS if memory == "host" else None
    result = collectives(mpi, ranks, tmp_path, memory, extra=extra, timeout_s=LONG_S)
    result.assert_passed("collectives")


@pytest.mark.parametrize(("plan", "nodes"), HOST_PLANS)
def test_host_plans(mpi: Mpi, plan: str, nodes: int, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    result = collectives(mpi, 3, tmp_path, "host", "--only", QUICK, plan=plan, nodes=nodes)
    result.assert_passed("collectives")


@pytest.mark.parametrize(("plan", "nodes"), STAGED_PLANS)
def test_host_device_plans(
    mpi: Mpi, plan: str, nodes: int, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    result = collectives(mpi, 3, tmp_path, "hostdevice", "--only", QUICK, plan=plan, nodes=nodes)
    result.assert_passed("collectives")


@pytest.mark.parametrize("choice", range(len(SCHEDULES)))
@pytest.mark.parametrize("memory", ["host", "hostdevice"])
def test_schedules(
    mpi: Mpi, memory: str, choice: int, preload_library: Path, tmp_path: Path
) -> None:
    """Five ranks on two nodes of three and two; what a schedule does not carry stays native."""
    take_turns(mpi, choice + (memory == "host"))
    extra = {f"TUTTI_{name.upper()}": plan for name, plan in SCHEDULES[choice].items()}
    log = {"TUTTI_LOG_LEVEL": "error"}
    parts = "roots,vectors,barrier,errors"
    result = collectives(mpi, 5, tmp_path, memory, "--only", parts, nodes=2, extra=extra | log)
    result.assert_passed("collectives")


def test_schedules__every_algorithm_is_among_the_choices() -> None:
    """Of a collective's v-form as of itself; reduce_scatter has those of reduce_scatter_block."""
    families = {"allgatherv": "allgather", "alltoallv": "alltoall"}
    families["reduce_scatter"] = "reduce_scatter_block"
    chosen = {
        (families.get(collective, collective), plan.removeprefix("schedule:"))
        for choice in SCHEDULES
        for collective, plan in choice.items()
    }
    there_are = {
        (a["collective"], a["name"]) for a in api.library().algorithms() if not a["simulated_only"]
    }
    assert there_are <= chosen, there_are - chosen


UNEVEN = "5,4,3"


@pytest.mark.parametrize("choice", range(len(SCHEDULES)))
def test_schedules__on_uneven_nodes(
    mpi: Mpi, choice: int, preload_library: Path, tmp_path: Path
) -> None:
    """12 ranks on nodes of 5, 4 and 3, more than cores: small parts only (deep: all)."""
    if mpi.flavour != "openmpi" and not harness.deep:
        pytest.skip("MPICH's 12 ranks spin on few cores, a minute for each choice (deep: all)")
    extra = {f"TUTTI_{name.upper()}": plan for name, plan in SCHEDULES[choice].items()}
    extra |= {"TUTTI_LOG_LEVEL": "error"}
    result = collectives(
        mpi, 12, tmp_path, "host", "--only", TINY, nodes=UNEVEN, extra=extra, timeout_s=LONG_S
    )
    result.assert_passed("collectives")


@pytest.mark.parametrize("choice", range(2))
def test_schedules__really_carry_the_calls(
    mpi: Mpi, choice: int, preload_library: Path, tmp_path: Path
) -> None:
    """Under TUTTI_STRICT a call that the schedule did not carry is an error."""
    once_per_library(mpi)
    moving = {k: v for k, v in SCHEDULES[choice].items() if "reduce" not in k}
    extra = {f"TUTTI_{name.upper()}": plan for name, plan in moving.items()}
    extra |= {"TUTTI_STRICT": "1", "TUTTI_LOG_LEVEL": "error"}
    result = collectives(mpi, 3, tmp_path, "host", "--only", "roots", nodes=2, extra=extra)
    result.assert_passed("collectives")


# What direct carries; scan and exscan are none of it.
DIRECT = {f"TUTTI_{name.upper()}": "direct-gamma" for name in COLLECTIVES if "scan" not in name} | {
    "TUTTI_LOG_LEVEL": "error"
}


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_direct_on_host_memory(mpi: Mpi, ranks: int, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    parts = QUICK if ranks == 5 else "types,counts," + QUICK
    result = collectives(mpi, ranks, tmp_path, "host", "--only", parts, extra=DIRECT)
    result.assert_passed("collectives")


@pytest.mark.parametrize("mix", ["alternate", "random:7", "rootonly"])
def test_direct_on_mixed_memory(mpi: Mpi, mix: str, preload_library: Path, tmp_path: Path) -> None:
    """A rank whose buffers do not fit the agreed mode moves them."""
    once_per_library(mpi)
    result = collectives(
        mpi, 3, tmp_path, "hostdevice", "--mixed", mix, "--only", "mixed", extra=DIRECT
    )
    result.assert_passed("collectives")


def test_direct_on_host_memory__really_carries_the_calls(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    extra = DIRECT | {"TUTTI_STRICT": "1"}
    result = collectives(mpi, 2, tmp_path, "host", "--only", "roots,barrier", extra=extra)
    result.assert_passed("collectives")


def test_disagreement__on_host_memory_is_native_for_all_too(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """A rule for an algorithm on one rank: that one alone would make a private communicator."""
    of_rank = {1: {"TUTTI_ALLREDUCE": "rings"}}
    program = [mpi.program("progress")]
    result = job(mpi, 2, program, tmp_path, environment={}, of_rank=of_rank, timeout_s=60)
    result.assert_passed("progress")
    assert result.lines("rank 1 has other tuning rules"), str(result)


def test_host_memory__is_carried_by_shared_memory_without_a_setting(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two ranks need two cores: with one, host memory stays with the MPI")
    environment = {"TUTTI_LOG_LEVEL": "info"}
    result = job(mpi, 2, [mpi.program("progress")], tmp_path, environment=environment)
    result.assert_passed("progress")
    assert result.lines("shared memory of this communicator is ready"), str(result)


def test_direct_on_host_memory__lets_messages_of_the_program_go_on(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Open MPI without single copies: a sender that does not progress blocks its receiver."""
    once_per_library(mpi)
    environment = DIRECT | {"TUTTI_STRICT": "1", "OMPI_MCA_smsc": "^cma"}
    result = job(mpi, 2, [mpi.program("progress")], tmp_path, environment=environment, timeout_s=60)
    result.assert_passed("progress")


COPIES = DIRECT | {"TUTTI_ALLGATHER": "direct-copy", "TUTTI_ALLTOALL": "direct-copy"}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_copies_on_device_memory(
    mpi: Mpi, ranks: int, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    parts = "roots,vectors,mixed" if ranks == 3 else "types,counts,roots,vectors,mixed"
    result = collectives(mpi, ranks, tmp_path, "hostdevice", "--only", parts, extra=COPIES)
    result.assert_passed("collectives")


@pytest.mark.parametrize("mix", ["alternate", "random:7"])
def test_copies_on_mixed_memory(mpi: Mpi, mix: str, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    handles = {"TUTTI_DIRECT_HANDLES": "descriptor"} if mix == "alternate" else {}
    result = collectives(
        mpi, 3, tmp_path, "hostdevice", "--mixed", mix, "--only", "mixed", extra=COPIES | handles
    )
    result.assert_passed("collectives")


def topology_file(path: Path, nodes: str) -> dict[str, str]:
    """The variable that names a topology file with these nodes, after writing it."""
    path.write_text(f'{{"schema": "tutti-topology/1", "nodes": {nodes}}}')
    return {"TUTTI_TOPOLOGY_FILE": str(path)}


RINGS = dict.fromkeys(
    ("TUTTI_ALLGATHER", "TUTTI_ALLGATHERV", "TUTTI_REDUCE_SCATTER_BLOCK"), "rings"
) | {"TUTTI_LOG_LEVEL": "error"}


@pytest.mark.parametrize("nodes", ['[{"rails": 4}]', '[{"rails": 1}, {"rails": 7}]'])
def test_rings__over_the_rails_of_a_topology_file(
    mpi: Mpi, nodes: str, preload_library: Path, tmp_path: Path
) -> None:
    """More rails than ranks stripe each rank's block; the file is another on one rank."""
    once_per_library(mpi)
    extra = RINGS | topology_file(tmp_path / "all.json", nodes)
    one = topology_file(tmp_path / "one.json", '[{"rails": 3, "sockets": [{}, {}]}]')
    for of_rank in (None, {1: one}):
        result = collectives(
            mpi, 5, tmp_path, "host", "--only", "roots", nodes=2, extra=extra, of_rank=of_rank
        )
        result.assert_passed("collectives")


@pytest.mark.parametrize("rank", [None, 1])
def test_bad_topology_file__named_and_native(
    mpi: Mpi, rank: int | None, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    bad = topology_file(tmp_path / "bad.json", '[{"railz": 4}]')
    extra = RINGS | {"TUTTI_LOG_LEVEL": "warn"} | ({} if rank is not None else bad)
    result = collectives(
        mpi, 3, tmp_path, "host", "--only", "roots", nodes=2, extra=extra,
        of_rank=None if rank is None else {rank: bad},
    )  # fmt: skip
    result.assert_passed("collectives")
    if rank is None:
        assert result.lines(r"bad\.json:1: nodes\[0\]: unknown key 'railz'"), result
    else:
        assert result.lines("rank 1 has other tuning rules"), result


@pytest.mark.parametrize(("plan", "nodes"), CCL_PLANS)
@pytest.mark.parametrize("memory", ["cuda", "hip"])
def test_ccl_plans(
    mpi: Mpi, memory: str, plan: str, nodes: int, preload_library: Path, tmp_path: Path
) -> None:
    take_turns(mpi, CCL_PLANS.index((plan, nodes)) + (memory == "hip"))
    result = collectives(
        mpi, 3, tmp_path, memory, "--only", "roots,vectors,user", plan=plan, nodes=nodes
    )
    result.assert_passed("collectives")


@pytest.mark.parametrize(
    ("ranks", "memory", "plan", "nodes"), [(5, "cuda", "ccl-alpha", 3), (9, "hostdevice", "", 0)]
)
def test_many_ranks(
    mpi: Mpi, ranks: int, memory: str, plan: str, nodes: int, preload_library: Path, tmp_path: Path
) -> None:
    """More ranks than cores, each of which spins: small parts only (deep: all)."""
    take_turns(mpi, ranks // 9)
    parts = TINY if ranks < 9 else "barrier,mixed"
    result = collectives(
        mpi, ranks, tmp_path, memory, "--only", parts, plan=plan, nodes=nodes, timeout_s=LONG_S
    )
    result.assert_passed("collectives")


def test_alpha__of_two_libraries_in_chunks(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """NCCL on the nodes and MPI among leaders, whose part is cut as the rule says."""
    once_per_library(mpi)
    tuning = tmp_path / "tuning.json"
    parameters = {"leaders_backend": "mpi", "chunk_bytes": "256"}
    rule = {"collective": "any", "plan": "ccl-alpha", "parameters": parameters}
    tuning.write_text(json.dumps({"schema": "tutti-tuning/1", "rules": [rule]}))
    extra = {"TUTTI_TUNING_FILE": str(tuning), "TUTTI_LOG_LEVEL": "info"}
    result = collectives(
        mpi, 4, tmp_path, "cuda", "--only", "matrix", nodes=2, extra=extra, timeout_s=LONG_S
    )
    result.assert_passed("collectives")
    assert "ccl-alpha" in result.stderr, str(result)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("memory", ["hostdevice", "cuda"])
def test_mixed_memory(
    mpi: Mpi, memory: str, mix: str, preload_library: Path, tmp_path: Path
) -> None:
    """Ranks and buffers of differing kinds, in every order, end and are right."""
    take_turns(mpi, MIXES.index(mix) + (memory == "cuda"))
    for ranks in (2, 3):
        parts = "mixed,vectors" if ranks == 2 else "mixed"
        result = collectives(mpi, ranks, tmp_path, memory, "--mixed", mix, "--only", parts)
        result.assert_passed("collectives")


def test_threads(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    for memory in ("host", "hostdevice", "cuda"):
        environment, path = setting(memory)
        result = job(
            mpi,
            3,
            [mpi.program("threads"), "--memory", memory],
            tmp_path,
            environment=environment,
            library_path=path,
        )
        assert result.status == 0, str(result)
        if "threads: skipped" in result.stdout:
            pytest.skip(result.stdout.strip())
        result.assert_passed("threads")


@pytest.mark.parametrize("memory", ["host", "hostdevice"])
def test_threads__make_communicators_of_the_same_ranks(
    mpi: Mpi, memory: str, preload_library: Path, tmp_path: Path
) -> None:
    """Open MPI 5.0 hangs where one of ours is made meanwhile."""
    once_per_library(mpi)
    environment, path = setting(memory)
    options = ["--memory", memory, "--groups", "--calls", "100"]
    command = [mpi.program("threads"), *options]
    result = job(mpi, 4, command, tmp_path, environment=environment, library_path=path)
    if "threads: skipped" in result.stdout:
        pytest.skip(result.stdout.strip())
    result.assert_passed("threads")


def test_threads__the_end_waits_in_no_circle(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """Ranks made their communicators in differing orders, and MPI_Finalize ends them all, where the
    ranks of a node leave NCCL's communicators together."""
    environment, path = setting("cuda")
    result = job(
        mpi,
        2,
        [mpi.program("threads"), "--memory", "cuda", "--calls", "4", "--keep"],
        tmp_path,
        environment=environment | {"FAKE_CCL_MEET": "ncclCommDestroy"},
        library_path=path,
    )
    assert result.status == 0, str(result)
    if "threads: skipped" in result.stdout:
        pytest.skip(result.stdout.strip())
    result.assert_passed("threads")


# NCCL really runs.


def ccl_calls(log: Path) -> set[str]:
    """Names of the functions the NCCL fake logged."""
    return {line.split()[0] for line in log.read_text().splitlines()} if log.exists() else set()


@pytest.mark.skipif(REAL_GPU, reason="the real NCCL writes no log of calls")
def test_ccl_carries_the_calls(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    log = tmp_path / "ccl.log"
    collectives(
        mpi,
        2,
        tmp_path,
        "cuda",
        "--only",
        "counts,roots",
        plan="ccl-beta",
        extra={"FAKE_CCL_LOG": str(log)},
    ).assert_passed("collectives")
    expected = "AllReduce AllGather ReduceScatter Reduce Broadcast Send Recv"
    assert {f"nccl{name}" for name in expected.split()} <= ccl_calls(log)


@pytest.mark.skipif(REAL_GPU, reason="the real NCCL writes no log of calls")
def test_ccl_stays_out_of_native_plans(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    log = tmp_path / "ccl.log"
    collectives(
        mpi,
        2,
        tmp_path,
        "cuda",
        "--only",
        "roots",
        plan="mpi-staged",
        extra={"FAKE_CCL_LOG": str(log)},
    ).assert_passed("collectives")
    carriers = {call for call in ccl_calls(log) if re.fullmatch(r"nccl[A-Z][a-zA-Z]+", call)}
    assert not carriers & {"ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclSend", "ncclRecv"}


@pytest.mark.skipif(REAL_GPU, reason="the real NCCL writes no log of calls")
@pytest.mark.parametrize(("plan", "communicators"), [("ccl-streams(3)", 1), ("ccl-comms(3)", 3)])
def test_pipelines__communicators_are_made_once(
    mpi: Mpi, plan: str, communicators: int, preload_library: Path, tmp_path: Path
) -> None:
    """Eight allreduces on each of two ranks, of three chunks each."""
    once_per_library(mpi)
    log = tmp_path / "ccl.log"
    result = run_errors(mpi, tmp_path, TUTTI_ALLREDUCE=plan, FAKE_CCL_LOG=str(log))
    assert error_counts(result) == (16, 0, 0, 0), str(result)
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    assert calls.count("ncclCommInitRankConfig") == 2 * communicators, str(result)
    assert calls.count("ncclAllReduce") == 2 * 8 * 3, str(result)


@pytest.mark.skipif(REAL_GPU, reason="faults are injected into the fakes")
@pytest.mark.parametrize("strict", [False, True])
def test_pipelines__a_rank_without_its_communicators_is_a_fall_back_for_all(
    mpi: Mpi, strict: bool, preload_library: Path, tmp_path: Path
) -> None:
    """Rank 1 makes the whole communicator and the second of the pipeline, not the third."""
    once_per_library(mpi)
    result = collectives(
        mpi, 2, tmp_path, "cuda", "--only", "matrix",
        extra={"TUTTI_ALLREDUCE": "ccl-comms(3)", "TUTTI_LOG_LEVEL": "warn", "TUTTI_TIMEOUT": "2"}
        | {"FAKE_CCL_FAIL": "ncclCommInitRankConfig:2@1", "TUTTI_STRICT": str(int(strict))},
    )  # fmt: skip
    said = result.lines(r"ccl-comms\(3\) refused: rank 1 could not initialise it")
    assert said, str(result)
    if strict:
        assert result.status not in (0, None), str(result)
        return
    result.assert_passed("collectives")
    assert len(said) == 1, str(result)


@pytest.mark.parametrize(
    ("handles", "said"),
    [
        ("ipc", r"of staging memory\)"),
        ("descriptor", "of staging memory by descriptors"),
        ("fabric", "no direct backend on this communicator: rank .* staging memory"),
    ],
)
def test_direct_handles(
    mpi: Mpi, handles: str, said: str, preload_library: Path, tmp_path: Path
) -> None:
    """However the ranks show their memory to each other; where they cannot, other plans carry."""
    once_per_library(mpi)
    result = collectives(
        mpi, 3, tmp_path, "hostdevice", "--only", "roots",
        extra={"TUTTI_DIRECT_HANDLES": handles, "TUTTI_LOG_LEVEL": "info"},
    )  # fmt: skip
    result.assert_passed("collectives")
    assert result.lines(said), str(result)


# Each algorithm that moves data alone, of the choices above, over the CCL's messages.
MOVING = ("allgather", "allgatherv", "bcast", "gather", "scatter", "alltoall")


@pytest.mark.parametrize("choice", range(len(SCHEDULES)))
def test_schedules_over_the_ccl(
    mpi: Mpi, choice: int, preload_library: Path, tmp_path: Path
) -> None:
    """Strict: what a schedule did not carry is an error; all else stays as by default."""
    take_turns(mpi, choice)
    extra = {"TUTTI_LOG_LEVEL": "error", "TUTTI_STRICT": "1"}
    for name, plan in SCHEDULES[choice].items():
        if name in MOVING:
            extra[f"TUTTI_{name.upper()}"] = "ccl:" + plan.removeprefix("schedule:")
    parts = "roots,vectors"
    result = collectives(mpi, 4, tmp_path, "cuda", "--only", parts, nodes=2, extra=extra)
    result.assert_passed("collectives")


# What ranks disagree on.

# Each: name, options, variables of all, variables of rank 1, what the one line says.
NOWHERE = "/nowhere/libnccl.so.2"
DISAGREEMENTS = [
    ("same-gpu", ["--same-device"], {}, {}, r"ranks 0 and 1 share"),
    ("no-nccl", [], {}, {"TUTTI_CCL_LIBRARY": NOWHERE}, rf"rank 1: .*{NOWHERE}"),
    ("versions", [], {}, {"FAKE_CCL_VERSION": "21903"}, r"rank 1 has nccl 2\.19\.3"),
    ("rules", [], {}, {"TUTTI_ALLREDUCE": "mpi"}, r"rank 1 has other tuning rules"),
]


@pytest.mark.parametrize("case", DISAGREEMENTS, ids=[case[0] for case in DISAGREEMENTS])
def test_disagreement__one_line_and_native_for_all(
    mpi: Mpi,
    case: tuple[str, list[str], dict[str, str], dict[str, str], str],
    preload_library: Path,
    tmp_path: Path,
) -> None:
    once_per_library(mpi)
    _, options, extra, rank1, expected = case
    log = tmp_path / "ccl.log"
    environment = {"FAKE_CCL_LOG": str(log), **extra}
    result = small_allreduces(
        mpi, 2, tmp_path, *options, extra=environment, of_rank={1: rank1} if rank1 else None
    )
    result.assert_passed("collectives")
    said = [line for line in result.lines(expected) if "allreduce" in line or "rules" in line]
    assert len(said) == 1, f"{len(said)} lines say {expected!r}\n{result}"
    assert "ncclAllReduce" not in ccl_calls(log)


@pytest.mark.parametrize("case", DISAGREEMENTS, ids=[case[0] for case in DISAGREEMENTS])
def test_disagreement__strict_makes_it_an_error(
    mpi: Mpi,
    case: tuple[str, list[str], dict[str, str], dict[str, str], str],
    preload_library: Path,
    tmp_path: Path,
) -> None:
    once_per_library(mpi)
    _, options, extra, rank1, expected = case
    result = small_allreduces(
        mpi,
        2,
        tmp_path,
        *options,
        extra={"TUTTI_STRICT": "1", **extra},
        of_rank={1: rank1} if rank1 else None,
    )
    assert result.status not in (0, None), str(result)
    assert result.lines(r"FAILED allreduce.*returned"), str(result)
    assert result.lines(expected), str(result)


# Failures.


def run_errors(mpi: Mpi, tmp_path: Path, *options: str, ranks: int = 2, **extra: str) -> Finished:
    environment, path = setting("cuda", "ccl-beta")
    environment.update(extra)
    return job(
        mpi,
        ranks,
        [mpi.program("errors"), "--memory", "cuda", *options],
        tmp_path,
        environment=environment,
        library_path=path,
        timeout_s=90,
    )


def error_counts(result: Finished) -> tuple[int, int, int, int]:
    found = re.search(
        r"^errors: (\d+) calls, (\d+) errors, (\d+) wrong, (\d+) handler calls$",
        result.stdout,
        re.MULTILINE,
    )
    assert found, str(result)
    calls, errors, wrong, handled = map(int, found.groups())
    return calls, errors, wrong, handled


def test_errors__none_without_a_fault(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    result = run_errors(mpi, tmp_path)
    assert result.status == 0, str(result)
    assert error_counts(result) == (16, 0, 0, 0), str(result)


@pytest.mark.skipif(REAL_GPU, reason="faults are injected into the fakes")
@pytest.mark.parametrize("handler", ["return", "count"])
def test_errors__failing_ccl_reaches_the_error_handler(
    mpi: Mpi, handler: str, preload_library: Path, tmp_path: Path
) -> None:
    result = run_errors(mpi, tmp_path, "--handler", handler, FAKE_CCL_FAIL="ncclAllReduce:2")
    assert result.status == 0, str(result)
    calls, errors, wrong, handled = error_counts(result)
    assert (calls, wrong) == (16, 0), str(result)
    assert errors >= 2, str(result)
    assert handled == (errors if handler == "count" else 0), str(result)


@pytest.mark.skipif(REAL_GPU, reason="faults are injected into the fakes")
def test_errors__fault_on_one_rank_only_is_no_hang(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    started = time.monotonic()
    result = run_errors(mpi, tmp_path, FAKE_CCL_FAIL="ncclAllReduce:2@1", TUTTI_TIMEOUT="5")
    assert result.status is not None, str(result)
    assert time.monotonic() - started < 60
    if "errors:" in result.stdout:
        assert error_counts(result)[2] == 0, str(result)


@pytest.mark.skipif(REAL_GPU, reason="faults are injected into the fakes")
def test_errors__stalled_ccl_ends_by_the_timeout(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    started = time.monotonic()
    result = run_errors(
        mpi, tmp_path, "--calls", "4", FAKE_CCL_STALL="ncclAllReduce:1", TUTTI_TIMEOUT="2"
    )
    assert result.status == 0, str(result)
    calls, errors, wrong, _ = error_counts(result)
    assert (calls, wrong) == (8, 0), str(result)
    assert errors >= 2, str(result)
    assert time.monotonic() - started < 60


def test_errors__killed_peer_is_no_hang(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    started = time.monotonic()
    result = run_errors(mpi, tmp_path, "--kill", "1", ranks=3, TUTTI_TIMEOUT="5")
    assert result.status not in (0, None), str(result)
    assert time.monotonic() - started < 60


# Configuration.


def test_unknown_variable__warned_of_once(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    result = small_allreduces(mpi, 2, tmp_path, extra={"TUTTI_TIMEOUTT": "3"})
    result.assert_passed("collectives")
    said = result.lines(r"TUTTI_TIMEOUTT")
    assert len(said) == 1, str(result)
    assert re.search(r"did you mean.*TUTTI_TIMEOUT\b", said[0]), str(result)


def test_bad_tuning_file__named_and_native(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    tuning = tmp_path / "tuning.json"
    tuning.write_text('{\n  "rules": [\n    {"colective": "allreduce", "plan": "ccl-beta"}\n  ]\n}')
    result = small_allreduces(mpi, 2, tmp_path, extra={"TUTTI_TUNING_FILE": str(tuning)})
    result.assert_passed("collectives")
    said = result.lines(re.escape(str(tuning)))
    assert any(re.search(r"tuning\.json:\d+: .*colective", line) for line in said), str(result)


def test_disabled__is_silent(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    once_per_library(mpi)
    result = collectives(
        mpi, 2, tmp_path, "host", "--only", "roots", extra={"TUTTI_ENABLE": "0"}, plan="ccl-beta"
    )
    result.assert_passed("collectives")
    assert not result.lines("tutti"), str(result)


def test_defaults_on_host_buffers__are_silent(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    command = [mpi.program("collectives"), "--only", "roots,errors"]
    result = job(mpi, 2, command, tmp_path, environment={})
    result.assert_passed("collectives")
    assert result.stderr.strip() == "", str(result)


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"TUTTI_VIRTUAL_NODES": "2"}, "for host memory on 2 nodes; remedy: a plan by hand"),
        ({"TUTTI_ENABLE": "0", "TUTTI_ALLREDUCE": "direct"}, "TUTTI_ENABLE=0 on some rank"),
        ({"TUTTI_DEVICE": "none"}, "more ranks than cores that they may use"),
    ],
    ids=["nodes", "disabled", "oversubscribed"],
)
def test_native_communicators__say_why(
    mpi: Mpi, variables: dict[str, str], why: str, preload_library: Path, tmp_path: Path
) -> None:
    once_per_library(mpi)
    is_crowded = "cores" in why and (os.cpu_count() or 1) > 1
    # One rank is enough to disable all; if all are, nobody looks at a communicator.
    of_rank = {1: variables} if "TUTTI_ENABLE" in variables else {}
    environment = {"TUTTI_LOG_LEVEL": "info"} | ({} if of_rank else variables)
    command = ["taskset", "-c", f"{min(os.sched_getaffinity(0))}"] if is_crowded else []
    command += [str(mpi.program("collectives")), "--only", "roots"]
    result = job(mpi, 2, command, tmp_path, environment=environment, of_rank=of_rank)
    result.assert_passed("collectives")
    assert result.lines(f"INFO communicator: 2 ranks, native: .*{why}"), str(result)


# Not in the way.


def test_inert__in_a_program_without_mpi(preload_library: Path) -> None:
    program = build_directory() / "tests" / "mpi" / "none" / "inert"
    for variables in ({}, {"LD_LIBRARY_PATH": str(fakes("cuda")), "TUTTI_TYPO": "1"}):
        environment = plain_environment() | {"LD_PRELOAD": str(preload_library)} | variables
        result = execute([str(program)], environment, 30)
        assert result.status == 0, str(result)
        assert (result.stdout, result.stderr) == ("", ""), str(result)


def test_inert__in_shells_and_python(preload_library: Path) -> None:
    environment = plain_environment() | {"LD_PRELOAD": str(preload_library)}
    for command in (["sh", "-c", "echo $((6*7)) | cat"], ["python3", "-c", "print(42)"]):
        result = execute(command, environment, 30)
        assert (result.status, result.stdout, result.stderr) == (0, "42\n", ""), str(result)


def test_preload_of_the_launcher_itself(mpi: Mpi, preload_library: Path) -> None:
    """LD_PRELOAD in front of mpirun: the launcher works, and its children are accelerated."""
    environment = plain_environment() | {
        "LD_PRELOAD": str(preload_library),
        "LD_LIBRARY_PATH": str(mpi.libraries),
    }
    command = [*mpi.launch(2), str(mpi.program("collectives")), "--only", "roots"]
    result = execute(command, environment, 60)
    result.assert_passed("collectives")
    assert result.stderr.strip() == "", str(result)


# Mpi4py.


def mpi4py_environment(mpi: Mpi) -> tuple[str, dict[str, str]]:
    """A Python with an mpi4py for this MPI, and the variables it needs."""
    python = mpi4py_python(mpi.flavour)
    libraries = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}
    probe = [python, "-c", "import mpi4py, numpy"]
    if not Path(python).exists() or subprocess.run(probe, capture_output=True).returncode != 0:
        unavailable(f"{python}: no mpi4py and numpy for {mpi.flavour} (make build installs them)")
    if mpi.flavour == "abi":
        return python, {}
    return python, {
        "MPI4PY_MPIABI": mpi.flavour,
        "MPI4PY_LIBMPI": str(mpi.libraries / libraries[mpi.flavour]),
    }


@pytest.mark.parametrize("memory", ["native", "host", "hostdevice", "mixed"])
def test_mpi4py(mpi: Mpi, memory: str, preload_library: Path, tmp_path: Path) -> None:
    python, variables = mpi4py_environment(mpi)
    environment, _ = setting("host" if memory in ("native", "host") else "hostdevice")
    environment.update(variables)
    program = Path(__file__).with_name("mpi4py_collectives.py")
    kind = "host" if memory == "native" else memory
    for ranks in (1, 3) if memory == "host" else (3,):
        result = job(
            mpi,
            ranks,
            [python, program, "--memory", kind],
            tmp_path,
            environment=environment,
            preload=memory != "native",
        )
        result.assert_passed("collectives")


# Deep.

DEEP_CASES = [
    *[("host", plan, nodes) for plan, nodes in HOST_PLANS],
    *[("hostdevice", plan, nodes) for plan, nodes in STAGED_PLANS],
    *[("cuda", plan, nodes) for plan, nodes in CCL_PLANS],
    *[("hip", plan, nodes) for plan, nodes in CCL_PLANS],
]


@pytest.mark.deep
@pytest.mark.parametrize("ranks", range(1, 10))
@pytest.mark.parametrize(("memory", "plan", "nodes"), DEEP_CASES)
def test_deep_plans(
    mpi: Mpi, memory: str, plan: str, nodes: int, ranks: int, preload_library: Path, tmp_path: Path
) -> None:
    result = collectives(mpi, ranks, tmp_path, memory, plan=plan, nodes=nodes, timeout_s=1800)
    result.assert_passed("collectives")


@pytest.mark.deep
@pytest.mark.parametrize("choice", range(len(SCHEDULES)))
@pytest.mark.parametrize(
    ("ranks", "nodes"), [(n, 0) for n in range(1, 10)] + [(3, 3), (6, 2), (8, 3), (12, UNEVEN)]
)
@pytest.mark.parametrize("memory", ["host", "hostdevice", "cuda"])
def test_deep_schedules(
    mpi: Mpi,
    memory: str,
    ranks: int,
    nodes: int | str,
    choice: int,
    preload_library: Path,
    tmp_path: Path,
) -> None:
    """Every part with every schedule; what a schedule does not carry stays native."""
    extra = {f"TUTTI_{name.upper()}": plan for name, plan in SCHEDULES[choice].items()}
    extra |= {"TUTTI_LOG_LEVEL": "error"}
    result = collectives(mpi, ranks, tmp_path, memory, nodes=nodes, extra=extra, timeout_s=1800)
    result.assert_passed("collectives")


@pytest.mark.deep
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("memory", ["hostdevice", "cuda", "hip"])
@pytest.mark.parametrize("plan", ["", "ccl-beta", "mpi-staged"])
def test_deep_mixed(
    mpi: Mpi, memory: str, mix: str, plan: str, preload_library: Path, tmp_path: Path
) -> None:
    for ranks in (2, 3, 4):
        result = collectives(
            mpi, ranks, tmp_path, memory, "--mixed", mix, plan=plan, timeout_s=1800
        )
        result.assert_passed("collectives")


@pytest.mark.deep
@pytest.mark.parametrize("memory", ["host", "hostdevice", "cuda"])
def test_deep_combinations(mpi: Mpi, memory: str, preload_library: Path, tmp_path: Path) -> None:
    """Every type, operation and reduction, every pair of layouts, 2000 random calls."""
    collectives(mpi, 2, tmp_path, memory, "--deep", timeout_s=1800).assert_passed("collectives")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("memory", "plan", "nodes"),
    [
        ("host", "", 0),
        ("host", "schedule:knomial", 0),
        ("host", "mpi-alpha", 2),
        ("hostdevice", "", 0),
    ],
)
def test_deep_huge(
    mpi: Mpi, memory: str, plan: str, nodes: int, preload_library: Path, tmp_path: Path
) -> None:
    """More than 2^31 bytes; needs about 16 GiB of memory."""
    extra = {"TUTTI_BCAST": plan} if plan else {}
    if nodes:
        extra["TUTTI_ALLREDUCE"] = plan
    options = ["--huge", "--only", "huge", "--watchdog", "600"]
    result = collectives(
        mpi, 2, tmp_path, memory, *options, nodes=nodes, extra=extra, timeout_s=900
    )
    result.assert_passed("collectives")
