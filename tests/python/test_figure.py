# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The latency-and-speedup figure: what is drawn of which rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tutti_hpc import figure, results
from tutti_hpc.cli import main
from tutti_hpc.errors import TuttiError
from tutti_hpc.results import Results, Versions


def test_switch_points__between_the_sizes(document: Results) -> None:
    hybrid = [row for row in document.rows if row.hybrid]
    assert figure.switch_points(hybrid) == [(2.0**15, "mpi-gamma", "ccl-gamma")]


def test_draw__labels_and_lines(document: Results) -> None:
    drawn = figure.draw([document])
    latency, speedup = drawn.axes
    assert latency.get_xlabel() == "message size (bytes)"
    assert latency.get_ylabel() == "median latency (µs)"
    assert speedup.get_ylabel() == "speedup of hybrid over native"
    assert (latency.get_xscale(), latency.get_yscale()) == ("log", "log")
    legend = latency.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        *("native (staged by hand)", "hybrid", "speedup of hybrid (right axis)")
    ]
    assert [text.get_text().strip() for text in latency.texts] == ["ccl-gamma"]
    assert list(speedup.lines[0].get_ydata()) == [1.0, 40.0]
    assert latency.get_title().splitlines() == [
        "allreduce, 4 ranks, 1 node, device memory NVIDIA H200",
        "MPICH 5.0.2, NCCL 2.30.7",
    ]
    document.versions = Versions()
    assert figure.title(document) == "allreduce, 4 ranks, 1 node, device memory NVIDIA H200"


def test_plot__writes_a_png(document: Results, tmp_path: Path) -> None:
    results.save([document, document], tmp_path / "r.json")
    out = tmp_path / "fig.png"
    shown = CliRunner().invoke(main, ["plot", str(tmp_path / "r.json"), "-o", str(out)])
    assert shown.exit_code == 0, shown.output
    data = out.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == 1230  # Width in pixels: 8.2 inches at 150.


def test_draw__nothing_to_plot(document: Results) -> None:
    document.rows = []
    with pytest.raises(TuttiError, match="no rows"):
        figure.draw([document])
