# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The `tutti` command, also as `python -m tutti_hpc`. A Python package it lacks is named."""

from __future__ import annotations

import sys

NEEDED = "click msgspec"  # As in pyproject.toml.


def main() -> None:
    """Does not return."""
    try:
        from tutti_hpc.cli import main as command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "tutti_hpc":
            raise
        sys.exit(
            f"tutti: {sys.executable} has no Python package {error.name}; "
            f"remedy: {sys.executable} -m pip install {NEEDED}"
        )
    command(prog_name="tutti")


if __name__ == "__main__":
    main()
