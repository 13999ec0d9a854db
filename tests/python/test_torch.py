# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The PyTorch backend, in jobs of 2 and 4 ranks; torch_ranks.py is what a rank runs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import random
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tutti_hpc import paths

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_S = 600
CASES = (
    "reductions",
    "moves",
    "shapes",
    "aliases",
    "special_operations",
    "works",
    "objects",
    "compiled",
    "messages",
    "groups",
    "training",
    "custom_fsdp",
    "plain_functions",
    "random_programs",
)


@pytest.fixture(scope="module")
def python(torch_python: str) -> Iterator[str]:
    yield torch_python
    if loaded.cache_info().currsize:
        loaded(torch_python).communicate()
    loaded.cache_clear()


@dataclass
class Ended:
    """A rank's end. status None: it had to be killed."""

    status: int | None
    output: str


def free_port() -> int:
    """Below those that the system gives to connections, one of which may come before the job."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
            return port


@functools.cache
def loaded(python: str) -> subprocess.Popen[str]:
    """torch_fork.py, which ends with this process, at the latest."""
    return subprocess.Popen(
        [python, str(HERE / "torch_fork.py")],
        env=rank_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def rank_environment() -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
    library = paths.find(paths.LIBRARY)
    assert library is not None
    return environment | {
        "TUTTI_LIBRARY_DIR": str(library.parent),
        "PYTHONPATH": str(ROOT / "python"),
        "PYTHONWARNINGS": "ignore",
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": "1",
    }


def job_environment(ranks: int, more: dict[str, str]) -> dict[str, str]:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    return rank_environment() | place | more


def run(python: str, case: str, ranks: int, limit_s: float = LIMIT_S, **more: str) -> list[Ended]:
    """Runs the ranks of a job, forks of a process that has torch; none outlives this call."""
    job = {
        "words": [str(HERE / "torch_ranks.py"), case],
        "environment": job_environment(ranks, more),
        "ranks": ranks,
        "limit_s": limit_s,
    }
    forks = loaded(python)
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(json.dumps(job) + "\n")
    forks.stdin.flush()
    line = forks.stdout.readline()
    assert line, f"torch_fork.py has ended: status {forks.wait()}"
    return [Ended(*one) for one in json.loads(line)]


def run_anew(python: str, case: str, ranks: int, **more: str) -> list[Ended]:
    """As run(), where the environment matters while torch is loaded."""
    words = [python, str(HERE / "torch_ranks.py"), case]
    environment = job_environment(ranks, more)
    started = [
        subprocess.Popen(
            words,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    end = time.monotonic() + LIMIT_S
    ended = []
    try:
        for process in started:
            try:
                output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
                ended.append(Ended(process.returncode, output))
            except subprocess.TimeoutExpired:
                process.kill()
                ended.append(Ended(None, process.communicate()[0]))
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    return ended


def expect_success(ended: list[Ended]) -> None:
    for rank, one in enumerate(ended):
        assert one.status == 0, f"rank {rank}: status {one.status}\n{one.output}"
        # A case that ended the process would have passed for those behind it.
        assert "\ncompared " in one.output, f"rank {rank} did not come to its end\n{one.output}"


# The cases follow each other in one job: to start one takes longer than most of them.
@pytest.mark.parametrize("ranks", [2, 4])
def test_torch__all_cases_are_right(python: str, ranks: int) -> None:
    # Once as processes that share nothing: no address, no order of a set.
    expect_success((run_anew if ranks == 2 else run)(python, ",".join(CASES), ranks))


@pytest.fixture(scope="module")
def two_gpus(python: str) -> str:
    words = [python, "-c", "import torch; print(torch.cuda.device_count())"]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    if not found.isdigit() or int(found) < 2:
        pytest.skip(f"torch sees {found or 'no'} GPUs, two are needed")
    return python


def test_torch__messages_go_by_the_interface_that_gloo_is_told(python: str) -> None:
    expect_success(run(python, "messages", 2, GLOO_SOCKET_IFNAME="lo"))
    ended = run(python, "messages", 2, limit_s=60, GLOO_SOCKET_IFNAME="nosuch")
    assert all(one.status != 0 and "nosuch" in one.output for one in ended), ended


def test_torch__all_cases_are_right_on_gpus(two_gpus: str) -> None:
    expect_success(run(two_gpus, ",".join([*CASES, "streams", "graphs"]), 2, TEST_DEVICE="cuda"))


def test_torch__graphs_on_nccl_alone(two_gpus: str) -> None:
    expect_success(run(two_gpus, "graphs", 2, TEST_DEVICE="cuda", TUTTI_DIRECT="off"))


def test_torch__gpus_of_two_nodes_without_nccl(two_gpus: str) -> None:
    more = {"TUTTI_CCL": "none", "TUTTI_VIRTUAL_NODES": "2", "TEST_DEVICE": "cuda"}
    expect_success(run(two_gpus, ",".join(CASES), 2, **more))


def test_torch__a_graph_that_outlives_its_group(two_gpus: str) -> None:
    ended = run(two_gpus, "graphs_that_outlive", 2, limit_s=60, TEST_DEVICE="cuda")
    assert [(one.status, "SURVIVED" in one.output) for one in ended] == [(0, True)] * 2, ended


@pytest.mark.parametrize("case", ["dead_rank_on_gpus", "dead_rank_in_graphs"])
def test_torch__a_killed_rank_is_named_on_gpus(two_gpus: str, case: str) -> None:
    survivor, killed = run(two_gpus, case, 2, limit_s=60, TEST_DEVICE="cuda")
    assert killed.status == -9
    assert survivor.status == 0, survivor.output
    assert "SURVIVED" in survivor.output, survivor.output


def test_torch__a_late_rank_is_named_on_gpus(two_gpus: str) -> None:
    ended = run(two_gpus, "late_rank_on_gpus", 2, limit_s=60, TEST_DEVICE="cuda")
    expect_success(ended)
    assert all("SURVIVED" in one.output for one in ended)


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_torch__calls_on_streams_of_the_host_device(python: str, nodes: str) -> None:
    more = {"TUTTI_DEVICE": "host"} | ({"TUTTI_VIRTUAL_NODES": nodes} if nodes != "1" else {})
    expect_success(run(python, "calls_on_streams", 2, **more))


def test_torch__a_late_rank_is_an_error_of_the_work(python: str) -> None:
    ended = run(python, "late_call_on_streams", 2, limit_s=60, TUTTI_DEVICE="host")
    expect_success(ended)
    assert all("SURVIVED" in one.output for one in ended)


def test_torch__reductions_compare_what_they_say(python: str) -> None:
    (first, _) = run(python, "reductions", 2)
    found = re.search(r"^compared (\d+)$", first.output, re.MULTILINE)
    assert found is not None, first.output
    assert int(found[1]) > 10_000_000


@pytest.mark.parametrize("case", ["reductions", "moves", "shapes", "training", "random_programs"])
def test_torch__a_wrong_value_is_seen(python: str, case: str) -> None:
    for one in run(python, case, 2, PLANT="1"):
        assert one.status not in (0, None), one.output
        assert "AssertionError" in one.output


def test_torch__debug_detail(python: str) -> None:
    expect_success(run_anew(python, "debug", 2, TORCH_DISTRIBUTED_DEBUG="DETAIL"))


def test_torch__strict_makes_an_error_of_a_fall_back(python: str) -> None:
    expect_success(run(python, "strict", 2, TUTTI_STRICT="1"))


# Two hosts, as the library has them: all goes over the network.
NODES = {"TUTTI_VIRTUAL_NODES": "2"}
# Hosts that cannot reach each other.
NO_NETWORK = {**NODES, "NCCL_SOCKET_IFNAME": "=nonesuch", "FALLS_BACK": "1"}


def test_torch__several_nodes_need_no_fall_back(python: str) -> None:
    expect_success(run(python, "several_nodes", 4, TUTTI_STRICT="1", **NODES))


@pytest.mark.parametrize("ranks", [2, 4])
def test_torch__all_cases_are_right_on_several_nodes(python: str, ranks: int) -> None:
    cases = [case for case in CASES if case != "messages"]
    expect_success(run(python, ",".join(cases), ranks, **NODES))


@pytest.mark.parametrize("ranks", [2, 4])
def test_torch__a_killed_rank_is_named_on_several_nodes(python: str, ranks: int) -> None:
    *others, killed = run(python, "dead_rank", ranks, limit_s=60, **NODES)
    assert killed.status == -9
    for one in others:
        assert "SURVIVED" in one.output, one.output
    expect_success(others)


def test_torch__a_late_rank_is_named_on_several_nodes(python: str) -> None:
    ended = run(python, "late_rank", 3, limit_s=60, **NODES)
    expect_success(ended)
    assert all("SURVIVED" in one.output for one in ended)


@pytest.mark.parametrize("case", ["wait_limit", "unfinished_exit"])
def test_torch__no_hang_at_the_end_on_several_nodes(python: str, case: str) -> None:
    ended = run(python, case, 2, limit_s=60, DESTROY="0", **NODES)
    expect_success(ended)
    assert all("SURVIVED" in one.output for one in ended)


def test_torch__hosts_without_a_network_fall_back(python: str) -> None:
    for one in (ended := run(python, "several_nodes", 4, **NO_NETWORK)):
        assert "fall-back to gloo" in one.output, one.output
    expect_success(ended)


def test_torch__hosts_without_a_network_strict(python: str) -> None:
    for one in run(python, "several_nodes", 4, TUTTI_STRICT="1", **NO_NETWORK):
        assert one.status == 1, one.output
        assert "TUTTI_STRICT=1" in one.output


@pytest.mark.parametrize("ranks", [2, 4])
def test_torch__a_killed_rank_is_named_in_time(python: str, ranks: int) -> None:
    *others, killed = run(python, "dead_rank", ranks, limit_s=60)
    assert killed.status == -9
    for one in others:
        assert "SURVIVED" in one.output, one.output
    expect_success(others)


def test_torch__a_late_rank_is_named_in_time(python: str) -> None:
    ended = run(python, "late_rank", 3, limit_s=60)
    expect_success(ended)
    assert all("SURVIVED" in one.output for one in ended)


@pytest.mark.parametrize("case", ["wait_limit", "unfinished_exit", "mixed_map"])
def test_torch__no_hang_at_the_end(python: str, case: str) -> None:
    ended = run(python, case, 2, limit_s=60, DESTROY="0")
    expect_success(ended)
    assert all("SURVIVED" in one.output for one in ended)


def test_torch__ranks_in_different_calls_get_an_error(python: str) -> None:
    ended = run(python, "mixed_calls", 2, limit_s=60)
    assert all(one.status is not None for one in ended), ended
    assert any("SURVIVED" in one.output for one in ended), ended


def read_dumps(python: str, directory: Path) -> str:
    """What torch's own reader says of the dumps of a job."""
    # Torch 2.11 and later have it in the package; -m needs no entry point.
    words = [python, "-m", "torch.distributed.flight_recorder.fr_trace", str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_torch__the_flight_recorder_names_the_call_that_a_rank_lacks(
    python: str, tmp_path: Path
) -> None:
    more = {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"}
    ended = run(python, "recorded_calls", 3, limit_s=60, DESTROY="0", **more)
    expect_success(ended)
    assert all("SURVIVED" in one.output for one in ended)
    assert "the last calls are in" in ended[0].output
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"rank_tutti_{rank}" for rank in range(3)]
    text = read_dumps(python, tmp_path)
    assert "mismatch" not in text.lower(), text
    assert text.count("Not all ranks joining") == 1, text
    assert "missing ranks: {2}" in text, text


def test_torch__the_flight_recorder_keeps_the_last_calls(python: str, tmp_path: Path) -> None:
    more = {"TORCH_FR_BUFFER_SIZE": "4", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"}
    expect_success(run(python, "recorded_calls", 3, limit_s=60, DESTROY="0", **more))
    dump = pickle.loads((tmp_path / "rank_tutti_0").read_bytes())
    states = [entry["state"] for entry in dump["entries"]]
    assert states == ["completed"] * 3 + ["started"]
    last = dump["entries"][-1]
    assert (last["profiling_name"], last["input_sizes"]) == ("nccl:all_reduce", [[5, 7]])
    assert last["process_group"][1] == "short"
    assert any(frame["filename"].endswith("torch_ranks.py") for frame in last["frames"])


def test_torch__a_wrong_number_of_recorded_calls_is_an_error(python: str) -> None:
    for one in run_anew(python, "way_in", 1, BACKEND="tutti", TORCH_FR_BUFFER_SIZE="many"):
        assert one.status == 1
        assert "TORCH_FR_BUFFER_SIZE=many" in one.output


# ---- Ways in ------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A PYTHONPATH as after `pip install`: with the entry points of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    about = tmp_path / "tutti_hpc-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tutti-hpc\nVersion: 0\n")
    lines = []
    for group, rest in re.findall(
        r'^\[project\.entry-points\."(.*?)"\]\n((?:\w.*\n)+)', text, re.M
    ):
        lines += [f"[{group}]", rest.replace('"', "")]
    assert len(lines) == 4, lines
    (about / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join([str(tmp_path), str(ROOT / "python")])


def test_torch__no_import_is_needed(python: str, installed: str) -> None:
    more = {"NO_IMPORT": "1", "BACKEND": "tutti", "PYTHONPATH": installed}
    ended = run_anew(python, "way_in", 2, **more)
    expect_success(ended)
    assert "BACKEND tutti" in ended[0].output


def test_torch__without_entry_points_the_name_is_unknown(python: str) -> None:
    for one in run_anew(python, "way_in", 2, NO_IMPORT="1", BACKEND="tutti"):
        assert one.status == 1
        assert "tutti" in one.output


def test_torch__autoload_never_throws(python: str, installed: str, tmp_path: Path) -> None:
    # Nothing of it loads the library, so that a broken one costs nobody `import torch`.
    more = {**os.environ, "PYTHONPATH": installed, "TUTTI_LIBRARY_DIR": str(tmp_path)}
    more["TUTTI_TORCH_REPLACE"] = "nonsense"
    words = [python, "-c", "import torch; print(torch.ones(1).item())"]
    done = subprocess.run(words, env=more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1.0\n"


def test_torch__replaces_gloo_on_demand(python: str, installed: str) -> None:
    more = {"NO_IMPORT": "1", "BACKEND": "gloo", "PYTHONPATH": installed}
    ended = run_anew(python, "way_in", 2, TUTTI_TORCH_REPLACE="gloo,nccl", **more)
    expect_success(ended)
    # A script that asks hears its own word.
    assert "BACKEND gloo" in ended[0].output
    for one in run_anew(python, "way_in", 2, **more):
        assert one.status == 1, one.output  # Nothing of ours without the variable.


def test_torch__replacing_another_backend_is_an_error(python: str, installed: str) -> None:
    more = {"NO_IMPORT": "1", "BACKEND": "gloo", "PYTHONPATH": installed}
    for one in run_anew(python, "way_in", 2, TUTTI_TORCH_REPLACE="mpi", **more):
        assert one.status == 1
        assert "TUTTI_TORCH_REPLACE: mpi cannot be replaced" in one.output


def test_torch__doctor_says_what_is_used(python: str, installed: str) -> None:
    library = paths.find(paths.LIBRARY)
    assert library is not None
    more = {**os.environ, "PYTHONPATH": installed, "TUTTI_LIBRARY_DIR": str(library.parent)}
    words = [python, "-m", "tutti_hpc.torch.doctor", "--ranks", "2"]
    done = subprocess.run(words, env=more, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all results right" in done.stdout
    assert str(library) in done.stdout
    assert "allreduce: 8 B direct-gamma" in done.stdout
    assert "needs no import" in done.stdout
