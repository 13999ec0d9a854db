# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What goes to stdout and stderr: data on the one, logs on the other, colours on terminals.

A command that prints data has `form_options` and ends in `show`: text for people, --json or --csv.
"""

from __future__ import annotations

import csv
import errno
import functools
import importlib.util
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO, TypeVar

import click

from tutti_hpc.errors import TuttiError
from tutti_hpc.results import Row

# A command's function, before and after its options.
_Command = TypeVar("_Command", bound=Callable[..., Any])
TEXT, JSON, CSV = "text", "json", "csv"


def colours(stream: IO[str]) -> bool:
    """True when `stream` is a terminal and NO_COLOR (no-color.org) is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def pass_names_through() -> None:
    """Standard output takes names of files that are not UTF-8, byte for byte."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")


def echo(text: str) -> None:
    """Writes data on standard output."""
    click.echo(text, nl=not text.endswith("\n"), color=colours(sys.stdout))


def note(text: str) -> None:
    """One line on standard error."""
    click.echo(f"tutti: {text}", err=True)


def echo_json(value: Any) -> None:
    """An indented JSON document on standard output."""
    echo(json.dumps(value, indent=2))


def form_options(function: _Command) -> _Command:
    """Adds --json and --csv to a command, whose function gets `form`: TEXT, JSON or CSV."""

    @click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
    @click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values (RFC 4180).")
    @functools.wraps(function)
    def with_form(*args: Any, as_json: bool, as_csv: bool, **options: Any) -> Any:
        if as_json and as_csv:
            raise click.UsageError("--json and --csv: give one of them")
        return function(*args, form=JSON if as_json else CSV if as_csv else TEXT, **options)

    return with_form  # type: ignore[return-value]


def show(
    form: str,
    *,
    text: Callable[[], str],
    document: Any,
    records: Callable[[], Iterable[Mapping[str, Any]]],
) -> None:
    """Prints data in a form: `text`, the JSON document (or its text), or one line per record."""
    if form == JSON:
        echo(document.decode()) if isinstance(document, bytes) else echo_json(document)
    elif form == CSV:
        echo(to_csv(records()))
    else:
        echo(text())


def flat(record: Any, prefix: str = "") -> dict[str, Any]:
    """A nested document as one level of keys with dots between, a.b.0.c."""
    if isinstance(record, Mapping):
        parts: Iterable[tuple[Any, Any]] = record.items()
    elif isinstance(record, (list, tuple)):
        parts = enumerate(record)
    else:
        return {prefix: record}
    found: dict[str, Any] = {}
    for key, value in parts:
        found |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def pairs(document: Any) -> list[dict[str, Any]]:
    """A document that is no table, as records of `key` and `value`."""
    return [{"key": key, "value": value} for key, value in flat(document).items()]


def to_csv(records: Iterable[Mapping[str, Any]], header: bool = True) -> str:
    """RFC 4180; the columns are the keys of all records in the order in which they come.

    Booleans are true and false; what is missing or null is empty.
    """
    rows = [flat(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text)
    if header:
        writer.writerow(names)
    for row in rows:
        cells = (row.get(name) for name in names)
        writer.writerow(str(cell).lower() if isinstance(cell, bool) else cell for cell in cells)
    return text.getvalue()


@contextmanager
def broken_streams_in_one_line() -> Iterator[None]:
    """A full disk is one line on stderr and status 2, a reader that has gone is status 141.

    That is the shell's status of a process that SIGPIPE ended, as behind `| head`.
    """
    try:
        yield
    except OSError as error:
        # What is left in the buffer would fail again at exit.
        _write_nowhere(sys.stdout)
        if error.errno == errno.EPIPE:
            sys.exit(141)
        failure = TuttiError(f"{error.filename or 'standard output'}: {error.strerror or error}")
        try:
            failure.show()
            sys.stderr.flush()
        except OSError:
            _write_nowhere(sys.stderr)
        sys.exit(failure.exit_code)


def _write_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
