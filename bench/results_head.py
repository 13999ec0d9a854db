# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What every results document of bench/ begins with."""

from __future__ import annotations

import datetime
import shlex
import sys
from typing import Any

import msgspec
from tutti import __version__, machine


def head(schema: str) -> dict[str, Any]:
    """The keys that say by what, when, where and with which version the rest was measured."""
    words = (word.rpartition("/")[2] if word.startswith("/") else word for word in sys.argv)
    return {
        "schema": schema,
        "command": shlex.join(["python", *words]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": msgspec.to_builtins(machine.describe()),
        "versions": {"tutti": __version__},
    }
