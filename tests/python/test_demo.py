# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The demo's document: what is compared, what is not, and the sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from result_rows import row
from tutti_hpc.demo import __main__ as demo_main
from tutti_hpc.demo import document as demo_document
from tutti_hpc.demo import parts, picture
from tutti_hpc.demo.document import NOISY, SAME_PLAN, Bar, Bars, Demo
from tutti_hpc.errors import TuttiError
from tutti_hpc.results import Results, Row


def of(document: Results, rows: list[Row]) -> Results:
    return msgspec.structs.replace(document, rows=rows, memory="host")


@pytest.fixture
def measured(document: Results) -> Results:
    """Twice as fast at 64 bytes, the same plan at 1 KiB."""
    rows = [row(64, "native", 8.0), row(64, "direct-gamma", 4.0, hybrid=True)]
    return of(document, [*rows, row(1024, "native", 9.0), row(1024, "native", 6.0, hybrid=True)])


BARS = Bars(
    title="allgather",
    unit="ms",
    is_time=True,
    bound=50.0,
    bars=[
        Bar(name="default", value=400.0),
        Bar(name="best", value=200.0),
        Bar(name="Tutti", value=100.0, is_ours=True),
    ],
)
RATES = Bars(
    title="8 spines",
    unit="Mb/s",
    is_time=False,
    bound=None,
    bars=[Bar(name="1 stream", value=10.0), Bar(name="Tutti", value=80.0, is_ours=True)],
)


def test_gain__no_ratio_where_both_ran_the_same_plan(measured: Results) -> None:
    assert demo_document.gains(measured) == {64: 2.0, 1024: SAME_PLAN}
    table = demo_document.mpi_table([measured])
    assert "2.00x" in table
    assert "1.50x" not in table


def test_gain__a_staged_plan_on_gpus_is_the_one_of_native(document: Results) -> None:
    rows = [row(64, "native", 8.0), row(64, "mpi-gamma", 4.0, hybrid=True)]
    assert demo_document.gains(of(document, rows)) == {64: SAME_PLAN}


def test_gain__on_gpus_also_over_nccl(document: Results) -> None:
    rows = [row(64, "native", 9.0), row(64, "nccl", 6.0), row(64, "direct-gamma", 3.0, hybrid=True)]
    rows += [row(1024, "native", 9.0), row(1024, "nccl", 6.0)]
    rows += [row(1024, "ccl-beta", 6.0, hybrid=True)]
    found = msgspec.structs.replace(document, rows=rows, memory="device")
    assert demo_document.gains(found, "nccl") == {64: 2.0, 1024: SAME_PLAN}
    sentence = demo_document.mpi_sentence([found])
    assert "2.0 times faster than NCCL called directly, median of the 1 of 2 points" in sentence


def test_gain__a_time_slice_is_noise(document: Results) -> None:
    slow = row(64, "native", 28_000.0)  # Its least, 14000 us, is no less.
    rows = [slow, row(64, "direct-gamma", 0.5, hybrid=True)]
    rows += [row(1024, "native", 1.0), row(1024, "direct-gamma", 0.5, hybrid=True)]
    assert demo_document.gains(of(document, rows)) == {64: NOISY, 1024: 2.0}


def test_mpi_sentence__tells_at_how_many_points(measured: Results) -> None:
    sentence = demo_document.mpi_sentence([measured])
    assert "Your MPI, 2.0 times faster on this machine" in sentence
    assert "1 of 2 points" in sentence
    same = of(measured, [one for one in measured.rows if one.bytes == 1024])
    assert "no gain to show" in demo_document.mpi_sentence([same])


def test_bars__times_and_rates_are_compared_the_right_way_round() -> None:
    assert BARS.gain("default") == 4.0
    assert BARS.best_other().name == "best"
    assert RATES.gain("1 stream") == 8.0
    sentence = demo_document.rails_sentence(BARS)
    assert "50% of what the links allow" in sentence
    assert "4.0 times faster than default, 2.0 times faster than best" in sentence
    assert "8.0 times 1 stream" in demo_document.transport_sentence(RATES)
    assert BARS.bound is not None
    beaten = msgspec.structs.replace(BARS, bound=BARS.ours().value * 1.02)
    assert "102% of what the links allow in the long run" in demo_document.rails_sentence(beaten)


def test_sentences__one_for_each_part_that_ran(measured: Results) -> None:
    found = demo_document.sentences(
        Demo(command="", date="", mpi=[measured], rails=BARS, transport=RATES)
    )
    assert [one.split()[0] for one in found] == ["Your", "All", "NCCL's"]
    assert demo_document.sentences(Demo(command="", date="", rails=BARS)) == found[1:2]


def test_fabric_bars__from_rows_of_the_benchmark() -> None:
    rows = [
        {"way": "TCP, 1 stream", "goodput_mbps": 12.0, "of_ideal": 0.125},
        {"way": "Tutti", "goodput_mbps": 80.0, "of_ideal": 0.8},
    ]
    panel = parts.fabric_bars(rows)
    assert panel.bound == 100.0
    assert panel.ours().value == 80.0


def test_bars__a_run_without_tutti_is_an_error() -> None:
    with pytest.raises(TuttiError, match="no result"):
        parts.fabric_bars([{"way": "TCP, 1 stream", "goodput_mbps": 12.0, "of_ideal": 0.125}])
    with pytest.raises(TuttiError, match="no result"):
        parts.plugin_bars([])


def test_plugin_bars__a_wrong_element_is_an_error() -> None:
    one = {"way": "Tutti", "us": 1.0, "ideal_us": 1.0, "wrong": 1}
    with pytest.raises(TuttiError, match="1 wrong"):
        parts.plugin_bars([one])


def _rails(rows: Sequence[Row], document: Results) -> Results:
    return of(document, list(rows))


def test_rail_bars__rings_must_have_run(document: Results) -> None:
    native = row(1 << 22, "native", 400e3)
    own = _rails([native, row(1 << 22, "rings", 100e3, hybrid=True)], document)
    striped = _rails([native], document)
    panel = parts.rail_bars(own, striped, striped)
    assert panel.ours().value == 100.0
    assert panel.gain("Open MPI, striped") == 4.0
    other = _rails([native, row(1 << 22, "native", 100e3, hybrid=True)], document)
    with pytest.raises(TuttiError, match="does not choose rings"):
        parts.rail_bars(other, striped, striped)


def test_run__a_part_that_fails_says_why_and_the_others_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran = []

    def fails(_: Demo, __: object) -> None:
        raise TuttiError("no namespaces; remedy: run as root")

    demo = Demo(command="", date="")
    steps = [parts.Step("one", fails), parts.Step("two", lambda *_: ran.append("two"))]
    demo_main.run(demo, steps)
    assert ran == ["two"]
    assert demo.not_run == ["one: no namespaces; remedy: run as root"]
    assert capsys.readouterr().err.splitlines() == ["[1/2] one", "[2/2] two"]


def test_progress__rewrites_one_line_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_main.sys.stderr, "isatty", lambda: True)  # type: ignore[attr-defined]
    with demo_main.progress_of(2) as show:
        show(0, "one", 0.5)
        show(1, "two", 0)
    said = capsys.readouterr().err
    assert "\n" not in said
    lines = [line for line in said.split(demo_main.REWRITE) if line]
    assert [line.split()[-2:] for line in lines] == [["25%", "one"], ["50%", "two"]]


def test_simulate__stands_in_for_the_fabric(library: None) -> None:
    demo = Demo(command="", date="")
    parts._simulate(demo, lambda _: None)
    assert demo.transport is not None
    assert demo.transport.gain("one path, go-back-N") > 1
    assert demo.transport.title.startswith("simulated")


def test_picture__three_panels_also_where_parts_did_not_run(
    measured: Results, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    full = Demo(command="", date="", mpi=[measured], rails=BARS, transport=RATES)
    for number, demo in enumerate((full, Demo(command="", date=""))):
        assert len(picture.draw(demo).axes) == 3
        picture.save(demo, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 0
