# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What happens to a test of which a piece is missing here."""

from __future__ import annotations

import os

import pytest


def unavailable(reason: str) -> None:
    """Skips with the reason; fails where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
