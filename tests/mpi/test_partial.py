# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of which some processes run without Tutti: native results, or one clear error in time.

Each job makes every blocking collective the first call on a communicator of its own, under the
shipped rules and with every collective forced to a plan of ours.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import (
    MPICH_SHARES_CORES,
    Finished,
    Mpi,
    at_once,
    build_directory,
    execute,
    forced,
    job,
    plain_environment,
)
from missing import unavailable

NONE = build_directory() / "tests" / "mpi" / "none"
WITHOUT = {"LD_PRELOAD": ""}
NO_PLAN = {"none", "native"}  # Without us, and with us where every call is MPI's own.
ABSENT = "no preload there, or an MPI_Init that did not pass it"
FORTRAN = "calls of Open MPI's Fortran functions do not pass Tutti"
# No rule of ours, and each collective on shared memory.
PLANS = {"shipped": {}, "direct": forced("direct")}

both_plans = pytest.mark.parametrize("plan", PLANS)


def partial_under_both(
    mpi: Mpi, ranks: int, directory: Path, *how: str, **options: Any
) -> Iterable[Finished]:
    """Jobs whose ranks wait a second or two for those without us."""
    return at_once(
        PLANS, directory, lambda plan, own: partial(mpi, ranks, own, *how, plan=plan, **options)
    ).values()


def partial(
    mpi: Mpi,
    ranks: int,
    directory: Path,
    *how: str | Path,
    plan: str = "direct",
    of_rank: Mapping[int, Mapping[str, str]] | None = None,
    environment: Mapping[str, str] | None = None,
    preload: bool = True,
    timeout_s: float = 120,
) -> Finished:
    return job(
        mpi,
        ranks,
        [mpi.program("partial"), *how],
        directory,
        environment=PLANS[plan] | dict(environment or {}),
        of_rank=of_rank,
        preload=preload,
        timeout_s=timeout_s,
    )


def plans(result: Finished) -> set[str]:
    """Of the last call, as each rank sees it."""
    return set(re.findall(r"^partial: rank \d+: plan (\S+)$", result.stdout, re.MULTILINE))


def assert_native(result: Finished, *said: str) -> None:
    """Right values, no plan of ours, and one line that says which ranks are without us."""
    result.assert_passed("partial")
    assert plans(result) <= NO_PLAN, str(result)
    lines = result.lines("WARN collectives are the MPI library's own with these ranks of MPI_COMM")
    assert len(lines) == 1, str(result)
    for text in said:
        assert text in lines[0], str(result)


def skip_without_sessions(result: Finished) -> None:
    if "partial: skipped" in result.stdout:
        unavailable("this MPI has no sessions")


def fortran_of(mpi: Mpi) -> Path:
    """What stands in the place of an MPI's Fortran layer."""
    return NONE / "libmpi_mpifh.so.40" if mpi.flavour == "openmpi" else fortran_08(mpi)


def fortran_08(mpi: Mpi) -> Path:
    return mpi.program("libfortran.so")


def test_store_that_forgets_what_came_before_init(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """The Hydra of MPICH 3.4 and 4.0."""
    if mpi.flavour == "openmpi":
        pytest.skip("Open MPI's launcher has another store")
    store = Path(__file__).with_name("forgetful_store.py")
    result = job(
        mpi,
        3,
        [sys.executable, store, mpi.program("partial"), "world"],
        tmp_path,
        environment=PLANS["direct"],
        timeout_s=120,
    )
    result.assert_passed("partial")
    assert not plans(result) & NO_PLAN, str(result)


@pytest.mark.parametrize("without", [0, 1])
def test_one_rank_without(mpi: Mpi, preload_library: Path, tmp_path: Path, without: int) -> None:
    for result in partial_under_both(mpi, 3, tmp_path, "world", of_rank={without: WITHOUT}):
        assert_native(result, f"MPI_COMM_WORLD: {without}", ABSENT)


def test_several_ranks_without(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """They cut the tree along which the others hear of them, at its root, in the middle."""
    cases = {"0": (0,), "1-2": (1, 2), "0, 3, 5": (0, 3, 5)}

    def run(name: str, directory: Path) -> Finished:
        return partial(mpi, 7, directory, "world", of_rank=dict.fromkeys(cases[name], WITHOUT))

    for name, result in at_once(cases, tmp_path, run).items():
        assert_native(result, "")
        line = result.lines("MPI_COMM_WORLD")[0]
        named = re.sub(r" \(.*?\)", "", line).split("MPI_COMM_WORLD: ")[1].split(": ")[0]
        assert named == name, str(result)


def test_preload_that_is_missing_on_one_rank(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """The loader warns and starts the program without it, as it does a static or set-uid one."""
    missing = {"LD_PRELOAD": str(tmp_path / "no" / "libtutti-mpi.so")}
    for result in partial_under_both(mpi, 2, tmp_path, "world", of_rank={1: missing}):
        assert result.lines("ld.so.*ignored"), str(result)
        assert_native(result, "MPI_COMM_WORLD: 1", ABSENT)


def test_one_node_without(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    two = {2: WITHOUT, 3: WITHOUT}
    nodes = {"TUTTI_VIRTUAL_NODES": "2"}
    for result in partial_under_both(mpi, 4, tmp_path, "world", of_rank=two, environment=nodes):
        assert_native(result, "MPI_COMM_WORLD: 2-3", ABSENT)


def two_proxies(mpi: Mpi, preload_library: Path, directory: Path, without: str) -> Finished:
    """Two ranks whose launcher's servers are apart, as those of two nodes are."""
    script = directory / "rank.sh"
    script.write_text(
        f'#!/bin/sh\n[ "$PMI_RANK" = "{without}" ] || '
        f'export LD_PRELOAD={preload_library}\nexec "$@"\n'
    )
    script.chmod(0o755)
    launch = [*mpi.launch(2), "-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-ppn", "1"]
    environment = plain_environment() | MPICH_SHARES_CORES | PLANS["direct"]
    environment |= {"LD_LIBRARY_PATH": str(mpi.libraries)}
    return execute([*launch, str(script), str(mpi.program("partial")), "world"], environment, 120)


@pytest.mark.parametrize("mpi", ["mpich", "abi"], indirect=True)
def test_hydra__of_two_nodes(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    assert_native(two_proxies(mpi, preload_library, tmp_path, "1"), "MPI_COMM_WORLD: 1", ABSENT)
    result = two_proxies(mpi, preload_library, tmp_path, "none")
    result.assert_passed("partial")
    assert "none" not in plans(result), str(result)


def test_merged_partner_without(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    for result in partial_under_both(mpi, 4, tmp_path, "merged", of_rank={2: WITHOUT, 3: WITHOUT}):
        assert_native(result, "MPI_COMM_WORLD: 2-3", ABSENT)


# MPICH's default transport has no room for its address in a port's name.
ACCEPTS = {"MPIR_CVAR_CH4_NETMOD": "ofi"}


def test_connected_partner_without(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    for result in partial_under_both(
        mpi, 2, tmp_path, "connected", of_rank={1: WITHOUT}, environment=ACCEPTS
    ):
        assert_native(result, "MPI_COMM_WORLD: 1", ABSENT)


def spawn(mpi: Mpi, directory: Path, parent: str, child: Sequence[str], plan: str) -> Finished:
    command = ["/usr/bin/env", *child, str(mpi.program("partial")), "child"]
    parents = {rank: {"LD_PRELOAD": parent} for rank in (0, 1)}
    return partial(mpi, 2, directory, "spawn", *command, plan=plan, of_rank=parents)


@both_plans
@pytest.mark.parametrize("who", ["parents", "children", "both"])
def test_spawned_child(
    mpi: Mpi, preload_library: Path, tmp_path: Path, who: str, plan: str
) -> None:
    """The two sides know nothing of each other: no message of ours passes between them."""
    variables = PLANS[plan] | {"LD_PRELOAD": str(preload_library)}
    child = ["-u", "LD_PRELOAD"] if who == "parents" else [f"{k}={v}" for k, v in variables.items()]
    result = spawn(mpi, tmp_path, "" if who == "children" else str(preload_library), child, plan)
    result.assert_passed("partial")
    assert plans(result) <= NO_PLAN, str(result)
    children = set(re.findall(r"^partial: child \d: plan (\S+)$", result.stdout, re.MULTILINE))
    own = "none" if who == "parents" else "direct-gamma" if plan == "direct" else None
    assert children == {own} or own is None, str(result)
    said = result.lines("WARN rank [02] of a communicator was not started with this process")
    assert len(said) == (2 if who == "both" else 1), str(result)


@pytest.mark.parametrize("mpi", ["mpich", "abi"], indirect=True)
@both_plans
def test_another_version(mpi: Mpi, preload_library: Path, tmp_path: Path, plan: str) -> None:
    result = partial(mpi, 3, tmp_path, "version", "1", plan=plan, of_rank={1: WITHOUT})
    assert_native(result, "MPI_COMM_WORLD: 1", "another version of Tutti")


def test_session_without(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    for result in partial_under_both(mpi, 2, tmp_path, "session", of_rank={1: WITHOUT}):
        skip_without_sessions(result)
        assert_native(result, "MPI_COMM_WORLD: 1", ABSENT)


@both_plans
def test_start_by_the_profiling_name(
    mpi: Mpi, preload_library: Path, tmp_path: Path, plan: str
) -> None:
    """A rank whose program or tool calls PMPI_Init has us as the others."""
    result = partial(mpi, 2, tmp_path, "past", "1", plan=plan)
    result.assert_passed("partial")
    assert not result.lines("MPI_COMM_WORLD"), str(result)


@pytest.mark.parametrize("tool", ["tool", "tool_bcast"])
@pytest.mark.parametrize("order", ["behind", "before"])
def test_beside_another_tool(
    mpi: Mpi, preload_library: Path, tmp_path: Path, tool: str, order: str
) -> None:
    """It sees MPI start, behind us or before us, and what it takes it takes on all ranks."""
    library = mpi.program(f"lib{tool}.so")
    both = f"{preload_library} {library}" if order == "behind" else f"{library} {preload_library}"
    result = partial(mpi, 2, tmp_path, "world", environment={"LD_PRELOAD": both}, preload=False)
    result.assert_passed("partial")
    assert result.stdout.count("tool: MPI_Init") == 2, str(result)
    assert not result.lines("MPI_COMM_WORLD"), str(result)
    assert plans(result) == {"direct-gamma"}, str(result)


@both_plans
def test_tool_on_one_rank_takes_a_collective(
    mpi: Mpi, preload_library: Path, tmp_path: Path, plan: str
) -> None:
    first = {"LD_PRELOAD": f"{mpi.program('libtool_bcast.so')} {preload_library}"}
    result = partial(mpi, 2, tmp_path, "world", plan=plan, of_rank={1: first})
    result.assert_passed("partial")
    # What it takes comes back by its profiling name.
    assert not result.lines("MPI_COMM_WORLD"), str(result)


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
@both_plans
def test_c_beside_fortran(mpi: Mpi, preload_library: Path, tmp_path: Path, plan: str) -> None:
    """Open MPI's Fortran layer calls PMPI_X: one rank is in C, another in Fortran."""
    mixed = {"LD_PRELOAD": f"{preload_library} {fortran_of(mpi)}"}
    result = partial(mpi, 3, tmp_path, "mixed", "1", plan=plan, of_rank={1: mixed})
    assert_native(result, "MPI_COMM_WORLD: 1", FORTRAN)


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_fortran_08_of_mpich(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """Its MPI_Init and MPI_Barrier call no C function, and are ours by their Fortran names."""
    mixed = {"LD_PRELOAD": f"{preload_library} {fortran_08(mpi)}"}
    result = partial(mpi, 3, tmp_path, "f08", "1", environment=mixed, preload=False)
    result.assert_passed("partial")
    assert plans(result) == {"direct-gamma"}, str(result)
    without = {"LD_PRELOAD": str(fortran_08(mpi))}
    result = partial(
        mpi, 3, tmp_path, "f08", "1", environment=mixed, of_rank={1: without}, preload=False
    )
    assert_native(result, "MPI_COMM_WORLD: 1", ABSENT)


def test_rank_that_does_not_serve(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """Beside two MPI libraries each of its calls goes to one of them, untouched."""
    two = {"LD_PRELOAD": f"{preload_library} {NONE / 'libmpi.so.99'}"}
    result = partial(mpi, 2, tmp_path, "world", of_rank={1: two})
    assert_native(result, "MPI_COMM_WORLD: 1", "untouched, see that rank's log")


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_open_mpi__that_spreads_no_data_at_its_start(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    """On a busy machine such a start hangs now and then, as often without us (Open MPI 5.0.11)."""
    lazy = {"OMPI_MCA_pmix_base_async_modex": "1", "OMPI_MCA_async_mpi_init": "1"}

    def started(**options: Any) -> Finished:
        for _ in range(4):
            result = partial(mpi, 2, tmp_path, "world", environment=lazy, timeout_s=15, **options)
            if result.status is not None:
                break
            print(f"made again: {result}")
        return result

    result = started()
    result.assert_passed("partial")
    assert plans(result) == {"direct-gamma"}, str(result)
    assert_native(started(of_rank={1: WITHOUT}), "MPI_COMM_WORLD: 1", ABSENT)


@pytest.mark.parametrize("how", ["world", "merged", "session"])
def test_all_have_us__plans_of_ours_are_used(
    mpi: Mpi, preload_library: Path, tmp_path: Path, how: str
) -> None:
    result = partial(mpi, 2, tmp_path, how)
    skip_without_sessions(result)
    result.assert_passed("partial")
    assert plans(result) == {"direct-gamma"}, str(result)
    assert not result.lines("MPI_COMM_WORLD|not started with"), str(result)


def test_strict__a_rank_without_is_an_error(
    mpi: Mpi, preload_library: Path, tmp_path: Path
) -> None:
    result = partial(mpi, 2, tmp_path, "world", of_rank={0: {"TUTTI_STRICT": "1"}, 1: WITHOUT})
    assert result.status not in (0, None), str(result)
    assert result.lines("ERROR TUTTI_STRICT: collectives are .* MPI_COMM_WORLD: 1"), str(result)


def test_disabled__beside_a_rank_without(mpi: Mpi, preload_library: Path, tmp_path: Path) -> None:
    """What is to be native is no fall-back."""
    off = {"TUTTI_ENABLE": "0", "TUTTI_STRICT": "1"}
    result = partial(mpi, 2, tmp_path, "world", of_rank={0: off, 1: WITHOUT})
    result.assert_passed("partial")
    assert not result.stderr, str(result)
