# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Two ranks over the network plugin: `tutti top`, metrics and traces tell what was sent."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tutti_hpc import paths
from tutti_hpc.cli import main

from missing import unavailable

BYTES, REPEATS, WARM_UP = 256 << 10, 8000, 10
TOTAL = BYTES * (REPEATS + WARM_UP)  # What each rank receives.


def find_driver() -> Path:
    for directory in paths.library_directories():
        driver = directory.parent / "tests/nccl_net/nccl_net_driver"
        if driver.is_file() and (directory / paths.NCCL_NET).is_file():
            return driver
    return unavailable("nccl_net_driver or the network plugin is not built")


def parent_of(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return int(re.findall(r"^PPid:\s*(\d+)$", status, re.MULTILINE)[0])


def look(driver: int) -> dict[int, dict[str, Any]]:
    """The only engine of each rank whose messages move, by process, as `tutti top` shows it."""
    shown = CliRunner().invoke(main, ("top", "--once", "--json", "--interval", "0.05"))
    assert shown.exit_code == 0, shown.output
    ranks = {}
    for process in json.loads(shown.stdout)["processes"]:
        if parent_of(process["process"]) == driver and process["engines"]:
            [engine] = process["engines"]
            moved = [
                it["counters"]["bytes_sent"] + it["counters"]["bytes_received"]
                for it in engine["connections"]
            ]
            if len(moved) == 2 and min(moved) > 0:
                ranks[process["process"]] = engine
    return ranks


def metric(text: str, name: str) -> int:
    """Of a file with one such sample."""
    [value] = re.findall(rf"^tutti_engine_{name}_total\{{.*\}} (\d+)$", text, re.MULTILINE)
    return int(value)


def test_watch__adds_up(tmp_path: Path) -> None:
    driver = find_driver()
    plugin = driver.parents[2] / "lib" / paths.NCCL_NET
    words = f"--bench ring --bytes {BYTES} --repeats {REPEATS} --ranks 2 --version 11".split()
    ours = {name: word for name, word in os.environ.items() if not name.startswith("TUTTI_")}
    run = subprocess.Popen(
        [driver, "--plugin", plugin, *words],
        env=ours
        | {
            "NCCL_SOCKET_IFNAME": "lo",
            "TUTTI_METRICS": str(tmp_path / "m.prom"),
            "TUTTI_TRACE": str(tmp_path / "t-%p.json"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    newest: dict[int, dict[str, Any]] = {}
    while run.poll() is None:
        newest |= look(run.pid)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 0, said

    assert len(newest) == 2, said
    for process, engine in newest.items():
        assert engine["device"] == "lo"
        ways = {it["direction"]: it for it in engine["connections"]}
        [other] = set(newest) - {process}
        assert {it["peer"].split(", ")[1] for it in engine["connections"]} == {f"process {other}"}
        assert set(ways) == {"sends", "receives"}
        assert 0 < ways["receives"]["counters"]["bytes_received"] <= TOTAL
        assert 0 < ways["sends"]["paths_alive"] <= len(ways["sends"]["paths"]) == 64
        chunks = sum(path["chunks_sent"] for path in ways["sends"]["paths"])
        assert chunks == ways["sends"]["counters"]["chunks_sent"]
        assert sum(path["share"] for path in ways["sends"]["paths"]) == pytest.approx(1)

        metrics = (tmp_path / f"m.{process}.prom").read_text()
        assert metric(metrics, "bytes_received") == TOTAL
        again = metric(metrics, "retransmissions")
        assert TOTAL <= metric(metrics, "bytes_sent") <= TOTAL + again * (64 << 10)

        trace = json.loads((tmp_path / f"t-{process}.json").read_text())["traceEvents"]
        assert trace[-1]["args"] == {"count": 0}
        for name in ("isend", "irecv"):
            slices = [it["args"] for it in trace if it["ph"] == "X" and it["name"] == name]
            assert len(slices) == REPEATS + WARM_UP
            assert sum(it["bytes"] for it in slices) == TOTAL
            assert {it["outcome"] for it in slices} == {"ok"}
    # What the processes left behind is what was asked for.
    assert len(list(tmp_path.iterdir())) == 4
    assert not any(f"-{process}-" in name for process in newest for name in os.listdir("/dev/shm"))
