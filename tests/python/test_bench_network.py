# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""bench/network.py's arithmetic: ideals, pairs, tables, claims. Nothing is measured."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_network", ROOT / "bench/network.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_network"] = module  # Data classes look there for their types.
    spec.loader.exec_module(module)
    return module


def row(way: str, repeat: int, goodput: float, **more: Any) -> dict[str, Any]:
    return {
        "pattern": "ring",
        "loss_percent": 0.0,
        "rate_mbps": 100.0,
        "way": way,
        "repeat": repeat,
        "goodput_mbps": goodput,
        "of_ideal": goodput / 100,
        "cpus": 1.0,
        "busy": 0.5,
        "dropped": 3,
        "lost": 0,
    } | more


def three_ways(one: float, many: float, ours: float, **more: Any) -> list[dict[str, Any]]:
    return [
        row(way, repeat, goodput + repeat, **more)
        for repeat in range(3)
        for way, goodput in (("TCP, 1 stream", one), ("TCP, 16 streams", many), ("Tutti", ours))
    ]


@pytest.mark.parametrize(
    ("rate_bps", "spine_rate_bps", "spines", "limit_bps"),
    [
        (100_000_000, 12_500_000, 8, 100_000_000),
        (100_000_000, 10_000_000, 8, 80_000_000),
        (100_000_000, 25_000_000, 8, 100_000_000),
        (100_000_000, 0, 2, 100_000_000),
        (100_000_000, 0, 0, 100_000_000),
    ],
)
def test_ideal__the_slower_of_a_host_and_its_leaf(
    bench: ModuleType, rate_bps: int, spine_rate_bps: int, spines: int, limit_bps: int
) -> None:
    spec = plan.Spec(
        nodes=8, rails=1, rate_bps=rate_bps, spines=spines, spine_rate_bps=spine_rate_bps
    )
    assert bench.ideal_bps(spec) == pytest.approx(limit_bps * 1448 / 1514)


@pytest.mark.parametrize("part", ["fabric", "pair", "rails"])
def test_measure__the_document_says_which_tcp(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    import network_parts

    class UpLab(network_parts.Lab):  # type: ignore[misc, name-defined]
        def __enter__(self) -> UpLab:
            self.pids = {f"n{node}": node for node in range(self.spec.nodes)}
            return self

        def __exit__(self, *_: object) -> None:
            pass

    knob = tmp_path / "tcp_congestion_control"
    knob.write_text("reno\n")
    monkeypatch.setattr(network_parts, "TCP_KNOB", knob)
    monkeypatch.setattr(network_parts.network, "inside", lambda _, action: action())
    one = {"pattern": "ring", "loss_percent": 0, "way": "w", "goodput_mbps": 1, "of_ideal": 1.0}
    monkeypatch.setattr(bench, "Lab", UpLab)
    monkeypatch.setattr(bench, "Runner", lambda *_: None)
    monkeypatch.setattr(bench, "plug_pair", lambda _: None)
    monkeypatch.setattr(bench, f"{part}_rows", lambda *_: iter([one]))
    monkeypatch.setattr(bench, f"{part}_table", lambda _: [])
    monkeypatch.setattr(bench, f"{part}_claims", lambda _: [])
    out = tmp_path / "out.json"
    options = argparse.Namespace(
        output=out, verbose=False, rate="100mbit", spine_rate="10mbit", queue="80ms", loss=["0%"],
        pattern=["ring"], way=None, headroom=False, repeats=1, seconds=1, nodes=8, failing="5%",
        wire=[],
    )  # fmt: skip
    failed: list[tuple[int, int]] = []
    monkeypatch.setattr(
        UpLab, "fail_spine", lambda _, spine, loss_ppm: failed.append((spine, loss_ppm))
    )
    getattr(bench, f"measure_{part}")(options, tmp_path, bench.Way("Tutti", "lib", {}))
    assert json.loads(out.read_text())["tcp"] == "reno"
    assert failed == ([(0, 50_000)] if part == "fabric" else [])
    with UpLab(plan.Spec(nodes=2, rails=1, rate_bps=10**9)) as lab:
        lab.use_tcp("bbr")
        assert (lab.tcp(), network_parts.tcp_of(lab)) == ("bbr", "bbr")


def test_runner__ranks_end_with_one_that_failed_and_with_the_program(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, pids = tmp_path / "nccl_net_driver", tmp_path / "pids"
    monkeypatch.setattr(bench, "enter", lambda _: None)
    monkeypatch.setattr(bench, "PATIENCE_S", 0.1)
    lab = argparse.Namespace(spec=plan.Spec(2, 1, 10**9), pids={"n0": 0, "n1": 0})
    runner = bench.Runner(tmp_path, lab, "lo", "127.0.0.1:1")
    way = bench.Way("Tutti", "lib", {})
    # The last word is the rank.
    driver.write_text('#!/bin/sh\nfor r; do :; done\n[ "$r" = 0 ] && exit 3\nexec sleep 60\n')
    driver.chmod(0o755)
    with pytest.raises(TuttiError, match=r"statuses \[3, -15\]"):
        runner.run(way, [])
    driver.write_text(f'#!/bin/sh\necho $$ >> "{pids}"\nexec sleep 60\n')

    def interrupted(*_: Any) -> None:
        while not pids.exists() or len(pids.read_text().split()) < 2:
            time.sleep(0.01)
        raise SystemExit(143)

    monkeypatch.setattr(bench.processes, "wait", interrupted)
    with pytest.raises(SystemExit):
        runner.run(way, [])
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split())


def test_messages__as_many_as_the_time_needs_and_two_windows(bench: ModuleType) -> None:
    spec = plan.Spec(nodes=8, rails=1, rate_bps=100_000_000, spines=8, spine_rate_bps=12_500_000)
    # 11.955 MB/s for 4 s at a half, in messages of 512 KiB.
    assert bench.messages_for(spec, "ring", 4, 0.5) == 46
    assert bench.messages_for(spec, "alltoall", 40, 0.5) == round(456.05 / 7)
    assert bench.messages_for(spec, "alltoall", 1, 0.5) == 16


def test_paired__ratios_of_the_same_repeat_only(bench: ModuleType) -> None:
    rows = [row("a", 0, 10), row("b", 0, 5), row("a", 1, 30), row("b", 1, 10), row("a", 2, 1)]
    assert bench.paired(rows, "goodput_mbps", "a", "b") == [2, 3]
    assert bench.quartiles([4.0]) == (4, 4, 4)
    assert bench.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2, 3, 4)


def test_fabric_claims__each_has_its_bound_and_its_side(bench: ModuleType) -> None:
    held = {claim.what: claim for claim in bench.fabric_claims(three_ways(11, 40, 88))}
    assert list(held) == [
        "ring, 0 % loss, of TCP's 16 streams",
        "ring, 0 % loss, of TCP's one stream",
        "ring, 0 % loss, of the ideal",
    ]
    assert all(claim.holds for claim in held.values())
    assert held["ring, 0 % loss, of TCP's one stream"].measured == pytest.approx(89 / 12)
    missed = bench.fabric_claims(three_ways(20, 60, 84.5 - 1))
    assert [claim.holds for claim in missed] == [False, False, False]
    assert "MISSED" in str(missed[0])


def test_fabric_claims__with_loss_only_against_many_streams_and_at_full_rate(
    bench: ModuleType,
) -> None:
    lossy = three_ways(1, 9, 40, loss_percent=1.0)
    half = three_ways(5, 20, 10, rate_mbps=50.0)
    claims = bench.fabric_claims(lossy + half)
    assert [(claim.what, claim.bound) for claim in claims] == [
        ("ring, 1 % loss, of TCP's 16 streams", 3)
    ]


def test_pair_claims__less_is_better(bench: ModuleType) -> None:
    rows = [
        {"way": way, "repeat": repeat, key: value}
        for repeat in range(3)
        for way, latency, cpu in (("TCP, 1 stream", 10.0, 1.0), ("Tutti", 10.5, 0.8))
        for key, value in (("latency_us", latency), ("cpu_s_per_gb", cpu))
    ]
    assert [(claim.measured, claim.holds) for claim in bench.pair_claims(rows)] == [
        (pytest.approx(1.05), True),
        (pytest.approx(0.8), False),
    ]
    assert "Tutti / TCP" in "\n".join(bench.pair_table(rows))


def test_rails_claims__both_links_against_one(bench: ModuleType) -> None:
    rows = [
        {"way": way, "repeat": repeat, "goodput_mbps": goodput + repeat, "of_ideal": 0.9}
        for repeat in range(3)
        for way, goodput in zip(bench.RAILS, (180.0, 100.0), strict=True)
    ]
    (claim,) = bench.rails_claims(rows)
    assert claim.measured == pytest.approx(181 / 101)
    assert claim.holds
    assert not bench.rails_claims(rows[:0])[0].holds
    assert "181.0 Mb/s (180.5 to 181.5), 0.900 of the links" in bench.rails_table(rows)[0]


def test_fabric_table__a_line_for_each_way_at_each_loss(bench: ModuleType) -> None:
    lines = bench.fabric_table(three_ways(11, 40, 88) + three_ways(1, 9, 40, loss_percent=0.1))
    assert len(lines) == 7
    assert "89.0 (88.0 to 90.0)" in lines[3]
    assert "0.1%" in lines[4]


def test_figure__every_way_is_in_the_legend(bench: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "figure.png"
    bench.draw(three_ways(11, 40, 88), out)
    assert out.stat().st_size > 1000


def test_settings__name_and_value(bench: ModuleType) -> None:
    assert bench.settings("TUTTI_NET_PATHS=64") == ("TUTTI_NET_PATHS", "64")
    with pytest.raises(Exception, match="NAME=VALUE"):
        bench.settings("TUTTI_NET_PATHS")
