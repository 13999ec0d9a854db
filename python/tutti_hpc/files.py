# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Files of results are written whole or not at all: who is killed in between leaves the old one."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import click

from tutti_hpc.errors import TuttiError

IMAGES = (".png", ".pdf", ".svg")


class OutputFile(click.Path):
    """The type of an option that names a file to write.

    What would fail at the end of a long run (no such directory, no permission, an image of no known
    kind) fails when the command line is read.
    """

    def __init__(self, suffixes: tuple[str, ...] = ()) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path, as it was given."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self.suffixes and path.suffix.lower() not in self.suffixes:
            raise TuttiError(f"{path}: an image is written as {', '.join(self.suffixes)}")
        check_writable(path)
        return path


def check_writable(path: Path) -> None:
    """A TuttiError when write() could not make the file now."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        if not os.access(target, os.W_OK):
            raise TuttiError(f"{path}: Permission denied")
        return
    directory = target.parent
    if not directory.is_dir():
        raise TuttiError(f"{path}: there is no directory {directory}; remedy: mkdir -p {directory}")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise TuttiError(f"{path}: no file can be made in {directory}: Permission denied")


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
