# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the MPI tests. Where CI is set, a missing piece is a failure, not a skip."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness
from missing import unavailable

# Not the benches', whose Open MPI is a user's: it would read a file of all symbols of the kernel.
os.environ.setdefault("OMPI_MCA_mtl", "^ofi")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks used here."""
    config.addinivalue_line(
        "markers", "deep: long; run with -m deep, or all with -m 'deep or not deep'"
    )
    harness.deep = names_deep(config)
    harness.present = tuple(f for f in harness.FLAVOURS if not isinstance(harness.find_mpi(f), str))


def names_deep(config: pytest.Config) -> bool:
    """Whether a -m expression names the deep tests."""
    words = re.findall(r"\w+", config.getoption("-m") or "")
    return any(
        word == "deep" and (index == 0 or words[index - 1] != "not")
        for index, word in enumerate(words)
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deep tests run only when a -m expression names them. Ranks spin."""
    here = Path(__file__).resolve().parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spins)
        if item.get_closest_marker("deep") and not names_deep(config):
            item.add_marker(pytest.mark.skip(reason="deep: run with -m deep"))


@pytest.fixture(params=harness.FLAVOURS)
def mpi(request: pytest.FixtureRequest) -> harness.Mpi:
    """Each MPI ABI, with its test programs built."""
    found = harness.find_mpi(request.param)
    if isinstance(found, str):
        unavailable(found)
        raise AssertionError
    if not found.program("collectives").exists():
        unavailable(f"{found.program('collectives')} is not built (cmake --build build/dev)")
    return found


@pytest.fixture
def preload_library() -> Path:
    """libtutti-mpi.so."""
    path = harness.preload_library()
    if not path.exists():
        unavailable(f"{path} is not built (cmake --build build/dev)")
    return path
