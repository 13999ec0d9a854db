# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""tools/planted_bugs.py: the bugs still fit the sources, and the record is of them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def load() -> Any:
    """The tool as a module."""
    path = REPOSITORY / "tools" / "planted_bugs.py"
    spec = importlib.util.spec_from_file_location("planted_bugs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def planted() -> list[tuple[str, str, str, str]]:
    """(name, file, old, new) of each."""
    module = load()
    return [(bug.name, bug.file, bug.old, bug.new) for bug in module.BUGS]


def test_bugs__each_fits_one_place() -> None:
    for name, file, old, new in planted():
        text = (REPOSITORY / "src" / "transport" / file).read_text()
        assert text.count(old) == 1, f"{name}: {file} has changed"
        assert old != new


def test_sources__are_those_of_the_simulation() -> None:
    names = load().simulation_sources()
    assert {"main.cpp", "world.cpp", "swarm.cpp"} <= set(names)
    assert all((REPOSITORY / "tests" / "simulation" / name).is_file() for name in names)


def test_record__is_of_these_bugs_and_all_were_caught() -> None:
    record = json.loads((REPOSITORY / "tests" / "simulation" / "planted_bugs.json").read_text())
    rows = record["bugs"]
    assert {row["name"] for row in rows} == {bug[0] for bug in planted()}
    assert all(row["seed"] > 0 for row in rows)
