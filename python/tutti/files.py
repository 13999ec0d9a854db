# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Files of results are written whole or not at all: who is killed in between leaves the old one."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tutti.errors import TuttiError


def write(path: Path, data: bytes | str) -> None:
    """Puts a new file in the place of `path`. A device or a pipe is written to as it is."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        # A link stays one.
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_bytes(raw)
            return
        new = target.with_name(f".{target.name}.{os.getpid()}.new")
        try:
            new.write_bytes(raw)
            if target.exists():
                shutil.copymode(target, new)
            new.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
    except OSError as error:
        raise TuttiError(f"{path}: {error.strerror}") from None
