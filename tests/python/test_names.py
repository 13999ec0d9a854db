# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Names of files are bytes: those that are not UTF-8 are found, written and shown like others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tutti_hpc import paths

from missing import unavailable

ROOT = Path(__file__).resolve().parents[2]
NAME = b"a\xff"


def tutti(directory: Path, *words: bytes | str, **variables: bytes) -> tuple[int, bytes, bytes]:
    """Status, stdout and stderr of a command where UTF-8 is strict, never with a traceback."""
    if paths.find(paths.LIBRARY) is None:
        unavailable("libtutti.so is not built")
    environment = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    environment |= {b"PYTHONIOENCODING": b"utf-8:strict", b"PYTHONPATH": bytes(ROOT / "python")}
    environment |= {os.fsencode(name): value for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tutti_hpc", *words],
        env=environment,
        cwd=directory,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def tuning(tmp_path: Path) -> bytes:
    """A tuning file's name, in the directory of the test."""
    name = NAME + b".json"
    rule = '{"collective": "bcast", "plan": "schedule:chain"}'
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "w") as file:
        file.write(f'{{"schema": "tutti-tuning/1", "rules": [{rule}]}}')
    return name


def test_names__tuning_files(tmp_path: Path, tuning: bytes) -> None:
    assert tutti(tmp_path, "tuning", "check", tuning) == (0, tuning + b": 1 rules, correct\n", b"")
    status, shown, _ = tutti(tmp_path, "tuning", "check", tuning, "--json")
    assert status == 0
    assert os.fsencode(json.loads(shown)["file"]) == tuning
    status, shown, _ = tutti(tmp_path, "tuning", "show", tuning)
    assert status == 0
    assert b"schedule:chain" in shown
    status, schema, _ = tutti(tmp_path, "tuning", "schema", "-o", b"schema-" + tuning)
    assert (status, schema) == (0, b"")
    with open(os.path.join(os.fsencode(tmp_path), b"schema-" + tuning)) as file:
        assert "plan" in json.load(file)["$defs"]["rule"]["required"]
    status, _, said = tutti(tmp_path, "tuning", "check", b"no" + tuning)
    assert (status, said.count(b"\n")) == (2, 1)


def test_names__tuning_file_of_the_environment(tmp_path: Path, tuning: bytes) -> None:
    call = ("explain", "bcast", "--bytes", "4", "--memory", "host", "--mpi", "other", "--json")
    status, shown, said = tutti(tmp_path, *call, TUTTI_TUNING_FILE=tuning)
    assert (status, json.loads(shown)["plan"]) == (0, "schedule:chain"), said


def test_names__of_run(tmp_path: Path, tuning: bytes) -> None:
    """The option's file reaches the program, and so do the arguments."""
    script = 'printf %s "$TUTTI_TUNING_FILE:$1"'
    words = ("run", "--tuning-file", tuning, "--", "sh", "-c", script, "sh", NAME)
    file = os.path.join(os.fsencode(tmp_path), tuning)
    assert tutti(tmp_path, *words) == (0, file + b":" + NAME, b"")
    status, shown, _ = tutti(tmp_path, "run", "--print", "--", b"./" + NAME)
    assert status == 0
    assert shown.endswith(b" './" + NAME + b"'\n")


def test_names__of_outputs(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"in" + NAME), "w") as file:
        file.write('{"collective=bcast": {"algorithm=MPIR_Bcast_intra_binomial": {}}}')
    status, _, said = tutti(tmp_path, "tuning", "import", b"in" + NAME, "-o", b"out" + NAME)
    assert status == 0, said
    assert sorted(os.listdir(os.fsencode(tmp_path))) == [b"in" + NAME, b"out" + NAME]
    status, shown, said = tutti(tmp_path, "topo", "--json")
    assert status == 0, said
    with open(os.path.join(os.fsencode(tmp_path), NAME), "wb") as file:
        file.write(shown)
    assert tutti(tmp_path, "topo", "--file", NAME)[0] == 0


def test_names__of_the_command_in_results(tmp_path: Path) -> None:
    words = ("sim", "network", "--topology", "fat-tree:16", "--bytes", "4K", "-o", NAME)
    status, _, said = tutti(tmp_path, *words)
    assert status == 0, said
    document = json.loads((tmp_path / os.fsdecode(NAME)).read_text())
    assert document["command"].endswith("-o 'a\\xff'")


def test_names__in_a_query_are_one_clear_line(tmp_path: Path, tuning: bytes) -> None:
    status, _, said = tutti(tmp_path, "sim", "network", "--topology", tuning, "--bytes", "4K")
    assert (status, said.count(b"\n")) == (2, 1)
    assert b"a name that is not UTF-8; remedy:" in said


def test_names__congestion_controllers_are_those_of_the_error(tmp_path: Path) -> None:
    """Who reads the knob's text can write each of them, and misses none."""
    status, shown, _ = tutti(tmp_path, "config", "--json")
    assert status == 0
    (effect,) = (k["effect"] for k in json.loads(shown) if k["name"] == "TUTTI_NET_CONTROLLER")
    listed, _, _ = effect.partition(": ")[2].partition(".")
    assert set(re.findall(r"[\w+]+", listed)) - {"each", "of", "them", "with", "or"} == {
        *("nscc", "swift", "cubic", "dctcp", "timely", "fixed", "rccc", "eqds", "+rccc"),
    }
