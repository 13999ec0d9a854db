# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti sim network` with the library that was built."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tutti_hpc import api, packet_network, paths
from tutti_hpc.cli import main

from missing import unavailable

pytestmark = pytest.mark.usefixtures("library")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["sim", "network", *words], prog_name="tutti")


def test_network__a_row_per_seed_that_holds_together(tmp_path: Path) -> None:
    out = tmp_path / "n.json"
    words = ("--topology", "fat-tree:16", "--bytes", "1000000", "--seeds", "2", "--seed", "5")
    shown = invoke(*words, "-o", str(out))
    assert shown.exit_code == 0, shown.output
    document = packet_network.load(out)
    assert [row.seed for row in document.rows] == [5, 6]
    assert (document.hosts, document.ideal_us) == (16, 20.0)
    # 245 packets with headers, and a round trip of 12.507 us.
    assert document.floor_us == pytest.approx(20 + 245 * 64 * 20e-6 + 12.50688)
    for row in document.rows:
        (one,) = row.completions
        assert (one.group, one.flows, one.unfinished, row.failed) == ("measured", 16, 0, 0)
        assert one.min_us <= one.mean_us <= one.max_us == one.percentiles_us[-1]
        assert document.floor_us is not None
        assert one.max_us < 2 * document.floor_us
        assert {tier.link: tier.links for tier in row.tiers} == dict.fromkeys(
            ("host-leaf", "leaf-host", "leaf-agg", "agg-leaf", "agg-core", "core-agg"), 16
        )
        sent = next(tier for tier in row.tiers if tier.link == "host-leaf")
        assert sent.packets >= 16 * 245
    assert document.rows[0].trace_hash != document.rows[1].trace_hash


@pytest.mark.parametrize(
    ("traffic", "messages", "loads"),
    [("permutation", 3, 3), ("incast:7", 2, 14), ("alltoall", 1, 15)],
)
def test_network__the_floor_is_of_the_most_loaded_link(
    traffic: str, messages: int, loads: int
) -> None:
    words = ("--topology", "fat-tree:16", "--traffic", traffic, "--messages", str(messages))
    shown = invoke(*words, "--bytes", "1000000", "--congestion", "rccc", "--json")
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.stdout)
    assert document["ideal_us"] == pytest.approx(20 * loads)
    assert document["floor_us"] == pytest.approx((20 + 245 * 64 * 20e-6) * loads + 12.50688)
    assert 1 <= document["rows"][0]["end_us"] / document["floor_us"] < 1.5


def test_network__no_floor_where_operations_wait_for_others(tmp_path: Path) -> None:
    trace = tmp_path / "t.goal"
    trace.write_text("num_ranks 2\nrank 0 { send 1b to 1 }\nrank 1 { recv 1b from 0 }\n")
    for traffic, reason in (
        (str(trace), "a trace's own order and pauses bound it"),
        ("allreduce", "its rounds wait for each other"),
    ):
        words = ("--topology", "single:4", "--bytes", "1000", "--traffic", traffic)
        shown = invoke(*words)
        assert shown.exit_code == 0, shown.output
        assert f"ideal -, floor - ({reason})" in shown.output
        document = json.loads(invoke(*words, "--json").stdout)
        assert (document["ideal_us"], document["floor_us"]) == (None, None)
        assert document["floor_reason"] == reason


def test_network__a_trace_that_cannot_end_is_an_error_that_names_what_waits(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "t.goal"
    blocked = "a: recv 8b from {0}\n b: send 8b to {0}\n b requires a"
    trace.write_text(
        f"num_ranks 2\nrank 0 {{ {blocked.format(1)} }}\nrank 1 {{ {blocked.format(0)} }}\n"
    )
    refused = invoke("--topology", "single:2", "--traffic", str(trace))
    assert refused.exit_code == 2
    assert "rank 0 receives 8 bytes from rank 1, tag 0" in refused.output
    trace.write_text("num_ranks 2\nrank 0 { send 8b to 1 }\n")
    refused = invoke("--topology", "single:2", "--traffic", str(trace))
    assert refused.exit_code == 2
    assert f"{trace}:2: rank 0 to rank 1, tag 0: 1 sends and 0 receives" in refused.output


def test_network__threads_change_nothing_but_the_time() -> None:
    query = {"topology": "fat-tree:16", "bytes": 300_000, "loss_ppb": 1_000_000}
    one = packet_network.run({**query, "threads": 1}, [1]).rows[0]
    two = packet_network.run({**query, "threads": 2}, [1]).rows[0]
    assert one.trace_hash == two.trace_hash
    assert one.lost > 0
    assert one.retransmissions > 0


def test_network__a_trace_as_traffic(tmp_path: Path) -> None:
    trace = tmp_path / "t.goal"
    trace.write_text(
        "num_ranks 2\n"
        "rank 0 { a: calc 1000\n b: send 4096b to 1\n b requires a }\n"
        "rank 1 { recv 4096b from 0 }\n"
    )
    shown = invoke("--topology", "single:2", "--traffic", str(trace), "--json")
    assert shown.exit_code == 0, shown.output
    row = json.loads(shown.stdout)["rows"][0]
    # Two links there, two back, 4160 and at least 64 bytes.
    assert 4.169 <= row["completions"][0]["max_us"] < 6
    trace.write_text("num_ranks 2\nrank 0 { sned 1b to 1 }\n")
    refused = invoke("--topology", "single:2", "--traffic", str(trace))
    assert refused.exit_code == 2
    assert f"{trace}:2: expected send, recv, calc or a dependency, found 'sned'" in refused.output


def test_network__two_groups_of_flows_and_pauses() -> None:
    words = ("--topology", "fat-tree:16", "--traffic", "incast+permutation:15", "--bytes", "100K")
    shown = invoke(
        *(*words, "--messages", "2", "--in-flight", "1", "--json"),
        *("--protocol", "go-back-n", "--lossless", "--no-trim", "--rate-control"),
    )
    assert shown.exit_code == 0, shown.output
    row = json.loads(shown.stdout)["rows"][0]
    assert [(c["group"], c["flows"]) for c in row["completions"]] == [
        ("measured", 30),
        ("background", 450),
    ]
    assert row["dropped"] == row["retransmissions"] == 0
    assert sum(tier["pauses"] for tier in row["tiers"]) > 0


def test_bench__a_simulation_that_did_not_end_has_no_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "bench"))
    sim_network = importlib.import_module("sim_network")
    words = ("--topology", "single:2", "--bytes", "1000")
    assert sim_network.run(*words).rows[0].unfinished == 0
    with pytest.raises(SystemExit, match=r"--loss 100 .*some operations never ended"):
        sim_network.run(*words, "--loss", "100")


def test_network__draws_completions_and_queues(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "p.png"
    shown = invoke("--topology", "fat-tree:16", "--bytes", "200K", "--plot", str(picture))
    assert shown.exit_code == 0, shown.output
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--topology", "ring:4"), "topology: 'ring:4' is none"),
        (("--topology", "fat-tree:0"), "topology: the number of hosts must be 1 to 1048576"),
        (("--topology", "single:4", "--traffic", "incast:4"), "must be 1 to 3"),
        (("--topology", "single:4", "--protocol", "pigeon"), "'pigeon' is none of transport"),
        (("--topology", "single:4", "--congestion", "none"), "none"),
        (("--rate", "fast"), "'fast' is not a rate"),
    ],
)
def test_network__says_what_is_wrong(words: tuple[str, ...], said: str) -> None:
    shown = invoke(*words)
    assert shown.exit_code != 0
    assert said in shown.output


def test_query__unknown_keys_and_values_are_refused() -> None:
    for query, said in (
        ({"topologie": "single:2"}, "query: unknown key 'topologie'"),
        ({"bytes": -1}, "query: bytes: a whole number from 0 to"),
        ({"trim": 1}, "query: trim: true or false is expected"),
        ({"ack": "both"}, "query: ack: dense or sparse is expected"),
        ({"goal": "/nowhere"}, "query: /nowhere: cannot be read"),
    ):
        with pytest.raises(Exception, match=said):
            api.library().simulate_network(query)


def test_rate_and_quantile() -> None:
    assert [packet_network.rate(t) for t in ("400G", "100Gb/s", "1T", "25Gbps")] == [
        400_000,
        100_000,
        1_000_000,
        25_000,
    ]
    ordered = [float(i) for i in range(1, 101)]
    assert packet_network.quantile(ordered, 0.99) == 99
    assert packet_network.quantile(ordered, 1) == 100
    assert packet_network.quantile(ordered, 0) == 1
    assert packet_network.quantile(ordered, 0.991) == 100


def test_network__a_policy_from_a_shared_object_decides(tmp_path: Path) -> None:
    found = paths.find(paths.LIBRARY)
    build = found.parent.parent if found else Path()
    policy = build / "tests" / "support" / "policies" / "delay_target.so"
    if not policy.is_file():
        unavailable("the example policy is not built: no tests in this build directory")
    words = ("--topology", "fat-tree:16", "--bytes", "1000000", "--json")
    plain = json.loads(invoke(*words).stdout)
    hashes = {plain["rows"][0]["trace_hash"]}
    for result in (
        invoke(*words, "--policy", str(policy)),
        CliRunner().invoke(
            main, ["sim", "network", *words], env={"TUTTI_TRANSPORT_POLICY": str(policy)}
        ),
    ):
        assert result.exit_code == 0, result.output
        row = json.loads(result.stdout)["rows"][0]
        assert row["completions"][0]["unfinished"] == 0
        hashes.add(row["trace_hash"])
    assert len(hashes) == 2  # By option and by variable the same, and not the built-in one.


def test_network__a_trace_tells_of_every_chunk_of_one_host(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    words = (
        "--topology",
        "fat-tree:16",
        "--bytes",
        "400000",
        "--loss",
        "10",
        "--no-trim",
        "--json",
    )
    plain = json.loads(invoke(*words).stdout)
    told = json.loads(invoke(*words, "--trace", str(trace), "--trace-host", "3").stdout)
    assert plain["rows"][0]["trace_hash"] == told["rows"][0]["trace_hash"]
    records = [json.loads(line) for line in trace.read_text().splitlines()]
    sent = {r["number"]: r["bytes"] for r in records if r["event"] == "sent"}
    acknowledged = {r["number"] for r in records if r["event"] == "acknowledged"}
    assert sum(sent.values()) == 400_000
    assert acknowledged == set(sent)
    assert {"received", "lost", "window"} <= {r["event"] for r in records}
    for words, remedy in (
        (("--trace", str(trace), "--trace-host", "16"), "hosts 0 to 15"),
        (("--trace", str(trace), "--protocol", "go-back-n"), "of the transport"),
        (("--trace", str(trace), "--seeds", "2"), "one seed"),
        (("--trace", str(tmp_path / "no" / "where")), "cannot be written"),
    ):
        failed = invoke("--topology", "fat-tree:16", "--bytes", "4096", *words)
        assert failed.exit_code != 0
        assert remedy in failed.output


def test_network__no_policy_in_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "not.so").write_text("no")
    result = invoke("--topology", "fat-tree:16", "--policy", str(tmp_path / "not.so"))
    assert result.exit_code != 0
    assert "not.so" in result.output
