# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Tutti: fast collective communication without changing the programs that call it."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path


def _version() -> str:
    """The installed package's version; in a source tree that of the CMake project."""
    installed = Path(__file__).with_name("VERSION")  # In a prefix of `cmake --install`.
    if installed.is_file():
        return installed.read_text().strip()
    project = Path(__file__).parents[2] / "CMakeLists.txt"
    if project.is_file():
        match = re.search(r"project\(tutti VERSION ([0-9.]+)", project.read_text())
        if match:
            return match.group(1)
    try:
        return importlib.metadata.version("tutti-hpc")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


__version__ = _version()
