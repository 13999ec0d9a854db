# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Plans net:NAME: schedules over Tutti's transport, ranks as processes on the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tutti_hpc import bench, measure, mpi, net_ranks, paths, processes, results
from tutti_hpc.cli import main
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import plan, state

from missing import unavailable

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("-i", "3", "-w", "1", "--time-cap", "5")


@pytest.fixture
def program() -> Path:
    found = paths.find_measure("net")
    if found is None:
        unavailable("tutti-measure-net is not built")
    return found


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["bench", *words], prog_name="tutti")


def test_bench__rings_without_mpi(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    words = ["allgather", "-n", "4", "--virtual-nodes", "2", "--plans", "net:rings,net:rings(3)"]
    shown = invoke(*words, "-b", "1K", "-e", "64K", "-f", "64", "--check", *QUICK, "-o", str(out))
    assert shown.exit_code == 0, shown.output
    (document,) = results.load(out)
    assert [(row.bytes, row.plan, row.wrong) for row in document.rows] == [
        (1024, "net:rings", 0),
        (1024, "net:rings(3)", 0),
        (65536, "net:rings", 0),
        (65536, "net:rings(3)", 0),
    ]
    assert (document.ranks, document.nodes, document.memory) == (4, 2, "host")
    assert document.versions.mpi == ""
    assert "net:rings(3)" in shown.stdout


@pytest.mark.parametrize(
    ("collective", "name"),
    [
        ("barrier", "dissemination"),
        ("bcast", "double-tree"),
        ("gather", "binomial"),
        ("scatter", "binomial"),
        ("reduce", "binomial"),
        ("allgatherv", "ring"),
        ("alltoall", "rails"),
        ("alltoallv", "pairwise"),
        ("reduce_scatter", "rings"),
        ("reduce_scatter_block", "recursive-halving"),
    ],
)
def test_program__every_element(program: Path, collective: str, name: str) -> None:
    words = ["--collective", collective, "--algorithms", name, "--begin", "1", "--end", "40000"]
    words += ["--factor", "31", "--check", "--iterations", "2", "--warmup", "1", "--root", "2"]
    lines, statuses = net_ranks.run(program, words, net_ranks.of_machine([0, 0, 1]))
    assert statuses == [0, 0, 0]
    rows = [line for line in lines if "variant" in line]
    assert len(rows) == (1 if collective == "barrier" else 4)
    assert all(row["checked"] and row["wrong"] == 0 for row in rows)


@pytest.mark.parametrize("data_type", ["int8", "uint64", "bfloat16", "complex128"])
def test_program__types(program: Path, data_type: str) -> None:
    op = "prod" if data_type == "complex128" else "max"
    words = ["--collective", "allreduce", "--algorithms", "rabenseifner", "--type", data_type]
    words += ["--op", op, "--end", "4096", "--factor", "64", "--check", "--iterations", "1"]
    lines, statuses = net_ranks.run(program, words, net_ranks.of_machine([0] * 3))
    assert statuses == [0, 0, 0]
    assert [line["wrong"] for line in lines if "variant" in line] == [0, 0]


def test_bench__beside_plans_of_mpi(program: Path, tmp_path: Path) -> None:
    try:
        mpi.find("mpich")
        paths.require_measure("mpich")
    except TuttiError as error:
        unavailable(error.format_message())
    out = tmp_path / "results.json"
    words = ["allreduce", "-n", "2", "--mpi", "mpich", "--plans", "net:ring,native"]
    shown = invoke(*words, "-b", "1K", "-e", "4K", "-f", "4", "-c", *QUICK, "-o", str(out))
    assert shown.exit_code == 0, shown.output
    (document,) = results.load(out)
    assert [(row.bytes, row.plan) for row in document.rows] == [
        (1024, "net:ring"),
        (1024, "native"),
        (4096, "net:ring"),
        (4096, "native"),
    ]
    assert document.versions.mpi.startswith("MPICH")
    assert document.speedup(document.rows[0]) is not None


def test_bench__what_cannot_be(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    unknown = invoke("allgather", "-n", "2", "--plans", "net:nonsense")
    assert unknown.exit_code == 2
    assert "net:nonsense: no such schedule of allgather; there are net:linear, net:ring," in (
        unknown.output
    )
    assert capfd.readouterr().err == ""  # Nothing was started.
    device = invoke("allgather", "--plans", "net:rings", "--memory", "device")
    assert device.exit_code == 2
    assert "net:rings: for host memory only; remedy: --memory host" in device.output
    both = invoke("allgather", "--plans", "net:rings", "--lab", "x", "--virtual-nodes", "2")
    assert both.exit_code == 2
    assert "a lab has nodes of its own" in both.output
    none = invoke("allgather", "--plans", "net:rings", "--lab", "no-such-lab")
    assert none.exit_code == 2
    assert "no lab is up; remedy: tutti lab --name no-such-lab up" in none.output


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_bench__a_rank_that_dies_ends_all_with_its_name(program: Path) -> None:
    words = ["allgather", "-n", "4", "--plans", "net:ring", "-b", "64K", "-e", "64K"]
    with subprocess.Popen(
        [sys.executable, "-m", "tutti_hpc", "bench", *words, "-i", "100000000", "--time-cap", "60"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 20
        while len(children(process.pid)) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        ranks = children(process.pid)
        assert len(ranks) == 4
        time.sleep(1)  # They have met and are at it; if not, it ends as well.
        os.kill(ranks[2], signal.SIGKILL)
        start = time.monotonic()
        _, said = process.communicate(timeout=30)
        assert time.monotonic() - start < 20
    assert process.returncode == 2
    assert "the measured program failed: rank 2 of signal 9" in said
    for rank in (0, 1, 3):
        assert f"tutti-measure: rank {rank}: bootstrap: rank 2 (" in said


def is_there(pid: int) -> bool:
    """And no zombie that nobody has waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return [*below, *(deeper for child in below for deeper in descendants(child))]


@pytest.mark.parametrize("plan_name", ["net:ring", "native"])
def test_bench__that_is_ended_takes_its_job_along(program: Path, plan_name: str) -> None:
    if plan_name == "native":
        try:
            mpi.find("mpich")
            paths.require_measure("mpich")
        except TuttiError as error:
            unavailable(error.format_message())
    words = ["allgather", "-n", "2", "--plans", plan_name, "--mpi", "mpich", "-b", "64K"]
    with subprocess.Popen(
        [sys.executable, "-m", "tutti_hpc", "bench", *words, "-e", "64K", "-i", "100000000"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + 20
        while len(descendants(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3)
        started = descendants(process.pid)
        assert len(started) >= 2
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
    deadline = time.monotonic() + 5
    while any(map(is_there, started)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_there, started))


def stopped() -> subprocess.Popen[bytes]:
    """A process that is stopped: it takes SIGKILL alone."""
    process = subprocess.Popen(["sh", "-c", "kill -STOP $$; exec sleep 60"])
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    return process


def test_wait__a_stopped_rank_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KILL_AFTER_S", 0.2)
    program = tmp_path / "rank"
    program.write_text("#!/bin/sh\nkill -STOP $$\n")
    program.chmod(0o755)
    job = net_ranks._Job(program, [], net_ranks.of_machine([0, 0]))
    job.start_others("127.0.0.1:1")
    assert job.wait(0.2) == [-signal.SIGKILL] * 2


def test_processes__end_in_bounded_time() -> None:
    good = subprocess.Popen(["sleep", "60"])
    assert processes.end([good, stopped()], 0.2) == [-signal.SIGTERM, -signal.SIGKILL]
    ended = subprocess.Popen(["false"])
    ended.wait()
    assert processes.end([ended]) == [1]


def test_processes__wait_for_the_others_of_one_that_failed() -> None:
    assert processes.wait([subprocess.Popen(["true"]) for _ in range(2)], 60) == [0, 0]
    both = [subprocess.Popen(["false"]), subprocess.Popen(["sleep", "60"])]
    assert processes.wait(both, 0.1) == [1, -signal.SIGTERM]


@pytest.mark.usefixtures("default_signals")
def test_processes__a_signal_is_an_exit_in_its_scope_alone() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with (
        pytest.raises(SystemExit) as raised,
        subprocess.Popen(["sleep", "60"]) as process,
        processes.signals_as_exits(),
        processes.ended_with(process),
    ):
        os.kill(os.getpid(), signal.SIGHUP)
    assert raised.value.code == 128 + signal.SIGHUP
    assert process.returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGHUP) == before


def test_run__a_rank_that_never_comes_does_not_hold_up_the_others(tmp_path: Path) -> None:
    program = paths.find_measure("net")
    if program is None:
        unavailable("tutti-measure-net is not built")
    here = net_ranks.of_machine([0, 0])
    ranks = (here.ranks[0], net_ranks.Rank(("false",), "node0"))
    words = ["--collective", "allgather", "--algorithms", "ring"]
    start = time.monotonic()
    _, statuses = net_ranks.run(
        program, words, net_ranks.Ranks(ranks, here.bootstrap_host, here.variables)
    )
    assert time.monotonic() - start < 20
    assert statuses[1] == 1
    assert statuses[0] != 0


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        ([0, 0, 0], ""),
        ([2, 2], "every rank with status 2"),
        ([2, 0, 1], "rank 0 with status 2, rank 2 with status 1"),
        ([2, -9, 2], "rank 1 of signal 9"),
        ([2, 2, 137], "rank 2 of signal 9"),
    ],
)
def test_failure(statuses: list[int], text: str) -> None:
    assert net_ranks.failure(statuses) == text


def test_of_lab__a_rank_is_on_its_node_and_knows_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_lab(rate_bps: int) -> state.Place:
        spec = plan.Spec(nodes=2, rails=2, rate_bps=rate_bps)
        found = state.State(spec, state.Process(1, 1), ready=True)
        monkeypatch.setattr(state.Place, "require", lambda _: found)
        return bench.parse_lab(f"{tmp_path}/mine")

    place = with_lab(100_000_000)
    assert (place.base, place.name) == (tmp_path, "mine")
    found = net_ranks.of_lab(place, 4, 2)
    assert [rank.node for rank in found.ranks] == ["n0", "n0", "n1", "n1"]
    assert found.ranks[3].prefix[-4:] == ("mine", "exec", "n1", "--")
    assert found.bootstrap_host == "192.168.0.1"
    # 64 with their headers fit into a queue of 1 MB.
    assert found.variables == {
        "NCCL_SOCKET_IFNAME": "rail",
        "TUTTI_NET_SPEED": "100",
        "TUTTI_NET_CHUNK": "14062",
    }
    # 25,000 bytes of the token bucket; the queue would take more.
    assert plan.chunk_bytes(100_000_000, 1_000_000) == 22_500
    assert "TUTTI_NET_CHUNK" not in net_ranks.of_lab(with_lab(10**9), 2, 1).variables
    with pytest.raises(TuttiError, match="5 ranks at 2 per node need 3 nodes; the lab has 2"):
        net_ranks.of_lab(place, 5, 2)


def test_job__plans_are_told_apart() -> None:
    job = measure.Job("allgather", 2, plans=bench.parse_plans("native,net:rings,net:ring(4)"))
    assert job.mpi_plans == ("native",)
    assert job.net_plans == ("net:rings", "net:ring(4)")
    assert [variant.plan for variant in measure.variants(job)] == ["native"]
