# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What every results document of bench/ begins with."""

from __future__ import annotations

import datetime
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from tutti import __version__, machine

ROOT = Path(__file__).resolve().parents[1]


def commit() -> str:
    """The commit that is measured, with "-dirty" where files differ from it; empty: nobody knows.

    A copy of the tree without its history has it from whoever copied it: BENCH_COMMIT.
    """
    said = os.environ.get("BENCH_COMMIT", "")
    if said or not (ROOT / ".git").exists():
        return said
    command = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*"]
    command += ["--abbrev=12", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def head(schema: str) -> dict[str, Any]:
    """The keys that say by what, when, where and with which version the rest was measured."""
    words = (word.rpartition("/")[2] if word.startswith("/") else word for word in sys.argv)
    return {
        "schema": schema,
        "command": shlex.join(["python", *words]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": msgspec.to_builtins(machine.describe()),
        "versions": {"tutti": __version__, "commit": commit()},
    }
