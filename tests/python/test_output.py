# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What every command does with its data: forms, files, full disks, readers that have gone."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tutti_hpc import output
from tutti_hpc.cli import main

ROOT = Path(__file__).resolve().parents[2]

# A call of each command that prints data and needs no job, with columns that its CSV has.
DATA = {
    "config": ((), {"name", "value", "origin", "effect"}),
    "explain": (("allreduce", "-b", "64K"), {"collective", "plan", "chosen", "possible"}),
    "info": ((), {"key", "value"}),
    "schedule check": (
        ("allreduce", "-a", "ring", "--rank", "0"),
        {"algorithm", "ok", "step.text"},
    ),
    "schedule list": ((), {"collective", "algorithm", "summary"}),
    "sim collective": (
        ("--cluster", "cluster-a", "-n", "4", "-b", "2M", "-e", "2M"),
        {"bytes", "algorithm", "latency_us"},
    ),
    "sim network": (
        ("--topology", "fat-tree:16", "--bytes", "64K"),
        {"seed", "end_us", "packets_sent"},
    ),
    "topo": ((), {"key", "value"}),
    "tuning check": ((str(ROOT / "tuning" / "ethernet-100mbit.json"),), {"file", "rules"}),
    "tuning show": ((), {"rule", "call", "plan", "origin"}),
}
# Other tests have these: they need a job, a lab or a network.
WITH_A_JOB = {"bench", "lab links", "top"}
# Print no data: they start something, or write a file or a line of shell.
WITHOUT_DATA = {"env", "path", "plot", "run", "tuning import", "tuning make", "tuning schema"}
WITHOUT_DATA |= {f"lab {word}" for word in ("down", "exec", "link", "run", "shell", "up")}


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


def invoke(name: str, *words: str) -> Result:
    return CliRunner().invoke(main, [*name.split(), *words])


def records(text: str) -> list[dict[str, str]]:
    assert text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_command_with_data_has_both_forms() -> None:
    assert isinstance(main, click.Group)
    found = dict(commands(main))
    assert set(found) == DATA.keys() | WITH_A_JOB | WITHOUT_DATA
    for name, command in found.items():
        options = {word for one in command.params for word in one.opts}
        assert ({"--json", "--csv"} <= options) == (name not in WITHOUT_DATA), name


@pytest.mark.parametrize("name", DATA)
def test_forms__of_a_command(name: str, library: None) -> None:
    words, columns = DATA[name]
    done = invoke(name, *words, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    done = invoke(name, *words, "--csv")
    assert done.exit_code == 0, done.output
    rows = records(done.stdout_bytes.decode())
    assert rows
    assert columns <= set(rows[0])
    assert all(len(row) == len(rows[0]) and None not in row for row in rows)
    both = invoke(name, *words, "--csv", "--json")
    assert both.exit_code == 2
    assert "--json and --csv: give one of them" in both.stderr


def test_to_csv__flat_with_the_keys_of_all_records() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": {"c": True, "d": [1, None]}}, {"a": 'x,"', "e": 2}]
    assert output.to_csv(rows) == 'a,b.c,b.d.0,b.d.1,e\r\n1,true,1,,\r\n"x,""",,,,2\r\n'
    assert output.to_csv(rows[:1], header=False) == "1,true,1,\r\n"


def run(*words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """In a process of its own, whose streams end as they do for a user."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(
        [sys.executable, "-m", "tutti_hpc", *words], env=env, text=True, timeout=120, **streams
    )


def test_full_disk__is_one_line(library: None) -> None:
    with open("/dev/full", "w") as full:
        for words in (["config"], ["--help"], ["sim", "network", "--help"]):
            done = run(*words, stdout=full)
            said = "tutti: standard output: No space left on device\n"
            assert (done.returncode, done.stderr) == (2, said), words
        assert run("config", stdout=full, stderr=full).returncode == 2
    done = run(
        *[
            "sim",
            "collective",
            "--cluster",
            "cluster-a",
            "-n",
            "4",
            "-b",
            "2M",
            "-e",
            "2M",
            "-o",
            "/dev/full",
        ]
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tutti: /dev/full: No space left on device\n"


def test_reader_that_has_gone__is_no_traceback(library: None) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as gone:
        done = run("config", stdout=gone)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "words",
    [
        "bench allreduce -o {}/none/x.json",
        "bench allreduce --plot {}/none/x.png",
        "sim collective --cluster cluster-a -o {}/none/x.json",
        "sim network -o {}/none/x.json",
        "topo --svg {}/none/x.svg",
        "tuning make x.json -o {}/none/x.json",
    ],
)
def test_output_file__is_looked_at_first(words: str, tmp_path: Path) -> None:
    done = invoke("", *words.format(tmp_path).split())
    assert done.exit_code == 2
    assert f"there is no directory {tmp_path}/none; remedy: mkdir -p" in done.stderr
    assert done.stdout == ""


def test_output_file__an_image_has_a_known_ending(tmp_path: Path) -> None:
    done = invoke("bench", "allreduce", "--plot", str(tmp_path / "x.jpeg2"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "an image is written as .png, .pdf, .svg" in done.stderr


def test_output_file__directory_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    done = invoke("bench", "allreduce", "-o", str(tmp_path / "x.json"))
    assert done.exit_code == 2
    assert f"no file can be made in {tmp_path}: Permission denied" in done.stderr


@pytest.mark.parametrize(
    "words",
    ["run -- touch MARK", "bench allreduce --plans native", "explain bcast", "tuning show"],
)
def test_plan_of_a_variable__fails_before_anything_starts(
    words: str, library: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUTTI_ALLREDUCE", "8K:mpi,ccl")
    monkeypatch.setenv("TUTTI_BCAST", "8K:mpi,foo")
    mark = tmp_path / "mark"
    done = invoke("", *words.replace("MARK", str(mark)).split())
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert "TUTTI_BCAST" in done.stderr
    assert "'foo' is not a plan" in done.stderr
    assert not mark.exists()


def test_plan_of_a_variable__files_are_the_ranks_own(
    library: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuning file need not be on the machine where a job is started."""
    monkeypatch.setenv("TUTTI_TUNING_FILE", str(tmp_path / "of-the-nodes.json"))
    monkeypatch.setenv("TUTTI_BCAST", "mpi")
    assert invoke("", "run", "--print", "--", "true").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench allreduce --plans native,foo", "'foo' is not a plan; plans are mpi, ccl, direct"),
        ("bench allreduce --plans schedule:foo", "is not an algorithm; there are bcast: knomial"),
        ("bench allgather --plans net:foo", "there are net:linear, net:ring"),
        ("bench foo", "'foo' is no collective; there are barrier, bcast"),
        ("bench allreduce --lab nowhere-to-be", "remedy: tutti lab --name nowhere-to-be up"),
        ("run --plan allreduce=foo -- mpirun true", "'foo' is not a plan; plans are mpi"),
        ("sim collective --cluster foo", "no such file; shipped are cluster-a"),
        ("sim collective --cluster cluster-a --algorithms foo", "allgather has linear, ring"),
        ("schedule check allreduce -a foo", "foo"),
        ("tuning check no-such-file.json", "no-such-file.json"),
        ("topo --file no-such-file.json", "no-such-file.json"),
        ("plot no-such-file.json -o x.png", "no-such-file.json"),
    ],
)
def test_unknown_name__fails_at_once(words: str, said: str, library: None) -> None:
    done = invoke("", *words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
