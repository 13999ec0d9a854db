# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the tests in a virtual machine. Where CI is set, its absence is a failure."""

from __future__ import annotations

import os

import pytest
import rdma_vm


@pytest.fixture(scope="session")
def vm() -> None:
    """The machine of tools/rdma_vm.py can run here: `rdma_vm.run_in_vm()`."""
    reason = rdma_vm.why_not()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
