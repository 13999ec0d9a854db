# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""bench/nccl_network.py and nccl_ranks on fakes of CUDA and NCCL: their own logic, no network."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tutti_hpc import paths

from missing import unavailable

ROOT = Path(__file__).resolve().parents[2]
KILO, MEGA = 1 << 10, 1 << 20
MODULES = ("nccl_network", "nccl_jobs", "nccl_trouble", "nccl_ddp")

# An allreduce that leaves the last element alone.
SHORT_ALLREDUCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
typedef int Function(const void*, void*, size_t, int, int, void*, void*);
int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void* at) {
  Function* next = (Function*)dlsym(RTLD_NEXT, "ncclAllReduce");
  return next(in, out, count > 1 ? count - 1 : count, type, op, comm, at);
}
"""


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    """The benchmark's modules."""
    sys.path.insert(0, str(ROOT / "bench"))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    sys.path.remove(str(ROOT / "bench"))


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build directory with the fakes, which the ranks will find."""
    for library in paths.library_directories():
        fakes = library.parent / "tests/support/fakes/cuda"
        if (fakes / "libnccl.so.2").exists() and (library / "libnccl-net-tutti.so").exists():
            monkeypatch.setenv("LD_LIBRARY_PATH", str(fakes))
            monkeypatch.setenv("FAKE_GPUS", "4")
            return library.parent
    return unavailable("nccl_ranks, the plugin or the fakes of CUDA and NCCL are not built")


@pytest.fixture
def setup(bench: SimpleNamespace, build: Path, tmp_path: Path) -> Any:
    found = bench.nccl_jobs.Setup(
        build=build,
        logs=tmp_path / "logs",
        nccl=str(build / "tests/support/fakes/cuda/libnccl.so.2"),
        gpus=4,
        asserts_network=False,
    )
    found.require()
    return found


def run(bench: SimpleNamespace, setup: Any, *words: str) -> Any:
    """A job on the loopback, to its end."""
    layout = bench.nccl_jobs.LAYOUTS["loopback"]
    defaults = ("--time-cap", "0.01", "--iterations-max", "5", "--watchdog", "20")
    return bench.nccl_network.run_once(
        setup, layout, None, bench.nccl_jobs.TUTTI, "test", [*defaults, *words]
    )


def row(way: str, us: float, **more: Any) -> dict[str, Any]:
    return {
        "layout": "loopback",
        "way": way,
        "repeat": 0,
        "collective": "allreduce",
        "bytes": 64 * MEGA,
        "ideal_us": None,
        "us": us,
        "wrong": 0,
    } | more


def rows(default: float, best: float, ours: float, **more: Any) -> list[dict[str, Any]]:
    return [
        row(way, us * (1 + 0.01 * repeat), repeat=repeat, **more)
        for repeat in range(3)
        for way, us in (("NCCL", default), ("NCCL 2x8", best), ("Tutti", ours))
    ]


def held(bench: SimpleNamespace, found: list[dict[str, Any]]) -> dict[str, bool]:
    return {claim.what: claim.holds for claim in bench.nccl_network.claims(found)}


def test_ranks__every_collective_is_right(bench: SimpleNamespace, setup: Any) -> None:
    words = "allreduce,allgather,reduce_scatter,alltoall"
    outcome = run(bench, setup, "--collectives", words, "--sizes", "4,60,4100", "--check", "all")
    assert outcome.failure == ""
    found = bench.nccl_network.rows_of(
        outcome, bench.nccl_jobs.LAYOUTS["fabric"], bench.nccl_jobs.TUTTI, 0
    )
    assert [(one["collective"], one["bytes"], one["wrong"]) for one in found] == [
        (name, size, 0) for name in words.split(",") for size in (4, 60, 4100)
    ]
    assert all(one["us"] > 0 and 1 <= one["iterations"] <= 5 for one in found)
    assert found[2]["ideal_us"] == pytest.approx(1.5 * 4100 * 8 / 16e9 * 1e6)


def test_ranks__a_wrong_element_is_seen(bench: SimpleNamespace, setup: Any, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        unavailable("no C compiler")
    source, library = tmp_path / "short.c", tmp_path / "libshort.so"
    source.write_text(SHORT_ALLREDUCE)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-Wl,--no-as-needed"]
    subprocess.run([*command, setup.nccl, f"-Wl,-rpath,{Path(setup.nccl).parent}"], check=True)
    # It has the rest of the fake's functions, as it is linked with it.
    wrong = dataclasses.replace(setup, nccl=str(library))
    outcome = run(bench, wrong, "--collectives", "allreduce,alltoall", "--sizes", "4100")
    assert outcome.codes == [1] * 4
    # One element of a checked call before the timed ones, and of one after them.
    assert [line["wrong"] for line in outcome.results()[0]] == [2, 0]
    assert "element 1024 is nan, not" in outcome.errs[0].replace("-nan", "nan")


def test_ranks__errors_have_words(
    bench: SimpleNamespace, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--collectives", "allreduce", "--sizes", "4")
    monkeypatch.setenv("FAKE_CCL_FAIL", "ncclAllReduce:3@2")
    outcome = run(bench, setup, *words)
    assert outcome.codes == [3] * 4
    assert "rank 2: ncclAllReduce: internal error" in outcome.failure
    assert "rank 2 is gone" in outcome.failure
    monkeypatch.delenv("FAKE_CCL_FAIL")
    monkeypatch.setenv("FAKE_CCL_STALL", "ncclAllReduce:3")
    outcome = run(bench, setup, *words, "--watchdog", "0.5")
    assert outcome.codes == [4] * 4
    assert "watchdog: allreduce takes longer than 0.5 s" in outcome.failure
    outcome = run(bench, setup, "--collectives", "allsum", "--sizes", "4")
    assert outcome.codes == [2] * 4
    assert "no collective allsum" in outcome.failure


def test_trouble__survivors_of_a_killed_rank(
    bench: SimpleNamespace, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.nccl_trouble, "SETTLE_S", 0.1)
    monkeypatch.setattr(bench.nccl_trouble, "LARGE", "64K")
    good, text = bench.nccl_trouble.signalled(
        signal.SIGKILL, setup, None, bench.nccl_jobs.LAYOUTS["loopback"]
    )
    assert good, text
    assert "rank 1 is gone" in text


def test_trouble__what_does_not_count(bench: SimpleNamespace) -> None:
    def outcome(code: int, at_s: float, **line: Any) -> Any:
        error = {"event": "error", "at_s": at_s, "text": "gone"}
        result = {"iterations": 3, "us_max": 1e5, "wrong": 0} | line
        lines = [[result], [error]] if code else [[result], [result]]
        return bench.nccl_jobs.Outcome([0, code], lines, ["", ""], ["", ""], 1.0)

    survivors = bench.nccl_trouble.survivors
    assert survivors(outcome(3, 11.0), 10.0, [0], 2.0)[0]
    assert not survivors(outcome(3, 13.0), 10.0, [0], 2.0)[0]  # Late.
    assert not survivors(outcome(4, 11.0), 10.0, [0], 2.0)[0]  # By its watchdog.
    assert not survivors(outcome(3, 11.0), 10.0, [], 2.0)[0]  # Rank 0 never noticed.
    undisturbed = bench.nccl_trouble.undisturbed
    assert undisturbed(outcome(0, 0), 1)[0]
    assert not undisturbed(outcome(0, 0), 2)[0]
    assert not undisturbed(outcome(0, 0, wrong=1), 1)[0]
    assert not undisturbed(outcome(0, 0, us_max=3e6), 1)[0]


def test_trouble__a_killed_rank_is_told_of_before_silence_would(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = bench.nccl_trouble
    assert trouble.KILLED_MAX_S < trouble.TIMEOUT_S
    bounds: list[float] = []
    monkeypatch.setattr(trouble, "hit", lambda *_, bound_s, **__: bounds.append(bound_s))
    for number in (signal.SIGKILL, signal.SIGSTOP):
        trouble.signalled(number, None, None, None)
    assert bounds == [trouble.KILLED_MAX_S, trouble.TIMEOUT_S + trouble.SLACK_S]


def test_trouble__a_cut_that_loses_no_chunk_does_not_count(
    bench: SimpleNamespace, setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = bench.nccl_trouble
    with trouble.Counters() as counters:
        good = (True, "fine")
        assert counters.lost() == 0
        for process, again in ((11, 0), (12, 3)):
            name = counters.env["TUTTI_METRICS"].replace("%p", "2").replace("%h", f"n{process}")
            engines = (f'{{device="lo",engine="{i}"}} {again}' for i in range(2))
            lines = [f"tutti_engine_retransmissions_total{engine}" for engine in engines]
            lines.append('tutti_engine_spurious_retransmissions_total{device="lo"} 1')
            lines.append('tutti_connection_retransmissions_total{device="lo"} 100')
            Path(name).write_text("\n".join(["# HELP x", *lines, ""]))
        assert counters.lost() == 2 * 3 - 2
        assert trouble.with_losses(good, 5) == (True, "5 chunks were lost; fine")
        assert trouble.with_losses(good, 0) == (False, "0 chunks were lost; fine")
        assert not trouble.with_losses((False, "wrong"), 5)[0]
    # On the fakes there are no paths; the job is right all the same.
    monkeypatch.setattr(trouble, "SETTLE_S", 0.1)
    monkeypatch.setattr(trouble, "LARGE", "64K")
    monkeypatch.setattr(trouble, "WORK_S", 0.3)
    monkeypatch.setattr(trouble.network, "set_link", lambda *_: None)
    lab = SimpleNamespace(plan=None, pids={})
    layout = bench.nccl_jobs.LAYOUTS["loopback"]
    monkeypatch.setattr(bench.nccl_jobs, "enter", lambda *_: None)
    lab.pids = {f"n{rank}": 0 for rank in range(4)}
    one_path, text = trouble.one_path(setup, lab, layout)
    assert not one_path
    assert text.startswith("0 chunks were lost;")
    assert ", 0 wrong elements" in text


def test_trouble__a_case_left_out_for_time_does_not_hold(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = bench.nccl_trouble.Case("one", lambda *_: pytest.fail("it has run"), "loopback")
    monkeypatch.setattr(bench.nccl_trouble, "cases", lambda _: iter([case]))
    options = argparse.Namespace(budget=-1, set=[], seeds=1, layouts=["loopback"], only="")
    (done,) = bench.nccl_trouble.run(options, None, bench.nccl_jobs.LAYOUTS)
    assert (done["holds"], done["text"]) == (False, "left out, the time is over")


def test_measure__document_and_status(bench: SimpleNamespace, setup: Any, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, str(ROOT / "bench/nccl_network.py"), "measure", "--gpus", "4"]
    command += ["--build", str(setup.build), "--nccl", setup.nccl, "--logs", str(setup.logs)]
    command += ["--layouts", "loopback", "--ways", "NCCL", "Tutti", "--sizes", "4", "1M"]
    command += ["--repeats", "1", "--time-cap", "0.01", "-o", str(out)]
    command += ["--variants", "TUTTI_NET_SUB_CONNECTIONS=2,TUTTI_NET_ENGINES=2"]
    done = subprocess.run([*command, "--without-log"], capture_output=True, text=True, check=False)
    document = json.loads(out.read_text())
    assert document["schema"] == "tutti-bench-nccl-network/1"
    assert str(tmp_path) not in out.read_text()
    assert len(document["rows"]) == 3 * 2 * 2
    assert {row["way"] for row in document["rows"]} == {
        "NCCL",
        "Tutti",
        "Tutti SUB_CONNECTIONS=2,ENGINES=2",
    }
    assert done.returncode == int(not all(claim["holds"] for claim in document["claims"]))
    assert "12 rows, 0 wrong elements, 0 failed runs" in done.stdout
    # NCCL says in its log what it uses, and the fake says nothing.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "NCCL used none that its log names, not Tutti" in done.stdout


def test_claims__each_layout_has_its_own(bench: SimpleNamespace) -> None:
    good = rows(21_000, 10_000, 8_000)
    good += rows(50, 55, 48, bytes=64 * KILO)
    assert held(bench, good) == {
        "loopback, allreduce, 64M, ms": True,
        "loopback, allreduce from 1M, over default sockets; worst at 64M": True,
        "loopback, allreduce up to 64K, latency of default sockets'; worst at 64K": True,
    }
    bad = rows(16_000, 10_000, 8_500) + rows(50, 55, 51, bytes=64 * KILO)
    assert not any(held(bench, bad).values())
    fabric = {"layout": "fabric"}
    assert list(held(bench, rows(421e3, 92.6e3, 57e3, **fabric)).values()) == [True] * 3
    assert list(held(bench, rows(400e3, 92.6e3, 59e3, **fabric)).values()) == [False] * 3
    bisection = {"layout": "bisection", "bytes": 4}
    assert list(held(bench, rows(100, 60, 65, **bisection)).values()) == [True]
    assert list(held(bench, rows(60, 100, 70, **bisection)).values()) == [False]
    lossy = {"layout": "lossy", "collective": "alltoall"}
    assert list(held(bench, rows(900, 300, 99, **lossy)).values()) == [True]
    assert list(held(bench, rows(900, 300, 101, **lossy)).values()) == [False]
    # Bounds in milliseconds are for the nominal fabric only.
    nominal = bench.nccl_network.claims(rows(421e3, 92.6e3, 57e3, **fabric), is_nominal=False)
    assert len(nominal) == 2


def test_table__a_line_for_each_size(bench: SimpleNamespace) -> None:
    found = rows(421e3, 92.6e3, 57e3, layout="fabric", ideal_us=50_331.6)
    lines = bench.nccl_network.table([*found, row("Tutti", 9, bytes=4, wrong=3)])
    assert lines[1].split() == ["64M", "425.210", "93.526", "57.570", "50.332", "7.39,", "1.62"]
    assert lines[3].endswith("-, -  WRONG 3")


def test_plot__every_curve(bench: SimpleNamespace, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "figure.png"
    found = rows(21_000, 10_000, 8_000) + rows(50, 55, 48, bytes=64 * KILO)
    found += rows(421e3, 92.6e3, 57e3, layout="fabric", ideal_us=50_331.6)
    # Another collective on one layout only, by one way, at a size of its own.
    found.append(row("Tutti", 9, collective="alltoall", bytes=KILO, ideal_us=0.0))
    bench.nccl_network.draw(found, out)
    assert out.stat().st_size > 1000


def test_environment__multicast_is_off_and_settings_are_ours(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    monkeypatch.setenv("NCCL_PROTO", "LL")
    monkeypatch.setenv("TUTTI_NET_PATHS", "2")
    jobs = bench.nccl_jobs
    setup = jobs.Setup(tmp_path, tmp_path, "", 1, {"CUDA_MPS_PIPE_DIRECTORY": "/p"})
    for way in jobs.WAYS.values():
        env = jobs.rank_env(setup, jobs.LAYOUTS["fabric"], way, 2, tmp_path / "log")
        assert (env["NCCL_NVLS_ENABLE"], env["NCCL_HOSTID"]) == ("0", "node2")
        assert env["NCCL_SOCKET_IFNAME"] == "=rail0"
        assert env["CUDA_MPS_PIPE_DIRECTORY"] == "/p"
        assert "NCCL_PROTO" not in env
        assert "TUTTI_NET_PATHS" not in env
        assert env["NCCL_NET"] == way.network
    assert env["NCCL_NET_PLUGIN"] == "tutti"
    assert env["LD_LIBRARY_PATH"].split(":")[0] == f"{tmp_path}/lib"


def test_logs__network_plugin_and_warnings(bench: SimpleNamespace) -> None:
    log = (
        "host:1:2 [0] NCCL INFO NET/Tutti : net: chunks sent 7, received 8\n"
        "host:1:2 [0] NCCL INFO Using network Tutti\n"
        "\n[2026] host:1:2 [0] plugin.cpp:1 NCCL WARN NET/Tutti : isend: peer is gone\n"
    )
    jobs = bench.nccl_jobs
    assert jobs.networks_of(log) == {"Tutti"}
    assert jobs.plugin_lines(log)[0] == "net: chunks sent 7, received 8"
    assert jobs.warnings_of(log) == ["NET/Tutti : isend: peer is gone"]
    assert jobs.json_lines('{"a": 1}\nwords\n[1]\n{"b": ') == [{"a": 1}]
    words = ["measure", "--build", "/b", "--sizes", "4", "-o", "/x"]
    assert bench.nccl_network.without_paths(words) == ["measure", "--sizes", "4"]


def test_ddp__rows_and_ratios(bench: SimpleNamespace) -> None:
    def outcome(ms: float, equal: bool = True) -> Any:
        steps = {"step_ms_p50": ms, "gradients_equal": equal, "weights_equal": True}
        lines = [[{"event": "start"}, steps], [{"checked": 5, "wrong": 0, "texts": []}, steps]]
        return bench.nccl_jobs.Outcome([0, 0], lines, ["", ""], ["", ""], 1.0)

    ddp = bench.nccl_ddp
    found = [
        ddp.row_of(outcome(ms + repeat), "fabric", way, repeat)
        for repeat in range(2)
        for way, ms in (("NCCL 2x8", 200), ("Tutti", 100))
    ]
    assert all(map(ddp.is_right, found))
    assert (
        ddp.summary(found)[0]
        == "fabric, NCCL 2x8: a step 200.5 ms (200.0 to 201.0), 2.00 of Tutti's"
    )
    assert not ddp.is_right(ddp.row_of(outcome(1, equal=False), "fabric", "Tutti", 0))
    assert "gradients DIFFER" in ddp.words_of(ddp.row_of(outcome(1, equal=False), "f", "T", 0))


def test_ddp__every_way_is_run_alike(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ddp = bench.nccl_ddp
    ran: list[tuple[str, bool, str]] = []

    class DoubleJob:
        def __init__(self, _: Any, __: Any, ___: Any, way: Any, name: str, command: Any) -> None:
            words = command(0)
            self.check, self.name = "--check" in words, name
            ran.append((way.name, self.check, words[words.index("--steps") + 1]))

        def __enter__(self) -> DoubleJob:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def finish(self, _: float) -> Any:
            line = {"step_ms_p50": len(ran), "gradients_equal": True, "weights_equal": True}
            line = {"checked": 740, "wrong": 0, "texts": []} if self.check else line
            return bench.nccl_jobs.Outcome([0], [[{"event": "start"}, line]], [""], [""], 1.0)

    monkeypatch.setattr(ddp, "Job", DoubleJob)
    options = argparse.Namespace(
        layouts=["loopback"], repeats=2, ways=["NCCL 2x8", "Tutti"], set=[], backend="nccl",
        steps=10, batch=1, pixels=1,
    )  # fmt: skip
    setup = bench.nccl_jobs.Setup(build=tmp_path, logs=tmp_path, nccl="", gpus=1)
    found, failures, _ = ddp.run(options, setup, bench.nccl_jobs.LAYOUTS)
    assert ran == [
        ("Tutti", True, "0"),
        ("NCCL 2x8", False, "10"),
        ("NCCL 2x8", False, "10"),
        ("Tutti", False, "10"),
        ("Tutti", False, "10"),
        ("NCCL 2x8", False, "10"),
    ]
    # The second job does not count.
    times = [(row["way"], row["repeat"], row.get("step_ms")) for row in found]
    assert times == [
        ("Tutti", 0, None),
        ("NCCL 2x8", 0, 3),
        ("Tutti", 0, 4),
        ("Tutti", 1, 5),
        ("NCCL 2x8", 1, 6),
    ]
    assert (found[0]["checked"], failures) == (740, [])
    assert ddp.summary(found)[0].startswith("loopback, NCCL 2x8: a step 4.5 ms (3.0 to 6.0)")
