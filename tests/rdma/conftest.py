# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the tests in a virtual machine. With CI=true a missing part is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
import rdma_vm

from missing import unavailable

HERE = Path(__file__).resolve().parent


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark used here."""
    config.addinivalue_line(
        "markers", "deep: long; run with -m deep, or all with -m 'deep or not deep'"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deep tests run only when a -m expression names them."""
    if "deep" in (config.getoption("-m") or ""):
        return
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.skip(reason="deep: run with -m 'deep or not deep'"))


@pytest.fixture(scope="session")
def vm() -> None:
    """The machine of tools/rdma_vm.py can run here: `rdma_vm.run_in_vm()`."""
    reason = rdma_vm.why_not()
    if reason:
        unavailable(reason)
