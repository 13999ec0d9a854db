# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti sim` with the library that was built; nothing here needs a GPU or an MPI."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tutti_hpc import api, parallel_rings, paths, prediction, sim
from tutti_hpc.cli import main

from missing import unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTERS = ("cluster-a", "cluster-b", "dgx-h100")
pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture(scope="module")
def paper() -> parallel_rings.Paper:
    api.library.cache_clear()
    if paths.find(paths.LIBRARY) is None:
        unavailable("libtutti.so is not built")
    return parallel_rings.compare()


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["sim", "collective", *words], prog_name="tutti")


@pytest.mark.parametrize("name", CLUSTERS)
def test_shipped_clusters__are_found_by_name_and_file(name: str) -> None:
    assert prediction.find_cluster(name) == prediction.find_cluster(f"{name}.json")
    shown = invoke("allgather", "--cluster", name, "-n", "16", "-b", "16M", "-e", "16M")
    assert shown.exit_code == 0, shown.output
    assert f"of {name}, predicted" in shown.stdout


def test_all_algorithms__one_row_each(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    words = ("--cluster", "cluster-b.json", "--ranks", "64", "-b", "2M", "-e", "8M")
    shown = invoke("allgather", *words, "--algorithms", "all", "-o", str(out))
    assert shown.exit_code == 0, shown.output
    document = json.loads(out.read_text())
    assert document["schema"] == "tutti-prediction/1"
    head = ("command", "date", "machine", "versions", "collective", "ranks", "nodes")
    assert all(key in document for key in (*head, "memory", "type", "op", "rows"))
    assert (document["ranks"], document["nodes"]) == (64, 16)
    assert document["cluster"]["name"] == "cluster-b"
    names = prediction.algorithm_names("allgather")
    assert {"rings", "rings-xor", "nccl-rings"} <= set(names)
    assert len(document["rows"]) == 3 * len(names)
    for row in document["rows"]:
        assert row["bytes"] == 64 * row["block_bytes"]
        assert row["latency_us"] >= row["latency_us_min"] > 0
        for link in row["links"]:
            assert 0 < link["utilisation_mean"] <= link["utilisation_max"] <= 1
    # Size by size, the fastest first.
    order = [(row["bytes"], row["latency_us"]) for row in document["rows"]]
    assert order == sorted(order)


def test_per_rank__sizes_are_blocks() -> None:
    words = ("--cluster", "cluster-b", "-n", "8", "-b", "1M", "-e", "1M", "--algorithms", "ring")
    document = json.loads(invoke("allgather", *words, "--per-rank", "--json").stdout)
    assert [row["block_bytes"] for row in document["rows"]] == [1 << 20]


def test_refusal__is_said_and_no_row() -> None:
    words = ("--cluster", "cluster-b", "-n", "7", "-b", "7M", "-e", "7M")
    shown = invoke("allgather", *words, "--algorithms", "ring,neighbor-exchange")
    assert shown.exit_code == 0
    assert "# neighbor-exchange: neighbor-exchange needs an even number of ranks" in shown.stdout


@pytest.mark.parametrize(
    "collective", ["allgatherv", "allreduce", "bcast", "alltoall", "reduce_scatter"]
)
def test_other_collectives(collective: str) -> None:
    shown = invoke(collective, "--cluster", "dgx-h100", "-n", "32", "-b", "32M", "-e", "32M")
    assert shown.exit_code == 0, shown.output
    assert len(shown.stdout.splitlines()) == 2 + len(prediction.algorithm_names(collective))


def test_trace__is_chromes_format(tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    words = ("--cluster", "cluster-a", "-n", "8", "-b", "8M", "-e", "8M", "--trace", str(out))
    shown = invoke("allgather", *words, "--algorithms", "rings-inter-socket")
    assert shown.exit_code == 0, shown.output
    latency_us = float(shown.stdout.splitlines()[2].split()[3])
    events = json.loads(out.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    # Per rank: one block to the next node, two rounds of three messages in the node.
    assert len(spans) == 8 * (1 + 2 * 3)
    assert max(span["ts"] + span["dur"] for span in spans) == pytest.approx(latency_us, abs=0.01)
    assert {event["pid"] for event in events} == {0, 1}
    # A thread is one engine: its messages do not overlap.
    for thread in {span["tid"] for span in spans}:
        own = sorted((s["ts"], s["ts"] + s["dur"]) for s in spans if s["tid"] == thread)
        assert all(b[0] >= a[1] - 1e-6 for a, b in itertools.pairwise(own))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "--cluster is missing"),
        (("--cluster", "cluster-c"), "shipped are cluster-a, cluster-b, dgx-h100"),
        (("--cluster", "cluster-b", "-b", "8", "-e", "4"), "-e is below -b"),
        (("--cluster", "cluster-b", "--algorithms", "rings,ringo"), "allgather has linear, ring,"),
        (("--cluster", "cluster-b", "--trace", "t.json"), "one algorithm and one size"),
        (("scan", "--cluster", "cluster-b"), "scan: no algorithm of ours"),
    ],
)
def test_usage_errors__one_line(words: tuple[str, ...], complaint: str) -> None:
    shown = invoke(*words)
    assert shown.exit_code == 2
    assert complaint in shown.stderr
    assert shown.stdout == ""


def test_cluster_file__errors_name_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    text = prediction.find_cluster("cluster-b").read_text()
    file.write_text(text.replace('"nics_per_node": 4', '"nics_per_node": 0'))
    shown = invoke("allgather", "--cluster", str(file), "-n", "8")
    assert shown.exit_code == 2
    assert f"{file}:6: nics_per_node: a whole number from 1 to 256" in shown.stderr


def test_message_sizes() -> None:
    assert sim.message_sizes(2, 9, 2) == [2, 4, 8]
    assert sim.message_sizes(0, 9, 2) == [0]


def test_plot__one_curve_for_equal_algorithms(tmp_path: Path) -> None:
    from tutti_hpc import prediction_figure

    file = prediction.find_cluster("cluster-b")
    simulator = prediction.Simulator(file, "allgather", 8)
    document = prediction.predict(
        simulator, file, ["ring", "rings", "rings-xor"], [8 << 20, 1 << 30]
    )
    (axes,) = prediction_figure.draw_latency(document).axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["ring", "rings\nrings-xor"]
    words = ("--cluster", "cluster-b", "-n", "8", "--plot", str(tmp_path / "f.png"))
    assert invoke("allgather", *words).exit_code == 0
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_paper__published_figures_within_their_bounds(paper: parallel_rings.Paper) -> None:
    published = [row for row in paper.rows if row.published_percent is not None]
    figure5 = [row.published_percent for row in published if row.figure.startswith("Fig. 5")]
    assert figure5 == [74.6, 68.2, 60.5, 75.7, 75.5, 40.5]
    flat = {(row.cluster, row.ranks) for row in published if row.theirs == "flat ring"}
    assert flat == {("cluster-b", 32), ("cluster-b", 64), ("cluster-a", 16)}
    for row in published:
        bound = 6 if row.theirs == "NCCL" else 5
        assert row.bound_points == bound
        assert abs(row.predicted_percent - (row.published_percent or 0)) <= bound, row


def test_paper__the_whole_sweep_against_nccl(paper: parallel_rings.Paper) -> None:
    for ranks in (32, 64):
        rows = [row for row in paper.rows if row.theirs == "NCCL" and row.ranks == ranks]
        assert [row.block_bytes for row in rows] == list(parallel_rings.SWEEP)
        # The gain is a message's fixed cost: it shrinks with size, and in the published order of
        # the phases it is a loss in the end.
        gains = [row.predicted_percent for row in rows]
        assert gains == sorted(gains, reverse=True)
        assert rows[-1].apart_percent is not None
        assert rows[-1].apart_percent < 0 < gains[-1]


def test_paper__ours_beyond_it_are_columns(paper: parallel_rings.Paper) -> None:
    for row in paper.rows:
        assert set(row.beyond_percent) == set(parallel_rings.BEYOND)
        if row.ranks == 4:
            assert row.beyond_percent["rings-inter-socket-pipelined"] > row.predicted_percent


def test_paper__command_writes_document_and_figure(tmp_path: Path) -> None:
    out, figure = tmp_path / "p.json", tmp_path / "p.png"
    shown = invoke("--paper", "-o", str(out), "--plot", str(figure))
    assert shown.exit_code == 0, shown.output
    assert "# Not reproduced: Fig. 5 bottom" in shown.stdout
    document = json.loads(out.read_text())
    assert document["schema"] == "tutti-paper/1"
    assert len(document["rows"]) == 9 + 2 * len(parallel_rings.SWEEP)
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_paper__kept_results_are_of_this_model(paper: parallel_rings.Paper) -> None:
    kept = json.loads((REPOSITORY / "bench/results/sim-paper.json").read_text())
    assert [row["predicted_percent"] for row in kept["rows"]] == [
        row.predicted_percent for row in paper.rows
    ]


def test_packets__one_path_is_slower_than_many_and_the_seed_picks_it() -> None:
    file = prediction.find_cluster("dgx-h100")

    def latency_us(**packets: Any) -> float:
        simulator = prediction.Simulator(
            file, "allgather", 32, network="packet", packets={"topology": "fat-tree:32", **packets}
        )
        return simulator.latency_us("rings", 32 << 20)

    many = latency_us(paths=256)
    one = [latency_us(paths=1, spray="oblivious", seed=seed) for seed in (1, 2)]
    assert many < min(one)
    assert one[0] != one[1]
    with pytest.raises(Exception, match="paths: a whole number from 1 to 4096"):
        latency_us(paths=0)
    with pytest.raises(Exception, match="seed: of a packet network"):
        prediction.Simulator(file, "allgather", 8, packets={"seed": 1}).latency_us("rings", 8)


def test_1024_ranks__under_five_seconds_of_one_core() -> None:
    simulator = prediction.Simulator(prediction.find_cluster("cluster-b"), "allgather", 1024)
    start = time.process_time()
    latency_us = simulator.latency_us("rings", 1024 << 20)
    assert time.process_time() - start < 5
    # 255 rounds of a block over a NIC, and the last block to the three others of its node.
    expected = 255 * ((1 << 20) / 24400 + 10) + 3 * (1 << 20) / 130000
    assert latency_us == pytest.approx(expected, rel=1e-6)
