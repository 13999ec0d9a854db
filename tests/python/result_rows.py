# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Rows of results documents, for tests. Not in conftest.py: other directories have one, too."""

from __future__ import annotations

from tutti_hpc.results import Latency, Row


def row(size: int, plan: str, p50: float, hybrid: bool = False, wrong: int | None = 0) -> Row:
    latency = Latency(min=p50 / 2, p50=p50, p99=p50 * 2, max=p50 * 4)
    return Row(size, plan, hybrid, latency, size / p50 / 1e3, size / p50 / 1e3 * 1.5, wrong)
