# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What goes to stdout and stderr: data on the one, logs on the other, colours on terminals."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import click

from tutti.results import Row


def colours(stream: IO[str]) -> bool:
    """True when `stream` is a terminal and NO_COLOR (no-color.org) is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def echo(text: str) -> None:
    """Writes data on standard output."""
    click.echo(text, nl=not text.endswith("\n"), color=colours(sys.stdout))


def note(text: str) -> None:
    """One line on standard error."""
    click.echo(f"tutti: {text}", err=True)


def echo_json(value: Any) -> None:
    """An indented JSON document on standard output."""
    echo(json.dumps(value, indent=2))


def columns(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Left-aligned columns, two blanks apart."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def paint_row(line: str, row: Row) -> str:
    """Wrong rows red, the hybrid's bold."""
    if row.wrong:
        return click.style(line, fg="red", bold=True)
    return click.style(line, bold=True) if row.hybrid else line


@contextmanager
def progress(description: str) -> Iterator[Callable[[float], None] | None]:
    """A progress bar on a terminal's standard error; None without a terminal or package rich."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=Console(stderr=True, no_color=not colours(sys.stderr)),
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda done: bar.update(task, completed=done)
