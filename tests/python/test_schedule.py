# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti schedule`: proofs from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tutti_hpc import schedule
from tutti_hpc.cli import main


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["schedule", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_list__names_of_one_collective(library: None) -> None:
    code, out, _ = run("list", "alltoall")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == [
        "linear",
        "pairwise",
        "bruck",
        "rails",
    ]


@pytest.mark.parametrize("collective", ["allgather", "allreduce", "bcast", "alltoall", "barrier"])
@pytest.mark.parametrize("place", [[], ["--in-place"]])
def test_check__every_algorithm_on_uneven_nodes(
    library: None, collective: str, place: list[str]
) -> None:
    code, out, _ = run("check", collective, "--layout", "5,4,3", "--sockets", "2", *place)
    assert code == 0
    verdicts = {line.split()[1] for line in out.splitlines()[1:]}
    assert verdicts == {"right"}


def test_check__formula_beside_what_was_counted(library: None) -> None:
    code, out, _ = run("check", "allgather", "-a", "ring", "--layout", "2x4", "--json")
    answer = json.loads(out)["ring"]
    assert code == 0
    counts = {"rounds": 7, "sent_max": 7 * 16, "scratch_max": 0, "node_out_max": 7 * 16}
    assert answer["formula"] == counts | {"exact": True}
    assert {key: answer[key] for key in counts} == counts


def test_check__every_count_is_printed_with_its_formula(library: None) -> None:
    _, out, _ = run("check", "reduce", "-a", "binomial", "--layout", "2x4", "--count", "5")
    header, row = out.splitlines()
    assert header.split()[2:6] == ["rounds", "sent", "node-out", "scratch"]
    # Each rank but the root sends the vector once, one rank to the other node; three children.
    assert row.split()[2:14] == ["3", "=", "3", "5", "=", "5", "5", "=", "5", "15", "=", "15"]


def test_check__what_segments_overlap_is_only_bounded(library: None) -> None:
    _, out, _ = run("check", "alltoall", "-a", "pairwise", "--layout", "2x4", "--segments", "2")
    assert "1 <= 7" in out


def test_docs__the_table_has_every_algorithm_and_no_other(library: None) -> None:
    _, out, _ = run("list")
    listed = {(line.split()[0], line.split()[1]) for line in out.splitlines()[1:]}
    text = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
    section = ""
    in_table = set()
    for line in text.partition("\n## The table\n")[2].splitlines():
        cell = line.split("|")[1].strip() if line.startswith("| ") else ""
        if cell.startswith("**"):
            section = cell.strip("*")
        elif section and cell:
            in_table |= {(section, name) for name in cell.split(" (")[0].split(", ")}
    assert in_table == listed


def test_check__a_refusal_is_said(library: None) -> None:
    _, out, _ = run("check", "allgather", "-a", "neighbor-exchange", "--layout", "1x3")
    assert "refused" in out
    assert "even number of ranks" in out


def test_check__steps_of_a_rank(library: None) -> None:
    _, out, _ = run("check", "bcast", "-a", "knomial", "--layout", "1x2", "--rank", "1")
    assert "rank 1, step 0 (receive of output[0, 16) from 0" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "allgather", "-a", "rnig"), "algorithm: allgather has no 'rnig'"),
        (("check", "scan"), "scan: no algorithm of ours"),
        (("check", "allgather", "--layout", "4y2"), "--layout 4y2"),
        (("check", "allgather", "--layout", "2000"), "nodes: ranks per node are"),
        (("check", "bcast", "--root", "9"), "root: a whole number from 0 to 7"),
        (("list", "alltoal"), "alltoal: no algorithm"),
    ],
)
def test_bad_input__is_named(library: None, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = run(*arguments)
    assert code != 0
    assert said in err


def test_ranks_per_node() -> None:
    assert schedule.ranks_per_node("5,4,3") == [5, 4, 3]
    assert schedule.ranks_per_node("3x2") == [2, 2, 2]
